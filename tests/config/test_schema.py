import pytest

from mue.config.schema import (
    AugmentConfig,
    CodebookConfig,
    Config,
    DataConfig,
    LatentConfig,
    ModelConfig,
    ObjectiveConfig,
    TrainConfig,
)


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


def test_dropout_is_for_the_method_that_answers_by_it():
    with pytest.raises(ValueError, match=r"model.dropout must be 0 for the method 'exact'"):
        Config(method="exact", model=ModelConfig(dropout=0.5))
