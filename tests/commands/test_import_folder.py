"""`mue data import folder`, called as the shell calls it, in this process."""

import json
from collections.abc import Callable
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from PIL import Image
from pydicom import Dataset
from pydicom.uid import generate_uid

from mue.data.prepared.open import open_prepared
from mue.data.synthetic.two_digits import two_digits


def tree(folder: Path) -> dict[str, bytes | None]:
    found = folder.rglob("*")
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in found}


def png(path: Path, pixels: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.astype(np.uint8)).save(path)
    return path


def disc(side: int, radius: float) -> np.ndarray:
    at = np.indices((side, side)) - side / 2
    return np.hypot(*at) < radius


@pytest.fixture
def source(tmp_path) -> Path:
    """Six grey pictures with two to four raters, in nnU-Net's layout, in two sizes."""
    folder = tmp_path / "mine"
    for i in range(6):
        side = 16 + 4 * (i % 2)
        png(folder / "imagesTr" / f"c{i}_0000.png", 40 * i * np.ones((side, side)))
        for j in range(2 + i % 3):
            png(folder / "labelsTr" / f"c{i}_r{j}.png", disc(side, 3 + j))
    content = {
        "channel_names": {"0": "grey"},
        "labels": {"background": 0, "lesion": 1},
        "file_ending": ".png",
    }
    (folder / "dataset.json").write_text(json.dumps(content))
    return folder


# --- what is imported -----------------------------------------------------------------------------


@pytest.mark.usefixtures("source")
def test_a_folder_in_the_layout_is_prepared_as_it_is(mue, tmp_path):
    said = mue("data", "import", "folder", "mine", "--out", "out")
    assert said.code == 0, said
    assert "out: 6 patients, 6 cases, 6 slices\n" in said.out
    assert "prepared out\n" in said.out
    found = open_prepared(tmp_path / "out", verify=True)
    assert found.meta.labels == ("background", "lesion")
    for i, row in enumerate(found.rows):
        assert (row.id, row.source) == (f"c{i}", f"imagesTr/c{i}_0000.png")
        side = 16 + 4 * (i % 2)
        assert np.array_equal(found.image(i), np.full((1, side, side), 40 * i))
        wanted = np.stack([disc(side, 3 + j) for j in range(2 + i % 3)])
        assert np.array_equal(found.masks_of(i), wanted)
    mue("data", "import", "folder", "mine", "--out", "again")
    assert tree(tmp_path / "out") == tree(tmp_path / "again")


def test_patterns_patients_and_a_table_of_splits(mue, tmp_path):
    for patient, k in ((1, 0), (1, 1), (2, 0)):
        png(tmp_path / f"all/P{patient}-{k}/photo.png", np.zeros((8, 8, 3)))
        png(tmp_path / f"all/P{patient}-{k}/anna.png", 255 * disc(8, 2))
        png(tmp_path / f"all/P{patient}-{k}/ben.png", 255 * disc(8, 3))
    (tmp_path / "splits.csv").write_text("patient,split\nP1,train\nP2,val\n")
    patterns = ["--image", "{case}/photo.png", "--mask", "{case}/{rater}.png"]
    more = ["--patient", "{patient}-*", "--splits", "splits.csv"]
    said = mue("data", "import", "folder", "all", *patterns, *more, "--out", "out")
    assert said.code == 0, said
    assert "2 patients, 3 cases" in said.out
    assert "note     no image is in test; a table for --splits can name some" in said.out
    found = open_prepared(tmp_path / "out")
    assert [(row.id, row.split) for row in found.rows] == [
        ("P1/P1-0", "train"),
        ("P1/P1-1", "train"),
        ("P2/P2-0", "val"),
    ]
    assert found.meta.channels == 3
    assert found.masks_of(0).sum(axis=(1, 2)).tolist() == [disc(8, r).sum() for r in (2, 3)]


