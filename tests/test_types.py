import pytest
import torch
from torch import Tensor

from mue.types import Case, Hypotheses, Terms, mask_distance


def ranking(prob: list[float], y: list[float] | None = None) -> Hypotheses:
    """One input whose answers are numbers, by default 0, 1, 2, ..., with codes 10, 11, 12, ..."""
    k = len(prob)
    answers = torch.arange(float(k)) if y is None else torch.tensor(y)
    return Hypotheses(answers.view(1, k, 1), torch.tensor([prob]), torch.arange(10, 10 + k)[None])


def gap(a: Tensor, b: Tensor) -> Tensor:
    """Distance of numbers."""
    return (a - b.mT).abs()


# --- what is valid ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prob", "words"),
    [
        ([0.2, 0.6], "`prob` must be descending along k; sort before"),
        ([0.8, 0.4], r"`prob` must sum to at most 1 for each input, got 1\.2000"),
        ([0.5, -0.1], "`prob` must be a number of at least 0"),
        ([0.5, float("nan")], "`prob` must be a number of at least 0"),
    ],
)
def test_a_ranking_that_nobody_could_trust_is_refused(prob, words):
    with pytest.raises(ValueError, match=words):
        ranking(prob)


@pytest.mark.parametrize("q", [[0.5, 0.6], [1.5, -0.5], [0.5, float("nan")]])
def test_weights_of_a_case_that_are_no_distribution_are_refused(q):
    with pytest.raises(ValueError, match="`q` must be non-negative and sum to 1"):
        Case(torch.zeros(1, 1), torch.zeros(1, 2, 1), torch.tensor([q]), ("a",), ("g",))


def test_names_of_a_case_that_do_not_fit_its_inputs_are_refused():
    q = torch.tensor([[0.5, 0.5]])
    with pytest.raises(ValueError, match=r"a Case of 1 inputs needs as many .* got 2 and 1"):
        Case(torch.zeros(1, 1), torch.zeros(1, 2, 1), q, ("a", "b"), ("g",))


def test_the_total_is_the_sum_of_the_terms():
    terms = Terms(torch.tensor(1.0), torch.tensor(2.0), torch.tensor(4.0), torch.tensor(8.0))
    assert terms.total == 15
    assert list(terms.items()) == ["prior", "reconstruction", "commitment", "energy", "total"]


# --- what a ranking says ------------------------------------------------------------------------


def test_rest_is_what_was_left_out():
    h = ranking([0.6, 0.3])
    assert h.rest.item() == pytest.approx(0.1)
    assert h.normalized().rest.item() == pytest.approx(0, abs=1e-6)
    assert h.normalized().prob[0].tolist() == pytest.approx([2 / 3, 1 / 3])


def test_the_expected_answer_weighs_those_kept():
    assert ranking([0.6, 0.2], y=[1.0, 5.0]).expected().item() == pytest.approx(0.75 + 0.25 * 5)


def test_entropy_counts_the_rest_as_one_more_answer():
    equal = torch.tensor(3.0).log().item()
    assert ranking([1 / 3, 1 / 3, 1 / 3]).entropy().item() == pytest.approx(equal, abs=1e-5)
    assert ranking([1 / 3, 1 / 3]).entropy().item() == pytest.approx(equal, abs=1e-5)
    assert ranking([1.0, 0.0]).entropy().item() == 0


def test_masks_are_cut_at_one_half():
    sure, unsure = torch.tensor([0.9, 0.1]), torch.tensor([0.6, 0.5])
    assert mask_distance(sure.view(1, 1, 1, 1, 2), unsure.view(1, 1, 1, 1, 2)).item() == 0


# --- merging ------------------------------------------------------------------------------------


def test_an_answer_joins_the_first_kept_answer_that_is_near():
    # 0.2 joins 0.0. 0.4 is near 0.2, but that one is gone, so 0.4 is kept. 0.22 could join either.
    h = ranking([0.4, 0.3, 0.2, 0.1], y=[0.0, 0.2, 0.4, 0.22]).merge(gap, below=0.25)
    assert h.y.flatten().tolist() == pytest.approx([0.0, 0.4])
    assert h.prob[0].tolist() == pytest.approx([0.8, 0.2])
    assert h.code[0].tolist() == [10, 12]


