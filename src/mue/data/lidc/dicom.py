"""The archive's own form: a folder of DICOM slices with the raters' XML beside them."""

from __future__ import annotations

import io
import math
import struct
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from jaxtyping import Float, UInt8
from pydicom import Dataset, dcmread
from pydicom.errors import BytesLengthException, InvalidDicomError
from pydicom.uid import ExplicitVRLittleEndian, ImplicitVRLittleEndian

from mue.data.lidc.archive import LARGEST, File, Meter, walk
from mue.data.lidc.contours import RATERS, Annotation, Reading, centre, draw, join, read_message
from mue.data.lidc.options import Options
from mue.data.prepared.item import Bad, Item
from mue.errors import MueError

SIZE = 128
"""Side of a crop where none is asked for, that of the slices layout."""
_HEADER = 256 * 2**10
_SIDE = 4096
_TAGS = [
    "PatientID",
    "SOPInstanceUID",
    "SeriesInstanceUID",
    "ImagePositionPatient",
    "PixelSpacing",
    "SliceThickness",
]
_BROKEN = (
    BytesLengthException,
    InvalidDicomError,
    OSError,
    EOFError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    NotImplementedError,
    OverflowError,
    struct.error,
)


@dataclass(frozen=True, slots=True)
class _Slice:
    """What the header of a DICOM file says."""

    name: str
    uid: str
    series: str
    patient: str
    z: float | None
    spacing: float | None
    thickness: float | None


@dataclass(frozen=True, slots=True)
class _Message:
    """A reading and the file it was in."""

    name: str
    where: str
    reading: Reading


@dataclass(frozen=True, slots=True)
class _Crop:
    """A crop to be made of a slice once its pixels are read."""

    patient: str
    nodule: str
    slice: str
    centre: tuple[int, int]
    annotations: tuple[Annotation, ...]
    spacing: float | None


def read(sources: Sequence[Path], options: Options, meter: Meter) -> Iterator[Item | Bad]:
    """The slices of every nodule that a rater outlined.

    The sources are read twice: first headers and XML, which say where the nodules are, then the
    pixels of the slices that show one. So memory holds one slice, whatever the size of the scans.

    Nodules are numbered through the series of a patient, from the lowest z on, and the slices of
    a nodule from its lowest one on, whether or not the source holds all of them.
    """
    plans: list[dict[str, list[_Crop]]] = []
    found: list[tuple[_Message, list[_Slice]]] = []
    homes: list[int] = []
    seen: dict[str, str] = {}
    for number, source in enumerate(sources):
        slices: list[_Slice] = []
        messages: list[_Message] = []
        for file in walk(source, _needed, meter):
            if isinstance(file, Bad):
                yield file
                continue
            try:
                if file.name.lower().endswith(".xml"):
                    reading = read_message(file.data)
                    if reading is not None:
                        messages.append(_Message(file.name, file.where, reading))
                else:
                    slices.append(_header(file))
            except ValueError as error:
                yield Bad(file.where, str(error))
        plans.append(defaultdict(list))
        for message in messages:
            try:
                if (before := seen.get(message.reading.series_uid)) is not None:
                    raise MueError(f"is a second reading of the series that {before} has")
                series = _series(message, slices)
                seen[message.reading.series_uid] = message.where
            except ValueError as error:
                yield Bad(message.where, str(error))
            else:
                found.append((message, series))
                homes.append(number)
    count: dict[str, int] = defaultdict(int)
    order = sorted(range(len(found)), key=lambda i: found[i][0].reading.series_uid)
    for i in order:
        message, series = found[i]
        patient = series[0].patient
        count[patient] += _plan(message.reading, series, count[patient], plans[homes[i]])
    for source, plan in zip(sources, plans, strict=True):
        for file in walk(source, lambda name, plan=plan: LARGEST if name in plan else 0, meter):
            if isinstance(file, File):  # what is bad was said the first time
                yield from _items(file, plan[file.name], options)


