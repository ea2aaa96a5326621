import dataclasses

import pytest
import torch
from torch import nn

from mue.config.presets import preset
from mue.config.schema import CodebookConfig, Config, LatentConfig, ModelConfig
from mue.models import build
from mue.models.build import build_backbone, build_learner, build_modal, build_network
from mue.nn.backbone import Backbone, Features


class Flat(nn.Module):
    """One convolution at full resolution."""

    axes = 3

    def __init__(self, c_in: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(c_in, 16, 3, padding=1)

    def forward(self, x):
        h = self.conv(x).relu()
        return Features(levels=(h,), pooled=h.mean(dim=(2, 3)), size=tuple(x.shape[-2:]))


class PerPixel(nn.Module):
    """Reads the answer off each pixel's feature and the code."""

    def __init__(self, code_width: int, c_out: int) -> None:
        super().__init__()
        self.read = nn.Linear(16 + code_width, c_out)

    def forward(self, features, codes):
        (h,), k = features.levels, codes.shape[1]
        grid = h.movedim(1, -1)[:, None].expand(-1, k, -1, -1, -1)
        code = codes[:, :, None, None].expand(-1, -1, *features.size, -1)
        return self.read(torch.cat([grid, code], dim=-1)).movedim(-1, 2)


def flat(m: ModelConfig) -> Backbone:
    return Backbone(Flat, lambda width, heads: PerPixel(width, m.c_out * heads), width=16)


@pytest.mark.parametrize("method", ["vq", "exact", "probunet", "heads"])
def test_a_new_backbone_is_one_line_of_the_table_for_every_method(monkeypatch, method):
    monkeypatch.setitem(build.BACKBONES, "flat", flat)
    config = Config(
        method=method,
        model=ModelConfig(backbone="flat", c_in=2),
        codebook=CodebookConfig(size=5, width=3),
        latent=LatentConfig(heads=2 if method == "heads" else 1),
    )
    learner = build_learner(config)
    trace = learner(torch.rand(4, 2, 6, 6), torch.ones(4, 1, 1, 6, 6))
    answers = {"vq": 1, "exact": 5, "probunet": 1, "heads": 2}[method]
    assert trace.logits.shape == (4, answers, 1, 6, 6)
    assert learner.network.axes == 3
    assert isinstance(learner.network.propose(torch.rand(1, 2, 6, 6), 1).logits, torch.Tensor)


def test_an_unknown_backbone_is_refused_with_those_that_are_known():
    known = ", ".join(build.BACKBONES)  # unet, mlp, ...
    words = rf"model\.backbone must be one of {known}, got 'own'; .*mue\.load\(folder, network="
    with pytest.raises(ValueError, match=words):
        build_backbone(ModelConfig(backbone="own"))


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (
            ModelConfig(levels=(8, 8), widths=(8, 8)),
            r"model.widths must be one entry less than the 2 of model.levels.*got \(8, 8\)",
        ),
        (
            ModelConfig(levels=(8,), widths=()),
            r"model.widths must be .* of model.levels .* and at least one, got \(\)",
        ),
        (
            ModelConfig(levels=(8, 8), widths=(8,), code_level=4),
            r"model.code_level must be in 1..3, got 4",
        ),
    ],
)
def test_numbers_that_make_no_u_net_are_refused_by_name(model, words):
    with pytest.raises(ValueError, match=words):
        build_network(Config(model=model))


def test_a_vector_network_has_no_levels_to_agree_with():
    model = ModelConfig(backbone="mlp", levels=(8,), tail=(), widths=(4, 4, 4))
    network = build_network(Config(method="exact", model=model))
    assert network.axes == 1
    assert build_backbone(dataclasses.replace(model, tail=(5,))).width == 5


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("guess", (28, 112)),
        ("guess-exact", (28, 112)),
        ("guess-quick", (14, 56)),
        ("lidc", (128, 128)),
        ("lidc-exact", (128, 128)),
        ("toy", (16, 16)),
        ("toy-vq", (16, 16)),
    ],
)
def test_an_answer_depends_on_the_whole_input(name, size):
    """With a smaller receptive field a decoder cannot tell places apart: codes follow shapes.

    Normalization is left out: by its mean over an image everything depends on all pixels.
    """
    torch.manual_seed(0)
    model = dataclasses.replace(preset(name).model, norm="none")
    network = build_modal(dataclasses.replace(preset(name), model=model))
    x = torch.rand(1, model.c_in, *size, requires_grad=True)
    logits = network.decode(network(x), network.codebook.codes[None, :1])
    logits[..., size[0] // 2, size[1] // 2].sum().backward()
    assert x.grad is not None
    seen = (x.grad != 0).any(dim=1)[0]
    edges = [seen[0], seen[-1], seen[:, 0], seen[:, -1]]
    assert all(edge.any() for edge in edges)
