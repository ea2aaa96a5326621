"""Generators of damaged and hostile inputs, one for each kind, by seed.

A generator makes an input in the folder `given`, lets `mue` read it, and lets it write to `out`.
It returns whether what was read is what was written: SAME, or CHANGED where the format has no
checksum, so that no reader could know. Where it has one, a change is an AssertionError.
"""

import contextlib
import copy
import dataclasses
import functools
import gzip
import hashlib
import io
import json
import pickle
import random
import struct
import tarfile
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import nibabel
import numpy as np
import safetensors.torch
import tifffile
import torch
from jpeg_lossless import jpeg_lossless
from PIL import Image
from pydicom import dcmwrite
from pydicom.dataset import Dataset, FileDataset, FileMetaDataset
from pydicom.sequence import Sequence
from pydicom.uid import (
    UID,
    CTImageStorage,
    DeflatedExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    JPEG2000Lossless,
    JPEGLosslessSV1,
    JPEGLSLossless,
    RLELossless,
)

from mue.cli.main import main
from mue.commands.import_folder import import_folder
from mue.commands.train import train
from mue.config.json import from_dict
from mue.config.presets import PRESETS, preset
from mue.config.schema import Config
from mue.data.images.png import SIGNATURE
from mue.data.images.reader import decode_file, read_image_file
from mue.data.lidc.contours import read_message
from mue.data.lidc.importer import read_items
from mue.data.prepared.dataset import Slices
from mue.data.prepared.format import IMAGES, INDEX, ITEMS, MASKS, META, VOLUMES
from mue.data.prepared.item import Item, Rejected
from mue.data.prepared.open import open_prepared
from mue.errors import MueError
from mue.inference.load import load
from mue.inference.predictor import Predictor
from mue.models.build import build_network
from mue.runs.log import read_log
from mue.runs.weights import save_tensors
from mue.training.checkpoint import load_state_
from mue.training.state import Training

SAME, CHANGED = "read", "changed"
Outcome = Literal["read", "changed"]
Random = random.Random


def damaged(data: bytes, rng: Random) -> bytes:
    """One to three changes of some bytes."""
    content = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        if not content:
            break
        at = rng.randrange(len(content))
        end = min(len(content), at + rng.choice((1, 2, 4, 16, 200)))
        match rng.randrange(7):
            case 0 | 1:
                content[at] ^= 1 << rng.randrange(8)
            case 2:
                del content[at:]
            case 3:
                content[at:end] = bytes(end - at)
            case 4:
                content[at:end] = b"\xff" * (end - at)
            case 5:
                content[at:at] = content[at:end] * rng.choice((1, 1, 1000))
            case _:
                content[at:end] = rng.randbytes(end - at)
    return bytes(content)


def pixels(rng: Random, *shape: int, high: int = 256) -> np.ndarray:
    """Random values of 8 bits."""
    return np.random.default_rng(rng.randrange(2**32)).integers(0, high, shape, np.uint8)


def _compare(found: np.ndarray, written: np.ndarray, what: str, *, checked: bool) -> Outcome:
    if found.shape == written.shape and (found == written).all():
        return SAME
    if checked:
        raise AssertionError(f"{what} with a checksum was read with other values")
    return CHANGED


# --- images ---------------------------------------------------------------------------------------


def picture(values: np.ndarray, form: str, **options: Any) -> bytes:
    """A picture as Pillow writes it."""
    Image.fromarray(values).save(out := io.BytesIO(), form, **options)
    return out.getvalue()


def signed_png(data: bytes, rng: Random) -> bytes:
    """A PNG with a damaged chunk whose checksum is right: what is behind it must be robust, too."""
    chunks, at = [], len(SIGNATURE)
    while at < len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        chunks.append((kind, data[at + 8 : at + 8 + size]))
        at += 12 + size
    i = rng.randrange(len(chunks))
    kind, content = chunks[i]
    if kind == b"IDAT" and rng.random() < 0.5:
        content = zlib.compress(damaged(zlib.decompress(content), rng))
    else:
        content = damaged(content, rng)
    chunks[i] = (kind, content)
    parts = (
        struct.pack(">I", len(c)) + k + c + struct.pack(">I", zlib.crc32(k + c)) for k, c in chunks
    )
    return SIGNATURE + b"".join(parts)


