"""Regions against shapely, and their masses against quadrature and possible places."""

from __future__ import annotations

import itertools
import math
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from appulse.errors import BadArgument
from appulse.kernels import region_chances as kernels
from appulse.kernels.region_index import candidates
from appulse.kernels.region_matches import at_most, decided_by
from appulse.kernels.regions import covers, is_convex
from appulse.model.covariance import of_ellipses, whitening
from appulse.model.geometries import geometries_of, with_wkb
from appulse.model.growing_regions import GrowingRegions
from appulse.model.positions import EARTHS, degree_scale, ground_of, metres_of_degrees
from appulse.model.regions import NO_REGIONS, regions_of
from tests.helpers import naive_fences as naive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.kernels.regions import Regions


WGS84 = EARTHS["wgs84"]


def _regions(shapes: Sequence[Any]) -> Regions:
    return regions_of(shapes, [None] * len(shapes), None).arrays


def _scale(across: float, along: float) -> Any:
    return whitening(np.array([[across**2, 0.0, along**2]]))[0]


def _star(chance: np.random.Generator, corners: int, *, hole: bool = False) -> Any:
    angles = np.sort(chance.uniform(0, 2 * math.pi, corners))
    reach = chance.uniform(0.3, 3.0, corners)
    shell = np.column_stack([reach * np.cos(angles), reach * np.sin(angles)])
    holes = [0.2 * shell] if hole else []
    return shapely.Polygon(shell, holes)


@given(st.integers(0, 1 << 30), st.floats(-4, 4), st.floats(-4, 4), st.sampled_from((0.05, 0.4, 1.0, 6.0)))
def test_the_mass_is_that_of_quadrature(seed: int, x: float, y: float, sigma: float) -> None:
    chance = np.random.default_rng(seed)
    shape = _star(chance, int(chance.integers(5, 12)), hole=seed % 2 == 0)
    if not shape.is_valid:
        return
    found = kernels.mass(_regions([shape]), 0, x, y, *_scale(sigma, sigma))
    assert found == pytest.approx(naive.mass(shape, x, y, sigma, sigma), abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 30), st.floats(-4, 4), st.floats(-4, 4), st.sampled_from((1.0, 0.3, 0.01)), st.booleans())
def test_errors_of_any_covariance_have_the_mass_of_quadrature(
    seed: int, x: float, y: float, thin: float, on_earth: bool
) -> None:
    """Polygons and discs, ellipses that lie in any direction."""
    chance = np.random.default_rng(seed)
    shape = _star(chance, int(chance.integers(5, 12)), hole=seed % 2 == 0)
    major, angle = float(np.exp(chance.uniform(-2.5, 1.5))), chance.uniform(0.0, 180.0)
    spread = of_ellipses(np.array([[major, thin * major, angle]]))
    radius, earth = float(chance.uniform(0.1, 3.0)), WGS84 if on_earth else None
    # On the Earth the tangent plane of a small place, whose metres are degrees of our plane.
    unit = metres_of_degrees(np.array([y]), WGS84)[0] if on_earth else np.ones(2)
    metres = spread * np.outer(unit, unit)[[0, 0, 1], [0, 1, 1]]
    scale = degree_scale(np.array([y]), metres, WGS84) if on_earth else whitening(metres)
    expected = naive.mass(shape, x, y, *naive.ellipse(*spread[0]))
    if shape.is_valid:
        regions = _regions([shape])
        assert kernels.mass(regions, 0, x, y, *scale[0]) == pytest.approx(expected, abs=1e-9)
    if not on_earth:
        disc = regions_of([shapely.Point(0.3, 0.2)], [radius], earth).arrays
        found = kernels.chance(disc, 0, np.array([[x, y]]), scale, np.zeros((1, 3)), spread, 0, ground_of(None))
        assert found == pytest.approx(naive.disc_mass(x - 0.3, y - 0.2, radius, *naive.ellipse(*spread[0])), abs=1e-9)


@given(st.integers(0, 1 << 30), st.integers(0, 9))
def test_a_mean_on_the_boundary_has_the_mass_of_its_neighbours(seed: int, where: int) -> None:
    chance = np.random.default_rng(seed)
    shape = _star(chance, 8, hole=True)
    if not shape.is_valid:
        return
    regions = _regions([shape])
    ax, ay, bx, by = regions.edges[where % len(regions.edges)]
    share = (where % 3) / 2
    x, y = ax + share * (bx - ax), ay + share * (by - ay)
    near = [kernels.mass(regions, 0, x + dx, y + dy, *_scale(1.0, 1.0)) for dx in (-1e-7, 1e-7) for dy in (-1e-7, 1e-7)]
    assert kernels.mass(regions, 0, x, y, *_scale(1.0, 1.0)) == pytest.approx(np.mean(near), abs=1e-6)


