import dataclasses

import pytest
import torch

from mue.config.presets import preset
from mue.config.schema import Config, DataConfig
from mue.data.build import SOURCES, build_source, check_shapes
from mue.data.random import choose, uniform
from mue.data.source import Source
from mue.types import Case, Pair

CPU = torch.device("cpu")


class Volumes:
    """x has two channels; y is its first one with probability 0.7, otherwise its second."""

    device, on_device = CPU, True

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def pair(self, index):
        case = self.case(index)
        chosen = choose(uniform(self.seed, index, 1, salt=1), case.q)
        return Pair(case.x, case.ys[torch.arange(len(index))[:, None], chosen])

    def case(self, index):
        x = uniform(self.seed, index, 2 * 8 * 8).view(-1, 2, 8, 8)
        names = tuple(f"volume-{i}" for i in index.tolist())
        q = torch.tensor([0.7, 0.3]).expand(len(x), 2)
        return Case(x, x[:, :, None], q, names, ("all",) * len(x))


def changed(config: Config, **model: object) -> Config:
    return dataclasses.replace(config, model=dataclasses.replace(config.model, **model))


def test_a_new_data_set_is_one_line_of_the_table(monkeypatch):
    assert isinstance(Volumes(), Source)
    monkeypatch.setitem(SOURCES, "volumes", lambda spec: Volumes(spec.split_seed))
    config = DataConfig(name="volumes")
    index = torch.arange(5)
    train, val, test = (
        build_source(config, split, seed=3, device=CPU).pair(index)
        for split in ("train", "val", "test")
    )
    assert torch.equal(train.x, Volumes(3).pair(index).x)
    assert not torch.equal(train.x, val.x)
    assert not torch.equal(train.x, test.x)
    assert not torch.equal(val.x, test.x)


def test_an_unknown_name_is_refused_with_those_that_are_known():
    known = ", ".join(SOURCES)  # guess, toy, vector, ...
    words = rf"data\.name must be one of {known}, got 'gues'; add a data set"
    with pytest.raises(ValueError, match=words):
        build_source(DataConfig(name="gues"), "train", seed=0, device=CPU)


@pytest.mark.parametrize("name", ["toy", "vector"])
def test_more_answers_than_a_data_set_gives_are_refused(name):
    words = rf"data\.answers must be 1 for the data '{name}', got 2"
    with pytest.raises(ValueError, match=words):
        build_source(DataConfig(name=name, answers=2), "train", seed=0, device=CPU)


def test_a_network_must_fit_the_shapes_of_an_item_of_any_source():
    config = changed(preset("toy"), c_in=2)
    first = torch.tensor([0])
    for item in (Volumes().pair(first), Volumes().case(first)):
        check_shapes(config, item, 3)
    words = r"model\.c_in must be 2 for this data, whose inputs have the shape \(2, 8, 8\), got 1"
    with pytest.raises(ValueError, match=words):
        check_shapes(preset("toy"), Volumes().pair(first), 3)
    words = r"model\.c_out must be 1 for this data, whose answers have the shape \(1, 8, 8\), got 3"
    with pytest.raises(ValueError, match=words):
        check_shapes(changed(config, c_out=3), Volumes().pair(first), 3)


def test_vectors_need_an_mlp_and_images_something_else():
    vector, toy = preset("vector"), preset("toy")
    turns, bars = (
        build_source(config.data, "train", seed=0, device=CPU).pair(torch.tensor([0]))
        for config in (vector, toy)
    )
    words = r"model\.backbone must take inputs of 1 axes for this data.*\(2,\), got 'unet'"
    with pytest.raises(ValueError, match=words):
        check_shapes(toy, turns, 3)
    words = r"model\.backbone must take inputs of 3 axes for this data.*\(1, 8, 8\), got 'mlp'"
    with pytest.raises(ValueError, match=words):
        check_shapes(vector, bars, 1)
