"""Pictures of slices: raters, answers, codes, spread, reliability.

Lesions are small: most masks cover less than a hundredth of their crop. So masks are shown in a
close-up that is the same for all panels of a slice and holds every mask of them; beside it stands
the whole crop, with the frame of the close-up in it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from torch import Tensor

from mue.errors import MueError
from mue.metrics.calibration import Reliability
from mue.types import Case, Hypotheses

_INK, _ANSWER, _RATER, _SOFT, _GRID = "#1b1b1f", "#2f6fb0", "#c8452d", "#8a8a94", "#e6e6ea"
_MODELS = (_ANSWER, _RATER, "#3f8f5b", "#8a5aa8", "#c48a1a", _INK)
_TINTS = ("#ff5d3b", "#ffc23d", "#4fc3ff", "#8be36b")  # bright, to be told apart on grey
_PAGE, _CELL = 9.8, 0.7  # inches: a row of panels at the most, a panel at the most
_ANSWERS, _CODES, _COLUMNS = 8, 16, 6


def draw_cases(case: Case, hypotheses: Hypotheses, title: str) -> Figure:
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
            window = _window(drawn)
            _crop(axes[i, 0], x[i], window)
            _label(axes[i, 0], case, i, panels=1 + m)
            for j in range(m):
                _mask(axes[i, 1 + j], x[i], ys[i, j], _RATER, window)
            for j in range(k):
                ax = axes[i, 1 + m + j]
                if shown[i, j]:
                    _mask(ax, x[i], s[i, j], _ANSWER, window)
                    p = prob[i, j].item()
                    note = f"{p:.3f}" if p >= 5e-4 else "<0.001"
                    if ranked:
                        ax.set_title(note, loc="left", fontsize=7, color=_INK, pad=2.5)
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


def draw_codes(case: Case, hypotheses: Hypotheses, title: str, *, least: float = 1e-4) -> Figure:
    """A row for each slice and a column for each code: what the code makes of the slice.

    The paper's Fig. `LIDC_code_vis`. A cell is blank where the code is less probable than `least`.
    The columns are the codes that have a cell which is not, at most 16 of them, by their mean
    probability. `rest`, at the end of a row, is the probability of all that the row does not show.
    """
    if (hypotheses.code < 0).any():
        raise MueError(
            "`hypotheses` must say from which code each answer comes, got -1: a model without "
            "codes; draw its answers by draw_cases"
        )
    x, ys, s = _slices(case, hypotheses)
    code, given = hypotheses.code.detach().cpu().long(), hypotheses.prob.detach().cpu()
    prob = torch.zeros(len(x), int(code.amax()) + 1).scatter_add_(1, code, given.float())
    shown = (prob >= least) & (prob > 0)
    order = prob.mean(dim=0).argsort(descending=True, stable=True)
    order = order[shown.any(dim=0)[order]]
    if not len(order):
        raise MueError(
            f"`least` must be at most {prob.amax():.3g}, the probability of the most probable "
            f"code, got {least}"
        )
    columns, more = order[:_CODES].tolist(), len(order[_CODES:])
    rest = (1 - prob.where(shown, 0)[:, columns].sum(dim=1)).clamp_min(0)
    with mpl.rc_context({"font.size": 7}):
        figure, axes = _grid(x, 1, len(columns), lines=2)
        for i in range(len(x)):
            masks = {c: s[i, int((code[i] == c).int().argmax())] for c in columns if shown[i, c]}
            window = _window(np.stack([*ys[i], *masks.values()]))
            _crop(axes[i, 0], x[i], window)
            _label(axes[i, 0], case, i, panels=1 + len(columns))
            for ax, c in zip(axes[i, 1:-1], columns, strict=True):
                if c in masks:
                    _mask(ax, x[i], masks[c], _ANSWER, window)
                    p = prob[i, c].item()
                    note = f"{p:.4f}" if p >= 5e-5 else f"{p:.0e}"
                    ax.set_xlabel(note, fontsize=7, color=_INK, labelpad=2)
                else:
                    _blank(ax, x[i])
            _rest(axes[i, -1], f"rest\n{rest[i].item():.3f}")
        _heads(axes[0], ["CT", *(f"code {c}" for c in columns)])
        figure.suptitle(title, fontsize=10, wrap=True)
        if more:
            figure.supxlabel(f"codes left out: {more}", fontsize=7, color=_SOFT)
    return figure


def draw_spread(ged: dict[str, Float[Tensor, " b"]], title: str) -> Figure:
    """Energy distance of every slice, a row for each model, the lowest mean on top.

    The paper's Fig. `LIDC_GED_compare`: a dot is a slice, the triangle their mean. The bar is the
    middle half of the slices, its notch the median, and above it their histogram. A model has the
    colour of its place in `ged`, so that it has the same one in `draw_reliability`.
    """
    if not ged:
        raise MueError("`ged` must hold the energy distances of at least one model, got none")
    values = {name: v.detach().cpu().double().numpy() for name, v in ged.items()}
    names = sorted(values, key=lambda name: values[name].mean())
    colour_of = dict(zip(values, itertools.cycle(_MODELS), strict=False))
    everything = np.concatenate([[0.0, 1e-6], *values.values()])
    edges = np.linspace(everything.min(), everything.max(), 49)
    share = {name: np.histogram(v, edges)[0] / len(v) for name, v in values.items()}
    tallest = max(s.max() for s in share.values())
    with mpl.rc_context({"font.size": 9, "axes.edgecolor": _SOFT}):
        figure = Figure(figsize=(7.2, 0.85 * len(names) + 1.25), layout="constrained")
        ax = figure.subplots()
        spread = np.random.default_rng(0)
        for row, name in enumerate(names):
            v, colour, base = values[name], colour_of[name], row - 0.1
            hill = base - 0.5 * share[name] / tallest
            ax.stairs(hill, edges, baseline=base, fill=True, color=colour, alpha=0.25)
            ax.stairs(hill, edges, baseline=base, color=colour, linewidth=0.7)
            at = row + spread.uniform(0.08, 0.32, len(v))
            alpha = float(np.clip(60 / len(v), 0.12, 0.6))
            ax.scatter(v, at, s=5, color=colour, alpha=alpha, linewidths=0)
            low, middle, high = np.quantile(v, [0.25, 0.5, 0.75])
            ax.plot([low, high], [row, row], color=colour, linewidth=4, solid_capstyle="butt")
            ax.plot(middle, row, "|", color="white", markersize=4, markeredgewidth=1.2)
            ax.plot(v.mean(), row, "^", color=_INK, markersize=6, mec="white", mew=0.6, zorder=4)
            note = f"mean {v.mean():.3f}\nstd {v.std():.3f}"
            ax.annotate(note, (1.01, row), xycoords=("axes fraction", "data"), va="center")
        ax.set_yticks(range(len(names)), names)
        ax.set_ylim(len(names) - 0.6, -0.7)
        ax.margins(x=0.02)
        ax.set_xlabel("energy distance of a slice")
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="x", color=_GRID, linewidth=0.6)
        ax.set_axisbelow(True)
        ax.spines[["top", "right", "left"]].set_visible(False)
        figure.suptitle(title, fontsize=10)
    return figure


def draw_reliability(curves: dict[str, Reliability], title: str) -> Figure:
    """Share of raters who drew a lesion over its predicted probability, and how often each.

    On the diagonal a probability means what it says. The area of a mark is proportional to the
    number of slices in its bin, which the histogram below gives.
    """
    if not curves:
        raise MueError("`curves` must hold the reliability of at least one model, got none")
    colours = list(itertools.islice(itertools.cycle(_MODELS), len(curves)))
    with mpl.rc_context({"font.size": 9, "axes.edgecolor": _SOFT}):
        figure = Figure(figsize=(4.6, 6.0), layout="constrained")
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(3.4, 1))
        top.plot([0, 1], [0, 1], "--", color=_SOFT, linewidth=0.9, zorder=1)
        for colour, curve in zip(colours, curves.values(), strict=True):
            count = curve.count.cpu().numpy()
            full = count > 0
            at, share = curve.predicted.cpu().numpy()[full], curve.share.cpu().numpy()[full]
            top.plot(at, share, color=colour, linewidth=1, alpha=0.8, zorder=2)
            area = 600 * count[full] / count.sum()
            top.scatter(at, share, s=area, color=colour, alpha=0.6, linewidths=0, zorder=3)
            edges = np.linspace(0, 1, len(count) + 1)
            if len(curves) == 1:
                bottom.stairs(count, edges, fill=True, color=colour, alpha=0.3)
            bottom.stairs(count, edges, color=colour, linewidth=1)
        top.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
        top.set_ylabel("share of raters who drew one")
        bottom.set(xlabel="predicted probability of a lesion", ylabel="slices")
        for ax in (top, bottom):
            ax.grid(color=_GRID, linewidth=0.6)
            ax.set_axisbelow(True)
            ax.spines[["top", "right"]].set_visible(False)
        handles = [Line2D([], [], color=c, marker="o", markersize=5) for c in colours]
        handles.append(Line2D([], [], color=_SOFT, linestyle="--"))
        labels = [*curves, "calibrated"]
        longest = max(len(name) for name in curves)
        columns = max(1, min(len(curves), 48 // (longest + 8)))  # what fits the width
        figure.legend(
            handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=8
        )
        figure.suptitle(title, fontsize=10)
    return figure


def draw_sheet(
    images: UInt8[Tensor, "n h w"],
    masks: Bool[Tensor, "n r h w"],
    names: Sequence[str],
    title: str,
) -> Figure:
    """A contact sheet: slices with the contours of all of their raters, the name beneath.

    A contour that two raters share shows the colours of both, the later within the earlier. Each
    slice is a close-up of at least half its crop.
    """
    n, r, h, w = masks.shape
    if len(names) != n:
        raise MueError(f"`names` must name each of the {n} slices, got {len(names)} names")
    columns = min(n, _COLUMNS)
    rows = -(-n // columns)
    side = 1.6 if n > 1 else 3.2
    with mpl.rc_context({"font.size": 7}):
        figure = Figure(
            figsize=(side * columns + 0.2, rows * (side * h / w + 0.32) + 0.6), layout="constrained"
        )
        axes = np.asarray(figure.subplots(rows, columns, squeeze=False)).flatten()
        for ax in axes[n:]:
            ax.set_axis_off()
        for i, ax in enumerate(axes[:n]):
            mask = masks[i].cpu().numpy()
            _image(ax, images[i].cpu().numpy() / 255, _window(mask, least=0.5))
            for j in range(r):
                if mask[j].any():
                    _contour(ax, mask[j], _TINTS[j % len(_TINTS)], 0.6 + 1.4 * (r - 1 - j) / r)
            drew = int(mask.any(axis=(1, 2)).sum())
            ax.set_xlabel(f"{_tail(names[i])}\n{drew} of {r} drew", labelpad=2, linespacing=1.3)
        handles = [Line2D([], [], color=_TINTS[j % len(_TINTS)], lw=2) for j in range(r)]
        labels = [f"rater {j + 1}" for j in range(r)]
        figure.legend(handles, labels, loc="outside lower center", ncols=min(r, 8), frameon=False)
        figure.suptitle(title, fontsize=10)
    return figure


# --- panels ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Window:
    """The part of a slice that a panel shows, in pixels."""

    top: float
    left: float
    height: float
    width: float


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


def _window(masks: Bool[np.ndarray, "m h w"], *, least: float = 0.25) -> _Window:
    """The smallest part of a slice, of its shape, with all masks and a margin around them."""
    h, w = masks.shape[1:]
    _, rows, columns = masks.nonzero()
    if not len(rows):
        return _Window(0.0, 0.0, float(h), float(w))
    extent = max((np.ptp(rows) + 1) / h, (np.ptp(columns) + 1) / w)
    scale = min(1.0, max(least, 1.3 * extent))
    height, width = float(scale * h), float(scale * w)
    top = np.clip((rows.min() + rows.max() + 1 - height) / 2, 0, h - height)
    left = np.clip((columns.min() + columns.max() + 1 - width) / 2, 0, w - width)
    return _Window(float(top), float(left), height, width)


def _image(ax: Axes, x: Float[np.ndarray, "h w"], window: _Window) -> None:
    ax.imshow(x, cmap="gray", vmin=0, vmax=1)
    ax.set_xlim(window.left - 0.5, window.left + window.width - 0.5)
    ax.set_ylim(window.top + window.height - 0.5, window.top - 0.5)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)


def _crop(ax: Axes, x: Float[np.ndarray, "h w"], window: _Window) -> None:
    """The whole crop, with the frame of the close-up."""
    h, w = x.shape
    _image(ax, x, _Window(0.0, 0.0, float(h), float(w)))
    if window.height < h:
        corner = window.left - 0.5, window.top - 0.5
        ax.add_patch(Rectangle(corner, window.width, window.height, fill=False, ec="white", lw=0.6))


def _mask(
    ax: Axes,
    x: Float[np.ndarray, "h w"],
    mask: Bool[np.ndarray, "h w"],
    colour: str,
    window: _Window,
) -> None:
    """A close-up with a mask in it, or with the word that there is none."""
    _image(ax, x, window)
    if mask.any():
        _contour(ax, mask, colour, 0.9, fill=0.28)
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
            bbox={"facecolor": _INK, "alpha": 0.6, "linewidth": 0, "pad": 1.2},
        )


def _blank(ax: Axes, x: Float[np.ndarray, "h w"]) -> None:
    """Nothing, of the shape of a panel."""
    ax.set_box_aspect(x.shape[0] / x.shape[1])
    ax.set_axis_off()


def _contour(
    ax: Axes, mask: Bool[np.ndarray, "h w"], colour: str, width: float, *, fill: float = 0.0
) -> None:
    """The outline of a mask that is not empty; a border of nothing closes it at the edges."""
    h, w = mask.shape
    z = np.pad(mask.astype(float), 1)
    at = np.arange(-1, w + 1), np.arange(-1, h + 1)
    if fill:
        ax.contourf(*at, z, levels=[0.5, 1.5], colors=[colour], alpha=fill)
    ax.contour(*at, z, levels=[0.5], colors=[colour], linewidths=width)


def _rest(ax: Axes, text: str) -> None:
    ax.set_axis_off()
    ax.text(0, 0.5, text, transform=ax.transAxes, va="center", color=_SOFT)


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
            color=_INK,
        )


def _label(ax: Axes, case: Case, i: int, *, panels: int) -> None:
    """The name of a slice and its patient, once where it is in the name, above some panels."""
    name, patient = case.id[i], case.group[i]
    text = _tail(name if patient in name else f"{patient}  {name}", min(13 * panels, 64))
    label = ax.annotate(
        text,
        (0, 1),
        (0, 2.5),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=6.5,
        color=_SOFT,
    )
    label.set_in_layout(False)  # it may be wider than its panel, and must not widen the column


def _tail(name: str, most: int = 26) -> str:
    """The end of a name: where names are long, they differ there."""
    return name if len(name) <= most else f"…{name[1 - most :]}"
