import pytest
import torch
from torch import Tensor

from mue.data.random import choose, normal, uniform

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(z: int) -> int:
    """SplitMix64's finalizer, in Python's integers."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def slow(seed: int, index: int, column: int, salt: int) -> float:
    key = mix((seed * GOLDEN + salt) & MASK)
    return (mix((mix(index ^ key) + (column + 1) * GOLDEN) & MASK) >> 40) / 2**24


def chi_square(*u: Tensor) -> float:
    """Of the counts of points in a grid of 4 cells along each axis, against equal counts."""
    cell = sum((4 * v).long() * 4**i for i, v in enumerate(u))
    assert isinstance(cell, Tensor)
    count = torch.bincount(cell.flatten(), minlength=4 ** len(u)).double()
    expected = cell.numel() / 4 ** len(u)
    return ((count - expected).square() / expected).sum().item()


def test_the_slow_version_is_the_published_splitmix64():
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [mix((1234567 + i * GOLDEN) & MASK) for i in (1, 2, 3)] == published


def test_numbers_are_a_hash_of_seed_salt_index_and_column():
    index = torch.tensor([0, 1, 12345, 2**40 + 1])
    for seed, salt in [(0, 0), (7, 2), (2**62 + 1, 1)]:
        found = uniform(seed, index, 3, salt=salt)
        expected = [[slow(seed, i, column, salt) for column in range(3)] for i in index.tolist()]
        assert found.tolist() == expected


def test_an_item_is_the_same_whatever_else_is_in_the_batch():
    index = torch.randperm(100)
    together = uniform(3, index, 4)
    for place, i in enumerate(index.tolist()):
        assert torch.equal(uniform(3, torch.tensor([i]), 4)[0], together[place])
    assert torch.equal(uniform(3, index, 2), together[:, :2])


@pytest.mark.parametrize("seed", [0, 1, 2**40])
def test_numbers_are_uniform_and_independent(seed):
    n = 2**16
    index = torch.arange(n)
    u = uniform(seed, index, 2)
    assert u.min() >= 0
    assert u.max() < 1
    assert abs(u.mean().item() - 0.5) < 4 * (1 / 12 / (2 * n)) ** 0.5
    # A chi-square of f degrees of freedom has mean f and variance 2 f.
    assert chi_square(u) < 3 + 5 * 6**0.5
    beside = {
        "next column": (u[:, 0], u[:, 1]),
        "next item": (u[:-1, 0], u[1:, 0]),
        "next seed": (u[:, 0], uniform(seed + 1, index, 1)[:, 0]),
        "next salt": (u[:, 0], uniform(seed, index, 1, salt=1)[:, 0]),
    }
    for name, both in beside.items():
        assert chi_square(*both) < 15 + 5 * 30**0.5, name


def test_normal_numbers_have_the_moments_of_the_normal_distribution():
    z = normal(0, torch.arange(20_000), 5).flatten()
    n = len(z)
    for power, moment, variance in [(1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)]:
        assert abs((z**power).mean().item() - moment) < 4 * (variance / n) ** 0.5


def test_items_are_chosen_where_a_number_falls():
    q = torch.tensor([[0.25, 0.0, 0.5, 0.25], [0.0, 1.0, 0.0, 0.0]])
    u = torch.tensor([[0.0, 0.249, 0.25, 0.749, 0.75, 0.999]])
    assert choose(u.expand(2, 6), q).tolist() == [[0, 0, 2, 2, 3, 3], [1, 1, 1, 1, 1, 1]]


def test_rounding_in_the_weights_never_chooses_beyond_the_last():
    q = torch.tensor([[0.1, 0.1, 0.1, 0.69]])  # sums to less than 1
    assert choose(torch.tensor([[0.9999]]), q).tolist() == [[3]]
