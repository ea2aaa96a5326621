import os
import tarfile

import numpy as np
import pytest
from pydicom.uid import (
    DeflatedExplicitVRLittleEndian,
    generate_uid,
)

from mue.data.images.image import Limits, limited
from mue.data.images.reader import modality, read_image_file
from mue.errors import MueError

RANDOM = np.random.default_rng(0)


def random(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    values = RANDOM.integers(0, 200, shape)
    return (values / 7 if dtype.startswith("f") else values * (300 if "16" in dtype else 1)).astype(
        dtype
    )


def test_a_series_is_ordered_by_position_and_rescaled(series):
    folder, voxels = series
    found = read_image_file(folder)
    assert found.pixels.dtype == np.int16
    assert np.array_equal(found.pixels[0], voxels)
    assert [path.name for path in found.files] == [f"{name}.dcm" for name in "ebdac"]
    assert found.geometry is not None
    wanted = np.array([[-0.75, 0, 0, 30], [0, -0.5, 0, 20], [0, 0, 2, 10], [0, 0, 0, 1]])
    assert np.allclose(found.geometry.affine, wanted)
    assert (found.geometry.shape, found.geometry.spacing) == ((34, 33, 5), (0.5, 0.75))
    assert np.array_equal(read_image_file(folder, axis=1).pixels[0], voxels.swapaxes(0, 1))


def test_a_single_slice_has_a_geometry(series):
    folder, voxels = series
    found = read_image_file(folder / "a.dcm")
    assert np.array_equal(found.pixels[0, 0], voxels[3])
    assert found.geometry is not None
    assert found.geometry.affine[2, 2] == 2.5  # its thickness
    assert found.geometry.affine[2, 3] == 16


def test_a_deflated_slice_of_more_than_256_kib_is_read(ct_slice, tmp_path):
    values = RANDOM.integers(0, 4096, (512, 512))
    data = ct_slice(values, 0.0, "1.2")
    data.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
    data.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    assert (tmp_path / "a.dcm").stat().st_size > 1 << 18
    assert np.array_equal(read_image_file(tmp_path / "a.dcm").pixels[0, 0], values - 1024)


def test_two_series_in_a_folder_are_refused(series, ct_slice):
    folder, voxels = series
    ct_slice(voxels[0], 99.0, generate_uid()).save_as(folder / "f.dcm", enforce_file_format=True)
    with pytest.raises(MueError, match="holds 2 series; put each into a folder of its own"):
        read_image_file(folder)


@pytest.mark.data
def test_a_real_series_is_read(real_data, tmp_path):
    (source,) = real_data("lidc-dicom/LIDC-IDRI-0003-part.tar.gz")
    with tarfile.open(source) as tar:
        tar.extractall(tmp_path, filter="data")
    folder = next(tmp_path.rglob("*.dcm")).parent
    found = read_image_file(folder)
    assert found.pixels.shape == (1, 24, 512, 512)
    assert found.pixels.dtype == np.int16


@pytest.mark.parametrize(("stored", "wanted"), [(12, 12), (16, None)])
def test_the_bits_that_dicom_stores_are_known(ct_slice, tmp_path, stored, wanted):
    data = ct_slice(random((4, 5), "uint16") % 4096, 0.0, "1.2", BitsStored=stored)
    data.save_as(tmp_path / "scaled.dcm", enforce_file_format=True)
    assert read_image_file(tmp_path / "scaled.dcm").bits is None  # Hounsfield units
    del data.RescaleSlope, data.RescaleIntercept
    data.save_as(tmp_path / "plain.dcm", enforce_file_format=True)
    assert read_image_file(tmp_path / "plain.dcm").bits == wanted


def test_dicom_of_5000_nested_sequences_is_refused(ct_slice, tmp_path):
    ct_slice(np.zeros((2, 2)), 0.0, "1.2").save_as(tmp_path / "a.dcm", enforce_file_format=True)
    data = (tmp_path / "a.dcm").read_bytes()
    start = b"\x08\0\x40\x11SQ\0\0" + b"\xff" * 4 + b"\xfe\xff\0\xe0" + b"\xff" * 4
    end = b"\xfe\xff\x0d\xe0\0\0\0\0" + b"\xfe\xff\xdd\xe0\0\0\0\0"
    at = data.index(b"\x10\0\x20\0LO")  # the patient, after the group of the sequence
    (tmp_path / "a.dcm").write_bytes(data[:at] + start * 5000 + end * 5000 + data[at:])
    with pytest.raises(MueError, match="is nested too deeply to be read"):
        read_image_file(tmp_path / "a.dcm")


@pytest.mark.parametrize("frames", [2**31 - 1, -5])
def test_frames_are_counted_before_they_are_listed(ct_slice, tmp_path, frames):
    data = ct_slice(np.zeros((1, 1)), 0.0, "1.2", NumberOfFrames=frames)
    data.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    with pytest.raises(MueError, match=rf"has {frames} frames; 1 to 65536 are read; divide it"):
        read_image_file(tmp_path / "a.dcm")


def test_a_deflated_file_is_not_inflated_however_long_its_version_is(ct_slice, tmp_path):
    data = ct_slice(np.zeros((8, 8)), 0.0, "1.2")
    data.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
    data.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    raw = (tmp_path / "a.dcm").read_bytes()
    version = raw.index(b"\x02\0\x01\0OB")
    length = b"OB\0\0" + (8000).to_bytes(4, "little")
    raw = raw[: version + 4] + length + bytes(8000) + raw[version + 14 :]
    (tmp_path / "a.dcm").write_bytes(raw)
    assert read_image_file(tmp_path / "a.dcm").pixels.shape == (1, 1, 8, 8)
    with limited(Limits(bytes=1 << 20)), pytest.raises(MueError, match="deflated as a whole"):
        read_image_file(tmp_path / "a.dcm")


def test_a_series_of_enormous_files_is_refused_before_they_are_read(series):
    folder, _ = series
    with (folder / "a.dcm").open("r+b") as file:
        file.truncate(1 << 31)  # without blocks on the disk
    with pytest.raises(MueError, match=r"series has 21474\d+ bytes; at most 2147483648 are read"):
        read_image_file(folder)


def test_a_fifo_among_slices_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.dcm")
    assert modality(tmp_path / "a.dcm") == ""
    with pytest.raises(MueError, match="is not a file"):
        read_image_file(tmp_path / "a.dcm")
