import numpy as np
import pytest
from jpeg_lossless import jpeg_lossless
from pydicom import dcmread
from pydicom.uid import (
    JPEGLosslessSV1,
)

from mue.data import worker
from mue.data.images import isolated
from mue.data.images.reader import read_image_file
from mue.errors import MueError

RANDOM = np.random.default_rng(0)


@pytest.fixture
def lossless(ct_slice, tmp_path):
    """A slice compressed as JPEG Lossless, as scanners do it, and its values."""
    values = RANDOM.integers(0, 4096, (36, 40))
    more = {"BitsStored": 12, "HighBit": 11}
    jpeg_lossless(ct_slice(values, 0.0, "1.2", **more)).save_as(tmp_path / "a.dcm")
    return tmp_path / "a.dcm", values - 1024


def test_jpeg_lossless_is_decoded_to_the_same_values(lossless):
    path, wanted = lossless
    assert dcmread(path).file_meta.TransferSyntaxUID == JPEGLosslessSV1
    assert np.array_equal(read_image_file(path).pixels[0, 0], wanted)


@pytest.mark.parametrize(
    "changed", [{"Rows": 35}, {"Columns": 80}, {"BitsAllocated": 8}, {"SamplesPerPixel": 3}]
)
def test_frames_of_another_size_than_the_header_says_are_refused(lossless, changed):
    """GDCM ends its process at some of these."""
    path, _ = lossless
    data = dcmread(path)
    for name, value in changed.items():
        setattr(data, name, value)
    data.save_as(path)
    with pytest.raises(MueError, match=r"a\.dcm is damaged as DICOM: a frame has 36 x 40 x 1 of"):
        read_image_file(path)


_ABORT = "import os; sys.stdin.readline(); os.abort()"


def test_where_the_decoder_dies_an_image_is_refused_and_the_next_is_read(lossless, monkeypatch):
    path, wanted = lossless
    with monkeypatch.context() as patch:
        dying = worker._CODE.replace("importlib.import_module(sys.argv[2]).work()", _ABORT)
        assert dying != worker._CODE
        patch.setattr(worker, "_CODE", dying)
        isolated._end()
        with pytest.raises(MueError, match=r"a.dcm is damaged as DICOM: its decoder failed"):
            read_image_file(path)
    assert np.array_equal(read_image_file(path).pixels[0, 0], wanted)


def test_an_answer_that_is_interrupted_is_not_taken_for_the_next(lossless, monkeypatch):
    path, wanted = lossless

    def interrupted(*_) -> bytes:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(isolated, "_read", interrupted)
        with pytest.raises(KeyboardInterrupt):
            read_image_file(path)
    assert np.array_equal(read_image_file(path).pixels[0, 0], wanted)
