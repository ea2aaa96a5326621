"""`mue data inspect`: what prepared slices hold."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from mue.data.prepared.splits import SPLITS
from mue.data.prepared.store import Prepared, open_prepared

_SHEET = 24  # slices on a contact sheet


@dataclass(frozen=True, slots=True)
class InspectionResult:
    """What prepared slices hold.

    Attributes:
        patients: Number of patients.
        nodules: Number of nodules.
        slices: Number of slices.
        annotated: How many slices have 0, 1, … masks that are not empty.
        splits: Patients and slices of each split.
        size: Height and width.
        spacing: Smallest and largest millimetres per pixel, where known.
        form: The form they were imported from.
        digest: sha256 of it all.
        files: What was written: a contact sheet.
    """

    patients: int
    nodules: int
    slices: int
    annotated: tuple[int, ...]
    splits: dict[str, tuple[int, int]]
    size: tuple[int, int]
    spacing: tuple[float, float] | None
    form: str
    digest: str
    files: tuple[Path, ...]


def inspect(
    data: str | Path, out: str | Path | None = None, *, verify: bool = False
) -> InspectionResult:
    """Count what prepared slices hold, and plot a contact sheet of slices spread over them.

    Args:
        data: Folder of prepared slices.
        out: The contact sheet, by default `runs/NAME-sheet.png`.
        verify: Whether to read everything and compare it with the digests from the import.
    """
    prepared = open_prepared(data, verify=verify)
    sheet = Path(out) if out else Path("runs") / f"{Path(data).resolve().name}-sheet.png"
    rows = prepared.rows
    filled = prepared.masks.any(axis=2).sum(axis=1)
    counts = np.bincount(filled, minlength=prepared.raters + 1)
    members = {split: [rows[i] for i in prepared.members(split)] for split in SPLITS}
    spacing = [row.spacing for row in rows if row.spacing is not None]
    return InspectionResult(
        patients=len({row.patient for row in rows}),
        nodules=len({(row.patient, row.nodule) for row in rows}),
        slices=len(rows),
        annotated=tuple(counts.tolist()),
        splits={name: (len({r.patient for r in m}), len(m)) for name, m in members.items()},
        size=prepared.size,
        spacing=(min(spacing), max(spacing)) if spacing else None,
        form=str(prepared.meta.get("origin", {}).get("form", "unknown")),
        digest=prepared.digest,
        files=(_plot_sheet(prepared, Path(data).name, sheet),),
    )


def _plot_sheet(prepared: Prepared, name: str, path: Path) -> Path:
    from mue.plots.contact_sheet import plot_contact_sheet
    from mue.plots.style import save_figure

    rows, (h, w) = prepared.rows, prepared.size
    shown = np.unique(np.linspace(0, len(rows) - 1, _SHEET).round().astype(int))
    bits = np.unpackbits(prepared.masks[shown], axis=2)[..., : h * w]
    sheet = plot_contact_sheet(
        torch.from_numpy(prepared.images[shown]),
        torch.from_numpy(bits.reshape(len(shown), -1, h, w).astype(bool)),
        [rows[i].id for i in shown],
        f"{name}: {len(shown)} of {len(rows)} slices",
    )
    return save_figure(sheet, path)