def test_polygons_without_holes_have_the_edges_that_they_have_among_others() -> None:
    """Whichever way round their corners go, and however thin they are."""
    chance = np.random.default_rng(6)
    shapes = [_star(chance, int(corners), hole=False) for corners in chance.integers(3, 40, 200)]
    thin = [shapely.transform(shape, lambda at: at * [1.0, 1e-12] + [1e3, 0.0]) for shape in shapes[:50]]
    shapes = [shape for shape in [*map(shapely.reverse, shapes[:100]), *shapes[100:], *thin] if shape.is_valid]
    regions, among = _regions(shapes), _regions([*shapes, _star(chance, 8, hole=True)])
    assert (regions.edges == among.edges[: len(regions.edges)]).all()
    assert (regions.first == among.first[:-1]).all()


def test_long_boundaries_have_the_mass_of_quadrature() -> None:
    """Of many short edges, in several blocks; of combs around the mean, before it and behind it; of a spiral."""
    chance = np.random.default_rng(3)
    shapes = [_star(chance, int(corners), hole=corners % 2 == 0) for corners in chance.integers(30, 300, 8)]
    for x in (-12.0, -3.0, 0.3, 6.0):
        teeth = [(x + 9.0 * (i % 2), -5.0 + 0.05 * i) for i in range(200)]
        shapes.append(shapely.Polygon([(x - 1.0, -5.0), *teeth, (x - 1.0, 4.95)]))
    turn = np.linspace(0.0, 6.0 * np.pi, 150)
    spiral = np.exp(1j * turn) * turn
    arm = np.concatenate((spiral, 1.2 * spiral[::-1]))
    shapes.append(shapely.Polygon(np.column_stack((arm.real, arm.imag))))
    assert all(shape.is_valid for shape in shapes)
    regions = _regions(shapes)
    for i, shape in enumerate(shapes):
        for x, y, sigma in zip(*chance.uniform(-2, 2, (2, 3)), np.exp(chance.uniform(-2, 1.5, 3)), strict=True):
            found = kernels.mass(regions, i, x, y, *_scale(sigma, sigma))
            assert found == pytest.approx(naive.mass(shape, x, y, sigma, sigma), abs=1e-9)


@given(st.integers(0, 1 << 30), st.floats(-3, 3), st.floats(-3, 3), st.sampled_from((0.1, 0.5, 0.9)))
def test_what_is_decided_without_an_integral_is_as_the_integral_has_it(
    seed: int, x: float, y: float, least: float
) -> None:
    """By the distance to the boundary, as it is or cut off, and by whether the region is convex."""
    chance = np.random.default_rng(seed)
    star = _star(chance, int(chance.integers(4, 12)), hole=seed % 3 == 0)
    shape = shapely.convex_hull(star) if seed % 2 else star
    if not shape.is_valid:
        return
    regions = _regions([shape])
    assert is_convex(regions, 0) == shapely.covers(shape, shapely.convex_hull(shape))
    at = shapely.Point(x, y)
    distance = shapely.boundary(shape).distance(at) * (1.0 if shapely.covers(shape, at) else -1.0)
    found = naive.mass(shape, x, y, 1.0, 1.0)
    for most in (1.0, 9.0):
        known = min(most, max(-most, distance)), most, is_convex(regions, 0)
        decided = decided_by(*known, 1.0, least)
        assert decided < 0 or decided == (found >= least)
        assert found <= at_most(*known) + 1e-9


def test_rings_that_share_a_corner_are_not_taken_for_convex() -> None:
    triangles = [shapely.Polygon([(0, 0), (3, 1), (1, 3)]), shapely.Polygon([(0, 0), (-3, -1), (-1, -3)])]
    regions = _regions(
        [*triangles, shapely.MultiPolygon(triangles), shapely.box(0, 0, 1, 1) - shapely.box(0, 0, 0.5, 1)]
    )
    assert [is_convex(regions, i) for i in range(4)] == [True, True, False, True]


