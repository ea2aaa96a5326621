import io

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image, ImageColor

from mue.evaluation.compare import ComparedModel
from mue.evaluation.curves import Point
from mue.evaluation.known import ModeEvaluation
from mue.metrics.bootstrap import Interval
from mue.metrics.calibration import reliability
from mue.modes import ModeRule
from mue.plots.answers import plot_answers
from mue.plots.cases import plot_cases
from mue.plots.comparison import plot_comparison
from mue.plots.contact_sheet import plot_contact_sheet
from mue.plots.probabilities import plot_probabilities
from mue.plots.reliability import plot_reliability
from mue.plots.sample_curve import plot_sample_curve
from mue.plots.spread import plot_spread
from mue.plots.style import image_png, mask_colours, save_figure
from mue.types import Case, Hypotheses

DOLLARS = r"a$\b$"  # as mathematics it cannot be parsed
HALVES, BLACK = torch.full((1, 2), 0.5), torch.zeros(1, 1, 8, 8)
ANSWERS = ModeRule().group(
    Hypotheses(BLACK[:, None].expand(1, 2, 1, 8, 8), HALVES, torch.tensor([[0, 1]]))
)


@pytest.fixture
def hypotheses() -> Hypotheses:
    """Two inputs with three answers each, of which the j-th of input i is grey."""
    y = torch.linspace(0, 1, 6).view(2, 3, 1, 1, 1).expand(2, 3, 1, 4, 6)
    prob = torch.tensor([[0.5, 0.25, 0.125], [0.9, 0.06, 0.04]])
    return Hypotheses(y, prob, torch.arange(6).view(2, 3))


def opened(content: bytes) -> Image.Image:
    return Image.open(io.BytesIO(content))


@pytest.mark.parametrize("channels", [1, 3])
def test_an_image_comes_back_from_its_file(channels):
    torch.manual_seed(0)
    levels = torch.randint(256, (channels, 5, 7), dtype=torch.uint8)
    with opened(image_png(levels.float() / 255)) as file:
        assert (file.format, file.size) == ("PNG", (7, 5))
        array = np.asarray(file)
    expected = levels[0] if channels == 1 else levels.permute(1, 2, 0)
    np.testing.assert_array_equal(array, expected)


def test_values_beyond_black_and_white_are_cut_off():
    with opened(image_png(torch.tensor([[[-1.0, 0.5, 2.0]]]))) as file:
        assert np.asarray(file).tolist() == [[0, 128, 255]]


@pytest.mark.parametrize("count", [3, 5])
def test_classes_are_saved_as_their_numbers_in_the_colours_of_masks(count):
    numbers = torch.tensor([[0, 1, count - 1], [2, 2, 0]])
    probs = torch.nn.functional.one_hot(numbers, count).permute(2, 0, 1) * 0.6 + 0.1
    with opened(image_png(probs, classes=True)) as file:
        np.testing.assert_array_equal(np.asarray(file), numbers)
        colours = np.asarray(file.convert("RGB"))
    wanted = [ImageColor.getrgb(c) for c in ("#000000", *mask_colours(count - 1))]
    np.testing.assert_array_equal(colours, np.array(wanted, np.uint8)[numbers])


def test_saving_a_figure_is_repeatable(hypotheses, tmp_path):
    """Nothing in a file tells the time or the version: the same figure is the same file."""
    x = torch.rand(2, 1, 4, 6)
    for name in ("one", "two"):
        save_figure(plot_answers(x, ModeRule().group(hypotheses), "title"), tmp_path / name, dpi=50)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    Image.open(io.BytesIO((tmp_path / "one").read_bytes())).verify()


# --- names ----------------------------------------------------------------------------------------


def dollars_in_answers() -> Figure:
    return plot_answers(BLACK, ANSWERS, DOLLARS, [DOLLARS])


def dollars_in_probabilities() -> Figure:
    rest, count = torch.zeros(1), torch.tensor([2])
    modes = ModeEvaluation(HALVES, HALVES, rest, (DOLLARS,), count, codes=2, k=2, seed=0)
    return plot_probabilities(modes, DOLLARS)


def dollars_in_comparison() -> Figure:
    metrics = {"mode_tv": Interval(0.2, 0.1, 0.1, 0.3)}
    return plot_comparison([ComparedModel(DOLLARS, "vq", None, 16, 1, 10, 1.0, metrics)], DOLLARS)


def dollars_in_sample_curve() -> Figure:
    return plot_sample_curve({DOLLARS: [Point(1, 0.5, 0.01), Point(2, 0.4, 0.02)]}, DOLLARS)


def dollars_in_spread() -> Figure:
    return plot_spread({DOLLARS: torch.tensor([0.1, 0.4])}, DOLLARS)


def dollars_in_reliability() -> Figure:
    return plot_reliability({DOLLARS: reliability(HALVES[0], HALVES[0])}, DOLLARS)


def dollars_in_cases() -> Figure:
    case = Case(BLACK, BLACK[None], torch.ones(1, 1), (DOLLARS,), ("patient",))
    return plot_cases(case, ANSWERS, DOLLARS)


def dollars_in_contact_sheet() -> Figure:
    return plot_contact_sheet(
        [BLACK[0].byte().numpy()], [BLACK[0].byte().numpy()], [DOLLARS], DOLLARS
    )


@pytest.mark.parametrize(
    "plot",
    [
        dollars_in_answers,
        dollars_in_probabilities,
        dollars_in_comparison,
        dollars_in_sample_curve,
        dollars_in_spread,
        dollars_in_reliability,
        dollars_in_cases,
        dollars_in_contact_sheet,
    ],
)
def test_dollars_in_a_title_or_a_name_are_not_mathematics(plot, words, pixels):
    figure = plot()
    assert sum(DOLLARS in word for word in words(figure)) >= 2  # the title and a name
    assert pixels(figure).std() > 1


def test_a_title_keeps_its_lines_and_escapes_what_cannot_be_printed(words, pixels):
    figure = plot_answers(BLACK, ANSWERS, "two\nlines of\tit")
    assert "two\nlines of\\tit" in words(figure)
    assert pixels(figure).std() > 1


@pytest.mark.parametrize("values", [(0, 2, 4), (0, 1, 400)])
def test_classes_are_written_by_the_values_that_they_have_in_files(values):
    probs = torch.eye(3)[[0, 2, 1]].T[:, None]  # the classes 0, 2 and 1 side by side
    with opened(image_png(probs, classes=True, class_values=values)) as file:
        assert np.array(file).tolist() == [[values[0], values[2], values[1]]]
        if values[2] < 256:
            colours = np.array(file.convert("RGB"))[0, 1]
            assert "#{:02x}{:02x}{:02x}".format(*colours) == mask_colours(2)[1]
