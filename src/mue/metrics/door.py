"""What metrics accept, and a sentence for everything else.

Every metric takes torch tensors or numpy arrays. Masks are booleans, or 0 and 1 of any dtype:
`b k h w` of one class, `b k c h w` of several. Weights are `b k`, at least 0, and sum to 1 for each
input; None are equal weights. Masks that are boolean tensors pass unread.
"""

from __future__ import annotations

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
    found = [_masks(name, value) for name, value in sets.items()]
    (first, *others), (one, *names) = found, sets
    for name, other in zip(names, others, strict=True):
        if other.device != first.device:
            raise _not_together(one, first.device, name, other.device, "move one to the other's")
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
    w = numbers(name, value, of.device)
    if w.shape != (b, k):
        raise MueError(
            f"`{name}` must be {b} {k}, a weight for each mask of each input, got "
            f"{_shape(w)}; None are equal weights"
        )
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
    found = _alike(1, "one for each input", values)
    for name, v in zip(values, found, strict=True):
        if not ((v >= -_TOLERANCE) & (v <= 1 + _TOLERANCE)).all():
            raise MueError(f"`{name}` must be a probability, in [0, 1], for each input")
    return found


def subdistributions(**values: Array) -> list[Float[Tensor, "b m"]]:
    """Probabilities of the same m modes of each input, which may leave a rest."""
    found = _alike(2, "b m: one for each mode of each input", values)
    for name, v in zip(values, found, strict=True):
        if not (v >= 0).all() or (v.sum(dim=1) > 1 + _TOLERANCE).any():
            raise MueError(f"`{name}` must be non-negative and sum to at most 1 for each input")
    return found


def numbers(name: str, value: object, device: torch.device | None = None) -> Float[Tensor, "..."]:
    """A tensor of floating point; what is numpy goes to the device of what it is used with."""
    if isinstance(value, np.ndarray):
        value = torch.as_tensor(np.array(_readable(name, cast("NDArray[Any]", value)))).to(device)
    elif not isinstance(value, Tensor):
        raise _no_array(name, value)
    elif device is not None and value.device != device:
        raise _not_together(name, value.device, "the masks", device, f"take {name}.to(device)")
    return value if value.is_floating_point() else value.float()


def _alike(axes: int, what: str, values: dict[str, Array]) -> list[Tensor]:
    """Numbers of one shape, with so many axes."""
    found: list[Tensor] = []
    for name, value in values.items():
        found.append(numbers(name, value, found[0].device if found else None))
    if found[0].ndim != axes or any(v.shape != found[0].shape for v in found):
        names, shapes = " and ".join(f"`{n}`" for n in values), " and ".join(map(_shape, found))
        raise MueError(f"{names} must be probabilities, {what}, got the shape {shapes}")
    return found


def _masks(name: str, value: object) -> Bool[Tensor, "b k c h w"]:
    """One set of masks."""
    if isinstance(value, np.ndarray):
        array = _readable(name, cast("NDArray[Any]", value))
        is_bool = array.dtype == np.bool_
        found = torch.as_tensor(np.array(array if is_bool else _ones(name, array)))
    elif isinstance(value, Tensor):
        if value.is_complex():
            raise _no_array(name, value)
        found = value if value.dtype == torch.bool else _ones(name, value)
    else:
        raise _no_array(name, value)
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


def _readable(name: str, value: NDArray[Any]) -> NDArray[Any]:
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


def _not_together(one: str, here: object, other: str, there: object, way: str) -> MueError:
    return MueError(f"`{one}` is on {here} and {other} on {there}; {way}")


def _shape(value: Tensor) -> str:
    return " ".join(map(str, value.shape)) or "()"
