import json
import re
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from PIL import Image

import performance
import speed
from speed import Plan, bench, growth
from timing.profiler import Cost, Profile
from timing.timer import Budget
from timing.training import Workload

TINY = Plan(
    workloads=[Workload("toy-vq", 2)],
    presets=["toy"],
    ks=(1, 2),
    side=16,
    sides=(8, 16),
    at=2,
    budget=Budget(warmup=1, repeats=2, min_seconds=0.0),
    steps=1,
    copy=1,
    product=16,
)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    return folder, bench(folder, device="cpu", profiled=True, seed=3, plan=TINY)


def test_what_was_measured_is_written_with_all_it_depends_on(measured):
    folder, found = measured
    content = json.loads((folder / "bench.json").read_text())
    assert content == found.content
    assert content.keys() >= {
        *("version", "commit", "torch", "device", "name", "threads", "seed", "command", "limits"),
        *("setups", "training", "answering", "sides", "growth"),
    }
    assert (content["device"], content["seed"]) == ("cpu", 3)
    assert content["limits"]["float32"].keys() == {"bandwidth", "peak"}
    counted = {"preset", "ours", "ratio", "bytes", "operations", "floor_ms", "share"}
    for part in ("training", "answering", "sides"):
        assert content[part]
        for row in content[part]:
            assert row.keys() >= counted
            assert row["ours"].keys() == {"ms", "spread", "repeats"}


def test_costs_are_plotted(measured):
    folder, _ = measured
    for name in ("answers.png", "pixels.png"):
        with Image.open(folder / name) as file:
            assert min(file.size) > 300


def test_a_profile_leaves_a_trace_and_a_table(measured):
    folder, found = measured
    assert json.loads((folder / "toy-vq-step-trace.json").read_text())["traceEvents"]
    rows = json.loads((folder / "profile.json").read_text())["profile"]["toy-vq"]
    assert rows["operators"][0]["ms"] >= rows["operators"][-1]["ms"]
    assert any("convolution" in row["name"] and row["shapes"] for row in rows["operators"])
    assert found.profiles["toy-vq"].operators
    assert all(path.is_file() for path in found.files)


@pytest.mark.parametrize(("only", "other"), [("training", "answering"), ("answering", "training")])
def test_one_part_can_be_left_out(tmp_path, only, other):
    found = bench(tmp_path, device="cpu", only=only, plan=TINY)
    assert only in found.content
    assert other not in found.content
    assert f"--only {only}" in found.content["command"]


def test_growth_is_the_power_of_the_cost():
    def row(ms: float, **size: int) -> dict:
        return {"preset": "a", "ours": {"ms": ms}, **size}

    answers = [row(1.0, k=1), row(2.0, k=4), row(4.0, k=16), row(1000.0, k=64)]
    sides = [row(3.0, side=8), row(12.0, side=16)]
    found = growth(answers, sides)
    assert found == {"answers": {"a": pytest.approx(0.5)}, "pixels": {"a": pytest.approx(1.0)}}


def test_the_same_command_can_be_typed_again():
    assert speed.command(None, False) == "python benchmarks/speed.py"
    assert speed.command("training", True) == "python benchmarks/speed.py --only training --quick"


def test_a_folder_that_cannot_be_is_refused_before_anything_is_measured(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("mine")
    monkeypatch.setattr(speed, "measure_limits", lambda *_, **__: pytest.fail("it measured"))
    with pytest.raises(NotADirectoryError):
        bench(tmp_path / "file" / "out", device="cpu", plan=TINY)
    assert (tmp_path / "file").read_text() == "mine"


class Said(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def say(capsys, monkeypatch, tmp_path) -> Callable[..., Said]:
    """Run the script in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> Said:
        code = 0
        try:
            speed.main([str(a) for a in arguments])
        except SystemExit as stop:
            code = int(stop.code or 0)
        return Said(code, *capsys.readouterr())

    return run


@pytest.fixture
def tiny(monkeypatch) -> None:
    cost = Cost("convolution", "2x8x16x16 8x8x3x3", 4.0, 1.0)
    monkeypatch.setattr(speed, "default_plan", lambda *_, **__: TINY)
    monkeypatch.setattr(speed, "profile_step", lambda *_: Profile([cost], [cost], "a table"))


@pytest.mark.usefixtures("tiny")
def test_a_measurement_for_people_is_a_table_of_ratios_with_a_profile_on_demand(say, tmp_path):
    said = say("--quick", "--profile", "--device", "cpu", "--out", "new")
    assert said.code == 0
    for words in ("naive", "ours", "ratio", "GFLOP", "floor", "share", "train toy-vq, batch 2"):
        assert words in said.out
    for words in ("toy, 2 answers, 16²", "as measured here", "the costliest operators\na table"):
        assert words in said.out
    for name in ("bench.json", "profile.json"):
        assert f"written  new/{name}\n" in said.out
        assert (tmp_path / "new" / name).is_file()
    for name in ("answers.png", "pixels.png"):
        assert f"written  new/{name}\n" in said.out
    assert "100%" in said.err


@pytest.mark.usefixtures("tiny")
def test_a_measurement_in_json_is_json_alone(say, tmp_path):
    said = say("--only", "training", "--seed", 4, "--json", "--device", "cpu")
    assert (said.code, said.err) == (0, "")
    content = json.loads(said.out)
    assert (content["seed"], content["command"]) == (
        4,
        "python benchmarks/speed.py --only training",
    )
    assert json.loads((tmp_path / "runs" / "bench" / "bench.json").read_text()) == content


def test_a_device_that_is_not_there_is_one_sentence(say, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    said = say("--device", "cuda")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("speed.py: `device` is cuda, and torch finds no CUDA device here")
    assert list(tmp_path.iterdir()) == []
    said = say("--device", "tpu")
    assert said.code == 2
    assert list(tmp_path.iterdir()) == []


def test_the_page_is_made_from_what_was_measured(measured, tmp_path):
    folder, _ = measured
    text = performance.section(folder, tmp_path)
    for words in ("| training | batch | naive, ms", "`toy-vq`, float32", "`toy`, 16²", "power of"):
        assert words in text
    assert "The slowest operators of a step of `toy-vq`:" in text
    for path in re.findall(r"\(figures/performance/(.*?)\)", text):
        assert (tmp_path / path).is_file()
