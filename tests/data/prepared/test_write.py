import dataclasses
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
from prepared_items import files, item

from mue.config.schema import NormalizeConfig
from mue.data.images.image import Geometry
from mue.data.prepared.item import Item, Rejected
from mue.data.prepared.open import Prepared, open_prepared
from mue.data.prepared.splits import SPLITS, Split, split_of
from mue.data.prepared.summary import summarize
from mue.data.prepared.write import write_prepared
from mue.errors import MueError

FILES = {"meta.json", "index.csv", "items.npy", "images.bin", "masks.bin", "volumes.json"}


def masks(found: Prepared) -> list[np.ndarray]:
    """The masks of every image, unpacked by hand: bit 7 of the first byte is the first pixel."""
    content, every = (found.folder / "masks.bin").read_bytes(), []
    for h, w, r in found.items[["h", "w", "raters"]].tolist():
        length = -(-h * w // 8)
        places = [(j * length + i // 8, 7 - i % 8) for j in range(r) for i in range(h * w)]
        bits = [(content[byte] >> bit) & 1 for byte, bit in places]
        every.append(np.array(bits, np.uint8).reshape(r, h, w))
        content = content[r * length :]
    assert not content
    return every


def same(found: Prepared, items: list[Item]) -> bool:
    """Whether images and masks, also read by hand, are those of the items."""
    every = zip(items, masks(found), strict=True)
    return all(
        found.image(i).dtype == it.image.dtype
        and np.array_equal(found.image(i), it.image)
        and np.array_equal(found.masks_of(i), it.masks)
        and np.array_equal(by_hand, it.masks)
        for i, (it, by_hand) in enumerate(every)
    )


@pytest.fixture
def some() -> list[Item]:
    """Slices of two patients, in the order of their names."""
    return [
        item("a-2", "nodule-1", "slice-9", spacing=(0.703125, 0.7)),
        item("a-2", "nodule-1", "slice-10", spacing=(0.1 + 0.2, 1e-9)),
        item("a-2", "nodule-2", "slice-0"),
        item("a-10", "nodule-1", "slice-3"),
        item("a-10", "nodule-1", "slice-03"),
    ]


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 4, 0, 3, 1]])
def test_slices_come_back_in_the_order_of_their_names_whatever_order_they_came_in(
    some, tmp_path, order
):
    write_prepared([some[i] for i in order], tmp_path / "out", {"form": "x"})
    found = open_prepared(tmp_path / "out", verify=True)
    expected = [some[i] for i in (0, 1, 2, 4, 3)]  # 03 and 3 are the same number: 03 is less
    assert [r.id for r in found.rows] == ["/".join(i.key) for i in expected]
    assert same(found, expected)
    for row, it in zip(found.rows, expected, strict=True):
        assert (row.patient, row.case, row.slice) == it.key
        assert (row.spacing, row.source) == (it.spacing, it.source)  # to the bit
    assert (found.sizes, found.raters) == ([(3, 5)], 4)
    assert found.origin == {"form": "x"}


def test_the_same_slices_are_the_same_bytes_whatever_order_they_came_in(some, tmp_path):
    for name, items in {"a": some, "b": some, "c": some[::-1]}.items():
        write_prepared(items, tmp_path / name, {"form": "x"})
    a, b, c = (files(tmp_path / name) for name in "abc")
    assert a.keys() == FILES
    assert a == b == c
    digests = {open_prepared(tmp_path / name).digest for name in "abc"}
    assert len(digests) == 1


@pytest.mark.parametrize("name", ["7" * 5000, "x" * 200_000])
def test_an_endless_name_is_refused_in_a_short_sentence(some, tmp_path, name):
    """Python converts no number of 5,000 digits, and csv reads no cell of 200,000 letters."""
    items = [*some, dataclasses.replace(some[0], case=name)]
    words = f"has a name of {len(name)} characters; at most 4096 are taken; rename it"
    with pytest.raises(MueError, match=words) as found:
        write_prepared(items, tmp_path / "out", {})
    assert len(str(found.value)) < 1100
    items[-1] = dataclasses.replace(items[-1], case=name[:4096])
    write_prepared(items, tmp_path / "out", {})
    rows = open_prepared(tmp_path / "out", verify=True).rows
    assert name[:4096] in [row.case for row in rows]


