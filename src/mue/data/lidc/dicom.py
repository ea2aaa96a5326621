"""The form of the archive itself: series of DICOM slices, each with the XML of its raters."""

import io
import math
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path, PurePosixPath

import numpy as np
from jaxtyping import Float, UInt8
from pydicom import Dataset, dcmread
from pydicom.pixels.decoders.base import get_decoder
from pydicom.pixels.processing import apply_modality_lut
from pydicom.uid import DeflatedExplicitVRLittleEndian

from mue.data.images.dicom_frames import find_gap
from mue.data.images.dicom_pixels import decode_pixels
from mue.data.lidc import MAX_SIDE, RATERS, Window, contours
from mue.data.lidc.archive import MAX_FILE_BYTES, File, Progress, iterate_files
from mue.data.lidc.contours import Annotation, Reading
from mue.data.prepared.item import Item, Key, Rejected
from mue.errors import MueError

_MAX_HOUNSFIELD = 1e6  # far beyond metal, at some 30,000
_MAX_MILLIMETRES = 1e6
_DEFAULT_SIZE = 128  # side of a crop, as in the slices layout
_HEADER_BYTES = {
    ".xml": contours.MAX_XML_BYTES + 1,
    ".dcm": 256 * 2**10,
}  # what the first pass reads


@dataclass(frozen=True, slots=True)
class _Header:
    """What the header of a DICOM slice says."""

    name: str
    uid: str
    series: str
    patient: str
    z: float | None
    thickness: float | None


def read(
    sources: Sequence[Path], size: int | None, window: Window, progress: Progress
) -> Iterator[Item | Rejected]:
    """The slices of every nodule that a rater annotated.

    The sources are read twice: first headers and XML, which say where the nodules are, then the
    pixels of the slices that show one. So memory holds one slice, whatever the size of the scans.

    Nodules are numbered through the series of a patient, from the lowest z on, and the slices of
    a nodule from its lowest one on, whether or not the source holds all of them.
    """
    found: list[tuple[Reading, Path, File, dict[str, list[_Header]]]] = []
    for source in sources:
        slices: dict[str, list[_Header]] = defaultdict(list)  # by folder
        for file in iterate_files(
            source, lambda name: _HEADER_BYTES.get(PurePosixPath(name).suffix.lower(), 0), progress
        ):
            if isinstance(file, Rejected):
                yield file
                continue
            try:
                if not file.name.lower().endswith(".xml"):
                    slices[file.name.rpartition("/")[0]].append(_header(file))
                elif (reading := contours.read_message(file.data)) is not None:
                    found.append((reading, source, replace(file, data=b""), slices))
            except MueError as error:
                yield Rejected(file.path, str(error))
    path_of_series: dict[str, str] = {}
    nodules: Counter[str] = Counter()  # of each patient so far
    crops: dict[tuple[Path, str], list[tuple[Key, list[Annotation]]]] = defaultdict(list)
    for reading, source, file, slices in sorted(found, key=lambda entry: entry[0].series_uid):
        try:
            if (first := path_of_series.get(reading.series_uid)) is not None:
                raise MueError(f"is a second reading of the series that {first} has")
            series, step = _series(file.name.rpartition("/")[0], reading, slices)
        except MueError as error:
            yield Rejected(file.path, str(error))
            continue
        path_of_series[reading.series_uid] = file.path
        lowest, name_of = series[0], {s.uid: s.name for s in series}
        for nodule in contours.group_nodules(reading.annotations, step, lowest.thickness or step):
            ordered = sorted((c for a in nodule for c in a.contours), key=lambda c: c.z)
            for k, uid in enumerate(dict.fromkeys(c.slice_uid for c in ordered)):
                if uid in name_of:
                    key = lowest.patient, f"nodule-{nodules[lowest.patient]}", f"slice-{k}"
                    crops[source, name_of[uid]].append((key, nodule))
            nodules[lowest.patient] += 1
    for source in sources:
        for file in iterate_files(
            source, lambda name, s=source: MAX_FILE_BYTES if (s, name) in crops else 0, progress
        ):
            if isinstance(file, File):  # what is rejected was reported in the first pass
                nodules_of_file = crops.pop((source, file.name))
                yield from _items(file, nodules_of_file, size or _DEFAULT_SIZE, window)


def _header(file: File) -> _Header:
    _check_deflation(file.data)
    try:
        data = dcmread(io.BytesIO(file.data), stop_before_pixels=True)
        position, spacing = data.get("ImagePositionPatient"), data.get("PixelSpacing")
        thickness = data.get("SliceThickness")
        for number in (*(position or ()), *(spacing or ()), thickness or 0):
            if not abs(number) < _MAX_MILLIMETRES:
                raise MueError(f"a position or size is {number}")
        return _Header(
            name=file.name,
            uid=str(data.SOPInstanceUID),
            series=str(data.SeriesInstanceUID),
            patient=str(data.get("PatientID") or "unknown"),
            z=float(position[2]) if position else None,
            thickness=float(thickness) if thickness else None,
        )
    except Exception as error:  # for a damaged file, pydicom raises any
        raise MueError(f"is truncated or damaged as DICOM ({_brief(error)})") from error


