import io

import numpy as np
import pytest
import torch
from PIL import Image

from mue.plots.answers import plot_answers
from mue.plots.style import save_figure, save_image
from mue.types import Hypotheses


@pytest.fixture
def hypotheses() -> Hypotheses:
    """Two inputs with three answers each, of which the j-th of input i is grey."""
    y = torch.linspace(0, 1, 6).view(2, 3, 1, 1, 1).expand(2, 3, 1, 4, 6)
    prob = torch.tensor([[0.5, 0.25, 0.125], [0.9, 0.06, 0.04]])
    return Hypotheses(y, prob, torch.arange(6).view(2, 3))


@pytest.mark.parametrize("channels", [1, 3])
def test_a_picture_comes_back_from_its_file(tmp_path, channels):
    torch.manual_seed(0)
    levels = torch.randint(256, (channels, 5, 7), dtype=torch.uint8)
    path = save_image(levels.float() / 255, tmp_path / "new" / "picture.png")
    with Image.open(path) as file:
        assert (file.format, file.size) == ("PNG", (7, 5))
        array = np.asarray(file)
    expected = levels[0] if channels == 1 else levels.permute(1, 2, 0)
    np.testing.assert_array_equal(array, expected)


def test_values_beyond_black_and_white_are_cut_off(tmp_path):
    path = save_image(torch.tensor([[[-1.0, 0.5, 2.0]]]), tmp_path / "picture.png")
    with Image.open(path) as file:
        assert np.asarray(file).tolist() == [[0, 128, 255]]


def test_classes_are_saved_as_their_numbers(tmp_path):
    classes = torch.tensor([[0, 1, 4], [3, 2, 0]])
    onehot = torch.nn.functional.one_hot(classes, 5).permute(2, 0, 1).float()
    with Image.open(save_image(onehot, tmp_path / "classes.png")) as file:
        np.testing.assert_array_equal(np.asarray(file), classes)


def test_saving_a_figure_is_repeatable(hypotheses, tmp_path):
    """Nothing in a file tells the time or the version: the same figure is the same file."""
    x = torch.rand(2, 1, 4, 6)
    for name in ("one", "two"):
        save_figure(plot_answers(x, hypotheses, "title"), tmp_path / name, dpi=50)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    Image.open(io.BytesIO((tmp_path / "one").read_bytes())).verify()
