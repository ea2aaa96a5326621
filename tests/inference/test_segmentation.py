import dataclasses
import gzip
import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import highdicom
import nibabel
import numpy as np
import pytest
import torch
from nibabel.nifti1 import Nifti1Image
from pydicom import Dataset, dcmread
from pydicom.uid import EnhancedCTImageStorage, SecondaryCaptureImageStorage

import mue
from mue.config.schema import Config, DataConfig, ModelConfig, ObjectiveConfig
from mue.data.images.reader import read_image_file
from mue.inference.dicom_seg import as_dicom_seg
from mue.inference.predictor import Predictor
from mue.inference.segmentation import Segmentation, as_nifti, as_npz, segmentation
from mue.models.build import build_modal
from mue.modes import linkage, modes_of

MASKS = Config(data=DataConfig(name="slices"))
ENDS = ("", "-expected")
CLASSES = Config(
    data=DataConfig(name="slices", labels=("background", "rim", "core")),
    model=ModelConfig(c_out=3),
    objective=ObjectiveConfig(likelihood="categorical"),
)


def two_answers(path: Path, config: Config = MASKS, axis: Any = 2) -> Segmentation:
    """A pixel of slice 1 at row 2 and column 3 (probability 0.7), another of slice 3 (0.2)."""
    raw = read_image_file(path, axis=axis)
    y = torch.zeros(1, 2, 1, *raw.pixels.shape[1:])
    y[0, 0, 0, 1, 2, 3] = y[0, 1, 0, 3, 4, 5] = 1
    y[0, 1, 0, 3, 4, 2] = 0.25  # less than one half, so in no mask
    if config.model.c_out == 3:  # the first is all rim, the second all core
        rim, core = y.clone(), y.clone()
        rim[:, 1], core[:, 0] = 0, 0
        y = torch.cat([1 - rim - core, rim, core], dim=2)
    return _segmentation(y, raw, config)


def bright_voxels(path: Path, axis: Any) -> Segmentation:
    """The voxels above 0, and those below."""
    raw = read_image_file(path, axis=axis)
    x = torch.from_numpy(np.ascontiguousarray(raw.pixels))
    return _segmentation(torch.stack([x > 0, x < 0])[None].float(), raw, MASKS)


def _segmentation(y: torch.Tensor, raw: Any, config: Config) -> Segmentation:
    prob, code = torch.tensor([[0.7, 0.2]]), torch.tensor([[4, 9]])
    tree = linkage(torch.tensor([[[0.0, 1.0], [1.0, 0.0]]]), prob)
    return segmentation(modes_of(y.flatten(3, 4), prob, code, tree, 0.5), raw, config)


@pytest.fixture
def volume(tmp_path) -> Path:
    """Voxels i j k = 8 x 7 x 6 with an oblique affine."""
    c, s = np.cos(0.3), np.sin(0.3)
    affine = np.array([[c, -s, 0, 5], [s, c, 0, -7], [0, 0, 2.5, 11], [0, 0, 0, 1]])
    voxels = np.random.default_rng(0).normal(size=(8, 7, 6)).astype(np.float32)
    nibabel.save(Nifti1Image(voxels, affine), tmp_path / "volume.nii.gz")
    return tmp_path / "volume.nii.gz"


def opened(data: bytes) -> Nifti1Image:
    return cast("Nifti1Image", Nifti1Image.from_bytes(gzip.decompress(data)))


def test_masks_their_mean_and_their_notes_by_hand(volume):
    found = two_answers(volume)
    assert np.argwhere(found.masks).tolist() == [[0, 1, 2, 3], [1, 3, 4, 5]]
    assert found.expected[0, 1, 2, 3] == pytest.approx(7 / 9)
    assert found.expected[0, 3, 4, 2] == pytest.approx(2 / 9 / 4)
    assert found.prob == pytest.approx((0.7, 0.2))
    assert found.rest == pytest.approx(0.1)
    said = "hypothesis of rank 2 of 2, probability 0.2000, rest 0.1000, codes 9"
    assert found.notes[1] == said
    assert found.classes == ("mask",)


