"""The similarity join on Spark Structured Streaming: against the recipe users have today, and an empty operator.

Figures (``vs_`` is peer time / our time, ``of_`` our throughput / the reference's):

* ``vs_explode_1m, vs_explode_100k``: explode grid cells and equi-join, on certain points uniform on the unit square.
* ``of_empty_narrow, of_empty_samples``: an operator that gets the same rows, row by row, and only counts them.
* ``batch_cost_growth``: cost of a batch with a window 100 times longer and the same matches, over that with 1.
* ``skew_max_over_mean``: slowest task over mean task, half of all rows in one spot, planned tiles.

With ``--count``, for count windows:

* ``of_empty_narrow, of_empty_samples``: as above, against two such operators one after the other.
* ``second_operator_ms``: what a small micro-batch takes under a count window beyond that under a time window.
* ``rss_growth``: resident memory in process after 10,000,000 rows through a window of 10,000, over that after a tenth.
"""

from __future__ import annotations

import gc
import multiprocessing
import resource
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - the usual name of this module

import appulse as ap
from appulse.engines.measured import METRICS
from appulse.engines.spark.results import result_of
from appulse.engines.spark.tagged import ANSWER, METRIC, select_tag
from benchmarks.harness import (
    arguments,
    folder_bytes,
    pairs_of,
    read_stream,
    report,
    say,
    scratch,
    timed,
    uniform_points,
    write_stream,
)

if TYPE_CHECKING:
    from argparse import Namespace

    from pyspark.sql import DataFrame, SparkSession

EPSILON = 0.002
WITHIN = 10


def stream(frame: Any, model: Any) -> ap.Stream:
    """A stream with the columns of the generated tables."""
    return ap.Stream(frame, key="id", time="ts", value=model)


def points_join(frames: list[DataFrame], epsilon: float = EPSILON, window: float = WITHIN) -> DataFrame:
    """The join of two streams of certain points."""
    left, right = frames
    point = ap.Exact("x", "y")
    result: DataFrame = ap.similarity_join(
        stream(left, point), stream(right, point), epsilon=epsilon, probability=0.5, window=ap.TimeWindow(window)
    )
    return result


def against_explode(spark: SparkSession, folder: Path, n: int, name: str) -> float:
    """Identical pairs of 2 x n points, 4 micro-batches, 400 rows a second and stream."""
    from benchmarks.recipes import explode_cells

    rng = np.random.default_rng(7)
    tables = [uniform_points(rng, n, 400.0, 1.0, i * n) for i in range(2)]
    paths = [write_stream(folder / name / str(i), table, 4) for i, table in enumerate(tables)]
    ours = timed(points_join([read_stream(spark, p) for p in paths]), folder / name / "ours")
    say(f"{name}: ours {ours.seconds:.1f} s, batches {[round(b, 2) for b in ours.batches]}")
    peer = timed(explode_cells([read_stream(spark, p) for p in paths], EPSILON, WITHIN), folder / name / "peer")
    say(f"{name}: explode-cells {peer.seconds:.1f} s, batches {[round(b, 2) for b in peer.batches]}")
    mine, theirs = [pairs_of(spark, run.out, "left_key", "right_key") for run in (ours, peer)]
    if mine != theirs or not mine:
        raise RuntimeError(f"{name}: {len(mine)} pairs against {len(theirs)} of the recipe")
    say(f"{name}: {len(mine)} identical pairs")
    return peer.seconds / ours.seconds


def gaussian_table(rng: np.random.Generator, n: int, first_key: int) -> pa.Table:
    """Points with a deviation of their own."""
    table = uniform_points(rng, n, 400.0, 1.0, first_key)
    return table.append_column("sigma", pa.array(rng.uniform(0.0001, 0.0005, n)))


def samples_table(rng: np.random.Generator, n: int, first_key: int, length: int = 100, d: int = 3) -> pa.Table:
    """Objects of ``length`` equally likely samples in a small ball in the unit cube."""
    base = uniform_points(rng, n, 400.0, 1.0, first_key).select(["id", "ts"])
    centre = rng.random((n, 1, d))
    offsets = rng.normal(size=(n, length, d))
    offsets *= 0.02 * rng.random((n, length, 1)) ** (1 / d) / np.linalg.norm(offsets, axis=2, keepdims=True)
    inner = pa.FixedSizeListArray.from_arrays(pa.array((centre + offsets).reshape(-1)), d)
    inner = inner.cast(pa.list_(pa.float64()))
    rows = pa.ListArray.from_arrays(pa.array(np.arange(n + 1, dtype=np.int32) * length), inner)
    return base.append_column("samples", rows)