def _needed(name: str) -> int:
    """Bytes that the first reading needs: all of an XML, the header of a slice."""
    return {".xml": LARGEST, ".dcm": _HEADER}.get(PurePosixPath(name).suffix.lower(), 0)


def _header(file: File) -> _Slice:
    """The header of a DICOM file."""
    try:
        data = dcmread(io.BytesIO(file.data), stop_before_pixels=True, specific_tags=list(_TAGS))
        position, spacing = data.get("ImagePositionPatient"), data.get("PixelSpacing")
        thickness = data.get("SliceThickness")
        for number in (*(position or ()), *(spacing or ()), thickness or 0):
            if not math.isfinite(number):
                raise MueError(f"a position or size is {number}")
        return _Slice(
            name=file.name,
            uid=str(data.SOPInstanceUID),
            series=str(data.SeriesInstanceUID),
            patient=str(data.get("PatientID") or "unknown"),
            z=float(position[2]) if position else None,
            spacing=float(spacing[0]) if spacing else None,
            thickness=float(thickness) if thickness else None,
        )
    except _BROKEN as error:
        raise MueError(f"is cut off or damaged as DICOM ({_brief(error)})") from error


def _brief(error: Exception) -> str:
    """The first sentence of an error: pydicom adds advice and the bytes that it stumbled on."""
    return str(error).partition(". ")[0][:200]


def _series(message: _Message, slices: Sequence[_Slice]) -> list[_Slice]:
    """The slices that an XML is about, by z; an error where they do not fit each other."""
    folder = PurePosixPath(message.name).parent
    uid = message.reading.series_uid
    beside = [s for s in slices if PurePosixPath(s.name).parent == folder]
    series = [s for s in beside or slices if s.series == uid]
    if not series and beside:
        raise MueError(
            f"is about the series {uid}, but the DICOM beside it is of the series "
            f"{beside[0].series}; put each XML into the folder of its series"
        )
    if not series:
        raise MueError(f"is about the series {uid}, of which there is no DICOM")
    for s in series:
        if s.z is None:
            raise MueError(f"is about the series {uid}, whose {s.name} has no position")
    series.sort(key=lambda s: s.z or 0.0)
    z = np.array([s.z for s in series])
    _check_steps(uid, z)
    known = {s.uid for s in series}
    slack = 0.5 * _step(z, series)
    for annotation in message.reading.annotations:
        for contour in annotation.contours:
            if contour.slice_uid not in known and z[0] - slack < contour.z < z[-1] + slack:
                raise MueError(
                    f"has an outline at z = {contour.z:g} mm, and the series {uid} lacks that "
                    f"slice, {contour.slice_uid}"
                )
    return series


def _check_steps(uid: str, z: Float[np.ndarray, " n"]) -> None:
    """Refuse a series with a slice missing, or with two at the same place."""
    steps = np.diff(z)
    if not len(steps):
        return
    step = float(np.median(steps))
    off = np.flatnonzero(np.abs(steps - step) > max(0.01, 0.01 * step))
    if step <= 0 or len(off):
        i = int(off[0]) if len(off) else 0
        what = "two slices" if steps[i] < 0.01 else "a slice missing"
        raise MueError(
            f"is about the series {uid}, which has {what} between z = {z[i]:g} and "
            f"{z[i + 1]:g} mm, where its step is {step:g} mm"
        )


def _step(z: Float[np.ndarray, " n"], series: Sequence[_Slice]) -> float:
    """Distance of neighbouring slices in mm; of a lone slice, its thickness."""
    return float(np.median(np.diff(z))) if len(z) > 1 else series[0].thickness or 1.0


def _plan(reading: Reading, series: list[_Slice], first: int, plan: dict[str, list[_Crop]]) -> int:
    """Note down which crops to make of which files; returns the number of nodules."""
    step = _step(np.array([s.z for s in series]), series)
    by_uid = {s.uid: s for s in series}
    nodules = join(reading.annotations, step, series[0].thickness or step)
    for number, nodule in enumerate(nodules):
        contours = sorted((c for a in nodule for c in a.contours), key=lambda c: c.z)
        uids = list(dict.fromkeys(c.slice_uid for c in contours))
        for k, uid in enumerate(uids):
            if uid in by_uid:
                crop = _Crop(
                    patient=series[0].patient,
                    nodule=f"nodule-{first + number}",
                    slice=f"slice-{k}",
                    centre=centre(nodule),
                    annotations=tuple(nodule),
                    spacing=by_uid[uid].spacing,
                )
                plan[by_uid[uid].name].append(crop)
    return len(nodules)


