import io
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pydicom import dcmread
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.uid import (
    UID,
    CTImageStorage,
    DeflatedExplicitVRLittleEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    JPEGLSLossless,
    RLELossless,
)

from mue.data.lidc.dicom import to_grey
from mue.data.lidc.importer import read_items
from mue.data.prepared.item import Item, Rejected

Make = Callable[..., Path]
Files = dict[str, bytes]
SIDE = 32
Outlines = list[tuple[int, int, int, int, int]]
"""For each outline the slice it is in, and the left, top, right and bottom of its square."""


def pixels(k: int) -> np.ndarray:
    """A slice of unsigned values that differ from pixel to pixel and slice to slice."""
    return (np.arange(SIDE * SIDE).reshape(SIDE, SIDE) + 7 * k).astype("<u2")


def dcm(
    k: int, *, series: str = "1.2.3", patient: str = "LIDC-IDRI-0009", **other: object
) -> bytes:
    meta = FileMetaDataset()
    meta.TransferSyntaxUID = UID(str(other.pop("syntax", ExplicitVRLittleEndian)))
    meta.MediaStorageSOPClassUID = CTImageStorage
    meta.MediaStorageSOPInstanceUID = UID(f"{series}.{k}")
    data = FileDataset("", {}, file_meta=meta, preamble=bytes(128))
    data.SOPClassUID = CTImageStorage
    data.SOPInstanceUID = f"{series}.{k}"
    data.SeriesInstanceUID = series
    data.PatientID = patient
    data.Rows = data.Columns = SIDE
    data.BitsAllocated = data.BitsStored = 16
    data.HighBit, data.PixelRepresentation, data.SamplesPerPixel = 15, 0, 1
    data.PhotometricInterpretation = "MONOCHROME2"
    data.ImagePositionPatient = [0, 0, 10 + 2.5 * k]
    data.PixelSpacing = [0.7, 0.7]
    data.SliceThickness = 2.5
    data.RescaleSlope, data.RescaleIntercept = 1, -1024
    data.PixelData = pixels(k).tobytes()
    for name, value in other.items():
        setattr(data, name, value)
    out = io.BytesIO()
    data.save_as(out, enforce_file_format=True)
    return out.getvalue()


def xml(
    *raters: list[Outlines], series: str = "1.2.3", about: str | None = None, root: str = "Lidc"
) -> bytes:
    """A message of raters, each with nodules, each with outlines."""
    sessions = ""
    for nodules in raters:
        sessions += "<readingSession>"
        for outlines in nodules:
            sessions += "<unblindedReadNodule>"
            for k, left, top, right, bottom in outlines:
                ring = [(x, top) for x in range(left, right)]
                ring += [(right, y) for y in range(top, bottom)]
                ring += [(x, bottom) for x in range(right, left, -1)]
                ring += [(left, y) for y in range(bottom, top, -1)]
                sessions += (
                    f"<roi><imageZposition>{10 + 2.5 * k}</imageZposition>"
                    f"<imageSOP_UID>{series}.{k}</imageSOP_UID><inclusion>TRUE</inclusion>"
                )
                for x, y in ring:
                    sessions += f"<edgeMap><xCoord>{x}</xCoord><yCoord>{y}</yCoord></edgeMap>"
                sessions += "</roi>"
            sessions += "</unblindedReadNodule>"
        sessions += "</readingSession>"
    return (
        f'<{root}ReadMessage xmlns="http://www.nih.gov"><ResponseHeader><SeriesInstanceUid>'
        f"{about or series}</SeriesInstanceUid></ResponseHeader>{sessions}</{root}ReadMessage>"
    ).encode()


def scan(
    message: bytes, slices: range = range(6), at: str = "LIDC-IDRI-0009/study/series", **other: str
) -> Files:
    files = {f"{at}/{k:06}.dcm": dcm(k, **other) for k in slices}
    return files | {f"{at}/069.xml": message}


ONE: Outlines = [(1, 10, 12, 16, 18), (2, 11, 12, 15, 18)]
NEAR: Outlines = [(2, 10, 12, 14, 17), (3, 10, 13, 15, 17)]
FAR: Outlines = [(4, 24, 24, 28, 28)]


