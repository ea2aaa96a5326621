import contextlib
import dataclasses
import itertools

import pytest
import torch

from mue.data.prefetch import Prefetcher
from mue.data.synthetic.toy import Bars
from mue.errors import MueError
from mue.training.batches import (
    GeneratedBatches,
    PrefetchedBatches,
    batch_index,
    batch_share,
    batch_threads,
    batches_of,
    first_item,
)
from mue.training.loop import fit
from mue.training.state import Training

CPU = torch.device("cpu")


def accumulated(config, parts: int):
    return dataclasses.replace(
        config, compute=dataclasses.replace(config.compute, accumulate=parts)
    )


class Streamed(Bars):
    """Bars that are not kept on the device."""

    def __init__(self) -> None:
        super().__init__()
        self.on_device = False


# --- which items ----------------------------------------------------------------------------------


def test_the_shares_of_all_processes_are_the_batches_without_gap_or_overlap(processes, tiny):
    config = tiny(batch=12)

    def work(rank: int) -> list[list[int]]:
        assert batch_share(config) == 4
        assert first_item(config, 2) == 24 + 4 * rank
        return [batch_index(config, step, CPU).tolist() for step in range(3)]

    shares = processes(3, work)
    found = [list(itertools.chain(*(share[step] for share in shares))) for step in range(3)]
    assert found == [list(range(12)), list(range(12, 24)), list(range(24, 36))]


def test_a_batch_that_processes_or_parts_cannot_share_is_refused(processes, tiny):
    def words(parts: int) -> str:
        with pytest.raises(MueError) as refused:
            batch_share(accumulated(tiny(batch=8), parts))
        return str(refused.value)

    assert (
        processes(3, lambda _: words(1))
        == ["train.batch must be a multiple of the 3 processes, got 8"] * 3
    )
    both = "train.batch must be a multiple of the 2 processes and 3 parts of compute.accumulate"
    assert all(said.startswith(both) for said in processes(2, lambda _: words(3)))
    assert processes(2, lambda _: batch_share(accumulated(tiny(batch=8), 4))) == [4, 4]


def test_a_batch_that_cannot_be_cut_so_is_refused(tiny):
    config = accumulated(tiny("exact"), 3)
    with pytest.raises(ValueError, match=r"train.batch must be a multiple .* 3 parts .*, got 8"):
        next(fit(Training(config, CPU), Bars()))


def test_threads_are_as_many_as_the_share_of_a_process_is_worth(processes, tiny, monkeypatch):
    asked: list[object] = []

    def threads_for(*work: object) -> contextlib.AbstractContextManager[None]:
        asked.append(work)
        return contextlib.nullcontext()

    monkeypatch.setattr("mue.training.batches.threads_for", threads_for)
    config = tiny(batch=12)
    processes(2, lambda _: batch_threads(config, Bars()))
    assert asked == [((6, 1, 8, 8), config.model.finest)] * 2


# --- where they are -------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [1, 4])
def test_the_parts_of_a_batch_make_up_the_batch(tiny, parts):
    config, first = accumulated(tiny(batch=8), parts), torch.tensor(0)
    generated = batches_of(config, CPU, Bars(), first)
    streamed = batches_of(config, CPU, Streamed(), first)
    assert (type(generated), type(streamed)) == (GeneratedBatches, PrefetchedBatches)
    for step in (0, 1, 5):
        first.fill_(first_item(config, step))
        whole = Bars().pair(torch.arange(8 * step, 8 * step + 8))
        for batches in (generated, streamed):
            batches.load_(step)
            pairs = [batches(part) for part in range(parts)]
            assert torch.equal(torch.cat([p.x for p in pairs]), whole.x)
            assert torch.equal(torch.cat([p.y for p in pairs]), whole.y)


def test_prefetched_batches_are_always_in_the_same_memory(tiny):
    """Where a CUDA graph, say, has been told to read them."""
    batches = PrefetchedBatches(tiny(batch=8), CPU, Streamed())
    seen = set[tuple[int, int]]()
    for step in range(3):
        batches.load_(step)
        seen.add((batches(0).x.data_ptr(), batches(0).y.data_ptr()))
    assert len(seen) == 1


def test_after_the_last_batch_none_is_read_in_advance(tiny, monkeypatch):
    noted: list[tuple[int, bool]] = []

    class Noting(Prefetcher):
        def __call__(self, step: int, *, prefetch_next: bool):
            noted.append((step, prefetch_next))
            return super().__call__(step, prefetch_next=prefetch_next)

    monkeypatch.setattr("mue.training.batches.Prefetcher", Noting)
    batches = PrefetchedBatches(tiny(batch=4, steps=3), CPU, Streamed())
    for step in range(3):
        batches.load_(step)
    assert noted == [(0, True), (1, True), (2, False)]


def test_batches_that_are_streamed_give_the_same_weights(tiny):
    found = []
    for source in (Bars(), Streamed()):
        training = Training(tiny("exact", steps=5), CPU)
        list(fit(training, source))
        found.append(training.learner.state_dict())
    assert all(torch.equal(value, found[1][name]) for name, value in found[0].items())