def test_another_pixel_is_another_digest(some, tmp_path):
    write_prepared(some, tmp_path / "a", {})
    some[0].masks[0, 0, 0] ^= 1
    write_prepared(some, tmp_path / "b", {})
    assert open_prepared(tmp_path / "a").digest != open_prepared(tmp_path / "b").digest


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (2, 4), (3, 3), (7, 9), (4, 8)])
def test_masks_of_any_number_of_pixels_survive_their_bits(tmp_path, size):
    items = [item(k=str(k), size=size) for k in range(3)]
    items[0].masks[:] = 1
    write_prepared(items, tmp_path / "out", {})
    found = open_prepared(tmp_path / "out")
    assert len(found.masks) == 3 * 4 * ((size[0] * size[1] + 7) // 8)
    assert same(found, items)


@pytest.mark.parametrize(
    "name", ["a,b", 'a"b', '""', "a\nb", "a\rb", "a\r\nb", " a ", "é 肺", "\\", "0"]
)
def test_names_of_any_kind_survive_the_table(tmp_path, name):
    write_prepared([item(name, name, name, source=name), item()], tmp_path / "out", {})
    rows = open_prepared(tmp_path / "out", verify=True).rows
    assert (name, name, name, name) in [(r.patient, r.case, r.slice, r.source) for r in rows]
    assert len(rows) == 2


def test_the_summary_counts_what_was_written_by_hand(tmp_path):
    """Two patients, three cases: 1 slice annotated by nobody, 1 by one rater, 2 by all four."""
    items = [item("a", "1", "0"), item("a", "2", "0"), item("a", "2", "1"), item("b", "1", "0")]
    for it, raters in zip(items, (0, 1, 4, 4), strict=True):
        it.masks[:] = (np.arange(4) < raters)[:, None, None]
    assert write_prepared(items, tmp_path / "out", {}) == ()
    found = summarize(open_prepared(tmp_path / "out"))
    assert (found.patients, found.cases, found.slices) == (2, 3, 4)
    assert found.annotated == (1, 1, 0, 0, 2)


def test_opening_reads_no_pixels(some, tmp_path):
    write_prepared(some, tmp_path / "out", {})
    found = open_prepared(tmp_path / "out")
    for array in (found.images, found.masks):
        assert isinstance(array, np.memmap)
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_an_empty_folder_will_do(tmp_path):
    (tmp_path / "out").mkdir()
    write_prepared([item()], tmp_path / "out", {})
    assert files(tmp_path / "out").keys() == FILES


def test_sizes_raters_and_weights_differ_from_image_to_image(tmp_path):
    items = [
        item("a", size=(3, 5)),
        item("b", size=(9, 2), masks=np.ones((1, 9, 2), np.uint8)),
        item("c", size=(4, 4), masks=np.eye(4, dtype=np.uint8)[None].repeat(3, 0)),
    ]
    items[2] = dataclasses.replace(items[2], weights=(2.0, 0.0, 0.5))
    write_prepared(items, tmp_path / "out", {})
    found = open_prepared(tmp_path / "out", verify=True)
    assert same(found, items)
    assert found.sizes == [(3, 5), (4, 4), (9, 2)]
    expected = [[0.25, 0.25, 0.25, 0.25], [1, 0, 0, 0], [0.8, 0, 0.2, 0]]
    assert np.array_equal(found.q, np.array(expected, np.float32))


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "int32", "float32"])
def test_values_of_every_type_and_channel_survive(tmp_path, dtype):
    random = np.random.default_rng(0)
    whole = dtype != "float32"
    values = random.integers(0, 120, (3, 3, 5)) if whole else random.normal(size=(3, 3, 5))
    one = item(image=values.astype(dtype))
    big_endian = values.astype(np.dtype(dtype).newbyteorder(">"))
    write_prepared([one], tmp_path / "out", {})
    write_prepared([item(image=big_endian)], tmp_path / "other", {})
    assert same(open_prepared(tmp_path / "out"), [one])
    assert files(tmp_path / "out") == files(tmp_path / "other")
    moments = open_prepared(tmp_path / "out").items[0]
    flat = one.image.reshape(3, -1).astype(np.float64)
    np.testing.assert_allclose(moments["mean"], flat.mean(axis=1), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(moments["deviation"], flat.std(axis=1), rtol=1e-6)


def test_several_classes_have_a_byte_for_each_pixel(tmp_path):
    classes = np.arange(30, dtype=np.uint8).reshape(2, 3, 5) % 3
    write_prepared([item(masks=classes)], tmp_path / "out", {}, labels=("background", "a", "b"))
    found = open_prepared(tmp_path / "out")
    assert (found.folder / "masks.bin").read_bytes() == classes.tobytes()
    assert np.array_equal(found.masks_of(0), classes)
    assert found.meta.labels == ("background", "a", "b")


def test_the_split_is_what_the_source_says_or_else_that_of_the_patient(tmp_path):
    train, val, test = (
        next(n for n in map(str, range(99)) if split_of(n) == split) for split in SPLITS
    )
    items = [item(train), item(val), item(test), item(train, k="1", split="test")]
    write_prepared(items, tmp_path / "out", {})
    found = open_prepared(tmp_path / "out")
    here = {split: {found.rows[i].id for i in found.members(split)} for split in SPLITS}
    assert here["train"] == {f"{train}/n/0"}
    assert here["val"] == {f"{val}/n/0"}
    assert here["test"] == {f"{test}/n/0", f"{train}/n/1"}


def test_the_geometry_of_a_volume_is_kept_once(tmp_path):
    affine = np.array([[-0.7, 0, 0, 10.5], [0, 0.1 + 0.2, 0, 1e-9], [0, 0, 2.5, -3], [0, 0, 0, 1]])
    slices = [item(k=str(k), geometry=Geometry(affine, (5, 3, 2), 2)) for k in range(2)]
    write_prepared([*slices, item("q")], tmp_path / "out", {})
    found = open_prepared(tmp_path / "out").volumes()
    assert list(found) == [("p", "n")]
    geometry = found["p", "n"]
    assert np.array_equal(geometry.affine, affine)  # to the bit
    assert (geometry.shape, geometry.axis) == ((5, 3, 2), 2)
    (tmp_path / "out" / "volumes.json").write_text("[[1]]")
    with pytest.raises(ValueError, match=r"volumes.json must list volumes: .*; import it again"):
        open_prepared(tmp_path / "out").volumes()


def test_the_normalization_that_suits_the_images_is_recorded(tmp_path):
    image, half = np.zeros((1, 3, 5), np.int16), np.zeros((1, 3, 5), np.uint8)
    image[0, 1], half[0, 1] = 70, 1
    one = item(image=image, masks=half)
    for name, ct in (("ct", True), ("mr", False)):
        write_prepared([one], tmp_path / name, {}, ct=ct)
    assert open_prepared(tmp_path / "mr").meta.normalize == NormalizeConfig(kind="zscore")
    assert open_prepared(tmp_path / "ct").meta.normalize.mean == (70.0,)


def test_the_normalization_is_that_of_the_training_images(tmp_path):
    """Without any, as where only a test set is prepared, it is that of all."""
    half = np.zeros((1, 3, 5), np.uint8)
    half[0, 1] = 1
    splits: dict[str, Split] = {"a": "train", "b": "val", "c": "test"}
    items = [
        item(patient=name, split=split, image=np.full((1, 3, 5), v, np.int16), masks=half)
        for (name, split), v in zip(splits.items(), (10, 400, 1000), strict=True)
    ]
    for out, some in (("all", items), ("held", items[1:])):
        write_prepared(some, tmp_path / out, {}, ct=True)
    found = open_prepared(tmp_path / "all").meta.normalize
    assert (found.low, found.mean) == ((10.0,), (10.0,))
    assert open_prepared(tmp_path / "held").meta.normalize.mean == (700.0,)


def test_what_is_bad_is_named_with_the_way_out_and_nothing_is_left(tmp_path):
    words = r"^p/9\.png: is a truncated PNG; correct it, or import the rest with --skip-bad$"
    with pytest.raises(ValueError, match=words):
        write_prepared([item(), Rejected("p/9.png", "is a truncated PNG")], tmp_path / "out", {})
    assert list(tmp_path.iterdir()) == []


def test_what_is_bad_can_be_left_out_and_is_listed(tmp_path):
    bad = [
        Rejected("x", "is odd"),
        Rejected("y", "is one mask more", ("p", "n", "1")),
        Rejected("z", "is none"),
    ]
    items = [bad[0], item(k="0"), item(k="1"), bad[1], item(k="2"), bad[2]]
    found = write_prepared(items, tmp_path / "out", {}, skip_bad=True)
    assert found == tuple(bad)
    opened = open_prepared(tmp_path / "out", verify=True)
    assert [r.slice for r in opened.rows] == ["0", "2"]  # 1 was taken back
    assert same(opened, [item(k=k) for k in "02"])
    assert opened.meta.left_out == 3
    write_prepared([item(k="2"), item(k="0")], tmp_path / "rest", {})
    whole, rest = files(tmp_path / "out"), files(tmp_path / "rest")
    assert all(whole[name] == rest[name] for name in FILES - {"meta.json"})


def _turned(it: Item) -> Item:
    """An item with its masks turned by 90 degrees, which its type would not admit."""
    object.__setattr__(it, "masks", it.masks.transpose(0, 2, 1))
    return it


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (item(k="1", image=np.zeros((3, 3, 5), np.uint8)), "has 3 channels of uint8, and the ima"),
        (item(k="1", image=np.zeros((1, 3, 5), np.int16)), "has 1 channels of int16, and the ima"),
        (item(k="1", image=np.zeros((1, 3, 5))), "has values of the type float64, which is not"),
        (_turned(item(k="1")), "has masks of 5 x 3 and an image of 3 x 5 pixels"),
        (item(k="1", masks=np.zeros((0, 3, 5), np.uint8)), "has 0 masks of 3 x 5 pixels"),
        (item(k="1", masks=np.full((2, 3, 5), 2, np.uint8)), "has pixels of the class 2, and the"),
        (item(k="1", weights=(1.0, 2.0)), "must have a weight of at least 0 for each of its 4 rat"),
        (item(k="1", weights=(0.0,) * 4), "must have a weight of at least 0 for each of its 4 rat"),
        (item(k="0"), "is a second image of the name p/n/0"),
    ],
)
def test_an_image_that_does_not_fit_the_others_or_itself_is_bad(tmp_path, bad, words):
    with pytest.raises(
        ValueError, match=rf"^p/n/.\.png: {words}.*; correct it, or import the rest"
    ):
        write_prepared([item(k="0"), bad, item(k="2")], tmp_path / "out", {})
    assert list(tmp_path.iterdir()) == []
    found = write_prepared([item(k="0"), bad, item(k="2")], tmp_path / "out", {}, skip_bad=True)
    assert [b.what for b in found] == [bad.source]
    assert same(open_prepared(tmp_path / "out"), [item(k="0"), item(k="2")])


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([], "the source must hold at least one whole slice, and has none$"),
        ([Rejected("x", "is odd")], "at least one whole slice, and has none: x: is odd$"),
        (
            [item(), Rejected("x", "is odd", ("p", "n", "0"))],
            "whole slice, and has none: x: is odd$",
        ),
    ],
)
def test_a_source_of_nothing_is_refused_and_nothing_is_left(tmp_path, items, words):
    with pytest.raises(ValueError, match=words):
        write_prepared(items, tmp_path / "out", {}, skip_bad=True)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_occupied_is_refused_before_anything_is_read(tmp_path):
    def unread() -> Iterator[Item]:
        raise AssertionError("nothing must be read")
        yield

    (tmp_path / "mine").write_text("precious")
    with pytest.raises(ValueError, match="must be empty or not exist yet, and it holds files"):
        write_prepared(unread(), tmp_path, {})
    assert files(tmp_path) == {"mine": b"precious"}


