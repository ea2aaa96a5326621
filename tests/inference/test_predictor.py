import dataclasses

import numpy as np
import pytest
import torch
from PIL import Image

from mue.config.presets import preset
from mue.config.schema import DataConfig, ModelConfig, ModesConfig, ObjectiveConfig
from mue.data.build import build_source
from mue.errors import MueError
from mue.inference.load import bundled, find, load
from mue.inference.predictor import Predictor
from mue.inference.volume import _reorder_
from mue.models.build import build_modal
from mue.models.modal import Modal
from mue.models.probunet import ProbUNet
from mue.modes import ModeRule
from mue.runtime.devices import choose_device
from mue.types import Hypotheses


@pytest.fixture(scope="module")
def predictor(trained) -> Predictor:
    return load(trained, device="cpu")


def fresh(config, **model) -> Predictor:
    """A network with random weights."""
    torch.manual_seed(0)
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, **model))
    return Predictor(build_modal(config).eval(), config)


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


def test_every_way_to_say_the_same_image_has_the_same_answers(predictor):
    torch.manual_seed(0)
    levels = torch.randint(256, (8, 8), dtype=torch.uint8)
    x = levels.float() / 255
    expected = predictor.propose(x[None, None], k=3)
    ways = [
        x,  # h w
        x[None],  # c h w
        x.double(),
        levels,  # bytes are scaled
        levels[None, None],
        x.numpy(),
        levels.numpy(),
        x.T.contiguous().T,
        np.asfortranarray(x.numpy()),
        x.clone().requires_grad_(),
    ]
    for way in ways:
        h = predictor.propose(way, k=3)
        assert torch.equal(h.code, expected.code)
        torch.testing.assert_close(h.y, expected.y)
        torch.testing.assert_close(h.prob, expected.prob)


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


@pytest.mark.parametrize("kind", ["sparse", "meta"])
def test_tensors_without_their_values_at_hand_are_refused(predictor, kind):
    x = torch.eye(8).to_sparse() if kind == "sparse" else torch.zeros(8, 8, device="meta")
    with pytest.raises(MueError, match="`image` must be a dense tensor with values"):
        predictor.propose(x)


@pytest.mark.parametrize(
    ("name", "side"), [("exact", 8192), ("exact", 1024), ("probunet", 1024), ("probunet", 8192)]
)
def test_an_image_beyond_the_memory_is_refused_before_it_is_full(
    baselines, monkeypatch, name, side
):
    """In strips an image takes less memory than in one pass, and either is bounded."""
    predictor, x = load(baselines[name], device="cpu"), torch.zeros(1, 1, side, side)
    maps = 2 if (name, side) == ("exact", 8192) else 7
    needed = 4 * maps * predictor.config.model.levels[0] * side**2
    monkeypatch.setattr("mue.inference.forward.physical_memory", lambda: needed - 1)
    with pytest.raises(MueError, match=f"1 image.* of {side} x {side} pixels take about .* GiB"):
        predictor.propose(x, k=1)


def test_the_answers_to_a_volume_must_fit_into_the_memory(trained, monkeypatch):
    """Of 2000 slices of 16 x 16 a slice alone would fit: 2 bytes a pixel for each of 6 codes."""
    predictor, x = load(trained, device="cpu"), torch.zeros(2000, 1, 16, 16)
    needed = 2 * 6 * 2000 * 16 * 16
    monkeypatch.setattr("mue.inference.forward.physical_memory", lambda: needed - 1)
    with pytest.raises(MueError, match=r"the answers to 2000 slices take about 0 GiB of memory"):
        predictor.modes(x, volume=True)


def test_an_array_that_must_not_be_written_to_is_taken_without_a_warning(predictor):
    image = Image.effect_noise((8, 8), 50)
    array = np.asarray(image)  # Pillow's own memory
    assert not array.flags.writeable
    assert torch.equal(predictor.propose(array, k=3).y, predictor.propose(array.copy(), k=3).y)


@pytest.mark.parametrize(("height", "width"), [(8, 8), (7, 5), (1, 1), (9, 16), (3, 30)])
def test_answers_have_the_size_of_the_image_whatever_it_is(predictor, height, width):
    torch.manual_seed(0)
    h = predictor.propose(torch.rand(2, 1, height, width), k=2)
    assert h.y.shape == (2, 2, 1, height, width)
    assert ((h.y > 0) & (h.y < 1)).all()


def test_classes_of_a_pixel_share_its_probability(tiny):
    config = dataclasses.replace(tiny(), objective=ObjectiveConfig(likelihood="categorical"))
    h = fresh(config, c_in=3, c_out=4).propose(torch.rand(2, 3, 8, 8), k=3)
    torch.testing.assert_close(h.y.sum(dim=2), torch.ones(2, 3, 8, 8))


