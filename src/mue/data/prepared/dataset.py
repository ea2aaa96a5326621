"""Prepared slices as a data set for training and evaluation."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from mue.config.schema import AugmentConfig
from mue.data.augment import N_UNIFORM, augment_slices
from mue.data.prepared.splits import Split
from mue.data.prepared.store import Prepared
from mue.data.random import uniform
from mue.errors import MueError
from mue.types import Case, Pair


class Slices:
    """The slices of a split, with the masks of their raters.

    `pair` samples without end: item i is a random slice, augmented, with random raters, all of
    it from (seed, i) alone. `case` gives slice i itself with all of its raters. Slices are kept as
    bytes and masks as bits: 10,000 slices of 128 x 128 with four raters take 250 MB. They are kept
    on the device or, with `on_device` False, in their files: then those of a batch are read, copied
    to the device, and unpacked and augmented there.
    """

    def __init__(
        self,
        prepared: Prepared,
        split: Split,
        *,
        seed: int = 0,
        raters: int = 1,
        augment: AugmentConfig | None = None,
        device: torch.device | None = None,
        on_device: bool = True,
    ) -> None:
        self.device = torch.device("cpu") if device is None else device
        self.on_device = on_device
        self.seed = seed
        member = prepared.members(split)
        if not len(member):
            raise MueError(
                f"{prepared.folder} has no slice of a patient of the split {split!r}; "
                f"it has {len({r.patient for r in prepared.rows})} patients in all"
            )
        if not 1 <= raters <= prepared.raters:
            raise MueError(
                f"data.answers must be in 1..{prepared.raters} (the raters of "
                f"{prepared.folder}), got {raters}"
            )
        self.raters = raters
        self.augment = AugmentConfig() if augment is None else augment
        self.size = prepared.size
        self.rows = [prepared.rows[i] for i in member]
        self._prepared, self._member = prepared, member
        self._image, self._mask = (
            (torch.from_numpy(a[member]).to(self.device) for a in (prepared.images, prepared.masks))
            if on_device
            else (None, None)
        )
        self._bit = torch.arange(7, -1, -1, device=self.device, dtype=torch.uint8)

    def __len__(self) -> int:
        return len(self.rows)

    def pair(self, index: Int[Tensor, " b"]) -> Pair:
        """Slices sampled with replacement, each augmented, with some of its raters."""
        total = self._prepared.raters
        rows_on = self.device if self.on_device else torch.device("cpu")
        u = uniform(self.seed, index.to(rows_on), 1 + N_UNIFORM + total)
        which = (u[:, 0].double() * len(self.rows)).long()
        order = u[:, 1 + N_UNIFORM :].argsort(dim=1)[:, : self.raters]
        u, order = u.to(self.device), order.to(self.device)
        x, y = augment_slices(
            self._x(which), self._ys(which, order), u[:, 1 : 1 + N_UNIFORM], self.augment
        )
        return Pair(x, y[:, :, None])

    def case(self, index: Int[Tensor, " b"]) -> Case:
        """The slices themselves, each with the masks of all of its raters, weighted equally."""
        index = index.to(self.device)
        total = self._prepared.raters
        order = torch.arange(total, device=self.device).expand(len(index), -1)
        rows = [self.rows[i] for i in index.tolist()]
        return Case(
            x=self._x(index),
            ys=self._ys(index, order)[:, :, None],
            q=torch.full((len(index), total), 1 / total, device=self.device),
            id=tuple(row.id for row in rows),
            group=tuple(row.patient for row in rows),
        )

    def _x(self, which: Int[Tensor, " b"]) -> Float[Tensor, "b 1 h w"]:
        return self._rows(self._image, self._prepared.images, which)[:, None].float() / 255

    def _ys(self, which: Int[Tensor, " b"], rater: Int[Tensor, "b r"]) -> Float[Tensor, "b r h w"]:
        """Masks of the chosen raters, unpacked."""
        h, w = self.size
        row = torch.arange(len(which), device=self.device)[:, None]
        packed = self._rows(self._mask, self._prepared.masks, which)[row, rater]
        bits = (packed[..., None] >> self._bit) & 1
        return bits.flatten(2)[..., : h * w].unflatten(2, (h, w)).float()

    def _rows(self, kept: Tensor | None, file: np.ndarray, which: Int[Tensor, " b"]) -> Tensor:
        """Rows of an array that is kept on the device, or else of its file."""
        if kept is not None:
            return kept[which.to(self.device)]
        rows = torch.from_numpy(file[self._member[which.cpu().numpy()]])
        if self.device.type == "cuda":
            rows = rows.pin_memory()
        return rows.to(self.device, non_blocking=True)
