"""The names of `mue.metrics`, and that nobody else computes what they do."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

import mue.metrics

ROOT = Path(__file__).parents[2]
HOME = ROOT / "src" / "mue" / "metrics"
LOOPS = {
    "benchmarks/metrics.py",
    "benchmarks/timing/written_out.py",
}  # what metrics are held against
OTHERS = sorted(
    path
    for folder in ("src", "benchmarks", "examples")
    for path in (ROOT / folder).rglob("*.py")
    if HOME not in path.parents and str(path.relative_to(ROOT)) not in LOOPS
)
OVERLAP = {"logical_and", "logical_or", "bitwise_and", "bitwise_or", "intersection", "union"}
COUNT = {"sum", "count_nonzero", "mean", "bitwise_count"}
PRIVATE = {"common_pixels", "joint_iou", "linear_sum_assignment"}


def test_every_name_is_there_and_none_is_that_of_a_module():
    names = mue.metrics.__all__
    assert names == sorted(names)
    modules = {path.stem for path in HOME.glob("*.py")}
    for name in names:
        assert hasattr(mue.metrics, name), name
        assert name not in modules, f"{name} is a function and a module"


def test_every_metric_of_masks_is_at_hand():
    for module in ("overlap", "energy", "matching", "calibration"):
        content = vars(__import__(f"mue.metrics.{module}", fromlist=[module]))
        of_masks = [
            name
            for name, value in content.items()
            if inspect.isfunction(value)
            and value.__module__ == f"mue.metrics.{module}"
            and {"s", "ys"} & set(inspect.signature(value).parameters)
            and not name.startswith("_")
        ]
        assert set(of_masks) <= set(mue.metrics.__all__), module


# --- the home of every metric ---------------------------------------------------------------------


def called(node: ast.AST) -> str:
    """The name of what is called, whatever it is called on."""
    if not isinstance(node, ast.Call):
        return ""
    f = node.func
    return f.attr if isinstance(f, ast.Attribute) else f.id if isinstance(f, ast.Name) else ""


def joins_masks(node: ast.AST) -> bool:
    """Whether two masks are intersected or united somewhere in an expression."""
    return any(
        called(n) in OVERLAP
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
            isinstance(getattr(n, "op", None), ast.MatMult) or "mean" in called(n)
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
                (called(n) in COUNT and joins_masks(n))
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
