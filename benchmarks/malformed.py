"""Damaged and malicious uploads: each is refused with a sentence, in time, and the service lives.

    python benchmarks/malformed.py --count 10000
    python benchmarks/malformed.py --count 500 --url http://127.0.0.1:8000 --pid PID

Prints how many uploads of each kind were answered with which status, the slowest answer, and how
much memory was taken at most. A damaged file may still be an image (a bit of a pixel without a
checksum is another pixel): such a one is answered with 200. It exits with 1 if there was any other
status than 200 and 4xx, if an upload took more than a second of processor time (over a socket: a
refusal more than a second) or too much memory, or if the service does not answer an image in the
end. The memory is that of this process, or over a socket of the server that `--pid` names.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import struct
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import nibabel as nib
import numpy as np
import pydicom
import tifffile
import tyro
from PIL import Image
from pydicom.dataset import FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

import mue
from mue.service.app import build_app
from mue.service.middleware import guarded
from mue.service.service import Service
from mue.service.settings import Settings

MODEL = "guess-exact"
MAX_SECONDS = 1.0  # of an upload
MAX_GROWTH = 1024.0  # MiB: a volume, its values while they are scaled, and the files made here


def good_files(random: np.random.Generator) -> dict[str, bytes]:
    """A good file of every kind."""
    grey = random.integers(0, 255, (32, 32), dtype=np.uint8)
    found: dict[str, bytes] = {}
    kinds = {"a.png": "PNG", "a.jpg": "JPEG", "a.gif": "GIF", "a.webp": "WEBP", "a.bmp": "BMP"}
    for name, kind in kinds.items():
        buffer = io.BytesIO()
        Image.fromarray(grey).save(buffer, kind)
        found[name] = buffer.getvalue()
    buffer = io.BytesIO()
    tifffile.imwrite(buffer, grey, compression="zlib")
    found["a.tif"] = buffer.getvalue()
    buffer = io.BytesIO()
    np.save(buffer, grey)
    found["a.npy"] = buffer.getvalue()
    found["a.nii"] = nib.Nifti1Image(grey[:, :, None], np.eye(4)).to_bytes()
    found["a.nii.gz"] = gzip.compress(found["a.nii"])
    found["a.dcm"] = _dicom(grey)
    return found


def _dicom(grey: np.ndarray) -> bytes:
    """A slice of CT."""
    data = pydicom.Dataset()
    data.file_meta = FileMetaDataset()
    data.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    data.file_meta.MediaStorageSOPClassUID = data.SOPClassUID = CTImageStorage
    data.file_meta.MediaStorageSOPInstanceUID = data.SOPInstanceUID = generate_uid(
        entropy_srcs=["malformed"]
    )
    data.Rows, data.Columns, data.SamplesPerPixel = *grey.shape, 1
    data.PhotometricInterpretation, data.PixelRepresentation = "MONOCHROME2", 0
    data.BitsAllocated = data.BitsStored = 8
    data.HighBit, data.PixelData = 7, grey.tobytes()
    data["PixelData"].VR = "OB"
    buffer = io.BytesIO()
    data.save_as(buffer, enforce_file_format=True)
    return buffer.getvalue()


def _png(width: int, height: int, content: bytes) -> bytes:
    """A PNG that claims a size, with all checksums right."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    found = b"\x89PNG\r\n\x1a\n"
    for kind, part in ((b"IHDR", header), (b"IDAT", content), (b"IEND", b"")):
        found += struct.pack(">I", len(part)) + kind + part
        found += struct.pack(">I", zlib.crc32(kind + part))
    return found


