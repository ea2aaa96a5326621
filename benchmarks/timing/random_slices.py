"""Random slices of the size of those of LIDC-IDRI: times do not depend on what is seen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from mue.config.schema import DataConfig
from mue.data.prepared.dataset import Slices
from mue.data.prepared.format import FORMAT, Meta, item_type
from mue.data.prepared.item import Row
from mue.data.prepared.open import Prepared
from mue.data.prepared.splits import split_of


def random_slices(
    config: DataConfig, side: int, device: torch.device, *, slices: int = 256, seed: int = 0
) -> Slices:
    """Random grey values and masks, which are sampled and augmented as prepared slices are."""
    random = np.random.default_rng(seed)
    names = (f"random-{i}" for i in range(100))
    patient = next(name for name in names if split_of(name) == "train")
    rows = tuple(
        Row(patient=patient, case="1", slice=str(i), source="random") for i in range(slices)
    )
    meta = Meta(
        format=FORMAT,
        images=slices,
        dtype="uint8",
        channels=1,
        labels=(),
        normalize=config.normalize,
        left_out=0,
    )
    items = np.zeros(slices, item_type(1))
    items["h"], items["w"], items["raters"] = side, side, 4
    prepared = Prepared(
        folder=Path("random"),
        meta=meta,
        origin={},
        rows=rows,
        items=items,
        q=np.full((slices, 4), 0.25, np.float32),
        images=random.integers(256, size=slices * side * side, dtype=np.uint8),
        masks=random.integers(256, size=slices * 4 * -(-side * side // 8), dtype=np.uint8),
        digest="",
    )
    return Slices(prepared, "train", config, seed=seed, device=device)
