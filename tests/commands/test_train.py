import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import tyro
from jaxtyping import Int
from PIL import Image
from run_folders import KEPT, VALIDATED, Killed, files, resumed, same, steps
from torch import Tensor, nn

import mue
from mue.commands import train as command
from mue.commands.calibrate import calibrate
from mue.commands.train import train
from mue.config.presets import preset
from mue.config.schema import ComputeConfig, Config
from mue.data.build import build_source
from mue.data.prepared.write import write_prepared
from mue.data.random import uniform
from mue.data.synthetic.toy import Bars
from mue.errors import MueError
from mue.evaluation.health import health
from mue.inference.load import load
from mue.models.build import build_learner, build_modal
from mue.nn.backbone import Backbone, Features
from mue.runs.folder import CONFIG, WEIGHTS, load_config, origin
from mue.runs.log import best_validation, read_log, read_validations
from mue.runs.weights import export_run, load_network, load_tensors
from mue.types import Case, Pair

CPU = torch.device("cpu")


# --- the folder -----------------------------------------------------------------------------------


def test_a_run_leaves_all_that_others_need(trained):
    assert KEPT | {"figures/history.png"} <= set(files(trained))
    assert load_network(trained, CPU)
    assert resumed(trained).step == 12
    with Image.open(trained / "figures" / "history.png") as plot:
        plot.verify()


@pytest.mark.parametrize("validated", [False, True])
def test_what_train_returns_lists_what_it_wrote_and_stands_for_the_model(tiny, tmp_path, validated):
    said: list[str] = []
    config = tiny("exact", **(VALIDATED if validated else {}))
    run = train(config, tmp_path / "run", on_message=said.append)
    written = {p for p in run.folder.rglob("*") if p.is_file()}
    assert set(run.files) == {p for p in written if "tensorboard" not in p.parts}
    assert run.notes == tuple(said)
    assert run.notes[0] == "computing on cpu: float32"
    assert run.health is not None
    assert run.health.report() == json.loads((run.folder / "health.json").read_text())
    assert run.best == (best_validation(read_validations(run.folder)) if validated else None)
    x = Bars().case(torch.arange(2)).x
    assert torch.equal(load(run).propose(x, k=2).prob, load(run.folder).propose(x, k=2).prob)
    again = mue.evaluate(run, inputs=2, device="cpu").report
    assert again["model"] == str(run.folder)


def test_what_this_machine_cannot_do_is_refused_before_anything_is_written(tiny, tmp_path):
    config = tiny()
    config = dataclasses.replace(config, compute=ComputeConfig(device="cpu", cuda_graph="on"))
    with pytest.raises(
        ValueError, match=r"compute.cuda_graph is on, and CUDA graphs need a CUDA device"
    ):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_how_it_is_computed_is_printed_before_the_first_step(tiny, tmp_path):
    messages: list[str] = []
    train(
        tiny(steps=1),
        tmp_path / "run",
        on_message=messages.append,
        on_record=lambda r: messages.append(str(r.step)),
    )
    assert messages == ["computing on cpu: float32", "1"]


# --- parts of one's own ---------------------------------------------------------------------------


class Signs:
    """x is an image of one number; y is bright with probability 0.7, whatever the number."""

    device, on_device = CPU, True

    def pair(self, index):
        x = uniform(0, index, 1).view(-1, 1, 1, 1).expand(-1, 1, 4, 4)
        bright = uniform(0, index, 1, salt=1) < 0.7
        return Pair(x.contiguous(), bright.float().view(-1, 1, 1, 1, 1).expand(-1, 1, 1, 4, 4))

    def case(self, index):
        raise NotImplementedError  # training does not ask for it


class Dot(nn.Module):
    """An encoder that sees the mean of an image."""

    axes = 3

    def __init__(self, c_in: int) -> None:
        super().__init__()
        self.read = nn.Linear(c_in, 5)

    def forward(self, x):
        h = self.read(x.mean(dim=(2, 3)))
        return Features((h,), h, tuple(x.shape[-2:]))


class Fill(nn.Module):
    """A decoder that fills the image with one number."""

    def __init__(self, code_width: int, heads: int) -> None:
        super().__init__()
        self.read = nn.Linear(code_width, heads)

    def forward(self, features, codes):
        return self.read(codes)[..., None, None].expand(-1, -1, -1, *features.size)


DOTS = Backbone(Dot, Fill, width=5)


