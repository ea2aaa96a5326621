"""Reports as JSON."""

import json

import pytest
import torch

from mue.commands.models import load_models
from mue.commands.report import check_report, report, save_report
from mue.errors import MueError
from mue.evaluation.known import ModeEvaluation
from mue.inference.load import load
from mue.runs.weights import weights_digest
from mue.version import __version__

ABOUT = {"model": "1f", "data": None, "split": "test", "seed": 0}


@pytest.fixture
def evaluation() -> ModeEvaluation:
    """Of one input with two modes, whose probabilities are off by a quarter."""
    return ModeEvaluation(
        predicted=torch.tensor([[0.5, 0.5]]),
        true=torch.tensor([[0.75, 0.25]]),
        rest=torch.zeros(1),
        group=("g",),
        modes=torch.tensor([2]),
        codes=2,
        k=2,
        seed=0,
    )


def test_a_report_of_the_same_evaluation_may_be_replaced(tmp_path):
    path = tmp_path / "report.json"
    check_report(path, ABOUT)
    save_report(path, {"ged": 0.5, "identity": ABOUT})
    check_report(path, ABOUT)


@pytest.mark.parametrize(
    ("identity", "words"),
    [
        ({**ABOUT, "seed": 1}, "by its seed; remove it, or take another --out"),
        ({**ABOUT, "model": "2e", "data": "d"}, "by its model, data; remove it"),
        ({}, "by its model, split, seed; remove it"),
        (None, "by its model, split, seed; remove it"),
    ],
)
def test_a_report_of_another_evaluation_is_kept_and_what_differs_is_named(
    tmp_path, identity, words
):
    """What has no identity is of an older version."""
    path = save_report(tmp_path / "report.json", {"ged": 0.5, "identity": identity})
    with pytest.raises(MueError, match=words):
        check_report(path, ABOUT)


@pytest.mark.parametrize("content", ["", "{cut", "[1]", "3", "[" * 100_000])
def test_what_is_no_report_stands_in_nobodys_way(tmp_path, content):
    path = tmp_path / "report.json"
    path.write_text(content)
    check_report(path, ABOUT)


def test_a_report_is_indented_json_that_ends_its_line(tmp_path):
    path = save_report(tmp_path / "report.json", {"a": [0.5, None]})
    assert json.loads(path.read_text()) == {"a": [0.5, None]}
    assert path.read_text().startswith('{\n  "a"')
    assert path.read_text().endswith("}\n")


def test_a_report_has_the_model_its_training_and_the_metrics(folder, evaluation):
    (model,) = load_models([folder], device="cpu")
    found = report(model, evaluation)
    assert (found["model"], found["method"]) == (str(folder), "exact")
    assert found["weights"] == weights_digest(folder)
    assert found["trained_with"]["version"] == __version__
    assert found["evaluated_with"] == {"version": __version__, "torch": torch.__version__}
    assert found["mode_tv"]["mean"] == 0.25


def test_of_a_predictor_it_is_not_said_where_it_came_from(folder, evaluation):
    (model,) = load_models([load(folder, device="cpu")])
    found = report(model, evaluation)
    assert found["model"] == "model 1"
    assert not {"weights", "trained_with"} & set(found)
