"""Arrays in npy: h w, c h w, h w c with c up to 4, or c d h w."""

import numpy as np
from jaxtyping import Shaped
from numpy.lib import format as npy

from mue.data.images.image import Axis, ImageFile, RawImage, check_size, open_bounded, volume_image
from mue.data.images.picture import scale_to_bytes
from mue.errors import MueError


def read(file: ImageFile, *, axis: Axis, mask: bool) -> RawImage:
    """The array as an image."""
    array = read_npy(file)
    array = scale_to_bytes(array, 1) if array.dtype == bool and not mask else array
    return volume_image(array, None, (file,), axis, mask)


def read_npy(path: ImageFile) -> Shaped[np.ndarray, "c d h w"]:
    """An array of numbers; its header is checked before memory is taken, pickles are refused."""
    with open_bounded(path) as file:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(file)
        if dtype.hasobject:
            raise MueError("holds Python objects; save an array of numbers")
        if not 2 <= len(shape) <= 4:
            size = " x ".join(map(str, shape)) or "a number"
            raise MueError(f"is {size}; an image is h w, c h w, h w c or c d h w")
        last = len(shape) == 3 and shape[2] <= 4 < shape[0]  # channels last
        check_size(shape[:2] if last else shape, dtype)
        file.seek(0)
        array = npy.read_array(file, allow_pickle=False)
    if array.ndim == 4:
        return array
    array = array.transpose(2, 0, 1) if last else array
    return array.reshape(-1, 1, *array.shape[-2:])
