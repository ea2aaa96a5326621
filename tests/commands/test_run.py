import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from mue.commands import run
from mue.commands.train import train
from mue.data.synthetic.toy import Bars
from mue.evaluation.known_modes import evaluate_modes
from mue.inference.load import load
from mue.training.checkpoint import RunError, load_config, load_state_, save_config
from mue.training.log import read_log
from mue.training.loop import Training

CPU = torch.device("cpu")
CONFIG, WEIGHTS, STATE, LOG = "config.json", "weights.safetensors", "state.safetensors", "log.jsonl"
KEPT = {CONFIG, WEIGHTS, STATE, LOG}


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def steps(folder: Path) -> list[int]:
    return [record.step for record in read_log(folder)]


def resumed(folder: Path) -> Training:
    """The training that a folder would go on with."""
    training = Training(load_config(folder), CPU)
    load_state_(folder, training)
    return training


def same(one: Path, two: Path) -> bool:
    """Whether two runs ended alike, to the last bit: the weights' file, and all that is trained."""
    if (one / WEIGHTS).read_bytes() != (two / WEIGHTS).read_bytes():
        return False
    a, b = (resumed(folder) for folder in (one, two))
    states = ([*t.learner.state_dict().values(), *t.average] for t in (a, b))
    slots = (_slots(t) for t in (a, b))
    alike = itertools.chain(zip(*states, strict=True), zip(*slots, strict=True))
    return a.step == b.step and all(torch.equal(x, y) for x, y in alike)


def _slots(training: Training) -> list[torch.Tensor]:
    return list(training.update.slots.values())


class Killed(BaseException):
    """The end of a process that cannot say goodbye."""


# --- export ---------------------------------------------------------------------------------------


def test_a_model_in_half_precision_answers_almost_alike(folder, tmp_path):
    out = run.export(folder, tmp_path / "new" / "half")
    assert set(files(out)) == {"config.json", "weights.safetensors", "log.jsonl"}
    torch.manual_seed(0)
    x = torch.rand(4, 1, 8, 8)
    whole, half = (load(f, device="cpu").propose(x, k=6) for f in (folder, out))
    torch.testing.assert_close(half.prob, whole.prob, atol=2e-3, rtol=0)
    for row, code in zip(half.y, half.code, strict=True):
        assert len(set(code.tolist())) == 6
        assert row.isfinite().all()


def test_a_model_exported_whole_is_the_same_to_the_bit(folder, tmp_path):
    out = run.export(folder, tmp_path / "whole", half=False)
    for name in ("config.json", "weights.safetensors"):
        assert (out / name).read_bytes() == (folder / name).read_bytes()


def test_exporting_does_not_overwrite(folder):
    before = files(folder)
    with pytest.raises(RunError, match="must be empty or not exist yet, and it holds files"):
        run.export(folder, folder)
    assert files(folder) == before


