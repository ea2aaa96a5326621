"""The rendezvous of processes, and checks before they form a process group.

Torch's TCPStore and init_process_group do the work. Added here is what they do not do: a missing
process is named in one sentence, an error in one process ends all of them, and processes with
another configuration are refused before anything is written.
"""

import contextlib
import itertools
import json
import os
import socket
import time
import uuid
import warnings
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import HashStore, PrefixStore, Store, TCPStore  # pyright: ignore[reportPrivateImportUsage]

from mue.runtime.collectives import env_int
from mue.training.distributed import START_SECONDS, RemoteError, WorkerLostError, reason


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Processes that share a store and have no process group yet; by default, a single one.

    The store needs neither a device nor a collective, so an error in one process is known to all,
    and none waits for a process that has ended.
    """

    store: Store = field(default_factory=HashStore)
    rank: int = 0
    world: int = 1
    _rounds: Iterator[int] = field(default_factory=itertools.count)

    def gather(self, value: object) -> list[Any]:
        """The value of every process, by rank: anything that JSON can hold.

        Process 0, which may serve the store, returns once all have read it, and may end then.
        """
        key, ranks = f"mue/{next(self._rounds)}", range(self.world)
        self.store.set(f"{key}/{self.rank}", json.dumps(value))
        values = [json.loads(self._receive(f"{key}/{r}", r)) for r in ranks]
        self.store.set(f"{key}/read/{self.rank}", "")
        if self.rank == 0:
            with contextlib.suppress(dist.DistError):
                self.store.wait([f"{key}/read/{r}" for r in ranks], timedelta(seconds=5))
        return values

    def _receive(self, key: str, sender: int) -> str:
        who = f"process {sender} of {self.world}"
        with contextlib.suppress(dist.DistError):  # process 0 ended, and its store with it
            for _ in _poll(seconds := env_int(*START_SECONDS)):
                if text := _get(self.store, key):
                    return text
            raise WorkerLostError(f"{who} has sent nothing for {seconds} s")
        raise WorkerLostError(f"{who} has ended")

    @contextlib.contextmanager
    def all_or_none(self) -> Generator[None]:
        """Fail in every process if the block fails in one."""
        mine: Exception | None = None
        try:
            yield
        except Exception as error:
            mine = error
        messages = self.gather(None if mine is None else _message(mine))
        expected = isinstance(mine, (ValueError, OSError))
        if mine is not None and (self.rank == 0 or not expected):
            raise mine
        for r, message in enumerate(messages):
            if message is not None:
                raise RemoteError(message if r == 0 else f"process {r}: {message}") from None

    def require_equal(self, values: Mapping[str, object], remedy: str) -> None:
        """Refuse values that are not the same in every process."""
        first, *others = self.gather(values)
        for r, theirs in enumerate(others, start=1):
            for name, value in first.items():
                if theirs.get(name) != value:
                    raise RemoteError(
                        f"process {r} has {name} = {theirs.get(name)}, and process 0 has {value}: "
                        f"{remedy}"
                    )

    def init_process_group_(self, device: torch.device) -> None:
        """Form the process group: NCCL for tensors on GPUs, gloo on CPUs. None for one process."""
        if self.world == 1:
            return
        if device.type == "cuda":
            torch.cuda.set_device(device)
        warnings.filterwarnings("ignore", "Grad strides do not match")  # of axes of length 1
        try:
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
                store=self.store,
                rank=self.rank,
                world_size=self.world,
                timeout=timedelta(seconds=env_int(*START_SECONDS)),
            )
        except RuntimeError as error:
            raise WorkerLostError(
                f"process {self.rank} of {self.world} cannot connect to the others "
                f"({reason(error)}): GLOO_SOCKET_IFNAME may name the network to use"
            ) from None


def _message(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename or 'a file'}: {error.strerror or error}"
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"


def rendezvous() -> Rendezvous:
    """Connect to the processes named by the environment variables that `torchrun` sets."""
    if "RANK" not in os.environ or env_int("WORLD_SIZE") == 1:
        return Rendezvous()
    rank, world, port = env_int("RANK"), env_int("WORLD_SIZE"), env_int("MASTER_PORT")
    address, limit = os.environ.get("MASTER_ADDR", "localhost"), env_int(*START_SECONDS)
    served = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"  # by torchrun itself
    if rank > 0 or served:
        _connect(address, port, limit)
    try:
        store = TCPStore(
            address,
            port,
            is_master=rank == 0 and not served,
            timeout=timedelta(seconds=limit),
            wait_for_workers=False,  # it would not say which one is missing
            multi_tenant=True,
        )
        return Rendezvous(PrefixStore(agree_on_prefix(store, rank, world), store), rank, world)
    except dist.DistError as error:
        raise WorkerLostError(
            f"process {rank} of {world} cannot reach the store at {address}:{port} "
            f"({reason(error)}): MASTER_ADDR and MASTER_PORT must be process 0's, and free"
        ) from None


def agree_on_prefix(store: Store, rank: int, world: int) -> str:
    """Wait for all processes; returns a prefix of keys that they share and no earlier start has.

    After an elastic restart the store of `torchrun` still holds the keys of the processes before,
    and a change of membership does not raise TORCHELASTIC_RESTART_COUNT. So each process has a
    random token, and answers the tokens of the others: who has answered mine is present, and has
    published its own. The prefix is the token of process 0.
    """
    token, present = uuid.uuid4().hex, dict[int, str]()
    store.set(f"mue/token/{rank}", token)
    for _ in _poll(seconds := env_int(*START_SECONDS)):
        present = {r: size for r in range(world) if (size := _get(store, f"{token}/{r}"))}
        tokens = [_get(store, f"mue/token/{r}") for r in range(world)]  # after their answers
        for other in filter(None, tokens):
            store.set(f"{other}/{rank}", str(world))
        for r, size in present.items():
            if size != str(world):
                raise RemoteError(
                    f"process {rank} has WORLD_SIZE = {world}, and process {r} has {size}: "
                    "it must be the same for all"
                )
        if len(present) == world:
            return tokens[0]
    missing = next(r for r in range(world) if r not in present and r != rank)
    raise WorkerLostError(
        f"process {missing} of {world} has not joined within {seconds} s: "
        "start as many as WORLD_SIZE says, at the same time"
    )


def _get(store: Store, key: str) -> str:
    return store.get(key).decode() if store.check([key]) else ""


def _connect(address: str, port: int, seconds: int) -> None:
    """Wait until process 0 accepts connections. TCPStore would too, but prints many warnings."""
    for _ in _poll(seconds):
        with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=1):
            return
    raise WorkerLostError(
        f"no process has answered at {address}:{port} within {seconds} s: "
        "check that process 0 runs there, and that its machine can be reached"
    )


def _poll(seconds: int) -> Iterator[None]:
    """Yield every 20 ms until the time is up."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(0.02)
