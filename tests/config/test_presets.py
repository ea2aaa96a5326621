import dataclasses

import pytest
import torch

from mue.config.presets import PRESETS, preset
from mue.data.build import build_source, check_shapes
from mue.models.build import build_learner, build_network
from mue.training.schedule import learning_rate, weights_at


def test_an_unknown_preset_is_answered_with_the_nearest():
    with pytest.raises(
        ValueError, match=r"there is no preset 'gues-quik'; did you mean 'guess-quick'\?"
    ):
        preset("gues-quik")
    with pytest.raises(ValueError, match="take one of guess, "):
        preset("!")


def test_lesions_are_learned_with_the_papers_network_by_the_papers_method():
    for length in ("short", "paper"):
        config = preset("lidc", length)
        assert (config.method, config.data.name, config.data.answers) == ("vq", "slices", 1)
        m, book = config.model, config.codebook
        assert (m.levels, m.tail) == ((32, 64, 128, 192), (256, 512))
        assert (m.widths, m.c_out) == ((128, 64, 32), 1)
        assert (m.code_level, m.join) == (1, "concatenate")
        assert (book.size, book.width, book.decay) == (512, 128, 0.99)
        assert config.objective.commitment == 0.25


def test_the_papers_schedule_for_lesions():
    train = preset("lidc", "paper").train
    assert (train.steps, train.batch, train.lr) == (120_000, 256, 1e-4)
    assert preset("lidc").train.steps < 120_000
    config = preset("lidc", "paper")
    begins = [(0, 1e-4), (30_000, 5e-5), (90_000, 1e-5)]  # and 5e-6 from 120k, where it ends
    for (begin, lr), (end, _) in zip(begins, [*begins[1:], (120_000, 0)], strict=True):
        assert learning_rate(config, begin) == pytest.approx(lr)
        assert learning_rate(config, end - 1) == pytest.approx(lr)


def test_the_small_network_for_lesions_differs_in_its_widths_alone():
    for length in ("short", "paper"):
        small, whole = preset("lidc-small", length), preset("lidc", length)
        assert dataclasses.replace(small, model=whole.model) == whole
        assert len(small.model.levels) == len(whole.model.levels)
        assert max(small.model.levels + small.model.tail) < 512


BUNDLED = ("lidc-small", "lidc-exact", "guess-probunet", "lidc-probunet")


@pytest.mark.parametrize(("name", "most"), [(name, 8) for name in BUNDLED])
def test_a_model_to_be_bundled_takes_at_most_8_mib_in_half_precision(name, most):
    with torch.device("meta"):
        network = build_network(preset(name))
    assert 2 * sum(p.numel() for p in network.parameters()) < most * 2**20


def test_lesions_are_learned_exactly_from_all_raters_at_once():
    config = preset("lidc-exact")
    assert (config.method, config.data.name, config.data.answers) == ("exact", "slices", 4)
    assert config.model.code_level == len(config.model.levels) + 1  # the code enters late
    assert 8 <= config.codebook.size <= 64
    assert config.objective.energy > 0


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_fits_its_data(name, lesions):
    config = preset(name)
    data = lesions if config.data.name == "slices" else None
    with torch.device("meta"):
        axes = build_network(config).axes
    source = build_source(config.data, "train", seed=0, device=torch.device("cpu"), data=data)
    check_shapes(config, source.pair(torch.tensor([0])), axes)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_builds_a_learner(name):
    with torch.device("meta"):
        learner = build_learner(preset(name))
    assert sum(p.numel() for p in learner.parameters()) > 0


@pytest.mark.parametrize(
    ("data", "ours"), [("guess", "guess"), ("lidc", "lidc"), ("toy", "toy-vq")]
)
@pytest.mark.parametrize("kind", ["probunet", "unet", "dropout", "ensemble", "mheads"])
@pytest.mark.parametrize("length", ["short", "paper"])
def test_a_baseline_has_the_data_the_widths_and_the_schedule_of_ours(data, ours, kind, length):
    baseline, whole = preset(f"{data}-{kind}", length), preset(ours, length)
    assert (baseline.data, baseline.train) == (whole.data, whole.train)
    start = baseline.objective.prior_from if kind == "probunet" else whole.objective.prior_from
    assert baseline.objective == dataclasses.replace(whole.objective, prior_from=start)
    for part in ("levels", "widths", "norm", "c_in", "c_out", "backbone"):
        assert getattr(baseline.model, part) == getattr(whole.model, part)
    assert baseline.model.tail == ()  # which ours reads its prior from
    shape = baseline.latent.members, baseline.latent.heads, baseline.model.dropout
    expected = {"ensemble": (4, 1, 0), "mheads": (1, 4, 0), "dropout": (1, 1, 0.5)}
    assert shape == expected.get(kind, (1, 1, 0))


def test_the_probabilistic_u_net_is_as_its_authors_made_it():
    for name in ("guess-probunet", "lidc-probunet"):
        config = preset(name)
        assert (config.method, config.latent.width, config.objective.divergence) == (
            "probunet",
            6,
            10,
        )
        assert config.model.code_level == len(config.model.levels) + 1
        assert (config.model.join, config.model.readout) == ("concatenate", 3)
        assert preset(name, "paper").objective.prior_from == 0


def test_the_divergence_of_a_gaussian_latent_is_warmed_up_where_the_preset_says():
    config = preset("guess-probunet")
    steps = config.train.steps
    found = [weights_at(config, step).prior for step in (0, steps // 4, steps // 2, steps - 1)]
    assert found == [0, 0.5, 1, 1]
    assert weights_at(preset("lidc-probunet"), 0).prior == 1
