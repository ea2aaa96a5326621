"""Generated parts of README.md and docs/.

Run as a script, it writes the tables of README.md from those of docs/ anew.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from mue.config.presets import preset

ROOT = Path(__file__).parents[1]
RESULTS, COMPARISON, SEEDS = (ROOT / "docs" / f"{n}.md" for n in ("results", "comparison", "seeds"))
TRAINED_ON = (
    "`lidc-exact` is trained on all four raters of a slice in each step and is calibrated on the "
    "val patients; the baselines are trained on one random rater a step, as the paper's network "
    "is, and are not calibrated."
)
METRICS = ("ged", "dice_top", "coverage_2", "n90")
HEADLINE = {
    "lidc-exact": "`exact`, calibrated",
    "lidc-exact, not calibrated": "`exact`",
    "lidc-small": "`vq`, the paper's method",
    "lidc-probunet, 100 samples": "Probabilistic U-Net",
    "lidc-unet": "U-Net, one answer",
}
"""Models in the table of README.md, each with its method."""


def between(path: Path, mark: str) -> tuple[str, str, str]:
    """A file in three parts: up to `<!-- MARK: begin -->`, what follows, from the end mark on."""
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    before, _, rest = path.read_text().partition(begin)
    text, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"{path} must hold {begin} and then {end}, and does not")
    return before + begin, text, end + after


def insert(path: Path, text: str, mark: str) -> None:
    """Replace what stands between `<!-- MARK: begin -->` and `<!-- MARK: end -->` of a file."""
    before, _, after = between(path, mark)
    path.write_text(f"{before}\n{text}\n{after}")


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A table whose first columns are aligned to the left and whose others are numbers."""
    lines = [columns, ["---"] * left + ["---:"] * (len(columns) - left), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def tables(text: str) -> list[dict[str, str]]:
    """The rows of all Markdown tables of a text, each cell by the name of its column."""
    rows: list[dict[str, str]] = []
    columns: list[str] = []
    for line in text.splitlines():
        cells = [re.sub("[*`]", "", cell).strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            columns = []
        elif not columns:
            columns = cells
        elif set(cells[0]) != {"-"}:
            rows.append(dict(zip(columns, cells, strict=True)))
    return rows


def headline(results: str, comparison: str) -> str:
    """The table of README.md: a few rows of the generated tables on lesions."""
    found: dict[str, dict[str, str]] = {}
    for row in tables(results) + tables(comparison):
        name = re.sub(r" \(.*", "", row.get("model", ""))  # without "(bundled)"
        if samples := row.get("samples"):
            name += f", {samples} samples"
        found[name] = row | found.get(name, {})
    lines: list[list[str]] = []
    for name, kind in HEADLINE.items():
        row, (model, *more) = found[name], name.split(",")
        raters = str(preset(model).data.answers)
        values = [row[metric].partition(" (")[0] for metric in METRICS]
        lines.append([",".join([f"`{model}`", *more]), kind, raters, *values])
    columns = ["model", "method", "raters a step", *METRICS]
    return markdown(columns, lines, left=2)


def write_headline() -> None:
    """Write the table of README.md anew."""
    sources = between(RESULTS, "lidc")[1], between(COMPARISON, "compare-lidc")[1]
    commits = dict.fromkeys(re.findall(r"commit `?([0-9a-f]{7,12})", t)[0] for t in sources)
    made = (
        "Measured by `make results-lidc DATA=lidc` and `make results-compare DATA=lidc`, seed 0, "
        f"at commit {' and '.join(commits)}; put together by `python benchmarks/pages.py`."
    )
    words = [textwrap.fill(sentence, 105) for sentence in (TRAINED_ON, made)]
    insert(ROOT / "README.md", "\n\n".join([headline(*sources), *words]), "headline")


def over_seeds(text: str) -> str:
    """The second table of README.md: the main metric of each preset over its seeds."""
    columns = ["preset", "metric", "seeds", "median", "worst"]
    found = [row for row in tables(text) if row["metric"] in ("mode_tv", "ged")]
    rows = [[f"`{row['preset']}`", *(row[name] for name in columns[1:])] for row in found]
    return markdown(columns, rows, left=2)


def write_over_seeds() -> None:
    """Write the second table of README.md anew."""
    insert(ROOT / "README.md", over_seeds(between(SEEDS, "seeds")[1]), "seeds")


if __name__ == "__main__":
    write_headline()
    write_over_seeds()