def of_empty(
    spark: SparkSession, folder: Path, name: str, n: int, window: Any, operators: int = 1, repeats: int = 2
) -> float:
    """Our throughput over that of ``operators`` that count; medians of ``repeats`` alternating runs."""
    from benchmarks.recipes import empty

    rng = np.random.default_rng(11)
    if name == "narrow":
        tables = [gaussian_table(rng, n, i * n) for i in range(2)]
        model: Any = ap.Gaussian("x", "y", sigma="sigma")
        settings: dict[str, Any] = {"epsilon": EPSILON, "probability": 0.6}
    else:
        tables = [samples_table(rng, n, i * n) for i in range(2)]
        model = ap.Samples("samples", names=("x", "y", "z"))
        settings = {"epsilon": 0.04, "probability": 0.5}
    paths = [write_stream(folder / name / str(i), table, 4) for i, table in enumerate(tables)]
    seconds: dict[str, list[float]] = {"ours": [], "empty": []}
    for repeat in range(repeats):
        frames = [read_stream(spark, path) for path in paths]
        result = ap.similarity_join(*[stream(f, model) for f in frames], window=window, **settings)
        for who, frame in (("ours", result), ("empty", empty(result, frames, operators))):
            run = timed(frame, folder / name / f"{who}{repeat}")
            seconds[who].append(run.seconds)
            say(f"{name}: {who} {run.seconds:.1f} s, batches {[round(b, 2) for b in run.batches]}")
    _check_against_local(spark, tables, model, {**settings, "window": window}, folder / name / "ours0" / "out")
    return median(seconds["empty"]) / median(seconds["ours"])


def _check_against_local(
    spark: SparkSession, tables: list[pa.Table], model: Any, settings: dict[str, Any], out: Path
) -> None:
    if isinstance(settings["window"], ap.TimeWindow):
        expected = ap.similarity_join(*[stream(t, model) for t in tables], **settings)
    else:  # without a drain the ticks that are not complete are held, here and there
        join = ap.SimilarityJoin(stream(None, model), stream(None, model), **settings)
        expected = join.push(left=tables[0], right=tables[1])
    wanted = set(zip(expected["left_key"].to_pylist(), expected["right_key"].to_pylist(), strict=True))
    found = pairs_of(spark, out, "left_key", "right_key")
    if found != wanted:
        raise RuntimeError(f"{len(found)} pairs on Spark, {len(wanted)} in process")
    say(f"{len(found)} pairs, as in process")


def second_operator_ms(spark: SparkSession, folder: Path, rows: int, batches: int) -> float:
    """Median small micro-batch under a count window less that under a time window, in ms; median of three pairs."""
    rng = np.random.default_rng(19)
    tables = [uniform_points(rng, rows * batches, 400.0, 1.0, i * rows * batches) for i in range(2)]
    paths = [write_stream(folder / "second" / str(i), table, batches) for i, table in enumerate(tables)]
    point = ap.Exact("x", "y")
    differences = []
    for repeat in range(4):
        millis: dict[str, float] = {}
        for who, window in (("time", ap.TimeWindow(WITHIN)), ("count", ap.CountWindow(4000))):
            frames = [read_stream(spark, path) for path in paths]
            result = ap.similarity_join(
                *[stream(f, point) for f in frames], epsilon=EPSILON, probability=0.5, window=window
            )
            run = timed(result, folder / "second" / f"{who}{repeat}")
            millis[who] = 1000 * median(run.batches[2:])
            say(f"second operator: {who} window, batches {[round(b, 2) for b in run.batches]}")
        if repeat:  # the first pair warms up
            differences.append(millis["count"] - millis["time"])
    return median(differences)


