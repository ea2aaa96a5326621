"""Cases of a folder as items of the prepared form, decoded by several processes."""

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Shaped, UInt8

from mue.data.folder.description import Description
from mue.data.folder.layout import CaseFiles
from mue.data.folder.processes import available_cores, map_in_processes
from mue.data.images.image import Axis, RawImage, check_fit, common_bits
from mue.data.images.pillow import picture_channels
from mue.data.images.reader import decode_file, modality
from mue.data.prepared.encode import Encoded, encode
from mue.data.prepared.item import Item, Rejected
from mue.errors import MueError, ReadError

_MIN_CASES, _SMALL = 64, 1 << 20  # fewer cases, and files of fewer bytes, are read in one process
_MAX_PROCESSES = 8
_HEADERS = 32  # of pictures, that are read to see whether most are in colour


def is_ct(cases: Iterable[CaseFiles | Rejected], source: Path, description: Description) -> bool:
    """Whether values are Hounsfield units: a channel is named CT, or the first image is one."""
    if description.channels:
        return any(name.upper() == "CT" for name in description.channels)
    first = next((case.images[0] for case in cases if isinstance(case, CaseFiles)), None)
    return first is not None and modality(source / first) == "CT"


def encode_cases(
    cases: Sequence[CaseFiles | Rejected],
    source: Path,
    description: Description,
    *,
    axis: Axis = 2,
    progress: Callable[[int, int], None] | None = None,
) -> Generator[Encoded | Rejected]:
    """The slices of cases in their order; what cannot be read comes as a Rejected in their place.

    Where there is enough to read, a process on each core decodes and encodes; each holds one case
    in memory. What comes before the first whole slice is read here: volumes take its type.
    """
    done, (channels, colour) = 0, _usual_channels(cases, source)
    encode_here = functools.partial(
        encode_case,
        source=source,
        description=description,
        axis=axis,
        dtype=None,
        colour=colour and description.may_be_colours,
    )
    dtype: np.dtype | None = None
    while done < len(cases) and dtype is None:
        for found in encode_here(cases[done], channels=channels):
            if dtype is None and isinstance(found, Encoded):
                dtype, channels = found.image.dtype, len(found.image)
            yield found
        done += 1
        if progress is not None:
            progress(done, len(cases))
    rest = cases[done:]
    count = (
        min(_MAX_PROCESSES, available_cores(), len(rest)) if _is_slow_to_read(rest, source) else 1
    )
    encode_there = functools.partial(encode_here, dtype=dtype, channels=channels)
    with contextlib.closing(map_in_processes(encode_there, rest, count)) as results:
        for case in rest:
            try:
                yield from next(results)
            except ChildProcessError as error:
                name = case.what if isinstance(case, Rejected) else case.name
                raise MueError(
                    f"{name}: the process that reads it ended with the status {error.errno}, "
                    "perhaps for lack of memory; make some free, or import fewer cases at a time"
                ) from None
            done += 1
            if progress is not None:
                progress(done, len(cases))


def _is_slow_to_read(cases: Sequence[CaseFiles | Rejected], source: Path) -> bool:
    """Whether reading takes longer than starting processes: many cases, or volumes."""
    first = next((case.images[0] for case in cases if isinstance(case, CaseFiles)), None)
    if first is None or len(cases) >= _MIN_CASES:
        return first is not None
    path = source / first
    return path.is_dir() or (path.is_file() and path.stat().st_size > _SMALL)


