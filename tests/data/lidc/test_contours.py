import numpy as np
import pytest

from mue.data.lidc.contours import (
    Annotation,
    Contour,
    Reading,
    fill,
    group_nodules,
    nodule_center,
    rasterize,
    read_message,
)
from mue.errors import MueError


def ring(left: int, top: int, right: int, bottom: int) -> np.ndarray:
    """The border of a rectangle, pixel after pixel."""
    upper = [(x, top) for x in range(left, right)]
    down = [(right, y) for y in range(top, bottom)]
    lower = [(x, bottom) for x in range(right, left, -1)]
    up = [(left, y) for y in range(bottom, top, -1)]
    return np.array(upper + down + lower + up)


def outline(points: object, z: float = 0.0, inside: bool = True) -> Contour:
    return Contour(z, f"slice {z:g}", inside, np.array(points, dtype=np.int64))


def rows_of(*contours: Contour, left: int = 0, top: int = 0, size: int = 8) -> list[str]:
    mask = rasterize(contours, left, top, size)
    return ["".join(".#"[int(pixel)] for pixel in row) for row in mask]


def lesion(rater: int, x: int, z: tuple[float, ...] = (0.0,), side: int = 4) -> Annotation:
    return Annotation(rater, tuple(outline(ring(x, 10, x + side, 10 + side), k) for k in z))


def test_the_outline_of_a_square_is_outside():
    assert rows_of(outline(ring(1, 1, 5, 4)), size=6) == [
        "......",
        "......",
        "..###.",
        "..###.",
        "......",
        "......",
    ]


def test_corners_alone_outline_the_same_inside():
    corners = [(1, 1), (5, 1), (5, 5), (1, 5)]
    assert fill(np.array(corners))[1:4, 1:4].all()


def test_a_hole_takes_its_own_outline_away():
    assert rows_of(outline(ring(2, 2, 5, 5), inside=False), outline(ring(0, 0, 7, 7))) == [
        "........",
        ".######.",
        ".#....#.",
        ".#....#.",
        ".#....#.",
        ".#....#.",
        ".######.",
        "........",
    ]


@pytest.mark.parametrize(
    "points",
    [
        [(3, 3)],
        [(2, 2), (3, 3)],
        [(1, 4), (2, 4), (3, 4), (4, 4), (3, 4), (2, 4)],
        [(4, 1), (4, 2), (4, 3), (4, 4)],
        ring(2, 2, 3, 3),
    ],
)
def test_shapes_one_pixel_wide_enclose_nothing(points: object):
    assert not rasterize([outline(points)], 0, 0, 8).any()


def test_a_diamond_keeps_the_pixels_within_its_slanted_edges():
    diamond = [(3, 0), (4, 1), (5, 2), (6, 3), (5, 4), (4, 5), (3, 6), (2, 5), (1, 4), (0, 3)]
    diamond += [(1, 2), (2, 1)]
    assert rows_of(outline(diamond), size=7) == [
        ".......",
        "...#...",
        "..###..",
        ".#####.",
        "..###..",
        "...#...",
        ".......",
    ]


def test_a_concave_outline_leaves_its_bay_out():
    bay = [*ring(0, 0, 6, 6)[:6].tolist()]  # along the top
    bay += [(6, y) for y in range(6)] + [(6, 6), (5, 6), (4, 6)]
    bay += [(4, 5), (4, 4), (4, 3), (3, 3), (2, 3), (2, 4), (2, 5), (2, 6), (1, 6)]
    bay += [(0, y) for y in range(6, 0, -1)]
    assert rows_of(outline(bay), size=7) == [
        ".......",
        ".#####.",
        ".#####.",
        ".#...#.",
        ".#...#.",
        ".#...#.",
        ".......",
    ]


def test_the_direction_and_the_start_of_an_outline_do_not_matter():
    points = np.array([(1, 0), (5, 1), (7, 4), (4, 3), (3, 7), (0, 5)])
    expected = rasterize([outline(points)], 0, 0, 8)
    for shift in range(6):
        turned = np.roll(points, shift, axis=0)
        assert (rasterize([outline(turned)], 0, 0, 8) == expected).all()
        assert (rasterize([outline(turned[::-1])], 0, 0, 8) == expected).all()


