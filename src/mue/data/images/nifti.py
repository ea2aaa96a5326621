"""NIfTI, with the checksum of its gzip verified."""

import gzip
import io
import zlib

import numpy as np
from jaxtyping import Float, Shaped
from nibabel.nifti1 import Nifti1Image
from nibabel.nifti2 import Nifti2Image

from mue.data.images.image import (
    Axis,
    ImageFile,
    RawImage,
    check_size,
    max_bytes,
    open_bounded,
    volume_image,
)
from mue.errors import MueError

_AFTER = 1 << 20  # bytes that may follow on the voxels


def read(file: ImageFile, *, axis: Axis, mask: bool) -> RawImage:
    """The volume in a file."""
    return volume_image(*read_nifti(file), (file,), axis, mask)


def read_nifti(path: ImageFile) -> tuple[Shaped[np.ndarray, "c k j i"], Float[np.ndarray, "4 4"]]:
    """Voxels, scaled as the header says, and their affine; a fourth axis is channels."""
    with open_bounded(path) as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        with gzip.GzipFile(fileobj=raw) if packed else raw as file:
            try:
                head = file.read(540)
                kind = Nifti2Image if 540 in (_size(head, "<"), _size(head, ">")) else Nifti1Image
                header = kind.header_class.from_fileobj(io.BytesIO(head), check=False)
                shape = header.get_data_shape()
                channels = int(np.prod(shape[3:]))
                i, j, k = (*shape[:3], 1, 1, 1)[:3]
                dtype = header.get_data_dtype()
                scaled = header.get_slope_inter() not in ((None, None), (1, 0))
                check_size((channels, k, j, i), np.float64 if scaled else dtype)
                size = int(header.get_data_offset()) + channels * k * j * i * dtype.itemsize
                if not 0 <= size - len(head) <= max_bytes():
                    raise MueError(f"claims to begin its voxels at {header.get_data_offset()}")
                body = head + file.read(size - len(head))
                if len(body) < size:
                    raise MueError(f"is truncated: it holds {len(body)} of {size} bytes")
                if len(file.read(_AFTER)) == _AFTER:  # to the end, where gzip has its checksum
                    raise MueError(f"holds more than the {size} bytes that its header claims")
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise MueError(f"is truncated or damaged as gzip ({error})") from None
    image = kind.from_bytes(body)
    voxels = np.asanyarray(image.dataobj)
    if voxels.dtype.names:  # colours, as a structure
        voxels = np.stack([voxels[name] for name in voxels.dtype.names], axis=-1)
        channels *= voxels.shape[-1]
    affine = np.array(image.affine, dtype=np.float64)
    return voxels.reshape(i, j, k, channels).transpose(3, 2, 1, 0), affine


def _size(head: bytes, order: str) -> int:
    return int(np.frombuffer(head[:4].ljust(4, b"\0"), f"{order}i4")[0])
