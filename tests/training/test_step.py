import dataclasses

import pytest
import torch

from mue.data.synthetic.toy import Bars
from mue.training.loop import fit
from mue.training.measure import measure
from mue.training.state import Training

CPU = torch.device("cpu")


def after(config, source=None) -> dict[str, torch.Tensor]:
    training = Training(config, CPU)
    list(fit(training, source or Bars()))
    return training.learner.state_dict()


def computed(config, **changes):
    return dataclasses.replace(config, compute=dataclasses.replace(config.compute, **changes))


@pytest.mark.parametrize("method", ["vq", "exact", "heads"])
def test_a_batch_in_parts_gives_the_same_weights(tiny, method):
    config = tiny(method, steps=6)
    whole, parts = after(config), after(computed(config, accumulate=4))
    assert all(torch.allclose(whole[n], parts[n], atol=2e-5) for n in whole)
    assert not all(torch.equal(whole[n], parts[n]) for n in whole)


def test_the_terms_of_a_batch_in_parts_are_those_of_the_batch(tiny):
    config = tiny("vq", steps=1)
    whole = measure(next(fit(Training(config, CPU), Bars())), 0.0)
    parts = measure(next(fit(Training(computed(config, accumulate=2), CPU), Bars())), 0.0)
    assert parts.total == pytest.approx(whole.total, rel=1e-5)
    assert parts.codes == whole.codes
