"""Files of every kind, read by one function; what is wrong with one is said in one sentence."""

import gzip
import lzma
import os
import struct
import tarfile
import tracemalloc
import zlib
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import tifffile
from jpeg_lossless import jpeg_lossless
from PIL import Image
from pydicom import Dataset, dcmread
from pydicom.uid import (
    DeflatedExplicitVRLittleEndian,
    EnhancedMRImageStorage,
    JPEG2000Lossless,
    JPEGLosslessSV1,
    JPEGLSLossless,
    RLELossless,
    generate_uid,
)

from mue.data import worker
from mue.data.images import isolated
from mue.data.images.image import FileInMemory, Limits, limited
from mue.data.images.reader import decode_file, modality, read_image_file
from mue.errors import MueError

RANDOM = np.random.default_rng(0)
AFFINE = np.array([[-2.0, 0, 0, 5], [0, 3, 0, 6], [0, 0, 4, 7], [0, 0, 0, 1]])


def random(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    values = RANDOM.integers(0, 200, shape)
    return (values / 7 if dtype.startswith("f") else values * (300 if "16" in dtype else 1)).astype(
        dtype
    )


# --- pictures, TIFF, npy --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_grey_pictures_keep_their_bits(tmp_path, dtype):
    values = random((5, 7), dtype)
    Image.fromarray(values).save(tmp_path / "a.png")
    found = read_image_file(tmp_path / "a.png")
    assert (found.pixels.dtype, found.geometry) == (np.dtype(dtype), None)
    assert np.array_equal(found.pixels[0, 0], values)


def test_a_picture_is_recognized_by_its_content(tmp_path):
    Image.new("RGB", (4, 3), (9, 8, 7)).save(tmp_path / "a.bmp")
    os.rename(tmp_path / "a.bmp", tmp_path / "a.png")
    assert read_image_file(tmp_path / "a.png").pixels[:, 0, 0, 0].tolist() == [9, 8, 7]


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


@pytest.mark.parametrize("options", [{}, {"compression": "group4"}])
@pytest.mark.parametrize("form", ["bmp", "tif"])
def test_pictures_of_one_bit_are_black_and_white_and_masks_of_0_and_1(tmp_path, form, options):
    values = random((5, 7), "uint8") % 2
    options = options if form == "tif" else {}
    Image.fromarray(values * 255).convert("1").save(tmp_path / f"a.{form}", **options)
    assert np.array_equal(read_image_file(tmp_path / f"a.{form}").pixels[0, 0], values * 255)
    mask = decode_file(tmp_path / f"a.{form}", mask=True).pixels[0, 0]
    assert np.array_equal(mask, mask.max() * values)


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


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [
        ((5, 7), (1, 1, 5, 7)),
        ((3, 5, 7), (3, 1, 5, 7)),
        ((12, 5, 7), (12, 1, 5, 7)),
        ((5, 7, 3), (3, 1, 5, 7)),
        ((2, 6, 5, 7), (2, 6, 5, 7)),
    ],
)
def test_arrays_are_read_by_their_shape(tmp_path, shape, wanted):
    values = random(shape, "int16")
    np.save(tmp_path / "a.npy", values)
    found = read_image_file(tmp_path / "a.npy").pixels
    assert found.shape == wanted
    assert found[0, 0, 4, 5] == (
        values[4, 5, 0] if shape[-1] == 3 else values.reshape(wanted)[0, 0, 4, 5]
    )


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


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("bool", "uint8"),
        ("int8", "int16"),
        ("int64", "int32"),
        ("float64", "float32"),
        (">u2", "uint16"),
    ],
)
def test_types_become_one_of_five_with_the_same_values(tmp_path, given, wanted):
    values = (RANDOM.integers(0, 2, (4, 5)) * 3).astype(given)
    np.save(tmp_path / "a.npy", values)
    found = read_image_file(tmp_path / "a.npy").pixels[0, 0]
    assert found.dtype == np.dtype(wanted)
    assert np.array_equal(found, values)


