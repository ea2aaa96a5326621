"""Whole jobs on prepared slices: look at them, calibrate a model by them, draw its answers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch

from mue.commands.run import home, require_empty
from mue.data.build import check_data
from mue.data.prepared.dataset import Slices
from mue.data.prepared.splits import SPLITS, Split
from mue.data.prepared.store import open_prepared
from mue.devices import Device, choose_device
from mue.errors import MueError
from mue.evaluation.calibrate import Calibration
from mue.evaluation.calibrate import calibrate as fit_prior
from mue.evaluation.raters import RaterEvaluation, evaluate_raters
from mue.inference.load import find, load
from mue.metrics.calibration import reliability
from mue.models.modal import Modal
from mue.plots.cases import plot_cases, plot_codes
from mue.plots.comparison import plot_spread
from mue.plots.contact_sheet import plot_contact_sheet
from mue.plots.history import plot_history
from mue.plots.reliability import plot_reliability
from mue.plots.style import save_figure
from mue.training import checkpoint
from mue.training.log import read_log

_EXAMPLES = 6  # slices shown in a figure of answers
_SHEET = 24  # slices shown on a contact sheet


@dataclass(frozen=True, slots=True)
class Contents:
    """What prepared slices hold.

    Attributes:
        patients: How many patients, nodules and slices.
        nodules: As said.
        slices: As said.
        drawn: How many slices have 0, 1, … masks that are not empty.
        splits: Patients and slices of each split.
        size: Height and width.
        spacing: Smallest and largest millimetres a pixel, where known.
        form: The form they were imported from.
        digest: sha256 of it all.
        sheet: Where the contact sheet is.
    """

    patients: int
    nodules: int
    slices: int
    drawn: tuple[int, ...]
    splits: dict[str, tuple[int, int]]
    size: tuple[int, int]
    spacing: tuple[float, float] | None
    form: str
    digest: str
    sheet: Path


def inspect(data: str | Path, out: str | Path | None = None, *, verify: bool = False) -> Contents:
    """Count what prepared slices hold, and draw a contact sheet of slices spread over them."""
    prepared = open_prepared(data, verify=verify)
    sheet = Path(out) if out else Path("runs") / f"{Path(data).resolve().name}-sheet.png"
    rows = prepared.rows
    filled = prepared.masks.any(axis=2).sum(axis=1)
    counts = np.bincount(filled, minlength=prepared.raters + 1)
    shown = np.unique(np.linspace(0, len(rows) - 1, _SHEET).round().astype(int))
    h, w = prepared.size
    bits = np.unpackbits(prepared.masks[shown], axis=2)[..., : h * w]
    drawing = plot_contact_sheet(
        torch.from_numpy(prepared.images[shown]),
        torch.from_numpy(bits.reshape(len(shown), -1, h, w).astype(bool)),
        [rows[i].id for i in shown],
        f"{Path(data).name}: {len(shown)} of {len(rows)} slices",
    )
    members = {split: [rows[i] for i in prepared.members(split)] for split in SPLITS}
    spacing = [row.spacing for row in rows if row.spacing is not None]
    return Contents(
        patients=len({row.patient for row in rows}),
        nodules=len({(row.patient, row.nodule) for row in rows}),
        slices=len(rows),
        drawn=tuple(counts.tolist()),
        splits={name: (len({r.patient for r in m}), len(m)) for name, m in members.items()},
        size=prepared.size,
        spacing=(min(spacing), max(spacing)) if spacing else None,
        form=str(prepared.meta.get("origin", {}).get("form", "unknown")),
        digest=prepared.digest,
        sheet=save_figure(drawing, sheet),
    )


# --- calibrate ----------------------------------------------------------------------------------


def calibrate(
    model: str | Path,
    data: str | Path,
    out: str | Path,
    *,
    half: bool = True,
    device: Device = "auto",
    watch: Callable[[int, int], None] | None = None,
) -> Calibration:
    """Fit a model's probabilities to the raters of val, and write it to a folder of its own.

    Training makes a model too sure of itself: it has seen the answers to its inputs many times. The
    patients of val are new to it, and those of test stay untouched.
    """
    folder, target = find(model), Path(out)
    predictor = load(model, device=device, half=False)  # what is exported is not to be rounded
    check_data(predictor.config.data, data)
    require_empty(target)
    prepared = open_prepared(data)
    found = fit_prior(predictor, Slices(prepared, "val", device=predictor.device), watch=watch)
    about = {
        "split": "val",
        "data": prepared.digest,
        "temperature": found.temperature,
        "shift": [round(v, 4) for v in found.shift.tolist()],
        "ged_before": found.before,
        "ged_after": found.after,
    }
    checkpoint.export(
        folder,
        target,
        half=half,
        changed=found.fold(cast("Modal", predictor.network)),
        about={"calibration": about},
    )
    return found


# --- figure -------------------------------------------------------------------------------------


def figure(
    models: Sequence[str | Path],
    data: str | Path,
    *,
    split: Split = "test",
    out: str | Path | None = None,
    device: Device = "auto",
    watch: Callable[[str, int, int], None] | None = None,
) -> list[Path]:
    """Draw what models answer to slices: ambiguous cases, answers by code, spread, reliability.

    The cases are those with the highest entropy of the first model's answers, one of a patient.
    """
    target = Path(out) if out else home(models[0]) / "figures"
    if len({Path(model).name for model in models}) < len(models):
        raise MueError("`models` must have different names, by which their figures are told apart")
    predictors = [load(model, device=device) for model in models]
    judged: dict[str, RaterEvaluation] = {}
    for model, predictor in zip(models, predictors, strict=True):
        tell = functools.partial(watch, str(model)) if watch else None
        judged[Path(model).name] = evaluate_raters(predictor, data, split=split, watch=tell)
    first = next(iter(judged.values()))
    about = f"{len(first.id)} {split} slices"
    drawn = [
        save_figure(
            plot_spread({n: a.ged for n, a in judged.items()}, f"energy distance (GED), {about}"),
            target / "spread.png",
        ),
        save_figure(
            plot_reliability(
                {n: reliability(a.presence, a.drawn) for n, a in judged.items()},
                f"presence of a lesion, {about}",
            ),
            target / "reliability.png",
        ),
    ]
    source = Slices(open_prepared(data), split, device=choose_device(device))
    for model, predictor in zip(models, predictors, strict=True):
        name = Path(model).name
        place = target if len(models) == 1 else target / name
        case = source.case(torch.tensor(_ambiguous(first, _EXAMPLES)))
        top = predictor.propose(case.x, min(8, predictor.max_answers)).cpu()
        coded = predictor.propose(case.x, predictor.codes).cpu() if predictor.codes else None
        case = case.cpu()
        title = f"{name}: the {split} slices of highest entropy"
        if not predictor.codes:
            kind = "samples" if predictor.is_sampler else "answers"
            title = (
                f"{name}: {top.prob.shape[1]} {kind}, not ranked, of {len(case.id)} {split} slices"
            )
        drawn.append(save_figure(plot_cases(case, top, title), place / "cases.png"))
        if coded is not None:
            by_code = plot_codes(case, coded, f"{name}: answers by code")
            drawn.append(save_figure(by_code, place / "codes.png"))
        if history := read_log(find(model)):
            drawn.append(save_figure(plot_history(history, name), place / "history.png"))
    return drawn


def _ambiguous(judged: RaterEvaluation, count: int) -> list[int]:
    """The slices of highest entropy, the highest first, no two of a patient."""
    chosen: dict[str, int] = {}
    for i in judged.entropy.argsort(descending=True, stable=True).tolist():
        chosen.setdefault(judged.patient[i], i)
        if len(chosen) == count:
            break
    return list(chosen.values())
