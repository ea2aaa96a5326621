import json
import math
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from mue.data.synthetic.toy import Bars
from mue.runs.folder import STATE, RunError, commit, load_config, origin, save_config
from mue.runs.weights import export_run, load_network, load_tensors, load_weights, save_tensors
from mue.training.checkpoint import load_state_, save_state
from mue.training.loop import fit
from mue.training.state import Training

CPU = torch.device("cpu")


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# --- configuration --------------------------------------------------------------------------------


def test_a_configuration_comes_back_with_its_origin(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("MUE_COMMIT", "abc123")
    config = tiny("vq", lr=1 / 3)
    save_config(tmp_path, config, "1.2.3")
    assert load_config(tmp_path) == config
    assert origin(tmp_path) == {"version": "1.2.3", "commit": "abc123", "data": None}
    save_config(tmp_path, config, "1.2.3", data="f00d")
    assert origin(tmp_path)["data"] == "f00d"


def test_a_run_of_a_time_without_data_has_none(folder):
    """What was written before there were prepared slices."""
    content = json.loads((folder / "config.json").read_text())
    del content["data"]
    (folder / "config.json").write_text(json.dumps(content))
    assert origin(folder)["data"] is None
    assert load_config(folder).data.name == "toy"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "config.json must be JSON, and it is not"),
        (b'{"config": ', "config.json must be JSON, and it is not"),
        (b"config: vq", "config.json must be JSON, and it is not"),
        (b"\xff\xfe\x00", "config.json must be JSON, and it is not"),
        (b"[" * 100_000, "config.json must be JSON, and it is not"),
        (b"[]", "config.json must hold an object with `config`, got list"),
        (b"{}", "config.json: config must be an object with the fields of Config"),
        (
            b'{"config": {"modell": {}}}',
            r"config.json: config has no field 'modell'; did you mean 'model'\?",
        ),
        (
            b'{"config": {"train": {"lr": "NaN"}}}',
            "config.json: config.train.lr must be a float, got 'NaN'",
        ),
        (b'{"config": {"train": {"lr": NaN}}}', "train.lr must be positive, got nan"),
        (b" " * 2_000_000, "config.json must be at most 1048576 bytes, got 2000000"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused_by_name(folder, content, words):
    (folder / "config.json").write_bytes(content)
    with pytest.raises(ValueError, match=words):
        load_config(folder)


def test_a_folder_without_a_configuration_is_no_run(tmp_path):
    words = "is no run folder: it must hold config.json; make one by `mue train`"
    with pytest.raises(RunError, match=words):
        load_network(tmp_path, CPU)


# --- tensors --------------------------------------------------------------------------------------


def test_tensors_of_every_kind_come_back_to_the_bit(tmp_path):
    torch.manual_seed(0)
    tensors = {
        "conv": torch.randn(4, 3, 5, 5).contiguous(memory_format=torch.channels_last),
        "part": torch.randn(6, 6)[:, ::2],
        "half": torch.randn(7).half(),
        "number": torch.tensor(3.5),
        "none": torch.zeros(0, 3),
        "bytes": torch.arange(9, dtype=torch.uint8),
        "odd": torch.tensor([float("nan"), float("inf"), -0.0]),
    }
    save_tensors(tmp_path / "weights.safetensors", tensors)
    found = load_tensors(tmp_path / "weights.safetensors")
    assert set(found) == set(tensors)
    for name, tensor in tensors.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
        assert found[name].numpy().tobytes() == tensor.contiguous().numpy().tobytes(), name


def test_the_same_tensors_are_the_same_file(tmp_path):
    """So that weights can be compared by a digest of the file."""
    tensors = {name: torch.randn(3) for name in "abc"}
    for i in range(8):
        save_tensors(tmp_path / str(i), tensors)
        tensors = dict(reversed(tensors.items()))
    assert len(set(files(tmp_path).values())) == 1


def _truncate(content: bytes) -> bytes:
    return content[:-1]


def _cut_in_the_header(content: bytes) -> bytes:
    return content[:40]


def _empty(_: bytes) -> bytes:
    return b""


def _longer(content: bytes) -> bytes:
    return content + b"\0"


def _flip(content: bytes) -> bytes:
    return content[:-3] + bytes([content[-3] ^ 1]) + content[-2:]


def _length(content: bytes) -> bytes:
    return struct.pack("<Q", 1 << 60) + content[8:]


def _header(content: bytes, change) -> bytes:
    """The file with something changed in the JSON in front of the data."""
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + size])
    change(header)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content[8 + size :]


