"""Each kernel against PyTorch: on a GPU, or on a CPU where Triton can interpret them."""

import os

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton", reason="the kernels need Triton")

from mue.kernels.launch import (
    conv3x3,
    conv_grad_weight,
    downsample,
    forward_tiles,
    grad_weight_tiles,
    relu_grad,
    upsample_concat,
    upsample_concat_grad,
)

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DTYPE = torch.bfloat16 if torch.cuda.is_available() else torch.float32

# b h w, input and output channels: few channels in tiles of 2 x 8, 4 x 4 and 2 x 2, few channels
# that no tile divides, and many.
SHAPES = [
    (2, 2, 8, 1, 16),
    (2, 4, 8, 2, 5),
    (2, 4, 6, 16, 16),
    (2, 3, 5, 16, 8),
    (2, 3, 4, 40, 20),
]


def integers(*shape: int, scale: int = 1) -> Tensor:
    """Small integers, whose sums of products are exact in every precision here."""
    return scale * torch.randint(-2, 3, shape, device=DEVICE).to(DTYPE)


def nchw(x: Tensor) -> Tensor:
    """PyTorch's order of axes, in float32."""
    return x.permute(0, 3, 1, 2).float()


def nhwc(x: Tensor) -> Tensor:
    """The kernels' order of axes."""
    return x.permute(0, 2, 3, 1)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize(("b", "h", "w", "c", "n"), SHAPES)
@pytest.mark.parametrize("relu", [True, False])
def test_conv3x3_adds_the_bias_and_the_convolved_shortcut_before_the_relu(b, h, w, c, n, relu):
    x, shortcut = integers(b, h, w, c), integers(b, h, w, 12)
    weight, shortcut_weight = integers(n, 3, 3, c), integers(n, 1, 1, 12)
    bias, shortcut_bias = integers(n).float(), integers(n).float()
    y = conv3x3(
        x,
        weight,
        bias=bias,
        shortcut=shortcut,
        shortcut_weight=shortcut_weight,
        shortcut_bias=shortcut_bias,
        relu=relu,
        dtype=torch.float32,
    )
    expected = F.conv2d(nchw(x), nchw(weight), bias, padding=1)
    expected = expected + F.conv2d(nchw(shortcut), nchw(shortcut_weight), shortcut_bias)
    assert torch.equal(y, nhwc(expected.relu() if relu else expected))


@pytest.mark.parametrize(("b", "h", "w", "c", "n"), SHAPES)
def test_conv3x3_adds_a_shortcut_of_as_many_channels_as_it_is(b, h, w, c, n):
    x, shortcut, weight = integers(b, h, w, c), integers(b, h, w, n), integers(n, 3, 3, c)
    y = conv3x3(x, weight, shortcut=shortcut, dtype=torch.float32)
    expected = F.conv2d(nchw(x), nchw(weight), padding=1) + nchw(shortcut)
    assert torch.equal(y, nhwc(expected))


@pytest.mark.parametrize(("b", "h", "w", "c", "n"), SHAPES)
def test_conv3x3_with_grad_input_is_the_gradient_of_the_input_through_a_relu(b, h, w, c, n):
    before, weight, grad = integers(b, h, w, c), integers(n, 3, 3, c), integers(b, h, w, n)
    x = nchw(before).requires_grad_()
    F.conv2d(x.relu(), nchw(weight), padding=1).backward(nchw(grad))
    dx = conv3x3(grad, weight, grad_input=True, relu_mask=before.relu(), dtype=torch.float32)
    assert x.grad is not None
    assert torch.equal(dx, nhwc(x.grad))


