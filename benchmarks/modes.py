"""What grouping answers into modes costs, next to finding them.

    python benchmarks/modes.py [--batch 32] [--device auto]

Times `propose` of all 16 answers of `lidc-exact` to a batch of 128 x 128 images, and `group` of
these answers into modes, in turn, and prints the ratio of the medians. The images are noise, which
has no lesion, so the answers are those of 16 blobs that overlap: grouping does all its steps either
way.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

import mue
from mue.runtime.devices import choose_device, device_name
from mue.types import Hypotheses

REPEATS = 15


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """How long a call takes."""
    began = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began


def blobs(prob: torch.Tensor, code: torch.Tensor) -> Hypotheses:
    """Discs that overlap more or less, with the probabilities of real answers."""
    b, k = prob.shape
    g = torch.Generator().manual_seed(0)
    x, y, r = (
        low + span * torch.rand(b, k, 1, 1, 1, generator=g)
        for low, span in ((56, 16), (56, 16), (6, 12))
    )
    at = torch.arange(128.0)
    discs = ((at[:, None] - x) ** 2 + (at[None, :] - y) ** 2 < r**2).float()
    return Hypotheses(discs.to(prob.device), prob, code)


def main() -> None:
    """Measure and print."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    options = parser.parse_args()
    device = choose_device(options.device)
    predictor = mue.load("bundled:lidc-exact", device=options.device)
    x = torch.rand(options.batch, 1, 128, 128, device=device)
    h = predictor.propose(x, 16, normalized=True)
    answers = blobs(h.prob, h.code)
    took: dict[str, list[float]] = {"propose": [], "group": []}
    for i in range(REPEATS + 3):
        one = seconds(lambda: predictor.propose(x, 16, normalized=True), device)
        two = seconds(lambda: predictor.group(answers), device)
        if i >= 3:
            took["propose"].append(one)
            took["group"].append(two)
    propose, group = (statistics.median(took[name]) for name in ("propose", "group"))
    print(
        f"{device_name(device)}, batch {options.batch}: 16 answers {1e3 * propose:.2f} ms, "
        f"grouping {1e3 * group:.2f} ms, {group / propose:.1%}"
    )


if __name__ == "__main__":
    main()
