"""Commands on slices, called as the shell calls them, in this process."""

import errno
import io
import json
import os
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mue.commands.train import TrainResult, train
from mue.config.presets import preset
from mue.data.prepared import write as prepared
from mue.data.prepared.open import open_prepared
from mue.data.prepared.write import write_prepared
from mue.runs.folder import load_config
from mue.training.checkpoint import save_state

TINY = """--model.levels 4 8 --model.tail 8 --model.widths 4 --model.code-level 3 --codebook.size 4
    --train.steps 6 --train.batch 4 --train.save-every 3 --compute.device cpu"""


def tree(folder: Path) -> dict[str, bytes | None]:
    found = folder.rglob("*")
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in found}


def refused(said, *words: str) -> bool:
    """Whether a command said one sentence on stderr, nothing else, and exited with 2."""
    assert (said.code, said.out) == (2, ""), said
    assert said.err.startswith("mue: ")
    assert said.err.count("\n") == 1, said.err
    assert all(word in said.err for word in words), said.err
    return True


# --- import ---------------------------------------------------------------------------------------


@pytest.fixture
def source(patients, lesion, tmp_path) -> Path:
    """Three patients in the slices layout, one of each split, each with two slices."""
    folder = tmp_path / "source"
    for split in ("train", "val", "test"):
        for k in (2, 10):
            item = lesion(patients(split, 1)[0], 1, k)
            top = folder / item.patient / item.case
            layers = {"images": item.image[0]}
            layers |= {f"mask-{j}": 255 * m for j, m in enumerate(item.masks)}
            for name, pixels in layers.items():
                (top / name).mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels).save(top / name / f"{item.slice}.png")
    return folder


def nodule(source: Path) -> Path:
    return sorted(source.glob("*/*"))[0]


def test_an_import_says_what_it_found(mue, source, tmp_path, lesion):
    said = mue("data", "import", "lidc", "source", "--out", "out")
    assert said.code == 0, said
    assert "out: 3 patients, 3 cases, 6 slices\n" in said.out
    assert "slices that so many annotated" in said.out
    assert "prepared out\n" in said.out
    assert "left out" not in said.out
    found = open_prepared(tmp_path / "out", verify=True)
    assert (len(found.rows), found.sizes, found.raters) == (6, [(16, 16)], 4)
    assert found.origin == {
        "collection": "LIDC-IDRI",
        "form": "slices",
        "sources": ["source"],
        "size": None,
        "window": None,
    }
    for i, row in enumerate(found.rows):
        item = lesion(row.patient, 1, int(row.slice.removeprefix("slice-")))
        assert np.array_equal(found.image(i), item.image)
    assert [row.slice for row in found.rows] == 3 * ["slice-2", "slice-10"]
    assert {path.name for path in source.iterdir()} == {row.patient for row in found.rows}


@pytest.mark.usefixtures("source")
def test_importing_twice_gives_identical_bytes(mue, tmp_path):
    for out in ("a", "b"):
        assert mue("data", "import", "lidc", "source", "--out", out).code == 0
    assert tree(tmp_path / "a") == tree(tmp_path / "b")


def test_an_archive_gives_the_arrays_that_its_folder_gives(mue, source, tmp_path):
    with tarfile.open(tmp_path / "some.tar.gz", "w:gz") as tar:
        for path in sorted(source.rglob("*.png"), reverse=True):
            tar.add(path, str(path.relative_to(source)))
    assert mue("data", "import", "lidc", "source", "--out", "a").code == 0
    assert mue("data", "import", "lidc", "some.tar.gz", "--out", "b").code == 0
    a, b = tree(tmp_path / "a"), tree(tmp_path / "b")
    assert all(a[name] == b[name] for name in ("images.bin", "masks.bin"))


@pytest.mark.usefixtures("source")
def test_crops_are_cut_to_the_size_that_is_asked_for(mue, tmp_path):
    assert mue("data", "import", "lidc", "source", "--out", "out", "--size", 10).code == 0
    assert mue("data", "import", "lidc", "source", "--out", "whole").code == 0
    found, whole = (open_prepared(tmp_path / name) for name in ("out", "whole"))
    for i in range(6):
        assert np.array_equal(found.image(i), whole.image(i)[:, 3:13, 3:13])


