import dataclasses
import itertools
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from mue.cli.main import main
from mue.commands import run
from mue.commands.run import Interrupted
from mue.config.schema import ComputeConfig
from mue.data.synthetic.toy import Bars
from mue.evaluation.known_modes import evaluate_modes
from mue.inference.load import load
from mue.training.checkpoint import RunError, load_config, load_network, load_state_
from mue.training.log import NonFiniteError, read_log
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


# --- the folder -----------------------------------------------------------------------------------


def test_a_run_leaves_all_that_others_need(trained):
    assert KEPT | {"figures/history.png"} <= set(files(trained))
    assert load_network(trained, CPU)
    assert resumed(trained).step == 12
    with Image.open(trained / "figures" / "history.png") as drawn:
        drawn.verify()


def test_the_log_has_every_step_once_and_only_numbers(trained):
    records = read_log(trained)
    assert [r.step for r in records] == list(range(1, 13))
    for record in records:
        assert all(math.isfinite(value) for value in dataclasses.asdict(record).values())
        parts = record.prior + record.reconstruction + record.commitment + record.energy
        assert record.total == pytest.approx(parts, rel=1e-5)
        assert 1 <= record.codes <= 6
    seconds = [r.seconds for r in records]
    assert seconds == sorted(seconds)
    assert len((trained / LOG).read_text().splitlines()) == 12


def test_steps_are_logged_and_shown_when_it_is_due(tiny, tmp_path):
    shown = []
    folder = run.train(tiny("vq", save_every=5, log_every=4), tmp_path / "run", watch=shown.append)
    assert steps(folder) == [4, 5, 8, 10, 12]  # and at every checkpoint, the last step among them
    assert shown == read_log(folder)


def test_an_empty_folder_will_do(tiny, tmp_path):
    (tmp_path / "run").mkdir()
    assert load_config(run.train(tiny(steps=1), tmp_path / "run")) == tiny(steps=1)


def test_a_folder_that_holds_anything_is_refused_and_left_alone(tiny, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    before = files(tmp_path)
    words = "must be empty or not exist yet, and it holds files; name another folder, or go on"
    with pytest.raises(RunError, match=words):
        run.train(tiny(), tmp_path)
    with pytest.raises(RunError, match=r"is no run folder: it must hold config\.json"):
        run.train(tiny(), tmp_path, resume=True)
    assert files(tmp_path) == before


def test_a_file_is_no_folder(tiny, tmp_path):
    (tmp_path / "file").write_text("text")
    with pytest.raises(RunError, match="must be a folder to write a run to, and it is a file"):
        run.train(tiny(), tmp_path / "file")


def test_data_that_the_network_cannot_take_are_refused_before_anything_is_written(tiny, tmp_path):
    config = tiny()
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, c_in=3))
    with pytest.raises(ValueError, match=r"model\.c_in must be 1"):
        run.train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_this_machine_cannot_do_is_refused_before_anything_is_written(tiny, tmp_path):
    config = tiny()
    config = dataclasses.replace(config, compute=ComputeConfig(device="cpu", graph="on"))
    with pytest.raises(
        ValueError, match=r"compute.graph is on, and CUDA graphs need a CUDA device"
    ):
        run.train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_how_it_is_computed_is_told_before_the_first_step(tiny, tmp_path):
    told: list[str] = []
    run.train(
        tiny(steps=1), tmp_path / "run", tell=told.append, watch=lambda r: told.append(str(r.step))
    )
    assert told == ["computing on cpu: float32", "1"]


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: tried 9 bytes"),
        MemoryError(),
    ],
)
def test_memory_that_runs_out_is_said_with_the_remedy(tiny, tmp_path, monkeypatch, error):
    def steps(*_):
        raise error

    monkeypatch.setattr(run, "fit", steps)
    words = r"memory ran out: a step of 8 inputs .*; take --compute.accumulate 2 .*--train.batch"
    with pytest.raises(RunError, match=words):
        run.train(tiny(), tmp_path / "run")


