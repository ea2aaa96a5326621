"""Writes that are whole or absent, whatever happens meanwhile."""

import contextlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Generator, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from mue.errors import MueError

UNFINISHED = ".mue-"
"""How the names of files begin that are not written yet. A kill may leave one behind."""
_ENDING = ".part"
"""How the names of those end that are removed where no living process holds them."""


@dataclass(frozen=True, slots=True)
class _Unfinished:
    """A file or folder under a temporary name, which this process holds until it closes it."""

    path: Path
    handle: int

    def close(self) -> None:
        """Let go of it."""
        os.close(self.handle)

    def remove(self) -> None:
        """Remove it and let go of it."""
        _remove(self.path)
        self.close()


@dataclass(frozen=True, slots=True)
class _Staged:
    """What a transaction has prepared: files under temporary names, and folders that it made."""

    files: dict[Path, _Unfinished] = field(default_factory=dict)
    folders: list[Path] = field(default_factory=list)


_staged: ContextVar[_Staged | None] = ContextVar("staged", default=None)


@contextlib.contextmanager
def transaction() -> Generator[None]:
    """Files written by `write_atomic` in this block appear at its end.

    Each is written to the disk under a temporary name before the first is renamed, so that an error
    or a full disk leaves all the old files in place. They are renamed one after the other: each is
    the old one or the new one, whole, but a kill between two of them leaves new files beside old.
    """
    if _staged.get() is not None:  # part of the one around it
        yield
        return
    staged = _Staged()
    token = _staged.set(staged)
    try:
        yield
        for path, written in staged.files.items():
            os.replace(written.path, path)
    except BaseException:
        for written in staged.files.values():
            _remove(written.path)
        _remove_empty(staged.folders)
        raise
    finally:
        for written in staged.files.values():
            written.close()
        _staged.reset(token)
    for folder in {path.parent for path in staged.files}:
        _settle(folder)


def write_atomic(path: Path, content: bytes) -> None:
    """Put `content` at `path`, whole or not at all, even if the machine stops."""
    if path.exists() and not path.is_file():
        raise MueError(f"{path} must be a file or not exist yet, and it is a folder or a device")
    with transaction():
        staged = _staged.get()
        assert staged is not None
        try:
            staged.folders[:0] = _make(path.parent)
            written = _begin(path.parent)
            if (before := staged.files.pop(path, None)) is not None:
                before.remove()
            staged.files[path] = written
            with open(written.handle, "wb", closefd=False) as file:
                file.write(content)
            os.fsync(written.handle)
        except OSError as error:
            error.filename = str(path)  # not the temporary name; a full disk names none
            raise


def check_folder(folder: Path) -> None:
    """Refuse a folder for output that files cannot be written to, before any work begins."""
    if not is_utf8(folder):
        raise MueError(f"{folder} must be a folder to write to, with a name in UTF-8")
    there = next(p for p in (folder, *folder.parents) if os.path.lexists(p))
    if not there.is_dir():
        name = "it" if there == folder else str(there)
        raise MueError(f"{folder} must be a folder to write to, and {name} is {_kind(there)}")
    try:
        if there != folder:  # a name may be too long
            with contextlib.suppress(FileNotFoundError):
                folder.lstat()
        with tempfile.TemporaryFile(dir=there, prefix=UNFINISHED):
            pass
    except OSError as error:
        raise MueError(f"{folder} must be a folder to write to: {error.strerror}") from None
    remove_leftovers(folder)


def _kind(path: Path) -> str:
    """What is there in place of a folder."""
    return "a file" if path.is_file() else "a device or a broken link"


def is_utf8(path: Path) -> bool:
    """Whether a name can be written as text: the file system takes any bytes."""
    return not any("\ud800" <= c <= "\udfff" for c in str(path))


def check_new_folder(folder: Path) -> None:
    """Refuse a folder that cannot be made, because it is there or because of where it is."""
    target = Path(os.path.realpath(folder))
    if os.path.lexists(target):
        if not target.is_dir() or any(target.iterdir()):
            found = "holds files" if target.is_dir() else f"is {_kind(target)}"
            raise MueError(f"{folder} must be empty or not exist yet, and it {found}")
        if folder.is_mount():
            raise MueError(f"{folder} is a mount point, which cannot be replaced; name one in it")
    for path in (target, target.parent):
        check_folder(path)


@contextlib.contextmanager
def new_folder(path: Path) -> Generator[Path]:
    """A folder to write into, which becomes `path` when the block ends and vanishes if it fails."""
    check_new_folder(path)
    path = Path(os.path.realpath(path))  # a link stays, and what it points to is made
    missing = _make(path.parent)
    unfinished = _begin(path.parent, is_folder=True)
    made = unfinished.path
    try:
        yield made
        for file in made.rglob("*"):
            if file.is_file():
                with file.open("rb") as opened:
                    os.fsync(opened.fileno())
        os.replace(made, path)
    except BaseException as error:
        if isinstance(error, OSError):  # a full disk does not say where, others a temporary name
            where = Path(error.filename or made)
            if where.is_relative_to(made):
                error.filename, error.filename2 = str(path / where.relative_to(made)), None
        _remove(made)
        _remove_empty(missing)
        raise
    finally:
        unfinished.close()
    _settle(path.parent)


def _begin(folder: Path, *, is_folder: bool = False) -> _Unfinished:
    """A new file or folder under a temporary name, with the permissions that the umask leaves.

    The system lets go of it when the process ends, or dies: then it is a leftover.
    """
    remove_leftovers(folder)
    while True:
        path = folder / f"{UNFINISHED}{secrets.token_hex(8)}{_ENDING}"
        if is_folder:
            path.mkdir()
        flags = os.O_RDONLY if is_folder else os.O_RDWR | os.O_CREAT | os.O_EXCL
        handle = os.open(path, flags, 0o666)
        if _hold(handle) is not False and path.exists():  # no other process took it for a leftover
            return _Unfinished(path, handle)
        os.close(handle)


@lru_cache(maxsize=256)
def remove_leftovers(folder: Path) -> None:
    """Remove what processes that were killed left unfinished in a folder; once in a process."""
    with contextlib.suppress(OSError):
        for path in list(folder.glob(f"{UNFINISHED}*{_ENDING}")):
            with contextlib.suppress(OSError):  # it is finished now, or somebody else's
                handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
                try:
                    if _hold(handle):
                        _remove(path)
                finally:
                    os.close(handle)


def _hold(handle: int) -> bool | None:
    """Hold a file or folder alone. False where another process does, None where none can."""
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):  # Windows; a file system without locks of folders, such as NFS
        return None
    return True


def _remove(path: Path) -> None:
    """Remove a file or a folder."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(folder: Path) -> Generator[None]:
    """Make a folder and hold it alone. The system lets go of it when the process ends, or dies."""
    folder.mkdir(parents=True, exist_ok=True)
    if os.name != "posix":  # Windows opens no folder
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        if _hold(handle) is False:
            raise MueError(
                f"{folder} is being written to by another process; wait until it ends, or name "
                "another folder"
            )
        yield
    finally:
        os.close(handle)


def _make(folder: Path) -> list[Path]:
    """Make a folder; returns those that were missing, the innermost first."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return missing


def _remove_empty(folders: Iterable[Path]) -> None:
    """Remove folders, the innermost first; what is not empty holds files of somebody else."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _settle(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