def test_a_pixel_of_several_classes_has_its_most_probable(volume):
    found = two_answers(volume, CLASSES)
    assert (found.masks[0, 1, 2, 3], found.masks[1, 3, 4, 5]) == (1, 2)
    assert np.count_nonzero(found.masks) == 2
    assert found.classes == ("rim", "core")
    assert found.expected[:, 1, 2, 3] == pytest.approx([7 / 9, 0])


def test_label_maps_have_the_values_that_the_files_had(volume):
    """As the classes 0, 1, 2 and 4 of BraTS: a mask holds 4 where the model learned from 4."""
    labels = ("background", "rim", "core")
    config = replace(CLASSES, data=DataConfig(name="slices", labels=labels, values=(0, 2, 400)))
    found = two_answers(volume, config)
    assert (found.masks[0, 1, 2, 3], found.masks[1, 3, 4, 5]) == (1, 2)
    image = opened(as_nifti(found)[".nii.gz"])
    assert np.unique(np.asarray(image.dataobj)).tolist() == [0, 2, 400]
    comment = json.loads(image.header.extensions[0].get_content())
    assert comment["labels"] == {"rim": 2, "core": 400}
    with np.load(io.BytesIO(as_npz(found))) as arrays:
        assert np.unique(arrays["masks"]).tolist() == [0, 2, 400]
        assert arrays["values"].tolist() == [2, 400]


def test_the_name_and_the_value_of_a_single_class_are_kept(volume, ct):
    data = DataConfig(name="slices", labels=("background", "lesion"), values=(0, 255))
    config = Config(data=data)
    assert np.unique(two_answers(volume, config).label_maps).tolist() == [0, 255]
    (seg, _) = (read_seg(content) for content in as_dicom_seg(two_answers(ct, config)).values())
    assert [s.SegmentLabel for s in seg.SegmentSequence] == [
        "1: lesion (0.700)",
        "2: lesion (0.200)",
    ]


def test_answers_that_are_no_masks_are_refused(volume):
    normal = Config(method="exact", objective=ObjectiveConfig(likelihood="normal"))
    with pytest.raises(ValueError, match="no masks; take the formats png and json"):
        two_answers(volume, normal)


# --- NIfTI and npz --------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_nifti_has_the_voxels_and_the_affine_of_its_source(volume, axis):
    source = Nifti1Image.from_filename(volume)
    voxels = np.asarray(source.dataobj)
    image = opened(as_nifti(bright_voxels(volume, axis))[".nii.gz"])
    assert np.array_equal(image.get_sform(), source.get_sform())
    found = np.asarray(image.dataobj)
    assert found.dtype == np.uint8
    assert np.array_equal(found, np.stack([voxels > 0, voxels < 0], axis=3))


@pytest.mark.parametrize("form", ["sform", "qform"])
@pytest.mark.parametrize("axes", [(-1, 1, 1), (1, 1, 1), (1, -1, -1)])
def test_a_nifti_has_its_place_by_either_form_and_of_either_hand(tmp_path, form, axes):
    """An oblique affine, of which the first has a negative determinant."""
    turned = np.array([[0.36, 0.48, -0.8], [-0.8, 0.6, 0], [0.48, 0.64, 0.6]])
    affine, voxels = np.eye(4), np.random.default_rng(0).normal(size=(8, 7, 6))
    affine[:3, :3], affine[:3, 3] = turned @ np.diag(axes) @ np.diag([0.7, 0.9, 2.5]), (5, -7, 11)
    source = Nifti1Image(voxels.astype(np.float32), None)
    source.set_sform(affine if form == "sform" else None, int(form == "sform"))
    source.set_qform(affine if form == "qform" else None, int(form == "qform"))
    (tmp_path / "a.nii.gz").write_bytes(gzip.compress(source.to_bytes()))
    image = opened(as_nifti(bright_voxels(tmp_path / "a.nii.gz", 0))[".nii.gz"])
    np.testing.assert_allclose(np.array(image.affine), affine, atol=1e-5)
    assert np.array_equal(np.asarray(image.dataobj)[..., 0], voxels > 0)