def _without_digest(content: bytes) -> bytes:
    return _header(content, lambda h: h.pop("__metadata__"))


def _swapped(content: bytes) -> bytes:
    """Two tensors of one shape have changed places."""

    def change(header):
        a, b = [n for n in header if n != "__metadata__" and header[n]["shape"] == [4]][:2]
        header[a], header[b] = header[b], header[a]

    return _header(content, change)


DAMAGED = r"weights.safetensors must be a whole safetensors file, and it is truncated or damaged"
OTHER = r"weights.safetensors does not hold what was saved: its sha256 differs"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_truncate, DAMAGED),
        (_cut_in_the_header, DAMAGED),
        (_empty, DAMAGED),
        (_longer, DAMAGED),
        (_length, DAMAGED),
        (_flip, OTHER),
        (_without_digest, OTHER),
        (_swapped, OTHER),
    ],
)
def test_a_damaged_file_is_refused(folder, damage, words):
    path = folder / "weights.safetensors"
    damaged = damage(path.read_bytes())
    assert damaged != path.read_bytes()
    path.write_bytes(damaged)
    with pytest.raises(RunError, match=words):
        load_network(folder, CPU)


def test_weights_that_are_missing_are_asked_for(folder):
    (folder / "weights.safetensors").unlink()
    words = "has no weights.safetensors: train it first, or name another folder"
    with pytest.raises(RunError, match=words):
        load_network(folder, CPU)


def test_weights_of_another_configuration_are_refused_before_they_are_read(
    tiny, folder, monkeypatch
):
    save_config(folder, tiny("exact", codebook={"size": 7}), "1")
    monkeypatch.setattr("mue.runs.weights._digest", None)  # what reading would call
    words = r"of another configuration .*'codebook.codes' must be \(7, 3\), got \(6, 3\); restore"
    with pytest.raises(RunError, match=words):
        load_network(folder, CPU)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.pop("codebook.codes"), r"'codebook.codes' must be \(6, 3\), got absent"),
        (lambda t: t.update(extra=torch.zeros(2)), r"'extra' must be absent, got \(2,\)"),
    ],
)
def test_weights_too_few_or_too_many_are_refused(folder, change, words):
    tensors = load_tensors(folder / "weights.safetensors")
    change(tensors)
    save_tensors(folder / "weights.safetensors", tensors)
    with pytest.raises(RunError, match=words):
        load_network(folder, CPU)


def test_nothing_in_a_run_folder_is_pickled(folder):
    for name in ("weights.safetensors", "state.safetensors"):
        content = (folder / name).read_bytes()
        assert content[8:9] == b"{"  # eight bytes of length, then JSON
        safetensors.torch.load(content)  # every byte is accounted for
    for name, content in files(folder).items():
        assert not content.startswith((b"\x80", b"PK")), name  # pickle, and torch.save's zip
        if name.endswith((".json", ".jsonl")):
            content.decode("ascii")


# --- half precision -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.int32])
def test_weights_of_other_kinds_of_numbers_are_refused(folder, dtype):
    tensors = {name: t.to(dtype) for name, t in load_weights(folder).items()}
    save_tensors(folder / "weights.safetensors", tensors)
    with pytest.raises(RunError, match=f"must be real numbers of 16, 32 or 64 bits, got {dtype}"):
        load_weights(folder)


def test_weights_in_half_precision_are_loaded_as_the_nearest_float16(folder, tmp_path):
    export_run(folder, tmp_path / "half")
    whole, half = load_network(folder, CPU), load_network(tmp_path / "half", CPU)
    for (name, a), b in zip(whole.named_parameters(), half.parameters(), strict=True):
        assert b.dtype == torch.float32
        assert torch.equal(a.half().float(), b), name
    sizes = [p.stat().st_size for p in (folder.parent / "half").glob("weights*")]
    assert sizes[0] < (folder / "weights.safetensors").stat().st_size
    assert load_config(tmp_path / "half") == load_config(folder)


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


def test_the_commit_of_a_users_own_repository_is_not_taken_for_ours(tmp_path, monkeypatch):
    """As where the package is installed into an environment inside of that repository."""
    installed = tmp_path / ".venv" / "mue" / "runs"
    installed.mkdir(parents=True)
    for command in ("init", "-c user.name=a -c user.email=b commit --allow-empty -m theirs"):
        subprocess.run(["git", "-C", tmp_path, *command.split()], check=True, capture_output=True)
    monkeypatch.delenv("MUE_COMMIT", raising=False)
    monkeypatch.setattr("mue.runs.folder.__file__", str(installed / "folder.py"))
    assert commit() is None
