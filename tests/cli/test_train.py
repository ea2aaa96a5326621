import dataclasses
import re
from pathlib import Path

import pytest

from mue.commands.train import TrainResult
from mue.config.presets import preset
from mue.runs.folder import load_config

SMALL = """--model.levels 4 8 --model.tail 8 --model.widths 4 --train.steps 2
    --train.batch 8 --compute.device cpu"""


def test_training_says_where_it_went(mue, tmp_path):
    said = mue("train", "toy", "--out", "run", "--seed", 5, "--train.lr", "3e-4", *SMALL.split())
    assert said.code == 0
    assert "trained  run\n" in said.out
    assert "figure   run/figures/history.png\n" in said.out
    assert "mue evaluate run" in said.out
    config, default = load_config(tmp_path / "run"), preset("toy")
    assert (config.train.seed, config.train.lr, config.train.steps) == (5, 3e-4, 2)
    assert (config.model.levels, config.codebook) == ((4, 8), default.codebook)
    mentioned = ("prior", "reconstruction", "codes", "2/2", "best", "nll", "ece")  # the bars
    assert all(word in said.err for word in mentioned)


def test_a_training_ends_with_its_health_and_what_to_do(mue):
    said = mue("train", "toy", "--out", "run", "--codebook.size", 1, *SMALL.split())
    assert "health   found: one code (codes in use: 1; mode_tv 0." in said.out
    assert "Train again with another --train.seed" in said.out
    assert "codes    0 100%\nfigure   run/figures/health.png\n" in said.out
    assert Path("run/figures/health.png").exists()


@pytest.fixture
def asked(monkeypatch) -> list:
    """The configurations that training was asked for, instead of training."""
    found = []

    def train(config, out, **_):
        found.append(config)
        return TrainResult(Path(out))

    monkeypatch.setattr("mue.commands.train.train", train)
    return found


@pytest.mark.parametrize(
    "spelled", ["--preset-schedule paper", "--preset-schedule=paper", "--preset_schedule paper"]
)
def test_the_papers_schedule_can_be_had(mue, asked, spelled):
    assert mue("train", "guess", "--out", "new", *spelled.split()).code == 0
    (config,) = asked
    assert config == preset("guess", "paper")
    assert (config.train.steps, config.train.lr, config.train.batch) == (150_000, 1e-4, 256)
    assert config != preset("guess")


def test_the_papers_schedule_can_be_overridden(mue, asked):
    mue("train", "guess", "--out", "a", "--preset-schedule", "paper", "--train.steps", 7)
    mue("train", "guess", "--out", "b", "--preset-schedule", "short")
    mue("train", "guess", "--out", "paper")
    paper = preset("guess", "paper")
    seven = dataclasses.replace(paper, train=dataclasses.replace(paper.train, steps=7))
    assert asked == [seven, preset("guess"), preset("guess")]


def test_every_part_of_a_configuration_can_be_overridden(mue, asked):
    overrides = """--method vq --codebook.size 64 --model.tail --train.milestones 0.5
        --train.factors 0.1 --compute.no-channels-last --objective.commitment 0.5"""
    assert mue("train", "toy", "--out", "new", *overrides.split()).code == 0
    (config,) = asked
    assert (config.method, config.codebook.size, config.model.tail) == ("vq", 64, ())
    assert (config.train.milestones, config.train.factors) == ((0.5,), (0.1,))
    assert not config.compute.channels_last
    assert config.objective.commitment == 0.5


def test_help_names_presets_and_values(mue):
    said = mue("train", "--help")
    assert said.code == 0
    assert "guess-quick" in said.out
    said = mue("train", "toy", "--help")
    assert said.code == 0
    assert "--train.lr" in said.out
    said = mue("--help")
    assert said.code == 0
    for command in [
        "demo",
        "data",
        "train",
        "evaluate",
        "predict",
        "figure",
        "compare",
        "calibrate",
        "export",
    ]:
        assert command in said.out


SHORT = "--train.steps 4 --train.batch 8 --train.validate-inputs 8 --compute.device cpu"


def test_a_training_shows_its_validations_and_offers_calibration(mue):
    said = mue(*f"train toy --out run --train.validate-every 2 --train.log-every 1 {SHORT}".split())
    assert said.code == 0, said.err
    assert "the best by validation" in said.err
    assert "inputs not trained on: mue calibrate run run-calibrated\n" in said.out


def test_calibration_is_not_offered_where_it_is_done_or_cannot_be(mue):
    done = mue(*f"train toy --out done --train.calibrate {SHORT}".split())
    assert done.code == 0, done.err
    assert "calibrated on val: temperature" in done.err
    vector = mue(*f"train vector --out vector {SHORT}".split())
    assert "mue calibrate" not in done.out + vector.out


def test_the_progress_of_a_training_has_the_last_validation_and_the_best(mue):
    said = mue(*f"train toy --out run --train.validate-every 2 --train.log-every 1 {SHORT}".split())
    assert re.search(r"mode_tv 0\.\d{4} \(best 0\.\d{4} at [24]\)", said.err), said.err
