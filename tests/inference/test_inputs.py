import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import mue
from mue.config.presets import preset
from mue.config.schema import DataConfig, NormalizeConfig
from mue.data.folder.description import Description
from mue.data.folder.importer import encode_cases
from mue.data.folder.layout import CaseFiles
from mue.data.images.image import Geometry, RawImage
from mue.data.prepared.dataset import Slices
from mue.data.prepared.open import Prepared, open_prepared
from mue.data.prepared.write import write_prepared
from mue.errors import MueError
from mue.inference.files import InputFile, read_input
from mue.inference.inputs import network_input, normalized_slices, with_channels
from mue.inference.load import load
from mue.inference.predictor import Predictor
from mue.models.build import build_modal

KINDS = {
    "unit": NormalizeConfig(),
    "zscore": NormalizeConfig(kind="zscore"),
    "range": NormalizeConfig(kind="range", low=(100.0,), high=(40_000.0,)),
    "window": NormalizeConfig(
        kind="window", low=(100.0,), high=(900.0,), mean=(400.0,), deviation=(300.0,)
    ),
}


def normalizing(predictor: Predictor, config: NormalizeConfig) -> Predictor:
    """The same network, as if it had been trained on images that are normalized so."""
    data = replace(predictor.config.data, normalize=config)
    return Predictor(predictor.network, replace(predictor.config, data=data))


# --- arrays and files -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int16, np.float32, np.float64])
def test_an_array_is_answered_as_the_file_that_holds_it(predictor, tmp_path, kind, dtype):
    """To the bit, whatever the model was trained on: it was not for a model of scans."""
    model = normalizing(predictor, KINDS[kind])
    image = np.random.default_rng(0).integers(0, 200, (8, 12)).astype(dtype)
    np.save(tmp_path / "a.npy", image)
    (found,) = mue.predict(model, [tmp_path / "a.npy"], device="cpu").predictions
    modes = model.modes(image)
    assert torch.equal(modes.prob[:, :8], found.modes.prob)
    assert torch.equal(modes.y[:, :8], found.modes.y)


@pytest.mark.parametrize("dtype", [np.int16, np.float32])
def test_a_bundled_model_answers_hounsfield_units_as_their_file(tmp_path, dtype):
    """They were taken for shares: "empty", with probability 1."""
    image = (np.mgrid[-8:8, -8:8] ** 2).sum(axis=0).clip(0, 60)[None] * -20 + 400
    image = np.kron(image, np.ones((1, 4, 4))).astype(dtype)
    assert (image.min(), image.max()) == (-800, 400)
    np.save(tmp_path / "ct.npy", image[0])
    (found,) = mue.predict("lidc-exact", [tmp_path / "ct.npy"], device="cpu").predictions
    modes = load("lidc-exact", device="cpu").modes(image)
    assert torch.equal(modes.prob[:, :8], found.modes.prob)
    share = load("lidc-exact", device="cpu").modes((image.astype(np.float32) + 800) / 1200)
    torch.testing.assert_close(modes.prob, share.prob)


@pytest.mark.parametrize("kind", KINDS)
def test_each_image_of_a_batch_is_normalized_by_itself(kind):
    """As alone; together they would share one range, one mean and one deviation."""
    x = torch.randint(-1000, 1000, (3, 1, 4, 5), generator=torch.Generator().manual_seed(0))
    x = x.to(torch.int16) * torch.tensor([1, 3, 9], dtype=torch.int16).view(3, 1, 1, 1)
    found = normalized_slices(x, KINDS[kind])
    assert torch.equal(found, torch.cat([normalized_slices(v, KINDS[kind]) for v in x.split(1)]))


