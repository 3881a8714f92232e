"""The job that `benchmarks.faults` kills: two streams of small files, joined into Parquet until there are no more.

    python -m benchmarks.fault_job INPUT FOLDER WINDOW

Some rows are bad, some are late, and rows come out of order within their lateness.
"""

from __future__ import annotations

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


def result(spark: SparkSession, folder: Path, window: str, epsilon: float = 0.4) -> DataFrame:
    """The join of the streams below ``folder``."""
    models: tuple[Any, ...] = (ap.Gaussian("x", "y", sigma="sigma"), ap.Samples("samples", names=("x", "y")))
    streams = [
        ap.Stream(read_stream(spark, folder / name), key="id", time="ts", value=model, lateness=_LATENESS)
        for name, model in zip(STREAMS, models, strict=True)
    ]
    joined: DataFrame = ap.similarity_join(*streams, epsilon=epsilon, probability=0.5, window=WINDOWS[window]())
    return joined


def start(joined: DataFrame, folder: Path, **settings: Any) -> Any:
    """The query, with its sinks and its checkpoint below ``folder``."""
    sinks = [("parquet", {"path": str(folder / name)}) for name in ("answers", "rejects")]
    return ap.start(joined, *sinks, checkpoint=str(folder / "checkpoint"), **settings)


def main() -> None:
    """Run the job to its end."""
    source, folder, window = sys.argv[1:]
    joined = result(ap.session(2, **SETTINGS), Path(source), window)
    start(joined, Path(folder), drain=True).awaitTermination()


if __name__ == "__main__":
    main()
