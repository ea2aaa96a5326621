"""Commands, called as the shell calls them, in this process."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mue.errors import printable
from mue.runs.folder import load_config, save_config
from mue.runs.weights import load_weights, save_tensors
from mue.version import __version__


def tree(folder: Path) -> dict[str, bytes | None]:
    found = folder.rglob("*")
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in found}


# --- bad input ------------------------------------------------------------------------------------


def _text(folder: Path) -> None:
    (folder / "corrupt.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(30))


def _no_weights(folder: Path) -> None:
    (folder / "copy" / "weights.safetensors").unlink()


def _truncated(folder: Path) -> None:
    path = folder / "copy" / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-10])


def _tampered(folder: Path) -> None:
    path = folder / "copy" / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x55")


def _other_weights(folder: Path) -> None:
    config = load_config(folder / "copy")
    wider = dataclasses.replace(config.codebook, width=4)
    save_config(folder / "copy", dataclasses.replace(config, codebook=wider), "1")


def _no_config(folder: Path) -> None:
    (folder / "copy" / "config.json").write_text("{")


def _nothing(_: Path) -> None:
    pass


@pytest.mark.parametrize(
    ("prepare", "arguments", "words"),
    [
        (
            _nothing,
            "train gues-quik --out new",
            "there is no preset 'gues-quik'; did you mean 'guess-quick'?",
        ),
        (_nothing, "train toy --out copy", "copy must be empty or not exist yet"),
        (_nothing, "train toy --out bars.png", "bars.png must be a folder to write a run to"),
        (_nothing, "train toy --out copy --resume", "copy holds a run with model.levels = (4, 8)"),
        (_nothing, "train toy --out new --seed -1", "train.seed must be in 0"),
        (
            _nothing,
            "train toy --out new --model.c-in 3 --train.steps 1",
            "model.c_in must be 1",
        ),
        (_nothing, "predict copy bars.png --k 0 --out new", "`k` must be at least 1, got 0"),
        (_nothing, "predict copy bars.png --coverage 0.9", "was not calibrated for it"),
        (_nothing, "predict copy", "`images` must name at least one image file, got none"),
        (_nothing, "predict copy none.png", "there is no image file none.png"),
        (_text, "predict copy corrupt.png --out new", "corrupt.png must be an image file that can"),
        (
            _nothing,
            "predict gess-exact bars.png",
            "no bundled model and no run folder 'gess-exact'; did you mean 'guess-exact'?",
        ),
        (_no_weights, "predict copy bars.png", "copy has no weights.safetensors: train it first"),
        (_no_weights, "evaluate copy", "copy has no weights.safetensors: train it first"),
        (_no_weights, "figure copy", "copy has no weights.safetensors: train it first"),
        (_no_weights, "export copy new", "copy has no weights.safetensors: train it first"),
        (_truncated, "evaluate copy", "it is truncated or damaged"),
        (_tampered, "evaluate copy --json", "does not hold what was saved"),
        (_other_weights, "evaluate copy", "holds the weights of another configuration"),
        (_no_config, "evaluate copy", "config.json must be JSON"),
        (_nothing, "evaluate copy --inputs 0", "`inputs` must be in 1..1000000000, got 0"),
        (_nothing, f"evaluate copy --inputs {10**20}", "`inputs` must be in 1..1000000000, got 1"),
        (_nothing, f"evaluate copy --seed {10**20}", "`seed` must be in 0..2^63-1, got 1"),
        (_nothing, f"figure copy --inputs 2 --seed {10**20}", "`seed` must be in 0..2^63-1, got"),
        (_nothing, f"calibrate copy new --inputs {10**20}", "`inputs` must be in 1..1000000000"),
        (_nothing, f"calibrate copy new --seed {10**20}", "`seed` must be in 0..2^63-1, got 1"),
        (_nothing, f"compare copy copy --seed {10**20}", "needs at least two different models"),
        (_nothing, "evaluate copy --k 0", "`k` must be in 1..6"),
        (_nothing, "evaluate bars.png", "no bundled model and no run folder 'bars.png'"),
        (_nothing, "figure nowhere", "no bundled model and no run folder 'nowhere'"),
        (_nothing, "export copy copy", "copy must be empty or not exist yet"),
    ],
)
def test_bad_input_is_one_sentence_exit_2_and_nothing_written(
    mue, folder, image, prepare, arguments, words
):
    assert folder.parent == image.parent
    prepare(folder.parent)
    before = tree(folder.parent)
    said = mue(*arguments.split())
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("mue: ")
    assert words in said.err
    assert said.err.count("\n") == 1, said.err
    assert tree(folder.parent) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("train toy --out new --train.lr -1", "train.lr must be positive, got -1.0"),
        ("train toy --out new --train.lr fast", "--train.lr"),
        ("train toy --out new --train.step 5", "--train.step, 5; did you mean --train.steps?"),
        ("train toy --out new --train.batch 99999999999999999999", "train.batch must be in 1.."),
        ("train toy", "--out"),
        ("train", "presets: auto (chosen from --data), guess, guess-exact, guess-quick, lidc, "),
        ("paint copy", "paint"),
        ("predict copy bars.png --k many", "--k"),
    ],
)
def test_arguments_that_make_no_sense_exit_2_and_nothing_is_written(
    mue, folder, image, arguments, words
):
    assert folder.parent == image.parent
    before = tree(folder.parent)
    said = mue(*arguments.split())
    assert (said.code, said.out) == (2, "")
    assert words in said.err
    assert "Traceback" not in said.err
    assert arguments == "train" or said.err.count("\n") == 1, said.err
    assert tree(folder.parent) == before


def test_a_folder_that_cannot_be_written_to_is_named(mue, folder):
    (folder.parent / "file").write_text("in the way")
    said = mue("evaluate", "copy", "--inputs", 2, "--out", "file/below")
    assert said.code == 2
    assert said.err == "mue: file/below must be a folder to write to, and file is a file\n"


@pytest.mark.parametrize("name", ["a[/b]", "[v2]", "$x^$", "a\nb", "\x1b[1m"])
def test_a_path_is_printed_whatever_it_holds(mue, folder, name):
    run = folder.parent / name
    run.parent.mkdir(exist_ok=True)
    folder.rename(run)
    shown = printable(str(run))
    said = mue("evaluate", run, "--inputs", 2)
    assert said.code == 0
    assert f"{shown}/report-test.json" in said.out
    said.out.encode()
    said = mue("compare", run, "guess-exact", "--inputs", 2, "--out", f"{run}/compared")
    assert said.code == 2  # of two data sets; the name is printed by the error
    said.err.encode()
    assert mue("figure", run, "--inputs", 4).code == 0
    said = mue("evaluate", f"{run}-none")
    assert f"{shown}-none" in said.err


def test_a_run_whose_name_is_not_utf8_is_refused_in_a_sentence(mue, folder):
    run = folder.parent / os.fsdecode(b"\xff\xfe")
    folder.rename(run)
    for arguments in (("evaluate", run), ("train", "toy", "--out", run), ("export", "guess", run)):
        said = mue(*arguments)
        assert (said.code, said.err.count("\n")) == (2, 1)
        assert r"\xff\xfe" in said.err


def other_weights(run: Path) -> None:
    """As after a training with another seed."""
    tensors = load_weights(run)
    save_tensors(run / "weights.safetensors", {n: t * 1.5 for n, t in tensors.items()})


def test_a_report_in_a_named_folder_is_not_replaced_by_that_of_another(mue, folder):
    """Whatever the path of a model looks like: its weights, the data and the settings count."""
    shutil.copytree(folder, folder.parent / "elsewhere" / "copy")
    asked = "evaluate", "--inputs", 2, "--out", "reports"
    for run in ("copy", "./copy", "elsewhere/copy"):  # the same weights
        assert mue(*asked, run).code == 0
    for more, what in ((("--seed", 1), "seed"), (("--k", 3), "k")):
        said = mue(*asked, "copy", *more)
        assert (said.code, said.out) == (2, "")
        assert (
            f"report-test.json is a report of another evaluation, by its {what}; remove it, or take"
            in said.err
        )
    other_weights(folder)
    said = mue(*asked, "copy")
    assert (said.code, said.out) == (2, "")
    assert "report-test.json is a report of another evaluation, by its model; remove" in said.err


def test_a_run_that_was_trained_again_gets_a_new_report(mue, folder):
    before = json.loads(mue("evaluate", "copy", "--inputs", 20, "--json").out)
    other_weights(folder)
    after = json.loads(mue("evaluate", "copy", "--inputs", 20, "--json").out)
    assert after["identity"]["model"] != before["identity"]["model"]
    assert after["weights"] != before["weights"]
    assert json.loads((folder / "report-test.json").read_text()) == after


def test_two_spellings_of_a_run_are_one_model(mue, folder):
    said = mue("compare", "copy", "./copy", folder)
    assert said.code == 2
    assert "a comparison needs at least two different models, got 1" in said.err


def test_a_report_nested_too_deeply_is_no_report_of_another(mue, folder):
    (folder / "report-test.json").write_text("[" * 100_000)
    assert mue("evaluate", "copy", "--inputs", 2).code == 0
    assert json.loads((folder / "report-test.json").read_text())["model"] == "copy"


def test_libraries_say_nothing_on_stderr():
    code = """if True:
        import logging, sys, warnings
        from mue.cli import main
        def noisy(_):
            warnings.warn("of a library")
            logging.getLogger("library").warning("of a library")
            from nibabel import imageglobals
            imageglobals.logger.warning("of a library")
        main._run, sys.argv = noisy, ["mue"]
        main.main()
    """
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stderr == ""


def test_the_version_and_help_are_there_for_the_asking(mue):
    said = mue("--version")
    assert (said.code, said.out) == (0, f"mue {__version__}\n")
    alone = mue()
    assert alone.code == 0
    assert alone.out == mue("--help").out
    assert "evaluate" in alone.out


# --- evaluate -------------------------------------------------------------------------------------


def test_an_evaluation_in_json_is_json_alone(mue, folder):
    said = mue("evaluate", "copy", "--inputs", 30, "--seed", 3, "--json", "--device", "cpu")
    assert (said.code, said.err) == (0, "")
    report = json.loads(said.out)
    assert report["mode_tv"].keys() >= {"mean", "p95"}
    assert 0 <= report["mode_tv"]["mean"] <= report["mode_tv"]["p95"] <= 1
    assert (report["model"], report["method"]) == ("copy", "exact")
    assert (report["inputs"], report["seed"], report["k"]) == (30, 3, 6)
    assert {(row["group"], row["mode"]) for row in report["table"]} == {
        (group, mode) for group in ("dim", "bright") for mode in (1, 2)
    }
    assert json.loads((folder / "report-test.json").read_text()) == report


def test_the_report_of_a_bundled_model_goes_into_the_folder_of_runs(mue, tmp_path):
    said = mue("evaluate", "guess", "--inputs", 4, "--k", 4, "--json", "--device", "cpu")
    report = json.loads(said.out)
    assert (report["model"], report["method"], report["k"]) == ("guess", "vq", 4)
    assert (
        json.loads((tmp_path / "runs" / "bundled" / "guess" / "report-test.json").read_text())
        == report
    )


# --- predict --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("folder")
def test_a_prediction_in_json_is_json_alone(mue, image):
    said = mue(
        "predict", "copy", image, image, "--k", 3, "--by", "code", "--json", "--device", "cpu"
    )
    assert (said.code, said.err) == (0, "")
    one, two = json.loads(said.out)
    assert one == two
    assert one["image"] == str(image)
    assert [answer["rank"] for answer in one["modes"]] == [1, 2, 3]
    total = sum(answer["prob"] for answer in one["modes"]) + one["rest"]
    assert total == pytest.approx(1, abs=1e-5)


@pytest.mark.usefixtures("folder", "image")
def test_without_k_a_model_of_few_codes_answers_with_all_it_has(mue):
    said = mue("predict", "copy", "bars.png", "--by", "code", "--json")  # 6 codes
    assert said.code == 0
    assert len(json.loads(said.out)[0]["modes"]) == 6


# --- figure and export ----------------------------------------------------------------------------


@pytest.mark.usefixtures("folder")
def test_an_exported_model_can_be_asked(mue, image):
    assert mue("export", "copy", "new").out == "exported new\n"
    said = mue("predict", "new", image, "--k", 1, "--json")
    assert json.loads(said.out)[0]["modes"][0]["rank"] == 1


# --- signals --------------------------------------------------------------------------------------


def test_figures_that_cannot_be_written_are_refused_before_anything_is_computed(
    mue, folder, monkeypatch
):
    computed = []
    for module in ("evaluate", "figure"):
        monkeypatch.setattr(f"mue.commands.{module}.evaluate_modes", computed.append)
    shutil.rmtree(folder / "figures", ignore_errors=True)
    (folder / "figures").symlink_to("nowhere")
    for verb in ("evaluate", "figure"):
        said = mue(verb, folder, "--inputs", 2)
        assert said.code == 2
        assert "figures must be a folder to write to, and it is a device or a bro" in said.err
    assert computed == []


def test_names_that_are_not_utf8_are_refused_for_every_new_folder(mue, folder, tmp_path):
    before = tree(tmp_path)
    for words in (("data", "new"), ("export", folder)):
        said = mue(*words, "a\udcff")
        assert said.code == 2
        assert "a\\xff must be a folder to write to, with a name in UTF-8" in said.err
    assert tree(tmp_path) == before
