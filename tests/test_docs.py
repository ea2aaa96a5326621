"""The pages are true: their Python runs, their commands parse, their links lead somewhere."""

import dataclasses
import functools
import inspect
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mue.cli.commands import COMMANDS
from mue.cli.main import main
from mue.config.auto import EXAMPLE, choose
from mue.config.presets import PRESETS
from mue.data.build import SOURCES
from mue.data.images.formats import FORMATS
from mue.evaluation.columns import METRICS
from mue.inference.writers import FORMATS as WRITERS
from mue.models.build import BACKBONES
from mue.service.routes import API

ROOT = Path(__file__).parents[1]
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").glob("*.md")),
]
PYTHON = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


# --- Python ---------------------------------------------------------------------------------------


@pytest.fixture
def tables() -> Iterator[None]:
    """Takes back what a page adds to the tables of names."""
    before = [
        (table, dict(table)) for table in (SOURCES, BACKBONES, METRICS, PRESETS, API, WRITERS)
    ]
    formats = list(FORMATS)
    yield
    FORMATS[:] = formats
    for table, content in before:
        table.clear()
        table.update(content)  # pyright: ignore[reportArgumentType, reportCallIssue]


def run_page(name: str, folder: Path) -> None:
    """Run the blocks of a page in order in one namespace, and call each test that one defines."""
    page, names = (ROOT / name).read_text(), dict[str, Any]()
    for found in PYTHON.finditer(page):
        line = page[: found.start()].count("\n") + 1
        known = set(names)
        exec(compile("\n" * line + found[1], name, "exec"), names)  # with the page's line numbers
        for test in [n for n in names if n.startswith("test_") and n not in known]:
            (folder / test).mkdir()
            wants_folder = "tmp_path" in inspect.signature(names[test]).parameters
            names[test](*[folder / test] * wants_folder)


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("name", [p for p in PAGES if PYTHON.search((ROOT / p).read_text())])
def test_the_python_of_a_page_runs(name: str, lesions: Path, tmp_path: Path, monkeypatch):
    if "mue.kernels" in (ROOT / name).read_text():
        pytest.importorskip("mue.kernels")
    shutil.copytree(lesions, tmp_path / "lidc")  # a page takes it for prepared data
    monkeypatch.chdir(tmp_path)
    run_page(name, tmp_path)


