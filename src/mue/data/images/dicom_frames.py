"""The frames of DICOM files: where they are in space, and in which order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float
from pydicom import Dataset

from mue.data.images.image import ImageFile
from mue.errors import MueError

_TOLERANCE = 0.1  # of the usual distance of two slices: positions are rounded by some scanners
_SAME = 1e-4  # mm between slices that are at one position


@dataclass(frozen=True, slots=True)
class Frame:
    """A slice of a series: its place in a file and in space."""

    file: ImageFile
    number: int  # in its file
    position: Float[np.ndarray, "3"] | None  # of the first pixel, x to the left and y to the back
    orientation: tuple[float, ...]  # directions of a row and of a column
    spacing: tuple[float, ...]  # mm between rows, between columns
    thickness: float


def frame_order(head: Dataset) -> list[int]:
    """Numbers in their file of the frames of an image, in the order of their positions."""
    frames = list(frames_of(Path(), head))
    if have_positions(frames):
        frames, _ = in_space(frames)
    return [frame.number for frame in frames]


def have_positions(frames: Sequence[Frame]) -> bool:
    """Whether it is known where all of them are."""
    return all(f.position is not None and len(f.orientation) == 6 and f.spacing for f in frames)


def frame_count(head: Dataset) -> int:
    """How many frames an image has."""
    return int(head.get("NumberOfFrames") or 1)


def frames_of(file: ImageFile, head: Dataset) -> Iterator[Frame]:
    """The frames of a file."""
    for i in range(frame_count(head)):
        position = functional_group(head, i, "PlanePositionSequence").get("ImagePositionPatient")
        plane = functional_group(head, i, "PlaneOrientationSequence")
        measures = functional_group(head, i, "PixelMeasuresSequence")
        yield Frame(
            file,
            i,
            np.array(position, dtype=np.float64) if position else None,
            tuple(float(v) for v in plane.get("ImageOrientationPatient") or ()),
            tuple(float(v) for v in measures.get("PixelSpacing") or ()),
            float(measures.get("SliceThickness") or 1),
        )


def functional_group(head: Dataset, frame: int, name: str) -> Dataset:
    """What an enhanced image says of a frame, or of all; of other images the header itself."""
    shared = (head.get("SharedFunctionalGroupsSequence") or [Dataset()])[0]
    each = head.get("PerFrameFunctionalGroupsSequence") or []
    own = each[frame] if frame < len(each) else Dataset()
    return (own.get(name) or shared.get(name) or [head])[0]


def in_space(frames: Sequence[Frame]) -> tuple[list[Frame], Float[np.ndarray, "4 4"]]:
    """Frames in the order of their positions along the normal, and the affine of the volume."""
    first = frames[0]
    for f in frames:
        if not np.allclose(f.orientation, first.orientation, atol=1e-3) or not np.allclose(
            f.spacing, first.spacing, rtol=1e-3
        ):
            raise MueError(f"has slices of different directions or spacings, one is {f.file.name}")
    row, column = np.array(first.orientation[:3]), np.array(first.orientation[3:])
    normal = np.cross(row, column)
    frames = sorted(frames, key=lambda f: float(normal @ _position(f)))
    at = np.array([normal @ _position(f) for f in frames])
    through = normal * first.thickness
    if len(frames) > 1:
        if (gap := find_gap(at)) is not None:
            i, what, step = gap
            raise MueError(
                f"has {what} between {frames[i].file.name} ({at[i]:g} mm) and "
                f"{frames[i + 1].file.name} ({at[i + 1]:g} mm), where its step is {step:g} mm"
            )
        through = (_position(frames[-1]) - _position(frames[0])) / (len(frames) - 1)
    affine = np.eye(4)
    affine[:3, 0], affine[:3, 1] = row * first.spacing[1], column * first.spacing[0]
    affine[:3, 2], affine[:3, 3] = through, _position(frames[0])
    affine[:2] *= -1  # x to the right, y to the front
    return frames, affine


def _position(frame: Frame) -> Float[np.ndarray, "3"]:
    assert frame.position is not None
    return frame.position


def find_gap(at: Float[np.ndarray, " k"]) -> tuple[int, str, float] | None:
    """Where slices at these ascending positions, two or more, are not evenly spaced.

    That is the number of the slice before, what is wrong after it, and the usual distance.
    """
    steps = np.diff(at)
    step = float(np.median(steps))
    wrong = np.flatnonzero((abs(steps - step) > _TOLERANCE * abs(step)) | (steps <= _SAME))
    if not len(wrong):
        return None
    i = int(wrong[0])
    return i, "two slices" if steps[i] <= _SAME else "a slice missing", step
