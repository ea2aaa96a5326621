"""Patches, and images that differ in size, raters, classes and type."""

import numpy as np
import pytest
import torch

from mue.config.schema import AugmentConfig, DataConfig, NormalizeConfig
from mue.data.prepared.dataset import Slices
from mue.data.prepared.item import Item
from mue.data.prepared.open import Prepared, open_prepared
from mue.data.prepared.write import write_prepared

AUGMENT = AugmentConfig(rotate=180.0, scale=0.3, shift=0.1, flip=True, intensity=0.2)
SIZES = [(9, 14), (20, 11), (9, 14), (6, 30)]
LABELS = ("background", "a", "b")


def image(i: int) -> Item:
    """RGB, each pixel of a colour of its own; rater j annotates column j, and image i has i + 1."""
    h, w = SIZES[i]
    pixel = np.arange(h * w).reshape(h, w)
    masks = np.zeros((i + 1, h, w), np.uint8)
    for j in range(i + 1):
        masks[j, :, j] = 1
    return Item(
        patient=f"p{i}",
        case="c",
        source="made up",
        split="train",
        image=np.stack([pixel % 256, pixel // 256, np.full((h, w), 10 * i)]).astype(np.uint16),
        masks=masks,
    )


@pytest.fixture(scope="module")
def mixed(tmp_path_factory) -> Prepared:
    folder = tmp_path_factory.mktemp("mixed") / "out"
    write_prepared([image(i) for i in range(4)], folder, {})
    return open_prepared(folder)


def config(**given) -> DataConfig:
    return DataConfig(**({"name": "slices", "patch": (5, 4)} | given))


def places(x: torch.Tensor) -> list[tuple[int, int, int]]:
    """The image, row and column that the first pixel of each patch shows."""
    value = (x * 65535).round().long()
    pixel, which = value[:, 0] + 256 * value[:, 1], value[:, 2] // 10
    return [
        (i, p // SIZES[i][1], p % SIZES[i][1])
        for i, p in zip(which[:, 0, 0].tolist(), pixel[:, 0, 0].tolist(), strict=True)
    ]


def test_a_patch_is_a_part_of_its_image_with_its_masks(mixed):
    source = Slices(mixed, "train", config())
    pair = source.pair(torch.arange(300))
    assert pair.x.shape == (300, 3, 5, 4)
    assert pair.y.shape == (300, 1, 1, 5, 4)
    for (i, top, left), x, y in zip(places(pair.x), pair.x, pair.y, strict=True):
        item = image(i)
        part = item.image[:, top : top + 5, left : left + 4].astype(np.int32)
        torch.testing.assert_close(x * 65535, torch.from_numpy(part).float(), rtol=0, atol=0.1)
        masks = torch.from_numpy(item.masks[:, top : top + 5, left : left + 4]).float()
        assert any(torch.equal(y[0, 0], mask) for mask in masks)


def test_every_place_and_every_image_turns_up(mixed):
    source = Slices(mixed, "train", config())
    found = places(source.pair(torch.arange(6000)).x)
    expected = {
        (i, y, x) for i, (h, w) in enumerate(SIZES) for y in range(h - 4) for x in range(w - 3)
    }
    assert set(found) == expected
    count = np.bincount([i for i, _, _ in found], minlength=4)
    assert (np.abs(count - 1500) < 4 * (6000 * 0.25 * 0.75) ** 0.5).all()


def test_a_share_of_the_patches_shows_annotated_pixels(tmp_path):
    masks = np.zeros((1, 40, 40), np.uint8)
    masks[0, 30, 8] = 1
    item = Item(patient="p", case="c", source="", split="train", image=masks.copy(), masks=masks)
    write_prepared([item], tmp_path / "out", {})
    prepared = open_prepared(tmp_path / "out")
    for share in (0.0, 0.3, 1.0):
        y = Slices(prepared, "train", config(foreground=share)).pair(torch.arange(4000)).y
        seen = y.flatten(1).any(dim=1)
        by_chance = 20 / (36 * 37)
        expected = share + (1 - share) * by_chance
        assert (
            abs(seen.float().mean() - expected)
            < 4 * (expected * (1 - expected) / 4000) ** 0.5 + 1e-6
        )
        if share == 1:
            assert y[:, 0, 0, 2, 2].all()  # it is the middle


def test_a_patch_larger_than_its_image_sees_the_reflection_without_a_mask(tmp_path):
    row = np.array([[10, 20, 30]], np.uint8)
    item = Item(
        patient="p",
        case="c",
        source="",
        split="train",
        image=row[None],
        masks=np.ones_like(row)[None],
    )
    write_prepared([item], tmp_path / "out", {})
    pair = Slices(open_prepared(tmp_path / "out"), "train", config(patch=(1, 5))).pair(
        torch.arange(40)
    )
    seen = {
        tuple((x[0, 0] * 255).round().int().tolist()): tuple(y[0, 0, 0].int().tolist())
        for x, y in zip(pair.x, pair.y, strict=True)
    }
    assert seen == {
        (20, 10, 10, 20, 30): (0, 0, 1, 1, 1),
        (10, 10, 20, 30, 30): (0, 1, 1, 1, 0),
        (10, 20, 30, 30, 20): (1, 1, 1, 0, 0),
    }


@pytest.mark.parametrize("labels", [(), LABELS])
@pytest.mark.parametrize("kind", ["unit", "zscore"])
def test_patches_from_files_are_those_from_the_device_and_the_same_in_any_batch(
    tmp_path, labels, kind
):
    write_prepared([image(i) for i in range(4)], tmp_path / "out", {}, labels=labels)
    prepared = open_prepared(tmp_path / "out")
    given = config(
        augment=AUGMENT,
        foreground=0.5,
        answers=3,
        labels=labels,
        normalize=NormalizeConfig(kind=kind),
    )
    here = Slices(prepared, "train", given, seed=5)
    there = Slices(prepared, "train", given, seed=5, on_device=False)
    index = torch.tensor([3, 10**12, 0, 77])
    a, b = here.pair(index), there.pair(index)
    assert a.y.shape == (4, 3, len(labels) or 1, 5, 4)
    assert torch.equal(a.x, b.x)
    assert torch.equal(a.y, b.y)
    for place, i in enumerate(index):
        alone = here.pair(i[None])
        torch.testing.assert_close(alone.x[0], a.x[place])
        assert torch.equal(alone.y[0], a.y[place])


def test_a_window_holds_all_that_an_augmented_patch_sees(tmp_path):
    """Far from the edges a plane stays a plane, however it is turned, and the mask has no hole."""
    item = Item(
        patient="p",
        case="c",
        source="",
        split="train",
        image=np.indices((400, 400)).astype(np.float32),
        masks=np.ones((1, 400, 400), np.uint8),
    )
    write_prepared([item], tmp_path / "out", {})
    plain = NormalizeConfig(kind="range", low=(0.0, 0.0), high=(1.0, 1.0))
    turned = AugmentConfig(rotate=180.0, scale=0.5, shift=0.3, flip=True)
    given = config(patch=(24, 40), augment=turned, normalize=plain)
    pair = Slices(open_prepared(tmp_path / "out"), "train", given).pair(torch.arange(300))
    far = ((pair.x[:, :, 12, 20] - 200).abs() < 150).all(dim=1)
    assert far.sum() > 100
    assert (pair.y[far] == 1).all()
    x = pair.x[far]
    for step in (x[:, :, 1:] - x[:, :, :-1], x[:, :, :, 1:] - x[:, :, :, :-1]):
        assert (step - step.mean(dim=(2, 3), keepdim=True)).abs().max() < 1e-3


def test_whole_images_of_several_sizes_cannot_be_trained_on(mixed):
    words = "data.patch must be a size, got 0 0: images of 6 x 30 and of 20 x 11 can only be"
    with pytest.raises(ValueError, match=words):
        Slices(mixed, "train", config(patch=(0, 0))).pair(torch.arange(2))


# --- raters ---------------------------------------------------------------------------------------


def test_fewer_raters_are_repeated_and_all_turn_up_equally_often(tmp_path):
    def three(weights=None):
        masks = np.eye(3, dtype=np.uint8)[:, None]
        return Item(
            patient="p",
            case="c",
            source="",
            split="train",
            image=np.zeros((1, 1, 3), np.uint8),
            masks=masks,
            weights=weights,
        )

    five = Item(
        patient="q",
        case="c",
        source="",
        split="test",
        image=np.zeros((1, 1, 5), np.uint8),
        masks=np.eye(5, dtype=np.uint8)[:, None],
    )
    write_prepared([three(), five], tmp_path / "equal", {})
    y = (
        Slices(open_prepared(tmp_path / "equal"), "train", config(patch=(0, 0), answers=5))
        .pair(torch.arange(3000))
        .y
    )
    who = y[:, :, 0, 0].argmax(dim=2)
    assert torch.equal(who[:, :3].sort(dim=1).values, torch.arange(3).expand(3000, 3))
    assert torch.equal(who[:, 3:], who[:, :2])
    count = who.flatten().bincount()
    assert ((count - 5000).abs() < 4 * (3000 * 5 * 2 / 9) ** 0.5).all()
    write_prepared([three((0.5, 0.0, 1.5)), five], tmp_path / "weighted", {})
    y = (
        Slices(open_prepared(tmp_path / "weighted"), "train", config(patch=(0, 0), answers=2))
        .pair(torch.arange(4000))
        .y
    )
    count = y[:, :, 0, 0].sum(dim=(0, 1))
    assert count[1] == 0
    assert abs(count[0] - 2000) < 4 * (8000 * 0.25 * 0.75) ** 0.5


# --- cases ----------------------------------------------------------------------------------------


def test_cases_of_one_size_have_all_their_raters_and_missing_ones_weigh_nothing(mixed):
    source = Slices(mixed, "train", config())
    assert source.sizes == [(6, 30), (9, 14), (9, 14), (20, 11)]
    case = source.case(torch.tensor([1, 2]))
    assert case.id == ("p0/c", "p2/c")
    assert case.ys.shape == (2, 4, 1, 9, 14)
    third = 1 / 3
    expected = torch.tensor([[1.0, 0, 0, 0], [third, third, third, 0]])
    torch.testing.assert_close(case.q, expected)
    for place, i in enumerate((0, 2)):
        item = image(i)
        assert torch.equal(case.ys[place, : i + 1, 0], torch.from_numpy(item.masks).float())
        assert not case.ys[place, i + 1 :].any()
        x = torch.from_numpy(item.image.astype(np.float32)) / 65535
        assert torch.equal(case.x[place], x)
    with pytest.raises(
        ValueError, match=r"the images of a Case must have one size, got \[\(6, 30\)"
    ):
        source.case(torch.tensor([0, 1]))


def test_several_classes_are_one_hot(tmp_path):
    classes = (np.arange(2 * 3 * 4) % 3).astype(np.uint8).reshape(2, 3, 4)
    item = Item(
        patient="p",
        case="c",
        source="",
        split="val",
        image=np.zeros((1, 3, 4), np.uint8),
        masks=classes,
    )
    write_prepared([item], tmp_path / "out", {}, labels=LABELS)
    prepared = open_prepared(tmp_path / "out")
    case = Slices(prepared, "val").case(torch.tensor([0]))
    assert case.ys.shape == (1, 2, 3, 3, 4)
    assert torch.equal(case.ys.argmax(dim=2)[0], torch.from_numpy(classes).long())
    assert torch.equal(case.ys.sum(dim=2), torch.ones(1, 2, 3, 4))
    with pytest.raises(ValueError, match=r"data.labels must be \('background', 'a', 'b'\)"):
        Slices(prepared, "val", config())


def test_each_image_is_standardized_by_its_own_moments_whatever_the_patch(mixed):
    z = NormalizeConfig(kind="zscore")
    source = Slices(mixed, "train", config(normalize=z))
    case = source.case(torch.tensor([0]))
    torch.testing.assert_close(case.x[0, 0].mean(), torch.tensor(0.0), atol=1e-5, rtol=0)
    torch.testing.assert_close(case.x[0, 0].std(correction=0), torch.tensor(1.0))
    patch = source.pair(torch.arange(200)).x[:, 0]
    values = torch.cat([source.case(torch.tensor([i])).x[0, 0].flatten() for i in range(4)])
    distance = (patch.flatten()[:, None] - values).abs().min(dim=1).values
    assert distance.max() < 1e-4
