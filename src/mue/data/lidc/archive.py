"""The files of a folder or a tar archive, one after the other, without unpacking anything."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath

from mue.data.prepared.item import Bad
from mue.errors import MueError

LARGEST = 64 * 2**20
"""Bytes of the largest file that is read: no picture, slice or XML of LIDC-IDRI comes near."""
ARCHIVES = (".tar.gz", ".tgz", ".tar")
PICKLES = (".pickle", ".pkl")
_CHUNK = 2**20


@dataclass(frozen=True, slots=True)
class File:
    """A file of a source.

    Attributes:
        name: Its path inside the folder or archive, with forward slashes.
        where: The same with the archive's name before it: how a person finds it.
        data: Its bytes, from the beginning.
    """

    name: str
    where: str
    data: bytes


class Meter:
    """Adds up the bytes that were read and reports them."""

    def __init__(self, total: int, watch: Callable[[int, int], None] | None) -> None:
        self._done, self._total, self._watch = 0, total, watch

    def add_(self, count: int) -> None:
        """Count bytes as read, never beyond the total."""
        self._done = min(self._done + count, self._total)
        if self._watch is not None and count:
            self._watch(self._done, self._total)


def is_archive(path: Path) -> bool:
    """Whether a path is named like a tar archive."""
    return path.name.lower().endswith(ARCHIVES)


def expand(sources: Sequence[Path]) -> list[Path]:
    """The sources, where a folder that directly holds archives or a pickle stands for these."""
    found: list[Path] = []
    for source in sources:
        if not source.exists():
            raise MueError(f"there is no file or folder {source}")
        inside = sorted(source.iterdir()) if source.is_dir() else []
        packed = [
            path
            for path in inside
            if path.is_file() and (is_archive(path) or path.suffix.lower() in PICKLES)
        ]
        found += packed or [source]
    return found


def weigh(sources: Sequence[Path]) -> int:
    """Bytes of all files of the sources."""
    return sum(
        path.stat().st_size
        for source in sources
        for path in (_files(source) if source.is_dir() else [source])
    )


def walk(source: Path, wanted: Callable[[str], int], meter: Meter) -> Iterator[File | Bad]:
    """The wanted files of a source, in its order for an archive and by name for a folder.

    Args:
        source: A folder, or a tar archive, compressed by gzip or not.
        wanted: How many bytes of a file of this name are needed, from its beginning; 0 for none.
        meter: Told of the bytes of the source that were read or passed over.

    Yields:
        Files, and a Bad for each that cannot be read. An archive that breaks off is a Bad after
        the files before it.

    Raises:
        ValueError: If a member of an archive is a link, a device, or named so that it would
            leave the folder it is unpacked into. Nobody packs a data set like that in good faith.
    """
    return _folder(source, wanted, meter) if source.is_dir() else _archive(source, wanted, meter)


def _files(folder: Path) -> Iterator[Path]:
    """The files below a folder by name. Links are followed: the folder is the user's own."""
    seen: set[str] = set()
    for at, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(at)
        if real in seen:
            raise MueError(f"the folder {at} is reached twice through links; import {real} alone")
        seen.add(real)
        folders[:] = sorted(name for name in folders if not _litter(name))
        for name in sorted(names):
            path = Path(at, name)
            if not _litter(name) and path.is_file():
                yield path


def _litter(name: str) -> bool:
    """Whether an operating system left this beside the files of the user."""
    return name.startswith(".") or name == "__MACOSX"


def _folder(source: Path, wanted: Callable[[str], int], meter: Meter) -> Iterator[File | Bad]:
    for path in _files(source):
        name = path.relative_to(source).as_posix()
        try:
            size = path.stat().st_size
            if need := wanted(name):
                if size > LARGEST:
                    yield _too_large(name, size)
                else:
                    with path.open("rb") as file:
                        yield File(name, name, file.read(need))
        except OSError as error:
            yield Bad(name, f"cannot be read: {error.strerror}")
        else:
            meter.add_(size)


def _archive(source: Path, wanted: Callable[[str], int], meter: Meter) -> Iterator[File | Bad]:
    with source.open("rb") as raw:
        packed = raw.peek(2)[:2] == b"\x1f\x8b"
        told = 0
        try:
            with gzip.GzipFile(fileobj=raw) if packed else raw as plain:
                stream = _Forward(plain, source.name)
                with tarfile.TarFile(fileobj=stream, mode="r") as tar:  # pyright: ignore[reportArgumentType]
                    while (info := tar.next()) is not None:
                        tar.members.clear()  # pyright: ignore[reportAttributeAccessIssue]  a scan has many
                        name = _safe(info, source.name)
                        where = f"{source.name}/{name}"
                        hidden = any(_litter(part) for part in PurePosixPath(name).parts)
                        need = 0 if hidden or not info.isfile() else wanted(name)
                        if need and info.size > LARGEST:
                            yield _too_large(where, info.size)
                        elif need:
                            stream.seek(info.offset_data)
                            data = stream.read(min(need, info.size))
                            if len(data) < min(need, info.size):
                                raise EOFError("the last file is cut off")
                            yield File(name, where, data)
                        meter.add_(raw.tell() - told)
                        told = raw.tell()
                stream.drain()  # gzip's checksum is at its end
                meter.add_(raw.tell() - told)
        except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
            yield Bad(source.name, f"is cut off or damaged as an archive ({error})")


class _Forward:
    """A stream that is only read onward, and never more than `LARGEST` at once.

    TarFile reads the headers that hold long names into memory whatever size they claim, so the
    limit has to lie below it.
    """

    def __init__(self, file: io.BufferedIOBase, name: str) -> None:
        self._file, self._name, self._at = file, name, 0

    def tell(self) -> int:
        return self._at

    def seek(self, to: int) -> None:
        if to < self._at:
            raise tarfile.ReadError("its members overlap")
        while self._at < to and self.read(min(_CHUNK, to - self._at)):
            pass

    def read(self, count: int) -> bytes:
        if count > LARGEST:
            raise MueError(
                f"the archive {self._name} has a header that claims {count} bytes, "
                f"more than the {LARGEST} that any file may have"
            )
        data = self._file.read(count)
        self._at += len(data)
        return data

    def drain(self) -> None:
        while self.read(_CHUNK):
            pass


def _safe(info: tarfile.TarInfo, archive: str) -> str:
    """The name of a member without a leading `./`, or an error for one that is dangerous."""
    name = info.name.replace("\\", "/")
    path = PurePosixPath(name)
    trouble = None
    if path.is_absolute() or PureWindowsPath(name).drive:
        trouble = "has an absolute path"
    elif ".." in path.parts:
        trouble = "leaves the archive by `..`"
    elif not name.isprintable():
        trouble = "has characters in its name that cannot be shown"
    elif info.issym() or info.islnk():
        trouble = f"is a link, to {info.linkname!r}"
    elif not (info.isfile() or info.isdir()) or info.issparse():
        trouble = "is neither a plain file nor a folder"
    if trouble is not None:
        raise MueError(
            f"{info.name!r} in the archive {archive} {trouble}; nothing of such an archive is read"
        )
    return path.as_posix()


def _too_large(what: str, size: int) -> Bad:
    return Bad(what, f"has {size} bytes, more than the {LARGEST} that any file may have")