def imported(
    *sources: Path, size: int | None = 16, window: tuple[float, float] | None = None
) -> tuple[list[Item], list[Rejected]]:
    found = list(read_items(sources, "dicom", size=size, window=window))
    return [f for f in found if isinstance(f, Item)], [f for f in found if isinstance(f, Rejected)]


def sums(item: Item) -> list[int]:
    return item.masks.sum(axis=(1, 2)).tolist()


def test_raters_share_nodules_and_no_annotation_is_an_empty_mask(folder: Make, pack: Make):
    files = scan(xml([ONE], [], [FAR, NEAR]))
    for source, prefix in ((folder(files), ""), (pack(files), "source.tar.gz/")):
        items, bad = imported(source)
        assert not bad
        found = {item.key[1:]: item for item in items}
        assert {item.patient for item in items} == {"LIDC-IDRI-0009"}
        assert {key: sums(item) for key, item in found.items()} == {
            ("nodule-0", "slice-0"): [5 * 5, 0, 0, 0],
            ("nodule-0", "slice-1"): [3 * 5, 3 * 4, 0, 0],
            ("nodule-0", "slice-2"): [0, 4 * 3, 0, 0],
            ("nodule-1", "slice-0"): [3 * 3, 0, 0, 0],
        }
        first = found["nodule-0", "slice-0"]
        assert first.source == prefix + "LIDC-IDRI-0009/study/series/000001.dcm"
        assert first.spacing == (0.7, 0.7)


def test_a_crop_is_centred_on_the_nodule(folder: Make):
    items, _ = imported(folder(scan(xml([ONE]))), size=8)
    first = next(item for item in items if item.slice == "slice-0")
    # the mean of both squares is (13, 15): columns 9 to 16, rows 11 to 18
    expected = pixels(1)[11:19, 9:17] - 1024.0
    assert (first.image == to_grey(expected, None)).all()
    assert first.masks[0, 2:7, 2:7].all()
    assert sums(first)[0] == 25


def test_a_crop_at_the_border_moves_inward(folder: Make):
    items, _ = imported(folder(scan(xml([[(1, 0, 26, 4, 31)]]))), size=16)
    (item,) = items
    assert (item.image == to_grey(pixels(1)[15:31, 0:16] - 1024.0, None)).all()
    assert sums(item)[0] == 3 * 4


def test_a_crop_may_be_the_whole_slice_but_not_more(folder: Make):
    source = folder(scan(xml([ONE])))
    items, _ = imported(source, size=SIDE)
    assert items[0].image.shape == (1, SIDE, SIDE)
    _, bad = imported(source, size=SIDE + 1)
    assert "32×32 pixels are too few for crops of 33×33" in bad[0].why


def test_a_window_fixes_what_is_black_and_white(folder: Make):
    items, _ = imported(folder(scan(xml([ONE]))), size=8, window=(-600.0, -500.0))
    first = next(item for item in items if item.slice == "slice-0")
    hounsfield = pixels(1)[11:19, 9:17] - 1024.0
    assert (first.image[0][hounsfield <= -600] == 0).all()
    assert (first.image[0][hounsfield >= -500] == 255).all()
    assert first.image[0][hounsfield == -560].tolist() == [102]


@pytest.mark.parametrize(
    ("values", "window", "expected"),
    [
        ([[0.0, 510.0, 1.0]], None, [[0, 255, 1]]),  # halves go up
        ([[-1000.0, 0.0, 500.0]], (-1000.0, 0.0), [[0, 255, 255]]),
        ([[3.0, 3.0]], None, [[0, 0]]),
    ],
)
def test_grey_values_by_hand(
    values: list[list[float]], window: tuple[float, float] | None, expected: list[list[int]]
):
    assert to_grey(np.array(values), window).tolist() == expected


def test_both_ways_of_writing_little_endian_are_read(folder: Make):
    message = xml([ONE])
    explicit, _ = imported(folder(scan(message), "explicit"))
    implicit, _ = imported(folder(scan(message, syntax=ImplicitVRLittleEndian), "implicit"))
    assert [(i.image == e.image).all() for e, i in zip(explicit, implicit, strict=True)] == [
        True
    ] * 2


def compressed(raw: bytes) -> bytes:
    data = dcmread(io.BytesIO(raw))
    data.compress(RLELossless, generate_instance_uid=False)
    out = io.BytesIO()
    data.save_as(out)
    return out.getvalue()


