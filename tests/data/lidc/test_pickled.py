import os
import pickle
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mue.data.lidc.importer import read_items
from mue.data.lidc.pickled import read
from mue.data.prepared.item import Item, Rejected
from mue.errors import MueError


def imported(path: Path, size: int | None = None) -> list[Item | Rejected]:
    return list(read(path, size, lambda _: None))


def entry(**other: Any) -> dict[str, Any]:
    masks = [np.zeros((4, 6)) for _ in range(4)]
    masks[1][2, 3] = 1
    image = np.linspace(0, 1, 24).reshape(4, 6)
    return {"image": image, "masks": masks, "series_uid": "1.2.3"} | other


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def make(value: object, protocol: int = 4, name: str = "data_lidc.pickle") -> Path:
        data = value if isinstance(value, bytes) else pickle.dumps(value, protocol)
        (tmp_path / name).write_bytes(data)
        return tmp_path / name

    return make


@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol_gives_the_same_slices(write: Callable[..., Path], protocol: int):
    (item,) = imported(write({"a_1": entry()}, protocol))
    assert isinstance(item, Item)
    assert item.key == ("1.2.3", "unknown", "a_1")
    assert item.source == "data_lidc.pickle/a_1"
    assert item.image[0].tolist() == np.rint(entry()["image"] * 255).astype(int).tolist()
    assert item.masks.sum(axis=(1, 2)).tolist() == [0, 1, 0, 0]
    assert item.masks[1, 2, 3]


def test_a_pickle_of_python_2_is_read(write: Callable[..., Path]):
    image = np.arange(24, dtype="<f8").reshape(4, 6) % 2
    text = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR"
    text += b"(I1\n(I4\nI6\ntcnumpy\ndtype\n(S'f8'\nI0\nI1\ntR(I3\nS'<'\nNNNI-1\nI-1\nI0\ntbI00\n"
    text += b"T" + struct.pack("<i", image.nbytes) + image.tobytes() + b"tb"
    body = b"(dS'x'\n(dS'image'\n" + text + b"sS'series_uid'\nS'1.2'\nsS'masks'\n("
    body += text * 4 + b"lss."
    (item,) = imported(write(b"\x80\x02" + body))
    assert isinstance(item, Item)
    assert item.key == ("1.2", "unknown", "x")
    assert item.image.ravel().tolist() == np.rint(image.ravel() * 255).tolist()


@pytest.mark.parametrize("dtype", ["u1", "<i4", ">i2", ">f4", "f2", "?"])
@pytest.mark.parametrize("protocol", [2, 5])
def test_numbers_of_every_kind_and_order_are_read(
    write: Callable[..., Path], dtype: str, protocol: int
):
    image = np.asfortranarray(np.arange(24).reshape(4, 6) % 2).astype(dtype)
    (item,) = imported(write({7: entry(image=image, masks=np.stack([image] * 4))}, protocol))
    assert isinstance(item, Item)
    assert item.slice == "7"
    assert (item.masks == (np.arange(24).reshape(4, 6) % 2 == 1)).all()


@pytest.mark.parametrize("value", [0.3, 1, 2, 3, 15, 100, 255])
def test_a_mask_is_zero_and_any_other_value(write: Callable[..., Path], value: float):
    mask = np.arange(24).reshape(4, 6) % 2
    (item,) = imported(write({"a": entry(masks=[mask * value] * 4)}))
    assert isinstance(item, Item)
    assert (item.masks == mask).all()


