import nibabel as nib
import numpy as np
import pytest
import tifffile
from PIL import Image

from mue.data.images.image import FileInMemory, Limits, limited, volume_image
from mue.data.images.reader import read_image_file
from mue.errors import MueError

RANDOM = np.random.default_rng(0)


AFFINE = np.array([[-2.0, 0, 0, 5], [0, 3, 0, 6], [0, 0, 4, 7], [0, 0, 0, 1]])


def random(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    values = RANDOM.integers(0, 200, shape)
    return (values / 7 if dtype.startswith("f") else values * (300 if "16" in dtype else 1)).astype(
        dtype
    )


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("int8", "int16"),
        ("int64", "int32"),
        ("float64", "float32"),
        (">u2", "uint16"),
    ],
)
def test_types_become_one_of_five_with_the_same_values(tmp_path, given, wanted):
    values = (RANDOM.integers(0, 2, (4, 5)) * 3).astype(given)
    np.save(tmp_path / "a.npy", values)
    found = read_image_file(tmp_path / "a.npy").pixels[0, 0]
    assert found.dtype == np.dtype(wanted)
    assert np.array_equal(found, values)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("ending", ["nii", "nii.gz"])
def test_a_volume_is_cut_along_the_chosen_axis(tmp_path, axis, ending):
    voxels = random((4, 5, 6), "int16")
    nib.save(nib.Nifti1Image(voxels, AFFINE), tmp_path / f"a.{ending}")
    found = read_image_file(tmp_path / f"a.{ending}", axis=axis)
    assert found.geometry is not None
    assert (found.geometry.shape, found.geometry.axis) == ((4, 5, 6), axis)
    assert np.array_equal(found.geometry.affine, AFFINE)
    assert found.geometry.spacing == {0: (4, 3), 1: (4, 2), 2: (3, 2)}[axis]
    d, h, w = [(0, 2, 1), (1, 2, 0), (2, 1, 0)][axis]
    assert np.array_equal(found.pixels[0], voxels.transpose(d, h, w))


def test_a_file_in_memory_is_read_as_one_on_disk(series, tmp_path):
    folder, _ = series
    values = random((5, 7), "uint8")
    Image.fromarray(values).save(tmp_path / "a.png")
    tifffile.imwrite(tmp_path / "a.tif", values)
    np.save(tmp_path / "a.npy", values)
    nib.Nifti1Image(values[:, :, None], AFFINE).to_filename(tmp_path / "a.nii.gz")
    for path in [*sorted(tmp_path.glob("a.*")), folder / "a.dcm"]:
        wanted = read_image_file(path)
        found = read_image_file(FileInMemory(path.name, path.read_bytes()))
        assert np.array_equal(found.pixels, wanted.pixels)
        assert (found.geometry is None) == (wanted.geometry is None)


def test_limits_hold_where_they_are_set_and_nowhere_else(tmp_path):
    Image.new("L", (20, 10)).save(tmp_path / "a.png")
    with limited(Limits(pixels=199)), pytest.raises(MueError, match="10 x 20 pixels; 1 to 199"):
        read_image_file(tmp_path / "a.png")
    assert read_image_file(tmp_path / "a.png").pixels.shape == (1, 1, 10, 20)


@pytest.mark.parametrize("broken", [{(2, 2): 0.0}, {(0, 3): np.nan}, {(1, 1): np.inf}])
def test_voxels_at_places_of_no_volume_are_refused(broken):
    """Of NIfTI an affine, of DICOM positions and spacings: the one check for both."""
    affine = AFFINE.copy()
    for at, value in broken.items():
        affine[at] = value
    with pytest.raises(MueError, match="has positions, spacings or an affine of no volume"):
        volume_image(np.zeros((1, 2, 3, 4)), affine, (), 2, mask=False)
    volume_image(np.zeros((1, 2, 3, 4)), AFFINE, (), 2, mask=False)
