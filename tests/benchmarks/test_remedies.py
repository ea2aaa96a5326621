"""The ablation of what keeps a training from going wrong."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from mue.config.presets import preset
from mue.runs.log import LogRecord, log_writer
from remedies import ABLATIONS, folder, rows, variants
from seeds import seeded


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


def finished(
    runs: Path, variant: str, seed: int, mean: float = 0.0, p95: float = 0.0, device: str = "cpu"
) -> None:
    """The files of a run of `guess-quick` that took 3 s, and of any other variant 6 s."""
    run = folder(runs, "guess-quick", variant) / str(seed)
    run.mkdir(parents=True)
    report = {"mode_tv": {"mean": mean, "p95": p95}}
    (run / "report-test.json").write_text(json.dumps(report))
    config = asdict(variants("guess-quick")[variant])
    config["compute"]["device"] = device
    (run / "config.json").write_text(json.dumps({"commit": "abcdef0123", "config": config}))
    with log_writer(run) as log:
        numbers = dict.fromkeys(("prior", "reconstruction", "commitment", "total", "lr"), 0.0)
        log(LogRecord(step=1, codes=1, seconds=3.0 if variant == "none" else 6.0, **numbers))


def test_a_row_counts_the_asked_seeds_that_reach_their_numbers(tmp_path: Path):
    reports = {0: (0.01, 0.02), 1: (0.01, 0.05), 2: (0.1, 0.2), 7: (1, 1)}
    for seed, (mean, p95) in reports.items():
        finished(tmp_path, "none", seed, mean, p95)
    assert rows(tmp_path, [0, 1, 2]) == [
        ["`guess-quick`", "none", "1 of 3", "0.0100", "0.1000", "0.2000", "1.00", "abcdef0"],
    ]


@pytest.mark.parametrize(
    ("plain", "others", "times"),
    [
        (("cpu", "cpu"), ("cpu", "cpu"), ["1.00", "2.00"]),
        (("cpu", "cpu"), ("cuda", "cuda"), ["1.00", ""]),
        (("cpu", "cpu"), ("cpu", "cuda"), ["1.00", ""]),
        (("auto", "auto"), ("auto", "auto"), ["", ""]),  # whatever that was
        (("cpu", "cuda"), ("cpu", "cuda"), ["", ""]),
    ],
)
def test_times_are_compared_on_one_kind_of_device_only(tmp_path, plain, others, times):
    for variant, devices in (("none", plain), ("splitting", others)):
        for seed, device in enumerate(devices):
            finished(tmp_path, variant, seed, device=device)
    assert [row[-2] for row in rows(tmp_path, [0, 1])] == times


def test_a_run_says_which_kind_of_device_it_was_trained_on():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    assert seeded(preset("toy"), 3, "auto").compute.device == device
