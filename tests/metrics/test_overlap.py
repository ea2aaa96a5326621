import pytest
import torch

from mue.metrics.overlap import coverage_k, dice, iou, iou_distance, joint_iou, top_dice


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
    a = torch.cat([TOP, EMPTY, EMPTY], dim=1)[None]
    b = torch.cat([LEFT, TOP, EMPTY], dim=1)[None]
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
    masks = torch.rand(1, 12, 1, 3, 3) > 0.6
    (d,) = iou_distance(masks, masks)
    assert torch.equal(d, d.T)
    assert torch.equal(d.diagonal(), torch.zeros(12))
    assert (d[:, None, :] <= d[:, :, None] + d[None, :, :] + 1e-6).all()  # the Jaccard metric


def test_the_joint_matrix_holds_every_block():
    torch.manual_seed(0)
    a, b = torch.rand(2, 3, 2, 4, 4) > 0.7, torch.rand(2, 4, 2, 4, 4) > 0.7
    joint = joint_iou(a, b)
    assert torch.equal(joint[:, :3, 3:], iou(a, b))
    assert torch.equal(joint[:, 3:, :3], iou(b, a))
    assert torch.equal(joint[:, :3, :3], iou(a, a))
    assert torch.equal(joint[:, :3, :3], iou(a, a.clone()))


@pytest.mark.parametrize(
    ("a", "b", "score"),
    [
        (TOP, TOP, 1),
        (TOP, FULL, 2 * 2 / 6),
        (TOP, LEFT, 2 * 1 / 4),
        (EMPTY, EMPTY, 1),
        (EMPTY, TOP, 0),
        (TOP, EMPTY, 0),
    ],
)
def test_dice_by_hand(a, b, score):
    assert dice(a, b).item() == pytest.approx(score)


def test_dice_leaves_absent_classes_out():
    a = torch.cat([TOP, EMPTY, EMPTY], dim=1)[None]
    b = torch.cat([LEFT, TOP, EMPTY], dim=1)[None]
    assert dice(a, b).item() == pytest.approx((0.5 + 0) / 2)


def test_dice_of_one_class_is_a_function_of_iou():
    torch.manual_seed(0)
    a, b = torch.rand(5, 3, 1, 3, 3) > 0.7, torch.rand(5, 4, 1, 3, 3) > 0.7
    torch.testing.assert_close(dice(a, b), 2 * iou(a, b) / (1 + iou(a, b)))


def test_dice_of_several_classes_is_its_definition():
    """Against nested loops, on masks that are often empty."""
    torch.manual_seed(0)
    a, b = torch.rand(3, 4, 2, 2, 2) > 0.7, torch.rand(3, 5, 2, 2, 2) > 0.7
    found = dice(a, b)
    for i in range(3):
        for j in range(4):
            for k in range(5):
                classes = [
                    2 * (one & other).sum().item() / total
                    for one, other in zip(a[i, j], b[i, k], strict=True)
                    if (total := (one.sum() + other.sum()).item())
                ]
                expected = sum(classes) / len(classes) if classes else 1
                assert found[i, j, k].item() == pytest.approx(expected)


def answers(*masks: torch.Tensor) -> torch.Tensor:
    """One input with these masks: 1 m 1 h w."""
    return torch.stack(masks, dim=1)


def test_top_dice_looks_at_the_first_answer_only():
    raters, q = answers(TOP, LEFT, EMPTY), torch.tensor([[0.5, 0.3, 0.2]])
    expected = 0.5 * 1 + 0.3 * 0.5 + 0.2 * 0
    assert top_dice(answers(TOP, EMPTY), raters, q).item() == pytest.approx(expected)
    assert top_dice(answers(TOP, FULL), raters, q).item() == pytest.approx(expected)
    assert top_dice(answers(EMPTY, TOP), raters, q).item() == pytest.approx(0.2)


def test_coverage_by_hand():
    s, ys = answers(FULL, EMPTY, LEFT), answers(TOP, LEFT, EMPTY)
    q = torch.tensor([[0.5, 0.3, 0.2]])
    # FULL has an IoU of exactly one half with TOP and LEFT, and of 0 with EMPTY
    assert coverage_k(s, ys, q, k=1).item() == pytest.approx(0.8)
    assert coverage_k(s, ys, q, k=2).item() == pytest.approx(1)
    assert coverage_k(s, ys, q, k=1, at_least=0.51).item() == 0
    assert coverage_k(s, ys, q, k=2, at_least=0.51).item() == pytest.approx(0.2)
    assert coverage_k(s, ys, q, k=3, at_least=0.51).item() == pytest.approx(0.5)


def test_coverage_counts_a_threshold_that_is_met_exactly():
    three, five = mask("###.."), mask("#####")
    assert (
        coverage_k(answers(three), answers(five), torch.ones(1, 1), k=1, at_least=0.6).item() == 1
    )


def test_coverage_grows_with_k_and_falls_with_the_threshold():
    torch.manual_seed(0)
    s, ys = torch.rand(20, 6, 1, 3, 3) > 0.6, torch.rand(20, 4, 1, 3, 3) > 0.6
    q = torch.rand(20, 4).softmax(dim=1)
    by_k = torch.stack([coverage_k(s, ys, q, k, at_least=0.4) for k in range(1, 7)])
    assert (by_k.diff(dim=0) >= 0).all()
    assert by_k[-1].mean() > by_k[0].mean()
    by_threshold = torch.stack([coverage_k(s, ys, q, 3, at_least=t) for t in (0.2, 0.4, 0.6, 0.8)])
    assert (by_threshold.diff(dim=0) <= 0).all()


@pytest.mark.parametrize("k", [0, 3])
def test_coverage_refuses_a_k_that_there_is_not(k):
    with pytest.raises(ValueError, match=r"`k` must be in 1\.\.2 \(the answers at hand\), got"):
        coverage_k(answers(TOP, LEFT), answers(TOP), torch.ones(1, 1), k=k)


def test_top_dice_and_coverage_are_their_definitions():
    """Against loops over inputs, answers and raters, on masks that are often empty."""
    torch.manual_seed(0)
    s, ys = torch.rand(8, 5, 2, 2, 3) > 0.7, torch.rand(8, 4, 2, 2, 3) > 0.7
    q = torch.rand(8, 4).softmax(dim=1)
    overlap, both = iou(s, ys), dice(s, ys)
    for b in range(8):
        first = sum(q[b, r].item() * both[b, 0, r].item() for r in range(4))
        assert top_dice(s, ys, q)[b].item() == pytest.approx(first)
        for k in (1, 3, 5):
            like = [any(overlap[b, i, r] >= 0.3 for i in range(k)) for r in range(4)]
            expected = sum(q[b, r].item() for r in range(4) if like[r])
            assert coverage_k(s, ys, q, k, at_least=0.3)[b].item() == pytest.approx(expected)


def test_what_two_sets_have_in_common_does_not_depend_on_their_order():
    torch.manual_seed(0)
    a, b = torch.rand(5, 3, 2, 3, 3) > 0.7, torch.rand(5, 4, 2, 3, 3) > 0.7
    for score in (iou, dice, iou_distance):
        assert torch.equal(score(a, b), score(b, a).mT)
        assert torch.equal(score(a, a), score(a, a.clone()))
        assert torch.equal(score(a.flip(-1), b.flip(-1)), score(a, b))
