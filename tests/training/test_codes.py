import dataclasses
from typing import cast

import pytest
import torch

from mue.config.presets import preset
from mue.data.build import build_source
from mue.data.synthetic.toy import Bars
from mue.evaluation.validation import predictor_of
from mue.metrics.modes import mode_probabilities, mode_tv
from mue.models.modal import Modal
from mue.objective import own_log_likelihood
from mue.training.batches import batch_index
from mue.training.codes import (
    CodeUse,
    divide_code_,
    find_division,
    find_retired,
    is_division_due,
    measure_codes,
    retire_,
    worst_encoding,
)
from mue.training.loop import fit
from mue.training.state import Training

CPU = torch.device("cpu")


def modal(training: Training) -> Modal:
    return cast("Modal", training.network)


def use(share: list[float], loss: list[float], prior: list[float] | None = None) -> CodeUse:
    return CodeUse(torch.tensor(share), torch.tensor(loss), torch.tensor(prior or share))


def test_the_code_that_reconstructs_much_worse_than_the_others_is_split():
    assert find_division(use([0.3, 0.0, 0.4, 0.3], [20.0, 99.0, 45.0, 24.0])) == (2, 1)


def test_a_code_that_is_alone_is_split():
    assert find_division(use([0.0, 1.0], [0.0, 30.0])) == (1, 0)


@pytest.mark.parametrize(
    "found",
    [
        use([0.3, 0.0, 0.4, 0.3], [20.0, 99.0, 24.0, 24.0]),  # a little worse
        use([0.5, 0.0, 0.5], [0.01, 0.0, 0.9]),  # much worse, and still good
        use([0.5, 0.1, 0.4], [20.0, 20.0, 45.0]),  # no code is free
        use([0.495, 0.49, 0.0, 0.015], [20.0, 20.0, 0.0, 45.0]),  # it explains next to nothing
        use([0.0, 1.0], [0.0, 0.5]),  # alone, and good
        use([0.01] * 100, [20.0] * 50 + [90.0] * 50),  # so many codes that each is rare
    ],
)
def test_where_nothing_is_wrong_nothing_is_split(found: CodeUse):
    assert find_division(found) is None


def test_codes_are_split_once_they_are_not_balanced_any_more(tiny):
    config = tiny("exact", steps=100, codebook={"split_every": 10, "split_until": 0.5})
    start = dataclasses.replace(config.objective, balance_until=0.2, prior_from=0.1)
    config = dataclasses.replace(config, objective=start)
    assert [i for i in range(101) if is_division_due(config, i)] == [30, 40, 50]
    assert not is_division_due(tiny("exact"), 0)


@pytest.mark.parametrize("ema", [0.0, 0.9])
@pytest.mark.parametrize("method", ["exact", "vq"])
def test_a_split_changes_no_probability_but_halves_one(tiny, method: str, ema: float):
    config = tiny(method, ema=ema)
    training = Training(config, CPU)
    list(fit(training, Bars()))
    x = Bars().pair(torch.arange(4)).x
    before = training.network(x).log_prior.exp()
    ema_before = {name: value.clone() for name, value in training.ema.items()}
    divide_code_(training, 1, 4)
    after = training.network(x).log_prior.exp()
    others = [0, 2, 3, 5]
    total = before[:, others].sum(dim=1) + before[:, 1]  # the free code's own is given up
    torch.testing.assert_close(after[:, others], before[:, others] / total[:, None])
    torch.testing.assert_close(after[:, 4], after[:, 1])
    torch.testing.assert_close(after[:, 4], before[:, 1] / 2 / total)
    codes = training.ema["codebook.codes"]
    assert torch.equal(codes[others], ema_before["codebook.codes"][others])
    assert 0 < (codes[4] - codes[1]).norm() < codes.std() * codes.shape[1]
    for name in ("prior.weight", "prior.bias", "codebook.codes"):
        for moment in training.moments(training.network.get_parameter(name)):
            assert torch.equal(moment[4], moment[1])


def test_a_code_and_its_copy_are_a_tenth_of_the_deviation_of_all_codes_apart(tiny):
    config = tiny("exact", codebook={"width": 4096})
    training = Training(config, CPU)
    codes = modal(training).codebook.codes.detach()
    divide_code_(training, 1, 4)
    copied = codes.clone()
    copied[4] = copied[1]
    apart = (codes[4] - codes[1]).square().mean().sqrt()  # of 4,096 normal numbers
    assert apart / copied.std() == pytest.approx(0.1, rel=0.05)


@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_a_retired_code_has_no_probability_and_the_others_share_it(tiny, ema: float):
    training = Training(tiny("exact", ema=ema), CPU)
    list(fit(training, Bars()))
    x, retired = (
        Bars().pair(torch.arange(4)).x,
        torch.tensor([False, True, False, False, True, True]),
    )
    before = training.network(x).log_prior.exp()[:, ~retired]
    retire_(training, retired)
    after = training.network(x).log_prior.exp()
    assert (after[:, retired] == 0).all()
    torch.testing.assert_close(after[:, ~retired], before / before.sum(dim=1, keepdim=True))
    averages = {name: value.clone() for name, value in training.ema.items()}
    retire_(training, retired)
    assert all(torch.equal(value, averages[name]) for name, value in training.ema.items())
    divide_code_(training, 0, 4)
    again = training.network(x).log_prior.exp()
    torch.testing.assert_close(again[:, 4], after[:, 0] / 2)