class _Full:
    """A file on a disk that has room for so many bytes."""

    def __init__(self, file: IO[Any], room: int) -> None:
        self.file, self.room = file, room

    def write(self, content: Any) -> int:
        self.room -= len(content)
        if self.room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self.file.write(content)

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


@pytest.mark.parametrize("name", sorted(FILES))
@pytest.mark.parametrize(("room", "ordered"), [(0, True), (2, True), (50, True), (140, False)])
def test_a_full_disk_leaves_nothing_whatever_was_being_written(
    tmp_path, monkeypatch, name, room, ordered
):
    opened = Path.open

    def full(path: Path, *args: Any, **options: Any) -> Any:
        file = opened(path, *args, **options)
        writes = "w" in (args[0] if args else options.get("mode", "r"))
        smallest = {"volumes.json": 3, "masks.bin": 72, "images.bin": 135}.get(name, 1000)
        return _Full(file, min(room, smallest - 1)) if path.name == name and writes else file

    def text(path: Path, content: str) -> None:
        with path.open("w") as file:
            file.write(content)

    monkeypatch.setattr(Path, "open", full)
    monkeypatch.setattr(Path, "write_text", text)
    items = [item(k=str(k)) for k in range(9)]
    with pytest.raises(OSError, match="No space left") as caught:
        write_prepared(items if ordered else items[::-1], tmp_path / "out", {})
    assert caught.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []
