"""Which model this is: the one digest by which outputs of models are told apart."""

import dataclasses
import hashlib
import json
from pathlib import Path

from mue.runs.folder import load_config, origin
from mue.runs.weights import weights_digest


def model_digest(folder: Path) -> str:
    """sha256 of what decides the answers of a model: its weights, and its configuration.

    The weights count as the bytes of their file. The configuration counts resolved, with `modes`,
    and with what is recorded of its calibration; without `compute`, which says on what a training
    ran. The version and commit that wrote it, the digest of its data, the reasons of `auto`, the
    log and the name of the folder do not count.
    """
    config = dataclasses.asdict(load_config(folder))
    del config["compute"]
    about = {
        "weights": weights_digest(folder),
        "config": config,
        "calibration": origin(folder).get("calibration"),
    }
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
