"""The kernels against their twin: on a GPU, or without one where Triton can interpret them."""

import os
from collections.abc import Sequence

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton", reason="the kernels need Triton")

from mue.kernels.fused import residual, rise
from mue.nn.affine import Affine
from mue.nn.blocks import Also, ResidualBlock, Rise, compute_
from mue.nn.shared import Shared, share_
from mue.nn.streams import Errands

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DTYPE = torch.bfloat16 if torch.cuda.is_available() else torch.float32


def small(*shape: int, most: int = 2) -> torch.Tensor:
    """Small whole numbers: sums of their products are exact in every precision here."""
    return torch.randint(-most, most + 1, shape).float().to(DEVICE)


def whole(block: ResidualBlock) -> ResidualBlock:
    """The block with weights of which a few are 1 or -1."""
    with torch.no_grad():
        for p in block.parameters():
            share = min(1.0, 6 / p[0].numel())
            p.copy_(torch.randint(-1, 2, p.shape) * (torch.rand(p.shape) < share))
    return block.to(device=DEVICE, memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]


def by_kernels(
    block: ResidualBlock, x: torch.Tensor, *, also: Also | None = None
) -> tuple[torch.Tensor, ...]:
    """What the kernels make of it, with autograd for its gradients."""
    kept = Shared([(c.weight.detach().to(DTYPE), c.bias) for c in block.layers()])
    return residual(kept, x.to(DTYPE), *weights(block), linear=block.linear, also=also)


def weights(block: ResidualBlock) -> list[torch.Tensor]:
    """Each weight and its bias, as the kernels want them."""
    return [p for conv in block.layers() for p in conv.parameters()]


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
def test_rising_is_doubling_and_concatenation_with_their_gradients(c, c2, size):
    torch.manual_seed(0)
    h, w = size
    x = (16 * small(2, c, h, w)).requires_grad_()
    skip = small(2, c2, 2 * h, 2 * w).requires_grad_()
    plain = Rise()(x, skip)
    g = 16 * small(*plain.shape)
    wanted = torch.autograd.grad(plain, [x, skip], g)
    fused = rise(x.to(DTYPE), skip.to(DTYPE))
    assert torch.equal(fused.float(), plain)
    found = torch.autograd.grad(fused, [x, skip], g.to(DTYPE))
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("uses", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("size", [(4, 6), (3, 4), (4, 5), (1, 1), (7, 3)])
def test_a_falling_block_gives_its_output_and_half_of_it_with_all_gradients(size, uses):
    torch.manual_seed(0)
    block = whole(ResidualBlock(5, 20))
    x = small(2, 5, *size).requires_grad_()
    plain, fused = block.fall(x), by_kernels(block, x, also="half")
    assert torch.equal(fused[1].float(), plain[1])
    compare_both(block, x, plain, fused, uses, 4)


@pytest.mark.parametrize("uses", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("size", [(4, 2), (1, 4), (1, 1), (8, 8)])
def test_a_block_at_the_end_gives_its_output_and_the_mean_of_it_with_all_gradients(size, uses):
    torch.manual_seed(0)
    block = whole(ResidualBlock(5, 20))
    x = small(3, 5, *size).requires_grad_()
    plain, fused = block.end(x), by_kernels(block, x, also="mean")
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
def test_gradients_are_added_in_their_places_by_errands(c_in):
    torch.manual_seed(0)
    block = whole(ResidualBlock(c_in, 16))
    x = small(2, c_in, 8, 8)
    wanted = torch.autograd.grad(2 * block(x).sum(), list(block.parameters()))
    kept = {id(p): torch.zeros_like(p) for p in block.parameters()}
    rounded = {id(p): p.detach().to(DTYPE) for p in block.parameters()}
    errands = Errands()
    share_(block, rounded, kept, errands)
    for _ in range(2):
        assert block.shared is not None
        (fused,) = residual(block.shared, x.to(DTYPE), *weights(block))
        fused.sum().backward()
    errands.wait()
    assert all(p.grad is None for p in block.parameters())
    close([kept[id(p)] for p in block.parameters()], wanted)


def test_a_linear_layer_sends_its_gradients_on_errands_too():
    torch.manual_seed(0)
    layer = Affine(6, 4).to(DEVICE)
    with torch.no_grad():
        layer.weight.copy_(small(4, 6))
        layer.bias.copy_(small(4))
    x = small(3, 6).requires_grad_()
    g = small(3, 4)
    plain = layer(x)
    wanted = torch.autograd.grad(plain, [x, *layer.parameters()], g)
    kept = {id(p): torch.zeros_like(p) for p in layer.parameters()}
    errands = Errands()
    share_(layer, {id(p): p.detach().to(DTYPE) for p in layer.parameters()}, kept, errands)
    found = layer(x)
    assert torch.equal(found.float(), plain)
    found.backward(g.to(DTYPE))
    errands.wait()
    assert all(p.grad is None for p in layer.parameters())
    assert x.grad is not None
    for a, b in zip([x.grad, *kept.values()], wanted, strict=True):
        assert torch.equal(a, b)


@pytest.mark.skipif(DEVICE.type == "cpu", reason="bfloat16 needs a GPU")
def test_blocks_that_are_told_to_use_them():
    block = whole(ResidualBlock(16, 32))
    x = small(2, 16, 8, 8)
    plain = block.fall(x)
    compute_(block, kernels=True, recompute=False)
    assert all(torch.equal(a.float(), b) for a, b in zip(block.fall(x), plain, strict=True))
