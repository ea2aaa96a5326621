"""What is shown, as a file for other programs."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from mue.config.schema import Config
from mue.data.images.image import RawImage
from mue.errors import MueError
from mue.inference.segmentation import as_nifti, as_npz, segmentation
from mue.modes import Modes
from mue.service.uploads import Upload

ExportFormat = Literal["nifti", "dicom-seg", "npz"]


def export(modes: Modes, upload: Upload, config: Config, form: ExportFormat) -> tuple[str, bytes]:
    """The masks of one slice in the space of their source: the ending of a name, and the bytes."""
    found = segmentation(modes, _slice(upload), config)
    if form == "npz":
        return ".npz", as_npz(found)
    if form == "nifti":
        return ".nii.gz", as_nifti(found)[".nii.gz"]
    if upload.raw.pixels.shape[1] > 1:
        raise MueError("DICOM SEG is written for a file of one slice, got several; take NIfTI")
    from mue.inference.dicom_seg import as_dicom_seg

    return ".dcm", as_dicom_seg(found)[".dcm"]


def _slice(upload: Upload) -> RawImage:
    """The slice as a volume of its own, where it was in the volume."""
    raw, i = upload.raw, upload.index
    geometry = raw.geometry
    if geometry is not None:
        affine, shape = np.array(geometry.affine), list(geometry.shape)
        affine[:3, 3] += affine[:3, geometry.axis] * i
        shape[geometry.axis] = 1
        geometry = replace(geometry, affine=affine, shape=(shape[0], shape[1], shape[2]))
    return replace(raw, pixels=raw.pixels[:, i : i + 1], geometry=geometry)
