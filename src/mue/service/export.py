"""What is shown, as a file for other programs."""

from __future__ import annotations

from mue.errors import MueError
from mue.inference.prediction import Prediction
from mue.inference.writers import FORMATS
from mue.service.uploads import ExportFormat, Upload


def export(found: Prediction, upload: Upload, form: ExportFormat) -> tuple[str, bytes]:
    """The masks of one slice in the space of its image: the ending of a name, and the bytes.

    Of a format that has several files the first, which holds the modes.
    """
    if form == "dicom-seg" and form not in upload.formats:
        raise MueError(
            "DICOM SEG is written for a slice that is a DICOM file of its own, with a position; "
            "take nifti or npz"
        )
    return next(iter(FORMATS[form].encode(found).items()))
