"""Kernels against plain PyTorch: on a GPU, or in the interpreter where Triton is installed."""

import os
from collections.abc import Sequence

import pytest
import torch
from torch import nn

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton", reason="the kernels need Triton")

from mue.config.schema import TrainConfig
from mue.kernels.autograd import Reduced, residual_block, upsample_concat
from mue.kernels.buffers import Buffers, LayerBuffers
from mue.kernels.modules import FusedResidualBlock, SideStreamLinear
from mue.kernels.streams import SideStreams
from mue.nn.blocks import ResidualBlock, UpsampleConcat, downsample
from mue.training.optimizer import FlatAdamW

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DTYPE = torch.bfloat16 if torch.cuda.is_available() else torch.float32


def small(*shape: int, largest: int = 2) -> torch.Tensor:
    """Small whole numbers: sums of their products are exact in every precision here."""
    return torch.randint(-largest, largest + 1, shape).float().to(DEVICE)


def whole(block: ResidualBlock) -> ResidualBlock:
    """The block with weights of which a few are 1 or -1."""
    with torch.no_grad():
        for p in block.parameters():
            share = min(1.0, 6 / p[0].numel())
            p.copy_(torch.randint(-1, 2, p.shape) * (torch.rand(p.shape) < share))
    return block.to(device=DEVICE, memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]


def by_kernels(
    block: ResidualBlock, x: torch.Tensor, *, reduced: Reduced | None = None
) -> tuple[torch.Tensor, ...]:
    """What the kernels make of it, with autograd for its gradients."""
    buffers = LayerBuffers([(c.weight.detach().to(DTYPE), c.bias) for c in layers(block)])
    return residual_block(
        buffers, x.to(DTYPE), *weights(block), linear=block.linear, reduced=reduced
    )


def layers(block: ResidualBlock) -> list[nn.Conv2d]:
    """Its convolutions in order, that of the shortcut last."""
    return [m for m in [*block.body, block.shortcut] if isinstance(m, nn.Conv2d)]


def weights(block: ResidualBlock) -> list[torch.Tensor]:
    """Each weight and its bias, as the kernels want them."""
    return [p for conv in layers(block) for p in conv.parameters()]


def buffers_of(module: nn.Module, streams: SideStreams) -> tuple[Buffers, list[torch.Tensor]]:
    """Buffers of all parameters in the precision of the test, and the gradients in them."""
    parameters = list(module.parameters())
    optimizer = FlatAdamW(parameters, TrainConfig())
    rounded = [p.detach().to(DTYPE) for p in parameters]
    return Buffers(optimizer, rounded, streams), optimizer.grads