def test_weights_of_another_configuration_are_not_exported(tiny, folder, tmp_path):
    save_config(folder, tiny("exact", codebook={"size": 7}), "1")
    with pytest.raises(RunError, match="holds weights of another configuration"):
        run.export(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


# --- predicting -----------------------------------------------------------------------------------


@pytest.fixture
def images(tmp_path) -> list[Path]:
    paths = [tmp_path / "images" / f"{name}.png" for name in ("one", "two")]
    paths[0].parent.mkdir()
    for i, path in enumerate(paths):
        x = Bars(seed=i).case(torch.tensor([0])).x[0, 0]
        Image.fromarray((x * 255).round().byte().numpy()).save(path)
    return paths


def test_image_files_are_answered_as_arrays_are(trained, images, tmp_path):
    out = tmp_path / "out"
    found = run.predict(trained, images, k=3, out=out, device="cpu")
    predictor = load(trained, device="cpu")
    for prediction, path in zip(found, images, strict=True):
        with Image.open(path) as file:
            h = predictor.propose(np.array(file), k=3)
        assert prediction.image == path
        torch.testing.assert_close(prediction.hypotheses.y, h.y)
        summary = prediction.summary()
        assert [a["rank"] for a in summary["answers"]] == [1, 2, 3]
        assert [a["code"] for a in summary["answers"]] == h.code[0].tolist()
        assert [a["prob"] for a in summary["answers"]] == pytest.approx(h.prob[0].tolist())
        assert summary["rest"] == pytest.approx(h.rest.item(), abs=1e-6)
        assert summary["entropy"] == pytest.approx(h.entropy().item(), abs=1e-5)
        for j in range(3):
            with Image.open(out / f"{path.stem}-{j + 1}.png") as file:
                y = torch.from_numpy(np.array(file)).float() / 255
            torch.testing.assert_close(y, h.y[0, j, 0], atol=0.51 / 255, rtol=0)
    names = {f"{p.stem}-{part}.png" for p in images for part in ("1", "2", "3", "answers")}
    assert set(files(out)) == names


def test_merged_answers_keep_their_whole_probability(trained, images):
    plain = run.predict(trained, images[:1], k=6, device="cpu")[0].hypotheses
    merged = run.predict(trained, images[:1], k=6, merge=True, device="cpu")[0].hypotheses
    assert torch.equal(merged.prob, plain.merge().prob)
    torch.testing.assert_close(merged.prob.sum(), plain.prob.sum())


def test_nothing_is_written_when_one_of_the_images_is_bad(trained, images, tmp_path):
    images[1].write_bytes(b"no picture")
    with pytest.raises(ValueError, match=r"two\.png must be an image file"):
        run.predict(trained, images, k=2, out=tmp_path / "out", device="cpu")
    assert not (tmp_path / "out").exists()


def test_images_of_one_name_cannot_share_a_folder(trained, images, tmp_path):
    with pytest.raises(ValueError, match="`images` must have different names"):
        run.predict(trained, [images[0], images[0]], k=2, out=tmp_path / "out", device="cpu")
    assert not (tmp_path / "out").exists()


def test_no_images_are_refused(trained):
    with pytest.raises(ValueError, match="`images` must name at least one image file, got none"):
        run.predict(trained, [])


def test_answers_do_not_overwrite_what_is_there(trained, images):
    """The first answer to `one` would be `one-1`, which is somebody's picture."""
    images[1].rename(images[1].with_name("one-1.png"))
    before = files(images[0].parent)
    with pytest.raises(ValueError, match="must be empty or not exist yet"):
        run.predict(trained, images[:1], k=2, out=images[0].parent, device="cpu")
    assert files(images[0].parent) == before


# --- figures --------------------------------------------------------------------------------------


def test_the_figures_of_a_run_go_into_its_folder(folder):
    drawn = run.figure(folder, device="cpu")
    names = ("modes", "top-4", "top-6", "history")
    assert drawn == [folder / "figures" / f"{name}.png" for name in names]
    for path in drawn:
        with Image.open(path) as file:
            file.verify()


def test_each_figure_has_a_file_of_its_own_however_few_the_codes(tiny, tmp_path):
    folder = train(tiny("exact", codebook={"size": 3}, steps=1), tmp_path / "run")
    judged = evaluate_modes(load(folder, device="cpu"), inputs=9)
    drawn = run.figure(folder, out=tmp_path / "figures", evaluation=judged, device="cpu")
    assert len(drawn) == len(set(drawn))
    assert {path.name for path in drawn} == set(files(tmp_path / "figures"))


# --- the demonstration ----------------------------------------------------------------------------


def test_the_demonstration_judges_both_bundled_models(tmp_path):
    told: list[tuple[str, int]] = []
    reports = run.demo(tmp_path, inputs=8, watch=lambda model, n: told.append((model, n)))
    assert told == [("guess", 8), ("guess-exact", 8)]
    assert json.loads((tmp_path / "report.json").read_text()) == reports
    for model, method in (("guess", "vq"), ("guess-exact", "exact")):
        assert reports[model]["method"] == method
        assert reports[model]["mode_tv"]["mean"] < 0.1
        for name in ("modes", "top-4", "top-6"):
            assert (tmp_path / "figures" / model / f"{name}.png").is_file()


# --- baselines ------------------------------------------------------------------------------------


def test_the_figures_of_a_probabilistic_u_net_show_samples_and_densities(baselines, tmp_path):
    judged = evaluate_modes(load(baselines["probunet"], device="cpu"), inputs=9)
    drawn = run.figure(baselines["probunet"], out=tmp_path, evaluation=judged, device="cpu")
    names = ("modes", "densities", "samples-4", "samples-6", "history")
    assert drawn == [tmp_path / f"{name}.png" for name in names]
    for path in drawn:
        with Image.open(path) as file:
            file.verify()


@pytest.mark.parametrize(("name", "kind"), [("dropout", "samples"), ("ensemble", "answers")])
def test_the_figures_of_other_baselines_pretend_no_ranking(baselines, tmp_path, name, kind):
    judged = evaluate_modes(load(baselines[name], device="cpu"), inputs=9)
    drawn = run.figure(baselines[name], out=tmp_path, evaluation=judged, device="cpu")
    names = ["modes.png", f"{kind}-4.png", f"{kind}-6.png", "history.png"]
    assert [path.name for path in drawn] == names