def test_another_error_in_a_step_stays_what_it_is(tiny, tmp_path, monkeypatch):
    def steps(*_):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(run, "fit", steps)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        run.train(tiny(), tmp_path / "run")


# --- resuming -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lr": 0.5}, r"holds a run with train\.lr = 0\.01, and 0\.5 is asked for: resume with"),
        ({"seed": 1}, r"holds a run with train\.seed = 0, and 1 is asked for"),
        ({"codebook": {"size": 5}}, r"holds a run with codebook\.size = 6, and 5 is asked for"),
    ],
)
def test_another_configuration_does_not_resume_and_the_field_is_named(tiny, folder, change, words):
    before = files(folder)
    with pytest.raises(RunError, match=words):
        run.train(tiny("exact", **{"average": 0.9, **change}), folder, resume=True)
    assert files(folder) == before


def test_a_run_may_go_on_another_way_of_computing_it(tiny, folder):
    config = dataclasses.replace(
        tiny("exact", average=0.9), compute=ComputeConfig(device="cpu", channels_last=False)
    )
    run.train(config, folder, resume=True)


def test_a_finished_run_has_nothing_to_resume(tiny, trained, folder):
    run.train(tiny("exact", average=0.9), folder, resume=True)
    assert same(folder, trained)
    assert steps(folder) == list(range(1, 13))


@pytest.mark.parametrize("write", range(1, 8))
def test_a_run_that_dies_before_any_of_its_writes_goes_on_to_the_same_weights(
    tiny, trained, tmp_path, monkeypatch, write
):
    """Writes: configuration, empty log, (weights, state) twice, history."""
    left, replace = iter(range(write - 1, -1, -1)), os.replace

    def dying(source, target):
        if next(left) == 0:
            raise Killed
        replace(source, target)

    config, out = tiny("exact", average=0.9), tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", dying)
        with pytest.raises(Killed):
            run.train(config, out)
    run.train(config, out, resume=True)
    assert same(out, trained)
    assert steps(out) == list(range(1, 13))
    assert set(files(out)) >= KEPT