def test_a_group_may_overtake_a_single_answer():
    h = ranking([0.4, 0.35, 0.25], y=[0.0, 9.0, 9.1]).merge(gap, below=1.0)
    assert h.code[0].tolist() == [11, 10]
    assert h.prob[0].tolist() == pytest.approx([0.6, 0.4])


def slow_merge(y: Tensor, prob: Tensor, code: Tensor, below: float) -> list[tuple[float, int]]:
    groups: list[list] = []  # mask, probability, code
    for mask, p, c in zip(y > 0.5, prob.tolist(), code.tolist(), strict=True):
        for group in groups:
            union = (mask | group[0]).sum().item()
            if union == 0 or 1 - (mask & group[0]).sum().item() / union < below:
                group[1] += p
                break
        else:
            groups.append([mask, p, c])
    return [(p, c) for _, p, c in sorted(groups, key=lambda g: -g[1])]


def test_merging_a_batch_is_a_greedy_loop_over_each_input():
    torch.manual_seed(0)
    kinds = torch.rand(5, 1, 4, 4).round()
    y = kinds[torch.randint(5, (16, 8))]
    y = torch.where(torch.rand_like(y) < 0.05, 1 - y, y)  # near, and not always the same
    prob = (0.9 * torch.randn(16, 8).softmax(dim=1)).sort(dim=1, descending=True).values
    code = torch.stack([torch.randperm(20)[:8] for _ in range(16)])
    before = Hypotheses(y, prob, code)
    after = before.merge(below=0.25)

    sizes = set()
    for i in range(16):
        groups = slow_merge(y[i], prob[i], code[i], below=0.25)
        sizes.add(len(groups))
        assert after.prob[i, : len(groups)].tolist() == pytest.approx([p for p, _ in groups])
        assert after.code[i, : len(groups)].tolist() == [c for _, c in groups]
        assert not after.prob[i, len(groups) :].any()
        for j, c in enumerate(after.code[i]):  # each answer still belongs to its code
            assert torch.equal(after.y[i, j], y[i][code[i] == c][0])
    assert len(sizes) > 2  # inputs with different numbers of distinct answers
    assert after.prob.shape[1] == max(sizes)
    torch.testing.assert_close(after.rest, before.rest)
    assert (after.entropy() <= before.entropy() + 1e-6).all()


# --- sampling -----------------------------------------------------------------------------------


def test_answers_are_sampled_as_often_as_they_are_probable():
    n = 20_000
    sampled = ranking([0.4, 0.3, 0.1]).sample(n, torch.Generator().manual_seed(0))
    for answer, p in enumerate([0.5, 0.375, 0.125]):  # among those kept: divided by 0.8
        share = (sampled.y == answer).float().mean().item()
        assert abs(share - p) < 4 * (p * (1 - p) / n) ** 0.5
    assert torch.equal(sampled.code, 10 + sampled.y[..., 0].long())
    torch.testing.assert_close(sampled.prob, torch.full((1, n), 1 / n))


def test_samples_are_the_generators():
    h = ranking([0.4, 0.3, 0.2, 0.1])
    one, same, other = (h.sample(50, torch.Generator().manual_seed(s)).code for s in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_sampling_nothing_is_refused():
    with pytest.raises(ValueError, match="`n`, the number of samples, must be at least 1, got 0"):
        ranking([1.0]).sample(0)


def test_vectors_are_merged_by_a_distance_of_their_own():
    y = torch.tensor([[[0.0, 0.0], [1.0, 0.0], [0.1, 0.0]]])
    h = Hypotheses(y, torch.tensor([[0.5, 0.3, 0.2]]), torch.tensor([[4, 5, 6]]))
    merged = h.merge(torch.cdist, below=0.5)
    torch.testing.assert_close(merged.prob, torch.tensor([[0.7, 0.3]]))
    with pytest.raises(ValueError, match=r"IoU distance is between images.*torch\.cdist"):
        h.merge()