@pytest.mark.parametrize("zeros", list(itertools.product((0.0, -0.0), repeat=4)))
def test_a_mean_may_be_level_with_a_side(zeros: tuple[float, float, float, float]) -> None:
    """From any corner on, and whatever signs zeros have: angles jump at the left of the mean."""
    one, other, y, tilt = zeros
    for corners in ([(20, 20), (-20, 20)], [(20, -20), (-20, -20)]):
        ring = [(-20.0, one), (20.0, other), *corners]
        for k in range(len(ring)):
            regions = _regions([shapely.Polygon(ring[k:] + ring[:k])])
            assert kernels.mass(regions, 0, 0.0, y, 1.0, 1.0, tilt) == pytest.approx(0.5, abs=1e-9)
            assert kernels.mass(regions, 0, -30.0, y, 1.0, 1.0, tilt) == pytest.approx(0.0, abs=1e-9)
            assert kernels.mass(regions, 0, 30.0, y, 1.0, 1.0, tilt) == pytest.approx(0.0, abs=1e-9)


def test_a_box_is_a_product_of_intervals() -> None:
    regions = _regions([shapely.box(-1.0, 2.0, 3.0, 2.5)])
    for x, y in ((0.0, 0.0), (-1.0, 2.0), (1.0, 2.25), (3.0, 2.3), (9.0, 2.3)):
        expected = (ndtr((3 - x) / 0.7) - ndtr((-1 - x) / 0.7)) * (ndtr((2.5 - y) / 0.2) - ndtr((2 - y) / 0.2))
        assert kernels.mass(regions, 0, x, y, *_scale(0.7, 0.2)) == pytest.approx(expected, abs=1e-11)


@given(st.integers(0, 1 << 30))
def test_membership_is_that_of_shapely(seed: int) -> None:
    """At random, on a raster with the corners, and as near to edges as numbers get."""
    chance = np.random.default_rng(seed)
    if seed % 2:
        corners = np.round(4 * chance.uniform(-1, 1, (7, 2))) / 2
        shape = shapely.convex_hull(shapely.MultiPoint(corners))
        if shape.geom_type != "Polygon":
            return
    else:
        shape = _star(chance, 9, hole=True)
    if not shape.is_valid:
        return
    regions = _regions([shape])
    places = [chance.uniform(-4, 4, 2) for _ in range(20)]
    places += [np.array([x / 2, y / 2]) for x in range(-4, 5) for y in range(-4, 5)]
    for edge in regions.edges:
        share = chance.uniform(0, 1)
        at = edge[:2] + share * (edge[2:] - edge[:2])
        places += [at, np.nextafter(at, 9), np.nextafter(at, -9), edge[:2]]
    for x, y in places:
        assert covers(regions, 0, x, y) == shapely.covers(shape, shapely.Point(x, y))


def test_regions_are_the_same_in_every_format() -> None:
    hole = [(1.0, 1.0), (2.0, 1.0), (1.0, 2.0)]
    shape = shapely.Polygon([(0.0, 0.0), (4.0, 0.0), (4.0, 4.0), (0.0, 4.0)], [hole])
    several = shapely.MultiPolygon([shape, shapely.box(6, 6, 7, 7)])
    for one in (shape, several):
        parts = getattr(one, "geoms", [one])
        nested: Any = [[shapely.get_coordinates(r).tolist() for r in (p.exterior, *p.interiors)] for p in parts]
        named: Any = [[[{"x": x, "y": y} for x, y in ring] for ring in part] for part in nested]
        if one is shape:
            nested, named = nested[0], named[0]
        formats = [one, one.wkb, one.wkt, {"srid": 4326, "wkb": one.wkb}, nested, named, shapely.geometry.mapping(one)]
        found = [regions_of([given], [None], None) for given in formats]
        assert not any(each.bad for each in found)
        assert len({each.digest for each in found}) == 1
        for each in found:
            np.testing.assert_array_equal(each.arrays.edges, found[0].arrays.edges)
    points = [shapely.Point(1, 2), "POINT (1 2)", [1.0, 2.0], {"x": 1.0, "y": 2.0}]
    discs = [regions_of([given], [3.0], None) for given in points]
    assert {tuple(each.arrays.box[0]) for each in discs} == {(-2.0, -1.0, 4.0, 5.0)}


