"""Slices with their raters and answers.

Lesions are small: most masks cover less than a hundredth of their crop. So masks are shown in a
close-up that is the same for all panels of a slice and holds every mask of them, next to the
whole crop with the frame of the close-up in it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float
from matplotlib.figure import Figure
from torch import Tensor

from mue.errors import MueError
from mue.modes import Modes
from mue.plots.panels import (
    annotate,
    as_shown,
    foreground,
    is_ranked,
    shorten,
    show_blank,
    show_frame,
    show_mask,
    show_prob,
    show_slice,
    window_around,
)
from mue.plots.style import GREY, INK, SMALL, new_figure
from mue.types import Case, Hypotheses

_PAGE, _CELL = 9.8, 0.95  # inches: the largest width of a row of panels, and of a panel
_CODES = 16
_RATER, _MODE = "#ff6b4a", "#4aa8ff"  # bright, to contrast with grey


def plot_cases(case: Case, modes: Modes, title: str, *, limit: int = 5) -> Figure:
    """A row for each slice: the crop, the masks of its raters, and the modes of the answers.

    The paper's Fig. `LIDC_result`, by mode. A panel has the outline of the representative and
    behind it, as fine lines, those of the members. At most the first `limit` modes are shown:
    `rest`, at the end of a row, is the probability of all that the row does not show. Samples,
    members or heads that are not grouped (Fig. `LIDC_pu_supp1`) are not ranked, and have no number.
    """
    shown = modes.top(limit).cpu()
    kind = "mode" if modes.tree.height.isfinite().any() else "answer"
    headings = [f"{kind} {j + 1}" for j in range(shown.prob.shape[1])]
    answers, member = _masks(case, shown.answers), shown.member.mT.numpy()
    members = [[y[of] for of in rows] for y, rows in zip(answers, member, strict=True)]
    s, ranked = _masks(case, shown.y), is_ranked(modes)
    return _plot_rows(case, s, shown.prob, headings, title, members=members, ranked=ranked)


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
    s = _masks(case, hypotheses.y)
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
    columns = order[:_CODES]
    first = (code[:, :, None] == columns).int().argmax(dim=1).numpy()  # an answer of each code
    s = np.take_along_axis(s, first[:, :, None, None], axis=1)
    headings = [f"code {c}" for c in columns.tolist()]
    figure = _plot_rows(case, s, prob.where(shown, 0)[:, columns], headings, title)
    if more := len(order[_CODES:]):
        figure.supxlabel(f"codes left out: {more}", fontsize=SMALL, color=GREY)
    return figure


def _masks(case: Case, y: Tensor) -> Bool[np.ndarray, "b k h w"]:
    """The answers as masks: their probabilities cut at one half."""
    x, ys = case.x, case.ys
    if not (x.ndim == 4 and ys.ndim == y.ndim == 5 and len(y) == len(x)):
        raise MueError(
            "`case` must hold images, b c h w, with masks, b m c h w, and the answers to them must "
            f"be b k c h w; got {tuple(x.shape)}, {tuple(ys.shape)} and {tuple(y.shape)}"
        )
    return foreground(y)


def _plot_rows(
    case: Case,
    masks: Bool[np.ndarray, "b m h w"],
    prob: Float[Tensor, "b m"],
    headings: Sequence[str],
    title: str,
    *,
    members: Sequence[Sequence[Bool[np.ndarray, "_ h w"]]] | None = None,
    ranked: bool = True,
) -> Figure:
    """Rows of a crop, a gap, its answers (blank at probability 0) and `rest`.

    With the members of each answer go the masks of the raters, after the crop.
    """
    x, ys = [as_shown(image) for image in case.x], _masks(case, case.ys)
    b, h, w = len(x), *x[0].shape[:2]
    r = 0 if members is None else ys.shape[1]
    ratios = [1.0] * (1 + r) + [0.12] + [1.0] * len(headings) + [0.5]
    cell = min(_CELL, _PAGE / sum(ratios))
    size = cell * sum(ratios) + 0.2, b * (cell * h / w + 0.38) + 0.5
    with new_figure(title, size) as figure:
        figure.set_layout_engine("constrained", h_pad=0.03, w_pad=0.025)
        axes = figure.subplots(b, len(ratios), squeeze=False, width_ratios=ratios)
        for gap in axes[:, 1 + r]:
            gap.remove()
        axes = np.delete(axes, 1 + r, axis=1)
        for i, row in enumerate(axes):
            fine = [ys[i, :0]] * len(headings) if members is None else members[i]
            kept = masks[i, (prob[i] > 0).numpy()]
            window = window_around(np.concatenate([ys[i], kept, *fine]))
            show_slice(row[0], x[i])
            show_frame(row[0], window)
            name, patient = case.id[i], case.group[i]
            name = shorten(name if patient in name else f"{patient}  {name}", 64)
            label = annotate(row[0], name, (0.0, 1.0), 2.5, fontsize=SMALL, color=GREY)
            label.set_in_layout(False)  # it may be wider than its panel without widening it
            for ax, y, weight in zip(row[1:], ys[i, :r], case.q[i], strict=False):
                if weight == 0:
                    show_blank(ax, (h, w))
                    continue
                show_slice(ax, x[i], window)
                show_mask(ax, y, ys[i, :0], _RATER)
            for j, ax in enumerate(row[1 + r : -1]):
                if prob[i, j] == 0:
                    show_blank(ax, (h, w))
                    continue
                show_slice(ax, x[i], window)
                show_mask(ax, masks[i, j], fine[j], _MODE)
                if ranked:
                    show_prob(ax, float(prob[i, j]), _MODE)
            rest = float((1 - prob[i].sum()).clamp_min(0))
            end = f"rest\n{rest:.3f}" if ranked else "not\nranked"
            row[-1].set_axis_off()
            row[-1].text(0, 0.5, end, transform=row[-1].transAxes, va="center", color=GREY)
        heads = ["image", *(f"rater {j + 1}" for j in range(r)), *headings]
        for ax, heading in zip(axes[0, :-1], heads, strict=True):
            annotate(ax, heading, (0.5, 1.0), 14.0, ha="center", color=INK)
    return figure
