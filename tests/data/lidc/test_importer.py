import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from mue.data.lidc.importer import Form, detect_form, read_items
from mue.data.prepared.item import Item

Make = Callable[..., Path]
Files = dict[str, bytes]


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("LIDC-IDRI-0001/nodule-0/images/slice-0.png", "slices"),
        ("around/LIDC-IDRI-0001/nodule-0/mask-3/slice-10.png", "slices"),
        ("train/images/LIDC-IDRI-0001/z-105.0_c0.png", "crops"),
        ("lidc/test/gt/LIDC-IDRI-0001/z-105.0_c0_l2.png", "crops"),
        ("LIDC-IDRI-0001/01-01-2000/3000611/000001.dcm", "dicom"),
    ],
)
def test_a_form_is_recognised_by_names(pack: Make, folder: Make, name: str, form: Form):
    assert detect_form([folder({"README.txt": b"", name: b"1"})]) == form
    assert detect_form([pack({name: b"1"})]) == form


def test_a_pickle_is_recognised_alone_and_in_its_folder(tmp_path: Path):
    path = tmp_path / "data_lidc.pickle"
    path.write_bytes(pickle.dumps({}))
    assert detect_form([path]) == detect_form([tmp_path]) == "pickle"


def test_an_unknown_form_is_refused_with_the_known_ones(folder: Make, tmp_path: Path):
    with pytest.raises(ValueError, match=r"not LIDC-IDRI in a known form; looked for LIDC"):
        detect_form([folder({"cat.jpg": b"1"})])
    (tmp_path / "a.zip").write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"a.zip is not LIDC-IDRI in a known form"):
        detect_form([tmp_path / "a.zip"])


def test_an_archive_broken_from_the_start_is_said_to_be(tmp_path: Path):
    (tmp_path / "a.tar.gz").write_bytes(b"\x1f\x8b and nothing more")
    with pytest.raises(ValueError, match=r"a.tar.gz is truncated or damaged as an archive"):
        detect_form([tmp_path / "a.tar.gz"])


def test_sources_of_several_forms_are_refused(pack: Make):
    one = pack({"LIDC-IDRI-0001/nodule-0/images/slice-0.png": b""}, "one.tar.gz")
    two = pack({"a/b.dcm": b""}, "two.tar.gz")
    with pytest.raises(ValueError, match=r"one.tar.gz is slices, two.tar.gz is dicom"):
        detect_form([one, two])
    with pytest.raises(ValueError, match="at least one file or folder"):
        detect_form([])


def test_an_unsafe_archive_is_refused_whatever_else_it_holds(
    pack: Make, nodule: Callable[..., Files]
):
    source = pack(nodule() | {"../escape.png": b"1"})
    with pytest.raises(ValueError, match=r"'\.\./escape.png' in the archive source.tar.gz leaves"):
        list(read_items([source], detect_form([source])))


def test_progress_ends_at_the_bytes_of_the_source(pack: Make, nodule: Callable[..., Files]):
    source = pack(nodule() | nodule(k=1))
    seen: list[tuple[int, int]] = []
    list(read_items([source], "slices", progress=lambda *both: seen.append(both)))
    assert seen == sorted(seen)
    assert seen[-1] == (source.stat().st_size, source.stat().st_size)


def test_reading_twice_gives_the_same(pack: Make, nodule: Callable[..., Files]):
    source = pack(nodule() | nodule(k=1) | nodule("LIDC-IDRI-0002"))

    def once() -> list[object]:
        items = [i for i in read_items([source], "slices") if isinstance(i, Item)]
        return [(i.key, i.source, i.image.tobytes(), i.masks.tobytes()) for i in items]

    assert once() == once()
    assert len(once()) == 3


def test_a_window_is_for_dicom_alone(pack: Make, nodule: Callable[..., Files]):
    with pytest.raises(ValueError, match="`window` needs Hounsfield units"):
        list(read_items([pack(nodule())], "slices", window=(-1000.0, 400.0)))


@pytest.mark.parametrize(
    ("size", "window", "words"),
    [
        (0, None, "`size`, the side of a crop, must be at least 1, got 0"),
        (None, (400.0, -1000.0), "the lower one first, got 400.0 -1000.0"),
        (None, (0.0, float("nan")), "`window` must be two Hounsfield units"),
    ],
)
def test_options_that_show_nothing_are_refused(
    size: int | None, window: tuple[float, float] | None, words: str
):
    with pytest.raises(ValueError, match=words):
        list(read_items([], "dicom", size=size, window=window))


@pytest.mark.data
def test_dicom_gives_the_published_slices_bit_for_bit(real_data):
    names = "lidc-dicom/LIDC-IDRI-0003-part.tar.gz", "lidc/lidc-slices-train-1.tar.gz"
    piece, slices = real_data(*names)
    published = {
        item.key: item
        for item in read_items([slices], "slices")
        if isinstance(item, Item) and item.patient == "LIDC-IDRI-0003"
    }
    made = list(read_items([piece], "dicom"))
    assert len(published) == 30
    assert len(made) == 27  # the last three slices of nodule-3 are not in the piece
    for item in made:
        assert isinstance(item, Item)
        assert (item.masks == published[item.key].masks).all()
        assert (item.image == published[item.key].image).all()
        assert item.spacing == (0.820312, 0.820312)