def test_a_vector_alone_is_a_batch_of_one(tiny):
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


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [0, -1, 7, True])
def test_k_out_of_range_is_named_with_its_range(predictor, k):
    words = rf"`k` must be in 1..6 \(the codes of this model\), got {k}$"
    for ask in (predictor.propose, predictor.modes):
        with pytest.raises(ValueError, match=words):
            ask(torch.rand(8, 8), k=k)


@pytest.mark.parametrize(
    "shape", [(3, 8, 8), (2, 3, 8, 8), (8,), (1, 1, 1, 8, 8), (1, 0, 8), (0, 1, 8, 8), ()]
)
def test_an_image_of_the_wrong_shape_is_refused(predictor, shape):
    with pytest.raises(
        ValueError, match=r"`image` must be c h w with c = 1 channels, or a batch"
    ) as caught:
        predictor.propose(torch.zeros(shape), k=2)
    assert f"got an array of shape {shape}" in str(caught.value)


def test_an_image_without_channels_is_refused_where_several_are_needed(tiny):
    with pytest.raises(ValueError, match=r"c = 3 channels, .* shape \(8, 8\)"):
        fresh(tiny(), c_in=3).propose(torch.zeros(8, 8), k=2)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_an_image_that_is_not_finite_is_refused(predictor, value):
    x = torch.zeros(2, 1, 8, 8)
    x[1, 0, 2, 3:5] = value
    with pytest.raises(ValueError, match="`image` must be finite, got 2 values that are NaN or"):
        predictor.propose(x, k=2)


# --- volumes --------------------------------------------------------------------------------------


def test_a_volume_of_one_slice_again_and_again_has_its_probabilities(predictor):
    x = torch.rand(1, 1, 16, 16)
    alone, volume = predictor.modes(x), predictor.modes(x.expand(3, -1, -1, -1), volume=True)
    torch.testing.assert_close(volume.prob, alone.prob)
    assert volume.y.shape == (1, alone.y.shape[1], 1, 3 * 16, 16)
    for i in range(3):
        part = volume.y[..., 16 * i : 16 * i + 16, :].float()
        torch.testing.assert_close(part, alone.y, atol=1e-3, rtol=0)


def test_an_answer_to_a_volume_is_of_one_code_in_every_slice(predictor):
    x, seen = torch.rand(4, 1, 16, 16), list[int]()
    volume = predictor.modes(x, by="code", volume=True, on_slice=seen.append)
    assert seen == [1, 2, 3, 4]
    for i in range(4):
        h = predictor.propose(x[i], predictor.codes)
        for j, code in enumerate(volume.answer_code[0].tolist()):
            own = h.y[0, h.code[0] == code][0]
            part = volume.answers[0, j, :, 16 * i : 16 * i + 16].float()
            torch.testing.assert_close(part, own, atol=1e-3, rtol=0)


def test_answers_to_a_volume_are_ordered_in_place():
    """Each in its place, two cycles, one cycle."""
    for order in ([0, 1, 2, 3, 4], [1, 0, 3, 2, 4], [4, 2, 0, 1, 3]):
        y = torch.arange(5.0)[None, :, None].repeat(1, 1, 2)
        _reorder_(y, order)
        assert y[0, :, 0].tolist() == order


def test_slices_weigh_as_much_as_their_answers_differ(predictor, monkeypatch):
    """By hand: the codes agree in the first slice; in the second they differ in 2 pixels."""
    y = torch.zeros(2, 1, 2, 1, 2, 2)
    y[1, 0, 0, 0, 0] = 1
    prob = torch.tensor([[[0.9, 0.1]], [[0.25, 0.75]]])
    found = iter([Hypotheses.unchecked(y[i], prob[i], torch.tensor([[0, 1]])) for i in range(2)])
    monkeypatch.setattr(predictor._forward, "codes_of_volume", lambda *_: torch.tensor([0, 1]))
    monkeypatch.setattr(predictor._forward, "of_codes", lambda *_: next(found))
    modes = predictor.modes(torch.rand(2, 1, 2, 2), volume=True)
    torch.testing.assert_close(modes.prob, torch.tensor([[0.75, 0.25]]))


def test_slices_whose_answers_all_agree_weigh_the_same(predictor, monkeypatch):
    prob = torch.tensor([[[0.9, 0.1]], [[0.2, 0.8]]])
    code = torch.tensor([[0, 1]])
    found = iter(
        [Hypotheses.unchecked(torch.zeros(1, 2, 1, 2, 2), prob[i], code) for i in range(2)]
    )
    monkeypatch.setattr(predictor._forward, "codes_of_volume", lambda *_: code[0])
    monkeypatch.setattr(predictor._forward, "of_codes", lambda *_: next(found))
    modes = predictor.modes(torch.rand(2, 1, 2, 2), volume=True, by="code")
    torch.testing.assert_close(modes.prob, torch.tensor([[0.55, 0.45]]))


