import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from mue.runs.identity import model_digest
from mue.runs.weights import load_tensors, save_tensors


def edit(folder: Path, change: dict[str, Any], section: str | None = None) -> None:
    """Write values into config.json, or into a section of its configuration."""
    content = json.loads((folder / "config.json").read_text())
    (content if section is None else content["config"][section]).update(change)
    (folder / "config.json").write_text(json.dumps(content))


def test_a_copy_is_the_same_model_wherever_it_is_and_whatever_its_log_says(folder, tmp_path):
    copy = Path(shutil.copytree(folder, tmp_path / "another name"))
    (copy / "log.jsonl").unlink()
    (copy / "state.safetensors").unlink()
    assert model_digest(copy) == model_digest(folder)


@pytest.mark.parametrize(
    ("section", "change"),
    [
        (None, {"version": "9.9", "commit": "f00", "data": "0" * 64, "reasons": {"a": "b"}}),
        ("compute", {"accumulate": 2, "device": "auto"}),
        ("modes", {"cut": 0.0, "iou": 0.5}),  # as they are by default
    ],
)
def test_what_decides_no_answer_does_not_tell_models_apart(folder, section, change):
    before = model_digest(folder)
    edit(folder, change, section)
    assert model_digest(folder) == before


@pytest.mark.parametrize(
    ("section", "change"),
    [
        ("modes", {"cut": 0.25}),
        ("modes", {"iou": 0.7}),
        ("modes", {"coverage": [0.9], "limits": [0.5]}),
        ("data", {"labels": ["lesion"]}),
        ("train", {"seed": 1}),
        (None, {"calibration": {"temperature": 1.5}}),
    ],
)
def test_the_same_weights_configured_otherwise_are_another_model(folder, section, change):
    before = model_digest(folder)
    edit(folder, change, section)
    assert model_digest(folder) != before


def test_other_weights_are_another_model(folder):
    before = model_digest(folder)
    weights = load_tensors(folder / "weights.safetensors")
    name = next(iter(weights))
    weights[name].view(-1)[0] = torch.nextafter(weights[name].view(-1)[0], torch.tensor(9.0))
    save_tensors(folder / "weights.safetensors", weights)
    assert model_digest(folder) != before
