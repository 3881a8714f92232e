"""Streams for the tests of Spark: tables as files, a micro-batch each, and results run to their end."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from hypothesis import HealthCheck, assume, settings
from pyspark.sql.pandas.types import from_arrow_schema

import appulse as ap

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

# Of properties on Spark, where a case takes seconds; played Spark runs many.
few = settings(max_examples=1, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def assume_rows(tables: Iterable[pa.Table], least: int = 4) -> None:
    """Draw another case where there are fewer rows: the first one drawn has none, and shows little."""
    assume(sum(map(len, tables)) >= least)


def files(folder: Path, table: pa.Table, most: int) -> Path:
    """A file per micro-batch, in their order."""
    folder.mkdir(parents=True, exist_ok=True)
    for i, at in enumerate(range(0, len(table), most)):
        path = folder / f"{i:03}.parquet"
        pq.write_table(table.slice(at, most), path)
        os.utime(path, (1_700_000_000 + i, 1_700_000_000 + i))
    return folder


def read_stream(spark: SparkSession, folder: Path) -> DataFrame:
    schema = from_arrow_schema(ds.dataset(folder).schema)  # by Spark it would be a job
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def drained(result: DataFrame, folder: Path) -> tuple[pa.Table, pa.Table]:
    """Answers and rejects of a streaming result over everything there is."""
    _drain(result, folder, "answers", "rejects")
    return read_written(folder / "answers"), read_written(folder / "rejects")


def drained_answers(result: DataFrame, folder: Path) -> pa.Table:
    """The answers alone, at half the cost where calls follow each other: rejects have these in the query twice."""
    _drain(result, folder, "answers")
    return read_written(folder / "answers")


def _drain(result: DataFrame, folder: Path, *names: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    sinks = [("parquet", {"path": str(folder / name)}) for name in names]
    ap.start(result, *sinks, checkpoint=str(folder / "checkpoint"), drain=True).awaitTermination()


def reopen(checkpoint: Path) -> None:
    """Leave a drained checkpoint as a drain does that is interrupted before it has closed it."""
    job = checkpoint / "appulse.json"
    job.write_text(json.dumps(json.loads(job.read_text()) | {"closed": False}))


def read_written(folder: Path) -> pa.Table:
    """What a query wrote as Parquet, without a job of Spark."""
    return ds.dataset(folder).to_table()
