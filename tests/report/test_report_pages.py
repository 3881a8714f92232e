"""Pages of results: they hold what went in, run nothing of it, and say what they leave out."""

from __future__ import annotations

import json
import re
import runpy
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import appulse as ap
from appulse.cli import app
from appulse.errors import BadArgument
from appulse.report.chart import Clock, Scale, count
from appulse.report.directory import report
from appulse.report.field_page import phenomena_page
from appulse.report.join_page import join_page
from appulse.report.matches import batches_of, funnel
from appulse.report.page import page, rounded
from appulse.report.phenomena import coloured, largest, phenomena_of, thinned
from tests.helpers.pages import HOSTILE, drawn, read

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def field(sensors: int = 6, ticks: int = 30, seed: int = 0) -> tuple[pa.Table, pa.Table]:
    """Sensors on a line, whose readings wander over three values; some readings are missing."""
    chance = np.random.default_rng(seed)
    walk = np.cumsum(chance.integers(-1, 2, (ticks, sensors)) * (chance.random((ticks, sensors)) < 0.3), axis=0) % 3
    there = chance.random((ticks, sensors)) < 0.9
    tick, sensor = np.nonzero(there)
    readings = pa.table(
        {"mote": [f"m{s}" for s in sensor], "time": tick.astype(float) * 10.0, "heat": walk[tick, sensor].astype(float)}
    )
    names = [f"m{s}" for s in range(sensors)]
    return readings, pa.table({"mote": names, "x": np.arange(sensors) * 1.0, "y": chance.random(sensors)})


def events(readings: pa.Table, locations: pa.Table, emit: str = "events", **more: Any) -> pa.Table:
    stream = ap.Stream(readings, key="mote", time="time", value="heat", **more)
    return ap.phenomena(stream, strength=2, span=30, locations=locations, reach=1.5, emit=emit)


def standing(data: Any, frame: int) -> set[tuple[str, frozenset[str]]]:
    return {
        (one["name"], frozenset(data["sensors"][place] for place in state[2]))
        for one in data["phenomena"]
        for state in one["states"]
        if state[0] <= frame < state[1]
    }


@pytest.mark.parametrize("seed", range(4))
def test_what_stands_at_a_moment_is_what_regions_tell(seed: int) -> None:
    readings, locations = field(seed=seed)
    found = events(readings, locations)
    data = read(phenomena_page(found, readings, locations)).data
    regions = events(readings, locations, emit="regions").to_pylist()
    assert regions
    for frame, text in enumerate(data["frames"]):
        last = max((r["time"] for r in regions if r["time"] <= float(text)), default=None)
        told = {(f"#{r['phenomenon']}", frozenset(r["sensors"])) for r in regions if r["time"] == last}
        stands: dict[int, frozenset[str]] = {}
        for event in found.to_pylist():
            if event["time"] <= float(text):
                stands[event["phenomenon"]] = frozenset(event["sensors"] if event["event"] != "disappears" else ())
        assert standing(data, frame) == {(f"#{number}", sensors) for number, sensors in stands.items() if sensors}
        assert standing(data, frame) in (told, set())  # regions have no row for a tick at which none stands
    by_regions = read(phenomena_page(pa.Table.from_pylist(regions), readings, locations)).data
    assert any(standing(data, frame) for frame in range(len(data["frames"])))
    assert sum(standing(data, f) == standing(by_regions, f) for f in range(30)) >= 20


def test_the_map_shows_the_last_reading_while_it_is_news() -> None:
    readings, locations = field()
    data = read(phenomena_page(events(readings, locations), readings, locations)).data
    rows = readings.to_pylist()
    assert len(data["frames"]) == len({row["time"] for row in rows})
    for frame, row in zip(data["frames"], data["values"], strict=True):
        for sensor, shown in zip(data["sensors"], row, strict=True):
            mine = [r for r in rows if r["mote"] == sensor and float(frame) - 15 <= r["time"] <= float(frame)]
            assert shown == (max(mine, key=lambda r: float(r["time"]))["heat"] if mine else None)


