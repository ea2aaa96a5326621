import dataclasses
import io
import shutil
import subprocess
import tarfile
from collections.abc import Iterable
from pathlib import Path

import highdicom
import numpy as np
import pytest
import torch
from pydicom import Dataset, dcmread
from pydicom.uid import EnhancedCTImageStorage, SecondaryCaptureImageStorage
from segmentations import CLASSES, MASKS, segmentation_of, two_answers

import mue
from mue.config.schema import Config, DataConfig
from mue.data.images.reader import read_image_file
from mue.inference.dicom_seg import as_dicom_seg
from mue.inference.predictor import Predictor
from mue.models.build import build_modal

ENDS = ("", "-expected")


def test_the_name_and_the_value_of_a_single_class_are_kept(volume, ct):
    data = DataConfig(name="slices", labels=("background", "lesion"), values=(0, 255))
    config = Config(data=data)
    assert np.unique(two_answers(volume, config).label_maps).tolist() == [0, 255]
    (seg, _) = (read_seg(content) for content in as_dicom_seg(two_answers(ct, config)).values())
    assert [s.SegmentLabel for s in seg.SegmentSequence] == [
        "1: lesion (0.700)",
        "2: lesion (0.200)",
    ]


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
    assert found.image.pixels[0, :, 0, 0].tolist() == [0, 100, 200, 300, 400]
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
    seg = read_seg(as_dicom_seg(segmentation_of(empty, raw, MASKS))[".dcm"])
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
    empty = segmentation_of(torch.zeros(1, 2, *raw.pixels.shape), raw, MASKS)
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


def test_a_thickness_that_slices_have_is_kept(ct, tmp_path):
    """Slices may overlap, or have gaps: here they are 2 mm apart."""
    for path in ct.glob("*.dcm"):
        data = dcmread(path)
        data.SliceThickness = 1.5
        data.save_as(path)
    paths = written(as_dicom_seg(two_answers(ct)), tmp_path)
    (shared,) = dcmread(paths[0]).SharedFunctionalGroupsSequence
    assert shared.PixelMeasuresSequence[0].SliceThickness == 1.5


def test_labels_and_descriptions_are_cut_at_what_dicom_holds(ct):
    """64 characters of a label, 1024 of a description: one more is no valid file."""
    name, note = "n" * 70, "".join(chr(ord("a") + i % 26) for i in range(2000))
    found = dataclasses.replace(two_answers(ct), classes=(name,), notes=(note, "short"))
    first, second = read_seg(as_dicom_seg(found)[".dcm"]).SegmentSequence
    assert first.SegmentLabel == f"1: {name}"[:64]
    assert first.SegmentDescription == f"{name}: {note}"[:1024]
    assert second.SegmentDescription == f"{name}: short"


def test_fractions_beyond_0_to_1_are_clipped(ct):
    """Half precision may round a mean of probabilities to more than 1."""
    found = two_answers(ct)
    expected = found.expected.copy()
    expected[0, 1, 2, 3], expected[0, 3, 4, 5], expected[0, 2, 0, 0] = 1.25, -0.5, 0.5
    found = dataclasses.replace(found, expected=expected)
    seg = read_seg(as_dicom_seg(found)["-expected.dcm"])
    frames = seg.get_pixels_by_source_instance(in_order(ct), assert_missing_frames_are_empty=True)
    assert (frames[1, 2, 3, 0], frames[3, 4, 5, 0]) == (1, 0)
    assert frames[2, 0, 0, 0] == pytest.approx(0.5, abs=0.5 / 255 + 1e-6)


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
