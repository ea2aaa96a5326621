"""A slice of a lesion as a reader yields it, before it is prepared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, UInt8

Key = tuple[str, str, str]
"""Patient, nodule and slice: what names an item."""


@dataclass(frozen=True, slots=True)
class Item:
    """One slice of one lesion with the masks of its raters, in no order.

    Attributes:
        patient: LIDC-IDRI-XXXX, or the series UID where the source names no patient.
        nodule: The lesion, unique within its patient.
        slice: The slice, unique within its nodule.
        image: Grey values.
        masks: The mask of each rater; empty for a rater who annotated nothing.
        spacing: Millimetres from pixel to pixel, None where the source does not say.
        source: The file that the image came from, relative to what was imported.
    """

    patient: str
    nodule: str
    slice: str
    image: UInt8[np.ndarray, "h w"]
    masks: Bool[np.ndarray, "r h w"]
    spacing: float | None
    source: str

    @property
    def key(self) -> Key:
        """What names the item."""
        return self.patient, self.nodule, self.slice


@dataclass(frozen=True, slots=True)
class Rejected:
    """Something that cannot be imported.

    Attributes:
        what: A path in the source, or the name of a slice or a series.
        why: What is wrong with it, as one clause that follows on `what`.
        key: The item to take back, if it was yielded before the error was found.
    """

    what: str
    why: str
    key: Key | None = None
