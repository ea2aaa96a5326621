"""What is exported and imported again is the same."""

import dataclasses
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
from PIL import Image

import mue
from mue.commands.export_folder import export_folder
from mue.data.folder.description import Description, read_description
from mue.data.folder.exporter import export_cases
from mue.data.folder.importer import encode_cases, is_ct
from mue.data.folder.layout import CaseFiles, find_by_layout
from mue.data.folder.patients import with_patients
from mue.data.images.image import Geometry
from mue.data.lidc.importer import read_items
from mue.data.prepared.item import Item
from mue.data.prepared.open import Prepared, open_prepared
from mue.data.prepared.splits import SPLITS, split_of
from mue.data.prepared.write import write_prepared
from mue.evaluation.raters import evaluate_raters

RANDOM = np.random.default_rng(0)
AFFINE = np.array([[-0.5, 0, 0, 10], [0, 0.75, 0, -3], [0, 0, 2.5, 7], [0, 0, 0, 1.0]])


def picture(patient: str, case: str, **given) -> Item:
    size, channels, dtype = (
        given.pop("size", (6, 9)),
        given.pop("c", 1),
        given.pop("dtype", "uint8"),
    )
    values = RANDOM.normal(size=(channels, *size)) * 90 + 100
    found = Item(
        patient=patient,
        case=case,
        source="x",
        image=values.clip(0, 255).astype(dtype),
        masks=RANDOM.integers(2, size=(given.pop("r", 2), *size), dtype=np.uint8),
    )
    return dataclasses.replace(found, **given)


def volume(patient: str, axis: int, dtype: str = "int16") -> list[Item]:
    """The slices of a volume of 3 x 4 x 5 voxels."""
    shape = (3, 4, 5)
    h, w = (shape[a] for a in (2, 1, 0) if a != axis)
    geometry = Geometry(AFFINE, shape, axis)
    return [
        picture(patient, patient, size=(h, w), dtype=dtype, slice=f"slice-{k}", geometry=geometry)
        for k in range(shape[axis])
    ]


def prepare(items: Iterable[Any], folder: Path, **options) -> Prepared:
    write_prepared(items, folder, {"form": "made up"}, **options)
    return open_prepared(folder)


def imported(folder: Path, options: list[str], out: Path, axis: Any = 2) -> Prepared:
    """What the command imports with these options."""
    given = dict(zip(options[::2], options[1::2], strict=True))
    splits = Path(given["--splits"]) if "--splits" in given else None
    description = read_description(folder)
    cases = find_by_layout(folder, description)
    cases = with_patients(cases, given.get("--patient"), splits)
    items = encode_cases(cases, folder, description, axis=axis)
    ct = is_ct(cases, folder, description)
    labels = description.labels
    write_prepared(items, out, {}, labels=tuple(labels), values=tuple(labels.values()), ct=ct)
    return open_prepared(out)


def check_same(one: Prepared, two: Prepared) -> None:
    assert one.meta.images == two.meta.images
    assert (one.meta.dtype, one.meta.channels) == (two.meta.dtype, two.meta.channels)
    assert one.meta.normalize == two.meta.normalize
    np.testing.assert_allclose(one.q, two.q, rtol=1e-6)
    for i, (a, b) in enumerate(zip(one.rows, two.rows, strict=True)):
        assert a.patient == b.patient
        assert np.array_equal(one.image(i), two.image(i))
        assert np.array_equal(one.masks_of(i), two.masks_of(i))
    for split in SPLITS:
        assert np.array_equal(one.members(split), two.members(split))


@pytest.mark.parametrize(
    ("dtype", "channels", "ending"),
    [
        ("uint8", 1, ".png"),
        ("uint8", 3, ".png"),
        ("uint8", 2, ".png"),
        ("uint16", 1, ".png"),
        ("uint16", 3, ".png"),
        ("int16", 1, ".tif"),
        ("int32", 2, ".tif"),
        ("float32", 3, ".tif"),
    ],
)
def test_pictures_of_every_type_come_back_without_loss(tmp_path, dtype, channels, ending):
    names = [f"p-{i}" for i in range(20)]
    items = [
        picture(
            name,
            "left_right",
            dtype=dtype,
            c=channels,
            size=(5 + i % 3, 7),
            r=1 + i % 3,
            slice=f"slice-{k}",
        )
        for i, name in enumerate(names)
        for k in (9, 10)
    ]
    found = prepare(items, tmp_path / "a")
    options = export_cases(found, tmp_path / "folder")
    assert options == ["--patient", "{patient}+*+*"]
    assert {path.name[-len(ending) :] for path in (tmp_path / "folder").rglob("*_r0.*")} == {ending}
    check_same(found, imported(tmp_path / "folder", options, tmp_path / "b"))


