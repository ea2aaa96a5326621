import gzip
import os
import re
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from mue.data.lidc import archive
from mue.data.lidc.archive import File, expand_sources, iterate_files, total_bytes
from mue.data.prepared.item import Rejected
from mue.errors import MueError

Make = Callable[..., Path]


def all_of(source: Path, need: int = 10**6) -> list[File | Rejected]:
    return list(iterate_files(source, lambda _: need, lambda _: None))


def names(source: Path) -> list[str]:
    return [file.name for file in all_of(source) if isinstance(file, File)]


FILES = {"a/x.png": b"one", "a/b/y.png": b"two" * 400, "c.txt": b""}


@pytest.mark.parametrize("name", ["s.tar.gz", "s.tgz", "s.tar"])
def test_a_folder_and_an_archive_hold_the_same_files(folder: Make, pack: Make, name: str):
    inside = {f.name: f.data for f in all_of(folder(FILES)) if isinstance(f, File)}
    packed = {f.name: f.data for f in all_of(pack(FILES, name)) if isinstance(f, File)}
    assert inside == packed == FILES


def test_only_the_bytes_that_are_wanted_are_read(pack: Make, folder: Make):
    for source in (pack(FILES), folder(FILES)):
        wanted = {"a/x.png": 2}
        (file,) = iterate_files(source, lambda name, w=wanted: w.get(name, 0), lambda _: None)
        assert isinstance(file, File)
        assert (file.name, file.data) == ("a/x.png", b"on")


def test_a_file_of_an_archive_is_found_again_by_the_archive_and_its_path(pack: Make):
    assert [f.path for f in all_of(pack({"./a/x.png": b"1"})) if isinstance(f, File)] == [
        "source.tar.gz/a/x.png"
    ]


def test_litter_of_operating_systems_is_passed_over(pack: Make, folder: Make):
    files = {"a/._x.png": b"1", "__MACOSX/a/x.png": b"2", ".DS_Store": b"3", "a/x.png": b"4"}
    assert names(pack(files)) == names(folder(files)) == ["a/x.png"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("../escape.png", "leaves the archive by `..`"),
        ("a/../../escape.png", "leaves the archive by `..`"),
        ("a\\..\\..\\escape.png", "leaves the archive by `..`"),
        ("/etc/escape.png", "has an absolute path"),
        ("C:/escape.png", "has an absolute path"),
        ("a/\x1b[2J.png", "has characters in its name that cannot be shown"),
    ],
)
def test_a_path_that_leaves_the_archive_is_refused_by_name(pack: Make, name: str, words: str):
    source = pack({"a/x.png": b"1", name: b"2"})
    with pytest.raises(ValueError, match=f"{re.escape(repr(name))} in .*source.tar.gz {words}"):
        all_of(source, need=0)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (tarfile.SYMTYPE, "is a link, to '/etc/passwd'"),
        (tarfile.LNKTYPE, "is a link, to '/etc/passwd'"),
        (tarfile.CHRTYPE, "is neither a plain file nor a folder"),
        (tarfile.BLKTYPE, "is neither a plain file nor a folder"),
        (tarfile.FIFOTYPE, "is neither a plain file nor a folder"),
    ],
)
def test_links_and_devices_are_refused_by_name(pack: Make, kind: bytes, words: str):
    info = tarfile.TarInfo("a/trap.png")
    info.type, info.linkname = kind, "/etc/passwd"
    with pytest.raises(ValueError, match=f"'a/trap.png' in the archive source.tar.gz {words}"):
        all_of(pack(FILES, extra=[info]))


def test_a_file_of_a_negative_size_is_refused_by_name(pack: Make):
    source = pack(FILES, "s.tar")
    data = bytearray(source.read_bytes())
    header = data[1024:1536]  # of the second file
    header[124:136] = (256**12 - 512).to_bytes(12, "big")  # its size, -512 as GNU tar writes it
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)  # its checksum
    data[1024:1536] = header
    source.write_bytes(data)
    with pytest.raises(ValueError, match=r"'a/b/y\.png' in the archive s\.tar claims -512"):
        all_of(source)