def test_the_code_of_a_rare_mode_without_an_answer_is_not_retired():
    share, loss = [0.5, 0.5, 0.0, 0.0], [20.0, 21.0, 0.0, 0.0]
    found = find_retired(use(share, loss, prior=[0.49, 0.5, 0.01, 0.0]))
    assert found.tolist() == [False, False, False, True]


def test_codes_that_are_all_rare_are_not_retired():
    assert not find_retired(use([0.001] * 1000, [20.0] * 1000)).any()
    assert find_retired(use([0.98, 0.015, 0.005], [20.0, 45.0, 21.0])).tolist() == [
        False,
        True,
        False,
    ]


def test_free_codes_are_retired_the_last_time_that_codes_are_split(tiny):
    book = {"split_every": 2, "split_until": 0.5}
    config = tiny("exact", steps=8, codebook=book)
    start = dataclasses.replace(config.objective, balance_until=0.0, prior_from=0.0)
    training = Training(dataclasses.replace(config, objective=start), CPU)
    with torch.no_grad():
        modal(training).prior.bias[3:] = -50.0
    lowest = [modal(training).prior.bias.min().item() for _ in fit(training, Bars())]
    assert all(value > -100 for value in lowest[:3])
    assert all(value < -900 for value in lowest[3:])


def test_the_use_of_codes_is_a_distribution_over_the_answers(tiny):
    for method in ("exact", "vq"):
        found = measure_codes(Training(tiny(method), CPU), Bars())
        torch.testing.assert_close(found.share.sum(), torch.tensor(1.0))
        assert (found.loss[found.share > 0] > 0).all()


def test_the_free_code_of_vq_is_put_on_the_encoding_that_is_reconstructed_worst(tiny):
    training = Training(tiny("vq"), CPU)
    next(fit(training, Bars()))
    of_codes: dict[int, list[tuple[float, torch.Tensor]]] = {}
    for i in range(256 // training.config.train.batch):
        pair = Bars().pair(batch_index(training.config, training.step + i, CPU))
        trace = training.learner(pair.x, pair.y)
        loss = -own_log_likelihood(trace.logits, pair.y, training.config.objective).detach()
        for c, each, e in zip(trace.index.flatten(), loss, trace.encoding[:, 0], strict=True):
            of_codes.setdefault(int(c), []).append((float(each), e.detach()))
    code = min(of_codes, key=lambda c: len(of_codes[c]))  # one that a single batch might not hold
    at = worst_encoding(training, Bars(), code)
    torch.testing.assert_close(at, max(of_codes[code], key=lambda pair: pair[0])[1])
    free = (code + 1) % training.config.codebook.size
    divide_code_(training, code, free, at)
    torch.testing.assert_close(modal(training).codebook.codes[free].detach(), at)


@pytest.mark.parametrize("name", ["toy", "vector"])
def test_two_modes_in_one_code_are_divided(name: str):
    """All probability is given to one code: no gradient leads out of it, a split does."""
    found: dict[int, float] = {}
    for every in (0, 20):
        config = preset(name)
        config = dataclasses.replace(
            config,
            codebook=dataclasses.replace(config.codebook, split_every=every),
            objective=dataclasses.replace(
                config.objective, balance_until=0.0, temperature=1.0, prior_from=0.0
            ),
            train=dataclasses.replace(config.train, steps=400, validate_every=0),
        )
        training = Training(config, CPU)
        with torch.no_grad():
            modal(training).prior.bias[1:] = -1e3
        source = build_source(config.data, "train", seed=0, device=CPU)
        list(fit(training, source))
        case = build_source(config.data, "test", seed=0, device=CPU).case(torch.arange(100))
        trace = training.learner(case.x, case.ys)
        y = trace.logits.sigmoid() if name == "toy" else trace.logits
        predicted = mode_probabilities(y.detach(), trace.log_prior.detach().exp(), case.ys)
        found[every] = mode_tv(predicted, case.q).mean().item()
    assert found[0] > 0.2
    assert found[20] < 0.08


def test_two_modes_in_one_code_of_vq_are_divided():
    """All encodings are nearest to one code: the others are never chosen, until one is split."""
    found: dict[int, float] = {}
    for every in (0, 20):
        config = preset("vector-vq")
        config = dataclasses.replace(
            config,
            codebook=dataclasses.replace(config.codebook, split_every=every),
            train=dataclasses.replace(config.train, steps=400, validate_every=0),
        )
        training = Training(config, CPU)
        source = build_source(config.data, "train", seed=0, device=CPU)
        for step in fit(training, source):
            if step.number == 1:
                for codes in training.with_ema(modal(training).codebook.codes):
                    codes[1:] = 1e3
        case = build_source(config.data, "test", seed=0, device=CPU).case(torch.arange(100))
        predictor = predictor_of(training.network, training.config, training.ema)
        h = predictor.propose(case.x, 16, normalized=True)
        found[every] = mode_tv(mode_probabilities(h.y, h.prob, case.ys), case.q).mean().item()
    assert found[0] > 0.2
    assert found[20] < 0.08
