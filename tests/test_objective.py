import dataclasses
import math

import pytest
import torch
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Normal

from mue.config.schema import ObjectiveConfig
from mue.errors import MueError
from mue.metrics.energy import ged
from mue.metrics.overlap import iou_distance
from mue.objective import (
    Weights,
    balanced,
    energy,
    log_likelihood,
    objective,
)
from mue.types import ExactTrace, HeadsTrace, LatentTrace, VqTrace

PLAIN = Weights(prior=1.0, temperature=1.0, balance=False)
NORMAL = ObjectiveConfig(likelihood="normal")
ENERGY = ObjectiveConfig(reconstruction=0.0, commitment=0.0, energy=1.0)


def answers(kind: str, b: int, r: int) -> Tensor:
    """Random answers of 3 channels and 2x2 pixels."""
    if kind == "bernoulli":
        return torch.rand(b, r, 3, 2, 2).round()
    if kind == "categorical":
        return torch.eye(3)[torch.randint(3, (b, r, 2, 2))].movedim(-1, 2)
    return torch.randn(b, r, 3, 2, 2)


def slow(logits: Tensor, y: Tensor, kind: str, deviation: float = 1.0) -> Tensor:
    """log p(y) of one answer under one decoding, from torch.distributions."""
    if kind == "bernoulli":
        return Bernoulli(logits=logits).log_prob(y).sum()
    if kind == "categorical":
        return Categorical(logits=logits.movedim(0, -1)).log_prob(y.argmax(dim=0)).sum()
    normal = Normal(logits, deviation)
    return (normal.log_prob(y) - normal.log_prob(logits)).sum()  # up to the constant


KINDS = pytest.mark.parametrize("kind", ["bernoulli", "categorical", "normal"])


@KINDS
def test_the_likelihood_of_every_pair_is_that_of_torch_distributions(kind):
    torch.manual_seed(0)
    logits, y = torch.randn(2, 4, 3, 2, 2), answers(kind, 2, 3)
    found = log_likelihood(logits, y, kind)
    for i in range(2):
        for j in range(4):
            for k in range(3):
                torch.testing.assert_close(found[i, j, k], slow(logits[i, j], y[i, k], kind))


def test_the_deviation_is_that_of_a_normal_answer():
    torch.manual_seed(0)
    logits, y = torch.randn(1, 1, 3, 2, 2), answers("normal", 1, 1)
    found = log_likelihood(logits, y, "normal", 0.1).squeeze()
    torch.testing.assert_close(found, slow(logits[0, 0], y[0, 0], "normal", 0.1))
    for kind in ("bernoulli", "categorical"):  # these have none
        y = answers(kind, 1, 1)
        assert torch.equal(log_likelihood(logits, y, kind, 0.1), log_likelihood(logits, y, kind))


# --- vq -------------------------------------------------------------------------------------------


def test_the_papers_objective_by_hand():
    ln2 = torch.tensor(2.0).log()
    trace = VqTrace(
        log_prior=torch.tensor([[0.5, 0.25, 0.25], [0.25, 0.25, 0.5]]).log(),
        logits=torch.zeros(2, 1, 1, 1, 3),  # each of three pixels is a fair coin: 3 ln 2
        encoding=torch.zeros(2, 1, 4),
        index=torch.tensor([[0], [1]]),  # ln 2 and ln 4
        distance=torch.tensor([[4.0], [8.0]]),
    )
    terms = objective(trace, torch.ones(2, 1, 1, 1, 3), ObjectiveConfig(), PLAIN)
    torch.testing.assert_close(terms.prior, (ln2 + 2 * ln2) / 2)
    torch.testing.assert_close(terms.reconstruction, 3 * ln2)
    torch.testing.assert_close(terms.commitment, torch.tensor(0.25 * 6))


@KINDS
def test_each_answer_is_compared_with_its_own_decoding(kind):
    torch.manual_seed(0)
    y, logits = answers(kind, 2, 3), torch.randn(2, 3, 3, 2, 2)
    index = torch.randint(5, (2, 3))
    log_prior = torch.randn(2, 5).log_softmax(dim=1)
    trace = VqTrace(log_prior, logits, torch.zeros(2, 3, 4), index, torch.rand(2, 3))
    terms = objective(trace, y, ObjectiveConfig(likelihood=kind), PLAIN)
    pairs = [(i, j) for i in range(2) for j in range(3)]
    mean = torch.stack([-slow(logits[i, j], y[i, j], kind) for i, j in pairs]).mean()
    torch.testing.assert_close(terms.reconstruction, mean)
    mean = torch.stack([-log_prior[i, index[i, j]] for i, j in pairs]).mean()
    torch.testing.assert_close(terms.prior, mean)


