"""Answers as files for other programs."""

import base64
import gzip
import io

import nibabel as nib
import numpy as np
import pytest
from asking import export, nifti, propose
from pydicom import dcmread

from mue.inference.writers import FORMATS


def test_a_slice_of_a_volume_is_answered_and_exported_where_it_was(client):
    values = np.random.default_rng(0).integers(-1000, 400, (40, 48, 5)).astype(np.int16)
    affine = np.array([[-2.0, 0, 0, 5], [0, 3, 0, 6], [0, 0, 4, 7], [0, 0, 0, 1]])
    content = nifti(values, affine)
    image = propose(client, content, "a.nii.gz", details=True, slice=3).json()["image"]
    assert (image["slices"], image["slice"], image["spacing"]) == (5, 3, [3.0, 2.0])
    shown = np.frombuffer(base64.b64decode(image["values"]), "<i2").reshape(48, 40)
    assert np.array_equal(shown, values[:, :, 3].T)
    form = {"model": "lidc-exact", "slice": "3", "format": "nifti"}
    files = {"file": ("a.nii.gz", content)}
    exported = client.post("/api/export", files=files, data=form).content
    back = nib.Nifti1Image.from_bytes(gzip.decompress(exported))
    assert back.shape[:3] == (40, 48, 1)
    assert back.affine is not None
    assert np.allclose(back.affine[:3, 3], affine[:3, 3] + 3 * affine[:3, 2])


def test_dicom_is_answered_and_exported_as_a_segmentation(client, series):
    name, content = series[0]
    image = propose(client, content, name, details=True).json()["image"]
    assert (image["low"], image["high"]) == (3 - 1024, 1050 - 1024)
    assert {"nifti", "dicom-seg", "npz"} <= set(image["formats"]) <= set(FORMATS) - {"png", "json"}
    seg = export(client, [series[0]], format="dicom-seg")
    assert seg.status_code == 200, seg.text
    assert dcmread(io.BytesIO(seg.content)).Modality == "SEG"


def test_a_series_is_ordered_and_its_exports_refer_to_the_slice_that_is_asked_for(client, series):
    by_name = {name: dcmread(io.BytesIO(content)) for name, content in series}
    for k in (0, 4):
        form = {"model": "lidc-exact", "details": "true", "slice": str(k)}
        files = [("file", file) for file in series]
        image = client.post("/api/propose", files=files, data=form).json()["image"]
        assert (image["slices"], image["slice"]) == (6, k)
        values = np.frombuffer(base64.b64decode(image["values"]), image["dtype"])
        assert values[0] == k - 1024
        content = export(client, series, slice=k, format="dicom-seg").content
        (source,) = (
            dcmread(io.BytesIO(content)).ReferencedSeriesSequence[0].ReferencedInstanceSequence
        )
        assert source.ReferencedSOPInstanceUID == by_name[f"{k}.dcm"].SOPInstanceUID
        content = gzip.decompress(export(client, series, slice=k, format="nifti").content)
        back = nib.Nifti1Image.from_bytes(content)
        assert back.shape[:3] == (64, 64, 1)
        assert back.affine is not None
        assert back.affine[2, 3] == 10 + 2.5 * k


def test_dicom_that_a_segmentation_cannot_refer_to_is_named(client, series):
    data = dcmread(io.BytesIO(series[0][1]))
    del data.StudyInstanceUID
    buffer = io.BytesIO()
    data.save_as(buffer)
    found = export(client, [("a.dcm", buffer.getvalue())], format="dicom-seg")
    assert found.status_code == 422, found.text
    assert "StudyInstanceUID" in found.json()["error"]


@pytest.mark.parametrize(
    ("form", "ending"), [("nifti", ".nii.gz"), ("npz", ".npz"), ("dicom-seg", ".dcm")]
)
def test_a_file_is_named_by_its_format(client, series, form, ending):
    found = export(client, [series[0]], format=form)
    assert found.status_code == 200, found.text
    assert found.headers["content-type"] == "application/octet-stream"
    said = found.headers["content-disposition"]
    assert said.startswith('attachment; filename="answers')
    assert said.endswith(f'{ending}"')


def test_without_a_format_it_is_nifti(client, series):
    plain, named = (export(client, [series[0]], **f) for f in ({}, {"format": "nifti"}))
    one, two = (nib.Nifti1Image.from_bytes(gzip.decompress(f.content)) for f in (plain, named))
    assert np.array_equal(one.get_fdata(), two.get_fdata())


def test_the_file_holds_the_modes_that_are_asked_for(client, picture):
    all_of_them, first = (
        np.load(
            io.BytesIO(export(client, [("a.png", picture)], format="npz", by="code", k=k).content)
        )
        for k in (8, 1)
    )
    assert len(all_of_them["prob"]) > 1
    assert first["prob"].tolist() == all_of_them["prob"].tolist()[:1]


@pytest.mark.parametrize(
    ("form", "status"), [({"format": "gif"}, 422), ({"format": "png"}, 422), ({"model": "x"}, 404)]
)
def test_what_is_no_format_and_no_model_is_refused(client, picture, form, status):
    assert export(client, [("a.png", picture)], **form).status_code == status
