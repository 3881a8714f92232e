"""Fence events: visits of things to polygons, against point in polygon and the rules that people use with it.

    python -m benchmarks.fences --quick --json

Polygons of 5 to 500 corners are made around the readings of five cabs of San Francisco, or of a generated twin. In
process all run on one core.

* ``vs_strtree``: a shapely tree of the points of a batch, queried with all polygons, and runs of fixes in NumPy: its
  time over ours, for the same visits of exact fixes. All polygons are read, indexed and prepared before.
* ``vs_sedonadb``, ``vs_duckdb_spatial``, ``vs_geopandas``: their seconds for all matches of a batch of exact fixes, on
  one thread and from tables in memory, over those of `QueryMatch` that has its fences; beside us, in an environment of
  their own.
* ``vs_sedona``: Sedona's seconds for the same on Spark, from Parquet to a sum, over those of `match_queries` there.
* ``gaussian_of_exact``: our time with normal errors of 10 m over that without; ``gaussian_of_exact_visits`` with the
  highest probability of each visit, for which every fix inside has its own computed.
* ``flicker_ratio``: false events a day of point in polygon over ours, where true entries are reported as promptly, on
  tracks whose truth is known; interpolated between choices of ``enter`` and ``leave``. ``nested_ratio`` is that of two
  nested fences, ``wait_ratio`` that of a dwell timer, each at its best promptness that ours has, too.
* ``false_events_predicted``: false events that ``fence_advice`` expects, from the same readings, over those observed:
  of all choices the one that is farthest from 1.
* ``events_of_matches``: our time with normal errors for events over that of `QueryMatch` with the same fences, for one
  batch.
* ``moved_a_second``: fences that change place a second in `QueryMatch`, 10,000 of 100,000 at a time, each time with a
  batch of 1,000 fixes that are matched; ``moved_boxes_a_second``: the same with the boxes of these fences, and
  ``moved_a_second_of_events`` with `FenceEvents`.
* ``spark_of_pass``: our throughput on Spark over that of the same fixes through a pandas UDF that does nothing.
* ``spark_of_rows``: the same over a UDF that reads the fixes, and makes as many rows of the columns of events as we do.

There are 100,000 polygons, and ``vs_strtree`` has batches of a million fixes: one with ``--quick``, else 10. What else
is run on batches has as many, or with ``--quick`` one of 250,000.
"""

from __future__ import annotations

import statistics
import time
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import shapely

import appulse as ap
from benchmarks.aside import aside
from benchmarks.fence_zones import dense, make_zones, runs_in, score, visits_by_rule
from benchmarks.harness import arguments, read_stream, report, say, scratch, timed, write_stream
from examples.data_folder import data_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

    from benchmarks.fence_zones import Score

SIGMA, DAYS = 15.0, 120.0  # metres; five cabs for 24 days
_POLYGONS, _MOVED = 100_000, 10_000
_BATCH, _BATCHES = 1_000_000, {True: 1, False: 10}
_PART = {True: 250_000, False: _BATCH}  # fixes of a batch for all but `by_tree`
_CHOICES = [(0.5, 0.1), *((enter, 0.01) for enter in (0.5, 0.6, 0.7, 0.8, 0.9))]
_CHOICES += [(enter, 1e-4) for enter in (0.5, 0.6, 0.7, 0.9, 0.95)]
_CHOICES += [(enter, 1e-6) for enter in (0.65, 0.7)]


@cache
def tracks() -> pd.DataFrame:
    """Where cabs were, every 10 seconds: ``thing, t, x, y``."""
    path = data_at("sf_cabspotting/five_cabs.parquet")
    if path.exists():
        rows = pd.read_parquet(path).rename(columns={"cab": "thing", "time": "t"})
    else:
        say("no five_cabs.parquet: generated tracks")
        rows = _generated(np.random.default_rng(0))
    rows["x"] = 6_371_000.0 * np.cos(np.radians(37.76)) * np.radians(rows["longitude"] + 122.42)
    rows["y"] = 6_371_000.0 * np.radians(rows["latitude"] - 37.76)
    rows = rows.drop_duplicates(["thing", "t"]).sort_values("t")
    parts = [dense(track).assign(thing=i) for i, (_, track) in enumerate(rows.groupby("thing"))]
    return pd.concat(parts, ignore_index=True)