def test_every_event_is_listed_and_leads_to_its_moment() -> None:
    readings, locations = field()
    found = events(readings, locations)
    shown = read(phenomena_page(found, readings, locations, resolution=None, labels={1.0: "warm"}))
    assert len(shown.data["events"]) == len(found)
    kinds = {"appears": "appears", "moves": "moves", "disappears": "ends"}
    expected = sorted((r["time"], f"#{r['phenomenon']} {kinds[r['event']]}") for r in found.to_pylist())
    told = sorted(
        (float(shown.data["frames"][frame]), re.sub(r"^\S+ (#\d+ \w+).*", r"\1", text))
        for frame, _number, text in shown.data["events"]
    )
    assert told == expected
    assert any("warm" in text for *_, text in shown.data["events"])
    assert f"Events: {len(found):,}" in shown.said


def test_pages_are_the_same_for_the_same_rows_in_any_order() -> None:
    readings, locations = field()
    found = events(readings, locations)
    once = phenomena_page(found, readings, locations)
    mixed = readings.take(np.random.default_rng(1).permutation(len(readings)))
    assert phenomena_page(found, mixed, locations) == once
    assert phenomena_page(found.to_pandas(), readings.to_pandas(), locations.to_pandas()) == once


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_a_page_of_phenomena_says_that_times_are_in_utc(zone: str | None) -> None:
    """Where they have a zone."""
    readings, locations = field()
    when = pa.array((readings["time"].to_numpy() * 1e6).astype(np.int64)).cast(pa.timestamp("us", zone))
    readings = readings.set_column(readings.schema.get_field_index("time"), "time", when)
    shown = read(phenomena_page(events(readings, locations), readings, locations))
    assert ("Times are in UTC." in shown.said) is (zone is not None)


def test_what_scripts_draw_has_a_style() -> None:
    """A shape without one is black."""
    folder = files("appulse.report")
    style = (folder / "page.css").read_text("utf-8")
    scripts = "".join((folder / f"{name}_page.js").read_text("utf-8") for name in ("field", "join", "live", "tracks"))
    drawn = {name for names in re.findall(r'class: "([a-z ]+)"', scripts) for name in names.split()}
    assert len(drawn) > 8
    assert {name for name in drawn if not re.search(rf"\.{name}\b", style)} == {"thing"}  # has a colour of its own


def test_nothing_in_data_is_executed() -> None:
    readings, locations = field()
    wild = readings.append_column("where", pa.array([HOSTILE] * len(readings)))
    found = events(wild, locations, partition_by="where")
    names = [HOSTILE if name == "m0" else name for name in locations["mote"].to_pylist()]
    both = [
        table.set_column(0, HOSTILE, pa.array([HOSTILE if n == "m0" else n for n in table["mote"].to_pylist()]))
        for table in (readings, locations)
    ]
    shown = read(phenomena_page(found, *both, title=HOSTILE, note=HOSTILE, unit=HOSTILE, value_unit=HOSTILE))
    assert "img" not in shown.tags
    assert shown.data["sensors"] == names
    assert shown.data["phenomena"][0]["name"].startswith(HOSTILE)
    assert HOSTILE in shown.said
    wild = matched(8).to_pandas().assign(left_stream=HOSTILE, left_key=HOSTILE)
    bad = pa.table({"stream": [HOSTILE], "reason": [HOSTILE]})
    shown = read(join_page(wild, bad, [json.dumps({"batch": 0, HOSTILE: 1, "candidates": 9})], title=HOSTILE))
    assert "img" not in shown.tags
    assert shown.data["names"][0][0].startswith(HOSTILE[:20])
    assert HOSTILE in shown.said


@given(st.text())
@settings(max_examples=25)
def test_any_text_comes_through_whole(text: str) -> None:
    text = text.encode(errors="replace").decode()
    assert read(page("t", "", {"said": text, text: [1.0, float("nan"), None]}, "")).data == (
        {"said": text, text: [1.0, None, None]}
    )


def test_a_field_without_phenomena_and_one_without_readings_say_so() -> None:
    readings, locations = field()
    nothing = events(readings, locations).slice(0, 0)
    shown = read(phenomena_page(nothing, readings, locations))
    assert "No phenomenon was found" in shown.said
    assert shown.data["values"]
    bare = read(phenomena_page(nothing, readings.slice(0, 0), locations))
    assert "There is nothing to show" in bare.said
    assert bare.data == {}
    single = read(phenomena_page(nothing, readings.slice(0, 1), locations.slice(0, 1)))
    assert len(single.data["frames"]) == 1


