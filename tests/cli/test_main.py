"""Commands, called as the shell calls them, in this process."""

import dataclasses
import errno
import functools
import inspect
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from mue.cli import main as cli
from mue.cli.commands import COMMANDS
from mue.commands.demo import DEMO, DemoResult, demo
from mue.commands.figure import FigureResult, figure
from mue.commands.models import load_models
from mue.commands.report import report
from mue.commands.train import TrainResult
from mue.config.presets import preset
from mue.data.synthetic.toy import Bars
from mue.errors import printable
from mue.evaluation.known import ModeEvaluation
from mue.runs.folder import load_config, save_config
from mue.runs.weights import load_weights, save_tensors
from mue.version import __version__

SMALL = """--model.levels 4 8 --model.tail 8 --model.widths 4 --train.steps 2
    --train.batch 8 --compute.device cpu"""


@pytest.fixture
def image(tmp_path) -> Path:
    x = Bars().case(torch.tensor([0])).x[0, 0]
    path = tmp_path / "bars.png"
    Image.fromarray((x * 255).round().byte().numpy()).save(path)
    return path


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


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: tried 9 bytes"),
        RuntimeError("unable to mmap 28856 bytes from file <a>: Cannot allocate memory (12)"),
        RuntimeError("could not create a primitive"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
    ],
)
@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_memory_that_runs_out_is_one_sentence_of_every_command(mue, monkeypatch, command, error):
    def run(*_):
        raise error

    monkeypatch.setattr(cli, "train_command" if command == "train" else "_call", run)
    said = mue(*command.split())
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "memory ran out: name smaller inputs or fewer of them" in said.err


def test_other_errors_of_the_runtime_keep_their_traceback(mue, monkeypatch):
    def run(*_):
        raise RuntimeError("an illegal memory access")

    monkeypatch.setattr(cli, "_call", run)
    with pytest.raises(RuntimeError, match="illegal"):
        mue("demo")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has such a device")
@pytest.mark.parametrize("arguments", ["evaluate copy --inputs 2 --json", "--version", "--help"])
@pytest.mark.usefixtures("folder")
def test_a_full_standard_output_is_named(tmp_path, arguments):
    command = [sys.executable, "-m", "mue", *arguments.split()]
    with Path("/dev/full").open("w") as full:
        said = subprocess.run(command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True)
    assert said.returncode == 2
    assert said.stderr.endswith("mue: standard output: No space left on device\n")
    assert "Traceback" not in said.stderr
    assert "Exception" not in said.stderr


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


@pytest.mark.parametrize("arguments", ["--debug evaluate nowhere", "evaluate nowhere --debug"])
def test_with_debug_a_traceback_comes_before_the_sentence(mue, arguments):
    said = mue(*arguments.split())
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("Traceback (most recent call last):")
    assert said.err.splitlines()[-1].startswith("mue: there is no bundled model")


@pytest.mark.parametrize("error", [ValueError("too many values"), OSError("no number"), KeyError()])
def test_a_defect_is_not_made_a_sentence(mue, monkeypatch, error):
    """What no user can correct keeps its traceback, with which Python exits with 1."""

    @functools.wraps(figure)
    def broken(*_, **__):
        raise error

    monkeypatch.setitem(COMMANDS, "figure", broken)
    with pytest.raises(type(error)):
        mue("figure", "guess")


def test_the_version_and_help_are_there_for_the_asking(mue):
    said = mue("--version")
    assert (said.code, said.out) == (0, f"mue {__version__}\n")
    alone = mue()
    assert alone.code == 0
    assert alone.out == mue("--help").out
    assert "evaluate" in alone.out


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "train"])
def test_a_command_has_the_parameters_of_its_function(mue, name):
    said = mue(*name.split(), "--help")
    assert said.code == 0
    verb = COMMANDS[name]
    for parameter in inspect.signature(verb).parameters.values():
        positional = (
            parameter.kind is parameter.POSITIONAL_OR_KEYWORD
            and parameter.default is parameter.empty
        )
        flag = "--" + parameter.name.replace("_", "-")
        shown = parameter.name.upper().removesuffix("S") if positional else flag
        assert (shown in said.out) == (parameter.name != "progress")
    assert "--json" in said.out or name not in ("evaluate", "predict", "compare")


# --- train ----------------------------------------------------------------------------------------


