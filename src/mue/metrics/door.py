"""What metrics accept, and a sentence for everything else.

Every metric takes torch tensors or numpy arrays. Masks are booleans, or 0 and 1 of any dtype:
`b k h w` of one class, `b k c h w` of several. Weights are `b k`, at least 0, and sum to 1 for each
input; None are equal weights. Masks that are boolean tensors pass unread.
"""

from __future__ import annotations

import functools
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from mue.errors import MueError

Array = Tensor | np.ndarray
"""A torch tensor or a numpy array."""
_TOLERANCE = 1e-4  # of a sum of probabilities


def masks(**sets: Array) -> list[Bool[Tensor, "b _ c h w"]]:
    """Sets of masks of the same inputs, given by their names.

    >>> masks(s=np.array([[[[0, 1]]]]))
    [tensor([[[[[False,  True]]]]])]
    """
    found: list[Tensor] = []
    for name, value in sets.items():
        found.append(_masks(name, value, found[0].device if found else None))
    (first, *others), (one, *names) = found, sets
    for name, other in zip(names, others, strict=True):
        mine, theirs = (tuple(t.shape[:1] + t.shape[2:]) for t in (first, other))
        if mine != theirs:
            raise MueError(
                f"`{one}` and `{name}` must be masks of the same inputs, classes and size, got "
                f"b c h w {mine} and {theirs}; resample one to the size of the other"
            )
    return found


def weights(name: str, value: Array | None, of: Tensor) -> Float[Tensor, "b k"]:
    """A distribution over the k masks of each input, on their device.

    >>> weights("p", None, torch.zeros(1, 2, 1, 3, 3))
    tensor([[0.5000, 0.5000]])
    """
    b, k = of.shape[:2]
    if value is None:
        return torch.full((b, k), 1 / k, device=of.device)
    (w,) = _floats([_tensor(name, value, of.device)])
    if w.shape != (b, k):
        raise MueError(
            f"`{name}` must be {b} {k}, a weight for each mask of each input, got "
            f"{_shape(w)}; None are equal weights"
        )
    return distribution(name, w)


def distribution(name: str, w: Float[Tensor, "b k"]) -> Float[Tensor, "b k"]:
    """Weights that are at least 0 and sum to 1 for each input."""
    total = w.sum(dim=1)
    if (w < 0).any() or not torch.allclose(total, torch.ones_like(total), atol=_TOLERANCE):
        raise MueError(
            f"`{name}` must be non-negative and sum to 1 for each input; renormalise it first: "
            f"{name} / {name}.sum(1, keepdims=True)"
        )
    return w


