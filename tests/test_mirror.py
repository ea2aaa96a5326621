"""The tests mirror the source, file by file."""

from pathlib import Path

SRC = Path(__file__).parents[1] / "src" / "mue"
WITHOUT_A_TEST = {
    "__main__.py",  # run by every test of a process
    "version.py",
    "data/source.py",  # an interface
    "kernels",  # compared with plain training, whole, in a few files
}
TESTED_ELSEWHERE = {
    "commands/import_lidc.py",
    "inference/answers_folder.py",
    "inference/forward.py",
    "inference/png.py",
    "inference/prediction.py",
    "inference/volume.py",
    "models/network.py",
    "models/posterior.py",
    "nn/across.py",
    "nn/backbone.py",
    "runs/weights.py",
    "runtime/collectives.py",
    "runtime/environment.py",
    "training/batches.py",
    "training/measure.py",
    "training/rendezvous.py",
    "training/run.py",
    "training/start.py",
    "training/step.py",
}
"""To be emptied: modules that are tested through others alone."""


def test_tests_mirror_the_source():
    tests = Path(__file__).parent
    missing: set[str] = set()
    for path in sorted(SRC.rglob("*.py")):
        name = path.relative_to(SRC)
        mirrored = (tests / name).with_name(f"test_{path.name}").exists()
        free = path.name == "__init__.py" or {str(name), name.parts[0]} & WITHOUT_A_TEST
        if not mirrored and not free:
            missing.add(str(name))
    assert not missing - TESTED_ELSEWHERE, "write a test file of the same path"
    gone = {name for name in TESTED_ELSEWHERE if not (SRC / name).exists()}
    assert not gone, "take what is gone from the list"
