from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mue.config.presets import preset
from mue.config.schema import ModesConfig
from mue.data.prepared.dataset import Slices
from mue.data.prepared.item import Item
from mue.data.prepared.open import open_prepared
from mue.data.prepared.splits import split_of
from mue.data.prepared.write import write_prepared
from mue.evaluation import calibrate as calibrating
from mue.evaluation.calibrate import Calibration, fit_calibration
from mue.inference.load import load
from mue.inference.predictor import Predictor
from mue.metrics.energy import ged
from mue.models.build import build_modal
from mue.models.modal import Modal
from mue.modes import MIN_PROB
from mue.nn.backbone import Features
from mue.nn.codebook import Codebook
from mue.nn.standardize import StandardizedLinear

SIDE, CODES = 8, 4


class Corner(nn.Module):
    """An encoder that sees the first pixels of the first row, as numbers in [-1, 1]."""

    axes = 3

    def forward(self, x: Tensor) -> Features:
        return Features((x,), 2 * x[:, 0, 0, :3] - 1, tuple(x.shape[-2:]))


class Bands(nn.Module):
    """A decoder that lights the rows that a code names, with certainty."""

    def forward(self, features: Features, codes: Tensor) -> Tensor:
        rows = 20 * codes[:, :, None, :, None] - 10
        return rows.expand(-1, -1, 1, -1, features.size[1])


def modal(extra: int = 0) -> Modal:
    """Four codes that light a band of two rows each, the last one of none, and `extra` more."""
    codebook = Codebook(CODES + extra, SIDE, learned=True)
    bands = torch.zeros(CODES + extra, SIDE)
    for c in range(CODES - 1):
        bands[c, 2 * c : 2 * c + 2] = 1
    bands[CODES:] = 1
    codebook.codes.data = bands
    prior = nn.Linear(3, CODES + extra)
    torch.manual_seed(0)
    prior.weight.data = torch.cat([2 * torch.randn(CODES, 3), torch.zeros(extra, 3)])
    prior.bias.data = torch.cat([torch.zeros(CODES), torch.full((extra,), -7.0)])
    made = Modal(Corner(), prior, codebook, Bands())
    return made.requires_grad_(False).eval()


def answers(found: Modal, x: Tensor) -> Tensor:
    return found.decode_all(found(x))[1] > 0


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """Slices whose four raters are sampled from what the model says, so that the model is right."""
    random, true = np.random.default_rng(0), modal()
    names = [n for n in (f"p-{i}" for i in range(5000)) if split_of(n) == "val"][:300]
    items = []
    for name in names:
        for k in range(4):
            image = random.integers(256, size=(SIDE, SIDE), dtype=np.uint8)
            x = torch.from_numpy(image)[None, None].float() / 255
            p = true(x).log_prior[0].double().exp().numpy()
            who = random.choice(CODES, size=4, p=p / p.sum())
            masks = answers(true, x)[0, :, 0].numpy()[who]
            items.append(
                Item(
                    patient=name,
                    case="n",
                    slice=str(k),
                    source="",
                    image=image[None],
                    masks=masks.astype(np.uint8),
                )
            )
    folder = tmp_path_factory.mktemp("honest") / "out"
    write_prepared(items, folder, {})
    return folder


@pytest.fixture(scope="module")
def val(honest) -> Slices:
    return Slices(open_prepared(honest), "val")


def distorted(config, temperature: float, shift: Tensor | None = None, extra: int = 0) -> Predictor:
    """The right model with its logits z made into temperature (z - shift)."""
    found = modal(extra)
    for tensor in found.prior.parameters():
        tensor *= temperature
    if shift is not None:
        found.prior.bias[:CODES] -= temperature * shift
    return Predictor(found, config)


def network(predictor: Predictor) -> Modal:
    assert isinstance(predictor.network, Modal)
    return predictor.network


def folded(predictor: Predictor, calibration: Calibration) -> Predictor:
    """The model that would be written."""
    found = modal(predictor.codes - CODES)
    found.load_state_dict(predictor.network.state_dict() | calibration.fold(network(predictor)))
    return Predictor(found, predictor.config)


def distance(predictor: Predictor, source: Slices) -> float:
    """The energy distance of all answers of a model, as the metric has it."""
    case = source.case(torch.arange(len(source)))
    h = predictor.propose(case.x, predictor.codes, normalized=True)
    return ged(h.y > 0.5, h.normalized().prob, case.ys > 0.5, case.q).mean().item()


# --- what is found --------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_a_known_temperature_is_recovered(lesion_config, val, temperature):
    """1,200 slices with four samples each: within a tenth, and no code favoured."""
    found = fit_calibration(distorted(lesion_config, temperature), val, len(val))
    assert found.temperature == pytest.approx(temperature, rel=0.1)
    assert found.shift.abs().max() < 0.15


