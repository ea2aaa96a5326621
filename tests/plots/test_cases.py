import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure

from mue.modes import ModeRule, Modes, mask_distance, modes_of, ungrouped
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
    return outline_of(contour)


def outline_of(contour: ContourSet) -> tuple[np.ndarray, str]:
    """The same of one contour."""
    at = np.concatenate([path.vertices for path in contour.get_paths()])
    colour = to_hex(np.asarray(contour.get_edgecolor())[0])
    return np.concatenate([at.min(axis=0), at.max(axis=0)]), colour


def alone(h: Hypotheses) -> Modes:
    """Each answer as a mode of its own."""
    return modes_of(h.y, h.prob, h.code, ungrouped(mask_distance(h.y, h.y)), 0.5)


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


@pytest.fixture
def modes(hypotheses) -> Modes:
    """The same answers: all are far apart."""
    return ModeRule().group(hypotheses)


def test_a_row_has_the_crop_then_raters_then_modes(case, modes, words, pixels):
    figure = plot_cases(case, modes, "the title")
    grid = panels(figure, 2)
    for i in range(2):
        for ax in grid[i, :5]:
            np.testing.assert_allclose(ax.images[0].get_array(), case.x[i, 0])
            assert ax.images[0].get_clim() == (0, 1)  # grey means the same everywhere
    assert not outlines(grid[0, 0])
    small, large = [11.5, 8.5, 16.5, 12.5], [9.5, 7.5, 17.5, 15.5]  # pixel i is i - ½ .. i + ½
    for j, (where, colour) in enumerate(
        [(small, "#ff6b4a"), (large, "#ff6b4a"), (large, "#4aa8ff")], start=1
    ):
        *_, strongest = outlines(grid[0, j])
        at, drawn_in = outline_of(strongest)
        np.testing.assert_allclose(at, where)
        assert drawn_in == colour
    heads = ["image", "rater 1", "rater 2", "mode 1", "mode 2", "mode 3"]
    for ax, head in zip(grid[0, :6], heads, strict=True):
        assert head in words(ax)
        assert head not in words(grid[1, 0])
    assert "the title" in words(figure)
    assert pixels(figure).std() > 10


def test_probabilities_and_what_is_left_out_are_written(case, modes, words, bars):
    grid = panels(plot_cases(case, modes, ""), 2)
    written = [[ax.get_xlabel() for ax in row[3:6]] for row in grid]
    assert written == [["0.500", "0.250", "0.125"], ["0.900", "0.060", ""]]
    lengths = [[bars(ax) for ax in row[3:6]] for row in grid]  # behind each bar one of length 1
    assert lengths[0] == [[1, 0.5], [1, 0.25], [1, 0.125]]
    assert lengths[1] == [[1, pytest.approx(0.9)], [1, pytest.approx(0.06)], []]
    assert words(grid[0, -1]) == ["rest\n0.125"]
    assert words(grid[1, -1]) == ["rest\n0.040"]
    assert not grid[1, 5].images  # an answer that was not kept is none


def test_members_are_fine_lines_behind_their_representative(case):
    near = box(8, 10, 8, 7)
    y = torch.stack([near, EMPTY, LARGE, EMPTY])[None, :, None].expand(2, 4, 1, H, W)
    h = Hypotheses(
        y, torch.tensor([[0.3, 0.25, 0.2, 0.1]]).expand(2, 4), torch.arange(4).expand(2, 4)
    )
    grid = panels(plot_cases(case, ModeRule().group(h), ""), 2)
    *behind, strong = outlines(grid[0, 3])
    np.testing.assert_allclose(outline_of(strong)[0], [9.5, 7.5, 16.5, 15.5])
    found = sorted(outline_of(line)[0].tolist() for line in behind)
    assert found == [[9.5, 7.5, 16.5, 15.5], [9.5, 7.5, 17.5, 15.5]]
    width = [float(np.max(line.get_linewidth())) for line in (*behind, strong)]
    assert max(width[:2]) < 0.5 * width[2]
    assert [ax.get_xlabel() for ax in grid[0, 3:5]] == ["0.500", "0.350"]
    assert not outlines(grid[0, 4])  # both members are empty


