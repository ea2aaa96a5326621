import pytest
import torch

from mue.kernels.compiled import (
    ChannelwiseGroupNorm,
    FusibleReadout,
    PolyphaseUpsampleConcat,
    polyphase_upsample,
)
from mue.nn.blocks import UpsampleConcat, upsample
from mue.nn.unet import Readout, ScaleShift


@pytest.mark.parametrize("offset", [0.0, 30.0])
def test_moments_of_single_channels_give_the_normalization_of_their_groups(offset: float):
    """Against PyTorch's own in double precision."""
    torch.manual_seed(0)
    plain = torch.nn.GroupNorm(3, 24)
    norm = ChannelwiseGroupNorm.of(plain)
    assert norm.weight is plain.weight
    for p in norm.parameters():
        torch.nn.init.normal_(p)
    x = offset + torch.rand(24, 1, 1) * torch.randn(2, 24, 9, 7)
    x = x.to(memory_format=torch.channels_last).requires_grad_()
    long = torch.nn.GroupNorm(3, 24).double()
    long.load_state_dict(norm.state_dict())
    precise, gradient = x.detach().double().requires_grad_(), torch.randn_like(x)
    found, right = norm(x), long(precise)
    assert found.stride() == x.stride()
    torch.testing.assert_close(found, right.float(), atol=1e-4, rtol=1e-4)
    mine = torch.autograd.grad((found * gradient).sum(), [x, *norm.parameters()])
    wanted = torch.autograd.grad((right * gradient).sum(), [precise, *long.parameters()])
    for a, b in zip(mine, wanted, strict=True):
        torch.testing.assert_close(a, b.float(), atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("size", [(1, 1), (3, 4), (8, 5)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_upsampling_by_phases_is_bilinear_and_preserves_the_memory_format(size, layout):
    torch.manual_seed(0)
    x = torch.randn(2, 3, *size).contiguous(memory_format=layout)
    found = polyphase_upsample(x)
    torch.testing.assert_close(found, upsample(x))
    assert found.is_contiguous(memory_format=layout) or size == (1, 1)  # which is both
    skip = torch.randn(2, 2, 2 * size[0], 2 * size[1])
    torch.testing.assert_close(PolyphaseUpsampleConcat()(x, skip), UpsampleConcat()(x, skip))


@pytest.mark.parametrize("c_out", [1, 3])
def test_a_readout_for_a_compiler_reads_the_same(c_out):
    torch.manual_seed(0)
    join, readout = ScaleShift(8, 2), Readout([8, 8, c_out])
    h, codes = torch.randn(2, 8, 5, 6), torch.randn(2, 4, 2)
    torch.testing.assert_close(FusibleReadout(readout)(h, join, codes), readout(h, join, codes))
