"""Aggregates over long sliding windows: beside pandas, Polars and DuckDB, and of rows that may not exist.

    python -m benchmarks.sliding_aggregates --quick --json

Rows come at random, 100 a second, and every row has a window of the seconds before it. Each contestant aggregates a
column of a table of its own, one thread each; the values of all agree to a billionth. Times are medians of processor
time, after a first run.

* ``sliding_vs_duckdb``: the time of DuckDB's window functions over ours, windows of 2,000 rows: the least of sum,
  mean, min, max, std, median, p90 and count.
* ``sliding_vs_best``: the same of the fastest of DuckDB, pandas and Polars. ``quantiles_vs_best`` is that of median and
  p90 alone.
* ``long_of_short``: our time with windows of 20,000 rows over that with windows of 200, the worst of sum, mean, max,
  std and median.
* ``error_of_sums``, ``error_of_pandas``: the largest relative error of our sums, and of those of pandas, of values that
  vary widely; by the exact sum of each window.
* ``worlds_us``: microseconds of a mean over all possible worlds, of 2,000 rows each of which may not exist;
  ``p90_of_worlds_us`` that of a 90th percentile of 100 rows that may not exist, with normal errors.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = os.environ["POLARS_MAX_THREADS"] = "1"

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa

import appulse as ap
from benchmarks.bulk import spent
from benchmarks.harness import arguments, report, say

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd
    from numpy.typing import NDArray

_RATE, _SPAN = 100, 20  # rows a second, seconds of a window
_PANDAS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda window: window.sum(),
    "mean": lambda window: window.mean(),
    "min": lambda window: window.min(),
    "max": lambda window: window.max(),
    "std": lambda window: window.std(),
    "median": lambda window: window.quantile(0.5, interpolation="lower"),
    "p90": lambda window: window.quantile(0.9, interpolation="lower"),
    "count": lambda window: window.count(),
}
_POLARS: dict[str, Callable[[pl.Expr, str], pl.Expr]] = {
    "sum": lambda x, span: x.rolling_sum_by("time", span, closed="both"),
    "mean": lambda x, span: x.rolling_mean_by("time", span, closed="both"),
    "min": lambda x, span: x.rolling_min_by("time", span, closed="both"),
    "max": lambda x, span: x.rolling_max_by("time", span, closed="both"),
    "std": lambda x, span: x.rolling_std_by("time", span, closed="both"),
    "median": lambda x, span: x.rolling_quantile_by("time", span, quantile=0.5, closed="both", interpolation="lower"),
    "p90": lambda x, span: x.rolling_quantile_by("time", span, quantile=0.9, closed="both", interpolation="lower"),
    "count": lambda x, span: (x * 0.0 + 1.0).rolling_sum_by("time", span, closed="both"),
}
_DUCKDB = {"mean": "avg(x)", "std": "stddev_samp(x)", "median": "quantile_disc(x, 0.5)", "p90": "quantile_disc(x, 0.9)"}
_VALUES = ("median", "p90")  # where the quantile lies between two values, contestants take the lower


def rows(n: int, *, certain: bool = True) -> pa.Table:
    """Rows at random times, none of them twice."""
    chance = np.random.default_rng(1)
    at = np.cumsum(chance.integers(1, 2_000_000 // _RATE, n))
    exists = {} if certain else {"p": chance.uniform(0.5, 1.0, n)}
    times = pa.array(at).cast(pa.timestamp("us"))
    return pa.table({"id": np.arange(n), "time": times, "x": chance.normal(20.0, 5.0, n)} | exists)


def ours(table: pa.Table, aggregate: str, seconds: float = _SPAN) -> NDArray[np.float64]:
    """Ours, as a column."""
    existence = "p" if "p" in table.column_names else None
    stream = ap.Stream(table, key="id", time="time", value="x", existence=existence)
    answers = ap.window_aggregate(stream, {"x": aggregate}, window=f"{seconds:g} seconds")
    found: NDArray[np.float64] = answers[f"x_{aggregate}"].to_numpy()
    return found


def of_pandas(frame: pd.DataFrame, aggregate: str) -> NDArray[np.float64]:
    """That of pandas."""
    window = frame.rolling(f"{_SPAN}s", on="time", closed="both")["x"]
    found: NDArray[np.float64] = _PANDAS[aggregate](window).to_numpy()
    return found


def of_polars(frame: pl.DataFrame, aggregate: str) -> NDArray[np.float64]:
    """That of Polars."""
    found: NDArray[np.float64] = frame.select(_POLARS[aggregate](pl.col("x"), f"{_SPAN}s"))["x"].to_numpy()
    return found


def of_duckdb(database: duckdb.DuckDBPyConnection, aggregate: str) -> NDArray[np.float64]:
    """That of DuckDB."""
    asked = _DUCKDB.get(aggregate, f"{aggregate}(x)")
    span = f"RANGE BETWEEN INTERVAL {_SPAN} SECONDS PRECEDING AND CURRENT ROW"
    found = database.sql(f'SELECT {asked} OVER (ORDER BY "time" {span}) AS x FROM given').to_arrow_table()  # noqa: S608 - all of it is ours
    column: NDArray[np.float64] = found["x"].to_numpy().astype(np.float64)
    return column


def against(n: int) -> dict[str, float]:
    """Each aggregate, by all contestants."""
    table = rows(n)
    database = duckdb.connect()
    database.execute("SET threads = 1")
    database.register("arrow", table)
    database.execute("CREATE TABLE given AS SELECT * FROM arrow")
    pandas, polars = table.to_pandas(), pl.DataFrame(table)
    least = dict.fromkeys(("sliding_vs_duckdb", "sliding_vs_best", "quantiles_vs_best"), np.inf)
    for aggregate in _PANDAS:
        calls: dict[str, Callable[[], NDArray[np.float64]]] = {
            "ours": partial(ours, table, aggregate),
            "DuckDB": partial(of_duckdb, database, aggregate),
            "pandas": partial(of_pandas, pandas, aggregate),
            "Polars": partial(of_polars, polars, aggregate),
        }
        found = {name: call() for name, call in calls.items()}
        _check(aggregate, found)
        took = {name: spent(call) for name, call in calls.items()}
        say(f"{aggregate}: " + ", ".join(f"{name} {1e3 * seconds:.1f} ms" for name, seconds in took.items()))
        own = took.pop("ours")
        least["sliding_vs_duckdb"] = min(least["sliding_vs_duckdb"], took["DuckDB"] / own)
        best = min(took.values()) / own
        least["sliding_vs_best"] = min(least["sliding_vs_best"], best)
        if aggregate in _VALUES:
            least["quantiles_vs_best"] = min(least["quantiles_vs_best"], best)
    return least


def _check(aggregate: str, found: dict[str, NDArray[np.float64]]) -> None:
    """Raise where the values of contestants differ: std from the second row on, quantiles where they have one value."""
    own = found["ours"]
    for name, values in found.items():
        apart = np.abs(values - own) > 1e-9 * np.maximum(np.abs(own), 1.0)
        if aggregate in _VALUES:
            # A share of n rows is of the value before it for some, and of the one behind it for others.
            apart &= np.abs(values - own) > 1.0
            apart[: 2 * _RATE] = False
        if apart[1:].any():
            raise RuntimeError(f"{name} has another {aggregate} at row {int(np.flatnonzero(apart[1:])[0]) + 1}")


def lengths(n: int) -> dict[str, float]:
    """Windows of few rows and of many."""
    table, worst = rows(n), 0.0
    for aggregate in ("sum", "mean", "max", "std", "median"):
        took = [spent(partial(ours, table, aggregate, many / _RATE)) for many in (200, 20_000)]
        say(f"{aggregate}: {1e3 * took[0]:.1f} ms over 200 rows, {1e3 * took[1]:.1f} ms over 20,000")
        worst = max(worst, took[1] / took[0])
    return {"long_of_short": worst}


def errors(n: int) -> dict[str, float]:
    """Sums of 100 rows, some of which are far larger than others."""
    values = np.exp(np.random.default_rng(2).normal(0.0, 12.0, n))
    table = pa.table({"id": np.arange(n), "time": np.arange(n), "x": values})
    exact = np.array([math.fsum(values[max(i - 99, 0) : i + 1]) for i in range(n)])
    theirs = table.to_pandas()["x"].rolling(100, min_periods=1).sum().to_numpy()
    found = {"error_of_sums": ours(table, "sum", 99), "error_of_pandas": theirs}
    return {name: float(np.abs(sums / exact - 1.0).max()) for name, sums in found.items()}


def worlds(n: int) -> dict[str, float]:
    """A mean, and a percentile, over all possible worlds."""
    table, few = rows(n, certain=False), rows(n // 20, certain=False)
    normal = ap.Stream(few, key="id", time="time", value=ap.Gaussian("x", sigma=1.0), existence="p")

    def percentile() -> pa.Table:
        return ap.window_aggregate(normal, {"x": "p90"}, window="1 second")

    percentile()
    return {
        "worlds_us": 1e6 * spent(partial(ours, table, "mean")) / n,
        "p90_of_worlds_us": 1e6 * spent(percentile) / len(few),
    }


def main() -> None:
    """All of them."""
    asked = arguments((__doc__ or "").splitlines()[0])
    n = 100_000 if asked.quick else 1_000_000
    report(against(n) | lengths(n) | errors(n) | worlds(n // 5), as_json=asked.json)


if __name__ == "__main__":
    main()
