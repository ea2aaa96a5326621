import dataclasses

import numpy as np
import pytest
import torch

from mue.config.presets import preset
from mue.config.schema import ModelConfig, ModesConfig, ObjectiveConfig
from mue.errors import MueError
from mue.inference.load import load
from mue.inference.predictor import Predictor
from mue.models.build import build_modal
from mue.models.modal import Modal
from mue.models.probunet import ProbUNet
from mue.modes import ModeRule

# --- answers --------------------------------------------------------------------------------------


def test_answers_are_the_decodings_of_the_most_probable_codes(predictor):
    """Against one input, one code at a time."""
    torch.manual_seed(0)
    x = torch.rand(3, 1, 8, 8)
    h, modal = predictor.propose(x, k=4), predictor.network
    with torch.inference_mode():
        for i in range(3):
            view = modal(x[i : i + 1])
            order = sorted(range(6), key=lambda c, v=view: -v.log_prior[0, c].item())[:4]
            assert h.code[i].tolist() == order
            torch.testing.assert_close(h.prob[i], view.log_prior[0, order].exp())
            for j, c in enumerate(order):
                logits = modal.decode(view, modal.codebook.codes[None, c : c + 1])
                torch.testing.assert_close(h.y[i, j], logits[0, 0].sigmoid())


def test_all_answers_at_once_are_those_of_one_by_one(predictor):
    torch.manual_seed(0)
    x = torch.rand(4, 1, 8, 8)
    whole = predictor.propose(x, k=6)
    torch.testing.assert_close(whole.rest, torch.zeros(4), atol=1e-5, rtol=0)
    for k in range(1, 6):
        some = predictor.propose(x, k=k)
        torch.testing.assert_close(some.y, whole.y[:, :k])
        torch.testing.assert_close(some.prob, whole.prob[:, :k])
        assert torch.equal(some.code, whole.code[:, :k])
        torch.testing.assert_close(some.rest, 1 - whole.prob[:, :k].sum(dim=1))
    for i in range(4):
        torch.testing.assert_close(predictor.propose(x[i], k=6).y[0], whole.y[i])


def test_answers_too_improbable_to_matter_are_left_to_the_rest(trained):
    """Against the whole ranking; what is kept for one input does not depend on the others."""
    predictor = load(trained, device="cpu")
    assert isinstance(predictor.network, Modal)
    predictor.network.prior.weight *= 30
    torch.manual_seed(0)
    x = torch.rand(4, 1, 8, 8) * torch.tensor([0.0, 1.0, 4.0, 16.0]).view(4, 1, 1, 1)
    whole, some = (
        predictor.propose(x, k=6, normalized=True),
        predictor.propose(x, k=6, min_prob=0.05, normalized=True),
    )
    counts = (whole.prob >= 0.05).sum(dim=1)
    assert 1 <= counts.min() < counts.max() < 6  # inputs differ, and nobody keeps all
    assert some.prob.shape[1] == counts.max()
    for i, count in enumerate(counts.tolist()):
        torch.testing.assert_close(some.prob[i, :count], whole.prob[i, :count])
        torch.testing.assert_close(some.y[i, :count], whole.y[i, :count])
        assert some.prob[i, count:].sum() == 0
        torch.testing.assert_close(some.rest[i], 1 - whole.prob[i, :count].sum())


def test_the_most_probable_answer_is_kept_whatever_is_asked_for(predictor):
    """Without one, the expected answer would be 0 / 0."""
    x = torch.rand(2, 1, 8, 8)
    first = predictor.propose(x, k=1)
    found = predictor.propose(x, k=3, min_prob=1.0)
    assert torch.equal(found.code, first.code)
    torch.testing.assert_close(found.prob, first.prob)
    torch.testing.assert_close(found.expected(), first.y[:, 0])


@pytest.mark.parametrize("value", [2.0, -0.1, float("nan")])
def test_a_least_probability_that_is_none_is_refused(predictor, value):
    with pytest.raises(MueError, match="`min_prob` must be a probability, 0 to 1, got"):
        predictor.propose(np.zeros((8, 8), np.float32), min_prob=value)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"by": "modes"}, "`by` must be mode or code, got 'modes'"),
        ({"cut": "0.5"}, "`cut` must be a number, got '0.5'"),
        ({"coverage": "0.9"}, "`coverage` must be a number, got '0.9'"),
    ],
)
def test_what_modes_cannot_be_grouped_by_is_refused(predictor, asked, words):
    with pytest.raises(MueError, match=words):
        predictor.modes(np.zeros((8, 8), np.float32), **asked)


