import dataclasses
import json

import pytest
import torch

from mue.config.presets import PRESETS, preset
from mue.config.schema import (
    AugmentConfig,
    CodebookConfig,
    ComputeConfig,
    Config,
    DataConfig,
    LatentConfig,
    ModelConfig,
    ObjectiveConfig,
    TrainConfig,
    from_dict,
)
from mue.data.build import build_source, check_shapes
from mue.models.build import build_learner, build_network
from mue.training.schedule import learning_rate, weights_at

# --- JSON both ways -------------------------------------------------------------------------------


def to_json(config: Config) -> str:
    return json.dumps(dataclasses.asdict(config))


def from_json(text: str) -> Config:
    return from_dict(Config, json.loads(text), "config")


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("schedule", ["short", "paper"])
def test_every_preset_survives_json(name, schedule):
    config = preset(name, schedule)
    assert from_json(to_json(config)) == config


def test_values_of_every_kind_survive_json():
    config = Config(
        method="exact",
        data=DataConfig(name="vector"),
        model=ModelConfig(backbone="mlp", levels=(7,), tail=(), widths=(3, 2, 1)),
        train=TrainConfig(lr=1 / 3, milestones=(), factors=(), seed=2**63 - 1),
        compute=ComputeConfig(channels_last=False),
    )
    assert from_json(to_json(config)) == config


def test_what_json_leaves_out_is_the_default():
    assert from_json("{}") == Config()
    assert from_json('{"train": {"steps": 7}}') == Config(train=TrainConfig(steps=7))


def test_a_whole_number_will_do_where_a_fraction_is_meant():
    lr = from_json('{"train": {"lr": 1}}').train.lr
    assert (lr, type(lr)) == (1.0, float)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"trian": {}}, r"config has no field 'trian'; did you mean 'train'\?"),
        ({"train": {"step": 1}}, r"config.train has no field 'step'; did you mean 'steps'\?"),
        ({"train": {"zzz": 1}}, "config.train has no field 'zzz'$"),
        ({"train": {"steps": 1.5}}, "config.train.steps must be a int, got 1.5"),
        ({"train": {"steps": True}}, "config.train.steps must be a int, got True"),
        ({"train": {"lr": "fast"}}, "config.train.lr must be a float, got 'fast'"),
        ({"compute": {"compile": 1}}, "config.compute.compile must be one of auto, on, off, got 1"),
        ({"compute": {"checkpointing": 1}}, "config.compute.checkpointing must be a bool, got 1"),
        (
            {"method": "magic"},
            "config.method must be one of vq, exact, probunet, heads, got 'magic'",
        ),
        ({"data": {"digit": 14.0}}, "config.data.digit must be one of 28, 14, got 14.0"),
        ({"model": {"levels": 8}}, "config.model.levels must be a list, got 8"),
        ({"model": {"levels": [8, "a"]}}, r"config.model.levels\[1\] must be a int, got 'a'"),
        ({"model": 3}, "config.model must be an object with the fields of ModelConfig"),
        ([], "config must be an object with the fields of Config"),
    ],
)
def test_json_that_is_no_configuration_is_refused_by_name(value, words):
    with pytest.raises(ValueError, match=words):
        from_json(json.dumps(value))