def _huge(random: np.random.Generator, good: dict[str, bytes]) -> tuple[str, bytes]:
    """A small file that claims a size beyond the limits."""
    side = int(random.integers(1 << 11, 1 << 15))
    kind = int(random.integers(4))
    if kind == 0:
        return "a.png", _png(side, side, zlib.compress(b"\0" * 1000))
    content = bytearray(good[("a.nii", "a.bmp", "a.gif")[kind - 1]])
    if kind == 1:
        content[42:46] = struct.pack("<hh", side, side)
        return ("a.nii", bytes(content)) if random.integers(2) else ("a.nii.gz", _gz(content))
    if kind == 2:
        content[18:26] = struct.pack("<ii", side, side)
        return "a.bmp", bytes(content)
    content[6:10] = struct.pack("<HH", side, side)
    return "a.gif", bytes(content)


def _gz(content: bytes | bytearray) -> bytes:
    return gzip.compress(bytes(content), 1)


def _zeros(nifti: bytes, side: int, slices: int, slope: float) -> bytes:
    """A volume of zeros, which are multiplied by a slope."""
    head = bytearray(nifti[:352])
    head[42:48] = struct.pack("<hhh", side, side, slices)
    head[112:116] = struct.pack("<f", slope)
    return _gz(head + b"\0" * (side * side * slices))


class Bombs:
    """Files of a few kilobytes that unpack to many megabytes, made once.

    The last two are within the limits on bytes, so that they are unpacked, one of them into real
    numbers, before they are refused for their number of slices.
    """

    def __init__(self, good: dict[str, bytes]) -> None:
        nifti = bytearray(good["a.nii"])
        nifti[42:48] = struct.pack("<hhh", 512, 512, 2000)  # 500 MiB: more than a volume may have
        zeros = b"\0" * (1 << 26)
        self._files = [
            ("a.png", _png(100_000, 100_000, zlib.compress(zeros))),
            ("a.png", _png(1 << 31, 1, zlib.compress(zeros))),
            ("a.png", _png(8192, 8192, zlib.compress(zeros))),
            ("a.nii.gz", _gz(good["a.nii"] + zeros)),
            ("a.nii.gz", _gz(nifti + zeros)),
            ("a.nii.gz", gzip.compress(_gz(good["a.nii"] + zeros))),
            ("a.nii.gz", _zeros(good["a.nii"], side=200, slices=1600, slope=0.0)),
            ("a.nii.gz", _zeros(good["a.nii"], side=128, slices=1600, slope=1.5)),
        ]

    def __getitem__(self, index: int) -> tuple[str, bytes]:
        return self._files[index % len(self._files)]


KINDS = ("truncated", "bits flipped", "header", "wrong type", "huge", "bomb")


