"""Files that are read from memory, or refused."""

import gzip
import io

import nibabel as nib
import numpy as np
import pytest
import tifffile
import torch
from asking import propose
from PIL import Image
from pydicom import dcmread

from mue.config.schema import NormalizeConfig
from mue.inference.files import InputFile, read_input
from mue.inference.inputs import network_input
from mue.service.settings import Settings
from mue.service.uploads import read_upload


def test_every_kind_of_file_is_read_from_memory(client):
    grey = np.random.default_rng(0).integers(0, 255, (32, 32), dtype=np.uint8)
    files: dict[str, bytes] = {"a.nii": nib.Nifti1Image(grey[:, :, None], np.eye(4)).to_bytes()}
    for name in ("a.png", "a.jpg", "a.tif", "a.npy"):
        buffer = io.BytesIO()
        if name == "a.npy":
            np.save(buffer, grey)
        elif name == "a.tif":
            tifffile.imwrite(buffer, grey)
        else:
            Image.fromarray(grey).save(buffer, "PNG" if name == "a.png" else "JPEG")
        files[name] = buffer.getvalue()
    for name, content in files.items():
        assert propose(client, content, name).status_code == 200, name


@pytest.mark.parametrize("kind", ["unit", "zscore"])
def test_an_upload_is_what_mue_predict_reads_and_is_normalized_as_it(tmp_path, series, kind):
    """Slice by slice, in a volume of 12 bits; the bits are those of the file."""
    for name, content in series:
        data = dcmread(io.BytesIO(content))
        data.BitsStored, data.HighBit = 12, 11
        del data.RescaleSlope, data.RescaleIntercept
        data.save_as(tmp_path / name)
    raw, config = read_input(InputFile("a", (tmp_path,)), 1), NormalizeConfig(kind=kind)
    files = [(name, (tmp_path / name).read_bytes()) for name, _ in series]
    for i, wanted in enumerate(network_input(raw.pixels, config, raw.bits)):
        upload = read_upload(files, i, 1, Settings())
        assert upload.raw.bits == raw.bits == 12
        x = network_input(upload.raw.pixels, config, upload.raw.bits)
        assert torch.equal(x, wanted[None])


def test_a_series_is_refused_by_a_sentence_where_it_is_none(served, series, picture):
    def refused(files, **settings):
        form = {"model": "lidc-exact"}
        with served(**settings) as other:
            parts = [("file", file) for file in files]
            found = other.post("/api/propose", files=parts, data=form)
        assert found.status_code == 422
        return found.json()["error"]

    ordered = sorted(series)
    assert "a.png is not DICOM" in refused([*series, ("a.png", picture)])
    assert "1.dcm has no content" in refused([series[0], ("1.dcm", b"")])
    assert "has a slice missing between 1.dcm" in refused([*ordered[:2], *ordered[3:]])
    assert "two slices between" in refused([*series, series[0]])
    assert "at most 1000 bytes are read" in refused(series, volume=1000)
    assert "has 6 slices; 5 are read" in refused(series, slices=5)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.png", b""),
        ("a.png", b"\x89PNG\r\n\x1a\nrubbish"),
        ("a.txt", b"hello"),
        ("a.dcm", b"\0" * 128 + b"DICM" + b"rubbish"),
        ("a.nii.gz", gzip.compress(b"\0" * 1000, mtime=0)),
        ("../../etc/passwd", b"root"),
    ],
)
def test_rubbish_is_answered_with_a_sentence(client, name, content):
    found = propose(client, content, name)
    assert found.status_code == 422
    assert set(found.json()) == {"error"}
    assert "Traceback" not in found.text
    assert "/" not in found.json()["error"].split()[0]


def test_an_image_of_huge_dimensions_is_refused_before_it_is_decoded(client):
    buffer = io.BytesIO()
    Image.new("1", (30_000, 30_000)).save(buffer, "PNG")
    found = propose(client, buffer.getvalue())
    assert found.status_code == 422
    assert "30000 x 30000" in found.json()["error"]


def test_a_bomb_in_nifti_is_refused(client):
    header = bytearray(nib.Nifti1Image(np.zeros((4, 4, 4), np.uint8), np.eye(4)).to_bytes()[:352])
    header[40:56] = np.array([3, 900, 900, 2000, 1, 1, 1, 1], "<i2").tobytes()
    found = propose(client, gzip.compress(bytes(header) + b"\0" * (1 << 24)), "a.nii.gz")
    assert found.status_code == 422
    assert "bytes are read" in found.json()["error"]
