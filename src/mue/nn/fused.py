"""The residual block without normalization, and what lies between blocks, as a few kernels.

The libraries' convolutions are made for hundreds of channels. With 16 or 32 at full resolution they
reach a tenth of what the memory allows, and between them biases, ReLUs, masks and casts are passes
of their own. Here a convolution with all that surrounds it is one kernel, and so are its gradients:
forward three kernels a block, backward one for the ReLU and all that its output went into, three
for the input and two for each weight.

`ResidualBlock` and `Rise` themselves are the twins in plain PyTorch; tests hold them together.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function

from mue.nn.blocks import Shared
from mue.nn.kernels import (
    convolution,
    doubled_apart,
    doubled_beside,
    gradients,
    halved,
    rejoined,
)


def _nhwc(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1).contiguous()


def _nchw(x: Tensor) -> Tensor:
    return x.permute(0, 3, 1, 2)


def _maybe_nhwc(x: Tensor | None) -> Tensor | None:
    return None if x is None else _nhwc(x)


class _Residual(Function):
    @staticmethod
    def forward(
        ctx: Any, kept: Shared, linear: bool, halves: bool, x: Tensor, *weights: Tensor
    ) -> tuple[Tensor, ...]:
        x = _nhwc(x)
        r1, r2, r3, *own = (_nhwc(w) for w in kept.rounded)
        b1, b2, b3, *bs = weights[1::2]
        one = convolution(x, r1, bias=b1, relu=True)
        two = convolution(one, r2, bias=b2, relu=True)
        out = convolution(
            two,
            r3,
            bias=b3,
            second=x,
            w2=own[0] if own else None,
            bias2=bs[0] if own else None,
            relu=not linear,
            dtype=torch.float32 if linear else None,
        )
        ctx.kept = kept
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, one, two, *([] if linear else [out]))
        return (_nchw(out), _nchw(halved(out))) if halves else (_nchw(out),)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor | None) -> tuple[Any, ...]:
        kept: Shared = ctx.kept
        g, half, *_ = *grad_outputs, None
        x, one, two, *out = ctx.saved_tensors
        r1, r2, r3, *own = (_nhwc(w) for w in kept.rounded)
        if out:
            g = rejoined(out[0], _maybe_nhwc(g), _maybe_nhwc(half))
        else:
            g = _nhwc(cast("Tensor", g).to(x.dtype))
        of_3 = _of_weight(kept, 2, two, g)
        d2 = convolution(g, r3, turned=True, mask=two)
        of_2 = _of_weight(kept, 1, one, d2)
        d1 = convolution(d2, r2, turned=True, mask=one)
        of_1 = _of_weight(kept, 0, x, d1)
        of_s = _of_weight(kept, 3, x, g, rows=1) if own else ()
        dx = None
        if ctx.needs_input_grad[3]:
            w2 = own[0] if own else None
            dx = _nchw(convolution(d1, r1, turned=True, second=g, w2=w2))
        return None, None, None, dx, *of_1, *of_2, *of_3, *of_s


def _of_weight(
    kept: Shared, i: int, x: Tensor, g: Tensor, *, rows: int = 3
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of weight i and of its bias, or nothing where they go to their places."""
    if kept.errands is None:
        weight, bias = gradients(x, g, rows=rows)
        return _nchw(weight), bias
    place = kept.places[i]
    with kept.errands.errand(place[0], x, g):
        gradients(x, g, rows=rows, into=place)
    return None, None


def residual(
    kept: Shared, x: Tensor, *weights: Tensor, linear: bool = False, halves: bool = False
) -> tuple[Tensor, ...]:
    """A residual block: its output and, with `halves`, the output halved.

    `linear` leaves out the ReLU at its end; the output is float32 then. Each weight is followed by
    its bias. The weights are there for autograd: those that are multiplied with are kept, in the
    precision of x.
    """
    return _Residual.apply(kept, linear, halves, x, *weights)


class _Rise(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, beside: Tensor) -> Tensor:
        ctx.c = x.shape[1]
        return _nchw(doubled_beside(_nhwc(x), _nhwc(beside)))

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor]:
        dx, dbeside = doubled_apart(_nhwc(grad_outputs[0]), ctx.c)
        return _nchw(dx), _nchw(dbeside)


def rise(x: Tensor, beside: Tensor) -> Tensor:
    """The tensor doubled, and the other one after its channels."""
    return _Rise.apply(x, beside)
