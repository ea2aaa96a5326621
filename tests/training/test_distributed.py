"""Several processes do together what one does alone."""

import os
import signal
import socket
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import spawn

from mue.commands.train import train
from mue.config.schema import (
    CodebookConfig,
    ComputeConfig,
    Config,
    DataConfig,
    ModelConfig,
    ObjectiveConfig,
    TrainConfig,
)
from mue.data.synthetic.toy import Bars
from mue.nn.codebook import Usage
from mue.runs.folder import load_config
from mue.runs.log import LogRecord, ValidationRecord, read_log, read_validations
from mue.runtime import collectives
from mue.runtime.signals import Interrupted
from mue.training import codes, distributed
from mue.training.batches import batch_index
from mue.training.checkpoint import load_state_
from mue.training.distributed import WorkerLostError
from mue.training.loop import fit
from mue.training.measure import measure
from mue.training.state import Training

CPU = torch.device("cpu")
Method = Literal["vq", "exact"]
STEPS = 12


def tiny(method: Method, batch: int = 16, lr: float = 1e-3) -> Config:
    """Codes may be split at steps 2, 4 and 6, the last of which retires free ones by `exact`.

    Answers are balanced in the first step, and the energy counts, where there is such a thing.
    """
    return Config(
        method=method,
        data=DataConfig(name="toy"),
        model=ModelConfig(levels=(8, 8), tail=(8,), widths=(8,), norm="group"),
        codebook=CodebookConfig(size=6, width=3, decay=0.9, split_every=2),
        objective=ObjectiveConfig(sharpness=3.0, balance_until=0.1, energy=5.0),
        train=TrainConfig(
            steps=STEPS, batch=batch, lr=lr, clip=1.0, ema=0.9, save_every=4, log_every=1
        ),
        compute=ComputeConfig(device="cpu"),
    )


def validated(**more: Any) -> Config:
    """The same with a validation every other step."""
    config = tiny("exact")
    train = replace(config.train, validate_every=2, validate_inputs=40, **more)
    return replace(config, train=train)


def trained(method: Method) -> dict[str, Any]:
    """What a whole short training leaves behind, and what it says about its last step.

    After its first step one code has all answers, so that it is split with a free one.
    """
    training, record = Training(tiny(method), CPU), dict[str, Any]()
    with (
        patch.object(codes, "divide_code_", wraps=codes.divide_code_) as divided,
        patch.object(codes, "retire_", wraps=codes.retire_) as retired,
    ):
        for step in fit(training, Bars()):
            if step.number == 1:
                leave_one_code_(training)
            record = asdict(measure(step, 0.0))
    del record["memory"]  # what the process has taken, whatever it did before
    return {
        "weights": training.learner.state_dict(),
        "export": training.export(),
        "log": record,
        "split": [call.args[1:3] for call in divided.call_args_list],
        "retired": [call.args[1].tolist() for call in retired.call_args_list],
    }


@torch.no_grad()
def leave_one_code_(training: Training) -> None:
    """Take all answers from the codes but the first: by the prior, or by how far they are."""
    network = training.learner.network
    parameter = network.prior.bias if training.config.method == "exact" else network.codebook.codes
    for tensor in training.with_ema(parameter):
        tensor[1:] = -50.0


def updated(rank: int = 0, world: int = 1) -> dict[str, Tensor]:
    """A code book after three updates with this process's share of the encodings."""
    torch.manual_seed(0)
    codes, usage = torch.randn(5, 3), Usage(5, decay=0.9)
    for _ in range(3):
        e, index = torch.randn(8, 3), torch.randint(4, (8,))  # code 4 is never chosen
        usage.update_(codes, e[rank::world], index[rank::world], distributed.PROCESSES)
    return {"codes": codes, "count": usage.count}


def compute(rank: int, folder: Path) -> dict[str, Any]:
    """What two processes that have met make of their shares."""
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
    found = {
        "identity": (collectives.rank(), collectives.world()),
        "mean": collectives.all_mean(torch.tensor([1.0, 5.0]) * (rank + 1)),
        "any": [distributed.any_process(mine) for mine in (False, rank == 1, True)],
        "items": batch_index(tiny("vq"), 3, CPU),
        "updated": updated(rank, world=2),
        "farthest": collectives.farthest(
            torch.tensor([[1.0], [2.0]]) + 10 * rank, torch.tensor([3.0, 4.0 + rank])
        ),
        "vq": trained("vq"),
        "exact": trained("exact"),
    }
    distributed.shutdown_()
    return found