def test_what_is_left_out_is_told() -> None:
    readings, locations = field(ticks=50)
    found = events(readings, locations)
    shown = read(phenomena_page(found, readings, locations.slice(1), frames=10))
    assert len(shown.data["frames"]) == 10
    unplaced = sum(name == "m0" for name in readings["mote"].to_pylist())
    assert f"Left out: {unplaced:,} readings of sensors without a place." in shown.said
    assert re.search(r"Shown are 10 of \d+ moments", shown.said)


def test_the_largest_phenomena_and_even_steps_of_their_events_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    readings, locations = field(sensors=12, ticks=60)
    found = events(readings, locations)
    phenomena = phenomena_of(found)
    kept = largest(phenomena, 5)
    assert sorted(one.most for one in kept) == sorted(one.most for one in phenomena)[-5:]
    total = sum(len(one.events) for one in kept)
    for most in (10, 15, total - 1, total):
        thin = thinned(kept, most)
        assert sum(len(one.events) for one in thin) <= most
        assert [(t.events[0], t.events[-1], t.end) for t in thin] == [(k.events[0], k.events[-1], k.end) for k in kept]
    assert thinned(kept, total) == kept
    monkeypatch.setattr("appulse.report.field_page.MOST_PHENOMENA", 5)
    monkeypatch.setattr("appulse.report.field_page.MOST_EVENTS", 12)
    shown = read(phenomena_page(found, readings, locations))
    assert len(shown.data["phenomena"]) == 5
    assert len(shown.data["events"]) <= 12
    assert f"Left out: {len(phenomena) - 5} of {len(phenomena)} phenomena" in shown.said
    assert f"of {len(found):,} events" in shown.said


def test_without_locations_regions_are_outlined_by_their_sensors() -> None:
    readings, locations = field()
    found = ap.phenomena(ap.Stream(readings, key="mote", time="time", value="heat"), strength=2, span=30)
    data = read(phenomena_page(found, readings, locations)).data
    states = [state for one in data["phenomena"] for state in one["states"]]
    assert states
    assert all(state[2] and state[3] == state[4] == [] and len(state) == 8 for state in states)


def test_values_may_be_names() -> None:
    readings, locations = field()
    named = readings.set_column(2, "heat", pa.array([f"h{v:.0f}" for v in readings["heat"].to_pylist()]))
    shown = read(phenomena_page(events(named, locations), named, locations))
    assert shown.data["classes"] == ["h0", "h1", "h2"]
    assert {state[7] for one in shown.data["phenomena"] for state in one["states"]} <= {"h0", "h1", "h2"}


def test_each_event_has_its_own_value() -> None:
    """By nearness a phenomenon has the median of its readings, another one from event to event."""
    readings, locations = field()
    wild = readings["heat"].to_numpy() + np.random.default_rng(0).random(len(readings))
    readings = readings.set_column(2, "heat", pa.array(wild))
    stream = ap.Stream(readings, key="mote", time="time", value="heat")
    found = ap.phenomena(stream, strength=1, span=30, within=0.4, locations=locations, reach=1.5)
    rows = found.to_pylist()
    values = [
        {f"{row['value']:.6g}" for row in rows if row["phenomenon"] == n} for n in found["phenomenon"].to_pylist()
    ]
    assert max(map(len, values)) > 2
    shown = read(phenomena_page(found, readings, locations))
    events = sorted(tuple(re.split(" · | ", text)[i] for i in (0, 1, 3)) for *_, text in shown.data["events"])
    assert events == sorted((f"{row['time']:g}", f"#{row['phenomenon']}", f"{row['value']:.6g}") for row in rows)
    states = sorted((one["name"], state[7]) for one in shown.data["phenomena"] for state in one["states"])
    stood = [row for row in rows if row["event"] != "disappears"]
    assert states == sorted((f"#{row['phenomenon']}", f"{row['value']:.6g}") for row in stood)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=15, deadline=None)
def test_phenomena_that_stand_at_once_have_colours_of_their_own(seed: int) -> None:
    readings, locations = field(sensors=14, ticks=14, seed=seed)
    found = phenomena_of(events(readings, locations))
    coloured(found)
    for one in found:
        for other in found:
            at_once = other is not one and one.begin <= other.begin < (np.inf if one.end is None else one.end)
            assert not (at_once and one.colour == other.colour)