@pytest.mark.parametrize("count", [2, 3, 4, 6])
def test_a_few_inputs_do_not_move_the_probabilities_far(lesion_config, val, count):
    """The optimum of so few is often certainty, or no difference at all between the codes."""
    found = fit_calibration(distorted(lesion_config, 1.0), val, count)
    assert 0.2 < found.temperature < 5
    assert found.shift[found.shift > -20].abs().max() < 3  # but for codes that were not used


def test_known_shifts_are_recovered(lesion_config, val):
    shift = torch.tensor([1.0, -1.0, 0.5, -0.5])
    found = fit_calibration(distorted(lesion_config, 2.0, shift), val, len(val))
    assert found.temperature == pytest.approx(2.0, rel=0.1)
    torch.testing.assert_close(found.shift, shift, atol=0.15, rtol=0)


@pytest.mark.parametrize("temperature", [0.3, 3.0])
def test_what_is_said_of_before_and_after_is_what_the_metric_says(lesion_config, val, temperature):
    predictor = distorted(lesion_config, temperature)
    found = fit_calibration(predictor, val, len(val))
    negligible = 1e-3  # answers less probable than 1e-4 before are not decoded
    assert found.before == pytest.approx(distance(predictor, val), abs=negligible)
    assert found.after == pytest.approx(distance(folded(predictor, found), val), abs=negligible)
    right = distance(Predictor(modal(), lesion_config), val)
    assert found.after < found.before - 0.01
    assert found.after == pytest.approx(right, abs=0.002)
    assert found.after <= right + 1e-6  # it is fitted to these very slices


def test_what_is_written_is_what_was_fitted_where_many_codes_are_idle(lesion_config, val):
    """60 codes of no rater, of a thousandth each at the most: e^-7 before the distortion."""
    predictor = distorted(lesion_config, 3.0, extra=60)
    found = fit_calibration(predictor, val, len(val))
    assert found.temperature == pytest.approx(3.0, rel=0.15)
    assert found.after < found.before + 1e-9
    assert found.after == pytest.approx(distance(folded(predictor, found), val), abs=0.005)


def test_codes_that_are_not_in_use_gain_nothing(lesion_config, val):
    """200 codes that no slice gives more than e^-10 each, 1 % together, to a model too sure by 2.

    Half of that logarithm would be e^-5 each: more than all the codes that are in use.
    """
    predictor = distorted(lesion_config, 2.0, extra=200)
    network(predictor).prior.bias[CODES:] = -10
    idle = network(predictor)(val.case(torch.arange(1200)).x).log_prior.exp()[:, CODES:]
    assert idle.max() < 1e-4
    found = fit_calibration(predictor, val, len(val))
    after = folded(predictor, found)
    still = network(after)(val.case(torch.arange(1200)).x).log_prior.exp()[:, CODES:]
    assert still.sum(dim=1).max() < 0.02
    assert (found.shift[CODES:] == -30).all()  # e^-30 of what they were
    assert found.shift[:CODES].min() > -1
    assert found.after == pytest.approx(distance(after, val), abs=0.005)


def test_a_code_that_was_kept_for_no_input_stays_out_among_those_that_were(lesion_config, val):
    """It is more probable than a code in use, for some inputs, and kept with them at 0."""
    predictor = distorted(lesion_config, 6.0, extra=1)
    network(predictor).prior.bias[CODES] = -12
    x = val.case(torch.arange(1200)).x
    h = predictor.propose(x, CODES + 1, min_prob=MIN_PROB, normalized=True)
    idle = h.prob[h.code == CODES]
    assert len(idle) > 10
    assert idle.max() == 0
    shift = fit_calibration(predictor, val, len(val)).shift
    assert shift[CODES] == -30
    assert shift[:CODES].abs().max() < 3


class MovedOut(torch.optim.SGD):
    """A search that ends where code 4, which decodes to the same mask as code 5, is impossible."""

    def __init__(self, params, **_) -> None:
        super().__init__(params)
        params[1].data[CODES] = -40

    def step(self, closure: Any = None) -> Any:
        return closure()


def test_a_mode_whose_first_code_is_shifted_out_keeps_its_other_codes(
    lesion_config, val, monkeypatch
):
    predictor = distorted(lesion_config, 1.0, extra=2)
    network(predictor).prior.bias[CODES:] = torch.tensor([1.0, 0.0])
    monkeypatch.setattr(torch.optim, "LBFGS", MovedOut)
    found = fit_calibration(predictor, val, len(val))
    after = folded(predictor, found).modes(val.case(torch.arange(50)).x, normalized=True)
    assert after.count.amin() >= 1
    assert found.shift[CODES] == -40


# --- what is written ------------------------------------------------------------------------------