def test_a_data_set_and_a_backbone_of_ones_own_are_trained_resumed_and_loaded(tiny, tmp_path):
    config = tiny("exact", steps=120, batch=64, lr=0.05, ema=0.9)
    own: dict[str, Any] = {"source": Signs(), "backbone": DOTS}
    folder = train(config, tmp_path / "run", **own).folder
    kept = load_config(folder)
    assert (kept.data.name, kept.model.backbone) == ("own", "own")
    for untouched in ("train", "objective", "codebook", "compute"):
        assert getattr(kept, untouched) == getattr(config, untouched)
    with pytest.raises(ValueError, match=r"model\.backbone must be one of unet, .*, got 'own'"):
        load_network(folder, CPU)
    network = load_network(folder, CPU, build_modal(kept, DOTS))
    found = network.propose(torch.full((1, 1, 4, 4), 0.5), 6)
    bright = found.prob @ found.logits[0, :, 0, 0, 0].sigmoid()
    assert bright.item() == pytest.approx(0.7, abs=0.1)
    before = files(folder)[WEIGHTS]
    train(kept, folder, resume=True, **own)  # nothing is left to do
    assert files(folder)[WEIGHTS] == before
    half = tmp_path / "half"
    export_run(folder, half)
    assert load_network(half, CPU, build_modal(kept, DOTS)).propose(torch.ones(1, 1, 4, 4), 1)


def test_the_own_learner_that_the_configuration_would_build_gives_the_same_weights(
    trained, tmp_path
):
    config = load_config(trained)
    torch.manual_seed(config.train.seed)
    folder = train(config, tmp_path / "run", learner=build_learner(config)).folder
    assert files(folder)[WEIGHTS] == files(trained)[WEIGHTS]
    assert load_config(folder).model.backbone == "own"


class Counting(Dot):
    def __init__(self, c_in: int) -> None:
        super().__init__(c_in)
        self.norm = nn.BatchNorm1d(5)


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"source": Signs(), "data": "some"}, "`data` must be left out where `source` is given"),
        (
            {"source": Signs(), "backbone": Backbone(Counting, Fill, width=5)},
            r"must keep its state in parameters, got the buffer 'encoder\.norm\.running_mean'",
        ),
    ],
)
def test_parts_that_cannot_be_used_are_refused_before_anything_is_written(
    tiny, tmp_path, own, words
):
    with pytest.raises(MueError, match=words):
        train(tiny(), tmp_path / "run", **own)
    assert not (tmp_path / "run").exists()


# --- validation -----------------------------------------------------------------------------------


def scored(monkeypatch, *scores: float) -> dict[int, dict[str, torch.Tensor]]:
    """Validations with these scores, one after the other; returns the weights of each by step."""
    left, seen = iter(scores), dict[int, dict[str, torch.Tensor]]()
    validate = command.validate

    def scoring(predictor, step, *sources):
        seen[step] = {name: w.clone() for name, w in predictor.network.named_parameters()}
        return dataclasses.replace(validate(predictor, step, *sources), score=next(left))

    monkeypatch.setattr(command, "validate", scoring)
    return seen


def test_the_best_weights_are_exported_and_the_last_are_resumed_from(tiny, tmp_path, monkeypatch):
    seen = scored(monkeypatch, 0.3, 0.2, 0.2)
    messages: list[str] = []
    out = train(tiny("exact", **VALIDATED), tmp_path / "run", on_message=messages.append).folder
    exported, last = load_tensors(out / WEIGHTS), resumed(out)
    for name, value in exported.items():
        assert torch.equal(value, seen[10][name])
    assert last.step == 12
    assert any(not torch.equal(last.ema[name], value) for name, value in exported.items())
    assert last.best is not None
    assert (last.best.step, last.best.score, last.best.since) == (10, 0.2, 1)
    best = best_validation(read_validations(out))
    assert (best.step, best.score) == (10, 0.2)
    assert messages[-1] == "the weights are those of step 10, the best by validation"


@pytest.fixture(scope="module")
def calibrating(lesion_config) -> Config:
    """Validated at steps 8, 16 and 20, saved at 10 and 20, then calibrated."""
    more: dict[str, Any] = {"validate_every": 8, "validate_inputs": 6, "calibrate": True}
    train = dataclasses.replace(lesion_config.train, steps=20, save_every=10, **more)
    return dataclasses.replace(lesion_config, train=train)


@pytest.fixture(scope="module")
def calibrated(calibrating, lesions, tmp_path_factory) -> Path:
    return train(calibrating, tmp_path_factory.mktemp("calibrated") / "run", data=lesions).folder


