"""Summary statistics of prepared images, and what is wrong with them."""

from dataclasses import dataclass

import numpy as np

from mue.data.prepared.open import Prepared
from mue.data.prepared.splits import SPLITS

_AIR = -500  # Hounsfield units that only air and lungs are below
_SAMPLED = 32  # images whose lowest value is looked at


@dataclass(frozen=True, slots=True)
class DataSummary:
    """How many patients, cases and slices were prepared, and of what kind."""

    patients: int
    cases: int
    slices: int
    raters: tuple[int, ...]  # slices with 0, 1, … r masks
    annotated: tuple[int, ...]  # slices with 0, 1, … r masks that are not empty
    splits: dict[str, tuple[int, int]]  # patients and slices of each split
    sizes: tuple[tuple[int, int], ...]  # every height and width there is
    channels: int
    dtype: str
    labels: tuple[str, ...]  # the classes, the background first; empty for one class
    normalization: str
    spacing: tuple[float, float] | None  # smallest and largest mm from pixel to pixel, where known
    form: str  # what they were imported from
    digest: str  # sha256 of all of it
    findings: tuple[str, ...]  # what is wrong, or should be known, each one sentence


def summarize(prepared: Prepared) -> DataSummary:
    """Count what prepared images hold."""
    rows = prepared.rows
    raters, start = prepared.items["raters"], prepared.mask_start
    annotated = np.array(
        [
            prepared.masks[start[i] : start[i + 1]].reshape(raters[i], -1).any(axis=1).sum()
            for i in range(len(rows))
        ]
    )
    members = {split: [rows[i] for i in prepared.members(split)] for split in SPLITS}
    spacing = [mm for row in rows for mm in row.spacing or ()]
    max_raters = prepared.raters
    return DataSummary(
        patients=len({row.patient for row in rows}),
        cases=len({(row.patient, row.case) for row in rows}),
        slices=len(rows),
        raters=tuple(np.bincount(raters, minlength=max_raters + 1).tolist()),
        annotated=tuple(np.bincount(annotated, minlength=max_raters + 1).tolist()),
        splits={name: (len({r.patient for r in m}), len(m)) for name, m in members.items()},
        sizes=tuple(prepared.sizes),
        channels=prepared.meta.channels,
        dtype=prepared.meta.dtype,
        labels=prepared.meta.labels,
        normalization=prepared.meta.normalize.kind,
        spacing=(min(spacing), max(spacing)) if spacing else None,
        form=str(prepared.origin.get("form", "unknown")),
        digest=prepared.digest,
        findings=tuple(_findings(prepared, annotated)),
    )


def _findings(prepared: Prepared, annotated: np.ndarray) -> list[str]:
    """What a user should know before training, by what is in memory."""
    rows, items = prepared.rows, prepared.items
    found: list[str] = []
    alone = items["raters"] == 1
    if alone.all():
        found.append("every image has one rater: no disagreement can be learned, only one answer")
    elif alone.any():
        found.append(_named(prepared, alone, "one rater alone, who shows no disagreement"))
    empty = [split for split in SPLITS if not len(prepared.members(split))]
    if empty:
        found.append(f"no image is in {' and '.join(empty)}; a table for --splits can name some")
    if not annotated.any():
        found.append("no rater annotated a pixel of any image")
    constant = (items["deviation"] == 0).all(axis=1)
    if constant.any():
        found.append(_named(prepared, constant, "one value everywhere"))
    if twice := _same_images(prepared, ~constant):
        i, j = twice[0]
        names = f"{rows[i].id} and {rows[j].id}"
        found.append(f"{len(twice)} images come twice, under different patients: {names}")
    low = _lowest(prepared)
    if low < _AIR and prepared.meta.normalize.kind != "window":
        found.append(
            f"values go down to {low:g}, as in CT, and are normalized by "
            f"{prepared.meta.normalize.kind}; for CT, name its channel CT in dataset.json and "
            "import again"
        )
    if left_out := prepared.meta.left_out:
        found.append(f"left out at the import: {left_out}")
    return found


def _lowest(prepared: Prepared) -> float:
    """The lowest value of some images, spread evenly."""
    sampled = np.unique(np.linspace(0, len(prepared.rows) - 1, _SAMPLED).astype(int)).tolist()
    return min(float(prepared.image(i).min()) for i in sampled)


def _same_images(prepared: Prepared, among: np.ndarray) -> list[tuple[int, int]]:
    """Pairs of equal images of different patients: a split cannot keep them apart."""
    items, rows = prepared.items, prepared.rows
    columns = (items["h"][:, None], items["w"][:, None], items["mean"], items["deviation"])
    table = np.concatenate(columns, axis=1)
    _, group, count = np.unique(table, axis=0, return_inverse=True, return_counts=True)
    first: dict[int, int] = {}
    pairs: list[tuple[int, int]] = []
    for i in np.flatnonzero((count[group] > 1) & among).tolist():
        j = first.setdefault(int(group[i]), i)
        apart = rows[i].patient != rows[j].patient
        if apart and np.array_equal(prepared.image(i), prepared.image(j)):
            pairs.append((j, i))
    return pairs


def _named(prepared: Prepared, chosen: np.ndarray, what: str) -> str:
    which = np.flatnonzero(chosen)
    verb = "has" if len(which) == 1 else "have"
    return f"{len(which)} of {len(prepared.rows)} {verb} {what}: {prepared.rows[which[0]].id}" + (
        ", …" if len(which) > 1 else ""
    )
