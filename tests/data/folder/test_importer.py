"""Cases of a folder as items, and what is wrong with those that are not."""

from collections.abc import Iterator
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from PIL import Image

from mue.data.folder import importer
from mue.data.folder.description import Description
from mue.data.folder.importer import classes, encode_cases, is_ct, read_case
from mue.data.folder.layout import CaseFiles
from mue.data.images.image import Axis
from mue.data.prepared.encode import Encoded
from mue.data.prepared.item import Item, Rejected
from mue.data.prepared.open import open_prepared
from mue.data.prepared.write import write_prepared
from mue.errors import MueError

RANDOM = np.random.default_rng(0)
AFFINE = np.diag([2.0, 3.0, 4.0, 1.0])


def png(folder: Path, name: str, pixels: np.ndarray) -> Path:
    Image.fromarray(pixels.astype(np.uint8)).save(folder / name)
    return folder / name


def nifti(folder: Path, name: str, voxels: np.ndarray, affine: np.ndarray = AFFINE) -> Path:
    nib.save(nib.Nifti1Image(voxels, affine), folder / name)
    return folder / name


def case(images: list[Path], masks: list[Path], name: str = "a") -> CaseFiles:
    of_image, of_masks = (tuple(path.name for path in paths) for paths in (images, masks))
    return CaseFiles(name, "patient", "val", of_image, of_masks, None)


def read(
    folder: Path, *cases: CaseFiles, labels: dict[str, int] | None = None, axis: Axis = 2
) -> list[Item]:
    description = Description(labels=labels or {})
    options = {"source": folder, "description": description, "axis": axis}
    found = [item for case in cases for item in read_case(case, **options)]
    items = [item for item in found if isinstance(item, Item)]
    assert len(items) == len(found), found
    return items


def encoded(folder: Path, *cases: CaseFiles | Rejected, **options) -> list[Encoded]:
    found = list(encode_cases(cases, folder, Description(), **options))
    encoded = [item for item in found if isinstance(item, Encoded)]
    assert len(encoded) == len(found), found
    return encoded


def rejected(folder: Path, *cases: CaseFiles) -> str:
    (found,) = encode_cases(cases, folder, Description())
    assert isinstance(found, Rejected), found
    assert str(folder) not in found.why
    return f"{found.what}: {found.why}".removeprefix("patient/")


# --- what is read ---------------------------------------------------------------------------------


def test_a_picture_with_its_raters_is_one_item(tmp_path):
    image = RANDOM.integers(0, 256, (6, 9, 3))
    masks = RANDOM.integers(0, 2, (3, 6, 9))
    files = [png(tmp_path, f"m{j}.png", 255 * m if j else m) for j, m in enumerate(masks)]
    (item,) = read(tmp_path, case([png(tmp_path, "i.png", image)], files))
    assert np.array_equal(item.image, image.transpose(2, 0, 1))
    assert np.array_equal(item.masks, masks)
    assert (item.id, item.source, item.split) == ("patient/a", "i.png", "val")
    assert (item.spacing, item.geometry, item.weights) == (None, None, None)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_volume_is_a_slice_for_each_index_of_the_axis(tmp_path, axis):
    voxels = RANDOM.integers(-1000, 1000, (4, 5, 6)).astype(np.int16)
    mask = RANDOM.integers(0, 3, (4, 5, 6)).astype(np.float64)
    files = case([nifti(tmp_path, "i.nii.gz", voxels)], [nifti(tmp_path, "m.nii.gz", mask)])
    items = read(tmp_path, files, labels={"none": 0, "one": 1, "two": 2}, axis=axis)
    assert [item.slice for item in items] == [f"slice-{k}" for k in range((4, 5, 6)[axis])]
    for k, item in enumerate(items):
        assert np.array_equal(item.image[0], voxels.take(k, axis=axis).T)
        assert np.array_equal(item.masks[0], mask.take(k, axis=axis).T)
        assert item.geometry is not None
        assert item.geometry.axis == axis
        assert np.array_equal(item.geometry.affine, AFFINE)
    assert items[0].spacing == {0: (4, 3), 1: (4, 2), 2: (3, 2)}[axis]


