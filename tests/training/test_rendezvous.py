import os
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
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