def _npy(values: np.ndarray) -> bytes:
    np.save(out := io.BytesIO(), values)
    return out.getvalue()


def _tiff(values: np.ndarray, rng: Random) -> bytes:
    compression = rng.choice((None, "zlib"))
    tifffile.imwrite(out := io.BytesIO(), values, compression=compression)
    return out.getvalue()


def _file(rng: Random, form: str, values: np.ndarray) -> bytes:
    if form == "npy":
        return _npy(values)
    if form == "tiff":
        return _tiff(values, rng)
    return picture(values, form)


def image(rng: Random, given: Path, _: Path) -> Outcome:
    """Pictures and arrays, as images and as masks, under right and wrong names."""
    form = rng.choice(("png", "png", "jpeg", "gif", "bmp", "webp", "tiff", "npy"))
    values = pixels(rng, *rng.choice(((9, 7), (9, 7), (9, 7, 3))))
    mask = rng.random() < 0.3
    if mask:
        values = np.where(values[..., :1] if values.ndim == 3 else values > 127, 255, 0)
        values = np.broadcast_to(values, (9, 7, 3) if values.ndim == 3 else (9, 7))
        values = np.ascontiguousarray(values, dtype=np.uint8)
    data = _file(rng, form, values)
    path = given / f"image.{rng.choice((form, form, 'png', 'dcm', 'nii', 'nii.gz'))}"
    path.write_bytes(data)
    whole = None
    if path.name == f"image.{form}" or form not in ("dcm", "nii", "nii.gz"):
        with contextlib.suppress(MueError):  # such as a GIF that is in colour, as a mask
            whole = decode_file(path, mask=mask).pixels
    signed = form == "png" and rng.random() < 0.5
    path.write_bytes(signed_png(data, rng) if signed else damaged(data, rng))
    found = decode_file(path, mask=mask).pixels if mask else read_image_file(path).pixels
    if whole is None:
        return CHANGED
    return _compare(found, whole, form, checked=form == "png" and not signed)


def nifti(rng: Random, given: Path, _: Path) -> Outcome:
    """Volumes with and without gzip, damaged outside and inside of it."""
    values = pixels(rng, 4, 5, 3).astype(rng.choice(("u1", "i2", "f4", "<f8", ">i4")))
    kind = rng.choice((nibabel.Nifti1Image, nibabel.Nifti2Image))  # pyright: ignore[reportPrivateImportUsage]
    plain = kind(values, np.diag([1.0, 2.0, 3.0, 1.0]), dtype=values.dtype).to_bytes()
    packed, inside = rng.random() < 0.7, rng.random() < 0.4
    body = damaged(plain, rng) if inside or not packed else plain
    if rng.random() < 0.2:  # a header with one field at its limit
        at = rng.choice((40, 42, 44, 46, 70, 72, 108, 112, 116, 252, 280, 296))
        limit = rng.choice((b"\xff\x7f", b"\xff\xff", b"\0\x80", b"\0\0\x80\x7f"))
        body, inside = body[:at] + limit + body[at + len(limit) :], True
    data = gzip.compress(body, 1) if packed else body
    if packed and not inside:
        data = damaged(data, rng)
    path = given / ("volume.nii.gz" if packed else "volume.nii")
    path.write_bytes(data)
    found = read_image_file(path, axis=rng.choice((2, 2, 0, 1)))
    axis = 2 if found.geometry is None else found.geometry.axis
    whole = np.moveaxis(values.transpose(2, 1, 0)[None], 3 - axis, 1)  # k j i, the cut axis first
    return _compare(found.pixels, whole, "gzip", checked=packed and not inside)