def test_cases_of_one_name_are_of_their_patients(mue, tmp_path):
    for i, patient in enumerate(("P1", "P2")):
        png(tmp_path / f"all/{patient}/scan1/photo.png", np.full((8, 8), i))
        png(tmp_path / f"all/{patient}/scan1/anna.png", 255 * disc(8, 2 + i))
    (tmp_path / "splits.csv").write_text("patient,split\nP1,train\nP2,val\n")
    image, mask = "{patient}/{case}/photo.png", "{patient}/{case}/{rater}.png"
    arguments = ["all", "--image", image, "--splits", "splits.csv", "--out", "out"]
    said = mue("data", "import", "folder", *arguments, "--mask", mask)
    assert said.code == 0, said
    found = open_prepared(tmp_path / "out")
    assert [(row.id, row.split) for row in found.rows] == [
        ("P1/scan1", "train"),
        ("P2/scan1", "val"),
    ]
    assert [found.image(i).max() for i in range(2)] == [0, 1]
    said = mue("data", "import", "folder", *arguments, "--mask", "*/{case}/{rater}.png")
    assert (said.code, "{patient} must be in both --image and --mask" in said.err) == (2, True)
    more = ["--mask", mask, "--patient", "{patient}*"]
    said = mue("data", "import", "folder", *arguments, *more)
    assert (said.code, "name patients by --patient, or by {patient} in" in said.err) == (2, True)


def test_the_example_is_imported_with_its_classes_and_true_probabilities(mue, tmp_path):
    assert mue("data", "new", "example", "--cases", 40).code == 0
    said = mue("data", "import", "folder", "example", "--out", "out")
    assert said.code == 0, said
    found = open_prepared(tmp_path / "out")
    assert found.meta.labels == ("background", "red", "blue")
    assert found.origin["known_probabilities"] is True
    assert np.allclose(found.q, [[0.5, 0.3, 0.2]])
    assert len(found.members("test")) == 10
    for i in (0, 35):
        wanted = two_digits("train" if i < 30 else "test", 0, i)
        assert np.array_equal(found.image(i), wanted.image)
        assert np.array_equal(found.masks_of(i), wanted.masks)


def test_a_ct_is_cut_into_slices_and_normalized_by_a_window(mue, tmp_path):
    random, affine = np.random.default_rng(0), np.diag([1.0, 1.0, 3.0, 1.0])
    for i in range(4):
        voxels = random.integers(-1000, 1000, (8, 9, 5)).astype(np.int16)
        for kind, name, values in (
            ("imagesTr", f"c{i}_0000", voxels),
            ("labelsTr", f"c{i}_r0", (voxels > 0).astype(np.uint8)),
        ):
            (tmp_path / "ct" / kind).mkdir(parents=True, exist_ok=True)
            nib.save(nib.Nifti1Image(values, affine), tmp_path / "ct" / kind / f"{name}.nii.gz")
    content = '{"channel_names": {"0": "CT"}, "file_ending": ".nii.gz"}'
    (tmp_path / "ct" / "dataset.json").write_text(content)
    said = mue("data", "import", "folder", "ct", "--out", "out", "--axis", 0)
    assert said.code == 0, said
    assert "every image has one rater: no disagreement can be learned" in said.out
    found = open_prepared(tmp_path / "out")
    assert (len(found.rows), found.sizes, found.meta.dtype) == (32, [(5, 9)], "int16")
    normalize = found.meta.normalize
    assert normalize.kind == "window"
    assert 0 < normalize.low[0] < 50 < 950 < normalize.high[0] <= 1000
    geometry = found.volumes()["c0", "c0"]
    assert (geometry.shape, geometry.axis) == ((8, 9, 5), 0)
    assert np.array_equal(geometry.affine, affine)
    assert found.rows[0].spacing == (3, 1)


# --- what is refused ------------------------------------------------------------------------------


def _unknown_label(source: Path) -> str:
    png(source / "labelsTr" / "c1_r0.png", 7 * np.ones((20, 20)))
    return "c1: labelsTr/c1_r0.png holds the value 7, which `labels` does not name (0 background, 1"


def _raters_of_two_sizes(source: Path) -> str:
    png(source / "labelsTr" / "c1_r0.png", np.zeros((16, 16)))
    return "c1: labelsTr/c1_r0.png is 16 x 16 and imagesTr/c1_0000.png 20 x 20; they must be the"


