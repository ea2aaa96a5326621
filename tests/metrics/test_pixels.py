import pytest
import torch

from mue.metrics import pixels
from mue.metrics.pixels import common_pixels


def random(*shape: int, share: float = 0.3, seed: int = 0) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < share


def slow(*sets: torch.Tensor) -> torch.Tensor:
    """Pair by pair, on b k c h w."""
    masks = torch.cat(sets, dim=1)
    b, m, c = masks.shape[:3]
    counts = torch.zeros(b, c, m, m)
    for i in range(b):
        for j in range(c):
            for one in range(m):
                for other in range(m):
                    counts[i, j, one, other] = (masks[i, one, j] & masks[i, other, j]).sum()
    return counts


@pytest.mark.parametrize("share", [0.02, 0.3, 1.0])
@pytest.mark.parametrize(("h", "w"), [(1, 1), (1, 7), (3, 3), (7, 9), (8, 8), (5, 13), (12, 16)])
def test_every_pixel_is_counted_whatever_the_size_of_the_image(h, w, share):
    a, b = random(4, 2, 2, h, w, share=share), random(4, 3, 2, h, w, share=share, seed=1)
    a[1], b[1], a[2] = False, False, False
    assert torch.equal(common_pixels(a, b), slow(a, b))


def test_images_beyond_one_block_are_counted_alike():
    a = random(2 * pixels.BLOCK + 3, 3, 1, 16, 16, share=0.02)
    assert torch.equal(common_pixels(a), slow(a))


def test_bits_and_products_count_the_same():
    """A CPU and an accelerator, both computed here."""
    a, b = random(3, 4, 2, 9, 9), random(3, 2, 2, 9, 9, seed=1)
    assert torch.equal(pixels._by_bits(a, b), pixels._by_product(a, b))


def test_no_pixel_is_lost_among_very_many_masks():
    """256 bytes of the value 1 add up to an empty byte and a carry."""
    masks = torch.zeros(1, 512, 1, 8, 8, dtype=torch.bool)
    masks[..., 0, 7] = True
    assert torch.equal(common_pixels(masks), torch.ones(1, 1, 512, 512))


def test_masks_are_read_in_their_order_however_they_lie_in_memory():
    a = random(3, 4, 2, 8, 5)
    assert torch.equal(common_pixels(a.mT), common_pixels(a))
    assert torch.equal(common_pixels(a[:, ::2]), common_pixels(a)[:, :, ::2, ::2])
    shifted = a.flatten()[3 : 3 + 2 * 64].reshape(1, 2, 1, 8, 8)
    assert torch.equal(common_pixels(shifted), common_pixels(shifted.clone()))


def test_any_number_of_axes_makes_a_batch():
    a = random(6, 4, 2, 3, 3)
    both = common_pixels(a)
    assert torch.equal(common_pixels(a[0]), both[0])
    assert torch.equal(common_pixels(a.unflatten(0, (2, 3))), both.unflatten(0, (2, 3)))
    assert common_pixels(a[:0]).shape == (0, 2, 4, 4)


def test_masks_are_not_written_to():
    a = random(3, 4, 1, 8, 8)
    before = a.clone()
    common_pixels(a, a)
    assert torch.equal(a, before)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
def test_an_accelerator_agrees_with_the_cpu():
    a, b = random(3, 4, 2, 65, 65), random(3, 2, 2, 65, 65, seed=1)
    assert torch.equal(common_pixels(a.cuda(), b.cuda()).cpu(), common_pixels(a, b))
