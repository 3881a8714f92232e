"""Standing queries: our index, those of others, and the paper's, on the same rows and queries.

Figures (``vs_`` is peer time / our time, ``of_`` our throughput / the reference's); all answers are checked first:

* ``vs_strtree, vs_ibs, vs_duckdb, vs_polars``: 1,000,000 ranges over two attributes, about 10 matches a row, rows in
  batches of 10,000, one core: shapely's STRtree in bulk, an IBS tree compiled, DuckDB's range join; and Polars'
  join_where on as many as it takes.
* ``four_attributes_vs_best``: the same over four attributes, against the best of them.
* ``window_vs_ibs``: queries over the windows of two streams: the paper's baseline, one shared join for each join
  predicate and an IBS tree behind it, compiled / ours.
* ``query_growth``: our cost per row with 1,000,000 queries / with 10,000, as many matches a row.
* ``bytes_per_query``: what a query over two attributes takes beyond its text.
* ``spark_of_pass``: rows a second through 100,000 fences, about half a match a row / through a mapInArrow that passes
  them on. ``spark_vs_strtree``: time of a pandas UDF with an STRtree that Spark broadcasts / ours.

Ours takes Arrow columns and gives pairs of row and query, keys made on the way; queries are given as SQL text.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import appulse as ap
from benchmarks.harness import arguments, report, say, scratch
from benchmarks.ibs import IBS
from benchmarks.query_claims import measure
from benchmarks.query_ours import NAMES, Ours, OurWindows, agreed, agreed_windows, ordered
from benchmarks.query_rivals import DuckDB, Polars, STRtree, broadcast_tree
from benchmarks.query_sets import join_queries, range_queries, rows
from benchmarks.spatial_join_cq import SharedJoinIBS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from benchmarks.query_sets import BoxQueries, JoinQueries

    Matrix = NDArray[np.float64]
    Ints = NDArray[np.int64]

PARTS = ("selection", "four", "windows", "growth", "spark", "claims")
QUERIES = 1_000_000
BATCH = 10_000
LONG = 1.0  # seconds: a call that takes longer is called again with a quarter of the rows, others with all of them
JUMP = 4.0  # laps of one contestant that differ by more than this are no measurement


def per_row(match: Callable[[Matrix], Any], batches: list[Matrix]) -> float:
    """Seconds a row: the median of some batches."""
    seconds = []
    for batch in batches:
        begun = time.perf_counter()
        match(batch)
        seconds.append((time.perf_counter() - begun) / len(batch))
    return median(seconds)


def laps(match: Callable[[Matrix], Any], batches: list[Matrix], first: float) -> float:
    """Seconds a row of a warm contestant: the median of its laps, the first of which was timed as it was checked."""
    slow = first * len(batches[0]) >= LONG
    again = [batch[: max(1, len(batch) // 4)] for batch in batches[:2]] if slow else batches[:3]
    costs = [first, *(per_row(match, [batch]) for batch in again)]
    if max(costs) > JUMP * min(costs):
        shown = ", ".join(f"{cost * 1e9:,.0f}" for cost in costs)
        raise RuntimeError(f"The laps differ too much to say anything: {shown} ns a row. Run it on an idle machine.")
    return median(costs)


def selection(d: int, *, quick: bool) -> dict[str, float]:
    """Time of each contestant / ours, by name."""
    queries = range_queries(QUERIES, d, 10.0, 1)
    batches = [rows(BATCH, d, seed) for seed in range(2, 5 if quick else 10)]
    # Slow ones get fewer rows: what they cost a row does not depend on how many there are.
    rivals: dict[str, tuple[Callable[[BoxQueries], Any], int]] = {
        "strtree": (STRtree, BATCH),
        "ibs": (IBS, 200),
        "duckdb": (DuckDB, BATCH),
        "polars": (Polars, BATCH),
    }
    begun = time.perf_counter()
    with ThreadPoolExecutor(2) as pool:  # what is built beforehand is not timed
        built = {name: pool.submit(make, queries) for name, (make, _) in rivals.items()}
        ours = Ours(queries)
    say(f"{d} attributes: built in {time.perf_counter() - begun:.0f} s")
    ours.match(batches[0])
    expected = ordered(ours.match(batches[0]), QUERIES)
    mine = per_row(ours.match, batches)
    say(f"{d} attributes: ours {mine * 1e9:.0f} ns a row, {len(expected) / BATCH:.1f} matches a row")
    out = {}
    for name, (_, most) in rivals.items():
        peer = built[name].result()
        few = batches[0][:most]
        peer.match(few[:1])  # compiled and loaded before it is timed
        begun = time.perf_counter()
        found = peer.match(few)
        cost = (time.perf_counter() - begun) / len(few)
        agreed(name, ordered(found, QUERIES), expected[expected < most * QUERIES])
        cost = laps(peer.match, [batch[:most] for batch in batches], cost)
        out[name] = cost / mine
        say(f"  {name}: {cost * 1e9:.0f} ns a row, {out[name]:.1f} of ours")
    return out


def window_case(n: int, queries: int, window: int) -> tuple[JoinQueries, Matrix, Ints, Matrix, Ints]:
    """The paper's join queries, and two streams of a row a time each."""
    wanted = join_queries(queries, 2, 3, reach=0.3, window=window)
    return wanted, rows(n, 2, 4, levels=1000), np.arange(n), rows(n, 2, 5, levels=1000), np.arange(n)