@pytest.mark.parametrize("name", ["s.tar.gz", "s.tar"])
def test_a_truncated_archive_is_named_after_what_came_before_it(pack: Make, name: str):
    files = {f"{i}.bin": os.urandom(3000) for i in range(5)}
    source = pack(files, name)
    whole = source.read_bytes()
    source.write_bytes(whole[: len(whole) // 2 if name == "s.tar.gz" else 9000])
    *before, last = all_of(source)
    assert [f.name for f in before if isinstance(f, File)] == ["0.bin", "1.bin"]
    assert isinstance(last, Rejected)
    assert last.what == name
    assert "truncated or damaged" in last.why


def test_a_damaged_header_is_not_taken_for_the_end(pack: Make):
    source = pack(FILES, "s.tar")
    data = bytearray(source.read_bytes())
    data[1024 + 148 : 1024 + 154] = b"000000"  # the checksum of the second file's header
    source.write_bytes(data)
    first, last = all_of(source)
    assert isinstance(first, File)
    assert last == Rejected("s.tar", "is truncated or damaged as an archive (a header is damaged)")


def test_what_is_no_archive_is_named(tmp_path: Path):
    (tmp_path / "a.tar.gz").write_bytes(b"not a tar archive at all" * 100)
    (bad,) = all_of(tmp_path / "a.tar.gz")
    assert isinstance(bad, Rejected)
    assert bad.what == "a.tar.gz"


def test_a_wrong_checksum_at_the_end_is_noticed(pack: Make):
    source = pack(FILES)
    data = bytearray(source.read_bytes())
    data[-5] ^= 1
    source.write_bytes(bytes(data))
    *files, last = all_of(source)
    assert len(files) == 3
    assert isinstance(last, Rejected)


def test_a_file_beyond_the_limit_is_not_read(
    pack: Make, folder: Make, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(archive, "MAX_FILE_BYTES", 1024)
    monkeypatch.setattr(archive, "_CHUNK", 1024)
    for source in (pack(FILES), folder(FILES)):
        bad = [f for f in all_of(source) if isinstance(f, Rejected)]
        assert len(bad) == 1
        assert "a/b/y.png" in bad[0].what
        assert bad[0].why == "has 1200 bytes, more than the 1024 that any file may have"


def test_a_header_that_claims_gigabytes_is_refused_before_it_is_read(tmp_path: Path):
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 4 * 2**30
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(info.tobuf(tarfile.GNU_FORMAT) + bytes(2048)))
    with pytest.raises(ValueError, match=r"a\.tar\.gz has a header that claims 4294967296 bytes"):
        all_of(tmp_path / "a.tar.gz")


@pytest.mark.parametrize("need", [0, 10**6])
def test_progress_ends_at_the_bytes_of_the_sources(pack: Make, folder: Make, need: int):
    files = {f"{i}.bin": os.urandom(5000) for i in range(20)}
    sources = [pack(files), folder(files)]
    seen: list[int] = []
    for source in sources:
        for _ in iterate_files(source, lambda _: need, seen.append):
            pass
    assert sum(seen) == total_bytes(sources)


def test_a_folder_of_archives_stands_for_them(pack: Make, tmp_path: Path):
    packed = [pack(FILES, "b.tar.gz"), pack(FILES, "a.tgz")]
    (tmp_path / "README.md").write_text("about")
    assert expand_sources([tmp_path]) == sorted(packed)


def test_a_source_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(ValueError, match=r"there is no file or folder .*nowhere"):
        expand_sources([tmp_path / "nowhere"])


def test_a_link_that_leads_round_in_a_circle_is_named(folder: Make):
    source = folder(FILES)
    (source / "a" / "loop").symlink_to(source)
    with pytest.raises(ValueError, match="reached twice through links"):
        names(source)


def test_a_link_in_a_folder_of_the_user_is_followed(folder: Make):
    source = folder(FILES)
    other = folder({"z.png": b"z"}, "other")
    (source / "linked").symlink_to(other)
    assert "linked/z.png" in names(source)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_headers_of_megabytes_are_refused_before_they_are_read(tmp_path: Path, kind: bytes):
    info = tarfile.TarInfo("header")
    info.type, info.size = kind, 2**20
    block = info.tobuf(tarfile.GNU_FORMAT) + bytes(2**20)
    (tmp_path / "s.tar").write_bytes(block * 4)
    with pytest.raises(MueError, match="has a header that claims 1048576 bytes"):
        all_of(tmp_path / "s.tar")


def test_headers_without_end_are_damage(tmp_path: Path):
    info = tarfile.TarInfo("header")
    info.type, info.size = tarfile.XHDTYPE, 512
    (tmp_path / "s.tar").write_bytes((info.tobuf() + b"9 path=a\n".ljust(512, b"\0")) * 5000)
    (found,) = all_of(tmp_path / "s.tar")
    assert isinstance(found, Rejected)
    assert "is truncated or damaged as an archive" in found.why


def test_what_is_neither_a_file_nor_a_folder_is_not_opened(tmp_path: Path):
    os.mkfifo(tmp_path / "s.tar")
    for path in (tmp_path / "s.tar", Path("/dev/zero")):
        with pytest.raises(MueError, match="there is no file or folder"):
            expand_sources([path])


@pytest.mark.parametrize("spoil", ["cut off", "zeroed", "cut off at the end"])
def test_an_archive_without_the_rest_of_its_files_is_damaged(pack: Make, spoil: str):
    """The second file's header is at byte 1,024, the end of all files at 4,096."""
    source = pack(FILES, "s.tar")
    data = bytearray(source.read_bytes())
    if spoil == "zeroed":
        data[1024:1536] = bytes(512)
    else:
        del data[1024 if spoil == "cut off" else 4096 - 512 :]
    source.write_bytes(data)
    *_, last = all_of(source)
    assert isinstance(last, Rejected)
    why = "a header is damaged" if spoil == "zeroed" else "its end is missing"
    assert last.why == f"is truncated or damaged as an archive ({why})"
