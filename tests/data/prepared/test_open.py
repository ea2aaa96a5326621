import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prepared_items import item

from mue.data.prepared.format import MAX_RATERS
from mue.data.prepared.item import Item
from mue.data.prepared.open import open_prepared, verify_prepared
from mue.data.prepared.write import write_prepared
from mue.errors import MueError

FILES = {"meta.json", "index.csv", "items.npy", "images.bin", "masks.bin", "volumes.json"}


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


@pytest.fixture
def folder(some, tmp_path) -> Path:
    write_prepared(some, tmp_path / "out", {})
    return tmp_path / "out"


def test_data_of_before_that_name_no_values_are_opened(some, tmp_path):
    write_prepared(some, tmp_path / "out", {}, labels=("none", "lesion"))
    content = json.loads((tmp_path / "out" / "meta.json").read_text())
    del content["values"]
    (tmp_path / "out" / "meta.json").write_text(json.dumps(content))
    assert open_prepared(tmp_path / "out").meta.values == ()


def _alter(path: Path, change: Any) -> None:
    path.write_bytes(change(path.read_bytes()))


def _meta(folder: Path, **change: Any) -> None:
    content = json.loads((folder / "meta.json").read_text()) | change
    (folder / "meta.json").write_text(json.dumps(content))


def _item(folder: Path, **change: Any) -> None:
    items = np.load(folder / "items.npy")
    for name, value in change.items():
        items[name][2] = value
    np.save(folder / "items.npy", items)


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
            lambda f: _meta(f, format="mue prepared slices 1"),
            "format must be 'mue prepared 2', got 'mue prepared slices 1'; import it again",
        ),
        (lambda f: _meta(f, images=6), "index.csv must have 6 slices, got 5; import it again"),
        (lambda f: _meta(f, images=0), "it must have at least one image"),
        (lambda f: _meta(f, images=float("inf")), "images must be a int, got inf; import it"),
        (lambda f: _meta(f, images=True), "images must be a int, got True"),
        (lambda f: _meta(f, channels=float("nan")), "channels must be a int, got nan"),
        (lambda f: _meta(f, channels=2), "items.npy must describe 5 images of 2 channels"),
        (lambda f: _meta(f, channels=None), "channels must be a int, got None"),
        (lambda f: _meta(f, dtype="complex64"), "dtype must be one of uint8, uint16, int16"),
        (lambda f: _meta(f, dtype="int16"), "images.bin must have 150 bytes, got 75; import it"),
        (lambda f: _meta(f, labels=None), "labels must be a list, got None"),
        (lambda f: _meta(f, labels=[1]), r"labels\[0\] must be a str, got 1"),
        (lambda f: _meta(f, labels=["a"] * 300), "at most 256 labels"),
        (lambda f: _meta(f, labels=["a", "b", "c"]), "masks.bin must have 300 bytes, got 40"),
        (lambda f: _meta(f, labels=["a", "b"], values=[0, 0]), "values must be empty or 2 ascend"),
        (lambda f: _meta(f, values=[0, 1]), "its values must be empty or 0 ascending numbers"),
        (lambda f: _meta(f, normalize={"kind": "window"}), "data.normalize.low must be one number"),
        (lambda f: _meta(f, normalize={"low": [float("inf")]}), "normalize.low must be finite"),
        (lambda f: _meta(f, normalize=[]), "meta.json.normalize must be an object"),
        (lambda f: _meta(f, sha256=None), "its origin and sha256 must be objects"),
        (lambda f: _meta(f, sha256={}), "its sha256 must be those of the other files"),
        (lambda f: _meta(f, origin=[]), "its origin and sha256 must be objects"),
        (lambda f: (f / "index.csv").unlink(), "index.csv must be .*; import it again"),
        (
            lambda f: _alter(f / "index.csv", lambda b: b[b.index(b"\n") + 1 :]),
            "index.csv must be a table of patient, case, slice, source, spacing, split, weights, ",
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
        (
            lambda f: _alter(f / "index.csv", lambda b: b.replace(b"0.703125 0.7", b"0.7")),
            "index.csv must be a table",
        ),
        (
            lambda f: _alter(f / "index.csv", lambda b: b.replace(b",,\n", b",,1 2\n", 1)),
            r"index.csv must have 4 weights for image 0, got '1 2'; import it again",
        ),
        (
            lambda f: _alter(f / "index.csv", lambda b: b.replace(b",,\n", b",,1 nan 1 1\n", 1)),
            r"index.csv must have 4 weights for image 0, got '1 nan 1 1'; import it again",
        ),
        (
            lambda f: _alter(f / "index.csv", lambda b: b.replace(b",,\n", b",Train,\n", 1)),
            "index.csv must be a table",
        ),
        (lambda f: (f / "images.bin").unlink(), "images.bin must have 75 bytes, got 0; import it"),
        (lambda f: _alter(f / "images.bin", lambda b: b[:-1]), "images.bin must have 75 bytes"),
        (lambda f: _alter(f / "masks.bin", lambda b: b + b"x"), "masks.bin must have 40 bytes"),
        (lambda f: (f / "items.npy").unlink(), "items.npy must be a whole array"),
        (lambda f: _alter(f / "items.npy", lambda b: b[:-1]), "items.npy must be a whole array"),
        (lambda f: _alter(f / "items.npy", lambda _: b""), "items.npy must be a whole array"),
        (
            lambda f: _alter(f / "items.npy", lambda _: b"PK\x03\x04" + bytes(60)),
            "items.npy must be a whole array",
        ),
        (
            lambda f: _alter(f / "items.npy", lambda b: b.replace(b"}", b"{", 1)),
            "items.npy must be a whole array",
        ),
        (lambda f: np.save(f / "items.npy", np.zeros(5)), "items.npy must describe 5 images"),
        (lambda f: _item(f, h=0), "items.npy must give each image a size, and not image 2"),
        (lambda f: _item(f, w=-5), "items.npy must give each image a size, and not image 2"),
        (lambda f: _item(f, h=1 << 30, w=1 << 30), "items.npy must give each image a size, and"),
        (lambda f: _item(f, raters=0), "items.npy must give each image a size, and not image 2"),
        (lambda f: _item(f, raters=3), "masks.bin must have 38 bytes, got 40; import it again"),
        (lambda f: _item(f, raters=MAX_RATERS), "masks.bin must have 8224 bytes, got 40"),
        (lambda f: _item(f, raters=MAX_RATERS + 1), "items.npy must give each image a size, and"),
        (lambda f: _item(f, h=46340, w=46340), "images.bin must have 2147395660 bytes, got 75"),
        (lambda f: _item(f, h=1 << 16, w=1 << 15), "items.npy must give each image a size, and"),
        (lambda f: _item(f, foreground=15), "items.npy must give each image a size, and not"),
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


@pytest.mark.parametrize("name", sorted(FILES - {"meta.json"}))
def test_a_bit_that_has_changed_is_found_where_all_is_read(folder, name):
    path = folder / name
    open_prepared(folder, verify=True)
    content = path.read_bytes()
    last = content.rindex(b"3") if name == "index.csv" else len(content) - 1
    path.write_bytes(content[:last] + bytes([content[last] ^ 1]) + content[last + 1 :])
    if name not in ("items.npy", "volumes.json"):
        open_prepared(folder)
    with pytest.raises(ValueError, match=f"{name} is not what was imported; import it again"):
        open_prepared(folder, verify=True)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    words = "nowhere is not prepared data: it must hold meta.json; make it by `mue data import`"
    with pytest.raises(ValueError, match=words):
        open_prepared(tmp_path / "nowhere")


def test_an_array_with_objects_in_it_is_not_unpickled(folder):
    np.save(folder / "items.npy", np.array([{"a": 1}]), allow_pickle=True)
    with pytest.raises(ValueError, match=r"items.npy must be a whole array"):
        open_prepared(folder)


@pytest.mark.parametrize("name", sorted(FILES - {"meta.json"}))
def test_a_changed_bit_is_found_before_the_data_are_used(some, tmp_path, name):
    write_prepared(some, tmp_path / "out", {})
    verify_prepared(tmp_path / "out")
    data = bytearray((tmp_path / "out" / name).read_bytes())
    data[-1] ^= 1
    (tmp_path / "out" / name).write_bytes(data)
    verify_prepared(tmp_path / "out", max_bytes=len(data) - 1)  # beyond the limit, `inspect` does
    for limit in (len(data), None, 1 << 30):
        with pytest.raises(MueError, match=f"{name} is not what was imported"):
            verify_prepared(tmp_path / "out", max_bytes=limit)
    with pytest.raises(MueError, match=f"{name} is not what was imported"):
        verify_prepared(tmp_path / "out")


def test_a_table_is_read_up_to_its_limit(some, tmp_path, monkeypatch):
    write_prepared(some, tmp_path / "out", {})
    size = (tmp_path / "out" / "meta.json").stat().st_size
    monkeypatch.setattr("mue.data.prepared.open._MAX_META_BYTES", size)
    assert len(open_prepared(tmp_path / "out").rows) == len(some)
    monkeypatch.setattr("mue.data.prepared.open._MAX_META_BYTES", size - 1)
    with pytest.raises(MueError, match=f"meta.json must have at most {size - 1} bytes, got {size}"):
        open_prepared(tmp_path / "out")


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_fifo_in_a_prepared_folder_is_not_waited_for(some, tmp_path, name):
    write_prepared(some, tmp_path / "out", {})
    (tmp_path / "out" / name).unlink()
    os.mkfifo(tmp_path / "out" / name)
    with pytest.raises(MueError, match=str(tmp_path)):
        open_prepared(tmp_path / "out").volumes()


AFFINE = np.eye(4).tolist()


@pytest.mark.parametrize(
    "volume",
    [
        ["p", "n", AFFINE, [5, 3, 1], 3],
        ["p", "n", AFFINE, [5, 3, 1], True],
        ["p", "n", AFFINE, [5, 3, 1], 1.0],
        ["p", "n", AFFINE, [5, 3, 0], 2],
        ["p", "n", AFFINE, [5.0, 3, 1], 2],
        ["p", "n", AFFINE, [5, 4, 1], 2],
        ["p", "n", AFFINE, 5, 2],
        ["p", "n", [[1]], [5, 3, 1], 2],
        ["p", "n", [[10**400] * 4] * 4, [5, 3, 1], 2],
        ["p", "n", [[float("inf")] * 4] * 4, [5, 3, 1], 2],
        ["p", 1, AFFINE, [5, 3, 1], 2],
        ["p", "n"],
        1,
    ],
)
def test_volumes_that_are_none_are_refused(tmp_path, volume):
    write_prepared([item()], tmp_path / "out", {})
    path = tmp_path / "out" / "volumes.json"
    path.write_text(json.dumps([["p", "n", AFFINE, [5, 3, 1], 2]]))
    found = open_prepared(tmp_path / "out").volumes()["p", "n"]
    assert (found.shape, found.axis) == ((5, 3, 1), 2)
    path.write_text(json.dumps([volume]))
    with pytest.raises(MueError, match=r"volumes.json must list volumes: .*; import it again"):
        open_prepared(tmp_path / "out").volumes()


@pytest.mark.parametrize("part", ["patient", "case", "slice", "source"])
def test_a_name_that_is_not_utf8_is_rejected_in_a_sentence(tmp_path, part):
    bad = dataclasses.replace(item(), **{part: "a\udcff"})
    with pytest.raises(MueError, match="has a name that is not UTF-8; rename it"):
        write_prepared([bad], tmp_path / "out", {})
    (rejected,) = write_prepared([bad, item()], tmp_path / "out", {}, skip_bad=True)
    assert rejected.why == "has a name that is not UTF-8; rename it"