@pytest.mark.parametrize("signed", [0, 1])
def test_compressed_pixels_are_imported_to_the_same_bits(folder: Make, signed: int):
    files = scan(xml([ONE]))
    series = "LIDC-IDRI-0009/study/series"
    for k in range(6):
        values = (pixels(k).astype(np.int32) * 60 - 30_000 * signed).astype(
            "<i2" if signed else "<u2"
        )
        files[f"{series}/{k:06}.dcm"] = dcm(
            k, PixelData=values.tobytes(), PixelRepresentation=signed, RescaleSlope=0.7
        )
    packed = {name: compressed(raw) if name.endswith("dcm") else raw for name, raw in files.items()}
    assert len(packed[f"{series}/000001.dcm"]) < len(files[f"{series}/000001.dcm"])
    one, _ = imported(folder(files, "native"), window=(-1000.0, 900.5))
    two, bad = imported(folder(packed, "packed"), window=(-1000.0, 900.5))
    assert not bad
    assert len(one) == 2
    for a, b in zip(one, two, strict=True):
        assert a.key == b.key
        assert (a.image == b.image).all()
        assert (a.masks == b.masks).all()


def test_compressed_pixels_that_could_decompress_to_any_size_are_refused(folder: Make):
    files = scan(xml([FAR]))
    name = "LIDC-IDRI-0009/study/series/000004.dcm"
    data = dcmread(io.BytesIO(compressed(files[name])))
    data.PixelData = encapsulate([bytes(4 * SIDE * SIDE + 2)])
    out = io.BytesIO()
    data.save_as(out)
    items, (bad,) = imported(folder(files | {name: out.getvalue()}))
    assert not items
    assert re.search(r"its compressed pixels are \d+ bytes, and 2048 if decompressed", bad.why)


def test_a_slice_without_a_modality_lut_is_in_hounsfield_units_already(folder: Make):
    files = scan(xml([FAR]))
    name = "LIDC-IDRI-0009/study/series/000004.dcm"
    data = dcmread(io.BytesIO(files[name]))
    del data.RescaleSlope, data.RescaleIntercept
    out = io.BytesIO()
    data.save_as(out)
    (item,), _ = imported(folder(files | {name: out.getvalue()}), window=(0.0, 1000.0))
    # the contour is centered on (26, 26), and the crop is shifted inside
    assert (item.image == to_grey(pixels(4)[15:31, 15:31] * 1.0, (0.0, 1000.0))).all()


def test_a_slope_without_an_intercept_is_refused(folder: Make):
    files = scan(xml([FAR]))
    name = "LIDC-IDRI-0009/study/series/000004.dcm"
    data = dcmread(io.BytesIO(files[name]))
    del data.RescaleIntercept
    out = io.BytesIO()
    data.save_as(out)
    _, (bad,) = imported(folder(files | {name: out.getvalue()}))
    assert "it has only one of RescaleSlope and RescaleIntercept" in bad.why


def test_a_deflated_file_is_refused_before_it_is_inflated(folder: Make):
    files = scan(xml([FAR]))
    name = "LIDC-IDRI-0009/study/series/000004.dcm"
    files[name] = dcm(4, syntax=DeflatedExplicitVRLittleEndian)[:-9]
    _, bad = imported(folder(files))
    assert (bad[0].what, bad[0].why) == (
        name,
        "is deflated as a whole, to an unknown size; write it uncompressed",
    )


def test_slices_outside_of_a_piece_keep_their_numbers(folder: Make):
    items, bad = imported(folder(scan(xml([ONE + NEAR]), range(2, 4))))
    assert not bad
    assert sorted(item.slice for item in items) == ["slice-1", "slice-2"]


def test_five_annotations_of_a_nodule_never_give_five_masks(folder: Make):
    raters = [[ONE], [ONE], [ONE], [ONE, ONE]]
    items, bad = imported(folder(scan(xml(*raters))))
    assert not bad
    assert {(item.case, sum(map(bool, sums(item)))) for item in items} == {
        ("nodule-0", 4),
        ("nodule-1", 1),
    }


