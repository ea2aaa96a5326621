"""Each truth has one home (CONTRIBUTING, "One truth, one home"): nobody else does its work.

That no other module computes a metric is in tests/metrics/test_init.py.
"""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "mue"
Finder = Callable[[ast.AST], bool]


def called(node: ast.AST) -> str:
    """The dotted name of what is called."""
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""


def scales_by_the_type(node: ast.AST) -> bool:
    """A division by the largest value of a type of integers."""
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)):
        return False
    by = ast.unparse(node.right)
    return "iinfo" in by or by in {"255", "255.0", "65535", "65535.0"}


def cuts_at_a_half(node: ast.AST) -> bool:
    """A comparison with 0.5, or the most probable class of each pixel as a mask."""
    return isinstance(node, ast.Compare) and any(
        isinstance(side, ast.Constant) and side.value == 0.5
        for side in (node.left, *node.comparators)
    )


def is_mode_as_json(node: ast.AST) -> bool:
    """A dictionary of a mode: its rank, its members."""
    given = node.keys if isinstance(node, ast.Dict) else []
    keys = {key.value for key in given if isinstance(key, ast.Constant)}
    return len(keys & {"rank", "prob", "members", "spread"}) > 2


def names_classes(node: ast.AST) -> bool:
    """A name made up for a class without one."""
    return isinstance(node, ast.JoinedStr) and ast.unparse(node)[2:].startswith("class {")


def tells_models_apart(node: ast.AST) -> bool:
    """The digest of weights without the configuration."""
    return called(node).rpartition(".")[2] == "weights_digest"


def reads_a_configuration(node: ast.AST) -> bool:
    """The name of the file, or a `Config` made of what is in it."""
    return (isinstance(node, ast.Constant) and node.value == "config.json") or (
        called(node).endswith("from_dict") and ast.unparse(node).split("(")[1].startswith("Config")
    )


def walks_a_folder(node: ast.AST) -> bool:
    """All that is below a folder, in the order of the file system."""
    of, _, name = called(node).rpartition(".")
    return bool(of) and name in {"walk", "rglob", "scandir", "listdir"}


def sorts_by_numbers(node: ast.AST) -> bool:
    """Names taken apart into text and numbers."""
    return called(node) in {"re.split", "re.findall", "re.sub", "re.compile"} and bool(
        re.search(r"\(\\\\d\+\)|\[0-9\]\+\)", ast.unparse(node))
    )


def asks_what_is_judged(node: ast.AST) -> bool:
    """Whether true probabilities are known, asked of the class of a source."""
    if called(node) == "isinstance":
        return ast.unparse(node).endswith("Slices)")
    return called(node).rpartition(".")[2] in {"is_generated", "generated"}


def limits_pixels(node: ast.AST) -> bool:
    """The largest number of pixels of an image."""
    return isinstance(node, ast.Assign) and bool(
        re.search(r"\bMAX_PIXELS", ast.unparse(node.targets[0]))
    )


def groups_answers(node: ast.AST) -> bool:
    """A rule of its own, or answers joined without one."""
    return called(node) in {"ModeRule", "linkage", "ranking"}


def is_soft_iou(node: ast.AST) -> bool:
    """(I + 1) / (U + 1)."""
    return isinstance(node, ast.BinOp) and bool(
        re.fullmatch(r"\((?!step)\w+ \+ 1\) / \(.*\w+ \+ 1\)", ast.unparse(node))
    )


def is_joint(node: ast.AST) -> bool:
    """Log p(c, y | x), of which responsibilities are made."""
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)):
        return False
    prior, answer = ast.unparse(node.left), ast.unparse(node.right)
    return "log_prior" in prior and answer.startswith(("log_y", "log_likelihood"))


def says_which_codes_are_in_use(node: ast.AST) -> bool:
    """A comparison with 1 %."""
    return isinstance(node, ast.Compare) and any(
        isinstance(side, ast.Constant) and side.value == 0.01 for side in node.comparators
    )


