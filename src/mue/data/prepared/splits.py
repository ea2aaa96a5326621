"""The split of patients into training, validation and test sets."""

import hashlib
from typing import Literal

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")


def split_of(patient: str) -> Split:
    """The split a patient belongs to: 60, 10 and 30 of 100 buckets of a hash of the name.

    >>> split_of("LIDC-IDRI-0003"), split_of("LIDC-IDRI-0006"), split_of("LIDC-IDRI-0001")
    ('train', 'val', 'train')
    """
    bucket = int(hashlib.sha256(patient.encode()).hexdigest(), 16) % 100
    return "train" if bucket < 60 else "val" if bucket < 70 else "test"
