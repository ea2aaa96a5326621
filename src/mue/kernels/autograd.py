"""Autograd functions of residual blocks without normalization and of the resampling between them.

The convolutions of cuDNN are made for hundreds of channels. With 16 or 32 at full resolution they
reach a tenth of what the memory allows, and between them biases, ReLUs, masks and casts are passes
of their own. Here a convolution with all that surrounds it is one kernel, and so are its gradients:
three kernels a block in the forward pass; in the backward pass one for the ReLU and all that its
output went into, three for the input and two for each weight.

`ResidualBlock` and `UpsampleConcat` of `mue.nn.blocks` compute the same in plain PyTorch.
"""

from __future__ import annotations

from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from mue.kernels.buffers import LayerBuffers
from mue.kernels.launch import (
    conv3x3,
    conv_grad_weight,
    downsample,
    relu_grad,
    upsample_concat_grad,
)
from mue.kernels.launch import upsample_concat as upsample_concat_forward
from mue.kernels.streams import SideStreams

Reduced = Literal["downsampled", "mean"]
"""What a block returns besides its output: the same downsampled, or its mean over pixels."""


def _nhwc(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1).contiguous()


def _nchw(x: Tensor) -> Tensor:
    return x.permute(0, 3, 1, 2)


def _nhwc_strided(x: Tensor | None) -> Tensor | None:
    """B h w c in memory; it may be a slice of the channels of a larger tensor."""
    if x is None:
        return None
    x = x.permute(0, 2, 3, 1)
    _, h, w, _ = x.shape
    pixel = x.stride(2)
    return x if x.stride() == (h * w * pixel, w * pixel, pixel, 1) else x.contiguous()


def _nhwc_reduced(x: Tensor | None) -> Tensor | None:
    return x if x is None else x.contiguous() if x.ndim == 2 else _nhwc(x)


class _ResidualBlock(Function):
    @staticmethod
    def forward(
        ctx: Any,
        buffers: LayerBuffers,
        linear: bool,
        reduced: Reduced | None,
        x: Tensor,
        *weights: Tensor,
    ) -> tuple[Tensor, ...]:
        x = _nhwc(x)
        w1, w2, w3, *w_shortcut = (_nhwc(w) for w, _ in buffers.weights)
        b1, b2, b3, *b_shortcut = weights[1::2]
        h1 = conv3x3(x, w1, bias=b1, relu=True)
        h2 = conv3x3(h1, w2, bias=b2, relu=True)
        out = conv3x3(
            h2,
            w3,
            bias=b3,
            shortcut=x,
            shortcut_weight=w_shortcut[0] if w_shortcut else None,
            shortcut_bias=b_shortcut[0] if w_shortcut else None,
            relu=not linear,
            dtype=torch.float32 if linear else None,
        )
        ctx.buffers = buffers
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, h1, h2, *([] if linear else [out]))
        if reduced is None:
            return (_nchw(out),)
        small = _nchw(downsample(out)) if reduced == "downsampled" else out.mean(dim=(1, 2))
        return _nchw(out), small

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor | None) -> tuple[Any, ...]:
        buffers: LayerBuffers = ctx.buffers
        grad, grad_reduced, *_ = *grad_outputs, None
        x, h1, h2, *out = ctx.saved_tensors
        w1, w2, w3, *w_shortcut = (_nhwc(w) for w, _ in buffers.weights)
        if out:
            grad = relu_grad(out[0], _nhwc_strided(grad), _nhwc_reduced(grad_reduced))
        else:
            grad = _nhwc(cast("Tensor", grad).to(x.dtype))
        ready = _event(buffers, grad)
        grad2 = conv3x3(grad, w3, grad_input=True, relu_mask=h2)
        of_shortcut = _weight_grad(buffers, 3, x, grad, ready, kernel_size=1) if w_shortcut else ()
        of_w3 = _weight_grad(buffers, 2, h2, grad, ready)
        ready = _event(buffers, grad)
        grad1 = conv3x3(grad2, w2, grad_input=True, relu_mask=h1)
        of_w2 = _weight_grad(buffers, 1, h1, grad2, ready)
        ready = _event(buffers, grad)
        grad_x = None
        if ctx.needs_input_grad[3]:
            w = w_shortcut[0] if w_shortcut else None
            grad_x = _nchw(conv3x3(grad1, w1, grad_input=True, shortcut=grad, shortcut_weight=w))
        of_w1 = _weight_grad(buffers, 0, x, grad1, ready)
        return None, None, None, grad_x, *of_w1, *of_w2, *of_w3, *of_shortcut