def test_filling_agrees_with_asking_for_every_pixel():
    generator = np.random.default_rng(0)
    for _ in range(100):
        points = generator.integers(0, 12, size=(generator.integers(3, 9), 2))
        low = points.min(axis=0)
        for (row, column), got in np.ndenumerate(fill(points)):
            x, y = column + low[0], row + low[1]
            crossed = 0
            for (a, b), (c, d) in zip(points, np.roll(points, -1, axis=0), strict=True):
                if (b >= y) != (d >= y):
                    # x <= a + (y - b) (c - a) / (d - b), in whole numbers
                    crossed += (x - a) * abs(d - b) <= (y - b) * (c - a) * np.sign(d - b)
            assert got == crossed % 2


def test_two_outlines_in_a_slice_are_both_filled():
    assert rows_of(outline(ring(0, 0, 2, 2)), outline(ring(4, 4, 6, 6)), size=7) == [
        ".......",
        ".#.....",
        ".......",
        ".......",
        ".......",
        ".....#.",
        ".......",
    ]


def test_a_window_shows_a_part_of_the_lesion():
    whole = rasterize([outline(ring(2, 3, 20, 17))], 0, 0, 32)
    for left, top in [(0, 0), (5, 5), (16, 12), (22, 3), (2, 3)]:
        seen = rasterize([outline(ring(2, 3, 20, 17))], left, top, 8)
        assert (seen == whole[top : top + 8, left : left + 8]).all()


def test_no_outline_is_an_empty_mask():
    assert not rasterize([], 3, 3, 8).any()


def test_annotations_that_lie_together_are_one_nodule():
    near = [lesion(0, 10), lesion(1, 12), lesion(2, 60), lesion(3, 11)]
    groups = group_nodules(near, step=1.0, thickness=1.0)
    assert [[a.rater for a in group] for group in groups] == [[0, 1, 3], [2]]


def test_nodules_are_numbered_from_the_lowest_slice_on():
    apart = [lesion(0, 10, (5.0, 6.0)), lesion(0, 40, (-3.0,)), lesion(0, 70, (1.0,))]
    groups = group_nodules(apart, step=1.0, thickness=1.0)
    assert [group[0].contours[0].z for group in groups] == [-3.0, 1.0, 5.0]


def test_slices_count_as_many_voxels_apart_as_they_are_steps():
    pair = [lesion(0, 10, (0.0,)), lesion(1, 10, (7.5,))]
    assert len(group_nodules(pair, step=2.5, thickness=2.5)) == 2  # 3 voxels are more than 2.5
    assert len(group_nodules(pair, step=2.5, thickness=3.0)) == 1


def test_the_tolerance_shrinks_until_no_nodule_has_five():
    chain = [lesion(i % 4, 10 + 7 * i) for i in range(3)]  # 3 pixels between neighbours
    chain += [lesion(i % 4, 10 + 7 * 2 + 6 * (i - 2)) for i in range(3, 6)]  # then 2
    groups = group_nodules(chain, step=1.0, thickness=3.0)
    assert [len(group) for group in groups] == [1, 1, 4]


def test_lesions_that_touch_are_parted_by_rater():
    two = [lesion(rater, x) for rater in range(3) for x in (10, 14)]
    groups = group_nodules(two, step=1.0, thickness=1.0)
    assert [[a.rater for a in group] for group in groups] == [[0, 1, 2], [0, 1, 2]]
    assert [{int(a.contours[0].points[:, 0].min()) for a in group} for group in groups] == [
        {10},
        {14},
    ]


def test_a_series_without_outlines_has_no_nodules():
    assert group_nodules([], step=1.0, thickness=1.0) == []


def test_crops_are_centred_on_the_first_annotation_with_the_most_contours():
    nodule = [lesion(0, 10), lesion(1, 20, (0.0, 1.0)), lesion(2, 30, (0.0, 1.0))]
    assert nodule_center(nodule) == (22, 12)


