"""Slices for tests of the prepared form."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from mue.data.prepared.item import Item


def item(
    patient: str = "p", case: str = "n", k: str = "0", size: tuple[int, int] = (3, 5), **more: Any
) -> Item:
    """A slice whose pixels follow from its name."""
    random = np.random.default_rng(list(f"{patient} {case} {k}".encode()))
    found = Item(
        patient=patient,
        case=case,
        slice=k,
        source=f"{patient}/{case}/{k}.png",
        image=random.integers(256, size=(1, *size), dtype=np.uint8),
        masks=(random.random((4, *size)) < 0.5).astype(np.uint8),
    )
    return dataclasses.replace(found, **more)


def files(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()}
