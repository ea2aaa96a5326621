import contextlib
import dataclasses
import itertools
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import tyro
from PIL import Image
from torch import nn

import mue
from mue.cli.main import main
from mue.commands import train as command
from mue.commands.calibrate import calibrate
from mue.commands.train import train
from mue.config.presets import preset
from mue.config.schema import ComputeConfig, Config
from mue.data.build import build_source
from mue.data.prepared.write import write_prepared
from mue.data.random import uniform
from mue.data.synthetic.toy import Bars
from mue.errors import MueError
from mue.evaluation.health import health
from mue.inference.load import load
from mue.models.build import build_learner, build_modal
from mue.nn.backbone import Backbone, Features
from mue.runs.folder import RunError, load_config, origin
from mue.runs.log import NonFiniteError, best_validation, read_log, read_validations
from mue.runs.weights import export_run, load_network, load_tensors, save_tensors
from mue.runtime.atomic import locked, remove_leftovers
from mue.runtime.signals import Interrupted
from mue.training.checkpoint import load_state_
from mue.training.codes import divide_code_, retire_
from mue.training.loop import fit
from mue.training.state import Training
from mue.types import Pair

CPU = torch.device("cpu")
CONFIG, WEIGHTS, STATE, LOG = "config.json", "weights.safetensors", "state.safetensors", "log.jsonl"
KEPT = {CONFIG, WEIGHTS, STATE, LOG}


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def steps(folder: Path) -> list[int]:
    return [record.step for record in read_log(folder)]


def resumed(folder: Path) -> Training:
    """The training that a folder would go on with."""
    training = Training(load_config(folder), CPU)
    load_state_(folder, training)
    return training


def same(one: Path, two: Path) -> bool:
    """Whether two runs ended alike, to the last bit: the weights' file, and all that is trained."""
    if (one / WEIGHTS).read_bytes() != (two / WEIGHTS).read_bytes():
        return False
    a, b = (resumed(folder) for folder in (one, two))
    states = ([*t.learner.state_dict().values(), *t.ema.values(), *_best(t)] for t in (a, b))
    slots = (_slots(t) for t in (a, b))
    alike = itertools.chain(zip(*states, strict=True), zip(*slots, strict=True))
    return a.step == b.step and all(torch.equal(x, y) for x, y in alike)


def _best(training: Training) -> list[torch.Tensor]:
    best = training.best
    return [] if best is None else [*best.weights.values(), best.score, best.step, best.since]


def _slots(training: Training) -> list[torch.Tensor]:
    return list(training.optimizer.state.values())


class Killed(BaseException):
    """The end of a process that cannot say goodbye."""


# --- the folder -----------------------------------------------------------------------------------


def test_a_run_leaves_all_that_others_need(trained):
    assert KEPT | {"figures/history.png"} <= set(files(trained))
    assert load_network(trained, CPU)
    assert resumed(trained).step == 12
    with Image.open(trained / "figures" / "history.png") as plot:
        plot.verify()


@pytest.mark.parametrize("validated", [False, True])
def test_what_train_returns_lists_what_it_wrote_and_stands_for_the_model(tiny, tmp_path, validated):
    said: list[str] = []
    config = tiny("exact", **(VALIDATED if validated else {}))
    run = train(config, tmp_path / "run", on_message=said.append)
    written = {p for p in run.folder.rglob("*") if p.is_file()}
    assert set(run.files) == {p for p in written if "tensorboard" not in p.parts}
    assert run.notes == tuple(said)
    assert run.notes[0] == "computing on cpu: float32"
    assert run.health is not None
    assert run.health.report() == json.loads((run.folder / "health.json").read_text())
    assert run.best == (best_validation(read_validations(run.folder)) if validated else None)
    x = Bars().case(torch.arange(2)).x
    assert torch.equal(load(run).propose(x, k=2).prob, load(run.folder).propose(x, k=2).prob)
    again = mue.evaluate(run, inputs=2, device="cpu").report
    assert again["model"] == str(run.folder)


def test_the_log_has_every_step_once_and_only_numbers(trained):
    records = read_log(trained)
    assert [r.step for r in records] == list(range(1, 13))
    for record in records:
        assert all(math.isfinite(value) for value in dataclasses.asdict(record).values())
        parts = record.prior + record.reconstruction + record.commitment + record.energy
        assert record.total == pytest.approx(parts, rel=1e-5)
        assert 1 <= record.codes <= 6
    seconds = [r.seconds for r in records]
    assert seconds == sorted(seconds)
    assert len((trained / LOG).read_text().splitlines()) == 12


def test_steps_are_logged_and_shown_when_it_is_due(tiny, tmp_path):
    shown = []
    folder = train(
        tiny("vq", save_every=5, log_every=4), tmp_path / "run", on_record=shown.append
    ).folder
    assert steps(folder) == [4, 5, 8, 10, 12]  # and at every checkpoint, the last step among them
    assert shown == read_log(folder)


def test_an_empty_folder_will_do(tiny, tmp_path):
    (tmp_path / "run").mkdir()
    assert load_config(train(tiny(steps=1), tmp_path / "run").folder) == tiny(steps=1)