def test_columns_that_are_not_clear_are_asked_for() -> None:
    readings, locations = field()
    found = events(readings, locations)
    both = readings.append_column("other", readings["heat"])
    with pytest.raises(BadArgument, match="Name it: value="):
        phenomena_page(found, both, locations)
    assert read(phenomena_page(found, both, locations, value="heat")).data["values"]
    with pytest.raises(BadArgument, match="no such column"):
        phenomena_page(found, readings, locations, value="cold")
    with pytest.raises(BadArgument, match="no column hull"):
        phenomena_page(found.drop_columns("hull"), readings, locations)


def matched(rows: int = 200, seed: int = 0) -> pa.Table:
    chance = np.random.default_rng(seed)
    table = pa.table({"id": np.arange(rows), "ts": np.arange(rows) * 1.0, "x": chance.random(rows) * 5})
    sides = [ap.Stream(table, key="id", time="ts", value=ap.Gaussian("x", sigma=0.4), name=name) for name in ("a", "b")]
    found: pa.Table = ap.similarity_join(*sides, epsilon=1.0, probability=0.6, window=ap.TimeWindow("4 seconds"))
    return found


def told(batches: int = 5) -> list[str]:
    lines = []
    for batch in range(batches):
        counts = {
            "candidates": 100,
            "pruned_reach": 60,
            "pruned_markov": 20,
            "accepted": 5,
            "refined": 15,
            "answers": 12,
        }
        state = {"state_rows": 40 + batch, "state_bytes": 4000, "late": 0}
        listened = {"query_id": "q", "name": None, "batch_id": batch, "timestamp": f"2026-01-01T00:00:0{batch}.000Z"}
        lines.append(json.dumps({**listened, "input_rows": 50, "batch_seconds": 0.5, **counts, **state}))
    return lines


def test_a_joins_page_counts_every_match() -> None:
    answers = matched()
    positions = pa.table({"key": np.arange(150), "x": np.arange(150) * 1.0, "y": np.ones(150)})
    text = join_page(answers, None, told(), positions)
    shown = read(text)
    rows = sorted(answers.to_pylist(), key=lambda row: max(row["left_time"], row["right_time"]))
    assert f"{len(rows):,} matches of a and b" in shown.said
    assert shown.data["distance"] == pytest.approx([row["distance"] for row in rows], rel=1e-4)
    assert shown.data["views"][0][2] == [row["right_time"] - row["left_time"] for row in rows]
    for row, x in zip(rows, shown.data["across"][2], strict=True):
        known = row["left_key"] < 150 and row["right_key"] < 150
        assert x == ((row["left_key"] + row["right_key"]) / 2 if known else None)
    for chart in ("Probability, all matches", "Distance, all matches", "Matches by time"):
        bars = text.partition(f'aria-label="{chart}"')[2].partition("</svg>")[0]
        assert sum(map(int, re.findall(r"(\d+)</title>", bars))) == len(rows)
    assert "Not reported by the metrics: lag" in shown.said
    assert join_page(answers, None, told(), positions) == text


@pytest.mark.parametrize(("east", "north"), [("lon", "lat"), ("x", "y")])
def test_a_joins_page_draws_the_map_of_coordinates_that_streams_carry(east: str, north: str) -> None:
    answers = matched(50)
    off = np.linspace(0.0, 1.0, len(answers))
    for side, more in (("left", 0.0), ("right", 0.2)):
        answers = answers.append_column(f"{side}_{east}", pa.array(7.0 + off + more))
        answers = answers.append_column(f"{side}_{north}", pa.array(50.0 + off - more))
    rows = sorted(answers.to_pylist(), key=lambda row: max(row["left_time"], row["right_time"]))
    data = read(join_page(answers)).data
    middle = np.array([[(row[f"left_{name}"] + row[f"right_{name}"]) / 2 for row in rows] for name in (east, north)])
    if east == "lon":
        along = np.cos(np.radians(middle[1]))  # of the parallel of each pair
        middle -= middle.mean(axis=1, keepdims=True)
        middle *= 111.195 * np.array([along, np.ones(len(along))])
    assert data["across"][:2] == (["km east", "km north"] if east == "lon" else ["x", "y"])
    for shown, known in zip(data["across"][2:], middle, strict=True):
        assert shown == pytest.approx(known, rel=1e-3, abs=1e-2)


def test_times_of_one_day_are_listed_without_the_day() -> None:
    rows = pa.table({"id": [1, 2], "at": pa.array([1_000_001, 2_500_000], pa.timestamp("us")), "x": [0.0, 0.0]})
    pairs = ap.self_join(ap.Stream(rows, key="id", time="at", value="x"), epsilon=1, probability=1, window=10)
    assert read(join_page(pairs)).data["texts"] == ["00:00:02.5"]


