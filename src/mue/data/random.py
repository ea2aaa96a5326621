"""Random numbers that depend on (seed, index) alone."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mue.errors import MueError

_GOLDEN, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def check_seed(seed: int) -> None:
    """Refuse a seed that torch has no generator for."""
    if not 0 <= seed < 1 << 63:
        raise MueError(f"`seed` must be in 0..2^63-1, got {seed}")


def _signed(value: int) -> int:
    """An unsigned 64-bit integer as the signed one of the same bits, as torch stores it."""
    value &= 2**64 - 1
    return value - 2**64 if value >= 2**63 else value


def _mix(z: Int[Tensor, "*s"]) -> Int[Tensor, "*s"]:
    """Scramble 64-bit integers: the finalizer of SplitMix64 (Steele, Lea and Flood 2014)."""
    for shift, factor in ((30, _MIX_1), (27, _MIX_2), (31, 1)):
        high = (z >> shift) & ((1 << (64 - shift)) - 1)  # torch shifts with the sign: mask it off
        z = (z ^ high) * _signed(factor)
    return z


def _key(seed: int) -> int:
    """`_mix` of one number, on the host: a batch generated on a GPU needs no copy from it."""
    z = seed & (2**64 - 1)
    for shift, factor in ((30, _MIX_1), (27, _MIX_2), (31, 1)):
        z = (z ^ (z >> shift)) * factor & (2**64 - 1)
    return _signed(z)


def uniform(
    seed: int, index: Int[Tensor, " b"], count: int, *, salt: int = 0
) -> Float[Tensor, "b count"]:
    """`count` uniform numbers in [0, 1) for each index, the same on every device.

    A counter-based generator: the numbers are a hash of (seed, salt, index, column). So item i of
    a data set is the same in every batch and process, a run resumes without any generator state,
    and a batch is generated without a loop over its items. Another `salt` gives independent
    numbers for the same items.

    >>> one, both = torch.tensor([7]), torch.tensor([3, 7])
    >>> torch.equal(uniform(0, one, 4)[0], uniform(0, both, 4)[1])
    True
    """
    key = _key(seed * _GOLDEN + salt)
    column = torch.arange(1, count + 1, device=index.device) * _signed(_GOLDEN)
    bits = _mix(_mix(index.long() ^ key)[:, None] + column)
    return ((bits >> 40) & (2**24 - 1)).float() / 2**24


def normal(
    seed: int, index: Int[Tensor, " b"], count: int, *, salt: int = 0
) -> Float[Tensor, "b count"]:
    """`count` standard normal numbers for each index (Box-Muller)."""
    u, v = uniform(seed, index, 2 * count, salt=salt).chunk(2, dim=1)
    return (-2 * (1 - u).log()).sqrt() * (2 * torch.pi * v).cos()


def choose(u: Float[Tensor, "b r"], q: Float[Tensor, "b m"]) -> Int[Tensor, "b r"]:
    """Sample from each row of `q` by uniform numbers (inverse CDF): item j has probability q_j.

    >>> choose(torch.tensor([[0.05, 0.95]]), torch.tensor([[0.1, 0.9]]))
    tensor([[0, 1]])
    """
    return (u[:, :, None] >= q.cumsum(dim=1)[:, None, :-1]).sum(dim=2)
