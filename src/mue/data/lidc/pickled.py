"""`data_lidc.pickle` of the PyTorch Probabilistic U-Net, read without running what it says.

A pickle is a program: it may import any function and call it. Here none is imported: the few names
that numpy arrays need are resolved to replacements that check their arguments; any other name is
refused.
"""

import functools
import io
import math
import pickle
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from jaxtyping import Bool, UInt8

from mue.data.lidc import RATERS
from mue.data.lidc.archive import CountedFile, Progress
from mue.data.lidc.png import binarize, center_crop
from mue.data.prepared.item import Item, Rejected
from mue.errors import MueError
from mue.runtime.devices import physical_memory

NODULE = "unknown"
"""The nodule of every item: the file does not say which slices show the same one."""
Spend = Callable[[int], None]
"""Called with the number of bytes that a pickle makes out of others."""
_UNFOLDED = 16
"""Times the size of a pickle that its items may have: its arrays may share a mask, not more."""
_KINDS = re.compile(r"[<>|=]?(?:b1|[iu][1248]|f[248])")


def read(
    source: Path, size: int | None, progress: Progress, memory: int | None = None
) -> Iterator[Item | Rejected]:
    """The slices of a pickle: a dictionary of dictionaries with `image`, `masks`, `series_uid`.

    A pickle is one value and is read whole. So a file larger than half of the machine's memory
    (`memory`, in bytes) is refused before anything is read.

    Raises:
        MueError: The pickle names anything but numpy arrays and builtin containers.
    """
    memory = physical_memory() if memory is None else memory
    file_size = source.stat().st_size
    if memory is not None and 2 * file_size > memory:
        raise MueError(
            f"{source.name} has {file_size} bytes, more than half of the {memory} bytes of memory "
            "here, and a pickle can only be read whole; import it on a larger machine"
        )
    try:
        with io.BufferedReader(CountedFile(source, progress)) as file:
            table = _Unpickler(file, source.name, file_size).load()
    except MueError:
        raise
    except Exception as error:  # for a damaged file, pickle raises any
        yield Rejected(source.name, f"is truncated or damaged as a pickle ({error})")
        return
    if not isinstance(table, dict):
        yield Rejected(source.name, "must be a dictionary of slices, and is not")
        return
    left = _UNFOLDED * file_size  # bytes of items: many may be one entry under many names
    for name in list(table):
        entry = table.pop(name)
        if not isinstance(name, str | int) or (isinstance(name, int) and abs(name) >= 2**63):
            yield Rejected(source.name, "has a slice that is not named by a string or a number")
        else:
            printed = str(name) if str(name).isprintable() else ascii(name)
            left -= _bytes_of(entry)
            if left < 0:
                raise MueError(
                    f"the pickle {source.name} unfolds to far more than {file_size} bytes"
                )
            yield _item(str(name), entry, f"{source.name}/{printed}", size)


def _bytes_of(entry: object) -> int:
    """Bytes of the item that an entry becomes, before it is cropped."""
    image = entry.get("image") if isinstance(entry, dict) else None
    return (1 + RATERS) * image.array.size if isinstance(image, _Array) else 0


def _item(name: str, entry: object, path: str, size: int | None) -> Item | Rejected:
    try:
        if not name.isprintable():
            raise MueError("must be named by a plain string or a number")
        if not isinstance(entry, dict):
            raise MueError("must be a dictionary with `image`, `masks` and `series_uid`")
        for part in ("image", "masks", "series_uid"):
            if part not in entry:
                raise MueError(f"has no {part!r}")
        series = entry["series_uid"]
        if not isinstance(series, str) or not series or not series.isprintable():
            raise MueError("has a `series_uid` that is not text")
        whole = _grey(_array(entry["image"], "image"))
        image, masks = (center_crop(a, size) for a in (whole, _masks(entry["masks"], whole)))
    except MueError as error:
        return Rejected(path, str(error))
    return Item(
        patient=series,
        case=NODULE,
        slice=name,
        source=path,
        image=image[None],
        masks=masks.astype(np.uint8),
    )


def _array(value: object, part: str) -> np.ndarray:
    if not isinstance(value, _Array):
        raise MueError(f"has {part!r} that is not an array")
    return value.array


