"""What every import returns."""

from dataclasses import dataclass
from pathlib import Path

from mue.data.images.walk import files_below
from mue.data.prepared.item import Rejected
from mue.data.prepared.open import open_prepared
from mue.data.prepared.summary import DataSummary, summarize


@dataclass(frozen=True, slots=True)
class ImportResult:
    """The new folder of prepared slices, its files, what they hold, and what was left out."""

    folder: Path
    files: tuple[Path, ...]
    summary: DataSummary
    rejected: tuple[Rejected, ...]


def imported(folder: Path, rejected: tuple[Rejected, ...]) -> ImportResult:
    """The result of an import that wrote this folder."""
    summary = summarize(open_prepared(folder))
    return ImportResult(folder, tuple(files_below(folder)), summary, rejected)
