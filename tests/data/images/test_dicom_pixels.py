import numpy as np
import pytest
from pydicom import Dataset, dcmread
from pydicom.uid import (
    EnhancedMRImageStorage,
    JPEG2000Lossless,
    JPEGLSLossless,
    RLELossless,
)

from mue.data.images.reader import read_image_file
from mue.errors import MueError

RANDOM = np.random.default_rng(0)


def rescaling(slope: float, intercept: float) -> Dataset:
    """A functional group of an enhanced image."""
    group, values = Dataset(), Dataset()
    values.RescaleSlope, values.RescaleIntercept, values.RescaleType = slope, intercept, "US"
    group.PixelValueTransformationSequence = [values]
    return group


@pytest.mark.parametrize(
    ("shared", "each", "wanted"),
    [
        ((2, -10), [], [-8, -4]),
        ((2, -10), [(1, 0), (3, 1)], [1, 10]),  # its own is before that of all
        (None, [(0.5, 0), (100, 5)], [0.5, 305]),
        (None, [], [1, 3]),
    ],
)
def test_each_frame_of_an_enhanced_image_is_rescaled_as_it_says(
    ct_slice, tmp_path, shared, each, wanted
):
    data = ct_slice(np.full((2, 3), 1), 0.0, "1.2")
    del data.RescaleSlope, data.RescaleIntercept
    data.SOPClassUID, data.NumberOfFrames = EnhancedMRImageStorage, 2
    data.PixelData = np.repeat([1, 3], 6).astype("<u2").tobytes()
    groups = [rescaling(*values) for values in each] or [Dataset(), Dataset()]
    for k, group in enumerate(groups):
        group.PlanePositionSequence = [Dataset()]
        group.PlanePositionSequence[0].ImagePositionPatient = [0, 0, k]
    data.PerFrameFunctionalGroupsSequence = groups
    if shared is not None:
        data.SharedFunctionalGroupsSequence = [rescaling(*shared)]
    data.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    assert read_image_file(tmp_path / "a.dcm").pixels[0, :, 0, 0].tolist() == wanted


@pytest.mark.parametrize("signed", [0, 1])
def test_values_from_white_to_black_are_inverted(ct_slice, tmp_path, signed):
    """By hand: 12 bits are 0 to 4095, or with a sign -2048 to 2047."""
    more = {"BitsStored": 12, "HighBit": 11, "PixelRepresentation": signed}
    data = ct_slice(np.array([[0, 7, 2047]]), 0.0, "1.2", **more)
    data.PhotometricInterpretation = "MONOCHROME1"
    data.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    wanted = np.array([-1, -8, -2048]) if signed else np.array([4095, 4088, 2048])
    assert np.array_equal(read_image_file(tmp_path / "a.dcm").pixels[0, 0, 0], wanted - 1024)


@pytest.mark.parametrize("syntax", [RLELossless, JPEGLSLossless, JPEG2000Lossless])
def test_compressed_slices_are_decoded_to_the_same_values(series, syntax):
    folder, voxels = series
    for path in folder.glob("*.dcm"):
        data = dcmread(path)
        data.compress(syntax)
        data.save_as(path)
    assert np.array_equal(read_image_file(folder).pixels[0], voxels)


def test_a_rescaling_beyond_floating_point_is_refused(ct_slice, tmp_path):
    data = ct_slice(np.ones((2, 2)), 0.0, "1.2", RescaleSlope="1e308")
    data.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    with pytest.raises(MueError, match="values that are infinite or not a number"):
        read_image_file(tmp_path / "a.dcm")


def test_damaged_rle_is_refused(ct_slice, tmp_path):
    """The plugin of pydicom panics here, which is no Exception."""
    data = ct_slice(np.arange(30).reshape(6, 5), 0.0, "1.2")
    data.compress(RLELossless)
    data.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    whole = (tmp_path / "a.dcm").read_bytes()
    wanted, refused = read_image_file(tmp_path / "a.dcm").pixels.shape, 0
    for at in range(len(whole) - 40, len(whole)):
        for value in (0x7F, 0x80, 0xFF):
            (tmp_path / "a.dcm").write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
            try:
                assert read_image_file(tmp_path / "a.dcm").pixels.shape == wanted
            except MueError:
                refused += 1
    assert refused > 10


def test_jpeg_ls_of_other_bits_than_the_header_says_is_refused(ct_slice, tmp_path):
    """By GDCM this ended the process."""
    data = ct_slice(RANDOM.integers(0, 4096, (36, 40)), 0.0, "1.2")
    data.compress(JPEGLSLossless)
    data.BitsAllocated = 8
    data.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    with pytest.raises(MueError, match=r"a\.dcm is damaged"):
        read_image_file(tmp_path / "a.dcm")