@pytest.mark.parametrize(("height", "width"), [(8, 8), (7, 5), (1, 1), (9, 16), (3, 30)])
def test_answers_have_the_size_of_the_image_whatever_it_is(predictor, height, width):
    torch.manual_seed(0)
    h = predictor.propose(torch.rand(2, 1, height, width), k=2)
    assert h.y.shape == (2, 2, 1, height, width)
    assert ((h.y > 0) & (h.y < 1)).all()


def test_classes_of_a_pixel_share_its_probability(tiny, fresh):
    config = dataclasses.replace(tiny(), objective=ObjectiveConfig(likelihood="categorical"))
    h = fresh(config, c_in=3, c_out=4).propose(torch.rand(2, 3, 8, 8), k=3)
    torch.testing.assert_close(h.y.sum(dim=2), torch.ones(2, 3, 8, 8))


def test_a_vector_alone_is_a_batch_of_one(tiny, fresh):
    model = ModelConfig(backbone="mlp", c_in=3, c_out=2, levels=(4,), tail=(), widths=(4,))
    config = dataclasses.replace(
        tiny(), model=model, objective=ObjectiveConfig(likelihood="normal")
    )
    predictor, x = fresh(config), torch.randn(5, 3)
    torch.testing.assert_close(predictor.propose(x[0], k=2).y[0], predictor.propose(x, k=2).y[0])
    with pytest.raises(ValueError, match=r"must be c with c = 3 channels, .* shape \(5, 2\)"):
        predictor.propose(x[:, :2], k=2)


# --- purity ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["guess", "guess-exact", None])
def test_proposing_leaves_every_tensor_of_the_model_as_it_was(model, trained):
    predictor = load(model or trained, device="cpu")
    before = {name: value.clone() for name, value in predictor.network.state_dict().items()}
    predictor.network.train()  # even if somebody has switched it
    h = predictor.propose(torch.rand(2, 1, 28, 56), k=5)
    ModeRule().group(h)
    h.sample(3)
    after = predictor.network.state_dict()
    assert list(before) == list(after)
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert not any(p.requires_grad for p in predictor.network.parameters())


def test_proposing_keeps_no_state_between_calls(predictor):
    torch.manual_seed(0)
    x = torch.rand(2, 1, 8, 8)
    first = predictor.propose(x, k=3)
    predictor.propose(torch.rand(1, 1, 16, 12), k=1)
    again = predictor.propose(x, k=3)
    assert torch.equal(first.y, again.y)
    assert torch.equal(first.prob, again.prob)


@pytest.mark.parametrize("k", [0, -1, 7, True])
def test_k_out_of_range_is_named_with_its_range(predictor, k):
    words = rf"`k` must be in 1..6 \(the codes of this model\), got {k}$"
    for ask in (predictor.propose, predictor.modes):
        with pytest.raises(ValueError, match=words):
            ask(torch.rand(8, 8), k=k)


# --- baselines ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "most", "kind"),
    [
        ("probunet", 4096, "samples"),
        ("dropout", 4096, "samples"),
        ("unet", 1, "answers"),
        ("ensemble", 3, "answers"),
        ("mheads", 3, "answers"),
    ],
)
def test_a_baseline_says_how_many_answers_it_has(baselines, name, most, kind):
    predictor, x = load(baselines[name], device="cpu"), torch.rand(1, 1, 8, 8)
    assert (predictor.codes, predictor.max_answers) == (0, most)
    assert predictor.is_sampler == (kind == "samples")
    for k in (0, most + 1):
        words = rf"`k` must be in 1..{most} \(the {kind} of this model\), got {k}$"
        with pytest.raises(ValueError, match=words):
            predictor.propose(x, k)
    assert predictor.propose(x).prob.shape[1] == min(8, most)


@pytest.mark.parametrize("name", ["probunet", "dropout", "unet", "ensemble", "mheads"])
def test_the_answers_of_a_baseline_are_equally_probable_and_have_no_code(baselines, name):
    predictor, x = load(baselines[name], device="cpu"), torch.rand(2, 1, 8, 8)
    k = min(3, predictor.max_answers)
    h = predictor.propose(x, k, min_prob=0.9)  # nothing is less probable than its like
    assert torch.equal(h.prob, torch.full((2, k), 1 / k))
    assert torch.equal(h.code, torch.full((2, k), -1))
    torch.testing.assert_close(h.rest, torch.zeros(2), atol=1e-6, rtol=0)
    assert torch.equal(predictor.propose(x, k).y, h.y)  # without a generator, seed 0
    seeded = predictor.propose(x, k, generator=torch.Generator().manual_seed(1))
    assert torch.equal(seeded.y, h.y) != predictor.is_sampler
    before = {key: value.clone() for key, value in predictor.network.state_dict().items()}
    predictor.propose(x, k)
    after = predictor.network.state_dict()
    assert all(torch.equal(value, after[key]) for key, value in before.items())


