"""Slices that come as five files: an image and the masks of four raters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mue.data.lidc.archive import LARGEST, File, Meter, walk
from mue.data.lidc.options import Options, middle
from mue.data.lidc.png import drawing, picture
from mue.data.prepared.item import Bad, Item, Key
from mue.errors import MueError

RATERS = 4


@dataclass(frozen=True, slots=True)
class Part:
    """What the name of a file says.

    Attributes:
        key: The slice it belongs to.
        mask: The number of the mask, or None for the image.
    """

    key: Key
    mask: int | None


@dataclass(slots=True)
class _Slice:
    """The files of a slice that were found so far, still compressed."""

    image: File | None = None
    masks: dict[int, File] = field(default_factory=dict)


def gather(
    sources: Sequence[Path], parse: Callable[[str], Part | None], options: Options, meter: Meter
) -> Iterator[Item | Bad]:
    """Put slices together from sources that are read once, each as soon as it is whole.

    Only slices that wait for more files are kept, so memory does not grow with the source. What
    is found too late, a fifth mask or a second image, comes as a Bad with the item's key.

    Args:
        sources: Folders and archives. A slice lies in one of them.
        parse: What a file is, by its name; None for a file that is none of ours.
        options: The size of the crops.
        meter: Told of progress.
    """
    home: dict[Key, Path] = {}  # where a slice was finished, whole or not
    for source in sources:
        waiting: dict[Key, _Slice] = {}
        again: set[Key] = set()
        for file in walk(source, lambda name: LARGEST if parse(name) else 0, meter):
            if isinstance(file, Bad):
                yield file
                continue
            part = parse(file.name)
            assert part is not None
            key = part.key
            if home.get(key, source) != source:
                if key not in again:
                    again.add(key)
                    yield Bad(file.where, f"is a slice that {home[key].name} has already brought")
                continue
            if trouble := _surplus(part, waiting.get(key), key in home):
                if key not in again:
                    again.add(key)
                    yield Bad(file.where, trouble, key)
                waiting.pop(key, None)
                home[key] = source
                continue
            found = waiting.setdefault(key, _Slice())
            if part.mask is None:
                found.image = file
            else:
                found.masks[part.mask] = file
            if found.image is not None and len(found.masks) == RATERS:
                home[key] = source
                yield _item(waiting.pop(key), key, options)
        for key, found in waiting.items():
            home[key] = source
            yield _unfinished(key, found)


def _surplus(part: Part, found: _Slice | None, finished: bool) -> str | None:
    """Why a slice has no place for a file, if it has none."""
    if part.mask is None:
        if finished or (found is not None and found.image is not None):
            return "is a second image of the same slice"
        return None
    masks = {} if found is None else found.masks
    if finished or part.mask in masks or len(masks) == RATERS:
        return f"is one mask more than the {RATERS} of its slice"
    return None


def _item(found: _Slice, key: Key, options: Options) -> Item | Bad:
    """A slice, decoded."""
    assert found.image is not None
    at = found.image.where
    try:
        image = picture(found.image.data)
        masks = []
        for number in sorted(found.masks):
            at = found.masks[number].where
            mask = drawing(found.masks[number].data)
            if mask.shape != image.shape:
                raise MueError(
                    f"is {_size(mask)} pixels and its image {_size(image)}; they must be the same"
                )
            masks.append(mask)
        at = found.image.where
        image, stack = middle(image, np.stack(masks), options.size)
    except ValueError as error:
        return Bad(at, str(error))
    return Item(*key, image, stack, None, at)


def _unfinished(key: Key, found: _Slice) -> Bad:
    """What a slice lacks."""
    if found.image is None:
        return Bad("/".join(key), f"has {len(found.masks)} masks but no image")
    return Bad(found.image.where, f"has {len(found.masks)} masks; a slice has {RATERS}")


def _size(array: np.ndarray) -> str:
    return "×".join(map(str, array.shape))
