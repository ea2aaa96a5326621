"""Slices with their raters and answers.

Lesions are small: most masks cover less than a hundredth of their crop. So masks are shown in a
close-up that is the same for all panels of a slice and holds every mask of them; beside it stands
the whole crop, with the frame of the close-up in it.
"""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
import torch
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from mue.errors import MueError
from mue.plots.panels import Window, shorten, show_contour, show_slice, window_around
from mue.plots.style import BLUE, GREY, INK, RED
from mue.types import Case, Hypotheses

_PAGE, _CELL = 9.8, 0.7  # inches: a row of panels at the most, a panel at the most
_ANSWERS, _CODES = 8, 16


def plot_cases(case: Case, hypotheses: Hypotheses, title: str) -> Figure:
    """A row for each slice: the crop, what its raters drew, and the answers with probabilities.

    The paper's Fig. `LIDC_result`. Answers are cut at one half, and those of probability 0 (which
    were not kept) left out. At most the first eight are shown: `rest`, at the end of a row, is the
    probability of all that the row does not show. Answers of a model without codes are samples,
    members or heads (Fig. `LIDC_pu_supp1`): they are not ranked, and no number stands on them.
    """
    x, ys, s = _slices(case, hypotheses)
    ranked = bool((hypotheses.code >= 0).all())
    prob = hypotheses.prob.detach().cpu()[:, :_ANSWERS]
    s, shown = s[:, :_ANSWERS], prob > 0
    rest = (1 - prob.sum(dim=1)).clamp_min(0)
    b, m, k = len(x), ys.shape[1], prob.shape[1]
    with mpl.rc_context({"font.size": 7}):
        figure, axes = _grid(x, 1 + m, k, lines=1)
        for i in range(b):
            drawn = np.concatenate([ys[i], s[i][shown[i].numpy()]])
            window = window_around(drawn)
            _crop(axes[i, 0], x[i], window)
            _label(axes[i, 0], case, i, panels=1 + m)
            for j in range(m):
                _mask(axes[i, 1 + j], x[i], ys[i, j], RED, window)
            for j in range(k):
                ax = axes[i, 1 + m + j]
                if shown[i, j]:
                    _mask(ax, x[i], s[i, j], BLUE, window)
                    p = prob[i, j].item()
                    note = f"{p:.3f}" if p >= 5e-4 else "<0.001"
                    if ranked:
                        ax.set_title(note, loc="left", fontsize=7, color=INK, pad=2.5)
                else:
                    _blank(ax, x[i])
            _rest(axes[i, -1], f"rest\n{rest[i].item():.3f}" if ranked else "not\nranked")
        heads = [
            "CT",
            *(f"rater {j + 1}" for j in range(m)),
            *(f"answer {j + 1}" for j in range(k)),
        ]
        _heads(axes[0], heads)
        figure.suptitle(title, fontsize=10, wrap=True)
    return figure


def plot_codes(case: Case, hypotheses: Hypotheses, title: str, *, min_prob: float = 1e-4) -> Figure:
    """A row for each slice and a column for each code: what the code makes of the slice.

    The paper's Fig. `LIDC_code_vis`. A cell is blank where the code has less than `min_prob`. The
    columns are the codes with a cell that is not blank, at most 16 of them, by mean probability.
    `rest`, at the end of a row, is the probability of all that the row does not show.
    """
    if (hypotheses.code < 0).any():
        raise MueError(
            "`hypotheses` must say from which code each answer comes, got -1: a model without "
            "codes; plot its answers with plot_cases"
        )
    x, ys, s = _slices(case, hypotheses)
    code, given = hypotheses.code.detach().cpu().long(), hypotheses.prob.detach().cpu()
    prob = torch.zeros(len(x), int(code.amax()) + 1).scatter_add_(1, code, given.float())
    shown = (prob >= min_prob) & (prob > 0)
    order = prob.mean(dim=0).argsort(descending=True, stable=True)
    order = order[shown.any(dim=0)[order]]
    if not len(order):
        raise MueError(
            f"`min_prob` must be at most {prob.amax():.3g}, the probability of the most probable "
            f"code, got {min_prob}"
        )
    columns, more = order[:_CODES].tolist(), len(order[_CODES:])
    rest = (1 - prob.where(shown, 0)[:, columns].sum(dim=1)).clamp_min(0)
    with mpl.rc_context({"font.size": 7}):
        figure, axes = _grid(x, 1, len(columns), lines=2)
        for i in range(len(x)):
            masks = {c: s[i, int((code[i] == c).int().argmax())] for c in columns if shown[i, c]}
            window = window_around(np.stack([*ys[i], *masks.values()]))
            _crop(axes[i, 0], x[i], window)
            _label(axes[i, 0], case, i, panels=1 + len(columns))
            for ax, c in zip(axes[i, 1:-1], columns, strict=True):
                if c in masks:
                    _mask(ax, x[i], masks[c], BLUE, window)
                    p = prob[i, c].item()
                    note = f"{p:.4f}" if p >= 5e-5 else f"{p:.0e}"
                    ax.set_xlabel(note, fontsize=7, color=INK, labelpad=2)
                else:
                    _blank(ax, x[i])
            _rest(axes[i, -1], f"rest\n{rest[i].item():.3f}")
        _heads(axes[0], ["CT", *(f"code {c}" for c in columns)])
        figure.suptitle(title, fontsize=10, wrap=True)
        if more:
            figure.supxlabel(f"codes left out: {more}", fontsize=7, color=GREY)
    return figure


