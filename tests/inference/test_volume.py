import dataclasses

import pytest
import torch

from mue.errors import MueError
from mue.inference.load import load
from mue.inference.volume import _reorder_
from mue.types import Hypotheses


def test_a_volume_of_one_slice_again_and_again_has_its_probabilities(predictor):
    x = torch.rand(1, 1, 16, 16)
    alone, volume = predictor.modes(x), predictor.modes(x.expand(3, -1, -1, -1), volume=True)
    torch.testing.assert_close(volume.prob, alone.prob)
    assert volume.y.shape == (1, alone.y.shape[1], 1, 3 * 16, 16)
    for i in range(3):
        part = volume.y[..., 16 * i : 16 * i + 16, :].float()
        torch.testing.assert_close(part, alone.y, atol=1e-3, rtol=0)


def test_an_answer_to_a_volume_is_of_one_code_in_every_slice(predictor):
    x, seen = torch.rand(4, 1, 16, 16), list[int]()
    volume = predictor.modes(x, by="code", volume=True, on_slice=seen.append)
    assert seen == [1, 2, 3, 4]
    for i in range(4):
        h = predictor.propose(x[i], predictor.codes)
        for j, code in enumerate(volume.answer_code[0].tolist()):
            own = h.y[0, h.code[0] == code][0]
            part = volume.answers[0, j, :, 16 * i : 16 * i + 16].float()
            torch.testing.assert_close(part, own, atol=1e-3, rtol=0)


def test_answers_to_a_volume_are_ordered_in_place():
    """Each in its place, two cycles, one cycle."""
    for order in ([0, 1, 2, 3, 4], [1, 0, 3, 2, 4], [4, 2, 0, 1, 3]):
        y = torch.arange(5.0)[None, :, None].repeat(1, 1, 2)
        _reorder_(y, order)
        assert y[0, :, 0].tolist() == order


def test_slices_weigh_as_much_as_their_answers_differ(predictor, monkeypatch):
    """By hand: the codes agree in the first slice; in the second they differ in 2 pixels."""
    y = torch.zeros(2, 1, 2, 1, 2, 2)
    y[1, 0, 0, 0, 0] = 1
    prob = torch.tensor([[[0.9, 0.1]], [[0.25, 0.75]]])
    found = iter([Hypotheses.unchecked(y[i], prob[i], torch.tensor([[0, 1]])) for i in range(2)])
    monkeypatch.setattr(predictor._forward, "codes_of_volume", lambda *_: torch.tensor([0, 1]))
    monkeypatch.setattr(predictor._forward, "of_codes", lambda *_: next(found))
    modes = predictor.modes(torch.rand(2, 1, 2, 2), volume=True)
    torch.testing.assert_close(modes.prob, torch.tensor([[0.75, 0.25]]))


def test_slices_whose_answers_all_agree_weigh_the_same(predictor, monkeypatch):
    prob = torch.tensor([[[0.9, 0.1]], [[0.2, 0.8]]])
    code = torch.tensor([[0, 1]])
    found = iter(
        [Hypotheses.unchecked(torch.zeros(1, 2, 1, 2, 2), prob[i], code) for i in range(2)]
    )
    monkeypatch.setattr(predictor._forward, "codes_of_volume", lambda *_: code[0])
    monkeypatch.setattr(predictor._forward, "of_codes", lambda *_: next(found))
    modes = predictor.modes(torch.rand(2, 1, 2, 2), volume=True, by="code")
    torch.testing.assert_close(modes.prob, torch.tensor([[0.55, 0.45]]))


def test_of_many_codes_those_that_are_probable_in_the_volume_are_decoded(tiny, fresh):
    many = dataclasses.replace(tiny("exact").codebook, size=100)
    model = fresh(dataclasses.replace(tiny("exact"), codebook=many))
    x = torch.rand(3, 1, 16, 16)
    modes = model.modes(x, by="code", volume=True)
    prior = torch.stack([model.network(x[i : i + 1]).log_prior[0].exp() for i in range(3)])
    assert set(modes.answer_code[0].tolist()) == set(prior.mean(dim=0).topk(64).indices.tolist())


def test_a_baseline_answers_a_volume_with_the_same_random_numbers(baselines):
    x = torch.rand(1, 1, 16, 16).expand(2, -1, -1, -1)
    for name in ("probunet", "dropout", "mheads"):
        model = load(baselines[name], device="cpu")
        modes = model.modes(x, 3, by="code", volume=True)
        assert modes.answer_prob[0].tolist() == pytest.approx([1 / 3] * 3)
        assert torch.equal(modes.answers[..., :16, :], modes.answers[..., 16:, :])


def test_the_answers_to_a_volume_must_fit_into_the_memory(trained, monkeypatch):
    """Of 2000 slices of 16 x 16 a slice alone would fit: 2 bytes a pixel for each of 6 codes."""
    predictor, x = load(trained, device="cpu"), torch.zeros(2000, 1, 16, 16)
    needed = 2 * 6 * 2000 * 16 * 16
    monkeypatch.setattr("mue.inference.forward.physical_memory", lambda: needed - 1)
    with pytest.raises(MueError, match=r"the answers to 2000 slices take about 0 GiB of memory"):
        predictor.modes(x, volume=True)