def test_a_folder_that_holds_anything_is_refused_and_left_alone(tiny, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    before = files(tmp_path)
    words = "must be empty or not exist yet, and it holds files; name another folder, or go on"
    with pytest.raises(RunError, match=words):
        train(tiny(), tmp_path)
    with pytest.raises(RunError, match=r"is no run folder: it must hold config\.json"):
        train(tiny(), tmp_path, resume=True)
    assert files(tmp_path) == before


def test_a_file_is_no_folder(tiny, tmp_path):
    (tmp_path / "file").write_text("text")
    with pytest.raises(RunError, match="must be a folder to write a run to, and it is a file"):
        train(tiny(), tmp_path / "file")


def test_data_that_the_network_cannot_take_are_refused_before_anything_is_written(tiny, tmp_path):
    config = tiny()
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, c_in=3))
    with pytest.raises(ValueError, match=r"model\.c_in must be 1"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_this_machine_cannot_do_is_refused_before_anything_is_written(tiny, tmp_path):
    config = tiny()
    config = dataclasses.replace(config, compute=ComputeConfig(device="cpu", cuda_graph="on"))
    with pytest.raises(
        ValueError, match=r"compute.cuda_graph is on, and CUDA graphs need a CUDA device"
    ):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_how_it_is_computed_is_printed_before_the_first_step(tiny, tmp_path):
    messages: list[str] = []
    train(
        tiny(steps=1),
        tmp_path / "run",
        on_message=messages.append,
        on_record=lambda r: messages.append(str(r.step)),
    )
    assert messages == ["computing on cpu: float32", "1"]


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: tried 9 bytes"),
        MemoryError(),
    ],
)
def test_memory_that_runs_out_is_said_with_the_remedy(tiny, tmp_path, monkeypatch, error):
    def steps(*_):
        raise error

    monkeypatch.setattr("mue.training.run.fit", steps)
    words = r"memory ran out: a step of 8 inputs .*; take --compute.accumulate 2 .*--train.batch"
    with pytest.raises(RunError, match=words):
        train(tiny(), tmp_path / "run")
    monkeypatch.undo()
    train(tiny(steps=1, batch=4), tmp_path / "run")  # as advised, in the same folder


def test_memory_that_runs_out_after_a_checkpoint_is_resumed_in_more_parts(
    tiny, tmp_path, monkeypatch
):
    def steps(training, source):
        yield next(iter(fit(training, source)))
        raise MemoryError

    out, config = tmp_path / "run", tiny(save_every=1)
    with monkeypatch.context() as patch:
        patch.setattr("mue.training.run.fit", steps)
        words = "go on with --resume and --compute.accumulate 2 .* or --compute.checkpointing$"
        with pytest.raises(RunError, match=words):
            train(config, out)
    compute = dataclasses.replace(config.compute, accumulate=2)
    train(dataclasses.replace(config, compute=compute), out, resume=True)


def test_a_folder_in_which_another_training_runs_is_refused(tiny, tmp_path):
    out = tmp_path / "run"
    with locked(out), pytest.raises(MueError, match="is being written to by another process"):
        train(tiny(), out)
    assert files(out) == {}


def test_of_two_trainings_in_a_folder_the_second_is_refused(tmp_path):
    """Two processes, the second started while the first takes its steps."""
    command = [sys.executable, "-m", "mue", *SMALL.split(), str(tmp_path / "run")]
    command += ["--compute.compile", "off"]
    command[command.index("--train.steps") + 1] = "100000"
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **quiet) as first:
        try:
            deadline = time.monotonic() + 120
            while first.poll() is None and not (tmp_path / "run" / STATE).exists():
                assert time.monotonic() < deadline, "the run does not begin"
                time.sleep(0.01)
            second = subprocess.run([*command, "--resume"], capture_output=True, text=True)
            assert first.poll() is None
        finally:
            first.terminate()
    assert (second.returncode, second.stdout) == (2, "")
    assert "is being written to by another process" in second.stderr
    assert steps(tmp_path / "run") == list(range(1, len(read_log(tmp_path / "run")) + 1))


def test_what_a_killed_export_left_in_a_run_is_removed(tiny, trained, tmp_path):
    left = tmp_path / "run" / ".mue-export.part"
    left.mkdir(parents=True)
    (left / WEIGHTS).touch()
    train(tiny("exact", ema=0.9), tmp_path / "run")
    assert same(tmp_path / "run", trained)
    assert not left.exists()


