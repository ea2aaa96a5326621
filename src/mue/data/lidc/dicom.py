"""The form of the archive itself: series of DICOM slices, each with the XML of its raters."""

from __future__ import annotations

import io
import math
import struct
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import numpy as np
from jaxtyping import Float, UInt8
from pydicom import Dataset, dcmread
from pydicom.errors import InvalidDicomError
from pydicom.pixels.decoders.base import get_decoder
from pydicom.pixels.processing import apply_modality_lut
from pydicom.pixels.utils import pixel_array
from pydicom.uid import DeflatedExplicitVRLittleEndian

from mue.data.lidc.archive import DAMAGED, MAX_FILE_BYTES, ByteProgress, File, iterate_files
from mue.data.lidc.contours import (
    Annotation,
    Reading,
    group_nodules,
    nodule_center,
    rasterize,
    read_message,
)
from mue.data.lidc.options import RATERS, Options
from mue.data.prepared.item import Item, Key, Rejected
from mue.errors import MueError

DEFAULT_SIZE = 128
"""Side of a crop, as in the slices layout."""
_BYTES_NEEDED = {".xml": MAX_FILE_BYTES, ".dcm": 256 * 2**10}
"""What the first pass reads: all of an XML, the header of a slice."""
_MAX_SIDE = 4096
_TAGS = [
    "PatientID",
    "SOPInstanceUID",
    "SeriesInstanceUID",
    "ImagePositionPatient",
    "PixelSpacing",
    "SliceThickness",
]
_DAMAGED = (*DAMAGED, InvalidDicomError, OSError, RuntimeError, struct.error)
"""What pydicom raises for files that are damaged, and its decoders for pixels that are."""


@dataclass(frozen=True, slots=True)
class _Header:
    """What the header of a DICOM slice says."""

    name: str
    uid: str
    series: str
    patient: str
    z: float | None
    spacing: float | None
    thickness: float | None


@dataclass(frozen=True, slots=True)
class _Series:
    """A series with its annotations."""

    reading: Reading
    slices: list[_Header]  # by z
    step: float  # distance of neighbouring slices in mm, or the thickness where there is one slice


@dataclass(frozen=True, slots=True)
class _Crop:
    """A crop to be cut from a slice once its pixels are read."""

    key: Key
    center: tuple[int, int]
    annotations: tuple[Annotation, ...]
    spacing: float | None


def read(
    sources: Sequence[Path], options: Options, progress: ByteProgress
) -> Iterator[Item | Rejected]:
    """The slices of every nodule that a rater annotated.

    The sources are read twice: first headers and XML, which say where the nodules are, then the
    pixels of the slices that show one. So memory holds one slice, whatever the size of the scans.

    Nodules are numbered through the series of a patient, from the lowest z on, and the slices of
    a nodule from its lowest one on, whether or not the source holds all of them.
    """
    crops: list[dict[str, list[_Crop]]] = []  # for each source, the crops of each of its files
    found: list[tuple[_Series, dict[str, list[_Crop]]]] = []
    path_of_series: dict[str, str] = {}
    for source in sources:
        slices: list[_Header] = []
        messages: list[tuple[File, Reading]] = []
        for file in iterate_files(
            source, lambda name: _BYTES_NEEDED.get(PurePosixPath(name).suffix.lower(), 0), progress
        ):
            if isinstance(file, Rejected):
                yield file
                continue
            try:
                if file.name.lower().endswith(".xml"):
                    if (reading := read_message(file.data)) is not None:
                        messages.append((replace(file, data=b""), reading))
                else:
                    slices.append(_header(file))
            except ValueError as error:
                yield Rejected(file.path, str(error))
        crops.append(defaultdict(list))
        for file, reading in messages:
            try:
                if (first := path_of_series.get(reading.series_uid)) is not None:
                    raise MueError(f"is a second reading of the series that {first} has")
                found.append((_series(file, reading, slices), crops[-1]))
                path_of_series[reading.series_uid] = file.path
            except ValueError as error:
                yield Rejected(file.path, str(error))
    nodules: dict[str, int] = defaultdict(int)  # of each patient so far
    for series, of_file in sorted(found, key=lambda entry: entry[0].reading.series_uid):
        patient = series.slices[0].patient
        nodules[patient] += _add_crops_(of_file, series, first=nodules[patient])
    for source, of_file in zip(sources, crops, strict=True):
        needed = dict.fromkeys(of_file, MAX_FILE_BYTES)
        for file in iterate_files(source, lambda name, n=needed: n.get(name, 0), progress):
            if isinstance(file, File):  # what is rejected was reported in the first pass
                yield from _items(file, of_file[file.name], options)


