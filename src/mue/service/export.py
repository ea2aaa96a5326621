"""What is shown, as a file for other programs."""

from __future__ import annotations

from mue.config.schema import Config
from mue.errors import MueError
from mue.inference.masks import segmentation
from mue.inference.nifti import as_nifti
from mue.inference.npz import as_npz
from mue.modes import Modes
from mue.service.uploads import ExportFormat, Upload


def export(modes: Modes, upload: Upload, config: Config, form: ExportFormat) -> tuple[str, bytes]:
    """The masks of one slice in the space of their source: the ending of a name, and the bytes."""
    found = segmentation(modes, upload.raw, config)
    if form == "npz":
        return ".npz", as_npz(found)
    if form == "nifti":
        return ".nii.gz", as_nifti(found)[".nii.gz"]
    if form not in upload.formats:
        raise MueError(
            "DICOM SEG is written for a slice that is a DICOM file of its own, with a position; "
            "take nifti or npz"
        )
    from mue.inference.dicom_seg import as_dicom_seg

    return ".dcm", as_dicom_seg(found)[".dcm"]
