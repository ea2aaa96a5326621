"""Prepared images as a data set for training and evaluation."""

import warnings

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped, UInt8
from torch import Tensor

from mue.config.schema import DataConfig
from mue.data.augment import N_UNIFORM, augment_slices, window_size
from mue.data.normalize import normalize
from mue.data.prepared.open import Prepared
from mue.data.prepared.splits import Split
from mue.data.random import choose, uniform
from mue.errors import MueError
from mue.types import Case, Pair

Size = tuple[int, int]
"""Height and width."""


class Slices:
    """The images of a split, with the masks of their raters.

    `pair` samples without end: item i is a random image or a random patch of one, augmented, with
    random raters, all of it from (seed, i) alone. `case` gives image i itself with all of its
    raters; those of one call have one size, and images of one size follow one another.

    Images are kept as in their files and masks as bits: 10,000 slices of 128 x 128 with four raters
    take 250 MB. They are kept on the device or, with `on_device` False, in their files: then what
    a batch needs is read, copied to the device, and augmented there.

    Without a configuration, images are normalized as the prepared data recommends.
    """

    def __init__(
        self,
        prepared: Prepared,
        split: Split,
        config: DataConfig | None = None,
        *,
        seed: int = 0,
        device: torch.device | None = None,
        on_device: bool = True,
    ) -> None:
        meta = prepared.meta
        self.device = torch.device("cpu") if device is None else device
        self.on_device, self.seed = on_device, seed
        self.config = config or DataConfig(
            normalize=meta.normalize, labels=meta.labels, values=meta.values
        )
        member = prepared.members(split)
        if not len(member):
            raise MueError(
                f"{prepared.folder} has no slice of a patient of the split {split!r}; "
                f"it has {len({r.patient for r in prepared.rows})} patients in all"
            )
        labels = self.config.labels
        if max(len(meta.labels), len(labels)) > 2 and meta.labels != labels:
            raise MueError(
                f"data.labels must be {meta.labels} (the classes of {prepared.folder}), "
                f"got {labels}"
            )
        if self.config.normalize.kind == "unit":
            _check_unit(prepared)
        items = prepared.items[member]
        member = member[np.lexsort((items["w"], items["h"]))]  # stable: by size, then as they were
        items = prepared.items[member]
        self.known = prepared.known
        self.rows = [prepared.rows[i] for i in member]
        self.sizes: list[Size] = list(zip(items["h"].tolist(), items["w"].tolist(), strict=True))
        self._folder = prepared.folder
        self._channels, self._packed = meta.channels, prepared.packed
        self._classes = 1 if prepared.packed else len(meta.labels)
        self._total_raters, self._dtype = prepared.raters, meta.dtype
        self._bits = meta.bits[0] if meta.bits else None
        self._bounded = self.config.normalize.kind == "unit" and meta.dtype.startswith("uint")
        self._bit = torch.arange(7, -1, -1, device=self.device, dtype=torch.uint8)

        def kept(array: np.ndarray) -> Tensor:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch warns that a mapped file is read-only
                tensor = torch.from_numpy(np.asarray(array))
            if tensor.dtype == torch.uint16:  # which torch does not index on every device
                tensor = tensor.view(torch.int16)
            return tensor.to(self.device) if on_device else tensor

        files = (prepared.images, prepared.image_start), (prepared.masks, prepared.mask_start)
        (self._images, self._start), (self._masks, self._mask_start) = (
            map(kept, _members(flat, start, member) if on_device else (flat, start[member]))
            for flat, start in files
        )
        self._h, self._w, self._raters = (
            kept(items[name].astype(np.int64)) for name in ("h", "w", "raters")
        )
        self._moments = kept(np.stack([items["mean"], items["deviation"]]))
        self._foreground = kept(items["foreground"].astype(np.int64))
        self._q = kept(prepared.q[member])
        self._weighted = kept(_unequal(prepared.q[member]))
        self._any_weighted = bool(self._weighted.any())

    def __len__(self) -> int:
        return len(self.rows)

    def pair(self, index: Int[Tensor, " b"]) -> Pair:
        """Images or patches sampled with replacement, each augmented, with some of its raters."""
        config, patch = self.config, self.config.patch
        if config.answers > self._total_raters and not self._any_weighted:
            raise MueError(
                f"data.answers must be in 1..{self._total_raters} (the raters of {self._folder}), "
                f"got {config.answers}"
            )
        index = index.to(self._start.device)
        u = uniform(self.seed, index, 1 + N_UNIFORM + max(self._total_raters, config.answers))
        which = (u[:, 0].double() * len(self.rows)).long()
        rater = self._sample_raters(which, u[:, 1 + N_UNIFORM :])
        if patch == (0, 0):
            size = None
            images, masks = self._whole(which, rater, self._one_size())
        else:
            size = patch
            images, masks = self._windows(which, rater, index)
        x, y = augment_slices(
            self._normalized(images, which),
            masks.float(),
            u[:, 1 : 1 + N_UNIFORM].to(self.device),
            config.augment,
            size=size,
            bounded=self._bounded,
        )
        return Pair(x, self._one_hot(y))

    def case(self, index: Int[Tensor, " b"]) -> Case:
        """Images of one size, each with the masks of all of its raters.

        Where one has fewer raters than another, empty masks of weight 0 take their places.
        """
        listed = index.tolist()
        sizes = {self.sizes[i] for i in listed}
        if len(sizes) > 1:
            raise MueError(f"the images of a Case must have one size, got {sorted(sizes)}")
        which = index.to(self._start.device)
        rater = torch.arange(self._total_raters, device=which.device).expand(len(which), -1)
        last = self._raters[which][:, None] - 1
        images, masks = self._whole(which, rater.minimum(last), sizes.pop())
        masks = masks * (rater <= last).to(masks.device)[:, :, None, None]
        return Case(
            x=self._normalized(images, which),
            ys=self._one_hot(masks.float()),
            q=self._q[which].to(self.device),
            id=tuple(self.rows[i].id for i in listed),
            group=tuple(self.rows[i].patient for i in listed),
            known=self.known,
            patients=True,
        )

    def _one_size(self) -> Size:
        """The size of all images, which are then trained on as a whole."""
        if len(sizes := sorted(set(self.sizes))) > 1:
            one, other = ("{} x {}".format(*size) for size in (sizes[0], sizes[-1]))
            raise MueError(
                f"data.patch must be a size, got 0 0: images of {one} and of {other} can only be "
                "trained on in patches"
            )
        return sizes[0]

    def _sample_raters(
        self, which: Int[Tensor, " b"], u: Float[Tensor, "b r"]
    ) -> Int[Tensor, "b answers"]:
        """Different raters, repeated where there are too few; sampled where weights differ."""
        answers, raters = self.config.answers, self._raters[which][:, None]
        missing = torch.arange(u.shape[1], device=u.device) >= raters
        order = u.masked_fill(missing, 2).argsort(dim=1)
        rater = order.gather(1, torch.arange(answers, device=u.device) % raters)
        if not self._any_weighted:
            return rater
        by_weight = choose(u[:, :answers], self._q[which]).minimum(raters - 1)
        return torch.where(self._weighted[which][:, None], by_weight, rater)

    def _whole(
        self, which: Int[Tensor, " b"], rater: Int[Tensor, "b r"], size: Size
    ) -> tuple[Shaped[Tensor, "b c h w"], UInt8[Tensor, "b r h w"]]:
        """Images of one size, and the masks of the chosen raters."""
        h, w = size
        length = -(-h * w // 8) if self._packed else h * w
        images = self._images.unfold(0, self._channels * h * w, 1)[self._start[which]]
        masks = self._masks.unfold(0, length, 1)[self._mask_start[which][:, None] + length * rater]
        images, masks = self._to_device(images), self._to_device(masks)
        if self._packed:
            masks = ((masks[..., None] >> self._bit) & 1).flatten(2)[..., : h * w]
        return images.unflatten(1, (self._channels, h, w)), masks.unflatten(2, (h, w))

    def _windows(
        self, which: Int[Tensor, " b"], rater: Int[Tensor, "b r"], index: Int[Tensor, " b"]
    ) -> tuple[Shaped[Tensor, "b c h w"], UInt8[Tensor, "b r h w"]]:
        """What a patch at a random place may see; outside of the image its reflection, no mask."""
        height, width, patch = self._h[which], self._w[which], self.config.patch
        window = window_size(patch, self.config.augment)
        top, left = self._corner(which, index)
        row, row_inside = _reflected(top - (window[0] - patch[0]) // 2, window[0], height)
        column, column_inside = _reflected(left - (window[1] - patch[1]) // 2, window[1], width)
        pixels = (height * width)[:, None, None, None]
        pixel = (row[:, :, None] * width[:, None, None] + column[:, None])[:, None]
        channel = torch.arange(self._channels, device=which.device)[:, None, None]
        images = self._images[self._start[which][:, None, None, None] + channel * pixels + pixel]
        start, rater = self._mask_start[which][:, None, None, None], rater[:, :, None, None]
        if self._packed:
            byte = self._masks[start + rater * ((pixels + 7) // 8) + pixel // 8]
            masks = (byte >> (7 - pixel % 8).to(torch.uint8)) & 1
        else:
            masks = self._masks[start + rater * pixels + pixel]
        masks = masks * (row_inside[:, :, None] & column_inside[:, None])[:, None]
        return self._to_device(images), self._to_device(masks)

    def _corner(
        self, which: Int[Tensor, " b"], index: Int[Tensor, " b"]
    ) -> tuple[Int[Tensor, " b"], Int[Tensor, " b"]]:
        """First row and column of a random patch, of which some are about an annotated pixel."""
        u = uniform(self.seed, index, 4, salt=1).double()
        listed = self._foreground[which]
        count = (listed >= 0).sum(dim=1)
        pixel = listed.gather(1, (u[:, 2] * count).long()[:, None])[:, 0]
        on_foreground = (u[:, 3] < self.config.foreground) & (count > 0)
        width = self._w[which]
        corners: list[Tensor] = []
        for i, (n, at) in enumerate(((self._h[which], pixel // width), (width, pixel % width))):
            side = self.config.patch[i]
            low, high = (n - side).clamp_max(0), (n - side).clamp_min(0)
            anywhere = low + (u[:, i] * (high - low + 1)).long()
            centred = (at - side // 2).maximum(low).minimum(high)
            corners.append(torch.where(on_foreground, centred, anywhere))
        return corners[0], corners[1]

    def _normalized(
        self, images: Shaped[Tensor, "b c h w"], which: Int[Tensor, " b"]
    ) -> Float[Tensor, "b c h w"]:
        if self._dtype == "uint16":
            images = images.view(torch.uint16)
        moments = self._moments[:, which].to(self.device)
        return normalize(images, self.config.normalize, moments, self._bits)

    def _one_hot(self, masks: Float[Tensor, "b r h w"]) -> Float[Tensor, "b r c h w"]:
        """Masks as answers: one channel, or one for each class."""
        if self._classes == 1:
            return masks[:, :, None]
        classes = torch.arange(self._classes, device=masks.device)[:, None, None]
        return (masks[:, :, None] == classes).float()

    def _to_device(self, rows: Tensor) -> Tensor:
        pinned = rows.pin_memory() if self.device.type == "cuda" and not rows.is_cuda else rows
        return pinned.to(self.device, non_blocking=True)


def _check_unit(prepared: Prepared) -> None:
    """Refuse values whose maximum is not known, which new images would be scaled by differently."""
    meta, why = prepared.meta, ""
    if meta.dtype.startswith("int"):
        why = f"are of the type {meta.dtype}"
    elif meta.dtype == "float32" and (prepared.images.min() < 0 or prepared.images.max() > 1):
        why = f"are {prepared.images.min():g} to {prepared.images.max():g}"
    elif len(meta.bits) > 1:
        why = f"have {' and '.join(map(str, meta.bits))} bits"
    if why:
        raise MueError(
            "data.normalize.kind must be range, window or zscore for values that are not in 0..1 "
            f"and have no common maximum, got unit, and those of {prepared.folder} {why}"
        )


def _members(
    flat: np.ndarray, start: np.ndarray, member: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Some pieces of a flat array, one after another, and where each begins."""
    parts = [flat[start[i] : start[i + 1]] for i in member]
    ends = (start[member + 1] - start[member]).cumsum()
    return np.concatenate(parts), np.concatenate([[0], ends[:-1]])


def _unequal(q: np.ndarray) -> np.ndarray:
    """Whether the raters of an image who are there have different weights."""
    return np.where(q > 0, q, 2).min(axis=1) < q.max(axis=1)


def _reflected(
    start: Int[Tensor, " b"], count: int, size: Int[Tensor, " b"]
) -> tuple[Int[Tensor, "b n"], Bool[Tensor, "b n"]]:
    """`count` positions, reflected at the edges of 0..size-1, and whether they are inside."""
    at = start[:, None] + torch.arange(count, device=start.device)
    size = size[:, None]
    inside = (at >= 0) & (at < size)
    folded = at % (2 * size)
    return torch.where(folded < size, folded, 2 * size - 1 - folded), inside
