import json
import os
from pathlib import Path
from typing import Any

import pytest
from answers_written import files

import mue
from mue.runtime.atomic import write_atomic


def recalibrate(folder: Path) -> None:
    """Give a run another calibration; its weights stay."""
    content = json.loads((folder / "config.json").read_text())
    content["config"]["modes"]["cut"] = 0.25
    (folder / "config.json").write_text(json.dumps(content))


def test_answers_do_not_overwrite_what_is_there(trained, images):
    """The first answer to `one` would be `one-1`, which is somebody's image."""
    images[1].rename(images[1].with_name("one-1.png"))
    before = files(images[0].parent)
    with pytest.raises(ValueError, match="must be empty or not exist yet"):
        mue.predict(trained, images[:1], k=2, out=images[0].parent, device="cpu")
    assert files(images[0].parent) == before


def test_what_is_done_is_skipped_and_other_formats_are_added(trained, images, tmp_path):
    out = tmp_path / "out"
    mue.predict(trained, images[:1], out=out, format=["json"], device="cpu")
    before = (out / "one.json").stat().st_mtime_ns
    result = mue.predict(trained, [images[0].parent], out=out, format=["json"], device="cpu")
    assert (result.done, [p.name for p in result.files]) == (1, ["two.json"])
    assert (out / "one.json").stat().st_mtime_ns == before
    more = mue.predict(trained, images, out=out, format=["json", "npz"], device="cpu")
    assert more.done == 0
    assert (out / "one.npz").exists()


def test_another_image_of_the_same_name_is_answered_anew(trained, images, tmp_path):
    """Each hospital has its `one.png`, and a file may be replaced by a better one."""
    out = tmp_path / "out"
    formats: list[Any] = ["png", "json", "npz"]
    other = tmp_path / "other" / "one.png"
    other.parent.mkdir()
    images[1].rename(other)
    arguments = {"out": out, "device": "cpu"}
    mue.predict(trained, images[:1], format=formats, **arguments)
    assert mue.predict(trained, images[:1], format=formats, **arguments).done == 1
    result = mue.predict(trained, [other], format=["json"], **arguments)
    alone = mue.predict(trained, [other], format=["json"], out=tmp_path / "alone", device="cpu")
    assert (result.done, result.report) == (0, alone.report)
    assert files(out) == files(tmp_path / "alone")  # nothing is left of the other image
    record = json.loads((out / "mue-predict" / "one.json").read_text())
    assert (record["image"], record["files"]) == ([str(other)], ["one.json"])
    moved = other.rename(tmp_path / "one.png")  # the same image
    assert mue.predict(trained, [moved], format=["json"], **arguments).done == 1


@pytest.mark.parametrize("content", ["{bad", "[1]", "{}", '{"files": 3}', '{"files": [[]]}'])
def test_a_damaged_record_of_an_image_is_written_again(trained, images, tmp_path, content):
    out = tmp_path / "out"
    arguments = {"out": out, "format": ["json"], "device": "cpu"}
    mue.predict(trained, images[:1], **arguments)
    before = files(out)
    (out / "mue-predict" / "one.json").write_text(content)
    assert mue.predict(trained, images[:1], **arguments).done == 0
    assert files(out) == before


def test_a_folder_within_the_folder_is_no_reason_to_refuse_it(
    trained, images, tmp_path, monkeypatch
):
    """A call that is interrupted while it writes OUT/a leaves a folder that the next goes on in."""
    folder = images[0].parent
    (folder / "a").mkdir()
    for image in images:
        image.rename(folder / "a" / image.name)
    arguments = {"out": tmp_path / "out", "device": "cpu"}

    def interrupted(path: Path, content: bytes) -> None:
        if path.name == "one-answers.png":
            raise KeyboardInterrupt
        write_atomic(path, content)

    with monkeypatch.context() as patch:
        patch.setattr("mue.inference.answers_folder.write_atomic", interrupted)
        with pytest.raises(KeyboardInterrupt):
            mue.predict(trained, [folder], **arguments)
    assert [p.name for p in (tmp_path / "out").rglob("*.png")] == []
    assert mue.predict(trained, [folder], **arguments).done == 0
    assert (tmp_path / "out" / "a" / "one-answers.png").exists()


def test_answers_by_other_settings_are_not_mixed(trained, baselines, images, tmp_path):
    out = tmp_path / "out"
    mue.predict(trained, images[:1], out=out, device="cpu")
    before = files(out)
    with pytest.raises(ValueError, match="holds answers with k = 8, and this is 2; take another"):
        mue.predict(trained, images, k=2, out=out, device="cpu")
    with pytest.raises(ValueError, match="holds answers with model_digest = "):
        mue.predict(baselines["unet"], images, out=out, device="cpu")
    assert files(out) == before


def test_answers_by_the_same_weights_calibrated_otherwise_are_not_mixed(folder, images, tmp_path):
    out = tmp_path / "out"
    mue.predict(folder, images[:1], out=out, device="cpu")
    before = files(out)
    recalibrate(folder)
    with pytest.raises(ValueError, match="holds answers with model_digest = "):
        mue.predict(folder, images, out=out, device="cpu")
    assert files(out) == before


@pytest.mark.parametrize("content", ["{bad", "[1]", "3"])
def test_damaged_settings_are_refused_in_a_sentence(trained, images, tmp_path, content):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mue-predict.json").write_text(content)
    with pytest.raises(ValueError, match="must be what `mue predict` wrote, and it is damaged"):
        mue.predict(trained, images, out=tmp_path / "out", device="cpu")


def test_settings_that_are_a_fifo_are_not_waited_for(trained, images, tmp_path):
    (tmp_path / "out").mkdir()
    os.mkfifo(tmp_path / "out" / "mue-predict.json")
    with pytest.raises(mue.MueError, match="must be empty or not exist yet, or hold answers"):
        mue.predict(trained, images, out=tmp_path / "out", device="cpu")
