import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
import torch
from nibabel.nifti1 import Nifti1Image
from PIL import Image

import mue
from mue.data.synthetic.toy import Bars
from mue.runtime.atomic import write_atomic


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def recalibrate(folder: Path) -> None:
    """Give a run another calibration; its weights stay."""
    content = json.loads((folder / "config.json").read_text())
    content["config"]["modes"]["cut"] = 0.25
    (folder / "config.json").write_text(json.dumps(content))


def records(*names: str) -> set[str]:
    """What a folder holds beside the answers to images of these names."""
    return {"mue-predict.json", *(f"mue-predict/{name}.json" for name in names)}


@pytest.fixture
def images(tmp_path) -> list[Path]:
    paths = [tmp_path / "images" / f"{name}.png" for name in ("one", "two")]
    paths[0].parent.mkdir()
    for i, path in enumerate(paths):
        x = Bars(seed=i).case(torch.tensor([0])).x[0, 0]
        Image.fromarray((x * 255).round().byte().numpy()).save(path)
    return paths


def test_image_files_are_answered_as_arrays_are(trained, images, tmp_path):
    out = tmp_path / "out"
    written = mue.predict(trained, images, k=3, by="code", out=out, device="cpu")
    result = mue.predict(trained, images, k=3, by="code", device="cpu")
    assert written.report == result.report
    predictor = mue.load(trained, device="cpu")
    for prediction, path in zip(result.predictions, images, strict=True):
        with Image.open(path) as file:
            h = predictor.propose(np.array(file), k=3)
        assert prediction.image == path
        torch.testing.assert_close(prediction.modes.y, h.y)
        summary = prediction.summary()
        assert [a["rank"] for a in summary["modes"]] == [1, 2, 3]
        assert [a["code"] for a in summary["modes"]] == h.code[0].tolist()
        assert [a["prob"] for a in summary["modes"]] == pytest.approx(h.prob[0].tolist())
        assert summary["rest"] == pytest.approx(h.rest.item(), abs=1e-6)
        assert summary["entropy"] == pytest.approx(h.entropy().item(), abs=1e-5)
        for j in range(3):
            with Image.open(out / f"{path.stem}-{j + 1}.png") as file:
                y = torch.from_numpy(np.array(file)).float() / 255
            torch.testing.assert_close(y, h.y[0, j, 0], atol=0.51 / 255, rtol=0)
    names = {f"{p.stem}-{part}.png" for p in images for part in ("1", "2", "3", "answers")}
    assert set(files(out)) == names | records("one", "two")
    assert {path.name for path in written.files} == names


def test_modes_are_of_all_codes_and_keep_their_whole_probability(trained, images):
    (found,) = mue.predict(trained, images[:1], k=2, device="cpu").predictions
    predictor = mue.load(trained, device="cpu")
    modes = predictor.modes(found.x, normalized=True)
    assert torch.equal(found.modes.prob, modes.prob[:, :2])
    answers = found.summary()["modes"]
    for i, answer in enumerate(answers):
        assert answer["rank"] == i + 1
        assert sum(m["prob"] for m in answer["members"]) == pytest.approx(answer["prob"], abs=1e-6)
        assert answer["code"] in [m["code"] for m in answer["members"]]
    known = sum(answer["prob"] for answer in answers) + found.summary()["rest"]
    assert known == pytest.approx(1, abs=1e-5)


def test_nothing_is_written_when_one_of_the_images_is_bad(trained, images, tmp_path):
    images[1].write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"two\.png must be an image file"):
        mue.predict(trained, images, k=2, out=tmp_path / "out", device="cpu")
    assert not (tmp_path / "out").exists()


def test_images_of_one_name_cannot_share_a_folder(trained, images, tmp_path):
    with pytest.raises(ValueError, match="`images` must have different names"):
        mue.predict(trained, [images[0], images[0]], k=2, out=tmp_path / "out", device="cpu")
    assert not (tmp_path / "out").exists()


def test_no_images_are_refused(trained):
    with pytest.raises(ValueError, match="`images` must name at least one image file, got none"):
        mue.predict(trained, [])


def test_answers_do_not_overwrite_what_is_there(trained, images):
    """The first answer to `one` would be `one-1`, which is somebody's image."""
    images[1].rename(images[1].with_name("one-1.png"))
    before = files(images[0].parent)
    with pytest.raises(ValueError, match="must be empty or not exist yet"):
        mue.predict(trained, images[:1], k=2, out=images[0].parent, device="cpu")
    assert files(images[0].parent) == before


# --- folders, volumes, formats --------------------------------------------------------------------


@pytest.fixture
def volume(tmp_path, images) -> Path:
    """The two images as the slices of a volume."""
    slices = [np.asarray(Image.open(path)) for path in images]
    affine = np.diag([-0.5, -0.75, 3.0, 1.0])
    path = tmp_path / "volume.nii.gz"
    nibabel.save(Nifti1Image(np.stack(slices).transpose(2, 1, 0), affine), path)
    return path


