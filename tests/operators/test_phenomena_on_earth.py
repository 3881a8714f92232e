"""Phenomena of sensors on the Earth: as in a plane, over a pole and the 180th meridian, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import appulse as ap
from appulse.jobs.readings import PhenomenaTable
from tests.helpers import geodesics

pytest.importorskip("pyproj")

EVENTS = ("phenomenon", "event", "time", "value", "sensors", "merged", "split")


def field(lat: float, lon: float, n: int = 40, seed: int = 0) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Readings of sensors around a place, where these are in degrees, and where in metres of the plane around it."""
    chance = np.random.default_rng(seed)
    metres = chance.uniform(-20e3, 20e3, (n, 2))
    azimuth, far = np.degrees(np.arctan2(metres[:, 0], metres[:, 1])), np.hypot(*metres.T)
    east, north, _ = geodesics.geod("wgs84").fwd(np.full(n, lon), np.full(n, lat), azimuth, far)
    names = np.arange(n)
    places = pa.table({"mote": names, "lon": pa.array(east), "lat": pa.array(north)})
    plane = pa.table({"mote": names, "x": metres[:, 0], "y": metres[:, 1]})
    at = np.repeat(np.arange(30.0), n)
    front = (np.tile(metres[:, 0], 30) < -25e3 + 2e3 * at).astype(float)
    readings = pa.table({"mote": np.tile(names, 30), "at": at, "v": front})
    return readings, places, plane


def found(readings: pa.Table, locations: pa.Table, **asked: Any) -> Any:
    stream = ap.Stream(readings, key="mote", time="at", value="v")
    settings: dict[str, Any] = {"strength": 1, "span": 1, "reach": 9e3}
    return ap.phenomena(stream, locations=locations, **settings | asked)


@pytest.mark.parametrize(("lat", "lon"), [(52.5, 13.4), (-17.0, 180.0), (90.0, 0.0), (0.0, -179.95)])
def test_regions_are_those_of_the_plane(lat: float, lon: float) -> None:
    """Places 20 km around are as far apart in the plane as along the Earth, to some centimetres."""
    readings, places, plane = field(lat, lon)
    ours, theirs = found(readings, places, place=ap.Position("lat", "lon")), found(readings, plane)
    assert len(theirs) > 5
    assert ours.select(EVENTS).equals(theirs.select(EVENTS))
    geod = geodesics.geod("wgs84")
    where = {row["mote"]: (row["lon"], row["lat"]) for row in places.to_pylist()}
    shift = np.array([places["lon"].to_numpy(), places["lat"].to_numpy()]).T
    assert len(shift) == len(where)
    for one, other in zip(ours.to_pylist(), theirs.to_pylist(), strict=True):
        if one["centroid"] is None:
            continue
        x, y = other["centroid"]
        east, north, _ = geod.fwd(lon, lat, np.degrees(np.arctan2(x, y)), np.hypot(x, y))
        assert geod.inv(east, north, *one["centroid"])[2] < 1.0
        for corner in one["hull"]:
            assert min(geod.inv(*corner, *place)[2] for place in where.values()) < 1e-3
        if one["velocity"] is not None and lat != 90.0:  # there each middle has a north of its own
            assert one["velocity"] == pytest.approx(other["velocity"], abs=5.0)


def test_geometries_and_by_hand() -> None:
    readings, places, _ = field(10.0, 20.0)
    points = pa.array([[row["lon"], row["lat"]] for row in places.to_pylist()])
    geometry = pa.table({"mote": places["mote"], "geom": points})
    usual = found(readings, places, place=ap.Position("lat", "lon"))
    assert found(readings, geometry, place=ap.Position(geography="geom")).equals(usual)
    hand = ap.Phenomena(
        ap.Stream(None, key="mote", time="at", value="v"),
        strength=1,
        span=1,
        locations=places,
        place=ap.Position("lat", "lon"),
        reach=9e3,
    )
    parts = [hand.push(readings.slice(begin, 300)) for begin in range(0, len(readings), 300)]
    assert pa.concat_tables([*parts, hand.drain()]).equals(usual)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"place": ap.Position("lat", "lon", sigma=1.0)}, "without errors"),
        ({"place": ap.Position("lat", "east")}, "no column 'east'"),
        ({"place": ap.Position("lat", "lon"), "locations": None, "reach": None}, "place= says which columns"),
        ({"place": ap.Position("lon", "lat")}, r"a row \(1, sensor '?\w+'?\) that is not a place: .*latitude outside"),
    ],
)
def test_errors_say_what_to_do(change: dict[str, Any], message: str) -> None:
    readings, places, _ = field(10.0, 120.0, n=5)
    with pytest.raises(ap.BadArgument, match=message):
        found(readings, **{"locations": places} | change)


def test_a_job_file_has_a_place() -> None:
    asked: dict[str, Any] = {"strength": 1, "span": 1, "reach": 1.0, "resolution": 1.0}
    asked["locations"] = {"format": "parquet", "path": "p"}
    for place in ({"lat": "lat", "lon": "lon"}, {"geography": "geom"}):
        table = PhenomenaTable.model_validate(asked | {"place": {"model": "Position"} | place})
        assert table.settings()["place"] == ap.Position(**place)
    with pytest.raises(ValueError, match="without errors"):
        PhenomenaTable.model_validate(asked | {"place": {"model": "Position", "lat": "a", "lon": "b", "sigma": 1.0}})
