"""Answers as masks, and the distance of two answers.

What an answer is, a `Kind`, follows from the likelihood it was learned with. The answers of all
models are thresholded here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mue.errors import MueError
from mue.metrics.overlap import iou_distance

Kind = Literal["masks", "classes", "vectors"]
"""Masks: the probability of each pixel. Classes: the probability of each class at each pixel, the
first of which is the background. Vectors: values that are no masks."""
Distance = Callable[[Tensor, Tensor], Tensor]
"""Distance of every pair of answers: (b m *y), (b n *y) -> (b m n)."""


def binary_masks(y: Float[Tensor, "*y"]) -> Bool[Tensor, "*y"]:
    """Pixels that are more probably in the mask than not.

    >>> binary_masks(torch.tensor([0.4, 0.5, 0.6]))
    tensor([False, False,  True])
    """
    return y > 0.5


def class_masks(y: Float[Tensor, "b k c h w"]) -> Bool[Tensor, "b k c_ h w"]:
    """The mask of each class but the first, the background: pixels where it is most probable.

    >>> class_masks(torch.tensor([0.2, 0.3, 0.5]).view(1, 1, 3, 1, 1)).flatten()
    tensor([False,  True])
    """
    classes = torch.arange(1, y.shape[2], device=y.device)
    return y.argmax(dim=2, keepdim=True) == classes[:, None, None]


def mask_distance(a: Float[Tensor, "b m *y"], b: Float[Tensor, "b n *y"]) -> Float[Tensor, "b m n"]:
    """1 - IoU of every pair of probability maps, each cut at one half."""
    _require_images(a)
    s = binary_masks(a)
    return iou_distance(s, s if b is a else binary_masks(b))


def class_distance(
    a: Float[Tensor, "b m *y"], b: Float[Tensor, "b n *y"]
) -> Float[Tensor, "b m n"]:
    """1 - IoU of every pair of label maps, the mean over the classes present in either.

    A pixel belongs to its most probable class. The background, which is present in all of them and
    makes all of them alike, does not count.
    """
    _require_images(a)
    s = class_masks(a)
    return iou_distance(s, s if b is a else class_masks(b))


def euclidean_distance(
    a: Float[Tensor, "b m *y"], b: Float[Tensor, "b n *y"]
) -> Float[Tensor, "b m n"]:
    """The l2 distance of every pair."""
    return torch.cdist(a.flatten(2).float(), b.flatten(2).float())


DISTANCES: dict[Kind, Distance] = {
    "masks": mask_distance,
    "classes": class_distance,
    "vectors": euclidean_distance,
}
"""The distance by which answers of each kind are grouped."""


def masks_of(y: Float[Tensor, "b k c h w"], kind: Kind) -> Bool[Tensor, "b k c_ h w"]:
    """Answers as masks, one for each class that is not the background.

    Vectors that stand for images are cut as masks are.
    """
    return class_masks(y) if kind == "classes" else binary_masks(y)


def _require_images(a: Tensor) -> None:
    if a.ndim != 5:
        raise MueError(
            "the IoU distance is between images, b k c h w, and these answers have "
            f"{a.ndim} axes; take a ModeRule of the kind vectors"
        )