@pytest.mark.parametrize("how", ["one bit", "cut off", "not finite", "of another shape"])
def test_weights_that_were_damaged_are_written_again_by_resuming(tiny, trained, folder, how):
    path, tensors = folder / WEIGHTS, load_tensors(folder / WEIGHTS)
    data = path.read_bytes()
    name = next(iter(tensors))
    if how == "one bit":
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif how == "cut off":
        path.write_bytes(data[: len(data) // 2])
    else:
        bad = tensors[name] * math.nan if how == "not finite" else tensors[name].reshape(-1)[:1]
        save_tensors(path, tensors | {name: bad})
    train(tiny("exact", ema=0.9), folder, resume=True)
    assert same(folder, trained)


@pytest.mark.parametrize("how", ["exported", "without its state"])
def test_what_has_weights_and_no_state_is_not_resumed(tiny, trained, folder, tmp_path, how):
    """From its first step on it would be trained again, with the log and the weights gone."""
    if how == "exported":
        folder = tmp_path / "exported"
        export_run(trained, folder, half=False)
    else:
        (folder / STATE).unlink()
    before = files(folder)
    with pytest.raises(RunError, match=r"must hold state\.safetensors to be resumed, and it holds"):
        train(tiny("exact", ema=0.9), folder, resume=True)
    assert files(folder) == before


def test_weights_that_were_deleted_are_written_again_by_resuming(tiny, trained, folder):
    (folder / WEIGHTS).unlink()
    train(tiny("exact", ema=0.9), folder, resume=True)
    assert same(folder, trained)


@pytest.mark.parametrize(
    "words",
    [
        "mat1 and mat2 shapes cannot be multiplied",
        "CUDA error: an illegal memory access was encountered",
        "Pin memory thread exited unexpectedly",
    ],
)
def test_another_error_in_a_step_keeps_its_traceback(tiny, tmp_path, monkeypatch, words):
    def steps(*_):
        raise RuntimeError(words)

    monkeypatch.setattr("mue.training.run.fit", steps)
    with pytest.raises(RuntimeError, match=words) as caught:
        train(tiny(), tmp_path / "run")
    assert type(caught.value) is RuntimeError
    assert caught.traceback[-1].name == "steps"


# --- parts of one's own ---------------------------------------------------------------------------


class Signs:
    """x is an image of one number; y is bright with probability 0.7, whatever the number."""

    device, on_device = CPU, True

    def pair(self, index):
        x = uniform(0, index, 1).view(-1, 1, 1, 1).expand(-1, 1, 4, 4)
        bright = uniform(0, index, 1, salt=1) < 0.7
        return Pair(x.contiguous(), bright.float().view(-1, 1, 1, 1, 1).expand(-1, 1, 1, 4, 4))

    def case(self, index):
        raise NotImplementedError  # training does not ask for it


class Dot(nn.Module):
    """An encoder that sees the mean of an image."""

    axes = 3

    def __init__(self, c_in: int) -> None:
        super().__init__()
        self.read = nn.Linear(c_in, 5)

    def forward(self, x):
        h = self.read(x.mean(dim=(2, 3)))
        return Features((h,), h, tuple(x.shape[-2:]))


class Fill(nn.Module):
    """A decoder that fills the image with one number."""

    def __init__(self, code_width: int, heads: int) -> None:
        super().__init__()
        self.read = nn.Linear(code_width, heads)

    def forward(self, features, codes):
        return self.read(codes)[..., None, None].expand(-1, -1, -1, *features.size)


DOTS = Backbone(Dot, Fill, width=5)


def test_a_data_set_and_a_backbone_of_ones_own_are_trained_resumed_and_loaded(tiny, tmp_path):
    config = tiny("exact", steps=120, batch=64, lr=0.05, ema=0.9)
    own: dict[str, Any] = {"source": Signs(), "backbone": DOTS}
    folder = train(config, tmp_path / "run", **own).folder
    kept = load_config(folder)
    assert (kept.data.name, kept.model.backbone) == ("own", "own")
    for untouched in ("train", "objective", "codebook", "compute"):
        assert getattr(kept, untouched) == getattr(config, untouched)
    with pytest.raises(ValueError, match=r"model\.backbone must be one of unet, .*, got 'own'"):
        load_network(folder, CPU)
    network = load_network(folder, CPU, build_modal(kept, DOTS))
    found = network.propose(torch.full((1, 1, 4, 4), 0.5), 6)
    bright = found.prob @ found.logits[0, :, 0, 0, 0].sigmoid()
    assert bright.item() == pytest.approx(0.7, abs=0.1)
    before = files(folder)[WEIGHTS]
    train(kept, folder, resume=True, **own)  # nothing is left to do
    assert files(folder)[WEIGHTS] == before
    half = tmp_path / "half"
    export_run(folder, half)
    assert load_network(half, CPU, build_modal(kept, DOTS)).propose(torch.ones(1, 1, 4, 4), 1)


def test_the_own_learner_that_the_configuration_would_build_gives_the_same_weights(
    trained, tmp_path
):
    config = load_config(trained)
    torch.manual_seed(config.train.seed)
    folder = train(config, tmp_path / "run", learner=build_learner(config)).folder
    assert files(folder)[WEIGHTS] == files(trained)[WEIGHTS]
    assert load_config(folder).model.backbone == "own"


class Counting(Dot):
    def __init__(self, c_in: int) -> None:
        super().__init__(c_in)
        self.norm = nn.BatchNorm1d(5)


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"source": Signs(), "data": "some"}, "`data` must be left out where `source` is given"),
        (
            {"source": Signs(), "backbone": Backbone(Counting, Fill, width=5)},
            r"must keep its state in parameters, got the buffer 'encoder\.norm\.running_mean'",
        ),
    ],
)
def test_parts_that_cannot_be_used_are_refused_before_anything_is_written(
    tiny, tmp_path, own, words
):
    with pytest.raises(MueError, match=words):
        train(tiny(), tmp_path / "run", **own)
    assert not (tmp_path / "run").exists()


