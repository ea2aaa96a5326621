import io
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Thread
from types import SimpleNamespace

import httpx
import numpy as np
import pytest
import uvicorn
from PIL import Image
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

import mue
from mue.inference.predictor import Predictor
from mue.service.app import create_app
from mue.service.connection import TimedConnection
from mue.service.settings import Settings

Serve = Callable[..., AbstractContextManager[httpx.Client]]


@pytest.fixture(scope="session", autouse=True)
def log() -> Iterator[io.StringIO]:
    """What the service logs: what it logs between two tests would be written to the terminal."""
    lines = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mue.service.monitoring.sys", SimpleNamespace(stderr=lines))
        yield lines


@pytest.fixture
def logged(log) -> Callable[[], str]:
    """What the service has logged since the test began."""
    begin = log.tell()
    return lambda: log.getvalue()[begin:]


@pytest.fixture(scope="session")
def predictors() -> dict[str, Predictor]:
    return {name: mue.load(name) for name in ("lidc-exact", "guess-exact", "guess-probunet")}


@pytest.fixture(scope="session")
def served(predictors) -> Serve:
    """Starts the service on a free port, with settings, and gives a client of it."""

    @contextmanager
    def serve(port: int = 0, **settings) -> Iterator[httpx.Client]:
        app = create_app(predictors, Settings(**settings), warm=False)
        how = {"loop": "asyncio", "http": TimedConnection}
        config = uvicorn.Config(app, port=port, log_level="critical", **how)
        server = uvicorn.Server(config)
        thread = Thread(target=server.run)
        thread.start()
        while not server.started and thread.is_alive():
            thread.join(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        try:
            with httpx.Client(base_url=f"http://localhost:{port}", timeout=60) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join()

    return serve


@pytest.fixture(scope="session")
def client(served) -> Iterator[httpx.Client]:
    with served() as found:
        yield found


@pytest.fixture(scope="session")
def series() -> list[tuple[str, bytes]]:
    """The slices of a DICOM series, a ball in air, in another order than that of their positions.

    Slice k at z = 10 + 2.5 k mm is file k and has the value k - 1024 in its first pixel.
    """
    names = ("StudyInstanceUID", "SeriesInstanceUID", "FrameOfReferenceUID")
    uids = {name: generate_uid() for name in names}
    found = [(f"{k}.dcm", _dicom_slice(k, **uids)) for k in range(6)]
    return [found[k] for k in (3, 0, 5, 1, 4, 2)]


def _dicom_slice(k: int, **uids: str) -> bytes:
    data = Dataset()
    data.file_meta = FileMetaDataset()
    data.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    data.file_meta.MediaStorageSOPClassUID = data.SOPClassUID = CTImageStorage
    data.SOPInstanceUID = data.file_meta.MediaStorageSOPInstanceUID = generate_uid()
    for name, uid in uids.items():
        setattr(data, name, uid)
    for name in ("PatientName", "PatientBirthDate", "PatientSex", "StudyDate", "StudyTime"):
        setattr(data, name, "")
    data.AccessionNumber = data.ReferringPhysicianName = data.StudyID = ""
    data.PatientID, data.Modality = "nobody", "CT"
    data.ImagePositionPatient, data.PixelSpacing = [0.0, 0.0, 10 + 2.5 * k], [0.5, 0.5]
    data.ImageOrientationPatient, data.SliceThickness = [1, 0, 0, 0, 1, 0], 2.5
    y, x = np.mgrid[:64, :64] - 32
    pixels = np.where(x**2 + y**2 + (5 * (k - 2.5)) ** 2 < 200, 1050, 150)
    pixels[0, 0] = k
    data.Rows, data.Columns = pixels.shape
    data.SamplesPerPixel, data.PhotometricInterpretation = 1, "MONOCHROME2"
    data.BitsAllocated, data.BitsStored, data.HighBit, data.PixelRepresentation = 16, 16, 15, 0
    data.RescaleSlope, data.RescaleIntercept = 1, -1024
    data.PixelData = pixels.astype("<u2").tobytes()
    buffer = io.BytesIO()
    data.save_as(buffer, enforce_file_format=True)
    return buffer.getvalue()


@pytest.fixture(scope="session")
def picture() -> bytes:
    """A bright disc, as PNG."""
    y, x = np.mgrid[:64, :64] - 32
    buffer = io.BytesIO()
    Image.fromarray(np.where(x**2 + y**2 < 80, 200, 40).astype(np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()