def test_integers_are_grey_values_as_they_are(write: Callable[..., Path]):
    image = np.arange(24, dtype=np.int64).reshape(4, 6) * 11
    (item,) = imported(write({"a": entry(image=image)}))
    assert isinstance(item, Item)
    assert (item.image == image).all()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (entry(masks=[np.zeros((4, 6))] * 3), "has 3 masks; a slice has 4"),
        (entry(masks=[np.zeros((4, 6))] * 5), "has 5 masks; a slice has 4"),
        (entry(masks=[np.zeros((4, 5))] * 4), "a mask of shape (4, 5) and an image of shape"),
        (entry(masks="none"), "not a list of arrays"),
        (entry(masks=[np.full((4, 6), np.nan)] * 4), "has a mask value that is not finite"),
        (entry(masks=[np.linspace(0, 1, 24).reshape(4, 6)] * 4), "a mask has 0 and one other"),
        (entry(masks=np.empty((2**39, 0))), "has 549755813888 masks; a slice has 4"),
        (entry(masks=np.array(1)), "has 1 masks; a slice has 4"),
        (entry(image=np.zeros((4, 6, 3))), "must have two axes"),
        (entry(image=np.full((4, 6), np.nan)), "values outside of 0..255"),
        (entry(image=np.full((4, 6), 256)), "values outside of 0..255"),
        (entry(image=[1, 2]), "'image' that is not an array"),
        (entry(series_uid=3), "`series_uid` that is not text"),
        ({"image": np.zeros((4, 6)), "masks": []}, "has no 'series_uid'"),
        (entry(series_uid="1\x1b[2J"), "`series_uid` that is not text"),
        ([1], "must be a dictionary with"),
    ],
)
def test_a_bad_entry_is_named_and_the_others_are_read(
    write: Callable[..., Path], value: object, words: str
):
    bad, good = imported(write({"bad": value, "good": entry()}))
    assert isinstance(bad, Rejected)
    assert bad.what == "data_lidc.pickle/bad"
    assert words in bad.why
    assert isinstance(good, Item)


class Runs:
    def __init__(self, function: Callable[..., Any], *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (Runs(os.system, "touch hacked"), r"posix\.system"),
        (Runs(eval, "1 + 1"), r"(builtins|__builtin__)\.eval"),
        (Runs(getattr, (), "__class__"), r"(builtins|__builtin__)\.getattr"),
        (Runs(np.zeros, 1 << 40), r"numpy\.zeros"),
        (Runs(np.load, "x"), r"numpy\.load"),
        (Runs(np.frombuffer, b"x"), r"numpy\..*frombuffer"),
        (np.random.default_rng(0), r"numpy\.random\..*"),
        (complex(1, 2), r"(builtins|__builtin__)\.complex"),
    ],
)
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_names_a_function_is_refused(
    write: Callable[..., Path], tmp_path: Path, value: object, named: str, protocol: int
):
    with pytest.raises(ValueError, match=f"data_lidc.pickle names '{named}'; only numpy arrays"):
        imported(write({"good": entry(), "bad": value}, protocol))
    assert not (tmp_path / "hacked").exists()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"cnumpy\nndarray\n((I1099511627776\ntS'b'\ntR.", "calls numpy.ndarray itself"),
        (
            b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I1099511627776\ntS'b'\ntR.",
            "a form that numpy does not write",
        ),
        (
            b"cnumpy.core.multiarray\n_reconstruct\n(c__builtin__\nset\n(I0\ntS'b'\ntR.",
            "a form that numpy does not write",
        ),
        (b"cnumpy\ndtype\n(S'O8'\nI0\nI1\ntR.", "values of kind 'O8'"),
        (b"cnumpy\ndtype\n(S'V99999999999'\nI0\nI1\ntR.", "values of kind"),
        (
            b"cnumpy\ndtype\n(S'f8'\ntR(I3\nS'|'\nNS'names'\nNI-1\nI-1\nI0\ntb.",
            "array of structures",
        ),
        (b"c_codecs\nencode\n(S'x'\nS'rot13'\ntR.", "another encoding than latin1"),
        (b"cnumpy\nndarray\n(dS'__call__'\nI1\nsb.", "would change ndarray"),
        (b"cnumpy\nndarray\n(N(dS'_make'\nI1\nstb.", "would change ndarray"),
        (
            b"cnumpy.core.numeric\n_frombuffer\n(S'abc'\ncnumpy\ndtype\n(S'f8'\ntR(I9999\ntS'C'\ntR.",
            "that holds 3 bytes",
        ),
        (b"Pelsewhere\n.", "refers to an object outside of itself"),
    ],
)
def test_numpy_itself_is_never_called(write: Callable[..., Path], body: bytes, words: str):
    with pytest.raises(ValueError, match=words):
        imported(write(body))


def test_an_array_of_objects_is_refused(write: Callable[..., Path]):
    with pytest.raises(ValueError, match="values of kind 'O8'"):
        imported(write({"a": entry(image=np.array([[1, "x"]], dtype=object))}))


@pytest.mark.parametrize("data", [b"", b"\x80\x04", b"nonsense", pickle.dumps({"a": entry()})[:-9]])
def test_a_truncated_pickle_is_named(write: Callable[..., Path], data: bytes):
    (bad,) = imported(write(data))
    assert isinstance(bad, Rejected)
    assert bad.what == "data_lidc.pickle"
    assert "truncated or damaged" in bad.why


