import io

import numpy as np
import pytest
from nibabel.nifti1 import Nifti1Image
from segmentations import two_answers

from mue.inference.npz import as_npz


def test_an_npz_holds_the_arrays(volume):
    found = two_answers(volume)
    with np.load(io.BytesIO(as_npz(found))) as arrays:
        assert np.array_equal(arrays["masks"], found.masks)
        assert np.array_equal(arrays["expected"], found.expected)
        assert arrays["prob"] == pytest.approx(found.prob)
        assert arrays["classes"].tolist() == ["mask"]
        assert np.array_equal(arrays["affine"], Nifti1Image.from_filename(volume).get_sform())
