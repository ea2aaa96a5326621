import numpy as np
import pytest
import torch

from mue.evaluation.known import ModeEvaluation
from mue.evaluation.latents import LatentSamples
from mue.plots.probabilities import plot_densities, plot_probabilities


@pytest.mark.parametrize("groups", [("dim", "dim", "bright"), ("only", "only", "only")])
def test_each_category_has_its_dots_next_to_the_truth(groups, words, pixels):
    predicted = torch.tensor([[0.6, 0.4], [0.8, 0.2], [0.1, 0.9]])
    scores = ModeEvaluation(
        predicted=predicted,
        true=torch.tensor([[0.7, 0.3]]).repeat(3, 1),
        rest=torch.zeros(3),
        group=groups,
        modes=torch.tensor([2, 2, 2]),
        codes=2,
        k=2,
        seed=0,
    )
    figure = plot_probabilities(scores, "a title")
    names = sorted(set(groups))
    assert [ax.get_title() for ax in figure.axes] == names
    for ax, name in zip(figure.axes, names, strict=True):
        mine = predicted[[g == name for g in groups]]
        dots, lines = ax.collections[::2], ax.collections[1::2]
        for m in range(2):
            at = np.asarray(dots[m].get_offsets())
            np.testing.assert_allclose(at[:, 1], mine[:, m])
            assert (abs(at[:, 0] - (m + 1)) < 0.25).all()  # spread out, and not into the next
            truth = lines[m].get_paths()[0].vertices
            np.testing.assert_allclose(np.asarray(truth)[:, 1], [0.7, 0.3][m])
        np.testing.assert_allclose(np.asarray(ax.lines[0].get_ydata()), mine.mean(dim=0))
        assert ax.get_ylim() == (0, 1)
    assert {"a title", "true", "one input", "their mean", "probability"} <= set(words(figure))
    assert pixels(figure).std() > 5


def test_densities_stand_above_the_mode_they_were_sampled_as(words, pixels, at):
    """By hand: two inputs of one category, two samples each, of modes 1, 2 and 2, 2."""
    samples = LatentSamples(
        mode=torch.tensor([[0, 1], [1, 1]]),
        log_density=torch.tensor([[-1.0, -2.0], [-3.0, -4.0]]),
        true=torch.tensor([[0.9, 0.1, 0.0]]).repeat(2, 1),
        group=("A", "A"),
    )
    torch.testing.assert_close(samples.frequency(), torch.tensor([[0.5, 0.5, 0], [0, 1, 0]]))
    figure = plot_densities(samples, "what a density says")
    left, right = figure.axes
    dots = [np.asarray(c.get_offsets())[:, 1].tolist() for c in left.collections]
    assert dots == [[-1], [-3], []]  # the first sample of each input
    means = [at(line)[1] for line in left.lines if at(line)[1]]
    assert means == [[-1], [-3]]  # of all samples: -1, and (-2 - 3 - 4) / 3
    shares = [at(line)[1] for line in right.lines]
    assert shares == [[0.25], [0.75], [0]]
    truth = [np.asarray(c.get_paths()[0].vertices)[0, 1] for c in right.collections]
    np.testing.assert_allclose(truth, [0.9, 0.1, 0])
    assert right.get_ylim() == (0, 1)
    assert {"what a density says", "true probability", "share of samples"} <= set(words(figure))
    assert pixels(figure).std() > 5
