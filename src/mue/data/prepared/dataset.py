"""Prepared slices as a data set for training and evaluation."""

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
        self.on_device, self.seed, self.raters = on_device, seed, raters
        self.augment = AugmentConfig() if augment is None else augment
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
        self.size = prepared.size
        self.rows = [prepared.rows[i] for i in member]
        self._prepared, self._member = prepared, member
        arrays = (prepared.images, prepared.masks) if on_device else ()
        self._kept = [torch.from_numpy(array[member]).to(self.device) for array in arrays]
        self._bit = torch.arange(7, -1, -1, device=self.device, dtype=torch.uint8)

    def __len__(self) -> int:
        return len(self.rows)

    def pair(self, index: Int[Tensor, " b"]) -> Pair:
        """Slices sampled with replacement, each augmented, with some of its raters."""
        index = index.to(self.device if self.on_device else "cpu")
        u = uniform(self.seed, index, 1 + N_UNIFORM + self._prepared.raters)
        which = (u[:, 0].double() * len(self.rows)).long()
        order = u[:, 1 + N_UNIFORM :].argsort(dim=1)[:, : self.raters]
        x, y = self._load(which, order.to(self.device))
        x, y = augment_slices(x, y, u[:, 1 : 1 + N_UNIFORM].to(self.device), self.augment)
        return Pair(x, y[:, :, None])

    def case(self, index: Int[Tensor, " b"]) -> Case:
        """The slices themselves, each with the masks of all of its raters, weighted equally."""
        total = self._prepared.raters
        everyone = torch.arange(total, device=self.device).expand(len(index), -1)
        x, ys = self._load(index, everyone)
        rows = [self.rows[i] for i in index.tolist()]
        return Case(
            x=x,
            ys=ys[:, :, None],
            q=torch.full((len(index), total), 1 / total, device=self.device),
            id=tuple(row.id for row in rows),
            group=tuple(row.patient for row in rows),
        )

    def _load(
        self, which: Int[Tensor, " b"], rater: Int[Tensor, "b r"]
    ) -> tuple[Float[Tensor, "b 1 h w"], Float[Tensor, "b r h w"]]:
        """Slices, and the masks of the chosen raters, unpacked."""
        if self.on_device:
            images, masks = (array[which.to(self.device)] for array in self._kept)
        else:
            row = self._member[which.cpu().numpy()]
            arrays = (self._prepared.images[row], self._prepared.masks[row])
            images, masks = (self._to_device(torch.from_numpy(array)) for array in arrays)
        batch = torch.arange(len(which), device=self.device)[:, None]
        bits = (masks[batch, rater][..., None] >> self._bit) & 1
        h, w = self.size
        ys = bits.flatten(2)[..., : h * w].unflatten(2, (h, w)).float()
        return images[:, None].float() / 255, ys

    def _to_device(self, rows: Tensor) -> Tensor:
        pinned = rows.pin_memory() if self.device.type == "cuda" else rows
        return pinned.to(self.device, non_blocking=True)
