"""How much the raters of prepared images differ, and what that leaves a model to reach."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, UInt8
from torch import Tensor

from mue.data.prepared.open import Prepared
from mue.metrics.energy import best_ged, rater_disagreement
from mue.metrics.overlap import iou_distance

GED_N = (16, 100)
"""Numbers of samples for which the best `ged_n` is given."""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Means over images with at least two raters; not a number where there is none."""

    images: int  # that were compared
    iou: dict[str, float]  # of two raters, for each class, where any of the raters annotated it
    distance: float  # 1 - IoU of two raters, over classes
    best: dict[str, float]  # the lowest expected `ged`, `ged_16`, … of any model


def disagreement(prepared: Prepared, max_images: int = 2000) -> Disagreement:
    """Compare the raters of images spread evenly over the data."""
    several = np.flatnonzero((prepared.q > 0).sum(axis=1) > 1)
    count = min(max_images, len(several))
    chosen = several[np.linspace(0, len(several) - 1, count).round().astype(int)]
    classes = prepared.meta.labels[1:] or ("foreground",)
    names = ("ged", *(f"ged_{n}" for n in GED_N))
    by_class: dict[str, list[float]] = {name: [] for name in classes}
    distance: list[float] = []
    best: dict[str, list[float]] = {name: [] for name in names}
    for i in chosen.tolist():
        masks = one_hot(prepared.masks_of(i), len(classes))
        q = torch.from_numpy(prepared.q[i, : len(masks)].astype(np.float32))[None]
        for c, name in enumerate(classes):
            if masks[:, c].any():
                one = masks[None, :, c : c + 1]
                d = rater_disagreement(iou_distance(one, one), q)
                by_class[name].append(1 - d.item())
        every = masks[None]
        d = rater_disagreement(iou_distance(every, every), q)
        distance.append(d.item())
        known = prepared.known  # then there is nothing but these answers
        for name, n in zip(names, (None, *GED_N), strict=True):
            among = (1 - q.square().sum(dim=1)) * d / n if known and n else 0 * d
            best[name].append((among if known else best_ged(d, q, n)).item())
    return Disagreement(
        images=len(distance),
        iou={name: _mean(values) for name, values in by_class.items()},
        distance=_mean(distance),
        best={name: _mean(values) for name, values in best.items()},
    )


def one_hot(masks: UInt8[np.ndarray, "r h w"], classes: int) -> Bool[Tensor, "r c h w"]:
    """A mask for each class but the background."""
    each = np.arange(1, classes + 1, dtype=np.uint8)[:, None, None]
    return torch.from_numpy(masks[:, None] == each)


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else float("nan")
