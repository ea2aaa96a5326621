"""Modes as JSON: probabilities, members, codes, rest, masks."""

import base64
import io
import math
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Shaped, UInt8
from PIL import Image
from torch import Tensor

from mue.config.schema import Config
from mue.inference.json import modes_json
from mue.inference.masks import class_names, label_map
from mue.inference.prediction import Prediction
from mue.inference.predictor import Predictor
from mue.modes import By, Modes
from mue.service.uploads import Upload

MaskFormat = Literal["png", "rle", "none"]
"""png: 8 bits, of one class its probability times 255, of several the number of the class;
rle: each class as COCO has it, column by column, beginning with the background."""


def png(pixels: UInt8[np.ndarray, "h w"]) -> bytes:
    """A grey picture."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def rle(mask: Shaped[np.ndarray, "h w"]) -> dict[str, list[int]]:
    """Run lengths of a mask, as COCO has them.

    >>> rle(np.array([[0, 1], [0, 1], [1, 1]]))
    {'size': [3, 2], 'counts': [2, 4]}
    """
    flat = np.concatenate([[False], mask.astype(bool).ravel(order="F")])
    edges = np.flatnonzero(np.diff(flat))
    runs = np.diff(np.concatenate([[0], edges, [mask.size]]))
    return {"size": list(mask.shape), "counts": runs.tolist()}


def is_label_map(config: Config) -> bool:
    """Whether an answer shows the class of each pixel, rather than the probability of one class."""
    return config.objective.likelihood == "categorical" or config.model.c_out > 1


def grey(y: Float[Tensor, "c h w"], config: Config) -> UInt8[np.ndarray, "h w"]:
    """An answer as 8 bits: the number of the class of each pixel, or a probability times 255."""
    if is_label_map(config):
        return label_map(y, config).numpy()
    return (y[0].clamp(0, 1) * 255).round().byte().numpy()


def encode_mask(y: Float[Tensor, "c h w"], config: Config, form: MaskFormat) -> dict[str, Any]:
    """An answer as the clients get it."""
    if form == "none":
        return {}
    if form == "png":
        return {"png": base64.b64encode(png(grey(y, config))).decode()}
    numbers = label_map(y, config).numpy()
    return {"rle": {n: rle(numbers == i + 1) for i, n in enumerate(class_names(config))}}


def rank(
    modes: Modes,
    predictor: Predictor,
    *,
    by: By,
    k: int,
    cut: float | None,
    coverage: float | None,
) -> Modes:
    """The modes that are asked for, of those of all answers at the calibrated cut."""
    if by == "code":
        modes = modes.by_code()
    elif cut is not None:
        modes = modes.at(cut)
    if coverage is None:
        return modes.top(k)
    promised, limit = predictor.limit_for(coverage, by=by, cut=cut)
    return modes.first(limit, coverage=promised)


def as_json(
    found: Prediction, upload: Upload, *, form: MaskFormat, details: bool
) -> dict[str, Any]:
    """The modes of one input; with `details` every answer, their tree and the image itself."""
    modes, config = found.modes, found.config
    content = {"model": found.model, **modes_json(modes, by=found.by)}
    for mode, y in zip(content["modes"], modes.y[0], strict=True):
        mode["mask"] = encode_mask(y, config, "none" if details else form)
    if details:
        prob, code = modes.answer_prob[0].tolist(), modes.answer_code[0].tolist()
        kept = [a for a, p in enumerate(prob) if p > 0]
        content["answers"] = [
            {"prob": prob[a], "code": code[a], "mask": encode_mask(y, config, form)}
            for a, y in zip(kept, modes.answers[0, kept], strict=True)
        ]
        content["tree"] = _tree(modes, kept)
        content["image"] = _image(upload)
    return content


def _tree(modes: Modes, kept: list[int]) -> dict[str, Any]:
    """How answers are joined; the height of what is joined to nothing is None."""
    place = {a: i for i, a in enumerate(kept)}
    height = [modes.tree.height[0, a].item() for a in kept]
    distance = modes.tree.distance[0][kept][:, kept].double().numpy().round(5)
    return {
        "parent": [place[int(modes.tree.parent[0, a])] for a in kept],
        "height": [None if math.isinf(h) else h for h in height],
        "distance": distance.tolist(),
    }


def _image(upload: Upload) -> dict[str, Any]:
    """The slice in the values of its file, rows of pixels, channels last."""
    pixels, geometry = upload.pixels, upload.raw.geometry
    low, high = float(pixels.min()), float(pixels.max())
    window = (0.0, 255.0) if pixels.dtype == np.uint8 else (low, max(high, low + 1e-6))
    little = pixels.transpose(1, 2, 0).astype(pixels.dtype.newbyteorder("<"))
    return {
        "width": pixels.shape[2],
        "height": pixels.shape[1],
        "channels": pixels.shape[0],
        "slices": upload.slices,
        "slice": upload.index,
        "spacing": None if geometry is None else geometry.spacing,
        "formats": upload.formats,
        "dtype": str(pixels.dtype),
        "low": low,
        "high": high,
        "window": window,
        "values": base64.b64encode(little.tobytes()).decode(),
    }
