"""The page of encounters: both tracks where they met, names as text, and what is left out."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyproj import Geod
from typer.testing import CliRunner

import appulse as ap
from appulse.cli import app
from appulse.errors import BadArgument
from appulse.report.encounters_page import encounters_page
from tests.helpers.pages import HOSTILE, Page, drawn, read

if TYPE_CHECKING:
    from pathlib import Path


def moving(seed: int = 0, degrees: bool = False, stamps: bool = True) -> tuple[ap.Stream[Any], pa.Table, pa.Table]:
    """Five things that go to and fro, some of which meet; readings of one are missing for a while."""
    chance = np.random.default_rng(seed)
    n = 40
    thing, step = np.divmod(np.arange(5 * n), n)
    at = np.cumsum(chance.normal(0.0, 40.0, (5, n, 2)), axis=1).reshape(-1, 2)
    seconds = step * 30.0 + chance.integers(0, 10, 5 * n)
    kept = ~((thing == 2) & (step > 10) & (step < 30))
    when = pa.array((seconds * 1e6).astype(np.int64), pa.timestamp("us", "UTC")) if stamps else pa.array(seconds)
    places = {"lat": 50.0 + at[:, 1] / 111_195.0, "lon": 179.999 + at[:, 0] / 71_475.0}
    places["lon"] = (places["lon"] + 180.0) % 360.0 - 180.0
    if not degrees:
        places = {"x": at[:, 0], "y": at[:, 1]}
    table = pa.table({"ship": [f"s{i}" for i in thing], "at": when, **places, "sigma": np.full(5 * n, 5.0)})
    table = (table if stamps else table.rename_columns({"at": "time"})).filter(pa.array(kept))
    value = ap.Position("lat", "lon", sigma="sigma") if degrees else ap.Gaussian("x", "y", sigma="sigma")
    stream = ap.Stream(
        table, key="ship", time="at" if stamps else "time", value=value, motion=ap.Straight(max_gap="2 minutes")
    )
    return stream, table, ap.encounters(stream, epsilon=30.0, probability=0.3)


@pytest.mark.parametrize(("degrees", "stamps"), [(True, True), (False, True), (False, False)])
def test_the_map_has_both_tracks_where_they_met(degrees: bool, stamps: bool) -> None:
    """Between the readings of the page the two are as far apart as the encounter says, also over the 180th meridian."""
    _, table, met = moving(degrees=degrees, stamps=stamps)
    assert len(met) > 3
    shown = read(encounters_page(met, table))
    assert ("Times are in UTC." in shown.said) is stamps
    data = shown.data
    assert len(data["happenings"]) == len(met)
    assert data["unit"] == ("m" if degrees else "")
    expected = {(row["left_key"], row["right_key"], row["probability"]): row for row in met.to_pylist()}
    found = set()
    for one in data["happenings"]:
        things = [data["things"][thing] for thing in one["things"]]
        assert one["times"] == sorted(one["times"])
        left, right = (
            np.array([np.interp(one["times"][1], thing["t"], thing[axis]) for axis in "xy"]) for thing in things
        )
        distance, probability = float(one["facts"][1].removesuffix(" m").replace(",", "")), float(one["facts"][2])
        assert np.linalg.norm(left - right) == pytest.approx(distance, abs=0.5)
        names = tuple(thing["name"] for thing in things)
        same = [
            key
            for key, row in expected.items()
            if key[:2] == names
            and row["closest_distance"] == pytest.approx(distance, rel=1e-3)
            and row["probability"] == pytest.approx(probability, rel=1e-2)
        ]
        found.update(same)
        assert len(same) == 1
    assert found == set(expected)


def test_two_streams_may_have_the_same_keys() -> None:
    stream, table, _ = moving()
    other = table.set_column(2, "x", pa.array(np.asarray(table["x"]) + 5.0))
    met = ap.encounters(stream, replace(stream, frame=other), epsilon=30.0, probability=0.3)
    data = read(encounters_page(met, table, other)).data
    pairs = [[data["things"][thing]["name"] for thing in one["things"]] for one in data["happenings"]]
    assert any(left == right for left, right in pairs)
    assert all(one["things"][0] != one["things"][1] for one in data["happenings"])


def test_an_encounters_page_says_what_it_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    _, table, met = moving()
    monkeypatch.setattr("appulse.report.tracks_page.MOST_HAPPENINGS", 2)
    short = table.filter(pc.not_equal(table["ship"], "s0"))
    absent = sum("s0" in (row["left_key"], row["right_key"]) for row in met.to_pylist())
    shown = read(encounters_page(met, short))
    assert absent
    assert f"Left out: {absent} encounters of things without a track." in shown.said
    assert f"Left out: {len(met) - absent - 2} of {len(met) - absent} encounters" in shown.said
    best = sorted((row["probability"] for row in met.to_pylist() if row["left_key"] != "s0"), reverse=True)[:2]
    assert sorted((float(one["facts"][2]) for one in shown.data["happenings"]), reverse=True) == pytest.approx(
        best, rel=1e-2
    )
    assert "There is nothing to show" in read(encounters_page(met.slice(0, 0), table)).said
    with pytest.raises(BadArgument, match="no column left_key, right_key, start"):
        encounters_page(table, table)
    with pytest.raises(BadArgument, match="no columns lat and lon, nor x and y"):
        encounters_page(met, table.drop_columns(["x"]))


def test_the_command_takes_the_columns_of_tracks(tmp_path: Path) -> None:
    _, table, met = moving(stamps=False)
    strange = table.rename_columns({"time": "hours", "x": "east", "y": "north"}).append_column("flag", table["ship"])
    strange = strange.select(["flag", *[name for name in strange.column_names if name != "flag"]])
    pq.write_table(met, tmp_path / "encounters.parquet")
    pq.write_table(strange, tmp_path / "readings.parquet")
    named: list[str] = []
    for option, given in (("--time", "hours"), ("--place", "east,north"), ("--key", "ship")):
        if option != "--key":
            done = CliRunner().invoke(app, ["report", str(tmp_path), *named])
            assert done.exit_code == 2
            assert f"or {option}" in " ".join(done.output.split())
        named += [option, given]
    done = CliRunner().invoke(app, ["report", str(tmp_path), *named])
    assert done.exit_code == 0, done.output
    shown = read((tmp_path / "report.html").read_text("utf-8")).data
    assert len(shown["happenings"]) == len(met)


def test_named_columns_that_say_so_are_degrees() -> None:
    _, table, met = moving(degrees=True)
    named = table.rename_columns({"lat": "Latitude_degrees", "lon": "Longitude_degrees"})
    place = "Latitude_degrees", "Longitude_degrees"
    assert encounters_page(met, named, place=place) == encounters_page(met, table)
    with pytest.raises(BadArgument, match=r"the latitude comes first\. Give 'Latitude_degrees', then 'Longitude"):
        encounters_page(met, named, place=place[::-1])


def test_keys_in_another_column_are_an_error(tmp_path: Path) -> None:
    """The first column that is free is taken for the one of keys, which here it is not."""
    _, table, met = moving()
    numbered = table.add_column(0, "id", pa.array(range(len(table))))
    pq.write_table(met, tmp_path / "encounters.parquet")
    pq.write_table(numbered, tmp_path / "readings.parquet")
    done = CliRunner().invoke(app, ["report", str(tmp_path)])
    said = " ".join(done.output.split())
    assert done.exit_code == 2
    assert re.search(r"No key of the encounters \(s\d, .*\) is in column 'id' of the readings \(0, 1, 10, .*\)", said)
    assert "They have: id, ship, at, x, y, sigma. Name the column of keys: key=, or --key" in said
    assert not (tmp_path / "report.html").exists()
    assert CliRunner().invoke(app, ["report", str(tmp_path), "--key", "ship"]).exit_code == 0
    with pytest.raises(BadArgument, match="in column 'ship' of the right readings"):
        encounters_page(met, table, table.set_column(0, "ship", pa.array(["x"] * len(table))))
    assert "There is nothing to show" in read(encounters_page(met.slice(0, 0), numbered)).said


def test_a_browser_draws_an_encounter(tmp_path: Path) -> None:
    _, table, met = moving()
    wild = table.set_column(0, "ship", pa.array([HOSTILE if k == "s0" else k for k in table["ship"].to_pylist()]))
    both = [pa.array([HOSTILE if k == "s0" else k for k in met[name].to_pylist()]) for name in met.column_names[:2]]
    met = met.set_column(0, "left_key", both[0]).set_column(1, "right_key", both[1])
    pq.write_table(met, tmp_path / "encounters.parquet")
    pq.write_table(wild, tmp_path / "readings.parquet")
    assert CliRunner().invoke(app, ["report", str(tmp_path), "--title", HOSTILE]).exit_code == 0
    file = tmp_path / "report.html"
    shown = read(file.read_text("utf-8"))
    one = shown.data["happenings"][1]
    dom = drawn(file, "2")
    assert dom.count('class="past"') == 2
    assert dom.count('class="closest"') == 1
    assert 'aria-current="true"' in dom
    names = " and ".join(shown.data["things"][thing]["name"] for thing in one["things"])
    assert names in Page(dom).said


def test_distances_are_true_wherever_they_are_on_a_map(tmp_path: Path) -> None:
    """Of a map from 26 to 48 degrees; what is drawn is larger in the north."""
    rows = [
        (f"{lat:.0f}{side}", second, lat, 10.0 + side * geodesic(lat))
        for lat in (26.0, 48.0)
        for side in (0, 1)
        for second in (0.0, 60.0)
    ]
    names, seconds, lats, lons = zip(*rows, strict=True)
    table = pa.table({"ship": names, "time": seconds, "lat": lats, "lon": lons, "sigma": [5.0] * len(rows)})
    value = ap.Position("lat", "lon", sigma="sigma")
    stream = ap.Stream(table, key="ship", time="time", value=value, motion=ap.Straight(max_gap=120))
    met = ap.encounters(stream, epsilon=1_100.0, probability=0.3)
    assert np.asarray(met["closest_distance"]) == pytest.approx([1_000.0] * 2, abs=1e-3)
    file = tmp_path / "page.html"
    file.write_text(encounters_page(met, table), encoding="utf-8")
    data = read(file.read_text("utf-8")).data
    circles = {thing["name"]: thing["e"][0] for thing in data["things"]}
    metre = {lat: np.cos(np.radians(37.0)) / np.cos(np.radians(lat)) for lat in (26.0, 48.0)}
    assert circles == pytest.approx({name: 5.0 * metre[float(name[:2])] for name in circles}, rel=1e-3)
    for one in (1, 2):
        cells = re.findall(r"<td>(.*?)</td>", drawn(file, str(one)))
        assert (cells[0::3], cells[2::3]) == (["1,000 m"] * 2, ["1,000 m"] * 2)


def geodesic(lat: float) -> float:
    """The degrees of longitude of 1,000 metres."""
    return float(Geod(ellps="WGS84").fwd(0.0, lat, 90.0, 1_000.0)[0])