def test_what_is_normalized_is_taken_as_it_is(predictor):
    model, x = normalizing(predictor, KINDS["zscore"]), 3 * torch.randn(2, 1, 8, 8) - 1
    whole = model.propose(x, 6, normalized=True)
    with torch.inference_mode():
        prior = predictor.network(x).log_prior.exp()
    torch.testing.assert_close(whole.prob, prior.sort(dim=1, descending=True).values)
    assert torch.equal(model.modes(x, normalized=True).answer_prob, whole.prob)
    volume = model.modes(x[:1], normalized=True, volume=True)
    torch.testing.assert_close(volume.prob, model.modes(x[:1], normalized=True).prob)
    for value in (float("nan"), float("inf")):
        with pytest.raises(MueError, match="`image` must be finite, got 1 values"):
            model.propose(torch.full((1, 1, 1, 1), value), normalized=True)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([-0.5, 0.0, 0.5], [0.0, 0.5, 1.0]),  # below 0, though none is beyond 1
        ([0.0, 0.5, 2.0], [0.0, 0.25, 1.0]),
        ([0.0, 0.25, 1.0], [0.0, 0.25, 1.0]),
        ([0.25, 0.5, 0.75], [0.25, 0.5, 0.75]),
        ([7.0, 7.0, 7.0], [0.0, 0.0, 0.0]),
    ],
)
def test_real_numbers_beyond_0_to_1_are_scaled_by_their_range(values, expected):
    for dtype in (torch.float16, torch.float32, torch.float64):
        x = torch.tensor(values, dtype=dtype)[None, None, None]
        assert normalized_slices(x, KINDS["unit"]).flatten().tolist() == expected


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int32, np.int64, np.uint32, np.uint64])
def test_whole_numbers_without_a_known_maximum_are_scaled_by_their_range(kind):
    """Of 32 bits too, as the readers of files give them."""
    x = torch.from_numpy(np.array([[[[1, 2, 5]]]], kind))
    assert normalized_slices(x, KINDS["unit"]).flatten().tolist() == [0.0, 0.25, 1.0]


