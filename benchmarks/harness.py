"""What the benchmarks share: arguments, generated streams, timed queries, figures as JSON."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Run:
    """One timed query: wall seconds with its start, seconds of each micro-batch with rows, where its answers lie."""

    seconds: float
    batches: list[float]
    out: Path


def arguments(description: str) -> argparse.Namespace:
    """``--quick`` for the sizes that fit a few minutes, ``--json`` for figures alone as the last line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="sizes that fit a few minutes")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object, last")
    parser.add_argument("--count", action="store_true", help="count windows in place of time windows")
    parser.add_argument("--only", help="comma-separated parts to run")
    parser.add_argument("--plots", help="folder for tables and pictures")
    return parser.parse_args()


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


def report(figures: Mapping[str, float | None], *, as_json: bool) -> None:
    """The figures, as a table or as the last line; those of contestants that cannot be had are null."""
    rounded = {name: None if value is None else float(f"{value:.3g}") for name, value in figures.items()}
    if not as_json:
        for name, value in rounded.items():
            print(f"{name:>24}  {value}")
        return
    print(json.dumps(rounded))


def least(*calls: Callable[[], Any], rounds: int = 5) -> list[float]:
    """The least time of each call, of several that take turns."""
    best = [np.inf] * len(calls)
    for call in calls:
        call()  # compiled, and in memory
    for _ in range(rounds):
        for i, call in enumerate(calls):
            begin = time.perf_counter()
            call()
            best[i] = min(best[i], time.perf_counter() - begin)
    return best


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for one benchmark's data."""
    path = Path(tempfile.mkdtemp(prefix="appulse-bench-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def write_stream(folder: Path, table: pa.Table, batches: int) -> Path:
    """The table as one file per micro-batch, in order of time."""
    folder.mkdir(parents=True)
    size = -(-len(table) // batches)
    for i in range(batches):
        path = folder / f"{i:04}.parquet"
        pq.write_table(table.slice(i * size, size), path)
        stamp = 1_700_000_000 + i  # the file source takes files in order of modification
        path.touch()
        import os

        os.utime(path, (stamp, stamp))
    return folder


def read_stream(spark: SparkSession, folder: Path) -> DataFrame:
    """The folder as a stream, one file per micro-batch."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(ds.dataset(folder).schema)  # by Spark it would be a job
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def timed(frame: DataFrame, folder: Path) -> Run:
    """Run a streaming frame over what is there into Parquet; the query's start included."""
    begun = time.perf_counter()
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    seconds = time.perf_counter() - begun
    if query.exception() is not None:
        raise RuntimeError(f"a benchmark's query failed: {query.exception()}")
    batches = [p.durationMs["triggerExecution"] / 1000 for p in query.recentProgress if p.numInputRows > 0]
    return Run(seconds, batches, folder / "out")


def folder_bytes(folder: Path) -> int:
    """Bytes of all files of a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def pairs_of(spark: SparkSession, out: Path, left: str, right: str) -> set[tuple[Any, Any]]:
    """The key pairs among the answers of a run."""
    table = spark.read.parquet(str(out)).select(left, right).toArrow()
    pairs = list(zip(table.column(0).to_pylist(), table.column(1).to_pylist(), strict=True))
    if len(set(pairs)) != len(pairs):
        raise RuntimeError("a contestant reported a pair twice")
    return set(pairs)


def uniform_points(rng: np.random.Generator, n: int, rate: float, side: float, first_key: int) -> pa.Table:
    """``n`` points uniform on a square, ``rate`` a second in order of time."""
    micros = (np.arange(n) * (1e6 / rate)).astype(np.int64) + 1_700_000_000_000_000
    return pa.table(
        {
            "id": np.arange(n, dtype=np.int64) + first_key,
            "ts": pa.array(micros).cast(pa.timestamp("us", "UTC")),
            "x": rng.random(n) * side,
            "y": rng.random(n) * side,
        }
    )
