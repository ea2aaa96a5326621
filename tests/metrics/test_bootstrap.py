import math

import pytest
import torch

from mue.metrics.bootstrap import interval, interval_of


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def patients(b: int = 300, groups: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    """Values whose mean differs from patient to patient, and patients of unequal size."""
    group = torch.randint(groups, (b,), generator=seeded()).square()
    offset = torch.randn(groups**2, generator=seeded(1))
    return torch.rand(b, generator=seeded(2)) + offset[group], group


def test_mean_and_deviation_are_those_of_the_values():
    found = interval(torch.tensor([1.0, 2.0, 3.0, 6.0]), torch.arange(4), generator=seeded())
    assert found.mean == pytest.approx(3)
    assert found.std == pytest.approx(math.sqrt((4 + 1 + 0 + 9) / 4))


def test_two_patients_by_hand():
    """A resample is both (1/4), one of each (1/2) or the other twice: slices weigh equally."""
    values, group = torch.tensor([0.0, 0.0, 0.0, 1.0]), torch.tensor([5, 5, 5, 8])
    wide = interval(values, group, generator=seeded(), resamples=2000)
    assert (wide.low, wide.high) == (0, 1)
    half = interval(values, group, generator=seeded(), resamples=2000, level=0.4)
    assert half.low == half.high == pytest.approx(0.25)  # three slices of 0 and one of 1


def test_one_patient_leaves_no_range():
    found = interval(torch.tensor([0.2, 0.7, 0.9]), torch.zeros(3).long(), generator=seeded())
    assert found.low == found.high == pytest.approx(found.mean)


def test_equal_values_leave_no_range():
    found = interval(torch.full((9,), 0.25), torch.arange(9) // 2, generator=seeded())
    assert (found.mean, found.std, found.low, found.high) == (0.25, 0, 0.25, 0.25)


def test_the_range_holds_the_mean_and_grows_with_its_level():
    values, group = patients()
    narrow, wide = (interval(values, group, generator=seeded(), level=x) for x in (0.5, 0.95))
    assert wide.low < narrow.low < wide.mean < narrow.high < wide.high


def test_it_is_the_range_of_resampled_patients():
    """Against lists of patients, sampled one by one."""
    values, group = patients(60, 6)
    names = group.unique()
    pick = torch.randint(len(names), (200, len(names)), generator=seeded())
    means = []
    for row in pick:
        sampled = [v for i in row for v in values[group == names[i]].tolist()]
        means.append(sum(sampled) / len(sampled))
    found = interval(values, group, generator=seeded(), resamples=200, level=0.9)
    expected = torch.tensor(means, dtype=torch.float64).quantile(
        torch.tensor([0.05, 0.95], dtype=torch.float64)
    )
    assert [found.low, found.high] == pytest.approx(expected.tolist())


def test_slices_of_one_patient_are_not_so_many_patients():
    values, group = patients()
    by_patient = interval(values, group, generator=seeded())
    by_slice = interval(values, torch.arange(len(values)), generator=seeded())
    assert by_patient.high - by_patient.low > 1.5 * (by_slice.high - by_slice.low)


def test_independent_values_give_the_range_of_the_normal_distribution():
    values = torch.randn(2000, generator=seeded())
    found = interval(values, torch.arange(2000), generator=seeded(), resamples=4000)
    error = found.std / math.sqrt(2000)
    assert (found.high - found.low) == pytest.approx(2 * 1.96 * error, rel=0.05)


def test_names_of_patients_and_order_of_slices_are_nothing():
    values, group = patients()
    expected = interval(values, group, generator=seeded())
    found = interval(values.flip(0), 3 * group.flip(0) + 7, generator=seeded())
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_a_mean_is_a_statistic_too():
    values, group = patients()
    expected = interval(values, group, generator=seeded(), resamples=100)
    found = interval_of(
        lambda index: values[index].double().mean().item(),
        group,
        generator=seeded(),
        resamples=100,
    )
    assert math.isnan(found.std)
    assert (found.mean, found.low, found.high) == pytest.approx(
        (expected.mean, expected.low, expected.high)
    )


def test_what_makes_no_interval_is_refused():
    one, group = torch.ones(1), torch.zeros(1).long()
    with pytest.raises(ValueError, match="needs at least one value, got none"):
        interval(one[:0], group[:0], generator=seeded())
    with pytest.raises(ValueError, match="`resamples` must be at least 1, got 0"):
        interval(one, group, generator=seeded(), resamples=0)
    with pytest.raises(ValueError, match="`level` must be between 0 and 1, got"):
        interval(one, group, generator=seeded(), level=95.0)


def test_values_and_groups_are_torch_or_numpy():
    values, group = patients()
    found = interval(values, group, generator=seeded())
    assert interval(values.numpy(), group.numpy(), generator=seeded()) == found

    def largest(index: torch.Tensor) -> float:
        return values[index].amax().item()

    of_groups = interval_of(largest, group.numpy(), generator=seeded())
    expected = interval_of(largest, group, generator=seeded())
    assert (of_groups.low, of_groups.mean, of_groups.high) == (
        expected.low,
        expected.mean,
        expected.high,
    )


@pytest.mark.usefixtures("unchecked")
def test_a_group_for_each_value_is_needed():
    with pytest.raises(ValueError, match=r"`group` must be b with b = 3, got the shape 2"):
        interval(torch.zeros(3).numpy(), torch.zeros(2).long().numpy(), generator=seeded())