@pytest.mark.parametrize("write", range(1, 11))
def test_a_validated_and_calibrated_run_that_dies_before_any_of_its_writes_ends_the_same(
    calibrating, calibrated, lesions, tmp_path, monkeypatch, write
):
    """Writes: configuration, log, state, weights, weights, state, calibrated, the history."""
    left, replace = iter(range(write - 1, -1, -1)), os.replace

    def dying(source, target):
        if next(left) == 0:
            raise Killed
        replace(source, target)

    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", dying)
        with pytest.raises(Killed):
            train(calibrating, out, data=lesions)
    train(calibrating, out, data=lesions, resume=True)
    assert same(out, calibrated)
    assert read_validations(out) == read_validations(calibrated)
    assert [v.step for v in read_validations(out)] == [8, 16, 20]
    assert files(out)[CONFIG] == files(calibrated)[CONFIG]


def test_training_stops_when_its_patience_is_out_and_is_then_finished(tiny, tmp_path, monkeypatch):
    config = tiny("exact", ema=0.9, validate_every=2, validate_inputs=8, patience=2)
    messages: list[str] = []
    with monkeypatch.context() as patch:
        seen = scored(patch, 0.3, 0.2, 0.3, 0.2)
        out = train(config, tmp_path / "run", on_message=messages.append).folder
    words = "stopped at step 8: 2 validations without a better one; the weights are those of step 4"
    assert messages[-1].startswith(words)
    assert [v.stopped for v in read_validations(out)] == [False, False, False, True]
    assert steps(out)[-1] == resumed(out).step == 8
    assert all(torch.equal(v, seen[4][name]) for name, v in load_tensors(out / WEIGHTS).items())
    before = {name: files(out)[name] for name in KEPT}
    messages.clear()
    train(config, out, resume=True, on_message=messages.append)
    assert {name: files(out)[name] for name in KEPT} == before
    assert messages[-1].startswith(words)


def test_patience_that_is_out_at_the_last_step_stopped_nothing(tiny, tmp_path, monkeypatch):
    scored(monkeypatch, 0.3, 0.4)
    config = tiny("exact", validate_every=6, validate_inputs=8, patience=1)
    messages: list[str] = []
    out = train(config, tmp_path / "run", on_message=messages.append).folder
    assert resumed(out).step == 12
    assert not any(v.stopped for v in read_validations(out))
    assert messages[-1] == "the weights are those of step 6, the best by validation"


def test_a_calibrated_training_is_that_of_mue_calibrate(calibrating, lesions, tmp_path):
    messages: list[str] = []
    plain = dataclasses.replace(calibrating.train, calibrate=False)
    raw = train(
        dataclasses.replace(calibrating, train=plain), tmp_path / "raw", data=lesions
    ).folder
    out = train(calibrating, tmp_path / "run", data=lesions, on_message=messages.append).folder
    calibrate(raw, tmp_path / "new", data=lesions, half=False, device="cpu")
    ours, theirs, before = (load_tensors(f / WEIGHTS) for f in (out, tmp_path / "new", raw))
    torch.testing.assert_close(ours, theirs)
    assert (ours["prior.bias"] - before["prior.bias"]).abs().max() > 0.01
    assert load_config(out).modes == load_config(tmp_path / "new").modes
    assert origin(out)["calibration"]["shift"] == origin(tmp_path / "new")["calibration"]["shift"]
    assert messages[-1].startswith("calibrated on val: temperature ")
    kept = {name: files(out)[name] for name in KEPT}
    train(calibrating, out, data=lesions, resume=True)  # nothing is left to do
    assert {name: files(out)[name] for name in KEPT} == kept


class AskedBars(Bars):
    """The same as if raters had been asked: there may be other answers."""

    def case(self, index: Int[Tensor, " b"]) -> Case:
        return dataclasses.replace(super().case(index), known=False)


@pytest.mark.parametrize(("kind", "metric"), [(Bars, "mode_tv"), (AskedBars, "ged")])
def test_a_data_set_of_ones_own_is_validated_and_calibrated_on_another(
    tiny, tmp_path, kind, metric
):
    """By the probabilities of the answers, where it says that they are known."""
    config = tiny("exact", **VALIDATED, calibrate=True)
    out = train(config, tmp_path / "run", source=Bars(), validation=kind(seed=1)).folder
    assert [v.metric for v in read_validations(out)] == [metric] * 3
    assert origin(out)["calibration"]["inputs"] == 1000


