"""A short run of the fuzzer; `make fuzz` is the long one."""

import csv
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import fuzz
import inputs
import numpy as np
import pytest
import reliability

from mue.errors import MueError

ROOT = Path(__file__).parents[2]
HOW_MANY = 12  # of each kind
UNDAMAGED = ("image", "NIfTI", "DICOM", "archive", "pickle", "own data", "prepared data")


def test_damaged_inputs_are_read_as_they_were_or_refused():
    """In a process of its own, which does not check types as these tests do."""
    code = (
        "import sys; sys.path[:0] = ['tests/fuzz', 'benchmarks']\n"
        "import fuzz, inputs, json; fuzz.warm_up([*inputs.KINDS])\n"
        f"chunks = [fuzz.Chunk(kind, 3, {HOW_MANY}) for kind in inputs.KINDS]\n"
        "print(json.dumps([o for c in fuzz.attempt_all(chunks, 1) for o in c.outcomes]))"
    )
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    outcomes = json.loads(told.stdout.splitlines()[-1])
    assert len(outcomes) == HOW_MANY * len(inputs.KINDS)
    assert [o for o in outcomes if o not in fuzz.OUTCOMES] == []


def test_every_failure_of_the_page_has_a_test():
    with reliability.FAILURES.open(newline="") as table:
        rows = list(csv.DictReader(table))
    assert len({row["failure"] for row in rows}) == len(rows) > 50
    for row in rows:
        file, name = row["test"].split("::")
        assert f"def {name}(" in (ROOT / "tests" / file).read_text(), row


def test_an_input_depends_on_its_kind_and_number_alone():
    for number in range(3):
        assert fuzz.attempt("image", number) == fuzz.attempt("image", number)


@pytest.mark.parametrize("kind", UNDAMAGED)
def test_what_is_not_damaged_is_read(kind, monkeypatch):
    """Else the generator would make nothing but files that are refused for another reason."""
    monkeypatch.setattr(inputs, "damaged", lambda data, _: data)
    outcomes = [fuzz.attempt(kind, number) for number in range(12)]
    assert not [o for o in outcomes if o not in fuzz.OUTCOMES]
    assert "read" in outcomes


def test_a_png_that_is_damaged_and_signed_again_is_whole_by_its_checksums(monkeypatch):
    rng = inputs.Random(0)
    data = inputs.picture(inputs.pixels(rng, 5, 4), "png")
    monkeypatch.setattr(inputs, "damaged", lambda data, _: data)
    assert inputs.signed_png(data, rng) == data


def test_values_that_differ_are_a_lie_only_where_there_is_a_checksum():
    a, b = np.zeros(3), np.ones(3)
    assert inputs._compare(a, a, "PNG", checked=True) == "read"
    assert inputs._compare(a, b, "BMP", checked=False) == "changed"
    with pytest.raises(AssertionError, match="PNG with a checksum was read with other values"):
        inputs._compare(a, b, "PNG", checked=True)


def _lie(*_):
    raise AssertionError("other pixels")


def _starve(*_):
    try:
        raise MemoryError
    except MemoryError:
        raise MueError("image.png takes more memory than there is") from None


def _doubt(*_):
    try:
        raise AssertionError("a check of ours")
    except AssertionError as error:
        raise MueError("is damaged") from error


def _leave(*folders):
    (folders[-1] / ".mue-1").touch()
    return "read"


def _wait(*_):
    try:
        while True:
            pass
    except Exception:  # as a reader that expects any error of a decoder
        return "read"


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (_lie, "AssertionError: 'other pixels'"),
        (_starve, "MueError: 'image.png takes more memory than there is'"),
        (_doubt, "MueError: 'is damaged'"),
        (_leave, "left .mue-1 behind"),
        (_wait, "took more than 1 seconds"),
    ],
)
def test_a_finding_is_told_with_its_number(what, words, monkeypatch, tmp_path):
    monkeypatch.setattr(fuzz, "SECONDS", 1)
    monkeypatch.setitem(inputs.KINDS, "image", what)
    outcome = fuzz.attempt("image", 7)
    assert outcome.startswith("image 7: ")
    assert words in outcome
    counts: dict = {}
    for each in (outcome, "read", "refused", "changed"):
        fuzz.count_(counts, "image", each)
    (tmp_path / "fuzz.json").write_text(json.dumps(counts))
    reliability.write_page(
        tmp_path / "page.md", fuzz=tmp_path / "fuzz.json", chaos=tmp_path / "no.json"
    )
    page = (tmp_path / "page.md").read_text()
    assert "| image | 4 | 1 | 1 | 1 | 1 |" in page
    assert f"- open: {outcome}" in page


def test_a_process_that_dies_or_hangs_is_a_finding_and_the_next_input_is_tried(monkeypatch):
    def attempt(_, number):
        if number == 4:
            os._exit(3)
        while number == 5:
            time.sleep(0.01)
        return "read"

    monkeypatch.setattr(fuzz, "attempt", attempt)
    monkeypatch.setattr(fuzz, "_WAIT", 2.0)
    (chunk,) = fuzz.attempt_all([fuzz.Chunk("image", 3, 4)], 1)
    died, hung = "image 4: ended its process with 3", "image 5: hung for more than 2 seconds"
    assert chunk.outcomes == ["read", died, hung, "read"]


def test_only_the_wait_for_a_core_that_others_have_is_not_counted():
    """Sleep and computation count; two processes on one core do not make each other late."""
    began = fuzz.quiet_clock()
    time.sleep(0.2)
    assert fuzz.quiet_clock() - began >= 0.2
    cores = os.sched_getaffinity(0)
    spin = [sys.executable, "-c", "while True: pass"]
    try:
        os.sched_setaffinity(0, [min(cores)])
        with subprocess.Popen(spin) as other:
            time.sleep(0.5)
            began, clock, used = fuzz.quiet_clock(), time.monotonic(), time.process_time()
            while time.process_time() - used < 0.5:
                pass
            counted, shown = fuzz.quiet_clock() - began, time.monotonic() - clock
            other.kill()
    finally:
        os.sched_setaffinity(0, cores)
    assert 0.45 < counted < shown


def test_a_table_without_counts_at_hand_stays_as_it_is(tmp_path):
    """On a fresh clone there are none, and `make fuzz` keeps others than `make chaos`."""
    page, fuzz_counts, chaos_counts = (tmp_path / name for name in ("p.md", "f.json", "c.json"))
    kind = {"tried": 4000, "read": 1, "changed": 0, "refused": 3998, "findings": ["image 7: bad"]}
    trial = {"tried": 3, "hit": 2, "findings": ["train: kill 1: lost"]}
    fuzz_counts.write_text(json.dumps({"image": kind}))
    chaos_counts.write_text(json.dumps({"train: kill": trial}))
    reliability.write_page(page, fuzz=fuzz_counts, chaos=chaos_counts)
    whole, none = page.read_text(), tmp_path / "none.json"
    assert "| train: kill | 3 | 2 | 1 |" in whole
    for given in ((fuzz_counts, none), (none, chaos_counts), (none, none)):
        reliability.write_page(page, fuzz=given[0], chaos=given[1])
        assert page.read_text() == whole
    chaos_counts.write_text(json.dumps({"train: kill": trial | {"tried": 4, "findings": []}}))
    reliability.write_page(page, fuzz=none, chaos=chaos_counts)
    assert "| train: kill | 4 | 2 | 0 |" in page.read_text()
    assert "- open: image 7: bad" in page.read_text()
    assert "- open: train" not in page.read_text()
