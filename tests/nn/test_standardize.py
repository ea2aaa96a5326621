import torch
from torch import nn

from mue.nn.standardize import StandardizedLinear

FAR = 50 + 0.1 * torch.randn(200, 4, generator=torch.Generator().manual_seed(0))


def test_before_its_start_it_is_a_linear_layer():
    torch.manual_seed(0)
    layer = StandardizedLinear(4, 3)
    torch.manual_seed(0)
    plain = nn.Linear(4, 3)
    assert torch.equal(layer(FAR), plain(FAR))


def test_after_its_start_the_features_have_no_mean_and_a_deviation_of_one():
    layer = StandardizedLinear(4, 3)
    layer.start_(FAR)
    seen = (FAR - layer.mean) / layer.deviation
    torch.testing.assert_close(seen.mean(dim=0), torch.zeros(4), atol=1e-3, rtol=0)
    torch.testing.assert_close(seen.var(dim=0).mean(), torch.ones(()))
    torch.testing.assert_close(layer(FAR), seen @ layer.weight.T + layer.bias)


def test_features_that_do_not_differ_are_not_divided_by_zero():
    layer = StandardizedLinear(4, 3)
    layer.start_(torch.ones(5, 4))
    assert layer(torch.ones(1, 4)).isfinite().all()
