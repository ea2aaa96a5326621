"""What a training is made of: device, data, inputs held back and learner, found and checked."""

import dataclasses
from collections.abc import Sized
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from mue.config.schema import Config
from mue.data.build import build_source, check_shapes
from mue.data.prepared.open import open_prepared, verify_prepared
from mue.data.source import Source
from mue.errors import MueError
from mue.models.learner import Learner
from mue.nn.backbone import Backbone
from mue.runtime.collectives import env_int
from mue.runtime.devices import choose_device
from mue.training.state import seeded_learner

OWN = "own"
"""What config.json says in place of the name of a data set or a backbone of one's own."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a training.

    Attributes:
        config: The configuration, in which parts of one's own are named so.
        device: Where the data set is, and the training will be.
        source: What is trained on.
        validation: Inputs that are not trained on, if there are any.
        learner: The networks, with fresh weights.
        digest: That of the prepared data, where these are read.
    """

    config: Config
    device: torch.device
    source: Source
    validation: Source | None
    learner: Learner
    digest: str | None


def find_parts(
    config: Config,
    data: str | Path | None,
    source: Source | None,
    validation: Source | None,
    backbone: Backbone | None,
    learner: Learner | None,
) -> Parts:
    """The parts that a configuration names, or those given; refused where they do not fit."""
    if source is not None:
        config = dataclasses.replace(config, data=dataclasses.replace(config.data, name=OWN))
    if backbone is not None or learner is not None:
        model = dataclasses.replace(config.model, backbone=OWN)
        config = dataclasses.replace(config, model=model)
    device, source = _source(config, data, source)
    if data is not None:
        verify_prepared(data)
    digest = None if data is None else open_prepared(data).digest
    learner = _complete(seeded_learner(config, backbone) if learner is None else learner)
    first = torch.tensor([0])
    check_shapes(config, source.pair(first), learner.network.axes)
    held_back = _validation(config, data, device, validation)
    if validation is not None:
        check_shapes(config, validation.case(first), learner.network.axes)
    return Parts(config, device, source, held_back, learner, digest)


def _source(
    config: Config, data: str | Path | None, source: Source | None
) -> tuple[torch.device, Source]:
    """The device to train on and the data set, which must be on it."""
    if source is None:
        device = choose_device(config.compute.device, env_int("LOCAL_RANK", 0))
        seed, resident = config.train.seed, config.compute.resident
        return device, build_source(
            config.data, "train", seed=seed, device=device, data=data, resident=resident
        )
    if data is not None:
        raise MueError(f"`data` must be left out where `source` is given, got {data}")
    if config.compute.device not in ("auto", source.device.type):
        raise MueError(
            f"`source` must be on compute.device, {config.compute.device}, got one on "
            f"{source.device}; build it there, or take compute.device auto"
        )
    return source.device, source


def _validation(
    config: Config, data: str | Path | None, device: torch.device, given: Source | None
) -> Source | None:
    """Inputs that are not trained on, to validate, calibrate and judge the model with.

    None where there are no such inputs and neither validation nor calibration asks for them.
    """
    t, own = config.train, config.data.name == OWN
    if given is not None and not own:
        raise MueError(
            "`validation` must be left out without `source`: inputs to validate the data "
            f"{config.data.name!r} with are those of their val split"
        )
    if given is not None and isinstance(given, Sized) and not len(given):
        raise MueError("`validation` must hold at least one input, got none")
    needed = t.validate_every or t.calibrate
    if own and given is None:
        if not needed:
            return None
        raise MueError(
            "`validation` must be a Source with inputs that `source` does not hold, for "
            f"train.validate_every {t.validate_every} and train.calibrate {t.calibrate}; "
            f"give one, or train without by {_without_validation(config)}"
        )
    try:
        return given or validation_source(config, data, device)
    except MueError as error:
        if not needed:
            return None
        raise MueError(f"{error}; to train without take {_without_validation(config)}") from None


def _without_validation(config: Config) -> str:
    """The options that turn off what asks for inputs that are held back."""
    t = config.train
    options = {
        "--train.validate-every 0": t.validate_every,
        "--train.patience 0": t.patience,
        "--train.no-calibrate": t.calibrate,
    }
    return " ".join(option for option, value in options.items() if value)


def _complete(learner: Learner) -> Learner:
    """A learner whose network is saved completely: only parameters are averaged and exported."""
    network = learner.network
    if not (isinstance(learner, nn.Module) and isinstance(network, nn.Module)):
        raise MueError(f"a learner and its network must be nn.Modules, got {type(learner)}")
    if buffers := [name for name, _ in network.named_buffers()]:
        raise MueError(
            f"a network must keep its state in parameters, got the buffer {buffers[0]!r}; "
            "take a normalization without running statistics, such as GroupNorm"
        )
    return learner


def validation_source(config: Config, data: str | Path | None, device: torch.device) -> Source:
    """The val split of the data of a configuration: other patients, or other generated inputs."""
    seed, resident = config.train.seed, config.compute.resident
    return build_source(config.data, "val", seed=seed, device=device, data=data, resident=resident)
