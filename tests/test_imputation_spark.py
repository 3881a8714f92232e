"""Incomplete streams on Spark: batch and streaming fill and answer as in process."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import appulse as ap
from benchmarks.harness import write_stream
from tests.test_spark_join import drained, read_stream

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

RULES = [
    ap.DifferentialDependency({"a": 0.1}, "b", 1.0, 0.9),
    ap.DifferentialDependency({"b": 0.1}, "c", 1.0, 0.9),
    ap.DifferentialDependency({"a": 0.05}, "c", 1.0, 0.9),
]


def tables() -> tuple[pa.Table, list[pa.Table]]:
    """A repository, and two streams of which a fifth of the values is missing, some in all attributes."""
    chance = np.random.default_rng(5)
    base = chance.random((800, 3))
    base[:, 1:] = base[:, :1] + 0.05 * base[:, 1:].round(1)
    repository = pa.table(dict(zip("abc", base[:500].T, strict=True)))
    streams = []
    for s in range(2):
        values = base[500 + 150 * s : 650 + 150 * s]
        lost = chance.random(values.shape) < 0.2
        columns = {name: pa.array(values[:, k], mask=lost[:, k]) for k, name in enumerate("abc")}
        streams.append(pa.table({"id": [f"{s} {i}" for i in range(150)], "at": np.arange(150), **columns}))
    return repository, streams


def stream(frame: Any) -> ap.Stream:
    return ap.Stream(frame, key="id", time="at", value=ap.Incomplete("a", "b", "c"))


def rows_of(table: pa.Table) -> Counter[str]:
    """Rows in no order, numbers rounded to what engines agree on."""
    rows = table.to_pylist()
    for row in rows:
        row |= {name: round(value, 8) for name, value in row.items() if isinstance(value, float)}
    return Counter(map(repr, rows))


def test_batches_answer_as_in_process(spark: SparkSession) -> None:
    repository, given = tables()
    settings: dict[str, Any] = {"epsilon": 0.1, "probability": 0.3, "window": ap.CountWindow(20)}
    imputer = ap.DependencyImputer(spark.createDataFrame(repository.to_pandas()), RULES)
    expected = ap.similarity_join(*map(stream, given), imputer=ap.DependencyImputer(repository, RULES), **settings)
    assert sum(map(len, expected["left_filled"].to_pylist())) > 10
    found = ap.similarity_join(*(stream(spark.createDataFrame(table)) for table in given), imputer=imputer, **settings)
    assert rows_of(found.toArrow()) == rows_of(expected)
    assert rows_of(ap.rejects(found).toArrow()) == rows_of(ap.rejects(expected))


def test_streams_answer_as_in_process(spark: SparkSession, tmp_path: Path) -> None:
    repository, given = tables()
    settings: dict[str, Any] = {"epsilon": 0.1, "probability": 0.3, "window": ap.TimeWindow(5)}
    imputer = ap.DependencyImputer(repository, RULES)
    expected = ap.similarity_join(*map(stream, given), imputer=imputer, **settings)
    folders = [write_stream(tmp_path / str(s), table, 2) for s, table in enumerate(given)]
    read = [stream(read_stream(spark, folder)) for folder in folders]
    answers, rejects = drained(ap.similarity_join(*read, imputer=imputer, **settings), tmp_path / "out")
    assert rows_of(answers) == rows_of(expected)
    assert len(rejects) == len(ap.rejects(expected))


def test_frames_are_filled_as_tables(spark: SparkSession) -> None:
    repository, given = tables()
    imputer = ap.DependencyImputer(repository, RULES, joint=True)
    expected = ap.impute(stream(given[0]), imputer).frame
    found = ap.impute(stream(spark.createDataFrame(given[0])), imputer)
    assert rows_of(found.frame.toArrow()) == rows_of(expected)
    with pytest.raises(ap.BadArgument, match="has one already"):
        ap.impute(stream(spark.createDataFrame(expected)), imputer)