def test_channels_of_several_files_are_one_image(tmp_path):
    channels = RANDOM.integers(0, 256, (2, 6, 9))
    images = [png(tmp_path, f"i{j}.png", c) for j, c in enumerate(channels)]
    (item,) = read(tmp_path, case(images, [png(tmp_path, "m.png", 0 * channels[0])]))
    assert np.array_equal(item.image, channels)


def test_one_file_must_have_the_channels_that_are_named(tmp_path):
    path = png(tmp_path, "i.png", np.zeros((6, 9)))
    (found,) = encode_cases([case([path], [path])], tmp_path, Description(channels=("CT", "PET")))
    assert found == Rejected("patient/a", "i.png has 1 channels, and channel_names has 2")


@pytest.mark.parametrize("cores", [1, 2])
def test_items_come_in_the_order_of_the_cases_whatever_takes_longer(tmp_path, monkeypatch, cores):
    monkeypatch.setattr(importer, "_MIN_CASES", 0)
    monkeypatch.setattr(importer, "available_cores", lambda: cores)
    big = nifti(tmp_path, "big.nii.gz", np.zeros((200, 200, 20), np.uint8))
    small = png(tmp_path, "small.png", np.zeros((4, 4)))
    files = [small if i % 3 else big for i in range(30)]
    cases = [case([path], [path], f"c{i}") for i, path in enumerate(files)]
    steps: list[tuple[int, int]] = []
    found = encoded(tmp_path, *cases, progress=lambda *step: steps.append(step))
    assert list(dict.fromkeys(item.row.case for item in found)) == [f"c{i}" for i in range(30)]
    assert steps == [(i, 30) for i in range(1, 31)]


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([np.int16(-7), np.float32(8)], "int16"),  # the type of the first has all values
        ([np.int16(-7), np.float32(8.5)], "float32"),
        ([np.uint8(7), np.int16(-8)], "int16"),
        ([np.uint8(7), np.uint16(800), np.float32(3)], "uint16"),
        ([np.uint16(60000), np.int16(-8)], "int32"),
        ([np.int16(-8), np.int32(70000), np.float32(0.5)], "float32"),
    ],
)
def test_volumes_are_stored_in_a_type_that_has_the_values_of_all(
    tmp_path, monkeypatch, cores, values, wanted
):
    monkeypatch.setattr(importer, "_MIN_CASES", 0)
    monkeypatch.setattr(importer, "available_cores", lambda: cores)
    mask = nifti(tmp_path, "m.nii", np.zeros((3, 3, 2), np.uint8))
    paths = [nifti(tmp_path, f"{i}.nii", np.full((3, 3, 2), v)) for i, v in enumerate(values)]
    cases = [case([path], [mask], path.stem) for path in paths]
    write_prepared(encode_cases(cases, tmp_path, Description()), tmp_path / "out", {})
    found = open_prepared(tmp_path / "out", verify=True)
    assert found.meta.dtype == wanted
    for i, value in enumerate(values):
        assert (found.image(2 * i) == value).all()


def test_volumes_that_no_type_holds_are_refused(tmp_path):
    mask = nifti(tmp_path, "m.nii", np.zeros((3, 3, 2), np.uint8))
    voxels = np.full((3, 3, 2), 2**24 + 1, np.int32), np.full((3, 3, 2), 0.5, np.float32)
    paths = [nifti(tmp_path, f"{i}.nii", each) for i, each in enumerate(voxels)]
    items = encode_cases([case([p], [mask], p.stem) for p in paths], tmp_path, Description())
    with pytest.raises(MueError, match=r"0\.nii has whole numbers up to 16777217, which float32"):
        write_prepared(items, tmp_path / "out", {})


