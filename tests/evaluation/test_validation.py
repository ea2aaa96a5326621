import dataclasses
import math

import pytest
import torch

from mue.config.presets import preset
from mue.config.schema import ObjectiveConfig
from mue.data.build import build_source
from mue.data.prepared.dataset import Slices
from mue.data.prepared.open import open_prepared
from mue.data.source import Source
from mue.data.synthetic.toy import Bars
from mue.data.synthetic.vector import Rotations
from mue.evaluation.known import evaluate_modes
from mue.evaluation.raters import evaluate_raters
from mue.evaluation.validation import (
    negative_log_likelihood,
    predictor_of,
    validate,
)
from mue.runs.log import ValidationRecord
from mue.training.loop import fit
from mue.training.parts import validation_source
from mue.training.state import Training
from mue.types import Case, Hypotheses

CPU = torch.device("cpu")


def measured(training: Training, source: Source, validation: Source) -> ValidationRecord:
    """The EMA of the weights of a training, validated."""
    predictor = predictor_of(training.network, training.config, training.ema)
    return validate(predictor, training.step, source, validation)


def after(config, source, steps: int) -> Training:
    """A training after some steps."""
    training = Training(config, CPU)
    for step in fit(training, source):
        if step.number == steps:
            break
    return training


@pytest.fixture(scope="module")
def bars(tiny) -> Training:
    """A training on bars of light, after five steps."""
    return after(tiny("exact", ema=0.9, validate_every=5, validate_inputs=70), Bars(), 5)


@pytest.fixture(scope="module")
def lesion_training(lesions, lesion_config) -> Training:
    """A training on slices, after twenty steps."""
    train = dataclasses.replace(lesion_config.train, validate_every=20)
    config = dataclasses.replace(lesion_config, train=train)
    return after(config, build_source(config.data, "train", seed=0, device=CPU, data=lesions), 20)


# --- the likelihood -------------------------------------------------------------------------------


def case(ys, q) -> Case:
    return Case(torch.zeros(1, 1), torch.tensor([ys]), torch.tensor([q]), ("a",), ("a",))


def answers(y, prob) -> Hypotheses:
    return Hypotheses(torch.tensor([y]), torch.tensor([prob]), torch.arange(len(prob))[None])


def test_the_likelihood_of_masks_is_summed_over_answers_and_pixels():
    h = answers([[0.9, 0.8], [0.5, 0.5]], [0.7, 0.3])
    found = negative_log_likelihood(
        h, case([[1.0, 0.0], [1.0, 1.0]], [0.25, 0.75]), ObjectiveConfig()
    )
    one, two = 0.7 * 0.9 * 0.2 + 0.3 * 0.25, 0.7 * 0.9 * 0.8 + 0.3 * 0.25
    assert found.item() == pytest.approx(-0.25 * math.log(one) - 0.75 * math.log(two), rel=1e-5)


def test_the_likelihood_of_classes_is_the_probability_of_the_class():
    h = answers([[[0.9, 0.3], [0.1, 0.7]]], [1.0])  # two classes, two pixels
    y = [[[1.0, 0.0], [0.0, 1.0]]]
    found = negative_log_likelihood(h, case(y, [1.0]), ObjectiveConfig(likelihood="categorical"))
    assert found.item() == pytest.approx(-math.log(0.9 * 0.7), rel=1e-5)


def test_the_likelihood_of_vectors_has_the_deviation_of_the_objective():
    config = ObjectiveConfig(likelihood="normal", deviation=0.5)
    found = negative_log_likelihood(answers([[1.0]], [1.0]), case([[2.0]], [1.0]), config)
    assert found.item() == pytest.approx(0.5 * (1 / 0.5) ** 2)


def test_an_answer_that_is_sure_of_a_wrong_pixel_has_a_finite_likelihood():
    h = answers([[1.0], [0.0]], [1.0, 0.0])  # the second is not kept
    found = negative_log_likelihood(h, case([[0.0]], [1.0]), ObjectiveConfig())
    assert found.item() == pytest.approx(-math.log(1e-6), rel=1e-2)


# --- the numbers ----------------------------------------------------------------------------------


def test_known_modes_are_validated_as_they_are_evaluated(bars):
    config = bars.config
    source = validation_source(config, None, CPU)
    found = measured(bars, Bars(), source)
    predictor = predictor_of(bars.network, bars.config, bars.ema)
    expected = evaluate_modes(predictor, split="val", inputs=70, seed=config.train.seed)
    assert (found.step, found.metric, found.stopped) == (5, "mode_tv", False)
    assert found.score == pytest.approx(expected.report()["mode_tv"]["mean"], abs=1e-6)  # pyright: ignore
    assert found.codes == expected.codes