def test_what_a_kill_leaves_half_written_stands_in_nobodys_way(tiny, tmp_path, monkeypatch):
    """Killed before the configuration had its name: a temporary file is all there is."""

    def killed(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        patch.setattr(os, "unlink", lambda *_: None)  # who is killed does not tidy up
        with pytest.raises(Killed):
            run.train(tiny(steps=1), tmp_path)
    (left,) = files(tmp_path)
    assert left.startswith(".")
    run.train(tiny(steps=1), tmp_path, resume=True)
    assert set(files(tmp_path)) >= KEPT
    assert left not in files(tmp_path)


SMALL = """train toy --method vq --model.levels 4 8 --model.tail 8 --model.widths 4
    --codebook.size 6 --codebook.revive-every 9 --train.steps 60 --train.batch 8
    --train.save-every 15 --train.log-every 1 --compute.device cpu --out"""


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("uninterrupted") / "run"
    main([*SMALL.split(), str(out)])
    return out


def test_a_run_that_is_killed_goes_on_to_the_same_weights(uninterrupted, tmp_path):
    out = tmp_path / "run"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # as the tests have it
    with subprocess.Popen(
        [sys.executable, "-m", "mue", *SMALL.split(), str(out)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        deadline = time.monotonic() + 120
        while process.poll() is None and len(read_log(out)) < 20:
            assert time.monotonic() < deadline, "the run does not begin"
            time.sleep(0.005)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    done = len(read_log(out))
    assert 20 <= done < 60
    assert (out / STATE).exists()

    main([*SMALL.split(), str(out), "--resume"])
    assert same(out, uninterrupted)
    assert steps(out) == list(range(1, 61))
    lines = (out / LOG).read_text().splitlines()
    for line, other in zip(lines, (uninterrupted / LOG).read_text().splitlines(), strict=True):
        assert {**json.loads(line), "seconds": 0} == {**json.loads(other), "seconds": 0}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_saves_exits_130_and_the_run_goes_on_to_the_same_weights(
    uninterrupted, tmp_path, capsys, monkeypatch, number
):
    pair, out = Bars.pair, tmp_path / "run"

    def interrupting(self, index):
        if index[0] == 22 * 8:  # in the middle of step 23
            signal.raise_signal(number)
        return pair(self, index)

    before = signal.getsignal(number)
    with monkeypatch.context() as patch:
        patch.setattr(Bars, "pair", interrupting)
        with pytest.raises(SystemExit) as stop:
            main([*SMALL.split(), str(out)])
    assert stop.value.code == 130
    assert (
        f"mue: stopped at step 23, saved in {out}; go on with --resume" in capsys.readouterr().err
    )
    assert signal.getsignal(number) is before
    assert steps(out) == list(range(1, 24))
    assert resumed(out).step == 23

    main([*SMALL.split(), str(out), "--resume"])
    assert same(out, uninterrupted)
    assert steps(out) == list(range(1, 61))


def test_who_interrupts_twice_does_not_wait(tiny, tmp_path, monkeypatch):
    def impatient(*_):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Bars, "pair", impatient)
    with pytest.raises(KeyboardInterrupt) as stop:
        run.train(tiny("exact"), tmp_path / "run")
    assert not isinstance(stop.value, Interrupted)


# --- losses that are no numbers -------------------------------------------------------------------


def breaking(first: int):
    """Items that are not numbers from `first` on."""
    pair = Bars.pair

    def broken(self, index):
        found = pair(self, index)
        found.x[index >= first] = float("nan")
        return found

    return broken


def test_a_loss_that_is_no_number_stops_the_run_with_the_last_good_checkpoint(
    tiny, trained, tmp_path, monkeypatch
):
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Bars, "pair", breaking(first=8 * 8))
        with pytest.raises(NonFiniteError) as stop:
            run.train(tiny("exact", average=0.9), out)
    words = str(stop.value)
    assert "not finite at step 9" in words
    assert "its term 'prior' is nan" in words
    assert f"the last good checkpoint is {out / STATE}" in words
    good = resumed(out)
    assert good.step == 6
    assert all(value.isfinite().all() for value in good.learner.state_dict().values())
    run.train(tiny("exact", average=0.9), out, resume=True)  # the data are good again
    assert same(out, trained)


def test_a_loss_that_is_no_number_is_never_saved_even_if_it_was_not_logged(
    tiny, tmp_path, monkeypatch
):
    monkeypatch.setattr(Bars, "pair", breaking(first=8))
    with pytest.raises(NonFiniteError, match="there is no checkpoint before it"):
        run.train(tiny("exact", log_every=100, save_every=5), tmp_path / "run")
    assert not (tmp_path / "run" / WEIGHTS).exists()


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
    run.save_config(folder, tiny("exact", codebook={"size": 7}), "1")
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
    folder = run.train(tiny("exact", codebook={"size": 3}, steps=1), tmp_path / "run")
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


@pytest.mark.parametrize("what", [{"method": "probunet"}, {"method": "heads", "dropout": 0.5}])
def test_a_run_that_draws_goes_on_to_the_same_weights(tiny, tmp_path, what):
    """Killed after its first checkpoint, of step 6 of 12, when it logs step 9."""
    config = tiny(**what)
    whole = run.train(config, tmp_path / "whole")

    def dying(record):
        if record.step == 9:
            raise Killed

    with pytest.raises(Killed):
        run.train(config, tmp_path / "again", watch=dying)
    assert resumed(tmp_path / "again").step == 6
    torch.manual_seed(123)  # another process, with another past
    run.train(config, tmp_path / "again", resume=True)
    assert same(tmp_path / "again", whole)
