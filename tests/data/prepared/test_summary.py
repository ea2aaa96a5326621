import numpy as np

from mue.data.prepared.item import Item, Rejected
from mue.data.prepared.open import open_prepared
from mue.data.prepared.splits import split_of
from mue.data.prepared.summary import DataSummary, summarize
from mue.data.prepared.write import write_prepared

NAMES = ["p0", "p1", "p2", "p3", "p4", "p5"]


def item(patient: str, image: np.ndarray, raters: int = 2, annotated: bool = True) -> Item:
    masks = np.zeros((raters, 4, 4), np.uint8)
    masks[:, 1:3, 1:3] = annotated
    return Item(patient=patient, case=patient, source="made up", image=image[None], masks=masks)


def images(count: int) -> list[np.ndarray]:
    return list(np.random.default_rng(0).integers(0, 256, (count, 4, 4), dtype=np.uint8))


def summary(tmp_path, *items: Item | Rejected) -> DataSummary:
    write_prepared(items, tmp_path / "out", {}, skip_bad=True)
    return summarize(open_prepared(tmp_path / "out"))


def test_raters_and_what_they_annotated_are_counted(tmp_path):
    one, two, three = images(3)
    found = summary(tmp_path, item("a", one, 3), item("b", two, 1), item("c", three, 3, False))
    assert found.raters == (0, 1, 0, 2)
    assert found.annotated == (1, 1, 0, 1)
    assert (found.channels, found.dtype, found.normalization) == (1, "uint8", "unit")
    assert "1 of 3 has one rater alone, who shows no disagreement: b" in found.findings


def test_what_is_wrong_is_said_with_names(tmp_path):
    one, two, *_ = images(3)
    flat = np.full((4, 4), 7, np.uint8)
    bad = Rejected("x", "is damaged")
    found = summary(
        tmp_path,
        item("a", one),
        item("b", two),
        item("c", one),
        item("d", flat),
        item("e", flat),
        bad,
    ).findings
    assert "1 images come twice, under different patients: a and c" in found
    assert "2 of 5 have one value everywhere: d, …" in found
    assert "left out at the import: 1" in found


def test_one_rater_and_empty_splits_and_masks_are_said(tmp_path):
    name = next(n for n in NAMES if split_of(n) == "train")
    found = summary(tmp_path, item(name, images(1)[0], 1, False)).findings
    assert "every image has one rater: no disagreement can be learned, only one answer" in found
    assert "no image is in val and test; a table for --splits can name some" in found
    assert "no rater annotated a pixel of any image" in found


def test_good_data_has_no_findings(tmp_path):
    names = {split_of(name): name for name in (f"n{i}" for i in range(100))}
    found = summary(tmp_path, *(item(n, x) for n, x in zip(names.values(), images(3), strict=True)))
    assert found.findings == ()


def test_hounsfield_units_that_are_not_taken_for_ct_are_said(tmp_path):
    images = [np.full((4, 4), low, np.int16) + np.eye(4, dtype=np.int16) for low in (0, -1000)]
    items = [item(f"p{i}", each) for i, each in enumerate(images)]
    (said,) = [f for f in summary(tmp_path, *items).findings if "as in CT" in f]
    assert said.startswith("values go down to -1000, as in CT, and are normalized by zscore; for")
    write_prepared(items, tmp_path / "ct", {}, ct=True)
    assert not [f for f in summarize(open_prepared(tmp_path / "ct")).findings if "as in CT" in f]