def test_classes_weights_and_splits_of_the_source_come_back(tmp_path):
    items = [picture(f"p-{i}", f"p-{i}", split=SPLITS[(i + 1) % 3], r=1 + i % 3) for i in range(12)]
    weights = (0.5, 0.25, 0.25)
    items = [
        dataclasses.replace(it, masks=it.masks * 2, weights=weights[: len(it.masks)])
        for it in items
    ]
    labels, values = ("background", "red", "blue"), (0, 3, 400)
    found = prepare(items, tmp_path / "a", labels=labels, values=values)
    options = export_cases(found, tmp_path / "folder")
    assert options == ["--splits", str(tmp_path / "folder" / "splits.csv")]
    again = imported(tmp_path / "folder", options, tmp_path / "b")
    check_same(found, again)
    assert (again.meta.labels, again.meta.values) == (labels, values)
    with Image.open(next((tmp_path / "folder" / "labelsTr").iterdir())) as file:
        assert np.unique(np.array(file)).tolist() == [0, 400]


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_volumes_come_back_with_their_affine(tmp_path, axis):
    items = [item for i in range(4) for item in volume(f"v-{i}", axis)]
    found = prepare(items, tmp_path / "a", ct=True)
    options = export_cases(found, tmp_path / "folder")
    assert options == ([] if axis == 2 else ["--axis", str(axis)])
    again = imported(tmp_path / "folder", options, tmp_path / "b", axis)
    check_same(found, again)
    for one, two in zip(found.volumes().values(), again.volumes().values(), strict=True):
        np.testing.assert_allclose(one.affine, two.affine)
        assert (one.shape, one.axis) == (two.shape, two.axis)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shapes", [[(1, 6, 5)], [(6, 1, 5)], [(6, 5, 1)], [(6, 5, 1), (6, 5, 4)]])
def test_volumes_with_a_single_slice_come_back(tmp_path, axis, shapes):
    """A volume of one slice is cut along the last axis, whatever the others are cut along."""
    files: list[CaseFiles] = []
    for i, shape in enumerate(shapes):
        for name, high in (("i", 1000), ("m", 2)):
            voxels = RANDOM.integers(high, size=shape).astype(np.int16)
            nibabel.save(nibabel.Nifti1Image(voxels, AFFINE), tmp_path / f"{name}{i}.nii")
        files.append(CaseFiles(f"{i}", f"{i}", None, (f"i{i}.nii",), (f"m{i}.nii",), None))
    items = encode_cases(files, tmp_path, Description(), axis=axis)
    found = prepare(items, tmp_path / "a")
    options = export_cases(found, tmp_path / "folder")
    named: Any = dict(zip(options[::2], options[1::2], strict=True)).get("--axis", 2)
    again = imported(tmp_path / "folder", options, tmp_path / "b", int(named))
    check_same(found, again)
    one, two = (list(each.volumes().values()) for each in (found, again))
    assert [(g.shape, g.axis) for g in one] == [(g.shape, g.axis) for g in two]


def test_volumes_that_are_cut_along_several_axes_are_refused(tmp_path):
    found = prepare([*volume("a", 0), *volume("b", 1)], tmp_path / "a")
    with pytest.raises(ValueError, match="has volumes cut along several axes; import these apart"):
        export_cases(found, tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_a_test_set_has_folders_of_its_own(tmp_path):
    names = {
        split: next(n for n in map(str, range(99)) if split_of(n) == split) for split in SPLITS
    }
    found = prepare([picture(name, name) for name in names.values()], tmp_path / "a")
    assert export_cases(found, tmp_path / "folder") == []
    test = {path.name for path in (tmp_path / "folder" / "imagesTs").iterdir()}
    train = {path.name for path in (tmp_path / "folder" / "imagesTr").iterdir()}
    assert test == {f"{names['test']}_0000.png"}
    assert train == {f"{names[split]}_0000.png" for split in ("train", "val")}


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([picture("a/b", "c")], r"'a/b/c' must be a name without / and \+ to become a file's"),
        ([picture("a", "b+c")], "must be a name without"),
        (volume("v", 2)[:3], "v/v has 3 of the 5 slices of its volume; import it whole"),
        ([*volume("v", 2), picture("p", "p", dtype="int16")], "p is a picture among volumes"),
        (
            [picture("p", "a", weights=(1.0, 2.0)), picture("p", "b", weights=(2.0, 1.0))],
            "has weights of raters that differ from image to image",
        ),
    ],
)
def test_what_the_layout_cannot_hold_is_refused_and_nothing_is_left(tmp_path, items, words):
    found = prepare(items, tmp_path / "a")
    with pytest.raises(ValueError, match=words):
        export_cases(found, tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


@pytest.mark.data
def test_lidc_exported_and_imported_is_evaluated_to_the_same_numbers(real_data, tmp_path):
    (archive,) = real_data("lidc/lidc-slices-val.tar.gz")
    patients = dict[str, None]()
    some: list[Item] = []
    for item in read_items([archive], "slices"):
        assert isinstance(item, Item)
        patients[item.patient] = None
        if len(patients) > 3:
            break
        some.append(item)
    before = prepare(some, tmp_path / "lidc")
    exported = export_folder(tmp_path / "lidc", out=tmp_path / "files")
    options = shlex.split(exported.command)[5:-2]
    after = imported(exported.folder, options, tmp_path / "again")
    check_same(before, after)
    predictor = mue.load("lidc-exact")
    one, two = (
        evaluate_raters(predictor, folder, split="val").report()
        for folder in (before.folder, after.folder)
    )
    del one["data"], two["data"]  # the digest of the names, too
    assert one == two
