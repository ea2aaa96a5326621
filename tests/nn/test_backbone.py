"""What every backbone keeps to, whichever `model.backbone` names it."""

import dataclasses

import pytest
import torch

from mue.config.schema import ModelConfig
from mue.models.build import BACKBONES
from mue.nn.backbone import Backbone, Decoder, Encoder, Features

MODEL = ModelConfig(levels=(8, 12), tail=(16,), widths=(8,), code_level=1, readout=2)


@pytest.fixture(params=sorted(BACKBONES))
def backbone(request) -> Backbone:
    torch.manual_seed(0)
    return BACKBONES[request.param](dataclasses.replace(MODEL, backbone=request.param))


def parts(backbone: Backbone, heads: int = 1) -> tuple[Encoder, Decoder, torch.Tensor]:
    encoder, decoder = backbone.encoder(2), backbone.decoder(3, heads)
    assert isinstance(encoder, Encoder)
    assert isinstance(decoder, Decoder)
    return encoder, decoder, torch.randn(4, 2, *[8] * (encoder.axes - 1))


def test_the_features_of_an_input_do_not_depend_on_the_rest_of_the_batch(backbone):
    encoder, _, x = parts(backbone)
    together = encoder(x)
    assert together.pooled.shape[1] == backbone.width
    for i in range(4):
        torch.testing.assert_close(encoder(x[i : i + 1]).pooled, together.pooled[i : i + 1])


def test_an_answer_depends_on_its_own_code_and_input_alone(backbone):
    encoder, decoder, x = parts(backbone)
    codes = torch.randn(4, 5, 3)
    answers = decoder(encoder(x), codes)
    for i, j in ((0, 0), (1, 4), (3, 2)):
        alone = decoder(encoder(x[i : i + 1]), codes[i : i + 1, j : j + 1])
        torch.testing.assert_close(alone[0, 0], answers[i, j])
    assert not torch.equal(answers[0, 0], answers[0, 1])
    other = decoder(encoder(x.flip(0)), codes)
    assert not torch.equal(other[0, 0], answers[0, 0])


def test_heads_are_side_by_side_in_the_channels(backbone):
    encoder, decoder, x = parts(backbone, heads=3)
    found = decoder(encoder(x), torch.randn(4, 1, 3))
    expected = torch.Size([4, 1, 3 * MODEL.c_out]) + x.shape[2:]
    assert found.shape == expected
    assert len({head.sum().item() for head in found.unbind(2)}) == 3


def test_features_are_not_changed_by_who_reads_them():
    features = Features((torch.ones(1, 2),), torch.ones(1, 2), ())
    with pytest.raises(dataclasses.FrozenInstanceError):
        features.size = (3,)  # pyright: ignore[reportAttributeAccessIssue]
