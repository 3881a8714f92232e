"""Polygons of one ring in WKB against shapely, and regions without rasters against those with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from appulse.kernels import plain_polygons as kernels
from appulse.kernels.near_regions import Reach
from appulse.kernels.region_matches import matches
from appulse.kernels.regions import first_without_raster
from appulse.model import regions as model
from appulse.model.growing_regions import GrowingRegions
from appulse.model.positions import EARTHS, ground_of
from appulse.model.regions import NO_REGIONS, regions_of
from appulse.queries.regions import _exact_readings

# Few places, so that corners meet, lie in a line, and rings touch or cross themselves.
_PLACES = st.tuples(st.integers(-2, 2), st.integers(-2, 2))
_OFFSETS = st.sampled_from((0.0, 0.1, 1e6, 1e-300))


def _polygon(corners: list[tuple[float, float]], offset: float, factor: float) -> Any:
    places = offset + factor * np.array(corners, float)
    return shapely.Polygon(places)


def _star(chance: np.random.Generator) -> Any:
    n = int(chance.integers(3, 60))
    angle = np.sort(chance.uniform(0.0, 2.0 * np.pi, n)) * chance.choice([-1.0, 1.0])
    reach = chance.uniform(1.0, 3.0, n)
    return shapely.Polygon(np.column_stack([reach * np.cos(angle), reach * np.sin(angle)]))


def _corners(shapes: list[Any]) -> tuple[Any, Any]:
    corners = np.vstack([shapely.get_coordinates(shape) for shape in shapes])
    return corners, np.concatenate([[0], np.cumsum([shapely.get_num_coordinates(shape) for shape in shapes])])


@settings(max_examples=300, deadline=None)
@given(st.lists(_PLACES, min_size=3, max_size=9), _OFFSETS, st.sampled_from((1.0, 1 / 3, 1e-9, 1e-160, 1e155)))
def test_a_ring_that_goes_once_around_is_valid(
    corners: list[tuple[float, float]], offset: float, factor: float
) -> None:
    shape = _polygon(corners, offset, factor)
    if kernels.stars(*_corners([shape]))[0]:
        assert shapely.is_valid(shape)


def test_cells_boxes_and_stars_go_once_around() -> None:
    chance = np.random.default_rng(1)
    hulls = [shapely.convex_hull(shapely.MultiPoint(chance.normal(0.0, 1.0, (20, 2)))) for _ in range(50)]
    shapes = [*hulls, *map(shapely.reverse, hulls), *shapely.box([0.0, 5.0], 0.0, [1.0, 6.0], 1.0)]
    assert kernels.stars(*_corners(shapes)).all()
    bent = shapely.Polygon([(0, 0), (9, 0), (9, 9), (8, 9), (8, 1), (0, 1)])
    twice = shapely.Polygon([(np.cos(a), np.sin(a)) for a in np.arange(0.0, 4.0 * np.pi, 1.0)])
    assert not kernels.stars(*_corners([bent, twice])).any()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.one_of(st.integers(0, 1 << 30), st.lists(_PLACES, min_size=3, max_size=7)), min_size=1, max_size=6),
    st.sampled_from((None, "wgs84")),
    st.booleans(),
)
def test_polygons_in_wkb_are_those_that_shapely_reads(shown: list[Any], earth: str | None, far: bool) -> None:
    shapes = [_star(np.random.default_rng(one)) if isinstance(one, int) else shapely.Polygon(one) for one in shown]
    if far:
        shapes[0] = shapely.transform(shapes[0], lambda at: np.add(at, [179.0, 0.0]))
    texts = [shapely.to_wkb(shape, byte_order=1) for shape in shapes]
    around = EARTHS[earth] if earth else None
    found, expected = (regions_of(one, [None] * len(shapes), around) for one in (texts, shapes))
    for one, other in zip(found.arrays, expected.arrays, strict=True):
        np.testing.assert_array_equal(one, other)
    assert (found.rows.tolist(), found.bad, found.digest) == (expected.rows.tolist(), expected.bad, expected.digest)


_SQUARE = shapely.to_wkb(shapely.box(0.0, 0.0, 1.0, 1.0), byte_order=1)


@pytest.mark.parametrize(
    "text",
    [
        shapely.to_wkb(shapely.box(0.0, 0.0, 1.0, 1.0), byte_order=0),
        shapely.to_wkb(shapely.set_srid(shapely.box(0.0, 0.0, 1.0, 1.0), 4326), include_srid=True),
        shapely.to_wkb(shapely.Polygon([(0, 0, 1), (1, 0, 1), (1, 1, 1)])),
        shapely.to_wkb(shapely.Point(0.0, 1.0).buffer(1.0).difference(shapely.Point(0.0, 1.0).buffer(0.5))),
        shapely.to_wkb(shapely.MultiPolygon([shapely.box(0, 0, 1, 1)])),
        shapely.to_wkb(shapely.Polygon()),
        shapely.to_wkb(shapely.LineString([(0, 0), (1, 1)])),
        _SQUARE[:-1],
        _SQUARE + b"\0",
        _SQUARE[:9] + b"\xff\xff\xff\xff" + _SQUARE[13:],
        _SQUARE[:-8] + np.array([np.nan]).tobytes(),
        _SQUARE[:-8] + np.array([0.5]).tobytes(),
        b"",
        b"\x01",
    ],
)
def test_what_is_no_such_polygon_is_left_to_shapely(text: bytes) -> None:
    assert model._plain_polygons(shapely, [_SQUARE, text], None) is None
    with np.errstate(invalid="ignore"):  # shapely warns of what is NaN
        found = regions_of([_SQUARE, text], [None, None], None)
    assert found.rows[0] == 0
    assert len(found.rows) + len(found.bad) == 2


@given(st.lists(st.integers(0, 8), min_size=1, max_size=5), st.integers(0, 1 << 30))
def test_regions_without_rasters_hold_the_same_places(counts: list[int], seed: int) -> None:
    """Added with rasters and without, and looked up by many readings or few before and after."""
    chance = np.random.default_rng(seed)
    lazy, whole = (GrowingRegions(NO_REGIONS.arrays) for _ in range(2))
    for count in counts:
        shapes = [shapely.transform(_star(chance), lambda at: at + chance.uniform(-3.0, 3.0, 2)) for _ in range(count)]
        if count:
            holed = shapes[0].buffer(0.0).difference(shapes[0].buffer(0.0).buffer(-0.3))
            shapes[0] = holed if not holed.is_empty else shapes[0]
        rasterised = bool(chance.integers(0, 2))
        lazy.add(regions_of(shapes, [None] * count, None, rasterised=rasterised).arrays)
        whole.add(regions_of(shapes, [None] * count, None).arrays)
        at = np.vstack([chance.uniform(-6.0, 6.0, (int(chance.integers(1, 9)), 2)), whole.arrays.edges[:3, :2]])
        readings = _exact_readings(at, None)
        lazy.expect(len(at))
        found = []
        for growing in (lazy, whole):
            near = Reach(0.0, 0.01), ground_of(None), False
            found.append(matches(growing.arrays, growing.search, readings, 1.0, *near)[:2])
        np.testing.assert_array_equal(found[0], found[1])
    lazy.expect(1 + sum(counts))
    assert first_without_raster(lazy.arrays) == len(lazy)
    np.testing.assert_array_equal(lazy.arrays.raster, whole.arrays.raster)
