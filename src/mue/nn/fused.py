"""The residual block without normalization as a few kernels.

The libraries' convolutions are made for hundreds of channels. With 16 or 32 at full resolution they
reach a tenth of what the memory allows, and between them biases, ReLUs, masks and casts are passes
of their own. Here a convolution with all that surrounds it is one kernel, and so are its gradients:
forward three kernels a block, backward three for the input and one for each weight.

`ResidualBlock` itself is the twin in plain PyTorch; a test holds the two together.
"""

from typing import Any

import torch
from torch import Tensor

from mue.nn.kernels import convolution, gradients


def _nhwc(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1).contiguous()


def _nchw(x: Tensor) -> Tensor:
    return x.permute(0, 3, 1, 2)


@torch.library.custom_op("mue::residual", mutates_args=())
def residual(
    x: Tensor,
    w1: Tensor,
    b1: Tensor,
    w2: Tensor,
    b2: Tensor,
    w3: Tensor,
    b3: Tensor,
    ws: Tensor | None,
    bs: Tensor | None,
    linear: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """A residual block: its output, and the two activations inside."""
    x_ = _nhwc(x)
    one = convolution(x_, _nhwc(w1), bias=b1, relu=True)
    two = convolution(one, _nhwc(w2), bias=b2, relu=True)
    out = convolution(
        two,
        _nhwc(w3),
        bias=b3,
        second=x_,
        w2=None if ws is None else _nhwc(ws),
        bias2=bs,
        relu=not linear,
        dtype=torch.float32 if linear else None,
    )
    return _nchw(out), _nchw(one), _nchw(two)


@residual.register_fake
def _(
    x: Tensor,
    w1: Tensor,
    b1: Tensor,
    w2: Tensor,
    b2: Tensor,
    w3: Tensor,
    b3: Tensor,
    ws: Tensor | None,
    bs: Tensor | None,
    linear: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    del b1, b2, b3, ws, bs
    b, _, h, w = x.shape

    def like(weight: Tensor, dtype: torch.dtype) -> Tensor:
        return _nchw(x.new_empty((b, h, w, weight.shape[0]), dtype=dtype))

    return (
        like(w3, torch.float32 if linear else x.dtype),
        like(w1, x.dtype),
        like(w2, x.dtype),
    )


@torch.library.custom_op("mue::residual_backward", mutates_args=())
def residual_backward(
    g: Tensor,
    x: Tensor,
    one: Tensor,
    two: Tensor,
    w1: Tensor,
    w2: Tensor,
    w3: Tensor,
    ws: Tensor | None,
    needs_x: bool,
) -> list[Tensor]:
    """The gradients of x (where it is needed) and of the weights and biases, in order."""
    g_, x_, one_, two_ = _nhwc(g), _nhwc(x), _nhwc(one), _nhwc(two)
    dw3, db3 = gradients(two_, g_)
    d2 = convolution(g_, _nhwc(w3), turned=True, mask=two_)
    dw2, db2 = gradients(one_, d2)
    d1 = convolution(d2, _nhwc(w2), turned=True, mask=one_)
    dw1, db1 = gradients(x_, d1)
    found = [_nchw(dw1), db1, _nchw(dw2), db2, _nchw(dw3), db3]
    if ws is not None:
        dws, _ = gradients(x_, g_, rows=1, bias=False)
        found += [_nchw(dws), db3.clone()]
    if needs_x:
        flat = None if ws is None else _nhwc(ws)
        found = [
            _nchw(convolution(d1, _nhwc(w1), turned=True, second=g_, w2=flat)),
            *found,
        ]
    return found


@residual_backward.register_fake
def _(
    g: Tensor,
    x: Tensor,
    one: Tensor,
    two: Tensor,
    w1: Tensor,
    w2: Tensor,
    w3: Tensor,
    ws: Tensor | None,
    needs_x: bool,
) -> list[Tensor]:
    del g, one, two

    def of(weight: Tensor) -> list[Tensor]:
        o, i, ky, kx = weight.shape
        return [
            _nchw(weight.new_empty((o, ky, kx, i), dtype=torch.float32)),
            weight.new_empty((o,), dtype=torch.float32),
        ]

    found = [*of(w1), *of(w2), *of(w3)]
    if ws is not None:
        found += of(ws)
    if needs_x:
        b, c, h, w = x.shape
        found = [_nchw(x.new_empty((b, h, w, c))), *found]
    return found


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, w1, _, w2, _, w3, _, ws, _, linear = inputs
    out, one, two = output
    ctx.needs_x = ctx.needs_input_grad[0]
    ctx.save_for_backward(x, w1, w2, w3, ws, None if linear else out, one, two)


def _backward(ctx: Any, g: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    x, w1, w2, w3, ws, out, one, two = ctx.saved_tensors
    g = g.to(x.dtype) if out is None else torch.where(out > 0, g, 0)
    found = residual_backward(g, x, one, two, w1, w2, w3, ws, ctx.needs_x)
    before = [] if ctx.needs_x else [None]
    after = [None] if ws is not None else [None, None, None]
    return *before, *found, *after


residual.register_autograd(_backward, setup_context=_keep)
