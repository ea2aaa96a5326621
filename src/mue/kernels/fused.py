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

from mue.kernels.launch import (
    conv3x3,
    conv_grad_weight,
    downsample,
    relu_grad,
    upsample_concat,
    upsample_concat_grad,
)
from mue.nn.blocks import Also
from mue.nn.shared import Shared


def _nhwc(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1).contiguous()


def _nchw(x: Tensor) -> Tensor:
    return x.permute(0, 3, 1, 2)


def _rows(x: Tensor | None) -> Tensor | None:
    """B h w c in memory too, though other channels may lie between those of two pixels."""
    if x is None:
        return None
    x = x.permute(0, 2, 3, 1)
    _, h, w, _ = x.shape
    apart = x.stride(2)
    return x if x.stride() == (h * w * apart, w * apart, apart, 1) else x.contiguous()


def _smaller(x: Tensor | None) -> Tensor | None:
    return x if x is None else x.contiguous() if x.ndim == 2 else _nhwc(x)


class _Residual(Function):
    @staticmethod
    def forward(
        ctx: Any, kept: Shared, linear: bool, also: Also | None, x: Tensor, *weights: Tensor
    ) -> tuple[Tensor, ...]:
        x = _nhwc(x)
        r1, r2, r3, *own = (_nhwc(w) for w, _ in kept.rounded)
        b1, b2, b3, *bs = weights[1::2]
        one = conv3x3(x, r1, bias=b1, relu=True)
        two = conv3x3(one, r2, bias=b2, relu=True)
        out = conv3x3(
            two,
            r3,
            bias=b3,
            shortcut=x,
            shortcut_weight=own[0] if own else None,
            shortcut_bias=bs[0] if own else None,
            relu=not linear,
            dtype=torch.float32 if linear else None,
        )
        ctx.kept = kept
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, one, two, *([] if linear else [out]))
        match also:
            case None:
                return (_nchw(out),)
            case "half":
                return _nchw(out), _nchw(downsample(out))
            case "mean":
                return _nchw(out), out.mean(dim=(1, 2))

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor | None) -> tuple[Any, ...]:
        kept: Shared = ctx.kept
        g, smaller, *_ = *grad_outputs, None
        x, one, two, *out = ctx.saved_tensors
        r1, r2, r3, *own = (_nhwc(w) for w, _ in kept.rounded)
        if out:
            g = relu_grad(out[0], _rows(g), _smaller(smaller))
        else:
            g = _nhwc(cast("Tensor", g).to(x.dtype))
        now = _moment(kept, g)
        d2 = conv3x3(g, r3, grad_input=True, relu_mask=two)
        of_s = _of_weight(kept, 3, x, g, now, kernel_size=1) if own else ()
        of_3 = _of_weight(kept, 2, two, g, now)
        now = _moment(kept, g)
        d1 = conv3x3(d2, r2, grad_input=True, relu_mask=one)
        of_2 = _of_weight(kept, 1, one, d2, now)
        now = _moment(kept, g)
        dx = None
        if ctx.needs_input_grad[3]:
            w_shortcut = own[0] if own else None
            dx = _nchw(conv3x3(d1, r1, grad_input=True, shortcut=g, shortcut_weight=w_shortcut))
        of_1 = _of_weight(kept, 0, x, d1, now)
        return None, None, None, dx, *of_1, *of_2, *of_3, *of_s


def _moment(kept: Shared, x: Tensor) -> torch.cuda.Event | None:
    return None if kept.errands is None else kept.errands.moment(x.device)


def _of_weight(
    kept: Shared,
    i: int,
    x: Tensor,
    g: Tensor,
    now: torch.cuda.Event | None,
    *,
    kernel_size: int = 3,
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of weight i and of its bias, or nothing where they go to their places."""
    if kept.errands is None:
        weight, bias = conv_grad_weight(x, g, kernel_size=kernel_size)
        return _nchw(weight), bias
    place = kept.places[i]
    with kept.errands.errand(place[0], x, g, since=now):
        conv_grad_weight(x, g, kernel_size=kernel_size, out=place)
    return None, None


def residual(
    kept: Shared, x: Tensor, *weights: Tensor, linear: bool = False, also: Also | None = None
) -> tuple[Tensor, ...]:
    """A residual block: its output and, if that is asked for, half of it or its mean.

    `linear` leaves out the ReLU at its end; the output is float32 then. Each weight is followed by
    its bias. The weights are there for autograd: those that are multiplied with are kept, in the
    precision of x.
    """
    return _Residual.apply(kept, linear, also, x, *weights)


class _Rise(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, beside: Tensor) -> Tensor:
        ctx.c = x.shape[1]
        return _nchw(upsample_concat(_nhwc(x), _nhwc(beside)))

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor]:
        dx, dbeside = upsample_concat_grad(_nhwc(grad_outputs[0]), ctx.c)
        return _nchw(dx), _nchw(dbeside)


def rise(x: Tensor, beside: Tensor) -> Tensor:
    """The tensor doubled, and the other one after its channels."""
    return _Rise.apply(x, beside)
