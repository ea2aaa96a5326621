import math

import pytest
import torch

import mue
from mue.config.schema import ObjectiveConfig
from mue.data.prepared.dataset import Slices
from mue.data.prepared.open import open_prepared
from mue.evaluation.answered import Request, answered
from mue.evaluation.measures import answer_log_likelihood, codes_in_use, joint_distances
from mue.metrics import distances
from mue.types import Hypotheses


def test_distances_of_masks_are_those_of_the_metrics(lesion_model, lesions):
    """What health, validation and calibration compare is what reports compare."""
    predictor = mue.load(lesion_model, device="cpu")
    source = Slices(open_prepared(lesions), "val", predictor.config.data)
    (batch,) = answered(predictor, source, Request(torch.arange(6), 4, batch=8))
    d = joint_distances(predictor, batch.h, batch.case)
    expected = distances(predictor.masks(batch.h.y), predictor.masks(batch.case.ys))
    assert torch.equal(d.sy, expected.sy)
    assert torch.equal(d.ss, expected.ss)
    assert torch.equal(d.yy, expected.yy)


def test_a_code_is_in_use_from_one_percent_for_some_input_on():
    code = torch.tensor([[0, 1, -1], [2, 0, -1]])
    prob = torch.tensor([[0.9, 0.005, 0.5], [0.5, 0.2, 0.3]])
    assert codes_in_use(4, code, prob) == 2  # 0 and 2; 1 is too rare, -1 is no code


def test_a_pixel_is_never_certain():
    """Of two pixels, one right with 0.8 and one wrong with certainty, which counts as 1e-6."""
    y, ys = torch.tensor([0.8, 1.0]).view(1, 1, 1, 1, 2), torch.tensor([1.0, 0]).view(1, 1, 1, 1, 2)
    h = Hypotheses(y, torch.ones(1, 1), torch.zeros(1, 1, dtype=torch.long))
    found = answer_log_likelihood(h, ys, ObjectiveConfig(likelihood="bernoulli")).item()
    assert found == pytest.approx(math.log(0.8) + math.log(1e-6), abs=0.1)
