"""Where people meet the library first: whole tables in one call, all cores, and a few rows at a time.

    python -m benchmarks.bulk --quick --json

Points are uniform over a square (a line, a cube), 10 a unit unless a figure says otherwise, within 0.3 of each other.
Every contestant makes a table of the keys of the same pairs, from tables of its own; ours carries times, distances and
probabilities, too. Times are medians of processor time on one thread, which other work on the machine hardly moves,
after a first run of each: of five runs, or three if these take a second or more.

* ``bulk_vs_best``: the best contestant's time over ours, 2 x 500,000 points on a square, time windows of 2 % and of
  everything: the worse of the two. Contestants: DuckDB, joined on cells by hand, SciPy's ``sparse_distance_matrix`` of
  two k-d trees, SedonaDB.
* ``bulk_vs_best_min``: the least of the same over 1, 10 and 100 points a unit and 1 to 3 dimensions, 2 x 200,000
  points, and partners of each in that measure.
* ``bulk_gaussian_of_exact``: our time with normal errors over our time with exact points.
* ``two_threads``: the time of one thread over that of two, by the wall. ``two_threads_of_copies`` is the same of two
  copies of 8 MB by NumPy, which shows what the machine's memory allows.
* ``rss_of_window``: the peak memory of a process that joins two tables of ten windows of 500,000 rows from files by
  ``ap.stream_batches``, over that of one that joins tables of one.
* ``spark_batch_vs_sedona``: on Spark, 2 x 1,000,000 points of a unit square, 400 a second, within 0.002 and 10 seconds,
  from Parquet to Parquet: Sedona's seconds, with time slots folded into x, over ours; by the wall, the best of two runs
  after a first one.
* ``texts_of_numbers``, by ``--only keys``: our time with texts as keys over our time with whole numbers: two whole
  tables, pushes of 65,536 rows and of one row, the worst of the three.
* ``push_20_us``, ``pushes_per_second``, ``push_p99_over_p50``: a join by hand that holds 10,000 rows: microseconds of a
  push of 20 rows, pushes of one row a second, and how much longer the slowest in a hundred takes.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import gc
import itertools
import json
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.spatial import cKDTree

import appulse as ap
from appulse.model.workers import Workers
from benchmarks.aside import Beside, aside
from benchmarks.harness import arguments, report, say, scratch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

_EPSILON, _SPAN = 0.3, 1000.0  # seconds from the first row to the last
_RUNS, _FEWEST, _ENOUGH = 5, 3, 1.0  # seconds
_WINDOW = 500_000  # rows of a stream in a window, where memory is measured
Figures = dict[str, float | None]


@dataclass(frozen=True)
class Case:
    """Two tables of points, and how far apart in time they may be."""

    left: pa.Table
    right: pa.Table
    d: int
    window: float
    epsilon: float = _EPSILON

    @property
    def names(self) -> list[str]:
        return ["x", "y", "z"][: self.d]


def points(n: int, d: int, density: float, seed: int) -> pa.Table:
    """So many points, ``density`` of them in each unit of length, area or volume."""
    chance, side = np.random.default_rng(seed), (n / density) ** (1.0 / d)
    places = {name: chance.random(n) * side for name in ("x", "y", "z")[:d]}
    return pa.table({"k": np.arange(n), "t": np.sort(chance.uniform(0.0, _SPAN, n))} | places)


def join(case: Case, *, sigma: float | None = None, threads: int | None = 1) -> pa.Table:
    """Ours."""
    value = ap.Exact(*case.names) if sigma is None else ap.Gaussian(*case.names, sigma=sigma)
    streams = [ap.Stream(table, key="k", time="t", value=value) for table in (case.left, case.right)]
    least, options = (1.0 if sigma is None else 0.5), ap.Options(threads=threads)
    return ap.similarity_join(*streams, epsilon=case.epsilon, probability=least, window=case.window, options=options)


def cells(database: duckdb.DuckDBPyConnection, case: Case) -> pa.Table:
    """DuckDB: one table's rows in their cells, the other's in all around, joined where these are equal."""
    at = [f"floor({name} / {case.epsilon})::int" for name in case.names]
    own = ", ".join(f"{cell} AS c{k}" for k, cell in enumerate(at))
    around = ", ".join(f"{cell} + s{k} AS c{k}" for k, cell in enumerate(at))
    steps = "".join(f", (VALUES (-1), (0), (1)) v{k}(s{k})" for k in range(case.d))
    square = " + ".join(f"(l.{name} - r.{name}) * (l.{name} - r.{name})" for name in case.names)
    return database.sql(
        f"""
        WITH l AS (SELECT *, {own} FROM a), r AS (SELECT b.*, {around} FROM b{steps})
        SELECT l.k AS l, r.k AS r FROM l JOIN r USING ({", ".join(f"c{k}" for k in range(case.d))})
        WHERE {square} <= {case.epsilon * case.epsilon!r} AND abs(l.t - r.t) <= {case.window}
        """  # noqa: S608 - all of it is ours
    ).to_arrow_table()


def trees(case: Case) -> pa.Table:
    """SciPy: two trees, built anew, and the pairs within the window."""
    one, other = (np.column_stack([table[n].to_numpy() for n in case.names]) for table in (case.left, case.right))
    found = cKDTree(one).sparse_distance_matrix(cKDTree(other), case.epsilon, output_type="ndarray")
    left, right = found["i"], found["j"]
    near = np.abs(case.left["t"].to_numpy()[left] - case.right["t"].to_numpy()[right]) <= case.window
    keys = (table["k"].to_numpy()[at[near]] for table, at in ((case.left, left), (case.right, right)))
    return pa.table(list(keys), ["l", "r"])


def spent(call: Callable[[], Any]) -> float:
    """The median seconds of processor time, of all threads."""
    took: list[float] = []
    gc.collect()
    gc.freeze()  # so that no collection between runs looks at all that there is: it would take longer than most runs
    while len(took) < _FEWEST or (len(took) < _RUNS and sum(took) < _ENOUGH):
        gc.collect()
        begun = time.process_time()
        call()
        took.append(time.process_time() - begun)
    gc.unfreeze()
    return statistics.median(took)


def pairs_of(table: pa.Table, left: str, right: str) -> NDArray[np.int64]:
    """The pairs of keys, in order."""
    pairs: NDArray[np.int64] = np.sort(table[left].to_numpy() * (1 << 32) + table[right].to_numpy())
    return pairs


def against(case: Case, folder: Path | None) -> float:
    """The best contestant's time over ours; with a ``folder`` SedonaDB is among them."""
    database = duckdb.connect()
    database.execute("SET threads = 1")
    for name, table in (("a", case.left), ("b", case.right)):
        database.register("given", table)
        database.execute(f"CREATE TABLE {name} AS SELECT * FROM given")  # noqa: S608 - all of it is ours
    rivals: dict[str, Callable[[], pa.Table]] = {
        "DuckDB": partial(cells, database, case),
        "cKDTree": partial(trees, case),
    }
    own = join(case)
    expected = pairs_of(own, "left_key", "right_key")
    took = {}
    for name, call in rivals.items():
        if not np.array_equal(pairs_of(call(), "l", "r"), expected):
            raise RuntimeError(f"{name} finds other pairs")
        took[name] = spent(call)
    if folder is not None:
        for name, table in (("left", case.left), ("right", case.right)):
            pq.write_table(table, folder / f"{name}.parquet")
        paths = [folder / f"{name}.parquet" for name in ("left", "right")]
        other = aside("sedonadb_pairs", *paths, case.epsilon, case.window, 1, 3)
        if other is not None:
            if (other["pairs"], other["total"]) != (len(own), _sum_of(own)):
                raise RuntimeError("SedonaDB finds other pairs")
            took["SedonaDB"] = other["seconds"]
    ours = spent(partial(join, case))
    shown = ", ".join(f"{name} {seconds:.3f}" for name, seconds in took.items())
    say(f"{case.d} d, window {case.window:g}, {len(own):,} pairs: ours {ours:.3f} s; {shown}")
    return min(took.values()) / ours


