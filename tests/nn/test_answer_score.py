import math

import pytest
import torch

from mue.nn.answer_score import AnswerScore


def test_it_starts_at_0_and_gives_the_answers_no_gradient():
    torch.manual_seed(0)
    score, logits = AnswerScore(3), torch.randn(2, 4, 1, 5, 5, requires_grad=True)
    found = score(torch.randn(2, 3), logits)
    assert torch.equal(found, torch.zeros(2, 4))
    found.sum().backward()
    assert logits.grad is None
    assert score.score.weight.grad is not None


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (0, [math.log1p(2) / 4, math.log1p(4) / 4]),  # areas 4 / 2 and 4
        (1, [math.log1p(4 * math.log(2)) / 4, 0.0]),  # four pixels of one bit, and four of none
        (2, [(1 - 2 / 4 + 1 - 3 / 5) / 2, (1 - 3 / 5) / 2]),  # I and U: 1, 3 and 2, 4; 4, 4
    ],
)
def test_it_sees_area_entropy_and_distance_of_each_answer(seen, expected):
    """Of four pixels at a half, and of four that are certain, by a layer that copies one number."""
    score = AnswerScore(1, hidden=3)
    with torch.no_grad():
        score.input.weight.zero_()
        score.input.bias.zero_()
        score.answer.weight.copy_(torch.eye(3))
        score.score.weight[0, seen] = 1
    found = score(torch.ones(1, 1), torch.tensor([[[0.0] * 4, [50.0] * 4]]))
    torch.testing.assert_close(found, torch.tensor([expected]))
