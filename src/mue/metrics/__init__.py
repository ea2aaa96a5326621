"""Metrics of ranked answers: pure functions from masks and probabilities to numbers.

None of them knows a model. One legend of axes: b inputs, k answers with probabilities p, n samples
of them, r raters with weights q, m modes, c h w classes, height and width. What masks and weights
may be, and what is refused, is said in `door`.
"""

from mue.metrics.bootstrap import Interval, interval, interval_of
from mue.metrics.calibration import Reliability, annotated, brier, ece, presence, reliability
from mue.metrics.energy import (
    Distances,
    best_ged,
    distances,
    energy_distance,
    ged,
    ged_n,
    rater_disagreement,
    sampled_energy_distance,
)
from mue.metrics.matching import hm_iou, hm_iou_n, sampled_hm_iou
from mue.metrics.modes import entropy, mode_mae, mode_probabilities, mode_tv
from mue.metrics.overlap import coverage_k, dice, iou, iou_distance, top_dice
from mue.metrics.ranked import (
    AT_LEAST,
    covered_share,
    mode_shares,
    modes_for,
    outside_share,
    ranked_before,
    rater_modes,
)

__all__ = [
    "AT_LEAST",
    "Distances",
    "Interval",
    "Reliability",
    "annotated",
    "best_ged",
    "brier",
    "coverage_k",
    "covered_share",
    "dice",
    "distances",
    "ece",
    "energy_distance",
    "entropy",
    "ged",
    "ged_n",
    "hm_iou",
    "hm_iou_n",
    "interval",
    "interval_of",
    "iou",
    "iou_distance",
    "mode_mae",
    "mode_probabilities",
    "mode_shares",
    "mode_tv",
    "modes_for",
    "outside_share",
    "presence",
    "ranked_before",
    "rater_disagreement",
    "rater_modes",
    "reliability",
    "sampled_energy_distance",
    "sampled_hm_iou",
    "top_dice",
]
