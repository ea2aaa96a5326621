import io
import json
from pathlib import Path

import numpy as np
import pytest

import checkout_probe
import compare_checkouts
from compare_checkouts import compared, compared_reports, environment, inputs, reports

ROOT = Path(__file__).parents[2]


def test_arrays_are_the_same_only_to_the_bit():
    a = np.array([1.0, 0.0, np.nan], dtype=np.float32)
    assert compared("a", {"y": a}, {"y": a.copy()}).same
    row = compared("a", {"y": a[:1], "z": a}, {"y": np.nextafter(a[:1], 2, dtype="f4"), "z": a})
    assert (row.same, row.note) == (False, "y off by up to 1.19e-07")
    assert not compared("a", {"y": a[1:2]}, {"y": -a[1:2]}).same  # 0.0 and -0.0


@pytest.mark.parametrize(
    ("after", "note"),
    [
        ({"z": np.zeros(2)}, "only in one: y, z"),
        ({"y": np.zeros(3)}, "y is float64(2,), now float64(3,)"),
        ({"y": np.zeros(2, np.float32)}, "y is float64(2,), now float32(2,)"),
    ],
)
def test_names_shapes_and_types_have_to_be_the_same(after, note):
    row = compared("a", {"y": np.zeros(2)}, after)
    assert (row.same, row.note) == (False, note)


def test_a_renamed_key_keeps_its_numbers_and_what_passes_is_not_compared():
    before = {"guess": {"tv": 0.25, "most": [1, 2], "seconds": 5.0, "version": 1}}
    after = {"guess": {"tv": 0.25, "max_answers": [1, 2], "seconds": 6.0, "version": 2, "new": 7}}
    row = compared_reports("demo", before, after)
    assert (row.same, row.note) == (True, "3 numbers, 2 under new keys")


def test_a_number_that_changed_or_went_is_found():
    row = compared_reports("demo", {"a": {"tv": 0.25}}, {"a": {"tv": 0.5}})
    assert (row.same, row.note) == (False, "\n    a.tv was 0.25, is 0.5")
    row = compared_reports("demo", {"a": 1, "b": 2}, {"a": 1, "c": 3})
    assert (row.same, row.note) == (False, "\n    1 numbers are gone, of b")


def test_reports_are_compared_whatever_their_files_are_called(tmp_path):
    for folder, name in (("before", "report.json"), ("after/guess", "report-test.json")):
        (tmp_path / folder).mkdir(parents=True)
        content = {"tv": 1.0} if "guess" in folder else {"guess": {"tv": 1.0}}
        (tmp_path / folder / name).write_text(json.dumps(content))
    assert reports(tmp_path / "before") == reports(tmp_path / "after") == {"guess": {"tv": 1.0}}


def test_inputs_come_from_a_seed_and_have_the_size_of_each_model():
    found = inputs(ROOT)
    assert {name: x.shape for name, x in found.items()} == {
        **dict.fromkeys(("guess", "guess-exact", "guess-probunet"), (128, 1, 28, 112)),
        **dict.fromkeys(("lidc-exact", "lidc-probunet", "lidc-small"), (64, 1, 128, 128)),
    }
    again = inputs(ROOT)
    assert all(np.array_equal(x, again[name]) for name, x in found.items())


def test_a_process_imports_its_own_checkout_and_sees_no_gpu(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    found = environment(Path("/there"))
    assert found["PYTHONPATH"] == "/there/src:/there/benchmarks"
    assert found["CUDA_VISIBLE_DEVICES"] == ""


def test_the_probe_answers_through_the_public_interface(tmp_path):
    x = inputs(ROOT)["guess-exact"][:2]
    compare_checkouts.save_file({"guess-exact": x}, tmp_path / "inputs.safetensors")
    checkout_probe.answers(tmp_path / "inputs.safetensors", tmp_path)
    found = compare_checkouts.load_file(tmp_path / "guess-exact.safetensors")
    names = {f"answers {name} 0" for name in checkout_probe.ANSWER}
    assert found.keys() == names | {f"modes {name} 0" for name in checkout_probe.MODE}
    assert found["answers y 0"].shape[0] == len(found["modes rest 0"]) == 2


def test_the_probe_replies_with_the_seconds_of_a_step(monkeypatch, capsys):
    prepared: list[str] = []

    def prepare(name: str):
        prepared.append(name)
        return lambda: None

    monkeypatch.setattr("sys.stdin", io.StringIO("train guess 2\ntrain guess 3\ntrain lidc 1\n"))
    checkout_probe.serve({"train": prepare})
    replies = capsys.readouterr().out.splitlines()
    assert all(float(line.removeprefix(checkout_probe.REPLY)) >= 0 for line in replies)
    assert (len(replies), prepared) == (3, ["guess", "lidc"])


def test_two_processes_take_turns(tmp_path):
    child = tmp_path / "child.py"
    child.write_text(f"""
import sys
for i, line in enumerate(sys.stdin):
    print("noise of a compiler")
    print("{checkout_probe.REPLY}", len(line.split()) + i)
    sys.stdout.flush()
""")
    timers = [compare_checkouts.Timer(str(child)) for _ in range(2)]
    assert compare_checkouts.take_turns(timers, ["train guess", "train lidc"], 5, 2) == [
        [3.0, 4.0],
        [3.0, 4.0],
    ]
    for timer in timers:
        timer.close()


def test_a_process_that_ends_early_is_not_waited_for(tmp_path):
    child = tmp_path / "child.py"
    child.write_text("")
    timer = compare_checkouts.Timer(str(child))
    with pytest.raises(SystemExit, match="ended before it had measured"):
        timer.seconds()
    timer.close()
