import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.contour import ContourSet

from mue.plots.contact_sheet import plot_contact_sheet
from mue.plots.style import INK, MASK_COLOURS

H, W = 32, 40


def outlines(ax: Axes) -> list[ContourSet]:
    """The contours in a panel that are lines, not fillings."""
    return [c for c in ax.collections if isinstance(c, ContourSet) and not c.filled]


def box(top: int, left: int, height: int, width: int) -> torch.Tensor:
    mask = torch.zeros(H, W)
    mask[top : top + height, left : left + width] = 1
    return mask


EMPTY, SMALL, LARGE, FULL = torch.zeros(H, W), box(9, 12, 4, 5), box(8, 10, 8, 8), torch.ones(H, W)


def test_a_sheet_has_every_slice_with_its_name_and_the_outlines_of_its_raters(words, pixels):
    torch.manual_seed(0)
    images = list(torch.randint(256, (7, 1, H, W), dtype=torch.uint8).numpy())
    masks = [torch.stack([SMALL, LARGE, EMPTY]).byte().numpy()] * 7
    figure = plot_contact_sheet(images, masks, [f"slice-{i}" for i in range(7)], "a sheet")
    assert len(figure.axes) == 12  # six in a row
    for i, ax in enumerate(figure.axes[:7]):
        np.testing.assert_allclose(np.asarray(ax.images[0].get_array()), images[i][0] / 255)
        colours = [to_hex(np.asarray(c.get_edgecolor())[0]) for c in outlines(ax)]
        assert colours == [INK, INK, *MASK_COLOURS[:2]]  # dark lines below the bright ones
        assert ax.get_xlabel() == f"slice-{i}\n2 of 3 annotated"
    assert not any(ax.axison for ax in figure.axes[7:])
    assert {"a sheet", "rater 1", "rater 3"} <= set(words(figure))
    assert pixels(figure).std() > 10


@pytest.mark.parametrize("mask", [EMPTY, FULL])
def test_a_sheet_of_one_slice_with_nothing_or_everything_annotated(mask, pixels):
    image = torch.arange(H * W).remainder(256).byte().view(1, H, W).numpy()
    masks = mask.byte().expand(5, H, W).numpy()
    figure = plot_contact_sheet([image], [masks], ["only"], "")
    (ax,) = figure.axes
    assert ax.get_xlim() == (-0.5, W - 0.5)
    assert pixels(figure).std() > 10


def test_every_slice_of_a_sheet_needs_a_name():
    images, masks = np.zeros((2, 2, 1, H, W), np.uint8)
    with pytest.raises(ValueError, match=r"`names` must name each of the 2 slices, got 1"):
        plot_contact_sheet(list(images), list(masks), ["one"], "")


def test_long_names_do_not_overlap(overlapping):
    images, masks = [np.zeros((1, H, W), np.uint8)] * 12, [np.zeros((4, H, W), np.uint8)] * 12
    names = [f"{i:04}-" + "LIDC-IDRI-0765/nodule-0/slice-6" for i in range(12)]
    assert not overlapping(plot_contact_sheet(images, masks, names, "a sheet"))


def test_images_of_any_size_type_and_number_of_raters_share_a_sheet(pixels):
    random = np.random.default_rng(0)
    images = [random.normal(size=(3, 20, 30)).astype(np.float32), np.ones((3, 9, 4), np.float32)]
    masks = [random.integers(3, size=(2, 20, 30), dtype=np.uint8), np.ones((5, 9, 4), np.uint8)]
    figure = plot_contact_sheet(images, masks, ["a", "b"], "")
    said = [ax.get_xlabel() for ax in figure.axes]
    assert said == ["a\n2 of 2 annotated", "b\n5 of 5 annotated"]
    assert pixels(figure).std() > 10


def test_colours_are_shown_as_colours_and_other_values_by_their_range():
    random = np.random.default_rng(0)
    colour = random.integers(0, 256, (3, H, W), dtype=np.uint8)
    deep = random.integers(-1000, 1000, (2, H, W)).astype(np.int16)
    mask = SMALL.byte()[None].numpy()
    one, two = plot_contact_sheet([colour, deep], [mask] * 2, ["a", "b"], "").axes
    shown = np.asarray(one.images[0].get_array())
    np.testing.assert_allclose(shown, colour.transpose(1, 2, 0) / 255)
    grey = np.asarray(two.images[0].get_array())
    assert (grey.min(), grey.max()) == (0, 1)
    middle = (grey > 0) & (grey < 1)
    assert np.corrcoef(grey[middle], deep[0][middle])[0, 1] > 0.999


def test_several_classes_are_shown_by_the_share_of_raters_below_the_image(words):
    image = np.zeros((1, H, W), np.uint8)
    masks = torch.stack([SMALL, 2 * SMALL, SMALL]).byte().numpy()
    figure = plot_contact_sheet([image], [masks], ["a"], "", ["none", "first", "second"])
    shown = np.asarray(figure.axes[0].images[0].get_array())
    assert shown.shape == (2 * H, W, 3)
    first, second = (np.array(to_rgb(colour)) for colour in MASK_COLOURS[:2])
    inside = SMALL.bool().numpy()
    np.testing.assert_allclose(shown[H:][inside], np.tile(2 / 3 * first + second / 3, (20, 1)))
    assert (shown[H:][~inside] == 0).all()
    assert {"first", "second"} <= set(words(figure))
