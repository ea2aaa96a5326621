"""Which patient a case is of, and in which split it is."""

import csv
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from mue.data.folder.layout import CaseFiles, pattern
from mue.data.prepared.item import Rejected
from mue.data.prepared.splits import SPLITS, Split, split_of
from mue.errors import MueError

_MAX_CSV_BYTES = 1 << 28


def with_patients(
    cases: Iterable[CaseFiles | Rejected], patient: str | None, splits: Path | None
) -> list[CaseFiles | Rejected]:
    """The cases with the patient that a pattern finds in their name, and the split of a table.

    Where the source has a test set of its own, the others are for training and validation.
    """
    expression = None if patient is None else pattern("--patient", patient, "patient")
    table = {} if splits is None else _read_splits(splits)
    cases = list(cases)
    tested = any(isinstance(case, CaseFiles) and case.split for case in cases)
    first: dict[str, CaseFiles] = {}  # of each patient
    found: list[CaseFiles | Rejected] = []
    for case in cases:
        if isinstance(case, CaseFiles):
            match = expression.fullmatch(case.case) if expression else None
            name = match["patient"] if match else case.patient
            split = case.split
            if splits is not None:
                split = table.get(case.case) or table.get(name)
            elif tested and split is None:
                split = "val" if split_of(name) == "val" else "train"
            case = replace(case, patient=name, split=split)
            if expression and not match:
                case = Rejected(case.name, f"has a name that --patient {patient!r} does not match")
            elif splits is not None and split is None:
                case = Rejected(case.name, f"has no line in {splits.name}, by case or patient")
            elif (other := first.setdefault(name, case)).split != split:
                why = f"is in {split}, and {other.name} of the same patient in {other.split}"
                case = Rejected(case.name, f"{why}; a patient must be in one split")
        found.append(case)
    return found


def _read_splits(path: Path) -> dict[str, Split]:
    """The split of each case or patient, by a table of two columns."""
    known: dict[str, Split] = {name: name for name in SPLITS}
    try:
        if path.exists() and not path.is_file():  # reading a pipe or a device may never end
            raise MueError("it is no plain file")
        if path.stat().st_size > _MAX_CSV_BYTES:
            raise MueError(f"it has {path.stat().st_size} bytes")
        rows = csv.DictReader(path.read_text(encoding="utf-8-sig").splitlines())
        columns = rows.fieldnames or ()
        names = [name for name in ("case", "patient") if name in columns]
        if not names or "split" not in columns:
            raise MueError("its first line must be `case,split` or `patient,split`")
        table: dict[str, Split] = {}
        for row in rows:
            name, split = str(row[names[0]]).strip(), str(row["split"]).strip()
            if split not in known:
                raise MueError(
                    f"the split of {name} must be one of {', '.join(known)}, got {split!r}"
                )
            if table.setdefault(name, known[split]) != split:
                raise MueError(f"{name} is in two splits")
        return table
    except FileNotFoundError:
        raise MueError(f"there is no table of splits {path}") from None
    except (OSError, ValueError, csv.Error) as error:
        raise MueError(f"{path} must be a table of splits, and is not: {error}") from None
