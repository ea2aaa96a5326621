"""The formats in which answers are written: one table, and a file for each format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mue.inference.json import json_bytes
from mue.inference.json import modes_json as modes_json
from mue.inference.nifti import as_nifti
from mue.inference.npz import as_npz
from mue.inference.png import as_png
from mue.inference.prediction import Prediction

Files = dict[str, bytes]
"""The content of files by what their names end in, the last of each format last."""


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """A format: what the name of its last file ends in, and how its files are made."""

    last: str
    encode: Callable[[Prediction], Files]


def _as_dicom_seg(p: Prediction) -> Files:
    from mue.inference.dicom_seg import as_dicom_seg

    return as_dicom_seg(p.segmentation)


FORMATS: dict[str, OutputFormat] = {
    "png": OutputFormat("-answers.png", as_png),
    "json": OutputFormat(".json", lambda p: {".json": json_bytes(p.summary())}),
    "nifti": OutputFormat("-expected.nii.gz", lambda p: as_nifti(p.segmentation)),
    "dicom-seg": OutputFormat("-expected.dcm", _as_dicom_seg),
    "npz": OutputFormat(".npz", lambda p: {".npz": as_npz(p.segmentation)}),
}
"""Every output format by its name: a new one is a file beside this one, and a line here."""
if TYPE_CHECKING:
    Format = str
else:
    Format = Literal[tuple(FORMATS)]  # whose names the command line offers
