import io

import numpy as np
import pytest
import torch
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from PIL import Image

from mue.evaluation.compare import ComparedModel, LatentSamples, Point
from mue.evaluation.known_modes import ModeEvaluation
from mue.metrics.interval import Interval
from mue.plots.games import (
    draw_answers,
    draw_comparison,
    draw_densities,
    draw_history,
    draw_points,
    draw_probabilities,
    draw_sample_curve,
    save,
    save_picture,
)
from mue.training.log import LogRecord
from mue.types import Hypotheses


def texts(figure: Figure) -> list[str]:
    """Every word in a figure."""
    figure.canvas.draw()
    found = figure.findobj(lambda artist: isinstance(artist, Text))
    return [t.get_text() for t in found if isinstance(t, Text) and t.get_text()]


def at(line: Line2D) -> tuple[list[float], list[float]]:
    """Where a line goes."""
    x, y = line.get_xdata(), line.get_ydata()
    return np.asarray(x, dtype=float).tolist(), np.asarray(y, dtype=float).tolist()


def picture(figure: Figure, path) -> np.ndarray:
    """The figure as it is saved."""
    assert save(figure, path, dpi=60) == path
    with Image.open(path) as file:
        assert file.format == "PNG"
        return np.asarray(file.convert("RGB"))


@pytest.fixture
def hypotheses() -> Hypotheses:
    """Two inputs with three answers each, of which the j-th of input i is grey."""
    y = torch.linspace(0, 1, 6).view(2, 3, 1, 1, 1).expand(2, 3, 1, 4, 6)
    prob = torch.tensor([[0.5, 0.25, 0.125], [0.9, 0.06, 0.04]])
    return Hypotheses(y, prob, torch.arange(6).view(2, 3))


# --- answers --------------------------------------------------------------------------------------


def test_answers_stand_below_their_input_with_their_probability(hypotheses, tmp_path):
    x = torch.rand(2, 1, 4, 6)
    figure = draw_answers(x, hypotheses, "the title", ["left", "right"])
    axes = np.asarray(figure.axes).reshape(4, 2)
    for i in range(2):
        np.testing.assert_allclose(axes[0, i].images[0].get_array(), x[i, 0].numpy())
        for j in range(3):
            shown = axes[j + 1, i]
            np.testing.assert_allclose(shown.images[0].get_array(), hypotheses.y[i, j, 0])
            assert shown.images[0].get_clim() == (0, 1)  # grey means the same everywhere
            assert shown.get_title(loc="left") == f"{hypotheses.prob[i, j]:.3f}"
    words = texts(figure)
    assert {"the title", "left", "right", "rest 0.125", "rest 0.000"} <= set(words)
    assert picture(figure, tmp_path / "answers.png").std() > 10


def test_colours_and_classes_are_shown_as_what_they_are():
    prob, code = torch.tensor([[1.0]]), torch.tensor([[0]])
    colour, classes = torch.rand(1, 1, 3, 4, 4), torch.rand(1, 1, 5, 4, 4)
    shown = draw_answers(torch.rand(1, 3, 4, 4), Hypotheses(colour, prob, code), "").axes[1]
    np.testing.assert_allclose(
        np.asarray(shown.images[0].get_array()), colour[0, 0].permute(1, 2, 0)
    )
    shown = draw_answers(torch.rand(1, 1, 4, 4), Hypotheses(classes, prob, code), "").axes[1]
    np.testing.assert_allclose(np.asarray(shown.images[0].get_array()), classes[0, 0].argmax(dim=0))


def test_points_are_drawn_with_their_answers_and_what_is_left_out(tmp_path):
    y = torch.tensor([[[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]]])
    h = Hypotheses(y, torch.tensor([[0.75, 0.125, 0.001]]), torch.arange(3)[None])
    figure = draw_points(torch.tensor([[1.0, 0.5]]), h, y[:, :2], "points")
    (ax,) = figure.axes
    (dots,) = ax.collections
    assert isinstance(dots, PathCollection)
    np.testing.assert_allclose(
        np.asarray(dots.get_offsets()), y[0, :2]
    )  # the third is all but impossible
    sizes = dots.get_sizes()
    assert sizes[0] / sizes[1] == pytest.approx(0.75 / 0.125)  # area is probability
    words = texts(figure)
    assert {"0.75", "0.12", "points"} <= set(words)
    assert any("rest" in word for word in words)
    assert picture(figure, tmp_path / "points.png").std() > 5


