"""Each truth has one home (CONTRIBUTING, "One truth, one home"): nobody else does its work."""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import mue.metrics

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
    """What is in a folder, or all that is below it, in the order of the file system."""
    of, _, name = called(node).rpartition(".")
    return bool(of) and name in {"walk", "rglob", "scandir", "listdir", "iterdir"}


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


def knows_a_content(node: ast.AST) -> bool:
    """With what the files of a format begin."""
    value = node.value if isinstance(node, ast.Constant) else b""
    return isinstance(value, bytes) and any(
        magic in value for magic in (b"DICM", b"\x89PNG", b"\x93NUMPY", b"\xff\xd8")
    )


def knows_an_ending(node: ast.AST) -> bool:
    """What the names of the files of a format end in, of one that is only read."""
    return isinstance(node, ast.Constant) and node.value in {".jpg", ".jpeg", ".dicom"}


def judges_a_series(node: ast.AST) -> bool:
    """What is wrong with the positions of its slices."""
    return isinstance(node, ast.Constant) and node.value in {"two slices", "a slice missing"}


def cuts_a_sentence(node: ast.AST) -> bool:
    """Words taken out of what a reader says, which has its path and its reason as two values."""
    return bool(
        re.fullmatch(r"str\((error|e)\)\.(replace|split|remove(prefix|suffix))", called(node))
    )


def computes_a_learning_rate(node: ast.AST) -> bool:
    """Arithmetic with `lr` of a configuration, or what its schedule is made of."""
    if isinstance(node, ast.BinOp):
        sides = {ast.unparse(side) for side in (node.left, node.right)}
        return bool(sides & {"t.lr", "train.lr", "config.train.lr", "config.lr"})
    return isinstance(node, ast.Attribute) and node.attr in {"milestones", "factors", "warmup"}


def averages_weights(node: ast.AST) -> bool:
    """An exponential moving average of weights: `lerp_` of an EMA, or by its decay."""
    return "lerp" in called(node) and bool(re.search(r"\bself\._ema|\bema", ast.unparse(node)))


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
    "the learning rate": (
        computes_a_learning_rate,
        {"training/schedule.py", "config/schema.py"},  # which checks the fields
        "config.train.lr * warmup",
    ),
    "the EMA of the weights": (
        averages_weights,
        {"training/optimizer.py", "training/state.py"},  # the codes of vq have no gradient
        "ema.lerp_(p, 1 - ema_decay)",
    ),
    "which files a folder holds": (
        walks_a_folder,
        {
            "data/images/walk.py",
            "service/routes/page.py",  # the files of the page
            "inference/load.py",  # the bundled models
            "runtime/atomic.py",  # what it has written itself, as those below
            "runs/folder.py",
            "inference/answers_folder.py",
            "commands/calibrate.py",
            "commands/export.py",
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
    "what a file is": (knows_a_content, {"data/images/formats.py"}, "head[128:] == b'DICM'"),
    "what it is named": (knows_an_ending, {"data/images/formats.py"}, "suffix in ('.jpeg',)"),
    "whether a slice is missing": (
        judges_a_series,
        {"data/images/dicom_frames.py"},
        "raise MueError(f'{path}: has ' + 'a slice missing')",
    ),
    "why a file cannot be read": (cuts_a_sentence, set(), "str(error).removeprefix(str(path))"),
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


# --- no metric by hand ----------------------------------------------------------------------------

ROOT, METRICS = SRC.parents[1], SRC / "metrics"
LOOPS = {
    "benchmarks/metrics.py",
    "benchmarks/timing/written_out.py",
}  # what metrics are held against
OTHERS = sorted(
    path
    for folder in ("src", "benchmarks", "examples")
    for path in (ROOT / folder).rglob("*.py")
    if METRICS not in path.parents and str(path.relative_to(ROOT)) not in LOOPS
)
OVERLAP = {"logical_and", "logical_or", "bitwise_and", "bitwise_or", "intersection", "union"}
COUNT = {"sum", "count_nonzero", "mean", "bitwise_count"}
PRIVATE = {"common_pixels", "joint_iou", "linear_sum_assignment"}


def of_call(node: ast.AST) -> str:
    """The name of what is called, whatever it is called on."""
    f = getattr(node, "func", None)
    return f.attr if isinstance(f, ast.Attribute) else f.id if isinstance(f, ast.Name) else ""


def joins_masks(node: ast.AST) -> bool:
    """Whether two masks are intersected or united somewhere in an expression."""
    return any(
        of_call(n) in OVERLAP
        or (isinstance(n, ast.BinOp) and isinstance(n.op, (ast.BitAnd, ast.BitOr)))
        for n in ast.walk(node)
    )


def is_energy_distance(node: ast.BinOp) -> bool:
    """Whether an expression is 2 A - B - C, where B and C are means or products of matrices."""
    a = node.left
    if not (
        isinstance(a, ast.BinOp) and isinstance(node.op, ast.Sub) and isinstance(a.op, ast.Sub)
    ):
        return False
    twice = any(isinstance(n, ast.Constant) and n.value == 2 for n in ast.walk(a.left))
    means = all(
        any(
            isinstance(getattr(n, "op", None), ast.MatMult) or "mean" in of_call(n)
            for n in ast.walk(t)
        )
        for t in (a.right, node.right)
    )
    return twice and means


def metrics_by_hand(source: str) -> Iterator[int]:
    """Lines with an energy distance, or that divide a number of pixels that masks share."""
    for scope in ast.walk(ast.parse(source)):
        if not isinstance(scope, (ast.FunctionDef, ast.Module)):
            continue
        counts: set[str] = set()

        def counted(node: ast.AST, counts: set[str] = counts) -> bool:
            return any(
                (of_call(n) in COUNT and joins_masks(n))
                or (isinstance(n, ast.Name) and n.id in counts)
                for n in ast.walk(node)
            )

        for node in ast.walk(scope):
            if isinstance(node, (ast.Assign, ast.NamedExpr)) and counted(node.value):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                counts |= {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
        for node in ast.walk(scope):
            if not isinstance(node, ast.BinOp):
                continue
            divided = isinstance(node.op, ast.Div) and (counted(node.left) or counted(node.right))
            if divided or is_energy_distance(node):
                yield node.lineno


@pytest.mark.parametrize(
    "source",
    [
        "x = (a & b).sum() / (a | b).sum()",
        "both = np.logical_and(a, b).sum()\nd = 2 * both / (a.sum() + b.sum())",
        "d = 2 * p @ sy @ q - p @ ss @ p - q @ yy @ q",
        "d = 2 * sy.mean() - ss.mean() - yy.mean()",
        "def f(a, b):\n    if union := (a | b).sum().item():\n        return 1 - 3 / union",
    ],
)
def test_a_metric_by_hand_is_seen(source):
    assert list(metrics_by_hand(source))


@pytest.mark.parametrize(
    "path", OTHERS, ids=lambda path: str(path.relative_to(ROOT)).removeprefix("src/mue/")
)
def test_nobody_else_computes_a_metric(path: Path):
    source = path.read_text()
    for line in metrics_by_hand(source):
        pytest.fail(f"line {line} computes a metric; call mue.metrics")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names}
            assert not names & PRIVATE, f"line {node.lineno}: take a function of mue.metrics"
    functions = {node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
    assert not functions & set(mue.metrics.__all__), "the name of a metric of mue.metrics"
