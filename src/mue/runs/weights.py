"""The weights of a run folder: safetensors files with a digest of what they hold."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from mue.models.build import BACKBONES, build_network
from mue.models.heads import Heads
from mue.models.modal import Modal
from mue.models.probunet import ProbUNet
from mue.runs.folder import CONFIG, WEIGHTS, RunError, config_file, load_config
from mue.runs.log import LOG, log_content
from mue.runtime.atomic import is_utf8, transaction, write_atomic

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_UNUSED = {"random.cpu", "random.cuda"}  # in older states; a step seeds its own random numbers


def weights_digest(folder: Path) -> str:
    """sha256 of the file of weights: which model it was, to the bit."""
    with (folder / WEIGHTS).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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


def export_run(
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
    content = config_file(run) | (about or {})
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
