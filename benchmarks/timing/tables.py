"""What `speed.py` prints: a table of times and ratios, and the costs of a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from timing.profiler import Cost


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
        "times    in ms ± half the distance of the quartiles; the counts and the floor are ours\n"
        f"limits   {bandwidth / 1e9:.4g} GB/s, {limits}, as measured here\n"
        f"torch    {content['torch']}, threads {content['threads']}, seed {content['seed']}",
        highlight=False,
        soft_wrap=True,
    )
    for what, powers in content.get("growth", {}).items():
        said = ", ".join(f"{name} {power:.2f}" for name, power in powers.items())
        Console().print(f"growth   with {what}, as a power: {said}", highlight=False)


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


def print_costs(title: str, costs: Sequence[Cost], most: int = 20) -> None:
    """The operators or kernels that take the most time of a step."""
    whole = sum(cost.seconds for cost in costs)
    table = Table(title=f"{title}: {1e3 * whole:.2f} ms")
    for column in ("operator", "inputs"):
        table.add_column(column, overflow="fold", max_width=44)
    for column in ("calls", "ms", "of all", "MB", "GFLOP", "share of limit"):
        table.add_column(column, justify="right")
    for cost in costs[:most]:
        table.add_row(
            cost.name,
            cost.shapes,
            f"{cost.calls:g}",
            f"{1e3 * cost.seconds:.3f}",
            f"{cost.seconds / whole:.1%}",
            "–" if cost.bytes is None else f"{cost.bytes / 1e6:.1f}",
            f"{cost.operations / 1e9:.2f}" if cost.operations else "–",
            "–" if cost.share is None else f"{cost.share:.0%}",
        )
    _print_whole(table)


def _print_whole(table: Table) -> None:
    """Print a table at its own width: a long line is better than half a number."""
    needed = Console(width=1000).measure(table).maximum
    Console(width=max(Console().width, needed)).print(table)
