"""How long a large prepared data set takes to open: `python benchmarks/open_prepared.py 100000`.

Images of 512 x 512 with four raters. The two large files are sparse: none of their pages is read.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from mue.config.schema import DataConfig
from mue.data.prepared.dataset import Slices
from mue.data.prepared.item import Item
from mue.data.prepared.open import open_prepared
from mue.data.prepared.write import write_prepared

SIDE, RATERS = 512, 4


def write_sparse(folder: Path, images: int) -> None:
    """Write an index of `images` entries, as of patients of 100 slices, and files of zeros."""

    def small() -> Iterator[Item]:
        for i in range(images):
            yield Item(
                patient=f"patient-{i // 100:05}",
                case="ct",
                slice=f"slice-{i % 100:03}",
                source=f"patient-{i // 100:05}/{i % 100:03}.dcm",
                spacing=(0.703125, 0.703125),
                image=np.zeros((1, 1, 1), np.uint8),
                masks=np.zeros((RATERS, 1, 1), np.uint8),
            )

    write_prepared(small(), folder, {"form": "sparse"})
    items = np.load(folder / "items.npy")
    items["h"] = items["w"] = SIDE
    np.save(folder / "items.npy", items)
    for name, size in (("images.bin", SIDE * SIDE), ("masks.bin", RATERS * SIDE * SIDE // 8)):
        with (folder / name).open("wb") as file:
            file.truncate(images * size)
    meta = json.loads((folder / "meta.json").read_text())
    content = (folder / "items.npy").read_bytes()
    meta["sha256"]["items.npy"] = hashlib.sha256(content).hexdigest()
    (folder / "meta.json").write_text(json.dumps(meta))


def main(images: int) -> None:
    """Print the CPU seconds to open, to make a data set of a split, and to load a batch."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "sparse"
        write_sparse(folder, images)
        began = time.process_time()
        prepared = open_prepared(folder)
        opened = time.process_time()
        config = DataConfig(name="slices", patch=(128, 128), foreground=0.5)
        source = Slices(prepared, "train", config, on_device=False)
        made = time.process_time()
        source.pair(torch.arange(16))
        loaded = time.process_time()
    print(f"{images} images of {SIDE} x {SIDE}: CPU seconds: open {opened - began:.2f}, ", end="")
    print(f"data set {made - opened:.2f}, first batch {loaded - made:.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