def _mask_without_an_image(source: Path) -> str:
    (source / "imagesTr" / "c1_0000.png").unlink()
    return "c1: has a mask, labelsTr/c1_r0.png, and no image"


def _damaged(source: Path) -> str:
    path = source / "imagesTr" / "c1_0000.png"
    path.write_bytes(path.read_bytes()[:-9])
    return "c1: imagesTr/c1_0000.png is a truncated PNG"


def _animated(source: Path) -> str:
    frames = [Image.new("L", (20, 20), v) for v in (0, 255)]
    path = source / "imagesTr" / "c1_0000.png"
    frames[0].save(path, save_all=True, append_images=frames[1:])
    return "c1: imagesTr/c1_0000.png is an animation; save its frames as pictures"


def _colour_among_grey(source: Path) -> str:
    png(source / "imagesTr" / "c1_0000.png", np.zeros((20, 20, 3)))
    return "c1: imagesTr/c1_0000.png has 3 channels of uint8, and others have 1 of uint8"


def _colour_before_grey(source: Path) -> str:
    png(source / "imagesTr" / "c0_0000.png", np.zeros((16, 16, 3)))
    return "c0: imagesTr/c0_0000.png has 3 channels of uint8, and others have 1 of uint8"


SPOIL = [
    _unknown_label,
    _raters_of_two_sizes,
    _mask_without_an_image,
    _damaged,
    _animated,
    _colour_among_grey,
    _colour_before_grey,
]


@pytest.mark.parametrize("spoil", SPOIL)
def test_bad_input_is_one_sentence_exit_2_and_nothing_written(mue, source, tmp_path, spoil):
    words, before = spoil(source), tree(tmp_path)
    said = mue("data", "import", "folder", "mine", "--out", "out")
    assert (said.code, said.out) == (2, "")
    (sentence,) = [line for line in said.err.splitlines() if line.startswith("mue: ")]
    assert sentence.startswith(f"mue: {words}")
    assert sentence.endswith("; correct it, or import the rest with --skip-bad")
    assert tree(tmp_path) == before


@pytest.mark.parametrize("spoil", SPOIL)
def test_what_is_bad_can_be_skipped_and_is_listed(mue, source, tmp_path, spoil):
    words = spoil(source)
    said = mue("data", "import", "folder", "mine", "--out", "out", "--skip-bad")
    assert said.code == 0, said
    (line,) = [line for line in said.err.splitlines() if line.startswith("left out ")]
    assert line.startswith(f"left out {words}")
    assert "1 left out, listed above" in said.out
    found = open_prepared(tmp_path / "out", verify=True)
    assert [row.case for row in found.rows] == [f"c{i}" for i in range(6) if f"c{i}" != words[:2]]


@pytest.mark.usefixtures("source")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("nowhere --out out", "there is no folder nowhere to import"),
        ("mine --out mine", "mine must be empty or not exist yet, and it holds files"),
        ("mine --out out --image {case}.png", "name both --image and --mask"),
        ("mine --out out --image {case}.jpg --mask {case}_{rater}.png", "matches no file of mine"),
        (
            "mine --out out --image imagesTr/{case}_0000.png --mask masks/{case}_{rater}.png",
            "--mask 'masks/{case}_{rater}.png' matches no file of mine",
        ),
        ("mine --out out --splits none.csv", "there is no table of splits none.csv"),
        (
            "mine --out out --splits test.csv",
            "there must be a case for training, and there is none",
        ),
        ("mine --out out --patient x", "must have {patient}"),
        ("mine --out out --splits one.csv", "c0: has no line in one.csv, by case or patient"),
    ],
)
def test_an_import_that_makes_no_sense_is_refused(mue, tmp_path, arguments, words):
    (tmp_path / "test.csv").write_text("case,split\n" + "".join(f"c{i},test\n" for i in range(6)))
    (tmp_path / "one.csv").write_text("case,split\nc5,train\n")
    before = tree(tmp_path)
    said = mue("data", "import", "folder", *arguments.split())
    assert (said.code, said.out) == (2, "")
    (sentence,) = [line for line in said.err.splitlines() if line.startswith("mue: ")]
    assert words in sentence
    assert tree(tmp_path) == before


