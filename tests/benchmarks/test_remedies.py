import json

import pytest

from mue.config.presets import preset
from remedies import VARIANTS, table, variant
from seeds import REPORT


def test_both_remedies_are_the_preset_itself_and_none_is_without():
    full, bare = variant(VARIANTS["both"], 3, "cpu"), variant(VARIANTS["none"], 3, "cpu")
    ours = preset("guess-quick")
    assert (full.model, full.codebook, full.objective) == (
        ours.model,
        ours.codebook,
        ours.objective,
    )
    assert full.train.seed == bare.train.seed == 3
    assert (bare.codebook.split_every, bare.objective.sharpness) == (0, 0)


@pytest.mark.parametrize("name", ["splitting", "sharpness"])
def test_a_remedy_alone_is_one_change_from_none(name: str):
    bare, alone = variant((), 0, "cpu"), variant(VARIANTS[name], 0, "cpu")
    sections = ("model", "codebook", "objective", "train", "data")
    assert sum(getattr(bare, s) != getattr(alone, s) for s in sections) == 1


def test_the_table_counts_the_seeds_that_reach_both_numbers(tmp_path):
    for seed, (mean, p95) in enumerate([(0.01, 0.02), (0.01, 0.05), (0.1, 0.2)]):
        folder = tmp_path / "both-and-standardized-features" / str(seed)
        folder.mkdir(parents=True)
        (folder / REPORT).write_text(json.dumps({"mode_tv": {"mean": mean, "p95": p95}}))
    assert "| both, and standardized features | 1 of 3 | 0.0100 | 0.1000 | 0.2000 |" in table(
        tmp_path
    )