def refuses_a_coverage(node: ast.AST) -> bool:
    """Why a coverage cannot be promised."""
    return isinstance(node, ast.Raise) and bool(
        re.search(r"was not calibrated|at the calibrated cut", ast.unparse(node))
    )


HOMES: dict[str, tuple[Finder, set[str], str]] = {
    "values of an image, scaled": (
        scales_by_the_type,
        {
            "data/normalize.py",
            "data/synthetic/guess.py",  # the digits that it is made of
            "data/synthetic/two_digits.py",
            "plots/contact_sheet.py",  # for the eye
        },
        "x / np.iinfo(x.dtype).max",
    ),
    "answers to masks": (
        cuts_at_a_half,
        {
            "modes/distances.py",
            "data/synthetic/toy.py",  # a random number
            "data/augment.py",
        },
        "y > 0.5",
    ),
    "modes to JSON": (
        is_mode_as_json,
        {"inference/json.py", "service/schema.py"},  # its example
        "{'rank': 1, 'prob': p, 'members': []}",
    ),
    "classes to names": (names_classes, {"inference/masks.py"}, "f'class {i}'"),
    "which model this is": (
        tells_models_apart,
        {"runs/identity.py", "commands/report.py", "commands/compare.py"},  # which print it
        "checkpoint.weights_digest(folder)",
    ),
    "the configuration of a run": (
        reads_a_configuration,
        {"runs/folder.py"},
        "json.loads((folder / 'config.json').read_text())",
    ),
    "which files a folder holds": (
        walks_a_folder,
        {
            "data/images/walk.py",
            "runtime/atomic.py",  # what it has written itself
            "service/routes/page.py",  # the files of the page
        },
        "sorted(folder.rglob('*.png'))",
    ),
    "in which order": (sorts_by_numbers, {"data/order.py"}, "re.split(r'(\\d+)', name)"),
    "what kind of thing is judged": (
        asks_what_is_judged,
        set(),
        "isinstance(source, Slices)",
    ),
    "which answers are one mode": (
        groups_answers,
        {
            "modes/rule.py",
            "modes/ranked.py",
            "inference/predictor.py",  # of the model
            "evaluation/calibrate.py",  # which chooses its cut
        },
        "modes = ModeRule('masks', cut=0.5).group(h)",
    ),
    "soft IoU": (is_soft_iou, {"nn/soft_iou.py"}, "(both + 1) / (area + other - both + 1)"),
    "responsibilities": (
        is_joint,
        {"objective.py"},
        "(trace.log_prior[:, :, None] + log_y).softmax(dim=1)",
    ),
    "which codes are in use": (
        says_which_codes_are_in_use,
        {"models/modal.py"},
        "(log_prior.exp() > 0.01).any(dim=0)",
    ),
    "what coverage is promised": (
        refuses_a_coverage,
        {"inference/predictor.py"},
        "raise MueError('`coverage` is promised of modes at the calibrated cut')",
    ),
    "how large an image may be": (limits_pixels, {"data/images/image.py"}, "MAX_PIXELS = 1 << 26"),
}
"""What is looked for, the modules that may, and a line that would be found."""


def found(finder: Finder, source: str) -> Iterator[int]:
    """The lines that do it."""
    for node in ast.walk(ast.parse(source)):
        if finder(node):
            yield getattr(node, "lineno", 0)


@pytest.mark.parametrize("truth", HOMES)
def test_nobody_else_does_the_work_of_a_home(truth: str):
    finder, homes, line = HOMES[truth]
    assert list(found(finder, line)), "it is not even found in its example"
    for path in sorted(SRC.rglob("*.py")):
        name = str(path.relative_to(SRC))
        if name not in homes:
            lines = list(found(finder, path.read_text()))
            assert not lines, f"{name} does it in line {lines[0]}: {truth}"


@pytest.mark.parametrize("truth", HOMES)
def test_a_home_does_its_work(truth: str):
    """A module that does not do it any more is taken from the list."""
    finder, homes, _ = HOMES[truth]
    for name in homes:
        assert list(found(finder, (SRC / name).read_text())), f"{name}: {truth}"