@pytest.mark.parametrize("prepared", [True, False])
@pytest.mark.parametrize(
    "asked",
    [
        {"validate_every": 5},
        {"calibrate": True},
        {"validate_every": 5, "patience": 2, "calibrate": True},
    ],
)
def test_without_inputs_held_back_a_training_runs_as_its_refusal_says(
    tiny, lesion_config, patients, lesion, tmp_path, asked, prepared
):
    where: dict[str, Any] = {"source": Bars()}
    config: Config = tiny("exact")
    if prepared:
        items = [lesion(name, 1, 1) for name in patients("train", 2)]
        write_prepared(items, tmp_path / "data", {"form": "made up"})
        config, where = lesion_config, {"data": tmp_path / "data"}
    config = dataclasses.replace(
        config, train=dataclasses.replace(config.train, steps=1, batch=2, **asked)
    )
    with pytest.raises(MueError, match=r"split 'val'|does not hold") as refused:
        train(config, tmp_path / "run", **where)
    options = str(refused.value).partition("--")
    advice = "".join(options[1:]).split()
    changed = tyro.cli(Config, args=advice, default=config)
    assert read_log(train(changed, tmp_path / "run", **where).folder)


def test_a_model_of_vectors_is_not_calibrated(tmp_path):
    config = preset("vector")
    masks = dataclasses.replace(config.objective, likelihood="bernoulli")
    calibrated = dataclasses.replace(config.train, steps=1, calibrate=True)
    config = dataclasses.replace(config, objective=masks, train=calibrated)
    with pytest.raises(MueError, match="calibration compares answers as masks"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_model_is_judged_on_the_very_device_it_was_trained_on(tiny, tmp_path, monkeypatch):
    """As on the second GPU of a machine."""
    where: list[torch.device] = []

    def noted(*model, device, **options):
        where.append(device)
        return load(*model, device=device, **options)

    there = torch.device("cpu", 0)
    monkeypatch.setattr("mue.commands.train.load", noted)
    train(tiny("exact"), tmp_path / "run", source=Bars(device=there), validation=Bars(device=there))
    assert where == [there]


# --- health ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("calibrated", [False, True])
def test_a_training_ends_with_the_health_of_the_exported_model(tiny, tmp_path, calibrated):
    folder = train(tiny("exact", **VALIDATED, calibrate=calibrated), tmp_path / "run").folder
    held_back, source = (
        build_source(load_config(folder).data, split, seed=0, device=torch.device("cpu"))
        for split in ("val", "train")
    )
    predictor = load(folder, device="cpu")
    expected = health(predictor, held_back, train=source, inputs=8).report()
    assert json.loads((folder / "health.json").read_text()) == expected
    with Image.open(folder / "figures" / "health.png") as image:
        assert image.width > 300


def test_a_training_without_validation_ends_with_a_health_report_too(trained):
    assert json.loads((trained / "health.json").read_text())["inputs"] == 8
    assert read_validations(trained) == []


def test_a_training_that_holds_nothing_back_says_that_there_is_no_health_report(tiny, tmp_path):
    said: list[str] = []
    folder = train(tiny("exact"), tmp_path / "run", source=Bars(), on_message=said.append).folder
    assert said[-1] == "there is no health report: no inputs were held back from training"
    assert not (folder / "health.json").exists()


def test_the_health_of_slices_is_judged_on_patients_of_val(lesion_config, lesions, tmp_path):
    t = dataclasses.replace(lesion_config.train, steps=4, validate_every=4)
    folder = train(
        dataclasses.replace(lesion_config, train=t), tmp_path / "run", data=lesions
    ).folder
    assert json.loads((folder / "health.json").read_text())["inputs"] == 12


def test_what_is_held_back_may_have_several_sizes_where_one_is_trained_on(
    lesion_config, lesion, patients, tmp_path
):
    items = [lesion(name, 1, 9) for name in patients("train", 2)]
    items += [
        lesion(name, 1, 9, side=s) for s, name in zip((16, 24), patients("val", 2), strict=True)
    ]
    write_prepared(items, tmp_path / "data", {"form": "made up"})
    for every in (0, 2):
        t = dataclasses.replace(lesion_config.train, steps=2, validate_every=every)
        config = dataclasses.replace(lesion_config, train=t)
        folder = train(config, tmp_path / f"run-{every}", data=tmp_path / "data").folder
        assert json.loads((folder / "health.json").read_text())["inputs"] == 2
