from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import nibabel
import numpy as np
import pytest
import torch
from nibabel.nifti1 import Nifti1Image
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

from mue.inference.load import load
from mue.inference.predictor import Predictor
from mue.models.build import build_modal


def save_ct(folder: Path, voxels: np.ndarray, name: str = "series") -> Path:
    """A CT of whole numbers, k j i, as a complete series; names of files are not in its order."""
    folder = folder / name
    folder.mkdir(parents=True)
    study, series, frame = generate_uid(), generate_uid(), generate_uid()
    for k, pixels in enumerate(voxels):
        data = Dataset()
        data.file_meta = FileMetaDataset()
        data.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
        data.file_meta.MediaStorageSOPClassUID = data.SOPClassUID = CTImageStorage
        data.SOPInstanceUID = data.file_meta.MediaStorageSOPInstanceUID = generate_uid()
        data.StudyInstanceUID, data.SeriesInstanceUID = study, series
        data.FrameOfReferenceUID, data.PositionReferenceIndicator = frame, ""
        data.PatientID, data.PatientName = "somebody", "Some^Body"
        data.PatientBirthDate, data.PatientSex, data.StudyID = "19700101", "O", "1"
        data.StudyDate, data.StudyTime, data.AccessionNumber = "20200102", "101112", "1"
        data.ReferringPhysicianName, data.Manufacturer, data.Modality = "", "somebody", "CT"
        data.SeriesNumber, data.InstanceNumber, data.AcquisitionNumber = 1, k + 1, 1
        data.ImageType, data.KVP = ["ORIGINAL", "PRIMARY", "AXIAL"], 120
        data.ImagePositionPatient, data.PixelSpacing = [-30.0, -20.0, 10.0 + 2 * k], [0.5, 0.75]
        data.ImageOrientationPatient = [1, 0, 0, 0, 1, 0]
        data.SliceThickness = 2.0
        data.Rows, data.Columns = pixels.shape
        data.SamplesPerPixel, data.PhotometricInterpretation = 1, "MONOCHROME2"
        data.BitsAllocated, data.BitsStored, data.HighBit = 16, 16, 15
        data.PixelRepresentation, data.RescaleSlope, data.RescaleIntercept = 0, 1, 0
        data.PixelData = pixels.astype("<u2").tobytes()
        data.save_as(folder / f"{(k * 3) % len(voxels)}.dcm", enforce_file_format=True)
    return folder


@pytest.fixture
def ct(tmp_path) -> Path:
    """A series of five slices of 24 x 32, the k-th with the value 100 k."""
    return save_ct(tmp_path, np.arange(5)[:, None, None] * 100 + np.zeros((5, 24, 32)))


@pytest.fixture
def volume(tmp_path) -> Path:
    """Voxels i j k = 8 x 7 x 6 with an oblique affine."""
    c, s = np.cos(0.3), np.sin(0.3)
    affine = np.array([[c, -s, 0, 5], [s, c, 0, -7], [0, 0, 2.5, 11], [0, 0, 0, 1]])
    voxels = np.random.default_rng(0).normal(size=(8, 7, 6)).astype(np.float32)
    nibabel.save(Nifti1Image(voxels, affine), tmp_path / "volume.nii.gz")
    return tmp_path / "volume.nii.gz"


@pytest.fixture(scope="module")
def predictor(trained) -> Predictor:
    """A model of pictures of one channel."""
    return load(trained, device="cpu")


@pytest.fixture(scope="session")
def fresh() -> Callable[..., Predictor]:
    """Makes a network with random weights."""

    def make(config, **model) -> Predictor:
        torch.manual_seed(0)
        config = replace(config, model=replace(config.model, **model))
        return Predictor(build_modal(config).eval(), config)

    return make
