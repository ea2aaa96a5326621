"""How many pixels masks have in common: every measure of overlap is made of these numbers."""

import math

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

BLOCK = 32  # images that are counted at a time: what is made of them stays in the cache
EIGHT = 8  # bytes in a word, bits in a byte


def common_pixels(*sets: Bool[Tensor, "*b _ c h w"]) -> Float[Tensor, "*b c j j"]:
    """Number of pixels that every two of the j masks of all sets share; the diagonal is their area.

    It is exact up to 2^24 pixels. An accelerator multiplies matrices; a CPU counts bits, which is
    ten times faster there.

    >>> common_pixels(torch.tensor([[[[True, True]]], [[[False, True]]]]))
    tensor([[[2., 1.],
             [1., 1.]]])
    """
    return _by_bits(*sets) if sets[0].device.type == "cpu" else _by_product(*sets)


def _by_product(*sets: Bool[Tensor, "*b _ c h w"]) -> Float[Tensor, "*b c j j"]:
    """The product of each image's masks with themselves."""
    masks = torch.cat(sets, dim=-4).flatten(-2).transpose(-3, -2).float()
    return masks @ masks.mT


def _by_bits(*sets: Bool[Tensor, "*b _ c h w"]) -> Float[Tensor, "*b c j j"]:
    """The number of bits that are set in both masks, 64 at a time.

    A lesion is small and its masks overlap, so most of an image is empty in all of them.
    One fast sum over the masks finds the rest, and only that is packed into bits and counted.
    """
    words = [_words(masks) for masks in sets]
    counts = [
        _count(*_bits([masks[start : start + BLOCK] for masks in words]))
        for start in range(0, len(words[0]), BLOCK)
    ]
    *batch, _, c, _, _ = sets[0].shape
    j = sum(masks.shape[1] for masks in words)
    both = torch.as_tensor(np.concatenate(counts) if counts else np.empty(0), dtype=torch.float32)
    return both.reshape(*batch, c, j, j)


def _words(masks: Bool[Tensor, "*b k c h w"]) -> Tensor:
    """Words of 8 pixels, a byte for each: images k words, where every class is an image."""
    *batch, k, c, h, w = masks.shape
    pixels = masks.flatten(-2).transpose(-3, -2).reshape(math.prod(batch) * c, k, h * w)
    if h * w % EIGHT or pixels.storage_offset() % EIGHT:
        pixels = F.pad(pixels, (0, -h * w % EIGHT))
    return pixels.contiguous().view(torch.int64)


def _bits(sets: list[Tensor]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Pack the pixels of each mask into bits, without the words that are empty in every mask.

    Returns the words of 64 pixels of every mask, image after image, and where each image begins.
    """
    images, _, width = sets[0].shape
    used = np.zeros((images, width), np.bool_)
    for words in sets:
        for j in range(0, words.shape[1], 255):  # the sum of more bytes may come to 0 again
            used |= words[:, j : j + 255].sum(dim=1).numpy() != 0
    word = np.flatnonzero(used)
    image = word // width
    size = np.bincount(image, minlength=images)
    packed = np.maximum(-(-size // EIGHT), 1)  # each image fills whole words, and at least one
    first = packed.cumsum() - packed
    place = np.arange(len(word)) + (EIGHT * first - (size.cumsum() - size))[image]
    filler = np.ones(EIGHT * packed.sum(), np.bool_)
    filler[place] = False
    pixels = np.empty((sum(words.shape[1] for words in sets), len(filler)), np.int64)
    row = 0
    for words in sets:
        k = words.shape[1]
        at = np.zeros(len(filler), np.int64)
        at[place] = word + image * (k - 1) * width
        flat = words.numpy().reshape(-1)
        for j in range(k):
            flat[j * width :].take(at, out=pixels[row + j], mode="clip")  # "raise" would buffer
        row += k
    pixels[:, filler] = 0
    return np.packbits(pixels.view(np.uint8), axis=1).view(np.uint64), first


def _count(bits: NDArray[np.uint64], first: NDArray[np.int64]) -> NDArray[np.int32]:
    """Number of bits that every two rows share between one beginning and the next."""
    m = len(bits)
    counts = np.empty((m, m, len(first)), np.int32)
    for i in range(m):
        common = np.bitwise_count(bits[i:] & bits[i])
        counts[i, i:] = np.add.reduceat(common, first, axis=1, dtype=np.int32)
        counts[i:, i] = counts[i, i:]
    return counts.transpose(2, 0, 1)