def test_vectors_are_no_values_of_a_file():
    config = preset("vector")
    model = Predictor(build_modal(config).eval(), config)
    x = torch.tensor([[3.0, -2.0]])
    expected = model.propose(x, normalized=True)
    assert torch.equal(model.propose(x).prob, expected.prob)
    assert torch.equal(model.propose([[3, -2]]).prob, expected.prob)


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_unsigned_integers_are_scaled_by_the_maximum_of_their_type(predictor, kind):
    """As a scanner's 16 bits: 13107 of 65535 is a fifth."""
    shares = np.random.default_rng(0).integers(6, size=(8, 8))
    levels = (shares * (np.iinfo(kind).max // 5)).astype(kind)
    expected = predictor.propose(torch.from_numpy(shares) / 5, k=3)
    for way in (levels, torch.from_numpy(levels)):
        h = predictor.propose(way, k=3)
        torch.testing.assert_close(h.y, expected.y)
        torch.testing.assert_close(h.prob, expected.prob)


def test_booleans_are_black_and_white(predictor):
    mask = torch.rand(8, 8) > 0.5
    assert torch.equal(predictor.propose(mask, k=3).y, predictor.propose(mask.float(), k=3).y)


def test_values_are_divided_by_the_maximum_of_their_type_in_one_place():
    root = Path(mue.__file__).parent
    found = [p for p in root.rglob("*.py") if re.search(r"/ \(*(torch|np)\.iinfo", p.read_text())]
    assert [p.relative_to(root).as_posix() for p in found] == ["data/normalize.py"]


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


def test_pictures_and_lists_are_taken_as_the_arrays_they_are(predictor):
    values = np.arange(64, dtype=np.uint8).reshape(8, 8)
    expected = predictor.propose(values)
    for same in (Image.fromarray(values), values.astype(">u1"), (values / 255).tolist()):
        torch.testing.assert_close(predictor.propose(same).prob, expected.prob)


def test_an_array_that_must_not_be_written_to_is_taken_without_a_warning(predictor):
    image = Image.effect_noise((8, 8), 50)
    array = np.asarray(image)  # Pillow's own memory
    assert not array.flags.writeable
    assert torch.equal(predictor.propose(array, k=3).y, predictor.propose(array.copy(), k=3).y)


@pytest.mark.parametrize("kind", ["sparse", "meta"])
def test_tensors_without_their_values_at_hand_are_refused(predictor, kind):
    x = torch.eye(8).to_sparse() if kind == "sparse" else torch.zeros(8, 8, device="meta")
    with pytest.raises(MueError, match="`image` must be a dense tensor with values"):
        predictor.propose(x)


@pytest.mark.parametrize(
    "shape", [(3, 8, 8), (2, 3, 8, 8), (8,), (1, 1, 1, 8, 8), (1, 0, 8), (0, 1, 8, 8), ()]
)
def test_an_image_of_the_wrong_shape_is_refused(predictor, shape):
    with pytest.raises(
        ValueError, match=r"`image` must be c h w with c = 1 channels, or a batch"
    ) as caught:
        predictor.propose(torch.zeros(shape), k=2)
    assert f"got an array of shape {shape}" in str(caught.value)


def test_an_image_without_channels_is_refused_where_several_are_needed(tiny, fresh):
    with pytest.raises(ValueError, match=r"c = 3 channels, .* shape \(8, 8\)"):
        fresh(tiny(), c_in=3).propose(torch.zeros(8, 8), k=2)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_an_image_that_is_not_finite_is_refused(predictor, value):
    x = torch.zeros(2, 1, 8, 8)
    x[1, 0, 2, 3:5] = value
    with pytest.raises(ValueError, match="`image` must be finite, got 2 values that are NaN or"):
        predictor.propose(x, k=2)


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (Image.new("CMYK", (8, 8)), "`image` has colours of the mode CMYK; save it in grey or RGB"),
        (Image.new("RGBA", (8, 8)), "`image` has transparent pixels; save it without transparency"),
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


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I", "I;16", "F"])
def test_an_image_of_pillow_is_read_as_its_file_is(tmp_path, fresh, mode, channels):
    """Upright, without a palette, as grey or in colour; black and white is 0 and 255."""
    values = np.random.default_rng(0).integers(0, 256, (8, 12, 3)).astype(np.uint8)
    image = Image.fromarray(values)
    if mode in ("I", "I;16", "F"):
        image = Image.fromarray(values[..., 0].astype({"I": "i4", "I;16": "u2", "F": "f4"}[mode]))
    elif mode != "RGB":
        image = image.quantize(16) if mode == "P" else image.convert(mode)
    exif = Image.Exif()
    exif[274] = 6
    path = tmp_path / ("a.png" if mode not in ("I", "F") else "a.tif")
    if path.suffix == ".png":
        image.save(path, exif=exif)
    else:
        image.save(path)
    model = normalizing(fresh(preset("toy"), c_in=channels), NormalizeConfig(kind="zscore"))
    if channels == 1:
        model = normalizing(model, KINDS["window"])
    (found,) = mue.predict(model, [path], device="cpu").predictions
    with Image.open(path) as opened:
        assert opened.mode == mode
        modes = model.modes(opened)
    assert modes.y.shape[-2:] == ((12, 8) if path.suffix == ".png" else (8, 12))
    assert torch.equal(modes.prob[:, :8], found.modes.prob)
    assert torch.equal(modes.y[:, :8], found.modes.y)


@pytest.mark.parametrize("kind", KINDS)
def test_booleans_are_black_and_white_in_arrays_and_in_files(predictor, tmp_path, kind):
    model, mask = normalizing(predictor, KINDS[kind]), np.indices((8, 12)).sum(axis=0) % 3 == 0
    np.save(tmp_path / "a.npy", mask)
    Image.fromarray(mask).save(tmp_path / "a.png")
    expected = model.modes(mask.astype(np.uint8) * 255)
    assert torch.equal(model.modes(mask).prob, expected.prob)
    paths = [tmp_path / "a.npy", tmp_path / "a.png"]
    for found in mue.predict(model, paths, device="cpu").predictions:
        assert torch.equal(found.modes.prob, expected.prob[:, :8])


# --- files and training ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.float32])
def test_a_scan_is_scaled_by_the_range_of_each_slice_for_a_model_of_bytes(dtype):
    """Divided by 32767, Hounsfield units would all be nearly 0."""
    pixels = np.array([[[[-1000, 0, 1000]], [[0, 50, 200]]]], dtype)
    x = network_input(pixels, NormalizeConfig())
    assert x[:, 0, 0].tolist() == [[0, 0.5, 1], [0, 0.25, 1]]
    share = np.array([[[[0.25, 0.5]]]], np.float32)
    assert network_input(share, NormalizeConfig()).flatten().tolist() == [0.25, 0.5]


def prepared(folder: Path, *images: Path) -> Prepared:
    """Images with an empty mask each, imported."""
    cases: list[CaseFiles] = []
    for i, image in enumerate(images):
        h, w = read_input(InputFile("a", (image,)), 1).pixels.shape[2:]
        Image.new("L", (w, h)).save(folder / f"mask{i}.png")
        cases.append(CaseFiles(f"{i}", "p", "train", (image.name,), (f"mask{i}.png",), None))
    write_prepared(encode_cases(cases, folder, Description()), folder / "prepared", {})
    return open_prepared(folder / "prepared")


@pytest.fixture
def stored(tmp_path, ct_slice) -> Callable[[int], Path]:
    """A file with values of so many bits."""

    def make(bits: int) -> Path:
        values = np.random.default_rng(0).integers(1 << bits, size=(6, 5))
        path = tmp_path / f"{bits}.png"
        if bits in (8, 16):
            Image.fromarray(values.astype(f"u{bits // 8}")).save(path)
        else:
            data = ct_slice(values, 0.0, "1.2", BitsStored=bits)
            del data.RescaleSlope, data.RescaleIntercept, data.ImagePositionPatient
            data.save_as(path.with_suffix(".dcm"), enforce_file_format=True)
        return path if path.exists() else path.with_suffix(".dcm")

    return make


@pytest.mark.parametrize("bits", [8, 12, 16])
@pytest.mark.parametrize("kind", ["unit", "zscore"])
def test_an_image_is_normalized_as_in_training(tmp_path, stored, bits, kind):
    path, config = stored(bits), NormalizeConfig(kind=kind)
    trained = Slices(prepared(tmp_path, path), "train", DataConfig(name="slices", normalize=config))
    x, raw = trained.case(torch.tensor([0])).x, read_input(InputFile("a", (path,)), 1)
    torch.testing.assert_close(network_input(raw.pixels, config, raw.bits), x)
    if kind == "unit":
        assert x.max() == raw.pixels.max() / (2**bits - 1)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.array([[-5, 9]], np.int16), r"got unit, and those of .* are of the type int16"),
        (np.array([[0.5, 1.5]], np.float32), "are 0.5 to 1.5"),
        (np.array([[0.5, 1.0]], np.float32), None),
    ],
)
def test_values_without_a_maximum_are_not_trained_on_as_bytes_are(tmp_path, values, words):
    np.save(tmp_path / "a.npy", values)
    found, config = prepared(tmp_path, tmp_path / "a.npy"), DataConfig(name="slices")
    if words is None:
        assert Slices(found, "train", config).case(torch.tensor([0])).x.flatten().tolist() == [
            0.5,
            1,
        ]
        return
    with pytest.raises(MueError, match=words):
        Slices(found, "train", config)