@pytest.mark.parametrize(
    ("given", "radius", "reported"),
    [
        (7, None, "no geometry: a int"),
        (b"no WKB", None, "no geometry"),
        ({"type": "Polygone", "coordinates": [[0.0, 0.0]]}, None, "no geometry: Unknown geometry type"),
        ([[[[[1.0, 2.0]]]]], None, "not a polygon"),
        ([[1.0, 2.0]], None, "no geometry"),
        (shapely.Point(math.inf, 0), 1.0, "not finite"),
        (shapely.Point(0, 0), -1.0, "radius is -1.0"),
        (shapely.Point(0, 0), math.nan, "radius is nan"),
        (shapely.GeometryCollection([shapely.Point(0, 0)]), None, "not a point, line or polygon"),
        (shapely.LineString(), 1.0, "empty"),
    ],
)
def test_what_is_wrong_with_a_region_is_said(given: Any, radius: float | None, reported: str) -> None:
    (bad,) = regions_of([given], [radius], None).bad
    assert reported in bad.why


@given(st.integers(0, 1 << 30))
def test_lines_and_points_are_their_own_boundary(seed: int) -> None:
    """They cover what shapely says they do, and have no mass."""
    chance = np.random.default_rng(seed)
    corners = np.round(4 * chance.uniform(-1, 1, (5, 2))) / 2
    shapes = [
        shapely.LineString(corners),
        shapely.LineString([corners[0], corners[0] + [1.5, 0.0]]),
        shapely.MultiLineString([corners[:2], corners[2:]]),
        shapely.Point(corners[0]),
        shapely.MultiPoint(corners),
    ]
    regions = regions_of(shapes, [None] * 5, None)
    places = np.array([(x / 4, y / 4) for x in range(-9, 10) for y in range(-9, 10)])
    for i, row in enumerate(regions.rows.tolist()):
        found = [covers(regions.arrays, i, x, y) for x, y in places]
        assert found == shapely.covers(shapes[row], shapely.points(places)).tolist()
        assert kernels.mass(regions.arrays, i, 0.1, 0.2, *_scale(1.0, 1.0)) == pytest.approx(0.0, abs=1e-12)


def test_regions_read_in_pieces_are_those_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    holed = shapely.box(0, 0, 4, 4).difference(shapely.box(1, 1, 2, 2))
    given = [
        holed,
        "POLYGON ((0 0, 1 1, 1 0, 0 1, 0 0))",
        shapely.Point(1, 2),
        None,
        shapely.LineString([(0, 0), (3, 1)]),
    ]
    radii = [None, None, 2.0, None, 0.5]
    whole = regions_of(given, radii, None)
    monkeypatch.setattr("appulse.model.regions._PIECE", 2)
    found = regions_of(given, radii, None)
    for one, other in zip(found.arrays, whole.arrays, strict=True):
        np.testing.assert_array_equal(one, other)
    assert (found.rows.tolist(), found.bad, found.digest) == (whole.rows.tolist(), whole.bad, whole.digest)
    assert regions_of(given, radii, None, digested=False).digest == ""


@settings(deadline=None)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.integers(0, 1 << 20))
def test_regions_that_are_added_leave_earlier_ones_as_they_were(counts: list[int], seed: int) -> None:
    """Of each state, found at the end: the regions whose boxes meet a box, without those that stand no more."""
    chance = np.random.default_rng(seed)
    growing, states = GrowingRegions(NO_REGIONS.arrays), []
    for count in counts:
        low, size = chance.uniform(-50, 50, (count, 2)), 2.0 ** chance.uniform(-2, 7, (count, 2))
        growing.add(regions_of(list(shapely.box(*low.T, *(low + size).T)), [None] * count, None).arrays)
        stands = (chance.random(len(growing)) < 0.8).astype(np.uint8)
        states.append((growing.arrays, growing.search.grid._replace(stands=stands)))
    for arrays, index in states:
        for _ in range(5):
            low, out = chance.uniform(-60, 60, 2), np.empty(sum(counts) + 1, np.int64)
            high = low + 2.0 ** chance.uniform(-3, 8, 2)
            found = candidates(index, growing.arrays, low[0], low[1], high[0], high[1], out)
            meets = (arrays.box[:, :2] <= high).all(axis=1) & (arrays.box[:, 2:] >= low).all(axis=1)
            assert sorted(out[:found].tolist()) == np.flatnonzero(meets & (index.stands > 0)).tolist()
        np.testing.assert_array_equal(arrays.box, growing.arrays.box[: len(arrays.box)])