def _slice(values: np.ndarray, z: float = 0.0, uid: str = "1.2.3") -> FileDataset:
    meta = FileMetaDataset()
    meta.TransferSyntaxUID, meta.MediaStorageSOPClassUID = ExplicitVRLittleEndian, CTImageStorage
    meta.MediaStorageSOPInstanceUID = UID(uid)
    data = FileDataset("", {}, file_meta=meta, preamble=bytes(128))
    data.SOPClassUID, data.SOPInstanceUID, data.SeriesInstanceUID = CTImageStorage, uid, "1.4"
    data.PatientID, data.Modality = "LIDC-IDRI-0001", "CT"
    data.Rows, data.Columns = values.shape
    data.BitsAllocated, data.BitsStored, data.HighBit = 16, 16, 15
    data.SamplesPerPixel, data.PixelRepresentation = 1, 0
    data.PhotometricInterpretation = "MONOCHROME2"
    data.RescaleSlope, data.RescaleIntercept = "1", "-1024"
    data.ImagePositionPatient, data.ImageOrientationPatient = [0, 0, z], [1, 0, 0, 0, 1, 0]
    data.PixelSpacing, data.SliceThickness = [0.5, 0.5], 2
    data.PixelData = values.astype("<u2").tobytes()
    return data


_TAGS = ("Rows", "Columns", "BitsAllocated", "BitsStored", "HighBit", "SamplesPerPixel")
_TEXTS = ("NumberOfFrames", "RescaleSlope", "RescaleIntercept", "SliceThickness")


def dicom(rng: Random, given: Path, out: Path) -> Outcome:
    """Slices of several transfer syntaxes, with odd values, nested sequences and damaged bytes."""
    values = pixels(rng, 40, 36)  # JPEG 2000 cannot be smaller
    data = _slice(values)
    syntaxes = (ImplicitVRLittleEndian, DeflatedExplicitVRLittleEndian, ExplicitVRLittleEndian)
    compressed = (RLELossless, JPEG2000Lossless, JPEGLSLossless)
    syntax = rng.choice((*syntaxes, *compressed, JPEGLosslessSV1, ExplicitVRBigEndian))
    if syntax in compressed:
        data.compress(syntax)
    elif syntax == JPEGLosslessSV1:
        data = jpeg_lossless(data)
    elif syntax == ExplicitVRBigEndian:
        data.file_meta.TransferSyntaxUID = syntax
        data.PixelData = values.astype(">u2").tobytes()
    else:
        data.file_meta.TransferSyntaxUID = syntax
    odd = rng.random() < 0.4
    if odd and rng.random() < 0.5:
        setattr(data, rng.choice(_TAGS), rng.choice((0, 1, 2, 7, 8, 16, 32, 64, 65535)))
    elif odd:
        with contextlib.suppress(ValueError):  # pydicom refuses some itself
            setattr(data, rng.choice(_TEXTS), rng.choice(("0", "1e308", "-1", "2147483647", "nan")))
    if rng.random() < 0.1:
        nested = Dataset()
        for _depth in range(rng.choice((3, 60))):
            outer = Dataset()
            outer.ReferencedImageSequence = Sequence([nested])
            nested = outer
        data.ReferencedStudySequence = Sequence([nested])
    try:
        dcmwrite(  # save_as converts to no other order of bytes
            written := io.BytesIO(),
            data,
            enforce_file_format=True,
            little_endian=syntax != ExplicitVRBigEndian,
            implicit_vr=syntax == ImplicitVRLittleEndian,
        )
    except (ValueError, TypeError, AttributeError, OverflowError, struct.error):
        if not odd:
            raise
        return dicom(rng, given, out)  # pydicom writes no such value: another one
    content = written.getvalue()
    (given / "slice.dcm").write_bytes(content if odd else damaged(content, rng))
    found = read_image_file(given / "slice.dcm").pixels
    return _compare(found, values[None, None].astype(np.int16) - 1024, "DICOM", checked=False)


# --- sources of LIDC-IDRI -------------------------------------------------------------------------


def _all_read(items: list[Item | Rejected]) -> None:
    if bad := [item for item in items if isinstance(item, Rejected)]:
        raise MueError(f"{bad[0].what} {bad[0].why}")


