"""GDCM in a process of its own: damaged bytes can end the process in which it decodes.

It starts with the first image that only GDCM decodes, answers one after another, and ends with the
process that asks. Where it dies of an image, the image is refused, and the next one starts another.
"""

import atexit
import contextlib
import json
import os
import subprocess
import sys
import threading
from typing import IO

import numpy as np
from pydicom import Dataset
from pydicom.dataset import FileMetaDataset
from pydicom.pixels.utils import pixel_array

from mue.data.worker import end_worker, start_worker
from mue.errors import MueError

_NUMBERS = (
    "Rows",
    "Columns",
    "SamplesPerPixel",
    "BitsAllocated",
    "BitsStored",
    "HighBit",
    "PixelRepresentation",
    "PlanarConfiguration",
    "NumberOfFrames",
)
_lock = threading.Lock()
_processes: dict[int, subprocess.Popen[bytes]] = {}  # by the process that started it


def decode_apart(data: Dataset) -> np.ndarray:
    """The stored values of a data set; an error is a clause that follows on the path."""
    numbers = {name: int(data[name].value) for name in _NUMBERS if data.get(name) is not None}
    asked = {
        "syntax": str(data.file_meta.TransferSyntaxUID),
        "photometric": str(data.get("PhotometricInterpretation")),
        "numbers": numbers,
        "size": len(data.PixelData),
    }
    with _lock:
        process = _process()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(asked).encode() + b"\n" + data.PixelData)
            process.stdin.flush()
            found = json.loads(process.stdout.readline())
            content = _read(process.stdout, found.get("size", 0))
        except (OSError, EOFError, ValueError):  # nothing, or half of it
            _end()
            raise MueError("is damaged as DICOM: its decoder failed") from None
        except BaseException:  # the rest of this answer would be taken for the next one
            _end()
            raise
    if "error" in found:
        raise MueError(f"is damaged as DICOM: {found['error']}")
    return np.frombuffer(content, found["dtype"]).reshape(found["shape"]).copy()


def _process() -> subprocess.Popen[bytes]:
    """The process that decodes for this one, started if there is none."""
    if (process := _processes.get(os.getpid())) is None or process.poll() is not None:
        process = start_worker(__name__, stderr=subprocess.DEVNULL)
        _processes.clear()  # those of a process that this one was forked from
        _processes[os.getpid()] = process
    return process


@atexit.register
def _end() -> None:
    """End the process that decodes for this one."""
    if (process := _processes.pop(os.getpid(), None)) is not None:
        end_worker(process)


def _read(stream: IO[bytes], size: int) -> bytes:
    if len(content := stream.read(size)) != size:
        raise EOFError(f"{len(content)} of {size} bytes")
    return content


def work() -> None:
    """What the process does: read a data set, write its values or what is wrong, and so on."""
    source, out = sys.stdin.buffer, sys.stdout.buffer
    with contextlib.suppress(BrokenPipeError):
        while line := source.readline():
            asked = json.loads(line)
            data = Dataset()
            data.file_meta = FileMetaDataset()
            data.file_meta.TransferSyntaxUID = asked["syntax"]
            data.PhotometricInterpretation = asked["photometric"]
            for name, value in asked["numbers"].items():
                setattr(data, name, value)
            data.PixelData = source.read(asked["size"])
            data["PixelData"].is_undefined_length = True
            try:
                values = pixel_array(data, decoding_plugin="gdcm")
                about = {"shape": values.shape, "dtype": values.dtype.str, "size": values.nbytes}
                found = json.dumps(about).encode() + b"\n" + values.tobytes()
            except Exception as error:  # for damaged bytes, any
                said = str(error).partition("\n")[0].rstrip(":")[:200]
                found = json.dumps({"error": said or type(error).__name__}).encode() + b"\n"
            out.write(found)
            out.flush()
