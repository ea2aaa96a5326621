import shutil
from pathlib import Path

import pytest
import torch

import mue
from mue.inference.load import bundled, find, load
from mue.models.build import build_network
from mue.runs.folder import RunError


def test_a_name_that_is_bundled_and_a_run_folder_is_refused(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find("guess") == bundled()["guess"]
    shutil.copytree(trained, "guess")
    words = (
        r"'guess' is the name of a bundled model and of a run folder here; "
        r"take \./guess for the folder, or bundled:guess for the bundled model"
    )
    with pytest.raises(RunError, match=words):
        find("guess")
    assert find("./guess") == find(Path("guess")) == Path("guess")
    assert find("bundled:guess") == bundled()["guess"]


def test_another_folder_of_the_name_is_in_nobodys_way(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("guess").mkdir()
    assert find("guess") == bundled()["guess"]


def test_the_prefix_names_bundled_models_alone():
    with pytest.raises(RunError, match="no bundled model and no run folder 'bundled:nobody'"):
        find("bundled:nobody")


def test_weights_are_loaded_into_a_network_of_the_callers(trained):
    network = build_network(mue.load(trained, device="cpu").config)
    predictor = load(trained, network=network, device="cpu")
    assert next(predictor.network.parameters()) is next(network.parameters())
    x = torch.rand(2, 1, 8, 8)
    assert torch.equal(predictor.propose(x, 3).y, load(trained, device="cpu").propose(x, 3).y)


def test_weights_that_do_not_fit_the_callers_network_are_refused(tiny, trained):
    other = build_network(tiny("exact", codebook={"size": 7}))
    with pytest.raises(RunError, match=r"'codebook\.codes' must be"):
        load(trained, network=other, device="cpu")


def test_models_are_found_by_name_or_folder(trained):
    assert {"guess", "guess-exact"} <= set(bundled())
    assert find("guess") == bundled()["guess"]
    assert find(trained) == find(str(trained)) == trained


def test_an_unknown_model_is_answered_with_the_nearest():
    words = r"no bundled model and no run folder 'gess-exact'; did you mean 'guess-exact'\?"
    with pytest.raises(ValueError, match=words):
        load("gess-exact")
    with pytest.raises(ValueError, match="'!'; bundled are guess, guess-exact"):
        load("!")


def test_the_bundled_models_are_what_their_names_say():
    for name, method in (("guess", "vq"), ("guess-exact", "exact")):
        predictor = load(name, device="cpu")
        assert predictor.config.method == method
        assert predictor.config.data.name == "guess"
        assert predictor.device == torch.device("cpu")
        size = (bundled()[name] / "weights.safetensors").stat().st_size
        assert size <= 8 * 2**20
