"""A slice of a lesion as a reader yields it, before it is prepared."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, UInt8

Key = tuple[str, str, str]
"""Patient, nodule and slice: what names an item."""


@dataclass(frozen=True, slots=True)
class Row:
    """The metadata of a slice."""

    patient: str  # LIDC-IDRI-XXXX, or the series UID where the source names no patient
    nodule: str  # the lesion, unique within its patient
    slice: str  # unique within its nodule
    spacing: float | None  # millimetres from pixel to pixel, None where the source does not say
    source: str  # the file that the image came from, relative to what was imported

    @property
    def key(self) -> Key:
        """What names the slice."""
        return self.patient, self.nodule, self.slice

    @property
    def id(self) -> str:
        """A name, unique within the data set."""
        return "/".join(self.key)


@dataclass(frozen=True, slots=True)
class Item(Row):
    """One slice of one lesion with the masks of its raters, in no order.

    The mask of a rater who annotated nothing is empty.
    """

    image: UInt8[np.ndarray, "h w"]
    masks: Bool[np.ndarray, "r h w"]


@dataclass(frozen=True, slots=True)
class Rejected:
    """Something that cannot be imported: a path in the source, or the name of a slice or series."""

    what: str
    why: str  # what is wrong with it, as one clause that follows on `what`
    key: Key | None = None  # the item to take back, if it was yielded before the error was found
