"""Evaluation where images differ in size, raters in number and weight, and classes are several."""

import csv
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from oracle import Oracle
from torch import Tensor

from mue.data.prepared.dataset import Slices
from mue.data.prepared.item import Item
from mue.data.prepared.open import open_prepared
from mue.data.prepared.write import write_prepared
from mue.evaluation.raters import RaterEvaluation, evaluate_raters
from mue.inference.load import load
from mue.types import Case, Hypotheses

LABELS = ("background", "cup", "disc")
CLOSE: dict[str, Any] = {"atol": 1e-5, "rtol": 0}


@pytest.fixture(scope="module")
def labelled(patients, tmp_path_factory) -> Path:
    """Six test images of two sizes with one to three raters, some of whom weigh more."""
    items: list[Item] = []
    for i, patient in enumerate(patients("test", 6)):
        random = np.random.default_rng(i)
        size, raters = ((6, 8), (9, 5))[i % 2], 1 + i % 3
        masks = random.choice(3, size=(raters, *size), p=(0.5, 0.4, 0.1)).astype(np.uint8)
        masks[0] *= i != 1  # nobody has to annotate something
        masks[-1][masks[-1] == 2] = 0
        items.append(
            Item(
                patient=patient,
                case="a",
                source="made up",
                image=random.integers(256, size=(1, *size), dtype=np.uint8),
                masks=masks,
                weights=(0.6, 0.3, 0.1) if raters == 3 else None,
            )
        )
    folder = tmp_path_factory.mktemp("labelled") / "prepared"
    write_prepared(items, folder, {"form": "made up", "known_probabilities": True}, labels=LABELS)
    return folder


@pytest.fixture
def evaluate(lesion_model, labelled):
    predictor = load(lesion_model, device="cpu")
    c = predictor.config
    config = dataclasses.replace(
        c,
        data=dataclasses.replace(c.data, labels=LABELS),
        model=dataclasses.replace(c.model, c_out=3),
        objective=dataclasses.replace(c.objective, likelihood="categorical"),
    )
    source = Slices(open_prepared(labelled), "test", config.data)
    cases = [source.case(torch.tensor([i])) for i in range(len(source))]

    def run(answer: Any, batch: int = 32) -> tuple[RaterEvaluation, list[Case]]:
        def propose(image: Tensor) -> Hypotheses:
            found = [answer(c) for x in image for c in cases if torch.equal(c.x[0], x)]
            y, prob = (torch.cat(t) for t in zip(*found, strict=True))
            prob, order = prob.sort(dim=1, descending=True)
            return Hypotheses(y[torch.arange(len(y))[:, None], order], prob, order)

        oracle = Oracle(predictor, propose, config)
        return evaluate_raters(oracle, labelled, batch=batch), cases

    return run


def only_second_class(case: Case) -> tuple[Tensor, Tensor]:
    y = torch.zeros_like(case.ys[:, :1])
    y[:, :, 1] = 1
    return y, torch.ones(1, 1)


def slow_distance(a: Tensor, b: Tensor, classes: tuple[int, ...] = (1, 2)) -> float:
    """Of two label maps, by hand."""
    each: list[float] = []
    for c in classes:
        either = ((a == c) | (b == c)).sum().item()
        if either:
            each.append(1 - ((a == c) & (b == c)).sum().item() / either)
    return sum(each) / len(each) if each else 0.0


def slow_ged(case: Case, classes: tuple[int, ...] = (1, 2)) -> float:
    """Of `only_second_class`, by loops over the raters who are there."""
    q, labels = case.q[0].tolist(), case.ys[0].argmax(dim=1)
    there = [i for i, w in enumerate(q) if w > 0]
    s = torch.ones_like(labels[0])
    cross = sum(q[i] * slow_distance(s, labels[i], classes) for i in there)
    within = sum(
        q[i] * q[j] * slow_distance(labels[i], labels[j], classes) for i in there for j in there
    )
    return 2 * cross - within


