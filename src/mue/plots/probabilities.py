"""Probabilities of modes, predicted and true."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Bool
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from mue.evaluation.known import ModeEvaluation
from mue.evaluation.latents import LatentSamples
from mue.plots.style import BLUE, INK, RED, legend_below, new_figure, style_axes


def plot_probabilities(evaluation: ModeEvaluation, title: str) -> Figure:
    """Predicted probability of each mode, by category: a dot is an input, a line the truth.

    The paper's Fig. `MNIST_stat_ours`.
    """
    categories, modes = len(set(evaluation.group)), evaluation.true.shape[1]
    jitter = np.random.default_rng(0)
    with new_figure(title, (2.2 * categories + 0.8, 3.0)) as figure:
        for ax, member in _panels(figure, evaluation.group, modes, "probability"):
            p, q = evaluation.predicted[member].numpy(), evaluation.true[member][0].numpy()
            for m in range(modes):
                at = m + 1 + jitter.uniform(-0.22, 0.22, len(p))
                ax.scatter(at, p[:, m], s=4, color=BLUE, alpha=0.4, linewidths=0, zorder=2)
                ax.hlines(q[m], m + 0.6, m + 1.4, color=RED, linewidth=1.2, zorder=1)
            ax.plot(range(1, modes + 1), p.mean(axis=0), "^", color=INK, markersize=4, zorder=4)
            ax.set_ylim(0, 1)
            style_axes(ax, grid="y")
        first = figure.axes[0]
        first.plot([], [], color=RED, label="true")
        first.plot([], [], "o", color=BLUE, markersize=3, label="one input")
        first.plot([], [], "^", color=INK, markersize=4.5, label="their mean")
        legend_below(figure, 3)
    return figure


def plot_densities(samples: LatentSamples, title: str) -> Figure:
    """Log density of each sample's latent, by the mode of the sample, with the truth.

    The paper's Fig. `MNIST_stat_pu`: on the left axis the logarithm of the density, 0 at its peak,
    a dot for the first sample of each input and a triangle for the mean over all samples; on the
    right axis the true probability of each mode and the share of the samples that are of it.
    """
    categories, modes = len(set(samples.group)), samples.true.shape[1]
    frequency, jitter = samples.frequency(), np.random.default_rng(0)
    low = float(samples.log_density[:, 0].min()) * 1.05
    with new_figure(title, (2.2 * categories + 1.4, 3.2)) as figure:
        for ax, member in _panels(figure, samples.group, modes, "log density of the latent"):
            mode, density = samples.mode[member], samples.log_density[member]
            share, right = frequency[member].mean(dim=0), ax.twinx()
            for m in range(modes):
                dots = density[:, 0][mode[:, 0] == m].numpy()
                at = m + 1 + jitter.uniform(-0.22, 0.22, len(dots))
                ax.scatter(at, dots, s=4, color=BLUE, alpha=0.4, linewidths=0)
                if (mode == m).any():
                    ax.plot(m + 1, density[mode == m].mean(), "^", color=INK, markersize=4)
                truth = float(samples.true[member][0, m])
                right.hlines(truth, m + 0.6, m + 1.4, color=RED, linewidth=1.2)
                right.plot(m + 1.3, float(share[m]), "D", mfc="white", mec=RED, markersize=4)
            ax.set_ylim(low, 0)
            right.set_ylim(0, 1)
            style_axes(ax, grid="y", hidden=["top"])
            right.spines["top"].set_visible(False)
            last = ax is figure.axes[categories - 1]
            right.tick_params(labelright=last, colors=RED)
            if last:
                right.set_ylabel("probability", color=RED)
        first = figure.axes[0]
        first.plot([], [], "o", color=BLUE, markersize=3, label="density of one sample")
        first.plot([], [], "^", color=INK, markersize=4.5, label="their mean")
        first.plot([], [], color=RED, label="true probability")
        first.plot([], [], "D", mfc="white", mec=RED, ms=4, ls="", label="share of samples")
        legend_below(figure, 4)
    return figure


def _panels(
    figure: Figure, group: Sequence[str], modes: int, label: str
) -> Iterator[tuple[Axes, Bool[Tensor, " b"]]]:
    """A panel for each category, and which inputs belong to it."""
    names = sorted(set(group))
    axes: list[Axes] = list(np.atleast_1d(figure.subplots(1, len(names), sharey=True)))
    axes[0].set_ylabel(label)
    for ax, name in zip(axes, names, strict=True):
        ax.set_title(name)
        ax.set_xticks(range(1, modes + 1))
        ax.set_xlabel("mode")
        yield ax, torch.tensor([g == name for g in group])
