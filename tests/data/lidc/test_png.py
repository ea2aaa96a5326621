import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mue.data.lidc.importer import read_items
from mue.data.prepared.item import Item, Rejected
from mue.errors import MueError

Make = Callable[..., Path]
Files = dict[str, bytes]


def imported(*sources: Path, size: int | None = None) -> tuple[list[Item], list[Rejected]]:
    found = list(read_items(sources, "slices", size=size))
    return [f for f in found if isinstance(f, Item)], [f for f in found if isinstance(f, Rejected)]


def test_slices_come_with_their_four_masks(nodule: Callable[..., Files], pack: Make, folder: Make):
    files = nodule(k=2) | nodule(k=3)
    for source, prefix in ((folder(files), ""), (pack(files), "source.tar.gz/")):
        items, bad = imported(source)
        assert not bad
        assert [i.key for i in items] == [
            ("LIDC-IDRI-0001", "nodule-0", "slice-2"),
            ("LIDC-IDRI-0001", "nodule-0", "slice-3"),
        ]
        assert items[0].image[0, 0].tolist() == [2, 3, 4, 5, 6, 7, 8, 9]
        assert items[0].masks.sum(axis=(1, 2)).tolist() == [2, 3, 4, 5]
        assert items[0].source == prefix + "LIDC-IDRI-0001/nodule-0/images/slice-2.png"
        assert items[0].spacing is None


def test_a_folder_around_the_patients_makes_no_difference(
    nodule: Callable[..., Files], folder: Make
):
    items, _ = imported(folder({f"set/v1/{name}": data for name, data in nodule().items()}))
    assert items[0].patient == "LIDC-IDRI-0001"


def test_a_slice_is_yielded_before_the_archive_ends(nodule: Callable[..., Files], pack: Make):
    source = pack(nodule(k=0) | nodule(k=1))
    source.write_bytes(source.read_bytes()[:-40])
    items, bad = imported(source)
    assert len(items) >= 1
    assert bad[0].what == "source.tar.gz"


@pytest.mark.parametrize("masks", [0, 3])
def test_too_few_masks_are_counted(nodule: Callable[..., Files], folder: Make, masks: int):
    items, bad = imported(folder(nodule(masks=masks) | nodule(k=1)))
    assert [i.slice for i in items] == ["slice-1"]
    assert bad == [
        Rejected("LIDC-IDRI-0001/nodule-0/images/slice-0.png", f"has {masks} masks; a slice has 4")
    ]


def test_a_fifth_mask_takes_back_its_slice(nodule: Callable[..., Files], folder: Make):
    items, bad = imported(folder(nodule(masks=6) | nodule(k=1)))
    assert len(items) == 2  # the first was whole when its fifth mask was not yet seen
    assert len(bad) == 1
    assert bad[0].key == items[0].key == ("LIDC-IDRI-0001", "nodule-0", "slice-0")
    assert bad[0].what.endswith("mask-4/slice-0.png")
    assert bad[0].why == "is one mask more than the 4 of its slice"


def test_a_fifth_mask_before_the_image_is_noticed_too(nodule: Callable[..., Files], pack: Make):
    items, bad = imported(pack(dict(reversed(nodule(masks=5).items()))))
    assert not items
    assert [b.why for b in bad] == ["is one mask more than the 4 of its slice"]


def test_masks_without_an_image_are_named(nodule: Callable[..., Files], folder: Make):
    files = nodule()
    del files["LIDC-IDRI-0001/nodule-0/images/slice-0.png"]
    _, bad = imported(folder(files))
    assert bad == [Rejected("LIDC-IDRI-0001/nodule-0/slice-0", "has 4 masks but no image")]


def test_a_second_image_is_noticed(nodule: Callable[..., Files], folder: Make):
    _, bad = imported(folder(nodule() | {f"more/{n}": data for n, data in nodule().items()}))
    assert [(b.why, b.key) for b in bad] == [
        ("is a second image of the same slice", ("LIDC-IDRI-0001", "nodule-0", "slice-0"))
    ]


def test_a_slice_in_two_archives_is_kept_once(nodule: Callable[..., Files], pack: Make):
    one, two = pack(nodule(), "one.tar.gz"), pack(nodule() | nodule(k=1), "two.tar.gz")
    items, bad = imported(one, two)
    assert [i.source.partition("/")[0] for i in items] == ["one.tar.gz", "two.tar.gz"]
    assert [(b.why, b.key) for b in bad] == [
        ("is a slice that one.tar.gz has already brought", None)
    ]


def test_a_slice_that_one_archive_has_in_part_is_imported_from_another(
    nodule: Callable[..., Files], pack: Make
):
    one, two = pack(nodule(masks=3), "one.tar.gz"), pack(nodule(), "two.tar.gz")
    items, bad = imported(one, two)
    assert [i.source.partition("/")[0] for i in items] == ["two.tar.gz"]
    assert [b.why for b in bad] == ["has 3 masks; a slice has 4"]


