"""The numbers of own data, and the page that shows them."""

import json

import numpy as np
import torch

import own_data
from mue.data.prepared.dataset import Slices
from mue.data.prepared.item import Item
from mue.data.prepared.open import open_prepared
from mue.data.prepared.write import write_prepared
from own_data import NUMBERS, constant_ranking, spread, write_page


def numbers(device: str, ged: float) -> dict:
    def metrics(*names: str) -> dict:
        return {n: {"mean": ged, "low": ged - 0.1, "high": ged + 0.1} for n in names}

    model = {
        "metrics": metrics(*own_data.METRICS),
        "commit": "0123456789",
        "config": {"train": {"steps": 1234, "seed": 7}},
    }
    return {
        "device": device,
        "options": ["--device", device, "--minutes", "10"],
        "images": {"train": 40, "val": 10, "test": 50},
        "seconds": {"train ours": 60, "train unet": 30},
        "models": {"ours": model, "unet": model, "constant": {"metrics": metrics("ged")}},
    }


def test_the_page_has_a_row_for_each_model_and_says_how_to_repeat_it(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- photographs: begin -->\n<!-- photographs: end -->\nafter\n")
    monkeypatch.setattr(own_data, "PAGE", page)
    for device, ged in (("cpu", 0.5), ("gpu", 0.25)):
        (tmp_path / device).mkdir()
        (tmp_path / device / NUMBERS).write_text(json.dumps(numbers(device, ged)))
    write_page([tmp_path / "cpu", tmp_path / "gpu"])
    text = page.read_text()
    ours = [line for line in text.splitlines() if line.startswith("| `train auto`")]
    assert [line.split(" | ")[1:4] for line in ours] == [
        ["cpu", "1,234", "1.0"],
        ["gpu", "1,234", "1.0"],
    ]
    assert "0.250 (0.150 to 0.350)" in ours[1]
    assert "| the best constant ranking |  |  |  | 0.500 (0.400 to 0.600) |  |  |  |" in text
    assert "--device gpu --minutes 10`, seed 7, commit 0123456." in " ".join(text.split())


def test_numbers_of_another_device_stay_on_the_page(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("<!-- photographs: begin -->\n<!-- photographs: end -->\n")
    monkeypatch.setattr(own_data, "PAGE", page)
    for device, ged in (("cpu", 0.5), ("cuda", 0.25)):
        (tmp_path / device).mkdir()
        (tmp_path / device / NUMBERS).write_text(json.dumps(numbers(device, ged)))
    write_page([tmp_path / "cuda", tmp_path / "cpu"])
    both = page.read_text()
    (tmp_path / "cpu" / NUMBERS).write_text(json.dumps(numbers("cpu", 0.75)))
    write_page([tmp_path / "cpu"])
    expected = both.replace("0.500 (0.400 to 0.600)", "0.750 (0.650 to 0.850)")
    constant = "| the best constant ranking |  |  |  | 0.{0}50 (0.{1}50 to 0.{2}50) |  |  |  |"
    assert page.read_text() == expected.replace(constant.format(2, 1, 3), constant.format(7, 6, 8))


def test_indices_are_spread_over_all():
    assert spread(3, 5) == [0, 2, 4]
    assert spread(9, 2) == [0, 1]


def test_a_constant_ranking_has_the_shares_of_the_masks_that_raters_gave(tmp_path):
    """Masks left and right for three and one of four raters of every image."""
    left, right = np.zeros((2, 8, 8), np.uint8)
    left[:, :4], right[:, 4:] = 1, 1
    image, masks = np.zeros((1, 8, 8), np.uint8), np.stack([left, left, right, left])
    items = [
        Item(patient=name, case="a", source="a", split="train", image=image, masks=masks)
        for name in ("p", "q")
    ]
    write_prepared(items, tmp_path / "out", {})
    among = torch.from_numpy(np.stack([left, right, left | right])[:, None]).float()
    p = constant_ranking(Slices(open_prepared(tmp_path / "out"), "train"), among)
    assert torch.allclose(p, torch.tensor([0.75, 0.25, 0.0]), atol=0.02)
