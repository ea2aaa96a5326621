"""The run folder: the names of its files, its configuration, and whether a run may take it.

    config.json          the resolved configuration, with version and commit
    weights.safetensors  θ as it is evaluated
    state.safetensors    all that `Training` holds, the best weights by validation among it
    log.jsonl            a line every few steps, and one for each validation
    health.json          what a training says of the health of its model
    figures/             the plots

Each file is replaced in one step of the file system, so a reader finds the old one or the new one,
never a part. No pickle anywhere.
"""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mue.config.json import from_dict
from mue.config.schema import Config
from mue.errors import MueError
from mue.runs.log import LOG
from mue.runtime.atomic import UNFINISHED, write_atomic

CONFIG, WEIGHTS, STATE = "config.json", "weights.safetensors", "state.safetensors"
HEALTH, FIGURES = "health.json", "figures"
_LARGEST_CONFIG = 1 << 20


class RunError(MueError):
    """A run folder cannot be used as asked."""


def commit() -> str | None:
    """The commit of the source tree this package runs from, if it runs from one.

    For a tree that was copied without its history, the variable MUE_COMMIT gives it.
    """
    if given := os.environ.get("MUE_COMMIT"):
        return given
    package = Path(__file__).resolve().parents[1]
    try:
        # installed into an environment, the package may lie in the repository of a user
        if Path(_git(package, "rev-parse", "--show-toplevel")) / "src" / "mue" != package:
            return None
        return _git(package, "describe", "--always", "--dirty", "--abbrev=12") or None
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    found = subprocess.run(command, capture_output=True, text=True, timeout=10)  # noqa: S603
    return found.stdout.strip()


def save_config(
    folder: Path,
    config: Config,
    version: str,
    data: str | None = None,
    reasons: Mapping[str, str] | None = None,
) -> None:
    """Write the resolved configuration, and the digest of the data that are learned from.

    `reasons` say of values that were chosen from the data why.
    """
    content = {"version": version, "commit": commit(), "data": data, "config": asdict(config)}
    content |= {"reasons": dict(reasons)} if reasons else {}
    write_atomic(folder / CONFIG, (json.dumps(content, indent=2) + "\n").encode())


def load_config(folder: Path) -> Config:
    """Read the configuration of a run."""
    return from_dict(Config, config_file(folder).get("config"), f"{folder / CONFIG}: config")


def origin(folder: Path) -> dict[str, Any]:
    """Version, commit and digest of the data of a run, and how it was calibrated, if it was."""
    content = config_file(folder)
    known = {name: content.get(name) for name in ("version", "commit", "data")}
    return known | ({"calibration": content["calibration"]} if "calibration" in content else {})


def config_file(folder: Path) -> dict[str, Any]:
    """What the configuration file of a run holds, as it is."""
    path = folder / CONFIG
    if not path.is_file():
        raise RunError(f"{folder} is no run folder: it must hold {CONFIG}; make one by `mue train`")
    if path.stat().st_size > _LARGEST_CONFIG:
        raise RunError(f"{path} must be at most {_LARGEST_CONFIG} bytes, got {path.stat().st_size}")
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} must be JSON, and it is not: {error}") from None
    if not isinstance(content, dict):
        raise RunError(f"{path} must hold an object with `config`, got {type(content).__name__}")
    return content


def check_run_folder(folder: Path, *, resume: bool) -> bool:
    """Refuse a folder that a run cannot take. Whether it holds a run already.

    A run that ended before its first checkpoint has nothing to lose: another may take its place.
    """
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} must be a folder to write a run to, and it is a file")
    names = {p.name for p in folder.iterdir()} if folder.is_dir() else set[str]()
    names = {name for name in names if not name.startswith(UNFINISHED)}
    if CONFIG in names and names <= {CONFIG, LOG, "tensorboard"}:
        load_config(folder)  # refuses one that is not of a run
        return False
    occupied = bool(names)
    if occupied and not resume:
        raise RunError(
            f"{folder} must be empty or not exist yet, and it holds files; "
            "name another folder, or go on with --resume"
        )
    return occupied