def test_series_without_a_reading_and_messages_of_x_rays_are_passed_over(folder: Make):
    files = scan(xml([ONE])) | scan(
        xml(root="Idri"), range(3), "LIDC-IDRI-0009/x-ray/series", series="9.9"
    )
    items, bad = imported(folder(files))
    assert (len(items), bad) == (2, [])


def test_two_series_of_a_patient_number_their_nodules_on(folder: Make):
    files = scan(xml([ONE]), at="LIDC-IDRI-0009/a/b")
    files |= scan(xml([FAR], series="1.2.4"), at="LIDC-IDRI-0009/c/d", series="1.2.4")
    items, bad = imported(folder(files))
    assert not bad
    assert sorted({(i.case, i.source.split("/")[1]) for i in items}) == [
        ("nodule-0", "a"),
        ("nodule-1", "c"),
    ]


def test_an_xml_of_another_series_is_refused(folder: Make):
    _, bad = imported(folder(scan(xml([ONE], about="6.6.6"))))
    assert len(bad) == 1
    assert bad[0].what == "LIDC-IDRI-0009/study/series/069.xml"
    assert (
        "is about the series 6.6.6, but the DICOM in its folder is of the series 1.2.3"
        in bad[0].why
    )


def test_an_xml_in_a_folder_of_its_own_finds_its_series(folder: Make):
    files = scan(xml([ONE]))
    message = files.pop("LIDC-IDRI-0009/study/series/069.xml")
    items, bad = imported(folder(files | {"xml/185/069.xml": message}))
    assert (len(items), bad) == (2, [])
    lone = xml([ONE], about="6.6.6")
    _, bad = imported(folder({"xml/186/070.xml": lone}))
    assert [b.why for b in bad] == ["is about the series 6.6.6, of which there is no DICOM"]


def test_a_series_twice_is_read_once(folder: Make):
    one, two = folder(scan(xml([ONE])), "one"), folder(scan(xml([ONE])), "two")
    items, bad = imported(one, two)
    assert len(items) == 2
    assert [b.why for b in bad] == [
        "is a second reading of the series that LIDC-IDRI-0009/study/series/069.xml has"
    ]


def test_a_missing_slice_is_named_by_its_gap(folder: Make):
    files = scan(xml([FAR]))
    del files["LIDC-IDRI-0009/study/series/000002.dcm"]
    items, bad = imported(folder(files))
    assert not items
    (found,) = bad
    assert found.why == (
        "is about the series 1.2.3, which has a slice missing between z = 12.5 and 17.5 mm, "
        "where its step is 2.5 mm"
    )


def test_a_slice_that_is_there_twice_is_named(folder: Make):
    files = scan(xml([FAR]))
    again = dcm(2, SOPInstanceUID="1.2.3.99")
    _, bad = imported(folder(files | {"LIDC-IDRI-0009/study/series/again.dcm": again}))
    assert "has two slices between z = 15 and 15 mm" in bad[0].why


def test_an_outline_in_a_slice_that_is_another_one_is_named(folder: Make):
    files = scan(xml([ONE]))
    files["LIDC-IDRI-0009/study/series/000002.dcm"] = dcm(2, SOPInstanceUID="1.2.3.99")
    _, bad = imported(folder(files))
    assert [b.why for b in bad] == [
        "has a contour at z = 15 mm, and the series 1.2.3 lacks that slice, 1.2.3.2"
    ]


