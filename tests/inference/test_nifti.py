import gzip
import json

import numpy as np
import pytest
from nibabel.nifti1 import Nifti1Image
from segmentations import bright_voxels, opened, two_answers

from mue.inference.nifti import as_nifti


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_nifti_has_the_voxels_and_the_affine_of_its_source(volume, axis):
    source = Nifti1Image.from_filename(volume)
    voxels = np.asarray(source.dataobj)
    image = opened(as_nifti(bright_voxels(volume, axis))[".nii.gz"])
    assert np.array_equal(image.get_sform(), source.get_sform())
    found = np.asarray(image.dataobj)
    assert found.dtype == np.uint8
    assert np.array_equal(found, np.stack([voxels > 0, voxels < 0], axis=3))


@pytest.mark.parametrize("form", ["sform", "qform"])
@pytest.mark.parametrize("axes", [(-1, 1, 1), (1, 1, 1), (1, -1, -1)])
def test_a_nifti_has_its_place_by_either_form_and_of_either_hand(tmp_path, form, axes):
    """An oblique affine, of which the first has a negative determinant."""
    turned = np.array([[0.36, 0.48, -0.8], [-0.8, 0.6, 0], [0.48, 0.64, 0.6]])
    affine, voxels = np.eye(4), np.random.default_rng(0).normal(size=(8, 7, 6))
    affine[:3, :3], affine[:3, 3] = turned @ np.diag(axes) @ np.diag([0.7, 0.9, 2.5]), (5, -7, 11)
    source = Nifti1Image(voxels.astype(np.float32), None)
    source.set_sform(affine if form == "sform" else None, int(form == "sform"))
    source.set_qform(affine if form == "qform" else None, int(form == "qform"))
    (tmp_path / "a.nii.gz").write_bytes(gzip.compress(source.to_bytes()))
    image = opened(as_nifti(bright_voxels(tmp_path / "a.nii.gz", 0))[".nii.gz"])
    np.testing.assert_allclose(np.array(image.affine), affine, atol=1e-5)
    assert np.array_equal(np.asarray(image.dataobj)[..., 0], voxels > 0)


def test_the_expected_mask_and_the_probabilities_are_in_the_nifti(volume):
    files = as_nifti(two_answers(volume))
    expected = np.asarray(opened(files["-expected.nii.gz"]).dataobj)
    assert expected.shape == (8, 7, 6, 1)
    assert expected[3, 2, 1, 0] == pytest.approx(7 / 9)  # i is the column, k the slice
    (comment,) = opened(files[".nii.gz"]).header.extensions
    said = json.loads(comment.get_content().rstrip(b"\0"))
    assert said["hypotheses"][0].startswith("hypothesis of rank 1 of 2, probability 0.7000")


def test_a_dicom_series_becomes_a_nifti_with_its_affine(ct):
    """By hand: x and y of DICOM point to the left and to the back, those of NIfTI do not."""
    image = opened(as_nifti(two_answers(ct))[".nii.gz"])
    affine = [[-0.75, 0, 0, 30], [0, -0.5, 0, 20], [0, 0, 2, 10], [0, 0, 0, 1]]
    np.testing.assert_allclose(image.get_sform(), affine)
    assert np.argwhere(np.asarray(image.dataobj)).tolist() == [[3, 2, 1, 0], [5, 4, 3, 1]]