def _tar(files: dict[str, bytes], *, pax: bool = False) -> bytes:
    form = tarfile.PAX_FORMAT if pax else tarfile.USTAR_FORMAT
    with tarfile.open(fileobj=(out := io.BytesIO()), mode="w", format=form) as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            info.pax_headers = {"comment": "x" * 600} if pax else {}
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def archive(rng: Random, given: Path, _: Path) -> Outcome:
    """Archives of PNG: the checksums of PNG, or of gzip, must notice every change of a pixel."""
    files: dict[str, bytes] = {}
    known: dict[tuple[str, str, str], tuple[bytes, bytes]] = {}
    for k in range(2):
        values, masks = pixels(rng, 8, 8), pixels(rng, 4, 8, 8, high=2)
        top = "LIDC-IDRI-0001/nodule-0"
        files[f"{top}/images/slice-{k}.png"] = picture(values, "png")
        for r, mask in enumerate(masks):
            files[f"{top}/mask-{r}/slice-{k}.png"] = picture(mask * 255, "png")
        known["LIDC-IDRI-0001", "nodule-0", f"slice-{k}"] = values.tobytes(), masks.tobytes()
    data = _tar(files, pax=rng.random() < 0.3)
    inside, packed = rng.random() < 0.7, rng.random() < 0.5
    data = damaged(data, rng) if inside else data
    data = gzip.compress(data, 1) if packed else data
    path = given / "source.tar"
    path.write_bytes(data if inside else damaged(data, rng))
    items = list(read_items([path], "slices"))
    read = {i.key: (i.image.tobytes(), i.masks.tobytes()) for i in items if isinstance(i, Item)}
    for key, found in read.items():
        if found != known.get(key):
            raise AssertionError(f"an archive was read with another {'/'.join(key)}")
    _all_read(items)
    if lost := known.keys() - read.keys():
        raise AssertionError(f"an archive lost {sorted(lost)} unsaid")
    return SAME


_OPCODES = [getattr(pickle, n) for n in dir(pickle) if isinstance(getattr(pickle, n), bytes)]


def pickled(rng: Random, given: Path, _: Path) -> Outcome:
    """Damaged pickles of slices, and streams of random opcodes."""
    image, masks = pixels(rng, 4, 6), pixels(rng, 4, 4, 6, high=2)
    entry = {"image": image / 255, "masks": [m > 0 for m in masks], "series_uid": "1.2"}
    path = given / "data.pickle"
    if rng.random() < 0.3:
        codes = (rng.choice(_OPCODES) + rng.randbytes(rng.randrange(3)) for _ in range(40))
        path.write_bytes(b"\x80\x04}(" + b"".join(codes) + b"u.")
    else:
        path.write_bytes(damaged(pickle.dumps({"a": entry, "b": entry}, rng.randrange(6)), rng))
    items = list(read_items([path], "pickle"))
    _all_read(items)
    same = all(
        isinstance(i, Item) and (i.image == image).all() and np.array_equal(i.masks, masks)
        for i in items
    )
    return SAME if same else CHANGED


def xml(rng: Random, given: Path, _: Path) -> Outcome:
    """A series of two slices with the XML of its raters, of which one file is damaged."""
    edges = "".join(
        f"<edgeMap><xCoord>{x}</xCoord><yCoord>{y}</yCoord></edgeMap>"
        for x, y in ((1, 1), (5, 1), (5, 5), (1, 5))
    )
    roi = (
        "<roi><imageZposition>0</imageZposition><imageSOP_UID>1.2.0</imageSOP_UID>"
        f"<inclusion>TRUE</inclusion>{edges}</roi>"
    )
    text = (
        "<LidcReadMessage><ResponseHeader><SeriesInstanceUid>1.4</SeriesInstanceUid>"
        f"</ResponseHeader><readingSession><unblindedReadNodule>{roi}</unblindedReadNodule>"
        "</readingSession></LidcReadMessage>"
    ).encode(rng.choice(("utf-8", "utf-16")))
    if rng.random() < 0.7:
        if rng.random() < 0.1:
            text = b"<a>" * rng.choice((10, 100_000)) + text
        found = read_message(damaged(text, rng))
        return SAME if repr(found) == repr(read_message(text)) else CHANGED
    files = {"reading.xml": text}
    for k in range(2):
        data = _slice(pixels(rng, 16, 16), 2.0 * k, f"1.2.{k}")
        data.save_as(out := io.BytesIO(), enforce_file_format=True)
        files[f"{k}.dcm"] = out.getvalue()
    name = rng.choice(sorted(files))
    files[name] = damaged(files[name], rng)
    for each, content in files.items():
        (given / each).write_bytes(content)
    items = list(read_items([given], "dicom", size=8))
    _all_read(items)
    return CHANGED