def test_sets_of_one_origin_grow_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the first has the room behind them, and their search; what was sent elsewhere has neither."""
    monkeypatch.setattr("appulse.model.regions._PIECE", 3)
    chance = np.random.default_rng(2)
    shapes = [shapely.box(x, y, x + 1, y + 2) for x, y in chance.uniform(-9, 9, (20, 2))]
    given = regions_of(shapes[:10], [None] * 10, None)
    before, search = [column.copy() for column in given.arrays], given.search
    sent = pickle.loads(pickle.dumps(given))  # noqa: S301 - our own
    assert sent._growing is None
    first, second, third = given.growing(), given.growing(), sent.growing()
    assert first.search is search
    for growing, part in ((first, shapes[10:14]), (second, shapes[14:]), (third, shapes[12:])):
        growing.add(regions_of(part, [None] * len(part), None, rasterised=False).arrays)
        growing.expect(100)
        for one, other in zip(growing.arrays, _regions([*shapes[:10], *part]), strict=True):
            np.testing.assert_array_equal(one, other)
        out = np.empty(20, np.int64)
        found = candidates(growing.search.grid, growing.arrays, -2.0, -3.0, 4.0, 5.0, out)
        meets = shapely.intersects(shapely.box(-2.0, -3.0, 4.0, 5.0), [*shapes[:10], *part])
        assert sorted(out[:found].tolist()) == np.flatnonzero(meets).tolist()
    for one, other in zip(given.arrays, before, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_radius_makes_a_corridor() -> None:
    road, block = shapely.LineString([(0, 0), (5, 0), (5, 5)]), shapely.box(0, 0, 2, 2)
    arrays = regions_of([road, block], [0.5, 1.0], None).arrays
    places = np.random.default_rng(2).uniform(-2, 7, (3000, 2))
    for i, (shape, radius) in enumerate(((road, 0.5), (block, 1.0))):
        far = shapely.distance(shape, shapely.points(places))
        inside = np.array([covers(arrays, i, x, y) for x, y in places])
        clear = np.abs(far - radius) > 1e-3 * radius  # circles have corners
        assert (inside == (far <= radius))[clear].all()


def test_on_earth_a_corridor_is_as_wide_as_geodesics_say() -> None:
    """Over some kilometres, far north; and over the 180th meridian, where it is cut."""
    for line in ([(24.0, 60.0), (24.4, 60.3)], [(179.9, -40.0), (180.2, -40.1)]):
        arrays = regions_of([shapely.LineString(line)], [800.0], WGS84).arrays
        step = np.diff(line, axis=0)[0]
        on = np.array(line[0]) + 0.37 * step
        narrow = np.array([math.cos(math.radians(on[1])), 1.0])
        along = step * narrow
        left = np.array([-along[1], along[0]]) / np.hypot(*along)
        for metres in (790.0, 811.0, -790.0, -811.0):
            x, y = on + left * metres / 111_300 / narrow
            assert covers(arrays, 0, (x + 180.0) % 360.0 - 180.0, y) == (abs(metres) < 800.0), (line, metres)


def test_on_the_sky_a_corridor_is_as_wide_in_arc_seconds() -> None:
    start, step = np.array([10.0, 60.0]), np.array([1.5, 0.4])
    arrays = regions_of([shapely.LineString([start, start + step])], [30.0], EARTHS["sky"]).arrays
    for share in (0.13, 0.37, 0.81):
        on = start + share * step
        narrow = np.array([math.cos(math.radians(on[1])), 1.0])
        along = step * narrow
        left = np.array([-along[1], along[0]]) / np.hypot(*along)
        for seconds in (29.5, 30.5, -29.5, -30.5):
            x, y = on + left * seconds / 3600.0 / narrow
            assert covers(arrays, 0, x, y) == (abs(seconds) < 30.0), (share, seconds)


def test_what_reaches_over_the_180th_meridian_is_cut() -> None:
    whole = shapely.box(175.0, -20.0, 190.0, -10.0)
    by_hand = shapely.MultiPolygon([shapely.box(175.0, -20.0, 180.0, -10.0), shapely.box(-180.0, -20.0, -170.0, -10.0)])
    found, expected = (regions_of([shape], [None], WGS84).arrays for shape in (whole, by_hand))
    for x, y in np.random.default_rng(1).uniform([-180, -25], [180, -5], (500, 2)):
        assert covers(found, 0, x, y) == covers(expected, 0, x, y)
    (bad,) = regions_of([shapely.box(-300, 0, 100, 10)], [None], WGS84).bad
    assert bad.why == "400 degrees of longitude are more than a turn"
    (bad,) = regions_of([shapely.box(539, 0, 541, 10)], [None], WGS84).bad
    assert "longitude [-540, 540]" in bad.why


@pytest.mark.parametrize("turn", [-360.0, 360.0])
def test_a_region_a_turn_away_is_the_same(turn: float) -> None:
    """As longitudes of rows are taken modulo 360; also of discs and of what is widened."""
    shapes = [shapely.box(-179.0, -20.0, 100.0, -10.0), shapely.box(-1.0, 3.0, 1.0, 4.0)]
    lines = [shapely.LineString([(-1.0, 5.0), (1.0, 6.0)]), shapely.Point(1.0, 0.0)]
    given, radii = [*shapes, *lines], [None] * len(shapes) + [900.0, 900.0]
    moved = [shapely.transform(shape, lambda at: at + np.array([turn, 0.0])) for shape in given]
    for earth in (WGS84, EARTHS["sky"]):
        one, other = (regions_of(of, radii, earth) for of in (given, moved))
        assert not other.bad
        np.testing.assert_allclose(one.arrays.box, other.arrays.box, atol=1e-9)
        np.testing.assert_allclose(one.arrays.centre, other.arrays.centre, rtol=1e-12, atol=1e-6)
        for i in range(len(shapes) + 1):
            for x, y in np.random.default_rng(1).uniform([-180, -25], [180, 7], (500, 2)):
                assert covers(one.arrays, i, x, y) == covers(other.arrays, i, x, y)


def test_edges_of_geography_are_great_circles() -> None:
    """From 0 to 90 degrees of longitude the great circle passes north of the parallel."""
    shape = shapely.Polygon([(0.0, 50.0), (90.0, 50.0), (90.0, 0.0), (0.0, 0.0)])
    top = math.degrees(math.atan(math.tan(math.radians(50.0)) / math.cos(math.radians(45.0))))  # at 45 degrees
    field = pa.field("region", pa.binary(), metadata={"ARROW:extension:metadata": '{"edges": "spherical"}'})
    for metadata in (None, {"geo": '{"columns": {"geometry": {"edges": "spherical"}}}'}):
        schema = pa.schema([field if metadata is None else field.remove_metadata()], metadata)
        (followed,) = geometries_of(pa.table({"region": [shape.wkb]}, schema=schema))
        arrays = regions_of([followed], [None], WGS84).arrays
        assert covers(arrays, 0, 45.0, top - 1e-6)
        assert not covers(arrays, 0, 45.0, top + 1e-6)
    assert geometries_of(pa.table({"region": [shape.wkb]})) == [shape.wkb]
    # As Spark has it: GEOGRAPHY, and GEOMETRY with edges that are straight.
    for name, curved in (("geography", True), ("geometry", False)):
        wkb = pa.field("wkb", pa.binary(), nullable=False, metadata={name: "true"})
        own = pa.struct([pa.field("srid", pa.int32(), nullable=False), wkb])
        (read,) = geometries_of(pa.table({"region": pa.array([{"srid": 4326, "wkb": shape.wkb}], own)}))
        assert covers(regions_of([read], [None], WGS84).arrays, 0, 45.0, top - 1e-6) is curved


def test_a_region_may_have_many_corners() -> None:
    turn = np.linspace(0.0, 2.0 * math.pi, 1_000_000, endpoint=False)
    arrays = _regions([shapely.Polygon(np.column_stack([np.cos(turn), np.sin(turn)]))])
    assert covers(arrays, 0, 0.7, 0.7)
    assert not covers(arrays, 0, 0.71, 0.71)
    assert kernels.mass(arrays, 0, 0.0, 0.0, *_scale(1.0, 1.0)) == pytest.approx(1.0 - math.exp(-0.5), abs=1e-8)


def test_coordinates_of_another_system_are_refused() -> None:
    web = shapely.set_srid(shapely.box(0, 0, 1, 1), 3857)
    (bad,) = regions_of([web], [None], WGS84).bad
    assert "SRID 3857" in bad.why
    assert not regions_of([shapely.set_srid(web, 4326)], [None], WGS84).bad


def test_a_geometry_under_another_name_is_an_error_that_says_what_to_do() -> None:
    kind = type("GeoDataFrame", (pd.DataFrame,), {"__module__": "geopandas.geodataframe"})
    with pytest.raises(BadArgument, match="rename_geometry"):
        with_wkb(kind({"query": ["a"], "geometry": [shapely.box(0, 0, 1, 1)]}))
