import functools

import pytest
import torch

from mue.nn.blocks import pad_to_multiple
from mue.nn.unet import Concatenate, ScaleShift, UNetDecoder, UNetEncoder

LEVELS, WIDTHS, WIDTH = (4, 5, 6), (5, 8), 2
JOIN = functools.partial(Concatenate, code_width=WIDTH)
EVERYWHERE = pytest.mark.parametrize("level", [1, 2, 3, 4])
EITHER = pytest.mark.parametrize("join", [Concatenate, ScaleShift])


@EVERYWHERE
@EITHER
def test_codes_decoded_together_are_decoded_as_if_alone(level, join, unet):
    encoder, decoder = unet(level, join, c_out=3)
    features, codes = encoder(torch.randn(2, 1, 8, 8)), torch.randn(2, 5, unet.code_width)
    together = decoder(features, codes)
    alone = torch.cat([decoder(features, codes[:, i : i + 1]) for i in range(5)], dim=1)
    torch.testing.assert_close(together, alone)
    assert (together[:, 1:] - together[:, :-1]).abs().amax(dim=(2, 3, 4)).min() > 1e-4


@EVERYWHERE
def test_inputs_decoded_together_are_decoded_as_if_alone(level, unet):
    encoder, decoder = unet(level)
    x, codes = torch.randn(3, 1, 8, 8), torch.randn(3, 2, unet.code_width)
    together = decoder(encoder(x), codes)
    for i in range(3):
        alone = decoder(encoder(x[i : i + 1]), codes[i : i + 1])
        torch.testing.assert_close(together[i : i + 1], alone)


@EVERYWHERE
@EITHER
def test_what_comes_before_the_code_is_computed_once_for_each_input(level, join, unet):
    encoder, decoder = unet(level, join)
    seen: list[int] = []
    for stage in decoder.stages:
        stage.register_forward_hook(lambda _m, _x, y: seen.append(len(y)))
    decoder(encoder(torch.randn(2, 1, 8, 8)), torch.randn(2, 5, unet.code_width))
    assert seen == [2 if stage < level else 10 for stage in (1, 2, 3)]


@pytest.mark.parametrize("size", [(8, 12), (7, 9), (5, 8), (1, 1)])
@pytest.mark.parametrize("level", [1, 4])
def test_an_image_of_any_size_is_padded_then_cropped(level, size, unet):
    encoder, decoder = unet(level)
    x, codes = torch.randn(2, 1, *size), torch.randn(2, 3, unet.code_width)
    by_hand = decoder(encoder(pad_to_multiple(x, 4)), codes)[..., : size[0], : size[1]]
    found = decoder(encoder(x), codes)
    assert found.shape[-2:] == size
    torch.testing.assert_close(found, by_hand)


def test_the_pooled_vector_is_the_mean_of_the_last_feature():
    torch.manual_seed(0)
    encoder = UNetEncoder(1, LEVELS, ())
    features = encoder(torch.randn(2, 1, 8, 8))
    torch.testing.assert_close(features.pooled, features.levels[-1].mean(dim=(2, 3)))


def test_classes_are_the_rows_of_the_last_layer(unet):
    encoder, decoder = unet(level=4, c_out=3)
    features, codes = encoder(torch.randn(2, 1, 8, 8)), torch.randn(2, 2, unet.code_width)
    before, order = decoder(features, codes), [2, 0, 1]
    for p in decoder.readout[-1].parameters():
        p.data = p.data[order]
    torch.testing.assert_close(decoder(features, codes), before[:, :, order])


def test_concatenation_copies_the_code_over_height_and_width():
    h, codes = torch.randn(2, 3, 4, 5), torch.randn(2, 2, WIDTH)
    joined = Concatenate(3, WIDTH)(h, codes).unflatten(0, (2, 2))
    for i, j in [(0, 0), (0, 1), (1, 0), (1, 1)]:
        assert torch.equal(joined[i, j, :3], h[i])
        for y, x in [(0, 0), (3, 4), (1, 2)]:
            assert torch.equal(joined[i, j, 3:, y, x], codes[i, j])


def test_a_code_scales_and_shifts_each_channel():
    join = ScaleShift(2, 1)
    join.read.weight.data = torch.tensor([[1.0], [0.0], [0.0], [10.0]])  # scale 0, 1, shift 0, 1
    join.read.bias.data.zero_()
    h = torch.tensor([3.0, 5.0]).view(1, 2, 1, 1)
    joined = join(h, torch.tensor([[[0.0], [2.0]]])).flatten(1)
    assert joined.tolist() == [[3, 5], [3 * (1 + 2), 5 + 20]]


