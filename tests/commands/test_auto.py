import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import mue as package
from mue.data.prepared.item import Item
from mue.data.prepared.splits import Split
from mue.data.prepared.write import write_prepared
from mue.errors import MueError
from mue.runs.folder import load_config

TINY = ("--model.levels", 4, 8, "--model.widths", 4, "--model.tail", 8, "--model.code-level", 3)


@pytest.fixture(scope="session")
def own(patients, tmp_path_factory) -> Path:
    """RGB images of two sizes, two classes, one to three raters."""
    items: list[Item] = []
    splits: tuple[Split, ...] = ("train", "val", "test")
    for i, patient in enumerate(name for split in splits for name in patients(split, 4)):
        random, size, raters = np.random.default_rng(i), ((20, 24), (24, 20))[i % 2], 1 + i % 3
        masks = np.zeros((raters, *size), np.uint8)
        for r in range(raters):
            masks[r, 4 : 8 + 2 * r, 6:16] = 1 + random.integers(2)
        image = np.where(masks[-1] > 0, 200, 40) + random.integers(30, size=(3, *size))
        items.append(
            Item(patient=patient, case="a", source="x", image=image.astype(np.uint8), masks=masks)
        )
    folder = tmp_path_factory.mktemp("own") / "prepared"
    labels, values = ("background", "cup", "disc"), (0, 1, 4)
    write_prepared(items, folder, {"form": "made up"}, labels=labels, values=values)
    return folder


def test_it_trains_says_why_and_writes_it(mue, own):
    run = mue("train", "auto", "--data", own, "--out", "run", "--train.steps", 3, *TINY)
    assert run.code == 0, run.err
    content = json.loads(Path("run/config.json").read_text())
    reasons = content["reasons"]
    assert reasons["data.patch"].startswith("20 x 20 of images of 20 x 20 to 24 x 24")
    assert "1 to 3 raters" in reasons["data.answers"]
    assert "model.levels" not in reasons  # which was overridden
    for name, why in reasons.items():
        assert f"{name:<21}{why}" in run.err
    config = load_config(Path("run"))
    assert (config.train.steps, config.model.levels) == (3, (4, 8))
    assert config.train.calibrate
    assert json.loads(Path("run/config.json").read_text())["calibration"]["split"] == "val"
    evaluated = mue("evaluate", "run", "--data", own)
    assert evaluated.code == 0, evaluated.err
    assert "disc" in evaluated.out
    same = mue("train", "auto", "--data", own, "--out", "run", "--resume")
    assert same.code == 0, same.err  # there is nothing left to do
    Image.new("RGB", (24, 20), "red").save("red.png")
    formats = ("--format", "png", "json", "npz")
    assert mue("predict", "run", "red.png", "--out", "answers", *formats).code == 0
    with Image.open("answers/red-1.png") as file:  # three classes, not three colours
        assert (file.mode, file.size) == ("P", (24, 20))
        answer = np.asarray(file)
    assert set(np.unique(answer)) <= {0, 1, 4}
    with np.load("answers/red.npz") as arrays:
        assert np.array_equal(arrays["masks"][0], answer)
    labels = json.loads(Path("answers/red.json").read_text())["labels"]
    assert labels == {"background": 0, "cup": 1, "disc": 4}


def test_the_baseline_has_the_same_settings(mue, own):
    arguments = ("--data", own, "--train.steps", 2, "--model.levels", 4, 8, "--model.widths", 4)
    run = mue("train", "auto", "--baseline", "unet", "--out", "run", *arguments)
    assert run.code == 0, run.err
    config = load_config(Path("run"))
    assert (config.method, config.data.patch, config.train.calibrate) == ("heads", (20, 20), False)


def test_the_number_of_steps_is_what_fits_into_the_time(own, monkeypatch):
    from mue.commands import auto as module

    monkeypatch.setattr(module, "_seconds", lambda *_: 0.1)
    found = package.auto(own, minutes=0.5, device="cpu")
    assert found.config.train.steps == 225
    assert package.auto(own, steps=7, device="cpu").config.train.steps == 7


def test_a_step_is_timed_without_a_trace(own):
    found = package.auto(own, minutes=0.01, device="cpu")
    assert "measured" in found.reasons["train.steps"]
    assert found.config.train.steps == 200  # the fewest


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("auto", "--out", "run"),
            "--data must name a folder of prepared data for `mue train auto`",
        ),
        (("auto", "--out", "run", "--data", "nowhere"), "nowhere is not prepared data"),
        (("toy", "--out", "run", "--minutes", "3"), "--minutes is for `mue train auto`"),
        (("toy", "--out", "run", "--baseline", "unet"), "--baseline is for `mue train auto`"),
    ],
)
def test_what_it_cannot_do_is_said_in_a_sentence(mue, arguments, words):
    run = mue("train", *arguments)
    assert run.code == 2
    assert words in run.err
    assert not Path("run").exists()


def test_several_processes_cannot_agree_on_a_time(own, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(MueError, match=r"--minutes must be left out where several processes train"):
        package.auto(own, minutes=3.0)
    assert package.auto(own, device="cpu").config.train.steps == 2000


def test_help_needs_no_data(mue):
    run = mue("train", "auto", "--help")
    assert run.code == 0
    assert "--minutes" in run.out


@pytest.fixture
def single(patients, lesion, tmp_path) -> Path:
    """Images with one rater each, none of them of val."""
    import dataclasses

    items = [lesion(p, 1, 9) for p in patients("train", 3)]
    one = [dataclasses.replace(item, masks=item.masks[:1]) for item in items]
    write_prepared(one, tmp_path / "single", {"form": "made up"})
    return tmp_path / "single"


def test_one_rater_works_and_no_val_is_said(mue, single):
    run = mue("train", "auto", "--data", single, "--out", "run", "--train.steps", 2)
    assert run.code == 0, run.err
    assert "no disagreement can be learned" in run.err
    assert "there is no image of the split val" in run.err


def test_without_an_image_to_train_on_nothing_is_written(mue, patients, lesion, tmp_path):
    write_prepared([lesion(patients("test", 1)[0], 1, 9)], tmp_path / "p", {"form": "made up"})
    run = mue("train", "auto", "--data", "p", "--out", "run")
    assert run.code == 2
    assert "at least one image of the split train" in run.err
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("out", "words"),
    [
        (("--out", "full"), "full must be empty or not exist yet"),
        (("--out", "full/file/x"), "must be a folder to write to, and full/file is a file"),
        ((), "--out"),
    ],
)
def test_a_folder_that_cannot_be_taken_is_refused_before_a_step_is_timed(
    mue, own, monkeypatch, out, words
):
    Path("full").mkdir()
    Path("full/file").touch()
    monkeypatch.setattr("mue.commands.auto._seconds", lambda *_: pytest.fail("it was timed"))
    said = mue("train", "auto", "--data", own, *out, "--minutes", 1)
    assert said.code == 2
    assert words in said.err