def rss_growth(rows: int, window: int) -> float:
    """Resident memory after ``rows`` rows, over that after a tenth of them, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        early, late, pairs, seconds = pool.apply(_memory_of_a_run, (rows, window))
    say(f"in process: {rows} rows in {seconds:.0f} s, {pairs} pairs; {early / 1e6:.0f} MB, then {late / 1e6:.0f} MB")
    return late / early


def _memory_of_a_run(rows: int, window: int) -> tuple[int, int, int, float]:
    rng = np.random.default_rng(23)
    join = ap.SimilarityJoin(
        stream(None, ap.Exact("x", "y")),
        stream(None, ap.Exact("x", "y")),
        epsilon=EPSILON,
        probability=0.5,
        window=ap.CountWindow(window),
    )
    size, early, pairs, begun = 5_000, 0, 0, time.perf_counter()
    for i in range(rows // (2 * size)):
        table = uniform_points(rng, 2 * size, 400.0, 1.0, i * 2 * size)
        shifted = table["ts"].cast(pa.int64()).to_numpy() + i * size * 2_500
        table = table.set_column(1, "ts", pa.array(shifted).cast(pa.timestamp("us", "UTC")))
        pairs += len(join.push(left=table.slice(0, size), right=table.slice(0, 0).cast(table.schema)))
        pairs += len(join.push(right=table.slice(size).set_column(1, "ts", table["ts"].slice(0, size))))
        if (i + 1) * 2 * size == rows // 10:
            early = _resident()
    return early, _resident(), pairs, time.perf_counter() - begun


def _resident() -> int:
    """Resident memory of this process, in bytes."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def batch_cost_growth(spark: SparkSession, folder: Path, rows: int, batches: int) -> float:
    """The plane grows with the window, so that a row meets as many others; the last batches see full windows."""
    rng = np.random.default_rng(13)
    cost, found = [], []
    for factor in (1, 100):
        name = f"growth{factor}"
        side = float(np.sqrt(factor))
        rate = 10_000.0  # a second and stream: windows of 0.5 s and 50 s
        tables = [uniform_points(rng, rows * batches, rate, side, i * rows * batches) for i in range(2)]
        paths = [write_stream(folder / name / str(i), table, batches) for i, table in enumerate(tables)]
        frames = [read_stream(spark, path) for path in paths]
        run = timed(points_join(frames, epsilon=0.005, window=0.5 * factor), folder / name / "ours")
        full = tables[0]["ts"][rows * (batches - 4)].as_py()  # when the last four batches begin
        answers = spark.read.parquet(str(run.out)).where(F.greatest("left_time", "right_time") >= F.lit(full))
        found.append(answers.count())
        cost.append(median(run.batches[-4:]))
        size = folder_bytes(run.out.parent / "checkpoint") / 1e6
        arrived = rows * batches * 2 * 32 / 1e6  # 32 bytes a row travel
        say(f"window x{factor}: {found[-1]} pairs, batches {[round(b, 2) for b in run.batches]}")
        say(f"window x{factor}: checkpoint {size:.0f} MB after {arrived:.0f} MB of arrivals")
    if not 0.8 < found[0] / found[1] < 1.25:
        raise RuntimeError(f"the two windows are to have about the same matches, they have {found}")
    return cost[1] / cost[0]


