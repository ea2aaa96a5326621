"""The residual block without normalization, and doubling, as a few kernels.

The libraries' convolutions are made for hundreds of channels. With 16 or 32 at full resolution they
reach a tenth of what the memory allows, and between them biases, ReLUs, masks and casts are passes
of their own. Here a convolution with all that surrounds it is one kernel, and so are its gradients:
forward three kernels a block, backward three for the input and one for each weight.

`ResidualBlock` and `Rise` themselves are the twins in plain PyTorch; tests hold them together.
"""

import functools
from typing import Any

import torch
from torch import Tensor

from mue.nn.kernels import convolution, doubled_apart, doubled_beside, gradients
from mue.nn.streams import beside

_FEW = 1 << 16  # pixels of a batch


def _nhwc(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1).contiguous()


def _nchw(x: Tensor) -> Tensor:
    return x.permute(0, 3, 1, 2)


class _Beside:
    """Gradients of weights, beside those of activations, which do not wait for them.

    That pays where there are so few pixels that one kernel does not fill the device.
    """

    def __init__(self, like: Tensor) -> None:
        few = like.numel() // like.shape[3] <= _FEW
        self._streams = _streams(like.device) if like.is_cuda and few else None
        self._kept: list[object] = []  # so that no memory is given to somebody else before the end
        self._found: list[Tensor] = []

    def __enter__(self) -> "_Beside":
        """Start."""
        return self

    def take(self, x: Tensor, g: Tensor, rows: int = 3) -> Tensor:
        """The gradients of a weight and its bias, computed as soon as x and g are there."""
        if self._streams is None:
            return gradients(x, g, rows=rows).total()
        with beside(self._streams[1]):
            parts = gradients(x, g, rows=rows)
            found = parts.total()
        self._kept += [x, g, parts]
        self._found.append(found)
        return found

    def __exit__(self, *_: object) -> None:
        """Wait for all of them, on the device."""
        if self._streams is not None:
            main, side = self._streams
            main.wait_stream(side)
            for found in self._found:
                found.record_stream(main)


@functools.cache
def _side(device: torch.device, main: int) -> torch.cuda.Stream:
    del main  # a stream of its own for each
    return torch.cuda.Stream(device)


def _streams(device: torch.device) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    main = torch.cuda.current_stream(device)
    return main, _side(device, main.cuda_stream)


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
    r1: Tensor,
    r2: Tensor,
    r3: Tensor,
    rs: Tensor | None,
    linear: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """A residual block: its output, and the two activations inside.

    r1 to rs are w1 to ws in the precision of x. Those are what is multiplied with: the weights
    themselves are there for their gradients.
    """
    del w1, w2, w3, ws
    x_ = _nhwc(x)
    one = convolution(x_, _nhwc(r1), bias=b1, relu=True)
    two = convolution(one, _nhwc(r2), bias=b2, relu=True)
    out = convolution(
        two,
        _nhwc(r3),
        bias=b3,
        second=x_,
        w2=None if rs is None else _nhwc(rs),
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
    r1: Tensor,
    r2: Tensor,
    r3: Tensor,
    rs: Tensor | None,
    linear: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    del b1, b2, b3, ws, bs, r1, r2, r3, rs
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
    r1: Tensor,
    r2: Tensor,
    r3: Tensor,
    rs: Tensor | None,
    needs_x: bool,
) -> list[Tensor]:
    """The gradients of x, where it is needed, and of each weight and its bias in one piece."""
    g_, x_, one_, two_ = _nhwc(g), _nhwc(x), _nhwc(one), _nhwc(two)
    with _Beside(g_) as beside:
        of_3 = beside.take(two_, g_)
        of_s = [] if rs is None else [beside.take(x_, g_, rows=1)]
        d2 = convolution(g_, _nhwc(r3), turned=True, mask=two_)
        of_2 = beside.take(one_, d2)
        d1 = convolution(d2, _nhwc(r2), turned=True, mask=one_)
        of_1 = beside.take(x_, d1)
        dx: list[Tensor] = []
        if needs_x:
            own = None if rs is None else _nhwc(rs)
            dx = [_nchw(convolution(d1, _nhwc(r1), turned=True, second=g_, w2=own))]
    return [*dx, of_1, of_2, of_3, *of_s]


@residual_backward.register_fake
def _(
    g: Tensor,
    x: Tensor,
    one: Tensor,
    two: Tensor,
    r1: Tensor,
    r2: Tensor,
    r3: Tensor,
    rs: Tensor | None,
    needs_x: bool,
) -> list[Tensor]:
    del g, one, two
    found = [
        x.new_empty(r.numel() + len(r), dtype=torch.float32)
        for r in (r1, r2, r3, rs)
        if r is not None
    ]
    if needs_x:
        b, c, h, w = x.shape
        found = [_nchw(x.new_empty((b, h, w, c))), *found]
    return found


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, *_, r1, r2, r3, rs, linear = inputs
    out, one, two = output
    ctx.needs_x = ctx.needs_input_grad[0]
    ctx.save_for_backward(x, r1, r2, r3, rs, None if linear else out, one, two)


def _backward(ctx: Any, g: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    x, r1, r2, r3, rs, out, one, two = ctx.saved_tensors
    g = g.to(x.dtype) if out is None else torch.where(out > 0, g, 0)
    found = residual_backward(g, x, one, two, r1, r2, r3, rs, ctx.needs_x)
    dx = found.pop(0) if ctx.needs_x else None
    shapes = [r for r in (r1, r2, r3, rs) if r is not None]
    apart = [t for flat, r in zip(found, shapes, strict=True) for t in _split(flat, r)]
    return dx, *apart, *[None] * (13 - len(apart))


def _split(flat: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of a weight and of its bias."""
    o, i, ky, kx = weight.shape
    return _nchw(flat[: weight.numel()].view(o, ky, kx, i)), flat[weight.numel() :]


residual.register_autograd(_backward, setup_context=_keep)


@torch.library.custom_op("mue::rise", mutates_args=())
def rise(x: Tensor, beside: Tensor) -> Tensor:
    """The tensor doubled, and the other one after its channels."""
    return _nchw(doubled_beside(_nhwc(x), _nhwc(beside)))


@rise.register_fake
def _(x: Tensor, beside: Tensor) -> Tensor:
    b, c, h, w = x.shape
    return _nchw(x.new_empty((b, 2 * h, 2 * w, c + beside.shape[1])))


@torch.library.custom_op("mue::rise_backward", mutates_args=())
def rise_backward(g: Tensor, c: int) -> tuple[Tensor, Tensor]:
    """The gradients of both, of which the first has c channels."""
    dx, dbeside = doubled_apart(_nhwc(g), c)
    return _nchw(dx), _nchw(dbeside)


@rise_backward.register_fake
def _(g: Tensor, c: int) -> tuple[Tensor, Tensor]:
    b, both, h, w = g.shape
    dx, dbeside = g.new_empty((b, h // 2, w // 2, c)), g.new_empty((b, h, w, both - c))
    return _nchw(dx), _nchw(dbeside)


def _keep_width(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    del output
    ctx.c = inputs[0].shape[1]


def _fall(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
    return rise_backward(g, ctx.c)


rise.register_autograd(_fall, setup_context=_keep_width)
