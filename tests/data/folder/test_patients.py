import os
from pathlib import Path

import pytest

from mue.data.folder.layout import CaseFiles
from mue.data.folder.patients import with_patients
from mue.data.prepared.item import Rejected
from mue.errors import MueError


def cases_of(*names: str) -> list[CaseFiles | Rejected]:
    return [CaseFiles(name, name, None, (name,), (name,), None) for name in names]


def test_a_patient_is_found_in_the_name_of_a_case():
    cases = with_patients(cases_of("P1-a", "P1-b", "odd"), "{patient}-*", None)
    assert [c.patient for c in cases if isinstance(c, CaseFiles)] == ["P1", "P1"]
    (bad,) = [c for c in cases if isinstance(c, Rejected)]
    assert (bad.what, bad.why) == ("odd", "has a name that --patient '{patient}-*' does not match")


def test_splits_come_from_a_table_by_case_or_patient(tmp_path):
    table = tmp_path / "splits.csv"
    table.write_text("\ufeffpatient,split,more\nP1,train,x\nP2,test,y\n", encoding="utf-8")
    cases = with_patients(cases_of("P1-a", "P2-a", "P3-a"), "{patient}-*", table)
    assert [c.split for c in cases if isinstance(c, CaseFiles)] == ["train", "test"]
    assert isinstance(cases[2], Rejected)
    assert cases[2].why == "has no line in splits.csv, by case or patient"


def test_a_patient_in_two_splits_is_rejected(tmp_path):
    table = tmp_path / "splits.csv"
    table.write_text("case,split\nP1-a,train\nP1-b,test\n")
    _, bad = with_patients(cases_of("P1-a", "P1-b"), "{patient}-*", table)
    assert isinstance(bad, Rejected)
    assert bad.why.startswith("is in test, and P1-a of the same patient in train; a patient must")


def test_a_case_without_a_line_leaves_the_others_of_its_patient_their_split(tmp_path):
    table = tmp_path / "splits.csv"
    table.write_text("case,split\nP1-b,train\n")
    bad, good = with_patients(cases_of("P1-a", "P1-b"), "{patient}-*", table)
    assert isinstance(bad, Rejected)
    assert isinstance(good, CaseFiles)
    assert good.split == "train"


def test_a_table_of_splits_without_a_line_says_nothing_of_a_case(tmp_path):
    (tmp_path / "splits.csv").write_text("case,split\n")
    (bad,) = with_patients(cases_of("x"), None, tmp_path / "splits.csv")
    assert bad == Rejected("x", "has no line in splits.csv, by case or patient")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a,b\n1,2\n", "its first line must be `case,split` or `patient,split`"),
        (
            "case,split\nx,training\n",
            "the split of x must be one of train, val, test, got 'training'",
        ),
        ("case,split\nx,train\nx,val\n", "x is in two splits"),
        ("", "its first line"),
        (None, "there is no table of splits"),
    ],
)
def test_a_bad_table_of_splits_is_refused(tmp_path, content, words):
    if content is not None:
        (tmp_path / "splits.csv").write_text(content)
    with pytest.raises(MueError, match=words):
        with_patients(cases_of("x"), None, tmp_path / "splits.csv")


def test_a_table_of_splits_that_is_a_pipe_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(MueError, match="must be a table of splits, and is not: it is no plain"):
            with_patients([], None, path)
