import dataclasses
import errno
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest

from mue.data.prepared.item import Item, Rejected
from mue.data.prepared.splits import SPLITS, split_of
from mue.data.prepared.store import Prepared, open_prepared, write_prepared
from mue.data.prepared.summary import summarize

FILES = {"meta.json", "index.csv", "images.npy", "masks.npy"}


def item(
    patient: str = "p", case: str = "n", k: str = "0", size: tuple[int, int] = (3, 5), **more: Any
) -> Item:
    """A slice whose pixels follow from its name."""
    random = np.random.default_rng(list(f"{patient} {case} {k}".encode()))
    found = Item(
        patient=patient,
        case=case,
        slice=k,
        source=f"{patient}/{case}/{k}.png",
        image=random.integers(256, size=(1, *size), dtype=np.uint8),
        masks=(random.random((4, *size)) < 0.5).astype(np.uint8),
    )
    return dataclasses.replace(found, **more)


def files(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def masks(found: Prepared) -> np.ndarray:
    """The masks of every slice, unpacked by hand: bit 7 of the first byte is the first pixel."""
    h, w = found.size
    pixels = [(found.masks[..., i // 8] >> (7 - i % 8)) & 1 for i in range(h * w)]
    return np.stack(pixels, axis=-1).reshape(len(found.rows), -1, h, w).astype(bool)


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


# --- write, then open -----------------------------------------------------------------------------


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 4, 0, 3, 1]])
def test_slices_come_back_in_the_order_of_their_names_whatever_order_they_came_in(
    some, tmp_path, order
):
    write_prepared([some[i] for i in order], tmp_path / "out", {"form": "x"})
    found = open_prepared(tmp_path / "out", verify=True)
    expected = [some[i] for i in (0, 1, 2, 4, 3)]  # 03 and 3 are the same number: 03 is less
    assert [r.id for r in found.rows] == ["/".join(i.key) for i in expected]
    assert np.array_equal(found.images, np.concatenate([i.image for i in expected]))
    assert np.array_equal(masks(found), np.stack([i.masks for i in expected]))
    for row, it in zip(found.rows, expected, strict=True):
        assert (row.patient, row.case, row.slice) == it.key
        assert (row.spacing, row.source) == (it.spacing, it.source)  # to the bit
    assert (found.size, found.raters) == ((3, 5), 4)
    assert found.meta["origin"] == {"form": "x"}


def test_the_same_slices_are_the_same_bytes_whatever_order_they_came_in(some, tmp_path):
    for name, items in {"a": some, "b": some, "c": some[::-1]}.items():
        write_prepared(items, tmp_path / name, {"form": "x"})
    a, b, c = (files(tmp_path / name) for name in "abc")
    assert a.keys() == FILES
    assert a == b == c
    digests = {open_prepared(tmp_path / name).digest for name in "abc"}
    assert len(digests) == 1


def test_another_pixel_is_another_digest(some, tmp_path):
    write_prepared(some, tmp_path / "a", {})
    some[0].masks[0, 0, 0] ^= 1
    write_prepared(some, tmp_path / "b", {})
    assert open_prepared(tmp_path / "a").digest != open_prepared(tmp_path / "b").digest


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (2, 4), (3, 3), (7, 9), (4, 8)])
def test_masks_of_any_number_of_pixels_survive_their_bits(tmp_path, size):
    items = [item(k=str(k), size=size) for k in range(3)]
    items[0].masks[:] = True
    write_prepared(items, tmp_path / "out", {})
    found = open_prepared(tmp_path / "out")
    assert found.masks.shape == (3, 4, (size[0] * size[1] + 7) // 8)
    assert np.array_equal(masks(found), np.stack([i.masks for i in items]))


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


# --- what cannot be imported ----------------------------------------------------------------------


def test_what_is_bad_is_named_with_the_way_out_and_nothing_is_left(tmp_path):
    words = r"^p/9\.png: is a truncated PNG; mend it, or import the rest with --skip-bad$"
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
    assert np.array_equal(opened.images, np.concatenate([item(k=k).image for k in "02"]))
    assert opened.meta["left_out"] == 3
    write_prepared([item(k="2"), item(k="0")], tmp_path / "rest", {})
    whole, rest = files(tmp_path / "out"), files(tmp_path / "rest")
    assert all(whole[name] == rest[name] for name in FILES - {"meta.json"})


def test_slices_of_another_size_are_bad(tmp_path):
    items = [item(k="0"), item(k="1", size=(5, 3)), item(k="2")]
    words = r"p/n/1.png: is 4 masks of 5 x 3, and the slices before it are 4 masks of 3 x 5; mend"
    with pytest.raises(ValueError, match=words):
        write_prepared(items, tmp_path / "out", {})
    assert list(tmp_path.iterdir()) == []
    found = write_prepared(items, tmp_path / "out", {}, skip_bad=True)
    assert [b.what for b in found] == ["p/n/1.png"]
    assert len(open_prepared(tmp_path / "out").rows) == 2


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


@pytest.mark.parametrize("name", ["unsorted", "images.npy", "masks.npy", "index.csv", "meta.json"])
@pytest.mark.parametrize("room", [0, 130])
def test_a_full_disk_leaves_nothing_whatever_was_being_written(tmp_path, monkeypatch, name, room):
    opened = Path.open

    def full(path: Path, *args: Any, **options: Any) -> Any:
        file = opened(path, *args, **options)
        writes = "w" in (args[0] if args else options.get("mode", "r"))
        return _Full(file, room) if path.name == name and writes else file

    def text(path: Path, content: str) -> None:
        with path.open("w") as file:
            file.write(content)

    monkeypatch.setattr(Path, "open", full)
    monkeypatch.setattr(Path, "write_text", text)
    with pytest.raises(OSError, match="No space left") as caught:
        write_prepared([item(k=str(k)) for k in range(9)], tmp_path / "out", {})
    assert caught.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []


# --- splits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("patient", "sha256", "bucket", "split"),
    [  # by sha256sum(1)
        (
            "LIDC-IDRI-0116",
            "e1fa6ef8fdcaa39cee04db3ad1f3c7ddd3e73ea1de7bd12f243a3c8a35a0b0a0",
            0,
            "train",
        ),
        (
            "LIDC-IDRI-0017",
            "5171880d4ab014a4a326f920d16a942fed00c28370d87d4ebbdb3e6c49eb6f7f",
            59,
            "train",
        ),
        (
            "LIDC-IDRI-0046",
            "9744318ceb2276b54af03e85fbd584c7e95858287df6c4d7132a5abc297e5148",
            60,
            "val",
        ),
        (
            "LIDC-IDRI-0093",
            "9bbbee9ab970b07e2b1c569f64e1d50e72156d705e89443f73d2ff443ba96ef9",
            69,
            "val",
        ),
        (
            "LIDC-IDRI-0080",
            "1659a4887ba30d6cbe0ba9e0808b8e69d0a55ed0346518779da79564d5fa7a6e",
            70,
            "test",
        ),
        (
            "LIDC-IDRI-0072",
            "8254e4f826fc3d09c7a556be284b3a6537121e2c7ccc02483909ca53dbfa0b4b",
            99,
            "test",
        ),
    ],
)
def test_a_split_is_a_range_of_buckets_of_the_hash_of_the_patient(patient, sha256, bucket, split):
    assert int(sha256, 16) % 100 == bucket
    assert split_of(patient) == split


