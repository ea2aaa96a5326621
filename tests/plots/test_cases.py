import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure
from matplotlib.text import Text

from mue.plots.cases import plot_cases, plot_codes
from mue.plots.style import save_figure
from mue.types import Case, Hypotheses

H, W = 32, 40


def panels(figure: Figure, rows: int) -> np.ndarray:
    """The axes of a grid, row by row."""
    return np.array(figure.axes, dtype=object).reshape(rows, -1)


def outlines(ax: Axes) -> list[ContourSet]:
    """The contours in a panel that are lines, not fillings."""
    return [c for c in ax.collections if isinstance(c, ContourSet) and not c.filled]


def outline(ax: Axes) -> tuple[np.ndarray, str]:
    """Left, top, right and bottom of the one outline in a panel, and its colour."""
    (contour,) = outlines(ax)
    at = np.concatenate([path.vertices for path in contour.get_paths()])
    colour = to_hex(np.asarray(contour.get_edgecolor())[0])
    return np.concatenate([at.min(axis=0), at.max(axis=0)]), colour


def box(top: int, left: int, height: int, width: int) -> torch.Tensor:
    mask = torch.zeros(H, W)
    mask[top : top + height, left : left + width] = 1
    return mask


EMPTY, SMALL, LARGE, FULL = torch.zeros(H, W), box(9, 12, 4, 5), box(8, 10, 8, 8), torch.ones(H, W)


@pytest.fixture
def case() -> Case:
    """Two slices with two raters; of the second slice one rater annotated nothing."""
    ys = torch.stack([torch.stack([SMALL, LARGE]), torch.stack([EMPTY, SMALL])])[:, :, None]
    x = torch.linspace(0, 1, 2 * H * W).view(2, 1, H, W)
    return Case(x, ys, torch.full((2, 2), 0.5), ("P1/0/3", "slice"), ("P1", "P2"))


@pytest.fixture
def hypotheses() -> Hypotheses:
    """Three answers to each of them; pixels that are on have probability 0.6."""
    masks = [torch.stack([LARGE, EMPTY, SMALL]), torch.stack([SMALL, LARGE, SMALL])]
    y = 0.3 + 0.3 * torch.stack(masks)[:, :, None]
    prob = torch.tensor([[0.5, 0.25, 0.125], [0.9, 0.06, 0.0]])
    return Hypotheses(y, prob, torch.tensor([[7, 2, 5], [2, 7, 9]]))


def test_a_row_has_the_crop_then_raters_then_answers(case, hypotheses, words, pixels):
    figure = plot_cases(case, hypotheses, "the title")
    grid = panels(figure, 2)
    for i in range(2):
        for ax in grid[i, :5]:
            np.testing.assert_allclose(ax.images[0].get_array(), case.x[i, 0])
            assert ax.images[0].get_clim() == (0, 1)  # grey means the same everywhere
    assert not outlines(grid[0, 0])
    small, large = [11.5, 8.5, 16.5, 12.5], [9.5, 7.5, 17.5, 15.5]  # pixel i is i - ½ .. i + ½
    for j, (where, colour) in enumerate(
        [(small, "#c8452d"), (large, "#c8452d"), (large, "#2f6fb0")], start=1
    ):
        at, drawn_in = outline(grid[0, j])
        np.testing.assert_allclose(at, where)
        assert drawn_in == colour
    heads = ["CT", "rater 1", "rater 2", "answer 1", "answer 2", "answer 3"]
    for ax, head in zip(grid[0, :6], heads, strict=True):
        assert head in words(ax)
        assert head not in words(grid[1, 0])
    assert "the title" in words(figure)
    assert pixels(figure).std() > 10


def test_probabilities_and_what_is_left_out_are_written(case, hypotheses, words):
    grid = panels(plot_cases(case, hypotheses, ""), 2)
    written = [[ax.get_title(loc="left") for ax in row[3:6]] for row in grid]
    assert written == [["0.500", "0.250", "0.125"], ["0.900", "0.060", ""]]
    assert words(grid[0, -1]) == ["rest\n0.125"]
    assert words(grid[1, -1]) == ["rest\n0.040"]
    assert not grid[1, 5].images  # an answer that was not kept is none


def test_a_small_probability_is_not_written_as_none(case):
    h = Hypotheses(torch.zeros(2, 1, 1, H, W), torch.full((2, 1), 2e-4), torch.zeros(2, 1).long())
    assert panels(plot_cases(case, h, ""), 2)[0, 3].get_title(loc="left") == "<0.001"


