"""The run folder: a configuration, weights, and what resuming needs; no pickle anywhere.

    config.json          the resolved configuration, with version and commit
    weights.safetensors  θ as it is evaluated
    state.safetensors    all that `Training` holds, the best weights by validation among it
    log.jsonl            a line every few steps, and one for each validation

Each file is replaced in one step of the file system, so a reader finds the old one or the new one,
never a part. Resuming reads `state.safetensors` alone: two files could not be replaced at once.
"""

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from mue.atomic import is_utf8, transaction, write_atomic
from mue.config.schema import Config, from_dict
from mue.errors import MueError
from mue.models.build import BACKBONES, build_network
from mue.models.heads import Heads
from mue.models.modal import Modal
from mue.models.probunet import ProbUNet
from mue.training.log import LOG, log_content
from mue.training.state import Training

CONFIG, WEIGHTS, STATE = "config.json", "weights.safetensors", "state.safetensors"
_LARGEST_CONFIG = 1 << 20
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_UNUSED = {"random.cpu", "random.cuda"}  # in older states; a step seeds its own random numbers


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
    return from_dict(Config, _config_file(folder).get("config"), f"{folder / CONFIG}: config")


def origin(folder: Path) -> dict[str, Any]:
    """Version, commit and digest of the data of a run, and how it was calibrated, if it was."""
    content = _config_file(folder)
    known = {name: content.get(name) for name in ("version", "commit", "data")}
    return known | ({"calibration": content["calibration"]} if "calibration" in content else {})


def weights_digest(folder: Path) -> str:
    """sha256 of the file of weights: which model it was, to the bit."""
    with (folder / WEIGHTS).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _config_file(folder: Path) -> dict[str, Any]:
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