def _sum_of(table: pa.Table) -> int:
    """As the script of SedonaDB has it."""
    left, right = (table[name].to_numpy().astype(np.uint64) for name in ("left_key", "right_key"))
    return int((left * np.uint64(2654435761) ^ right * np.uint64(40503)).sum(dtype=np.uint64))


def whole_tables(folder: Path) -> Figures:
    """Two large tables of exact points."""
    left, right = points(500_000, 2, 10.0, 0), points(500_000, 2, 10.0, 1)
    cases = [Case(left, right, 2, window) for window in (0.02 * _SPAN, 2.0 * _SPAN)]
    return {"bulk_vs_best": min(against(case, folder) for case in cases)}


def densities() -> Figures:
    """Few and many partners, along one to three coordinates; everything is in the window."""
    ratios = []
    for d, density in itertools.product((1, 2, 3), (1.0, 10.0, 100.0)):
        # As many partners as at that density on a square.
        epsilon = _EPSILON if d == 2 else (np.pi * _EPSILON**2 / (2.0 if d == 1 else 4.0 / 3.0 * np.pi)) ** (1.0 / d)
        left, right = points(200_000, d, density, 0), points(200_000, d, density, 1)
        ratios.append(against(Case(left, right, d, 2.0 * _SPAN, float(epsilon)), None))
        say(f"density {density:g}: {ratios[-1]:.2f}")
    return {"bulk_vs_best_min": min(ratios)}


