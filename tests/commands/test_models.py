"""Models as commands are given them."""

import json
import shutil

import pytest

from mue.commands.models import LoadedModel, digest_of, load_models, output_folder
from mue.errors import MueError
from mue.inference.load import load


def test_models_that_end_alike_go_by_their_whole_path(folder, tmp_path):
    for path in ("a/x", "b/x", "b/y"):
        shutil.copytree(folder, tmp_path / path)
    a, b, y = (tmp_path / path for path in ("a/x", "b/x", "b/y"))
    assert [m.name for m in load_models([a, y])] == ["x", "y"]
    assert [m.name for m in load_models([a, b, a])] == [str(a), str(b)]
    assert [m.name for m in load_models([a, str(a)])] == ["x"]  # one model
    predictors = [load(a, device="cpu"), load(b, device="cpu")]
    assert [m.name for m in load_models([y, *predictors])] == ["y", "model 2", "model 3"]


def test_a_bundled_model_is_one_by_both_of_its_names():
    (model,) = load_models(["bundled:lidc-small", "lidc-small"], device="cpu")
    assert (model.name, model.source) == ("lidc-small", "bundled:lidc-small")


def test_files_go_to_the_run_folder_or_where_it_is_said(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    predictor = load(folder, device="cpu")

    def to(source, out=None):
        return output_folder(LoadedModel("name", predictor, source), out)

    assert to(folder) == folder
    assert to(folder, tmp_path / "out") == to(None, "out").absolute() == tmp_path / "out"
    assert to("lidc-small").parts == to("bundled:lidc-small").parts
    assert to("lidc-small").parts == ("runs", "bundled", "lidc-small")
    with pytest.raises(MueError, match="`out` must name a folder for the files of a Predictor"):
        to(None)
    (tmp_path / "file").write_text("")
    with pytest.raises(MueError, match="file"):
        to(folder, "file")


def test_a_copy_is_the_same_model_and_another_calibration_is_not(folder, tmp_path):
    def digest(path):
        return digest_of(LoadedModel("name", predictor, path))

    predictor = load(folder, device="cpu")
    copy = shutil.copytree(folder, tmp_path / "elsewhere")
    assert digest(copy) == digest(folder)
    content = json.loads((folder / "config.json").read_text())
    content["config"]["modes"]["cut"] = 0.25
    (folder / "config.json").write_text(json.dumps(content))
    assert digest(copy) != digest(folder)
    assert digest(None) == "name"
