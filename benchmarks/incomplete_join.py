"""Joins over streams with holes: answers against those of the complete rows, and time against other ways.

Figures:

* ``f_gap_min, f_gap_mean``: F-score of the pairs that ``imputer="auto"`` (over the repository) finds, those of the
  complete rows being the truth, less that of the best other contestant: on the worst data set, and on the average.
* ``ece_max``: expected calibration error of our probabilities, of pairs with a filled row, on the worst data set.
* ``vs_dd_scan``: time of DD+join, a scan of a repository of 30,000 rows for every row and then a loop over all pairs of
  instances in the window, compiled, / ours with the same rules and answers.
* ``vs_knn``: time of scikit-learn's KNNImputer and a cKDTree join / ours.
* ``repository_growth``: our cost a row with 1,000,000 rows in the repository / with 10,000, as many matches a row.
* ``spark_of_complete``: rows a second on Spark where a tenth of the rows has a hole / of complete rows.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import appulse as ap
from benchmarks.harness import arguments, read_stream, report, say, scratch, timed, write_stream
from benchmarks.incomplete_data import correlated, holes, uniform
from benchmarks.incomplete_quality import ALPHA, FILLED, NEAR, WINDOW, joined, quality
from benchmarks.incomplete_rivals import ScanImputer, close_pairs, scikit

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from numpy.typing import NDArray

    from benchmarks.incomplete_data import DataSet

PARTS = ("quality", "scan", "knn", "growth", "spark")


def seconds(call: Callable[[], Any], times: int = 3) -> float:
    """The least time of some runs."""
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begun)
    return min(taken)


def rules_of(data: DataSet, width: float) -> list[ap.DifferentialDependency]:
    """Each attribute by each other, within a width."""
    return [
        ap.DifferentialDependency({by: width}, name, 10.0) for name in data.names for by in data.names if by != name
    ]


def scan(*, quick: bool) -> dict[str, float]:
    """Ours against DD+join, every row with a hole: the same rules, by a scan and a loop over all pairs of instances."""
    data = correlated(200 if quick else 300, 3, 30_000)  # a window full, or more
    imputer = ap.DependencyImputer(data.complete, rules_of(data, 0.01))
    rows = [holes(part, 1.0, 1, seed) for seed, part in enumerate((data.left, data.right))]
    streams, epsilon = data.streams(rows[0], rows[1]), data.near(NEAR)
    slow, plain = ScanImputer(imputer), ap.Options(bounds=frozenset(), index="dense")
    ours = joined(streams, epsilon, ALPHA, imputer)
    begun = time.perf_counter()
    theirs = joined(streams, epsilon, ALPHA, slow, plain)
    other = time.perf_counter() - begun
    if sorted(map(repr, _plain(ours))) != sorted(map(repr, _plain(theirs))):
        raise RuntimeError("DD+join answers otherwise")
    mine = seconds(lambda: joined(streams, epsilon, ALPHA, imputer))
    same = seconds(lambda: joined(streams, epsilon, ALPHA, slow), 1)
    filling = [seconds(lambda: [ap.impute(one, by) for one in streams], 1) for by in (slow, imputer)]  # noqa: B023
    ticks = len(rows[0])
    told = ", ".join(f"{1e6 * one / ticks:.0f}" for one in (mine, same, other, *filling))
    say(f"microseconds a tick: ours, scan + our join, DD+join, the filling of both alone: {told}; {len(ours)} answers")
    return {"vs_dd_scan": other / mine}


def _plain(table: pa.Table) -> list[dict[str, Any]]:
    rows = list(table.drop_columns(list(FILLED)).to_pylist())
    for row in rows:
        row["probability"] = round(row["probability"], 9)
    return rows


def knn(*, quick: bool) -> dict[str, float]:
    """Ours against KNNImputer and a k-d tree, every row with a hole."""
    data = correlated(1000 if quick else 5000, 3, 30_000)
    imputer = ap.DependencyImputer(data.complete, rules_of(data, 0.01))
    rows = [holes(part, 1.0, 1, seed) for seed, part in enumerate((data.left, data.right))]
    streams, epsilon = data.streams(rows[0], rows[1]), data.near(NEAR)
    fill = scikit("KNNImputer", data.names, data.complete).bind(data.names)
    nothing = np.zeros(len(rows[0]), np.int64)

    def rival() -> NDArray[np.int64]:
        left, right = (fill.fill(part, nothing, nothing).rows for part in rows)
        return close_pairs(left, right, epsilon, WINDOW)

    joined(streams, epsilon, ALPHA, imputer)
    mine, other = seconds(lambda: joined(streams, epsilon, ALPHA, imputer)), seconds(rival, 1)
    ticks = len(rows[0])
    say(f"KNNImputer + cKDTree: {1e6 * other / ticks:.0f} us a tick, ours {1e6 * mine / ticks:.0f}")
    return {"vs_knn": other / mine}


def growth(*, quick: bool) -> dict[str, float]:
    """Our cost a row by the size of the repository, matches held at about 30."""
    cost = {}
    for size in (10_000, 1_000_000):
        data = uniform(5000 if quick else 20_000, 3, size)
        width = 0.5 * (30 / size) ** 0.5
        rules = [ap.DifferentialDependency({"a0": width, "a1": width}, "a2", 10.0)]
        begun = time.perf_counter()
        imputer = ap.DependencyImputer(data.complete, rules)
        say(f"growth: {size:,} rows load in {time.perf_counter() - begun:.1f} s")
        rows = [part.copy() for part in (data.left, data.right)]
        for part in rows:
            part[:, 2] = np.nan
        streams, epsilon = data.streams(rows[0], rows[1]), data.near(0.001)
        joined(streams, epsilon, ALPHA, imputer)
        cost[size] = seconds(lambda: joined(streams, epsilon, ALPHA, imputer))  # noqa: B023 - called at once
        say(f"growth: {size:,} rows, {1e6 * cost[size] / len(rows[0]):.1f} us a tick")
    return {"repository_growth": cost[1_000_000] / cost[10_000]}


def on_spark(*, quick: bool) -> dict[str, float]:
    """Rows a second with a hole in every tenth row, against complete ones."""
    n = 40_000 if quick else 400_000
    data = correlated(n, 3, 30_000)
    epsilon = data.near(0.0005)
    imputer = ap.DependencyImputer(data.complete, rules_of(data, 0.01))
    spark = ap.session(2)
    rate = {}
    try:
        with scratch() as folder:
            for name, share in (("warm", 0.1), ("complete", 0.0), ("holes", 0.1)):
                most = n // 10 if name == "warm" else n
                rows = [holes(part[:most], share, 1, seed) for seed, part in enumerate((data.left, data.right))]
                streams = []
                for side, stream in zip(("left", "right"), data.streams(rows[0], rows[1]), strict=True):
                    path = write_stream(folder / name / side, stream.frame, 4)
                    value = ap.Exact(*data.names) if name == "complete" else stream.value
                    streams.append(replace(stream, frame=read_stream(spark, path), value=value, lateness=1))
                settings: dict[str, Any] = {"epsilon": epsilon, "probability": ALPHA, "window": ap.TimeWindow(WINDOW)}
                if name != "complete":
                    settings["imputer"] = imputer
                run = timed(ap.similarity_join(*streams, **settings), folder / f"{name}-run")
                rate[name] = 2 * n / sum(run.batches[1:]) * (len(run.batches) - 1) / len(run.batches)
                say(f"spark, {name}: {rate[name]:,.0f} rows a second")
    finally:
        spark.stop()
    return {"spark_of_complete": rate["holes"] / rate["complete"]}


def main() -> None:
    """Run the parts, print the figures."""
    given = arguments("Joins over incomplete streams")
    parts = given.only.split(",") if given.only else PARTS
    runs = {"quality": quality, "scan": scan, "knn": knn, "growth": growth, "spark": on_spark}
    figures: dict[str, float] = {}
    if "claims" in parts:
        from benchmarks.ids_claims import measure  # which measures with what is defined here

        measure(Path(given.plots) if given.plots else None, quick=given.quick)
    for part in (part for part in parts if part != "claims"):
        begun = time.perf_counter()
        figures |= runs[part](quick=given.quick)
        say(f"{part}: {time.perf_counter() - begun:.0f} s")
    report(figures, as_json=given.json)


if __name__ == "__main__":
    main()
