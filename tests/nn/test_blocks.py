import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mue.nn.blocks import (
    ResidualBlock,
    UpsampleConcat,
    downsample,
    normalization,
    pad_to_multiple,
    upsample,
)


@pytest.mark.parametrize("size", [(2, 2), (6, 10), (28, 112)])
def test_downsampling_is_bilinear_resampling(size):
    torch.manual_seed(0)
    x = torch.randn(2, 3, *size)
    bilinear = F.interpolate(x, scale_factor=0.5, mode="bilinear", align_corners=False)
    torch.testing.assert_close(downsample(x), bilinear)


def test_an_odd_side_is_downsampled_with_its_last_pixel_repeated():
    x = torch.tensor([[[[1.0, 3.0, 5.0]]]])
    assert downsample(x).flatten().tolist() == [2, 5]


def test_upsampling_reads_a_quarter_to_either_side():
    x = torch.tensor([[[[0.0, 4.0]]]])
    assert upsample(x)[0, 0].tolist() == [[0, 1, 3, 4]] * 2


def test_padding_repeats_the_last_row_and_column():
    x = torch.tensor([[[[1.0, 2.0, 3.0]]]])
    assert pad_to_multiple(x, 2)[0, 0].tolist() == [[1, 2, 3, 3]] * 2


def test_an_image_that_fits_is_not_padded():
    x = torch.randn(1, 1, 8, 4)
    assert pad_to_multiple(x, 4) is x


def test_a_residual_block_is_input_plus_body_where_widths_agree():
    torch.manual_seed(0)
    x, block = torch.randn(2, 4, 5, 5), ResidualBlock(4, 4)
    torch.testing.assert_close(block(x), (x + block.body(x)).relu())


@pytest.mark.parametrize(("c_out", "linear"), [(4, False), (4, True), (6, False), (6, True)])
def test_a_silent_body_leaves_the_shortcut(c_out, linear):
    torch.manual_seed(0)
    x, block = torch.randn(2, 4, 5, 5), ResidualBlock(4, c_out, inner=3, linear=linear)
    for p in block.body.parameters():
        p.data.zero_()
    shortcut = x
    if isinstance(block.shortcut, nn.Conv2d):  # the same linear map at each pixel
        assert block.shortcut.bias is not None
        weight, bias = block.shortcut.weight[:, :, 0, 0], block.shortcut.bias
        shortcut = torch.einsum("oc,bchw->bohw", weight, x) + bias[:, None, None]
    assert isinstance(block.shortcut, nn.Conv2d) is (c_out != 4)
    torch.testing.assert_close(block(x), shortcut if linear else shortcut.relu())


@pytest.mark.parametrize(("channels", "group"), [(16, 8), (8, 8), (6, 6)])
def test_groups_of_eight_channels_are_normalized_together(channels, group):
    torch.manual_seed(0)
    groups = normalization("group", channels)(5 + 3 * torch.randn(2, channels, 9, 9))
    groups = groups.unflatten(1, (-1, group)).flatten(2)
    torch.testing.assert_close(groups.mean(dim=2), torch.zeros_like(groups[..., 0]))
    torch.testing.assert_close(
        groups.var(dim=2, correction=0), torch.ones_like(groups[..., 0]), atol=1e-4, rtol=0
    )


def test_no_normalization_is_none():
    x = torch.randn(1, 8, 2, 2)
    assert normalization("none", 8)(x) is x


def test_the_skip_connection_follows_the_upsampled_features():
    h, skip = torch.randn(2, 3, 2, 4), torch.randn(2, 5, 4, 8)
    joined = UpsampleConcat()(h, skip)
    assert torch.equal(joined[:, :3], upsample(h))
    assert torch.equal(joined[:, 3:], skip)