# --- probabilities --------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [("dim", "dim", "bright"), ("only", "only", "only")])
def test_each_category_has_its_dots_beside_the_truth(groups, tmp_path):
    predicted = torch.tensor([[0.6, 0.4], [0.8, 0.2], [0.1, 0.9]])
    judged = ModeEvaluation(
        predicted=predicted,
        true=torch.tensor([[0.7, 0.3]]).repeat(3, 1),
        rest=torch.zeros(3),
        group=groups,
        codes=2,
        k=2,
        seed=0,
    )
    figure = draw_probabilities(judged, "a title")
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
    assert {"a title", "true", "one input", "their mean", "probability"} <= set(texts(figure))
    assert picture(figure, tmp_path / "modes.png").std() > 5


# --- samples and rivals ---------------------------------------------------------------------------


def test_answers_without_codes_carry_no_number_and_are_said_not_to_be_ranked(hypotheses):
    prob = torch.full((2, 3), 1 / 3)
    samples = Hypotheses(hypotheses.y, prob, torch.full((2, 3), -1))
    words = texts(draw_answers(torch.rand(2, 1, 4, 6), samples, "3 samples"))
    assert words.count("not ranked") == 2
    assert not any("0.333" in word or "rest" in word for word in words)


def _rival(name: str, tv: float, iou: float | None, samples: int | None = None) -> ComparedModel:
    metrics = {"mode_tv": Interval(tv, 0.1, tv - 0.01, tv + 0.02)}
    if iou is not None:
        metrics["hm_iou_16"] = Interval(iou, 0.1, iou, iou)
    return ComparedModel(name, "vq", samples, 16, 1, 10, 1.0, metrics)


def test_a_comparison_has_a_panel_for_each_metric_and_the_best_in_red(tmp_path):
    models = [_rival("a", 0.2, 0.5), _rival("b", 0.1, 0.7, 16), _rival("b", 0.3, None, 1)]
    figure = draw_comparison(models, "who is ahead")
    panels = {ax.get_title(): ax for ax in figure.axes if ax.get_title()}
    assert list(panels) == ["mode_tv", "hm_iou_16"]
    ax = panels["mode_tv"]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["a", "b, 16 samples", "b, 1 sample"]
    bars, dots = ax.lines[::2], ax.lines[1::2]
    assert [at(d)[0] for d in dots] == [[0.2], [0.1], [0.3]]
    assert at(bars[0])[0] == pytest.approx([0.19, 0.22])
    colours = [d.get_color() for d in dots]
    assert colours[1] not in (colours[0], colours[2])
    assert colours[0] == colours[2]
    other = panels["hm_iou_16"].lines[1::2]  # which the last rival does not have
    assert [at(d)[1] for d in other] == [[0], [1]]
    assert other[1].get_color() == colours[1]  # more is better
    assert (ax.get_xlabel(), panels["hm_iou_16"].get_xlabel()) == (
        "less is better",
        "more is better",
    )
    assert picture(figure, tmp_path / "comparison.png").std() > 5


def test_densities_stand_above_the_mode_they_were_drawn_as(tmp_path):
    """By hand: two inputs of one category, two samples each, of modes 1, 2 and 2, 2."""
    samples = LatentSamples(
        mode=torch.tensor([[0, 1], [1, 1]]),
        log_density=torch.tensor([[-1.0, -2.0], [-3.0, -4.0]]),
        true=torch.tensor([[0.9, 0.1, 0.0]]).repeat(2, 1),
        group=("A", "A"),
    )
    torch.testing.assert_close(samples.frequency(), torch.tensor([[0.5, 0.5, 0], [0, 1, 0]]))
    figure = draw_densities(samples, "what a density says")
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
    assert {"what a density says", "true probability", "share of samples"} <= set(texts(figure))
    assert picture(figure, tmp_path / "densities.png").std() > 5