def test_a_format_is_one_file_and_one_line(tmp_path):
    """Those of CONTRIBUTING in a copy of the source, as a contributor would add them."""
    package = tmp_path / "mue"
    large = shutil.ignore_patterns("bundled", "__pycache__")
    shutil.copytree(ROOT / "src" / "mue", package, ignore=large)
    (package / "bundled").symlink_to(ROOT / "src" / "mue" / "bundled")
    page = (ROOT / "CONTRIBUTING.md").read_text()

    def add(title: str, new: str, table: str, start: str) -> None:
        module, line, _ = PYTHON.findall(page.split(f"### {title}\n")[1])[:3]
        (package / new).write_text(module)
        line = f"{line.strip().splitlines()[-1]},"
        line = re.sub(r"^writers.FORMATS\[(.*)\] = writers\.(.*)$", r"\1: \2", line)
        line = re.sub(r"^FORMATS.insert\(0, (.*)\),$", r"\1,", line).replace(
            " read,", ' _by("pgm"),'
        )
        text = (package / table).read_text()
        assert text.count(start) == 1
        text = text.replace(start, f"{start}    {line}\n")
        name = re.search(r"OutputFormat\(.*, (\w+)\)", line)
        imported = f"from mue.inference.{Path(new).stem} import {name[1]}\n" if name else ""
        (package / table).write_text(text.replace("from mue.inf", f"{imported}from mue.inf", 1))

    add("An input format", "data/images/pgm.py", "data/images/formats.py", "FORMATS = [\n")
    start = "FORMATS: dict[str, OutputFormat] = {\n"
    add("An output format", "inference/areas.py", "inference/writers.py", start)
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "grey.PGM").write_bytes(b"P5 128 128 255\n" + bytes(range(128)) * 128)
    command = "-m mue predict lidc-small images --out out --format areas --device cpu"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    run = [sys.executable, *command.split()]
    done = subprocess.run(run, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = (tmp_path / "out" / "grey-areas.csv").read_text().splitlines()
    assert sum(float(row.split(",")[0]) for row in rows) <= 1.001


def test_the_python_of_the_readme_ranks_four_answers(tmp_path, capsys):
    run_page("README.md", tmp_path)
    prob = [float(p) for p in re.findall(r"probability (\d\.\d+)", capsys.readouterr().out)]
    # merged, the answers of any category are its four digits; a category sums to 1
    assert sum(p > 0.05 for p in prob) == 4
    assert prob == sorted(prob, reverse=True)
    assert sum(prob) == pytest.approx(1, abs=0.01)


def test_the_example_recovers_each_probability_of_three_points(capsys):
    runpy.run_path(str(ROOT / "examples" / "vector.py"), run_name="__main__")
    pairs = re.findall(r"predicted (\d\.\d+), true (\d\.\d+)", capsys.readouterr().out)
    assert len(pairs) == 3 * 3
    for predicted, true in pairs:
        assert float(predicted) == pytest.approx(float(true), abs=0.03)


# --- commands -------------------------------------------------------------------------------------


class Parsed(Exception):  # noqa: N818
    """A command line was understood."""


def only_parsed(verb: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the same signature that does nothing."""

    @functools.wraps(verb)
    def stop(*_: Any, **__: Any) -> None:
        raise Parsed

    return stop


def command_lines(name: str) -> list[str]:
    """Each `mue ...` of a page, in a line of its own or within a sentence."""
    text = (ROOT / name).read_text().replace("\\\n", " ")
    lines = re.findall(r"^(?: {4,}.*-m |    |)(mue [a-z].*)$", text, re.MULTILINE)
    lines += re.findall(r"`(?:torchrun [^`]* -m )?(mue [a-z][^`]*)`", text)
    whole = (re.sub(r"\s+(#|\|\|).*", "", " ".join(line.split())) for line in lines)
    return [line for line in whole if not re.search(r"…(?!\s|$)|\s…|\.\.\.", line)]


@pytest.mark.parametrize("name", PAGES)
def test_every_command_of_a_page_parses(name: str, monkeypatch: pytest.MonkeyPatch):
    for command, verb in COMMANDS.items():
        monkeypatch.setitem(COMMANDS, command, only_parsed(verb))
    monkeypatch.setattr("mue.commands.train.train", only_parsed(COMMANDS["train"]))
    monkeypatch.setattr("mue.cli.train.auto", lambda *_, **__: choose(EXAMPLE, "cpu"))
    monkeypatch.setitem(PRESETS, "signs", PRESETS["toy"])  # CONTRIBUTING adds it
    for line in command_lines(name):
        words = shlex.split(line.replace("PRESET", "toy"))[1:]
        if len(words) == 1 and words != ["demo"]:
            continue  # the name of a command in a sentence
        if words[0] == "train" and not {"--out", "--help"} & set(words):
            words += ["--out", "DIR"]  # left out in a sentence
        with pytest.raises((Parsed, SystemExit)) as stop:
            main(words)
        assert stop.type is Parsed or "--help" in words, line


# --- links ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*PAGES, "CHANGELOG.md"])
def test_every_local_link_leads_somewhere(name: str):
    page = ROOT / name
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", page.read_text()):
        there = (page.parent / target) if target else page
        assert there.exists(), f"{name} links to {target}"
        if anchor:
            heads = re.findall(r"^#+ (.*)$", there.read_text(), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in heads}
            assert anchor in slugs, f"{name} links to {target}#{anchor}"


def test_every_name_in_the_table_of_symbols_is_in_the_source():
    page = (ROOT / "docs" / "paper.md").read_text()
    table = page.split("\n## Symbols")[1].split("\n## ")[0]
    every = "\n".join(path.read_text() for path in (ROOT / "src" / "mue").rglob("*.py"))
    rows = re.findall(r"^\| .*\]\(.*$", table, re.MULTILINE)
    assert len(rows) > 20
    for row in rows:
        files = re.findall(r"\]\(\.\./(src/[^)]*)\)", row)
        linked = "\n".join((ROOT / f).read_text() for f in [*files, "src/mue/types.py"])
        for name in re.findall(r"`([A-Za-z]\w*(?:\.\w+)*)`", row):
            owner, member = name.partition(".")[0], name.rpartition(".")[2]
            assert re.search(rf"\b{member}\b", every), f"{name} is not in the source"
            if owner[0].isupper():
                assert re.search(rf"^class {owner}\b", linked, re.MULTILINE), f"{name}: {files}"


def test_contributing_lists_every_file_and_folder_of_the_root():
    page = (ROOT / "CONTRIBUTING.md").read_text()
    tree = page.split("src/mue/\n")[1].split("```")[0]
    listed = dict(re.findall(r"^  (\S+?)/? +(.*)$", tree, re.MULTILINE))
    source = ROOT / "src" / "mue"
    there = {p.name for p in source.iterdir() if p.suffix == ".py" or (p / "__init__.py").is_file()}
    assert set(listed) == there - {"__main__.py"}
    for folder, files in listed.items():
        for name in re.findall(r"\b(\w+\.py)\b", files):
            assert (source / folder / name).is_file(), f"{folder}/{name}"


def test_performance_lists_every_piece_of_the_acceleration():
    plan = pytest.importorskip("mue.kernels.plan")
    page = (ROOT / "docs" / "performance.md").read_text()
    table = page.split("| piece |")[1].split("\n\n")[0]
    names = re.findall(r"^\| `(\w+)` ", table, re.MULTILINE)
    assert names == [field.name for field in dataclasses.fields(plan.Pieces)]