def test_a_run_of_before_a_field_was_renamed_is_still_read():
    old = {
        "data": {"views": {"rotate": 15.0}},
        "train": {"average": 0.9},
        "compute": {"graph": "off", "recompute": True},
    }
    assert from_json(json.dumps(old)) == Config(
        data=DataConfig(augment=AugmentConfig(rotate=15.0)),
        train=TrainConfig(ema=0.9),
        compute=ComputeConfig(cuda_graph="off", checkpointing=True),
    )


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: ModelConfig(levels=()), "model.levels must be at least one width"),
        (lambda: ModelConfig(tail=(0,)), "model.tail must be at most 12 widths in 1..4096"),
        (lambda: ModelConfig(c_out=0), "model.c_out must be in 1..4096, got 0"),
        (lambda: CodebookConfig(size=0), "codebook.size must be in 1..65536, got 0"),
        (lambda: CodebookConfig(decay=1.0), r"codebook.decay must be in \[0, 1\), got 1.0"),
        (lambda: ObjectiveConfig(commitment=-1.0), "objective.commitment must be at least 0"),
        (
            lambda: TrainConfig(validate_every=-1),
            "train.validate_every must be at least 0, got -1",
        ),
        (
            lambda: TrainConfig(validate_inputs=0),
            "train.validate_inputs must be at least 1, got 0",
        ),
        (
            lambda: TrainConfig(patience=2),
            "train.patience must be 0 where train.validate_every is 0, which is never, got 2",
        ),
        (
            lambda: Config(method="probunet", train=TrainConfig(calibrate=True)),
            "train.calibrate must be off, unless the method is `vq` or `exact` and .*, got True",
        ),
        (
            lambda: CodebookConfig(spread=float("inf")),
            "codebook.spread must be positive, got inf",
        ),
        (
            lambda: ObjectiveConfig(temperature=0.5, balance_until=0.5),
            "objective.temperature must be 1, or more where .*, got 0.5",
        ),
        (
            lambda: ObjectiveConfig(temperature=2.0),
            "objective.temperature must be 1, or more where objective.balance_until says for how",
        ),
        (lambda: ObjectiveConfig(deviation=0.0), "objective.deviation must be positive, got 0.0"),
        (lambda: ObjectiveConfig(prior_from=-0.1), "objective.prior_from must be a share of the"),
        (
            lambda: ObjectiveConfig(reconstruction=float("inf")),
            "objective.reconstruction must be at least 0, got inf",
        ),
        (lambda: ObjectiveConfig(energy=-1.0), "objective.energy must be at least 0, got -1.0"),
        (
            lambda: ObjectiveConfig(energy=float("nan")),
            "objective.energy must be at least 0, got nan",
        ),
        (lambda: LatentConfig(width=0), "latent.width must be in 1..4096, got 0"),
        (lambda: LatentConfig(members=65), "latent.members must be in 1..64, got 65"),
        (lambda: LatentConfig(heads=0), "latent.heads must be in 1..64, got 0"),
        (lambda: ModelConfig(dropout=1.0), r"model.dropout must be in \[0, 1\), got 1.0"),
        (lambda: ModelConfig(readout=0), "model.readout must be in 1..8, got 0"),
        (lambda: ObjectiveConfig(divergence=-1.0), "objective.divergence must be at least 0"),
        (lambda: DataConfig(answers=0), "data.answers must be in 1..64, got 0"),
        (lambda: DataConfig(name="slices", answers=65), "data.answers must be in 1..64, got 65"),
        (
            lambda: AugmentConfig(rotate=181.0),
            r"data.augment.rotate must be in \[0, 180\], got 181.0",
        ),
        (
            lambda: AugmentConfig(rotate=-1.0),
            r"data.augment.rotate must be in \[0, 180\], got -1.0",
        ),
        (lambda: AugmentConfig(scale=5.0), r"data.augment.scale must be in \[0, 4\], got 5.0"),
        (lambda: AugmentConfig(shift=1.5), r"data.augment.shift must be in \[0, 1\], got 1.5"),
        (
            lambda: AugmentConfig(intensity=1.0),
            r"data.augment.intensity must be in \[0, 0.9\], got 1.0",
        ),
        (
            lambda: AugmentConfig(shift=float("nan")),
            r"data.augment.shift must be in \[0, 1\], got nan",
        ),
        (lambda: TrainConfig(steps=0), "train.steps must be in 1..1000000000, got 0"),
        (
            lambda: TrainConfig(steps=10**9 + 1),
            "train.steps must be in 1..1000000000, got 1000000001",
        ),
        (lambda: TrainConfig(lr=0.0), "train.lr must be positive, got 0.0"),
        (lambda: TrainConfig(lr=float("nan")), "train.lr must be positive, got nan"),
        (lambda: TrainConfig(lr=float("inf")), "train.lr must be positive, got inf"),
        (lambda: TrainConfig(warmup=-1), "train.warmup must be at least 0, got -1"),
        (lambda: TrainConfig(clip=float("nan")), "train.clip must be at least 0, got nan"),
        (lambda: TrainConfig(weight_decay=-1.0), "train.weight_decay must be at least 0, got -1"),
        (lambda: TrainConfig(ema=1.0), r"train.ema must be in \[0, 1\), got 1.0"),
        (
            lambda: TrainConfig(milestones=(0.6, 0.2), factors=(0.5, 0.1)),
            r"train.milestones must be ascending shares in \[0, 1\], got \(0.6, 0.2\)",
        ),
        (
            lambda: TrainConfig(milestones=(0.6, 2.0), factors=(0.5, 0.1)),
            "train.milestones must be ascending shares",
        ),
        (lambda: TrainConfig(milestones=(0.5,)), "train.factors must be as many as the 1 of"),
        (lambda: TrainConfig(seed=-1), "train.seed must be in 0"),
    ],
)
def test_a_value_that_no_run_could_use_is_refused_by_name(build, words):
    with pytest.raises(ValueError, match=words):
        build()