# --- folders --------------------------------------------------------------------------------------

_STRANGE: tuple[Any, ...] = (
    *(None, True, -1, 0, 10**30, 1e308, float("nan"), float("inf"), "", "x", "x" * 10**5),
    *([], [[]], {}, [1e9], {"a": {}}, "\ud800", "../../etc"),
)


def _odd_json(content: Any, rng: Random) -> Any:
    """JSON with one to three values replaced or left out, anywhere in it."""
    for _ in range(rng.randint(1, 3)):
        inner = content
        while True:
            keys = [*inner] if isinstance(inner, dict) else list(range(len(inner)))
            if not keys:
                break
            key = rng.choice(keys)
            if isinstance(inner[key], dict | list) and inner[key] and rng.random() < 0.8:
                inner = inner[key]
                continue
            if rng.random() < 0.15:
                del inner[key]
            else:
                inner[key] = copy.deepcopy(rng.choice(_STRANGE))
            break
    return content


_DATASET = {"channel_names": {"0": "grey"}, "labels": {"background": 0, "lesion": 1}}


def own_data(rng: Random, given: Path, out: Path) -> Outcome:
    """A folder of images and masks, of which one file is damaged, to `mue data import folder`."""
    form = rng.choice(("png", "png", "tiff", "bmp", "npy"))
    source = given / "own"
    images, masks = pixels(rng, 2, 6, 7), pixels(rng, 2, 2, 6, 7, high=2)
    for part in ("imagesTr", "labelsTr"):
        (source / part).mkdir(parents=True)
    for case in range(2):
        name = source / "imagesTr" / f"c{case}_0000.{form}"
        name.write_bytes(_file(rng, form, images[case]))
        for r in range(2):
            name = source / "labelsTr" / f"c{case}_r{r}.{form}"
            name.write_bytes(_file(rng, form, masks[case, r]))
    description = _DATASET | {"rater_weights": {"r0": 1, "r1": 2}} | {"file_ending": f".{form}"}
    (source / "dataset.json").write_text(json.dumps(description))
    table = "case,split\nc0,train\nc1,test\n"
    (given / "splits.csv").write_text(table)
    files = sorted(p for p in source.rglob("*") if p.is_file())
    victim = rng.choice([*files, *files, given / "splits.csv", source / "dataset.json"])
    checked = False
    match rng.randrange(8):
        case 0:
            victim.unlink()
        case 1:
            victim.rename(victim.with_name(rng.choice(("c0_r9", "[b]$.png", "c0_r0.nii"))))
        case _ if victim.suffix == ".json":
            text = json.dumps(_odd_json(json.loads(victim.read_text()), rng))
            victim.write_bytes(text.encode("utf-8", "surrogatepass"))
        case _:
            checked = victim.suffix == ".png"
            victim.write_bytes(damaged(victim.read_bytes(), rng))
    import_folder(source, out=out / "prepared", splits=given / "splits.csv")
    found = open_prepared(out / "prepared", verify=True)
    if len(found.rows) != 2:
        raise AssertionError(f"an import left out a case unsaid, {len(found.rows)} of 2 are there")
    read = Slices(found, "train"), Slices(found, "test")
    if any(len(part) != 1 for part in read):
        return CHANGED
    outcome: Outcome = SAME
    for kind, written in (("masks", masks), ("images", images)):
        values = np.fromfile(out / "prepared" / f"{kind}.bin", np.uint8)
        flat = np.packbits(written.reshape(4, -1), axis=1) if kind == "masks" else written
        if values.shape != flat.ravel().shape or (values != flat.ravel()).any():
            if checked:
                raise AssertionError(f"a folder was imported with other {kind}")
            outcome = CHANGED
    return outcome