# --- volumes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("ending", ["nii", "nii.gz"])
def test_a_volume_is_cut_along_the_chosen_axis(tmp_path, axis, ending):
    voxels = random((4, 5, 6), "int16")
    nib.save(nib.Nifti1Image(voxels, AFFINE), tmp_path / f"a.{ending}")
    found = read_image_file(tmp_path / f"a.{ending}", axis=axis)
    assert found.geometry is not None
    assert (found.geometry.shape, found.geometry.axis) == ((4, 5, 6), axis)
    assert np.array_equal(found.geometry.affine, AFFINE)
    assert found.geometry.spacing == {0: (4, 3), 1: (4, 2), 2: (3, 2)}[axis]
    d, h, w = [(0, 2, 1), (1, 2, 0), (2, 1, 0)][axis]
    assert np.array_equal(found.pixels[0], voxels.transpose(d, h, w))


def test_the_scale_of_a_header_is_applied_and_a_fourth_axis_is_channels(tmp_path):
    voxels = random((4, 5, 6, 2), "int16")
    image = nib.Nifti1Image(voxels, AFFINE)
    image.header.set_slope_inter(0.5, 3)
    (tmp_path / "a.nii").write_bytes(image.to_bytes())
    found = read_image_file(tmp_path / "a.nii").pixels
    assert (found.dtype, found.shape) == (np.dtype("float32"), (2, 6, 5, 4))
    assert np.array_equal(found[1], 0.5 * voxels[..., 1].T + 3)


def test_a_slice_is_one_whatever_the_axis(tmp_path):
    nib.save(nib.Nifti2Image(random((4, 5), "uint8"), AFFINE), tmp_path / "a.nii")
    found = read_image_file(tmp_path / "a.nii", axis=0)
    assert found.pixels.shape == (1, 1, 5, 4)


def test_the_checksum_of_gzip_is_verified(tmp_path):
    data = gzip.compress(nib.Nifti1Image(random((4, 5, 6), "int16"), AFFINE).to_bytes())
    for broken in (data[:-1], data[:-40], data[:-8] + b"\0" * 8):
        (tmp_path / "a.nii.gz").write_bytes(broken)
        with pytest.raises(MueError, match=r"a.nii.gz is truncated or damaged as gzip"):
            read_image_file(tmp_path / "a.nii.gz")


def test_a_series_is_ordered_by_position_and_rescaled(series):
    folder, voxels = series
    found = read_image_file(folder)
    assert found.pixels.dtype == np.int16
    assert np.array_equal(found.pixels[0], voxels)
    assert [path.name for path in found.files] == [f"{name}.dcm" for name in "ebdac"]
    assert found.geometry is not None
    wanted = np.array([[-0.75, 0, 0, 30], [0, -0.5, 0, 20], [0, 0, 2, 10], [0, 0, 0, 1]])
    assert np.allclose(found.geometry.affine, wanted)
    assert (found.geometry.shape, found.geometry.spacing) == ((34, 33, 5), (0.5, 0.75))
    assert np.array_equal(read_image_file(folder, axis=1).pixels[0], voxels.swapaxes(0, 1))


def test_a_single_slice_has_a_geometry(series):
    folder, voxels = series
    found = read_image_file(folder / "a.dcm")
    assert np.array_equal(found.pixels[0, 0], voxels[3])
    assert found.geometry is not None
    assert found.geometry.affine[2, 2] == 2.5  # its thickness
    assert found.geometry.affine[2, 3] == 16


def rescaling(slope: float, intercept: float) -> Dataset:
    """A functional group of an enhanced image."""
    group, values = Dataset(), Dataset()
    values.RescaleSlope, values.RescaleIntercept, values.RescaleType = slope, intercept, "US"
    group.PixelValueTransformationSequence = [values]
    return group