def _header(file: File) -> _Header:
    if DeflatedExplicitVRLittleEndian.encode() in file.data[:4096]:
        raise MueError("is deflated as a whole, to an unknown size; write it uncompressed")
    try:
        data = dcmread(io.BytesIO(file.data), stop_before_pixels=True, specific_tags=list(_TAGS))
        position, spacing = data.get("ImagePositionPatient"), data.get("PixelSpacing")
        thickness = data.get("SliceThickness")
        for number in (*(position or ()), *(spacing or ()), thickness or 0):
            if not math.isfinite(number):
                raise MueError(f"a position or size is {number}")
        return _Header(
            name=file.name,
            uid=str(data.SOPInstanceUID),
            series=str(data.SeriesInstanceUID),
            patient=str(data.get("PatientID") or "unknown"),
            z=float(position[2]) if position else None,
            spacing=float(spacing[0]) if spacing else None,
            thickness=float(thickness) if thickness else None,
        )
    except _DAMAGED as error:
        raise MueError(f"is truncated or damaged as DICOM ({_brief(error)})") from error


def _brief(error: Exception) -> str:
    """Our own errors; of those of pydicom, which adds advice and raw bytes, the first sentence."""
    return str(error) if isinstance(error, MueError) else str(error).partition(". ")[0][:200]


def _series(file: File, reading: Reading, slices: Sequence[_Header]) -> _Series:
    """The slices that an XML is about; an error where they do not fit each other."""
    folder, uid = PurePosixPath(file.name).parent, reading.series_uid
    neighbours = [s for s in slices if PurePosixPath(s.name).parent == folder]
    series = [s for s in neighbours or slices if s.series == uid]
    if not series and neighbours:
        raise MueError(
            f"is about the series {uid}, but the DICOM in its folder is of the series "
            f"{neighbours[0].series}; put each XML into the folder of its series"
        )
    if not series:
        raise MueError(f"is about the series {uid}, of which there is no DICOM")
    for s in series:
        if s.z is None:
            raise MueError(f"is about the series {uid}, whose {s.name} has no position")
    series.sort(key=lambda s: s.z or 0.0)
    z = np.array([s.z for s in series])
    steps = np.diff(z)
    step = float(np.median(steps)) if len(steps) else series[0].thickness or 1.0
    irregular = np.flatnonzero(np.abs(steps - step) > max(0.01, 0.01 * step))
    if len(irregular) or (len(steps) and step <= 0):
        i = int(irregular[0]) if len(irregular) else 0
        what = "two slices" if steps[i] < 0.01 else "a slice missing"
        raise MueError(
            f"is about the series {uid}, which has {what} between z = {z[i]:g} and "
            f"{z[i + 1]:g} mm, where its step is {step:g} mm"
        )
    known = {s.uid for s in series}
    for contour in (c for annotation in reading.annotations for c in annotation.contours):
        within = z[0] - 0.5 * step < contour.z < z[-1] + 0.5 * step
        if within and contour.slice_uid not in known:
            raise MueError(
                f"has a contour at z = {contour.z:g} mm, and the series {uid} lacks that "
                f"slice, {contour.slice_uid}"
            )
    return _Series(reading, series, step)


def _add_crops_(crops: dict[str, list[_Crop]], series: _Series, *, first: int) -> int:
    """Add the crops of a series to those of its files; returns the number of nodules."""
    by_uid = {s.uid: s for s in series.slices}
    lowest, step = series.slices[0], series.step
    nodules = group_nodules(series.reading.annotations, step, lowest.thickness or step)
    for number, nodule in enumerate(nodules):
        contours = sorted((c for a in nodule for c in a.contours), key=lambda c: c.z)
        for k, uid in enumerate(dict.fromkeys(c.slice_uid for c in contours)):
            if (header := by_uid.get(uid)) is not None:
                key = lowest.patient, f"nodule-{first + number}", f"slice-{k}"
                crop = _Crop(key, nodule_center(nodule), tuple(nodule), header.spacing)
                crops[header.name].append(crop)
    return len(nodules)