@functools.cache
def _prepared() -> dict[str, bytes]:
    """The files of a small folder of prepared data; its pictures are volumes of one slice."""
    rng = Random(0)
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "own"
        for part in ("imagesTr", "labelsTr"):
            (source / part).mkdir(parents=True)
        for case in "ab":
            (source / "imagesTr" / f"{case}_0000.png").write_bytes(
                picture(pixels(rng, 6, 7), "png")
            )
            mask = pixels(rng, 6, 7, high=2)
            (source / "labelsTr" / f"{case}_r0.png").write_bytes(picture(mask, "png"))
        (Path(name) / "splits.csv").write_text("case,split\na,train\nb,test\n")
        import_folder(source, out=Path(name) / "out", splits=Path(name) / "splits.csv")
        files = {p.name: p.read_bytes() for p in (Path(name) / "out").iterdir()}
    listed = [[case, case, np.eye(4).tolist(), [7, 6, 1], 2] for case in "ab"]
    files[VOLUMES] = json.dumps(listed).encode()
    meta = json.loads(files[META])
    meta["sha256"][VOLUMES] = hashlib.sha256(files[VOLUMES]).hexdigest()
    return files | {META: json.dumps(meta).encode()}


def prepared(rng: Random, given: Path, _: Path) -> Outcome:
    """Prepared data of which a file is damaged, its digest wrong or recomputed."""
    files = dict(_prepared())
    name = rng.choice((META, META, INDEX, ITEMS, IMAGES, MASKS, VOLUMES))
    if name == META and rng.random() < 0.8:
        text = json.dumps(_odd_json(json.loads(files[META]), rng))
        files[META] = text.encode("utf-8", "surrogatepass")
        recomputed = True
    else:
        if name == VOLUMES and rng.random() < 0.8:
            text = json.dumps(_odd_json(json.loads(files[VOLUMES]), rng))
            files[VOLUMES] = text.encode("utf-8", "surrogatepass")
        else:
            files[name] = damaged(files[name], rng)
        recomputed = name != META and rng.random() < 0.7
        if recomputed:
            meta = json.loads(files[META])
            meta["sha256"][name] = hashlib.sha256(files[name]).hexdigest()
            files[META] = json.dumps(meta).encode()
    for each, content in files.items():
        (given / each).write_bytes(content)
    found = open_prepared(given, verify=True)
    found.volumes()
    for split in ("train", "test"):
        data = Slices(found, split)
        for i in range(min(len(data), 3)):
            data.case(torch.tensor([i]))
    changed = [n for n in (IMAGES, MASKS, INDEX, ITEMS, VOLUMES) if files[n] != _prepared()[n]]
    if changed and not recomputed:
        raise AssertionError(f"{changed[0]} with a wrong digest was read")
    return CHANGED if changed else SAME


@functools.cache
def _run_files() -> tuple[Config, dict[str, bytes]]:
    """The configuration and files of a tiny run that is not finished."""
    config = preset("toy")
    model = dataclasses.replace(config.model, levels=(4, 8), tail=(8,), widths=(4,))
    steps = dataclasses.replace(config.train, steps=4, batch=2, save_every=2, log_every=1)
    config = dataclasses.replace(config, model=model, train=steps)
    with tempfile.TemporaryDirectory() as name:
        train(config, Path(name) / "run")
        files = (p for p in (Path(name) / "run").iterdir() if p.is_file())
        return config, {p.name: p.read_bytes() for p in files}


