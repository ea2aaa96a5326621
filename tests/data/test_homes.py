"""What has a home in `mue.data` is done there and nowhere else."""

import importlib.util
import re
from pathlib import Path

import pytest

import mue.data

SRC = Path(mue.data.__file__).parents[1]
WALK, FORMATS = "data/images/walk.py", "data/images/formats.py"
OWN_FILES = {"runtime/atomic.py", "service/routes/page.py"}  # look at what is their own


@pytest.mark.parametrize(
    ("words", "homes"),
    [
        (r"os\.(walk|scandir|listdir)|\.(rglob|walk)\(", {WALK, *OWN_FILES}),
        (r"DICM\b|DICOMDIR", {FORMATS, WALK}),
        (r"x89PNG|x93NUMPY", {FORMATS}),
        (r"re\.split", {"data/order.py"}),
        (r"\bMAX_PIXELS =", {"data/images/image.py"}),
        (r"\"\.jpe?g\"", {FORMATS}),
        (r"(slice missing|two slices)\"", {"data/images/dicom_frames.py"}),
        (r"str\((error|e)\)\.(removeprefix|replace|removesuffix|split)", set()),
    ],
)
def test_it_is_done_in_one_place(words, homes):
    found = {
        path.relative_to(SRC).as_posix()
        for path in SRC.rglob("*.py")
        if re.search(words, path.read_text())
    }
    assert found <= homes


def test_folders_of_users_are_listed_by_the_walker_alone():
    places = [*(SRC / "data").rglob("*.py"), SRC / "inference" / "files.py"]
    assert [p.name for p in places if ".iterdir()" in p.read_text()] == ["walk.py"]


@pytest.mark.parametrize(
    "name", ["export_folder", "import_folder", "import_lidc", "inspect", "new"]
)
def test_no_command_on_data_has_the_name_of_a_module(name):
    assert callable(getattr(mue.data, name))
    assert importlib.util.find_spec(f"mue.data.{name}") is None


def test_every_module_has_a_test_file_of_its_own():
    tests = Path(__file__).parent
    missing = [
        path.relative_to(SRC / "data").as_posix()
        for path in (SRC / "data").rglob("*.py")
        if path.stem != "__init__"
        and not (tests / path.relative_to(SRC / "data").with_name(f"test_{path.name}")).exists()
    ]
    assert missing == ["source.py"]  # an interface