def test_training_says_where_it_went(mue, tmp_path):
    said = mue("train", "toy", "--out", "run", "--seed", 5, "--train.lr", "3e-4", *SMALL.split())
    assert said.code == 0
    assert "trained  run\n" in said.out
    assert "figure   run/figures/history.png\n" in said.out
    assert "mue evaluate run" in said.out
    config, default = load_config(tmp_path / "run"), preset("toy")
    assert (config.train.seed, config.train.lr, config.train.steps) == (5, 3e-4, 2)
    assert (config.model.levels, config.codebook) == ((4, 8), default.codebook)
    mentioned = ("prior", "reconstruction", "codes", "2/2", "best", "nll", "ece")  # the bars
    assert all(word in said.err for word in mentioned)


def test_a_training_ends_with_its_health_and_what_to_do(mue):
    said = mue("train", "toy", "--out", "run", "--codebook.size", 1, *SMALL.split())
    assert "health   found: one code (codes in use: 1; mode_tv 0." in said.out
    assert "Train again with another --train.seed" in said.out
    assert "codes    0 100%\nfigure   run/figures/health.png\n" in said.out
    assert Path("run/figures/health.png").exists()


@pytest.fixture
def asked(monkeypatch) -> list:
    """The configurations that training was asked for, instead of training."""
    found = []

    def train(config, out, **_):
        found.append(config)
        return TrainResult(Path(out))

    monkeypatch.setattr("mue.commands.train.train", train)
    return found


@pytest.mark.parametrize(
    "spelled", ["--preset-schedule paper", "--preset-schedule=paper", "--preset_schedule paper"]
)
def test_the_papers_schedule_can_be_had(mue, asked, spelled):
    assert mue("train", "guess", "--out", "new", *spelled.split()).code == 0
    (config,) = asked
    assert config == preset("guess", "paper")
    assert (config.train.steps, config.train.lr, config.train.batch) == (150_000, 1e-4, 256)
    assert config != preset("guess")


def test_the_papers_schedule_can_be_overridden(mue, asked):
    mue("train", "guess", "--out", "a", "--preset-schedule", "paper", "--train.steps", 7)
    mue("train", "guess", "--out", "b", "--preset-schedule", "short")
    mue("train", "guess", "--out", "paper")
    paper = preset("guess", "paper")
    seven = dataclasses.replace(paper, train=dataclasses.replace(paper.train, steps=7))
    assert asked == [seven, preset("guess"), preset("guess")]


def test_every_part_of_a_configuration_can_be_overridden(mue, asked):
    overrides = """--method vq --codebook.size 64 --model.tail --train.milestones 0.5
        --train.factors 0.1 --compute.no-channels-last --objective.commitment 0.5"""
    assert mue("train", "toy", "--out", "new", *overrides.split()).code == 0
    (config,) = asked
    assert (config.method, config.codebook.size, config.model.tail) == ("vq", 64, ())
    assert (config.train.milestones, config.train.factors) == ((0.5,), (0.1,))
    assert not config.compute.channels_last
    assert config.objective.commitment == 0.5


def test_help_names_presets_and_values(mue):
    said = mue("train", "--help")
    assert said.code == 0
    assert "guess-quick" in said.out
    said = mue("train", "toy", "--help")
    assert said.code == 0
    assert "--train.lr" in said.out
    said = mue("--help")
    assert said.code == 0
    for command in [
        "demo",
        "data",
        "train",
        "evaluate",
        "predict",
        "figure",
        "compare",
        "calibrate",
        "export",
    ]:
        assert command in said.out


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


def test_an_evaluation_for_people_is_a_table(mue, folder, tmp_path):
    said = mue("evaluate", "copy", "--inputs", 30, "--out", "elsewhere")
    assert said.code == 0
    for word in ("dim", "bright", "predicted", "true", "mode_tv", "rest", "in use"):
        assert word in said.out
    assert "report   elsewhere/report-test.json\n" in said.out
    assert (tmp_path / "elsewhere" / "report-test.json").is_file()
    assert not (folder / "report-test.json").exists()


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
def test_a_prediction_for_people_shows_the_rest(mue, tmp_path):
    said = mue("predict", "copy", "bars.png", "--k", 2, "--by", "code", "--out", "answers")
    assert said.code == 0
    assert "bars.png" in said.out
    assert "rest" in said.out
    assert "answers  answers\n" in said.out
    names = {p.name for p in (tmp_path / "answers").iterdir()}
    about = {"mue-predict.json", "mue-predict"}
    assert names == {"bars-1.png", "bars-2.png", "bars-answers.png"} | about


@pytest.mark.usefixtures("folder", "image")
def test_a_folder_that_nothing_was_written_to_is_not_named(mue, tmp_path):
    options = ["--format", "dicom-seg", "--skip-bad"]
    said = mue("predict", "copy", "bars.png", "--out", "answers", *options)
    assert said.code == 0
    assert said.err.splitlines()[-1].startswith("left out bars.png must be DICOM")
    assert said.out == "0 images answered, 0 were before, 1 left out\n"
    assert not (tmp_path / "answers").exists()