# --- resuming -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lr": 0.5}, r"holds a run with train\.lr = 0\.01, and 0\.5 is asked for: resume with"),
        ({"seed": 1}, r"holds a run with train\.seed = 0, and 1 is asked for"),
        ({"codebook": {"size": 5}}, r"holds a run with codebook\.size = 6, and 5 is asked for"),
    ],
)
def test_another_configuration_does_not_resume_and_the_field_is_named(tiny, folder, change, words):
    before = files(folder)
    with pytest.raises(RunError, match=words):
        train(tiny("exact", **{"ema": 0.9, **change}), folder, resume=True)
    assert files(folder) == before


def test_a_run_may_be_resumed_with_other_compute_settings(tiny, folder):
    config = dataclasses.replace(
        tiny("exact", ema=0.9), compute=ComputeConfig(device="cpu", channels_last=False)
    )
    train(config, folder, resume=True)


def test_a_finished_run_has_nothing_to_resume(tiny, trained, folder):
    train(tiny("exact", ema=0.9), folder, resume=True)
    assert same(folder, trained)
    assert steps(folder) == list(range(1, 13))


@pytest.mark.parametrize("write", range(1, 8))
def test_a_run_that_dies_before_any_of_its_writes_goes_on_to_the_same_weights(
    tiny, trained, tmp_path, monkeypatch, write
):
    """Writes: configuration, empty log, state, weights, then weights, state, last the history."""
    left, replace = iter(range(write - 1, -1, -1)), os.replace

    def dying(source, target):
        if next(left) == 0:
            raise Killed
        replace(source, target)

    config, out = tiny("exact", ema=0.9), tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", dying)
        with pytest.raises(Killed):
            train(config, out)
    train(config, out, resume=True)
    assert same(out, trained)
    assert steps(out) == list(range(1, 13))
    assert set(files(out)) >= KEPT