def test_an_empty_mask_is_said_to_be_empty(case, hypotheses, words):
    grid = panels(plot_cases(case, hypotheses, ""), 2)
    for i in range(2):
        for j in range(1, 6):
            said = "empty" in words(grid[i, j])
            assert said == ((i, j) in {(1, 1), (0, 4)})
            assert len(outlines(grid[i, j])) == (not said and bool(grid[i, j].images))


def test_a_slice_is_named_with_its_patient_once(case, hypotheses, words):
    grid = panels(plot_cases(case, hypotheses, ""), 2)
    assert "P1/0/3" in words(grid[0, 0])
    assert "P2  slice" in words(grid[1, 0])


def test_a_long_name_keeps_its_end(hypotheses, case, words):
    long = Case(case.x, case.ys, case.q, ("1." * 60 + "77/0/3", "s"), case.group)
    (name,) = (w for w in words(panels(plot_cases(long, hypotheses, ""), 2)[0, 0]) if w != "CT")
    assert name.startswith("…")
    assert name.endswith("77/0/3")
    assert len(name) == 39  # 13 letters for the crop and each of the two raters


def test_at_most_eight_answers_are_shown_and_rest_holds_the_others(case, words):
    h = Hypotheses(
        torch.zeros(2, 10, 1, H, W), torch.full((2, 10), 0.1), torch.arange(10).expand(2, 10)
    )
    grid = panels(plot_cases(case, h, ""), 2)
    assert grid.shape == (2, 1 + 2 + 8 + 1)
    assert words(grid[0, -1]) == ["rest\n0.200"]


def test_the_panels_of_a_slice_show_one_part_of_it_with_every_mask(case, hypotheses):
    row = panels(plot_cases(case, hypotheses, ""), 2)[0]
    left, right = row[1].get_xlim()
    bottom, top = row[1].get_ylim()
    for ax in row[2:6]:
        assert ax.get_xlim() == (left, right)
        assert ax.get_ylim() == (bottom, top)
    assert left < 9.5 < 17.5 < right < W  # nearer than the whole, with all of the largest mask
    assert top < 7.5 < 15.5 < bottom < H
    assert (right - left) / (bottom - top) == pytest.approx(W / H)
    assert row[0].get_xlim() == (-0.5, W - 0.5)
    (frame,) = row[0].patches
    assert frame.get_bbox().extents == pytest.approx([left, top, right, bottom])


def test_one_slice_with_one_answer_is_plotted(case, hypotheses, pixels):
    one = Case(case.x[:1], case.ys[:1, :1], case.q[:1, :1] * 2, case.id[:1], case.group[:1])
    h = Hypotheses(hypotheses.y[:1, :1], hypotheses.prob[:1, :1], hypotheses.code[:1, :1])
    for plot in (plot_cases, plot_codes):
        assert pixels(plot(one, h, "one")).std() > 10


def test_a_full_mask_has_the_edge_as_its_outline(case, pixels):
    h = Hypotheses(FULL.expand(2, 1, 1, H, W), torch.ones(2, 1), torch.zeros(2, 1).long())
    figure = plot_cases(case, h, "")
    ax = panels(figure, 2)[0, 3]
    np.testing.assert_allclose(outline(ax)[0], [-0.5, -0.5, W - 0.5, H - 0.5])
    assert not panels(figure, 2)[0, 0].patches  # the close-up is all of it
    assert pixels(figure).std() > 10


def test_no_texts_of_the_grid_overlap(case, hypotheses):
    for plot in (plot_cases, plot_codes):
        figure = plot(case, hypotheses, "a title")
        figure.draw_without_rendering()
        found = figure.findobj(lambda part: isinstance(part, Text) and part.get_visible())
        boxes = [t.get_window_extent() for t in found if isinstance(t, Text) and t.get_text()]
        for i, a in enumerate(boxes):
            for b in boxes[:i]:
                assert not (a.x0 < b.x1 and b.x0 < a.x1 and a.y0 < b.y1 and b.y0 < a.y1)


def test_what_is_no_slice_is_refused(hypotheses):
    q, names = torch.ones(2, 1), ("a", "b")
    vectors = Case(torch.zeros(2, 3), torch.zeros(2, 1, 3), q, names, names)
    with pytest.raises(ValueError, match=r"`case` must hold slices, b 1 h w.*\(2, 3\)"):
        plot_cases(vectors, hypotheses, "")


