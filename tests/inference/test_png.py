import io
from dataclasses import replace

import nibabel
import numpy as np
import torch
from nibabel.nifti1 import Nifti1Image
from PIL import Image

import mue
from mue.inference.png import as_png


def opened(data: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(data)) as file:
        return np.array(file)


def test_a_picture_has_a_png_of_each_answer_and_the_sheet_last(trained, images):
    (found,) = mue.predict(trained, images[0], k=3, device="cpu").predictions
    files = as_png(found)
    shown = found.modes.y.shape[1]
    assert list(files) == [*(f"-{j + 1}.png" for j in range(shown)), "-answers.png"]
    for j, y in enumerate(found.modes.y[0]):
        np.testing.assert_allclose(opened(files[f"-{j + 1}.png"]) / 255, y[0], atol=0.51 / 255)


def test_a_volume_has_a_sheet_of_the_slice_in_which_its_answers_differ_most(
    trained, images, tmp_path, monkeypatch
):
    bars = opened(images[0].read_bytes())
    voxels = np.stack([np.zeros_like(bars), bars])
    nibabel.save(Nifti1Image(voxels.transpose(2, 1, 0), np.eye(4)), tmp_path / "a.nii.gz")
    (found,) = mue.predict(trained, tmp_path / "a.nii.gz", device="cpu").predictions
    found = replace(
        found, config=replace(found.config, data=replace(found.config.data, name="slices"))
    )
    expected = found.segmentation.expected
    s = int((expected * (1 - expected)).sum(axis=(0, 2, 3)).argmax())
    shown = []
    monkeypatch.setattr("mue.plots.overlays.plot_overlays", lambda *given: shown.append(given))
    monkeypatch.setattr("mue.plots.style.figure_png", lambda _: b"sheet")
    assert as_png(found) == {"-answers.png": b"sheet"}
    ((x, masks, *_, title),) = shown
    assert title == f"a.nii.gz, slice {s + 1} of 2"
    np.testing.assert_array_equal(masks, found.segmentation.masks[:, s])
    torch.testing.assert_close(
        torch.from_numpy(x), torch.from_numpy(voxels[s] / np.float32(255))[None]
    )