def test_pictures_of_several_types_are_refused(tmp_path):
    """The same value is another brightness in them."""
    Image.fromarray(np.full((4, 6), 200, np.uint16)).save(tmp_path / "deep.png")
    one, mask = (
        png(tmp_path, "i.png", np.full((4, 6), 200)),
        png(tmp_path, "m.png", np.zeros((4, 6))),
    )
    cases = [case([path], [mask], path.stem) for path in (one, tmp_path / "deep.png")]
    *_, last = encode_cases(cases, tmp_path, Description())
    why = "deep.png has 1 channels of uint16, and others have 1 of uint8"
    assert last == Rejected("patient/deep", why)


@pytest.mark.parametrize("grey", [0, 2])
def test_grey_among_colours_becomes_coloured(tmp_path, grey):
    shape = [(4, 6) if i == grey else (4, 6, 3) for i in range(3)]
    images = [png(tmp_path, f"{i}.png", RANDOM.integers(0, 256, s)) for i, s in enumerate(shape)]
    mask = png(tmp_path, "m.png", np.zeros((4, 6)))
    found = encoded(tmp_path, *(case([path], [mask], path.stem) for path in images))
    assert [item.image.shape for item in found] == [(3, 4, 6)] * 3
    pixels = np.asarray(Image.open(images[grey]))
    assert np.array_equal(found[grey].image, np.broadcast_to(pixels, (3, 4, 6)))


@pytest.mark.parametrize("named", [(), ("T1", "T2", "FLAIR")])
def test_a_lone_channel_among_cases_of_three_does_not_become_coloured(tmp_path, named):
    paths = [png(tmp_path, f"{i}.png", np.full((4, 6), i)) for i in range(3)]
    cases = [case(paths, paths[:1]), case(paths[:1], paths[:1], "b")]
    *_, last = encode_cases(cases, tmp_path, Description(channels=named))
    assert isinstance(last, Rejected)
    assert "has 1 channels" in last.why


def test_several_processes_read_and_reject_as_one_does(tmp_path, monkeypatch):
    image = png(tmp_path, "i.png", RANDOM.integers(0, 256, (6, 9)))
    volume = nifti(tmp_path, "v.nii", RANDOM.integers(0, 2, (4, 5, 6)).astype(np.uint8))
    bad = [case([image], [volume], "bad"), Rejected("gone", "has no mask")]
    good = [case([volume], [volume], f"c{i}") for i in range(5)]
    cases, said = [*good[:2], *bad, *good[2:]], list[list[str]]()
    monkeypatch.setattr(importer, "_MIN_CASES", 0)
    for cores in (1, 2, 3):
        monkeypatch.setattr(importer, "available_cores", lambda cores=cores: cores)
        found = list(encode_cases(cases, tmp_path, Description()))
        said.append(
            [
                f"{x.row.id} {x.image} {x.masks}" if isinstance(x, Encoded) else repr(x)
                for x in found
            ]
        )
    assert len(said[0]) == 2 + 5 * 6
    assert said[0] == said[1] == said[2]


def test_the_prepared_bytes_do_not_depend_on_the_number_of_processes(tmp_path, monkeypatch):
    files: list[CaseFiles] = []
    for i in range(7):
        image = png(tmp_path, f"i{i}.png", RANDOM.integers(0, 256, (6, 9 + i % 3)))
        masks = [
            png(tmp_path, f"m{i}{j}.png", RANDOM.integers(0, 2, (6, 9 + i % 3))) for j in range(3)
        ]
        files.append(case([image], masks[: 1 + i % 3], f"c{i}"))
    monkeypatch.setattr(importer, "_MIN_CASES", 0)
    for cores in (1, 2):
        monkeypatch.setattr(importer, "available_cores", lambda cores=cores: cores)
        write_prepared(encode_cases(files, tmp_path, Description()), tmp_path / str(cores), {})
    read_here = read(tmp_path, *files)
    write_prepared(read_here[::-1], tmp_path / "reversed", {})
    found = [open_prepared(tmp_path / name, verify=True) for name in ("1", "2", "reversed")]
    assert len({prepared.digest for prepared in found}) == 1


