import threading

import pytest
import torch

from mue.data.prefetch import Prefetcher
from mue.data.synthetic.toy import Bars

CPU = torch.device("cpu")


def parts(step: int):
    return torch.arange(8 * step, 8 * step + 8).chunk(2)


class Watched(Bars):
    """Bars that note which thread asked for which item first."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[int, bool]] = []

    def pair(self, index):
        here = threading.current_thread() is threading.main_thread()
        self.asked.append((int(index[0]), here))
        return super().pair(index)


def test_the_pairs_are_those_that_the_source_makes():
    ahead, source = Prefetcher(Bars(), parts, CPU), Bars()
    for step in (0, 1, 2, 7, 8):  # whether they follow one another or not
        for found, index in zip(ahead(step, prefetch_next=True), parts(step), strict=True):
            wanted = source.pair(index)
            assert torch.equal(found.x, wanted.x)
            assert torch.equal(found.y, wanted.y)


def test_the_next_step_is_made_by_another_thread_and_nothing_after_the_last():
    source = Watched()
    ahead = Prefetcher(source, parts, CPU)
    ahead(0, prefetch_next=True)
    ahead(1, prefetch_next=False)
    assert source.asked == [(0, False), (4, False), (8, False), (12, False)]


def test_what_goes_wrong_there_is_raised_here():
    class Broken(Bars):
        def pair(self, index):
            del index
            raise OSError("the file is gone")

    with pytest.raises(OSError, match="the file is gone"):
        Prefetcher(Broken(), parts, CPU)(0, prefetch_next=True)