def _usual_channels(cases: Iterable[CaseFiles | Rejected], source: Path) -> tuple[int | None, bool]:
    """How many channels most pictures have, by the headers of some, and whether they are colours.

    None where there are no pictures. Three files of a channel each are no colours.
    """
    whole = [case for case in cases if isinstance(case, CaseFiles) and case.images]
    sampled = whole[:: -(-len(whole) // _HEADERS)] if whole else []
    counts = Counter[tuple[int, bool]]()
    for case in sampled:
        n = len(case.images)
        if (c := picture_channels(source / case.images[0])) is not None:
            counts[n * c, n == 1 and c == 3] += 1
    return max(counts, key=lambda kind: (counts[kind], kind), default=(None, False))


def encode_case(
    case: CaseFiles | Rejected,
    *,
    source: Path,
    description: Description,
    axis: Axis,
    dtype: np.dtype | None,
    channels: int | None,
    colour: bool,
) -> Iterator[Encoded | Rejected]:
    """The slices of a case as they are stored, or why it is rejected, as a whole.

    `dtype` and `channels` are those of the other images. A volume takes the type if that has its
    values, and may have another one. `colour` says that most pictures are coloured: a grey one
    among them becomes so.
    """
    if isinstance(case, Rejected):
        yield case
        return
    labels = tuple(description.labels)
    options = {"source": source, "description": description, "axis": axis}
    for item in read_case(case, dtype=dtype, **options):
        if isinstance(item, Rejected):
            yield item
            return
        if colour and len(item.image) == 1 and item.geometry is None:
            item = replace(item, image=item.image.repeat(3, axis=0))
        found = encode(item, labels)
        if isinstance(found, Encoded):
            kind, c = found.image.dtype, len(found.image)
            if item.geometry is not None:  # `write_prepared` finds a type for all volumes
                dtype = kind
            if 1 < (named := len(description.channels)) != c:
                why = f"has {c} channels, and channel_names has {named}"
            elif (kind, c) == (dtype or kind, channels or c):
                yield found
                continue
            else:
                why = f"has {c} channels of {kind}, and others have {channels} of {dtype or kind}"
        else:
            why = found.why
        yield Rejected(case.name, f"{item.source} {why}")  # which holds of all its slices
        return


def read_case(
    case: CaseFiles | Rejected,
    *,
    source: Path,
    description: Description,
    axis: Axis,
    dtype: np.dtype | None = None,
) -> Iterator[Item | Rejected]:
    """The slices of a case, of a volume in a type if that has its values; or why it is rejected."""
    if isinstance(case, Rejected):
        yield case
        return
    try:
        yield from _slices(case, source, description, axis, dtype)
    except MueError as error:
        yield Rejected(case.name, str(error))


def _slices(
    case: CaseFiles, source: Path, description: Description, axis: Axis, dtype: np.dtype | None
) -> Iterator[Item]:
    def read(name: str, *, mask: bool = False) -> RawImage:
        try:
            return decode_file(source / name, axis=axis, mask=mask)
        except ReadError as error:
            raise ReadError(name, error.reason) from None

    channels = [read(name) for name in case.images]
    image = channels[0]
    for name, other in zip(case.images[1:], channels[1:], strict=True):
        check_fit(name, other, image, case.images[0])
    masks: list[np.ndarray] = []
    for name in case.masks:
        mask = read(name, mask=True)
        check_fit(name, mask, image, case.images[0])
        try:
            masks.append(classes(mask.pixels[0], description))
        except MueError as error:
            raise ReadError(name, str(error)) from None
    pixels, slices = [channel.pixels for channel in channels], image.pixels.shape[1]
    if dtype is not None and image.geometry is not None:
        pixels = _as_type(pixels, dtype)
    for k in range(slices):
        yield Item(
            patient=case.patient,
            case=case.case,
            slice=f"slice-{k}" if slices > 1 else "",
            source=case.images[0],
            spacing=image.geometry.spacing if image.geometry else None,
            split=case.split,
            image=np.concatenate([channel[:, k] for channel in pixels]),
            masks=np.stack([mask[k] for mask in masks]),
            weights=case.weights,
            geometry=image.geometry,
            bits=common_bits(channels),
        )


def _as_type(
    pixels: list[Shaped[np.ndarray, "c d h w"]], dtype: np.dtype
) -> list[Shaped[np.ndarray, "c d h w"]]:
    """The channels of a volume in this type, if that has the same values."""
    with np.errstate(invalid="ignore"):
        same = [p.astype(dtype, copy=False) for p in pixels]
    equal = all(a is b or np.array_equal(a, b) for a, b in zip(same, pixels, strict=True))
    return same if equal else pixels


def classes(
    mask: Shaped[np.ndarray, "d h w"], description: Description
) -> UInt8[np.ndarray, "d h w"]:
    """The class of each pixel by its value: in the order of `labels`, or 0 and 1 without them."""
    if not description.labels:
        high, marked = mask.max(), mask != 0
        one = high in (0, 1, 255)
        if not one or np.count_nonzero(mask == high) != (np.count_nonzero(marked) or mask.size):
            wrong = marked & (mask != high) if one else mask == high
            values = " and ".join(f"{value:g}" for value in dict.fromkeys((mask[wrong][0], high)))
            raise MueError(
                f"holds the values {values}; a mask of one class has 0 and 1 or 0 and 255, and "
                "several classes must be named by `labels` in dataset.json"
            )
        return marked.view(np.uint8)
    values = np.array(list(description.labels.values()))
    index = np.searchsorted(values, mask).clip(max=len(values) - 1).astype(np.uint8)
    wrong = values[index] != mask
    if wrong.any():
        named = ", ".join(f"{value} {name}" for name, value in description.labels.items())
        raise MueError(
            f"holds the value {mask[wrong][0]:g}, which `labels` does not name ({named}); "
            "add it to dataset.json or correct the mask"
        )
    return index