def run_folder(rng: Random, given: Path, _: Path) -> Outcome:
    """A run folder of which a file is damaged, its digest wrong or recomputed."""
    config, whole = _run_files()
    files = dict(whole)
    name, recomputed = rng.choice(sorted(files)), False
    if name.endswith(".safetensors") and rng.random() < 0.5:
        tensors = safetensors.torch.load(files[name])
        key = rng.choice(sorted(tensors))
        tensors[key] = rng.choice(
            (
                tensors[key].double(),
                tensors[key].float() * float("nan"),
                tensors[key].reshape(-1)[:0],
                tensors[key] * 0 - 1,
                tensors[key].to(torch.bool),
            )
        )
        with tempfile.TemporaryDirectory(dir=given) as there:
            save_tensors(Path(there) / name, tensors)
            files[name] = (Path(there) / name).read_bytes()
        recomputed = True
    elif name == "config.json" and rng.random() < 0.7:
        text = json.dumps(_odd_json(json.loads(files[name]), rng))
        files[name] = text.encode("utf-8", "surrogatepass")
    elif name == "log.jsonl" and rng.random() < 0.7:
        lines = files[name].decode().splitlines()
        i = rng.randrange(len(lines))
        lines[i] = json.dumps(_odd_json(json.loads(lines[i]), rng))
        files[name] = ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")
    else:
        files[name] = damaged(files[name], rng)
    for each, content in files.items():
        (given / each).write_bytes(content)
    read_log(given)
    predictor = load(given, device="cpu")
    load_state_(given, Training(config, torch.device("cpu")))
    proposals = predictor.propose(np.zeros((1, 1, 28, 28), np.float32), 3)
    if not torch.isfinite(proposals.prob).all():
        raise AssertionError("a damaged run gives probabilities that are not finite")
    if files[name] != whole[name] and name.endswith(".safetensors") and not recomputed:
        ours, theirs = safetensors.torch.load(files[name]), safetensors.torch.load(whole[name])
        if any(not torch.equal(ours[key], theirs[key]) for key in theirs):
            raise AssertionError(f"{name} with a wrong digest was read")
    return SAME if files[name] == whole[name] else CHANGED


def configuration(rng: Random, _: Path, __: Path) -> Outcome:
    """Presets with values of any kind, built without memory for their weights."""
    content = json.loads(json.dumps(dataclasses.asdict(preset(rng.choice([*PRESETS])))))
    config = from_dict(Config, _odd_json(content, rng), "config")
    if max(*config.model.levels, config.codebook.size, config.codebook.width) < 10**5:
        with torch.device("meta"):
            build_network(config)
    return CHANGED


# --- callers --------------------------------------------------------------------------------------


@functools.cache
def _predictor() -> Predictor:
    return load("bundled:guess-exact", device="cpu")


def array(rng: Random, _: Path, __: Path) -> Outcome:
    """Arrays, tensors, lists and pictures of any shape and type, to the Python API."""
    shape = tuple(rng.choice((0, 1, 1, 2, 3, 28, 29)) for _ in range(rng.randrange(6)))
    kind = rng.choice(("u1", "u2", ">u2", "u4", "i4", "f2", "f4", "f8", "?", "c8", "O", "U1", "g"))
    values = np.zeros(shape, kind)
    if values.size and values.dtype.kind == "f":
        values.flat[0] = rng.choice((0.5, np.nan, np.inf, -1e30))
    asked: Any = rng.choice((values, values.tolist(), list(values) if shape else 1.0, None, "a"))
    if rng.random() < 0.2:
        mode = rng.choice(("1", "L", "P", "RGB", "RGBA", "I", "F", "CMYK", "I;16"))
        asked = Image.new(mode, (rng.choice((1, 28, 40)), 28))
    k: Any = rng.choice((None, 1, 3, 0, -1, 10**6, 2.5, "3", True, float("nan")))
    call: Callable[..., Any] = rng.choice((_predictor().propose, _predictor().modes))
    found = call(asked, k) if rng.random() < 0.7 else call(asked)
    prob = getattr(found, "prob", None)
    if prob is not None and not torch.isfinite(prob).all():
        raise AssertionError("probabilities are not finite")
    return SAME


