import functools
from pathlib import Path

import pytest
import torch

from mue.cli.commands import COMMANDS
from mue.commands.demo import DEMO, DemoResult, demo
from mue.commands.figure import FigureResult, figure
from mue.commands.models import load_models
from mue.commands.report import report
from mue.evaluation.known import ModeEvaluation


def test_an_evaluation_for_people_is_a_table(mue, folder, tmp_path):
    said = mue("evaluate", "copy", "--inputs", 30, "--out", "elsewhere")
    assert said.code == 0
    for word in ("dim", "bright", "predicted", "true", "mode_tv", "rest", "in use"):
        assert word in said.out
    assert "report   elsewhere/report-test.json\n" in said.out
    assert (tmp_path / "elsewhere" / "report-test.json").is_file()
    assert not (folder / "report-test.json").exists()


@pytest.mark.usefixtures("folder", "image")
def test_a_prediction_for_people_shows_the_rest(mue, tmp_path):
    said = mue("predict", "copy", "bars.png", "--k", 2, "--by", "code", "--out", "answers")
    assert said.code == 0
    assert "bars.png" in said.out
    assert "rest" in said.out
    assert "answers  answers\n" in said.out
    names = {p.name for p in (tmp_path / "answers").iterdir()}
    about = {"mue-predict.json", "mue-predict"}
    assert names == {"bars-1.png", "bars-2.png", "bars-answers.png"} | about


@pytest.mark.usefixtures("folder", "image")
def test_a_folder_that_nothing_was_written_to_is_not_named(mue, tmp_path):
    options = ["--format", "dicom-seg", "--skip-bad"]
    said = mue("predict", "copy", "bars.png", "--out", "answers", *options)
    assert said.code == 0
    assert said.err.splitlines()[-1].startswith("left out bars.png must be DICOM")
    assert said.out == "0 images answered, 0 were before, 1 left out\n"
    assert not (tmp_path / "answers").exists()


def test_figures_are_named_where_they_are(mue, monkeypatch):
    calls = []

    @functools.wraps(figure)
    def plotted(models, **options):
        calls.append((models, options["out"]))
        return FigureResult((Path("plots/modes.png"), Path("plots/answers.png")))

    monkeypatch.setitem(COMMANDS, "figure", plotted)
    said = mue("figure", "guess", "--out", "plots")
    assert (said.code, said.out) == (0, "figure   plots/modes.png\nfigure   plots/answers.png\n")
    assert calls == [(("guess",), "plots")]


def test_the_demonstration_prints_both_tables_and_says_where_everything_is(mue, monkeypatch):
    judged = ModeEvaluation(
        predicted=torch.tensor([[0.6, 0.4]]),
        true=torch.tensor([[0.7, 0.3]]),
        rest=torch.zeros(1),
        group=("A",),
        modes=torch.tensor([2]),
        codes=2,
        k=2,
        split="test",
        seed=0,
    )

    @functools.wraps(demo)
    def evaluated(out, *, progress, **_):
        out = Path(out)
        models = load_models(DEMO, device="cpu")
        for model in models:
            progress(model.name, 1000, 1000)
        files = [out / "figures" / model / "modes.png" for model in DEMO]
        reports = {model.name: report(model, judged) for model in models}
        return DemoResult(reports, (out / "report.json", *files))

    monkeypatch.setitem(COMMANDS, "demo", evaluated)
    said = mue("demo", "--out", "shown")
    assert said.code == 0
    assert said.out.count("mode_tv  mean 0.1000") == 2
    for line in ("report   shown/report.json", "figure   shown/figures/guess-exact/modes.png"):
        assert line in said.out.splitlines()
    assert "1000/1000" in said.err
