from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import Tensor

import mue
from mue.commands.evaluate import evaluate
from mue.data.prepared.dataset import Slices
from mue.data.prepared.open import open_prepared
from mue.data.synthetic.toy import Bars
from mue.errors import MueError
from mue.evaluation.answered import Answered, Request, answered
from mue.inference.predictor import Predictor


class Collected:
    """What a judge was given."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.batches: list[Answered] = []

    def add_(self, batch: Answered) -> None:
        self.batches.append(batch)


class Counting(Predictor):
    """A predictor that counts how often it is asked about each input."""

    asked: Counter[bytes]

    def propose(self, image, *rest, **about):  # pyright: ignore
        self.asked.update(x.numpy().tobytes() for x in image)
        return super().propose(image, *rest, **about)


def counting(folder: Path) -> Counting:
    loaded = mue.load(folder, device="cpu")
    predictor = Counting(loaded.network, loaded.config)
    predictor.asked = Counter()
    return predictor


def joined(batches: list[Answered]) -> dict[str, Tensor]:
    """The tensors of all batches, of as many answers as the first has."""
    k = min(b.h.prob.shape[1] for b in batches)
    parts = ((b.items, b.case.x, b.case.q, *(t[:, :k] for t in (b.h.prob, b.h.y))) for b in batches)
    names = ("items", "x", "q", "prob", "y")
    return dict(zip(names, map(torch.cat, zip(*parts, strict=True)), strict=True))


def request(items: Tensor, k: int, min_prob: float = 0.0, batch: int = 8) -> Request:
    return Request(items, k, min_prob=min_prob, batch=batch)


@pytest.mark.parametrize(("k", "other"), [((2, 0.2), (6, 0.0)), ((6, 0.01), (3, 0.1))])
def test_two_judges_get_the_answers_that_each_asks_for(trained, k, other):
    predictor, source = mue.load(trained, device="cpu"), Bars(seed=5)
    mine = request(torch.arange(20), *k)
    theirs = request(torch.tensor([0, 3, 9, 17]), *other, batch=3)
    judge = Collected(theirs)
    found = list(answered(predictor, source, mine, also=judge))
    for asked, batches in ((mine, found), (theirs, judge.batches)):
        alone = list(answered(predictor, source, asked))
        assert [b.case.id for b in batches] != [] != [b.case.group for b in batches]
        a, b = joined(alone), joined(batches)
        assert torch.equal(b["items"], asked.items)
        for name, values in a.items():
            torch.testing.assert_close(b[name], values, rtol=0, atol=1e-6)


def test_each_input_is_answered_once_for_two_judges(trained):
    predictor, source = counting(trained), Bars(seed=5)
    judge = Collected(request(torch.tensor([1, 4]), 4))
    list(answered(predictor, source, request(torch.arange(20), 2), also=judge))
    assert predictor.asked.total() == 20
    assert [b.items.tolist() for b in judge.batches] == [[1, 4]]


@pytest.mark.parametrize("name", ["probunet", "mheads"])
def test_a_judge_whose_answers_would_be_others_has_a_pass_of_its_own(baselines, name):
    """Samples depend on those before them, and the probability of a head on how many there are."""
    predictor, source = mue.load(baselines[name], device="cpu"), Bars(seed=5)
    theirs = request(torch.arange(0, 20, 5), 1)
    judge = Collected(theirs)
    list(answered(predictor, source, request(torch.arange(20), 2), also=judge))
    a, b = joined(list(answered(predictor, source, theirs))), joined(judge.batches)
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_items_that_only_the_second_judge_asks_for_are_answered_too(trained):
    predictor, source = mue.load(trained, device="cpu"), Bars(seed=5)
    judge = Collected(request(torch.tensor([1, 30]), 2))
    list(answered(predictor, source, request(torch.arange(20), 2), also=judge))
    assert torch.cat([b.items for b in judge.batches]).tolist() == [1, 30]


def test_an_evaluation_with_its_health_answers_each_input_once(trained):
    """But for the three inputs that the figure of health shows."""
    predictor = counting(trained)
    found = evaluate(predictor, inputs=40)
    assert predictor.asked.total() == 40 + 40 + 3  # held back, of training, shown
    assert found.health.inputs == 40


def test_slices_are_answered_once_too(lesion_model, lesions):
    predictor = counting(lesion_model)
    evaluate(predictor, data=lesions)
    source = Slices(open_prepared(lesions), "test", predictor.config.data)
    pixels = [source.case(torch.tensor([i])).x.numpy().tobytes() for i in range(len(source))]
    assert sum(predictor.asked[each] for each in set(pixels)) == len(pixels) + 3


def test_progress_counts_the_items_that_are_answered(trained):
    predictor, said = mue.load(trained, device="cpu"), list[tuple[int, int]]()
    list(
        answered(
            predictor,
            Bars(),
            request(torch.tensor([2, 3, 5, 7, 11]), 1, batch=2),
            progress=lambda done, total: said.append((done, total)),
        )
    )
    assert said == [(2, 5), (4, 5), (5, 5)]


def test_a_negative_seed_is_refused(trained):
    asked = Request(torch.arange(2), 1, batch=2, seed=-1)
    with pytest.raises(MueError, match="seed"):
        list(answered(mue.load(trained, device="cpu"), Bars(), asked))
