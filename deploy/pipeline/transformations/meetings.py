"""Which vans meet: all of them up to now in a materialized view, and each as it is seen in a streaming table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark import pipelines as dp
from pyspark.sql import SparkSession

import appulse as ap

spark: Any = SparkSession.active()
INCOMING = str(Path("incoming").resolve())  # beside the specification, where Spark runs this file
FIXES = "van BIGINT, at TIMESTAMP, x DOUBLE, y DOUBLE"


def meetings(frame: Any) -> Any:
    """Pairs of fixes within 300 m of each other and 4 seconds."""
    fixes = ap.Stream(frame, key="van", time="at", value=ap.Gaussian("x", "y", sigma=100.0), schema=FIXES)
    return ap.self_join(fixes, epsilon=300.0, probability=0.5, window="4 seconds")


@dp.table
def fixes() -> Any:
    """What has come so far."""
    return spark.readStream.schema(FIXES).parquet(INCOMING)


@dp.materialized_view
def all_meetings() -> Any:
    """Of a table of this pipeline."""
    return meetings(spark.read.table("fixes"))


@dp.materialized_view
def refused_fixes() -> Any:
    """Rows that could not be used."""
    return ap.rejects(meetings(spark.read.table("fixes")))


@dp.table
def new_meetings() -> Any:
    """Of files, as a streaming table that keeps state has to read what this pipeline does not make."""
    return meetings(spark.readStream.schema(FIXES).parquet(INCOMING))
