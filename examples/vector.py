"""A one-to-many mapping between vectors, learned and checked against the truth.

A point of the plane, near the first axis, is rotated by 0°, 120° or 240° about the origin. The
probability of each angle depends on the distance of the point from the origin. The network is an
MLP.

    python examples/vector.py
"""

import tempfile
from pathlib import Path

import mue  # isort: skip  # before torch: it sets how threads wait
import torch

from mue.data.build import build_source
from mue.metrics.modes import mode_probabilities


def main() -> None:
    """Train for half a minute, then print predicted and true probabilities of three points."""
    with tempfile.TemporaryDirectory() as folder:
        run = mue.train(mue.preset("vector"), Path(folder) / "run")
        predictor = mue.load(run)
    source = build_source(predictor.config.data, "test", seed=0, device=predictor.device)
    case = source.case(torch.arange(20))
    rows = [case.group.index(kind) for kind in ("near", "middle", "far")]
    h = predictor.propose(case.x[rows], normalized=True)
    predicted = mode_probabilities(h.y, h.prob, case.ys[rows])
    for i, row in enumerate(rows):
        print(f"x = ({case.x[row, 0]:+.2f}, {case.x[row, 1]:+.2f}), {case.group[row]}")
        for angle, p, q in zip((0, 120, 240), predicted[i], case.q[row], strict=True):
            print(f"  rotated by {angle:3d}°: predicted {p:.3f}, true {q:.3f}")


if __name__ == "__main__":
    main()
