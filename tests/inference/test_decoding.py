import pytest
import torch

from mue.errors import MueError
from mue.inference.decoding import ChunkedReadout, CodewiseDecoder, InPlaceBlock, for_inference
from mue.nn.blocks import ResidualBlock
from mue.nn.unet import Concatenate, ScaleShift

EVERYWHERE = pytest.mark.parametrize("level", [1, 2, 3, 4])
EITHER = pytest.mark.parametrize("join", [Concatenate, ScaleShift])


@pytest.mark.parametrize("norm", ["none", "group"])
@pytest.mark.parametrize(("c_in", "linear"), [(8, False), (3, False), (3, True)])
def test_a_block_that_overwrites_its_own_maps_leaves_its_input(c_in, linear, norm):
    block = ResidualBlock(c_in, 8, norm=norm, linear=linear)
    x = torch.randn(2, c_in, 5, 7)
    before, wanted = x.clone(), block(x)
    with torch.no_grad():
        assert torch.equal(InPlaceBlock(block)(x), wanted)
    assert torch.equal(x, before)


@EVERYWHERE
@EITHER
@pytest.mark.parametrize("chunk", [1, 1 << 9, 1 << 20])
@pytest.mark.parametrize("size", [(8, 8), (5, 7)])
def test_a_few_codes_at_a_time_are_decoded_as_all_together(
    level, join, chunk, size, monkeypatch, unet
):
    monkeypatch.setattr("mue.inference.decoding._CODES_CHUNK", chunk)
    encoder, decoder = unet(level, join)
    features, codes = encoder(torch.randn(2, 1, *size)), torch.randn(2, 5, unet.code_width)
    together = decoder(features, codes)
    with torch.no_grad():
        torch.testing.assert_close(for_inference(decoder)(features, codes), together)


def test_skip_connections_are_convolved_once_for_all_codes(monkeypatch, unet):
    encoder, decoder = unet(level=1)
    features = encoder(torch.randn(2, 1, 8, 8))
    seen: list[int] = []
    inner = torch.nn.functional.conv2d
    monkeypatch.setattr(
        "mue.inference.decoding.F.conv2d",
        lambda x, *a, **k: (seen.append(len(x)), inner(x, *a, **k))[1],
    )
    with torch.no_grad():
        for_inference(decoder)(features, torch.randn(2, 5, unet.code_width))
    assert seen[:4] == [2, 2, 2, 2]  # two stages, a convolution and a shortcut each
    assert set(seen[4:]) == {5}


@EITHER
@pytest.mark.parametrize("k", [1, 5, 700])
def test_many_samples_are_read_out_as_if_joined_one_by_one(join, k, unet):
    """64 x 64 pixels of 8 channels are 8 codes at a time."""
    _, decoder = unet(4, join, 3)
    h, codes = torch.randn(2, unet.widths[-1], 64, 64), torch.randn(2, k, unet.code_width)
    some = [0, k // 2, k - 1]
    with torch.no_grad():
        found = ChunkedReadout(decoder.readout)(h, decoder.join, codes)[:, some]
        slowly = torch.nn.Sequential(*decoder.readout)(decoder.join(h, codes[:, some]))
    torch.testing.assert_close(found, slowly.unflatten(0, (2, 3)))


@pytest.mark.parametrize("k", [1, 5])
def test_one_convolution_is_enough_for_codes_that_scale_and_shift(k, unet):
    _, decoder = unet(4, ScaleShift, readout=1)
    h, codes = torch.randn(2, unet.widths[-1], 8, 8), torch.randn(2, k, unet.code_width)
    with torch.no_grad():
        found = ChunkedReadout(decoder.readout)(h, decoder.join, codes)
        slowly = torch.nn.Sequential(*decoder.readout)(decoder.join(h, codes))
    torch.testing.assert_close(found, slowly.unflatten(0, (2, k)))


def test_one_convolution_is_refused_for_codes_that_are_concatenated(unet):
    with pytest.raises(MueError, match=r"model.readout must be 2 or more .* got 1"):
        unet(4, Concatenate, readout=1)


@EVERYWHERE
def test_a_network_for_inference_shares_the_weights_of_the_other(level, unet):
    encoder, decoder = unet(level)
    network = torch.nn.ModuleList([encoder, decoder])
    copy = for_inference(network)
    assert {id(p) for p in copy.parameters()} == {id(p) for p in network.parameters()}
    assert copy.state_dict().keys() == network.state_dict().keys()
    kinds = {type(m) for m in copy.modules()}
    assert CodewiseDecoder in kinds
    assert (ChunkedReadout in kinds) == (level == 4)
    assert not {ChunkedReadout, CodewiseDecoder} & {type(m) for m in network.modules()}