def test_what_a_kill_leaves_half_written_stands_in_nobodys_way(tiny, tmp_path, monkeypatch):
    """Killed before the configuration had its name: a temporary file is all there is."""

    def killed(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        patch.setattr(os, "unlink", lambda *_: None)  # who is killed does not tidy up
        with pytest.raises(Killed):
            train(tiny(steps=1), tmp_path)
    (left,) = files(tmp_path)
    assert left.startswith(".")
    remove_leftovers.cache_clear()  # another process goes on
    train(tiny(steps=1), tmp_path, resume=True)
    assert set(files(tmp_path)) >= KEPT
    assert left not in files(tmp_path)


SMALL = """train toy --method vq --model.levels 4 8 --model.tail 8 --model.widths 4
    --codebook.size 6 --codebook.split-every 9 --train.steps 60 --train.batch 8
    --train.save-every 15 --train.log-every 1 --compute.device cpu --out"""


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("uninterrupted") / "run"
    main([*SMALL.split(), str(out)])
    return out


def test_a_run_that_is_killed_goes_on_to_the_same_weights(uninterrupted, tmp_path):
    out = tmp_path / "run"
    with subprocess.Popen(
        [sys.executable, "-m", "mue", *SMALL.split(), str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        deadline = time.monotonic() + 120
        while process.poll() is None and len(read_log(out)) < 20:
            assert time.monotonic() < deadline, "the run does not begin"
            time.sleep(0.005)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    done = len(read_log(out))
    assert 20 <= done < 60
    assert (out / STATE).exists()

    main([*SMALL.split(), str(out), "--resume"])
    assert same(out, uninterrupted)
    assert steps(out) == list(range(1, 61))
    differs: dict[str, Any] = {"seconds": 0.0, "memory": 0}  # from process to process
    for ours, theirs in zip(read_log(out), read_log(uninterrupted), strict=True):
        one, two = (dataclasses.replace(r, **differs) for r in (ours, theirs))
        assert one == two


@pytest.fixture
def signals():
    """Signals as a terminal leaves them, also where the tests run under nohup or in background."""
    usual = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_saves_exits_130_and_the_run_goes_on_to_the_same_weights(
    uninterrupted, tmp_path, capsys, monkeypatch, number
):
    pair, out = Bars.pair, tmp_path / "run"

    def interrupting(self, index):
        if index[0] == 22 * 8 and torch.is_grad_enabled():  # in the middle of step 23
            signal.raise_signal(number)
        return pair(self, index)

    before = signal.getsignal(number)
    with monkeypatch.context() as patch:
        patch.setattr(Bars, "pair", interrupting)
        with pytest.raises(SystemExit) as stop:
            main([*SMALL.split(), str(out)])
    assert stop.value.code == 130
    assert (
        f"mue: stopped at step 23, saved in {out}; continue with --resume"
        in capsys.readouterr().err
    )
    assert signal.getsignal(number) is before
    assert steps(out) == list(range(1, 24))
    assert resumed(out).step == 23

    main([*SMALL.split(), str(out), "--resume"])
    assert same(out, uninterrupted)
    assert steps(out) == list(range(1, 61))


@pytest.mark.usefixtures("signals")
def test_a_signal_that_is_ignored_stays_ignored(tiny, tmp_path, monkeypatch):
    """As under nohup, which is there to let a training go on."""
    pair, raised = Bars.pair, []

    def leaving(self, index):
        raised.append(signal.SIGHUP)
        signal.raise_signal(signal.SIGHUP)
        return pair(self, index)

    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    monkeypatch.setattr(Bars, "pair", leaving)
    train(tiny(steps=3), tmp_path / "run")
    assert len(raised) >= 3
    assert steps(tmp_path / "run") == [1, 2, 3]


@pytest.mark.usefixtures("signals")
def test_before_the_first_step_a_signal_is_not_held_back(tiny, tmp_path, monkeypatch):
    """Compiling may take minutes, and there is nothing to save."""
    held: list[object] = []

    def steps(training, source):
        held.append(signal.getsignal(signal.SIGTERM))
        for step in fit(training, source):
            yield step
            held.append(signal.getsignal(signal.SIGTERM))

    monkeypatch.setattr("mue.training.run.fit", steps)
    train(tiny(steps=1), tmp_path / "run")
    assert held[0] is signal.SIG_DFL
    assert held[1] is not signal.SIG_DFL


@pytest.mark.usefixtures("signals")
def test_who_interrupts_twice_does_not_wait(tiny, tmp_path, monkeypatch):
    pair = Bars.pair

    def impatient(self, index):
        if len(index) > 1 and index[0] > 0:  # a batch after the first step
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        return pair(self, index)

    monkeypatch.setattr(Bars, "pair", impatient)
    with pytest.raises(KeyboardInterrupt) as stop:
        train(tiny("exact"), tmp_path / "run")
    assert not isinstance(stop.value, Interrupted)


# --- validation -----------------------------------------------------------------------------------


VALIDATED: dict[str, Any] = {"ema": 0.9, "validate_every": 5, "validate_inputs": 8}


def scored(monkeypatch, *scores: float) -> dict[int, dict[str, torch.Tensor]]:
    """Validations with these scores, one after the other; returns the weights of each by step."""
    left, seen = iter(scores), dict[int, dict[str, torch.Tensor]]()
    validate = command.validate

    def scoring(predictor, step, *sources):
        seen[step] = {name: w.clone() for name, w in predictor.network.named_parameters()}
        return dataclasses.replace(validate(predictor, step, *sources), score=next(left))

    monkeypatch.setattr(command, "validate", scoring)
    return seen


def test_validation_is_logged_and_shown_when_it_is_due_and_at_the_end(tiny, tmp_path):
    shown = []
    config = tiny("exact", **VALIDATED, log_every=100)
    folder = train(config, tmp_path / "run", on_validation=shown.append).folder
    assert [v.step for v in shown] == [5, 10, 12]
    assert shown == read_validations(folder)
    assert steps(folder) == [5, 6, 10, 12]  # a step is logged before it is validated
    written = (folder / LOG).read_text().splitlines()
    assert ["score" in line for line in written] == [0, 1, 0, 0, 1, 0, 1]


@pytest.mark.parametrize(
    "what", [{"method": "vq"}, {"method": "exact"}, {"method": "heads", "dropout": 0.5}]
)
def test_validation_leaves_every_step_of_a_training_as_it_is_without(tiny, tmp_path, what):
    validated, plain = (
        resumed(train(tiny(**what, ema=0.9, **more), tmp_path / name).folder)
        for name, more in {"a": {"validate_every": 1, "validate_inputs": 8}, "b": {}}.items()
    )
    for name, value in plain.learner.state_dict().items():
        assert torch.equal(value, validated.learner.state_dict()[name]), name
    for name, value in plain.ema.items():
        assert torch.equal(value, validated.ema[name]), name
    assert all(map(torch.equal, _slots(plain), _slots(validated)))


def test_the_best_weights_are_exported_and_the_last_are_resumed_from(tiny, tmp_path, monkeypatch):
    seen = scored(monkeypatch, 0.3, 0.2, 0.2)
    messages: list[str] = []
    out = train(tiny("exact", **VALIDATED), tmp_path / "run", on_message=messages.append).folder
    exported, last = load_tensors(out / WEIGHTS), resumed(out)
    for name, value in exported.items():
        assert torch.equal(value, seen[10][name])
    assert last.step == 12
    assert any(not torch.equal(last.ema[name], value) for name, value in exported.items())
    assert last.best is not None
    assert (last.best.step, last.best.score, last.best.since) == (10, 0.2, 1)
    best = best_validation(read_validations(out))
    assert (best.step, best.score) == (10, 0.2)
    assert messages[-1] == "the weights are those of step 10, the best by validation"


def test_before_the_first_validation_the_last_weights_are_exported(tiny, tmp_path):
    config = tiny("exact", ema=0.9, validate_every=8, validate_inputs=8)

    def dying(record):
        if record.step == 7:
            raise Killed

    with pytest.raises(Killed):
        train(config, tmp_path / "run", on_record=dying)
    exported, last = load_tensors(tmp_path / "run" / WEIGHTS), resumed(tmp_path / "run")
    assert all(torch.equal(value, last.ema[name]) for name, value in exported.items())


@pytest.fixture(scope="module")
def calibrating(lesion_config) -> Config:
    """Validated at steps 8, 16 and 20, saved at 10 and 20, then calibrated."""
    more: dict[str, Any] = {"validate_every": 8, "validate_inputs": 6, "calibrate": True}
    train = dataclasses.replace(lesion_config.train, steps=20, save_every=10, **more)
    return dataclasses.replace(lesion_config, train=train)


@pytest.fixture(scope="module")
def calibrated(calibrating, lesions, tmp_path_factory) -> Path:
    return train(calibrating, tmp_path_factory.mktemp("calibrated") / "run", data=lesions).folder


@pytest.mark.parametrize("write", range(1, 11))
def test_a_validated_and_calibrated_run_that_dies_before_any_of_its_writes_ends_the_same(
    calibrating, calibrated, lesions, tmp_path, monkeypatch, write
):
    """Writes: configuration, log, state, weights, weights, state, calibrated, the history."""
    left, replace = iter(range(write - 1, -1, -1)), os.replace

    def dying(source, target):
        if next(left) == 0:
            raise Killed
        replace(source, target)

    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", dying)
        with pytest.raises(Killed):
            train(calibrating, out, data=lesions)
    train(calibrating, out, data=lesions, resume=True)
    assert same(out, calibrated)
    assert read_validations(out) == read_validations(calibrated)
    assert [v.step for v in read_validations(out)] == [8, 16, 20]
    assert files(out)[CONFIG] == files(calibrated)[CONFIG]


@pytest.mark.parametrize("step", [5, 7, 11])
def test_a_run_that_is_killed_after_a_validation_goes_on_to_the_same_validations(
    tiny, tmp_path, step
):
    """Checkpoints are of steps 6 and 12, validations of 5, 10 and 12."""
    config = tiny("exact", **VALIDATED)
    whole = train(config, tmp_path / "whole").folder

    def dying(record):
        if record.step == step:
            raise Killed

    with pytest.raises(Killed):
        train(config, tmp_path / "again", on_record=dying)
    train(config, tmp_path / "again", resume=True)
    assert same(tmp_path / "again", whole)
    assert read_validations(tmp_path / "again") == read_validations(whole)
    assert steps(tmp_path / "again") == list(range(1, 13))


@pytest.mark.parametrize(
    ("name", "until", "splits", "retirements"),
    [("vector-vq", 0.9, [6, 12], []), ("vector", 0.9, [], [18]), ("vector", 0.35, [], [6])],
)
def test_a_killed_run_that_splits_and_retires_codes_goes_on_to_the_same_weights_and_health(
    tmp_path, monkeypatch, name, until, splits, retirements
):
    """Checkpoints are of steps 8 and 16, validations of 5, 10 and 15, after which it dies.

    So few steps leave no code free: the one that explains least is retired.
    """
    c, split, retired = preset(name), list[int](), list[int]()
    t = dataclasses.replace(
        c.train, steps=20, batch=64, save_every=8, validate_every=5, validate_inputs=16
    )
    book = dataclasses.replace(c.codebook, split_every=6, split_until=until)
    start = dataclasses.replace(c.objective, balance_until=0.05)
    config = dataclasses.replace(c, train=t, codebook=book, objective=start)

    def splitting(training, *what):
        split.append(training.step)
        divide_code_(training, *what)

    def retiring(training, codes):
        retired.append(training.step)
        retire_(training, codes)

    def dying(record):
        if record.step == 15:
            raise Killed

    monkeypatch.setattr("mue.training.codes.divide_code_", splitting)
    monkeypatch.setattr("mue.training.codes.retire_", retiring)
    monkeypatch.setattr("mue.training.codes.find_retired", lambda u: u.share == u.share.min())
    whole = train(config, tmp_path / "whole").folder
    assert set(splits) <= set(split)
    assert retired == retirements
    with pytest.raises(Killed):
        train(config, tmp_path / "again", on_validation=dying)
    assert resumed(tmp_path / "again").step == 8
    train(config, tmp_path / "again", resume=True)
    assert same(tmp_path / "again", whole)
    assert read_validations(tmp_path / "again") == read_validations(whole)
    for file in ("health.json", "config.json"):
        assert files(tmp_path / "again")[file] == files(whole)[file]


def test_training_stops_when_its_patience_is_out_and_is_then_finished(tiny, tmp_path, monkeypatch):
    config = tiny("exact", ema=0.9, validate_every=2, validate_inputs=8, patience=2)
    messages: list[str] = []
    with monkeypatch.context() as patch:
        seen = scored(patch, 0.3, 0.2, 0.3, 0.2)
        out = train(config, tmp_path / "run", on_message=messages.append).folder
    words = "stopped at step 8: 2 validations without a better one; the weights are those of step 4"
    assert messages[-1].startswith(words)
    assert [v.stopped for v in read_validations(out)] == [False, False, False, True]
    assert steps(out)[-1] == resumed(out).step == 8
    assert all(torch.equal(v, seen[4][name]) for name, v in load_tensors(out / WEIGHTS).items())
    before = {name: files(out)[name] for name in KEPT}
    messages.clear()
    train(config, out, resume=True, on_message=messages.append)
    assert {name: files(out)[name] for name in KEPT} == before
    assert messages[-1].startswith(words)


def test_patience_that_is_out_at_the_last_step_stopped_nothing(tiny, tmp_path, monkeypatch):
    scored(monkeypatch, 0.3, 0.4)
    config = tiny("exact", validate_every=6, validate_inputs=8, patience=1)
    messages: list[str] = []
    out = train(config, tmp_path / "run", on_message=messages.append).folder
    assert resumed(out).step == 12
    assert not any(v.stopped for v in read_validations(out))
    assert messages[-1] == "the weights are those of step 6, the best by validation"


def test_a_calibrated_training_is_that_of_mue_calibrate(calibrating, lesions, tmp_path):
    messages: list[str] = []
    plain = dataclasses.replace(calibrating.train, calibrate=False)
    raw = train(
        dataclasses.replace(calibrating, train=plain), tmp_path / "raw", data=lesions
    ).folder
    out = train(calibrating, tmp_path / "run", data=lesions, on_message=messages.append).folder
    calibrate(raw, tmp_path / "new", data=lesions, half=False, device="cpu")
    ours, theirs, before = (load_tensors(f / WEIGHTS) for f in (out, tmp_path / "new", raw))
    torch.testing.assert_close(ours, theirs)
    assert (ours["prior.bias"] - before["prior.bias"]).abs().max() > 0.01
    assert load_config(out).modes == load_config(tmp_path / "new").modes
    assert origin(out)["calibration"]["shift"] == origin(tmp_path / "new")["calibration"]["shift"]
    assert messages[-1].startswith("calibrated on val: temperature ")
    kept = {name: files(out)[name] for name in KEPT}
    train(calibrating, out, data=lesions, resume=True)  # nothing is left to do
    assert {name: files(out)[name] for name in KEPT} == kept


def test_a_data_set_of_ones_own_is_validated_and_calibrated_on_another(tiny, tmp_path):
    config = tiny("exact", **VALIDATED, calibrate=True)
    out = train(config, tmp_path / "run", source=Bars(), validation=Bars(seed=1)).folder
    assert [v.metric for v in read_validations(out)] == ["ged"] * 3
    assert origin(out)["calibration"]["inputs"] == 1000


@pytest.mark.parametrize("prepared", [True, False])
@pytest.mark.parametrize(
    "asked",
    [
        {"validate_every": 5},
        {"calibrate": True},
        {"validate_every": 5, "patience": 2, "calibrate": True},
    ],
)
def test_without_inputs_held_back_a_training_runs_as_its_refusal_says(
    tiny, lesion_config, patients, lesion, tmp_path, asked, prepared
):
    where: dict[str, Any] = {"source": Bars()}
    config: Config = tiny("exact")
    if prepared:
        items = [lesion(name, 1, 1) for name in patients("train", 2)]
        write_prepared(items, tmp_path / "data", {"form": "made up"})
        config, where = lesion_config, {"data": tmp_path / "data"}
    config = dataclasses.replace(
        config, train=dataclasses.replace(config.train, steps=1, batch=2, **asked)
    )
    with pytest.raises(MueError, match=r"split 'val'|does not hold") as refused:
        train(config, tmp_path / "run", **where)
    options = str(refused.value).partition("--")
    advice = "".join(options[1:]).split()
    changed = tyro.cli(Config, args=advice, default=config)
    assert read_log(train(changed, tmp_path / "run", **where).folder)


class NoBars(Bars):
    """A data set of finite length that is empty."""

    def __len__(self) -> int:
        return 0


@pytest.mark.parametrize(
    ("what", "own", "words"),
    [
        (
            {"validate_every": 5},
            {"source": Bars()},
            "`validation` must be a Source .* train.validate_every 5 and train.calibrate False;",
        ),
        ({"calibrate": True}, {"source": Bars()}, "`validation` must be a Source with inputs"),
        ({}, {"validation": Bars()}, "`validation` must be left out without `source`: inputs"),
        (
            {"validate_every": 5},
            {"source": Bars(), "validation": NoBars()},
            "`validation` must hold at least one input, got none",
        ),
    ],
)
def test_validation_that_cannot_be_is_refused_before_anything_is_written(
    tiny, tmp_path, what, own, words
):
    with pytest.raises(MueError, match=words):
        train(tiny("exact", **what), tmp_path / "run", **own)
    assert not (tmp_path / "run").exists()


def test_a_model_of_vectors_is_not_calibrated(tmp_path):
    config = preset("vector")
    masks = dataclasses.replace(config.objective, likelihood="bernoulli")
    calibrated = dataclasses.replace(config.train, steps=1, calibrate=True)
    config = dataclasses.replace(config, objective=masks, train=calibrated)
    with pytest.raises(MueError, match="calibration compares answers as masks"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


# --- losses that are no numbers -------------------------------------------------------------------


def breaking(first: int):
    """Items that are not numbers from `first` on."""
    pair = Bars.pair

    def broken(self, index):
        found = pair(self, index)
        found.x[index >= first] = float("nan")
        return found

    return broken


def test_a_loss_that_is_no_number_stops_the_run_with_the_last_good_checkpoint(
    tiny, trained, tmp_path, monkeypatch
):
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Bars, "pair", breaking(first=8 * 8))
        with pytest.raises(NonFiniteError) as stop:
            train(tiny("exact", ema=0.9), out)
    words = str(stop.value)
    assert "not finite at step 9" in words
    assert "its term 'prior' is nan" in words
    assert f"the last good checkpoint is {out / STATE}" in words
    good = resumed(out)
    assert good.step == 6
    assert all(value.isfinite().all() for value in good.learner.state_dict().values())
    train(tiny("exact", ema=0.9), out, resume=True)  # the data are good again
    assert same(out, trained)


def test_a_loss_that_is_no_number_is_never_saved_even_if_it_was_not_logged(
    tiny, tmp_path, monkeypatch
):
    monkeypatch.setattr(Bars, "pair", breaking(first=8))
    with pytest.raises(NonFiniteError, match="there is no checkpoint before it"):
        train(tiny("exact", log_every=100, save_every=5), tmp_path / "run")
    assert not (tmp_path / "run" / WEIGHTS).exists()


@pytest.mark.parametrize("what", [{"method": "probunet"}, {"method": "heads", "dropout": 0.5}])
def test_a_run_that_samples_is_resumed_to_the_same_weights(tiny, tmp_path, what):
    """Killed after its first checkpoint, of step 6 of 12, when it logs step 9."""
    config = tiny(**what)
    whole = train(config, tmp_path / "whole").folder

    def dying(record):
        if record.step == 9:
            raise Killed

    with pytest.raises(Killed):
        train(config, tmp_path / "again", on_record=dying)
    assert resumed(tmp_path / "again").step == 6
    torch.manual_seed(123)  # another process, with another past
    train(config, tmp_path / "again", resume=True)
    assert same(tmp_path / "again", whole)


def test_a_model_is_judged_on_the_very_device_it_was_trained_on(tiny, tmp_path, monkeypatch):
    """As on the second GPU of a machine."""
    where: list[torch.device] = []

    def noted(*model, device, **options):
        where.append(device)
        return load(*model, device=device, **options)

    there = torch.device("cpu", 0)
    monkeypatch.setattr("mue.commands.train.load", noted)
    train(tiny("exact"), tmp_path / "run", source=Bars(device=there), validation=Bars(device=there))
    assert where == [there]


# --- data that only one thread may read -----------------------------------------------------------


class OneReader(Bars):
    """Bars in files, say, that two threads must not read at once."""

    reading = threading.Lock()
    overlaps = 0

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed=seed)
        self.on_device = False

    def pair(self, index):
        with self.alone():
            return super().pair(index)

    def case(self, index):
        with self.alone():
            return super().case(index)

    @contextlib.contextmanager
    def alone(self):
        if not self.reading.acquire(blocking=False):
            OneReader.overlaps += 1
            yield
            return
        time.sleep(0.005)  # long enough to be met
        yield
        self.reading.release()


def test_no_two_threads_read_the_data_at_once(tiny, tmp_path):
    book = {"split_every": 1, "split_until": 1.0}
    config = tiny("exact", codebook=book, validate_every=2, patience=2)
    config = dataclasses.replace(
        config, objective=dataclasses.replace(config.objective, balance_until=0.0, prior_from=0.0)
    )
    train(config, tmp_path / "run", source=OneReader(), validation=OneReader(seed=1))
    assert OneReader.overlaps == 0


# --- health ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("calibrated", [False, True])
def test_a_training_ends_with_the_health_of_the_exported_model(tiny, tmp_path, calibrated):
    folder = train(tiny("exact", **VALIDATED, calibrate=calibrated), tmp_path / "run").folder
    held_back, source = (
        build_source(load_config(folder).data, split, seed=0, device=torch.device("cpu"))
        for split in ("val", "train")
    )
    predictor = load(folder, device="cpu")
    expected = health(predictor, held_back, train=source, inputs=8).report()
    assert json.loads((folder / "health.json").read_text()) == expected
    with Image.open(folder / "figures" / "health.png") as image:
        assert image.width > 300


def test_a_training_without_validation_ends_with_a_health_report_too(trained):
    assert json.loads((trained / "health.json").read_text())["inputs"] == 8
    assert read_validations(trained) == []


def test_a_training_that_holds_nothing_back_says_that_there_is_no_health_report(tiny, tmp_path):
    said: list[str] = []
    folder = train(tiny("exact"), tmp_path / "run", source=Bars(), on_message=said.append).folder
    assert said[-1] == "there is no health report: no inputs were held back from training"
    assert not (folder / "health.json").exists()


def test_the_health_of_slices_is_judged_on_patients_of_val(lesion_config, lesions, tmp_path):
    t = dataclasses.replace(lesion_config.train, steps=4, validate_every=4)
    folder = train(
        dataclasses.replace(lesion_config, train=t), tmp_path / "run", data=lesions
    ).folder
    assert json.loads((folder / "health.json").read_text())["inputs"] == 12


def test_what_is_held_back_may_have_several_sizes_where_one_is_trained_on(
    lesion_config, lesion, patients, tmp_path
):
    items = [lesion(name, 1, 9) for name in patients("train", 2)]
    items += [
        lesion(name, 1, 9, side=s) for s, name in zip((16, 24), patients("val", 2), strict=True)
    ]
    write_prepared(items, tmp_path / "data", {"form": "made up"})
    for every in (0, 2):
        t = dataclasses.replace(lesion_config.train, steps=2, validate_every=every)
        config = dataclasses.replace(lesion_config, train=t)
        folder = train(config, tmp_path / f"run-{every}", data=tmp_path / "data").folder
        assert json.loads((folder / "health.json").read_text())["inputs"] == 2
