import dataclasses

import pytest
import torch

from mue.data.synthetic.toy import Bars
from mue.training.loop import fit
from mue.training.state import Training

CPU = torch.device("cpu")


def after(config, source=None) -> dict[str, torch.Tensor]:
    training = Training(config, CPU)
    list(fit(training, source or Bars()))
    return training.learner.state_dict()


def computed(config, **changes):
    return dataclasses.replace(config, compute=dataclasses.replace(config.compute, **changes))


def test_a_batch_that_cannot_be_cut_so_is_refused(tiny):
    config = computed(tiny("exact"), accumulate=3)
    with pytest.raises(ValueError, match=r"train.batch must be a multiple .* 3 parts .*, got 8"):
        next(fit(Training(config, CPU), Bars()))


def test_batches_that_are_streamed_give_the_same_weights(tiny):
    config = tiny("exact", steps=5)
    streamed = Bars()
    streamed.on_device = False
    here, there = after(config), after(config, streamed)
    assert all(torch.equal(here[n], there[n]) for n in here)