def test_slices_of_another_size_are_imported_with_the_others(mue, source, tmp_path):
    for name in ("images", *(f"mask-{j}" for j in range(4))):
        Image.new("L", (20, 12)).save(nodule(source) / name / "slice-11.png")
    assert mue("data", "import", "lidc", "source", "--out", "out").code == 0
    assert open_prepared(tmp_path / "out").sizes == [(12, 20), (16, 16)]


def _mask_less(source: Path) -> str:
    shutil.rmtree(nodule(source) / "mask-3")
    return "has 3 masks; a slice has 4"


def _mask_more(source: Path) -> str:
    shutil.copytree(nodule(source) / "mask-0", nodule(source) / "mask-4")
    return "is one mask more than the 4 of its slice"


def _mask_of_another_size(source: Path) -> str:
    Image.new("L", (9, 9)).save(nodule(source) / "mask-1" / "slice-2.png")
    return "is 9×9 pixels and its image 16×16; they must be the same"


def _truncated(source: Path) -> str:
    path = nodule(source) / "images" / "slice-10.png"
    path.write_bytes(path.read_bytes()[:-30])
    return "is a truncated PNG"


BAD = pytest.mark.parametrize("spoil", [_mask_less, _mask_more, _mask_of_another_size, _truncated])


@BAD
def test_bad_input_is_one_sentence_exit_2_and_no_partial_result(mue, source, tmp_path, spoil):
    words = spoil(source)
    before = tree(tmp_path)
    said = mue("data", "import", "lidc", "source", "--out", "out")
    assert (said.code, said.out) == (2, "")
    (sentence,) = [line for line in said.err.splitlines() if line.startswith("mue: ")]
    assert said.err.endswith(sentence + "\n")
    assert words in sentence
    assert "correct it, or import the rest with --skip-bad" in sentence
    assert tree(tmp_path) == before


@BAD
def test_what_is_bad_can_be_skipped_and_is_listed(mue, source, tmp_path, spoil):
    words = spoil(source)
    said = mue("data", "import", "lidc", "source", "--out", "out", "--skip-bad")
    assert said.code == 0, said
    listed = [line for line in said.err.splitlines() if line.startswith("left out ")]
    assert listed
    assert all(words in line for line in listed)
    found = open_prepared(tmp_path / "out", verify=True)
    assert found.meta.left_out == len(listed)
    assert f"{len(listed)} left out, listed above" in said.out
    slices = len(found.rows)
    assert f"{slices} slices" in said.out
    assert 4 <= slices <= 6
    assert {row.patient for row in found.rows} >= {p.name for p in sorted(source.iterdir())[1:]}


def test_a_path_that_leaves_its_archive_is_refused_by_name(mue, tmp_path):
    with tarfile.open(tmp_path / "evil.tar.gz", "w:gz") as tar:
        info = tarfile.TarInfo("../LIDC-IDRI-0001/nodule-1/images/slice-0.png")
        info.size = 3
        tar.addfile(info, io.BytesIO(b"abc"))
    before = tree(tmp_path)
    for more in ([], ["--skip-bad"]):
        said = mue("data", "import", "lidc", "evil.tar.gz", "--out", "out", *more)
        assert refused(said, "../LIDC-IDRI-0001")
        assert tree(tmp_path) == before


@pytest.mark.usefixtures("source")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("nowhere --out out", "there is no file or folder nowhere to import"),
        ("source --out source", "source must be empty or not exist yet, and it holds files"),
        ("empty --out out", "empty is not LIDC-IDRI in a known form; looked for"),
        ("source --out out --size 0", "`size`, the side of a crop, must be at least 1, got 0"),
        ("source --out out --window -1000 400", "`window` needs Hounsfield units"),
        ("source --out out --window 5 5", "`window` must be two Hounsfield units, the lower one"),
    ],
)
def test_an_import_that_makes_no_sense_is_refused(mue, tmp_path, arguments, words):
    (tmp_path / "empty").mkdir()
    before = tree(tmp_path)
    assert refused(mue("data", "import", "lidc", *arguments.split()), words)
    assert tree(tmp_path) == before


