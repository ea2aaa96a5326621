"""From a name or a run folder to ranked answers."""

from __future__ import annotations

import difflib
from importlib.resources import files
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Shaped
from PIL import Image
from torch import Tensor

from mue.checkpoint import RunError, load_config, load_modal
from mue.config import Config
from mue.models.modal import Modal
from mue.types import Hypotheses

Device = Literal["auto", "cpu", "cuda"]
LARGEST_IMAGE = 1 << 26
"""Pixels of the largest image that is read from a file."""


def choose_device(name: Device = "auto", index: int = 0) -> torch.device:
    """The accelerator where there is one, unless told otherwise."""
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise RunError("`device` is cuda, and torch finds no CUDA device here; take auto or cpu")
    return torch.device("cuda", index)


def bundled() -> dict[str, Path]:
    """The models that come with the package, by name."""
    root = Path(str(files("mue"))) / "bundled"
    return {p.name: p for p in sorted(root.iterdir()) if p.is_dir()} if root.is_dir() else {}


def find(model: str | Path) -> Path:
    """The folder of a bundled model, or of a run."""
    known = bundled()
    if str(model) in known:
        return known[str(model)]
    folder = Path(model)
    if not folder.is_dir():
        near = difflib.get_close_matches(str(model), known, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"bundled are {', '.join(known)}"
        raise RunError(f"there is no bundled model and no run folder {str(model)!r}; {hint}")
    return folder


def load(model: str | Path, *, device: Device = "auto") -> Predictor:
    """A bundled model by its name, or the model in a run folder, ready to answer."""
    folder = find(model)
    return Predictor(load_modal(folder, choose_device(device)), load_config(folder))


class Predictor:
    """A trained network and the configuration it was trained with. It keeps no state of calls."""

    def __init__(self, modal: Modal, config: Config) -> None:
        self.modal = modal
        self.config = config

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.modal.codebook.codes.device

    @torch.inference_mode()
    def propose(
        self, image: Shaped[Tensor | np.ndarray, "..."], k: int | None = None, *, least: float = 0.0
    ) -> Hypotheses:
        """The k most probable answers to each input, from one look at it: 8, or all there are.

        Answers less probable than `least` are not kept: their probability is 0 and its mass in
        `rest`. Where this is so for every input of the batch, they are not decoded either.

        An image is c h w (or h w where the model takes one channel), in floating point or as
        bytes, which are scaled to 0..1; a vector is c. One more axis in front makes a batch; the
        result always has one: an image alone is a batch of one.
        """
        n = len(self.modal.codebook.codes)
        k = min(8, n) if k is None else k
        if not 1 <= k <= n:
            raise ValueError(f"`k` must be in 1..{n} (the codes of this model), got {k}")
        x = self._batch(image)
        view = self.modal(x)
        prob, code = self.modal.top(view, k)
        kept = max(1, int((prob >= least).sum(dim=1).amax()))
        prob, code = prob.where(prob >= least, 0)[:, :kept], code[:, :kept]
        logits = self.modal.decode(view, self.modal.codebook.codes[code])
        match self.config.objective.likelihood:
            case "bernoulli":
                y = logits.sigmoid()
            case "categorical":
                y = logits.softmax(dim=2)
            case "normal":
                y = logits
        return Hypotheses(y, prob, code)

    def _batch(self, image: Tensor | np.ndarray) -> Tensor:
        """The input as the network takes it, or a clear word on why it cannot be."""
        if isinstance(image, np.ndarray):
            image = np.array(image)  # torch would warn of memory that must not be written to
        x = torch.as_tensor(image)
        axes, c = (2 if self.config.model.backbone == "mlp" else 4), self.config.model.c_in
        if axes == 4 and c == 1 and x.ndim == 2:
            x = x[None]
        if x.ndim == axes - 1:
            x = x[None]
        form = "c" if axes == 2 else "c h w"
        if x.ndim != axes or x.shape[1] != c or 0 in x.shape:
            raise ValueError(
                f"`image` must be {form} with c = {c} channels, or a batch of such, "
                f"got an array of shape {tuple(image.shape)}"
            )
        x = x.to(self.device)
        x = x.float() / 255 if x.dtype == torch.uint8 else x.float()
        if not x.isfinite().all():
            count = int((~x.isfinite()).sum())
            raise ValueError(
                f"`image` must be finite, got {count} values that are NaN or infinite; "
                "replace them first"
            )
        return x.contiguous(memory_format=torch.channels_last) if axes == 4 else x


def read_image(path: str | Path, channels: int) -> Tensor:
    """An image file as c h w in 0..1: grey for one channel, colours for three."""
    if channels not in (1, 3):
        raise ValueError(
            f"an image file has 1 or 3 channels, and this model takes {channels}: "
            "call `propose` with an array"
        )
    try:
        with Image.open(path) as file:
            size = file.size
            image = _pixels(file, channels) if file.width * file.height <= LARGEST_IMAGE else None
    except FileNotFoundError:
        raise ValueError(f"there is no image file {path}") from None
    except (
        OSError,
        SyntaxError,
        ValueError,
        NotImplementedError,
        Image.DecompressionBombError,
    ) as error:  # whatever Pillow makes of bytes that are no picture
        raise ValueError(
            f"{path} must be an image file that can be read, and it is not: {error}"
        ) from None
    if image is None:
        raise ValueError(
            f"{path} must have at most {LARGEST_IMAGE} pixels, "
            f"got {size[0]} x {size[1]}; crop or scale it"
        )
    pixels = torch.tensor(image, dtype=torch.float32) / 255
    return pixels[None] if channels == 1 else pixels.permute(2, 0, 1)


def _pixels(file: Image.Image, channels: int) -> np.ndarray:
    """The decoded picture as bytes."""
    if file.mode.startswith("I;16"):  # 16 bits of grey: Pillow's conversion would cut off at 255
        file = Image.fromarray((np.asarray(file) / 257).round().astype(np.uint8))
    return np.asarray(file.convert("L" if channels == 1 else "RGB"))
