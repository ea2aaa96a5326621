"""Masks as arrays of NumPy."""

from __future__ import annotations

import io

import numpy as np

from mue.inference.masks import Segmentation


def as_npz(found: Segmentation) -> bytes:
    """Arrays by the names of the attributes, compressed; a picture has no axis of slices."""
    picture = found.image.geometry is None and found.masks.shape[1] == 1
    masks, expected = (v[:, 0] if picture else v for v in (found.label_maps, found.expected))
    geometry, buffer = found.image.geometry, io.BytesIO()
    np.savez_compressed(
        buffer,
        masks=masks,
        expected=expected,
        prob=np.array(found.prob),
        rest=np.array(found.rest),
        classes=np.array(found.classes),
        values=np.array(found.values),
        **({} if geometry is None else {"affine": geometry.affine, "axis": geometry.axis}),
    )
    return buffer.getvalue()