def test_an_unknown_preset_is_answered_with_the_nearest():
    with pytest.raises(
        ValueError, match=r"there is no preset 'gues-quik'; did you mean 'guess-quick'\?"
    ):
        preset("gues-quik")
    with pytest.raises(ValueError, match="take one of guess, "):
        preset("!")


# --- presets --------------------------------------------------------------------------------------


def test_lesions_are_learned_with_the_papers_network_by_the_papers_method():
    for schedule in ("short", "paper"):
        config = preset("lidc", schedule)
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
    for schedule in ("short", "paper"):
        small, whole = preset("lidc-small", schedule), preset("lidc", schedule)
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
@pytest.mark.parametrize("schedule", ["short", "paper"])
def test_a_baseline_has_the_data_the_widths_and_the_schedule_of_ours(data, ours, kind, schedule):
    baseline, whole = preset(f"{data}-{kind}", schedule), preset(ours, schedule)
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


def test_a_switch_may_be_a_boolean_as_it_once_was():
    config = from_json('{"compute": {"bfloat16": true, "compile": false}}')
    assert (config.compute.bfloat16, config.compute.compile) == ("on", "off")


def test_dropout_is_for_the_method_that_answers_by_it():
    with pytest.raises(ValueError, match=r"model.dropout must be 0 for the method 'exact'"):
        Config(method="exact", model=ModelConfig(dropout=0.5))


# --- schedules ------------------------------------------------------------------------------------


def test_the_papers_learning_rates_begin_at_the_papers_iterations():
    train = TrainConfig(
        steps=150_000, lr=1e-4, milestones=(0.2, 0.6, 0.8), factors=(0.5, 0.1, 0.05)
    )
    config = Config(train=train)
    begins = [(0, 1e-4), (30_000, 5e-5), (90_000, 1e-5), (120_000, 5e-6)]
    for (begin, lr), (end, _) in zip(begins, [*begins[1:], (150_000, 0)], strict=True):
        assert learning_rate(config, begin) == pytest.approx(lr)
        assert learning_rate(config, end - 1) == pytest.approx(lr)


def test_the_learning_rate_is_warmed_up_linearly():
    config = Config(train=TrainConfig(steps=1000, lr=1.0, warmup=3))
    rates = [learning_rate(config, step) for step in range(5)]
    assert rates == pytest.approx([0.25, 0.5, 0.75, 1, 1])


def test_half_a_cosine_ends_at_zero():
    config = Config(train=TrainConfig(steps=100, lr=2.0, schedule="cosine"))
    rates = [learning_rate(config, step) for step in (0, 50, 100)]
    assert rates == pytest.approx([2, 1, 0])


def test_the_prior_waits_until_its_share_of_the_training_is_over():
    config = Config(objective=ObjectiveConfig(prior_from=0.25), train=TrainConfig(steps=100))
    assert [weights_at(config, step).prior for step in (0, 24, 25, 99)] == [0, 0, 1, 1]


def test_responsibilities_harden_and_balancing_ends_together():
    objective = ObjectiveConfig(temperature=16.0, balance_until=0.5)
    config = Config(objective=objective, train=TrainConfig(steps=100))
    moments = [weights_at(config, step) for step in (0, 25, 50, 99)]
    assert [m.temperature for m in moments] == pytest.approx([16, 4, 1, 1])  # geometric
    assert [m.balance for m in moments] == [True, True, False, False]


def test_a_removed_field_is_read_where_it_was_not_used_and_refused_where_it_was():
    unused = {"size": 4, "revive_every": 0, "revive_until": 0.5}
    assert from_dict(CodebookConfig, unused, "codebook") == CodebookConfig(size=4)
    with pytest.raises(ValueError, match="codebook has no field 'revive_every'"):
        from_dict(CodebookConfig, unused | {"revive_every": 7}, "codebook")