@pytest.mark.usefixtures("folder", "image")
def test_without_k_a_model_of_few_codes_answers_with_all_it_has(mue):
    said = mue("predict", "copy", "bars.png", "--by", "code", "--json")  # 6 codes
    assert said.code == 0
    assert len(json.loads(said.out)[0]["modes"]) == 6


# --- figure and export ----------------------------------------------------------------------------


def test_figures_are_named_where_they_are(mue, monkeypatch):
    calls = []

    @functools.wraps(figure)
    def plotted(models, **options):
        calls.append((models, options["out"]))
        return FigureResult((Path("plots/modes.png"), Path("plots/answers.png")))

    monkeypatch.setitem(COMMANDS, "figure", plotted)
    said = mue("figure", "guess", "--out", "plots")
    assert (said.code, said.out) == (0, "figure   plots/modes.png\nfigure   plots/answers.png\n")
    assert calls == [(("guess",), "plots")]


@pytest.mark.usefixtures("folder")
def test_an_exported_model_can_be_asked(mue, image):
    assert mue("export", "copy", "new").out == "exported new\n"
    said = mue("predict", "new", image, "--k", 1, "--json")
    assert json.loads(said.out)[0]["modes"][0]["rank"] == 1


# --- demo -----------------------------------------------------------------------------------------


def test_the_demonstration_prints_both_tables_and_says_where_everything_is(mue, monkeypatch):
    judged = ModeEvaluation(
        predicted=torch.tensor([[0.6, 0.4]]),
        true=torch.tensor([[0.7, 0.3]]),
        rest=torch.zeros(1),
        group=("A",),
        modes=torch.tensor([2]),
        codes=2,
        k=2,
        split="test",
        seed=0,
    )

    @functools.wraps(demo)
    def evaluated(out, *, progress, **_):
        out = Path(out)
        models = load_models(DEMO, device="cpu")
        for model in models:
            progress(model.name, 1000, 1000)
        files = [out / "figures" / model / "modes.png" for model in DEMO]
        reports = {model.name: report(model, judged) for model in models}
        return DemoResult(reports, (out / "report.json", *files))

    monkeypatch.setitem(COMMANDS, "demo", evaluated)
    said = mue("demo", "--out", "shown")
    assert said.code == 0
    assert said.out.count("mode_tv  mean 0.1000") == 2
    for line in ("report   shown/report.json", "figure   shown/figures/guess-exact/modes.png"):
        assert line in said.out.splitlines()
    assert "1000/1000" in said.err


# --- validation -----------------------------------------------------------------------------------


SHORT = "--train.steps 4 --train.batch 8 --train.validate-inputs 8 --compute.device cpu"


def test_a_training_shows_its_validations_and_offers_calibration(mue):
    said = mue(*f"train toy --out run --train.validate-every 2 --train.log-every 1 {SHORT}".split())
    assert said.code == 0, said.err
    assert "the best by validation" in said.err
    assert "inputs not trained on: mue calibrate run run-calibrated\n" in said.out


def test_calibration_is_not_offered_where_it_is_done_or_cannot_be(mue):
    done = mue(*f"train toy --out done --train.calibrate {SHORT}".split())
    assert done.code == 0, done.err
    assert "calibrated on val: temperature" in done.err
    vector = mue(*f"train vector --out vector {SHORT}".split())
    assert "mue calibrate" not in done.out + vector.out


def test_the_progress_of_a_training_has_the_last_validation_and_the_best(mue):
    said = mue(*f"train toy --out run --train.validate-every 2 --train.log-every 1 {SHORT}".split())
    assert re.search(r"mode_tv 0\.\d{4} \(best 0\.\d{4} at [24]\)", said.err), said.err


# --- signals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_ended_by_a_signal_leaves_nothing(mue, tmp_path, monkeypatch, number):
    def ended(*_):
        assert list(tmp_path.iterdir()) != []
        signal.raise_signal(number)

    def died(*_):
        raise AssertionError("it would have died, and its files been left")

    monkeypatch.setattr("mue.commands.new._save", ended)
    before = signal.signal(number, died)
    try:
        said = mue("data", "new", "out", "--cases", 20)
        assert signal.getsignal(number) is died
    finally:
        signal.signal(number, before)
    assert (said.code, said.err) == (130, "mue: interrupted\n")
    assert list(tmp_path.iterdir()) == []


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