def test_a_process_that_dies_is_named_by_its_case(tmp_path, monkeypatch):
    image = png(tmp_path, "i.png", np.zeros((4, 6)))

    def killed(*_: object) -> Iterator[Iterator[Encoded]]:
        raise ChildProcessError(-9, "killed")
        yield iter([])

    monkeypatch.setattr(importer, "map_in_processes", killed)
    with pytest.raises(MueError, match=r"b: the process that reads it ended with the status -9"):
        encoded(tmp_path, case([image], [image]), case([image], [image], "b"))


def test_ct_is_recognized_by_the_name_of_a_channel(tmp_path):
    cases = [case([png(tmp_path, "i.png", np.zeros((4, 4)))], [])]
    assert is_ct(cases, tmp_path, Description(channels=("ct",)))
    assert not is_ct(cases, tmp_path, Description(channels=("T1", "T2")))
    assert not is_ct(cases, tmp_path, Description())


# --- what is refused ------------------------------------------------------------------------------


def test_masks_of_another_size_are_rejected(tmp_path):
    image, mask = png(tmp_path, "i.png", np.zeros((4, 6))), png(tmp_path, "m.png", np.zeros((6, 4)))
    wanted = "a: m.png is 6 x 4 and i.png 4 x 6; they must be the same"
    assert rejected(tmp_path, case([image], [image, mask])) == wanted


def test_an_affine_that_disagrees_is_rejected_and_rounding_is_not(tmp_path):
    voxels, mask = np.zeros((4, 5, 6), np.int16), np.zeros((4, 5, 6), np.uint8)
    image = nifti(tmp_path, "i.nii", voxels)
    near, far = AFFINE.copy(), AFFINE.copy()
    near[0, 3] += 0.01
    far[0, 3] += 2
    assert len(read(tmp_path, case([image], [nifti(tmp_path, "n.nii", mask, near)]))) == 6
    words = rejected(tmp_path, case([image], [nifti(tmp_path, "f.nii", mask, far)]))
    assert words.startswith(
        "a: f.nii has an affine that puts it up to 2 mm away from i.nii; resample"
    )


def test_a_damaged_file_is_rejected_by_the_name_of_the_case(tmp_path):
    image = png(tmp_path, "i.png", np.zeros((4, 6)))
    (tmp_path / "bad.png").write_bytes(image.read_bytes()[:-5])
    assert (
        rejected(tmp_path, case([image], [tmp_path / "bad.png"])) == "a: bad.png is a truncated PNG"
    )
    words = rejected(tmp_path, case([image], [tmp_path / "none.png"]))
    assert words == "a: none.png does not exist"


@pytest.mark.parametrize("values", [[0, 1], [0, 255], [0], [1], [255]])
def test_one_class_is_0_and_1_or_0_and_255(values):
    mask = RANDOM.choice(values, (1, 5, 5)).astype(np.uint8)
    assert np.array_equal(classes(mask, Description()), mask > 0)


@pytest.mark.parametrize(
    ("given", "bad"),
    [
        ([0, 1, 255], "1 and 255"),
        ([0, 7], "7"),
        ([0, 1, 2], "2"),
        ([-1, 1], "-1 and 1"),
        ([0, 0.5], "0.5"),
    ],
)
def test_other_values_of_one_class_are_refused(given, bad):
    with pytest.raises(MueError, match=rf"holds the values {bad}; a mask of one class has"):
        classes(np.array([[given]]), Description())


def test_classes_are_in_the_order_of_their_values_and_others_are_refused():
    description = Description(labels={"none": 0, "one": 3, "two": 10})
    assert classes(np.array([[[0.0, 10.0, 3.0]]]), description).tolist() == [[[0, 2, 1]]]
    for bad in (4, 255, -1, 2.5):
        words = rf"holds the value {bad}, which `labels` does not name \(0 none, 3 one, 10 two\)"
        with pytest.raises(MueError, match=words):
            classes(np.array([[[0, bad, 3]]]), description)
