from pathlib import Path

import pytest

from mue.data.folder.description import Description
from mue.data.folder.layout import CaseFiles, find_by_layout, find_by_patterns, pattern
from mue.data.folder.patients import with_patients
from mue.data.prepared.item import Rejected
from mue.data.prepared.splits import split_of
from mue.errors import MueError


def touch(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def described(case: CaseFiles | Rejected) -> tuple:
    assert isinstance(case, CaseFiles), case
    return case.case, case.images, case.masks


def test_channels_and_raters_are_gathered_and_ordered(tmp_path):
    touch(
        tmp_path,
        *("imagesTr/a_0000.nii.gz", "imagesTr/a_0001.nii.gz", "imagesTr/b_1_0000.nii.gz"),
        *("labelsTr/a_r10.nii.gz", "labelsTr/a_r2.nii.gz", "labelsTr/b_1.nii.gz"),
        *("imagesTr/.hidden_0000.nii.gz", "imagesTr/notes.txt"),
    )
    a, b = find_by_layout(tmp_path, Description(ending=".nii.gz"))
    images = "imagesTr/a_0000.nii.gz", "imagesTr/a_0001.nii.gz"
    assert described(a) == (
        "a",
        images,
        ("labelsTr/a_r2.nii.gz", "labelsTr/a_r10.nii.gz"),
    )
    assert described(b) == (
        "b_1",
        ("imagesTr/b_1_0000.nii.gz",),
        ("labelsTr/b_1.nii.gz",),
    )


def test_a_test_set_is_the_test_split_and_the_rest_is_for_training_and_validation(tmp_path):
    names = [f"case{i}" for i in range(60)]
    touch(tmp_path, *(f"imagesTr/{n}_0000.png" for n in names))
    touch(tmp_path, *(f"labelsTr/{n}_r0.png" for n in names))
    touch(tmp_path, "imagesTs/z_0000.png", "imagesTs/y_0000.png", "labelsTs/z_r0.png")
    cases = with_patients(find_by_layout(tmp_path, Description()), None, None)
    split = {case.case: case.split for case in cases if isinstance(case, CaseFiles)}
    assert split.pop("z") == "test"
    assert split == {n: "val" if split_of(n) == "val" else "train" for n in names}
    (missing,) = [case for case in cases if isinstance(case, Rejected)]
    assert (missing.what, missing.why) == ("y", "has an image, imagesTs/y_0000.png, and no mask")


def test_without_a_test_set_the_hash_of_the_patient_decides(tmp_path):
    touch(tmp_path, "imagesTr/a_0000.png", "labelsTr/a_r0.png", "imagesTs/b_0000.png")
    (case,) = with_patients(find_by_layout(tmp_path, Description()), None, None)
    assert isinstance(case, CaseFiles)
    assert (case.patient, case.split) == ("a", None)


def test_a_folder_of_another_layout_is_refused_with_the_way_out(tmp_path):
    with pytest.raises(
        MueError, match="must hold imagesTr and labelsTr, or name its files by --im"
    ):
        find_by_layout(tmp_path, Description())
    touch(tmp_path, "imagesTr/a.png", "labelsTr/a/0.tif")
    with pytest.raises(MueError, match=r"must hold cases such as imagesTr/CASE_0000.tif .* none"):
        find_by_layout(tmp_path, Description(ending=".tif"))


@pytest.mark.parametrize("channels", [("T1", "T2"), ()])
def test_a_case_without_a_channel_or_with_another_is_rejected(tmp_path, channels):
    for name, numbers in {"a": (0, 1), "b": (0, 1), "c": (0, 2), "d": (1, 2)}.items():
        touch(tmp_path, *(f"imagesTr/{name}_000{i}.nii" for i in numbers), f"labelsTr/{name}.nii")
    found = find_by_layout(tmp_path, Description(channels=channels))
    assert [described(case)[0] for case in found[:2]] == ["a", "b"]
    for case, has in zip(found[2:], ("0000, 0002", "0001, 0002"), strict=True):
        assert isinstance(case, Rejected)
        assert case.why == f"has files for the channels {has}, and must have them for 0000, 0001"
    touch(tmp_path, "imagesTr/e_0000.nii", "labelsTr/e.nii")
    last = find_by_layout(tmp_path, Description(channels=channels))[-1]
    assert isinstance(last, CaseFiles)  # a file may hold all channels


def test_channels_that_a_pattern_names_are_the_same_in_all_cases(tmp_path):
    touch(tmp_path, *(f"{case}_{name}.nii" for case in "ab" for name in ("t1", "t2", "m")))
    touch(tmp_path, "c_t2.nii", "c_m.nii")
    *_, last = find_by_patterns(tmp_path, "{case}_t{channel}.nii", "{case}_m.nii", Description())
    why = "has files for the channels 2, and must have them for 1, 2"
    assert last == Rejected("c", why)


def test_endings_in_capitals_are_the_same_endings(tmp_path):
    touch(tmp_path, "imagesTr/a_0000.PNG", "labelsTr/a_r0.Png")
    (case,) = find_by_layout(tmp_path, Description(ending=".png"))
    assert described(case) == ("a", ("imagesTr/a_0000.PNG",), ("labelsTr/a_r0.Png",))
    found = find_by_patterns(
        tmp_path, "imagesTr/{case}_0000.png", "labelsTr/{case}_r{rater}.png", Description()
    )
    assert found == [case]
    touch(tmp_path, "imagesTr/a_0000.png")
    (twice,) = find_by_layout(tmp_path, Description(ending=".png"))
    assert isinstance(twice, Rejected)
    assert "has two files for one image, imagesTr/a_0000.PNG and imagesTr/a_0000.png" in twice.why


def test_an_image_without_the_number_of_its_channel_is_rejected(tmp_path):
    touch(tmp_path, "imagesTr/a_0000.png", "labelsTr/a.png", "imagesTr/b.png", "imagesTr/x.txt")
    _, stray = find_by_layout(tmp_path, Description())
    why = "has a name without a channel; rename it as CASE_0000"
    assert stray == Rejected("imagesTr/b.png", why)


def test_patterns_find_cases_raters_and_channels(tmp_path):
    touch(tmp_path, "x/image.nii.gz", "x/task01_seg1.nii.gz", "x/task01_seg2.nii.gz", "x/other.txt")
    (case,) = find_by_patterns(
        tmp_path, "{case}/image.nii.gz", "{case}/task01_seg{rater}.nii.gz", Description()
    )
    masks = "x/task01_seg1.nii.gz", "x/task01_seg2.nii.gz"
    assert described(case) == ("x", ("x/image.nii.gz",), masks)
    touch(tmp_path, "p/a_b-red.png", "p/a_b-blue.png", "q/1/a_b_0.png", "q/2/a_b_1.png")
    (case,) = find_by_patterns(
        tmp_path, "p/{case}-{channel}.png", "q/*/{case}_{rater}.png", Description()
    )
    images, masks = ("p/a_b-blue.png", "p/a_b-red.png"), ("q/1/a_b_0.png", "q/2/a_b_1.png")
    assert described(case) == ("a_b", images, masks)


def test_raters_and_channels_are_in_natural_order(tmp_path):
    names = [f"{kind}{i}" for kind in "cr" for i in (10, 9, 1)]
    touch(tmp_path, *(f"a-{name}.png" for name in names))
    (case,) = find_by_patterns(
        tmp_path, "{case}-c{channel}.png", "{case}-{rater}.png", Description()
    )
    images, masks = (tuple(f"a-{kind}{i}.png" for i in (1, 9, 10)) for kind in "cr")
    assert described(case) == ("a", images, masks)


def test_a_file_that_both_patterns_match_is_of_the_one_that_says_more(tmp_path):
    touch(tmp_path, "a.png", "a_r0.png")
    (case,) = find_by_patterns(tmp_path, "{case}.png", "{case}_r{rater}.png", Description())
    assert described(case) == ("a", ("a.png",), ("a_r0.png",))
    touch(tmp_path, "i/a_image.png", "i/a_0.png")
    (case,) = find_by_patterns(
        tmp_path, "i/{case}_image.png", "i/{case}_{rater}.png", Description()
    )
    assert described(case) == ("a", ("i/a_image.png",), ("i/a_0.png",))


def test_a_name_that_comes_twice_in_a_pattern_must_be_the_same():
    expression = pattern("--image", "{case}/{case}.png", "case")
    assert expression.fullmatch("a/a.png")
    assert not expression.fullmatch("a/b.png")


def test_a_folder_is_found_as_a_series(tmp_path):
    touch(tmp_path, "x/ct/1.dcm", "x/seg_a.nii")
    (case,) = find_by_patterns(tmp_path, "{case}/ct", "{case}/seg_{rater}.nii", Description())
    assert described(case) == ("x", ("x/ct",), ("x/seg_a.nii",))


@pytest.mark.parametrize(
    ("image", "mask", "words"),
    [
        (
            "i/{case}.jpg",
            "m/{case}_{rater}.png",
            "--image 'i/{case}.jpg' matches no file of .*holds i/a.png",
        ),
        ("i/{case}.png", "m/{case}-{rater}.png", "--mask 'm/{case}-{rater}.png' matches no file"),
        (
            "i/image.png",
            "m/{case}_{rater}.png",
            "may have {channel} and {patient}, and no other field, got 'i/image.png'",
        ),
        (
            "i/{case}.png",
            "m/{rater}.png",
            "--mask must have {case}, may have {rater} and {patient}, and no other",
        ),
        ("i/{name}{case}.png", "m/{case}_{rater}.png", "--image must have {case}, may have"),
        ("i/{case}.png", "m/{case}_{channel}.png", "--mask must have {case}, may have {rater}"),
    ],
)
def test_a_pattern_that_finds_nothing_or_lacks_a_name_is_refused(tmp_path, image, mask, words):
    touch(tmp_path, "dataset.json", "i/a.png", "m/a_0.png")
    with pytest.raises(MueError, match=words.replace("{", r"\{").replace("}", r"\}")):
        find_by_patterns(tmp_path, image, mask, Description())


def test_one_rater_needs_no_name(tmp_path):
    touch(tmp_path, "i/a.png", "m/a.png")
    (case,) = find_by_patterns(tmp_path, "i/{case}.png", "m/{case}.png", Description())
    assert described(case) == ("a", ("i/a.png",), ("m/a.png",))


def test_two_images_a_lone_mask_and_a_lone_image_are_rejected_by_the_name_of_the_case(tmp_path):
    touch(tmp_path, "i1/a.png", "i2/a.png", "m/a_0.png", "i1/b.png", "m/c_0.png")
    cases = find_by_patterns(tmp_path, "i*/{case}.png", "m/{case}_{rater}.png", Description())
    assert cases == [
        Rejected("a", "has two files for one image, i1/a.png and i2/a.png"),
        Rejected("b", "has an image, i1/b.png, and no mask"),
        Rejected("c", "has a mask, m/c_0.png, and no image"),
    ]


def test_weights_are_those_of_the_raters_of_a_case(tmp_path):
    touch(tmp_path, "imagesTr/a_0000.png", "labelsTr/a_r0.png", "labelsTr/a_r2.png")
    touch(tmp_path, "imagesTr/b_0000.png", "labelsTr/b_r7.png")
    description = Description(weights={"r0": 0.5, "r1": 0.3, "r2": 0.2})
    a, b = find_by_layout(tmp_path, description)
    assert isinstance(a, CaseFiles)
    assert a.weights == pytest.approx((5 / 7, 2 / 7))
    assert isinstance(b, Rejected)
    assert b.why == "has a mask of the rater r7, whom rater_weights does not name"