def test_the_raters_own_answers_by_their_weights_have_no_error(evaluate):
    found, _ = evaluate(lambda case: (case.ys, case.q), batch=4)
    zero = torch.zeros(6)
    for name in ("ged", "mode_tv", "in_no_mode"):
        torch.testing.assert_close(found.columns[name], zero, **CLOSE, msg=name)
    torch.testing.assert_close(found.columns["presence"], found.columns["annotated"], **CLOSE)
    for columns in found.classes.values():
        torch.testing.assert_close(columns["ged"], zero, **CLOSE)
        torch.testing.assert_close(columns["presence"], columns["annotated"], **CLOSE)


def test_missing_raters_and_the_background_do_not_count(evaluate):
    """Against loops over raters and classes."""
    found, cases = evaluate(only_second_class)
    assert found.columns["ged"].tolist() == pytest.approx([slow_ged(c) for c in cases], abs=1e-5)
    assert list(found.classes) == ["cup", "disc"]
    for i, name in enumerate(found.classes, start=1):
        expected = [slow_ged(c, (i,)) for c in cases]
        assert found.classes[name]["ged"].tolist() == pytest.approx(expected, abs=1e-5)


def test_presence_is_that_of_any_class_but_the_background(evaluate):
    found, cases = evaluate(only_second_class)
    assert torch.equal(found.columns["presence"], torch.ones(6))
    assert torch.equal(found.classes["disc"]["presence"], torch.zeros(6))
    share = [
        (c.q[0] * (c.ys[0].argmax(dim=1) > 0).flatten(1).any(dim=1)).sum().item() for c in cases
    ]
    assert found.columns["annotated"].tolist() == pytest.approx(share)
    assert min(share) < 1


def test_hungarian_matching_leaves_missing_raters_out(evaluate):
    """One answer is matched with every rater who is there, each once."""
    found, cases = evaluate(only_second_class)
    for value, case in zip(found.columns["hm_iou_16"].tolist(), cases, strict=True):
        labels = case.ys[0].argmax(dim=1)[case.q[0] > 0]
        each = [1 - slow_distance(torch.ones_like(one), one) for one in labels]
        assert value == pytest.approx(sum(each) / len(each), abs=1e-5)


def test_raters_who_agree_are_one_true_answer(evaluate):
    """A wrong answer takes the probability of the nearest right one: what is left is the error."""

    def first_alone(case: Case) -> tuple[Tensor, Tensor]:
        return case.ys[:, :1], torch.ones(1, 1)

    found, cases = evaluate(first_alone)
    for value, case in zip(found.columns["mode_tv"].tolist(), cases, strict=True):
        same = [bool((case.ys[0, i] == case.ys[0, 0]).all()) for i in range(case.ys.shape[1])]
        share = sum(w for w, equal in zip(case.q[0].tolist(), same, strict=True) if equal)
        assert value == pytest.approx(1 - share, abs=1e-5)


def test_a_report_and_a_table_have_each_class(evaluate, tmp_path):
    found, _ = evaluate(only_second_class)
    report: Any = json.loads(json.dumps(found.report(), allow_nan=False))
    assert list(report["classes"]) == ["cup", "disc"]
    names = {"ged", "ged_16", "hm_iou_16", "dice_top", "presence brier", "presence ece"}
    assert set(report["classes"]["cup"]) == names
    mean = found.classes["cup"]["ged"].mean().item()
    assert report["classes"]["cup"]["ged"]["mean"] == pytest.approx(mean, abs=1e-6)
    found.save_table(tmp_path / "slices.csv")
    rows = list(csv.DictReader((tmp_path / "slices.csv").read_text().splitlines()))
    assert float(rows[2]["ged cup"]) == pytest.approx(
        found.classes["cup"]["ged"][2].item(), abs=1e-5
    )


def test_without_known_probabilities_or_classes_a_report_has_neither(lesion_model, lesions):
    found = evaluate_raters(load(lesion_model, device="cpu"), lesions)
    assert "mode_tv" not in found.columns
    assert not found.classes
    assert "classes" not in found.report()