def test_a_small_probability_is_not_written_as_none(case):
    h = Hypotheses(torch.zeros(2, 1, 1, H, W), torch.full((2, 1), 2e-4), torch.zeros(2, 1).long())
    assert panels(plot_cases(case, ModeRule().group(h), ""), 2)[0, 3].get_xlabel() == "2e-04"


def test_an_empty_mask_is_said_to_be_empty(case, modes, words):
    grid = panels(plot_cases(case, modes, ""), 2)
    for i in range(2):
        for j in range(1, 6):
            said = "empty" in words(grid[i, j])
            assert said == ((i, j) in {(1, 1), (0, 4)})
            assert bool(outlines(grid[i, j])) == (not said and bool(grid[i, j].images))


def test_a_slice_is_named_with_its_patient_once(case, modes, words):
    grid = panels(plot_cases(case, modes, ""), 2)
    assert "P1/0/3" in words(grid[0, 0])
    assert "P2  slice" in words(grid[1, 0])


def test_a_long_name_keeps_its_end(modes, case, words):
    long = Case(case.x, case.ys, case.q, ("1." * 60 + "77/0/3", "s"), case.group)
    (name,) = (w for w in words(panels(plot_cases(long, modes, ""), 2)[0, 0]) if w != "image")
    assert name.startswith("…")
    assert name.endswith("77/0/3")
    assert len(name) == 64


def test_as_many_modes_are_shown_as_asked_and_rest_holds_the_others(case, words):
    y = torch.zeros(2, 10, 1, H, W)
    h = Hypotheses(y, torch.full((2, 10), 0.1), torch.arange(10).expand(2, 10))
    for limit, rest in ((5, "rest\n0.500"), (8, "rest\n0.200")):
        grid = panels(plot_cases(case, alone(h), "", limit=limit), 2)
        assert grid.shape == (2, 1 + 2 + limit + 1)
        assert words(grid[0, -1]) == [rest]


def test_the_panels_of_a_slice_show_one_part_of_it_with_every_mask(case, modes):
    row = panels(plot_cases(case, modes, ""), 2)[0]
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
    for figure in (plot_cases(one, ModeRule().group(h), "one"), plot_codes(one, h, "one")):
        assert pixels(figure).std() > 10


def test_a_full_mask_has_the_edge_as_its_outline(case, pixels):
    h = Hypotheses(FULL.expand(2, 1, 1, H, W), torch.ones(2, 1), torch.zeros(2, 1).long())
    figure = plot_cases(case, ModeRule().group(h), "")
    *_, strongest = outlines(panels(figure, 2)[0, 3])
    np.testing.assert_allclose(outline_of(strongest)[0], [-0.5, -0.5, W - 0.5, H - 0.5])
    assert not panels(figure, 2)[0, 0].patches  # the close-up is all of it
    assert pixels(figure).std() > 10


@pytest.mark.parametrize("rows", [1, 2, 6])
@pytest.mark.parametrize("k", [1, 5, 16])
def test_no_texts_of_the_grid_overlap(rows, k, overlapping):
    q, names = torch.full((rows, 4), 0.25), tuple(f"{i}" * 60 for i in range(rows))
    case = Case(torch.rand(rows, 1, H, W), torch.zeros(rows, 4, 1, H, W), q, names, names)
    h = Hypotheses(
        torch.zeros(rows, k, 1, H, W),
        torch.full((rows, k), 1 / k),
        496 + torch.arange(k).expand(rows, k),
    )
    assert not overlapping(plot_cases(case, alone(h), "a title", limit=8))
    assert not overlapping(plot_codes(case, h, "a title"))


def test_what_is_no_slice_is_refused(modes):
    q, names = torch.ones(2, 1), ("a", "b")
    vectors = Case(torch.zeros(2, 3), torch.zeros(2, 1, 3), q, names, names)
    with pytest.raises(ValueError, match=r"`case` must hold images, b c h w.*\(2, 3\)"):
        plot_cases(vectors, modes, "")


