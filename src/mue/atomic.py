"""Writes that are whole or absent, whatever happens meanwhile."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

from mue.errors import MueError

UNFINISHED = ".mue-"
"""How the names of files begin that are not written yet. A kill may leave one behind."""


def write_atomic(path: Path, content: bytes) -> None:
    """Put `content` at `path`, whole or not at all, even if the machine stops."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=UNFINISHED, delete=False) as file:
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            os.chmod(file.name, 0o644)
            os.replace(file.name, path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
    _settle(path.parent)


@contextlib.contextmanager
def new_folder(path: Path) -> Generator[Path]:
    """A folder to write into, which becomes `path` when the block ends and vanishes if it fails."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise MueError(f"{path} must be empty or not exist yet, and it holds files")
    missing = [folder for folder in path.parents if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=path.parent, prefix=UNFINISHED))
    try:
        yield made
        for file in made.rglob("*"):
            if file.is_file():
                with file.open("rb") as opened:
                    os.fsync(opened.fileno())
        made.chmod(0o755)
        os.replace(made, path)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename is None:  # a full disk does not say where
            error.filename = str(path)
        shutil.rmtree(made, ignore_errors=True)
        with contextlib.suppress(OSError):  # somebody else's files are in it by now
            for folder in missing:
                folder.rmdir()
        raise
    _settle(path.parent)


def _settle(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