def test_samples_with_densities_are_those_that_are_proposed(baselines):
    predictor, x = load(baselines["probunet"], device="cpu"), torch.rand(2, 1, 8, 8)
    y, log_density = predictor.densities(x, 5, generator=torch.Generator().manual_seed(3))
    h = predictor.propose(x, 5, generator=torch.Generator().manual_seed(3))
    assert torch.equal(y, h.y)
    assert isinstance(predictor.network, ProbUNet)
    sampled = predictor.network.sample(x, 5, torch.Generator().manual_seed(3))
    prior = predictor.network.prior(x)
    gap = (sampled.z - prior.loc[:, None]) / prior.scale[:, None]
    torch.testing.assert_close(log_density, -0.5 * gap.square().sum(dim=2))  # 0 at the mean


def test_densities_are_refused_where_there_are_none(baselines):
    with pytest.raises(ValueError, match="of the method 'heads' has no density of a latent; take"):
        load(baselines["unet"], device="cpu").densities(torch.rand(8, 8), 2)
    predictor = load(baselines["probunet"], device="cpu")
    with pytest.raises(ValueError, match=r"`k` must be in 1..4096 \(the samples of this model"):
        predictor.densities(torch.rand(8, 8), 0)
    with pytest.raises(ValueError, match="`image` must be finite"):
        predictor.densities(torch.full((8, 8), float("nan")), 2)


# --- modes ----------------------------------------------------------------------------------------


def calibrated(predictor: Predictor) -> Predictor:
    modes = ModesConfig(cut=0.4, coverage=(0.5, 0.9), limits=(0.0, 0.8))
    return Predictor(predictor.network, dataclasses.replace(predictor.config, modes=modes))


def test_modes_are_those_of_all_codes_at_the_cut_of_the_model(predictor):
    x = torch.rand(3, 1, 8, 8)
    h = predictor.propose(x, predictor.max_answers)
    for one, cut in ((predictor, 0.5), (calibrated(predictor), 0.4)):
        modes, expected = one.modes(x), ModeRule(cut=cut).group(h)
        torch.testing.assert_close(modes.prob, expected.prob)
        assert torch.equal(modes.mode, expected.mode)
    assert torch.equal(predictor.modes(x, cut=0.7).mode, ModeRule(cut=0.7).group(h).mode)
    assert torch.equal(predictor.modes(x, by="code").answer_code, h.code)


def test_a_coverage_shows_as_many_modes_as_calibration_found(predictor):
    x, ready = torch.rand(3, 1, 8, 8), calibrated(predictor)
    for asked, promised, limit in ((0.4, 0.5, 0.0), (0.5, 0.5, 0.0), (0.7, 0.9, 0.8)):
        modes = ready.propose(x, coverage=asked)
        assert modes.coverage == promised
        assert torch.equal(modes.prob, ready.modes(x).first(limit).prob)


def test_a_coverage_that_was_not_calibrated_is_refused(predictor):
    x = torch.rand(1, 1, 8, 8)
    with pytest.raises(ValueError, match=r"was not calibrated for it; run `mue calibrate` first"):
        predictor.propose(x, coverage=0.9)
    with pytest.raises(ValueError, match=r"`coverage` must be in \(0, 0.9\].*got 0.95"):
        calibrated(predictor).propose(x, coverage=0.95)


@pytest.mark.parametrize("other", [{"by": "code"}, {"cut": 0.6}])
def test_nothing_is_promised_of_other_modes_than_were_calibrated(predictor, other):
    with pytest.raises(ValueError, match="`coverage` is promised of modes at the calibrated cut"):
        calibrated(predictor).modes(torch.rand(1, 1, 8, 8), coverage=0.5, **other)


def test_modes_of_vectors_are_two_deviations_apart():
    config = preset("vector")
    predictor = Predictor(build_modal(config).eval(), config)
    assert predictor.cut == pytest.approx(2 * config.objective.deviation)
    modes = predictor.modes(torch.rand(2, 2))
    assert (modes.tree.distance >= 0).all()