def test_the_expected_mask_and_the_probabilities_are_in_the_nifti(volume):
    files = as_nifti(two_answers(volume))
    expected = np.asarray(opened(files["-expected.nii.gz"]).dataobj)
    assert expected.shape == (8, 7, 6, 1)
    assert expected[3, 2, 1, 0] == pytest.approx(7 / 9)  # i is the column, k the slice
    (comment,) = opened(files[".nii.gz"]).header.extensions
    said = json.loads(comment.get_content().rstrip(b"\0"))
    assert said["hypotheses"][0].startswith("hypothesis of rank 1 of 2, probability 0.7000")


def test_a_dicom_series_becomes_a_nifti_with_its_affine(ct):
    """By hand: x and y of DICOM point to the left and to the back, those of NIfTI do not."""
    image = opened(as_nifti(two_answers(ct))[".nii.gz"])
    affine = [[-0.75, 0, 0, 30], [0, -0.5, 0, 20], [0, 0, 2, 10], [0, 0, 0, 1]]
    np.testing.assert_allclose(image.get_sform(), affine)
    assert np.argwhere(np.asarray(image.dataobj)).tolist() == [[3, 2, 1, 0], [5, 4, 3, 1]]


def test_an_npz_holds_the_arrays(volume):
    found = two_answers(volume)
    with np.load(io.BytesIO(as_npz(found))) as arrays:
        assert np.array_equal(arrays["masks"], found.masks)
        assert np.array_equal(arrays["expected"], found.expected)
        assert arrays["prob"] == pytest.approx(found.prob)
        assert arrays["classes"].tolist() == ["mask"]
        assert np.array_equal(arrays["affine"], Nifti1Image.from_filename(volume).get_sform())


# --- DICOM ----------------------------------------------------------------------------------------


def read_seg(data: bytes) -> highdicom.seg.Segmentation:
    return highdicom.seg.segread(io.BytesIO(data))


def in_order(folder: Path) -> list[str]:
    """The instances of a series from the lowest slice up."""
    heads = [dcmread(path) for path in folder.glob("*.dcm")]
    return [h.SOPInstanceUID for h in sorted(heads, key=lambda h: h.ImagePositionPatient[2])]


def enhanced(folder: Path) -> Path:
    """The series as one file of several frames."""
    heads = sorted((dcmread(p) for p in folder.iterdir()), key=lambda h: h.ImagePositionPatient[2])
    heads = [heads[k] for k in (3, 0, 4, 1, 2)]
    data, each = heads[0], list[Dataset]()
    for head in heads:
        group, position = Dataset(), Dataset()
        position.ImagePositionPatient = head.ImagePositionPatient
        group.PlanePositionSequence = [position]
        each.append(group)
    shared, measures, orientation = Dataset(), Dataset(), Dataset()
    measures.PixelSpacing, measures.SliceThickness = data.PixelSpacing, 2.0
    orientation.ImageOrientationPatient = data.ImageOrientationPatient
    shared.PixelMeasuresSequence = [measures]
    shared.PlaneOrientationSequence = [orientation]
    data.PixelData = b"".join(head.PixelData for head in heads)
    for name in ("ImagePositionPatient", "ImageOrientationPatient", "PixelSpacing"):
        delattr(data, name)
    data.SOPClassUID = data.file_meta.MediaStorageSOPClassUID = EnhancedCTImageStorage
    data.NumberOfFrames = len(heads)
    data.SharedFunctionalGroupsSequence, data.PerFrameFunctionalGroupsSequence = [shared], each
    path = folder.parent / "enhanced.dcm"
    data.save_as(path)
    return path


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_the_frames_of_a_dicom_segmentation_are_on_their_slices(ct, axis):
    found = two_answers(ct, axis=axis)
    seg, uids = read_seg(as_dicom_seg(found)[".dcm"]), in_order(ct)
    frames = seg.get_pixels_by_source_instance(uids, assert_missing_frames_are_empty=True)
    assert np.array_equal(np.moveaxis(frames, 3, 0), found.volume(found.masks))
    by_file = {dcmread(p).SOPInstanceUID: dcmread(p) for p in ct.glob("*.dcm")}
    for group in seg.PerFrameFunctionalGroupsSequence:  # as pydicom reads it
        (derived,) = group.DerivationImageSequence
        (source,) = derived.SourceImageSequence
        position = group.PlanePositionSequence[0].ImagePositionPatient
        assert position == by_file[source.ReferencedSOPInstanceUID].ImagePositionPatient