def asked_to_stop(record: LogRecord) -> None:
    """SIGTERM, which SLURM sends, while step 7 is taken."""
    if record.step == 6:
        signal.raise_signal(signal.SIGTERM)


def jobs(rank: int, folder: Path) -> dict[str, Callable[[], object]]:
    """Whole trainings, good and bad, of two processes. `two` makes `began` and a port for each."""
    vq, other = tiny("vq"), replace(tiny("vq"), compute=ComputeConfig(device="cuda"))

    def hear(record: ValidationRecord) -> None:
        with (folder / f"heard-{rank}").open("a") as file:
            print(record, file=file)

    return {
        "lr": lambda: train(tiny("vq", lr=1e-3 * (rank + 1)), folder / "no"),
        "resume": lambda: train(vq, folder / "no", resume=rank == 1),
        "batch": lambda: train(tiny("vq", batch=15), folder / "no"),
        "device": lambda: train(other if rank == 1 else vq, folder / "no"),
        "folder": lambda: train(vq, folder),
        "share": lambda: train(vq, folder / ("elsewhere", "began")[rank], resume=True),
        "stop": lambda: train(vq, folder / "stop", on_record=asked_to_stop if rank else None),
        "began": lambda: train(vq, folder / "began", resume=True),
        "validated": lambda: train(validated(), folder / "validated", on_validation=hear),
        "patience": lambda: train(validated(lr=1e-30, patience=2), folder / "patience"),
    }


def work(rank: int, folder: Path, ports: list[int]) -> None:
    """All that one of two processes does: starting processes is slow, so it is done once."""
    torch.set_num_threads(1)
    found = compute(rank, folder)
    environment = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    os.environ |= environment | {"MUE_START_SECONDS": "30", "MUE_LOST_SECONDS": "30"}
    for port, (name, job) in zip(ports, jobs(rank, folder).items(), strict=True):
        os.environ["MASTER_PORT"] = str(port)
        try:
            job()
        except (Exception, Interrupted) as error:
            found[name] = (type(error).__name__, str(error))
    torch.save(found, folder / f"{rank}.pt")


def free_ports(count: int) -> list[int]:
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in taken]
    for one in taken:
        one.close()
    return ports


class Killed(BaseException):
    """The end of a process that cannot say goodbye."""


def dying(record: LogRecord) -> None:
    if record.step == 7:
        raise Killed


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> Path:
    return train(tiny("vq"), tmp_path_factory.mktemp("alone") / "run").folder


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("two")


@pytest.fixture(scope="module")
def two(place) -> list[dict[str, Any]]:
    with pytest.raises(Killed):  # after the checkpoint of step 4
        train(tiny("vq"), place / "began", on_record=dying)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[1])  # where the new processes find this file
        spawn(work, (place, free_ports(len(jobs(0, place)))), nprocs=2)
    return [torch.load(place / f"{rank}.pt") for rank in (0, 1)]


def test_processes_know_who_they_are(two):
    assert [one["identity"] for one in two] == [(0, 2), (1, 2)]
    assert (collectives.rank(), collectives.world()) == (0, 1)


def test_the_mean_is_over_processes(two):
    for one in two:
        assert one["mean"].tolist() == [1.5, 7.5]
    assert collectives.all_mean(torch.tensor(3.0)) == 3


def test_what_is_true_in_one_process_is_true_in_all(two):
    for one in two:
        assert one["any"] == [False, True, True]
    assert [distributed.any_process(mine) for mine in (False, True)] == [False, True]


def test_shares_of_a_batch_make_up_the_batch(two):
    together = torch.cat([one["items"] for one in two])
    assert torch.equal(together, batch_index(tiny("vq"), 3, CPU))
    assert together.tolist() == list(range(48, 64))  # the fourth batch of 16


def test_two_processes_update_the_code_book_as_one(two):
    for one in two:
        torch.testing.assert_close(one["updated"], updated())


def test_the_farthest_encoding_is_the_same_in_every_process(two):
    for one in two:
        assert one["farthest"].tolist() == [12]  # process 1's second


