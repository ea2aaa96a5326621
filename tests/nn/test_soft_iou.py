import pytest
import torch

from mue.metrics.overlap import iou_distance
from mue.modes import class_distance
from mue.nn.soft_iou import soft_class_distance, soft_iou_distance


def test_the_soft_distance_by_hand():
    """Half and half: I = 1/4 + 0, U = 3/4 + 1/2, so 1 - (5/4) / (9/4) = 4/9."""
    a, b = torch.tensor([[[0.5, 0.5]]]), torch.tensor([[[0.5, 0.0]]])
    torch.testing.assert_close(soft_iou_distance(a, b), torch.tensor([[[4 / 9]]]))
    empty, three = torch.zeros(1, 1, 3), torch.ones(1, 1, 3)
    found = soft_iou_distance(torch.cat([empty, three], dim=1), torch.cat([empty, three], dim=1))
    torch.testing.assert_close(found, torch.tensor([[[0.0, 0.75], [0.75, 0.0]]]))


def test_the_soft_distance_of_large_masks_is_the_metrics():
    torch.manual_seed(0)
    a, b = torch.rand(2, 3, 1, 64, 64) < 0.3, torch.rand(2, 4, 1, 64, 64) < 0.5
    found = soft_iou_distance(a.float(), b.float())
    torch.testing.assert_close(found, iou_distance(a, b), atol=1e-3, rtol=0)


def test_a_class_and_its_background_are_as_far_apart_as_masks():
    """One class is nothing else than one mask."""
    torch.manual_seed(0)
    a, b = torch.rand(2, 3, 1, 4, 4), torch.rand(2, 2, 1, 4, 4)
    found = soft_class_distance(torch.cat([1 - a, a], dim=2), torch.cat([1 - b, b], dim=2))
    torch.testing.assert_close(found, soft_iou_distance(a, b))


def test_the_distance_of_label_maps_nears_that_of_the_metric():
    """Large regions, where the 1 of the soft IoU is nothing; a class that neither has is left out,
    and the background does not make them alike."""
    labels = torch.zeros(1, 3, 100, 100, dtype=torch.long)
    labels[0, 0, :50] = 1
    labels[0, 1, :25] = 1
    labels[0, 1, 50:] = 2
    y = torch.eye(4)[labels].movedim(-1, 2)
    d = soft_class_distance(y, y)
    torch.testing.assert_close(d, class_distance(y, y), atol=2e-3, rtol=0)
    assert d[0, 0, 1].item() == pytest.approx((0.5 + 1) / 2, abs=2e-3)
    assert d[0, 0, 2].item() == pytest.approx(1, abs=2e-3)
    assert d[0, 2, 2].item() == 0
