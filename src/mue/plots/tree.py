"""How the answers to one input are joined into modes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from mue.errors import MueError
from mue.modes import Modes
from mue.plots.panels import (
    as_shown,
    foreground,
    show_frame,
    show_mask,
    show_picture,
    show_prob,
    show_slice,
    window_around,
)
from mue.plots.style import BLUE, GREEN, GREY, INK, RED, SMALL, new_figure, style_axes

_PAGE, _LEAVES = 8.6, 16  # inches, and the most leaves that they have room for
_COLOURS = (BLUE, RED, GREEN, "#8a5aa8", "#c48a1a", "#2aa5a5", "#d0679d", "#7d8b2f")
_JOINED = "#b9b9c3"  # what is joined above the cut


@dataclass(frozen=True, slots=True)
class _Node:
    """A leaf, or groups that are joined at one height, the more probable first."""

    prob: float
    height: float
    mode: int
    """That of its first leaf."""
    leaves: tuple[int, ...]
    groups: tuple[_Node, ...] = ()

    @property
    def width(self) -> float:
        """Of its branch, in points."""
        return 0.9 + 5 * self.prob


def plot_tree(
    x: Float[Tensor, "c h w"], modes: Modes, title: str, *, outlines: bool = True
) -> Figure:
    """The tree of the answers to one input, with the answers as its leaves.

    Groups are joined at their distance; a branch is as wide as its group is probable. The dashed
    line is the cut: what is joined below it is one mode, whose probability stands there. A leaf is
    an answer, or several that are the same or, where there are more than 16, nearly so: then their
    number stands below it. `rest` is the probability of what is not shown. With `outlines` answers
    are masks, shown in a close-up of x; else they are pictures.
    """
    if len(modes.prob) != 1:
        raise MueError(f"`modes` must be those of one input, got {len(modes.prob)} inputs")
    aspect = x.shape[1] / x.shape[2]
    narrow = min(1.0, 2 * aspect)  # wide pictures need more room
    modes = modes.at(modes.cut).cpu()
    level = _leaf_level(modes, int(_LEAVES * narrow))
    leaves = modes.at(level).top(int(_LEAVES * narrow))
    roots, n = _nodes(modes, leaves, level), leaves.prob.shape[1]
    cell = min(0.8 / narrow, _PAGE / n)
    with new_figure(title, (cell * n + 2.5, cell * aspect + 3.2)) as figure:
        figure.set_layout_engine("constrained", w_pad=0.03, wspace=0)
        ratios = {"width_ratios": [1.7] + [cell] * n, "height_ratios": [2.4, cell * aspect]}
        grid = figure.add_gridspec(2, 1 + n, **ratios)
        image, tree = figure.add_subplot(grid[0, 0]), figure.add_subplot(grid[0, 1:])
        masks = foreground(modes.answers[0])
        window = window_around(masks[(leaves.mode[0] >= 0).numpy()])
        show_slice(image, as_shown(x))
        image.set_xlabel(f"input\nrest {float(leaves.rest):.3f}", color=GREY)
        if outlines:
            show_frame(image, window)
        highest = 1.1 * max([modes.cut, *(root.height for root in roots)])
        tree.axhline(modes.cut, color=INK, linewidth=0.9, linestyle="--", zorder=1)
        tree.annotate("cut", (n - 0.5, modes.cut), (3, 0), textcoords="offset points", va="center")
        tree.set(xlim=(-0.5, n - 0.5), ylim=(0, highest), xticks=[], ylabel="distance")
        style_axes(tree, grid="y", hidden=["top", "right", "bottom"])
        order = [i for root in roots for i in root.leaves]
        for root in roots:
            _plot_branch(tree, root, highest, order, modes.cut)
        for column, i in enumerate(order, start=1):
            ax = figure.add_subplot(grid[1, column])
            answer, member = int(leaves.representative[0, i]), (leaves.mode[0] == i).numpy()
            colour = _colour(int(modes.mode[0, answer]))
            if outlines:
                show_slice(ax, as_shown(x), window)
                show_mask(ax, masks[answer], masks[member], colour)
            else:
                show_picture(ax, modes.answers[0, answer])
            show_prob(ax, float(leaves.prob[0, i]), colour)
            if member.sum() > 1:
                ax.set_xlabel(f"{ax.get_xlabel()}\n×{member.sum()}")
    return figure


def _colour(mode: int) -> str:
    return _COLOURS[mode] if mode < len(_COLOURS) else GREY


def _leaf_level(modes: Modes, max_leaves: int) -> float:
    """The lowest level with at most so many groups, but not above the cut."""
    height = modes.tree.height[0, modes.answer_prob[0] > 0].sort().values
    joins = len(height) - max_leaves  # until so many are left
    return 0.0 if joins < 1 else min(modes.cut, float(height[joins - 1]))


def _nodes(modes: Modes, leaves: Modes, level: float) -> list[_Node]:
    """The last groups, the most probable first: one, unless some are joined to nothing."""
    height, parent = modes.tree.height[0].tolist(), modes.tree.parent[0].tolist()
    prob, leaf, mode = leaves.prob[0].tolist(), leaves.mode[0].tolist(), modes.mode[0].tolist()
    nodes = {
        name: _Node(prob[leaf[name]], 0.0, mode[name], (leaf[name],))
        for name in set(modes.tree.groups(level)[0].tolist())
        if leaf[name] >= 0
    }
    # in a tie the later name is joined first: a group is never joined to one that is gone
    for name in sorted(range(len(height)), key=lambda j: (height[j], -j)):
        if name in nodes and height[name] < math.inf:
            node = nodes.pop(name)
            if other := nodes.get(parent[name]):
                node = _joined(other, node, height[name])
            nodes[parent[name]] = node
    return sorted(nodes.values(), key=attrgetter("prob"), reverse=True)


def _joined(a: _Node, b: _Node, height: float) -> _Node:
    """Two groups as one; what is joined at the same height already is joined with the other."""
    parts = (g.groups if g.groups and math.isclose(g.height, height) else (g,) for g in (a, b))
    groups = tuple(sorted(itertools.chain(*parts), key=attrgetter("prob"), reverse=True))
    leaves = tuple(itertools.chain(*(g.leaves for g in groups)))
    return _Node(a.prob + b.prob, height, groups[0].mode, leaves, groups)


def _plot_branch(ax: Axes, node: _Node, top: float, order: Sequence[int], cut: float) -> float:
    """A group with all that is joined in it, from its leaves up to `top`; returns where it is."""
    at = [_plot_branch(ax, group, node.height, order, cut) for group in node.groups]
    middle = (at[0] + at[-1]) / 2 if at else float(order.index(node.leaves[0]))
    is_mode, colour = node.height <= cut, _colour(node.mode)
    for x, group in zip(at, node.groups, strict=True):
        style: Any = {"color": colour if is_mode else _JOINED, "solid_capstyle": "projecting"}
        ax.plot([x, middle], [node.height] * 2, linewidth=group.width, **style)
    parts = (node.height, min(top, cut), colour), (max(node.height, cut), top, _JOINED)
    for low, high, shade in parts:
        if low < high:
            style: Any = {"color": shade, "linewidth": node.width, "solid_capstyle": "butt"}
            ax.plot([middle] * 2, [low, high], **style)
    if is_mode and cut < top:
        box: Any = {"facecolor": "white", "edgecolor": colour, "boxstyle": "round,pad=0.25"}
        style: Any = {"ha": "center", "va": "center", "fontsize": SMALL, "zorder": 4}
        ax.text(middle, cut, f"mode {node.mode + 1}\n{node.prob:.3f}", bbox=box, **style)
    return middle
