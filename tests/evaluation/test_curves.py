import pytest
import torch

from mue.data.synthetic.toy import Bars
from mue.evaluation.curves import sample_curve
from mue.evaluation.known import evaluate_modes
from mue.inference.load import load
from mue.metrics.modes import mode_tv, nearest_mode


def test_a_curve_is_the_distance_of_the_first_samples_of_one_run(baselines):
    predictor = load(baselines["probunet"], device="cpu")
    points = sample_curve(predictor, counts=(1, 3, 8), inputs=5, seed=4)
    assert [p.answers for p in points] == [1, 3, 8]
    assert all(p.seconds > 0 for p in points)
    generator = torch.Generator().manual_seed(4)
    from_source = Bars(seed=4 + (1 << 40))
    tv = torch.zeros(3)
    for i in range(5):
        case = from_source.case(torch.tensor([i]))
        mode = nearest_mode(
            predictor.propose(case.x, 8, generator=generator, normalized=True).y, case.ys
        )[0]
        for j, n in enumerate((1, 3, 8)):
            share = torch.bincount(mode[:n], minlength=2) / n
            tv[j] += (share - case.q[0]).abs().sum() / 2 / 5
    assert [p.mode_tv for p in points] == pytest.approx(tv.tolist(), abs=1e-6)


def test_a_ranking_is_one_point_of_the_curve(baselines):
    predictor = load(baselines["exact"], device="cpu")
    (point,) = sample_curve(predictor, inputs=7, seed=1)
    scores = evaluate_modes(predictor, inputs=7, seed=1)
    assert point.answers == 6
    expected = mode_tv(scores.predicted, scores.true).mean().item()
    assert point.mode_tv == pytest.approx(expected, abs=1e-4)  # evaluate leaves out the improbable