def _slices(
    case: Case, hypotheses: Hypotheses
) -> tuple[Float[np.ndarray, "b h w"], Bool[np.ndarray, "b m h w"], Bool[np.ndarray, "b k h w"]]:
    """Crops, raters' masks and answers as arrays, the probabilities cut at one half."""
    x, ys, s = case.x, case.ys, hypotheses.y
    if not (x.ndim == 4 and x.shape[1] == 1 and ys.ndim == s.ndim == 5 and len(s) == len(x)):
        raise MueError(
            "`case` must hold slices, b 1 h w, with masks, b m 1 h w, and `hypotheses` answers to "
            f"them, b k 1 h w; got {tuple(x.shape)}, {tuple(ys.shape)} and {tuple(s.shape)}"
        )
    return (
        x[:, 0].detach().cpu().float().numpy(),
        (ys > 0.5).any(dim=2).cpu().numpy(),
        (s > 0.5).any(dim=2).cpu().numpy(),
    )


def _grid(
    x: Float[np.ndarray, "b h w"], left: int, right: int, *, lines: int
) -> tuple[Figure, np.ndarray]:
    """Panels in two blocks with a gap between them, and a column of text at the end.

    Each row has room for so many lines of text.
    """
    b, h, w = x.shape
    ratios = [1.0] * left + [0.16] + [1.0] * right + [0.62]
    cell = min(_CELL, _PAGE / sum(ratios))
    height = b * (cell * h / w + 0.02 + 0.11 * lines) + 0.6
    figure = Figure(figsize=(cell * sum(ratios) + 0.2, height))
    figure.set_layout_engine("constrained", h_pad=0.04 + 0.03 * (lines - 1))
    grid = figure.add_gridspec(b, len(ratios), width_ratios=ratios)
    places = [j for j in range(len(ratios)) if j != left]
    axes = [[figure.add_subplot(grid[i, j]) for j in places] for i in range(b)]
    return figure, np.array(axes, dtype=object)


def _crop(ax: Axes, x: Float[np.ndarray, "h w"], window: Window) -> None:
    """The whole crop, with the frame of the close-up."""
    h, w = x.shape
    show_slice(ax, x, Window(0.0, 0.0, float(h), float(w)))
    if window.height < h:
        corner = window.left - 0.5, window.top - 0.5
        ax.add_patch(Rectangle(corner, window.width, window.height, fill=False, ec="white", lw=0.6))


def _mask(
    ax: Axes,
    x: Float[np.ndarray, "h w"],
    mask: Bool[np.ndarray, "h w"],
    colour: str,
    window: Window,
) -> None:
    """A close-up with a mask in it, or with the word that there is none."""
    show_slice(ax, x, window)
    if mask.any():
        show_contour(ax, mask, colour, 0.9, fill=0.28)
    else:
        ax.annotate(
            "empty",
            (0.5, 0),
            (0, 3),
            xycoords="axes fraction",
            textcoords="offset points",
            ha="center",
            fontsize=6,
            color="#d5d5dc",
            bbox={"facecolor": INK, "alpha": 0.6, "linewidth": 0, "pad": 1.2},
        )


def _blank(ax: Axes, x: Float[np.ndarray, "h w"]) -> None:
    """Nothing, of the shape of a panel."""
    ax.set_box_aspect(x.shape[0] / x.shape[1])
    ax.set_axis_off()


def _rest(ax: Axes, text: str) -> None:
    ax.set_axis_off()
    ax.text(0, 0.5, text, transform=ax.transAxes, va="center", color=GREY)


def _heads(axes: np.ndarray, heads: Sequence[str]) -> None:
    """Headings of the columns, above whatever stands above the first row."""
    for ax, head in zip(axes[: len(heads)], heads, strict=True):
        ax.annotate(
            head,
            (0.5, 1),
            (0, 14),
            xycoords="axes fraction",
            textcoords="offset points",
            ha="center",
            fontsize=7,
            color=INK,
        )


def _label(ax: Axes, case: Case, i: int, *, panels: int) -> None:
    """The name of a slice and its patient, once where it is in the name, above some panels."""
    name, patient = case.id[i], case.group[i]
    text = shorten(name if patient in name else f"{patient}  {name}", min(13 * panels, 64))
    label = ax.annotate(
        text,
        (0, 1),
        (0, 2.5),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=6.5,
        color=GREY,
    )
    label.set_in_layout(False)  # it may be wider than its panel, and must not widen the column
