import numpy as np
import pytest
import torch

from mue.modes import Modes, euclidean_distance, modes_of, ungrouped
from mue.plots.answers import plot_answers
from mue.types import Hypotheses


def alone(h: Hypotheses) -> Modes:
    """Each answer as a mode of its own."""
    return modes_of(h.y, h.prob, h.code, ungrouped(euclidean_distance(h.y, h.y)), 0.0)


@pytest.fixture
def hypotheses() -> Hypotheses:
    """Two inputs with three answers each, of which the j-th of input i is grey."""
    y = torch.linspace(0, 1, 6).view(2, 3, 1, 1, 1).expand(2, 3, 1, 4, 6)
    prob = torch.tensor([[0.5, 0.25, 0.125], [0.9, 0.06, 0.04]])
    return Hypotheses(y, prob, torch.arange(6).view(2, 3))


def test_modes_stand_below_their_input_with_their_probability(hypotheses, words, pixels, bars):
    x = torch.rand(2, 1, 4, 6)
    figure = plot_answers(x, alone(hypotheses), "the title", ["left", "right"])
    axes = np.asarray(figure.axes).reshape(4, 2)
    for i in range(2):
        np.testing.assert_allclose(axes[0, i].images[0].get_array(), x[i, 0].numpy())
        for j in range(3):
            shown = axes[j + 1, i]
            np.testing.assert_allclose(shown.images[0].get_array(), hypotheses.y[i, j, 0])
            assert shown.images[0].get_clim() == (0, 1)  # grey means the same everywhere
            assert shown.get_xlabel() == f"{hypotheses.prob[i, j]:.3f}"
            assert bars(shown) == pytest.approx([1, float(hypotheses.prob[i, j])])
    words = words(figure)
    assert {"the title", "left", "right", "rest 0.125", "rest 0.000"} <= set(words)
    assert pixels(figure).std() > 10


def test_an_input_with_fewer_modes_has_blank_panels(hypotheses):
    filled = alone(hypotheses).first(0.6)  # all of the first input, one of the second
    axes = np.asarray(plot_answers(torch.rand(2, 1, 4, 6), filled, "").axes).reshape(-1, 2)
    assert [bool(ax.images) for ax in axes[:, 0]] == [True] * 3
    assert [bool(ax.images) for ax in axes[:, 1]] == [True] * 2 + [False]


def test_colours_and_classes_are_shown_as_what_they_are():
    prob, code = torch.tensor([[1.0]]), torch.tensor([[0]])
    colour, classes = torch.rand(1, 1, 3, 4, 4), torch.rand(1, 1, 5, 4, 4)
    shown = plot_answers(torch.rand(1, 3, 4, 4), alone(Hypotheses(colour, prob, code)), "").axes[1]
    np.testing.assert_allclose(
        np.asarray(shown.images[0].get_array()), colour[0, 0].permute(1, 2, 0)
    )
    shown = plot_answers(torch.rand(1, 1, 4, 4), alone(Hypotheses(classes, prob, code)), "").axes[1]
    np.testing.assert_allclose(np.asarray(shown.images[0].get_array()), classes[0, 0].argmax(dim=0))


def test_answers_without_codes_carry_no_number_and_are_said_not_to_be_ranked(hypotheses, words):
    prob = torch.full((2, 3), 1 / 3)
    samples = Hypotheses(hypotheses.y, prob, torch.full((2, 3), -1))
    words = words(plot_answers(torch.rand(2, 1, 4, 6), alone(samples), "3 samples"))
    assert words.count("not ranked") == 2
    assert not any("0.333" in word or "rest" in word for word in words)
