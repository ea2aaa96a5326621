"""The raters' outlines: read from XML, joined into nodules, filled."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse.csgraph import connected_components
from scipy.spatial import KDTree

from mue.errors import MueError

RATERS = 4
_SHRINK, _SMALLEST = 0.9, 0.1
_SIDE = 4096


@dataclass(frozen=True, slots=True)
class Contour:
    """A closed outline in one slice.

    Attributes:
        z: Position of the slice in mm.
        slice_uid: SOP instance UID of the slice.
        inside: Whether it surrounds lesion; False for a hole in one.
        points: Pixels of the outline, in order, as x and y.
    """

    z: float
    slice_uid: str
    inside: bool
    points: Int[np.ndarray, "n 2"]


@dataclass(frozen=True, slots=True)
class Annotation:
    """What one rater drew around one lesion.

    Attributes:
        rater: Number of the reading session.
        contours: The outlines, at least one.
    """

    rater: int
    contours: tuple[Contour, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """What all raters said about one series.

    Attributes:
        series_uid: The series that they looked at.
        annotations: Outlined lesions, in the order of the file.
    """

    series_uid: str
    annotations: tuple[Annotation, ...]


def read_message(data: bytes) -> Reading | None:
    """The outlines in a `LidcReadMessage`; None for another XML, such as that of an X-ray.

    Lesions below 3 mm are marked by a single point and non-nodules likewise: neither is outlined,
    so neither is here.

    Raises:
        ValueError: With a clause that says what is wrong, to follow on the file's name.
    """
    if b"<!ENTITY" in data:
        raise MueError("defines XML entities, which no reading of LIDC-IDRI does")
    try:
        root = ET.fromstring(data)  # noqa: S314  no entities, so nothing can grow or be fetched
    except (ET.ParseError, ValueError, LookupError) as error:
        raise MueError(f"is cut off or damaged as XML ({error})") from error
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]  # the namespace differs between files
    if root.tag != "LidcReadMessage":
        return None
    series = (
        root.findtext("ResponseHeader/SeriesInstanceUid")
        or root.findtext("ResponseHeader/SeriesInstanceUID")
        or ""
    ).strip()
    if not series:
        raise MueError("names no SeriesInstanceUid")
    found: list[Annotation] = []
    for rater, session in enumerate(root.iterfind("readingSession")):
        for nodule in session.iterfind("unblindedReadNodule"):
            each = [_contour(roi) for roi in nodule.iterfind("roi")]
            outlined = tuple(contour for contour in each if len(contour.points) > 1)
            if any(contour.inside for contour in outlined):
                found.append(Annotation(rater, outlined))
    return Reading(series, tuple(found))


def _contour(roi: ET.Element) -> Contour:
    """One `roi` of the XML."""

    def text(path: str, element: ET.Element = roi) -> str:
        value = (element.findtext(path) or "").strip()
        if not value:
            raise MueError(f"has an outline without {path}")
        return value

    try:
        z = float(text("imageZposition"))
        points = [
            (int(text("xCoord", edge)), int(text("yCoord", edge)))
            for edge in roi.iterfind("edgeMap")
        ]
    except ValueError as error:
        raise MueError(f"has an outline that is no list of pixels ({error})") from error
    if not np.isfinite(z) or any(not 0 <= side < _SIDE for point in points for side in point):
        raise MueError("has an outline outside of any image")
    inside = text("inclusion").upper()
    if inside not in ("TRUE", "FALSE"):
        raise MueError(f"has an outline whose inclusion is {inside}, neither TRUE nor FALSE")
    pixels = np.array(points, dtype=np.int64).reshape(-1, 2)
    return Contour(z, text("imageSOP_UID"), inside == "TRUE", pixels)


def centroid(annotation: Annotation) -> Float[np.ndarray, " 2"]:
    """The mean of all pixels of the outlines, as x and y."""
    return np.concatenate([c.points for c in annotation.contours]).mean(axis=0)


def centre(nodule: Sequence[Annotation]) -> tuple[int, int]:
    """The pixel, as x and y, that crops of a nodule are centred on.

    It is the centroid, rounded down, of the annotation with the most contours, the first of them
    where several have as many. The slices layout was made so: this places its crops to the pixel.
    """
    most = max(nodule, key=lambda annotation: len(annotation.contours))
    x, y = centroid(most)
    return int(x), int(y)


def join(
    annotations: Sequence[Annotation], step: float, thickness: float
) -> list[list[Annotation]]:
    """Group annotations that show the same nodule, at most four to a nodule.

    Two annotations are neighbours when their nearest outline pixels are at most `thickness` apart,
    and a nodule is what neighbours connect. Distances are in voxels, the tolerance in millimetres:
    pylidc does so, hence the public data sets do. While any group has more than four annotations,
    the tolerance shrinks by a tenth, down to 0.1. Where two lesions touch even that does not part
    them (8 of 745 scans); such a group is built up again from the closest centroids on, and no
    rater joins it twice.

    Args:
        annotations: All annotations of a series.
        step: Distance of neighbouring slices in mm.
        thickness: Thickness of a slice in mm, the tolerance to start from.

    Returns:
        Nodules, ordered by the mean depth of their annotations, the lowest z first. Within a
        nodule annotations keep their order.
    """
    if not annotations:
        return []
    cloud = [
        np.concatenate([np.c_[c.points, np.full(len(c.points), c.z / step)] for c in a.contours])
        for a in annotations
    ]
    trees = [KDTree(points) for points in cloud]
    n = len(cloud)
    distance = np.zeros((n, n))
    for i, j in combinations(range(n), 2):
        distance[i, j] = distance[j, i] = trees[i].query(cloud[j])[0].min()
    tolerance = thickness
    groups = _connected(distance <= tolerance + 1e-9)
    while max(map(len, groups)) > RATERS and tolerance * _SHRINK >= _SMALLEST:
        tolerance *= _SHRINK
        groups = _connected(distance <= tolerance + 1e-9)
    middle = np.array([points.mean(axis=0) for points in cloud])
    parted = [
        part
        for group in groups
        for part in ([group] if len(group) <= RATERS else _part(group, annotations, middle))
    ]
    parted.sort(key=lambda group: (float(middle[group, 2].mean()), group[0]))
    return [[annotations[i] for i in group] for group in parted]


def _connected(near: Bool[np.ndarray, "n n"]) -> list[list[int]]:
    """The connected components of a graph, each ascending."""
    count, label = connected_components(near, directed=False)
    return [np.flatnonzero(label == i).tolist() for i in range(count)]


def _part(
    group: list[int], annotations: Sequence[Annotation], middle: Float[np.ndarray, "n 3"]
) -> list[list[int]]:
    """Divide a group so that no rater is twice in a part: the closest pairs join first."""
    parts = [[i] for i in group]
    pairs = sorted(
        combinations(group, 2),
        key=lambda pair: float(np.linalg.norm(np.subtract(*middle[[*pair]]))),
    )
    for i, j in pairs:
        a, b = (next(part for part in parts if k in part) for k in (i, j))
        if a is not b:
            raters = [annotations[k].rater for k in a + b]
            if len(raters) <= RATERS and len(set(raters)) == len(raters):
                parts = [part for part in parts if part is not a and part is not b]
                parts.append(sorted(a + b))
    return parts


def draw(
    contours: Sequence[Contour], left: int, top: int, size: int
) -> Bool[np.ndarray, "size size"]:
    """The lesion of one annotation in one slice, seen through a square window.

    Outlines are drawn around the lesion: the pixels of an outline lie outside. A hole takes away
    its outline too.

    Args:
        contours: The annotation's outlines in this slice.
        left: First column of the window.
        top: First row of the window.
        size: Side of the window.
    """
    ends = [contour.points.max(axis=0) + 1 for contour in contours]
    w, h = np.max([(left + size, top + size), *ends], axis=0)
    mask = np.zeros((h, w), dtype=bool)
    for contour in sorted(contours, key=lambda contour: not contour.inside):  # holes come last
        x, y = contour.points.min(axis=0)
        filled = fill(contour.points)
        box = mask[y : y + filled.shape[0], x : x + filled.shape[1]]
        box[filled] = contour.inside
        mask[contour.points[:, 1], contour.points[:, 0]] = False
    return mask[top : top + size, left : left + size]


def fill(points: Int[np.ndarray, "n 2"]) -> Bool[np.ndarray, "h w"]:
    """The pixels enclosed by an outline, within the smallest box around it.

    By the even-odd rule: from a pixel inside, a ray to the right crosses the outline an odd number
    of times. A pixel on a line between two points of the outline is inside at the right and the
    bottom of the lesion and outside at its left and top, as in the published masks.
    """
    points = points - points.min(axis=0)
    w, h = points.max(axis=0) + 1
    crossing = np.zeros((h, w), dtype=bool)  # where a ray crosses, rounded down to a column
    ring = points.tolist()
    for one, other in zip(ring, ring[1:] + ring[:1], strict=True):
        (x, y), (x_to, y_to) = sorted((one, other), key=lambda point: point[1])
        for row in range(y + 1, y_to + 1):
            crossing[row, x + (row - y) * (x_to - x) // (y_to - y)] ^= True
    return np.logical_xor.accumulate(crossing[:, ::-1], axis=1)[:, ::-1]
