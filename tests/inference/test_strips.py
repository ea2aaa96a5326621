from dataclasses import replace

import pytest
import torch

import mue
from mue.config.schema import CodebookConfig, Config, ModelConfig
from mue.inference import strips
from mue.inference.predictor import Predictor
from mue.models.build import build_network
from mue.models.modal import Modal

LATE = ModelConfig(levels=(4, 8, 8), tail=(8,), widths=(8, 4), code_level=4, norm="group")


def network(model: ModelConfig) -> Modal:
    torch.manual_seed(0)
    config = Config(method="exact", model=model, codebook=CodebookConfig(size=5, width=3))
    built = build_network(config)
    assert isinstance(built, Modal)
    for parameter in built.parameters():  # norms and biases that do something
        torch.nn.init.normal_(parameter, std=0.3)
    return built


@pytest.fixture
def low_strips(monkeypatch):
    """Strips of 8 rows, and none too small for them."""
    monkeypatch.setattr(strips, "_STRIP", 1)
    monkeypatch.setattr(strips, "LARGE", 0)


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
@pytest.mark.usefixtures("low_strips")
def test_strips_give_the_answers_of_one_pass(model, size):
    net, x = network(model), torch.rand(1, model.c_in, *size)
    with torch.inference_mode():
        log_prior, logits = net.decode_all(net(x))
        view = strips.view(net, x)
        found = strips.answers(net, view, net.codebook.codes[None], lambda z: z)
    torch.testing.assert_close(view.log_prior, log_prior, atol=5e-3, rtol=0)
    assert (found - logits).abs().max() < 5e-3 * (1 + logits.abs().max())


@pytest.mark.usefixtures("low_strips")
def test_a_large_image_is_answered_as_a_small_one(monkeypatch):
    config = Config(method="exact", model=LATE, codebook=CodebookConfig(size=5, width=3))
    predictor = Predictor(network(LATE), config)
    x = torch.rand(2, 1, 48, 40)
    large, modes = predictor.propose(x, 5), predictor.modes(x)
    monkeypatch.setattr(strips, "LARGE", 1 << 21)
    small = predictor.propose(x, 5)
    assert large.y.dtype == torch.float16
    assert torch.equal(large.code, small.code)
    torch.testing.assert_close(large.prob, small.prob, atol=0.01, rtol=0)
    assert ((large.y > 0.5) != (small.y > 0.5)).float().mean() <= 0.02
    torch.testing.assert_close(large.expected().float(), small.expected(), atol=0.01, rtol=0)
    torch.testing.assert_close(modes.mean().float(), predictor.modes(x).mean(), atol=0.01, rtol=0)


@pytest.mark.usefixtures("low_strips")
def test_a_trained_model_keeps_its_probabilities_and_masks(monkeypatch):
    """The bar of issue 17, on slices as large as those it was trained on, and larger."""
    predictor = mue.load("lidc-exact", device="cpu")
    x = torch.nn.functional.interpolate(torch.rand(1, 1, 12, 16), scale_factor=16, mode="bicubic")
    large = predictor.propose(x, 16)
    monkeypatch.setattr(strips, "LARGE", 1 << 21)
    small = predictor.propose(x, 16)
    by_code = [h.code.argsort(dim=1)[0] for h in (large, small)]
    probs, ys = (
        [v[0, o] for v, o in zip(both, by_code, strict=True)]
        for both in ((large.prob, small.prob), (large.y, small.y))
    )
    assert (probs[0] - probs[1]).abs().max() <= 0.01
    assert ((ys[0] > 0.5) != (ys[1] > 0.5)).float().mean(dim=(1, 2, 3)).max() <= 0.02


def test_what_no_strips_are_known_for_takes_one_pass(monkeypatch, baselines):
    monkeypatch.setattr(strips, "LARGE", 0)
    for name in ("probunet", "unet"):
        predictor = mue.load(baselines[name], device="cpu")
        assert predictor.propose(torch.rand(1, 16, 16), 1).y.dtype == torch.float32
