import dataclasses

import pytest
import torch

from mue.data.synthetic.toy import Bars
from mue.models.build import build_modal
from mue.models.posterior import concatenate
from mue.training.loop import fit
from mue.training.state import Training


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
