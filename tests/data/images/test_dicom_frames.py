import numpy as np
import pytest
from pydicom import dcmread

from mue.data.images.dicom_frames import find_gap
from mue.data.images.reader import read_image_file
from mue.errors import MueError


def test_a_missing_slice_and_a_double_one_are_found(series, ct_slice):
    folder, voxels = series
    uid = dcmread(folder / "a.dcm").SeriesInstanceUID
    ct_slice(voxels[0] + 1024, 16.0, uid).save_as(folder / "f.dcm", enforce_file_format=True)
    with pytest.raises(MueError, match=r"series has two slices between a.dcm \(16 mm\) and f.dcm"):
        read_image_file(folder)
    (folder / "f.dcm").unlink()
    (folder / "d.dcm").unlink()
    words = (
        r"has a slice missing between b.dcm \(12 mm\) and a.dcm \(16 mm\), where its step is 2 mm"
    )
    with pytest.raises(MueError, match=words):
        read_image_file(folder)


@pytest.mark.parametrize(
    ("at", "gap"),
    [
        ([0, 2, 4, 6], None),
        ([0, 1.2, 2.5, 3.7, 5.0], None),  # a step of 1.25, rounded to tenths
        ([0, 2, 4, 6.19], None),
        ([0, 2, 4, 6.21], (2, "a slice missing", 2)),
        ([0, 2, 6, 8], (1, "a slice missing", 2)),
        ([0, 2, 2, 4, 6], (1, "two slices", 2)),
        ([0, 0, 0], (0, "two slices", 0)),
        ([-5, -3], None),
    ],
)
def test_a_gap_is_a_step_that_differs_by_more_than_a_tenth(at, gap):
    assert find_gap(np.array(at, float)) == gap