def test_splits_share_out_the_slices_and_no_patient(tmp_path):
    names = [f"p-{i}" for i in range(60)]
    items = [item(name, "n", str(k)) for name in names for k in range(1 + len(name) % 3)]
    write_prepared(items, tmp_path / "out", {})
    found = open_prepared(tmp_path / "out")
    members = {split: found.members(split) for split in SPLITS}
    every = np.concatenate(list(members.values()))
    assert sorted(every.tolist()) == list(range(len(items)))
    who = [{found.rows[i].patient for i in member} for member in members.values()]
    assert all(who)
    assert sum(map(len, who)) == len(names)
    assert all((np.diff(member) > 0).all() for member in members.values())


def test_the_split_of_a_patient_does_not_depend_on_the_others(tmp_path):
    names = [f"p-{i}" for i in range(30)]
    for folder, some in (("all", names), ("few", names[::3])):
        write_prepared([item(name) for name in some], tmp_path / folder, {})
    every, few = (open_prepared(tmp_path / folder) for folder in ("all", "few"))
    for split in SPLITS:
        who = {every.rows[i].patient for i in every.members(split)}
        assert {few.rows[i].patient for i in few.members(split)} == who & set(names[::3])


# --- damage ---------------------------------------------------------------------------------------


@pytest.fixture
def folder(some, tmp_path) -> Path:
    write_prepared(some, tmp_path / "out", {})
    return tmp_path / "out"


def _alter(path: Path, change: Any) -> None:
    path.write_bytes(change(path.read_bytes()))