def test_a_pickle_of_something_else_is_named(write: Callable[..., Path]):
    (bad,) = imported(write([entry()]))
    assert isinstance(bad, Rejected)
    assert bad.why == "must be a dictionary of slices, and is not"


def test_a_file_larger_than_half_of_the_memory_is_refused_before_it_is_read(
    write: Callable[..., Path],
):
    path = write({"a": entry()})
    size = path.stat().st_size
    with pytest.raises(ValueError, match=f"has {size} bytes, more than half of the {size + 1}"):
        list(read(path, None, lambda _: None, memory=size + 1))


def test_a_slice_in_two_pickles_is_kept_once(write: Callable[..., Path]):
    paths = [write({"a": entry()}, name=name) for name in ("one.pickle", "two.pickle")]
    item, bad = read_items(paths, "pickle")
    assert isinstance(item, Item)
    assert bad == Rejected("two.pickle/a", "is a slice that one.pickle has already brought")


def test_progress_ends_at_the_size_of_the_file(write: Callable[..., Path]):
    path = write({str(i): entry() for i in range(9)})
    seen: list[int] = []
    list(read(path, None, seen.append))
    assert sum(seen) == path.stat().st_size


@pytest.mark.parametrize(
    "program",
    [
        b"\x80\x04}K\x01" + 40 * b"2\x86" + b"K\x02s.",  # as a key of a dictionary
        b"\x80\x04}(K\x01" + 40 * b"2\x86" + b"K\x02u.",
        b"\x80\x04(K\x01" + 40 * b"2\x86" + b"K\x02d.",
        b"\x80\x04\x8f(K\x01" + 40 * b"2\x86" + b"\x90.",  # in a set
        b"\x80\x04(K\x01" + 40 * b"2\x86" + b"\x91.",
        b"\x80\x04c__builtin__\nset\n(]K\x01" + 40 * b"2\x86" + b"atR.",
        b"\x80\x04cnumpy\ndtype\n(K\x01" + 40 * b"2\x86" + b"tR.",  # in the words of an error
        b"\x80\x04K\x01" + 40 * b"2\x86" + b"Q.",
    ],
)
def test_a_few_bytes_do_not_run_without_end(write: Callable[..., Path], program: bytes):
    assert len(program) < 120
    with pytest.raises(MueError, match="the pickle"):
        imported(write(program))


def test_an_array_of_gigabytes_that_is_not_there_takes_no_memory(write: Callable[..., Path]):
    path = write(b"\x80\x05\x96" + (1 << 32).to_bytes(8, "little") + b"abc.")
    tracemalloc.start()
    (found,) = read(path, None, lambda _: None)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(found, Rejected)
    assert peak < 1 << 24


def test_an_index_of_gigabytes_takes_no_memory(write: Callable[..., Path]):
    (found,) = imported(write(b"\x80\x04K\x01r\xff\xff\xff\x7f."))
    assert isinstance(found, Rejected)
    (found,) = imported(write(b"\x80\x04B\xff\xff\xff\x7fx."))
    assert isinstance(found, Rejected)
    assert "bytes are claimed" in found.why


def test_text_that_is_encoded_again_and_again_is_refused(write: Callable[..., Path]):
    text = b"X" + struct.pack("<I", 1000) + 1000 * b"x"
    again = b"c_codecs\nencode\nh\x00\x85R"
    with pytest.raises(MueError, match="unfolds to far more than"):
        imported(write(b"\x80\x02(" + text + b"q\x00" + 300 * again + b"l."))


@pytest.mark.parametrize("name", [10**19, None, 1.5])
def test_a_slice_by_another_name_is_left_out(write: Callable[..., Path], name: object):
    (found,) = imported(write({name: entry()}))
    assert isinstance(found, Rejected)
    assert "not named by a string or a number" in found.why


@pytest.mark.parametrize("digits", [20, 5000])
def test_a_number_of_thousands_of_digits_is_no_key(write: Callable[..., Path], digits: int):
    with pytest.raises(MueError, match="has a int as a key"):
        imported(write({10**digits: entry()}))


def test_one_entry_under_many_names_is_not_unfolded_without_end(write: Callable[..., Path]):
    one = entry(image=np.zeros((64, 64)), masks=[np.zeros((64, 64)) for _ in range(4)])
    source = write({f"a_{i}": one for i in range(1000)})
    with pytest.raises(MueError, match="unfolds to far more than"):
        imported(source)
