"""The numbers of a slice: those of the public metrics, at the IoU the model is calibrated for."""

import dataclasses
from typing import Any

import pytest
import torch
from oracle import Oracle
from torch import Tensor

from mue.config.schema import ModesConfig
from mue.data.prepared.dataset import Slices
from mue.data.prepared.open import open_prepared
from mue.evaluation.columns import METRICS, Columns, SplitDistances, masks_of_case
from mue.evaluation.raters import RaterEvaluation, evaluate_raters
from mue.inference.load import load
from mue.inference.predictor import Predictor
from mue.metrics import Distances, coverage_k, ged_n, hm_iou_n, outside_share, rater_modes
from mue.metrics import iou as overlap
from mue.modes import binary_masks
from mue.types import Case, Hypotheses

CLOSE: dict[str, Any] = {"atol": 1e-5, "rtol": 0}


@pytest.fixture(scope="module")
def predictor(lesion_model):
    return load(lesion_model, device="cpu")


@pytest.fixture(scope="module")
def case(lesions) -> Case:
    source = Slices(open_prepared(lesions), "test")
    return source.case(torch.arange(len(source)))


def calibrated(predictor, iou: float):
    """The configuration with another IoU from which an answer is a rater's."""
    return dataclasses.replace(predictor.config, modes=ModesConfig(iou=iou))


def part_of_the_image(case: Case, share: float) -> Hypotheses:
    """One answer that covers the first rows of each image, and so much of them."""
    y = torch.zeros_like(case.ys[:, :1])
    y[..., : round(share * y.shape[-2]), :] = 1
    return Hypotheses(y, torch.ones(len(y), 1), torch.zeros(len(y), 1, dtype=torch.long))


def full(case: Case) -> Case:
    """All raters annotated everything."""
    return dataclasses.replace(case, ys=torch.ones_like(case.ys))


@pytest.mark.parametrize(("iou", "found"), [(0.5, 1), (0.75, 1), (0.8, 0)])
def test_the_iou_of_the_model_decides_whether_an_answer_is_a_raters(predictor, case, iou, found):
    """By hand: the answer has an IoU of 3/4 with every rater."""
    oracle = Oracle(predictor, lambda _: None, calibrated(predictor, iou))  # pyright: ignore
    m = masks_of_case(oracle, full(case), part_of_the_image(case, 0.75), "mode")
    columns = Columns(0, keep_pairs=True)
    columns.add_(m)
    _, values = columns.join()
    for k in (1, 2, 3):
        assert values[f"coverage_{k}"].tolist() == 12 * [found]
    assert values["in_no_mode"].tolist() == 12 * [1 - found]


def test_a_report_moves_as_a_whole_with_the_iou_of_the_model(predictor, lesions, case):
    """`coverage_k`, `in_no_mode`, the shares of modes and the promise, all at the same IoU."""

    def at(iou: float) -> RaterEvaluation:
        def answer(_: Tensor) -> Hypotheses:
            return predictor.propose(case.x, 6)

        return evaluate_raters(Oracle(predictor, answer, calibrated(predictor, iou)), lesions)

    loose, strict = at(0.2), at(0.9)
    h, ys = predictor.propose(case.x, 6).normalized(), binary_masks(case.ys)
    for evaluation, iou in ((loose, 0.2), (strict, 0.9)):
        modes = predictor.rule.group(h)
        shown, count = binary_masks(modes.y), modes.prob.shape[1]
        for k in (1, 2, 3):
            expected = coverage_k(shown, ys, case.q, min(k, count), iou)
            torch.testing.assert_close(evaluation.columns[f"coverage_{k}"], expected, **CLOSE)
        home = rater_modes(overlap(binary_masks(h.y), ys), modes.mode, iou)
        outside = outside_share(home, case.q)
        torch.testing.assert_close(evaluation.columns["in_no_mode"], outside, **CLOSE)
        inside = evaluation.mode_share.sum(dim=1)
        torch.testing.assert_close(inside, 1 - outside, **CLOSE)
        assert torch.equal(evaluation.score.isinf().float().mul(case.q).sum(dim=1), outside)
    assert strict.columns["coverage_3"].sum() < loose.columns["coverage_3"].sum()
    assert strict.columns["in_no_mode"].sum() > loose.columns["in_no_mode"].sum()
    for name in ("ged", "ged_16", "hm_iou_16", "dice_top", "n90", "presence"):
        assert torch.equal(strict.columns[name], loose.columns[name])


@pytest.mark.parametrize("sizes", [(12,), (5, 7), (1, 3, 8)])
def test_columns_joined_from_batches_are_those_of_all_slices(predictor, case, sizes):
    """Batches differ in how many answers they have, as where improbable ones are left out."""
    h, columns, start = predictor.propose(case.x, 6), Columns(3, keep_pairs=True), 0
    for i, size in enumerate(sizes):
        part = slice(start, start + size)
        few = Hypotheses(h.y[part], h.prob[part], h.code[part])
        cut = dataclasses.replace(
            case, x=case.x[part], ys=case.ys[part], q=case.q[part],
            id=case.id[part], group=case.group[part],
        )  # fmt: skip
        columns.add_(masks_of_case(predictor, cut, few.top(6 - i), "mode"))
        start += size
    whole, found = columns.join()
    assert whole.p.shape == (12, 6)
    s, ys = binary_masks(h.y), binary_masks(case.ys)
    first = slice(0, sizes[0])  # of which every answer was kept
    p = h.normalized().prob
    for n in (16, 50):
        expected = ged_n(s, p, ys, case.q, n, torch.Generator().manual_seed(3))
        torch.testing.assert_close(found[f"ged_{n}"][first], expected[first], **CLOSE)
    expected = hm_iou_n(s, p, ys, 16, torch.Generator().manual_seed(3), case.q)
    torch.testing.assert_close(found["hm_iou_16"][first], expected[first], **CLOSE)


@pytest.mark.parametrize(("k", "there"), [(15, False), (16, True), (17, True)])
def test_of_a_sampler_as_many_samples_are_matched_as_the_metric_asks_for(k, there):
    """By hand: the first 16 samples are one rater's answer, later ones are nobody's."""
    d = Distances(
        (torch.arange(k) > 15).float().view(1, k, 1), torch.zeros(1, 0, 0), torch.zeros(1, 1, 1)
    )
    p, code = torch.full((1, k), 1 / k), torch.full((1, k), -1)
    split = SplitDistances(d, p, code, torch.ones(1, 1), first={k: torch.zeros(1)}, seed=0)
    found = METRICS["hm_iou_16"].distances
    assert found is not None
    values = found(split)
    assert (values is not None) == there
    assert values is None or values.tolist() == [1]


@pytest.mark.parametrize("cut", [0.1, 0.5, 0.95])
def test_the_modes_of_a_report_are_those_of_the_predictor_at_its_cut(predictor, case, cut):
    config = dataclasses.replace(predictor.config, modes=ModesConfig(cut=cut))
    model = Predictor(predictor.network, config)
    h = model.propose(case.x, model.max_answers, min_prob=0.0, normalized=True)
    found = masks_of_case(model, case, h, "mode").modes
    wanted = model.modes(case.x, normalized=True)
    assert found.cut == wanted.cut == cut
    assert torch.equal(found.mode, wanted.mode)
    torch.testing.assert_close(found.prob, wanted.prob)
