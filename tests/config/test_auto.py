import dataclasses
from typing import Any

import pytest

from mue.config.auto import EXAMPLE, STEPS, DataStatistics, choose
from mue.config.presets import lidc_exact
from mue.config.schema import Config, NormalizeConfig
from mue.errors import MueError
from mue.models.build import build_network

LIDC = dataclasses.replace(EXAMPLE, images={"train": 7800, "val": 1300, "test": 4000})


def data(**changes: Any) -> DataStatistics:
    return dataclasses.replace(LIDC, **changes)


def one_size(h: int, w: int) -> dict[str, Any]:
    """Images that all have one size."""
    return {"shortest": (h, w), "median": (h, w), "longest": (h, w)}


def test_data_like_lidc_is_trained_as_by_its_preset():
    """On a GPU; it differs in when it validates and that it may stop early."""
    found, ours = choose(LIDC, "cuda").config, lidc_exact()
    free: dict[str, Any] = {
        name: getattr(found.train, name)
        for name in ("validate_every", "patience", "save_every", "log_every")
    }
    assert found == dataclasses.replace(ours, train=dataclasses.replace(ours.train, **free))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("side", [1, 8, 20, 28, 33, 64, 100, 128, 500, 4096])
def test_whatever_the_size_a_network_is_built_and_sees_the_whole_patch(side, device):
    config = choose(data(**one_size(side, 2 * side)), device).config
    build_network(config)
    model = config.model
    short = min(config.data.patch) or side
    assert short >> (len(model.levels) + len(model.tail) - 1) <= 8
    assert model.code_level == len(model.levels) + 1
    assert 4 <= config.train.batch <= 64


@pytest.mark.parametrize(
    ("size", "levels"), [((28, 28), 2), ((14, 56), 3), ((16, 256), 3), ((32, 256), 4)]
)
def test_long_images_have_more_levels_so_that_the_decoder_sees_their_length(size, levels):
    """As many as the short side can be halved, at most."""
    assert len(choose(data(**one_size(*size)), "cpu").config.model.levels) == levels


def test_images_of_different_sizes_are_trained_on_in_patches_that_half_of_them_hold():
    """One small image among large ones does not make the patches small."""
    sizes: dict[str, Any] = {"shortest": (16, 20), "median": (321, 100), "longest": (481, 481)}
    found = choose(data(**sizes), "cuda")
    assert found.config.data.patch == (256, 100)
    assert found.config.data.foreground == pytest.approx(1 / 3)
    assert found.reasons["data.patch"].startswith("256 x 100 of images of 16 x 20 to 481 x 481")
    assert choose(data(**sizes), "cpu").config.data.patch == (128, 100)


def test_large_images_of_one_size_are_trained_on_in_patches():
    assert choose(data(**one_size(512, 512)), "cuda").config.data.patch == (256, 256)
    assert choose(LIDC, "cuda").config.data.patch == (0, 0)


def test_several_classes_have_a_softmax():
    labels = ("background", "cup", "disc")
    config = choose(data(channels=3, labels=labels), "cpu").config
    assert (config.model.c_in, config.model.c_out) == (3, 3)
    assert (config.objective.likelihood, config.data.labels) == ("categorical", labels)
    one = choose(data(labels=labels[:2], values=(0, 4)), "cpu").config
    assert (one.model.c_out, one.objective.likelihood) == (1, "bernoulli")
    assert (one.data.labels, one.data.values) == (labels[:2], (0, 4))


def test_raters_decide_on_answers_and_codes():
    def found(**changes: Any) -> tuple[int, int]:
        config = choose(data(**changes), "cuda").config
        return config.data.answers, config.codebook.size

    assert found(raters=(3, 3)) == (3, 12)
    assert found(raters=(1, 7)) == (7, 16)
    assert found(raters=(1, 1)) == (1, 8)
    assert found(raters=(3, 3), weighted=True) == (16, 12)  # samples
    assert found(raters=(40, 40)) == (16, 16)


def test_one_rater_is_enough_and_it_says_what_cannot_be_learned():
    reasons = choose(data(raters=(1, 1)), "cpu").reasons
    assert "no disagreement can be learned" in reasons["data.answers"]


def test_images_with_an_orientation_are_not_mirrored():
    augment = choose(data(oriented=True), "cpu").config.data.augment
    assert (augment.flip, augment.rotate) == (False, 15)
    assert choose(LIDC, "cpu").config.data.augment == lidc_exact().data.augment


def test_the_normalization_is_that_of_the_data():
    ct = NormalizeConfig(kind="window", low=(-1.0,), high=(1.0,), mean=(0.0,), deviation=(1.0,))
    assert choose(data(normalize=ct), "cpu").config.data.normalize == ct


def test_without_an_image_to_train_on_nothing_is_chosen():
    with pytest.raises(MueError, match=r"at least one image of the split train.*\(5 of others\)"):
        choose(data(images={"train": 0, "val": 5}), "cpu")


def test_without_an_image_of_val_nothing_is_validated_or_calibrated():
    found = choose(data(images={"train": 5, "val": 0, "test": 1}), "cpu")
    train = found.config.train
    assert (train.validate_every, train.patience, train.calibrate) == (0, 0, False)
    assert "no image of the split val" in found.reasons["train.validate_every"]
    assert found.within(1.0, 1.0).config.train.validate_every == 0


def test_the_loss_of_a_pixel_weighs_less_the_more_pixels_there_are():
    small = choose(data(**one_size(64, 64)), "cuda").config
    assert small.objective.reconstruction == pytest.approx(0.04)


@pytest.mark.parametrize(
    ("minutes", "seconds", "steps", "words"),
    [
        (10.0, 0.1, STEPS["cpu"], "fits into 10 minutes"),
        (5.0, 0.3, 750, "750 of 2000: what fits into 5 minutes"),
        (1.0, 5.0, 200, "the fewest: 1 minutes are enough for 9"),
    ],
)
def test_as_many_steps_as_fit_into_the_time(minutes, seconds, steps, words):
    """By hand: three quarters of the time, divided by that of a step."""
    found = choose(LIDC, "cpu").within(minutes, seconds)
    train = found.config.train
    assert train.steps == steps
    assert words in found.reasons["train.steps"]
    assert (train.validate_every, train.warmup) == (steps // 20, min(100, steps // 10))


def test_no_time_at_all_is_refused():
    with pytest.raises(MueError, match=r"--minutes must be positive, got 0"):
        choose(LIDC, "cpu").within(0.0, 1.0)


def test_every_reason_is_about_a_value():
    choice = choose(data(oriented=True, labels=("background", "a", "b")), "cpu")
    assert choice.kept_in(choice.config) == choice.reasons


def test_what_is_overridden_has_no_reason_any_more():
    choice = choose(LIDC, "cpu")
    config: Config = dataclasses.replace(
        choice.config, train=dataclasses.replace(choice.config.train, batch=3)
    )
    assert set(choice.reasons) - set(choice.kept_in(config)) == {"train.batch"}


def test_a_baseline_has_the_same_settings():
    ours, unet = choose(LIDC, "cuda"), choose(LIDC, "cuda").as_baseline("unet")
    a, b = ours.config, unet.config
    assert (b.method, b.train.calibrate, b.model.tail) == ("heads", False, ())
    assert (a.data, a.model.levels, a.model.widths) == (b.data, b.model.levels, b.model.widths)
    assert dataclasses.replace(a.train, calibrate=False) == b.train
    assert "codebook.size" not in unet.reasons
    assert "baseline (unet)" in unet.reasons["method"]
    build_network(b)
