from typing import Any, cast

import pytest
import torch
from torch import nn

from mue.models.build import build_network
from mue.models.network import Network, equally_probable

METHODS: dict[str, dict[str, Any]] = {
    "vq": {"method": "vq"},
    "exact": {"method": "exact"},
    "scored": {"method": "exact", "codebook": {"reads_answers": True}},
    "probunet": {"method": "probunet"},
    "unet": {"method": "heads"},
    "dropout": {"method": "heads", "dropout": 0.5},
    "ensemble": {"method": "heads", "latent": {"members": 3}},
    "mheads": {"method": "heads", "latent": {"heads": 3}},
}


@pytest.fixture(params=METHODS)
def network(request, tiny) -> Network:
    torch.manual_seed(0)
    made = build_network(tiny(**METHODS[request.param])).eval().requires_grad_(False)
    assert isinstance(made, Network)
    return made


def test_answers_without_a_ranking_share_the_probability_and_have_no_code():
    logits = torch.arange(12.0).view(2, 3, 1, 2)
    found = equally_probable(logits)
    assert torch.equal(found.logits, logits)
    assert found.prob.tolist() == [[pytest.approx(1 / 3)] * 3] * 2
    assert found.code.tolist() == [[-1] * 3] * 2
    assert found.code.dtype == torch.long


def test_a_network_gives_as_many_answers_as_it_has_or_as_are_asked_for(network):
    k = network.max_answers or 5
    found = network.propose(torch.rand(2, 1, 8, 8), k, generator=torch.Generator().manual_seed(0))
    assert found.logits.shape[:2] == found.prob.shape == found.code.shape == (2, k)
    assert (found.prob.diff(dim=1) <= 0).all()
    torch.testing.assert_close(found.prob.sum(dim=1), torch.ones(2))
    different = {answer.sum().item() for answer in found.logits[0]}
    assert len(different) == k


def test_as_many_forward_passes_are_counted_as_the_encoder_of_answers_makes(network):
    """The prior of the Probabilistic U-Net has an encoder of its own; it is the other one."""
    k, calls = network.max_answers or 5, list[str]()
    for name, module in cast("nn.Module", network).named_modules():
        if name.endswith("encoder") and not name.startswith("prior"):
            module.register_forward_hook(lambda *_, name=name: calls.append(name))
    network.propose(torch.rand(1, 1, 8, 8), k, generator=torch.Generator().manual_seed(0))
    assert len(calls) == network.forward_passes(k)