@pytest.mark.usefixtures("source")
def test_a_full_disk_is_one_sentence_and_nothing_is_left(mue, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    before = tree(tmp_path)
    monkeypatch.setattr(prepared, "_write_tables", full)
    said = mue("data", "import", "lidc", "source", "--out", "out")
    assert (said.code, said.out) == (2, "")
    (sentence,) = [line for line in said.err.splitlines() if line.startswith("mue: ")]
    assert sentence.endswith(": No space left on device")
    assert tree(tmp_path) == before


# --- inspect --------------------------------------------------------------------------------------


def test_an_inspection_shows_counts_splits_and_a_sheet(mue, lesions, tmp_path):
    said = mue("data", "inspect", lesions, "--verify", "--out", "sheet.png")
    assert (said.code, said.err) == (0, "")
    assert "10 patients, 20 cases, 40 slices" in said.out
    for word in ("train", "val", "test", "16 x 16", "unknown", open_prepared(lesions).digest):
        assert word in said.out
    assert "sheet    sheet.png\n" in said.out
    with Image.open(tmp_path / "sheet.png") as file:
        file.verify()


def test_a_folder_that_was_altered_is_refused_by_an_inspection(mue, lesions, tmp_path):
    copy = Path(shutil.copytree(lesions, tmp_path / "copy"))
    (copy / "images.bin").write_bytes((copy / "images.bin").read_bytes()[:-1] + b"!")
    assert refused(
        mue("data", "inspect", "copy", "--verify"), "images.bin is not what was imported"
    )
    assert refused(mue("data", "inspect", "nowhere"), "nowhere is not prepared data")
    (copy / "masks.bin").unlink()
    assert refused(mue("data", "inspect", "copy"), "masks.bin", "import it again")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        f"train lidc-exact --data lesions --out out {TINY}",
        "evaluate model --data lesions --out out",
        "calibrate model out --data lesions",
        "compare model model2 --data lesions --out out",
        "data export lesions --out out",
        "figure model --data lesions --out out",
    ],
)
def test_data_with_a_changed_bit_are_not_used(mue, lesions, lesion_model, tmp_path, arguments):
    shutil.copytree(lesions, tmp_path / "lesions")
    for name in ("model", "model2"):
        shutil.copytree(lesion_model, tmp_path / name)
    data = bytearray((tmp_path / "lesions" / "masks.bin").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "lesions" / "masks.bin").write_bytes(data)
    assert refused(mue(*arguments.split()), "masks.bin is not what was imported; import it again")
    assert not (tmp_path / "out").exists()


def test_a_name_that_is_not_utf8_is_named_or_left_out(mue, source):
    name = os.fsdecode(b"a\xff")
    shutil.copytree(nodule(source).parent, source / name)
    arguments = ("data", "import", "lidc", source, "--out", "out")
    said = mue(*arguments)
    assert said.code == 2
    assert r"mue: a\xff/nodule-1/images/slice-2.png: has a name that is not UTF-8" in said.err
    assert not Path("out").exists()
    said = mue(*arguments, "--skip-bad")
    assert said.code == 0, said.err
    assert r"a\xff" in said.out + said.err
    assert len(open_prepared("out").rows) == 6


def test_data_alone_names_what_it_can_do(mue):
    said = mue("data", "--help")
    assert said.code == 0
    assert "import" in said.out
    assert "inspect" in said.out
    assert mue("data").code == 2


# --- train ----------------------------------------------------------------------------------------


def test_slices_are_learned_from_and_a_stopped_run_goes_on_to_the_same_weights(
    mue, lesions, tmp_path, monkeypatch
):
    train = ["train", "lidc-exact", "--data", lesions, *TINY.split()]
    said = mue(*train, "--out", "whole")
    assert said.code == 0, said
    assert f"next: mue evaluate whole --data {lesions} --split val" in said.out
    config, default = load_config(tmp_path / "whole"), preset("lidc-exact")
    assert (config.data, config.objective) == (default.data, default.objective)
    saved = []

    def stopped(folder, training):
        save_state(folder, training)
        saved.append(training.step)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("mue.training.run.save_state", stopped)
        assert mue(*train, "--out", "parts").code == 130
    assert saved == [3]
    assert mue(*train, "--out", "parts", "--resume").code == 0
    one, two = (tmp_path / name / "weights.safetensors" for name in ("whole", "parts"))
    assert one.read_bytes() == two.read_bytes()
    origin = json.loads((tmp_path / "parts" / "config.json").read_text())
    assert origin["data"] == open_prepared(lesions).digest