# --- exact ----------------------------------------------------------------------------------------


def negative_log_marginal(log_prior: Tensor, logits: Tensor, y: Tensor, kind: str) -> Tensor:
    """The mean over inputs and answers of -log sum_c p(c|x) p(y|c,x), as it is defined."""
    losses = []
    for i in range(len(y)):
        for answer in y[i]:
            joint = [
                p.exp() * slow(d, answer, kind).exp()
                for p, d in zip(log_prior[i], logits[i], strict=True)
            ]
            losses.append(-torch.stack(joint).sum().log())
    return torch.stack(losses).mean()


@KINDS
@pytest.mark.parametrize("raters", [1, 3])
def test_the_gradient_of_exact_is_that_of_the_marginal_likelihood(kind, raters):
    torch.manual_seed(0)
    y = answers(kind, 2, raters)
    scores = torch.randn(2, 4, requires_grad=True)
    logits = torch.randn(2, 4, 3, 2, 2, requires_grad=True)
    trace = ExactTrace(scores.log_softmax(dim=1), logits)
    found = torch.autograd.grad(
        objective(trace, y, ObjectiveConfig(likelihood=kind), PLAIN).total, [scores, logits]
    )
    slowly = negative_log_marginal(scores.log_softmax(dim=1), logits, y, kind)
    for mine, theirs in zip(found, torch.autograd.grad(slowly, [scores, logits]), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_exact_exceeds_the_marginal_likelihood_by_the_entropy_of_the_responsibilities():
    torch.manual_seed(0)
    y, logits = answers("bernoulli", 1, 1), torch.randn(1, 4, 3, 2, 2)
    log_prior = torch.randn(1, 4).log_softmax(dim=1)
    joint = log_prior[:, :, None] + log_likelihood(logits, y, "bernoulli")
    entropy = torch.special.entr(joint.softmax(dim=1)).sum()
    terms = objective(ExactTrace(log_prior, logits), y, ObjectiveConfig(), PLAIN)
    torch.testing.assert_close(terms.total, entropy - joint.logsumexp(dim=1).squeeze())
    assert terms.commitment == 0


def test_terms_scale_with_their_weights():
    torch.manual_seed(0)
    trace = ExactTrace(torch.randn(2, 4).log_softmax(dim=1), torch.randn(2, 4, 3, 2, 2))
    y = answers("bernoulli", 2, 1)
    plain = objective(trace, y, ObjectiveConfig(), PLAIN)
    config, off = ObjectiveConfig(reconstruction=3.0), dataclasses.replace(PLAIN, prior=0.0)
    terms = objective(trace, y, config, off)
    assert terms.prior == 0
    torch.testing.assert_close(terms.reconstruction, 3 * plain.reconstruction)


# --- balancing ------------------------------------------------------------------------------------


def test_balanced_codes_share_the_answers_of_a_batch_evenly():
    torch.manual_seed(0)
    score = 3 * torch.randn(20, 5, 2)
    share = balanced(score, rounds=100).softmax(dim=1).sum(dim=(0, 2))
    torch.testing.assert_close(share, torch.full((5,), 20 * 2 / 5), rtol=1e-3, atol=0)


@pytest.mark.parametrize("gaps", [[[0.0, -500.0], [0.0, -600.0]], [[0.0, -1e4], [0.0, -3e4]]])
def test_a_gap_that_no_exponential_spans_is_bridged(gaps):
    """exp(-500) is 0 in float32, and still the code that is worse everywhere gets an answer.

    It is the first one. The odds r of that grow by 2 a round: the codes have (2 + r) / (1 + r) and
    r / (1 + r) of the two answers, and balancing multiplies r by the ratio of these.
    """
    taken = balanced(torch.tensor(gaps)[..., None], rounds=5).softmax(dim=1)[..., 0]
    torch.testing.assert_close(taken, torch.tensor([[1 / 11, 10 / 11], [1.0, 0.0]]))


def test_balancing_shifts_each_code_by_one_number():
    torch.manual_seed(0)
    score = torch.randn(6, 3, 2)
    shift = balanced(score) - score
    torch.testing.assert_close(shift, shift[:1, :, :1].expand(6, 3, 2))


def test_a_code_that_is_better_everywhere_takes_only_its_share_while_balancing():
    y, logits = torch.zeros(2, 1, 1), torch.tensor([[1.0], [3.0]]).expand(2, 2, 1)
    trace = ExactTrace(torch.tensor([0.9, 0.1]).log().expand(2, 2), logits)
    balance = dataclasses.replace(PLAIN, balance=True)
    found = objective(trace, y, NORMAL, balance)  # each code answers for one half
    torch.testing.assert_close(found.reconstruction, torch.tensor((0.5 * 1**2 + 0.5 * 3**2) / 2))
    torch.testing.assert_close(found.prior, -torch.tensor([0.9, 0.1]).log().mean())


def test_with_a_sharpness_it_does_not_matter_how_alike_the_codes_are():
    torch.manual_seed(0)
    trace = ExactTrace(torch.zeros(4, 3), torch.randn(4, 3, 2))
    y, shared = torch.randn(4, 5, 2), dataclasses.replace(PLAIN, balance=True)

    def reconstruction(deviation: float) -> torch.Tensor:
        config = ObjectiveConfig(likelihood="normal", deviation=deviation, sharpness=10.0)
        return objective(trace, y, config, shared).reconstruction * deviation**2

    torch.testing.assert_close(reconstruction(100.0), reconstruction(1.0))
    equal = -log_likelihood(trace.logits, y, "normal").mean()
    assert reconstruction(100.0) < 0.7 * equal  # each answer is left to a code that is near


def test_codes_that_are_the_same_have_no_deviation_to_divide_by():
    trace = ExactTrace(torch.zeros(2, 3), torch.zeros(2, 3, 2))
    config = ObjectiveConfig(likelihood="normal", sharpness=10.0)
    terms = objective(trace, torch.ones(2, 5, 2), config, dataclasses.replace(PLAIN, balance=True))
    assert terms.total.isfinite()


def test_the_temperature_divides_the_likelihood_that_responsibilities_are_made_of():
    # Each code is best at one answer, by 2 nats: 1 nat at temperature 2, so odds of e.
    y, logits = torch.zeros(2, 1, 1), torch.tensor([[0.0, 2.0], [2.0, 0.0]])[..., None]
    trace = ExactTrace(torch.tensor([0.9, 0.1]).log().expand(2, 2), logits)
    soft = dataclasses.replace(PLAIN, balance=True, temperature=2.0)
    found = objective(trace, y, NORMAL, soft)
    torch.testing.assert_close(found.reconstruction, torch.tensor(2 / (1 + math.e)))


# --- energy ---------------------------------------------------------------------------------------


def soft(a: Tensor, b: Tensor) -> Tensor:
    """The soft IoU distance of two answers, pixel by pixel."""
    both, either = 0.0, 0.0
    for p, q in zip(a.flatten().tolist(), b.flatten().tolist(), strict=True):
        both += p * q
        either += p + q - p * q
    return torch.tensor(1 - (both + 1) / (either + 1))


def test_the_energy_is_that_of_a_loop_over_all_pairs():
    torch.manual_seed(0)
    s, y = torch.rand(2, 4, 1, 3, 3), torch.rand(2, 3, 1, 3, 3).round()
    p = torch.rand(2, 4).softmax(dim=1)
    total = torch.zeros(())
    for b in range(2):
        for i in range(4):
            for j in range(3):
                total += 2 * p[b, i] * soft(s[b, i], y[b, j]) / 3
            for j in range(4):
                if i != j:
                    total -= p[b, i] * p[b, j] * soft(s[b, i], s[b, j])
    torch.testing.assert_close(energy(s, p, y), total / 2)


def test_answers_that_are_the_raters_own_leave_their_disagreement_alone():
    """With s = y and p = 1/r the distance is 0, and what is left is minus its constant."""
    torch.manual_seed(0)
    y = torch.rand(3, 4, 1, 5, 5).round()
    constant = torch.stack([soft(a, b) for one in y for a in one for b in one]).mean()
    p = torch.full((3, 4), 0.25)
    torch.testing.assert_close(energy(y, p, y) - constant, torch.zeros(()), atol=1e-6, rtol=0)
    assert energy(y[:, [1, 0, 2, 3]], p, y) == pytest.approx(constant.item(), abs=1e-6)
    assert energy(y, torch.tensor([0.4, 0.3, 0.2, 0.1]).expand(3, 4), y) > constant


def test_the_energy_of_large_masks_is_the_metric_up_to_the_raters_own():
    torch.manual_seed(0)
    s, y = torch.rand(3, 5, 1, 64, 64) < 0.4, torch.rand(3, 4, 1, 64, 64) < 0.5
    p, q = torch.rand(3, 5).softmax(dim=1), torch.full((3, 4), 0.25)
    constant = iou_distance(y, y).mean(dim=(1, 2))
    found = energy(s.float(), p, y.float())
    torch.testing.assert_close(found, (ged(s, p, y, q) + constant).mean(), atol=2e-3, rtol=0)


def test_an_answer_is_its_own_twin_however_soft_it_is():
    """A soft answer is no distance from itself: unsure of each pixel, it gains no diversity."""
    s, y = torch.full((1, 1, 1, 4, 4), 0.5), torch.ones(1, 1, 1, 4, 4)
    found = energy(s, torch.ones(1, 1), y)
    torch.testing.assert_close(found, 2 * torch.tensor(1 - (8 + 1) / (16 + 1)))


def test_energy_moves_the_prior_to_the_answer_that_more_raters_gave():
    first, second = torch.zeros(2, 1, 1, 4, 4)
    first[..., :2, :], second[..., 2:, :] = 1, 1
    s = torch.stack([first, second])[None, :, 0]
    y = torch.stack([first, first, first, second])[None, :, 0]
    scores = torch.zeros(1, 2, requires_grad=True)
    energy(s, scores.softmax(dim=1), y).backward()
    assert scores.grad is not None
    assert scores.grad[0, 0] < 0 < scores.grad[0, 1]  # against the gradient is towards the first
    for _ in range(300):
        value = energy(s, scores.softmax(dim=1), y)
        (gradient,) = torch.autograd.grad(value, [scores])
        scores = (scores - gradient).detach().requires_grad_()
    # Its least is at the raters' own shares: the energy distance is a proper score.
    torch.testing.assert_close(
        scores.softmax(dim=1), torch.tensor([[0.75, 0.25]]), atol=1e-3, rtol=0
    )


def test_energy_moves_an_answer_to_what_the_raters_drew():
    logits = torch.zeros(1, 1, 1, 1, 2, requires_grad=True)
    y = torch.tensor([1.0, 0.0]).view(1, 1, 1, 1, 2)
    trace = ExactTrace(torch.zeros(1, 1), logits)
    off = dataclasses.replace(PLAIN, prior=0.0)
    (gradient,) = torch.autograd.grad(objective(trace, y, ENERGY, off).total, [logits])
    inside, outside = gradient.flatten()
    assert inside < 0 < outside


def test_energy_counts_by_its_weight_and_not_at_all_at_zero():
    torch.manual_seed(0)
    trace = ExactTrace(torch.randn(2, 4).log_softmax(dim=1), torch.randn(2, 4, 1, 3, 3))
    y = torch.rand(2, 3, 1, 3, 3).round()
    terms = objective(trace, y, ObjectiveConfig(energy=3.0), PLAIN)
    alone = energy(trace.logits.sigmoid(), trace.log_prior.exp(), y)
    torch.testing.assert_close(terms.energy, 3 * alone)
    without = objective(trace, y, ObjectiveConfig(), PLAIN)
    assert without.energy == 0
    torch.testing.assert_close(terms.total, without.total + 3 * alone)


def test_vq_has_no_energy():
    trace = VqTrace(
        torch.zeros(2, 3).log_softmax(dim=1),
        torch.zeros(2, 1, 1, 2, 2),
        torch.zeros(2, 1, 4),
        torch.zeros(2, 1, dtype=torch.long),
        torch.zeros(2, 1),
    )
    config = ObjectiveConfig(energy=5.0)
    assert objective(trace, torch.ones(2, 1, 1, 2, 2), config, PLAIN).energy == 0


# --- baselines ------------------------------------------------------------------------------------


def test_the_objective_of_a_gaussian_latent_by_hand():
    """Each of six pixels is a fair coin: 6 ln 2, a sum; KL 0.5 and 1.5, mean 1, times beta = 10."""
    trace = LatentTrace(torch.zeros(2, 1, 1, 2, 3), torch.tensor([[0.5], [1.5]]))
    y = torch.ones(2, 1, 1, 2, 3)
    terms = objective(trace, y, ObjectiveConfig(divergence=10.0), PLAIN)
    assert terms.reconstruction.item() == pytest.approx(6 * math.log(2))
    assert terms.prior.item() == pytest.approx(10)
    assert (terms.commitment, terms.energy) == (0, 0)


def test_beta_stays_what_it_is_when_the_reconstruction_is_scaled():
    """Both terms scale alike: what is minimised has the same least."""
    torch.manual_seed(0)
    trace = LatentTrace(torch.randn(2, 3, 1, 4, 4), torch.rand(2, 3))
    y, beta = torch.rand(2, 3, 1, 4, 4).round(), ObjectiveConfig(divergence=10.0)
    whole = objective(trace, y, beta, PLAIN).total
    part = objective(trace, y, dataclasses.replace(beta, reconstruction=0.02), PLAIN).total
    torch.testing.assert_close(part, 0.02 * whole)


@KINDS
def test_each_answer_is_compared_with_the_decoding_of_its_own_latent(kind):
    torch.manual_seed(0)
    y, logits = answers(kind, 2, 3), torch.randn(2, 3, 3, 2, 2)
    terms = objective(
        LatentTrace(logits, torch.zeros(2, 3)), y, ObjectiveConfig(likelihood=kind), PLAIN
    )
    pairs = [-slow(logits[i, j], y[i, j], kind) for i in range(2) for j in range(3)]
    torch.testing.assert_close(terms.reconstruction, torch.stack(pairs).mean())


@KINDS
@pytest.mark.parametrize("best", [False, True])
def test_of_heads_the_best_learns_or_all_do(kind, best):
    torch.manual_seed(0)
    y, logits = answers(kind, 2, 3), torch.randn(2, 4, 3, 2, 2)
    config, weights = ObjectiveConfig(likelihood=kind), dataclasses.replace(PLAIN, best=best)
    terms = objective(HeadsTrace(logits), y, config, weights)
    losses = torch.stack(
        [
            torch.stack([-slow(logits[i, h], y[i, j], kind) for h in range(4)])
            for i in range(2)
            for j in range(3)
        ]
    )
    expected = losses.amin(dim=1) if best else losses.mean(dim=1)
    torch.testing.assert_close(terms.total, expected.mean())
    assert (terms.prior, terms.commitment, terms.energy) == (0, 0, 0)


def one_hot(labels: Tensor, classes: int) -> Tensor:
    return torch.nn.functional.one_hot(labels, classes).movedim(-1, 2).float()


def test_several_classes_have_a_softmax_and_the_distance_over_classes():
    """Against a slow version, pair by pair and class by class, without the background."""
    torch.manual_seed(0)
    logits, log_prior = torch.randn(2, 3, 4, 5, 6), torch.randn(2, 3).log_softmax(dim=1)
    y = one_hot(torch.randint(4, (2, 2, 5, 6)), 4)
    config = dataclasses.replace(ENERGY, likelihood="categorical")
    found = objective(ExactTrace(log_prior, logits), y, config, PLAIN).energy

    def slow_distance(a: Tensor, b: Tensor) -> float:
        total = weight = 0.0
        for i in range(1, 4):
            both = (a[i] * b[i]).sum().item()
            either = a[i].sum().item() + b[i].sum().item() - both
            total += either / (either + 1) * (1 - (both + 1) / (either + 1))
            weight += either / (either + 1)
        return total / weight

    expected = 0.0
    for s, p, ys in zip(logits.softmax(dim=2), log_prior.exp().tolist(), y, strict=True):
        for i in range(3):
            expected += sum(2 * p[i] * slow_distance(s[i], one) / 2 for one in ys) / 2
            expected -= sum(p[i] * p[j] * slow_distance(s[i], s[j]) / 2 for j in range(3) if j != i)
    assert found.item() == pytest.approx(expected, abs=1e-5)


def test_an_energy_distance_of_answers_that_are_no_masks_is_refused():
    with pytest.raises(
        MueError, match=r"objective.energy must be 0 where .* is normal, .*, got 1.0"
    ):
        ObjectiveConfig(likelihood="normal", energy=1.0)