def test_a_sampler_is_a_line_and_a_ranking_a_point_with_a_level(tmp_path):
    curves = {
        "sampler": [Point(1, 0.5, 0.01), Point(2, 0.4, 0.02), Point(4, 0.3, 0.04)],
        "ranked": [Point(16, 0.01, 0.03)],
    }
    figure = draw_sample_curve(curves, "how many")
    left, right = figure.axes
    line, level, point = left.lines
    assert at(line) == ([1, 2, 4], [0.5, 0.4, 0.3])
    assert set(at(level)[1]) == {0.01}
    assert at(point) == ([16], [0.01])
    assert at(right.lines[0])[0] == pytest.approx([10, 20, 40])  # milliseconds
    assert (left.get_xscale(), left.get_yscale(), right.get_xscale()) == ("log", "log", "log")
    assert {"sampler", "ranked", "how many"} <= set(texts(figure))
    assert picture(figure, tmp_path / "samples.png").std() > 5
    with pytest.raises(ValueError, match="`curves` must hold the points of at least one model"):
        draw_sample_curve({}, "")


# --- history --------------------------------------------------------------------------------------


def test_a_history_has_the_losses_above_and_the_codes_below(tmp_path):
    records = [
        LogRecord(
            step=step,
            prior=0.0 if step < 3 else 1.0 / step,  # a term that waits is not drawn at 0
            reconstruction=2.0 / step,
            commitment=0.0,
            total=3.0 / step,
            codes=step % 3,
            lr=0.1,
            seconds=0.0,
        )
        for step in range(1, 6)
    ]
    figure = draw_history(records, "how it went")
    top, bottom = figure.axes
    lines = {str(line.get_label()): line for line in top.lines}
    assert set(lines) == {"reconstruction", "prior"}  # and no commitment
    drawn = np.asarray(lines["prior"].get_ydata(), dtype=float)
    np.testing.assert_allclose(drawn, [np.nan, np.nan, 1 / 3, 1 / 4, 1 / 5])
    np.testing.assert_allclose(np.asarray(lines["reconstruction"].get_xdata()), range(1, 6))
    np.testing.assert_allclose(np.asarray(bottom.lines[0].get_ydata()), [1, 2, 0, 1, 2])
    assert picture(figure, tmp_path / "history.png").std() > 5


def test_a_baseline_without_codes_has_the_losses_alone():
    record = LogRecord(
        step=1,
        prior=1.0,
        reconstruction=2.0,
        commitment=0.0,
        total=3.0,
        codes=0,
        lr=0.1,
        seconds=0.0,
    )
    assert len(draw_history([record, record], "").axes) == 1


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [1, 3])
def test_a_picture_comes_back_from_its_file(tmp_path, channels):
    torch.manual_seed(0)
    levels = torch.randint(256, (channels, 5, 7), dtype=torch.uint8)
    path = save_picture(levels.float() / 255, tmp_path / "new" / "picture.png")
    with Image.open(path) as file:
        assert (file.format, file.size) == ("PNG", (7, 5))
        array = np.asarray(file)
    expected = levels[0] if channels == 1 else levels.permute(1, 2, 0)
    np.testing.assert_array_equal(array, expected)


def test_values_beyond_black_and_white_are_cut_off(tmp_path):
    path = save_picture(torch.tensor([[[-1.0, 0.5, 2.0]]]), tmp_path / "picture.png")
    with Image.open(path) as file:
        assert np.asarray(file).tolist() == [[0, 128, 255]]


def test_classes_are_saved_as_their_numbers(tmp_path):
    classes = torch.tensor([[0, 1, 4], [3, 2, 0]])
    onehot = torch.nn.functional.one_hot(classes, 5).permute(2, 0, 1).float()
    with Image.open(save_picture(onehot, tmp_path / "classes.png")) as file:
        np.testing.assert_array_equal(np.asarray(file), classes)


def test_saving_a_figure_is_repeatable(hypotheses, tmp_path):
    """Nothing in a file tells the time or the version: the same figure is the same file."""
    x = torch.rand(2, 1, 4, 6)
    for name in ("one", "two"):
        save(draw_answers(x, hypotheses, "title"), tmp_path / name, dpi=50)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    Image.open(io.BytesIO((tmp_path / "one").read_bytes())).verify()
