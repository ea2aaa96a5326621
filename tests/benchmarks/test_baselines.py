"""The page of the comparison says what was found."""

import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest
import torch

from mue.commands.compare import ComparisonResult
from mue.data.synthetic.guess import CATEGORIES
from mue.metrics.modes import mode_tv

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("baselines")


def found(page: ModuleType, name: str, rows: list[tuple], **content):
    """An outcome of rows (model, samples, {metric: (mean, low, high)})."""
    models = [
        page.ComparedModel(
            model,
            "exact",
            samples,
            samples or 8,
            1,
            7,
            2.0,
            {m: page.Interval(v[0], 0.0, v[1], v[2]) for m, v in metrics.items()},
        )
        for model, samples, metrics in rows
    ]
    return page.Outcome(page.Task(name, {}, (16,)), content, models)


def test_chance_alone_is_what_samples_of_the_truth_show(page):
    n, generator = 400, torch.Generator().manual_seed(0)
    seen = []
    for _, q in CATEGORIES.values():
        true = torch.tensor(q).expand(3000, 4)
        sampled = torch.multinomial(true, n, replacement=True, generator=generator)
        share = torch.nn.functional.one_hot(sampled, 4).float().mean(dim=1)
        seen.append(mode_tv(share, true).mean().item())
    assert page.by_chance(n) == pytest.approx(sum(seen) / 4, rel=0.02)


def test_the_best_of_a_column_is_bold_and_what_was_not_measured_is_blank(page):
    rows = [("a", None, {"ged": (0.2, 0.1, 0.3)}), ("b", 16, {"ged": (0.3, 0.2, 0.4)})]
    outcome = found(page, "lidc", [*rows, ("c", None, {})])
    assert page.cell(outcome, 0, "ged", 2) == "**0.20** (0.10 to 0.30)"
    assert page.cell(outcome, 1, "ged", 2) == "0.30 (0.20 to 0.40)"
    assert page.cell(outcome, 2, "ged", 2) == ""
    assert page.table(outcome, ("ged",), 1).splitlines()[3] == (
        "| `b` | 16 | 0.3 (0.2 to 0.4) | 7 | 16 | 2 | 1 |"
    )


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (0.2, "levels off: 0.400 with 1 samples, 0.200 with 4, and no number up to there"),
        (0.01, "it is as near as that with 4 samples"),
    ],
)
def test_a_curve_that_stays_above_never_gets_there(page, last: float, words: str):
    points = [
        {"answers": n, "mode_tv": tv, "seconds": 1.0} for n, tv in ((1, 0.4), (2, 0.3), (4, last))
    ]
    rows = [
        ("guess-exact", None, {"mode_tv": (0.01, 0.0, 0.1)}),
        ("guess-probunet", 16, {"mode_tv": (0.25, 0.2, 0.3)}),
    ]
    curves = {"inputs": 5, "guess-exact": [points[0] | {"mode_tv": 0.02}], "guess-probunet": points}
    said = page.summary_guess(found(page, "guess", rows, curves=curves))
    assert words in said
    assert "**25 times as far**" in said


def test_intervals_that_touch_overlap(page):
    ours = {"ged_16": (0.2, 0.19, 0.21), "hm_iou_16": (0.6, 0.55, 0.65)}
    theirs = {"ged_16": (0.3, 0.25, 0.35), "hm_iou_16": (0.7, 0.65, 0.75)}
    said = page.summary_lidc(
        found(page, "lidc", [("lidc-exact", None, ours), ("lidc-probunet", 16, theirs)])
    )
    ged, iou = said.split(" In hm_iou_16 ")
    assert ged.startswith("In ged_16 `lidc-exact` is ahead: 0.200 (0.190 to 0.210)")
    assert ged.endswith("the intervals do not overlap.")
    assert iou.startswith("`lidc-probunet` is ahead")
    assert iou.endswith("the intervals overlap.")


def test_a_comparison_of_the_same_weights_is_used_again(page, monkeypatch, tmp_path):
    task = page.Task("guess", {"guess": "guess", "guess-exact": "guess-exact"}, ())
    weights = {name: page.weights_digest(page.find(name)) for name in task.models}
    kept = {"seed": 0, "inputs": 1000, "weights": weights, "models": []}
    (tmp_path / "compare-guess").mkdir()
    path = tmp_path / "compare-guess" / "comparison.json"
    path.write_text(json.dumps(kept))
    made: list[object] = []

    def compare(models, **_):
        made.append(models)
        return ComparisonResult([], kept, ())

    monkeypatch.setattr(page.mue, "compare", compare)
    assert page.outcome(task, tmp_path).content == kept
    assert made == []
    for other in ({"seed": 1}, {"inputs": 10}, {"weights": weights | {"guess": "0"}}):
        path.write_text(json.dumps(kept | other))
        page.outcome(task, tmp_path)
        assert made.pop() == ["guess", "guess-exact"]


@pytest.mark.parametrize("name", ["README.md", "docs/comparison.md"])
def test_the_pages_say_what_each_model_was_trained_on(page, name: str):
    text = (BENCHMARKS.parent / name).read_text()
    assert page.TRAINED_ON in " ".join(text.split())