@pytest.mark.parametrize(
    ("shared", "each", "wanted"),
    [
        ((2, -10), [], [-8, -4]),
        ((2, -10), [(1, 0), (3, 1)], [1, 10]),  # its own is before that of all
        (None, [(0.5, 0), (100, 5)], [0.5, 305]),
        (None, [], [1, 3]),
    ],
)
def test_each_frame_of_an_enhanced_image_is_rescaled_as_it_says(
    ct_slice, tmp_path, shared, each, wanted
):
    data = ct_slice(np.full((2, 3), 1), 0.0, "1.2")
    del data.RescaleSlope, data.RescaleIntercept
    data.SOPClassUID, data.NumberOfFrames = EnhancedMRImageStorage, 2
    data.PixelData = np.repeat([1, 3], 6).astype("<u2").tobytes()
    groups = [rescaling(*values) for values in each] or [Dataset(), Dataset()]
    for k, group in enumerate(groups):
        group.PlanePositionSequence = [Dataset()]
        group.PlanePositionSequence[0].ImagePositionPatient = [0, 0, k]
    data.PerFrameFunctionalGroupsSequence = groups
    if shared is not None:
        data.SharedFunctionalGroupsSequence = [rescaling(*shared)]
    data.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    assert read_image_file(tmp_path / "a.dcm").pixels[0, :, 0, 0].tolist() == wanted


@pytest.mark.parametrize("signed", [0, 1])
def test_values_from_white_to_black_are_inverted(ct_slice, tmp_path, signed):
    """By hand: 12 bits are 0 to 4095, or with a sign -2048 to 2047."""
    more = {"BitsStored": 12, "HighBit": 11, "PixelRepresentation": signed}
    data = ct_slice(np.array([[0, 7, 2047]]), 0.0, "1.2", **more)
    data.PhotometricInterpretation = "MONOCHROME1"
    data.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    wanted = np.array([-1, -8, -2048]) if signed else np.array([4095, 4088, 2048])
    assert np.array_equal(read_image_file(tmp_path / "a.dcm").pixels[0, 0, 0], wanted - 1024)


@pytest.mark.parametrize("syntax", [RLELossless, JPEGLSLossless, JPEG2000Lossless])
def test_compressed_slices_are_decoded_to_the_same_values(series, syntax):
    folder, voxels = series
    for path in folder.glob("*.dcm"):
        data = dcmread(path)
        data.compress(syntax)
        data.save_as(path)
    assert np.array_equal(read_image_file(folder).pixels[0], voxels)


def test_a_deflated_slice_of_more_than_256_kib_is_read(ct_slice, tmp_path):
    values = RANDOM.integers(0, 4096, (512, 512))
    data = ct_slice(values, 0.0, "1.2")
    data.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
    data.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    assert (tmp_path / "a.dcm").stat().st_size > 1 << 18
    assert np.array_equal(read_image_file(tmp_path / "a.dcm").pixels[0, 0], values - 1024)


def test_a_missing_slice_and_a_double_one_are_found(series, ct_slice):
    folder, voxels = series
    uid = dcmread(folder / "a.dcm").SeriesInstanceUID
    ct_slice(voxels[0] + 1024, 16.0, uid).save_as(folder / "f.dcm", enforce_file_format=True)
    with pytest.raises(MueError, match=r"series has two slices between a.dcm \(16 mm\) and f.dcm"):
        read_image_file(folder)
    (folder / "f.dcm").unlink()
    (folder / "d.dcm").unlink()
    words = (
        r"has a slice missing between b.dcm \(12 mm\) and a.dcm \(16 mm\), where its step is 2 mm"
    )
    with pytest.raises(MueError, match=words):
        read_image_file(folder)


def test_two_series_in_a_folder_are_refused(series, ct_slice):
    folder, voxels = series
    ct_slice(voxels[0], 99.0, generate_uid()).save_as(folder / "f.dcm", enforce_file_format=True)
    with pytest.raises(MueError, match="holds 2 series; put each into a folder of its own"):
        read_image_file(folder)


@pytest.mark.data
def test_a_real_series_is_read(real_data, tmp_path):
    (source,) = real_data("lidc-dicom/LIDC-IDRI-0003-part.tar.gz")
    with tarfile.open(source) as tar:
        tar.extractall(tmp_path, filter="data")
    folder = next(tmp_path.rglob("*.dcm")).parent
    found = read_image_file(folder)
    assert found.pixels.shape == (1, 24, 512, 512)
    assert found.pixels.dtype == np.int16


# --- masks ----------------------------------------------------------------------------------------


