"""Image files, folders and DICOM series as inputs of a model."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mue.data.images.formats import image_ending
from mue.data.images.image import Axis, RawImage, check_fit, common_bits
from mue.data.images.pillow import picture_channels
from mue.data.images.reader import read_image_file
from mue.data.images.walk import dicom_files, find_images
from mue.errors import MueError, ReadError
from mue.inference.inputs import with_channels

SETTINGS = "mue-predict.json"
"""What a folder of answers holds beside them: the model and the settings that gave them."""
_NUMBERED = re.compile(r"(.+)_(\d{4})")  # a case and a channel, as in nnU-Net


@dataclass(frozen=True, slots=True)
class InputFile:
    """An image or a volume by its name: a file, the folder of a series, or a file a channel."""

    name: str
    paths: tuple[Path, ...]

    def __str__(self) -> str:
        return str(self.paths[0])


def find_inputs(paths: Iterable[str | Path], channels: int) -> list[InputFile]:
    """Every image in files and folders, where a folder of one DICOM series is a volume.

    The name of a file in a folder is its path there without the ending. For a model that takes
    several channels, CASE_0000, CASE_0001, … are those of CASE, as in nnU-Net, where they are of
    one channel each; `read_input` refuses a case that lacks some of them.
    """
    found: list[InputFile] = []
    for given in map(Path, paths):
        for path in _images(given):
            name = _last_name(given) if path == given else str(path.relative_to(given))
            found.append(InputFile(_stem(name), (path,)))
    return found if channels == 1 else list(_joined_channels(found, channels))


def input_digest(file: InputFile) -> str:
    """The sha256 of the files of an input, in the order of their names; "" of a damaged one."""
    found = hashlib.sha256()
    try:
        for path in file.paths:
            parts = dicom_files(path) if path.is_dir() else [path]
            for part in filter(Path.is_file, parts):  # a FIFO would be waited for
                with part.open("rb") as opened:
                    found.update(hashlib.file_digest(opened, "sha256").digest())
    except OSError:  # it is read again, and then refused with a reason
        return ""
    return found.hexdigest()


def require_different_names(files: Iterable[InputFile]) -> None:
    """Refuse inputs whose answers would have the same names in a folder."""
    seen: dict[str, InputFile] = {}
    for file in files:
        if file.name in seen:
            raise MueError(
                "`images` must have different names where answers are written to a folder, and "
                f"{file} is called as {seen[file.name]} is; give the folder above both, or rename "
                "one"
            )
        seen[file.name] = file


def _last_name(path: Path) -> str:
    """The name of a file or folder, that of the folder itself for `.` and `..`."""
    return path.name if path.name not in ("", "..") else path.resolve().name


def _stem(name: str) -> str:
    """A name without the ending of an image file."""
    return name.removesuffix(image_ending(name))


def _joined_channels(found: list[InputFile], channels: int) -> Iterator[InputFile]:
    """CASE for CASE_0000, CASE_0001, … where these are several, all grey, with the model's numbers.

    Other files that are numbered, such as the photographs of a camera, are images by themselves.
    """
    cases: dict[tuple[Path, str], dict[Path, int]] = defaultdict(dict)
    for one in found:
        if match := _NUMBERED.fullmatch(one.name):
            cases[one.paths[0].parent, match[1]][one.paths[0]] = int(match[2])
    joined: dict[Path, InputFile] = {}
    for (_, case), numbers in cases.items():
        if len(numbers) > 1 and max(numbers.values()) < channels and all(map(_is_grey, numbers)):
            paths = tuple(sorted(numbers, key=lambda path: numbers[path]))
            joined |= dict.fromkeys(paths, InputFile(case, paths))
    given = set[Path]()
    for one in found:
        file = joined.get(one.paths[0], one)
        if file is one or file.paths[0] not in given:
            yield file
        given.add(file.paths[0])


def _is_grey(path: Path) -> bool:
    """Whether a picture has one channel by its header; what is no picture is taken for grey."""
    return picture_channels(path) != 3


def _images(given: Path) -> Iterator[Path]:
    """The file itself, or the images and series in a folder, in the order of their names."""
    if not given.exists():
        raise MueError(f"there is no image file {given}")
    if not given.is_dir():
        yield given
        return
    path = None
    for path in find_images(given, without=SETTINGS):
        yield path
    if path is None:
        raise MueError(f"{given} must hold image files or a DICOM series, and it holds none")


def read_input(file: InputFile, channels: int, axis: Axis = 2) -> RawImage:
    """The pixels of an input with as many channels as the model takes.

    Grey pictures become colour and colour grey where the model takes the other.
    """
    _check_channels(file, channels)
    raws = [_read(path, axis) for path in file.paths]
    for path, raw in zip(file.paths[1:], raws[1:], strict=True):
        check_fit(path, raw, raws[0], file.paths[0])
    pixels = np.concatenate([raw.pixels for raw in raws])
    raw = replace(raws[0], pixels=pixels, bits=common_bits(raws))
    return with_channels(raw, channels, str(file))


def _check_channels(file: InputFile, channels: int) -> None:
    """Refuse a case of several files without one for each channel, or with two."""
    numbers = [m[2] for path in file.paths if (m := _NUMBERED.fullmatch(_stem(path.name)))]
    wanted = [f"{i:04}" for i in range(channels)]
    if len(file.paths) > 1 and numbers != wanted:
        raise MueError(
            f"{file} must be of a case with a file for each of the {channels} channels that this "
            f"model takes, {wanted[0]} to {wanted[-1]}, and {file.name} has {', '.join(numbers)}"
        )


def _read(path: Path, axis: Axis) -> RawImage:
    try:
        return read_image_file(path, axis=axis)
    except ReadError as error:
        why = f"must be an image file that can be read, and it is not: it {error.reason}"
        raise ReadError(path, why) from None
