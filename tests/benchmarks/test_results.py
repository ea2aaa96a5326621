import pytest

import lesions
import results


def test_a_report_of_the_game_is_a_row_and_a_section():
    row = results.Row("`guess` (bundled)", "guess", "mue train guess", 12.0)
    content = {
        "method": "vq",
        "mode_tv": {"mean": 0.01234, "p95": 0.05},
        "mode_mae": {"mean": 0.001},
        "codes_in_use": 4,
        "trained_with": {"version": "1", "commit": "abc"},
        "table": [{"group": "A", "mode": 1, "true": 0.25, "predicted": 0.2, "deviation": 0.01}],
    }
    last = results.table([row], [content]).splitlines()[-1]
    assert last == "| `guess` (bundled) | `vq` | 0.0123 | 0.0500 | 0.0010 | 4 |"
    section = results.details(row, content)
    assert section.startswith("## `guess` (bundled)\n\n    mue train guess\n\nSeed ")
    assert "version 1, commit abc, 12 s of training" in section
    assert section.endswith("| A | 1 | 0.250 | 0.200 | 0.010 |")


@pytest.fixture
def report() -> dict:
    value = {"mean": 0.25, "low": 0.125, "high": 0.5, "std": 0.75}
    return {
        "method": "exact",
        **dict.fromkeys((*lesions.METRICS, *lesions.MORE), value),
        "mode": {"ece": value, "brier": value},
        "presence": {"ece": value, "brier": value},
        "codes_in_use": 20,
        "passes": 1,
        "trained_with": {"version": "1", "commit": "abc"},
    }


def test_a_report_of_lesions_is_a_row_and_a_section(report):
    row = lesions.Row("`lidc-exact`", "lidc-exact", ("mue train a", "mue calibrate b"))
    last = lesions.table([(row, report)]).splitlines()[-1]
    assert last.startswith("| `lidc-exact` | `exact` | 0.250 (0.125 to 0.500) | 0.250 |")
    assert last.endswith("| 0.250 | 20 | 1 |")
    section = lesions.details(row, report)
    assert "\n\n    mue train a\n    mue calibrate b\n\nSeed 0, " in section
    assert "| ged | 0.2500 | 0.1250 to 0.5000 | 0.7500 |" in section