def test_a_jpeg_mask_is_0_and_255_again(tmp_path):
    values = np.zeros((32, 32), np.uint8)
    values[8:20, 5:25] = 255
    Image.fromarray(values).save(tmp_path / "a.jpg", quality=90)
    assert np.array_equal(decode_file(tmp_path / "a.jpg", mask=True).pixels[0, 0], values)
    Image.fromarray(0 * values).save(tmp_path / "empty.jpg")
    assert not decode_file(tmp_path / "empty.jpg", mask=True).pixels.any()


@pytest.mark.parametrize("ending", ["jpg", "webp"])
def test_small_values_that_are_compressed_with_loss_are_refused(tmp_path, ending):
    """They would become 0, and the mask an empty one."""
    values = np.zeros((32, 32), np.uint8)
    values[8:20, 5:25], values[20:, 9:] = 1, 2
    Image.fromarray(values).save(tmp_path / f"a.{ending}", quality=95)
    with pytest.raises(MueError, match=r"has no value above [123]; of a mask .* as PNG or TIFF"):
        decode_file(tmp_path / f"a.{ending}", mask=True)


def test_a_lossless_webp_mask_keeps_its_values(tmp_path):
    values = np.arange(12, dtype=np.uint8).reshape(3, 4)
    Image.fromarray(values).save(tmp_path / "a.webp", lossless=True)
    assert np.array_equal(decode_file(tmp_path / "a.webp", mask=True).pixels[0, 0], values)


# --- what is refused ------------------------------------------------------------------------------


def _spoil(tmp_path: Path, kind: str) -> Path:
    path = tmp_path / kind
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "text.png":
        path.write_text("hello")
    elif kind == "empty":
        path.mkdir()
    elif kind == "pickle.npy":
        np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    elif kind == "huge.npy":
        np.save(path, np.zeros((2, 2), np.uint8))
        path.write_bytes(path.read_bytes().replace(b"(2, 2)", b"(9000000, 9000000)"))
    elif kind == "huge.nii":
        image = nib.Nifti1Image(np.zeros((2, 2, 2), np.uint8), AFFINE)
        image.header["dim"][1:4] = 30000
        path.write_bytes(bytes(image.header.binaryblock) + b"\0" * 100)
    elif kind == "nan.npy":
        np.save(path, np.array([[1.0, np.nan]]))
    elif kind == "five.npy":
        np.save(path, np.zeros((1, 1, 1, 2, 2)))
    elif kind == "complex.npy":
        np.save(path, np.zeros((2, 2), complex))
    elif kind == "long.npy":
        np.save(path, np.full((2, 2), 1 << 40))
    elif kind == "damaged.tif":
        tifffile.imwrite(path, np.zeros((20, 20), np.uint8))
        path.write_bytes(path.read_bytes()[:-50])
    elif kind == "circle.tif":
        tifffile.imwrite(path, np.zeros((2, 20, 20), np.uint8), photometric="minisblack")
        _link_last_page_to_first(path)
    return path


def _link_last_page_to_first(path: Path) -> None:
    data = bytearray(path.read_bytes())
    (first,) = struct.unpack_from("<I", data, 4)
    at, link = first, 0
    while at:
        link = _link(data, at)
        (at,) = struct.unpack_from("<I", data, link)
    struct.pack_into("<I", data, link, first)
    path.write_bytes(data)


