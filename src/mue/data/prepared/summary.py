"""Summary statistics of prepared slices."""

from dataclasses import dataclass

import numpy as np

from mue.data.prepared.splits import SPLITS
from mue.data.prepared.store import Prepared


@dataclass(frozen=True, slots=True)
class DataSummary:
    """How many patients, cases and slices were prepared, and of what kind."""

    patients: int
    cases: int
    slices: int
    annotated: tuple[int, ...]  # slices with 0, 1, … r masks that are not empty
    splits: dict[str, tuple[int, int]]  # patients and slices of each split
    sizes: tuple[tuple[int, int], ...]  # every height and width there is
    spacing: tuple[float, float] | None  # smallest and largest mm from pixel to pixel, where known
    form: str  # what they were imported from
    digest: str  # sha256 of all of it


def summarize(prepared: Prepared) -> DataSummary:
    """Count what prepared slices hold."""
    rows = prepared.rows
    annotated = np.array(
        [prepared.masks_of(i).any(axis=(1, 2)).sum() for i in range(len(rows))], dtype=np.int64
    )
    members = {split: [rows[i] for i in prepared.members(split)] for split in SPLITS}
    spacing = [mm for row in rows for mm in row.spacing or ()]
    return DataSummary(
        patients=len({row.patient for row in rows}),
        cases=len({(row.patient, row.case) for row in rows}),
        slices=len(rows),
        annotated=tuple(np.bincount(annotated, minlength=prepared.raters + 1).tolist()),
        splits={name: (len({r.patient for r in m}), len(m)) for name, m in members.items()},
        sizes=tuple(prepared.sizes),
        spacing=(min(spacing), max(spacing)) if spacing else None,
        form=str(prepared.origin.get("form", "unknown")),
        digest=prepared.digest,
    )
