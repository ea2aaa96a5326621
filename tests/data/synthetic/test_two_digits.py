import numpy as np
import pytest

from mue.data.synthetic.two_digits import LABELS, RATER_WEIGHTS, two_digits

TRUE = {  # of both, left alone, right alone, none, by the colours
    ("red", "red"): (0.7, 0.3, 0.0, 0.0),
    ("red", "blue"): (0.5, 0.5, 0.0, 0.0),
    ("blue", "red"): (0.5, 0.3, 0.2, 0.0),
    ("blue", "blue"): (0.5, 0.3, 0.0, 0.2),
}


def test_the_raters_differ_by_the_rule_and_the_probabilities_are_those_of_the_table():
    seen = set()
    for i in range(40):
        example = two_digits("train", 0, i)
        both = example.masks[0]
        left, right = both.copy(), both.copy()
        left[:, 32:], right[:, :32] = 0, 0
        names = {value: name for name, value in LABELS.items()}
        colours = names[int(left.max())], names[int(right.max())]
        seen.add(colours)
        wanted = dict(zip("blrn", TRUE[colours], strict=True))
        answers = dict(zip("blrn", (both, left, right, 0 * both), strict=True))
        modes = example.modes()
        assert sum(p for _, p in modes) == pytest.approx(1)
        for key, answer in answers.items():
            found = [p for mask, p in modes if np.array_equal(mask, answer)]
            assert sum(found) == pytest.approx(wanted[key]), colours
    assert seen == set(TRUE)


def test_ink_has_the_colour_of_its_class():
    for i in range(10):
        example = two_digits("test", 3, i)
        red, blue = (example.masks[0] == LABELS[name] for name in ("red", "blue"))
        more_red = example.image[0].astype(int) - example.image[2]
        assert (more_red[red] > 0).all()
        assert (more_red[blue] < 0).all()


def test_a_picture_depends_on_seed_and_index_alone():
    assert np.array_equal(two_digits("train", 0, 5).image, two_digits("train", 0, 5).image)
    assert not np.array_equal(two_digits("train", 1, 5).image, two_digits("train", 0, 5).image)
    assert sum(RATER_WEIGHTS) == pytest.approx(1)
