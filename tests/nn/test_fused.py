"""The kernels against their twin: on a GPU, or without one where Triton can interpret them."""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton", reason="the kernels need Triton")

from mue.nn.blocks import ResidualBlock, compute_
from mue.nn.fused import residual

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
INTERPRETED = DEVICE.type == "cpu"


def near(a: torch.Tensor, b: torch.Tensor, most: float = 1e-5 if INTERPRETED else 3e-2) -> bool:
    """On a GPU, float32 is rounded to 10 bits on its way into a product, and a ReLU may flip."""
    gap = (a.float() - b.float()).norm() / b.float().norm().clamp_min(1e-9)
    return gap.item() < most


@pytest.mark.parametrize(
    ("c_in", "c_out", "inner", "linear", "size"),
    [
        (1, 16, None, False, (5, 9)),
        (2, 16, None, False, (5, 9)),
        (3, 8, None, False, (4, 4)),
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
    block = ResidualBlock(c_in, c_out, inner=inner, linear=linear).to(DEVICE)
    block.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    x = torch.randn(3, c_in, *size, device=DEVICE).requires_grad_()
    plain = block(x)
    g = torch.randn_like(plain)
    wanted = torch.autograd.grad(plain, [x, *block.parameters()], g)
    convs = [m for m in block.body if isinstance(m, torch.nn.Conv2d)]
    weights = [t for conv in convs for t in (conv.weight, conv.bias)]
    shortcut = block.shortcut
    own = (getattr(shortcut, "weight", None), getattr(shortcut, "bias", None))
    fused, *_ = residual(x, *weights, *own, linear)
    assert near(fused, plain)
    found = torch.autograd.grad(fused, [x, *block.parameters()], g.to(fused.dtype))
    assert all(near(a, b) for a, b in zip(found, wanted, strict=True))
    assert all(a.shape == b.shape for a, b in zip(found, wanted, strict=True))


def test_the_gradient_of_an_input_is_left_out_where_nobody_asks_for_it():
    block = ResidualBlock(16, 16).to(DEVICE)
    convs = [m for m in block.body if isinstance(m, torch.nn.Conv2d)]
    weights = [t for conv in convs for t in (conv.weight, conv.bias)]
    x = torch.randn(1, 16, 4, 4, device=DEVICE)
    fused, *_ = residual(x, *weights, None, None, False)
    fused.sum().backward()
    assert all(p.grad is not None for p in block.parameters())


@pytest.mark.skipif(INTERPRETED, reason="bfloat16 needs a GPU")
def test_blocks_that_are_told_to_use_them():
    block = ResidualBlock(16, 32).to(DEVICE)
    x = torch.randn(2, 16, 8, 8, device=DEVICE)
    plain = block(x)
    compute_(block, kernels=True, recompute=False)
    assert near(block(x), plain, 2e-2)