_COMMANDS = (
    "train toy --out OUT",
    "train auto --data DATA --out OUT",
    "train lidc --data DATA --out OUT",
    "evaluate RUN",
    "evaluate RUN --data DATA",
    "predict RUN IMAGE --out OUT",
    "figure RUN --out OUT",
    "compare RUN RUN",
    "calibrate RUN OUT",
    "export RUN OUT",
    "data new OUT",
    "data import lidc DATA --out OUT",
    "data import folder DATA --out OUT",
    "data inspect DATA --out OUT",
    "data export DATA --out OUT",
    "serve RUN --port 0",
    "serve bundled:guess-exact --port 0",
)
_WORKING = (
    "evaluate RUN --inputs 2",
    "figure RUN --inputs 4",
    "compare RUN bundled:guess-exact --inputs 2",
    "calibrate RUN OUT --inputs 8",
    "export RUN OUT",
    "predict RUN IMAGE --out OUT",
    "data inspect DATA --out OUT.png",
    "data export DATA --out OUT",
)
"""These have work to do, on a tiny model and tiny data, if nothing is replaced."""
_WORDS = (
    *("--k", "--help", "--json", "--resume", "--version", "--train.steps", "--train.batch"),
    *("--model.levels", "--split", "--inputs", "--seed", "--window", "--size", "--data", "--out"),
    *("--host", "--port", "--token", "--rate", "--batch"),
    *("-1", "0", "1e999", "nan", "99999999999999999999", "a[/b]", "$x$", "\udcff", "", "--", "é"),
)


def _working_inputs(folder: Path) -> dict[str, str]:
    """A tiny run, an image and prepared data, in a folder."""
    for part, files in (("run", _run_files()[1]), ("data", _prepared())):
        (folder / part).mkdir()
        for name, content in files.items():
            (folder / part / name).write_bytes(content)
    (folder / "image.png").write_bytes(picture(np.zeros((8, 8), np.uint8), "png"))
    names = {"RUN": "run", "DATA": "data", "IMAGE": "image.png"}
    return {name: str(folder / part) for name, part in names.items()}


def command_line(rng: Random, given: Path, out: Path) -> Outcome:
    """Commands with arguments replaced, added and left out; few of them have work to do."""
    (given / "file[v2]").write_bytes(rng.randbytes(20))
    (given / "empty").mkdir()
    names = ("file[v2]", "empty", "none", "file[v2]/x", "a$b")
    paths = [*(str(given / name) for name in names), "/dev/null", "/proc/x", "/"]
    target = str(out / rng.choice(("new", "new/deep", "new[v2]")))
    if rng.random() < 0.1:
        places = _working_inputs(given)
        words = rng.choice(_WORKING).split()
    else:
        places = {name: rng.choice(paths) for name in ("RUN", "DATA", "IMAGE")}
        words = rng.choice(_COMMANDS).split()
    places |= {"OUT": target, "OUT.png": f"{target}.png"}
    words = [places.get(w, w) for w in words]
    for _ in range(rng.randrange(4)):
        at = rng.randrange(1, len(words) + 1)
        words[at : at + rng.randrange(2)] = [rng.choice((*_WORDS, *paths))] * rng.randrange(2)
    unsafe = words[:2] in (["train", "toy"], ["data", "new"]) or words[0] == "demo"
    if unsafe:  # it would work: a value that cannot be
        words += ["--train.steps" if words[0] == "train" else "--cases", "-1"]
    with (
        contextlib.chdir(out),
        mock.patch("uvicorn.Server.run"),  # models are loaded and the port is taken, then it ends
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()) as said,
    ):
        try:
            main(words)
        except SystemExit as stop:
            sentence = said.getvalue()
            if stop.code not in (0, 2, None) or "Traceback" in sentence:
                raise AssertionError(f"{words}: exit {stop.code}") from None
            if stop.code == 2:
                if len(sentence) > 3000 or sentence.count("\n") > 6:
                    raise AssertionError(f"{words}: {len(sentence)} characters") from None
                raise MueError("refused") from None
    return SAME


def prepare() -> None:
    """Make what generators share."""
    _prepared()
    _run_files()
    _predictor()


KINDS: dict[str, Callable[[Random, Path, Path], Outcome]] = {
    "image": image,
    "NIfTI": nifti,
    "DICOM": dicom,
    "archive": archive,
    "pickle": pickled,
    "XML": xml,
    "own data": own_data,
    "prepared data": prepared,
    "run folder": run_folder,
    "configuration": configuration,
    "array": array,
    "command line": command_line,
}
