from pathlib import Path

import numpy as np
import pytest
from pydicom.uid import generate_uid


@pytest.fixture
def series(ct_slice, tmp_path) -> tuple[Path, np.ndarray]:
    """A folder with a series of five slices, and its voxels in k j i order."""
    voxels = np.random.default_rng(0).integers(0, 4000, (5, 33, 34))
    folder, uid = tmp_path / "series", generate_uid()
    folder.mkdir()
    for k, name in enumerate("ebdac"):  # the order of names is not that of slices
        ct_slice(voxels[k], 10 + 2 * k, uid).save_as(
            folder / f"{name}.dcm", enforce_file_format=True
        )
    (folder / "notes.txt").write_text("not an image")
    return folder, voxels - 1024
