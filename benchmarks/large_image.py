"""Time and peak memory of the answer to a large RGB image on a CPU, each size in its own process.

`python benchmarks/large_image.py 1024 4096` prints a row for each side. Where one pass over the
whole image fits, it says how far probabilities and masks are from it.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from dataclasses import replace

import torch
import torch.nn.functional as F

from mue.config.presets import preset
from mue.inference import strips
from mue.inference.predictor import Predictor
from mue.models.build import build_network

WHOLE = 1024
"""Side up to which the whole image is also taken in one pass."""


def measure(side: int) -> str:
    """A row of the table: side, seconds, GiB, and the differences to one pass."""
    torch.manual_seed(0)
    config = preset("lidc-exact")
    config = replace(config, model=replace(config.model, c_in=3))
    predictor = Predictor(build_network(config), config)
    coarse = torch.rand(1, 3, side // 16, side // 16)
    x = F.interpolate(coarse, scale_factor=16, mode="bilinear")[0].clamp_(0, 1)
    x = (x * 255).byte()
    strips.LARGE = 0
    start = time.perf_counter()
    modes = predictor.modes(x)
    seconds = time.perf_counter() - start
    gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    row = f"{side:5d} {seconds:8.1f} s {gib:6.2f} GiB"
    if side > WHOLE:
        return row
    strips.LARGE = 1 << 40
    whole = predictor.modes(x)
    order, same = modes.answer_code[0].argsort(), whole.answer_code[0].argsort()
    prob = (modes.answer_prob[0, order] - whole.answer_prob[0, same]).abs().max()
    found, known = modes.answers[0, order] > 0.5, whole.answers[0, same] > 0.5
    differ, area = ((v.flatten(1).sum(dim=1)) for v in (found != known, known))
    pixels = (differ / area.clamp_min(1)).max()
    return f"{row}; from one pass: probabilities {prob:.1e}, pixels of a mask {pixels:.1e}"


def main() -> None:
    """Measure each side that is given."""
    if sys.argv[1] == "--one":
        print(measure(int(sys.argv[2])))
        return
    for side in sys.argv[1:]:
        subprocess.run([sys.executable, __file__, "--one", side], check=True)  # noqa: S603


if __name__ == "__main__":
    main()