def test_folded_weights_divide_the_logits_and_shift_them(lesion_config):
    predictor = distorted(lesion_config, 1.0, torch.randn(CODES))
    shift = torch.tensor([0.5, -1.0, 0.25, 0.25])
    after = folded(predictor, Calibration(2.5, shift, 1.0, 0.5, ModesConfig(), 1.0, 1))
    x = torch.rand(9, 1, SIDE, SIDE)
    z = network(predictor)(x).log_prior
    expected = (z / 2.5 + shift).log_softmax(dim=1)
    torch.testing.assert_close(network(after)(x).log_prior, expected)


def test_folding_changes_the_last_layer_of_the_prior_and_nothing_else(lesion_model):
    predictor = load(lesion_model, device="cpu")
    n = predictor.codes
    changed = Calibration(2.0, torch.ones(n), 1.0, 0.5, ModesConfig(), 1.0, 1).fold(
        network(predictor)
    )
    assert changed.keys() == {"prior.weight", "prior.bias"}
    state = predictor.network.state_dict()
    assert all(changed[name].shape == state[name].shape for name in changed)


def test_calibrating_leaves_every_tensor_of_the_model_as_it_was(lesion_config, val):
    predictor = distorted(lesion_config, 2.0)
    before = {name: value.clone() for name, value in predictor.network.state_dict().items()}
    fit_calibration(predictor, val, len(val))
    after = predictor.network.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_a_calibration_does_not_depend_on_the_batch_size(lesion_config, val, monkeypatch):
    predictor, calls = distorted(lesion_config, 2.0), []
    one = fit_calibration(predictor, val, len(val), progress=lambda *a: calls.append(a))
    monkeypatch.setattr(calibrating, "_BATCH", 500)
    two = fit_calibration(predictor, val, len(val))
    assert two.temperature == pytest.approx(one.temperature, rel=1e-3)
    assert two.after == pytest.approx(one.after, abs=1e-5)
    assert calls[-1] == (1200, 1200)


# --- modes ----------------------------------------------------------------------------------------


def test_the_cut_is_that_of_the_best_first_mode_and_what_is_promised_holds_on_val(
    lesion_config, val
):
    predictor = distorted(lesion_config, 1.0)
    found = fit_calibration(predictor, val, len(val), coverage=(0.5, 0.7), iou=0.3)
    assert 0.3 <= found.modes.cut <= 0.7
    assert found.modes.iou == 0.3
    assert set(found.modes.coverage) <= {0.5, 0.7}
    assert all(c <= found.reachable for c in found.modes.coverage)
    assert list(found.modes.limits) == sorted(found.modes.limits)


def test_of_equally_good_cuts_the_nearest_to_the_default_is_taken(lesion_config, val):
    """Bands have no pixel in common, so that every cut makes the same modes."""
    assert fit_calibration(distorted(lesion_config, 1.0), val, len(val)).modes.cut == 0.5


class OneByOne(Slices):
    """Slices that stand alone, whoever they are of."""

    def case(self, index):
        return replace(super().case(index), patients=False)


def test_patients_weigh_alike_in_what_is_promised(lesion_config, val, honest):
    """All raters have answers of the model, which leaves one share for the patient who is new."""
    predictor, alone = distorted(lesion_config, 1.0), OneByOne(open_prepared(honest), "val")
    by_patient, by_slice = (
        fit_calibration(predictor, s, 1200, coverage=[0.998]) for s in (val, alone)
    )
    assert (by_patient.patients, by_slice.patients) == (300, 1200)
    assert by_patient.reachable == pytest.approx(300 / 301)
    assert by_slice.reachable == pytest.approx(1200 / 1201)
    assert (by_patient.modes.coverage, by_slice.modes.coverage) == ((), (0.998,))


def test_a_coverage_that_is_no_share_is_refused(lesion_config, val):
    with pytest.raises(
        ValueError, match=r"`coverage` must be shares between 0 and 1, got \[90.0\]"
    ):
        fit_calibration(distorted(lesion_config, 1.0), val, len(val), coverage=[90.0])


def test_folding_divides_the_score_of_answers_too():
    config = preset("toy")
    config = replace(
        config,
        codebook=replace(config.codebook, reads_answers=True),
        model=replace(config.model, standardize=True),
    )
    torch.manual_seed(0)
    modal = build_modal(config).eval()
    assert modal.score is not None
    assert isinstance(modal.prior, StandardizedLinear)
    modal.prior.start_(torch.rand(9, modal.prior.in_features))
    torch.nn.init.normal_(modal.score.score.weight)
    x, n = torch.rand(4, 1, 8, 8), config.codebook.size
    before, _ = modal.decode_all(modal(x))
    shift = torch.linspace(-1, 1, n)
    changed = Calibration(2.0, shift, 1.0, 0.5, ModesConfig(), 1.0, 1).fold(modal)
    modal.load_state_dict({**modal.state_dict(), **changed})
    after, _ = modal.decode_all(modal(x))
    torch.testing.assert_close(after, (before / 2 + shift).log_softmax(dim=1))
