"""Ranked masks in the space of the file that they are about, and the formats that hold them."""

from __future__ import annotations

import gzip
import io
import json
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float32, Shaped, UInt8

from mue.config.schema import Config
from mue.data.images.image import RawImage
from mue.errors import MueError
from mue.modes import Modes, binary_masks


@dataclass(frozen=True, slots=True, eq=False)
class Segmentation:
    """The hypotheses about an image or volume as masks, the most probable first.

    Attributes:
        masks: Number of the class of each pixel in each hypothesis, 0 for the background.
        expected: Mean of all answers: probability of each class other than the background.
        prob: Probability of each hypothesis.
        notes: Rank, probability and codes of each hypothesis, in words.
        rest: Probability of what is in none of them.
        classes: Names of the classes other than the background.
        values: What a pixel of each of them is in the files that the model learned from.
        source: The image.
    """

    masks: UInt8[np.ndarray, "m d h w"]
    expected: Float32[np.ndarray, "c d h w"]
    prob: tuple[float, ...]
    notes: tuple[str, ...]
    rest: float
    classes: tuple[str, ...]
    values: tuple[int, ...]
    source: RawImage

    @property
    def label_maps(self) -> Shaped[np.ndarray, "m d h w"]:
        """The masks with the values of the classes in place of their numbers."""
        values = (0, *self.values)
        return np.array(values, np.min_scalar_type(max(values)))[self.masks]

    @property
    def labels(self) -> dict[str, int]:
        """The values of the classes other than the background, by their names."""
        return dict(zip(self.classes, self.values, strict=True))

    def volume(self, slices: Shaped[np.ndarray, "*m d h w"]) -> Shaped[np.ndarray, "*m k j i"]:
        """Slices put together to the volume that they were cut from."""
        geometry = self.source.geometry
        axis = 2 if geometry is None else geometry.axis
        return np.moveaxis(slices, -3, -1 - axis)


def segmentation(modes: Modes, source: RawImage, config: Config) -> Segmentation:
    """The modes of one input, whose slices are stacked along the height, as masks."""
    kind = config.objective.likelihood
    if kind == "normal":
        raise MueError("the answers of this model are no masks; take the formats png and json")
    modes, (d, h, w) = modes.cpu(), source.pixels.shape[1:]
    y = modes.y[0]
    if kind == "categorical":
        masks = torch.stack([each.argmax(dim=0) for each in y])
    else:  # where channels overlap, the last
        number = torch.arange(1, y.shape[1] + 1, dtype=torch.uint8)[:, None, None]
        masks = torch.stack([(binary_masks(each) * number).amax(dim=0) for each in y])
    share = (modes.answer_prob[0] / modes.answer_prob[0].sum()).tolist()
    expected = torch.zeros(modes.answers.shape[2:])
    for p, answer in zip(share, modes.answers[0], strict=True):
        expected.add_(answer, alpha=p)
    expected = expected[1:] if kind == "categorical" else expected
    numbers = tuple(range(1, len(expected) + 1))
    unnamed = tuple(f"class {i}" for i in numbers) if len(numbers) > 1 else ("mask",)
    prob, rest = tuple(modes.prob[0].tolist()), modes.rest[0].item()
    notes: list[str] = []
    for i, p in enumerate(prob):
        codes = [int(c) for c in modes.answer_code[0][modes.mode[0] == i] if c >= 0]
        said = f"hypothesis of rank {i + 1} of {len(prob)}, probability {p:.4f}, rest {rest:.4f}"
        notes.append(said + (f", codes {' '.join(map(str, codes))}" if codes else ""))
    return Segmentation(
        masks=masks.byte().numpy().reshape(-1, d, h, w),
        expected=expected.numpy().reshape(-1, d, h, w),
        prob=prob,
        notes=tuple(notes),
        rest=rest,
        classes=config.data.labels[1:] or unnamed,
        values=config.data.values[1:] or numbers,
        source=source,
    )


def as_npz(found: Segmentation) -> bytes:
    """Arrays by the names of the attributes, compressed; a picture has no axis of slices."""
    picture = found.source.geometry is None and found.masks.shape[1] == 1
    masks, expected = (v[:, 0] if picture else v for v in (found.label_maps, found.expected))
    geometry, buffer = found.source.geometry, io.BytesIO()
    np.savez_compressed(
        buffer,
        masks=masks,
        expected=expected,
        prob=np.array(found.prob),
        rest=np.array(found.rest),
        classes=np.array(found.classes),
        values=np.array(found.values),
        **({} if geometry is None else {"affine": geometry.affine, "axis": geometry.axis}),
    )
    return buffer.getvalue()


def as_nifti(found: Segmentation) -> dict[str, bytes]:
    """The hypotheses along the fourth axis, and the expected mask with its classes along it.

    The affine is the input's. Probabilities are in a comment of the header, as JSON.
    """
    comment = {"hypotheses": found.notes, "classes": found.classes, "labels": found.labels}
    return {
        ".nii.gz": _nifti(found, found.label_maps, comment),
        "-expected.nii.gz": _nifti(found, found.expected, {"classes": found.classes}),
    }


def _nifti(
    found: Segmentation, slices: Shaped[np.ndarray, "m d h w"], comment: dict[str, Any]
) -> bytes:
    from nibabel.nifti1 import Nifti1Extension, Nifti1Header, Nifti1Image

    geometry = found.source.geometry
    # a picture lies as ITK has it: x to the left, y to the back
    affine = np.diag([-1.0, -1.0, 1.0, 1.0]) if geometry is None else geometry.affine
    image = Nifti1Image(found.volume(slices).transpose(3, 2, 1, 0), affine)
    header = cast("Nifti1Header", image.header)
    header.set_xyzt_units("mm")
    header.extensions.append(Nifti1Extension("comment", json.dumps(comment).encode()))
    return gzip.compress(image.to_bytes(), 6, mtime=0)
