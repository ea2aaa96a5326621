import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
import torch
from answers_written import files, records
from nibabel.nifti1 import Nifti1Image
from PIL import Image

import mue


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