ROI = """<roi><imageZposition> -12.50 </imageZposition><imageSOP_UID>1.2.9</imageSOP_UID>
<inclusion>{inside}</inclusion>{points}</roi>"""
EDGE = "<edgeMap><xCoord>{}</xCoord><yCoord>{}</yCoord></edgeMap>"


def roi(*points: tuple[int, int], inside: str = "TRUE") -> str:
    return ROI.format(inside=inside, points="".join(EDGE.format(*point) for point in points))


def message(*sessions: str, root: str = "LidcReadMessage", header: str | None = None) -> bytes:
    if header is None:
        header = "<SeriesInstanceUid>1.2.3</SeriesInstanceUid>"
    body = "".join(f"<readingSession>{session}</readingSession>" for session in sessions)
    return (
        f'<?xml version="1.0"?><{root} xmlns="http://www.nih.gov">'
        f"<ResponseHeader>{header}</ResponseHeader>{body}</{root}>"
    ).encode()


def test_a_message_gives_outlines_by_rater():
    big = f"<unblindedReadNodule>{roi((1, 2), (3, 4))}{roi((1, 1), (2, 1), inside='False')}"
    reading = read_message(message("", big + "</unblindedReadNodule>"))
    assert isinstance(reading, Reading)
    assert reading.series_uid == "1.2.3"
    (annotation,) = reading.annotations
    assert annotation.rater == 1
    one, hole = annotation.contours
    assert (one.z, one.slice_uid, one.inclusion) == (-12.5, "1.2.9", True)
    assert one.points.tolist() == [[1, 2], [3, 4]]
    assert not hole.inclusion


def test_single_points_and_non_nodules_are_no_outlines():
    small = f"<unblindedReadNodule>{roi((1, 2))}</unblindedReadNodule>"
    none = f"<nonNodule>{roi((1, 2), (2, 3), (4, 5))}</nonNodule>"
    reading = read_message(message(small + none))
    assert reading == Reading("1.2.3", ())


def test_the_message_of_an_x_ray_is_none_of_ours():
    assert read_message(message(root="IdriReadMessage")) is None


def nodule(inside: str) -> str:
    return f"<unblindedReadNodule>{inside}</unblindedReadNodule>"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (message()[:-9], "truncated or damaged as XML"),
        (b"", "truncated or damaged as XML"),
        (message(header=""), "names no SeriesInstanceUid"),
        (b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "defines XML entities"),
        (message(nodule(roi((1, 2), (3, 4), inside="MAYBE"))), "neither TRUE nor FALSE"),
        (message(nodule(roi((1, 2), (3, -4)))), "outside of any image"),
        (message(nodule(roi((1, 2), (3, 10**6)))), "outside of any image"),
        (message(nodule("<roi/>")), "without imageZposition"),
    ],
)
def test_a_bad_message_is_refused_in_words(data: bytes, words: str):
    with pytest.raises(ValueError, match=words):
        read_message(data)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_entities_are_refused_in_any_encoding(encoding: str):
    text = '<!DOCTYPE a [<!ENTITY b "c">]><LidcReadMessage>&b;</LidcReadMessage>'
    with pytest.raises(MueError, match="defines XML entities"):
        read_message(text.encode(encoding))


def test_xml_beyond_its_limit_is_not_parsed():
    with pytest.raises(MueError, match="has more than the 8388608 bytes that a reading may have"):
        read_message(b"<a>" + b"<a/>" * 2**21 + b"</a>")


@pytest.mark.parametrize(
    ("annotations", "points", "words"),
    [
        (300, [(1, 1), (2, 2)], "has 300 annotations; at most 256 are read"),
        (200, [(x, x) for x in range(300)], "has 12000000 annotations times points"),
        (1, [(0, 0), (1, 4000)] * 600, "rows that its contours go through"),
        (100, [(0, 0), (4000, 4000)], "pixels in the boxes around its contours"),
    ],
)
def test_contours_that_would_take_minutes_are_refused(annotations, points, words):
    body = f"<unblindedReadNodule>{roi(*points)}</unblindedReadNodule>" * annotations
    with pytest.raises(MueError, match=words):
        read_message(message(body))
