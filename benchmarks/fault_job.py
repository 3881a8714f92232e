"""The jobs that `benchmarks.faults` kills: streams of small files, into a sink until there are no more.

    python -m benchmarks.fault_job INPUT FOLDER KIND [OPTIONS]

Some rows are bad, some are late, and rows come out of order within their lateness. ``OPTIONS`` are JSON: ``sink``, a
pair as `appulse.start` takes it, in place of Parquet files, and ``settings`` of Spark.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import appulse as ap
from benchmarks.harness import read_stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

STREAMS = ("left", "right")
WINDOWS: dict[str, Callable[[], Any]] = {"time": lambda: ap.TimeWindow(4), "count": lambda: ap.CountWindow(300)}
# Snapshots of the state are taken and old files removed every other second, so that kills meet these too.
SETTINGS: dict[str, str | int | float | bool] = {
    "spark.sql.streaming.stateStore.maintenanceInterval": "500ms",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": 2,
    "spark.sql.streaming.minBatchesToRetain": 5,
}
_START = 1_700_000_000  # seconds
_LATENESS = 2
_SAMPLES = 20


def write_input(folder: Path, files: int, rows: int, seed: int) -> None:
    """Each stream as ``files`` files, one a second and micro-batch, of ``rows`` rows.

    Late rows are late by far more than a file: after a kill Spark may take two files of a stream as one micro-batch,
    and rows are judged late by what earlier micro-batches brought.
    """
    rng = np.random.default_rng(seed)
    for s, name in enumerate(STREAMS):
        (folder / name).mkdir(parents=True)
        for i in range(files):
            path = folder / name / f"{i:04}.parquet"
            pq.write_table(_rows(rng, name, (s * files + i) * rows, i, rows, late=i > files // 2), path)
            os.utime(path, (_START + i, _START + i))


def _rows(rng: np.random.Generator, stream: str, key: int, second: int, n: int, *, late: bool) -> pa.Table:
    times = second + rng.random(n) - rng.random(n) * (_LATENESS - 1)  # newest - lateness is never passed
    x, y = rng.random((2, n)) * 10.0
    x[0] = np.nan
    if late:
        times[1] = rng.random()
    columns: dict[str, Any] = {
        "id": np.arange(key, key + n),
        "ts": pa.array(((_START + times) * 1e6).astype(np.int64)).cast(pa.timestamp("us", "UTC")),
    }
    if stream == "left":
        columns |= {"x": x, "y": y, "sigma": rng.uniform(0.05, 0.2, n)}
    else:
        points = np.stack([x, y], axis=1)[:, None, :] + rng.normal(0.0, 0.1, (n, _SAMPLES, 2))
        columns["samples"] = pa.array([row.tolist() for row in points], pa.list_(pa.list_(pa.float64())))
    return pa.table(columns)


def result(spark: SparkSession, folder: Path, kind: str, epsilon: float = 0.4) -> DataFrame:
    """What a kind of job makes of the streams below ``folder``."""
    if kind in WINDOWS:
        streams = [_stream(spark, folder, name) for name in STREAMS]
        joined: DataFrame = ap.similarity_join(*streams, epsilon=epsilon, probability=0.5, window=WINDOWS[kind]())
        return joined
    made: DataFrame = _OTHERS[kind](spark, folder)
    return made


def _stream(spark: SparkSession, folder: Path, of: str, **settings: Any) -> ap.Stream[Any]:
    value = ap.Gaussian("x", "y", sigma="sigma") if of == "left" else ap.Samples("samples", names=("x", "y"))
    arguments = {"key": "id", "time": "ts", "value": value, "lateness": _LATENESS, **settings}
    return ap.Stream(read_stream(spark, folder / of), **arguments)


def _changes(spark: SparkSession, folder: Path) -> Any:
    left = _stream(spark, folder, "left")
    return ap.self_join(left, epsilon=0.2, probability=0.5, window=ap.TimeWindow(4), emit="changes")


def _aggregate(spark: SparkSession, folder: Path) -> Any:
    return ap.window_aggregate(_stream(spark, folder, "right"), {"x": ["mean", "count"]}, window=ap.TimeWindow(4))


def _queries(spark: SparkSession, folder: Path) -> Any:
    asked = pa.table({"query": ["low", "band"], "condition": ["x < 1", "y BETWEEN 4 AND 5 AND x > 5"]})
    return ap.match_queries(_stream(spark, folder, "left"), asked, probability=0.5)


def _sensors(spark: SparkSession, folder: Path) -> Any:
    readings = _stream(spark, folder, "left", value="x")
    return ap.sensor_join(readings, within=0.005, window=4, expand=True)


def _nearest(spark: SparkSession, folder: Path) -> Any:
    one, other = [_stream(spark, folder, "left", value=ap.Exact("x", "y"), name=name) for name in "ab"]
    return ap.nearest(one, other, k=2, epsilon=0.3, window=ap.TimeWindow(3))


_OTHERS: dict[str, Callable[[SparkSession, Path], Any]] = {
    "changes": _changes,
    "aggregate": _aggregate,
    "queries": _queries,
    "sensors": _sensors,
    "nearest": _nearest,
}
#: Every kind of job over files.
KINDS = (*WINDOWS, *_OTHERS)


def start(joined: DataFrame, folder: Path, sink: Any = None, **settings: Any) -> Any:
    """The query, with its sinks and its checkpoint below ``folder``."""
    answers = ("parquet", {"path": str(folder / "answers")}) if sink is None else tuple(sink)
    rejects = ("parquet", {"path": str(folder / "rejects")})
    return ap.start(joined, answers, rejects, checkpoint=str(folder / "checkpoint"), **settings)


def main() -> None:
    """Run the job to its end."""
    source, folder, kind, *options = sys.argv[1:]
    given = json.loads(options[0]) if options else {}
    settings = SETTINGS | given.get("settings", {})
    spark = ap.session(None if "spark.master" in settings else 2, **settings)
    start(result(spark, Path(source), kind), Path(folder), given.get("sink"), drain=True).awaitTermination()


if __name__ == "__main__":
    main()
