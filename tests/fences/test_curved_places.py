"""Fences of places where degrees are not as those of a plane: large errors, and the poles."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import shapely

import appulse as ap
from appulse.kernels.curved_regions import CURVED, is_curved
from appulse.model.covariance import flat_widest
from appulse.model.positions import EARTHS, degree_scale
from tests.helpers.naive_places import GEODS, likely_places

_REGIONS = {
    "all of the Arctic": shapely.box(-180, 60, 180, 90),
    "a quarter of it": shapely.box(0, 80, 90, 90),
    "a ring around the pole": shapely.box(-180, 89, 180, 89.9),
    "over the 180th meridian": shapely.Polygon([(178, 80), (182, 80), (180, 85)]),
    "a strip around the Equator": shapely.box(-180, -1, 180, 1),
    "a square with a hole": shapely.box(9, 49, 11, 51) - shapely.box(9.9, 49.9, 10.1, 50.1),
}


def chances(lat: float, lon: float, long: float, short: float, azimuth: float) -> dict[str, float]:
    """The share of evenly likely places that each region holds: each at its azimuth and distance from the mean."""
    at, up = likely_places(lat, lon, (long, short, azimuth))
    found = {}
    for name, region in _REGIONS.items():
        inside = [shapely.contains_xy(region, at + aside, up) for aside in (-360.0, 0.0, 360.0)]
        found[name] = float(np.logical_or.reduce(inside).mean())
    return found


@pytest.mark.parametrize(
    ("lat", "lon", "long", "short"),
    [
        (90.0, 10.0, 10.0, 10.0),
        (89.9999, 10.0, 10.0, 10.0),
        (89.98, -170.0, 5_000.0, 2_000.0),
        (89.51, 45.0, 30_000.0, 30_000.0),
        (89.95, 1.0, 300.0, 300.0),
        (80.05, 180.0, 8_000.0, 3_000.0),
        (84.8, 180.1, 20_000.0, 20_000.0),
        (1.0, 77.0, 30_000.0, 30_000.0),  # what lies opposite is on the boundary, too
        (50.05, 10.05, 7_000.0, 7_000.0),
        (50.9, 11.2, 40_000.0, 10_000.0),
    ],
)
def test_what_lies_in_a_region_is_its_share_of_possible_places(
    lat: float, lon: float, long: float, short: float
) -> None:
    """Of circles and of ellipses; also where a row lies on a region's edge, and beside the 180th meridian."""
    row = pa.table({"id": ["a"], "t": [0], "lat": [lat], "lon": [lon]})
    fences = pa.table({"query": list(_REGIONS), "region": [region.wkt for region in _REGIONS.values()]})
    stream = ap.Stream(row, key="id", time="t", value=ap.Position("lat", "lon", ellipse=(long, short, 30.0)))
    events = ap.fence_events(stream, fences, enter=1e-4, leave=1e-5)
    found = dict(zip(events["query"].to_pylist(), events["probability"].to_pylist(), strict=True))
    for name, expected in chances(lat, lon, long, short, 30.0).items():
        assert found.get(name, 0.0) == pytest.approx(expected, abs=4e-3), name


def test_edges_through_a_pole_and_the_antipode_are_as_those_beside_them() -> None:
    """A mean at the very pole has no azimuths of its own; an edge has no way through what lies opposite."""
    wedge, half = shapely.box(-60, 80, 20, 90), shapely.box(-14, -90, 180, 70)
    for earth, sigma, region, places in (
        ("wgs84", 37_000.0, wedge, ((90.0, 0.0), (90.0, 50.0), (90.0 - 1e-9, 0.0))),
        ("sky", 40_000.0, half, ((-33.9, 0.0), (-33.9, 1e-7), (-33.9 - 1e-7, 0.0))),
        ("sky", 90_000.0, half, ((-33.9, 0.0), (-33.9, 1e-7), (-33.9 - 1e-7, 0.0))),
    ):
        lat, lon = np.array(places).T
        row = pa.table({"id": [1, 2, 3], "t": [0, 0, 0], "lat": lat, "lon": lon})
        stream = ap.Stream(row, key="id", time="t", value=ap.Position("lat", "lon", sigma=sigma, earth=earth))
        fences = pa.table({"query": ["a"], "region": [region.wkt]})
        found = ap.fence_events(stream, fences, enter=1e-4, leave=1e-5)["probability"].to_pylist()
        at, up = likely_places(lat[0], lon[0], (sigma, sigma, 0.0), 600, earth)
        assert found == pytest.approx([shapely.contains_xy(region, at, up).mean()] * 3, abs=2e-3)
        assert found == pytest.approx([found[0]] * 3, abs=3e-6)


