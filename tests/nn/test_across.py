import pytest
import torch
from torch import nn

from mue.config.schema import ObjectiveConfig
from mue.nn.across import ALONE
from mue.nn.codebook import Usage
from mue.objective import Weights, objective
from mue.training.distributed import PROCESSES
from mue.types import ExactTrace, Terms


def test_alone_nothing_is_reduced():
    value, module = torch.tensor([1.0, 2.0], requires_grad=True), nn.Linear(2, 2)
    kept = value.detach().clone()
    ALONE.sum_(kept, kept)
    ALONE.max_(kept)
    mean = ALONE.mean(value)
    assert kept.tolist() == mean.tolist() == [1, 2]
    assert not mean.requires_grad
    assert ALONE.replicate(module) is module
    with ALONE.no_sync(module):
        module(torch.ones(1, 2)).sum().backward()
    assert module.bias.grad is not None


def test_codes_follow_the_parts_of_a_batch_as_they_follow_the_batch(processes):
    torch.manual_seed(0)
    fresh, e, index = torch.randn(5, 3), torch.randn(8, 3), torch.randint(4, (8,))

    def updated(part: slice, across=ALONE) -> tuple[torch.Tensor, torch.Tensor]:
        codes, usage = fresh.clone(), Usage(5, decay=0.9)
        usage.update_(codes, e[part], index[part], across)
        return codes, usage.count

    whole = updated(slice(None))
    for found in processes(2, lambda rank: updated(slice(rank, None, 2), PROCESSES)):
        torch.testing.assert_close(found, whole)


@pytest.mark.parametrize("balance", [False, True])
def test_the_mean_of_the_terms_of_the_parts_is_the_term_of_the_batch(processes, balance):
    """Balancing and its scale depend on the other parts of the batch too."""
    torch.manual_seed(0)
    log_prior, logits = torch.randn(8, 4).log_softmax(dim=1), torch.randn(8, 4, 1, 3, 3)
    y = torch.rand(8, 2, 1, 3, 3).round()
    config = ObjectiveConfig(reconstruction=0.1, energy=2.0, sharpness=3.0)
    weights = Weights(prior=1.0, temperature=2.0, balance=balance, best=False)

    def terms(part: slice, across=ALONE) -> Terms:
        trace = ExactTrace(log_prior[part], logits[part])
        return objective(trace, y[part], config, weights, across)

    halves = processes(2, lambda rank: terms(slice(4 * rank, 4 * rank + 4), PROCESSES))
    torch.testing.assert_close(Terms.mean(halves).by_name(), terms(slice(None)).by_name())