def test_images_of_different_bits_are_not_trained_on_as_bytes_are(tmp_path, stored):
    found = prepared(tmp_path, stored(12), stored(16))
    assert found.meta.bits == (12, 16)
    with pytest.raises(MueError, match=r"must be range, window or zscore .* have 12 and 16 bits"):
        Slices(found, "train", DataConfig(name="slices"))
    Slices(found, "train")  # as the data recommend


def test_slices_are_normalized_each_by_itself():
    pixels = np.stack([np.arange(12.0).reshape(3, 4), 5 * np.arange(12.0).reshape(3, 4) + 7])[None]
    x = network_input(pixels.astype(np.float32), NormalizeConfig(kind="zscore"))
    assert x.shape == (2, 1, 3, 4)
    torch.testing.assert_close(x[0], x[1])
    torch.testing.assert_close(x.mean(dim=(1, 2, 3)), torch.zeros(2), atol=1e-6, rtol=0)


# --- colours --------------------------------------------------------------------------------------


def picture(c: int, dtype: type, geometry: Geometry | None = None) -> RawImage:
    """A pixel with the values 200, 100, 51, or fewer of them."""
    pixels = np.array([200, 100, 51][:c], dtype).reshape(c, 1, 1, 1)
    return RawImage(pixels, geometry, (Path("a"),))


def test_channels_are_changed_between_grey_and_colour_alone():
    """By hand: 0.299 of red, 0.587 of green, 0.114 of blue; whole numbers are rounded."""
    volume = Geometry(np.eye(4), (1, 1, 1), 2)
    assert with_channels(picture(1, np.int16), 3, "a").pixels.flatten().tolist() == [200] * 3
    grey = 0.299 * 200 + 0.587 * 100 + 0.114 * 51
    for dtype, expected in ((np.uint8, 124), (np.int16, 124), (np.float32, np.float32(grey))):
        found = with_channels(picture(3, dtype), 1, "a").pixels
        assert (found.dtype, found.shape, found.item()) == (dtype, (1, 1, 1, 1), expected)
    assert with_channels(picture(3, np.uint8, volume), 1, "a").pixels.item() == 124
    for c in (1, 2, 3):
        assert with_channels(picture(c, np.int16), c, "a").pixels.shape[0] == c
    refused = [(1, 3, np.uint8, volume), (3, 1, np.int16, volume)]
    refused += [(c, n, np.uint8, None) for c, n in ((1, 2), (2, 1), (2, 3), (3, 2), (1, 4))]
    for c, channels, dtype, geometry in refused:
        words = f"a must have the {channels} channels that this model takes, and it has {c}"
        with pytest.raises(MueError, match=words):
            with_channels(picture(c, dtype, geometry), channels, "a")