def close(found: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> None:
    """Sums of many, of which no float32 is exact any more."""
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape
        assert (a - b).norm() <= 1e-5 * b.norm()


def compare(block: ResidualBlock, *size: int) -> None:
    """All that a block computes, by both."""
    x = small(*size).requires_grad_()
    plain = block(x)
    g = small(*plain.shape)
    wanted = torch.autograd.grad(plain, [x, *block.parameters()], g)
    (fused,) = by_kernels(block, x)
    assert torch.equal(fused.float(), plain)
    dx, *found = torch.autograd.grad(fused, [x, *block.parameters()], g.to(fused.dtype))
    assert torch.equal(dx, wanted[0])
    close(found, wanted[1:])


@pytest.mark.parametrize(
    ("c_in", "c_out", "inner", "linear", "size"),
    [
        (1, 16, None, False, (5, 9)),
        (2, 16, None, False, (5, 9)),
        (3, 8, None, False, (4, 4)),
        (1, 16, None, False, (3, 16)),
        (2, 16, None, False, (2, 8)),
        (3, 8, None, False, (1, 24)),
        (32, 1, 16, True, (2, 16)),
        (16, 16, None, False, (6, 7)),
        (20, 40, None, False, (5, 4)),
        (80, 70, None, False, (3, 5)),
        (32, 1, 16, True, (8, 6)),
        (16, 16, None, False, (1, 1)),
        (16, 32, None, False, (5, 6)),
        (32, 16, None, False, (4, 4)),
        (32, 32, None, False, (3, 4)),
        (64, 16, None, False, (4, 6)),
    ],
)
def test_a_fused_block_is_the_plain_one_with_all_its_gradients(c_in, c_out, inner, linear, size):
    torch.manual_seed(0)
    compare(whole(ResidualBlock(c_in, c_out, inner=inner, linear=linear)), 3, c_in, *size)


@pytest.mark.skipif(DEVICE.type == "cpu", reason="too many pixels for an interpreter")
@pytest.mark.parametrize(
    ("c_in", "c_out", "inner", "size"),
    [
        (2, 16, None, (64, 32, 112)),
        (32, 1, 16, (64, 32, 112)),
        (16, 32, None, (64, 16, 56)),
        (64, 32, None, (16, 128, 128)),
        (32, 64, None, (32, 64, 64)),
        (64, 128, None, (64, 32, 32)),
        (64, 16, None, (256, 16, 56)),
        (384, 128, None, (64, 16, 16)),
        (128, 256, None, (64, 8, 8)),
        (256, 512, None, (64, 4, 4)),
        (128, 128, None, (256, 1, 4)),
    ],
)
def test_at_the_sizes_of_a_training_too(c_in, c_out, inner, size):
    torch.manual_seed(0)
    b, h, w = size
    compare(whole(ResidualBlock(c_in, c_out, inner=inner, linear=c_out == 1)), b, c_in, h, w)


@pytest.mark.parametrize(("c", "c2", "size"), [(16, 16, (3, 4)), (5, 3, (1, 1)), (20, 64, (2, 3))])
def test_upsampling_and_concatenation_with_their_gradients(c, c2, size):
    torch.manual_seed(0)
    h, w = size
    x = (16 * small(2, c, h, w)).requires_grad_()
    skip = small(2, c2, 2 * h, 2 * w).requires_grad_()
    plain = UpsampleConcat()(x, skip)
    g = 16 * small(*plain.shape)
    wanted = torch.autograd.grad(plain, [x, skip], g)
    fused = upsample_concat(x.to(DTYPE), skip.to(DTYPE))
    assert torch.equal(fused.float(), plain)
    found = torch.autograd.grad(fused, [x, skip], g.to(DTYPE))
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("uses", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("size", [(4, 6), (3, 4), (4, 5), (1, 1), (7, 3)])
def test_a_block_gives_its_output_and_the_downsampled_one_with_all_gradients(size, uses):
    torch.manual_seed(0)
    block = whole(ResidualBlock(5, 20))
    x = small(2, 5, *size).requires_grad_()
    out = block(x)
    plain, fused = (out, downsample(out)), by_kernels(block, x, reduced="downsampled")
    assert torch.equal(fused[1].float(), plain[1])
    compare_both(block, x, plain, fused, uses, 4)


@pytest.mark.parametrize("uses", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("size", [(4, 2), (1, 4), (1, 1), (8, 8)])
def test_a_block_gives_its_output_and_its_mean_with_all_gradients(size, uses):
    torch.manual_seed(0)
    block = whole(ResidualBlock(5, 20))
    x = small(3, 5, *size).requires_grad_()
    out = block(x)
    plain, fused = (out, out.mean(dim=(2, 3))), by_kernels(block, x, reduced="mean")
    assert torch.equal(fused[1], plain[1].to(DTYPE))  # all else is small enough to be exact
    compare_both(block, x, plain, fused, uses, size[0] * size[1])


def compare_both(
    block: ResidualBlock,
    x: torch.Tensor,
    plain: Sequence[torch.Tensor],
    fused: Sequence[torch.Tensor],
    uses: Sequence[bool],
    scale: int,
) -> None:
    """Two outputs and all gradients, where one or both of the outputs are used.

    A gradient of the second that is a multiple of `scale` leaves whole numbers to all pixels.
    """
    assert torch.equal(fused[0].float(), plain[0])
    gs = [small(*plain[0].shape), scale * small(*plain[1].shape)]
    pairs = [(f, p, g) for f, p, g, used in zip(fused, plain, gs, uses, strict=True) if used]
    f, p, g = zip(*pairs, strict=True)
    wanted = torch.autograd.grad(p, [x, *block.parameters()], g)
    dx, *found = torch.autograd.grad(f, [x, *block.parameters()], [t.to(DTYPE) for t in g])
    assert torch.equal(dx, wanted[0])
    close(found, wanted[1:])


def test_a_gradient_may_have_other_channels_between_its_pixels():
    torch.manual_seed(0)
    block = whole(ResidualBlock(5, 8))
    x = small(2, 5, 3, 4).requires_grad_()
    among = small(2, 3, 4, 12).permute(0, 3, 1, 2)[:, :8]
    wanted = torch.autograd.grad(block(x), x, among)
    assert torch.equal(*wanted, *torch.autograd.grad(by_kernels(block, x), x, among.to(DTYPE)))


def test_the_gradient_of_an_input_is_left_out_where_nobody_asks_for_it():
    block = whole(ResidualBlock(16, 16))
    (fused,) = by_kernels(block, small(1, 16, 4, 4))
    fused.sum().backward()
    assert all(p.grad is not None for p in block.parameters())


@pytest.mark.parametrize("c_in", [1, 16, 40])
def test_weight_gradients_are_added_to_their_buffers_on_side_streams(c_in):
    torch.manual_seed(0)
    block = whole(ResidualBlock(c_in, 16))
    x, streams = small(2, c_in, 8, 8), SideStreams()
    wanted = torch.autograd.grad(2 * block(x).sum(), list(block.parameters()))
    buffers, grads = buffers_of(block, streams)
    for _ in range(2):
        (out,) = residual_block(buffers.of(layers(block)), x.to(DTYPE), *weights(block))
        out.sum().backward()
    streams.join()
    assert all(p.grad is None for p in block.parameters())
    close(grads, wanted)


def test_those_of_a_linear_layer_too():
    torch.manual_seed(0)
    layer, streams = nn.Linear(6, 4).to(DEVICE), SideStreams()
    with torch.no_grad():
        layer.weight.copy_(small(4, 6))
        layer.bias.copy_(small(4))
    x, g = small(3, 6).requires_grad_(), small(3, 4)
    plain = layer(x)
    wanted = torch.autograd.grad(plain, [x, *layer.parameters()], g)
    buffers, grads = buffers_of(layer, streams)
    fast = SideStreamLinear(layer, buffers.of([layer]))
    assert fast.weight is layer.weight
    found = fast(x)
    assert torch.equal(found.float(), plain)
    found.backward(g.to(DTYPE))
    streams.join()
    assert all(p.grad is None for p in layer.parameters())
    assert x.grad is not None
    for a, b in zip([x.grad, *grads], wanted, strict=True):
        assert torch.equal(a, b)


@pytest.mark.skipif(DEVICE.type == "cpu", reason="bfloat16 needs a GPU")
def test_a_fused_module_is_the_plain_one():
    block = whole(ResidualBlock(16, 32))
    x, fused = small(2, 16, 8, 8), FusedResidualBlock(block)
    out, half = fused.reduced(x, "downsampled")
    assert torch.equal(out.float(), block(x))
    assert torch.equal(half.float(), downsample(block(x)))
    assert torch.equal(fused(x).float(), block(x))
