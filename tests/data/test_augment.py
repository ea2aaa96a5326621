import math

import pytest
import torch
from torch import Tensor

from mue.config.schema import AugmentConfig
from mue.data.augment import N_UNIFORM, augment_slices

NAMES = (
    *("angle", "scale", "mirror_x", "mirror_y", "shift_x", "shift_y"),
    *("contrast", "brightness", "gamma"),
)
EVERYTHING = AugmentConfig(rotate=180.0, scale=0.3, shift=0.1, flip=True, intensity=0.5)


def uniform(**chosen: float) -> Tensor:
    """Uniform numbers of one view in which nothing happens but what is chosen."""
    assert chosen.keys() <= set(NAMES)
    return torch.tensor([[chosen.get(name, 0.5) for name in NAMES]])


def slices(b: int = 1, h: int = 16, w: int = 16, r: int = 3) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.rand(b, 1, h, w), torch.rand(b, r, h, w).round()


def square(h: int, w: int, side: int) -> Tensor:
    """A square of ones in the middle."""
    y = torch.zeros(1, 1, h, w)
    top, left = (h - side) // 2, (w - side) // 2
    y[:, :, top : top + side, left : left + side] = 1
    return y


# --- where pixels go ------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(16, 16), (7, 12)])
def test_a_view_without_changes_is_the_slice_itself(size):
    x, y = slices(20, *size)
    image, masks = augment_slices(x, y, torch.rand(20, N_UNIFORM), AugmentConfig())
    torch.testing.assert_close(image, x, atol=1e-6, rtol=0)
    assert torch.equal(masks, y)


@pytest.mark.parametrize(
    ("u", "axes"),
    [
        (uniform(), []),
        (uniform(mirror_x=0.49), [3]),
        (uniform(mirror_y=0.0), [2]),
        (uniform(mirror_x=0.1, mirror_y=0.2), [2, 3]),
    ],
)
@pytest.mark.parametrize("size", [(16, 16), (6, 9)])
def test_a_flip_is_a_flip(u, axes, size):
    x, y = slices(1, *size)
    image, masks = augment_slices(x, y, u, AugmentConfig(flip=True))
    torch.testing.assert_close(image, x.flip(axes), atol=1e-5, rtol=0)
    assert torch.equal(masks, y.flip(axes))
    still, unmoved = augment_slices(x, y, u, AugmentConfig(flip=False))
    torch.testing.assert_close(still, x, atol=1e-6, rtol=0)
    assert torch.equal(unmoved, y)


@pytest.mark.parametrize(
    ("rotate", "u", "turns"), [(90.0, 1.0, 1), (90.0, 0.0, -1), (180.0, 0.75, 1), (180.0, 1.0, 2)]
)
def test_a_quarter_turn_is_rot90_of_image_and_masks(rotate, u, turns):
    x, y = slices()
    image, masks = augment_slices(x, y, uniform(angle=u), AugmentConfig(rotate=rotate))
    torch.testing.assert_close(image, x.rot90(turns, (2, 3)), atol=1e-5, rtol=0)
    assert torch.equal(masks, y.rot90(turns, (2, 3)))


@pytest.mark.parametrize("size", [(32, 32), (24, 48), (48, 24)])
@pytest.mark.parametrize("degrees", [0, 30, 45, 90])
def test_a_square_that_is_turned_stays_a_square_in_an_image_of_any_shape(size, degrees):
    """Its area stays, and it reaches as far down as it reaches across."""
    y = square(size[0], size[1], 10)
    _, masks = augment_slices(y, y, uniform(angle=1.0), AugmentConfig(rotate=float(degrees)))
    assert masks.shape == y.shape
    assert abs(masks.sum().item() - 100) <= 15  # give or take the pixels on the edge
    across, down = (masks[0, 0].any(dim=d).sum().item() for d in (0, 1))
    reach = 10 * (math.cos(math.radians(degrees)) + math.sin(math.radians(degrees)))
    assert across == down == pytest.approx(reach, abs=1.5)


@pytest.mark.parametrize(("u", "side"), [(1.0, 8), (0.5, 4), (0.0, 2)])
def test_scaling_by_two_upsamples_or_downsamples(u, side):
    y = square(16, 20, 4)
    _, masks = augment_slices(y, y, uniform(scale=u), AugmentConfig(scale=1.0))
    assert torch.equal(masks, square(16, 20, side))


@pytest.mark.parametrize(
    ("u", "across", "down"),
    [
        (uniform(shift_x=1.0), 5, 0),
        (uniform(shift_x=0.0), -5, 0),
        (uniform(shift_y=1.0), 0, 4),
        (uniform(shift_x=0.6, shift_y=0.25), 1, -2),
    ],
)
def test_a_shift_is_a_share_of_a_side(u, across, down):
    """By hand: a quarter of 16 x 20 pixels is 4 down and 5 across; 0.6 is a fifth of that."""
    x, y = slices(1, 16, 20)
    image, masks = augment_slices(x, y, u, AugmentConfig(shift=0.25))
    rows = slice(max(0, -down), 16 - max(0, down)), slice(max(0, -across), 20 - max(0, across))
    came = slice(max(0, down), 16 + min(0, down)), slice(max(0, across), 20 + min(0, across))
    torch.testing.assert_close(
        image[..., rows[0], rows[1]], x[..., came[0], came[1]], atol=1e-5, rtol=0
    )
    expected = torch.zeros_like(y)
    expected[..., rows[0], rows[1]] = y[..., came[0], came[1]]
    assert torch.equal(masks, expected)  # no mask comes in from outside


