"""Crossings on the Earth: over the 180th meridian, at the poles and on long legs, against geodesics of pyproj."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import shapely

import appulse as ap
from tests.helpers.geodesics import geod

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

MINUTE, LEAST, MANY = 60.0, 0.3, 2001


def _crossings(
    legs: NDArray[np.float64],
    regions: Sequence[str],
    radius: float | None = None,
    sigma: float = 0.0,
    error: tuple[float, float, float] | None = None,
) -> dict[tuple[int, str], tuple[float, float]]:
    """Probability and share of the way of each leg (lat, lon, lat, lon) and region; no reading is ever inside."""
    n = len(legs)
    table = {"key": np.repeat(np.arange(n), 2), "time": np.tile([0.0, MINUTE], n)}
    table |= {"lat": legs[:, [0, 2]].ravel(), "lon": legs[:, [1, 3]].ravel()}
    if error is None:
        value = ap.Position("lat", "lon", sigma=sigma)
    else:
        table |= {name: np.full(2 * n, one) for name, one in zip(("major", "minor", "angle"), error, strict=True)}
        value = ap.Position("lat", "lon", ellipse=("major", "minor", "angle"))
    stream = ap.Stream(pa.table(table), key="key", time="time", value=value, motion=ap.Straight("2 minutes"))
    fences = pa.table({"query": [f"q{i}" for i in range(len(regions))], "region": list(regions)})
    if radius is not None:
        fences = fences.append_column("radius", [pa.array([radius] * len(regions))])
    found = ap.fence_events(stream, fences, enter=1.0, leave=1.0, crossing=LEAST).to_pylist()
    rows = [row for row in found if row["event"] == "cross"]
    return {(row["key"], row["query"]): (row["probability"], row["time"] / MINUTE) for row in rows}


def _legs(lat: float, lon: float, near: float, far: float, n: int) -> NDArray[np.float64]:
    """Legs between places that lie so far from another, in all directions."""
    chance, ends = np.random.default_rng(int(100 + lat)), []
    for _ in range(2):
        start = np.full(n, lon), np.full(n, lat), chance.uniform(0.0, 360.0, n), chance.uniform(near, far, n)
        east, north, _ = geod("wgs84").fwd(*start)
        ends += [north, east]
    return np.column_stack(ends)


def _along(leg: NDArray[np.float64], many: int = MANY) -> tuple[NDArray[np.float64], ...]:
    """Latitudes, longitudes and azimuths of places along a geodesic."""
    lat, lon, to_lat, to_lon = leg
    azimuth, _, length = geod("wgs84").inv(lon, lat, to_lon, to_lat)
    at = np.linspace(0.0, length, many)
    east, north, back = geod("wgs84").fwd(*(np.full(many, one) for one in (lon, lat, azimuth)), at)
    return np.asarray(north), np.asarray(east), np.asarray(back) + 180.0


def _box(lon: float, wide: float, high: float, hole: bool = False) -> str:
    hollow = shapely.box(lon - wide / 4, -high / 4, lon + wide / 3, high / 3) if hole else shapely.Polygon()
    return str(shapely.difference(shapely.box(lon - wide, -high, lon + wide, high), hollow).wkt)


@pytest.mark.parametrize("sigma", [0.0, 200.0, 900.0])
@pytest.mark.parametrize("lon", [180.0, -180.0, 179.98])
def test_what_is_cut_at_the_180th_meridian_is_one_region(lon: float, sigma: float) -> None:
    """The same zones and legs elsewhere are the twin: a box, one with a hole, a corridor, and a band around."""
    legs = _legs(0.0, 10.0, 4_000.0, 14_000.0, 300)
    moved = legs.copy()
    moved[:, [1, 3]] = np.remainder(legs[:, [1, 3]] + lon - 10.0 + 180.0, 360.0) - 180.0
    for radius in (None, 900.0):
        shapes = [[_box(at, 0.05, 0.05), _box(at, 0.05, 0.04, hole=True)] for at in (10.0, lon)]
        if radius is not None:
            shapes = [[f"LINESTRING ({at - 0.06} 0.01, {at + 0.04} -0.02)"] for at in (10.0, lon)]
        expected, found = (_crossings(one, two, radius, sigma) for one, two in zip((legs, moved), shapes, strict=True))
        assert len(expected) > 100
        sure = [{which for which, (p, _) in some.items() if p > LEAST + 1e-4} for some in (expected, found)]
        assert sure[0] <= set(found)
        assert sure[1] <= set(expected)
        for which in sure[0]:
            assert found[which][0] == pytest.approx(expected[which][0], abs=1e-4)
            assert found[which][1] == pytest.approx(expected[which][1], abs=1e-6)


def test_all_but_a_gap_at_the_180th_meridian_is_passed_with_the_mass_of_both_sides() -> None:
    """A band around the Earth, open for 0.004 degrees at the meridian: who flies there may be off to either side."""
    legs, half = np.array([[0.2, 180.0, -0.2, 180.0]]), 0.002 * 111_319.49
    band = "POLYGON ((-179.998 -0.05, 179.998 -0.05, 179.998 0.05, -179.998 0.05, -179.998 -0.05))"
    expected = 1.0 - np.mean(np.abs(np.random.default_rng(2).normal(0.0, 900.0, 1_000_000)) < half)
    (probability, at), *_ = _crossings(legs, [band], sigma=900.0).values()
    assert probability == pytest.approx(expected, abs=2e-3)
    assert abs(at - 0.5) <= 0.05 / 0.4 + 1e-3


@pytest.mark.parametrize("radius", [2_000.0, 50_000.0])
@pytest.mark.parametrize("lat", [90.0, -90.0, 89.99, -89.0, 85.0, 60.0])
def test_a_disc_is_passed_by_geodesics_that_come_so_near(lat: float, radius: float) -> None:
    legs = _legs(lat, 30.0, 1.02 * radius, 2.6 * radius, 100)
    exact = _crossings(legs, [f"POINT (30 {lat})"], radius)
    blurred = _crossings(legs, [f"POINT (30 {lat})"], radius, sigma=1e-3)
    passed = 0
    for k, leg in enumerate(legs):
        north, east, _ = _along(leg)
        far = np.asarray(geod("wgs84").inv(np.full(MANY, 30.0), np.full(MANY, lat), east, north)[2])
        if abs(far.min() - radius) < 0.5:
            continue
        assert ((k, "q0") in exact, (k, "q0") in blurred) == (far.min() < radius, far.min() < radius)
        inside = np.flatnonzero(far < radius)
        if len(inside):
            passed += 1
            middle = 0.5 * (inside[0] + inside[-1]) / (MANY - 1)
            assert exact[k, "q0"][1] == pytest.approx(middle, abs=2e-3)
    assert passed > 20


def _chance(
    leg: NDArray[np.float64], lat: float, lon: float, radius: float, error: tuple[float, float, float]
) -> float:
    """Of errors that keep their angle to the leg: each place of it is moved by them along a geodesic."""
    major, minor, angle = error
    chance, n, many = np.random.default_rng(5), 4_000, 801
    lengthwise, aside = chance.normal(0.0, major, n), chance.normal(0.0, minor, n)
    off, turn = np.hypot(lengthwise, aside), angle + np.degrees(np.arctan2(aside, lengthwise))
    north, east, azimuth = _along(leg, many)
    nearest = np.full(n, np.inf)
    for k in range(350, 451):  # the disc is at the middle
        start = np.full(n, east[k]), np.full(n, north[k]), turn + azimuth[k] - azimuth[0], off
        x, y, _ = geod("wgs84").fwd(*start)
        nearest = np.minimum(nearest, geod("wgs84").inv(np.full(n, lon), np.full(n, lat), x, y)[2])
    return float(np.mean(nearest < radius))


@pytest.mark.parametrize(("lat", "aside"), [(90.0, 2_500.0), (88.0, 3_000.0), (72.0, -3_200.0)])
@pytest.mark.parametrize("error", [(900.0, 900.0, 0.0), (1_500.0, 300.0, 30.0)])
def test_an_error_keeps_its_angle_to_the_leg(lat: float, aside: float, error: tuple[float, float, float]) -> None:
    """A disc of three kilometres beside a leg of two hundred."""
    geodesic = geod("wgs84")
    near_lon, near_lat, back = geodesic.fwd(0.0, lat, 50.0, aside)
    ends = [geodesic.fwd(near_lon, near_lat, back + turn, 100_000.0) for turn in (90.0, -90.0)]
    leg = np.array([ends[0][1], ends[0][0], ends[1][1], ends[1][0]])
    (probability, at), *_ = _crossings(leg[None], [f"POINT (0 {lat})"], 3_000.0, error=error).values()
    assert probability == pytest.approx(_chance(leg, lat, 0.0, 3_000.0, error), abs=0.03)
    assert at == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("ends", [(51.47, -0.45, 35.5, 139.8), (51.47, -0.45, 40.6, -73.8), (69.0, 10.0, 69.0, 13.0)])
def test_a_long_leg_passes_when_it_is_there(ends: tuple[float, ...], share: float) -> None:
    north, east, _ = _along(np.array(ends))
    lat, lon = north[int(share * (MANY - 1))], east[int(share * (MANY - 1))]
    box = shapely.box(lon - 0.05, lat - 0.03, lon + 0.05, lat + 0.03).wkt
    for sigma in (0.0, 20.0):
        (_, at), *_ = _crossings(np.array([ends]), [f"POINT ({lon} {lat})"], 5e3, sigma).values()
        assert at == pytest.approx(share, abs=1e-6)
        (_, at), *_ = _crossings(np.array([ends]), [box], sigma=sigma).values()
        assert at == pytest.approx(share, abs=1e-4)


@pytest.mark.parametrize("lat", [89.9, 88.0, 80.0, 45.0])
def test_a_polygon_is_passed_by_geodesics_near_a_pole_too(lat: float) -> None:
    """The twin sees the geodesic as many short pieces that are straight in degrees."""
    high, wide = 0.05, 0.05 / np.cos(np.radians(lat))
    region = shapely.box(20.0 - wide, lat - high, 20.0 + wide, lat + high)
    legs = _legs(lat, 20.0, 8_000.0, 25_000.0, 150)
    found, passed = _crossings(legs, [region.wkt]), 0
    for k, leg in enumerate(legs):
        north, east, _ = _along(leg)
        east = 20.0 + np.remainder(east - 20.0 + 180.0, 360.0) - 180.0
        inside = np.flatnonzero(shapely.contains_xy(region, east, north))
        if len(inside) < 10 and shapely.distance(region, shapely.MultiPoint(np.column_stack([east, north]))) < 1e-4:
            continue
        assert ((k, "q0") in found) == (len(inside) > 0)
        if len(inside) and (np.diff(inside) == 1).all():
            passed += 1
            assert found[k, "q0"][1] == pytest.approx(0.5 * (inside[0] + inside[-1]) / (MANY - 1), abs=2e-3)
    assert passed > 20


def test_a_cap_around_a_pole_is_passed() -> None:
    cap = "POLYGON ((-180 89, 180 89, 180 90, -180 90, -180 89))"
    legs = np.array([[88.0, 20.0, 88.0, -170.0], [88.0, 20.0, 88.5, -160.0], [88.0, 20.0, 88.0, 60.0]])
    for sigma in (0.0, 50.0):
        found = _crossings(legs, [cap], sigma=sigma)
        assert set(found) == {(0, "q0"), (1, "q0")}
        assert found[0, "q0"] == pytest.approx((1.0, 0.5), abs=1e-4)


@pytest.mark.parametrize("at", [0.25, 0.2501, 0.5])
def test_no_line_is_missed_where_one_piece_of_a_leg_ends(at: float) -> None:
    """Of a leg of 40 km, cut into five: a gate across it is passed for sure, wherever it stands."""
    legs = np.array([[0.0, 10.0, 0.0, 10.36]])
    for share in (at, 0.2, 0.4, 0.6):
        lon = 10.0 + 0.36 * share
        gate = f"LINESTRING ({lon} -0.2, {lon} 0.2)"
        assert _crossings(legs, [gate], sigma=100.0)[0, "q0"] == pytest.approx((1.0, share), abs=1e-4)


def test_who_stands_still_passes_nothing_new() -> None:
    legs = np.array([[89.0, 10.0, 89.0, 10.0]])
    found: Any = _crossings(legs, ["POINT (10 89)"], 100.0, sigma=50.0)
    assert found[0, "q0"] == pytest.approx((1.0 - np.exp(-2.0), 0.5), abs=1e-6)
