import math
import subprocess
import sys
from typing import Any

import pytest
import safetensors.torch
import torch

from mue.data.synthetic.toy import Bars
from mue.runs.folder import STATE, RunError, save_config
from mue.runs.weights import load_network, load_tensors, save_tensors
from mue.training.checkpoint import load_state_, save_state
from mue.training.loop import fit
from mue.training.state import Training

CPU = torch.device("cpu")


# --- configuration --------------------------------------------------------------------------------


# --- tensors --------------------------------------------------------------------------------------


# --- half precision -------------------------------------------------------------------------------


# --- state ----------------------------------------------------------------------------------------


def state(training: Training) -> dict[str, torch.Tensor]:
    found = {f"learner.{k}": v.clone() for k, v in training.learner.state_dict().items()}
    found |= {f"average.{k}": v.clone() for k, v in training.export().items()}
    found |= {f"optimizer.0.{k}": v.clone() for k, v in training.optimizer.state.items()}
    return found


EVERY: dict[str, dict[str, Any]] = {
    "vq": {"method": "vq"},
    "exact": {"method": "exact"},
    "probunet": {"method": "probunet"},
    "unet": {"method": "heads"},
    "dropout": {"method": "heads", "dropout": 0.5},
    "ensemble": {"method": "heads", "latent": {"members": 2}},
    "mheads": {"method": "heads", "latent": {"heads": 2}},
}


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_a_training_comes_back_to_the_bit_and_goes_on_as_if_nothing_had_been(
    tiny, tmp_path, name, ema
):
    config = tiny(**EVERY[name], steps=8, ema=ema, weight_decay=0.1)
    training = Training(config, CPU)
    steps = fit(training, Bars())
    for _ in range(5):
        next(steps)
    save_state(tmp_path, training)
    saved = state(training)
    list(steps)
    torch.rand(3)  # the world goes on
    random, again = torch.get_rng_state(), Training(config, CPU)
    load_state_(tmp_path, again)
    assert again.step == 5
    found = state(again)
    assert set(found) == set(saved)
    assert any("exp_avg_sq" in name for name in found)
    for name, value in found.items():
        assert torch.equal(value, saved[name]), name
    list(fit(again, Bars()))
    found, expected = state(again), state(training)
    for name, value in found.items():
        assert torch.equal(value, expected[name]), name
    assert torch.equal(torch.get_rng_state(), random)


RESUME = """
import random, sys
import numpy, torch
from pathlib import Path
from mue.data.synthetic.toy import Bars
from mue.runs.folder import load_config
from mue.training.checkpoint import load_state_
from mue.training.loop import fit
from mue.training.state import Training

def state():
    return random.getstate(), repr(numpy.random.get_state()), torch.get_rng_state().tolist()

training, before = Training(load_config(Path(sys.argv[1])), torch.device("cpu")), state()
load_state_(Path(sys.argv[1]), training)
assert training.step == 2
list(fit(training, Bars()))
assert state() == before
"""


@pytest.mark.parametrize("name", ["vq", "probunet"])
def test_resuming_leaves_the_callers_random_numbers_alone(tiny, tmp_path, name):
    """In a process of its own: what checks types here uses random numbers of Python."""
    training = Training(tiny(**EVERY[name], steps=4), CPU)
    steps = fit(training, Bars())
    next(steps)
    next(steps)
    save_config(tmp_path, training.config, "1")
    save_state(tmp_path, training)
    subprocess.run([sys.executable, "-c", RESUME, str(tmp_path)], check=True)


@pytest.mark.parametrize("names", [["random.cpu"], ["random.cpu", "random.cuda"]])
@pytest.mark.parametrize(
    "held",
    [torch.get_rng_state(), torch.zeros(3, dtype=torch.uint8), torch.full((2, 2), math.nan)],
    ids=["whole", "too short", "not bytes"],
)
def test_the_random_state_that_older_files_hold_is_ignored(
    tiny, folder, names: list[str], held: torch.Tensor
):
    path = folder / "state.safetensors"
    tensors = safetensors.torch.load_file(path)
    assert not [name for name in tensors if name.startswith("random")]
    save_tensors(path, tensors | dict.fromkeys(names, held))
    torch.rand(3)
    random, training = torch.get_rng_state(), Training(tiny("exact", ema=0.9), CPU)
    load_state_(folder, training)
    assert torch.equal(torch.get_rng_state(), random)
    assert training.step == 12
    for name, value in state(training).items():
        assert torch.equal(value, tensors[name]), name