def errors() -> Figures:
    """Normal errors beside exact points."""
    case = Case(points(500_000, 2, 10.0, 0), points(500_000, 2, 10.0, 1), 2, 2.0 * _SPAN)
    took = []
    for sigma in (None, 0.05):
        join(case, sigma=sigma)
        took.append(spent(partial(join, case, sigma=sigma)))
    say(f"exact {took[0]:.3f} s, normal {took[1]:.3f} s")
    return {"bulk_gaussian_of_exact": took[1] / took[0]}


def threads() -> Figures:
    """One thread and two, taking turns; the same bytes."""
    case = Case(points(500_000, 2, 10.0, 0), points(500_000, 2, 10.0, 1), 2, 2.0 * _SPAN)
    if not join(case).equals(join(case, threads=2)):
        raise RuntimeError("two threads answer in other bytes than one")
    arrays = [(np.ones(1 << 20), np.ones(1 << 20)) for _ in range(2)]

    def copied(pair: tuple[NDArray[np.float64], NDArray[np.float64]]) -> None:
        for _ in range(32):
            np.copyto(*pair)

    calls: dict[str, Callable[[int], object]] = {
        "two_threads": lambda many: join(case, threads=many),
        "two_threads_of_copies": lambda many: Workers(many).map(copied, arrays),
    }
    took: dict[tuple[str, int], list[float]] = {(name, many): [] for name in calls for many in (1, 2)}
    for _ in range(9):
        for (name, many), times in took.items():
            begun = time.perf_counter()
            calls[name](many)
            times.append(time.perf_counter() - begun)
    best = {each: min(times) for each, times in took.items()}
    say(f"one thread {best['two_threads', 1]:.3f} s, two {best['two_threads', 2]:.3f} s")
    return {name: best[name, 1] / best[name, 2] for name in calls}


def on_spark(folder: Path) -> Figures:
    """Whole tables on Spark, ours and Sedona, each with two cores."""
    n, epsilon, window = 1_000_000, 0.002, 10.0
    paths = [folder / f"{name}.parquet" for name in ("one", "other")]
    for seed, path in enumerate(paths):
        chance = np.random.default_rng(seed)
        t = np.sort(chance.uniform(0.0, n / 400.0, n))
        columns = {"k": np.arange(n), "t": t, "x": chance.random(n), "y": chance.random(n)}
        pq.write_table(pa.table(columns), path)
    other = Beside("sedona_pairs", *paths, folder / "theirs", epsilon, window, 2)
    spark, took = ap.session(2), list[float]()
    other.wait()
    for _ in range(3):
        begun = time.perf_counter()
        streams = [ap.Stream(spark.read.parquet(str(p)), key="k", time="t", value=ap.Exact("x", "y")) for p in paths]
        answers = ap.similarity_join(*streams, epsilon=epsilon, probability=1.0, window=window)
        answers.write.mode("overwrite").parquet(str(folder / "ours"))
        took.append(time.perf_counter() - begun)
    spark.stop()
    found = other.result()
    if found is None:
        return {"spark_batch_vs_sedona": None}
    own, theirs = pq.read_table(folder / "ours"), pq.read_table(folder / "theirs")
    if not np.array_equal(pairs_of(own, "left_key", "right_key"), pairs_of(theirs, "l", "r")):
        raise RuntimeError("Sedona finds other pairs")
    say(f"Spark, {len(own):,} pairs: ours {min(took[1:]):.2f} s, Sedona {found['seconds']:.2f} s")
    return {"spark_batch_vs_sedona": found["seconds"] / min(took[1:])}


def memory(folder: Path) -> Figures:
    """A table of one window of rows, and one of ten, from files to nowhere."""
    peaks = []
    for windows in (1, 10):
        where = folder / f"of {windows}"
        for name in ("left", "right"):
            (where / name).mkdir(parents=True)
            for i in range(windows):
                rows = points(_WINDOW, 2, 10.0, 10 * i + (name == "right"))
                times = np.sort(rows["t"].to_numpy()) + _SPAN * i
                pq.write_table(rows.set_column(1, "t", pa.array(times)), where / name / f"{i:02}.parquet")
        command = [sys.executable, "-m", "benchmarks.bulk_memory", str(where), str(_SPAN)]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found = json.loads(printed.splitlines()[-1])
        say(f"{windows} windows: {found['pairs']:,} pairs, {found['peak'] / 1e6:.0f} MB")
        peaks.append(found["peak"])
    return {"rss_of_window": peaks[1] / peaks[0]}


