"""Queries of places where degrees are not as those of a plane: large errors, and the poles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shapely

import appulse as ap
from appulse.engines.queries.call import LocalQueries, resolve_queries
from appulse.engines.spark.queries.parts import routed
from appulse.engines.spark.tables import unpacked
from appulse.operators.output import Output
from appulse.queries.parts import parted
from tests.helpers.naive_places import likely_places

# Latitude, longitude, the largest semi-axis and the Earth.
_PLACES = [
    (45.0, 100.0, 6_500.0, "wgs84"),
    (-50.0, -179.99, 60_000.0, "wgs84"),
    (90.0, 0.0, 30_000.0, "wgs84"),
    (-89.5, 12.0, 40_000.0, "wgs84"),
    (80.0, 180.0, 8_000.0, "wgs84"),
    (89.0, 359.9, 4.0, "sky"),
    (60.0, 0.0, 7_000.0, "sky"),
    (-33.9, 180.0, 50_000.0, "sky"),
    (20.0, 270.0, 99_000.0, "sky"),
]


def _match(probability: float, earth: str, ellipse: tuple[float, ...]) -> ap.QueryMatch:
    value = ap.Position("lat", "lon", ellipse=ellipse, earth=earth)
    return ap.QueryMatch(ap.Stream(None, key="id", time="t", value=value), probability=probability)


def _row(lat: float, lon: float) -> pa.Table:
    return pa.table({"id": [0], "t": [0], "lat": [lat], "lon": [lon], "load": [3]})


def _found(table: pa.Table) -> dict[Any, float]:
    return dict(zip(table["query"].to_pylist(), table["probability"].to_pylist(), strict=True))


@pytest.mark.parametrize(("lat", "lon", "most", "earth"), _PLACES)
def test_ranges_hold_their_share_of_possible_places(lat: float, lon: float, most: float, earth: str) -> None:
    """Of ellipses: ranges of either coordinate and of both, apart, and within a polygon."""
    chance, ellipse = np.random.default_rng(3), (most, 0.4 * most, 35.0)
    x, y = likely_places(lat, lon, ellipse, 600, earth)
    column = x % 360.0 if earth == "sky" else x
    own = lon % 360.0 if earth == "sky" else (lon + 180.0) % 360.0 - 180.0
    high = np.degrees(most / (206_264.8 if earth == "sky" else 6_371_008.8))
    wide = min(100.0, high / max(np.cos(np.radians(lat)), 0.01))
    turned = (lon + 180.0) % 360.0 - 180.0
    box = shapely.box(turned - wide, max(-90.0, lat - high), turned + 0.9 * wide, min(90.0, lat + 0.7 * high))
    boxed = np.logical_or.reduce([shapely.contains_xy(box, x + turn, y) for turn in (-360.0, 0.0, 360.0)])
    asked = {f"lat > {lat + high} OR lat < {lat - high}": np.abs(y - lat) > high}
    for kind in range(1, 16):
        a, b = np.sort(lat + high * chance.normal(0, 1, 2)).tolist()
        c, d = np.sort(own + wide * chance.normal(0, 1, 2)).tolist()
        parts = {f"lat > {a}": y > a, f"lat <= {b}": y <= b, f"lon >= {c}": column >= c, f"lon < {d}": column < d}
        parts = {text: holds for k, (text, holds) in enumerate(parts.items()) if kind >> k & 1}
        asked[" AND ".join(parts)] = np.logical_and.reduce(list(parts.values()))
        within = f"ST_Within(lon, lat, '{box.wkt}')"
        asked[" AND ".join([*parts, within, "load = 3"])] = np.logical_and.reduce([*parts.values(), boxed])
    match = _match(1e-9, earth, ellipse)
    match.change(pa.table({"query": list(asked), "condition": list(asked)}))
    found = _found(match.push(_row(lat, lon)))
    for text, holds in asked.items():
        assert found.get(text, 0.0) == pytest.approx(holds.mean(), abs=2e-3), text
        if text in found:
            assert match.explain_query(text)["probability"] == "exact"
    # What pruning leaves is what had to be left.
    for least in (0.05, 0.3, 0.8):
        match = _match(least, earth, ellipse)
        match.change(pa.table({"query": list(asked), "condition": list(asked)}))
        assert _found(match.push(_row(lat, lon))) == {text: p for text, p in found.items() if p >= least - 1e-9}


@pytest.mark.parametrize(("lat", "lon", "most", "earth"), _PLACES)
def test_regions_hold_what_fences_say(lat: float, lon: float, most: float, earth: str) -> None:
    """Discs and polygons, alone and beside a condition, also of small probabilities."""
    high = np.degrees(most / (206_264.8 if earth == "sky" else 6_371_008.8))
    turned = (lon + 180.0) % 360.0 - 180.0
    up = lat + high if lat < 0.0 else lat - high
    boxes = [shapely.box(turned, min(lat, up), turned + wide * high, max(lat, up)) for wide in (0.04, 1.0, 2.5)]
    shapes = [box.wkt for box in boxes] + [f"POINT ({turned} {up})"] * 2
    regions = pa.table({"query": list(range(5)), "region": shapes, "radius": [None] * 3 + [0.2 * most, 1.5 * most]})
    value = ap.Position("lat", "lon", sigma=most, earth=earth)
    stream = ap.Stream(_row(lat, lon), key="id", time="t", value=value)
    events = _found(ap.fence_events(stream, regions, enter=1e-6, leave=1e-7))
    assert events
    assert _found(ap.match_queries(stream, regions, probability=1e-6)) == events
    beside = regions.append_column("condition", pa.array(["load > 2"] * 5))
    assert _found(ap.match_queries(stream, beside, probability=1e-6)) == pytest.approx(events, abs=1e-12)


@pytest.mark.parametrize("pole", [90.0, -90.0])
def test_sides_that_end_at_the_other_pole_end_there(pole: float) -> None:
    """Their last piece must not be beyond it by rounding: there it lies on the other side."""
    down = np.append(0.0, np.linspace(2.0, 60.0, 40))
    ends = (np.sign(pole) * (90.0 - down)).tolist()
    shapes = [shapely.box(-180.0, min(-pole, end), 180.0, max(-pole, end)).wkt for end in ends]
    row = pa.table({"id": [0], "t": [0], "lat": [pole], "lon": [10.0]})
    stream = ap.Stream(row, key="id", time="t", value=ap.Position("lat", "lon", sigma=90_000.0, earth="sky"))
    found = _found(ap.match_queries(stream, pa.table({"query": ends, "region": shapes}), probability=1e-9))
    expected = np.exp(-0.5 * (down / 25.0) ** 2).tolist()
    assert found == pytest.approx(dict(zip(ends, expected, strict=True)), abs=1e-5)


@pytest.mark.parametrize("short", [30.0, 3.0, 0.3, 0.03])
@pytest.mark.parametrize("angle", [0.0, 40.0, 90.0, 130.0])
def test_thin_ellipses_hold_their_share_of_possible_places(short: float, angle: float) -> None:
    """What is a hundred short axes away may be near on the Earth: only far away is the other side of it."""
    x, y = likely_places(70.0, 10.0, (30_000.0, short, angle), 600)
    asked = {"lat > 70": y > 70.0, "lon > 10 AND lat >= 70": (x > 10.0) & (y >= 70.0), "lat < 70.1": y < 70.1}
    match = _match(1e-9, "wgs84", (30_000.0, short, angle))
    match.change(pa.table({"query": list(asked), "condition": list(asked)}))
    found = _found(match.push(_row(70.0, 10.0)))
    for text, holds in asked.items():
        assert found.get(text, 0.0) == pytest.approx(holds.mean(), abs=3e-3), text


def test_altitudes_and_existence_are_factors() -> None:
    columns = {"id": [0], "t": [0], "lat": [70.0], "lon": [0.0], "up": [100.0], "real": [0.8]}
    value = ap.Position("lat", "lon", sigma=20_000.0, altitude="up", altitude_sigma=50.0)
    stream = ap.Stream(pa.table(columns), key="id", time="t", value=value, existence="real")
    texts = ["lat > 70.1", "lat > 70.1 AND up > 100", "up > 100", "lat > 70.1 AND lon > lat"]
    queries = pa.table({"query": [0, 1, 2, 3], "condition": texts})
    found = _found(ap.match_queries(stream, queries, probability=1e-9))
    assert found[1] == pytest.approx(0.5 * found[0], abs=1e-12)
    assert found[2] == pytest.approx(0.4, abs=1e-12)
    assert 3 not in found  # by points


@pytest.mark.parametrize("many", [2, 4])
def test_parts_answer_as_the_whole_set(many: int) -> None:
    """Rows go to every part that they reach, also over a pole and the 180th meridian."""
    chance = np.random.default_rng(many)
    lat, lon = chance.choice([89.9, -89.99, 60.0, 10.0], 40), chance.choice([-180.0, 179.9, 3.0, -90.0], 40)
    rows = pa.table(
        {
            "key": np.arange(40),
            "time": np.arange(40.0),
            "lat": lat,
            "lon": lon,
            "e": chance.choice([9e4, 7e3, 50.0], 40),
        }
    )
    a, b = chance.uniform(-90, 90, 30), chance.uniform(-180, 180, 30)
    texts = [f"lat > {y} AND lon < {x} AND time >= 0" for y, x in zip(a.tolist(), b.tolist(), strict=True)]
    regions = [shapely.box(x, y, min(180, x + 20), min(90, y + 20)).wkt for y, x in zip(a, b, strict=True)]
    table = pa.table({"query": np.arange(60), "condition": texts + [None] * 30, "region": [None] * 30 + regions})
    stream = ap.Stream(rows, key="key", time="time", value=ap.Position("lat", "lon", sigma="e"))
    call = resolve_queries(stream, rows, table.schema, probability=1e-3, on_reject="collect")

    def engine(own: pa.Table) -> LocalQueries:
        made = LocalQueries(call)
        made.change(own)
        return made

    def pairs(found: pa.Table) -> dict[tuple[int, int], float]:
        names = ("query", "key", "probability")
        return {(q, k): p for q, k, p in zip(*(found[name].to_pylist() for name in names), strict=True)}

    whole = engine(table)
    parts, members = parted(whole.queries, many)
    found: dict[tuple[int, int], float] = {}
    for key, blob in routed(call, parts, list(range(max(1, len(members)))), rows.select(call.columns)):
        if blob[:1] == b"r":
            found |= pairs(engine(table.take(pa.array(members[key]))).judge(unpacked(blob[1:]), Output())[0])
    assert found == pytest.approx(pairs(whole.push(rows)), abs=1e-12)