def test_codes_are_columns_by_their_mean_probability(case, hypotheses, words):
    figure = plot_codes(case, hypotheses, "by code")
    grid = panels(figure, 2)
    assert grid.shape == (2, 1 + 3 + 1)  # code 9 has probability 0
    assert [w for ax in grid[0, 1:4] for w in words(ax) if "code" in w] == [
        "code 2",
        "code 7",
        "code 5",
    ]
    assert [ax.get_xlabel() for ax in grid[0, 1:4]] == ["0.2500", "0.5000", "0.1250"]
    assert [ax.get_xlabel() for ax in grid[1, 1:4]] == ["0.9000", "0.0600", ""]
    assert "empty" in words(grid[0, 1])
    np.testing.assert_allclose(outline(grid[1, 1])[0], [11.5, 8.5, 16.5, 12.5])
    np.testing.assert_allclose(outline(grid[1, 2])[0], [9.5, 7.5, 17.5, 15.5])
    assert "by code" in words(figure)


def test_a_code_below_the_least_probability_leaves_a_blank_cell(case, words):
    prob = torch.tensor([[0.9, 2e-4, 1e-5], [0.8, 9e-5, 0.0]])
    h = Hypotheses(SMALL.expand(2, 3, 1, H, W), prob, torch.tensor([[0, 1, 2], [0, 1, 2]]))
    grid = panels(plot_codes(case, h, ""), 2)
    assert grid.shape == (2, 1 + 2 + 1)  # code 2 is below it everywhere
    assert grid[0, 2].get_xlabel() == "0.0002"
    assert not grid[1, 2].images
    assert not grid[1, 2].axison
    assert words(grid[1, 2]) == [] != words(grid[1, 1])
    assert words(grid[1, -1]) == ["rest\n0.200"]
    more = panels(plot_codes(case, h, "", min_prob=1e-6), 2)
    assert more.shape == (2, 1 + 3 + 1)
    assert more[0, 3].get_xlabel() == "1e-05"


def test_at_most_sixteen_codes_are_shown_and_the_others_counted(case, words):
    prob = torch.full((2, 20), 0.05)
    h = Hypotheses(torch.zeros(2, 20, 1, H, W), prob, torch.arange(20).expand(2, 20))
    figure = plot_codes(case, h, "")
    grid = panels(figure, 2)
    assert grid.shape == (2, 1 + 16 + 1)
    assert words(grid[0, -1]) == ["rest\n0.200"]
    assert "codes left out: 4" in words(figure)


def test_a_copy_of_an_answer_at_probability_0_does_not_count(case, hypotheses):
    """`merge` fills up a ranking with copies of its first answer."""
    code = torch.tensor([[7, 2, 5], [2, 7, 2]])
    filled = Hypotheses(hypotheses.y, hypotheses.prob, code)
    grid = panels(plot_codes(case, filled, ""), 2)
    assert [ax.get_xlabel() for ax in grid[1, 1:4]] == ["0.9000", "0.0600", ""]


def test_answers_without_codes_or_likely_codes_are_refused(case, hypotheses):
    none = Hypotheses(hypotheses.y, hypotheses.prob, torch.full((2, 3), -1))
    with pytest.raises(ValueError, match="from which code each answer comes, got -1"):
        plot_codes(case, none, "")
    with pytest.raises(ValueError, match=r"`min_prob` must be at most 0\.9.*got 0\.95"):
        plot_codes(case, hypotheses, "", min_prob=0.95)


def test_samples_of_slices_carry_no_number_and_are_said_not_to_be_ranked(case, hypotheses, words):
    prob = torch.full((2, 3), 1 / 3)
    samples = Hypotheses(hypotheses.y, prob, torch.full((2, 3), -1))
    grid = panels(plot_cases(case, samples, ""), 2)
    for row in grid:
        assert [ax.get_title(loc="left") for ax in row[3:6]] == ["", "", ""]
        assert words(row[-1]) == ["not\nranked"]


def test_the_same_slices_give_the_same_file(case, hypotheses, tmp_path):
    for name in ("one", "two"):
        save_figure(plot_cases(case, hypotheses, "title"), tmp_path / name, dpi=40)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