def test_a_bad_series_does_not_keep_another_out(folder: Make):
    files = scan(xml([ONE], about="6.6.6"), at="LIDC-IDRI-0001/a/b", series="5.5")
    items, bad = imported(folder(files | scan(xml([ONE]))))
    assert len(items) == 2
    assert len(bad) == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"syntax": JPEGLSLossless}, "cannot be read as a slice: "),
        ({"syntax": RLELossless}, "cannot be read as a slice: Found unexpected tag"),
        ({"PixelData": bytes(SIDE)}, "it holds 16 of 1024 pixels"),
        ({"PixelData": bytes(2 * SIDE * SIDE + 2)}, "it holds 1025 of 1024 pixels"),
        ({"BitsAllocated": 8}, "it has 8 bits a pixel in 1 channels; a CT has 16 in one"),
        ({"SamplesPerPixel": 3}, "it has 16 bits a pixel in 3 channels; a CT has 16 in one"),
        ({"NumberOfFrames": 10**6}, "it has 1000000 frames; a slice has one"),
        ({"Rows": 65535}, "it is 65535×32 pixels; at most 4096×4096 are read"),
        ({"RescaleSlope": "1e308"}, "its Hounsfield units are not finite: 1e308 times a pixel"),
        ({"RescaleSlope": "1e30"}, "its Hounsfield units are beyond 1e+06: 1e30 times a pixel"),
        ({"RescaleIntercept": None}, "cannot be read as a slice: "),
    ],
)
def test_a_slice_that_cannot_be_shown_is_named(folder: Make, change: dict[str, object], words: str):
    files = scan(xml([FAR]))
    if "syntax" in change:
        raw = files["LIDC-IDRI-0009/study/series/000004.dcm"]
        old, new = str(ExplicitVRLittleEndian).encode(), str(change["syntax"]).encode()
        files["LIDC-IDRI-0009/study/series/000004.dcm"] = _identifier(raw, old, new)
    else:
        files["LIDC-IDRI-0009/study/series/000004.dcm"] = dcm(4, **change)  # pyright: ignore[reportArgumentType]
    items, bad = imported(folder(files))
    assert not items
    assert bad[0].what == "LIDC-IDRI-0009/study/series/000004.dcm"
    assert words in bad[0].why


def _identifier(raw: bytes, old: bytes, new: bytes) -> bytes:
    """Replace the transfer syntax in the header, and the lengths that follow from it."""
    at = raw.index(old + b"\x00")
    even = new + b"\x00" * (len(new) % 2)
    grown = len(even) - len(old) - 1
    length = int.from_bytes(raw[140:144], "little") + grown
    head = raw[:140] + length.to_bytes(4, "little") + raw[144 : at - 2]
    return head + len(even).to_bytes(2, "little") + even + raw[at + len(old) + 1 :]


@pytest.mark.parametrize("keep", [0, 100, 200, 300])
def test_a_truncated_header_is_named(folder: Make, keep: int):
    files = scan(xml([FAR]))
    name = "LIDC-IDRI-0009/study/series/000005.dcm"
    files[name] = files[name][:keep]
    _, bad = imported(folder(files))
    assert bad[0].what == name
    assert "truncated or damaged as DICOM" in bad[0].why


def test_nested_sequences_are_refused_by_name(folder: Make):
    files = scan(xml([FAR]))
    name = "LIDC-IDRI-0009/study/series/000005.dcm"
    at = files[name].index(b"\x10\0\x20\0LO")  # the patient
    start = b"\x08\0\x40\x11SQ\0\0" + b"\xff" * 4 + b"\xfe\xff\0\xe0" + b"\xff" * 4
    end = b"\xfe\xff\x0d\xe0\0\0\0\0" + b"\xfe\xff\xdd\xe0\0\0\0\0"
    files[name] = files[name][:at] + start * 5000 + end * 5000 + files[name][at:]
    _, bad = imported(folder(files))
    assert bad[0].what == name
    assert "\n" not in bad[0].why


def test_a_header_with_a_number_of_one_byte_is_named(folder: Make):
    files = scan(xml([FAR]))
    name = "LIDC-IDRI-0009/study/series/000005.dcm"
    files[name] = files[name][:138] + b"\x01\x00" + files[name][140:]  # a UL has four
    _, bad = imported(folder(files))
    assert bad[0].what == name
    assert "truncated or damaged as DICOM" in bad[0].why


def test_a_truncated_xml_is_named(folder: Make):
    _, bad = imported(folder(scan(xml([FAR])[:-5])))
    assert "truncated or damaged as XML" in bad[0].why


def test_a_deflated_file_is_refused_however_long_its_version_is(folder: Make):
    """The file meta begins with bytes of any length, so that what follows is far from the start."""
    files = scan(xml([ONE]))
    name = next(name for name in files if name.endswith(".dcm"))
    raw = dcm(0, syntax=DeflatedExplicitVRLittleEndian)
    version = raw.index(b"\x02\0\x01\0OB")
    length = b"OB\0\0" + (8000).to_bytes(4, "little")
    files[name] = raw[: version + 4] + length + bytes(8000) + raw[version + 14 :]
    _, bad = imported(folder(files))
    assert "is deflated as a whole" in bad[0].why