@pytest.mark.parametrize(("b", "h", "w", "c", "n"), SHAPES)
@pytest.mark.parametrize("kernel_size", [1, 3])
def test_conv_grad_weight_adds_the_gradients_of_weight_and_bias_to_out(b, h, w, c, n, kernel_size):
    x, grad = integers(b, h, w, c), integers(b, h, w, n)
    shape = (n, c, kernel_size, kernel_size)
    weight = torch.zeros(shape, device=DEVICE, requires_grad=True)
    bias = torch.zeros(n, device=DEVICE, requires_grad=True)
    F.conv2d(nchw(x), weight, bias, padding=kernel_size // 2).backward(nchw(grad))
    assert weight.grad is not None
    assert bias.grad is not None
    d_weight, d_bias = conv_grad_weight(x, grad, kernel_size=kernel_size)
    assert torch.equal(d_weight, nhwc(weight.grad))
    assert torch.equal(d_bias, bias.grad)
    conv_grad_weight(x, grad, kernel_size=kernel_size, out=(d_weight, d_bias))
    assert torch.equal(d_weight, 2 * nhwc(weight.grad))
    assert torch.equal(d_bias, 2 * bias.grad)


@pytest.mark.parametrize(("h", "w"), [(4, 6), (3, 4), (1, 1), (5, 3)])
def test_downsample_repeats_the_last_row_and_column_of_odd_sides(h, w):
    x = integers(2, h, w, 5, scale=4)
    padded = F.pad(nchw(x), (0, w % 2, 0, h % 2), mode="replicate")
    assert torch.equal(nchw(downsample(x)), F.avg_pool2d(padded, 2))


@pytest.mark.parametrize(("h", "w"), [(4, 2), (3, 4), (1, 1)])
def test_relu_grad_sums_the_gradients_of_both_uses_of_the_output(h, w):
    before = integers(2, h, w, 5)
    grad = integers(2, h, w, 9)[..., :5]  # some of the channels of a larger tensor
    x = nchw(before).requires_grad_()
    y = x.relu()
    half = F.avg_pool2d(F.pad(y, (0, w % 2, 0, h % 2), mode="replicate"), 2)
    g_half, g_mean = integers(*nhwc(half).shape, scale=4), integers(2, 5, scale=h * w)
    (with_half,) = torch.autograd.grad([y, half], x, [nchw(grad), nchw(g_half)], retain_graph=True)
    (with_mean,) = torch.autograd.grad([y, y.mean((2, 3))], x, [nchw(grad), g_mean.float()])
    output = before.relu()
    assert torch.equal(nchw(relu_grad(output, grad, g_half)), with_half)
    # 1 / (h w) is rounded, and so may be what was a whole number
    torch.testing.assert_close(nchw(relu_grad(output, grad, g_mean)), with_mean)


@pytest.mark.parametrize(("c", "c_skip", "h", "w"), [(16, 16, 3, 4), (5, 3, 1, 1), (20, 64, 2, 3)])
def test_upsample_concat_is_bilinear_upsampling_and_concatenation(c, c_skip, h, w):
    x, skip = integers(2, h, w, c, scale=16), integers(2, 2 * h, 2 * w, c_skip)
    grad = integers(2, 2 * h, 2 * w, c + c_skip, scale=16)
    x_, skip_ = nchw(x).requires_grad_(), nchw(skip).requires_grad_()
    up = F.interpolate(x_, scale_factor=2, mode="bilinear", align_corners=False)
    y = torch.cat([up, skip_], dim=1)
    assert torch.equal(nchw(upsample_concat(x, skip)), y)
    expected = torch.autograd.grad(y, [x_, skip_], nchw(grad))
    found = upsample_concat_grad(grad, c)
    assert all(torch.equal(nchw(a), b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("h", "w", "c", "n", "few_channels"),
    [
        (32, 112, 1, 16, True),
        (32, 112, 16, 16, True),
        (128, 128, 32, 32, True),
        (31, 111, 16, 16, False),  # 2 pixels in a row do not divide 111
        (64, 64, 64, 64, False),
        (64, 64, 32, 64, False),
    ],
)
def test_the_variant_for_few_channels_takes_up_to_32_where_its_tiles_divide_the_image(
    h, w, c, n, few_channels
):
    m = 64 * h * w
    for has_relu_mask in (False, True):
        tiles = forward_tiles(m, h, w, c, 0, n, has_relu_mask=has_relu_mask)
        assert ("TILE_H" in tiles) == few_channels
    assert ("TILE_H" in grad_weight_tiles(m, h, w, c, n, 3)) == few_channels
    assert "TILE_H" not in grad_weight_tiles(m, h, w, c, n, 1)