@pytest.mark.parametrize("method", ["vq", "exact"])
def test_two_processes_train_as_one(two, method):
    alone = trained(method)
    for name, value in two[0][method]["weights"].items():
        assert torch.equal(value, two[1][method]["weights"][name]), name
    for one in two:
        torch.testing.assert_close(one[method], alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", ["vq", "exact"])
def test_the_training_that_was_compared_is_not_idle(method):
    """Its steps are far larger than the tolerance of the comparison, and move the codes too."""
    fresh, found = Training(tiny(method), CPU).learner.state_dict(), trained(method)
    for name, value in found["weights"].items():
        assert (value - fresh[name]).abs().max() > 1e-3, name
    assert found["split"]
    assert [any(codes) for codes in found["retired"]] == ([True] if method == "exact" else [])


# --- whole runs -----------------------------------------------------------------------------------


def state(folder: Path) -> dict[str, Any]:
    """All that a run ended with."""
    training = Training(load_config(folder), CPU)
    load_state_(folder, training)
    return {
        "weights": training.learner.state_dict(),
        "export": training.export(),
        "slots": training.optimizer.state,
        "step": training.step,
    }


def assert_same_run(folder: Path, other: Path) -> None:
    torch.testing.assert_close(state(folder), state(other), rtol=1e-3, atol=1e-4)
    assert [r.step for r in read_log(folder)] == [r.step for r in read_log(other)]
    for ours, theirs in zip(read_log(folder), read_log(other), strict=True):
        assert ours.total == pytest.approx(theirs.total, rel=1e-3)


def test_what_one_process_began_two_finish(two, place, alone):
    assert "began" not in two[0]
    assert_same_run(place / "began", alone)


def test_a_signal_to_one_process_stops_all_at_the_same_step_and_one_goes_on(two, place, alone):
    said = ("Interrupted", f"stopped at step 7, saved in {place / 'stop'}")
    assert [one["stop"] for one in two] == [said, said]
    assert state(place / "stop")["step"] == 7
    assert_same_run(train(tiny("vq"), place / "stop", resume=True).folder, alone)


def test_two_processes_validate_as_one_and_both_know_the_numbers(two, place, tmp_path):
    assert "validated" not in two[0] | two[1]
    alone = train(validated(), tmp_path / "run").folder
    ours, theirs = read_validations(place / "validated"), read_validations(alone)
    assert [r.step for r in ours] == [2, 4, 6, 8, 10, 12]
    for one, other in zip(ours, theirs, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-3)
        assert one.nll == pytest.approx(other.nll, rel=1e-3)
    heard = [(place / f"heard-{rank}").read_text() for rank in (0, 1)]
    assert heard[0] == heard[1] == "".join(f"{r}\n" for r in ours)


def test_two_processes_lose_their_patience_at_the_same_step(two, place):
    """With a learning rate next to nothing no validation is better than the first, of step 2."""
    assert "patience" not in two[0] | two[1]
    found = read_validations(place / "patience")
    assert [(r.step, r.stopped) for r in found] == [(2, False), (4, False), (6, True)]
    assert state(place / "patience")["step"] == 6


@pytest.mark.parametrize(
    ("job", "kind", "words"),
    [
        ("lr", "RemoteError", "process 1 has train.lr = 0.002, and process 0 has 0.001: start"),
        ("resume", "RemoteError", "process 1 has --resume = True, and process 0 has False: "),
        ("batch", "MueError", "train.batch must be a multiple of the 2 processes, got 15"),
        pytest.param(
            *("device", "RemoteError", "process 1: `device` is cuda, and torch finds no CUDA"),
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is one here"),
        ),
        ("folder", "RunError", "two must be empty or not exist yet, and it holds files"),
        ("share", "RemoteError", "process 1 has step = 4, and process 0 has 0: "),
    ],
)
def test_what_is_wrong_in_one_process_ends_all_with_the_same_words(two, place, job, kind, words):
    """Process 0 has an error of its own kind where it is its own, for it says it."""
    first, second = (one[job] for one in two)
    assert words in first[1].replace(place.name, "two")
    assert first[0] == kind
    assert second[0] == "RemoteError"
    assert words in second[1].replace(place.name, "two")
    assert not (place / "no").exists()


def test_an_error_of_our_own_is_not_taken_for_the_loss_of_a_process():
    words = "gloo is a word like any other"
    with pytest.raises(RuntimeError, match=words) as error, distributed.explain_lost_worker():
        raise RuntimeError(words)
    assert not isinstance(error.value, WorkerLostError)
