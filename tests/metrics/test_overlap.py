import pytest
import torch

from mue.metrics.overlap import iou_distance


def mask(*rows: str) -> torch.Tensor:
    """One class from rows of `#` and `.`: 1 1 h w."""
    return torch.tensor([[[[pixel == "#" for pixel in row] for row in rows]]])


FULL, TOP, LEFT, EMPTY = mask("##", "##"), mask("##", ".."), mask("#.", "#."), mask("..", "..")


@pytest.mark.parametrize(
    ("a", "b", "distance"),
    [
        (TOP, TOP, 0),
        (TOP, FULL, 1 - 2 / 4),
        (TOP, LEFT, 1 - 1 / 3),
        (EMPTY, EMPTY, 0),  # two empty masks agree
        (EMPTY, TOP, 1),
        (TOP, EMPTY, 1),
    ],
)
def test_one_class_by_hand(a, b, distance):
    assert iou_distance(a, b).item() == pytest.approx(distance)


def test_classes_absent_from_both_masks_do_not_count():
    a = torch.cat([TOP, EMPTY, EMPTY], dim=1)
    b = torch.cat([LEFT, TOP, EMPTY], dim=1)
    # class 0: 1 - 1/3, class 1: only in b, so 1; class 2 is in neither and leaves the mean alone
    assert iou_distance(a, b).item() == pytest.approx((2 / 3 + 1) / 2)


def test_every_pair_of_a_batch_is_its_definition():
    """Against four nested loops, on masks that are often empty."""
    torch.manual_seed(0)
    a, b = torch.rand(3, 4, 2, 2, 2) > 0.7, torch.rand(3, 5, 2, 2, 2) > 0.7
    found = iou_distance(a, b)
    for i in range(3):
        for j in range(4):
            for k in range(5):
                classes = []
                for one, other in zip(a[i, j], b[i, k], strict=True):
                    if union := (one | other).sum().item():
                        classes.append(1 - (one & other).sum().item() / union)
                expected = sum(classes) / len(classes) if classes else 0
                assert found[i, j, k].item() == pytest.approx(expected)


def test_it_is_a_distance():
    torch.manual_seed(0)
    masks = torch.rand(12, 1, 3, 3) > 0.6
    d = iou_distance(masks, masks)
    assert torch.equal(d, d.T)
    assert torch.equal(d.diagonal(), torch.zeros(12))
    assert (d[:, None, :] <= d[:, :, None] + d[None, :, :] + 1e-6).all()  # the Jaccard metric