def _link(data: bytearray, page: int) -> int:
    """Where a page names the next one, after its tags of twelve bytes."""
    (tags,) = struct.unpack_from("<H", data, page)
    return page + 2 + 12 * tags


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("nowhere", "does not exist"),
        ("fifo", "is not a file"),
        ("text.png", "is not PNG, JPEG, .* or npy; convert it"),
        ("empty", "holds no DICOM files"),
        ("pickle.npy", "holds Python objects"),
        ("huge.npy", "is 9000000 x 9000000 pixels"),
        ("huge.nii", "is 30000 x 30000 pixels"),
        ("nan.npy", "infinite or not a number"),
        ("five.npy", "is 1 x 1 x 1 x 2 x 2; an image is h w"),
        ("complex.npy", "type complex128"),
        ("long.npy", "at most 32 bits"),
        ("damaged.tif", "damaged"),
        ("circle.tif", "has pages in a circle"),
    ],
)
def test_a_bad_file_is_one_sentence_that_begins_with_its_path(tmp_path, kind, words):
    path = _spoil(tmp_path, kind)
    with pytest.raises(MueError, match=words) as caught:
        read_image_file(path)
    assert str(caught.value).startswith(f"{path} ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("form", ["AVIF", "SPIDER", "JPEG2000"])
def test_formats_whose_decoders_fall_are_not_opened(tmp_path, form):
    """Pillow knows them, and raises any error of a damaged file."""
    values = np.zeros((64, 64), np.float32 if form == "SPIDER" else np.uint8)
    Image.fromarray(values).save(tmp_path / "whole", form)
    whole = (tmp_path / "whole").read_bytes()
    for data in (whole, whole[: len(whole) // 2], whole[:40] + b"\xff" * 40 + whole[80:]):
        for name in (f"a.{form.lower()}", "a.png"):
            (tmp_path / name).write_bytes(data)
            with pytest.raises(MueError, match=r"is not PNG, JPEG, .* or npy"):
                read_image_file(tmp_path / name)


@pytest.mark.parametrize("preamble", [b"II*\0\x08\0\0\0", b"MM\0*", b"BM"])
def test_dicom_with_the_preamble_of_another_format_is_dicom(ct_slice, tmp_path, preamble):
    """Scanners of GE write the header of a TIFF before it."""
    path, voxels = tmp_path / "a.dcm", random((4, 5), "int16") % 4096
    ct_slice(voxels, 0.0, "1.2").save_as(path, enforce_file_format=True)
    content = path.read_bytes()
    path.write_bytes(preamble + content[len(preamble) :])
    assert np.array_equal(read_image_file(path).pixels[0, 0], voxels - 1024)


@pytest.mark.parametrize(("stored", "wanted"), [(12, 12), (16, None)])
def test_the_bits_that_dicom_stores_are_known(ct_slice, tmp_path, stored, wanted):
    data = ct_slice(random((4, 5), "uint16") % 4096, 0.0, "1.2", BitsStored=stored)
    data.save_as(tmp_path / "scaled.dcm", enforce_file_format=True)
    assert read_image_file(tmp_path / "scaled.dcm").bits is None  # Hounsfield units
    del data.RescaleSlope, data.RescaleIntercept
    data.save_as(tmp_path / "plain.dcm", enforce_file_format=True)
    assert read_image_file(tmp_path / "plain.dcm").bits == wanted


def test_dicom_of_5000_nested_sequences_is_refused(ct_slice, tmp_path):
    ct_slice(np.zeros((2, 2)), 0.0, "1.2").save_as(tmp_path / "a.dcm", enforce_file_format=True)
    data = (tmp_path / "a.dcm").read_bytes()
    start = b"\x08\0\x40\x11SQ\0\0" + b"\xff" * 4 + b"\xfe\xff\0\xe0" + b"\xff" * 4
    end = b"\xfe\xff\x0d\xe0\0\0\0\0" + b"\xfe\xff\xdd\xe0\0\0\0\0"
    at = data.index(b"\x10\0\x20\0LO")  # the patient, after the group of the sequence
    (tmp_path / "a.dcm").write_bytes(data[:at] + start * 5000 + end * 5000 + data[at:])
    with pytest.raises(MueError, match="is nested too deeply to be read"):
        read_image_file(tmp_path / "a.dcm")


def test_a_rescaling_beyond_floating_point_is_refused(ct_slice, tmp_path):
    data = ct_slice(np.ones((2, 2)), 0.0, "1.2", RescaleSlope="1e308")
    data.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    with pytest.raises(MueError, match="values that are infinite or not a number"):
        read_image_file(tmp_path / "a.dcm")


@pytest.mark.parametrize("ending", ["dcm", "npy"])
def test_a_damaged_length_takes_no_memory(ct_slice, tmp_path, ending):
    """Of a file of a kilobyte, 4 GiB are asked for."""
    path = tmp_path / f"a.{ending}"
    if ending == "npy":  # a header of the second version has a length of four bytes
        np.save(path, np.zeros((6, 5), np.uint8))
        whole, length = path.read_bytes(), b"\1\0v\0"
        path.write_bytes(whole.replace(length, b"\2\0v\0\xff\xff"))
    else:
        data = ct_slice(np.arange(30).reshape(6, 5), 0.0, "1.2")
        data.add_new(0x00091010, "UN", b"long")
        data.save_as(path, enforce_file_format=True)
        whole, length = path.read_bytes(), b"UN\0\0\4\0\0\0long"
        path.write_bytes(whole.replace(length, b"UN\0\0\xf0\xff\xff\xfflong"))
    assert whole.count(length) == 1
    tracemalloc.start()
    with pytest.raises(MueError):
        read_image_file(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50 << 20


def test_memory_that_is_not_there_is_not_called_damage(tmp_path, monkeypatch):
    def full(_):
        raise MemoryError

    np.save(tmp_path / "a.npy", np.zeros((2, 2)))
    monkeypatch.setattr("mue.data.images.npy.read_npy", full)
    with pytest.raises(MueError, match="takes more memory than there is; crop or divide it"):
        read_image_file(tmp_path / "a.npy")


@pytest.mark.parametrize("frames", [2**31 - 1, -5])
def test_frames_are_counted_before_they_are_listed(ct_slice, tmp_path, frames):
    data = ct_slice(np.zeros((1, 1)), 0.0, "1.2", NumberOfFrames=frames)
    data.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    with pytest.raises(MueError, match=rf"has {frames} frames; 1 to 65536 are read; divide it"):
        read_image_file(tmp_path / "a.dcm")


def test_damaged_rle_is_refused(ct_slice, tmp_path):
    """The plugin of pydicom panics here, which is no Exception."""
    data = ct_slice(np.arange(30).reshape(6, 5), 0.0, "1.2")
    data.compress(RLELossless)
    data.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    whole = (tmp_path / "a.dcm").read_bytes()
    wanted, refused = read_image_file(tmp_path / "a.dcm").pixels.shape, 0
    for at in range(len(whole) - 40, len(whole)):
        for value in (0x7F, 0x80, 0xFF):
            (tmp_path / "a.dcm").write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
            try:
                assert read_image_file(tmp_path / "a.dcm").pixels.shape == wanted
            except MueError:
                refused += 1
    assert refused > 10


@pytest.fixture
def lossless(ct_slice, tmp_path):
    """A slice compressed as JPEG Lossless, as scanners do it, and its values."""
    values = RANDOM.integers(0, 4096, (36, 40))
    more = {"BitsStored": 12, "HighBit": 11}
    jpeg_lossless(ct_slice(values, 0.0, "1.2", **more)).save_as(tmp_path / "a.dcm")
    return tmp_path / "a.dcm", values - 1024


def test_jpeg_lossless_is_decoded_to_the_same_values(lossless):
    path, wanted = lossless
    assert dcmread(path).file_meta.TransferSyntaxUID == JPEGLosslessSV1
    assert np.array_equal(read_image_file(path).pixels[0, 0], wanted)


@pytest.mark.parametrize(
    "changed", [{"Rows": 35}, {"Columns": 80}, {"BitsAllocated": 8}, {"SamplesPerPixel": 3}]
)
def test_frames_of_another_size_than_the_header_says_are_refused(lossless, changed):
    """GDCM ends its process at some of these."""
    path, _ = lossless
    data = dcmread(path)
    for name, value in changed.items():
        setattr(data, name, value)
    data.save_as(path)
    with pytest.raises(MueError, match=r"a\.dcm is damaged as DICOM: a frame has 36 x 40 x 1 of"):
        read_image_file(path)


_ABORT = "import os; sys.stdin.readline(); os.abort()"


def test_where_the_decoder_dies_an_image_is_refused_and_the_next_is_read(lossless, monkeypatch):
    path, wanted = lossless
    with monkeypatch.context() as patch:
        dying = worker._CODE.replace("importlib.import_module(sys.argv[2]).work()", _ABORT)
        assert dying != worker._CODE
        patch.setattr(worker, "_CODE", dying)
        isolated._end()
        with pytest.raises(MueError, match=r"a.dcm is damaged as DICOM: its decoder failed"):
            read_image_file(path)
    assert np.array_equal(read_image_file(path).pixels[0, 0], wanted)


def test_an_answer_that_is_interrupted_is_not_taken_for_the_next(lossless, monkeypatch):
    path, wanted = lossless

    def interrupted(*_) -> bytes:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(isolated, "_read", interrupted)
        with pytest.raises(KeyboardInterrupt):
            read_image_file(path)
    assert np.array_equal(read_image_file(path).pixels[0, 0], wanted)


def test_jpeg_ls_of_other_bits_than_the_header_says_is_refused(ct_slice, tmp_path):
    """By GDCM this ended the process."""
    data = ct_slice(RANDOM.integers(0, 4096, (36, 40)), 0.0, "1.2")
    data.compress(JPEGLSLossless)
    data.BitsAllocated = 8
    data.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    with pytest.raises(MueError, match=r"a\.dcm is damaged"):
        read_image_file(tmp_path / "a.dcm")


# --- files in memory, and limits ------------------------------------------------------------------


def test_a_file_in_memory_is_read_as_one_on_disk(series, tmp_path):
    folder, _ = series
    values = random((5, 7), "uint8")
    Image.fromarray(values).save(tmp_path / "a.png")
    tifffile.imwrite(tmp_path / "a.tif", values)
    np.save(tmp_path / "a.npy", values)
    nib.Nifti1Image(values[:, :, None], AFFINE).to_filename(tmp_path / "a.nii.gz")
    for path in [*sorted(tmp_path.glob("a.*")), folder / "a.dcm"]:
        wanted = read_image_file(path)
        found = read_image_file(FileInMemory(path.name, path.read_bytes()))
        assert np.array_equal(found.pixels, wanted.pixels)
        assert (found.geometry is None) == (wanted.geometry is None)


def test_limits_hold_where_they_are_set_and_nowhere_else(tmp_path):
    Image.new("L", (20, 10)).save(tmp_path / "a.png")
    with limited(Limits(pixels=199)), pytest.raises(MueError, match="10 x 20 pixels; 1 to 199"):
        read_image_file(tmp_path / "a.png")
    assert read_image_file(tmp_path / "a.png").pixels.shape == (1, 1, 10, 20)


def test_a_deflated_file_is_not_inflated_however_long_its_version_is(ct_slice, tmp_path):
    data = ct_slice(np.zeros((8, 8)), 0.0, "1.2")
    data.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
    data.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    raw = (tmp_path / "a.dcm").read_bytes()
    version = raw.index(b"\x02\0\x01\0OB")
    length = b"OB\0\0" + (8000).to_bytes(4, "little")
    raw = raw[: version + 4] + length + bytes(8000) + raw[version + 14 :]
    (tmp_path / "a.dcm").write_bytes(raw)
    assert read_image_file(tmp_path / "a.dcm").pixels.shape == (1, 1, 8, 8)
    with limited(Limits(bytes=1 << 20)), pytest.raises(MueError, match="deflated as a whole"):
        read_image_file(tmp_path / "a.dcm")


def test_a_series_of_enormous_files_is_refused_before_they_are_read(series):
    folder, _ = series
    with (folder / "a.dcm").open("r+b") as file:
        file.truncate(1 << 31)  # without blocks on the disk
    with pytest.raises(MueError, match=r"series has 21474\d+ bytes; at most 2147483648 are read"):
        read_image_file(folder)


def test_a_fifo_among_slices_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.dcm")
    assert modality(tmp_path / "a.dcm") == ""
    with pytest.raises(MueError, match="is not a file"):
        read_image_file(tmp_path / "a.dcm")


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


def test_a_scaled_volume_is_measured_as_the_floats_it_becomes(tmp_path):
    image = nib.Nifti1Image(np.zeros((8, 8, 8), np.uint8), np.eye(4))
    with limited(Limits(bytes=2048)):
        nib.save(image, tmp_path / "a.nii")
        assert read_image_file(tmp_path / "a.nii").pixels.dtype == np.uint8
        image.header.set_slope_inter(2.0, 1.0)
        nib.save(image, tmp_path / "a.nii")
        with pytest.raises(MueError, match="at most 2048 bytes are read"):
            read_image_file(tmp_path / "a.nii")
