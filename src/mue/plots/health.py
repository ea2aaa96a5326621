"""Each code's typical answer, with its share of the prior and of the known answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mue.errors import MueError
from mue.evaluation.health import CodeHealth, HealthReport
from mue.plots.panels import (
    as_shown,
    foreground,
    show_blank,
    show_mask,
    show_picture,
    show_slice,
    window_around,
)
from mue.plots.style import (
    BLUE,
    GREY,
    INK,
    RED,
    SMALL,
    legend_below,
    new_figure,
    save_figure,
    style_axes,
)

_CODES = 12
_PAGE = 9.8  # inches


def plot_health(report: HealthReport, title: str) -> Figure:
    """A column for each code in use, the most probable first, and below it the code's share.

    A column has the answers of the code to a few inputs, and is marked in red where there is a
    finding about the code. Answers to images of patients are masks, shown on
    their slice. Vectors of two numbers are points; of longer ones only the shares are shown.
    """
    if not report.codes:
        raise MueError("`report` must be of a model with codes, got one without")
    codes, case = report.codes[:_CODES], report.case
    b, columns, images = len(case.x), len(codes) + 1, case.ys.ndim == 5
    h, w = case.x.shape[-2:] if images else (1, 1)
    cell = min(1.9 if w > 1.5 * h else 1.1, _PAGE / columns)
    height = cell * h / w + 0.1 if images else 2.6
    rows = (b if images else 1) if images or case.ys.shape[-1] == 2 else 0
    size = cell * columns + 0.4 if images else 2.7 * max(b, 2), rows * height + 2.6
    with new_figure("\n".join((title, report.verdict, *report.notes)), size) as figure:
        grid = figure.add_gridspec(rows + 1, columns, height_ratios=[height] * rows + [1.3])
        shares = figure.add_subplot(grid[rows, 1:] if images else grid[rows, :])
        _show_shares(shares, report, codes)
        legend_below(figure, 2)
        if images:
            axes = [[figure.add_subplot(grid[i, j]) for j in range(columns)] for i in range(b)]
            _show_images(np.array(axes), report, codes, outlines=case.patients)
        elif rows:
            points = grid[0, :].subgridspec(1, b)
            _show_points([figure.add_subplot(points[i]) for i in range(b)], report, codes)
        if more := len(report.codes) - len(codes):
            shares.set_xlabel(f"codes left out: {more}", fontsize=SMALL, color=GREY)
    return figure


def save_health(report: HealthReport, path: Path, title: str) -> list[Path]:
    """Write the figure of a model; one without codes has none."""
    if not report.codes:
        return []
    return [save_figure(plot_health(report, title), path)]


def _label(report: HealthReport, c: CodeHealth) -> tuple[str, str]:
    """The name of a code with what is to be known of it, and the colour: red where it is wrong."""
    kinds = [f.kind for f in report.findings if c.code in f.codes]
    if "blend" in kinds:
        note = f"blends {c.blends:.0%}"
    else:
        note = f"same as {', '.join(map(str, c.duplicates))}" if c.duplicates else ""
    return f"code {c.code}\n{note}", RED if kinds else INK


def _show_shares(ax: Axes, report: HealthReport, codes: tuple[CodeHealth, ...]) -> None:
    at = np.arange(len(codes))
    for shift, colour, name in ((-0.2, BLUE, "prior"), (0.2, GREY, "frequency")):
        values = [getattr(c, name) for c in codes]
        bars = ax.bar(at + shift, values, 0.36, color=colour, label=name)
        ax.bar_label(bars, fmt="%.2f", fontsize=SMALL - 1, color=INK)
    labels = [_label(report, c) for c in codes]
    ax.set_xticks(at, [text for text, _ in labels], fontsize=SMALL)
    for tick, (_, colour) in zip(ax.get_xticklabels(), labels, strict=True):
        tick.set_color(colour)
    ax.set(xlim=(-0.5, len(codes) - 0.5), ylabel="share")
    ax.margins(y=0.15)
    style_axes(ax, grid="y")


def _show_images(
    axes: Any, report: HealthReport, codes: tuple[CodeHealth, ...], *, outlines: bool
) -> None:
    case, h = report.case, report.hypotheses
    for i, row in enumerate(axes):
        masks, x = foreground(torch.cat([h.y[i], case.ys[i]])), as_shown(case.x[i])
        window = window_around(masks, min_share=0.4)
        if outlines:
            show_slice(row[0], x, window)
        else:
            show_picture(row[0], case.x[i])
        row[0].spines[:].set(visible=True, edgecolor=RED, linewidth=1.2)
        for ax, c in zip(row[1:], codes, strict=True):
            (answer,) = (h.code[i] == c.code).nonzero(as_tuple=True)
            if not len(answer):  # it was too improbable for this input to be decoded
                show_blank(ax, (case.x.shape[-2], case.x.shape[-1]))
            elif outlines:
                show_slice(ax, x, window)
                show_mask(ax, masks[answer[0]], masks[:0], BLUE)
            else:
                show_picture(ax, h.y[i, answer[0]])
    axes[0, 0].set_title("input")


def _show_points(axes: list[Axes], report: HealthReport, codes: tuple[CodeHealth, ...]) -> None:
    case, h = report.case, report.hypotheses
    for i, ax in enumerate(axes):
        known = case.ys[i, case.q[i] > 0]
        ax.plot(*known.T, "o", mfc="none", mec=GREY, markersize=13, ls="", zorder=1)
        limit, placed = 1.25 * float(torch.cat([known, h.y[i]]).abs().max()), torch.zeros(0, 2)
        for c in codes:
            (answer,) = (h.code[i] == c.code).nonzero(as_tuple=True)
            if not len(answer):
                continue
            y, prob = h.y[i, answer[0]], h.prob[i, answer[0]].item()
            colour = BLUE if _label(report, c)[1] == INK else RED
            ax.scatter(*y, s=10 + 250 * prob, color=colour, alpha=0.6, linewidths=0)
            near = int(((placed - y).norm(dim=1) < 0.05 * limit).sum())  # labels beside one another
            offset: Any = {"textcoords": "offset points", "xytext": (8 + 8 * near, 5)}
            ax.annotate(str(c.code), (y[0].item(), y[1].item()), fontsize=SMALL, **offset)
            placed = torch.cat([placed, y[None]])
        ax.set(xlim=(-limit, limit), ylim=(-limit, limit), aspect="equal", title=case.group[i])
        ax.spines[["top", "right"]].set_visible(False)
