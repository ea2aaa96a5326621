import pytest
import torch

from mue.errors import MueError
from mue.runtime import collectives
from mue.runtime.collectives import all_max_, all_mean, all_sum_, env_int, farthest


@pytest.mark.parametrize("value", ["", "two"])
def test_an_environment_variable_that_is_no_number_is_named(monkeypatch, value):
    monkeypatch.setenv("WORLD_SIZE", value)
    with pytest.raises(MueError, match=f"WORLD_SIZE must be a whole number .*, got '{value}'"):
        env_int("WORLD_SIZE")


def test_a_number_of_the_environment_comes_before_its_default(monkeypatch):
    monkeypatch.setenv("MUE_START_SECONDS", "7")
    assert env_int("MUE_START_SECONDS", 600) == 7
    monkeypatch.delenv("MUE_START_SECONDS")
    assert env_int("MUE_START_SECONDS", 600) == 600


def test_reductions_are_over_all_processes(processes):
    def work(rank: int) -> list[list[float]]:
        mine = torch.tensor([1.0, 5.0], requires_grad=True)
        one, two = torch.tensor([1.0 + rank]), torch.tensor([10.0, -rank])
        largest = torch.tensor([1.0 * rank, -1.0 * rank])
        all_sum_(one, two)
        all_max_(largest)
        mean = all_mean(mine * (rank + 1))
        assert not mean.requires_grad
        assert mine.tolist() == [1, 5]
        return [one.tolist(), two.tolist(), largest.tolist(), mean.tolist()]

    assert processes(3, work) == [[[6], [30, -3], [2, 0], [2, 10]]] * 3


def test_alone_a_reduction_is_the_identity_and_a_mean_is_a_copy():
    value = torch.tensor([1.0, 5.0])
    mean = all_mean(value)
    all_sum_(value)
    all_max_(value)
    mean += 1
    assert value.tolist() == [1, 5]
    assert (collectives.rank(), collectives.world()) == (0, 1)


@pytest.mark.parametrize("lowest", [0.0, -9.0, float("-inf")])
def test_the_farthest_row_is_that_of_all_rows_together(processes, lowest):
    """Where none is positive, too, and where some do not count at all."""
    random = torch.Generator().manual_seed(0)
    rows = torch.randn(3, 4, 2, generator=random)
    distance = torch.randn(3, 4, generator=random) - 5
    distance[0] = lowest
    expected = rows.flatten(0, 1)[distance.flatten().argmax()]
    assert torch.equal(farthest(rows.flatten(0, 1), distance.flatten()), expected)
    for found in processes(3, lambda rank: farthest(rows[rank], distance[rank])):
        assert torch.equal(found, expected)


def test_of_rows_equally_far_the_first_process_has_the_farthest(processes):
    found = processes(2, lambda rank: farthest(torch.tensor([[rank + 1.0]]), torch.tensor([3.0])))
    assert [row.item() for row in found] == [1, 1]
