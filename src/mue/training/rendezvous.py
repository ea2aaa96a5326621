"""How processes find one another, and agree that all is well before they compute together."""

from __future__ import annotations

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

import torch
import torch.distributed as dist
from torch.distributed import (
    PrefixStore,  # pyright: ignore[reportPrivateImportUsage]
    Store,  # pyright: ignore[reportPrivateImportUsage]
    TCPStore,  # pyright: ignore[reportPrivateImportUsage]
)

from mue.training.distributed import START_SECONDS, ElsewhereError, LostError, reason, told


@dataclass(frozen=True, slots=True)
class Meeting:
    """Processes that have found one another and do not compute together yet.

    They talk through the store of their rendezvous, which needs neither a device nor a collective:
    what is wrong in one process is known to all, and none waits for one that has left. A process
    alone has no store and nobody to ask.
    """

    store: Store | None = None
    rank: int = 0
    world: int = 1
    _rounds: Iterator[int] = field(default_factory=itertools.count)

    def tell(self, words: str) -> list[str]:
        """Say something; hear what every process says in this round."""
        if self.store is None:
            return [words]
        number = next(self._rounds)
        self.store.set(f"mue/{number}/{self.rank}", words)
        return [self._hear(f"mue/{number}/{r}", r) for r in range(self.world)]

    @contextlib.contextmanager
    def together(self) -> Generator[None]:
        """Fail in every process where the block fails in one."""
        mine: Exception | None = None
        try:
            yield
        except Exception as error:
            mine = error
        said = self.tell("" if mine is None else _words(mine))
        wrong = [(r, words) for r, words in enumerate(said) if words]
        if not wrong:
            return
        self._leave()
        expected = isinstance(mine, (ValueError, OSError))
        if mine is not None and (self.rank == 0 or not expected):
            raise mine
        r, words = wrong[0]
        raise ElsewhereError(words if r == 0 else f"process {r}: {words}") from None

    def require_alike(self, facts: Mapping[str, object], way_out: str) -> None:
        """Refuse to go on where a fact is not the same in every process."""
        cards = [json.loads(card) for card in self.tell(json.dumps(facts))]
        for r, card in enumerate(cards):
            for name, value in cards[0].items():
                if card.get(name) != value:
                    self._leave()
                    raise ElsewhereError(
                        f"process {r} has {name} = {card.get(name)}, and process 0 has {value}: "
                        f"{way_out}"
                    )

    def start_(self, device: torch.device) -> None:
        """Compute together from here on. Alone, there is nothing to do."""
        if self.store is None:
            return
        if device.type == "cuda":
            torch.cuda.set_device(device)
        warnings.filterwarnings("ignore", "Grad strides do not match")  # an axis of 1 has no step
        try:
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
                store=self.store,
                rank=self.rank,
                world_size=self.world,
                timeout=timedelta(seconds=told(*START_SECONDS)),
            )
        except RuntimeError as error:
            raise LostError(
                f"process {self.rank} of {self.world} cannot connect to the others "
                f"({reason(error)}): GLOO_SOCKET_IFNAME may name the network to take"
            ) from None

    def _hear(self, key: str, who: int) -> str:
        if self.store is None:
            raise LostError("a process alone hears nobody")
        with contextlib.suppress(dist.DistError):  # the store went with the process that kept it
            for _ in _until(seconds := told(*START_SECONDS)):
                if self.store.check([key]):
                    return self.store.get(key).decode()
            raise LostError(f"process {who} of {self.world} has said nothing for {seconds} s")
        raise LostError(f"process {who} of {self.world} has left")

    def _leave(self) -> None:
        """Where process 0 keeps the store, let it stay until the others have read it."""
        if self.store is not None:
            self.store.set(f"mue/left/{self.rank}", "")
            if self.rank == 0:
                with contextlib.suppress(dist.DistError):
                    others = [f"mue/left/{r}" for r in range(self.world)]
                    self.store.wait(others, timedelta(seconds=5))


def _words(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename or 'a file'}: {error.strerror or error}"
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"


def meet() -> Meeting:
    """Find the processes that `torchrun` started, or whoever set RANK, within a bounded time."""
    if "RANK" not in os.environ or told("WORLD_SIZE") == 1:
        return Meeting()
    rank, world, port = told("RANK"), told("WORLD_SIZE"), told("MASTER_PORT")
    address, limit = os.environ.get("MASTER_ADDR", "localhost"), told(*START_SECONDS)
    kept = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"  # by torchrun itself
    if rank > 0 or kept:
        _reach(address, port, limit)
    try:
        store = TCPStore(
            address,
            port,
            is_master=rank == 0 and not kept,
            timeout=timedelta(seconds=limit),
            wait_for_workers=False,
            multi_tenant=True,
        )
        return Meeting(PrefixStore(agree(store, rank, world), store), rank, world)
    except dist.DistError as error:
        raise LostError(
            f"process {rank} of {world} cannot meet the others at {address}:{port} "
            f"({reason(error)}): MASTER_ADDR and MASTER_PORT must be process 0's, and free"
        ) from None


def agree(store: Store, rank: int, world: int) -> str:
    """Wait until all processes are here; give this start a name that they share and no other has.

    When `torchrun` starts anew, its store still holds what was said before. So each process says
    hello by a word of its own, process 0 calls the roll of these words, again for each that is new,
    and whoever hears its own word answers to that roll. All are here when all have answered.
    """
    word, heard, here = uuid.uuid4().hex, dict[str, str](), dict[int, int]()
    store.set(f"mue/hello/{rank}", word)
    for _ in _until(seconds := told(*START_SECONDS)):
        if rank == 0:
            now = {str(r): w for r in range(world) if (w := _said(store, f"mue/hello/{r}"))}
            if now != heard:
                heard = now
                call = {"name": uuid.uuid4().hex, "words": heard}
                store.set("mue/roll", json.dumps(call))
        roll = json.loads(_said(store, "mue/roll") or '{"words": {}}')
        if roll["words"].get(str(rank)) != word:
            continue
        store.set(f"{roll['name']}/{rank}", str(world))
        answers = {r: _said(store, f"{roll['name']}/{r}") for r in range(world)}
        here = {r: int(n) for r, n in answers.items() if n}
        for r, n in here.items():
            if n != world:
                raise ElsewhereError(
                    f"process {rank} was told of {world} processes, and process {r} of {n}: "
                    "WORLD_SIZE must be the same for all"
                )
        if len(here) == world:
            return roll["name"]
    missing = next(r for r in range(world) if r not in here and r != rank)
    raise LostError(
        f"process {missing} of {world} has not come within {seconds} s: "
        "start as many as WORLD_SIZE says, at the same time"
    )


def _said(store: Store, key: str) -> str:
    return store.get(key).decode() if store.check([key]) else ""


def _reach(address: str, port: int, seconds: int) -> None:
    """Wait until process 0 can be reached. Torch would wait too, but not end in one sentence."""
    for _ in _until(seconds):
        with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=1):
            return
    raise LostError(
        f"nobody has answered at {address}:{port} within {seconds} s: "
        "see that process 0 runs there, and that its machine can be reached"
    )


def _until(seconds: int) -> Iterator[None]:
    """Try again and again, for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(0.02)