def test_a_joins_page_draws_some_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appulse.report.join_page.MOST_DRAWN", 20)
    shown = read(join_page(matched()))
    assert len(shown.data["times"]) == 20
    assert re.search(r"20 of \d+ matches are drawn", shown.said)
    assert "No metrics were given" in shown.said


def test_a_joins_page_of_little() -> None:
    none = matched().slice(0, 0)
    assert "There is nothing to show" in read(join_page(none)).said
    assert "No pair matched." in read(join_page(none, None, told())).said
    assert read(join_page(matched().slice(0, 1))).data["times"]
    shown = read(join_page(none, pa.table({"stream": ["a", "a"], "reason": ["late", "late"]})))
    assert "Rows that could not be used: 2" in shown.said


def test_changes_are_kept_apart() -> None:
    answers = matched()
    change = pa.array([1] * (len(answers) - 3) + [-1] * 3)
    shown = read(join_page(answers.append_column("change", change)))
    assert f"{len(answers) - 3:,} matches" in shown.said
    assert "3 left again" in shown.said


def test_rows_without_a_partner_are_no_matches() -> None:
    rows = pa.table({"id": [1, 2], "t": [0.0, 1.0], "x": [0.0, 90.0]})
    left, right = (
        ap.Stream(rows.slice(0, n), key="id", time="t", value="x", name=name) for n, name in ((2, "a"), (1, "b"))
    )
    text = join_page(ap.similarity_join(left, right, epsilon=1, probability=1, window=10, how="left"))
    shown = read(text)
    assert "1 matches of a and b (1)" in shown.said
    assert "1 rows without a partner." in shown.said
    assert len(shown.data["times"]) == 1
    bars = text.partition('aria-label="Matches by time"')[2].partition("</svg>")[0]
    assert sum(map(int, re.findall(r"(\d+)</title>", bars))) == 1


def test_metrics_of_a_checkpoint_that_has_gone_are_left_out() -> None:
    batches, wrong = batches_of([*told(), *told()[:2]])
    assert ([batch.number for batch in batches], wrong) == ([0, 1], 0)


def test_metrics_of_either_form_make_a_funnel() -> None:
    batches, wrong = batches_of([*told(), "{", "", "[]", json.dumps({"query_id": "other", "batch_id": 1})])
    assert (len(batches), wrong) == (5, 3)
    steps = {name: (settled, over) for name, settled, over in funnel(batches)}
    assert steps["candidates of the index"] == (0, 500)
    assert steps["bound: markov"] == (100, 100)
    assert steps["of them refined"] == (0, 75)
    assert steps["answers"] == (0, 60)
    run = json.dumps({"batch": 3, "input_rows": 7, "lag_seconds": 2.5, "metrics": {"candidates": 4}})
    (batch,), _ = batches_of([run])
    assert (batch.number, batch.rows, batch.lag, batch.began, batch.figures) == (3, 7.0, 2.5, None, {"candidates": 4.0})
    assert "Lag behind the newest row" in read(join_page(matched(), None, [run])).said
    assert funnel([]) == []


