"""Answers as pictures, and a sheet of all of them over the image."""

from __future__ import annotations

import numpy as np

from mue.inference.prediction import Prediction


def as_png(p: Prediction) -> dict[str, bytes]:
    """Each answer to a picture, and the sheet; of a volume the sheet alone."""
    from mue.plots.style import image_png  # drawn only where it is asked for

    found: dict[str, bytes] = {}
    if p.raw.pixels.shape[1] == 1:
        classes = p.config.objective.likelihood == "categorical"
        for j, y in enumerate(p.modes.y[0], start=1):
            values = p.config.data.values
            found[f"-{j}.png"] = image_png(y, classes=classes, class_values=values)
    return {**found, "-answers.png": _sheet(p)}


def _sheet(p: Prediction) -> bytes:
    """Masks over the image, for a volume over the slice where they differ most."""
    from mue.plots.answers import plot_answers
    from mue.plots.overlays import plot_overlays
    from mue.plots.style import figure_png

    if p.config.data.name != "slices" or p.config.objective.likelihood == "normal":
        return figure_png(plot_answers(p.x[None], p.modes, p.image.name))
    found, d = p.segmentation, p.raw.pixels.shape[1]
    s = int((found.expected * (1 - found.expected)).sum(axis=(0, 2, 3)).argmax())
    x = p.x.unflatten(1, (d, -1))[:, s].numpy()
    if p.config.data.normalize.kind != "unit":  # values of any range
        low, high = np.percentile(x, (1, 99))
        x = (x - low) / max(high - low, 1e-8)
    title = p.image.name if d == 1 else f"{p.image.name}, slice {s + 1} of {d}"
    masks, expected = found.masks[:, s], found.expected[:, s]
    return figure_png(
        plot_overlays(x.clip(0, 1), masks, found.prob, found.rest, expected, found.classes, title)
    )
