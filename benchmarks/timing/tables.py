"""The table that `speed.py` prints."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table


def print_times(content: dict[str, Any]) -> None:
    """The rows of `bench.json`, and below them what they depend on."""
    limits = ", ".join(
        f"{v['peak'] / 1e12:.3g} TFLOP/s in {kind}" for kind, v in content["limits"].items()
    )
    bandwidth = max(v["bandwidth"] for v in content["limits"].values())
    table = Table(title=f"{content['name']}: naive against ours, in one run")
    table.add_column("what", overflow="fold")
    for column in ("naive", "ours", "ratio", "GB", "GFLOP", "floor", "share", "of U-Net"):
        table.add_column(column, justify="right")
    for row in (*content.get("training", ()), *content.get("answering", ())):
        table.add_row(*_cells(row))
    if content.get("sides"):
        table.add_section()
        for row in content["sides"]:
            table.add_row(*_cells(row))
    _print_whole(table)
    Console().print(
        "times    in ms ± half the interquartile range; the counts and the floor are ours\n"
        f"limits   {bandwidth / 1e9:.4g} GB/s, {limits}, as measured here\n"
        f"torch    {content['torch']}, threads {content['threads']}, seed {content['seed']}",
        highlight=False,
        soft_wrap=True,
    )
    for what, powers in content.get("growth", {}).items():
        growth = ", ".join(f"{name} {power:.2f}" for name, power in powers.items())
        Console().print(f"growth   with {what}, as a power: {growth}", highlight=False)


def _cells(row: dict[str, Any]) -> list[str]:
    def ms(name: str) -> str:
        found = row.get(name)
        return f"{found['ms']:.2f} ±{found['spread']:.0%}" if found else "–"

    if "batch" in row:
        what = f"train {row['preset']}, batch {row['batch']}, {row['precision']}"
    else:
        what = f"{row['preset']}, {row['k']} answers, {row['side']}²"
    ratio, unet = row["ratio"], row.get("of_unet")
    return [
        what,
        ms("naive"),
        ms("ours"),
        "–" if ratio is None else f"{ratio:.2f}",
        f"{row['bytes'] / 1e9:.3f}",
        f"{row['operations'] / 1e9:.2f}",
        f"{row['floor_ms']:.3f}",
        f"{row['share']:.0%}",
        "–" if unet is None else f"{unet:.2f}",
    ]


def _print_whole(table: Table) -> None:
    """Print a table at its own width: a long line is better than half a number."""
    needed = Console(width=1000).measure(table).maximum
    Console(width=max(Console().width, needed)).print(table)