def _items(file: File, crops: Sequence[_Crop], options: Options) -> Iterator[Item | Rejected]:
    """The crops of one slice."""
    try:
        data = dcmread(io.BytesIO(file.data))
        uid, hounsfield = str(data.SOPInstanceUID), _hounsfield(data)
        (h, w), size = hounsfield.shape, options.size or DEFAULT_SIZE
        if size > min(h, w):
            raise MueError(f"{h}×{w} pixels are too few for crops of {size}×{size}")
    except _DAMAGED as error:
        yield Rejected(file.path, f"cannot be read as a slice: {_brief(error)}")
        return
    for crop in crops:
        # within the image and, as in the slices layout, without its last row and column
        x, y = crop.center
        left, top = (max(0, min(c - size // 2, n - 1 - size)) for c, n in ((x, w), (y, h)))
        masks = np.zeros((RATERS, size, size), dtype=bool)
        for mask, annotation in zip(masks, crop.annotations, strict=False):
            contours = [contour for contour in annotation.contours if contour.slice_uid == uid]
            mask[:] = rasterize(contours, left, top, size)
        image = to_grey(hounsfield[top : top + size, left : left + size], options.window)
        yield Item(*crop.key, crop.spacing, file.path, image, masks)


def _hounsfield(data: Dataset) -> Float[np.ndarray, "h w"]:
    """The pixels of a slice in Hounsfield units, by the decoders and the modality LUT of pydicom.

    What the header claims is checked before memory of that size is taken.
    """
    h, w = int(data.Rows), int(data.Columns)
    if not (0 < h <= _MAX_SIDE and 0 < w <= _MAX_SIDE):
        raise MueError(f"it is {h}×{w} pixels; at most {_MAX_SIDE}×{_MAX_SIDE} are read")
    bits, channels = int(data.BitsAllocated), int(data.get("SamplesPerPixel", 1))
    if bits != 16 or channels != 1:
        raise MueError(f"it has {bits} bits a pixel in {channels} channels; a CT has 16 in one")
    if (frames := int(data.get("NumberOfFrames") or 1)) != 1:
        raise MueError(f"it has {frames} frames; a slice has one")
    syntax, size = data.file_meta.TransferSyntaxUID, len(data.PixelData)
    if not syntax.is_encapsulated and size != 2 * h * w:
        raise MueError(f"it holds {size // 2} of {h * w} pixels")
    if size > 4 * h * w:
        raise MueError(f"its compressed pixels are {size} bytes, and {2 * h * w} if decompressed")
    if not (decoder := get_decoder(syntax)).is_available:
        plugins = "; ".join(decoder.missing_dependencies)
        raise MueError(
            f"its pixels are compressed as {syntax.name}, which needs a plugin of pydicom: install "
            f"`pylibjpeg[all]`, or decompress it first (plugins: {plugins})"
        )
    if ("RescaleSlope" in data) != ("RescaleIntercept" in data):
        raise MueError("it has only one of RescaleSlope and RescaleIntercept")
    with warnings.catch_warnings(), np.errstate(over="ignore", invalid="ignore"):
        warnings.simplefilter("ignore")  # pydicom warns of a harmless mismatch, raises otherwise
        hounsfield = apply_modality_lut(pixel_array(data), data).astype(np.float64, copy=False)
        finite = np.isfinite(np.ptp(hounsfield))
    if not finite:
        raise MueError(
            f"its Hounsfield units are not finite: {data.RescaleSlope} times a pixel plus "
            f"{data.RescaleIntercept}"
        )
    return hounsfield


def to_grey(
    hounsfield: Float[np.ndarray, "h w"], window: tuple[float, float] | None
) -> UInt8[np.ndarray, "h w"]:
    """Grey values by a CT window: low to 0, high to 255, clipped beyond, halves rounded up.

    Without a window, low and high are the minimum and maximum of the crop, which gives the images
    of the slices layout to the bit.
    """
    low, high = window or (hounsfield.min(), hounsfield.max())
    if high == low:
        return np.zeros(hounsfield.shape, dtype=np.uint8)
    scaled = (np.clip(hounsfield, low, high) - low) * (255 / (high - low))
    return np.floor(scaled + 0.5).astype(np.uint8)