def test_masks_of_another_size_than_the_image_are_named(
    nodule: Callable[..., Files], folder: Make, encode: Callable[..., bytes]
):
    files = nodule()
    files["LIDC-IDRI-0001/nodule-0/mask-2/slice-0.png"] = encode(np.zeros((4, 8), np.uint8))
    _, bad = imported(folder(files))
    assert bad == [
        Rejected(
            "LIDC-IDRI-0001/nodule-0/mask-2/slice-0.png",
            "is 4×8 pixels and its image 8×8; they must be the same",
        )
    ]


@pytest.mark.parametrize("keep", [0, 10, 20, 60, -12, -4])
def test_a_truncated_png_is_named(nodule: Callable[..., Files], folder: Make, keep: int):
    files = nodule()
    name = "LIDC-IDRI-0001/nodule-0/images/slice-0.png"
    files[name] = files[name][:keep]
    items, bad = imported(folder(files))
    assert not items
    assert bad[0].what == name
    assert bad[0].why in ("is a truncated PNG", "is not a PNG")


def test_a_damaged_png_is_named(nodule: Callable[..., Files], folder: Make):
    files = nodule()
    name = "LIDC-IDRI-0001/nodule-0/images/slice-0.png"
    data = bytearray(files[name])
    data[45] ^= 255
    files[name] = bytes(data)
    _, bad = imported(folder(files))
    assert bad[0].why.startswith("is damaged as PNG: the checksum of a chunk is wrong")


def test_a_png_that_claims_to_be_enormous_is_not_decoded(
    nodule: Callable[..., Files], folder: Make
):
    files = nodule()
    name = "LIDC-IDRI-0001/nodule-0/mask-3/slice-0.png"
    files[name] = files[name][:16] + b"\x00\x01\x00\x00" * 2 + files[name][24:]
    _, bad = imported(folder(files))
    assert bad == [Rejected(name, "is 65536×65536 pixels; at most 4096×4096 are read")]


def test_masks_of_zero_and_any_other_value_are_masks(
    nodule: Callable[..., Files], folder: Make, encode: Callable[..., bytes]
):
    files, eye = nodule(), np.eye(8, dtype=np.uint8)
    for r, value in enumerate((1, 2, 15, 100)):
        files[f"LIDC-IDRI-0001/nodule-0/mask-{r}/slice-0.png"] = encode(eye * value)
    items, _ = imported(folder(files))
    assert (items[0].masks == eye).all()


def test_a_mask_of_several_values_is_refused(
    nodule: Callable[..., Files], folder: Make, encode: Callable[..., bytes]
):
    files, name = nodule(), "LIDC-IDRI-0001/nodule-0/mask-1/slice-0.png"
    files[name] = encode(np.diag(np.array([1, 255] * 4, np.uint8)))
    items, bad = imported(folder(files | nodule(k=1)))
    why = "has mask values such as 1 and 255; a mask has 0 and one other value"
    assert (bad, [i.slice for i in items]) == ([Rejected(name, why)], ["slice-1"])


def test_an_image_of_one_bit_is_black_and_white_and_a_mask_is_a_mask(
    nodule: Callable[..., Files], folder: Make
):
    pattern = np.tile(np.array([0, 255], np.uint8), (8, 4))
    data = picture(Image.fromarray(pattern).convert("1"))
    names = [f"LIDC-IDRI-0001/nodule-0/{part}/slice-0.png" for part in ("images", "mask-0")]
    items, bad = imported(folder(nodule() | dict.fromkeys(names, data)))
    assert not bad
    assert np.array_equal(items[0].image[0], pattern)
    assert np.array_equal(items[0].masks[0], pattern > 0)


def test_colour_becomes_grey_and_sixteen_bits_are_refused(
    nodule: Callable[..., Files], folder: Make
):
    files, name = nodule(), "LIDC-IDRI-0001/nodule-0/images/slice-0.png"
    for mode, expected in [("RGB", 8), ("I;16", 0)]:
        out = io.BytesIO()
        Image.new(mode, (8, 8), (8, 8, 8) if mode == "RGB" else 9).save(out, "PNG")
        items, bad = imported(folder(files | {name: out.getvalue()}))
        if expected:
            assert (items[0].image == expected).all()
        else:
            assert "more than 8 bits a pixel" in bad[0].why


def test_a_crop_is_the_middle(nodule: Callable[..., Files], folder: Make):
    items, _ = imported(folder(nodule()), size=4)
    assert items[0].image[0].tolist() == [
        [18, 19, 20, 21],
        [26, 27, 28, 29],
        [34, 35, 36, 37],
        [42, 43, 44, 45],
    ]
    assert items[0].masks.shape == (4, 4, 4)


