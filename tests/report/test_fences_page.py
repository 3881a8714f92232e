"""The page of visits: who was in which region from when to when, regions as they are, names as text."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyproj
import pytest
import shapely
from typer.testing import CliRunner

import appulse as ap
from appulse.cli import app
from appulse.errors import BadArgument
from appulse.report.fences_page import fences_page
from tests.helpers.pages import HOSTILE, drawn, read

if TYPE_CHECKING:
    from pathlib import Path

FENCES = {
    "query": ["yard", "gate", "road"],
    "region": [
        "POLYGON ((0 0, 100 0, 100 100, 0 100, 0 0), (40 40, 60 40, 60 60, 40 60, 40 40))",
        "POINT (-40 0)",
        "LINESTRING (-200 -200, 200 -150)",
    ],
    "radius": [None, 30.0, 20.0],
}


def walk(seed: int = 0, *, earth: bool = False) -> tuple[ap.Stream[Any], pa.Table, pa.Table]:
    """Four things that wander, and three fences around where they begin; on Earth across the 180th meridian."""
    chance = np.random.default_rng(seed)
    n = 80
    at = np.cumsum(chance.normal(0.0, 25.0, (4, n, 2)), axis=1).reshape(-1, 2)
    fences = dict(FENCES)
    if earth:
        shapes = shapely.transform(shapely.from_wkt(FENCES["region"]), lambda xy: xy / 111_195.0 + [180.0, 0.0])
        fences["region"] = shapely.to_wkt(shapes, rounding_precision=12).tolist()
        at = at / 111_195.0 + [180.0, 0.0]
        at[:, 0] = (at[:, 0] + 180.0) % 360.0 - 180.0
    names = ("lon", "lat") if earth else ("x", "y")
    thing, step = np.divmod(np.arange(4 * n), n)
    table = pa.table(
        {
            "van": [f"v{i}" for i in thing],
            "time": step * 10.0,
            names[0]: at[:, 0],
            names[1]: at[:, 1],
            "sigma": [5.0] * 4 * n,
        }
    )
    value = ap.Position("lat", "lon", sigma="sigma") if earth else ap.Gaussian("x", "y", sigma="sigma")
    return ap.Stream(table, key="van", time="time", value=value), table, pa.table(fences)


@pytest.mark.parametrize("earth", [False, True], ids=["plane", "earth"])
def test_visits_are_those_of_the_events(earth: bool) -> None:
    stream, table, fences = walk(earth=earth)
    asked: dict[str, Any] = {"enter": 0.8, "leave": 0.3}
    events = ap.fence_events(stream, fences, **asked)
    whole = ap.fence_events(stream, fences, **asked, emit="visits").to_pylist()
    assert len(whole) > 5
    data = read(fences_page(events, fences, table)).data
    shown = sorted((*one["facts"][:2], one["times"][0], one["times"][2]) for one in data["happenings"])
    closed = sorted((row["key"], row["query"], 1000 * row["start"], 1000 * row["end"]) for row in whole)
    still = [one for one in shown if one not in closed]
    assert [one for one in shown if one in closed] == closed
    entries = [row for row in events.to_pylist() if row["event"] == "enter"]
    assert len(entries) == len(shown)
    assert all(end == 790_000 for *_, end in still)
    by_visits = read(fences_page(ap.fence_events(stream, fences, **asked, emit="visits"), fences, table)).data
    assert sorted((*one["facts"][:2], one["times"][0], one["times"][2]) for one in by_visits["happenings"]) == closed


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_a_fences_page_says_that_times_are_in_utc(zone: str | None) -> None:
    """Where they have a zone."""
    stream, table, fences = walk()
    when = pa.array((table["time"].to_numpy() * 1e6).astype(np.int64)).cast(pa.timestamp("us", zone))
    table = table.set_column(table.schema.get_field_index("time"), "time", when)
    events = ap.fence_events(replace(stream, frame=table), fences, enter=0.8, leave=0.2)
    assert ("Times are in UTC." in read(fences_page(events, fences, table)).said) is (zone is not None)


@pytest.mark.parametrize("earth", [False, True], ids=["plane", "earth"])
def test_regions_are_drawn_as_they_are(earth: bool) -> None:
    stream, table, fences = walk(earth=earth)
    data = read(fences_page(ap.fence_events(stream, fences, enter=0.5, leave=0.3), fences, table)).data
    names = {one["region"]: one["facts"][1] for one in data["happenings"]}
    areas = {names[i]: shapely.Polygon(rings[0], rings[1:]).area for i, rings in enumerate(data["regions"])}
    assert areas["yard"] == pytest.approx(100.0**2 - 20.0**2, rel=1e-3)
    assert areas["gate"] == pytest.approx(np.pi * 30.0**2, rel=0.01)


def test_a_crossing_is_a_visit_of_no_length() -> None:
    table = pa.table(
        {"van": ["a", "a"], "time": [0.0, 10.0], "x": [-100.0, 200.0], "y": [20.0, 20.0], "sigma": [1.0, 1.0]}
    )
    fences = pa.table(FENCES).slice(0, 1)
    value = ap.Gaussian("x", "y", sigma="sigma")
    stream = ap.Stream(table, key="van", time="time", value=value, motion=ap.Straight(max_gap=60))
    (one,) = read(fences_page(ap.fence_events(stream, fences, crossing=0.9), fences, table)).data["happenings"]
    assert one["times"] == [5000, 5000, 5000]


def test_a_fences_page_says_what_is_missing() -> None:
    stream, table, fences = walk()
    events = ap.fence_events(stream, fences)
    assert "There is nothing to show" in read(fences_page(events.slice(0, 0), fences, table)).said
    shown = read(fences_page(events, fences.slice(0, 1), table))
    lost = sum(row["event"] == "enter" and row["query"] != "yard" for row in events.to_pylist())
    assert lost
    assert f"Left out: {lost} visits of things without a track, or to unknown fences." in shown.said
    with pytest.raises(BadArgument, match="The events have no column query, key"):
        fences_page(table, fences, table)
    with pytest.raises(BadArgument, match="The fences have no column region"):
        fences_page(events, fences.drop_columns(["region"]), table)


def test_keys_in_another_column_are_an_error() -> None:
    stream, table, fences = walk()
    events = ap.fence_events(stream, fences)
    numbered = table.add_column(0, "id", pa.array(range(len(table))))
    with pytest.raises(BadArgument, match=r"No key of the visits \(v0, .*\) is in column 'id' .* or --key"):
        fences_page(events, fences, numbered)
    assert "There is nothing to show" in read(fences_page(events.slice(0, 0), fences, numbered)).said
    assert "There is nothing to show" in read(fences_page(events, fences.slice(0, 0), table)).said


def test_a_browser_draws_a_visit(tmp_path: Path) -> None:
    stream, table, fences = walk()
    fences = fences.set_column(0, "query", pa.array([HOSTILE, "gate", "road"]))
    pq.write_table(ap.fence_events(stream, fences), tmp_path / "fence_events.parquet")
    for name, frame in (("fences", fences), ("readings", table)):
        pq.write_table(frame, tmp_path / f"{name}.parquet")
    assert CliRunner().invoke(app, ["report", str(tmp_path), "--title", HOSTILE]).exit_code == 0
    file = tmp_path / "report.html"
    data = read(file.read_text("utf-8")).data
    dom = drawn(file, "1")
    assert 'class="fence inside"' in dom
    assert dom.count('class="fence') == len(data["regions"])
    assert dom.count('class="past"') == 1


def test_things_and_circles_are_drawn_by_one_measure_at_all_latitudes() -> None:
    """A thing 900 m east of the middle of a circle of 1,000 m is drawn at nine tenths of its radius."""
    fences = {"query": ["south", "north"], "region": ["POINT (10 26)", "POINT (10 48)"], "radius": [1_000.0] * 2}
    lats = [26.0, 26.0, 48.0, 48.0]
    lons = [10.0 + pyproj.Geod(ellps="WGS84").fwd(0.0, lat, 90.0, 900.0)[0] for lat in lats]
    names = ["s", "s", "n", "n"]
    table = pa.table({"van": names, "time": [0.0, 10.0] * 2, "lat": lats, "lon": lons, "sigma": [1.0] * 4})
    stream = ap.Stream(table, key="van", time="time", value=ap.Position("lat", "lon", sigma="sigma"))
    events = ap.fence_events(stream, pa.table(fences), enter=0.5)
    shown = read(fences_page(events, pa.table(fences), table))
    data = shown.data
    assert len(data["happenings"]) == 2
    assert "s in south · 10 s so far ·" in shown.said
    for one in data["happenings"]:
        thing, (ring,) = data["things"][one["things"][0]], data["regions"][one["region"]]
        middle = (np.max(ring, axis=0) + np.min(ring, axis=0)) / 2
        radius = np.ptp(ring, axis=0)[0] / 2
        assert abs(thing["x"][0] - middle[0]) / radius == pytest.approx(0.9, rel=5e-3)