def windows(*, quick: bool) -> dict[str, float]:
    """Time of the shared join with IBS / ours; both give triples of two rows and a query."""
    case = window_case(300 if quick else 1000, 10_000, 100)
    peer, ours = SharedJoinIBS(case[0]), OurWindows(*case)
    found = agreed_windows(peer, ours, case)
    begun = time.perf_counter()
    ours.match()
    middle = time.perf_counter()
    peer.match(*case[1:])
    end = time.perf_counter()
    say(f"windows: {found} answers; ours {middle - begun:.2f} s, shared join with IBS {end - middle:.2f} s")
    return {"window_vs_ibs": (end - middle) / (middle - begun)}


def growth() -> dict[str, float]:
    """Our cost per row with many queries / with few, and bytes a query."""
    batches = [rows(BATCH, 2, seed) for seed in range(20, 25)]
    few, many = Ours(range_queries(10_000, 2, 10.0, 6)), Ours(range_queries(QUERIES, 2, 10.0, 6))
    for one in (few, many):
        one.match(batches[0])
    costs = [per_row(one.match, batches) for one in (few, many)]
    say(f"growth: {costs[0] * 1e9:.0f} ns a row with 10,000 queries, {costs[1] * 1e9:.0f} with {QUERIES:,}")
    return {"query_growth": costs[1] / costs[0], "bytes_per_query": many.set.nbytes / QUERIES}


def through_spark(*, quick: bool) -> dict[str, float]:
    """Throughput through fences / through nothing, and / through a pandas UDF with a tree that Spark broadcasts."""
    n, fences = (2_000_000 if quick else 10_000_000), 100_000
    spark = ap.session(2)
    spark.sparkContext.setLogLevel("ERROR")
    queries = range_queries(fences, 2, 0.5, 7)
    frame = pa.table({"query": np.arange(fences), "condition": queries.conditions(NAMES[:2])})
    points = rows(n, 2, 8)
    table = pa.table(
        {
            "id": np.arange(n),
            "ts": pa.array(np.arange(n) * 1000, pa.timestamp("us", "UTC")),
            "a": points[:, 0],
            "b": points[:, 1],
        }
    )
    with scratch() as folder:
        pq.write_table(table, folder / "rows.parquet", row_group_size=n // 8)
        given = spark.read.parquet(str(folder / "rows.parquet")).repartition(4).cache()
        given.count()

        def passing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from batches

        stream = ap.Stream(given, key="id", time="ts", value=ap.Exact("a", "b"))
        matched = ap.match_queries(stream, frame)
        local = ap.match_queries(ap.Stream(table.slice(0, 1000), key="id", time="ts", value=ap.Exact("a", "b")), frame)
        by_tree = given.mapInPandas(broadcast_tree(spark, queries), "key long, query int")
        expected = sorted(zip(local["key"].to_pylist(), local["query"].to_pylist(), strict=True))
        for out in (matched, by_tree):
            few = out.where("key < 1000").select("key", "query").toArrow()
            if sorted(zip(*few.to_pydict().values(), strict=True)) != expected:
                raise RuntimeError("Spark answers otherwise than one process")
        ways = {"pass": given.mapInArrow(passing, given.schema), "match": matched, "tree": by_tree}
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        # To check them was to start workers and to read the queries.
        for _ in range(3):
            for name, out in ways.items():
                begun = time.perf_counter()
                out.write.format("noop").mode("overwrite").save()
                seconds[name].append(time.perf_counter() - begun)
    spark.stop()
    passed, took, tree = (median(seconds[name]) for name in ("pass", "match", "tree"))
    say(f"Spark: {n / took:,.0f} rows/s through {fences:,} fences, {n / passed:,.0f} rows/s passed on")
    say(f"Spark: {n / tree:,.0f} rows/s through a broadcast STRtree in a pandas UDF, {tree / took:.1f} times our time")
    return {"spark_of_pass": passed / took, "spark_vs_strtree": tree / took}


def two_attributes(*, quick: bool) -> dict[str, float]:
    """Time of each contestant / ours."""
    return {f"vs_{name}": value for name, value in selection(2, quick=quick).items()}


def four_attributes(*, quick: bool) -> dict[str, float]:
    """Time of the best contestant / ours."""
    return {"four_attributes_vs_best": min(selection(4, quick=quick).values())}


def main() -> None:
    """Measure what was asked for."""
    chosen = arguments(__doc__.splitlines()[0])
    parts = chosen.only.split(",") if chosen.only else PARTS[:-1] if chosen.quick else PARTS
    runs: dict[str, Callable[[], dict[str, float]]] = {
        "selection": partial(two_attributes, quick=chosen.quick),
        "four": partial(four_attributes, quick=chosen.quick),
        "windows": partial(windows, quick=chosen.quick),
        "growth": growth,
        "spark": partial(through_spark, quick=chosen.quick),
    }
    figures: dict[str, float] = {}
    for part in (part for part in parts if part != "claims"):
        begun = time.perf_counter()
        figures |= runs[part]()
        say(f"{part}: {time.perf_counter() - begun:.0f} s")
    if "claims" in parts:
        measure(Path(chosen.plots) if chosen.plots else None)
    report(figures, as_json=chosen.json)


if __name__ == "__main__":
    main()