def _meta(folder: Path, **change: Any) -> None:
    content = json.loads((folder / "meta.json").read_text()) | change
    (folder / "meta.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (
            lambda f: (f / "meta.json").unlink(),
            "is not prepared data: it must hold meta.json; make",
        ),
        (lambda f: _alter(f / "meta.json", lambda b: b[:-9]), "meta.json must describe prepared"),
        (lambda f: _alter(f / "meta.json", lambda _: b"[]"), "meta.json must describe prepared"),
        (lambda f: _alter(f / "meta.json", lambda _: b"\xff"), "meta.json must describe prepared"),
        (
            lambda f: _alter(f / "meta.json", lambda b: b + b" " * (1 << 20)),
            "meta.json must have at most 1048576 bytes",
        ),
        (
            lambda f: _meta(f, format="mue prepared slices 2"),
            "must be of the format 'mue prepared slices 1', got 'mue prepared slices 2'; import it",
        ),
        (lambda f: _meta(f, size=[3]), "meta.json must describe prepared slices"),
        (lambda f: _meta(f, size=[3, 5, 1]), "meta.json must describe prepared slices"),
        (lambda f: _meta(f, slices=6), "index.csv must have 6 slices, got 5; import it again"),
        (
            lambda f: _meta(f, raters=3),
            r"masks.npy must hold bytes of shape \(5, 3, 2\), got uint8 \(5, 4, 2\); import it",
        ),
        (
            lambda f: _meta(f, size=[5, 3]),
            r"images.npy must hold bytes of shape \(5, 5, 3\), got uint8 \(5, 3, 5\); import it",
        ),
        (lambda f: (f / "index.csv").unlink(), "index.csv must be .*; import it again"),
        (
            lambda f: _alter(f / "index.csv", lambda b: b[b.index(b"\n") + 1 :]),
            "index.csv must be a table of patient, case, slice, source, spacing, split, and is not",
        ),
        (
            lambda f: _alter(f / "index.csv", lambda b: b[: b[:-1].rindex(b"\n") + 5]),
            "index.csv must be a table of .*, and is not: .*; import it again",
        ),
        (
            lambda f: _alter(f / "index.csv", lambda b: b[: b[:-1].rindex(b"\n") + 1]),
            "index.csv must have 5 slices, got 4; import it again",
        ),
        (lambda f: _alter(f / "index.csv", lambda b: b + b"\xff"), "index.csv must be a table"),
        (lambda f: (f / "images.npy").unlink(), "images.npy must be a whole array.*; import it"),
        (lambda f: _alter(f / "images.npy", lambda b: b[:-1]), "images.npy must be a whole array"),
        (lambda f: _alter(f / "masks.npy", lambda b: b[:50]), "masks.npy must be a whole array"),
        (lambda f: _alter(f / "masks.npy", lambda _: b""), "masks.npy must be a whole array"),
        (
            lambda f: _alter(f / "masks.npy", lambda _: b"PK\x03\x04" + bytes(60)),
            "masks.npy must be a whole array",
        ),
        (lambda f: np.save(f / "images.npy", np.zeros((5, 3, 5))), "images.npy must hold bytes of"),
    ],
)
@pytest.mark.parametrize("verify", [False, True])
def test_a_damaged_folder_is_refused_in_one_sentence(folder, damage, words, verify):
    damage(folder)
    with pytest.raises(ValueError, match=rf"{words}|is not what was imported") as caught:
        open_prepared(folder, verify=verify)
    assert "\n" not in str(caught.value)
    if not verify:
        assert "is not what was imported" not in str(caught.value)


@pytest.mark.parametrize("name", ["index.csv", "images.npy", "masks.npy"])
def test_a_bit_that_has_changed_is_found_where_all_is_read(folder, name):
    path = folder / name
    open_prepared(folder, verify=True)
    content = path.read_bytes()
    last = content.rindex(b"3") if name == "index.csv" else len(content) - 1
    path.write_bytes(content[:last] + bytes([content[last] ^ 1]) + content[last + 1 :])
    open_prepared(folder)
    with pytest.raises(ValueError, match=f"{name} is not what was imported; import it again"):
        open_prepared(folder, verify=True)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    words = "nowhere is not prepared data: it must hold meta.json; make it by `mue data import`"
    with pytest.raises(ValueError, match=words):
        open_prepared(tmp_path / "nowhere")


def test_an_array_with_objects_in_it_is_not_unpickled(folder):
    np.save(folder / "images.npy", np.array([{"a": 1}]), allow_pickle=True)
    with pytest.raises(ValueError, match=r"images.npy must be a whole array"):
        open_prepared(folder)
