"""`dataset.json`: what nnU-Net's layout says of the images and masks of a folder."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mue.config.schema import MAX_VALUE
from mue.errors import MueError

DATASET = "dataset.json"
_MAX_JSON_BYTES = 1 << 22


@dataclass(frozen=True, slots=True)
class Description:
    """What `dataset.json` says, or what holds where there is none: one class, equal raters."""

    labels: dict[str, int] = field(default_factory=dict)  # by name, background first; or none
    channels: tuple[str, ...] = ()
    ending: str | None = None
    weights: dict[str, float] = field(default_factory=dict)  # of the raters
    known: bool = False  # whether these are the true probabilities of all answers there are

    @property
    def may_be_colours(self) -> bool:
        """Whether three channels may be red, green and blue, by their names."""
        first = [name[:1].lower() for name in self.channels]
        return len(first) < 2 or first == ["r", "g", "b"]


def read_description(source: Path) -> Description:
    """The content of `dataset.json`, if the folder has one."""
    path = source / DATASET
    if not path.is_file():
        return Description()
    try:
        if path.stat().st_size > _MAX_JSON_BYTES:
            raise MueError(f"it has {path.stat().st_size} bytes")
        content = json.loads(path.read_bytes())
        if not isinstance(content, dict):
            raise MueError("it is not a dictionary")
        channels = content.get("channel_names", content.get("modality", {}))
        weights = {str(k): float(v) for k, v in content.get("rater_weights", {}).items()}
        if any(not 0 < w < float("inf") for w in weights.values()):
            raise MueError(f"rater_weights must be positive, got {weights}")
        ending = content.get("file_ending")
        return Description(
            labels=_labels(content.get("labels", {})),
            channels=tuple(str(channels[key]) for key in sorted(channels, key=int)),
            ending=None if ending is None else str(ending),
            weights=weights,
            known=content.get("known_probabilities") is True,
        )
    except (
        ValueError,
        TypeError,
        LookupError,
        OverflowError,
        AttributeError,
        RecursionError,
    ) as error:
        raise MueError(
            f"{path} must hold channel_names, labels and file_ending as nnU-Net has them, "
            f"and does not: {error}"
        ) from None


def _labels(given: Mapping[str, Any]) -> dict[str, int]:
    """Values of the classes by their names, as nnU-Net has it since its second version."""
    if given and all(key.isdecimal() for key in given):  # the first version: names by values
        given = {str(name): key for key, name in given.items()}
    if any(isinstance(value, list | dict) for value in given.values()):
        raise MueError("labels must have one value each; regions of several are not read")
    if "ignore" in given:
        raise MueError("labels must not have `ignore`; give these pixels a class")
    labels = {name: int(str(value)) for name, value in given.items()}  # not 1.5 as 1
    labels = dict(sorted(labels.items(), key=lambda entry: entry[1]))
    if labels and (next(iter(labels.values())) != 0 or len(set(labels.values())) < len(labels)):
        raise MueError(f"labels must have different values, 0 for the background, got {labels}")
    if labels and not 2 <= len(labels) <= 255:
        raise MueError(f"labels must name the background and 1 to 254 classes, got {len(labels)}")
    if labels and max(labels.values()) > MAX_VALUE:
        raise MueError(f"labels must have values up to {MAX_VALUE}, got {max(labels.values())}")
    return labels