def call(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


def test_the_command_finds_out_what_a_folder_holds(tmp_path: Path) -> None:
    readings, locations = field()
    folder = tmp_path / "lab"
    folder.mkdir()
    pq.write_table(events(readings, locations), folder / "events.parquet")
    pq.write_table(readings, folder / "readings.parquet")
    missing = call(folder)
    assert (missing.exit_code, "has results, but no locations.parquet" in missing.output) == (2, True)
    pq.write_table(locations, folder / "locations.parquet")
    assert call(folder).exit_code == 0
    assert "lab" in read((folder / "report.html").read_text("utf-8")).said

    run, answers = tmp_path / "run", matched()
    (run / "answers").mkdir(parents=True)
    half = len(answers) // 2
    pq.write_table(answers.slice(half), run / "answers" / "batch-0000000001.parquet")
    pq.write_table(answers.slice(0, half), run / "answers" / "batch-0000000000.parquet")
    (run / "answers" / "batch-0000000002.parquet").touch()
    (run / "metrics.jsonl").write_text("\n".join(told()), "utf-8")
    (run / "rejects").mkdir()
    (run / "rejects" / "batch-0000000000.json").write_text('{"stream": "a", "reason": "late"}\n', "utf-8")
    late = pa.table({"stream": ["a"], "reason": ["late"]})
    assert call(run, "--out", tmp_path / "page.html", "--title", "Two streams").exit_code == 0
    written = (tmp_path / "page.html").read_text("utf-8")
    assert written == report(run, title="Two streams") == join_page(answers, late, told(), title="Two streams")
    assert call(run / "answers", "--title", "t").exit_code == 0  # readers of a sink take all files in it for rows
    assert (run / "answers.html").read_text("utf-8") == join_page(answers, late, told(), title="t")
    (run / "metrics.jsonl").rename(run / "checkpoint.progress.jsonl")  # as a run leaves it
    assert report(run, title="Two streams") == written
    (run / "another.progress.jsonl").write_text("\n".join(told(2)), "utf-8")
    assert report(run, title="t") == join_page(answers, late, title="t")
    assert report(run / "answers", title="t") == join_page(answers, title="t")


def test_a_column_that_is_not_clear_is_named_by_an_option(tmp_path: Path) -> None:
    """The message has the option."""
    readings, locations = field()
    frames = {"events": events(readings, locations), "readings": readings, "locations": locations}
    frames["readings"] = readings.rename_columns(["mote", "hours", "heat"]).append_column("box", readings["mote"])
    frames["locations"] = locations.append_column("box", locations["mote"])
    for name, frame in frames.items():
        pq.write_table(frame, tmp_path / f"{name}.parquet")
    named = ["--value", "heat"]
    for option, column in (("--sensor", "mote"), ("--time", "hours")):
        done = call(tmp_path, *named)
        assert (done.exit_code, f"or {option} of appulse report" in " ".join(done.output.split())) == (2, True)
        named += [option, column]
    done = call(tmp_path, *named)
    assert done.exit_code == 0, done.output
    page_of = read((tmp_path / "report.html").read_text("utf-8"))
    assert len(page_of.data["events"]) == len(frames["events"])
    refused = " ".join(call(tmp_path, "--key", "mote").output.split())
    assert "A page of phenomena has no key. It takes unit, value" in refused
    assert "--place takes two columns" in call(tmp_path, "--place", "x").output


def test_the_command_takes_names_and_units(tmp_path: Path) -> None:
    readings, locations = field()
    happened, folder = events(readings, locations), tmp_path / "lab"
    folder.mkdir()
    readings = readings.append_column("other", readings["heat"])
    for name, frame in (("events", happened), ("readings", readings), ("locations", locations)):
        pq.write_table(frame, folder / f"{name}.parquet")
    units = ("--value", "heat", "--unit", "km", "--value-unit", "K", "--resolution", "1")
    assert call(folder, *units, "--label", "2=hot").exit_code == 0
    expected = phenomena_page(
        happened,
        readings,
        locations,
        title="lab",
        value="heat",
        unit="km",
        value_unit="K",
        resolution=1.0,
        labels={2.0: "hot"},
    )
    assert (folder / "report.html").read_text("utf-8") == expected
    unknown = " ".join(call(folder, "--label", "9=warm").output.split())
    assert "No phenomenon has the value '9'. Values are 0, 1, 2." in unknown
    assert "--label takes VALUE=TEXT" in call(folder, "--label", "warm").output
    pq.write_table(matched(), tmp_path / "answers.parquet")
    refused = " ".join(call(tmp_path, "--unit", "km").output.split())
    assert "A page of a similarity join has no unit. It takes none of these settings." in refused


def test_the_command_says_what_is_missing(tmp_path: Path) -> None:
    assert "is not a folder" in call(tmp_path / "nowhere").output
    (tmp_path / "notes.txt").touch()
    told = call(tmp_path)
    assert (told.exit_code, "there is notes.txt" in told.output) == (2, True)
    (tmp_path / "answers.parquet").write_text("no Parquet")
    assert "cannot be read:" in call(tmp_path).output
    for columns, said in (
        (("left_key", "closest_time"), "are drawn with readings"),
        (("phenomenon", "kind"), "are drawn with readings and locations"),
        (("query", "since"), "are drawn with fences"),
        (("query", "key", "start", "end"), "holds visits to fences, which are drawn with fences and readings"),
        (("window", "count"), "holds rows with window, count, of which there is no page"),
    ):
        folder = tmp_path / columns[-1]
        folder.mkdir()
        pq.write_table(pa.table({column: [0.0] for column in columns}), folder / "batch-0000000000.parquet")
        assert said in " ".join(call(folder).output.split())
    pq.write_table(matched(), tmp_path / "answers.parquet")
    failed = call(tmp_path, "--out", tmp_path / "no" / "page.html")
    assert (failed.exit_code, "cannot be written" in failed.output) == (1, True)


@given(st.floats(-1e12, 1e12), st.floats(1e-6, 1e12), st.integers(2, 9))
def test_ticks_are_within_and_few(low: float, span: float, most: int) -> None:
    scale = Scale(low, low + span, 0, 100)
    ticks = scale.ticks(most)
    assert len(ticks) <= most + 2
    assert all(low - 1e-6 * span <= tick <= low + span + 1e-6 * span for tick in ticks) or span < 1e-9 * abs(low)
    times = Clock(stamps=True).ticks(low, low + span, most)
    assert len(times) <= most + 1
    assert all(low <= place <= low + span for place, _ in times)


def test_times_and_numbers_are_written_short() -> None:
    day = pd.Timestamp("2014-11-20").value / 1e3
    clock = Clock(stamps=True)
    assert clock.text(day) == "2014-11-20 00:00"
    assert clock.text(day + 61.5e6) == "2014-11-20 00:01:01.5"
    assert Clock(stamps=False).text(1.5e6) == "1.5"
    hours = [text for _, text in clock.ticks(day, day + 86_400e6)]
    assert (hours[0], hours[1], hours[-1], len(hours)) == ("11-20", "03:00", "11-21", 9)
    assert [count(n) for n in (0, 12, 1234, 12_345, 2_500_000, 0.25)] == ["0", "12", "1,234", "12.3k", "2.5M", "0.25"]
    assert rounded([1.0, 1 / 3, float("inf")]) == [1, 0.333333, None]


def test_the_example_shows_smog_that_comes_and_is_blown_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example = runpy.run_path(str(EXAMPLES / "beijing_episodes.py"))
    readings, stations = example["twin"](pd.Timestamp("2014-11-17"))
    found = example["episodes"](readings, stations)
    shown = read(phenomena_page(found, readings, stations, labels=example["CLASSES"], place=example["PLACE"])).data
    value = {one["name"]: one["states"][0][7] for one in shown["phenomena"]}
    told = [
        {value[name]: len(sensors) for name, sensors in standing(shown, shown["frames"].index(f"2014-11-{when}"))}
        for when in ("17 06:00", "18 18:00", "20 18:00")
    ]
    assert [max(classes, key=classes.__getitem__) for classes in told] == ["clean", "heavy smog", "clean"]
    assert told[1]["heavy smog"] == told[2]["clean"] == len(stations)


def test_a_browser_draws_the_moment_that_a_link_names(tmp_path: Path) -> None:
    readings, locations = field(ticks=20)
    file = tmp_path / "field.html"
    file.write_text(phenomena_page(events(readings, locations), readings, locations, title=HOSTILE), "utf-8")
    data = read(file.read_text("utf-8")).data
    frame = max(range(len(data["frames"])), key=lambda frame: len(standing(data, frame)))
    dom = drawn(file, data["frames"][frame])
    assert f'<output id="now" for="scrub">{data["frames"][frame]}</output>' in dom
    stands = standing(data, frame)
    assert stands
    assert dom.count('class="hull"') == len(stands)
    assert dom.count("<li>") == len(data["events"])
    for name, sensors in stands:
        assert re.search(rf"</span>{name}</th><td>[^<]*</td><td>{len(sensors)}</td>", dom)
    rings = dom.count('style="stroke:var(--p')
    assert rings == sum(len(sensors) for _, sensors in stands)


def test_a_browser_lists_the_most_probable_matches(tmp_path: Path) -> None:
    file = tmp_path / "join.html"
    file.write_text(join_page(matched(), None, told(), title=HOSTILE), "utf-8")
    data = read(file.read_text("utf-8")).data
    dom = drawn(file, "")
    assert f"In this stretch: {len(data['times'])} of those drawn" in dom
    rows = re.findall(r'<th scope="row">([^<]*)</th><td>([^<]*)</td>', dom.partition('id="listed"')[2])
    order = sorted(range(len(data["times"])), key=lambda place: (-data["probability"][place], place))
    assert rows[:14] == [(data["names"][0][place], data["names"][1][place]) for place in order[:14]]
