import dataclasses

import pytest
import torch
from torch import nn

from mue.data.synthetic.toy import Bars
from mue.models.build import build_modal
from mue.models.posterior import concatenate
from mue.nn.standardize import StandardizedLinear
from mue.training.loop import fit
from mue.training.state import Training

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


@pytest.mark.parametrize("method", ["exact", "vq"])
def test_the_prior_of_a_training_starts_standardized_and_stays_so(tiny, method: str):
    config = tiny(method, steps=2, ema=0.9)
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, standardize=True))
    training = Training(config, torch.device("cpu"))
    network = training.network
    pooled = network.get_submodule("encoder")(Bars().pair(torch.arange(256)).x).pooled
    list(fit(training, Bars()))
    torch.testing.assert_close(network.get_parameter("prior.mean"), pooled.mean(dim=0))
    for name in ("prior.mean", "prior.deviation"):
        torch.testing.assert_close(training.export()[name], network.get_parameter(name))
    build_modal(config).load_state_dict(training.export())


def test_the_encodings_of_vq_start_standardized(tiny):
    """As far apart as the features of different answers allow, so codes differ from the start."""
    config = tiny("vq", steps=1)
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, standardize=True))
    training = Training(config, torch.device("cpu"))
    posterior = training.learner.get_submodule("posterior")
    next(fit(training, Bars()))
    project = posterior.get_submodule("project")
    pair = Bars().pair(torch.arange(256))
    with torch.no_grad():
        fresh = Training(config, torch.device("cpu")).learner.get_submodule("posterior.encoder")
        pooled = fresh(concatenate(pair.x, pair.y)).pooled
    torch.testing.assert_close(project.get_parameter("mean"), pooled.mean(dim=0))
    torch.testing.assert_close(
        project.get_parameter("deviation"), pooled.var(dim=0).mean().sqrt().clamp_min(1e-6)
    )
