"""Masks in NIfTI."""

from __future__ import annotations

import gzip
import json
from typing import Any, cast

import numpy as np
from jaxtyping import Shaped

from mue.inference.masks import Segmentation


def as_nifti(found: Segmentation) -> dict[str, bytes]:
    """The hypotheses along the fourth axis, and the expected mask with its classes along it.

    The affine is the input's. Probabilities are in a comment of the header, as JSON.
    """
    comment = {"hypotheses": found.notes, "classes": found.classes, "labels": found.labels}
    return {
        ".nii.gz": _nifti(found, found.label_maps, comment),
        "-expected.nii.gz": _nifti(found, found.expected, {"classes": found.classes}),
    }


def _nifti(
    found: Segmentation, slices: Shaped[np.ndarray, "m d h w"], comment: dict[str, Any]
) -> bytes:
    from nibabel.nifti1 import Nifti1Extension, Nifti1Header, Nifti1Image

    geometry = found.image.geometry
    # a picture lies as ITK has it: x to the left, y to the back
    affine = np.diag([-1.0, -1.0, 1.0, 1.0]) if geometry is None else geometry.affine
    image = Nifti1Image(found.volume(slices).transpose(3, 2, 1, 0), affine)
    header = cast("Nifti1Header", image.header)
    header.set_xyzt_units("mm")
    header.extensions.append(Nifti1Extension("comment", json.dumps(comment).encode()))
    return gzip.compress(image.to_bytes(), 6, mtime=0)