def _generated(chance: np.random.Generator) -> pd.DataFrame:
    parts = []
    for thing in range(5):
        stops = chance.normal(0.0, 0.02, (400, 2))
        t = np.arange(0.0, 400.0 * 1800.0, 60.0)
        place = np.minimum(1.0, (t % 1800.0) / 900.0)[:, None]  # it drives for a quarter of an hour, and waits for one
        leg = np.minimum((t // 1800.0).astype(int), 398)
        at = stops[leg] + place * (stops[leg + 1] - stops[leg]) + [37.76, -122.42]
        parts.append(pd.DataFrame({"thing": str(thing), "t": t, "latitude": at[:, 0], "longitude": at[:, 1]}))
    return pd.concat(parts, ignore_index=True)


@cache
def zones_around(n: int, seed: int = 0) -> NDArray[Any]:
    """Polygons around what `tracks` has, made once."""
    track = tracks()
    return make_zones(track["x"].to_numpy(), track["y"].to_numpy(), n, seed)


def fences_of(zones: NDArray[Any]) -> pa.Table:
    """As users have them."""
    return pa.table({"query": np.arange(len(zones)), "region": pa.array(shapely.to_wkb(zones), pa.binary())})


def fleet(track: pd.DataFrame, rows: int, seed: int = 1) -> pa.Table:
    """Rows of a fleet of a thousand, each a stretch of a track some metres aside, in order of time."""
    chance = np.random.default_rng(seed)
    things, steps = 1000, -(-rows // 1000)
    begin = chance.integers(0, len(track) - steps, things)
    at = (begin[None, :] + np.arange(steps)[:, None]).ravel()
    x, y = (track[name].to_numpy()[at] + chance.normal(0.0, 20.0, len(at)) for name in ("x", "y"))
    thing, t = np.tile(np.arange(things), steps), np.repeat(10.0 * np.arange(steps), things)
    return pa.table({"thing": thing, "t": t, "x": x, "y": y})


def by_tree(zones: NDArray[Any], batches: Iterator[pa.Table]) -> tuple[float, int]:
    """Seconds, and enter events, of the tree of points; zones are prepared before."""
    shapely.prepare(zones)
    seconds, events = 0.0, 0
    before = np.empty(0, np.int64)  # what was inside at the end of the last batch, as thing and zone
    for batch in batches:
        begin = time.perf_counter()
        points = shapely.points(batch["x"].to_numpy(), batch["y"].to_numpy())
        zone, fix = shapely.STRtree(points).query(zones, predicate="covers")
        thing = batch["thing"].to_numpy()[fix]
        # The fixes of a thing are 1,000 rows apart: within a run of them in a zone none is new.
        whose, step = thing * len(zones) + zone, fix // 1000
        order = np.lexsort((step, whose))
        whose, step = whose[order], step[order]
        follows = np.append(False, (np.diff(whose) == 0) & (np.diff(step) == 1))
        goes_on = (step == 0) & np.isin(whose, before)
        events += int((~follows & ~goes_on).sum())
        before = whose[step == len(batch) // 1000 - 1]
        seconds += time.perf_counter() - begin
    return seconds, events


def by_us(
    fences: pa.Table, batches: Iterator[pa.Table], value: Any, enter: float, leave: float, emit: str = "events"
) -> tuple[float, int]:
    """Seconds, and enter events or visits, of ours; the fences are read before."""

    def count(found: pa.Table) -> int:
        return len(found) if emit == "visits" else int(pc.sum(pc.equal(found["event"], "enter")).as_py() or 0)

    stream, one = ap.Stream(None, key="thing", time="t", value=value), ap.Options(threads=1)
    watched = ap.FenceEvents(stream, fences, enter=enter, leave=leave, emit=emit, options=one)
    seconds, events = 0.0, 0
    first = next(batches)
    watched.push(first.slice(0, 0))
    for batch in (first, *batches):
        begin = time.perf_counter()
        found = watched.push(batch)
        seconds += time.perf_counter() - begin
        events += count(found)
    return seconds, events + count(watched.drain())


def by_matching(fences: pa.Table, batch: pa.Table, value: Any) -> float:
    """Seconds to match a batch with fences that are there already."""
    standing = ap.QueryMatch(ap.Stream(None, key="thing", time="t", value=value), probability=0.9)
    standing.change(fences)
    standing.push(batch.slice(0, 0))
    begin = time.perf_counter()
    standing.push(batch)
    return time.perf_counter() - begin


def in_bulk(track: pd.DataFrame, *, quick: bool) -> dict[str, float | None]:
    """Batches of a million fixes."""
    zones = zones_around(_POLYGONS)
    fences, whole, part = fences_of(zones), fleet(track, _BATCHES[quick] * _BATCH), _PART[quick]

    def batches(size: int = part) -> Iterator[pa.Table]:
        return (whole.slice(i * _BATCH, size) for i in range(_BATCHES[quick]))

    exact, normal = ap.Exact("x", "y"), ap.Gaussian("x", "y", sigma=10.0)
    small = fences.slice(0, 100)
    for value in (exact, normal):
        by_us(small, iter([whole.slice(0, 10_000)]), value, enter=0.9, leave=0.1)
    theirs, expected = by_tree(zones, batches(_BATCH))
    ours, found = by_us(fences, batches(_BATCH), exact, enter=1.0, leave=1.0)
    if found != expected:
        raise RuntimeError(f"{found:,} entries by us, {expected:,} by the tree")
    say(f"{len(whole):,} fixes, {len(zones):,} polygons, {found:,} entries: {ours:.2f} s, tree {theirs:.2f} s")
    plain = ours if part == _BATCH else by_us(fences, batches(), exact, enter=1.0, leave=1.0)[0]
    blurred, _ = by_us(fences, batches(), normal, enter=0.9, leave=0.1)
    by_matching(small, whole.slice(0, 10_000), normal)
    matched = by_matching(fences, whole.slice(0, part), normal)
    plain_visits, _ = by_us(fences, batches(), exact, enter=1.0, leave=1.0, emit="visits")
    visits, _ = by_us(fences, batches(), normal, enter=0.9, leave=0.1, emit="visits")
    say(f"{part:,} at a time: {plain:.2f} s, with errors {blurred:.2f} s")
    say(f"visits {plain_visits:.2f} s, with errors {visits:.2f} s")
    say(f"a batch with errors matched in {matched:.2f} s")
    return {
        "vs_strtree": theirs / ours,
        "gaussian_of_exact": blurred / plain,
        "events_of_matches": blurred / _BATCHES[quick] / matched,
        "gaussian_of_exact_visits": visits / plain_visits,
    }


def moving(track: pd.DataFrame) -> dict[str, float | None]:
    """Fences of a large set change place."""
    zones = zones_around(_POLYGONS)
    fixes = fleet(track, 1_000)
    stream = ap.Stream(None, key="thing", time="t", value=ap.Exact("x", "y"))

    def a_second(standing: ap.QueryMatch | ap.FenceEvents, shapes: NDArray[Any], name: str) -> float:
        chance, spent = np.random.default_rng(2), []
        standing.push(fixes)
        for begin in range(0, len(shapes) - _MOVED + 1, 2 * _MOVED):
            which = np.arange(begin, begin + _MOVED)
            away = np.repeat(chance.normal(0.0, 50.0, (_MOVED, 2)), shapely.get_num_coordinates(shapes[which]), axis=0)
            places = shapely.set_coordinates(shapes[which].copy(), shapely.get_coordinates(shapes[which]) + away)
            moved = pa.table({"query": which, "region": pa.array(shapely.to_wkb(places), pa.binary())})
            start = time.perf_counter()
            standing.change(moved)
            standing.push(fixes)
            spent.append(time.perf_counter() - start)
        say(f"{name}: {_MOVED:,} of {len(shapes):,} moved in {min(spent):.2f} to {max(spent):.2f} s")
        return _MOVED * len(spent) / sum(spent)

    few = fences_of(zones[:100])
    for standing in (
        ap.QueryMatch(stream),
        ap.FenceEvents(stream, few, enter=1.0, leave=1.0),
    ):  # compiled code is loaded
        for _ in range(2):
            standing.change(few)
            standing.push(fixes)
    figures: dict[str, float | None] = {}
    for name, shapes in (("moved", zones), ("moved_boxes", shapely.box(*shapely.bounds(zones).T))):
        matching = ap.QueryMatch(stream)
        matching.change(fences_of(shapes))
        figures[f"{name}_a_second"] = a_second(matching, shapes, name)
    watched = ap.FenceEvents(stream, fences_of(zones), enter=1.0, leave=1.0)
    return figures | {"moved_a_second_of_events": a_second(watched, zones, "moved, events")}


def _one_batch(track: pd.DataFrame, folder: Path, *, quick: bool) -> tuple[pa.Table, pa.Table]:
    """Fences and fixes, also as files for others."""
    zones = zones_around(_POLYGONS)
    fences, batch = fences_of(zones), fleet(track, _PART[quick])
    batch = batch.append_column("fix", pa.array(np.arange(len(batch))))
    pq.write_table(fences.rename_columns(["zone", "region"]), folder / "zones.parquet")
    pq.write_table(batch.select(["fix", "t", "x", "y"]), folder / "points.parquet")
    return fences, batch


def against_rivals(track: pd.DataFrame, folder: Path, *, quick: bool) -> dict[str, float | None]:
    """One batch of exact fixes, matched by others in environments of their own."""
    fences, batch = _one_batch(track, folder, quick=quick)
    standing = ap.QueryMatch(ap.Stream(None, key="fix", time="t", value=ap.Exact("x", "y")))
    standing.change(fences)
    standing.push(batch.slice(0, 10_000))
    spent = []
    for _ in range(3):
        begin = time.perf_counter()
        found = standing.push(batch)
        spent.append(time.perf_counter() - begin)
    ours = statistics.median(spent)
    zone, fix = (found[name].to_numpy().astype(np.uint64) for name in ("query", "key"))
    total = int((zone * np.uint64(2654435761) ^ fix * np.uint64(40503)).sum(dtype=np.uint64))
    figures: dict[str, float | None] = {}
    for engine, name in (("sedonadb", "sedonadb"), ("duckdb", "duckdb_spatial"), ("geopandas", "geopandas")):
        other = aside("polygon_matches", engine, folder / "zones.parquet", folder / "points.parquet", 3)
        if other is not None and (other["matches"], other["total"]) != (len(found), total):
            raise RuntimeError(f"{engine} finds {other['matches']:,} matches, we {len(found):,}, or others")
        figures[f"vs_{name}"] = None if other is None else other["seconds"] / ours
        say(f"{engine}: {len(found):,} matches, {'none' if other is None else other['seconds']} s, ours {ours:.2f} s")
    return figures


def against_sedona(spark: SparkSession, track: pd.DataFrame, folder: Path, *, quick: bool) -> dict[str, float | None]:
    """One batch of exact fixes on Spark."""
    _one_batch(track, folder, quick=quick)
    points = spark.read.parquet(str(folder / "points.parquet"))
    zones = spark.read.parquet(str(folder / "zones.parquet")).withColumnRenamed("zone", "query")

    def ours() -> tuple[int, int]:
        found = ap.match_queries(ap.Stream(points, key="fix", time="t", value=ap.Exact("x", "y")), zones)
        row = found.selectExpr("count(*)", "sum((query * 2654435761 + key * 40503) % 1000003)").collect()[0]
        return row[0], row[1]

    spent, total = [], ours()
    for _ in range(2):
        begin = time.perf_counter()
        ours()
        spent.append(time.perf_counter() - begin)
    other = aside("sedona_polygons", folder / "zones.parquet", folder / "points.parquet", 2)
    if other is not None and (other["matches"], other["total"]) != total:
        raise RuntimeError(f"Sedona finds {other['matches']:,} matches, we {total[0]:,}, or others")
    took = None if other is None else other["seconds"]
    say(f"Spark: {total[0]:,} matches, Sedona {took} s, ours {min(spent):.2f} s")
    return {"vs_sedona": None if other is None else other["seconds"] / min(spent)}


def flicker(track: pd.DataFrame) -> dict[str, float | None]:
    """Rules on tracks with errors, against the truth."""
    chance = np.random.default_rng(1)
    zones = zones_around(1_000, seed=3)
    noise = {name: track[name] + chance.normal(0.0, SIGMA, len(track)) for name in ("x", "y")}
    fixes = track.assign(**noise)
    truth, runs = visits_by_rule(runs_in(track, zones), zones), runs_in(fixes, zones)

    def rated(name: str, found: pd.DataFrame) -> Score:
        rating = score(found, truth, DAYS)
        say(f"{name}: {rating.false_a_day:.1f} false a day, {rating.delay:.1f} s late, {rating.missed:.3f} missed")
        return rating

    plain = rated("point in polygon", visits_by_rule(runs, zones))
    wide = [(d, runs_in(fixes, zones, d)) for d in (5.0, 10.0, 20.0, 30.0)]
    nested = [rated(f"nested, {d} m", visits_by_rule(wider, zones, inner=d)) for d, wider in wide]
    waits = [rated(f"wait {w} s", visits_by_rule(runs, zones, wait=w)) for w in (10.0, 20.0, 30.0)]
    rows = pa.Table.from_pandas(fixes.sort_values("t"), preserve_index=False)
    stream, fences = ap.Stream(rows, "thing", "t", ap.Gaussian("x", "y", sigma=SIGMA)), fences_of(zones)
    ours = []
    for enter, leave in _CHOICES:
        found = ap.fence_events(stream, fences, enter=enter, leave=leave, emit="visits").to_pandas()
        ours.append(rated(f"ours {enter}, {leave}", found.rename(columns={"query": "zone", "key": "thing"})))
    high, low = (sorted({choice[k] for choice in _CHOICES}) for k in range(2))
    advice = ap.fence_advice(stream, fences, enter=high, leave=low, draws=1).to_pylist()
    expected = {(row["enter"], row["leave"]): row["false_events"] / DAYS for row in advice}
    shares = [expected[choice] / one.false_a_day for choice, one in zip(_CHOICES, ours, strict=True)]
    say("false events expected over observed: " + ", ".join(f"{share:.2f}" for share in shares))
    return {
        "false_events_predicted": max(shares, key=lambda share: abs(np.log(share))),
        "flicker_ratio": plain.false_a_day / _at(ours, plain.delay),
        "nested_ratio": max(one.false_a_day / _at(ours, one.delay) for one in nested),
        "wait_ratio": max(one.false_a_day / _at(ours, one.delay) for one in waits),
    }


def _at(ours: list[Score], delay: float) -> float:
    """The fewest false events at a delay, between choices."""
    known = sorted(ours, key=lambda one: one.delay)
    best = np.minimum.accumulate([one.false_a_day for one in known])
    return float(np.interp(delay, [one.delay for one in known], best))


def on_spark(spark: SparkSession, track: pd.DataFrame, folder: Path, *, quick: bool) -> dict[str, float | None]:
    """Structured Streaming, four batches, of half a million fixes but with ``quick``."""
    zones = zones_around(_POLYGONS)
    table, fences = fleet(track, 2 * _PART[quick]), fences_of(zones)
    source = write_stream(folder / "in", table, 4)

    def nothing(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        yield from frames

    def ours() -> Any:
        stream = ap.Stream(read_stream(spark, source), "thing", "t", ap.Exact("x", "y"))
        return ap.fence_events(stream, fences, enter=1.0, leave=1.0)

    def theirs() -> Any:
        return read_stream(spark, source).mapInPandas(nothing, "thing long, t double, x double, y double")

    def rows() -> Any:
        return read_stream(spark, source).mapInArrow(_as_many(found / len(table)), _EVENTS)

    seconds: dict[str, list[float]] = {"ours": [], "pass": [], "rows": []}
    for k in range(2):
        for name, make in (("ours", ours), ("pass", theirs), ("rows", rows)):
            run = timed(make(), folder / f"{name}-{k}")
            seconds[name].append(sum(run.batches[1:]))
            if name == "ours":
                found = spark.read.parquet(str(run.out)).count()
    taken = {name: min(some) for name, some in seconds.items()}
    say(f"Spark, {len(table):,} fixes, {found:,} events: ours {taken['ours']:.1f} s")
    say(f"passing the fixes on {taken['pass']:.1f} s, making as many rows {taken['rows']:.1f} s")
    return {f"spark_of_{name}": taken[name] / taken["ours"] for name in ("pass", "rows")}


_EVENTS = "query long, key long, event string, time double, probability double, since double"


def _as_many(share: float) -> Any:
    """A function that makes so many rows for each of its own, in the columns of events."""

    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            at = np.arange(int(share * len(batch)))
            thing, t = (batch[name].take(pa.array(at % max(1, len(batch)))) for name in ("thing", "t"))
            query, event = pa.array(at * 7919 % 100_000), pa.array(["enter", "exit"]).take(pa.array(at % 2))
            columns = query, thing, event, t, pa.array(np.ones(len(at))), t
            names = [part.split()[0] for part in _EVENTS.split(", ")]
            yield pa.RecordBatch.from_arrays(list(columns), names=names)

    return make


def main() -> None:
    """Run the parts asked for."""
    given = arguments(__doc__ or "")
    only = set((given.only or "bulk,moving,rivals,flicker,spark,sedona").split(","))
    track = tracks()
    figures: dict[str, float | None] = {}
    if "bulk" in only:
        figures |= in_bulk(track, quick=given.quick)
    if "moving" in only:
        figures |= moving(track)
    if "rivals" in only:
        with scratch() as folder:
            figures |= against_rivals(track, folder, quick=given.quick)
    if "flicker" in only:
        figures |= flicker(track)
    if {"spark", "sedona"} & only:
        spark = ap.session(2)
        with scratch() as folder:
            figures |= on_spark(spark, track, folder, quick=given.quick) if "spark" in only else {}
            figures |= against_sedona(spark, track, folder, quick=given.quick) if "sedona" in only else {}
        spark.stop()
    report(figures, as_json=given.json)


if __name__ == "__main__":
    main()