def _grey(image: np.ndarray) -> UInt8[np.ndarray, "h w"]:
    """Grey values, from 0..1 in floating point or 0..255 in either."""
    if image.ndim != 2 or image.size == 0:
        raise MueError(f"has an image of shape {image.shape}; it must have two axes")
    if not np.isfinite(image).all() or image.min() < 0 or image.max() > 255:
        raise MueError("has an image with values outside of 0..255")
    unit = image.dtype.kind == "f" and image.max() <= 1
    return np.rint(image * 255.0 if unit else image).astype(np.uint8)


def _masks(masks: object, image: np.ndarray) -> Bool[np.ndarray, "4 h w"]:
    """The four masks, from a list of arrays or one array."""
    each = np.atleast_1d(masks.array) if isinstance(masks, _Array) else masks
    if not isinstance(each, list | tuple | np.ndarray):
        raise MueError("has `masks` that are not a list of arrays")
    if len(each) != RATERS:  # before there is an object for each
        raise MueError(f"has {len(each)} masks; a slice has {RATERS}")
    arrays = list(each) if isinstance(masks, _Array) else [_array(m, "masks") for m in each]
    for mask in arrays:
        if mask.shape != image.shape:
            raise MueError(
                f"has a mask of shape {mask.shape} and an image of shape {image.shape}; "
                "they must be the same"
            )
    return np.stack([binarize(mask) for mask in arrays])