def test_the_frames_of_one_file_are_referred_to_in_its_order(ct):
    """An enhanced image, whose frames come in an order that is neither up nor down."""
    path, order = enhanced(ct), [3, 0, 4, 1, 2]
    found = two_answers(path)
    assert found.source.pixels[0, :, 0, 0].tolist() == [0, 100, 200, 300, 400]
    seg, source = read_seg(as_dicom_seg(found)[".dcm"]), dcmread(path)
    frames = seg.get_pixels_by_source_frame(
        source.SOPInstanceUID, [1, 2, 3, 4, 5], assert_missing_frames_are_empty=True
    )
    assert np.array_equal(np.moveaxis(frames, 3, 0)[:, np.argsort(order)], found.masks)
    heights = {
        group.DerivationImageSequence[0].SourceImageSequence[0].ReferencedFrameNumber: (
            group.PlanePositionSequence[0].ImagePositionPatient[2]
        )
        for group in seg.PerFrameFunctionalGroupsSequence
    }
    assert heights == {order.index(1) + 1: 12, order.index(3) + 1: 16}


def test_segments_say_their_rank_and_probability(ct):
    files = as_dicom_seg(two_answers(ct, CLASSES))
    seg = read_seg(files[".dcm"])
    labels = [s.SegmentLabel for s in seg.SegmentSequence]
    assert labels == ["1: rim (0.700)", "1: core (0.700)", "2: rim (0.200)", "2: core (0.200)"]
    said = seg.SegmentSequence[3].SegmentDescription
    assert said == "core: hypothesis of rank 2 of 2, probability 0.2000, rest 0.1000, codes 9"
    source = dcmread(next(ct.glob("*.dcm")))
    assert (seg.PatientID, seg.StudyInstanceUID) == ("somebody", source.StudyInstanceUID)
    assert seg.FrameOfReferenceUID == source.FrameOfReferenceUID


def test_the_expected_mask_is_a_fractional_segmentation(ct):
    found = two_answers(ct)
    seg = read_seg(as_dicom_seg(found)["-expected.dcm"])
    assert (seg.SegmentationType, seg.SegmentationFractionalType) == ("FRACTIONAL", "PROBABILITY")
    frames = seg.get_pixels_by_source_instance(in_order(ct), assert_missing_frames_are_empty=True)
    np.testing.assert_allclose(frames[..., 0], found.expected[0], atol=0.5 / 255 + 1e-6)


def test_a_hypothesis_without_any_pixel_is_a_segment(ct):
    raw = read_image_file(ct)
    empty = torch.zeros(1, 2, *raw.pixels.shape)
    seg = read_seg(as_dicom_seg(_segmentation(empty, raw, MASKS))[".dcm"])
    assert len(seg.SegmentSequence) == 2
    assert not seg.pixel_array.any()


def test_what_is_no_dicom_cannot_be_referred_to(volume):
    with pytest.raises(ValueError, match=r"volume\.nii\.gz must be DICOM for .* dicom-seg"):
        as_dicom_seg(two_answers(volume))


