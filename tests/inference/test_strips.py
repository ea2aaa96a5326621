from dataclasses import replace
from typing import cast

import pytest
import torch
from torch import nn

import mue
from mue.config.schema import CodebookConfig, Config, ModelConfig
from mue.inference import strips
from mue.inference.predictor import Predictor
from mue.models.build import build_network
from mue.models.modal import Modal
from mue.nn.blocks import ResidualBlock


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


LATE = ModelConfig(levels=(4, 8, 8), tail=(8,), widths=(8, 4), code_level=4, norm="group")


def network(model: ModelConfig) -> Modal:
    torch.manual_seed(0)
    config = Config(method="exact", model=model, codebook=CodebookConfig(size=5, width=3))
    built = build_network(config)
    assert isinstance(built, Modal)
    for parameter in built.parameters():  # norms and biases that do something
        torch.nn.init.normal_(parameter, std=0.3)
    return built


@pytest.fixture(params=[torch.float32, torch.float16])
def low_strips(monkeypatch, request) -> torch.dtype:
    """Strips of 8 rows, with no image too small for them, in either precision."""
    monkeypatch.setattr(strips, "HALF", 0 if request.param is torch.float16 else 1 << 23)
    monkeypatch.setattr(strips, "_STRIP", 1)
    monkeypatch.setattr(strips, "LARGE", 0)
    return request.param


@pytest.mark.parametrize("size", [(40, 24), (37, 21), (8, 8), (3, 50)])
@pytest.mark.parametrize(
    "model",
    [
        LATE,
        replace(LATE, join="scale-shift"),
        replace(LATE, norm="none", code_level=1),
        replace(LATE, code_level=2),
        replace(LATE, code_level=3, join="scale-shift", c_out=2),
        replace(LATE, levels=(4, 8), tail=(8, 8), widths=(6,), code_level=2, c_in=3),
    ],
)
def test_strips_give_the_answers_of_one_pass(model, size, low_strips):
    net, x = network(model), torch.rand(1, model.c_in, *size)
    with torch.inference_mode():
        log_prior, logits = net.decode_all(net(x))
        view = strips.view(net, x)
        found = strips.answers(net, view, net.codebook.codes[None], lambda z: z)
    limit = 5e-3 if low_strips is torch.float16 else 2e-5
    torch.testing.assert_close(view.log_prior, log_prior, atol=limit, rtol=0)
    assert (found - logits).abs().max() < limit * (1 + logits.abs().max())


def test_a_large_image_is_answered_as_a_small_one(monkeypatch, low_strips):
    config = Config(method="exact", model=LATE, codebook=CodebookConfig(size=5, width=3))
    predictor = Predictor(network(LATE), config)
    x = torch.rand(2, 1, 48, 40)
    large, modes = predictor.propose(x, 5), predictor.modes(x)
    monkeypatch.setattr(strips, "LARGE", 1 << 21)
    small = predictor.propose(x, 5)
    assert large.y.dtype == low_strips
    assert torch.equal(large.code, small.code)
    torch.testing.assert_close(large.prob, small.prob, atol=0.01, rtol=0)
    assert ((large.y > 0.5) != (small.y > 0.5)).float().mean() <= 0.02
    torch.testing.assert_close(large.expected().float(), small.expected(), atol=0.01, rtol=0)
    torch.testing.assert_close(modes.mean().float(), predictor.modes(x).mean(), atol=0.01, rtol=0)


@pytest.mark.usefixtures("low_strips")
def test_a_trained_model_keeps_its_probabilities_and_masks(monkeypatch):
    """At most 0.01 in probabilities, and 2 % of the pixels of a mask: bright disks, as lesions."""
    predictor = mue.load("lidc-exact", device="cpu")
    rows, columns = torch.arange(192.0)[:, None], torch.arange(256.0)
    disks = [((rows - r).hypot(columns - c) < 9).float() for r, c in ((60, 70), (120, 180))]
    x = (0.15 + 0.5 * sum(disks) + 0.03 * torch.rand(192, 256, generator=seeded()))[None, None]
    large = predictor.propose(x, 16)
    monkeypatch.setattr(strips, "LARGE", 1 << 21)
    small = predictor.propose(x, 16)
    order, same = large.code[0].argsort(), small.code[0].argsort()
    assert (large.prob[0, order] - small.prob[0, same]).abs().max() <= 0.01
    found, known = large.y[0, order] > 0.5, small.y[0, same] > 0.5
    differ, area = ((v.flatten(1).sum(dim=1)) for v in (found != known, known))
    assert area.max() > 100
    assert (differ <= (0.02 * area).ceil()).all()  # of each mask's own pixels, not of the image's


def test_what_no_strips_are_known_for_takes_one_pass(monkeypatch, baselines):
    monkeypatch.setattr(strips, "LARGE", 0)
    for name in ("probunet", "unet"):
        predictor = mue.load(baselines[name], device="cpu")
        assert predictor.propose(torch.rand(1, 16, 16), 1).y.dtype == torch.float32


def test_feature_maps_in_half_precision_stay_finite():
    """Values beyond the largest of float16 would be infinite, and all that is computed of them."""
    largest = torch.finfo(torch.float16).max
    x = torch.ones(1, 2, 6, 5)
    block = ResidualBlock(2, 3, linear=True)
    conv = cast("nn.Conv2d", block.body[0])
    with torch.inference_mode():
        for each in (*block.body, block.shortcut):
            for parameter in each.parameters():
                parameter.zero_()
        conv.weight[0], conv.weight[1] = 1e6, -1e6
        out = torch.empty(1, 3, 6, 5, dtype=torch.float16)
        strips._convolve(conv, nn.Identity(), lambda a, b: x[:, :, a:b], out)
        assert (out[0, 0] == largest).all()
        assert (out[0, 1] == -largest).all()
        conv.weight.zero_()
        shortcut = cast("nn.Conv2d", block.shortcut)
        shortcut.weight[0], shortcut.weight[1] = 1e6, -1e6
        out = strips._block(block, lambda a, b: x[:, :, a:b], (6, 5), torch.float16)
        assert (out[0, 0] == largest).all()
        assert (out[0, 1] == -largest).all()
        assert (out[0, 2] == 0).all()
