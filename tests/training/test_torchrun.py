"""The command under `torchrun`: processes that are killed, asked to stop, and started again."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from mue.cli.main import main
from mue.runs.folder import load_config
from mue.runs.log import read_log
from mue.training.checkpoint import load_state_
from mue.training.state import Training

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc")

STEPS = 40
SMALL = f"""train toy --method vq --model.levels 4 8 --model.tail 8 --model.widths 4
    --codebook.size 6 --codebook.split-every 7 --train.steps {STEPS} --train.batch 8
    --train.lr 3e-4 --train.save-every 10 --train.log-every 1 --compute.device cpu --out"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("alone") / "run"
    main([*SMALL.split(), str(out)])
    return out


@contextmanager
def torchrun(out: Path, *options: str, steps: int = STEPS) -> Iterator[subprocess.Popen[str]]:
    """Two processes of `mue train --resume`, as they must be where they are restarted."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [*launcher, "--nproc-per-node=2", *options, "-m", "mue", *SMALL.split(), str(out)]
    with (out.parent / "said").open("w") as said:
        process = subprocess.Popen(
            [*command, "--train.steps", str(steps), "--resume"],
            stdout=said,
            stderr=said,
            text=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(60)


def workers(launcher: int) -> dict[str, int]:
    """The processes that a launcher has started, by their rank."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    found: dict[str, int] = {}
    for child in children:
        environment = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        found |= {one.decode()[5:]: int(child) for one in environment if one.startswith(b"RANK=")}
    return found


def wait_for(process: subprocess.Popen[str], out: Path, steps: int) -> None:
    """Until the run has taken some steps."""
    end = time.monotonic() + 120
    while len(read_log(out)) < steps:
        assert process.poll() is None, "the run has ended"
        assert time.monotonic() < end, "the run does not begin"
        time.sleep(0.005)


def said(out: Path) -> list[str]:
    return [line for line in (out.parent / "said").read_text().splitlines() if line[:4] == "mue:"]


def resumed(folder: Path) -> Training:
    training = Training(load_config(folder), torch.device("cpu"))
    load_state_(folder, training)
    return training


def assert_same_run(folder: Path, other: Path) -> None:
    ours, theirs = (resumed(f) for f in (folder, other))
    assert ours.step == theirs.step == STEPS
    for pair in (
        (ours.learner.state_dict(), theirs.learner.state_dict()),
        (ours.ema, theirs.ema),
    ):
        torch.testing.assert_close(*pair, rtol=1e-3, atol=1e-3)
    assert [r.step for r in read_log(folder)] == list(range(1, STEPS + 1))


def test_after_a_kill_torchrun_starts_again_from_the_last_checkpoint(alone, tmp_path):
    """The folder does not exist yet when it is first asked to resume."""
    out = tmp_path / "run"
    with torchrun(out, "--max-restarts=1") as process:
        wait_for(process, out, 15)
        first = workers(process.pid)
        os.kill(first["1"], signal.SIGKILL)
        assert process.wait(120) == 0
    text = (tmp_path / "said").read_text()
    assert_same_run(out, alone)
    assert text.count("trained  ") == 1  # one process speaks
    assert not list(out.glob(".mue-*"))


def test_without_restarts_a_process_that_dies_takes_the_other_down(tmp_path):
    out = tmp_path / "run"
    with torchrun(out, steps=1000) as process:
        wait_for(process, out, 12)
        pids = workers(process.pid)
        began = time.monotonic()
        os.kill(pids["0"], signal.SIGKILL)  # the one that writes
        assert process.wait(60) != 0
    assert time.monotonic() - began < 60
    assert not Path(f"/proc/{pids['1']}").exists()
    (sentence,) = said(out)
    assert sentence.startswith("mue: process 1 of 2 stops, because another is gone or does not ans")
    step = resumed(out).step
    assert step >= 10
    assert step % 10 == 0  # a checkpoint


def test_a_signal_to_torchrun_stops_both_at_one_step_and_saves_it(tmp_path):
    out = tmp_path / "run"
    with torchrun(out, steps=1000) as process:
        wait_for(process, out, 12)
        process.send_signal(signal.SIGTERM)  # as SLURM does
        assert process.wait(60) != 0
    step = len(read_log(out))
    assert said(out) == [f"mue: stopped at step {step}, saved in {out}; continue with --resume"]
    assert resumed(out).step == step < 1000