@EITHER
@pytest.mark.parametrize("c_out", [1, 3])
@pytest.mark.parametrize("size", [(8, 8), (7, 9), (1, 5)])
def test_the_readout_is_a_join_and_two_convolutions_for_each_code(join, c_out, size, unet):
    _, decoder = unet(4, join, c_out)
    h, codes = torch.randn(2, unet.widths[-1], *size), torch.randn(2, 5, unet.code_width)
    slowly = torch.nn.Sequential(*decoder.readout)(decoder.join(h, codes)).unflatten(0, (2, 5))
    torch.testing.assert_close(decoder.readout(h, decoder.join, codes), slowly)


@EITHER
def test_what_the_readout_learns_is_what_a_join_and_two_convolutions_learn(join, unet):
    _, decoder = unet(4, join, 3)
    h, codes = torch.randn(2, unet.widths[-1], 5, 6), torch.randn(2, 4, unet.code_width)
    weight = torch.randn(2, 4, 3, 5, 6)
    inputs = [
        h.requires_grad_(),
        codes.requires_grad_(),
        *decoder.join.parameters(),
        *decoder.readout.parameters(),
    ]
    slowly = torch.nn.Sequential(*decoder.readout)(decoder.join(h, codes)).unflatten(0, (2, 4))
    found = torch.autograd.grad((decoder.readout(h, decoder.join, codes) * weight).sum(), inputs)
    expected = torch.autograd.grad((slowly * weight).sum(), inputs)
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-4)


def test_widths_that_do_not_fit_the_levels_are_refused():
    with pytest.raises(ValueError, match=r"widths must be one entry less than the 3 .* got \(5"):
        UNetDecoder(LEVELS, (5, 3, 2), 1, join=JOIN)


@pytest.mark.parametrize("level", [0, 5])
def test_a_level_that_is_not_there_is_refused(level):
    with pytest.raises(ValueError, match=rf"level must be in 1..4, got {level}"):
        UNetDecoder(LEVELS, WIDTHS, 1, join=JOIN, level=level)


@pytest.mark.parametrize("readout", [2, 3, 5])
def test_the_readout_has_as_many_convolutions_as_asked_for(readout):
    torch.manual_seed(0)
    decoder = UNetDecoder(LEVELS, WIDTHS, 1, join=JOIN, level=4, readout=readout)
    convs = [m for m in decoder.readout if isinstance(m, torch.nn.Conv2d)]
    assert [m.kernel_size for m in convs] == [(1, 1)] * readout
    assert isinstance(decoder.readout[-1], torch.nn.Conv2d)  # logits are not cut off at 0
    h, codes = torch.randn(2, WIDTHS[-1], 5, 6), torch.randn(2, 4, WIDTH)
    slowly = torch.nn.Sequential(*decoder.readout)(decoder.join(h, codes)).unflatten(0, (2, 4))
    torch.testing.assert_close(decoder.readout(h, decoder.join, codes), slowly)


def test_a_folded_concatenation_has_one_weight_for_all_codes():
    """Weight and bias by hand: W [h; z] + b = W_h h + (W_z z + b)."""
    torch.manual_seed(0)
    conv, codes = torch.nn.Conv2d(3 + WIDTH, 4, 1), torch.randn(2, 5, WIDTH)
    weight, bias = Concatenate(3, WIDTH).fold(conv, codes)
    matrix = conv.weight[:, :, 0, 0]
    assert conv.bias is not None
    assert weight.shape == (2, 1, 4, 3)
    torch.testing.assert_close(weight[1, 0], matrix[:, :3])
    torch.testing.assert_close(bias[1, 2], matrix[:, 3:] @ codes[1, 2] + conv.bias)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_dropout_follows_the_innermost_two_blocks_of_encoder_and_decoder(share, monkeypatch):
    seen: list[tuple[int, float]] = []

    def drop(h, p):
        seen.append((h.shape[1], p))
        return h

    monkeypatch.setattr(torch.nn.functional, "dropout", drop)
    encoder = UNetEncoder(1, LEVELS, (), dropout=share)
    decoder = UNetDecoder(LEVELS, WIDTHS, 1, join=JOIN, dropout=share)
    decoder(encoder(torch.randn(1, 1, 8, 8)), torch.randn(1, 1, WIDTH))
    widths = [*LEVELS[-2:], *WIDTHS[:2]]  # also in evaluation: an answer is a draw
    assert seen == ([(w, share) for w in widths] if share else [])