def _affine_of_another_scan(folder: Path) -> tuple[str, list[str]]:
    voxels, moved = np.zeros((4, 5, 3), np.uint8), np.eye(4)
    moved[0, 3] = 7
    for i in range(2):
        (folder / f"c{i}").mkdir(parents=True)
        nib.save(nib.Nifti1Image(voxels, np.eye(4)), folder / f"c{i}" / "image.nii.gz")
        nib.save(nib.Nifti1Image(voxels, moved), folder / f"c{i}" / "seg1.nii.gz")
    nib.save(nib.Nifti1Image(voxels, np.eye(4)), folder / "c1" / "seg1.nii.gz")
    words = "c0: c0/seg1.nii.gz has an affine that puts it up to 7 mm away from c0/image.nii.gz; re"
    return words, ["--image", "{case}/image.nii.gz", "--mask", "{case}/seg{rater}.nii.gz"]


def _two_images_of_one_case(folder: Path) -> tuple[str, list[str]]:
    for name in ("one/a.png", "two/a.png", "masks/a_1.png", "one/b.png", "masks/b_1.png"):
        png(folder / name, np.zeros((4, 4)))
    words = "a: has two files for one image, one/a.png and two/a.png"
    return words, ["--image", "*o*/{case}.png", "--mask", "masks/{case}_{rater}.png"]


def _series_with_a_gap(folder: Path, ct_slice: Callable[..., Dataset]) -> tuple[str, list[str]]:
    for i in range(2):
        uid, scan = generate_uid(), folder / f"c{i}" / "ct"
        scan.mkdir(parents=True)
        for k in (0, 1, 2, 4) if i == 0 else (0, 1, 2, 3):
            name = scan / f"{k}.dcm"
            ct_slice(np.ones((4, 5)), 2.0 * k, uid).save_as(name, enforce_file_format=True)
        np.save(folder / f"c{i}" / "seg1.npy", np.zeros((1, 4, 4, 5), np.uint8))
    words = "c0: c0/ct has a slice missing between 2.dcm (4 mm) and 4.dcm (8 mm), where its step"
    return words, ["--image", "{case}/ct", "--mask", "{case}/seg{rater}.npy"]


@pytest.fixture(params=["affine", "images", "gap"])
def apart(request, ct_slice, tmp_path) -> tuple[str, list[str]]:
    """Files that do not belong together: what is said of them, and the patterns."""
    folder = tmp_path / "files"
    if request.param == "gap":
        return _series_with_a_gap(folder, ct_slice)
    make = {"affine": _affine_of_another_scan, "images": _two_images_of_one_case}
    return make[request.param](folder)


def test_files_that_do_not_belong_together_are_refused(mue, tmp_path, apart):
    words, patterns = apart
    before = tree(tmp_path)
    said = mue("data", "import", "folder", "files", "--out", "out", *patterns)
    assert (said.code, said.out) == (2, "")
    (sentence,) = [line for line in said.err.splitlines() if line.startswith("mue: ")]
    assert sentence.startswith(f"mue: {words}")
    assert tree(tmp_path) == before


def test_files_that_do_not_belong_together_can_be_skipped_and_are_listed(mue, tmp_path, apart):
    words, patterns = apart
    table = ["--splits", "splits.csv"]
    (tmp_path / "splits.csv").write_text("case,split\na,train\nb,train\nc0,train\nc1,train\n")
    said = mue("data", "import", "folder", "files", "--out", "out", "--skip-bad", *patterns, *table)
    assert said.code == 0, said
    (line,) = [line for line in said.err.splitlines() if line.startswith("left out ")]
    assert line.startswith(f"left out {words}")
    found = open_prepared(tmp_path / "out", verify=True)
    assert {row.case for row in found.rows} == ({"b"} if words.startswith("a") else {"c1"})
