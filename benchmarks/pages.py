"""Generated parts of README.md and docs/."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]


def insert(path: Path, text: str, mark: str) -> None:
    """Replace what stands between `<!-- MARK: begin -->` and `<!-- MARK: end -->` of a file."""
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    content = path.read_text()
    before, _, rest = content.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"{path} must hold {begin} and then {end}, and does not")
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}")


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A table whose first columns are aligned to the left and whose others are numbers."""
    lines = [columns, ["---"] * left + ["---:"] * (len(columns) - left), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
