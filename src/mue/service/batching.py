"""Requests are gathered into small batches, and refused when too many wait."""

import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from mue.inference.predictor import Predictor
from mue.modes import Modes, Tree

_PIXELS, _PIXELS_CPU = 1 << 22, 1 << 16
"""Pixels of a batch, above which no further image is added. A core gains nothing from more than
four images of 128 x 128; smaller ones are worth gathering."""


class QueueFullError(Exception):
    """Too many images wait."""


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    model: str
    x: Float[Tensor, "1 c h w"]
    answer: Future[Modes] = field(default_factory=Future)


class Batcher:
    """Threads that answer images, those of one model and size together.

    A thread takes what waits and does not wait for more: alone, an image is computed at once, and
    under load, batches form while the one before is computed. On a CPU there are as many threads as
    cores, each computing with one: for several images that is faster than all cores on each.
    """

    def __init__(
        self,
        predictors: Mapping[str, Predictor],
        *,
        batch: int = 8,
        queue: int = 128,
        threads: int | None = None,
        on_batch: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.predictors, self._batch, self._queue = dict(predictors), batch, queue
        self._jobs: deque[_Job] = deque()
        self._ready, self._closed, self._on_batch = threading.Condition(), False, on_batch
        cpu = all(p.device.type == "cpu" for p in self.predictors.values())
        count = threads or (torch.get_num_threads() if cpu else 1)
        self._threads = [
            threading.Thread(target=self._run, args=(cpu and count > 1,), name=f"batcher-{i}")
            for i in range(count)
        ]
        for thread in self._threads:
            thread.daemon = True
            thread.start()

    @property
    def waiting(self) -> int:
        """How many images wait."""
        return len(self._jobs)

    def submit(self, model: str, x: Float[Tensor, "1 c h w"]) -> Future[Modes]:
        """The modes of all answers to an image, at the calibrated cut, as soon as they are known.

        Raises:
            QueueFullError: Too many images wait, or the service stops.
        """
        job = _Job(model, x)
        with self._ready:
            if self._closed or len(self._jobs) >= self._queue:
                raise QueueFullError
            self._jobs.append(job)
            self._ready.notify()
        return job.answer

    def close(self) -> None:
        """Finish what waits, refuse what is new."""
        with self._ready:
            self._closed = True
            self._ready.notify_all()
        for thread in self._threads:
            thread.join()

    def _run(self, one_core: bool) -> None:
        if one_core:
            torch.set_num_threads(1)
        while batch := self._take():
            batch = [job for job in batch if job.answer.set_running_or_notify_cancel()]
            if not batch:
                continue
            self._on_batch(len(batch))
            self._answer(batch)

    def _answer(self, batch: list[_Job]) -> None:
        """Compute a batch; where that fails, each image alone, so that it fails for itself only."""
        try:
            x = torch.cat([job.x for job in batch])
            found = split(self.predictors[batch[0].model].modes(x, normalized=True).cpu())
        except Exception as error:
            if len(batch) == 1:
                batch[0].answer.set_exception(error)
                return
            for job in batch:
                self._answer([job])
        else:
            for job, modes in zip(batch, found, strict=True):
                job.answer.set_result(modes)

    def _take(self) -> list[_Job]:
        """The first job and those of its kind behind it; none when all is done and closed."""
        with self._ready:
            self._ready.wait_for(lambda: self._jobs or self._closed)
            if not self._jobs:
                return []
            first = self._jobs[0]
            batch, others = list[_Job](), deque[_Job]()
            # samples depend on their place in a batch, so those of each image are taken alone
            predictor = self.predictors[first.model]
            pixels = _PIXELS_CPU if predictor.device.type == "cpu" else _PIXELS
            limit = (
                1
                if predictor.is_sampler
                else min(self._batch, max(1, pixels // first.x[0].numel()))
            )
            share = -(-len(self._jobs) // len(self._threads))  # leave their part to the others
            for job in self._jobs:
                same = job.model == first.model and job.x.shape == first.x.shape
                (batch if same and len(batch) < min(limit, share) else others).append(job)
            self._jobs = others
            return batch


def split(modes: Modes) -> list[Modes]:
    """The modes of each input of a batch, as a batch of one, without what fills it up."""
    found: list[Modes] = []
    for i, count in enumerate(modes.count.tolist()):
        row, m = slice(i, i + 1), max(1, count)
        tree = Tree(modes.tree.distance[row], modes.tree.parent[row], modes.tree.height[row])
        found.append(
            replace(
                modes,
                y=modes.y[row, :m],
                prob=modes.prob[row, :m],
                spread=modes.spread[row, :m],
                representative=modes.representative[row, :m],
                mode=modes.mode[row],
                answers=modes.answers[row],
                answer_prob=modes.answer_prob[row],
                answer_code=modes.answer_code[row],
                tree=tree,
            )
        )
    return found