def weighted(
    s: Array, p: Array | None, ys: Array, q: Array | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Answers with their probabilities and raters with their weights, as most metrics take them."""
    answers, raters = masks(s=s, ys=ys)
    return answers, weights("p", p, answers), raters, weights("q", q, raters)


def shares(**values: Array) -> list[Float[Tensor, " b"]]:
    """Probabilities or shares, one for each input, as many in each of the given.

    >>> shares(p=np.array([0.25, 1.0]))
    [tensor([0.2500, 1.0000], dtype=torch.float64)]
    """
    found = _floats(tables(**{name: (v, "b") for name, v in values.items()}))
    for name, v in zip(values, found, strict=True):
        if not ((v >= -_TOLERANCE) & (v <= 1 + _TOLERANCE)).all():
            raise MueError(f"`{name}` must be a probability, in [0, 1], for each input")
    return found


def subdistributions(**values: Array) -> list[Float[Tensor, "b m"]]:
    """Probabilities of the same m modes of each input, which may leave a rest."""
    found = _floats(tables(**{name: (v, "b m") for name, v in values.items()}))
    for name, v in zip(values, found, strict=True):
        if not (v >= 0).all() or (v.sum(dim=1) > 1 + _TOLERANCE).any():
            raise MueError(f"`{name}` must be non-negative and sum to at most 1 for each input")
    return found


def vectors(**sets: Array) -> list[Float[Tensor, "b _ y"]]:
    """Sets of answers of any kind to the same inputs, each answer as a vector."""
    found = [_tensor(name, value) for name, value in sets.items()]
    for name, value in zip(sets, found, strict=True):
        if value.ndim < 3:
            raise MueError(f"`{name}` must be answers, b k *y, got the shape {_shape(value)}")
    flat = {n: (v.flatten(2), f"b {k} y") for n, v, k in zip(sets, found, "km", strict=False)}
    return _floats(tables(**flat))


def tables(**values: tuple[object, str]) -> list[Tensor]:
    """Numbers by the letters of their axes; a letter has one length in all of them.

    >>> tables(iou=(np.ones((2, 3)), "b k"), q=(torch.ones(2), "b"))[1]
    tensor([1., 1.])
    """
    found, sizes = list[Tensor](), dict[str, int]()
    for name, (value, axes) in values.items():
        table = _tensor(name, value, found[0].device if found else None)
        letters = axes.split()
        known = ", ".join(f"{a} = {sizes[a]}" for a in letters if a in sizes)
        if table.ndim != len(letters) or any(
            sizes.setdefault(a, n) != n for a, n in zip(letters, table.shape, strict=True)
        ):
            about = f" with {known}" if known else ""
            raise MueError(f"`{name}` must be {axes}{about}, got the shape {_shape(table)}")
        found.append(table)
    return found


def _tensor(name: str, value: object, device: torch.device | None = None) -> Tensor:
    """An array as a tensor; what is numpy goes to the device of what it is used with."""
    if isinstance(value, np.ndarray):
        return torch.as_tensor(np.array(_real(name, cast("NDArray[Any]", value)))).to(device)
    if not isinstance(value, Tensor) or value.is_complex():
        raise _no_array(name, value)
    if device is not None and value.device != device:
        raise MueError(
            f"`{name}` is on {value.device} and what it belongs to on {device}; "
            "move one to the device of the other"
        )
    return value


def _floats(values: list[Tensor]) -> list[Tensor]:
    """Numbers of one type of floating point, the widest of theirs."""
    kind = functools.reduce(torch.promote_types, (v.dtype for v in values))
    return [v.to(kind if kind.is_floating_point else torch.float32) for v in values]


def _masks(name: str, value: object, device: torch.device | None) -> Bool[Tensor, "b k c h w"]:
    """One set of masks."""
    if isinstance(value, np.ndarray):
        array = _real(name, cast("NDArray[Any]", value))
        found = _tensor(name, array if array.dtype == np.bool_ else _ones(name, array), device)
    else:
        found = _tensor(name, value, device)
    if found.dtype != torch.bool:
        found = _ones(name, found)
    if found.ndim == 4:
        found = found.unsqueeze(2)
    if found.ndim != 5:
        raise MueError(
            f"`{name}` must be masks, b k h w or b k c h w, got the shape {_shape(found)}; "
            f"of a single input take {name}[None]"
        )
    if not found.shape[1]:
        raise MueError(f"`{name}` must hold at least one mask for each input, got none")
    return found


def _ones(name: str, value: Any) -> Any:
    """Where masks of 0 and 1 are 1, of torch or of numpy."""
    one = value == 1
    if (one | (value == 0)).all():
        return one
    if (value != value).any():
        raise MueError(f"`{name}` must be masks, booleans or 0 and 1, got NaN; leave it out first")
    values = torch.as_tensor(value).double()
    if (values == values.round()).all():
        raise MueError(
            f"`{name}` must be masks, booleans or 0 and 1, got whole numbers up to "
            f"{values.amax():g}; make a label map one-hot first, a mask for each class: {name} == 3"
        )
    raise MueError(
        f"`{name}` must be masks, booleans or 0 and 1, got numbers between or beyond; "
        f"threshold first: {name} > 0.5"
    )


def _real(name: str, value: NDArray[Any]) -> NDArray[Any]:
    """Arrays of numbers, and no others."""
    if value.dtype.kind not in "biuf":
        raise _no_array(name, value)
    return value


def _no_array(name: str, value: object) -> MueError:
    dtype = getattr(value, "dtype", None)
    what = type(value).__name__ if dtype is None else f"one of {dtype}"
    return MueError(
        f"`{name}` must be a torch tensor or a numpy array of booleans or real numbers, got "
        f"{what}; convert it first"
    )


def _shape(value: Tensor) -> str:
    return " ".join(map(str, value.shape)) or "()"
