"""Probabilities of modes, predicted and true."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mue.evaluation.compare import LatentSamples
from mue.evaluation.known_modes import ModeEvaluation
from mue.plots.style import BLUE, GREY, GRID, INK, RED


def plot_probabilities(evaluation: ModeEvaluation, title: str) -> Figure:
    """Predicted probability of each mode of each category, an input a dot, beside the truth.

    The paper's Fig. `MNIST_stat_ours`.
    """
    names = sorted(set(evaluation.group))
    modes = evaluation.true.shape[1]
    with mpl.rc_context({"font.size": 9, "axes.edgecolor": GREY}):
        figure = Figure(figsize=(2.2 * len(names) + 0.8, 3.0), layout="constrained")
        axes: list[Axes] = list(np.atleast_1d(figure.subplots(1, len(names), sharey=True)))
        spread = np.random.default_rng(0)
        for ax, name in zip(axes, names, strict=True):
            member = torch.tensor([g == name for g in evaluation.group])
            p, q = evaluation.predicted[member].numpy(), evaluation.true[member][0].numpy()
            for m in range(modes):
                at = m + 1 + spread.uniform(-0.22, 0.22, len(p))
                ax.scatter(at, p[:, m], s=4, color=BLUE, alpha=0.4, linewidths=0, zorder=2)
                ax.hlines(q[m], m + 0.6, m + 1.4, color=RED, linewidth=1.2, zorder=1)
            ax.plot(range(1, modes + 1), p.mean(axis=0), "^", color=INK, markersize=4, zorder=4)
            ax.set_title(name, fontsize=10)
            ax.set_xticks(range(1, modes + 1))
            ax.set_xlabel("mode")
            ax.set_ylim(0, 1)
            ax.grid(axis="y", color=GRID, linewidth=0.6)
            ax.set_axisbelow(True)
            ax.spines[["top", "right"]].set_visible(False)
        axes[0].set_ylabel("probability")
        axes[-1].plot([], [], color=RED, label="true")
        axes[-1].plot([], [], "o", color=BLUE, markersize=3, label="one input")
        axes[-1].plot([], [], "^", color=INK, markersize=4.5, label="their mean")
        figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
        figure.suptitle(title, fontsize=10)
    return figure


def plot_densities(samples: LatentSamples, title: str) -> Figure:
    """The density of each sample's latent, by the mode that it was drawn as, beside the truth.

    The paper's Fig. `MNIST_stat_pu`: on the left axis the logarithm of the density, 0 at its peak,
    a dot for the first sample of each input and a triangle for the mean over all samples; on the
    right axis the true probability of each mode and the share of the samples that are of it.
    """
    names, frequency = sorted(set(samples.group)), samples.frequency()
    modes = samples.true.shape[1]
    low = float(samples.log_density[:, 0].min()) * 1.05
    with mpl.rc_context({"font.size": 9, "axes.edgecolor": GREY}):
        figure = Figure(figsize=(2.2 * len(names) + 1.4, 3.2), layout="constrained")
        axes: list[Axes] = list(np.atleast_1d(figure.subplots(1, len(names), sharey=True)))
        spread = np.random.default_rng(0)
        for ax, name in zip(axes, names, strict=True):
            member = torch.tensor([g == name for g in samples.group])
            mode, density = samples.mode[member], samples.log_density[member]
            share, right = frequency[member].mean(dim=0), ax.twinx()
            for m in range(modes):
                dots = density[:, 0][mode[:, 0] == m].numpy()
                at = m + 1 + spread.uniform(-0.22, 0.22, len(dots))
                ax.scatter(at, dots, s=4, color=BLUE, alpha=0.4, linewidths=0)
                if (mode == m).any():
                    ax.plot(m + 1, density[mode == m].mean(), "^", color=INK, markersize=4)
                truth = float(samples.true[member][0, m])
                right.hlines(truth, m + 0.6, m + 1.4, color=RED, linewidth=1.2)
                right.plot(m + 1.3, float(share[m]), "D", mfc="white", mec=RED, markersize=4)
            ax.set_title(name, fontsize=10)
            ax.set_xticks(range(1, modes + 1))
            ax.set_xlabel("mode")
            ax.set_ylim(low, 0)
            right.set_ylim(0, 1)
            ax.grid(axis="y", color=GRID, linewidth=0.6)
            ax.spines["top"].set_visible(False)
            right.spines["top"].set_visible(False)
            right.tick_params(labelright=ax is axes[-1], colors=RED)
            if ax is axes[-1]:
                right.set_ylabel("probability", color=RED)
        axes[0].set_ylabel("log density of the latent")
        axes[0].plot([], [], "o", color=BLUE, markersize=3, label="density of one sample")
        axes[0].plot([], [], "^", color=INK, markersize=4.5, label="their mean")
        axes[0].plot([], [], color=RED, label="true probability")
        axes[0].plot([], [], "D", mfc="white", mec=RED, ms=4, ls="", label="share of samples")
        figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8)
        figure.suptitle(title, fontsize=10)
    return figure
