"""How much faster `mue data import folder` is than a plain loop of Pillow and numpy.

    python benchmarks/import_folder.py [--cases 10000] [--folder DIR]

Made-up PNG of 256 x 256 with the masks of four raters. The plain loop opens each file by Pillow,
checks that masks fit their image and hold 0 and 255 alone, and writes images as bytes and masks as
bits; the bare loop leaves the check of values out. The import does more: it verifies checksums,
collects statistics, computes digests, and writes the result whole or not at all. All run in turns.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from mue.commands.import_folder import import_folder

SIDE, RATERS = 256, 4


def make(folder: Path, cases: int) -> None:
    """Noisy discs, which raters draw with different radii."""
    y, x = np.mgrid[:SIDE, :SIDE]
    for name in ("images", "masks"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for i in range(cases):
        random = np.random.default_rng(i)
        at = np.hypot(
            *(
                grid - centre
                for grid, centre in zip((y, x), random.uniform(80, 176, 2), strict=True)
            )
        )
        image = 60 + 120 * np.exp(-((at / 60) ** 2)) + random.normal(0, 8, at.shape)
        Image.fromarray(image.clip(0, 255).astype(np.uint8)).save(folder / "images" / f"c{i}.png")
        for j in range(RATERS):
            mask = 255 * (at < random.uniform(30, 70)).astype(np.uint8)
            Image.fromarray(mask).save(folder / "masks" / f"c{i}_r{j}.png")


def plain_loop(folder: Path, out: Path, *, check: bool = True) -> None:
    """What one would write without thinking of speed."""
    out.mkdir()
    with (out / "images.bin").open("wb") as images, (out / "masks.bin").open("wb") as masks:
        for path in sorted((folder / "images").glob("*.png")):
            image = np.array(Image.open(path))
            names = [f"{path.stem}_r{j}.png" for j in range(RATERS)]
            raters = np.stack([np.array(Image.open(folder / "masks" / name)) for name in names])
            if raters.shape[1:] != image.shape or (check and not np.isin(raters, (0, 255)).all()):
                raise ValueError(path)
            images.write(image.tobytes())
            masks.write(np.packbits((raters > 0).reshape(RATERS, -1), axis=1).tobytes())


def seconds(call: Callable[[Path], object], out: Path) -> float:
    """Time of a call that writes to a new folder, which is removed."""
    start = time.perf_counter()
    call(out)
    took = time.perf_counter() - start
    shutil.rmtree(out)
    return took


def main() -> None:
    """Print seconds of both and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, help="where the files are, or are put for later")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder, out = given.folder or Path(scratch) / "png", Path(scratch) / "out"
        if not (folder / "images" / f"c{given.cases - 1}.png").exists():
            make(folder, given.cases)

        def imported(out: Path) -> object:
            masks = "masks/{case}_r{rater}.png"
            return import_folder(folder, image="images/{case}.png", mask=masks, out=out)

        ratios: list[tuple[float, float]] = []
        for _ in range(given.repeats):
            bare = seconds(lambda out: plain_loop(folder, out, check=False), out)
            plain = seconds(lambda out: plain_loop(folder, out), out)
            ours = seconds(imported, out)
            ratios.append((plain / ours, bare / ours))
            print(f"plain loop {plain:.1f} s, bare loop {bare:.1f} s, import {ours:.1f} s")
        fast, faster = np.median(ratios, axis=0)
        print(f"import: {fast:.2f} times as fast as the plain loop, {faster:.2f} as the bare one")


if __name__ == "__main__":
    main()