def test_calibration_is_offered_without_validation_where_patients_were_held_back(
    mue, lesions, patients, lesion
):
    names = patients("train", 2)
    write_prepared([lesion(n, 1, 9) for n in names], Path("one"), {"form": "made up"})
    train = ["train", "lidc-exact", *TINY.split(), "--train.validate-every", 0]
    train += ["--train.no-calibrate", "--train.validate-inputs", 8]
    said = mue(*train, "--data", lesions, "--out", "run")
    assert f"mue calibrate run run-calibrated --data {lesions}\n" in said.out
    alone = mue(*train, "--data", "one", "--out", "alone")
    assert alone.code == 0, alone.err
    assert "next: mue evaluate alone --data one\n" in alone.out  # it has no split val
    assert "there is no health report: no inputs were held back" in alone.err
    assert "mue calibrate" not in alone.out


def test_a_run_is_not_resumed_with_other_data(mue, lesions, lesion_model, tmp_path, source):
    copy = Path(shutil.copytree(lesion_model, tmp_path / "copy"))
    mue("data", "import", "lidc", source, "--out", "other")
    before = tree(tmp_path)
    config = load_config(copy)
    with pytest.raises(
        ValueError, match=r"holds a run with --data = .*, and .* is asked for: resume"
    ):
        train(config, copy, data=tmp_path / "other", resume=True)
    assert tree(tmp_path) == before
    train(config, copy, data=lesions, resume=True)  # nothing is left to do


@pytest.mark.usefixtures("source")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("lidc-exact", "--data must name a folder of prepared slices for this model; make one by"),
        ("lidc", "--data must name a folder of prepared slices for this model; make one by"),
        ("lidc-exact --data nowhere", "nowhere is not prepared data"),
        ("lidc-exact --data source", "source is not prepared data: it must hold meta.json"),
        ("toy --data lesions", "--data must be left out for 'toy', whose inputs are generated"),
        ("lidc-exact --data lesions --data.answers 5", "data.answers must be in 1..4 (the raters"),
        ("lidc-exact --data nobody", "nobody has no slice of a patient of the split 'train'"),
        ("lidc-exact --data lesions --model.c-in 3", "model.c_in must be 1 for this data, whose"),
    ],
)
def test_a_training_that_makes_no_sense_is_refused_before_anything_is_written(
    mue, lesions, patients, lesion, tmp_path, arguments, words
):
    shutil.copytree(lesions, tmp_path / "lesions")
    prepared.write_prepared([lesion(patients("test", 1)[0], 1, 1)], tmp_path / "nobody", {})
    before = tree(tmp_path)
    assert refused(mue("train", *arguments.split(), "--out", "new", *TINY.split()), words)
    assert tree(tmp_path) == before


def test_views_can_be_overridden(mue, monkeypatch):
    asked = []

    def train(config, out, *, data, **_):
        asked.append((config.data.augment, data))
        return TrainResult(Path(out))

    monkeypatch.setattr("mue.commands.train.train", train)
    options = "--data some --data.augment.rotate 15 --data.augment.no-flip --data.answers 2"
    assert mue("train", "lidc-exact", "--out", "new", *options.split()).code == 0
    ((views, data),) = asked
    assert (views.rotate, views.flip, data) == (15, False, Path("some"))
    assert views.scale == preset("lidc-exact").data.augment.scale
    said = mue("train", "lidc-exact", "--out", "new", "--data.augment.rotate", 200)
    assert said.code == 2
    assert "data.augment.rotate must be in [0, 180], got 200.0" in " ".join(said.err.split())


# --- evaluate, figure, calibrate ------------------------------------------------------------------