def test_saving_changes_nothing_of_the_training(tiny, tmp_path):
    training = Training(tiny("vq"), CPU)
    next(fit(training, Bars()))
    before = state(training)
    save_state(tmp_path, training)
    after = state(training)
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_the_weights_that_are_saved_are_the_averaged_ones(tiny, tmp_path):
    training = Training(tiny("exact", ema=0.9), CPU)
    list(fit(training, Bars()))
    save_config(tmp_path, training.config, "1")
    save_state(tmp_path, training)
    loaded = dict(load_network(tmp_path, CPU).named_parameters())
    for name, value in training.export().items():
        assert torch.equal(loaded[name], value)


@pytest.mark.parametrize("change", [{"size": 7}, {"width": 4}])
def test_the_state_of_another_configuration_is_refused(tiny, folder, change):
    with pytest.raises(RunError, match=r"state.safetensors holds .* of another configuration"):
        load_state_(folder, Training(tiny("exact", codebook=change), CPU))


def test_the_state_of_the_other_method_is_refused(tiny, folder):
    with pytest.raises(RunError, match=r"state.safetensors holds the state of another config"):
        load_state_(folder, Training(tiny("vq"), CPU))


@pytest.mark.parametrize("name", ["step", "optimizer.0.exp_avg"])
def test_a_state_that_lacks_something_is_refused(tiny, folder, name):
    path = folder / "state.safetensors"
    tensors = safetensors.torch.load_file(path)
    del tensors[name]
    save_tensors(path, tensors)
    with pytest.raises(RunError, match=r"state\.safetensors holds the state of another config"):
        load_state_(folder, Training(tiny("exact"), CPU))


@pytest.mark.parametrize("name", EVERY)
def test_a_model_of_each_method_comes_back_from_its_folder(tiny, tmp_path, name):
    training = Training(tiny(**EVERY[name], steps=2), CPU)
    list(fit(training, Bars()))
    save_config(tmp_path, training.config, "1")
    save_state(tmp_path, training)
    loaded = load_network(tmp_path, CPU)
    assert type(loaded) is type(training.network)
    x, k = torch.rand(2, 1, 8, 8), loaded.max_answers or 3
    for p, value in zip(training.network.parameters(), training.export().values(), strict=True):
        p.data.copy_(value)
    found, expected = (
        network.propose(x, k, generator=torch.Generator().manual_seed(0))
        for network in (loaded, training.learner.network.eval().requires_grad_(False))
    )
    torch.testing.assert_close(found.logits, expected.logits)
    assert torch.equal(found.code, expected.code)


@pytest.mark.parametrize("name", ["probunet", "dropout"])
def test_what_a_training_samples_depends_on_its_seed_and_not_on_the_past(tiny, name):
    ends = []
    for seed, before in ((0, 1), (0, 2), (1, 1)):
        torch.manual_seed(before)
        training = Training(tiny(**EVERY[name], steps=3), CPU)
        other = Training(tiny(**EVERY[name], steps=3, seed=seed), CPU)
        other.learner.load_state_dict(training.learner.state_dict())  # the same start
        list(fit(other, Bars()))
        ends.append(torch.cat([p.detach().flatten() for p in other.network.parameters()]))
    assert torch.equal(ends[0], ends[1])
    assert not torch.equal(ends[0], ends[2])


@pytest.mark.parametrize("change", ["dtype", "step"])
def test_a_state_with_values_of_another_kind_is_refused(tiny, tmp_path, change):
    training = Training(tiny(), CPU)
    save_state(tmp_path, training)
    state = load_tensors(tmp_path / STATE)
    state["step"] = torch.tensor(1.5) if change == "dtype" else torch.tensor(-1)
    save_tensors(tmp_path / STATE, state)
    words = "'step' must be torch.int64" if change == "dtype" else r"must be in 0\.\.12, got -1"
    with pytest.raises(RunError, match=words):
        load_state_(tmp_path, training)
