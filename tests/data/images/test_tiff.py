import lzma
import os
import zlib

import numpy as np
import pytest
import tifffile
from PIL import Image

from mue.data.images.reader import read_image_file
from mue.errors import MueError

RANDOM = np.random.default_rng(0)


def random(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    values = RANDOM.integers(0, 200, shape)
    return (values / 7 if dtype.startswith("f") else values * (300 if "16" in dtype else 1)).astype(
        dtype
    )


@pytest.mark.parametrize(
    ("shape", "options", "wanted"),
    [
        ((5, 7), {}, (1, 1, 5, 7)),
        ((5, 7, 3), {"photometric": "rgb"}, (3, 1, 5, 7)),
        ((6, 5, 7), {"photometric": "minisblack"}, (1, 6, 5, 7)),
        ((5, 7, 12), {"photometric": "minisblack", "planarconfig": "contig"}, (12, 1, 5, 7)),
        ((12, 5, 7), {"photometric": "minisblack", "metadata": {"axes": "CYX"}}, (12, 1, 5, 7)),
        ((4, 2, 5, 7), {"imagej": True, "metadata": {"axes": "ZCYX"}}, (2, 4, 5, 7)),
        (
            (6, 5, 7),
            {"photometric": "minisblack", "compression": "zlib", "predictor": 2},
            (1, 6, 5, 7),
        ),
    ],
)
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
def test_tiff_gives_channels_and_pages_without_loss(tmp_path, shape, options, wanted, dtype):
    values = random(shape, dtype)
    if dtype == "float32" and "predictor" in options:
        options = options | {"predictor": False}
    tifffile.imwrite(tmp_path / "a.tif", values, **options)
    found = read_image_file(tmp_path / "a.tif").pixels
    assert (found.shape, found.dtype) == (wanted, values.dtype)
    if shape[-1] in (3, 12):
        values = np.moveaxis(values, -1, 0)[:, None]
    elif len(shape) == 4:
        values = values.swapaxes(0, 1)
    assert np.array_equal(found.ravel(), values.ravel())


def test_compressed_tiff_is_read_by_pillow(tmp_path):
    pages = [random((5, 7), "uint16") for _ in range(3)]
    images = [Image.fromarray(page) for page in pages]
    images[0].save(
        tmp_path / "a.tif", save_all=True, append_images=images[1:], compression="tiff_lzw"
    )
    assert np.array_equal(read_image_file(tmp_path / "a.tif").pixels[0], np.stack(pages))


def test_white_may_be_zero_in_a_tiff(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", np.array([[0, 255]], np.uint8), photometric="miniswhite")
    assert read_image_file(tmp_path / "a.tif").pixels.tolist() == [[[[255, 0]]]]


@pytest.mark.parametrize("mode", ["YCbCr", "LAB", "CMYK"])
def test_colours_of_a_tiff_that_are_not_rgb_are_refused(tmp_path, mode):
    """Their samples are no red, green and blue."""
    Image.new(mode, (5, 4)).save(tmp_path / "a.tiff")
    with pytest.raises(MueError, match=r"a\.tiff has colours of the kind .*; save it in grey or"):
        read_image_file(tmp_path / "a.tiff")


OME = (
    '<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06" {own}>{before}'
    '<Image ID="Image:0"><Pixels ID="Pixels:0" DimensionOrder="XYZCT" Type="uint8" SizeX="7" '
    'SizeY="5" SizeZ="{slices}" SizeC="1" SizeT="1"><Channel ID="Channel:0" SamplesPerPixel="1"/>'
    "{planes}</Pixels></Image></OME>"
)


PLANE = '<TiffData IFD="0" FirstZ="{z}" PlaneCount="{count}">{uuid}</TiffData>'


UUID = '<UUID FileName="{name}">urn:uuid:{text}</UUID>'


def write_ome(path, planes="", *, slices=2, own="", before=""):
    text = OME.format(own=own, before=before, slices=slices, planes=planes)
    values = np.arange(70, dtype=np.uint8).reshape(2, 5, 7)
    tifffile.imwrite(path, values, description=text, metadata=None, photometric="minisblack")
    return values


@pytest.mark.parametrize("own", ["", 'UUID="urn:uuid:1"'])
def test_ome_tiff_in_one_file_is_read_by_its_axes(tmp_path, own):
    uuid = UUID.format(name="a.tif" if not own else "before-it-was-renamed.tif", text=1)
    values = write_ome(tmp_path / "a.tif", PLANE.format(z=0, count=2, uuid=uuid), own=own)
    assert np.array_equal(read_image_file(tmp_path / "a.tif").pixels[0], values)
    values = tifffile.imwrite(tmp_path / "b.tif", values, ome=True, metadata={"axes": "CYX"})
    assert read_image_file(tmp_path / "b.tif").pixels.shape == (2, 1, 5, 7)


@pytest.mark.parametrize("own", ["", 'UUID="urn:uuid:1"'])
@pytest.mark.parametrize("name", ["pipe", "../outside.tif"])
def test_ome_tiff_that_names_other_files_is_refused_and_they_are_not_opened(tmp_path, own, name):
    folder = tmp_path / "folder"
    folder.mkdir()
    os.mkfifo(folder / "pipe")
    tifffile.imwrite(tmp_path / "outside.tif", np.full((5, 7), 9, np.uint8))
    here = PLANE.format(z=0, count=1, uuid=UUID.format(name="a.tif", text=1))
    there = PLANE.format(z=1, count=1, uuid=UUID.format(name=name, text=2))
    write_ome(folder / "a.tif", here + there, own=own)
    with pytest.raises(MueError, match=r"a\.tif is an OME-TIFF that continues in '.*'; save all"):
        read_image_file(folder / "a.tif")


@pytest.mark.parametrize(
    ("planes", "options", "words"),
    [
        ("", {"slices": 10**9}, "claims SizeZ 1000000000 in its OME-XML; at most 16384 are read"),
        (PLANE.format(z=0, count=10**9, uuid=""), {}, "claims PlaneCount 1000000000"),
        (PLANE.format(z=0, count=1, uuid=""), {}, "lacks 1 of the 2 pages that it describes"),
        ("", {"before": '<ModuloAlongT Start="0" End="1e9"/>'}, "has divided axes"),
    ],
)
def test_ome_tiff_that_describes_pages_it_does_not_have_is_refused(
    tmp_path, planes, options, words
):
    write_ome(tmp_path / "a.tif", planes, **options)
    with pytest.raises(MueError, match=words):
        read_image_file(tmp_path / "a.tif")


def test_a_micro_manager_stack_is_read_alone(tmp_path, monkeypatch):
    """Its form continues in all files whose names begin alike, or in an NDTiff.index."""
    values = random((5, 7), "uint8")
    tifffile.imwrite(tmp_path / "a_MMStack.tif", values)
    for form in ("mmstack", "ndtiff"):
        monkeypatch.setattr(tifffile.TiffFile, f"_series_{form}", pytest.fail)
        monkeypatch.setattr(tifffile.TiffFile, "micromanager_metadata", {"MajorVersion": 2})
    (tmp_path / "NDTiff.index").touch()
    assert np.array_equal(read_image_file(tmp_path / "a_MMStack.tif").pixels[0, 0], values)


def test_pages_of_different_sizes_are_refused(tmp_path):
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        file.write(np.zeros((4, 4), np.uint8))
        file.write(np.zeros((6, 4), np.uint8))
    with pytest.raises(MueError, match=r"a.tif holds several images \(4 x 4, 6 x 4\)"):
        read_image_file(tmp_path / "a.tif")


@pytest.mark.parametrize(("mode", "dtype"), [("I", "int32"), ("F", "float32")])
def test_pictures_of_32_bits_keep_their_values(tmp_path, mode, dtype):
    """As Pillow writes its modes I and F."""
    values = (RANDOM.integers(-(10**6), 10**6, (5, 7)) / (7 if mode == "F" else 1)).astype(dtype)
    picture = Image.fromarray(values)
    assert picture.mode == mode
    picture.save(tmp_path / "a.tif")
    found = read_image_file(tmp_path / "a.tif").pixels[0, 0]
    assert found.dtype == values.dtype
    assert np.array_equal(found, values)


@pytest.mark.parametrize("compression", ["zlib", "lzma", "packbits"])
def test_a_tiff_that_decompresses_to_more_than_it_claims_is_refused(tmp_path, compression):
    content = {
        "zlib": zlib.compress(bytes(1 << 24)),
        "lzma": lzma.compress(bytes(1 << 24)),
        "packbits": b"\x81\0" * 7,
    }[compression]
    number = {"zlib": 8, "lzma": 34925, "packbits": 32773}[compression]
    tifffile.imwrite(
        tmp_path / "a.tif",
        iter([content]),
        shape=(8, 8),
        dtype=np.uint8,
        compression=8,
        rowsperstrip=8,
    )
    with tifffile.TiffFile(tmp_path / "a.tif", mode="r+") as file:
        file.pages.first.tags["Compression"].overwrite(number)
    with pytest.raises(MueError, match="holds more than the 64 bytes that a part of it claims"):
        read_image_file(tmp_path / "a.tif")


def test_packbits_and_lzma_are_read(tmp_path):
    values = np.repeat(random((40, 7), "uint8"), 3, axis=1)
    with Image.fromarray(values) as image:
        image.save(tmp_path / "a.tif", compression="packbits")
    tifffile.imwrite(tmp_path / "b.tif", values, compression="lzma", rowsperstrip=16)
    for name in "ab":
        assert np.array_equal(read_image_file(tmp_path / f"{name}.tif").pixels[0, 0], values)
