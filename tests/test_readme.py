"""The README's own words are true."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_the_python_of_the_readme_runs_and_ranks_four_answers(capsys: pytest.CaptureFixture[str]):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    prob = [float(p) for p in re.findall(r"probability (\d\.\d+)", printed)]
    # merged, the answers of any category are its four digits; a category sums to 1
    assert sum(p > 0.05 for p in prob) == 4
    assert prob == sorted(prob, reverse=True)
    assert sum(prob) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "CONTRIBUTING.md",
        *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").glob("*.md")),
    ],
)
def test_every_local_link_leads_somewhere(name: str):
    page = ROOT / name
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{name} links to {target}"


def test_the_example_recovers_each_probability_of_three_points(capsys: pytest.CaptureFixture[str]):
    runpy.run_path(str(ROOT / "examples" / "vector.py"), run_name="__main__")
    pairs = re.findall(r"predicted (\d\.\d+), true (\d\.\d+)", capsys.readouterr().out)
    assert len(pairs) == 3 * 3
    for predicted, true in pairs:
        assert float(predicted) == pytest.approx(float(true), abs=0.03)