@pytest.fixture
def copy(lesion_model, tmp_path) -> Path:
    return Path(shutil.copytree(lesion_model, tmp_path / "copy"))


def test_an_evaluation_in_json_is_json_alone(mue, copy, lesions):
    said = mue("evaluate", "copy", "--data", lesions, "--split", "val", "--json", "--device", "cpu")
    assert (said.code, said.err) == (0, "")
    report = json.loads(said.out)
    assert json.loads((copy / "report-val.json").read_text()) == report
    assert (report["model"], report["method"], report["split"]) == ("copy", "exact", "val")
    assert (report["slices"], report["patients"]) == (12, 3)
    assert report["ged"].keys() == {"mean", "std", "low", "high"}
    digest = open_prepared(lesions).digest
    assert report["data"] == report["trained_with"]["data"] == digest
    lines = (copy / "slices-val.csv").read_text().splitlines()
    assert len(lines) == 1 + 12
    assert lines[0].startswith("id,patient,ged,rest,ged_16")


@pytest.mark.usefixtures("copy")
def test_an_evaluation_for_people_is_a_table(mue, lesions, tmp_path):
    said = mue("evaluate", "copy", "--data", lesions, "--out", "elsewhere", "--device", "cpu")
    assert said.code == 0
    for word in ("12 test slices", "3 patients", "ged", "hm_iou_16", "presence ece", "in use"):
        assert word in " ".join(said.out.split())
    assert "report   elsewhere/report-test.json\n" in said.out
    assert "slices   elsewhere/slices-test.csv\n" in said.out
    assert "health   " in said.out
    assert "figure   elsewhere/figures/health-test.png\n" in said.out
    assert {p.name for p in (tmp_path / "elsewhere").iterdir()} == {
        "figures",
        "report-test.json",
        "slices-test.csv",
    }
    assert "12/12" in said.err


@pytest.mark.usefixtures("copy", "folder_of_a_game")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("evaluate copy", "--data must name a folder of prepared slices for this model"),
        ("evaluate copy --data nowhere", "nowhere is not prepared data"),
        ("evaluate game --data lesions", "--data must be left out for 'toy'"),
        ("figure copy", "--data must name a folder of prepared slices for this model"),
        ("figure game copy", "--data must name a folder of prepared slices for this model"),
        ("figure", "`models` must name at least one model, got none"),
        ("figure game --data lesions --out new", "--data must be left out for 'toy'"),
        ("calibrate game new --data lesions", "--data must be left out for 'toy'"),
        ("calibrate copy copy --data lesions", "copy must be empty or not exist yet"),
        ("calibrate copy new --data nowhere", "nowhere is not prepared data"),
    ],
)
def test_what_makes_no_sense_is_one_sentence_exit_2_and_nothing_written(
    mue, lesions, tmp_path, arguments, words
):
    shutil.copytree(lesions, tmp_path / "lesions")
    before = tree(tmp_path)
    assert refused(mue(*arguments.split()), words)
    assert tree(tmp_path) == before


@pytest.fixture
def folder_of_a_game(trained, tmp_path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "game"))


def test_a_calibrated_model_can_be_evaluated_and_plotted_with_the_first(mue, copy, lesions):
    said = mue("calibrate", "copy", "calm", "--data", lesions, "--device", "cpu")
    assert said.code == 0, said
    assert "temperature" in said.out
    assert "energy distance on val" in said.out
    assert "written  calm\n" in said.out
    said = mue("evaluate", "calm", "--data", lesions, "--split", "val", "--json", "--device", "cpu")
    report = json.loads(said.out)
    about = report["trained_with"]["calibration"]
    assert report["ged"]["mean"] == pytest.approx(about["ged_after"], abs=2e-3)
    said = mue("figure", "copy", "calm", "--data", lesions, "--out", "plots", "--device", "cpu")
    assert said.code == 0, said
    lines = said.out.splitlines()
    assert lines[:2] == ["figure   plots/spread.png", "figure   plots/reliability.png"]
    assert {"figure   plots/copy/cases.png", "figure   plots/calm/tree.png"} <= set(lines)
    assert all(Path(line.split()[1]).is_file() for line in lines)
    assert not (copy / "figures" / "spread.png").exists()