def check_by_dciodvfy(paths: Iterable[Path]) -> None:
    if (tool := shutil.which("dciodvfy")) is None:
        pytest.skip("needs dciodvfy: make dciodvfy")
    for path in paths:
        done = subprocess.run([tool, path], capture_output=True, text=True, check=False)
        said = done.stdout + done.stderr
        assert "Segmentation" in said, said
        assert not [line for line in said.splitlines() if line.startswith("Error")], said


def written(files: dict[str, bytes], folder: Path) -> list[Path]:
    for name, data in files.items():
        (folder / f"seg{name}").write_bytes(data)
    return [folder / f"seg{name}" for name in files]


def test_dciodvfy_finds_no_error_without_any_pixel(ct, tmp_path):
    raw = read_image_file(ct)
    empty = _segmentation(torch.zeros(1, 2, *raw.pixels.shape), raw, MASKS)
    check_by_dciodvfy(written(as_dicom_seg(empty), tmp_path))


@pytest.mark.parametrize("thickness", [None, 0])
def test_slices_without_a_thickness_have_that_of_their_distance(ct, tmp_path, thickness):
    for path in ct.glob("*.dcm"):
        data = dcmread(path)
        data.SliceThickness = thickness
        data.save_as(path)
    paths = written(as_dicom_seg(two_answers(ct)), tmp_path)
    (shared,) = dcmread(paths[0]).SharedFunctionalGroupsSequence
    assert shared.PixelMeasuresSequence[0].SliceThickness == 2
    check_by_dciodvfy(paths)


@pytest.mark.parametrize("several", [False, True])
def test_dciodvfy_finds_no_error_in_what_predict_writes(ct, lesion_config, tmp_path, several):
    """Of a series, an enhanced image, a photograph without a place in space, and its raw form."""
    config = lesion_config
    if several:
        config = dataclasses.replace(
            CLASSES,
            model=dataclasses.replace(lesion_config.model, c_out=3),
            codebook=lesion_config.codebook,
        )
    predictor = Predictor(build_modal(config).eval(), config)
    capture, bare = tmp_path / "capture.dcm", tmp_path / "bare.dcm"
    data = dcmread(next(ct.glob("*.dcm")))
    data.SOPClassUID = data.file_meta.MediaStorageSOPClassUID = SecondaryCaptureImageStorage
    for name in ("ImagePositionPatient", "ImageOrientationPatient", "FrameOfReferenceUID"):
        delattr(data, name)
    data.save_as(bare)
    data.PatientOrientation = ["L", "P"]
    data.save_as(capture)
    sources = [enhanced(ct), ct, capture, bare]
    out = tmp_path / "out"
    found = mue.predict(predictor, sources, out=out, format=["dicom-seg"], device="cpu").files
    assert {path.stem for path in found} == {
        f"{name}{part}" for name in ("enhanced", "series", "capture", "bare") for part in ENDS
    }
    assert dcmread(out / "capture.dcm").PatientOrientation == ["L", "P"]
    assert not dcmread(out / "bare.dcm").PatientOrientation
    check_by_dciodvfy(found)


@pytest.mark.data
def test_a_real_series_is_segmented_without_an_error(real_data, tmp_path):
    (source,) = real_data("lidc-dicom/LIDC-IDRI-0003-part.tar.gz")
    with tarfile.open(source) as tar:
        tar.extractall(tmp_path, filter="data")
    folder = next(tmp_path.rglob("*.dcm")).parent
    found = two_answers(folder)
    files = as_dicom_seg(found)
    frames = read_seg(files[".dcm"]).get_pixels_by_source_instance(
        in_order(folder), assert_missing_frames_are_empty=True
    )
    assert np.array_equal(np.moveaxis(frames, 3, 0), found.masks)
    check_by_dciodvfy(written(files, tmp_path))
