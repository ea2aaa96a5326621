import numpy as np
import pytest

from mue.data.prepared.disagreement import disagreement, one_hot
from mue.data.prepared.item import Item
from mue.data.prepared.open import open_prepared
from mue.data.prepared.write import write_prepared

LEFT = np.array([[1, 1, 0, 0]], np.uint8)
WIDE = np.array([[1, 1, 1, 1]], np.uint8)  # IoU with LEFT 1/2


def prepared(tmp_path, masks, *, weights=None, origin=None, **options):
    items = [
        Item(
            patient=f"p{i}",
            case="c",
            source="made up",
            image=np.full((1, 1, 4), i, np.uint8),
            masks=np.stack(each),
            weights=weights,
        )
        for i, each in enumerate(masks)
    ]
    write_prepared(items, tmp_path / "out", origin or {}, **options)
    return open_prepared(tmp_path / "out")


def test_raters_are_compared_by_hand(tmp_path):
    """Pairs of LEFT, LEFT, WIDE are at 0, 1/2, 1/2; those of LEFT, WIDE at 1/2."""
    found = disagreement(prepared(tmp_path, [[LEFT, LEFT, WIDE], [LEFT, WIDE], [WIDE]]))
    assert found.images == 2  # one rater alone cannot disagree
    assert found.iou == pytest.approx({"foreground": (2 / 3 + 1 / 2) / 2})
    assert found.distance == pytest.approx((1 / 3 + 1 / 2) / 2)
    best = (1 / 3 / 3 + 1 / 2 / 2) / 2
    more = found.distance
    wanted = {"ged": best, "ged_16": best + more / 16, "ged_100": best + more / 100}
    assert found.best == pytest.approx(wanted)


def test_four_equal_raters_leave_a_quarter_of_their_distance(tmp_path):
    found = disagreement(prepared(tmp_path, [[LEFT, WIDE, LEFT, 0 * LEFT]]))
    assert found.best["ged"] == pytest.approx(found.distance / 4)
    assert found.best["ged_16"] == pytest.approx(5 * found.distance / 16)


def test_known_probabilities_can_be_met(tmp_path):
    origin = {"known_probabilities": True}
    data = prepared(tmp_path, [[LEFT, WIDE]], weights=(0.75, 0.25), origin=origin)
    found = disagreement(data)
    assert found.distance == pytest.approx(0.5)
    assert found.best["ged"] == 0
    assert found.best["ged_16"] == pytest.approx(2 * 0.75 * 0.25 * 0.5 / 16)


def test_a_class_is_compared_where_a_rater_annotated_it(tmp_path):
    masks = [[LEFT, WIDE], [2 * LEFT, 2 * LEFT], [LEFT, 2 * LEFT]]
    found = disagreement(prepared(tmp_path, masks, labels=("none", "one", "two")))
    assert found.iou == pytest.approx({"one": (0.5 + 0) / 2, "two": (1 + 0) / 2})
    assert found.distance == pytest.approx((0.5 + 0 + 1) / 3)


def test_without_a_pair_of_raters_there_is_nothing_to_compare(tmp_path):
    found = disagreement(prepared(tmp_path, [[LEFT], [WIDE]]))
    assert found.images == 0
    assert np.isnan(found.distance)


def test_many_images_are_sampled_evenly(tmp_path):
    data = prepared(tmp_path, [[LEFT, WIDE]] * 9 + [[LEFT, LEFT]])
    assert disagreement(data, max_images=2).distance == pytest.approx(0.25)


def test_classes_are_one_hot_without_the_background():
    found = one_hot(np.array([[[0, 1, 2]]], np.uint8), 2)
    assert found.tolist() == [[[[False, True, False]], [[False, False, True]]]]
