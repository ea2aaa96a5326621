from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from mue.config.presets import preset
from mue.config.schema import CodebookConfig, Config, ModelConfig
from mue.models.build import build_modal
from mue.models.modal import Modal
from mue.nn.backbone import Features
from mue.nn.codebook import Codebook


class Mean(nn.Module):
    """An encoder of one's own: it sees the mean of an image, and has nothing to learn."""

    axes = 3

    def forward(self, x: Tensor) -> Features:
        return Features((x,), x.mean(dim=(2, 3)), tuple(x.shape[-2:]))


class Add(nn.Module):
    """A decoder of one's own: the answer is the image plus the code."""

    def forward(self, features: Features, codes: Tensor) -> Tensor:
        return features.levels[0][:, None] + codes[:, :, None, None]


def tiny() -> Modal:
    torch.manual_seed(0)
    model = ModelConfig(levels=(4, 4), tail=(6,), widths=(4,), code_level=2)
    return build_modal(Config(model=model, codebook=CodebookConfig(size=5, width=3)))


def test_a_backbone_of_ones_own_by_hand():
    modal = Modal(Mean(), nn.Linear(1, 2), Codebook(2, 1, learned=True), Add())
    modal.codebook.codes.data = torch.tensor([[10.0], [20.0]])
    modal.prior.weight.data = torch.tensor([[0.0], [1.0]])
    modal.prior.bias.data = torch.tensor([0.0, -2.0])
    ln3 = torch.tensor(3.0).log()
    x = torch.stack([2 + ln3, 2 - ln3]).view(2, 1, 1, 1).expand(2, 1, 2, 2)  # means 2 ± ln 3
    view = modal(x)
    torch.testing.assert_close(
        view.log_prior.exp(),
        torch.tensor([[0.25, 0.75], [0.75, 0.25]]),  # odds 1:3 and 3:1
    )
    best = modal.propose(x, 2)
    prob, index = best.prob, best.code
    assert index.tolist() == [[1, 0], [0, 1]]
    torch.testing.assert_close(prob, torch.tensor([[0.75, 0.25], [0.75, 0.25]]))
    answers = modal.decode(view, modal.codebook.codes[index])
    torch.testing.assert_close(answers[0, 0], x[0] + 20)
    torch.testing.assert_close(answers[1, 0], x[1] + 10)
    torch.testing.assert_close(modal.decode_all(view)[1][1, 1], x[1] + 20)


def test_the_best_k_are_the_first_of_all():
    modal, x = tiny(), torch.randn(3, 1, 6, 6)
    view = modal(x)
    every, best = modal.propose(x, 5), modal.propose(x, 2)
    prob, index = every.prob, every.code
    assert prob.sum(dim=1).tolist() == pytest.approx([1, 1, 1])
    assert (prob[:, 1:] <= prob[:, :-1]).all()
    few, first = best.prob, best.code
    assert torch.equal(first, index[:, :2])
    assert torch.equal(few, prob[:, :2])
    everything = modal.decode_all(view)[1]
    rows = torch.arange(3)[:, None]
    torch.testing.assert_close(best.logits, everything[rows, first])


def test_looking_and_decoding_leave_the_model_as_it_was():
    modal = tiny()
    before = {name: value.clone() for name, value in modal.state_dict().items()}
    view = modal.train()(torch.randn(2, 1, 6, 6))
    modal.decode_all(view)[1]
    for name, value in modal.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_codes_learn_by_gradient_only_where_the_method_says_so():
    for method in ("exact", "vq"):
        codes = build_modal(Config(method=method)).codebook.codes
        assert codes.requires_grad is (method == "exact")


# --- a prior that reads the answers ---------------------------------------------------------------


def reading(**codebook) -> Modal:
    torch.manual_seed(0)
    config = preset("toy")
    config = replace(config, codebook=replace(config.codebook, reads_answers=True, **codebook))
    return build_modal(config).eval()


def test_a_prior_that_reads_the_answers_starts_as_one_that_does_not():
    modal, x = reading(), torch.rand(3, 1, 8, 8)
    view = modal(x)
    log_prior, logits = modal.decode_all(view)
    torch.testing.assert_close(log_prior, view.log_prior)
    assert logits.shape[:2] == log_prior.shape


def test_the_codes_are_ranked_by_what_they_decode_to():
    """Against one code at a time: the score of each answer is added, and all is normalised."""
    modal, x = reading(), torch.rand(3, 1, 8, 8)
    assert modal.score is not None
    torch.nn.init.normal_(modal.score.score.weight, std=3.0)
    view = modal(x)
    log_prior, logits = modal.decode_all(view)
    torch.testing.assert_close(log_prior.exp().sum(dim=1), torch.ones(3))
    expected = (view.log_prior + modal.score(view.features.pooled, logits)).softmax(dim=1)
    found = modal.propose(x, 4)
    torch.testing.assert_close(found.prob, expected.sort(dim=1, descending=True).values[:, :4])
    for i in range(3):
        for j in range(4):
            torch.testing.assert_close(found.logits[i, j], logits[i, found.code[i, j]])
    assert not torch.equal(log_prior.argsort(dim=1), view.log_prior.argsort(dim=1))


def test_the_answers_get_no_gradient_from_their_score():
    modal = reading().train()
    assert modal.score is not None
    torch.nn.init.normal_(modal.score.score.weight)
    logits = torch.randn(2, 5, 1, 8, 8, requires_grad=True)
    modal.score(torch.rand(2, modal.score.input.in_features), logits).sum().backward()
    assert logits.grad is None
    assert modal.score.answer.weight.grad is not None
