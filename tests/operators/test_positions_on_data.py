"""Positions of real data against a k-d tree and pyproj: earthquakes over the 180th meridian, ships in a strait.

Their generated twins are in `tests.operators.test_positions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.spatial import cKDTree

import appulse as ap
from tests.helpers import geodesics

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytest.importorskip("pyproj")

FEEDS = {
    "quakes/usgs_week.parquet": ("latitude", "longitude", "time", 100_000.0, 86_400.0),
    "quakes/isc_origins.parquet": ("latitude", "longitude", "time", 30_000.0, 3_600.0),
    "solent_ais/solent.parquet": ("Latitude_degrees", "Longitude_degrees", "Time", 200.0, 30.0),
}


@pytest.mark.parametrize("feed", FEEDS)
def test_pairs_of_real_places_are_those_of_a_tree_and_pyproj(data: Callable[[str], Path], feed: str) -> None:
    lat_name, lon_name, time_name, epsilon, window = FEEDS[feed]
    table = pq.read_table(data(feed)).slice(0, 8_000)
    table = table.append_column("row", pa.array(np.arange(len(table))))
    stream = ap.Stream(table, key="row", time=time_name, value=ap.Position(lat_name, lon_name))
    found = ap.self_join(stream, epsilon=epsilon, probability=1.0, window=window)
    assert len(ap.rejects(found)) == 0
    lat, lon = table[lat_name].to_numpy(), table[lon_name].to_numpy()
    seconds = table[time_name].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy() / 1e6
    at = np.array([geodesics.centred("wgs84", place) for place in zip(lat, lon, strict=True)])
    left, right = cKDTree(at).query_pairs(epsilon * 1.000001, output_type="ndarray").T
    metres = geodesics.geod("wgs84").inv(lon[left], lat[left], lon[right], lat[right])[2]
    close = (metres <= epsilon) & (np.abs(seconds[left] - seconds[right]) <= window)
    expected = {
        frozenset(pair): far
        for pair, far in zip(zip(left[close], right[close], strict=True), metres[close], strict=True)
    }
    got = {
        frozenset((row["left_key"], row["right_key"])): row["distance"]
        for row in found.select(["left_key", "right_key", "distance"]).to_pylist()
    }
    assert len(got) == len(found) > 1_000
    assert got == pytest.approx(expected, abs=1e-5)


def test_origins_of_one_earthquake_meet_within_their_errors(data: Callable[[str], Path]) -> None:
    """Agencies place it apart by kilometres, each with an error of its own; some errors are no circle to speak of."""
    table = pq.read_table(data("quakes/isc_origins.parquet"))
    sigma = np.sqrt(table["smaj"].fill_null(0.0).to_numpy() * table["smin"].fill_null(0.0).to_numpy()) * 1000.0
    table = table.append_column("row", pa.array(np.arange(len(table)))).append_column("sigma", pa.array(sigma))
    stream = ap.Stream(table, key="row", time="time", value=ap.Position("latitude", "longitude", sigma="sigma"))
    found = ap.self_join(stream, epsilon=30_000, probability=0.9, window=60, different="author")
    reasons = ap.rejects(found)["reason"].to_pylist()
    assert reasons == ["error above 100 km"] * int((sigma > 1e5).sum())
    event = table["event_id"].to_numpy()
    same = event[found["left_key"].to_numpy()] == event[found["right_key"].to_numpy()]
    assert len(found) > 500
    assert same.mean() > 0.99


def test_earthquakes_meet_across_the_180th_meridian(data: Callable[[str], Path]) -> None:
    """Those of a week on both sides of it, in the Aleutians and near Fiji, at most 500 km apart."""
    table = pq.read_table(data("quakes/usgs_week.parquet"))
    lat, lon = table["latitude"].to_numpy(), table["longitude"].to_numpy()
    table = table.append_column("row", pa.array(np.arange(len(table))))
    stream = ap.Stream(table, key="row", time="time", value=ap.Position("latitude", "longitude"))
    found = ap.self_join(stream, epsilon=500_000, probability=1.0, window="7 days")
    across = {
        frozenset(pair)
        for pair in zip(found["left_key"].to_pylist(), found["right_key"].to_pylist(), strict=True)
        if abs(lon[pair[0]] - lon[pair[1]]) > 180.0
    }
    west, east = np.flatnonzero(lon < -170.0), np.flatnonzero(lon > 170.0)
    one, other = (side.ravel() for side in np.meshgrid(west, east))
    metres = geodesics.geod("wgs84").inv(lon[one], lat[one], lon[other], lat[other])[2]
    near = metres <= 500_000
    assert across == {frozenset(pair) for pair in zip(one[near].tolist(), other[near].tolist(), strict=True)}
    assert len(across) == 6
