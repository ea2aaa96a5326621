"""The files of a folder or a tar archive, one after the other, without unpacking anything."""

import gzip
import io
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from mue.data.images.walk import files_below, files_in, is_hidden
from mue.data.prepared.item import Rejected
from mue.errors import MueError

MAX_FILE_BYTES = 64 * 2**20
"""Size of the largest file that is read: those of LIDC-IDRI are far smaller."""
ARCHIVES, PICKLES = (".tar.gz", ".tgz", ".tar"), (".pickle", ".pkl")
"""How the names of archives and pickles end, in lower case."""
_CHUNK = 2**20
_HEADER_BYTES = 2**20
"""Bytes of the longest header of an archive that is read, such as one that holds a long name."""
Progress = Callable[[int], None]
"""Called with the number of bytes that were read from a source."""


@dataclass(frozen=True, slots=True)
class File:
    """A file of a source, or its first bytes."""

    name: str  # its path inside the folder or archive, with forward slashes
    path: str  # the same with the archive's name before it, for messages
    data: bytes


class CountedFile(io.FileIO):
    """A file that calls `progress` with the number of bytes of each read."""

    def __init__(self, path: Path, progress: Progress) -> None:
        super().__init__(path)
        self._progress = progress

    def readinto(self, buffer: Any, /) -> int:
        """Read into a buffer, as `io.BufferedReader` does."""
        count = super().readinto(buffer) or 0
        self._progress(count)
        return count


def expand_sources(sources: Sequence[Path]) -> list[Path]:
    """The sources, where a folder that directly holds archives or a pickle stands for these."""
    found: list[Path] = []
    for source in sources:
        if not (source.is_file() or source.is_dir()):
            raise MueError(f"there is no file or folder {source} to import")
        files = files_in(source) if source.is_dir() else []
        inner = [path for path in files if path.name.lower().endswith(ARCHIVES + PICKLES)]
        found += inner or [source]
    return found


def total_bytes(sources: Sequence[Path]) -> int:
    """Bytes of all files of the sources."""
    files = chain(*(files_below(source) if source.is_dir() else [source] for source in sources))
    return sum(path.stat().st_size for path in files)


def iterate_files(
    source: Path, bytes_needed: Callable[[str], int], progress: Progress
) -> Iterator[File | Rejected]:
    """The needed files of a folder by name, or of a tar archive, gzipped or not, in its order.

    `bytes_needed` says how many bytes of a file of this name to read, from its start; 0 skips it.
    A file that cannot be read comes as a Rejected; a truncated archive does after the files before
    the damage.

    Raises:
        MueError: A member of an archive is a link, a device, or has a path that leaves the
            archive, as in an attack.
    """
    if not source.is_dir():
        yield from _iterate_archive(source, bytes_needed, progress)
        return
    for path in files_below(source):
        name = path.relative_to(source).as_posix()
        try:
            size = path.stat().st_size
            if need := bytes_needed(name):
                with path.open("rb") as file:
                    yield _read(file.read, need, size, name, name)
            progress(size)
        except OSError as error:
            yield Rejected(name, f"cannot be read: {error.strerror}")


def _read(
    read: Callable[[int], bytes], need: int, size: int, name: str, path: str
) -> File | Rejected:
    if size > MAX_FILE_BYTES:
        why = f"has {size} bytes, more than the {MAX_FILE_BYTES} that any file may have"
        return Rejected(path, why)
    return File(name, path, read(min(need, size)))


def _iterate_archive(
    source: Path, bytes_needed: Callable[[str], int], progress: Progress
) -> Iterator[File | Rejected]:
    with io.BufferedReader(CountedFile(source, progress), _CHUNK) as raw:
        gzipped = raw.peek(2)[:2] == b"\x1f\x8b"
        try:
            with gzip.GzipFile(fileobj=raw) if gzipped else raw as plain:
                stream = _ForwardReader(plain, source.name)
                with tarfile.TarFile(fileobj=stream, mode="r") as tar:  # pyright: ignore[reportArgumentType]
                    while (info := tar.next()) is not None:
                        tar.members.clear()  # pyright: ignore[reportAttributeAccessIssue]  kept, they fill memory
                        tar.pax_headers = {}
                        stream.headers = 0
                        name = _safe(info, source.name)
                        hidden = any(is_hidden(part) for part in PurePosixPath(name).parts)
                        need = 0 if hidden else bytes_needed(name)
                        if need and info.isfile():
                            stream.seek(info.offset_data)
                            path = f"{source.name}/{name}"
                            yield _read(stream.read_file, need, info.size, name, path)
                stream.end()
        except (tarfile.TarError, EOFError, zlib.error, OSError, RecursionError) as error:
            yield Rejected(source.name, f"is truncated or damaged as an archive ({error})")


class _ForwardReader:
    """A stream that is read forward only, with a limit to the headers between two files.

    TarFile reads the headers that hold long names into memory whatever size they claim, so the
    limit has to be enforced below it.
    """

    def __init__(self, file: io.BufferedIOBase, name: str) -> None:
        self._file, self._name, self._at = file, name, 0
        self.last = b""  # what was read last
        self.headers = 0  # bytes of headers since the last file

    def tell(self) -> int:
        return self._at

    def seek(self, to: int) -> None:
        if to < self._at:
            raise tarfile.ReadError("its members overlap")
        while self._at < to and self._take(min(_CHUNK, to - self._at)):
            pass

    def end(self) -> None:
        """Refuse an archive without its end: zeros for a header, and nothing but zeros after it.

        Else one that was cut off between two files, or of which a header was zeroed, would hold
        fewer files, unsaid. Behind the zeros, gzip has its checksum.
        """
        if len(self.last) < tarfile.BLOCKSIZE:
            raise tarfile.ReadError("its end is missing")
        while self.last:
            if any(self.last):
                raise tarfile.ReadError("a header is damaged")
            self._take(_CHUNK)

    def read(self, count: int) -> bytes:
        self.headers += max(0, count)
        if not 0 <= self.headers <= _HEADER_BYTES or count < 0:
            raise MueError(
                f"the archive {self._name} has a header that claims {count} bytes; all headers of "
                f"a file may have {_HEADER_BYTES}"
            )
        return self._take(count)

    def read_file(self, count: int) -> bytes:
        if len(content := self._take(count)) < count:
            raise tarfile.ReadError("unexpected end of data")
        return content

    def _take(self, count: int) -> bytes:
        self.last = self._file.read(count)
        self._at += len(self.last)
        return self.last


def _safe(info: tarfile.TarInfo, archive: str) -> str:
    """The name of a member without a leading `./`; a dangerous one is refused."""
    name = info.name.replace("\\", "/")
    path = PurePosixPath(name)
    special = not (info.isfile() or info.isdir()) or info.issparse()
    for problem, found in (
        ("has an absolute path", path.is_absolute() or PureWindowsPath(name).drive),
        ("leaves the archive by `..`", ".." in path.parts),
        ("has characters in its name that cannot be shown", not name.isprintable()),
        (f"is a link, to {info.linkname!r}", info.issym() or info.islnk()),
        ("is neither a plain file nor a folder", special),
        (f"claims {info.size} bytes", info.size < 0),
    ):
        if found:
            raise MueError(
                f"{info.name!r} in the archive {archive} {problem}; "
                "nothing of such an archive is read"
            )
    return path.as_posix()
