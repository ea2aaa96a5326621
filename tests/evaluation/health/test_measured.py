import pytest
import torch

import mue
from mue.data.synthetic.toy import SIDE, Bars
from mue.evaluation.answered import Answered
from mue.evaluation.health.measured import Measured, Measuring
from mue.types import Case, Hypotheses


def mask(pixels: int) -> torch.Tensor:
    """The first pixels of an image."""
    return (torch.arange(SIDE * SIDE) < pixels).float().view(1, SIDE, SIDE)


def measured(folder, ys: list[int], answers: list[int], prob: list[float], **about) -> Measured:
    """Of one input, whose known answers are as probable, and answers of the codes 0, 1, …"""
    predictor = mue.load(folder, device="cpu")
    assert predictor.cut == 0.5
    collected = Measuring(predictor, Bars(), 1)
    q = torch.full((1, len(ys)), 1 / len(ys))
    x, known = torch.zeros(1, 1, SIDE, SIDE), torch.stack([mask(n) for n in ys])[None]
    h = Hypotheses(
        torch.stack([mask(n) for n in answers])[None],
        torch.tensor([prob]),
        torch.arange(len(prob))[None],
    )
    collected.add_(Answered(torch.zeros(1).long(), Case(x, known, q, ("a",), ("g",), **about), h))
    return collected.measured()


@pytest.mark.parametrize(("pixels", "missed"), [(4, 0.0), (3, 0.5)])
def test_an_answer_as_far_as_the_cut_is_not_missed(trained, pixels, missed):
    """Of eight pixels four are half: the distance 1 - IoU is the cut of the modes."""
    found = measured(trained, [8, 64], [pixels, 64], [0.5, 0.5])
    assert found.missed.tolist() == [missed]


def test_known_answers_as_far_apart_as_the_cut_are_not_different(trained):
    assert measured(trained, [4, 8], [8], [1.0]).differ.tolist() == [False]
    assert measured(trained, [3, 8], [8], [1.0]).differ.tolist() == [True]


def test_a_code_is_in_use_above_one_percent(trained):
    found = measured(trained, [8], [8, 20, 40, 64], [0.97, 0.011, 0.01, 0.009])
    assert [c.code for c in found.codes()] == [0, 1]


def test_what_is_independent_is_the_patient_where_inputs_are_of_patients(trained):
    alone, of_patient = (measured(trained, [8], [8], [1.0], patients=p) for p in (False, True))
    assert (alone.unit_name, alone.category) == ("inputs", ("g",))
    assert (of_patient.unit_name, of_patient.category) == ("patients", ("",))


def test_the_distance_to_true_probabilities_is_said_where_they_are_known(trained):
    assert measured(trained, [8], [8], [1.0]).of_known() is None
    said = measured(trained, [8, 64], [8, 64], [0.7, 0.3], known=True).of_known()
    assert said is not None
    assert said.mean == pytest.approx(0.2)
