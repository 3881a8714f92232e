"""Encounters of positions against their slow twin, and on places where the Earth is no plane."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import appulse as ap
from tests.helpers import geodesics
from tests.helpers import naive_earth_encounters as naive
from tests.helpers.streaming import drained, files, read_stream

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

#: Near a pole, over the 180th meridian, at the equator, and where ships go.
ANCHORS = ((89.999, 10.0), (-17.0, 179.999), (0.0, 0.0), (50.8, -1.1))


def _readings(seed: int, *, reach: float, speed: float, moving: bool) -> list[naive.Reading]:
    """Things around an anchor, with readings at times of their own."""
    chance = np.random.default_rng(seed)
    geod = geodesics.geod("wgs84")
    lat, lon = ANCHORS[seed % len(ANCHORS)]
    rows = []
    for thing in range(6):
        east, north = chance.normal(0.0, reach, 2)
        velocity = chance.normal(0.0, speed, 2)
        for time in np.sort(chance.choice(600, 4, replace=False)):
            x, y = east + velocity[0] * time, north + velocity[1] * time
            there = geod.fwd(lon, lat, math.degrees(math.atan2(x, y)), math.hypot(x, y))
            rows.append(
                naive.Reading(
                    f"t{thing}",
                    float(time),
                    there[1],
                    there[0],
                    altitude=float(chance.normal(1000.0, 60.0)),
                    sigma=float(chance.choice([5.0, 40.0])),
                    altitude_sigma=float(chance.choice([3.0, 25.0])),
                    velocity=(*velocity, float(chance.normal(0.0, 1.0))) if moving else (),
                )
            )
    return rows


def _table(rows: Sequence[naive.Reading]) -> pa.Table:
    names = ("key", "time", "lat", "lon", "altitude", "sigma", "altitude_sigma")
    columns: dict[str, Any] = {name: [getattr(row, name) for row in rows] for name in names}
    for k, name in enumerate(("major", "minor", "angle")):
        columns[name] = [row.ellipse[k] if row.ellipse else 0.0 for row in rows]
    for k, name in enumerate(("east", "north", "up")):
        columns[name] = [row.velocity[k] if row.velocity else 0.0 for row in rows]
    return pa.table(columns)


MODELS: dict[str, ap.Position] = {
    "exact": ap.Position("lat", "lon"),
    "sigma": ap.Position("lat", "lon", sigma="sigma"),
    "ball": ap.Position("lat", "lon", sigma="sigma", altitude="altitude", altitude_sigma="sigma"),
    "cylinder": ap.Position("lat", "lon", sigma="sigma", altitude="altitude", altitude_sigma="altitude_sigma"),
    "known": ap.Position("lat", "lon", altitude="altitude"),
    "two": ap.Position("lat", "lon", sigma="sigma", altitude="altitude", altitude_sigma="altitude_sigma"),
    "ellipse": ap.Position("lat", "lon", ellipse=("major", "minor", "angle")),
    "tilted": ap.Position(
        "lat",
        "lon",
        ellipse=("major", "minor", "angle"),
        altitude="altitude",
        altitude_sigma="altitude_sigma",
    ),
}


@given(
    st.integers(0, 1 << 30),
    st.sampled_from(tuple(MODELS)),
    st.sampled_from(((300.0, 3.0, 150.0), (3e4, 200.0, 2e4), (2e5, 900.0, 2e5))),
    st.booleans(),
)
def test_pairs_of_legs_are_those_of_the_twin(
    seed: int, model: str, scale: tuple[float, float, float], straight: bool
) -> None:
    reach, speed, near = scale
    rows = _readings(seed, reach=reach, speed=speed, moving=not straight)
    epsilon: Any = (near, 40.0) if model in ("cylinder", "known", "tilted") else near
    value, plain = MODELS[model], model in ("exact", "sigma", "ellipse")
    if model in ("ellipse", "tilted"):
        rows = [replace(row, ellipse=(row.sigma * 4, row.sigma, row.time)) for row in rows]
    if model == "ball":
        rows = [replace(row, altitude_sigma=row.sigma) for row in rows]
    if model in ("exact", "known"):
        rows = [replace(row, sigma=0.0, altitude_sigma=0.0) for row in rows]
    names = ("east", "north") if plain else ("east", "north", "up")
    if plain:
        rows = [replace(row, velocity=(*row.velocity[:2], 0.0) if row.velocity else ()) for row in rows]
    noise = 0.0 if straight or model != "sigma" else 0.7
    motion: Any = ap.Straight(400) if straight else ap.Velocity(*names, horizon=400, noise=noise)
    stream = ap.Stream(_table(rows), key="key", time="time", value=value, motion=motion)
    asked: Any = {"horizontal": epsilon[0], "vertical": epsilon[1]} if isinstance(epsilon, tuple) else epsilon
    found = {
        (row["left_key"], row["left_time"], row["right_key"], row["right_time"]): row
        for row in ap.encounters(
            stream, epsilon=asked, probability=0.05, emit="legs", expected_seconds=True
        ).to_pylist()
    }
    legs = naive.legs_of(rows, 400, straight=straight)
    expected = 0
    for i, one in enumerate(legs):
        for other in legs[i + 1 :]:
            if one.reading.key == other.reading.key:
                continue
            a, b = sorted((one, other), key=lambda leg: leg.reading.key)
            met = naive.meeting(a, b, epsilon, altitudes=not plain, noise=noise)
            place = (a.reading.key, a.reading.time, b.reading.key, b.reading.time)
            if met is None:
                assert place not in found
                continue
            row = found.get(place)
            if row is None:
                # On the border the plane's last millimetre decides.
                at_border = value.exact and abs(met["closest"][0] - near) < 1e-2 * max(1.0, near * 1e-5)
                assert met["probability"] < 0.05 + 2e-4 or at_border
                continue
            expected += 1
            assert row["closest_distance"] == pytest.approx(met["closest"][0], abs=1e-2, rel=2e-6)
            assert row["probability"] == pytest.approx(met["probability"], abs=2e-4)
            assert row["expected_seconds"] == pytest.approx(met["expected"], abs=0.01 * (met["end"] - met["start"]))
            assert (row["overlap_start"], row["overlap_end"]) == (met["start"], met["end"])
    assert expected == len(found)


def _ships(n: int, seed: int) -> pa.Table:
    chance = np.random.default_rng(seed)
    key = chance.integers(0, 40, n)
    time = np.sort(chance.uniform(0, 3600, n)).round(1)
    start, speed = chance.uniform(-8000, 8000, (40, 2)), chance.normal(0, 5, (40, 2))
    place = start[key] + speed[key] * time[:, None]
    micros = pa.array((time * 1e6).astype(np.int64)).cast(pa.timestamp("us", "UTC"))
    lat = 50.8 + place[:, 1] / 111_200.0
    lon = -1.1 + place[:, 0] / (111_320.0 * math.cos(math.radians(50.8)))
    return pa.table({"mmsi": [f"s{i}" for i in key], "at": micros, "lat": lat, "lon": lon})


def _sailing(frame: Any, **changes: Any) -> ap.Stream[Any]:
    value, motion = ap.Position("lat", "lon", sigma=20), ap.Straight("10 minutes", max_speed=40)
    return ap.Stream(frame, key="mmsi", time="at", value=value, motion=motion, **changes)


SETTINGS: dict[str, Any] = {"epsilon": 500, "probability": 0.5, "gap": "1 minute"}


def test_pushes_in_any_order_answer_as_one_call() -> None:
    table = _ships(600, 3)
    expected = ap.encounters(_sailing(table), **SETTINGS)
    assert len(expected) > 5
    by_hand = ap.Encounters(_sailing(None, lateness=7200), **SETTINGS)
    order = list(range(len(table)))
    Random(1).shuffle(order)
    parts = [by_hand.push(table.take(order[at : at + 70])) for at in range(0, len(order), 70)]
    parts.append(by_hand.drain())
    assert _rows(parts) == _rows([expected])


def test_spark_answers_as_in_process(spark: SparkSession, tmp_path: Path) -> None:
    table = _ships(600, 4)
    expected = ap.encounters(_sailing(table), **SETTINGS)
    folder = files(tmp_path / "in", table, 300)
    streamed = ap.encounters(_sailing(read_stream(spark, folder), lateness=5), **SETTINGS)
    found, rejects = drained(streamed, tmp_path / "out")
    assert _rows([found]) == _rows([expected])
    assert len(rejects) == 0


def _rows(tables: Sequence[pa.Table]) -> list[str]:
    return sorted(repr(row) for table in tables for row in table.to_pylist())


def test_ships_that_pass_at_the_pole_and_over_the_180th_meridian() -> None:
    """Each of two crosses it, within 100 m of the other, and no reading is near one of the other."""
    for one, other in (
        (((89.99, 0.0), (89.99, 180.0)), ((89.99, 90.0), (89.99, -90.0))),
        (((-17.0, 179.9), (-17.0, -179.9)), ((-17.05, 180.0), (-16.95, -180.0))),
    ):
        rows = [("a", 0.0, *one[0]), ("a", 60.0, *one[1]), ("b", 0.0, *other[0]), ("b", 60.0, *other[1])]
        key, time, lat, lon = zip(*rows, strict=True)
        table = pa.table({"key": key, "time": time, "lat": lat, "lon": lon})
        stream = ap.Stream(table, key="key", time="time", value=ap.Position("lat", "lon"), motion=ap.Straight(60))
        (row,) = ap.encounters(stream, epsilon=100, probability=1.0).to_pylist()
        assert row["closest_time"] == pytest.approx(30.0, abs=0.1)
        assert row["closest_distance"] < 20.0


def test_a_course_goes_along_the_earth() -> None:
    """East along a geodesic at 60 degrees north for 100 km: it leaves the parallel for the south."""
    table = pa.table(
        {
            "key": ["a", "b"],
            "time": [0.0, 10_000.0],
            "lat": [60.0, 59.98785],
            "lon": [10.0, 11.79],
            "sog": [10.0, 0.0],
            "cog": [90.0, 0.0],
        }
    )
    motion = ap.Course("sog", "cog", horizon=10_000)
    stream = ap.Stream(table, key="key", time="time", value=ap.Position("lat", "lon"), motion=motion)
    (row,) = ap.encounters(stream, epsilon=200, probability=1.0).to_pylist()
    end = geodesics.geod("wgs84").fwd(10.0, 60.0, 90.0, 1e5)
    expected = geodesics.distance("wgs84", (end[1], end[0]), (59.98785, 11.79))
    assert row["closest_distance"] == pytest.approx(expected, abs=0.01)


def test_flight_levels_ring_no_alarm() -> None:
    """Two aircraft cross one flight level apart: within 5 NM, but not within 1,000 ft but for the error."""
    table = pa.table(
        {
            "key": ["a", "a", "b", "b"],
            "time": [0.0, 60.0, 0.0, 60.0],
            "lat": [47.0, 47.0, 46.95, 47.05],
            "lon": [8.0, 8.1, 8.05, 8.05],
            "altitude": [10_000.0, 10_000.0, 10_304.8, 10_304.8],
        }
    )
    value = ap.Position("lat", "lon", sigma=50, altitude="altitude", altitude_sigma=8)
    stream = ap.Stream(table, key="key", time="time", value=value, motion=ap.Straight(60))
    near = {"horizontal": 9260.0, "vertical": 304.8}
    (row,) = ap.encounters(stream, epsilon=near, probability=0.4).to_pylist()
    assert row["probability"] == pytest.approx(0.5, abs=1e-6)
    assert len(ap.encounters(stream, epsilon=near, probability=0.6)) == 0


def test_bad_arguments() -> None:
    value = ap.Position("lat", "lon", altitude="up", sigma=10, altitude_sigma=20)
    table = pa.table({"key": ["a"], "time": [0.0], "lat": [1.0], "lon": [1.0], "up": [1.0]})
    stream = ap.Stream(table, key="key", time="time", value=value, motion=ap.Straight(60))
    with pytest.raises(ap.BadArgument, match="east, north, and up"):
        ap.encounters(
            replace(stream, motion=ap.Velocity("up", horizon=5)),
            epsilon={"horizontal": 5, "vertical": 5},
            probability=0.5,
        )
    with pytest.raises(ap.BadArgument, match="uncertain"):
        ap.encounters(replace(stream, where=("lat > 3",)), epsilon={"horizontal": 5, "vertical": 5}, probability=0.5)
    plain = replace(stream, value=ap.Position("lat", "lon"))
    with pytest.raises(ap.BadArgument, match="needs altitudes"):
        ap.encounters(plain, epsilon={"horizontal": 5, "vertical": 5}, probability=0.5)