def as_it_is(table: pa.Table) -> pa.Table:
    """The same rows."""
    return table


def by_hand(n: int, kind: Callable[[pa.Table], pa.Table] = as_it_is) -> ap.SimilarityJoin:
    """A join that holds so many rows a stream, of some ``kind``, and goes on holding as many."""
    streams = [ap.Stream(None, key="k", time="t", value=ap.Exact("x", "y"), name=name) for name in "ab"]
    held = ap.SimilarityJoin(*streams, epsilon=_EPSILON, probability=1.0, window=n / 1000.0)
    held.push(**{name: kind(_rows(0, n, seed)) for seed, name in enumerate("ab")})
    return held


def _rows(first: int, n: int, seed: int) -> pa.Table:
    """Rows a millisecond apart."""
    chance = np.random.default_rng((first, seed))
    at = np.arange(first, first + n)
    return pa.table({"k": at, "t": at / 1000.0, "x": chance.random(n) * 32.0, "y": chance.random(n) * 32.0})


def pushes(times: int) -> Figures:
    """A few rows at a time."""
    held, taken = by_hand(10_000), []
    for i in range(times):
        pushed = {name: _rows(10_000 + 10 * i, 10, seed) for seed, name in enumerate("ab")}
        begun = time.perf_counter()
        held.push(**pushed)
        taken.append(time.perf_counter() - begun)
    one, single = by_hand(10_000), []
    for i in range(2 * times):
        name = "ab"[i % 2]
        pushed = {name: _rows(10_000 + i // 2, 1, i % 2)}
        begun, own = time.perf_counter(), time.process_time()
        one.push(**pushed)
        single.append((time.process_time() - own, time.perf_counter() - begun))
    warm = np.array(single[times // 10 :])
    p50, p99 = np.quantile(warm[:, 0], [0.5, 0.99])
    usual = statistics.median(taken[times // 10 :]) * 1e6
    say(f"push of 20: {usual:.0f} us; of one row: {1e6 * p50:.0f} us, 99 % {1e6 * p99:.0f} us")
    return {"push_20_us": usual, "pushes_per_second": 1.0 / p50, "push_p99_over_p50": p99 / p50}


def named(table: pa.Table) -> pa.Table:
    """The same rows, with texts as keys."""
    return table.set_column(0, "k", pa.array([f"vessel-{key:07}" for key in table["k"].to_pylist()]))


def keys() -> Figures:
    """Whole numbers as keys and texts, taking turns."""
    ratios, kinds = list[float](), (as_it_is, named)
    left, right = points(500_000, 2, 10.0, 0), points(500_000, 2, 10.0, 1)
    cases = [Case(kind(left), kind(right), 2, 2.0 * _SPAN) for kind in kinds]
    took = [[_of(partial(join, case)) for case in cases] for _ in range(6)]
    ratios.append(_ratio("whole tables", took[1:]))
    for n, times in ((65_536, 8), (1, 2_000)):
        first = max(n, 10_000)
        held, took = [by_hand(first, kind) for kind in kinds], []
        for i in range(times):
            pushed = {name: _rows(first + n * i, n, seed) for seed, name in enumerate("ab")}
            given = [{name: kind(rows) for name, rows in pushed.items()} for kind in kinds]
            took.append([_of(partial(one.push, **rows)) for one, rows in zip(held, given, strict=True)])
        ratios.append(_ratio(f"pushes of {n:,}", took[times // 4 :]))
    return {"texts_of_numbers": max(ratios)}


def _of(call: Callable[[], Any]) -> float:
    begun = time.process_time()
    call()
    return time.process_time() - begun


def _ratio(what: str, took: list[list[float]]) -> float:
    one, other = (statistics.median(own) for own in zip(*took, strict=True))
    say(f"{what}: numbers {1e6 * one:,.0f} us, texts {1e6 * other:,.0f} us, {other / one:.2f} times")
    return float(other / one)


def main() -> None:
    """All parts but the one of keys, or those named by ``--only``."""
    asked = arguments((__doc__ or "").splitlines()[0])
    parts: dict[str, Callable[[Path], Figures]] = {
        "tables": whole_tables,
        "densities": lambda _: densities(),
        "errors": lambda _: errors(),
        "threads": lambda _: threads(),
        "memory": memory,
        "spark": on_spark,
        "pushes": lambda _: pushes(2_000 if asked.quick else 20_000),
    }
    usual = list(parts)
    parts["keys"] = lambda _: keys()
    wanted = usual if asked.only is None else asked.only.split(",")
    figures: Figures = {}
    with scratch() as folder:
        for name in wanted:
            figures |= parts[name](folder)
    report(figures, as_json=asked.json)


if __name__ == "__main__":
    main()