def save_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write tensors with a digest of their content in the header.

    The digest is the header's one entry: of several, safetensors shuffles the order, and the same
    tensors would not be the same file.
    """
    layout = torch.contiguous_format  # copied: safetensors refuses tensors that share memory
    plain = {n: t.detach().to("cpu", copy=True, memory_format=layout) for n, t in tensors.items()}
    write_atomic(path, safetensors.torch.save(plain, {"sha256": _digest(plain)}))


def load_tensors(path: Path, like: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """Read tensors. Names and shapes are compared with those of `like` before any is read."""
    if not is_utf8(path):  # safetensors could not open it
        raise RunError(f"{path} must have a name in UTF-8; rename its folder")
    if not path.is_file():
        raise RunError(f"{path.parent} has no {path.name}: train it first, or name another folder")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
            expected = shapes if like is None else {n: tuple(t.shape) for n, t in like.items()}
            for name in sorted({*shapes, *expected} - _UNUSED):
                wanted, got = (s.get(name, "absent") for s in (expected, shapes))
                if wanted != got:
                    raise RunError(
                        f"{path} holds the {path.stem} of another configuration than {CONFIG} "
                        f"beside it: {name!r} must be {wanted}, got {got}; restore the file that "
                        "belongs to it, or start in another folder"
                    )
            tensors = {name: file.get_tensor(name) for name in shapes}
    except (safetensors.SafetensorError, OSError) as error:
        raise RunError(
            f"{path} must be a whole safetensors file, and it is truncated or damaged ({error}); "
            "copy it again"
        ) from None
    if header.get("sha256") != _digest(tensors):
        raise RunError(
            f"{path} does not hold what was saved: its sha256 differs from the one in its header; "
            "copy it again"
        )
    return tensors


def _digest(tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        t = tensors[name]
        digest.update(f"{name} {t.dtype} {tuple(t.shape)}\n".encode())
        digest.update(t.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def export(
    run: Path,
    out: Path,
    *,
    half: bool = True,
    changed: dict[str, Tensor] | None = None,
    about: dict[str, Any] | None = None,
) -> None:
    """Copy θ, the configuration and the log of a run to a folder of their own, for others.

    Where weights were `changed` after training, `about` says how; it is saved alongside.
    """
    if load_config(run).model.backbone in BACKBONES:
        _, tensors = _load_weights(run)
    else:  # parts of its own, which only those who have them can build
        tensors = load_weights(run)
    tensors |= changed or {}
    tensors = {k: v.half() if half else v for k, v in tensors.items()}
    if bad := _not_finite(tensors):
        raise RunError(
            f"{run / WEIGHTS} holds values in {bad!r} beyond the largest of half precision, 65504; "
            "take --no-half"
        )
    content = _config_file(run) | (about or {})
    with transaction():
        save_tensors(out / WEIGHTS, tensors)
        if (run / LOG).is_file():
            write_atomic(out / LOG, log_content(run))
        write_atomic(out / CONFIG, (json.dumps(content, indent=2) + "\n").encode())


def load_network(
    folder: Path, device: torch.device, network: Modal | ProbUNet | Heads | None = None
) -> Modal | ProbUNet | Heads:
    """Read θ as it is evaluated, in float32.

    `network` receives the weights of a run that was trained with an encoder, decoder or learner of
    its own; by default the network is built from the configuration of the run.
    """
    found, tensors = _load_weights(folder, network)
    found.load_state_dict({k: v.float() for k, v in tensors.items()}, assign=True)
    found.requires_grad_(False)
    found.to(device=device, memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    return cast("Modal | ProbUNet | Heads", found.eval())


def _load_weights(
    folder: Path, network: nn.Module | None = None
) -> tuple[nn.Module, dict[str, Tensor]]:
    """θ, built without memory for its weights if it is not given, and weights that fit it."""
    if network is None:
        with torch.device("meta"):
            network = build_network(load_config(folder))
    return network, load_weights(folder, dict(network.named_parameters()))


def load_weights(folder: Path, like: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """Read θ as it is evaluated; all values are finite."""
    tensors = load_tensors(folder / WEIGHTS, like)
    for name, tensor in tensors.items():
        if tensor.dtype not in _FLOATS:
            kinds = "real numbers of 16, 32 or 64 bits"
            raise RunError(f"{folder / WEIGHTS}: {name!r} must be {kinds}, got {tensor.dtype}")
    if bad := _not_finite(tensors):
        raise RunError(
            f"{folder / WEIGHTS} must hold finite numbers, and {bad!r} has NaN or infinity; train "
            "it again with a lower train.lr, or restore the file"
        )
    return tensors


def _not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """The name of the first tensor that holds NaN or infinity."""
    return next((name for name, t in tensors.items() if not t.isfinite().all()), None)


def save_weights(folder: Path, training: Training) -> None:
    """Write the weights as they are evaluated."""
    save_tensors(folder / WEIGHTS, training.export())


def restore_weights(folder: Path, training: Training) -> None:
    """Write the weights as they are evaluated where they are missing or damaged."""
    try:
        load_weights(folder, training.export())
    except RunError:
        save_weights(folder, training)


def save_state(folder: Path, training: Training) -> None:
    """Write the weights as evaluated, then all that resuming needs.

    The first time it is the other way round: where there are weights without a state, they are not
    of a run that was killed.
    """
    first = not (folder / STATE).exists()
    if not first:
        save_weights(folder, training)
    save_tensors(folder / STATE, _state(training))
    if first:
        save_weights(folder, training)


def load_state_(folder: Path, training: Training) -> None:
    """Put `training` where it was when `save_state` was called, to the bit.

    The caller's random state is left as it was.
    """
    here = _state(training)
    tensors = load_tensors(folder / STATE, here)
    for name, tensor in here.items():
        if tensor.dtype != tensors[name].dtype:
            kinds = f"{tensor.dtype}, got {tensors[name].dtype}"
            raise RunError(f"{folder / STATE}: {name!r} must be {kinds}; restore the file")
    step, steps = int(tensors["step"]), training.config.train.steps
    if not 0 <= step <= steps:
        raise RunError(f"{folder / STATE}: its step must be in 0..{steps}, got {step}")
    for name, tensor in here.items():
        tensor.copy_(tensors[name])
    training.step = step


def _state(training: Training) -> dict[str, Tensor]:
    """Every tensor that training changes, by name. The tensors are the training's own."""
    state = {f"learner.{k}": v.detach() for k, v in training.learner.state_dict().items()}
    state |= {f"average.{k}": v for k, v in training.ema.items()}
    state |= {f"optimizer.0.{k}": v for k, v in training.optimizer.state.items()}
    if (best := training.best) is not None:
        state |= {f"best.weights.{k}": v for k, v in best.weights.items()}
        state |= {"best.score": best.score, "best.step": best.step, "best.since": best.since}
    state["step"] = torch.tensor(training.step)
    return state
