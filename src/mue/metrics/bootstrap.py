"""How sure one can be of a number that was measured on some patients and not on others."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from mue.errors import MueError
from mue.metrics import door
from mue.metrics.door import Array


@dataclass(frozen=True, slots=True)
class Interval:
    """A number over a test set, and the range it would vary in over test sets like it.

    `std` is the population deviation over the values; NaN for a statistic that is no mean of them.
    """

    mean: float
    std: float
    low: float
    high: float


def interval(
    values: Shaped[Array, " b"],
    group: Shaped[Array, " b"],
    *,
    generator: torch.Generator,
    resamples: int = 1000,
    level: float = 0.95,
) -> Interval:
    """Mean of the values with its bootstrap interval over groups.

    The slices of a patient are alike, so patients are resampled, whole and with replacement.
    The mean of a resample weights slices equally, as the mean itself does:

        sum of the sampled groups' sums / sum of the sampled groups' sizes

    >>> value, patient = torch.tensor([0.0, 1.0, 1.0]), torch.tensor([7, 7, 9])
    >>> interval(value, patient, generator=torch.Generator().manual_seed(0))
    Interval(mean=0.6666..., std=0.4714..., low=0.5, high=1.0)
    """
    values, group = door.tables(values=(values, "b"), group=(group, "b"))
    v = values.double()
    member, times = _resample(group, resamples, generator)
    sums = v.new_zeros(times.shape[1]).index_add_(0, member, v)
    sizes = member.bincount().double()
    low, high = _percentiles((times @ sums) / (times @ sizes), level)
    return Interval(v.mean().item(), v.std(correction=0).item(), low, high)


def interval_of(
    statistic: Callable[[Tensor], float],
    group: Shaped[Array, " b"],
    *,
    generator: torch.Generator,
    resamples: int = 1000,
    level: float = 0.95,
) -> Interval:
    """A statistic that is no mean, such as the ECE, with its bootstrap interval over groups.

    `statistic` is called once for each resample, with the indices of its inputs, some repeated.

    >>> value, patient = torch.tensor([0.0, 1.0, 1.0]), torch.tensor([7, 7, 9])
    >>> g = torch.Generator().manual_seed(0)
    >>> interval_of(lambda index: value[index].amax().item(), patient, generator=g)
    Interval(mean=1.0, std=nan, low=1.0, high=1.0)
    """
    (group,) = door.tables(group=(group, "b"))
    member, times = _resample(group, resamples, generator)
    inputs = torch.arange(len(group), device=group.device)
    values = [statistic(inputs.repeat_interleave(t.long()[member])) for t in times]
    low, high = _percentiles(torch.tensor(values, dtype=torch.float64), level)
    return Interval(statistic(inputs), float("nan"), low, high)


def _resample(
    group: Int[Tensor, " b"], resamples: int, generator: torch.Generator
) -> tuple[Int[Tensor, " b"], Float[Tensor, "t g"]]:
    """Number the g groups, and count how often each of them is in each of t resamples."""
    if not len(group):
        raise MueError("an interval needs at least one value, got none")
    if resamples < 1:
        raise MueError(f"`resamples` must be at least 1, got {resamples}")
    names, inverse = np.unique(group.cpu().numpy(), return_inverse=True)
    size = (resamples, len(names))
    pick = torch.randint(len(names), size, generator=generator, device=generator.device)
    times = torch.zeros(size, dtype=torch.float64, device=group.device)
    times.scatter_add_(1, pick.to(group.device), torch.ones_like(times))
    return torch.as_tensor(inverse, device=group.device), times


def _percentiles(values: Float[Tensor, " t"], level: float) -> tuple[float, float]:
    """The range that holds the share `level` of the resamples, as much below it as above."""
    if not 0 < level < 1:
        raise MueError(f"`level` must be between 0 and 1, got {level}")
    return values.quantile((1 - level) / 2).item(), values.quantile((1 + level) / 2).item()