def malformed(count: int, seed: int = 0) -> Iterator[tuple[str, str, bytes]]:
    """Kind of damage, name and content of uploads, every kind in turn but few bombs."""
    random = np.random.default_rng(seed)
    good = good_files(random)
    names, bombs = list(good), Bombs(good)
    for i in range(count):
        kind = KINDS[i % 5] if i % 50 else "bomb"
        name = names[int(random.integers(len(names)))]
        content = bytearray(good[name])
        if kind == "bomb":
            name, content = bombs[i // 50]
        elif kind == "huge":
            name, content = _huge(random, good)
        elif kind == "truncated":
            del content[int(random.integers(1, len(content))) :]
        elif kind == "bits flipped":
            for _ in range(int(random.integers(1, 8))):
                content[int(random.integers(len(content)))] ^= 1 << int(random.integers(8))
        elif kind == "header":  # where sizes are
            at = int(random.integers(min(len(content), 80)))
            content[at] = int(random.choice([0, 127, 255]))
        else:
            content = bytearray(random.bytes(int(random.integers(0, 4096))))
        yield kind, name, bytes(content)


class Result:
    """What became of the uploads."""

    def __init__(self) -> None:
        self.statuses: dict[str, Counter[int]] = {kind: Counter() for kind in KINDS}
        self.slowest, self.slowest_cpu, self.what = 0.0, 0.0, ""
        self.speechless, self.alive, self.growth = 0, False, 0.0

    @property
    def sound(self) -> bool:
        """Whether each was refused with a sentence, or is an image after all, and it lives."""
        return self.refused and self.slowest_cpu <= MAX_SECONDS and self.growth <= MAX_GROWTH

    @property
    def refused(self) -> bool:
        """The same without time and memory."""
        found = {status for statuses in self.statuses.values() for status in statuses}
        refused = all(status == 200 or 400 <= status < 500 for status in found)
        return refused and not self.speechless and self.alive


async def send_all(
    client: httpx.AsyncClient, count: int, seed: int = 0, pid: int | None = None
) -> Result:
    """Send uploads one after another, and watch the memory of a process, by default of this one."""
    result, form = Result(), {"model": MODEL, "masks": "none", "k": "1"}
    forget_largest(pid)
    before = resident(pid)
    for kind, name, content in malformed(count, seed):
        began, cpu = time.perf_counter(), time.process_time()
        found = await client.post("/api/propose", files={"file": (name, content)}, data=form)
        took, took_cpu = time.perf_counter() - began, time.process_time() - cpu
        result.statuses[kind][found.status_code] += 1
        if found.status_code != 200:
            result.slowest = max(result.slowest, took)
            result.speechless += set(found.json()) != {"error"}
        if took_cpu > result.slowest_cpu:
            result.slowest_cpu, result.what = took_cpu, f"{kind}, {name}"
    good = good_files(np.random.default_rng(seed))["a.png"]
    found = await client.post("/api/propose", files={"file": ("a.png", good)}, data=form)
    result.alive = found.status_code == 200
    result.growth = largest(pid) - before
    return result


async def run(count: int, seed: int, url: str | None, pid: int | None = None) -> Result:
    """Send them to an application in this process, or to a service."""
    if url is not None:
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            return await send_all(client, count, seed, pid)
    settings = Settings(rate=0.0)
    service = Service({MODEL: mue.load(MODEL)}, settings)
    app = build_app(service)
    transport = httpx.ASGITransport(guarded(app, settings, service.monitor))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client,
    ):
        return await send_all(client, count, seed)


def main(
    count: int = 10_000, seed: int = 0, url: str | None = None, pid: int | None = None
) -> None:
    """Send malformed uploads.

    Args:
        count: How many.
        seed: Of the damage.
        url: Address of a service; by default an application in this process.
        pid: The process of that service, on this machine; its memory is measured.
    """
    if (url is None) != (pid is None):
        raise SystemExit("`--url` and `--pid` go together: the memory is that of the server")
    before = resident(pid)
    result = asyncio.run(run(count, seed, url, pid))
    for kind, statuses in result.statuses.items():
        said = ", ".join(f"{n} x {s}" for s, n in sorted(statuses.items()))
        print(f"{kind}: {said}")
    print(f"slowest refusal {result.slowest:.2f} s")
    if url is None:
        print(f"most CPU of an upload {result.slowest_cpu:.2f} s ({result.what})")
    after, most = resident(pid), largest(pid)
    print(f"memory {before:.0f} MiB at first, {after:.0f} in the end, at most {most:.0f}")
    in_time = url is None or result.slowest <= MAX_SECONDS
    raise SystemExit(0 if result.sound and in_time else 1)


def forget_largest(pid: int | None = None) -> None:
    """Let `largest` start again: what the process did before is not the service's."""
    (_process(pid) / "clear_refs").write_text("5")


def largest(pid: int | None = None) -> float:
    """The largest resident memory of a process since `forget_largest`, in MiB."""
    return _status("VmHWM", pid)


def resident(pid: int | None = None) -> float:
    """Resident memory of a process in MiB."""
    return _status("VmRSS", pid)


def _status(name: str, pid: int | None) -> float:
    lines = (_process(pid) / "status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def _process(pid: int | None) -> Path:
    """What the system says of a process, by default of this one."""
    return Path("/proc") / ("self" if pid is None else str(pid))


if __name__ == "__main__":
    tyro.cli(main)
