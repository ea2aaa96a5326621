"""An annotated image or slice as a reader yields it, before it is prepared."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Shaped, UInt8

from mue.data.images.image import Geometry
from mue.data.prepared.splits import Split, split_of

Key = tuple[str, str, str]
"""Patient, case and slice: what names an item."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The metadata of an image or a slice."""

    patient: str  # whose images are all in one split
    case: str  # the picture, volume or lesion, unique within its patient
    slice: str = ""  # unique within its case; empty for a picture
    source: str  # the file that the image came from, relative to what was imported
    spacing: tuple[float, float] | None = None  # mm between rows and columns, where known
    split: Split | None = None  # where the source says; else by a hash of the patient's name

    @property
    def key(self) -> Key:
        """What names the item."""
        return self.patient, self.case, self.slice

    @property
    def id(self) -> str:
        """A name, unique within the data set; a case that is its own patient is named once."""
        case = "" if self.case == self.patient else self.case
        return "/".join(part for part in (self.patient, case, self.slice) if part)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Item(Row):
    """One image or slice with the masks of its raters, in no order.

    The mask of a rater who annotated nothing is empty.

    Attributes:
        image: The values of the file: uint8, uint16, int16, int32 or float32.
        masks: The class of each pixel by each rater; 0 is the background.
        weights: Of the raters; None weighs them equally.
        geometry: Of the volume that the slice was cut from.
        bits: Of unsigned values, where fewer are in use than their type has.
    """

    image: Shaped[np.ndarray, "c h w"]
    masks: UInt8[np.ndarray, "r h w"]
    weights: tuple[float, ...] | None = None
    geometry: Geometry | None = None
    bits: int | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    """Something that cannot be imported: a path in the source, or the name of a slice or series."""

    what: str
    why: str  # what is wrong with it, as one clause that follows on `what`
    key: Key | None = None  # the item to take back, if it was yielded before the error was found


def splits_of(rows: Sequence[Row]) -> list[Split]:
    """The split of each image: the one of its source, or by its patient."""
    by_patient: dict[str, Split] = {name: split_of(name) for name in {row.patient for row in rows}}
    return [row.split or by_patient[row.patient] for row in rows]
