import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

Files = dict[str, bytes]


def png(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(array).save(out, "PNG")
    return out.getvalue()


@pytest.fixture
def encode() -> Callable[[np.ndarray], bytes]:
    """A PNG of an array."""
    return png


@pytest.fixture
def nodule() -> Callable[..., Files]:
    """The files of one slice of the slices layout, which differ from key to key."""

    def make(
        patient: str = "LIDC-IDRI-0001", nodule: int = 0, k: int = 0, masks: int = 4, side: int = 8
    ) -> Files:
        image = np.arange(side * side, dtype=np.uint8).reshape(side, side) + nodule + k
        top = f"{patient}/nodule-{nodule}"
        files = {f"{top}/images/slice-{k}.png": png(image)}
        for number in range(masks):
            mask = np.zeros((side, side), np.uint8)
            mask[: number + k, 0] = 255
            files[f"{top}/mask-{number}/slice-{k}.png"] = png(mask)
        return files

    return make


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """A folder of files."""

    def make(files: Files, name: str = "source") -> Path:
        for path, data in files.items():
            at = tmp_path / name / path
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_bytes(data)
        return tmp_path / name

    return make


@pytest.fixture
def pack(tmp_path: Path) -> Callable[..., Path]:
    """A .tar.gz of files, in their order, and of members that are no plain files."""

    def make(
        files: Files, name: str = "source.tar.gz", extra: list[tarfile.TarInfo] | None = None
    ) -> Path:
        mode = "w" if name.endswith(".tar") else "w:gz"
        with tarfile.open(tmp_path / name, mode) as tar:
            for path, data in files.items():
                info = tarfile.TarInfo(path)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
            for info in extra or []:
                tar.addfile(info, io.BytesIO(bytes(info.size)))
        return tmp_path / name

    return make
