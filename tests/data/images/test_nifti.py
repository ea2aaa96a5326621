import gzip

import nibabel as nib
import numpy as np
import pytest

from mue.data.images.image import Limits, limited
from mue.data.images.reader import read_image_file
from mue.errors import MueError

RANDOM = np.random.default_rng(0)


AFFINE = np.array([[-2.0, 0, 0, 5], [0, 3, 0, 6], [0, 0, 4, 7], [0, 0, 0, 1]])


def random(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    values = RANDOM.integers(0, 200, shape)
    return (values / 7 if dtype.startswith("f") else values * (300 if "16" in dtype else 1)).astype(
        dtype
    )


def test_the_scale_of_a_header_is_applied_and_a_fourth_axis_is_channels(tmp_path):
    voxels = random((4, 5, 6, 2), "int16")
    image = nib.Nifti1Image(voxels, AFFINE)
    image.header.set_slope_inter(0.5, 3)
    (tmp_path / "a.nii").write_bytes(image.to_bytes())
    found = read_image_file(tmp_path / "a.nii").pixels
    assert (found.dtype, found.shape) == (np.dtype("float32"), (2, 6, 5, 4))
    assert np.array_equal(found[1], 0.5 * voxels[..., 1].T + 3)


def test_a_slice_is_one_whatever_the_axis(tmp_path):
    nib.save(nib.Nifti2Image(random((4, 5), "uint8"), AFFINE), tmp_path / "a.nii")
    found = read_image_file(tmp_path / "a.nii", axis=0)
    assert found.pixels.shape == (1, 1, 5, 4)


def test_the_checksum_of_gzip_is_verified(tmp_path):
    data = gzip.compress(nib.Nifti1Image(random((4, 5, 6), "int16"), AFFINE).to_bytes())
    for broken in (data[:-1], data[:-40], data[:-8] + b"\0" * 8):
        (tmp_path / "a.nii.gz").write_bytes(broken)
        with pytest.raises(MueError, match=r"a.nii.gz is truncated or damaged as gzip"):
            read_image_file(tmp_path / "a.nii.gz")


def test_a_scaled_volume_is_measured_as_the_floats_it_becomes(tmp_path):
    image = nib.Nifti1Image(np.zeros((8, 8, 8), np.uint8), np.eye(4))
    with limited(Limits(bytes=2048)):
        nib.save(image, tmp_path / "a.nii")
        assert read_image_file(tmp_path / "a.nii").pixels.dtype == np.uint8
        image.header.set_slope_inter(2.0, 1.0)
        nib.save(image, tmp_path / "a.nii")
        with pytest.raises(MueError, match="at most 2048 bytes are read"):
            read_image_file(tmp_path / "a.nii")