def test_regions_without_area_hold_no_place_with_an_error() -> None:
    """Also where the mean is on one, or in one that is thinner than probabilities are exact."""
    shapes = ["LINESTRING (9 89, 11 89)", "POLYGON ((9 88.99999999, 11 88.99999999, 11 89, 9 89, 9 88.99999999))"]
    row = pa.table({"id": [1], "t": [0], "lat": [89.0], "lon": [10.0]})
    stream = ap.Stream(row, key="id", time="t", value=ap.Position("lat", "lon", sigma=5_000.0))
    fences = pa.table({"query": ["line", "thin"], "region": shapes})
    assert len(ap.fence_events(stream, fences, enter=0.5, leave=0.1)) == 0


def test_far_from_poles_and_of_small_errors_both_ways_agree() -> None:
    """Where degrees begin to be as those of a plane, nothing jumps."""
    lat = np.linspace(49.5, 50.5, 41)
    fences = pa.table({"query": ["a"], "region": [shapely.box(9, 49, 11, 50).wkt]})
    found = []
    for sigma in (5_300.0, 5_360.0):  # times the tangent of the latitude: 6.3 and 6.4 km
        row = pa.table({"id": np.arange(41), "t": np.zeros(41), "lat": lat, "lon": np.full(41, 10.0)})
        stream = ap.Stream(row, key="id", time="t", value=ap.Position("lat", "lon", sigma=sigma))
        events = ap.fence_events(stream, fences, enter=1e-9, leave=1e-9)
        found.append(dict(zip(events["key"].to_pylist(), events["probability"].to_pylist(), strict=True)))
    one, other = ([of.get(key, 0.0) for key in range(41)] for of in found)
    assert one == pytest.approx(other, abs=6e-3)


def test_most_places_are_flat_at_first_sight() -> None:
    """As by their largest deviation, near the limit and around the latitude from which on all are looked at."""
    chance, n, earth = np.random.default_rng(3), 20_000, EARTHS["wgs84"]
    lat = np.concatenate([chance.uniform(-90.0, 90.0, n // 2), chance.uniform(59.0, 61.0, n // 2)])
    one, other, lean = (
        10.0 ** chance.uniform(2.5, 4.5, n),
        10.0 ** chance.uniform(2.5, 4.5, n),
        chance.uniform(-1, 1, n),
    )
    spread = np.column_stack([one**2, lean * one * other, other**2])
    wanted = flat_widest(spread) * np.maximum(1.0, np.abs(np.tan(np.radians(lat)))) > CURVED * earth.b
    scale = degree_scale(lat, spread, earth)
    assert [is_curved(lat[i], scale[i], earth) for i in range(n)] == wanted.tolist()
    assert 0.1 < wanted.mean() < 0.9


@pytest.mark.parametrize(
    ("earth", "sigma", "radians"),
    [("wgs84", 1e5, 0.0157), ("sky", 7_200.0, 0.0349), ("sky", 36_000.0, 0.1745), ("sky", 1e5, 0.4848)],
)
def test_discs_differ_from_the_ground_by_the_square_of_the_error(earth: str, sigma: float, radians: float) -> None:
    """As the page on fences says."""
    geod, at, lat = GEODS[earth], 140.0, 20.0
    x, y = likely_places(lat, at, (sigma, sigma, 0.0), 700, earth)
    row = pa.table({"id": [1], "t": [0], "lat": [lat], "lon": [at]})
    stream = ap.Stream(row, key="id", time="t", value=ap.Position("lat", "lon", sigma=sigma, earth=earth))
    for away, radius in ((1.0, 1.5), (1.5, 1.0), (3.0, 3.0), (5.0, 4.5), (0.5, 0.5)):
        lon, north, _ = geod.fwd(at, lat, 40.0, away * sigma)
        _, _, far = geod.inv(x, y, np.full(len(x), lon), np.full(len(x), north))
        disc = {"query": [1], "region": [f"POINT ({lon} {north})"], "radius": [radius * sigma]}
        (found,) = ap.fence_events(stream, pa.table(disc), enter=1e-3, leave=1e-4)["probability"].to_pylist()
        assert abs(found - float((far <= radius * sigma).mean())) < 0.6 * radians**2 + 3e-4
