"""The contours of the raters: read from XML, grouped into nodules, filled to masks."""

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse.csgraph import connected_components
from scipy.spatial import KDTree

from mue.data.lidc import MAX_SIDE, RATERS
from mue.errors import MueError

MAX_XML_BYTES = 8 * 2**20
"""Size of the largest XML that is read: as a tree it takes some 30 times as much memory."""
_MAX_ANNOTATIONS, _MAX_ROWS, _MAX_AREA = 256, 1 << 22, 1 << 28
"""Of a reading: annotations, rows that contours go through, pixels of the boxes around them."""
_MAX_PAIRS = 1 << 23
"""Annotations times points: of each the nearest to every annotation is found."""


@dataclass(frozen=True, slots=True)
class Contour:
    """A closed contour in one slice, around a lesion or, without `inclusion`, a hole in one."""

    z: float  # position of the slice in mm
    slice_uid: str
    inclusion: bool
    points: Int[np.ndarray, "n 2"]  # its pixels in order, as x and y


@dataclass(frozen=True, slots=True)
class Annotation:
    """The contours, at least one, of one rater around one lesion."""

    rater: int
    contours: tuple[Contour, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """The annotations of all raters for one series, in the order of the file."""

    series_uid: str
    annotations: tuple[Annotation, ...]


def read_message(data: bytes) -> Reading | None:
    """The annotations in a `LidcReadMessage`; None for another XML, such as that of an X-ray.

    Lesions below 3 mm are marked by a single point and non-nodules likewise: neither has a
    contour, so neither is returned.

    Raises:
        MueError: With a clause that says what is wrong, to follow on the file's name.
    """
    if len(data) > MAX_XML_BYTES:
        raise MueError(f"has more than the {MAX_XML_BYTES} bytes that a reading may have")
    if b"<!ENTITY" in data.replace(b"\0", b""):  # in UTF-16, too
        raise MueError("defines XML entities, which no reading of LIDC-IDRI does")
    try:
        root = ET.fromstring(data)  # noqa: S314  no entities, so nothing can grow or be fetched
    except (ET.ParseError, ValueError, LookupError) as error:
        raise MueError(f"is truncated or damaged as XML ({error})") from error
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]  # the namespace differs between files
    if root.tag != "LidcReadMessage":
        return None
    uids = (root.findtext(f"ResponseHeader/SeriesInstance{uid}") for uid in ("Uid", "UID"))
    if not (series := next(filter(None, uids), "").strip()):
        raise MueError("names no SeriesInstanceUid")
    annotations: list[Annotation] = []
    for rater, session in enumerate(root.iterfind("readingSession")):
        for nodule in session.iterfind("unblindedReadNodule"):
            rois = map(_contour, nodule.iterfind("roi"))
            contours = tuple(contour for contour in rois if len(contour.points) > 1)
            if any(contour.inclusion for contour in contours):
                annotations.append(Annotation(rater, contours))
    _check_work(annotations)
    return Reading(series, tuple(annotations))


def _check_work(annotations: Sequence[Annotation]) -> None:
    """Refuse what would take minutes to group and to fill; no reading of LIDC-IDRI comes near."""
    rows = area = points = 0
    for contour in (c for annotation in annotations for c in annotation.contours):
        y = contour.points[:, 1]
        rows += int(np.abs(y - np.roll(y, 1)).sum())
        area += int(np.prod(np.ptp(contour.points, axis=0) + 1))
        points += len(y)
    many = len(annotations)
    for what, number, largest in (
        ("annotations", many, _MAX_ANNOTATIONS),
        ("annotations times points", many * points, _MAX_PAIRS),
        ("rows that its contours go through", rows, _MAX_ROWS),
        ("pixels in the boxes around its contours", area, _MAX_AREA),
    ):
        if number > largest:
            raise MueError(f"has {number} {what}; at most {largest} are read")


def _contour(roi: ET.Element) -> Contour:
    """One `roi` of the XML."""

    def text(path: str, element: ET.Element = roi) -> str:
        if not (value := (element.findtext(path) or "").strip()):
            raise MueError(f"has a contour without {path}")
        return value

    edges = roi.findall("edgeMap")
    try:
        z = float(text("imageZposition"))
        points = [(int(text("xCoord", edge)), int(text("yCoord", edge))) for edge in edges]
    except ValueError as error:
        raise MueError(f"has a contour that is not a list of pixels ({error})") from error
    if not np.isfinite(z) or any(not 0 <= side < MAX_SIDE for point in points for side in point):
        raise MueError("has a contour outside of any image")
    inclusion = text("inclusion").upper()
    if inclusion not in ("TRUE", "FALSE"):
        raise MueError(f"has a contour whose inclusion is {inclusion}, neither TRUE nor FALSE")
    pixels = np.array(points, dtype=np.int64).reshape(-1, 2)
    return Contour(z, text("imageSOP_UID"), inclusion == "TRUE", pixels)


