import dataclasses

import pytest
import torch

from mue.config.schema import Config
from mue.data.synthetic.toy import Bars
from mue.models.build import build_modal
from mue.models.posterior import concatenate
from mue.training.loop import fit
from mue.training.start import start_
from mue.training.state import Training

CPU = torch.device("cpu")


@pytest.mark.parametrize("method", ["exact", "vq"])
def test_the_prior_of_a_training_starts_standardized_and_stays_so(tiny, method: str):
    config = tiny(method, steps=2, ema=0.9)
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, standardize=True))
    training = Training(config, CPU)
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
    training = Training(config, CPU)
    posterior = training.learner.get_submodule("posterior")
    next(fit(training, Bars()))
    project = posterior.get_submodule("project")
    pair = Bars().pair(torch.arange(256))
    with torch.no_grad():
        fresh = Training(config, CPU).learner.get_submodule("posterior.encoder")
        pooled = fresh(concatenate(pair.x, pair.y)).pooled
    torch.testing.assert_close(project.get_parameter("mean"), pooled.mean(dim=0))
    torch.testing.assert_close(
        project.get_parameter("deviation"), pooled.var(dim=0).mean().sqrt().clamp_min(1e-6)
    )


class Unread(Bars):
    """Bars that nobody may ask for."""

    def pair(self, index):
        raise AssertionError(f"{len(index)} items were read")


def begun(config: Config, source: Bars) -> tuple[Training, set[str]]:
    """A training that starts, and what its start has changed."""
    training = Training(config, CPU)
    before = {name: value.clone() for name, value in training.learner.state_dict().items()}
    start_(training, source)
    after = training.learner.state_dict()
    for name, value in training.network.named_parameters():
        assert torch.equal(training.ema[name], value), name
    return training, {name for name in before if not torch.equal(before[name], after[name])}


@pytest.mark.parametrize("method", ["exact", "probunet", "heads"])
def test_without_statistics_to_take_no_data_are_read(tiny, method: str):
    assert begun(tiny(method, ema=0.9), Unread())[1] == set()


def test_only_standardization_and_the_code_book_are_started(tiny):
    prior = {"network.prior.mean", "network.prior.deviation"}
    project = {"posterior.project.mean", "posterior.project.deviation"}
    for method, changed in (
        ("exact", prior),
        ("vq", prior | project | {"network.codebook.codes"}),
    ):
        config = tiny(method, ema=0.9)
        model = dataclasses.replace(config.model, standardize=True)
        assert begun(dataclasses.replace(config, model=model), Bars())[1] == changed


def test_the_codes_have_the_mean_and_deviation_of_the_encodings_of_the_first_inputs(tiny):
    """Of 256, or of the first batch if it is larger; the normal numbers depend on the seed."""
    found: dict[tuple[int, int], torch.Tensor] = {}
    for batch, seed in ((8, 0), (512, 0), (8, 1)):
        config = tiny("vq", batch=batch, seed=seed, codebook={"size": 2000})
        training, changed = begun(config, Bars())
        assert changed == {"network.codebook.codes"}
        pair = Bars().pair(torch.arange(max(256, batch)))
        with torch.no_grad():
            encoding = training.learner.get_submodule("posterior")(pair.x, pair.y).flatten(0, 1)
        codes = training.network.get_parameter("codebook.codes").detach()
        found[batch, seed] = (codes - encoding.mean(dim=0)) / encoding.std(dim=0)
    normal = found[8, 0]
    torch.testing.assert_close(found[512, 0], normal, atol=1e-3, rtol=1e-3)
    assert (found[8, 1] - normal).abs().mean() > 0.5
    assert normal.mean(dim=0).abs().max() < 5 / 2000**0.5
    assert (normal.std(dim=0) - 1).abs().max() < 5 / 4000**0.5