def test_a_crop_larger_than_the_image_is_refused(nodule: Callable[..., Files], folder: Make):
    _, bad = imported(folder(nodule()), size=9)
    assert [b.why for b in bad] == ["is 8×8 pixels, too small for crops of 9×9"]


def test_the_split_is_kept_in_the_provenance_of_a_crop(
    folder: Make, pack: Make, encode: Callable[..., bytes]
):
    blank = np.zeros((180, 180), np.uint8)
    stem = "LIDC-IDRI-0001/z-105.0_c0"
    files = {f"val/images/{stem}.png": encode(blank + 7)}
    files |= {f"val/gt/{stem}_l{i}.png": encode(blank + 255 * (i % 2)) for i in range(4)}
    for source, prefix in ((folder(files), ""), (pack(files), "source.tar.gz/")):
        (item,) = read_items([source], "crops")
        assert isinstance(item, Item)
        assert item.key == ("LIDC-IDRI-0001", "c0", "z-105.0")
        assert item.source == prefix + f"val/images/{stem}.png"
        assert item.image.shape == (1, 180, 180)
        assert item.masks.any(axis=(1, 2)).tolist() == [False, True, False, True]


@pytest.mark.parametrize("archive", [False, True])
def test_a_flipped_bit_or_a_zeroed_checksum_changes_no_pixel_unsaid(
    nodule: Callable[..., Files], folder: Make, pack: Make, archive: bool
):
    files, name = nodule(), "LIDC-IDRI-0001/nodule-0/mask-3/slice-0.png"
    whole = bytearray(files[name])
    at = whole.index(b"IDAT")
    size = int.from_bytes(whole[at - 4 : at], "big")
    for change in range(size + 1):
        data = bytearray(whole)
        if change < size:
            data[at + 4 + change] ^= 1
        else:  # the checksum
            data[at + 4 + size : at + 8 + size] = bytes(4)
        changed = {**files, name: bytes(data)}
        items, bad = imported(
            pack(changed, "s.tar") if archive else folder(changed, f"source-{change}")
        )
        assert not items
        assert "checksum of a chunk is wrong" in bad[0].why


def test_slices_whose_other_files_never_come_fill_no_memory(
    nodule: Callable[..., Files], pack: Make, monkeypatch: pytest.MonkeyPatch
):
    files = {k: v for n in range(9) for k, v in nodule(nodule=n).items() if "images" in k}
    monkeypatch.setattr("mue.data.lidc.png._MAX_KEPT", 200)
    with pytest.raises(MueError, match="put the files of a slice next to each other"):
        imported(pack(files))


def picture(image: Image.Image, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG", **options)
    return out.getvalue()


def of_16_bit_colour() -> bytes:
    """A PNG of 8 x 8 pixels, all of (258, 258, 258)."""
    rows = zlib.compress((b"\0" + b"\1\2" * 24) * 8)
    header = struct.pack(">IIBBBBB", 8, 8, 16, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", rows), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(c)) + k + c + struct.pack(">I", zlib.crc32(k + c)) for k, c in chunks
    )


GREY = Image.new("L", (8, 8), 8)


@pytest.mark.parametrize(
    ("part", "data", "words"),
    [
        ("images", of_16_bit_colour(), "more than 8 bits a pixel"),
        ("images", picture(Image.new("RGB", (8, 8), (9, 8, 8))), "is in colour"),
        ("images", picture(Image.new("LA", (8, 8), (9, 8))), "has transparent pixels"),
        ("images", picture(GREY, save_all=True, append_images=[Image.new("L", (8, 8))]), "animat"),
        ("mask-1", picture(Image.new("RGB", (8, 8), (255, 0, 0))), "is in colour"),
    ],
)
def test_what_would_not_keep_its_values_as_grey_is_refused(
    nodule: Callable[..., Files], folder: Make, part: str, data: bytes, words: str
):
    name = f"LIDC-IDRI-0001/nodule-0/{part}/slice-0.png"
    items, bad = imported(folder(nodule() | {name: data}))
    assert not items
    assert words in bad[0].why


def test_a_slice_is_turned_as_exif_says(nodule: Callable[..., Files], folder: Make):
    files, name = nodule(), "LIDC-IDRI-0001/nodule-0/images/slice-0.png"
    exif = Image.Exif()
    exif[274] = 3  # half a turn
    with Image.open(io.BytesIO(files[name])) as image:
        before = np.array(image)
        files[name] = picture(image, exif=exif)
    items, _ = imported(folder(files))
    assert np.array_equal(items[0].image[0], before[::-1, ::-1])