class _BoundedFile:
    """A file of which no more is read at once than it has, whatever a pickle claims."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._size, self.readline = file, size, file.readline

    def read(self, count: int) -> bytes:
        if count > self._size:
            raise EOFError(f"{count} bytes are claimed, and the file has {self._size}")
        return self._file.read(count)


def _check_keys(keys: Iterable[object]) -> None:
    """Refuse what takes long to hash: 88 bytes of a pickle can hold a tuple of 2^40 elements."""
    for key in keys:
        plain = isinstance(key, str | bytes | float | None)
        if not plain and not (isinstance(key, int) and key.bit_length() <= 64):
            raise MueError(f"the pickle has a {type(key).__name__} as a key; strings are read")


def _checked(load: Callable[[Any], None], keys: slice) -> Callable[[Any], None]:
    def checked(unpickler: Any) -> None:
        _check_keys(unpickler.stack[keys])
        load(unpickler)

    return checked


def _load_bytearray(unpickler: Any) -> None:
    """Read the bytes, then take memory for them; the library does it the other way round."""
    length = int.from_bytes(unpickler.read(8), "little")
    unpickler.append(bytearray(unpickler.read(length)))


_HASHES = {
    pickle.SETITEM: slice(-2, -1),
    pickle.SETITEMS: slice(0, None, 2),
    pickle.DICT: slice(0, None, 2),
    pickle.ADDITEMS: slice(None),
    pickle.FROZENSET: slice(None),
}
"""Where on the stack the keys are that an instruction hashes."""
_python: Any = pickle._Unpickler  # pyright: ignore[reportAttributeAccessIssue]


class _Unpickler(_python):
    """An unpickler that resolves every name to a replacement or an error.

    It is the one written in Python: that in C takes memory for any index that a file claims, and
    cannot be kept from hashing. Time and memory are bounded by the size of the file.
    """

    dispatch = _python.dispatch | {
        op[0]: _checked(_python.dispatch[op[0]], keys) for op, keys in _HASHES.items()
    }
    dispatch[pickle.BYTEARRAY8[0]] = _load_bytearray

    def __init__(self, file: IO[bytes], name: str, size: int) -> None:
        super().__init__(_BoundedFile(file, size), encoding="latin1")
        self._name, self._size, self._left = name, size, 2 * size + 1024

    def _spend(self, count: int) -> None:
        """Refuse to make more bytes than a file of this size has a reason to."""
        self._left -= count
        if self._left < 0:
            raise MueError(f"the pickle {self._name} unfolds to far more than {self._size} bytes")

    def find_class(self, module: str, name: str) -> Any:
        known_as = module.replace("numpy._core", "numpy.core").replace("__builtin__", "builtins")
        if (replacement := _REPLACEMENTS.get(f"{known_as}.{name}")) is not None:
            return _Call(name, functools.partial(replacement, self._spend))
        raise MueError(
            f"the pickle {self._name} names {f'{module}.{name}'!r}; only numpy arrays and builtin "
            "containers are admitted, for anything else could run a program"
        )

    def persistent_load(self, pid: Any) -> Any:
        del pid
        raise MueError(f"the pickle {self._name} refers to an object outside of itself")


@dataclass(slots=True)
class _Call:
    """Replaces a function or class; it can be called and nothing else."""

    name: str
    function: Callable[..., object]

    def __call__(self, *arguments: object) -> object:
        return self.function(*arguments)

    def __setstate__(self, state: object) -> None:
        raise MueError(f"the pickle would change {self.name}")


class _Dtype:
    """A numpy dtype, whose byte order is set later."""

    def __init__(self, _: Spend, code: object, *__: object) -> None:
        if not isinstance(code, str) or _KINDS.fullmatch(code) is None:
            kind = repr(code) if isinstance(code, str) else f"no text but {type(code).__name__}"
            raise MueError(f"the pickle has values of kind {kind}; only plain numbers are read")
        self.dtype = np.dtype(code.lstrip("<>|="))

    def __setstate__(self, state: object) -> None:
        match state:
            case (_, "<" | ">" | "|" | "=" as order, None, None, None, *_):
                self.dtype = self.dtype.newbyteorder(order)
            case _:
                raise MueError("the pickle has an array of structures; only plain numbers are read")


@dataclass(slots=True, repr=False)
class _Array:
    """An array; those of older protocols are empty until their content is set."""

    array: np.ndarray
    spend: Spend

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, data = state
        self.array = _view(self.spend, data, dtype, shape, "F" if fortran else "C")


def _view(spend: Spend, data: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    """An array of exactly the bytes that the pickle holds, whatever the shape claims."""
    if not isinstance(shape, tuple) or len(shape) > 4:
        raise MueError("the pickle has an array whose shape is no tuple of at most 4 axes")
    if not all(type(n) is int and 0 <= n < 2**40 for n in shape):
        raise MueError("the pickle has an array whose shape is not of whole numbers")
    data = _encode(spend, data) if isinstance(data, str) else data  # of Python 2
    if math.prod(shape) * dtype.dtype.itemsize != len(data):
        raise MueError(
            f"the pickle has an array of shape {shape} and {dtype.dtype} that holds "
            f"{len(data)} bytes"
        )
    return np.frombuffer(data, dtype.dtype).reshape(shape, order=order)


def _reconstruct(spend: Spend, kind: object, shape: object, code: object) -> _Array:
    is_array = isinstance(kind, _Call) and kind.name == "ndarray"
    if not is_array or shape != (0,) or code not in (b"b", "b"):
        raise MueError("the pickle makes an array in a form that numpy does not write")
    return _Array(np.empty(0), spend)


def _frombuffer(
    spend: Spend, data: Any, dtype: Any, shape: Any, order: Any, axes: Any = None
) -> _Array:
    view = _view(spend, data, dtype, shape, "C" if order == "K" else order)
    return _Array(view.transpose(*axes) if order == "K" else view, spend)  # `shape` is in memory


def _encode(spend: Spend, text: Any, encoding: object = "latin1") -> bytes:
    if encoding not in ("latin1", "latin-1"):
        raise MueError("the pickle calls _codecs.encode for another encoding than latin1")
    spend(len(text))
    return text.encode("latin1")


def _ndarray(*_: object) -> object:
    raise MueError("the pickle calls numpy.ndarray itself, which numpy never does")


def _set(spend: Spend, items: Any = ()) -> set[object]:
    if not isinstance(items, list | tuple | set | frozenset):
        raise MueError("the pickle makes a set of something else than a list")
    spend(8 * len(items))
    _check_keys(items)
    return set(items)


_REPLACEMENTS: dict[str, Callable[..., object]] = {
    "numpy.ndarray": _ndarray,
    "numpy.dtype": _Dtype,
    "numpy.core.multiarray._reconstruct": _reconstruct,
    "numpy.core.multiarray.scalar": lambda spend, dtype, data: _view(spend, data, dtype, (1,), "C")[
        0
    ].item(),
    "numpy.core.numeric._frombuffer": _frombuffer,
    "_codecs.encode": _encode,
    "builtins.set": _set,
    "builtins.frozenset": _set,
}
