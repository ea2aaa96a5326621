"""A training in its run folder."""

import contextlib
import dataclasses
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
from run_folders import KEPT, VALIDATED, Killed, files, resumed, same, slots, steps

from mue.cli.main import main
from mue.commands.train import train
from mue.config.presets import preset
from mue.config.schema import ComputeConfig
from mue.data.synthetic.toy import Bars
from mue.errors import MueError
from mue.runs.folder import STATE, WEIGHTS, RunError, load_config, save_config
from mue.runs.log import LOG, NonFiniteError, read_log, read_validations
from mue.runs.weights import export_run, load_tensors, save_tensors
from mue.runtime.atomic import locked, remove_leftovers
from mue.runtime.signals import Interrupted
from mue.training.codes import divide_code_, retire_
from mue.training.loop import fit
from mue.training.run import check_run

# --- the folder -----------------------------------------------------------------------------------


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


def test_validation_is_logged_and_shown_when_it_is_due_and_at_the_end(tiny, tmp_path):
    shown = []
    config = tiny("exact", **VALIDATED, log_every=100)
    folder = train(config, tmp_path / "run", on_validation=shown.append).folder
    assert [v.step for v in shown] == [5, 10, 12]
    assert shown == read_validations(folder)
    assert steps(folder) == [5, 6, 10, 12]  # a step is logged before it is validated
    written = (folder / LOG).read_text().splitlines()
    assert ["score" in line for line in written] == [0, 1, 0, 0, 1, 0, 1]


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


# --- errors in a step -----------------------------------------------------------------------------


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


# --- resuming -------------------------------------------------------------------------------------


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


def test_other_data_do_not_resume(folder):
    config = load_config(folder)
    with pytest.raises(RunError, match="holds a run with --data = None, and f00d is asked for"):
        check_run(folder, config, "f00d", resume=True)
    save_config(folder, config, "1", data="f00d")
    assert check_run(folder, config, "f00d", resume=True)
    with pytest.raises(RunError, match="holds a run with --data = f00d, and None is asked for"):
        check_run(folder, config, None, resume=True)


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


def test_the_seconds_of_a_resumed_run_go_on_from_those_of_its_checkpoint(tiny, tmp_path):
    """Killed at step 9, resumed from step 6, which was reached after 1006 seconds."""
    out = tmp_path / "run"

    def dying(record):
        if record.step == 9:
            raise Killed

    with pytest.raises(Killed):
        train(tiny("exact"), out, on_record=dying)
    slow = [dataclasses.replace(r, seconds=1000.0 + r.step) for r in read_log(out)]
    lines = [json.dumps(dataclasses.asdict(r)) + "\n" for r in slow]
    (out / LOG).write_text("".join(lines))
    train(tiny("exact"), out, resume=True)
    seconds = [r.seconds for r in read_log(out)]
    assert seconds[:6] == [1001, 1002, 1003, 1004, 1005, 1006]
    assert all(1006 <= s < 1100 for s in seconds[6:])


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
    assert all(map(torch.equal, slots(plain), slots(validated)))


def test_before_the_first_validation_the_last_weights_are_exported(tiny, tmp_path):
    config = tiny("exact", ema=0.9, validate_every=8, validate_inputs=8)

    def dying(record):
        if record.step == 7:
            raise Killed

    with pytest.raises(Killed):
        train(config, tmp_path / "run", on_record=dying)
    exported, last = load_tensors(tmp_path / "run" / WEIGHTS), resumed(tmp_path / "run")
    assert all(torch.equal(value, last.ema[name]) for name, value in exported.items())


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


# --- interrupts -----------------------------------------------------------------------------------


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