def test_of_many_codes_those_that_are_probable_in_the_volume_are_decoded(tiny):
    many = dataclasses.replace(tiny("exact").codebook, size=100)
    model = fresh(dataclasses.replace(tiny("exact"), codebook=many))
    x = torch.rand(3, 1, 16, 16)
    modes = model.modes(x, by="code", volume=True)
    prior = torch.stack([model.network(x[i : i + 1]).log_prior[0].exp() for i in range(3)])
    assert set(modes.answer_code[0].tolist()) == set(prior.mean(dim=0).topk(64).indices.tolist())


def test_a_baseline_answers_a_volume_with_the_same_random_numbers(baselines):
    x = torch.rand(1, 1, 16, 16).expand(2, -1, -1, -1)
    for name in ("probunet", "dropout", "mheads"):
        model = load(baselines[name], device="cpu")
        modes = model.modes(x, 3, by="code", volume=True)
        assert modes.answer_prob[0].tolist() == pytest.approx([1 / 3] * 3)
        assert torch.equal(modes.answers[..., :16, :], modes.answers[..., 16:, :])


# --- finding models -------------------------------------------------------------------------------


def test_models_are_found_by_name_or_folder(trained):
    assert {"guess", "guess-exact"} <= set(bundled())
    assert find("guess") == bundled()["guess"]
    assert find(trained) == find(str(trained)) == trained


def test_an_unknown_model_is_answered_with_the_nearest():
    words = r"no bundled model and no run folder 'gess-exact'; did you mean 'guess-exact'\?"
    with pytest.raises(ValueError, match=words):
        load("gess-exact")
    with pytest.raises(ValueError, match="'!'; bundled are guess, guess-exact"):
        load("!")


def test_the_bundled_models_are_what_their_names_say():
    for name, method in (("guess", "vq"), ("guess-exact", "exact")):
        predictor = load(name, device="cpu")
        assert predictor.config.method == method
        assert predictor.config.data.name == "guess"
        assert predictor.device == torch.device("cpu")
        size = (bundled()[name] / "weights.safetensors").stat().st_size
        assert size <= 8 * 2**20


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_device_that_is_not_there_is_refused():
    assert choose_device("auto") == torch.device("cpu")
    with pytest.raises(ValueError, match="`device` is cuda, and torch finds no CUDA device here"):
        choose_device("cuda")


def test_a_process_without_a_device_of_its_own_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("auto", 1) == torch.device("cuda", 1)
    words = r"process 2 of this machine has no CUDA device of its own: torch finds 2; start as many"
    with pytest.raises(ValueError, match=words):
        choose_device("auto", 2)


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


# --- precision ------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["guess", "guess-exact", "guess-probunet"])
def test_half_precision_gives_nearly_the_same_answers_in_float32(model):
    x = (
        build_source(DataConfig(), "test", seed=0, device=torch.device("cpu"))
        .case(torch.arange(2))
        .x
    )
    whole, half = (load(model, device="cpu", half=h).propose(x, 4) for h in (False, True))
    assert half.y.dtype == half.prob.dtype == torch.float32
    torch.testing.assert_close(half.prob, whole.prob, atol=0.02, rtol=0)
    near = half.code == whole.code
    assert near.float().mean() > 0.5  # codes of equal probability may change places
    assert (half.y - whole.y)[near].abs().mean() < 0.01
    assert not load(model, device="cpu").half


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


def test_pictures_and_lists_are_taken_as_the_arrays_they_are(predictor):
    values = np.arange(64, dtype=np.uint8).reshape(8, 8)
    expected = predictor.propose(values)
    for same in (Image.fromarray(values), values.astype(">u1"), (values / 255).tolist()):
        torch.testing.assert_close(predictor.propose(same).prob, expected.prob)


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (Image.new("P", (8, 8)), "must be grey or RGB, got a picture of mode 'P'"),
        (Image.new("RGB", (8, 8)), "with c = 1 channels"),
        ([[1.0, 2.0], [3.0]], "got lists of different lengths"),
        ([["a"]], "must be an array of real numbers, got one of <U1"),
        ([[None]], "must be an array of real numbers, got one of object"),
        (np.zeros((8, 8), np.complex64), "must be an array of real numbers, got one of complex64"),
        (np.zeros((8, 8), np.longdouble), "must be an array of real numbers"),
        (torch.zeros(8, 8, dtype=torch.complex64), "real numbers, got one of torch.complex64"),
    ],
)
def test_what_is_no_image_is_refused_in_a_sentence(predictor, image, words):
    with pytest.raises(MueError, match=words):
        predictor.propose(image)
