"""Modes: answers that are alike, grouped by one rule (`rule.py`)."""

from mue.modes.distances import (
    DISTANCES,
    Distance,
    Kind,
    binary_masks,
    class_distance,
    class_masks,
    euclidean_distance,
    mask_distance,
    masks_of,
)
from mue.modes.ranked import Modes, Ranking, modes_of, ranking
from mue.modes.rule import MIN_PROB, By, ModeRule
from mue.modes.tree import Tree, linkage, ungrouped

__all__ = [
    "DISTANCES",
    "MIN_PROB",
    "By",
    "Distance",
    "Kind",
    "ModeRule",
    "Modes",
    "Ranking",
    "Tree",
    "binary_masks",
    "class_distance",
    "class_masks",
    "euclidean_distance",
    "linkage",
    "mask_distance",
    "masks_of",
    "modes_of",
    "ranking",
    "ungrouped",
]
