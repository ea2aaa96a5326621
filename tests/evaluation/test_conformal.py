import pytest
import torch

from mue.evaluation.conformal import covered, limit_for, patient_weights, reachable


def world(patients: int, seed: int):
    """Scores of four raters; the slices of a patient are alike, and patients have 1 to 9 slices."""
    g = torch.Generator().manual_seed(seed)
    slices = torch.randint(1, 10, (patients,), generator=g)
    patient = torch.arange(patients).repeat_interleave(slices)
    hard = torch.rand(patients, 1, generator=g)[patient]
    score = (0.6 * hard + 0.4 * torch.rand(len(patient), 4, generator=g)).clamp(0, 1)
    score = score.masked_fill(torch.rand(score.shape, generator=g) < 0.03, torch.inf)
    return score, torch.full(score.shape, 0.25), [str(p) for p in patient.tolist()]


def test_a_patient_weighs_the_same_whatever_their_slices():
    _, q, patient = world(30, 0)
    weight, patients = patient_weights(q, patient)
    assert patients == 30
    for name in set(patient):
        rows = [i for i, p in enumerate(patient) if p == name]
        assert weight[rows].sum().item() == pytest.approx(1)


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9])
def test_new_patients_are_covered_as_was_promised(coverage):
    """Over 200 calibrations of 60 patients, each tried on patients of its own."""
    shares = []
    for seed in range(200):
        limit = limit_for(coverage, *world(60, 2 * seed))
        assert limit is not None
        shares.append(covered(limit, *world(60, 2 * seed + 1)))
    mean = torch.tensor(shares).mean().item()
    assert coverage - 0.01 <= mean <= coverage + 1 / 61 + 0.02


def test_the_limit_is_the_least_that_is_enough():
    score, q, patient = world(40, 1)
    weight, _ = patient_weights(q, patient)
    limit = limit_for(0.8, score, q, patient)
    assert limit is not None
    assert (weight * (score <= limit)).sum().item() >= 0.8 * 41 - 1e-6
    assert (weight * (score < limit)).sum().item() < 0.8 * 41


def test_what_cannot_be_reached_is_not_promised():
    score, q, patient = world(40, 3)
    most = reachable(score, q, patient)
    assert 0.9 < most < 0.98
    assert limit_for(most - 0.001, score, q, patient) is not None
    assert limit_for(most + 0.001, score, q, patient) is None
    assert reachable(torch.zeros(3, 1), torch.ones(3, 1), ["a", "b", "c"]) == pytest.approx(3 / 4)


def test_a_score_at_the_limit_is_covered():
    score, q = torch.tensor([[0.5, 0.6]]), torch.tensor([[0.75, 0.25]])
    assert covered(0.5, score, q, ["a"]) == 0.75
    assert covered(0.499, score, q, ["a"]) == 0
    assert covered(0.6, score, q, ["a"]) == 1


def test_a_share_that_is_enough_but_for_rounding_is_enough():
    """Of nine patients each has a tenth; eight tenths add up to 0.7999999999999999."""
    score, q, patient = torch.arange(9.0)[:, None], torch.ones(9, 1), list("abcdefghi")
    assert limit_for(0.8, score, q, patient) == 7
    assert limit_for(0.8 + 1e-7, score, q, patient) == 8
