"""Segmentations in DICOM."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from highdicom import AlgorithmIdentificationSequence
from highdicom.seg import (
    Segmentation as DicomSegmentation,
)
from highdicom.seg import (
    SegmentationFractionalTypeValues,
    SegmentationTypeValues,
    SegmentDescription,
)
from highdicom.sr.coding import CodedConcept
from jaxtyping import Shaped
from pydicom import Dataset, dcmread
from pydicom.sr.codedict import codes
from pydicom.uid import generate_uid

from mue.data.images.dicom_frames import frame_count, frame_order, functional_group
from mue.data.images.image import Geometry, ImageFile
from mue.errors import MueError
from mue.inference.masks import Segmentation
from mue.version import __version__

_CATEGORY = CodedConcept("309825002", "SCT", "Spatial and relational concept")
_REGION = CodedConcept("111099", "DCM", "Selected region")


def as_dicom_seg(found: Segmentation) -> dict[str, bytes]:
    """A binary segment for each hypothesis and class, and a fractional one for the expected mask.

    Rank, probability and codes of a hypothesis are in the description of its segment.
    """
    sources = _sources(found)
    binary, described = list[np.ndarray](), list[tuple[str, str]]()
    ranked = zip(found.masks, found.prob, found.notes, strict=True)
    for rank, (mask, prob, note) in enumerate(ranked, start=1):
        for number, name in enumerate(found.classes, start=1):
            binary.append(mask == number)
            described.append((f"{rank}: {name} ({prob:.3f})", f"{name}: {note}"))
    expected = [
        (f"expected {name}", f"probability of {name} by all answers") for name in found.classes
    ]
    kinds = SegmentationTypeValues.BINARY, SegmentationTypeValues.FRACTIONAL
    try:
        return {
            ".dcm": _encode(found, sources, np.stack(binary), described, kinds[0]),
            "-expected.dcm": _encode(found, sources, found.expected, expected, kinds[1]),
        }
    except (AttributeError, LookupError, TypeError, ValueError) as error:  # of what the header has
        raise MueError(
            f"{found.image.files[0]} cannot be referred to in the format dicom-seg, take nifti or "
            f"npz: {str(error).partition(chr(10))[0][:200]}"
        ) from error


def _sources(found: Segmentation) -> list[Dataset]:
    """The headers of the source, in the order of its slices."""
    files, geometry = found.image.files, found.image.geometry
    try:
        return [_header(file, geometry) for file in files]
    except Exception:  # pydicom raises any, for what is no DICOM
        raise MueError(
            f"{files[0]} must be DICOM for answers in the format dicom-seg, which refers to its "
            "source; take nifti or npz"
        ) from None


def _header(file: ImageFile, geometry: Geometry | None) -> Dataset:
    """A header; a segmentation must have the thickness of slices, which a source may leave out."""
    with file.open("rb") as opened:
        head = dcmread(opened, stop_before_pixels=True)
    if geometry is not None:
        for i in range(frame_count(head)):
            measures = functional_group(head, i, "PixelMeasuresSequence")
            if not measures.get("SliceThickness"):
                measures.SliceThickness = f"{np.linalg.norm(geometry.affine[:3, 2]):.6g}"
    return head


def _encode(
    found: Segmentation,
    sources: Sequence[Dataset],
    segments: Shaped[np.ndarray, "s d h w"],
    described: Sequence[tuple[str, str]],
    kind: SegmentationTypeValues,
) -> bytes:
    algorithm = AlgorithmIdentificationSequence(
        name="mue", version=__version__, family=codes.DCM.ArtificialIntelligence
    )
    descriptions: list[SegmentDescription] = []
    for number, (label, text) in enumerate(described, start=1):
        one = SegmentDescription(number, label[:64], _CATEGORY, _REGION, "AUTOMATIC", algorithm)
        one.SegmentDescription = text[:1024]
        descriptions.append(one)
    content: dict[str, Any] = {}
    if kind is SegmentationTypeValues.FRACTIONAL:
        content = {"fractional_type": SegmentationFractionalTypeValues.PROBABILITY}
    frames = np.moveaxis(found.volume(segments), 0, -1)
    if len(sources) == 1:  # whose frames are referred to in the order of the file
        frames = frames[np.argsort(frame_order(sources[0]))]
    seg = DicomSegmentation(
        source_images=sources,
        pixel_array=frames.clip(0, 1) if content else frames.astype(np.uint8),
        segmentation_type=kind,
        segment_descriptions=descriptions,
        series_instance_uid=generate_uid(),
        series_number=9000 + bool(content),
        sop_instance_uid=generate_uid(),
        instance_number=1,
        manufacturer="mue",
        manufacturer_model_name="mue",
        software_versions=__version__,
        device_serial_number="0",
        content_label="EXPECTED" if content else "HYPOTHESES",
        content_description=f"rest {found.rest:.4f}",
        series_description="mue: expected mask" if content else "mue: ranked hypotheses",
        **content,
    )
    if found.image.geometry is None:  # without it, this must be there, and may be empty
        seg.PatientOrientation = sources[0].get("PatientOrientation")
    buffer = io.BytesIO()
    seg.save_as(buffer)
    return buffer.getvalue()
