"""The ablation of what keeps a training from going wrong."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from mue.config.presets import preset
from mue.training.log import LogRecord, log_writer
from remedies import ABLATIONS, folder, rows, variants


@pytest.mark.parametrize("name", ABLATIONS)
def test_none_is_without_remedies_and_each_variant_has_its_own(name: str):
    found = variants(name)
    assert found["none"].codebook.split_every == 0
    assert not found["none"].model.standardize
    assert found["none"].objective.sharpness == 0
    assert len({str(config) for config in found.values()}) == len(found) >= 4


def test_presets_are_their_own_variants():
    for name, variant in (
        ("guess-quick", "splitting + sharpness"),
        ("toy-vq", "splitting + standardized features"),
        ("vector", "splitting + sharpness"),
        ("vector-vq", "standardized features"),
    ):
        assert variants(name)[variant] == preset(name)
        assert folder(Path("runs"), name, variant) == Path("runs/seeds") / name


def test_a_row_counts_the_asked_seeds_that_reach_their_numbers(tmp_path: Path):
    reports = {0: (0.01, 0.02), 1: (0.01, 0.05), 2: (0.1, 0.2), 7: (1, 1)}
    for seed, (mean, p95) in reports.items():
        run = folder(tmp_path, "guess-quick", "none") / str(seed)
        run.mkdir(parents=True)
        report = {"mode_tv": {"mean": mean, "p95": p95}}
        (run / "report-test.json").write_text(json.dumps(report))
        config = asdict(variants("guess-quick")["none"])
        (run / "config.json").write_text(json.dumps({"commit": "abcdef0123", "config": config}))
        with log_writer(run) as log:
            numbers = dict.fromkeys(("prior", "reconstruction", "commitment", "total", "lr"), 0.0)
            log(LogRecord(step=1, codes=1, seconds=3.0, **numbers))
    assert rows(tmp_path, [0, 1, 2]) == [
        ["`guess-quick`", "none", "1 of 3", "0.0100", "0.1000", "0.2000", "1.00", "abcdef0"],
    ]
