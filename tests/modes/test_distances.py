"""Answers as masks, and how far apart they are."""

import pytest
import torch

from mue.modes import (
    ModeRule,
    binary_masks,
    class_distance,
    class_masks,
    euclidean_distance,
    mask_distance,
    masks_of,
)


def test_masks_are_cut_at_one_half():
    sure, unsure = torch.tensor([0.9, 0.1]), torch.tensor([0.6, 0.5])
    assert mask_distance(sure.view(1, 1, 1, 1, 2), unsure.view(1, 1, 1, 1, 2)).item() == 0


def test_label_maps_are_compared_by_the_most_probable_class_of_each_pixel():
    a = torch.tensor([[0.4, 0.1], [0.3, 0.2], [0.3, 0.7]]).view(1, 1, 3, 1, 2)  # classes 0, 2
    b = torch.tensor([[0.4, 0.1], [0.3, 0.7], [0.3, 0.2]]).view(1, 1, 3, 1, 2)  # classes 0, 1
    assert class_distance(a, a).item() == 0
    assert class_distance(a, b).item() == 1  # where both have background they do not agree


def test_the_distance_of_label_maps_is_the_mean_over_the_classes_present_in_either():
    """By hand, of four classes: the third and fourth are in neither of the first two maps."""
    labels = torch.tensor([[0, 1, 1, 0], [0, 1, 0, 0], [0, 1, 1, 2], [0, 0, 0, 0]])
    y = torch.eye(4)[labels].mT.reshape(1, 4, 4, 1, 4)
    d = class_distance(y, y)[0]
    assert d[0].tolist() == pytest.approx([0, 1 / 2, (0 + 1) / 2, 1])
    assert d[1].tolist() == pytest.approx([1 / 2, 0, (1 / 2 + 1) / 2, 1])
    assert d[3].tolist() == [1, 1, 1, 0]  # two empty maps agree


def test_the_iou_of_vectors_is_refused(answers):
    with pytest.raises(ValueError, match=r"IoU distance is between images.*kind vectors"):
        ModeRule().group(answers([0.5, 0.5], [0.0, 1.0]))


def test_one_half_itself_is_not_in_the_mask():
    y = torch.tensor([0.5, 0.5 + 1e-6]).view(1, 1, 1, 1, 2)
    for found in (binary_masks(y), masks_of(y, "masks"), masks_of(y, "vectors")):
        assert found.flatten().tolist() == [False, True]


def test_the_masks_of_classes_are_disjoint_and_leave_the_background():
    y = torch.rand(2, 3, 4, 5, 5, generator=torch.Generator().manual_seed(0))
    masks = masks_of(y, "classes")
    assert torch.equal(masks, class_masks(y))
    assert torch.equal(masks.sum(dim=2), (y.argmax(dim=2) > 0).long())
    assert torch.equal(masks[:, :, 1], y.argmax(dim=2) == 2)


def test_vectors_are_at_the_distance_of_the_plane():
    a, b = torch.tensor([[[0.0, 0.0], [3.0, 0.0]]]), torch.tensor([[[3.0, 4.0]]])
    assert euclidean_distance(a, b)[0].tolist() == [[5.0], [4.0]]


def test_the_distances_of_answers_among_themselves_are_those_to_a_copy(random_masks):
    y = random_masks(3, 5).y
    assert torch.equal(mask_distance(y, y), mask_distance(y, y.clone()))
    assert torch.equal(class_distance(y, y), class_distance(y, y.clone()))