def _items(file: File, crops: Sequence[_Crop], options: Options) -> Iterator[Item | Bad]:
    """The crops of one slice."""
    try:
        data = dcmread(io.BytesIO(file.data))
        uid, hounsfield = str(data.SOPInstanceUID), _hounsfield(data)
        side, size = min(hounsfield.shape), SIZE if options.size is None else options.size
        if size > side:
            h, w = hounsfield.shape
            raise MueError(f"{h}×{w} pixels are too few for crops of {size}×{size}")
    except _BROKEN as error:
        yield Bad(file.where, f"cannot be read as a slice: {_brief(error)}")
        return
    for crop in crops:
        left, top = (
            _start(middle, size, whole)
            for middle, whole in zip(crop.centre, hounsfield.shape[::-1], strict=True)
        )
        masks = np.zeros((RATERS, size, size), dtype=bool)
        for mask, annotation in zip(masks, crop.annotations, strict=False):
            here = [contour for contour in annotation.contours if contour.slice_uid == uid]
            mask[:] = draw(here, left, top, size)
        image = grey(hounsfield[top : top + size, left : left + size], options.window)
        yield Item(crop.patient, crop.nodule, crop.slice, image, masks, crop.spacing, file.where)


def _start(middle: int, size: int, whole: int) -> int:
    """First row or column of a crop, which moves to stay within the image.

    The slices layout never takes the last row and column into a crop that was moved; nor do we.
    """
    return max(0, min(middle - size // 2, whole - 1 - size))


def _hounsfield(data: Dataset) -> Float[np.ndarray, "h w"]:
    """The pixels of a slice in Hounsfield units."""
    syntax = data.file_meta.TransferSyntaxUID
    if syntax not in (ExplicitVRLittleEndian, ImplicitVRLittleEndian):
        raise MueError(f"its pixels are compressed ({syntax.name}); decompress it first")
    h, w = int(data.Rows), int(data.Columns)
    if not (0 < h <= _SIDE and 0 < w <= _SIDE):
        raise MueError(f"it is {h}×{w} pixels; at most {_SIDE}×{_SIDE} are read")
    bits, signed = int(data.BitsAllocated), int(data.PixelRepresentation)
    if bits != 16 or int(data.get("SamplesPerPixel", 1)) != 1:
        raise MueError(f"it has {bits} bits a pixel; a CT has 16, of one channel")
    pixels = np.frombuffer(data.PixelData, "<i2" if signed else "<u2")
    if len(pixels) != h * w:
        raise MueError(f"it holds {len(pixels)} of {h * w} pixels")
    slope = float(data.get("RescaleSlope", 1))
    intercept = float(data.get("RescaleIntercept", 0))
    if not (math.isfinite(slope) and math.isfinite(intercept)):
        raise MueError(f"its Hounsfield units are {slope} times a pixel plus {intercept}")
    return pixels.reshape(h, w) * slope + intercept


def grey(
    hounsfield: Float[np.ndarray, "h w"], window: tuple[float, float] | None
) -> UInt8[np.ndarray, "h w"]:
    """Grey values: low to 0, high to 255, beyond them clipped, and halves rounded up.

    Without a window low and high are the minimum and maximum of what is shown. To the last bit
    this is how the images of the slices layout were scaled.
    """
    low, high = window or (hounsfield.min(), hounsfield.max())
    if high == low:
        return np.zeros(hounsfield.shape, dtype=np.uint8)
    scaled = (np.clip(hounsfield, low, high) - low) * (255 / (high - low))
    return np.floor(scaled + 0.5).astype(np.uint8)