def _event(buffers: LayerBuffers, x: Tensor) -> torch.cuda.Event | None:
    return None if buffers.streams is None else buffers.streams.event(x.device)


def _weight_grad(
    buffers: LayerBuffers,
    i: int,
    x: Tensor,
    grad: Tensor,
    ready: torch.cuda.Event | None,
    *,
    kernel_size: int = 3,
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of weight i and its bias; None where they are added to their buffers."""
    if buffers.streams is None:
        weight, bias = conv_grad_weight(x, grad, kernel_size=kernel_size)
        return _nchw(weight), bias
    out = buffers.grads[i]
    with buffers.streams.run(out[0], x, grad, after=ready):
        conv_grad_weight(x, grad, kernel_size=kernel_size, out=out)
    return None, None


def residual_block(
    buffers: LayerBuffers,
    x: Tensor,
    *weights: Tensor,
    linear: bool = False,
    reduced: Reduced | None = None,
) -> tuple[Tensor, ...]:
    """A residual block: its output and, if that is asked for, a reduced version of it.

    `linear` leaves out the ReLU at its end; the output is float32 then. Each weight is followed by
    its bias. The weights are there for autograd: those that are multiplied with are the rounded
    ones of the buffers.
    """
    return _ResidualBlock.apply(buffers, linear, reduced, x, *weights)


class _UpsampleConcat(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, skip: Tensor) -> Tensor:
        ctx.channels = x.shape[1]
        return _nchw(upsample_concat_forward(_nhwc(x), _nhwc(skip)))

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor]:
        grad_x, grad_skip = upsample_concat_grad(_nhwc(grad_outputs[0]), ctx.channels)
        return _nchw(grad_x), _nchw(grad_skip)


def upsample_concat(x: Tensor, skip: Tensor) -> Tensor:
    """Bilinear upsampling by 2, concatenated with the skip connection."""
    return _UpsampleConcat.apply(x, skip)


class _Linear(Function):
    @staticmethod
    def forward(
        ctx: Any, buffers: LayerBuffers, streams: SideStreams, x: Tensor, weight: Tensor
    ) -> Tensor:
        del weight  # it is there for autograd
        w, bias = buffers.weights[0]
        x = x.to(w.dtype)
        ctx.buffers, ctx.streams = buffers, streams
        ctx.save_for_backward(x)
        return F.linear(x, w, bias)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[None, None, Tensor, None]:
        buffers: LayerBuffers = ctx.buffers
        streams: SideStreams = ctx.streams
        (x,), (grad,) = ctx.saved_tensors, grad_outputs
        grad_weight, grad_bias = buffers.grads[0]
        ready = streams.event(x.device)
        grad_x = grad @ buffers.weights[0][0]
        with streams.run(grad_weight, x, grad, after=ready):
            wide = grad.float()
            grad_weight.addmm_(wide.T, x.float())
            grad_bias += wide.sum(dim=0)
        return None, None, grad_x, None


def linear(buffers: LayerBuffers, streams: SideStreams, x: Tensor, weight: Tensor) -> Tensor:
    """A linear layer whose weight gradient is computed on a side stream."""
    return _Linear.apply(buffers, streams, x, weight)