def nifti(path: Path) -> Nifti1Image:
    return Nifti1Image.from_filename(path)


def test_every_format_of_a_volume_is_written(trained, volume, tmp_path):
    out = tmp_path / "out"
    result = mue.predict(
        trained, [volume], out=out, format=["png", "json", "nifti", "npz"], device="cpu"
    )
    endings = ("-answers.png", ".json", ".nii.gz", "-expected.nii.gz", ".npz")
    assert {p.name for p in result.files} == {f"volume{ending}" for ending in endings}
    assert set(files(out)) == {p.name for p in result.files} | records("volume")
    image, source = nifti(out / "volume.nii.gz"), nifti(volume)
    assert np.array_equal(image.get_sform(), source.get_sform())
    summary = json.loads((out / "volume.json").read_text())
    assert [summary] == result.report
    assert image.shape == (*source.shape, len(summary["modes"]))
    predictor = mue.load(trained, device="cpu")
    x = torch.from_numpy(np.asarray(source.dataobj).transpose(2, 1, 0).copy())[:, None]
    modes = predictor.modes(x, volume=True)
    masks = (modes.y[0, :, 0] > 0.5).numpy().reshape(-1, *x[:, 0].shape)
    assert np.array_equal(np.asarray(image.dataobj).transpose(3, 2, 1, 0), masks)


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


def test_bad_images_are_left_out_and_named(trained, images, tmp_path):
    images[0].write_bytes(b"no image")
    out = tmp_path / "out"
    told: list[tuple[str, int, int]] = []
    result = mue.predict(
        trained,
        images,
        out=out,
        skip_bad=True,
        format=["json"],
        device="cpu",
        progress=lambda *done: told.append(done),
    )
    assert len(result.rejected) == 1
    assert "one.png must be an image file" in result.rejected[0]
    assert set(files(out)) == {"two.json"} | records("two")
    assert told == [("run", 1, 2), ("run", 2, 2)]


def test_no_format_is_refused(trained, images, tmp_path):
    with pytest.raises(ValueError, match=r"`format` must be some of png, json, nifti.* got none"):
        mue.predict(trained, images, out=tmp_path / "out", format=[], device="cpu")


def test_nothing_is_written_of_an_image_that_one_format_cannot_hold(trained, images, tmp_path):
    with pytest.raises(ValueError, match=r"one\.png must be DICOM for answers in .* dicom-seg"):
        mue.predict(
            trained, images, out=tmp_path / "out", format=["png", "dicom-seg"], device="cpu"
        )
    assert not (tmp_path / "out").exists()


def test_processes_share_the_images(trained, images, tmp_path):
    """Two processes by torchrun write what one does, and each image is answered by one of them."""
    alone, out = tmp_path / "alone", tmp_path / "out"
    mue.predict(trained, images, out=alone, format=["npz", "json"], device="cpu")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = ["predict", trained, images[0].parent, "--out", out, "--device", "cpu"]
    done = subprocess.run(
        [*launcher, "--nproc-per-node=2", "-m", "mue", *command, "--format", "npz", "json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "were before" not in done.stdout
    assert done.stdout.count("│ rest") == 2  # a table for each image
    assert files(out) == files(alone)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_answers_its_share_alone(trained, images, tmp_path, monkeypatch, rank):
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", "2")
    result = mue.predict(trained, images, out=tmp_path / "out", format=["json"], device="cpu")
    assert [found["image"] for found in result.report] == [str(images[rank])]


@pytest.mark.usefixtures("unchecked")
def test_one_path_is_one_image_and_an_array_is_none(trained, images):
    """A text is a sequence, too: of its letters, of which the first may be the root of the disk."""
    one = mue.predict(trained, str(images[0]), k=3, device="cpu")
    assert one.report == mue.predict(trained, images[:1], k=3, device="cpu").report
    arrays: list[Any] = [[np.zeros((8, 8))], np.zeros((8, 8)), [None]]
    for given in arrays:
        with pytest.raises(mue.MueError, match="`images` must be paths of files or folders, got "):
            mue.predict(trained, given, device="cpu")
    wrong: list[Any] = [0, 2.5, "3"]
    for k in wrong:
        with pytest.raises(mue.MueError, match="`k` must be at least 1, got"):
            mue.predict(trained, images, k=k, device="cpu")


def test_settings_that_are_a_fifo_are_not_waited_for(trained, images, tmp_path):
    (tmp_path / "out").mkdir()
    os.mkfifo(tmp_path / "out" / "mue-predict.json")
    with pytest.raises(mue.MueError, match="must be empty or not exist yet, or hold answers"):
        mue.predict(trained, images, out=tmp_path / "out", device="cpu")
