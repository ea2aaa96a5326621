"""A short run of the fuzzer; `make fuzz` is the long one."""

import json
import subprocess
import sys
from pathlib import Path

import fuzz
import inputs
import numpy as np
import pytest
import reliability

ROOT = Path(__file__).parents[2]
HOW_MANY = 12  # of each kind
UNDAMAGED = ("image", "NIfTI", "archive", "pickle", "own data", "prepared data")


def test_damaged_inputs_are_read_as_they_were_or_refused():
    """In a process of its own, which does not check types as these tests do."""
    code = (
        "import sys; sys.path[:0] = ['tests/fuzz', 'benchmarks']\n"
        f"import fuzz, inputs; fuzz._work([*inputs.KINDS], 3, {HOW_MANY})"
    )
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    outcomes = [json.loads(line) for line in told.stdout.splitlines()]
    assert told.returncode == 0
    assert len(outcomes) == HOW_MANY * len(inputs.KINDS)
    assert [o for o in outcomes if o not in fuzz.OUTCOMES] == []


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


def test_a_process_that_dies_is_a_finding_and_the_next_input_is_tried(monkeypatch):
    code = "import sys\nif sys.argv[-2] == '4': sys.exit(3)\nprint('\"read\"')"
    popen = subprocess.Popen

    def dying(command, **options):
        return popen([command[0], "-c", code, *command[2:]], **options)

    monkeypatch.setattr(fuzz.subprocess, "Popen", dying)
    assert list(fuzz._outcomes("image", 4, 1)) == ["image 4: ended its process with 3"]
    assert list(fuzz._outcomes("image", 5, 1)) == ["read"]
