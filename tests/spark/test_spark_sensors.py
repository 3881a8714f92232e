"""The sensor join on Spark: batch, streaming and in process answer alike, value by value and element by element."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import appulse as ap
from tests.helpers import sensing
from tests.helpers.streaming import drained, files, read_stream

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

N = 600


def _table() -> pa.Table:
    rng = np.random.default_rng(8)
    value = np.round(rng.normal(20.0, 1.5, N), 2)
    value[[5, 300]] = np.nan
    columns: dict[str, Any] = {"mote": [f"m{i}" for i in rng.integers(0, 12, N)]}
    columns |= {"ts": ((np.arange(N) // 6 + 1000) * 1_000_000), "temperature": value}
    columns |= {"room": [("a", "b")[i] for i in rng.integers(0, 2, N)], "n": [[i] for i in range(N)]}
    table = pa.table(columns)
    return table.set_column(1, "ts", table["ts"].cast(pa.timestamp("us", "UTC")))


def _rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.every_version
def test_batch_streaming_and_in_process_answer_alike(spark: SparkSession, tmp_path: Path) -> None:
    table = _table()
    late = table.take(np.argsort(np.arange(N) + np.arange(N) % 7 * 4, kind="stable"))
    folder = files(tmp_path / "in", late, 300)
    arguments: dict[str, Any] = {
        "sensor": "mote",
        "time": "ts",
        "value": "temperature",
        "window": ap.TimeWindow("15 s"),
    }
    for name, more in (
        ("bins", {"resolution": 0.25, "carry": ["n"]}),
        ("band", {"within": 0.1, "partition_by": "room"}),
        ("elements", {"resolution": 0.25, "expand": True}),
    ):
        settings = arguments | more
        inside = sensing.sensor_join(table, **settings)
        assert len(inside) > N / 2
        options = ap.Options(partitions=3, sample=table.slice(0, 60))
        batch = sensing.sensor_join(spark.read.parquet(str(folder)), **settings, options=options)
        found = batch.toArrow()
        assert found.schema.names == inside.schema.names
        assert found.schema.field("time").type == pa.timestamp("us", "UTC")
        assert _rows(found) == _rows(inside)
        assert _rows(ap.rejects(batch).toArrow()) == _rows(ap.rejects(inside))
        if name == "band":
            continue  # a stream of it differs from bins no more than a batch does
        streamed = sensing.sensor_join(read_stream(spark, folder), **settings, lateness=60, options=options)
        answers, rejects = drained(streamed, tmp_path / name)
        assert _rows(answers) == _rows(inside)
        assert _rows(rejects) == _rows(ap.rejects(inside))


def test_phenomena_batch_streaming_and_in_process_tell_the_same(spark: SparkSession, tmp_path: Path) -> None:
    table = _table()
    late = table.take(np.argsort(np.arange(N) + np.arange(N) % 7 * 4, kind="stable"))
    folder = files(tmp_path / "in", late, 300)
    where = pa.table(
        {"mote": [f"m{i}" for i in range(12)], "x": np.arange(12) % 4 * 1.0, "y": np.arange(12) // 4 * 1.0}
    )
    settings: dict[str, Any] = {"sensor": "mote", "time": "ts", "value": "temperature", "resolution": 2.0}
    settings |= {"strength": 2, "span": 12, "locations": where, "reach": 1.0, "partition_by": "room"}
    inside = sensing.phenomena(table, **settings)
    assert len(inside) > 50
    batch = sensing.phenomena(spark.read.parquet(str(folder)), **settings)
    assert _rows(batch.toArrow()) == _rows(inside)
    streamed = sensing.phenomena(read_stream(spark, folder), **settings, lateness=60)
    answers, rejects = drained(streamed, tmp_path / "out")
    assert _rows(answers) == _rows(inside)
    assert _rows(rejects) == _rows(ap.rejects(inside))


def test_decimals_match_by_number(spark: SparkSession, tmp_path: Path) -> None:
    """Within a distance and by bins, as doubles do; without either, if they are equal."""
    doubles = _table()
    doubles = doubles.filter(pc.is_finite(doubles["temperature"]))
    decimals = doubles.set_column(2, "temperature", doubles["temperature"].cast(pa.decimal128(10, 2)))
    frame = spark.read.parquet(str(files(tmp_path / "in", decimals, 300)))
    given: dict[str, Any] = {"sensor": "mote", "time": "ts", "value": "temperature"}
    joined: list[dict[str, Any]] = [{"window": 15} | alike for alike in ({"within": 0.1}, {"resolution": 0.25}, {})]
    options = ap.Options(partitions=3)
    for call, settings in (
        *((sensing.sensor_join, more) for more in joined),
        (sensing.phenomena, {"strength": 2, "span": 12, "resolution": 2.0}),
        (sensing.phenomena, {"strength": 2, "span": 12, "within": 0.1}),
    ):
        wanted, inside = (call(table, **given, **settings) for table in (doubles, decimals))
        assert len(wanted) > 20
        names = [name for name in wanted.column_names if name != "value"]
        assert inside.select(names).equals(wanted.select(names))
        assert list(map(float, inside["value"].to_pylist())) == wanted["value"].to_pylist()
        assert _rows(call(frame, **given, **settings, options=options).toArrow()) == _rows(inside)
