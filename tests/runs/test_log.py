import os

import pytest

from mue.commands.train import train
from mue.errors import MueError
from mue.runs.folder import load_config
from mue.runs.log import LOG, ValidationRecord, best_validation, read_log, read_validations


def test_a_last_line_that_was_cut_off_is_left_out(folder):
    whole = read_log(folder)
    text = (folder / LOG).read_text()
    for cut in (1, 2, 20, len(text.splitlines()[-1])):
        (folder / LOG).write_text(text[:-cut])
        kept = read_log(folder)
        assert kept == whole[: len(kept)]
        assert len(kept) == (12 if cut == 1 else 11)  # the end of the line alone is no loss
    assert read_log(folder / "none") == []


GOOD = (
    '"prior": 1, "reconstruction": 1, "commitment": 1, "total": 1, "codes": 1, "lr": 1, '
    '"seconds": 1}'
)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "[]",
        '{"step": 3}',
        '{"unknown": 1}',
        "\xff",
        '{"step": "3", ' + GOOD,
        '{"step": -3, ' + GOOD,
        '{"step": 1e400, ' + GOOD,
        '{"step": ' + "9" * 30 + ", " + GOOD,
        '{"step": true, ' + GOOD,
        "[" * 100_000,
    ],
)
def test_any_other_line_that_is_no_record_is_refused_and_kept(folder, line):
    lines = (folder / LOG).read_text().splitlines()
    for row in (2, 11):  # in the middle, and the last with its line feed
        damaged = "\n".join([*lines[:row], line, *lines[row + 1 :], ""]).encode("latin-1")
        (folder / LOG).write_bytes(damaged)
        with pytest.raises(MueError, match=rf"log\.jsonl, line {row + 1}, must be a record"):
            train(load_config(folder), folder, resume=True)
        assert (folder / LOG).read_bytes() == damaged


@pytest.fixture
def validated(tiny, tmp_path):
    config = tiny("exact", validate_every=4, validate_inputs=8)
    return train(config, tmp_path / "validated").folder


def test_steps_and_validations_are_told_apart(validated):
    assert [r.step for r in read_log(validated)] == list(range(1, 13))
    assert [r.step for r in read_validations(validated)] == [4, 8, 12]
    assert all(isinstance(r, ValidationRecord) for r in read_validations(validated))


@pytest.mark.parametrize("line", ['{"score": 1}', '{"step": 1, "score": 1, "unknown": 1}'])
def test_a_line_that_is_no_validation_is_refused(validated, line):
    with (validated / LOG).open("a") as log:
        log.write(line + "\n")
    for read in (read_log, read_validations):
        with pytest.raises(MueError, match=r"log\.jsonl, line 16, must be a record of the log"):
            read(validated)


def test_the_best_validation_is_the_first_of_the_lowest_score():
    records = [
        ValidationRecord(step, "ged", score, nll=1.0, train_nll=1.0, ece=0.1, codes=4)
        for step, score in [(1, 0.3), (2, 0.2), (3, 0.2)]
    ]
    assert best_validation(records) == records[1]


def test_a_log_of_gigabytes_is_refused_before_it_is_read(tmp_path):
    (tmp_path / LOG).touch()
    os.truncate(tmp_path / LOG, 1 << 40)  # takes no room on the disk
    with pytest.raises(MueError, match="must be at most 268435456 bytes"):
        read_log(tmp_path)