def nodule_center(nodule: Sequence[Annotation]) -> tuple[int, int]:
    """The pixel, as x and y, that crops of a nodule are centered on.

    It is the mean of all contour pixels, rounded down, of the annotation with the most contours,
    the first of them in a tie: the rule of the slices layout, whose crops are reproduced to the
    pixel.
    """
    annotation = max(nodule, key=lambda annotation: len(annotation.contours))
    x, y = np.concatenate([contour.points for contour in annotation.contours]).mean(axis=0)
    return int(x), int(y)


def group_nodules(
    annotations: Sequence[Annotation], step: float, thickness: float
) -> list[list[Annotation]]:
    """Group the annotations of a series that show the same nodule, at most four to a nodule.

    Two annotations are neighbours when their nearest contour pixels are at most `thickness` mm
    apart, and a nodule is a connected component of neighbours. As in pylidc, and so in the public
    data sets, distances are in voxels (`step` mm between slices), the tolerance in millimetres.
    While any group has more than four annotations, the tolerance shrinks by a tenth, down to 0.1.
    Where two lesions touch, even that does not separate them (8 of 745 scans); such a group is
    split by merging its annotations again from the closest centroids on, no rater twice in a
    nodule. Nodules are ordered by mean depth, the lowest z first.
    """
    if not annotations:
        return []
    points = [
        np.concatenate([np.c_[c.points, np.full(len(c.points), c.z / step)] for c in a.contours])
        for a in annotations
    ]
    trees = [KDTree(p) for p in points]
    distance = np.array([[tree.query(p)[0].min() for p in points] for tree in trees])
    tolerance = thickness
    while True:
        count, label = connected_components(distance <= tolerance + 1e-9, directed=False)
        groups = [np.flatnonzero(label == i).tolist() for i in range(count)]
        if max(map(len, groups)) <= RATERS or tolerance * 0.9 < 0.1:
            break
        tolerance *= 0.9
    centroids = np.array([p.mean(axis=0) for p in points])
    nodules: list[list[int]] = []
    for group in groups:
        nodules += [group] if len(group) <= RATERS else _split(group, annotations, centroids)
    nodules.sort(key=lambda nodule: (float(centroids[nodule, 2].mean()), nodule[0]))
    return [[annotations[i] for i in nodule] for nodule in nodules]


def _split(
    group: list[int], annotations: Sequence[Annotation], centroids: Float[np.ndarray, "n 3"]
) -> list[list[int]]:
    """Split a group so that no rater is twice in a part: the closest pairs are merged first."""

    def distance(pair: tuple[int, int]) -> float:
        return float(np.linalg.norm(np.subtract(*centroids[[*pair]])))

    parts = [[i] for i in group]
    for i, j in sorted(combinations(group, 2), key=distance):
        a, b = (next(part for part in parts if k in part) for k in (i, j))
        if a is not b:
            raters = [annotations[k].rater for k in a + b]
            if len(raters) <= RATERS and len(set(raters)) == len(raters):
                parts = [part for part in parts if part is not a and part is not b]
                parts.append(sorted(a + b))
    return parts


def rasterize(
    contours: Sequence[Contour], left: int, top: int, size: int
) -> Bool[np.ndarray, "size size"]:
    """The mask of one annotation in one slice, within a square crop.

    A contour surrounds the lesion: its own pixels are outside. Those of a hole are outside too.
    """
    ends = [contour.points.max(axis=0) + 1 for contour in contours]
    w, h = np.max([(left + size, top + size), *ends], axis=0)
    mask = np.zeros((h, w), dtype=bool)
    for contour in sorted(contours, key=lambda contour: not contour.inclusion):  # holes last
        x, y = contour.points.min(axis=0)
        filled = fill(contour.points)
        box = mask[y : y + filled.shape[0], x : x + filled.shape[1]]
        box[filled] = contour.inclusion
        mask[contour.points[:, 1], contour.points[:, 0]] = False
    return mask[top : top + size, left : left + size]


def fill(points: Int[np.ndarray, "n 2"]) -> Bool[np.ndarray, "h w"]:
    """The pixels enclosed by a contour, within its bounding box.

    By the even-odd rule: from a pixel inside, a ray to the right crosses the contour an odd number
    of times. A pixel on a line between two points of the contour is inside at the right and the
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