def test_what_comes_in_from_outside_is_a_mirror_image():
    x = torch.arange(8.0).view(1, 1, 1, 8).expand(1, 1, 8, 8) / 8
    grown, _ = augment_slices(x, x.round(), uniform(scale=0.0), AugmentConfig(scale=1.0))
    edge = grown[0, 0, 4]  # the slice at half its size, between two halves that are mirrored
    torch.testing.assert_close(edge[:2].flip(0), edge[2:4])
    torch.testing.assert_close(edge[6:].flip(0), edge[4:6])


# --- image and masks ------------------------------------------------------------------------------


def test_masks_stay_masks():
    x, y = slices(50)
    _, masks = augment_slices(x, y, torch.rand(50, N_UNIFORM), EVERYTHING)
    assert set(masks.unique().tolist()) == {0.0, 1.0}


def test_a_bright_square_stays_under_its_mask():
    torch.manual_seed(0)
    config = AugmentConfig(rotate=180.0, scale=0.1, shift=0.05, flip=True)
    y = torch.zeros(50, 1, 32, 32)
    y[:, :, 11:19, 12:21] = 1  # far from the edge, whose mirror images have no masks
    x = 0.1 + 0.8 * y
    image, masks = augment_slices(x, y, torch.rand(50, N_UNIFORM), config)
    lit, mask = image > 0.5, masks > 0.5
    overlap = (lit & mask).sum(dim=(1, 2, 3)) / (lit | mask).sum(dim=(1, 2, 3))
    assert overlap.min() > 0.85  # all but the edges
    assert (mask != (y > 0.5)).any(dim=3).any(dim=2).all()  # each has moved


def test_every_rater_is_moved_alike():
    x, y = slices(20, r=1)
    _, masks = augment_slices(x, y.expand(-1, 4, -1, -1), torch.rand(20, N_UNIFORM), EVERYTHING)
    assert torch.equal(masks, masks[:, :1].expand_as(masks))


# --- grey values ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("u", "expected"),
    [
        (uniform(contrast=1.0), [0.1, 0.7]),  # 1.5 times as far from the mean, 0.4
        (uniform(contrast=0.0), [0.3, 0.5]),
        (uniform(brightness=1.0), [0.4, 0.8]),  # the mean is 0.6
        (uniform(brightness=0.25), [0.1, 0.5]),  # the mean is 0.3
        (uniform(gamma=1.0), [0.2**1.5, 0.6**1.5]),
        (uniform(gamma=0.0), [0.2**0.5, 0.6**0.5]),
        (uniform(contrast=1.0, brightness=0.0), [0.0, 0.5]),  # -0.1 is black
    ],
)
def test_contrast_brightness_and_gamma_by_hand(u, expected):
    x = torch.tensor([0.2, 0.6]).view(1, 1, 2, 1).expand(1, 1, 2, 2)
    y = x.round()
    image, masks = augment_slices(x, y, u, AugmentConfig(intensity=0.5))
    found = image[0, 0]
    torch.testing.assert_close(found, torch.tensor(expected)[:, None].expand(2, 2))
    assert torch.equal(masks, y)


def test_grey_values_stay_between_black_and_white():
    x, y = slices(200)
    x = (2 * x - 0.5).clamp(0, 1)  # a good part of it at either end
    image, _ = augment_slices(x, y, torch.rand(200, N_UNIFORM), EVERYTHING)
    assert image.isfinite().all()
    assert (image.min(), image.max()) == (0, 1)


# --- randomness -----------------------------------------------------------------------------------


def test_a_view_follows_from_its_own_numbers_alone():
    x, y = slices(8)
    u = torch.rand(8, N_UNIFORM)
    image, masks = augment_slices(x, y, u, EVERYTHING)
    for i in (0, 3, 7):
        alone, mask = augment_slices(x[i : i + 1], y[i : i + 1], u[i : i + 1], EVERYTHING)
        torch.testing.assert_close(alone, image[i : i + 1])
        assert torch.equal(mask, masks[i : i + 1])


@pytest.mark.parametrize("which", range(N_UNIFORM))
def test_every_number_counts(which):
    x, y = slices()
    u = uniform(angle=0.55, scale=0.6, shift_x=0.4, shift_y=0.7)
    other = u.clone()
    other[0, which] = 0.2
    image, _ = augment_slices(x, y, u, EVERYTHING)
    changed, _ = augment_slices(x, y, other, EVERYTHING)
    assert (image - changed).abs().max() > 0.01