def test_codes_are_columns_by_their_mean_probability(case, hypotheses, words):
    figure = plot_codes(case, hypotheses, "by code")
    grid = panels(figure, 2)
    assert grid.shape == (2, 1 + 3 + 1)  # code 9 has probability 0
    assert [w for ax in grid[0, 1:4] for w in words(ax) if "code" in w] == [
        "code 2",
        "code 7",
        "code 5",
    ]
    assert [ax.get_xlabel() for ax in grid[0, 1:4]] == ["0.250", "0.500", "0.125"]
    assert [ax.get_xlabel() for ax in grid[1, 1:4]] == ["0.900", "0.060", ""]
    assert "empty" in words(grid[0, 1])
    np.testing.assert_allclose(outline(grid[1, 1])[0], [11.5, 8.5, 16.5, 12.5])
    np.testing.assert_allclose(outline(grid[1, 2])[0], [9.5, 7.5, 17.5, 15.5])
    assert "by code" in words(figure)


def test_a_code_below_the_least_probability_leaves_a_blank_cell(case, words):
    prob = torch.tensor([[0.9, 2e-4, 1e-5], [0.8, 9e-5, 0.0]])
    h = Hypotheses(SMALL.expand(2, 3, 1, H, W), prob, torch.tensor([[0, 1, 2], [0, 1, 2]]))
    grid = panels(plot_codes(case, h, ""), 2)
    assert grid.shape == (2, 1 + 2 + 1)  # code 2 is below it everywhere
    assert grid[0, 2].get_xlabel() == "2e-04"
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
    assert [ax.get_xlabel() for ax in grid[1, 1:4]] == ["0.900", "0.060", ""]


def test_answers_without_codes_or_likely_codes_are_refused(case, hypotheses):
    none = Hypotheses(hypotheses.y, hypotheses.prob, torch.full((2, 3), -1))
    with pytest.raises(ValueError, match="from which code each answer comes, got -1"):
        plot_codes(case, none, "")
    with pytest.raises(ValueError, match=r"`min_prob` must be at most 0\.9.*got 0\.95"):
        plot_codes(case, hypotheses, "", min_prob=0.95)


def test_samples_of_slices_are_not_ranked_and_carry_no_number(case, hypotheses, words, bars):
    prob = torch.full((2, 3), 1 / 3)
    samples = Hypotheses(hypotheses.y, prob, torch.full((2, 3), -1))
    grid = panels(plot_cases(case, alone(samples), ""), 2)
    for row in grid:
        assert [ax.get_xlabel() for ax in row[3:6]] == ["", "", ""]
        assert not any(bars(ax) for ax in row[3:6])
        assert words(row[-1]) == ["not\nranked"]


def test_samples_that_are_grouped_are_ranked_by_their_share(case, hypotheses, words):
    samples = Hypotheses(hypotheses.y, torch.full((2, 3), 1 / 3), torch.full((2, 3), -1))
    grid = panels(plot_cases(case, ModeRule().group(samples), ""), 2)
    assert [ax.get_xlabel() for ax in grid[0, 3:6]] == ["0.333", "0.333", "0.333"]
    assert [ax.get_xlabel() for ax in grid[1, 3:6]] == ["0.667", "0.333", ""]
    assert words(grid[1, -1]) == ["rest\n0.000"]


def test_the_same_slices_give_the_same_file(case, modes, tmp_path):
    for name in ("one", "two"):
        save_figure(plot_cases(case, modes, "title"), tmp_path / name, dpi=40)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_colours_and_classes_are_shown_and_a_missing_rater_is_blank():
    """Two images of standardized colours, three classes; the second has one rater of two."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, H, W, generator=generator)
    ys = torch.nn.functional.one_hot(torch.randint(3, (2, 2, H, W), generator=generator), 3)
    ys = ys.movedim(-1, 2).float()
    case = Case(x, ys, torch.tensor([[0.5, 0.5], [1.0, 0.0]]), ("a", "b"), ("p", "q"))
    h = Hypotheses(ys.clone(), torch.tensor([[0.6, 0.4], [0.6, 0.4]]), torch.zeros(2, 2).long())
    grid = panels(plot_cases(case, alone(h), "", limit=2), 2)
    shown = np.asarray(grid[0, 0].images[0].get_array())
    assert shown.shape == (H, W, 3)
    assert (shown.min(), shown.max()) == (0, 1)
    assert [bool(ax.images) for ax in grid[:, 2]] == [True, False]
    assert outlines(grid[0, 1])
