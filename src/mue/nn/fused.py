"""The residual block without normalization, and what lies between blocks, as a few kernels.

The libraries' convolutions are made for hundreds of channels. With 16 or 32 at full resolution they
reach a tenth of what the memory allows, and between them biases, ReLUs, masks and casts are passes
of their own. Here a convolution with all that surrounds it is one kernel, and so are its gradients:
forward three kernels a block, backward one for the ReLU and all that its output went into, three
for the input and two for each weight.

`ResidualBlock` and `Rise` themselves are the twins in plain PyTorch; tests hold them together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function

from mue.nn.kernels import (
    convolution,
    doubled_apart,
    doubled_beside,
    gradients,
    halved,
    rejoined,
)
from mue.nn.streams import Errands


def _nhwc(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1).contiguous()


def _nchw(x: Tensor) -> Tensor:
    return x.permute(0, 3, 1, 2)


def _maybe_nhwc(x: Tensor | None) -> Tensor | None:
    return None if x is None else _nhwc(x)


@dataclass(frozen=True, slots=True)
class Work:
    """What a residual block is to do.

    Attributes:
        rounded: The weights of its three convolutions, and of its shortcut if that is one too, in
            the precision of its input.
        linear: Whether it has no ReLU at its end; the output is float32 then.
        halves: Whether its output is wanted in half the height and width too.
        places: Where the gradient of each weight is added, o ky kx i in memory, and that of its
            bias; none where autograd is to have them.
        errands: Who adds them.
    """

    rounded: Sequence[Tensor]
    linear: bool
    halves: bool = False
    places: Sequence[tuple[Tensor, Tensor]] = ()
    errands: Errands | None = None


class _Residual(Function):
    @staticmethod
    def forward(ctx: Any, work: Work, x: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        x = _nhwc(x)
        r1, r2, r3, *own = (_nhwc(w) for w in work.rounded)
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
            relu=not work.linear,
            dtype=torch.float32 if work.linear else None,
        )
        ctx.work = work
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, one, two, *([] if work.linear else [out]))
        return (_nchw(out), _nchw(halved(out))) if work.halves else (_nchw(out),)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor | None) -> tuple[Any, ...]:
        work: Work = ctx.work
        g, half = grad_outputs if work.halves else (*grad_outputs, None)
        x, one, two, *out = ctx.saved_tensors
        r1, r2, r3, *own = (_nhwc(w) for w in work.rounded)
        if out:
            g = rejoined(out[0], _maybe_nhwc(g), _maybe_nhwc(half))
        else:
            g = _nhwc(cast("Tensor", g).to(x.dtype))
        of_3 = _of_weight(work, 2, two, g)
        d2 = convolution(g, r3, turned=True, mask=two)
        of_2 = _of_weight(work, 1, one, d2)
        d1 = convolution(d2, r2, turned=True, mask=one)
        of_1 = _of_weight(work, 0, x, d1)
        of_s = _of_weight(work, 3, x, g, rows=1) if own else ()
        dx = None
        if ctx.needs_input_grad[1]:
            w2 = own[0] if own else None
            dx = _nchw(convolution(d1, r1, turned=True, second=g, w2=w2))
        return None, dx, *of_1, *of_2, *of_3, *of_s


def _of_weight(
    work: Work, i: int, x: Tensor, g: Tensor, *, rows: int = 3
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of weight i and of its bias, or nothing where they go to their places."""
    if work.errands is None:
        weight, bias = gradients(x, g, rows=rows)
        return _nchw(weight), bias
    place = work.places[i]
    with work.errands.errand(place[0], x, g):
        gradients(x, g, rows=rows, into=place)
    return None, None


def residual(work: Work, x: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
    """A residual block: its output and, where asked for, the output halved.

    Each weight is followed by its bias. The weights are there for autograd; those that are
    multiplied with are in `work`.
    """
    return _Residual.apply(work, x, *weights)


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