def test_slices_are_validated_as_they_are_evaluated(lesion_training, lesions):
    source = validation_source(lesion_training.config, lesions, CPU)
    found = measured(lesion_training, source, source)
    predictor = predictor_of(lesion_training.network, lesion_training.config, lesion_training.ema)
    expected = evaluate_raters(predictor, lesions, split="val")
    values = expected.intervals()
    assert found.metric == "ged"
    assert found.score == pytest.approx(values["ged"].mean, abs=1e-6)
    assert found.ece == pytest.approx(values["mode ece"].mean, abs=1e-6)
    assert found.codes == expected.codes
    assert found.nll == found.train_nll  # here both are of the same slices


def test_the_likelihood_of_the_training_data_is_measured_beside_it(lesion_training, lesions):
    prepared = open_prepared(lesions)
    found = measured(lesion_training, Slices(prepared, "train"), Slices(prepared, "val"))
    swapped = measured(lesion_training, Slices(prepared, "val"), Slices(prepared, "train"))
    assert (found.nll, found.train_nll) == (swapped.train_nll, swapped.nll)
    assert found.nll != found.train_nll


class Asked(Slices):
    """Slices that remember which of them were asked for."""

    asked: list[int]

    def case(self, index):
        self.asked.extend(index.tolist())
        return super().case(index)


def test_a_few_inputs_are_taken_from_all_over_a_finite_data_set(lesion_training, lesions):
    config = lesion_training.config
    few = dataclasses.replace(config.train, validate_inputs=4)
    training = Training(dataclasses.replace(config, train=few), CPU)
    source = Asked(open_prepared(lesions), "val")
    source.asked = []
    measured(training, Slices(open_prepared(lesions), "train"), source)
    assert source.asked == [0, 3, 6, 9]  # of 12


@pytest.mark.parametrize("what", ["probunet", "heads"])
def test_a_baseline_is_validated_too_and_has_no_codes(tiny, what):
    training = Training(tiny(what, validate_every=1, validate_inputs=8), CPU)
    found = measured(training, Bars(), Bars(seed=1))
    assert found == measured(training, Bars(), Bars(seed=1))  # its samples are seeded
    assert (found.metric, found.codes) == ("mode_tv", 0)
    assert math.isfinite(found.nll)


class Annotated(Bars):
    """Bars of which it is not said that their answers are all there are."""

    def case(self, index):
        return dataclasses.replace(super().case(index), known=False)


def test_the_answers_of_data_of_ones_own_are_those_of_raters(bars):
    """Unless its cases say that they are all there are, whatever it is called."""
    named = dataclasses.replace(bars.config.data, name="own")
    own = Training(dataclasses.replace(bars.config, data=named), CPU)
    for training in (own, bars):
        assert measured(training, Bars(), Annotated(seed=1)).metric == "ged"
        assert measured(training, Bars(), Bars(seed=1)).metric == "mode_tv"


class OneRotation(Rotations):
    """Points of which one answer each is known, as of most data."""

    def case(self, index):
        one, q = self.pair(index).y, torch.ones(len(index), 1)
        return dataclasses.replace(super().case(index), ys=one, q=q, known=False)


def test_vectors_of_ones_own_are_scored_by_their_distance_to_what_is_known():
    """Against one answer any probabilities are right; the energy distance sees how far it is."""
    config = preset("vector")
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, name="own"))
    before, later = (after(config, OneRotation(), steps) for steps in (1, 60))
    first, last = (measured(t, OneRotation(), OneRotation(seed=1)) for t in (before, later))
    assert first.metric == "ged"
    assert first.score > last.score + 0.5
    assert 0 < last.ece < 1


# --- what it leaves alone -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "what",
    [
        {"method": "vq"},
        {"method": "exact", "ema": 0.9},
        {"method": "probunet"},
        {"method": "heads", "dropout": 0.5},
    ],
)
def test_a_validation_changes_neither_the_training_nor_the_random_state(tiny, what):
    training = after(tiny(**what, validate_every=5, validate_inputs=8), Bars(), 3)
    values = [*training.learner.state_dict().values(), *training.ema.values()]
    values += training.optimizer.state.values()
    before, random = [v.clone() for v in values], torch.get_rng_state()
    measured(training, Bars(), Bars(seed=1))
    assert all(torch.equal(a, b) for a, b in zip(before, values, strict=True))
    assert torch.equal(random, torch.get_rng_state())
    assert training.learner.training
    assert all(p.requires_grad for p in training.parameters())


def test_a_predictor_of_a_training_keeps_its_weights_when_the_training_goes_on(tiny):
    training = after(tiny("exact"), Bars(), 1)  # without an average, whose memory is the weights'
    x = Bars().case(torch.arange(2)).x
    predictor = predictor_of(training.network, training.config, training.ema)
    before = predictor.propose(x, 2, normalized=True)
    next(iter(fit(training, Bars())))
    assert torch.equal(predictor.propose(x, 2, normalized=True).y, before.y)
    now = predictor_of(training.network, training.config, training.ema)
    assert not torch.equal(now.propose(x, 2, normalized=True).y, before.y)