def _check_deflation(data: bytes) -> None:
    """Refuse a file that names deflation, wherever: elements of any length may precede."""
    if DeflatedExplicitVRLittleEndian.encode() in data:
        raise MueError("is deflated as a whole, to an unknown size; write it uncompressed")


def _brief(error: Exception) -> str:
    """Our own errors; of those of pydicom, which adds advice and raw bytes, the first sentence."""
    return str(error) if isinstance(error, MueError) else str(error).partition(". ")[0][:200]


def _series(
    folder: str, reading: Reading, slices: dict[str, list[_Header]]
) -> tuple[list[_Header], float]:
    """The slices that an XML in this folder is about, by z, and their distance in mm.

    Where there is one slice, the distance is its thickness. Slices that do not fit each other, or
    the contours, are an error.
    """
    uid, neighbours = reading.series_uid, slices.get(folder, [])
    series = [s for s in neighbours or chain(*slices.values()) if s.series == uid]
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
    step = float(np.median(np.diff(z))) if len(z) > 1 else series[0].thickness or 1.0
    if len(z) > 1 and (gap := find_gap(z)) is not None:
        i, what, _ = gap
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
    return series, step


def _items(
    file: File, crops: Sequence[tuple[Key, list[Annotation]]], size: int, window: Window
) -> Iterator[Item | Rejected]:
    try:
        _check_deflation(file.data)
        data = dcmread(io.BytesIO(file.data))
        uid, hounsfield = str(data.SOPInstanceUID), _hounsfield(data)
        rows, columns = data.get("PixelSpacing") or (None, None)
        spacing = (float(rows), float(columns)) if rows and columns else None
        h, w = hounsfield.shape
        if size > min(h, w):
            raise MueError(f"{h}×{w} pixels are too few for crops of {size}×{size}")
    except Exception as error:  # for damaged pixels, the decoders raise any
        yield Rejected(file.path, f"cannot be read as a slice: {_brief(error)}")
        return
    for (patient, case, name), nodule in crops:
        # within the image and, as in the slices layout, without its last row and column
        x, y = contours.nodule_center(nodule)
        left, top = (max(0, min(c - size // 2, n - 1 - size)) for c, n in ((x, w), (y, h)))
        masks = np.zeros((RATERS, size, size), dtype=np.uint8)
        for mask, annotation in zip(masks, nodule, strict=False):
            shown = [contour for contour in annotation.contours if contour.slice_uid == uid]
            mask[:] = contours.rasterize(shown, left, top, size)
        image = to_grey(hounsfield[top : top + size, left : left + size], window)
        yield Item(
            patient=patient,
            case=case,
            slice=name,
            source=file.path,
            spacing=spacing,
            image=image[None],
            masks=masks,
        )


def _hounsfield(data: Dataset) -> Float[np.ndarray, "h w"]:
    """The pixels of a slice in Hounsfield units, by the decoders and the modality LUT of pydicom.

    What the header claims is checked before memory of that size is taken.
    """
    h, w = int(data.Rows), int(data.Columns)
    if not (0 < h <= MAX_SIDE and 0 < w <= MAX_SIDE):
        raise MueError(f"it is {h}×{w} pixels; at most {MAX_SIDE}×{MAX_SIDE} are read")
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
    if not get_decoder(syntax).is_available:
        raise MueError(
            f"its pixels are compressed as {syntax.name}, which no decoder that is installed with "
            "mue reads; decompress it first"
        )
    if ("RescaleSlope" in data) != ("RescaleIntercept" in data):
        raise MueError("it has only one of RescaleSlope and RescaleIntercept")
    with warnings.catch_warnings(), np.errstate(over="ignore", invalid="ignore"):
        warnings.simplefilter("ignore")  # pydicom warns of a harmless mismatch, raises otherwise
        hounsfield = apply_modality_lut(decode_pixels(data), data).astype(np.float64, copy=False)
        largest = float(np.abs(hounsfield).max())
    if not largest <= _MAX_HOUNSFIELD:
        beyond = f"beyond {_MAX_HOUNSFIELD:g}" if math.isfinite(largest) else "not finite"
        raise MueError(
            f"its Hounsfield units are {beyond}: {data.get('RescaleSlope')} times a pixel plus "
            f"{data.get('RescaleIntercept')}"
        )
    return hounsfield


def to_grey(hounsfield: Float[np.ndarray, "h w"], window: Window) -> UInt8[np.ndarray, "h w"]:
    """Grey values by a CT window: low to 0, high to 255, clipped beyond, halves rounded up.

    Without a window, low and high are the minimum and maximum of the crop, which gives the images
    of the slices layout to the bit.
    """
    low, high = window or (hounsfield.min(), hounsfield.max())
    if high == low:
        return np.zeros(hounsfield.shape, dtype=np.uint8)
    scaled = (np.clip(hounsfield, low, high) - low) * (255 / (high - low))
    return np.floor(scaled + 0.5).astype(np.uint8)
