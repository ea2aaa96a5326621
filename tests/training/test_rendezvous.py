import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.distributed as dist
from torch.distributed import HashStore  # pyright: ignore[reportPrivateImportUsage]

from mue.cli.main import main
from mue.training.distributed import RemoteError, WorkerLostError
from mue.training.rendezvous import Rendezvous, agree_on_prefix, rendezvous


@pytest.fixture
def set_environment(monkeypatch):
    """Sets the environment of one of several processes."""

    def set_variables(**environment: object) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        basic = {"WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        for name, value in (basic | {"MUE_START_SECONDS": 1} | environment).items():
            monkeypatch.setenv(name, str(value))

    return set_variables


@pytest.mark.parametrize(
    ("rank", "words"),
    [
        (0, "mue: process 1 of 2 has not joined within 1 s: start as many as WORLD_SIZE says, at"),
        (1, "mue: no process has answered at 127.0.0.1:{port} within 1 s: check that process 0"),
    ],
)
def test_who_waits_in_vain_says_so_in_a_sentence(set_environment, capsys, tmp_path, rank, words):
    set_environment(RANK=rank)
    with pytest.raises(SystemExit) as stop:
        main(["train", "toy", "--out", str(tmp_path / "run")])
    assert stop.value.code == 1
    said = capsys.readouterr().err
    assert said.startswith(words.format(port=os.environ["MASTER_PORT"]))
    assert said.count("\n") == 1
    assert not (tmp_path / "run").exists()


def prefixes_of_threads(*numbers: tuple[int, int], store: HashStore) -> list[str]:
    """What becomes of processes, each with its rank and the world size of its environment."""

    def name(rank: int, world: int) -> str:
        try:
            return agree_on_prefix(store, rank, world)
        except (RemoteError, WorkerLostError) as error:
            return str(error)

    with ThreadPoolExecutor(len(numbers)) as pool:
        return list(pool.map(lambda one: name(*one), numbers))


def test_each_start_has_a_name_of_its_own_that_all_know(set_environment):
    """After a restart the store still holds what was said before, by as many or by more."""
    set_environment()
    store, seen = HashStore(), set[str]()
    for world in (2, 2, 3, 2):
        (name,) = set(prefixes_of_threads(*((r, world) for r in range(world)), store=store))
        assert name not in seen
        seen.add(name)


def test_processes_with_different_world_sizes_do_not_wait_for_more(set_environment):
    set_environment(MUE_START_SECONDS=60)
    for first, second in ((2, 3), (3, 2)):
        said = prefixes_of_threads((0, first), (1, second), store=HashStore())
        assert said == [
            f"process {r} has WORLD_SIZE = {ours}, and process {1 - r} has {theirs}: "
            "it must be the same for all"
            for r, ours, theirs in ((0, first, second), (1, second, first))
        ]


def test_a_failure_that_nobody_expected_keeps_its_kind_and_reaches_the_others(set_environment):
    set_environment()
    store = HashStore()
    store.set("mue/0/0", "null")
    with pytest.raises(ZeroDivisionError), Rendezvous(store, rank=1, world=2).all_or_none():
        _ = 1 / 0
    words = "process 1: ZeroDivisionError: division by zero"
    with pytest.raises(RemoteError, match=words), Rendezvous(store, rank=0, world=2).all_or_none():
        pass


def test_one_process_that_torchrun_started_is_alone(set_environment):
    set_environment(RANK=0, WORLD_SIZE=1)
    assert rendezvous().world == 1


@pytest.mark.parametrize("value", ["", "two"])
def test_an_environment_variable_that_is_no_number_is_named(set_environment, value):
    set_environment(RANK=0, WORLD_SIZE=value)
    with pytest.raises(ValueError, match=f"WORLD_SIZE must be a whole number .*, got '{value}'"):
        rendezvous()


def of_threads(world: int, work: Callable[[Rendezvous], object]) -> list[object]:
    """What becomes of processes that share a store: results, or errors."""
    store = HashStore()

    def one(rank: int) -> object:
        try:
            return work(Rendezvous(store, rank, world))
        except Exception as error:
            return error

    with ThreadPoolExecutor(world) as pool:
        return list(pool.map(one, range(world)))


def test_everybody_has_the_value_of_everybody_round_after_round():
    found = of_threads(3, lambda group: [group.gather(10 * i + group.rank) for i in range(4)])
    assert found == [[[10 * i, 10 * i + 1, 10 * i + 2] for i in range(4)]] * 3


def test_a_single_process_gathers_its_own_value_and_needs_no_group():
    alone = Rendezvous()
    assert alone.gather({"a": 1}) == [{"a": 1}]
    alone.require_equal({"a": 1}, "never mind")
    alone.init_process_group_(torch.device("cpu"))
    assert not dist.is_initialized()


def test_the_value_that_differs_is_named_in_every_process():
    def work(group: Rendezvous) -> None:
        group.require_equal({"lr": 1, "seed": 4 + (group.rank == 2)}, "start them alike")

    words = "process 2 has seed = 5, and process 0 has 4: start them alike"
    assert [(type(e), str(e)) for e in of_threads(3, work)] == [(RemoteError, words)] * 3


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("k is wrong"), "k is wrong"),
        (OSError(28, "No space left on device", "log"), "log: No space left on device"),
        (OSError("gone"), "a file: gone"),
    ],
)
@pytest.mark.parametrize("rank", [0, 1])
def test_an_error_in_one_process_is_said_by_all(rank, error, words):
    """Process 0 says its own as it is, and of the others whose it was."""

    def work(group: Rendezvous) -> None:
        with group.all_or_none():
            if group.rank == rank:
                raise error

    found = of_threads(2, work)
    remote = RemoteError, words if rank == 0 else f"process 1: {words}"
    expected = [(type(error), str(error)) if rank == 0 else remote, remote]
    assert [(type(e), str(e)) for e in found] == expected


def test_who_sends_nothing_is_named(monkeypatch):
    monkeypatch.setenv("MUE_START_SECONDS", "0")
    with pytest.raises(WorkerLostError, match="process 0 of 2 has sent nothing for 0 s"):
        Rendezvous(HashStore(), rank=1, world=2).gather(1)
