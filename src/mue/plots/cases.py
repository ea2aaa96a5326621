"""Slices with their raters and answers.

Lesions are small: most masks cover less than a hundredth of their crop. So masks are shown in a
close-up that is the same for all panels of a slice and holds every mask of them, next to the
whole crop with the frame of the close-up in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation

from mue.errors import MueError
from mue.plots.panels import shorten, show_contour, show_slice, window_around
from mue.plots.style import BLUE, GREY, INK, RED, new_figure
from mue.types import Case, Hypotheses

_PAGE, _CELL = 9.8, 0.7  # inches: the largest width of a row of panels, and of a panel
_ANSWERS, _CODES = 8, 16
_EMPTY = {"color": "#d5d5dc", "bbox": {"facecolor": INK, "alpha": 0.6, "linewidth": 0, "pad": 1.2}}
_Mask = Bool[np.ndarray, "h w"]


def plot_cases(case: Case, hypotheses: Hypotheses, title: str) -> Figure:
    """A row for each slice: the crop, the masks of its raters, and the answers.

    The paper's Fig. `LIDC_result`. Answers are cut at one half, and those of probability 0 (which
    were not kept) left out. At most the first eight are shown: `rest`, at the end of a row, is the
    probability of all that the row does not show. Answers of a model without codes are samples,
    members or heads (Fig. `LIDC_pu_supp1`): they are not ranked, and no number stands on them.
    """
    s = _masks(case, hypotheses)
    ranked = bool((hypotheses.code >= 0).all())
    prob = hypotheses.prob.detach().cpu()[:, :_ANSWERS]
    b, k = prob.shape
    answers = [[s[i, j] if prob[i, j] > 0 else None for j in range(k)] for i in range(b)]
    rest = (1 - prob.sum(dim=1)).clamp_min(0).tolist()
    ends = [f"rest\n{r:.3f}" if ranked else "not\nranked" for r in rest]
    with new_figure(title, font_size=7) as figure:
        headings = [f"answer {j + 1}" for j in range(k)]
        panels = _plot_rows(figure, case, answers, headings, ends, raters=True)
        for ax, p in zip(panels, prob.flatten().tolist(), strict=True):
            if ranked and ax.axison:
                note = f"{p:.3f}" if p >= 5e-4 else "<0.001"
                ax.set_title(note, loc="left", fontsize=7, color=INK, pad=2.5)
    return figure


def plot_codes(case: Case, hypotheses: Hypotheses, title: str, *, min_prob: float = 1e-4) -> Figure:
    """A row for each slice and a column for each code: the answer that the code decodes to.

    The paper's Fig. `LIDC_code_vis`. A cell is blank where the code has less than `min_prob`. The
    columns are the codes with a cell that is not blank, at most 16 of them, by mean probability.
    `rest`, at the end of a row, is the probability of all that the row does not show.
    """
    if (hypotheses.code < 0).any():
        raise MueError(
            "`hypotheses` must say from which code each answer comes, got -1: a model without "
            "codes; plot its answers with plot_cases"
        )
    s = _masks(case, hypotheses)
    code, given = hypotheses.code.detach().cpu().long(), hypotheses.prob.detach().cpu()
    prob = torch.zeros(len(s), int(code.amax()) + 1).scatter_add_(1, code, given.float())
    shown = (prob >= min_prob) & (prob > 0)
    order = prob.mean(dim=0).argsort(descending=True, stable=True)
    order = order[shown.any(dim=0)[order]]
    if not len(order):
        raise MueError(
            f"`min_prob` must be at most {prob.amax():.3g}, the probability of the most probable "
            f"code, got {min_prob}"
        )
    columns = order[:_CODES].tolist()
    answers = [
        [s[i, int((code[i] == c).int().argmax())] if shown[i, c] else None for c in columns]
        for i in range(len(s))
    ]
    rest = (1 - prob.where(shown, 0)[:, columns].sum(dim=1)).clamp_min(0).tolist()
    with new_figure(title, font_size=7) as figure:
        headings, ends = [f"code {c}" for c in columns], [f"rest\n{r:.3f}" for r in rest]
        panels = _plot_rows(figure, case, answers, headings, ends, raters=False)
        for ax, p in zip(panels, prob[:, columns].flatten().tolist(), strict=True):
            if ax.axison:
                note = f"{p:.4f}" if p >= 5e-5 else f"{p:.0e}"
                ax.set_xlabel(note, fontsize=7, color=INK, labelpad=2)
        if more := len(order[_CODES:]):
            figure.supxlabel(f"codes left out: {more}", fontsize=7, color=GREY)
    return figure


def _masks(case: Case, hypotheses: Hypotheses) -> Bool[np.ndarray, "b k h w"]:
    """The answers as masks: their probabilities cut at one half."""
    x, ys, s = case.x, case.ys, hypotheses.y
    if not (x.ndim == 4 and x.shape[1] == 1 and ys.ndim == s.ndim == 5 and len(s) == len(x)):
        raise MueError(
            "`case` must hold slices, b 1 h w, with masks, b m 1 h w, and `hypotheses` answers to "
            f"them, b k 1 h w; got {tuple(x.shape)}, {tuple(ys.shape)} and {tuple(s.shape)}"
        )
    return (s > 0.5).any(dim=2).cpu().numpy()


def _plot_rows(
    figure: Figure,
    case: Case,
    answers: Sequence[Sequence[_Mask | None]],
    headings: Sequence[str],
    ends: Sequence[str],
    *,
    raters: bool,
) -> list[Axes]:
    """Rows of a crop, its raters' masks if wanted, a gap, its answers, and a text at the end.

    The figure gets the size that they need. Returns the panels of the answers, row by row.
    """
    x = case.x[:, 0].detach().cpu().float().numpy()
    ys = (case.ys > 0.5).any(dim=2).cpu().numpy()
    m, k = ys.shape[1] if raters else 0, len(headings)
    b, h, w = x.shape
    ratios = [1.0] * (1 + m) + [0.16] + [1.0] * k + [0.62]
    cell, lines = min(_CELL, _PAGE / sum(ratios)), 1 if raters else 2  # of text in a row
    height = b * (cell * h / w + 0.02 + 0.11 * lines) + 0.6
    figure.set_size_inches(cell * sum(ratios) + 0.2, height)
    figure.set_layout_engine("constrained", h_pad=0.04 + 0.03 * (lines - 1))
    axes = figure.subplots(b, len(ratios), squeeze=False, width_ratios=ratios)
    for gap in axes[:, 1 + m]:
        gap.remove()
    axes = np.delete(axes, 1 + m, axis=1)
    for i, row in enumerate(axes):
        window = window_around(np.stack([*ys[i], *(a for a in answers[i] if a is not None)]))
        show_slice(row[0], x[i])
        if window.height < h:
            row[0].add_patch(Rectangle(window.p0, *window.size, fill=False, ec="white", lw=0.6))
        name, patient = case.id[i], case.group[i]
        panels = 1 + m if raters else 1 + k  # which the name may span
        name = shorten(name if patient in name else f"{patient}  {name}", min(13 * panels, 64))
        label = _annotate(row[0], name, (0.0, 1.0), 2.5, fontsize=6.5, color=GREY)
        label.set_in_layout(False)  # it may be wider than its panel, and must not widen the column
        masks, colours = [*ys[i][:m], *answers[i]], [RED] * m + [BLUE] * k
        for ax, mask, colour in zip(row[1:-1], masks, colours, strict=True):
            if mask is None:  # a blank panel of the same shape
                ax.set_box_aspect(h / w)
                ax.set_axis_off()
                continue
            show_slice(ax, x[i], window)
            if mask.any():
                show_contour(ax, mask, colour, 0.9, fill=0.28)
            else:
                _annotate(ax, "empty", (0.5, 0.0), 3.0, ha="center", fontsize=6, **_EMPTY)
        row[-1].set_axis_off()
        row[-1].text(0, 0.5, ends[i], transform=row[-1].transAxes, va="center", color=GREY)
    heads = ["CT", *(f"rater {j + 1}" for j in range(m)), *headings]
    for ax, heading in zip(axes[0, :-1], heads, strict=True):
        _annotate(ax, heading, (0.5, 1.0), 14.0, ha="center", fontsize=7, color=INK)
    return list(axes[:, 1 + m : -1].flat)


def _annotate(ax: Axes, text: str, at: tuple[float, float], up: float, **style: Any) -> Annotation:
    """A text `up` points above a place in a panel, given as fractions of its width and height."""
    units: Any = {"xycoords": "axes fraction", "textcoords": "offset points"}
    return ax.annotate(text, at, (0, up), **units, **style)
