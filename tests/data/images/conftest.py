from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid


@pytest.fixture(scope="session")
def ct_slice() -> Callable[..., Dataset]:
    """Makes a slice of a CT of whole numbers, at a height in mm."""

    def make(pixels: np.ndarray, z: float, series: str, **more) -> Dataset:
        data = Dataset()
        data.file_meta = FileMetaDataset()
        data.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
        data.file_meta.MediaStorageSOPClassUID = data.SOPClassUID = CTImageStorage
        data.SOPInstanceUID = data.file_meta.MediaStorageSOPInstanceUID = generate_uid()
        data.SeriesInstanceUID, data.PatientID = series, "somebody"
        data.ImagePositionPatient, data.PixelSpacing = [-30.0, -20.0, z], [0.5, 0.75]
        data.ImageOrientationPatient = [1, 0, 0, 0, 1, 0]
        data.SliceThickness = 2.5
        data.Rows, data.Columns = pixels.shape
        data.SamplesPerPixel, data.PhotometricInterpretation = 1, "MONOCHROME2"
        data.BitsAllocated, data.BitsStored, data.HighBit = 16, 16, 15
        data.PixelRepresentation = 0
        data.RescaleSlope, data.RescaleIntercept = 1, -1024
        for name, value in more.items():
            setattr(data, name, value)
        data.PixelData = pixels.astype("<u2").tobytes()
        return data

    return make


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
