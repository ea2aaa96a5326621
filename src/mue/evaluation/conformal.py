"""Conformal sets: how many modes to show so that they hold the answer of a new rater.

Score an answer by the probability of the modes ranked before the first one it is in. Sample one
slice and one of its raters from each of the K patients of calibration, and from a new patient: the
K + 1 scores are exchangeable, so the new one is among the lowest ceil(c (K + 1)) of them with
probability c at least. The mean over all such samples is a quantile of all scores, in which each
patient weighs 1 / (K + 1) and the missing weight stands for a score of infinity.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor


def patient_weights(
    q: Float[Tensor, "b r"], patient: Sequence[str]
) -> tuple[Float[Tensor, "b r"], int]:
    """Weight of each rater where each patient weighs 1, whatever their slices; and K."""
    _, index, count = np.unique(patient, return_inverse=True, return_counts=True)
    return q.double() / torch.from_numpy(count[index])[:, None], len(count)


def reachable(
    score: Float[Tensor, "b r"], q: Float[Tensor, "b r"], patient: Sequence[str]
) -> float:
    """The highest coverage that can be promised: some answers are none of ours."""
    weight, patients = patient_weights(q, patient)
    return (weight * score.isfinite()).sum().item() / (patients + 1)


def limit_for(
    coverage: float, score: Float[Tensor, "b r"], q: Float[Tensor, "b r"], patient: Sequence[str]
) -> float | None:
    """The least limit of `Modes.first` that covers a new rater with that probability, or None."""
    weight, patients = patient_weights(q, patient)
    ordered, order = score.flatten().sort(stable=True)
    total = weight.flatten()[order].cumsum(dim=0) / (patients + 1)
    enough = (total >= coverage - 1e-9) & ordered.isfinite()
    return ordered[enough.int().argmax()].item() if enough.any() else None


def covered(
    limit: float, score: Float[Tensor, "b r"], q: Float[Tensor, "b r"], patient: Sequence[str]
) -> float:
    """Share of the raters whose answer is among the modes up to a limit, all patients alike."""
    weight, patients = patient_weights(q, patient)
    return (weight * (score <= limit)).sum().item() / patients
