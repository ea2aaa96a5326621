import json

import pytest

import seeds as benchmark
from pages import markdown
from seeds import COLUMNS, REPORT, merged, numbers, rows, run, seeds


def report(folder, mean: float, p95: float = 0.0, commit: str = "0123456789abcdef") -> None:
    folder.mkdir(parents=True)
    (folder / REPORT).write_text(json.dumps({"mode_tv": {"mean": mean, "p95": p95}}))
    (folder / "config.json").write_text(json.dumps({"commit": commit}))


@pytest.mark.parametrize(
    ("text", "expected"), [("3", [3]), ("0-3", [0, 1, 2, 3]), ("0-1,7", [0, 1, 7])]
)
def test_seeds_are_a_list_of_numbers_and_ranges(text: str, expected: list[int]):
    assert seeds(text) == expected


def test_the_table_has_the_median_and_the_worst_of_each_preset(tmp_path):
    for seed, mean in enumerate((0.01, 0.5, 0.02)):
        report(tmp_path / "toy" / str(seed), mean, 2 * mean)
    assert rows(tmp_path) == [
        ["`toy`", "mode_tv", "3", "0.0200", "0.5000", "1", "0.0100", "0123456"],
        ["`toy`", "p95", "3", "0.0400", "1.0000", "1", "0.0200", "0123456"],
    ]


def test_a_commit_with_changes_on_top_says_so(tmp_path):
    report(tmp_path / "toy" / "0", 0.1)
    report(tmp_path / "toy" / "1", 0.1, commit="0123456789ab-dirty")
    assert rows(tmp_path)[0][-1] == "0123456, 0123456-dirty"


def test_rows_of_presets_that_were_not_trained_again_stay_on_the_page():
    old = [["`lidc`", "ged", "5", *"abcd", "e"], ["`toy`", "p95", "1", *"abcd", "e"]]
    new = [["`toy`", "p95", "2", *"abcd", "f"]]
    assert merged(new, f"text\n{markdown(COLUMNS, old)}\n") == [old[0], new[0]]


def test_lesions_are_compared_by_what_is_better_when_lower():
    found = numbers({"ged": {"mean": 0.2}, "dice_top": {"mean": 0.6}})
    assert found == {"ged": 0.2, "1 - dice_top": pytest.approx(0.4)}


def test_a_seed_is_trained_and_evaluated_once(tmp_path, tiny, monkeypatch):
    folder = tmp_path / "tiny" / "0"
    config = tiny("exact", steps=4, save_every=2)
    run(folder, config)
    first = json.loads((folder / REPORT).read_text())
    assert first["mode_tv"]["mean"] >= 0
    monkeypatch.setattr(benchmark.mue, "train", None)  # would fail if it were called
    run(folder, config)


def test_a_run_that_was_stopped_goes_on(tmp_path, tiny):
    config = tiny("exact", steps=4, save_every=2)
    folder = tmp_path / "0"
    run(folder, config)
    expected = (folder / "weights.safetensors").read_bytes()
    (folder / REPORT).unlink()
    run(folder, config)
    assert (folder / "weights.safetensors").read_bytes() == expected
