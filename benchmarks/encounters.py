"""Encounters of moving things, against what else finds who came close between readings.

    python -m benchmarks.encounters --quick --json

A day of aircraft above Switzerland, projected; where the data is not there, a generated day like it. Figures that begin
with ``vs_`` are another's time over ours, for the pairs that ever come within 5 NM in level flight between readings at
most a minute apart:

* ``vs_meos``: PyMEOS, trips with boxes first, then ``edwithin``, building included; the same pairs.
* ``vs_resample_join``: every track resampled to a second and joined on second and cell, in Polars with all cores.
  ``encounters_missed_by_resampling`` are pairs that it does not find; what it finds, we find.
  ``encounters_missed_at_100_m`` are those within 100 metres: aircraft are that near for less than a second.
* ``vs_traffic_cpa``: the closest points of approach of the library traffic, over an hour.
* ``legs_of_points``: our time with motion over that of a join of the rows with equal stamps; ``_sigma`` with normal
  errors, ``_earth`` along geodesics.
* ``spark_of_empty``: our throughput on Structured Streaming over that of an operator that counts the rows by key.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pyproj

import appulse as ap
from benchmarks.aside import aside
from benchmarks.harness import arguments, least, read_stream, report, say, scratch, timed, write_stream
from examples.data_folder import data_at

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

EPSILON, GAP = 9_260.0, 60.0  # metres, seconds
_CLOSE = 100.0
_FEET = 0.3048
_SPARK_COPIES = {True: 8, False: 32}


def day() -> pa.Table:
    """A day of aircraft, in order of key and time: ``key, t`` (microseconds), ``x, y, z`` metres, ``lat, lon``."""
    path = data_at("swiss_day_adsb/swiss_day.parquet")
    if not path.exists():
        say("no swiss_day.parquet: a generated day")
        return _generated(np.random.default_rng(0))
    table = pq.read_table(path)
    _, key = np.unique(table["icao24"].to_numpy(zero_copy_only=False), return_inverse=True)
    t = table["timestamp"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
    lat, lon, feet = (table[name].to_numpy() for name in ("latitude", "longitude", "altitude"))
    return _ordered(key.astype(np.int64), t, lat, lon, feet * _FEET)


def _generated(chance: np.random.Generator) -> pa.Table:
    parts = []
    for key in range(840):
        n = int(chance.integers(60, 270))
        t = (int(chance.integers(18_000, 79_000 - 10 * n)) + 10 * np.arange(n)) * 1_000_000
        course, speed = chance.uniform(0.0, 2.0 * np.pi), chance.uniform(200.0, 250.0)
        along = (np.arange(n) - n / 2.0) * 10.0 * speed
        lat = chance.uniform(46.0, 47.6) + np.cos(course) * along / 111_000.0
        lon = chance.uniform(6.5, 10.0) + np.sin(course) * along / 76_000.0
        up = np.full(n, 1_000.0 * _FEET * chance.integers(31, 41))
        parts.append((np.full(n, key), t + 1_533_081_600_000_000, lat, lon, up))
    return _ordered(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _ordered(key: Any, t: Any, lat: Any, lon: Any, up: Any) -> pa.Table:
    x, y = pyproj.Proj(proj="aeqd", lat_0=46.8, lon_0=8.2, ellps="WGS84")(lon, lat)
    columns = {"key": key, "t": t, "x": x, "y": y, "z": up, "lat": lat, "lon": lon}
    return pa.table(columns).take(pa.array(np.lexsort((t, key))))


def timely(table: pa.Table) -> pa.Table:
    """With times as users have them."""
    return table.set_column(1, "t", table["t"].cast(pa.timestamp("us", "UTC")))


def met(frame: Any, epsilon: float = EPSILON) -> Any:
    """Our encounters."""
    stream = ap.Stream(frame, key="key", time="t", value=ap.Exact("x", "y"), motion=ap.Straight(GAP))
    return ap.encounters(stream, epsilon=epsilon, probability=1.0)


def pairs_of(found: pa.Table) -> set[tuple[int, int]]:
    """The pairs of keys, the lower one first."""
    both = zip(found["left_key"].to_pylist(), found["right_key"].to_pylist(), strict=True)
    return {(min(pair), max(pair)) for pair in both}


def resampled_pairs(table: pa.Table, epsilon: float = EPSILON) -> set[tuple[int, int]]:
    """Each track at every second, joined on second and cell; cells are epsilon wide, and neighbours are looked at."""
    rows = pl.DataFrame(table.select(["key", "t", "x", "y"]))
    ahead = [pl.col(name).shift(-1).over("key").alias(f"{name}_next") for name in ("t", "x", "y")]
    legs = rows.lazy().with_columns(*ahead).filter(pl.col("t_next") - pl.col("t") <= int(GAP * 1e6))
    second, next_second = (pl.col(name) / 1e6 for name in ("t", "t_next"))
    share = (pl.col("s") - second) / (next_second - second)
    points = (
        legs.with_columns(
            pl.int_ranges(second.ceil().cast(pl.Int64), next_second.floor().cast(pl.Int64) + 1).alias("s")
        )
        .explode("s")
        .drop_nulls("s")
        .with_columns(
            (pl.col("x") + share * (pl.col("x_next") - pl.col("x"))).alias("x"),
            (pl.col("y") + share * (pl.col("y_next") - pl.col("y"))).alias("y"),
        )
        .with_columns(
            (pl.col("x") / epsilon).floor().cast(pl.Int32).alias("cx"),
            (pl.col("y") / epsilon).floor().cast(pl.Int32).alias("cy"),
        )
        .select("key", "s", "x", "y", "cx", "cy")
        .collect()
    )
    found: list[pl.DataFrame] = []
    for across, along in ((0, 0), (1, -1), (1, 0), (1, 1), (0, 1)):
        beside = points.lazy().with_columns(pl.col("cx") - across, pl.col("cy") - along)
        near = points.lazy().join(beside, on=["s", "cx", "cy"])
        square = (pl.col("x") - pl.col("x_right")) ** 2 + (pl.col("y") - pl.col("y_right")) ** 2
        near = near.filter((square <= epsilon**2) & (pl.col("key") != pl.col("key_right")))
        low, high = pl.min_horizontal("key", "key_right"), pl.max_horizontal("key", "key_right")
        found.append(near.select(low.alias("low"), high.alias("high")).unique().collect())
    return set(pl.concat(found).unique().iter_rows())


def against_others(table: pa.Table, folder: Path) -> dict[str, float | None]:
    """The same pairs by others."""
    rows = timely(table)
    ours, theirs = least(lambda: met(rows), lambda: resampled_pairs(table))
    found = pairs_of(met(rows))
    resampled = resampled_pairs(table)
    if resampled - found:
        raise RuntimeError(f"resampling finds pairs that we do not: {sorted(resampled - found)[:5]}")
    say(f"{len(found)} pairs in {ours:.3f} s; resampled {len(resampled)} in {theirs:.3f} s")
    figures: dict[str, float | None] = {
        "vs_resample_join": theirs / ours,
        "encounters_missed_by_resampling": len(found - resampled),
        "encounters_missed_at_100_m": len(pairs_of(met(rows, _CLOSE)) - resampled_pairs(table, _CLOSE)),
    }
    pq.write_table(table, folder / "rows.parquet")
    meos = aside("meos", folder / "rows.parquet", EPSILON, GAP)
    if meos is not None:
        say(f"PyMEOS {len(meos['pairs'])} pairs in {meos['seconds']:.3f} s")
        if {tuple(pair) for pair in meos["pairs"]} != found:
            raise RuntimeError("PyMEOS finds other pairs")
    figures["vs_meos"] = None if meos is None else meos["seconds"] / ours
    return figures | _against_traffic(table, folder)


def _against_traffic(table: pa.Table, folder: Path) -> dict[str, float | None]:
    """An hour of it; its answer is about rows resampled to a second, so it may lack some of ours."""
    t = table["t"].to_numpy()
    begin = int(t.min()) // 3_600_000_000 * 3_600_000_000 + 3 * 3_600_000_000
    hour = table.filter(pa.array((t >= begin) & (t < begin + 3_600_000_000)))
    rows = timely(hour)
    (ours,) = least(lambda: met(rows))
    pq.write_table(hour, folder / "hour.parquet")
    theirs = aside("traffic_cpa", folder / "hour.parquet", EPSILON)
    if theirs is not None:
        found, known = {tuple(pair) for pair in theirs["pairs"]}, pairs_of(met(rows))
        say(f"an hour: ours {len(known)} pairs in {ours:.3f} s, traffic {len(found)} in {theirs['seconds']:.1f} s")
        if len(found & known) < 0.9 * len(found):
            raise RuntimeError(f"traffic finds other pairs: {sorted(found - known)[:5]}")
    return {"vs_traffic_cpa": None if theirs is None else theirs["seconds"] / ours}


def against_points(table: pa.Table) -> dict[str, float | None]:
    """With motion and without."""
    rows = timely(table)
    figures: dict[str, float | None] = {}
    exact, normal, earth = ap.Exact("x", "y"), ap.Gaussian("x", "y", sigma=50.0), ap.Position("lat", "lon")
    models: dict[str, Any] = {"": exact, "_sigma": normal, "_earth": earth}
    for name, value in models.items():
        stream = ap.Stream(rows, key="key", time="t", value=value)
        asked: dict[str, Any] = {"epsilon": EPSILON, "probability": 0.9}
        legs, plain = least(
            partial(ap.encounters, replace(stream, motion=ap.Straight(GAP)), **asked),
            partial(ap.self_join, stream, window=ap.TimeWindow(1e-6), different="key", **asked),
        )
        say(f"{value}: legs {legs:.3f} s, points {plain:.3f} s")
        figures[f"legs_of_points{name}"] = legs / plain
    return figures


def on_spark(spark: SparkSession, table: pa.Table, folder: Path, copies: int) -> dict[str, float | None]:
    """Days beside each other, in order of time, as groups; against an operator that counts rows by key."""
    from benchmarks.recipes import counted

    days = [timely(table).append_column("day", pa.array(np.full(len(table), day))) for day in range(copies)]
    rows = pa.concat_tables(days).sort_by("t").rename_columns({"t": "ts"})
    source = write_stream(folder / "in", rows.select(["key", "ts", "x", "y", "day"]), 4)

    def ours() -> Any:
        value, motion = ap.Exact("x", "y"), ap.Straight(GAP)
        stream = ap.Stream(read_stream(spark, source), "key", "ts", value, motion=motion, partition_by="day")
        return ap.encounters(stream, epsilon=EPSILON, probability=1.0)

    def theirs() -> Any:
        return counted(read_stream(spark, source), "key", "ts", 2)

    seconds: dict[str, list[float]] = {"ours": [], "empty": []}
    for k in range(3):
        for name, make in (("ours", ours), ("empty", theirs)):
            seconds[name].append(sum(timed(make(), folder / f"{name}-{k}").batches[1:]))
    taken = {name: min(some) for name, some in seconds.items()}
    say(f"Spark, {len(rows):,} rows: ours {taken['ours']:.1f} s, an operator that counts {taken['empty']:.1f} s")
    return {"spark_of_empty": taken["empty"] / taken["ours"]}


def main() -> None:
    """Run the parts asked for."""
    given = arguments(__doc__ or "")
    only = set((given.only or "others,points,spark").split(","))
    table = day()
    figures: dict[str, float | None] = {}
    with scratch() as folder:
        if "others" in only:
            figures |= against_others(table, folder)
        if "points" in only:
            figures |= against_points(table)
        if "spark" in only:
            spark = ap.session(2)
            figures |= on_spark(spark, table, folder, _SPARK_COPIES[bool(given.quick)])
            spark.stop()
    report(figures, as_json=given.json)


if __name__ == "__main__":
    main()