def skew(spark: SparkSession, folder: Path, n: int, partitions: int) -> float:
    """Slowest tile over the mean one, in seconds of its task, half of all rows within one spot."""
    rng = np.random.default_rng(17)
    tables = []
    for i in range(2):
        table = uniform_points(rng, n, 400.0, 1.0, i * n)
        spot = rng.random(n) < 0.5
        for k, column in ((2, "x"), (3, "y")):
            values = np.where(spot, 0.5 + rng.normal(0, 5 * EPSILON, n), table[column].to_numpy())
            table = table.set_column(k, column, pa.array(values))
        tables.append(table)
    paths = [write_stream(folder / "skew" / str(i), table, 4) for i, table in enumerate(tables)]
    sample = {
        name: table.take(pa.array(np.sort(rng.choice(n, n // 20, replace=False))))
        for name, table in zip(("left", "right"), tables, strict=True)
    }
    point = ap.Exact("x", "y")
    before = spark.conf.get("spark.sql.shuffle.partitions") or "2"
    spark.conf.set("spark.sql.shuffle.partitions", partitions)
    settings: dict[str, Any] = {"epsilon": EPSILON, "probability": 0.5, "window": ap.TimeWindow(WITHIN)}
    seconds = {}
    try:
        for name, options in (
            ("planned", ap.Options(partitions=partitions, sample=sample)),
            ("hashed", ap.Options(partitions=partitions)),
        ):
            frames = [read_stream(spark, path) for path in paths]
            result = ap.similarity_join(*[stream(f, point) for f in frames], options=options, **settings)
            tagged = result_of(result).rows
            run = timed(tagged, folder / "skew" / name)
            seconds[name] = _tile_seconds(spark, run.out)
            rows = select_tag(spark.read.parquet(str(run.out)), ANSWER).count()
            say(f"skew, {name} tiles: {rows} pairs, seconds by tile {[round(s, 2) for s in seconds[name]]}")
            expected = ap.similarity_join(*[stream(t, point) for t in tables], **settings)
            if rows != len(expected):
                raise RuntimeError(f"{rows} pairs on Spark, {len(expected)} in process")
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
    ratios = {name: max(parts) / (sum(parts) / partitions) for name, parts in seconds.items()}
    say(f"skew, max over mean: {ratios}")
    return ratios["planned"]


def _tile_seconds(spark: SparkSession, out: Path) -> list[float]:
    """Seconds of each tile, over all micro-batches."""
    tile, seconds = (F.col(METRIC)[METRICS.index(name)] for name in ("tile", "seconds"))
    metrics = spark.read.parquet(str(out)).where(F.col("tag") == METRIC)
    return sorted(float(row[1]) for row in metrics.groupBy(tile).agg(F.sum(seconds)).collect())


def main() -> None:
    """Run the parts asked for, and report."""
    asked = arguments(__doc__ or "")
    spark = ap.session(2)
    with scratch() as folder:
        run = count_windows if asked.count else time_windows
        report(run(spark, folder, asked), as_json=asked.json)


def time_windows(spark: SparkSession, folder: Path, asked: Namespace) -> dict[str, float]:
    """The figures of time windows."""
    quick, window = asked.quick, ap.TimeWindow(WITHIN)
    parts = set(asked.only.split(",")) if asked.only else {"explode", "empty", "growth", "skew"}
    figures: dict[str, float] = {}
    if "explode" in parts:
        against_explode(spark, folder, 5_000, "warm-up")
        figures["vs_explode_1m"] = against_explode(spark, folder, 1_000_000, "1m")
        figures["vs_explode_100k"] = against_explode(spark, folder, 100_000, "100k")
    if "empty" in parts:
        of_empty(spark, folder / "warm-up", "narrow", 5_000, window, repeats=1)
        figures["of_empty_narrow"] = of_empty(spark, folder, "narrow", 400_000 if quick else 1_000_000, window)
        of_empty(spark, folder / "warm-up", "samples", 1_000, window, repeats=1)
        figures["of_empty_samples"] = of_empty(spark, folder, "samples", 40_000 if quick else 100_000, window)
    if "growth" in parts:
        figures["batch_cost_growth"] = batch_cost_growth(spark, folder, 50_000, 16 if quick else 24)
    if "skew" in parts:
        figures["skew_max_over_mean"] = skew(spark, folder, 100_000 if quick else 400_000, 8)
    return figures


def count_windows(spark: SparkSession, folder: Path, asked: Namespace) -> dict[str, float]:
    """The figures of count windows."""
    quick, window = asked.quick, ap.CountWindow(4000)
    parts = set(asked.only.split(",")) if asked.only else {"empty", "second", "memory"}
    figures: dict[str, float] = {}
    if "empty" in parts:
        of_empty(spark, folder / "warm-up", "narrow", 5_000, window, 2, 1)
        figures["of_empty_narrow"] = of_empty(spark, folder, "narrow", 400_000 if quick else 1_000_000, window, 2)
        of_empty(spark, folder / "warm-up", "samples", 1_000, window, 2, 1)
        figures["of_empty_samples"] = of_empty(spark, folder, "samples", 40_000 if quick else 100_000, window, 2)
    if "second" in parts:
        figures["second_operator_ms"] = second_operator_ms(spark, folder, 1_000, 14 if quick else 30)
    if "memory" in parts:
        figures["rss_growth"] = rss_growth(10_000_000, 10_000)
    return figures


if __name__ == "__main__":
    main()
