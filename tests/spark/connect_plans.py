"""What `test_connect_plans.py` runs as a client of Spark Connect: calls that ask the server for nothing.

python -m tests.spark.connect_plans sc://127.0.0.1:15002 FOLDER
"""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import appulse as ap
from appulse.model.streaming import is_streaming

if TYPE_CHECKING:
    from collections.abc import Iterator

ASKED: dict[str, Any] = {"epsilon": 0.3, "probability": 0.5, "window": ap.TimeWindow(4)}
COLUMNS = "id BIGINT, ts TIMESTAMP, x DOUBLE, y DOUBLE"


def stream(frame: Any, **settings: Any) -> ap.Stream[Any]:
    """The rows, as Gaussians, with their columns."""
    given = {"schema": COLUMNS} | settings
    return ap.Stream(frame, key="id", time="ts", value=ap.Gaussian("x", "y", sigma=0.1), **given)


def averages(pairs: Any) -> Any:
    """A call over the answers of another, whose columns are known."""
    given = ap.Stream(pairs, key="left_key", time="left_time", value="distance")
    return ap.window_aggregate(given, {"distance": ["mean"]}, window=ap.TumblingWindow(4))


@contextmanager
def no_analysis(spark: Any) -> Iterator[None]:
    """Fail where the server is asked about a frame."""

    def refuse(*_given: object, **_named: object) -> None:
        raise AssertionError("the server was asked")

    known = type(spark.client)._analyze
    type(spark.client)._analyze = refuse
    try:
        yield
    finally:
        type(spark.client)._analyze = known


def main() -> None:
    """Write answers below the folder."""
    remote, folder = sys.argv[1:]
    spark: Any = SparkSession.builder.remote(remote).getOrCreate()
    with no_analysis(spark):
        frame = spark.read.parquet(f"{folder}/in")
        coming = spark.readStream.schema(COLUMNS).parquet(f"{folder}/in")
        assert not is_streaming(frame)
        assert is_streaming(coming.where("x > 0"))
        joined: Any = ap.self_join(stream(frame), **ASKED)
        changes: Any = ap.self_join(stream(frame), emit="changes", **ASKED)
        batch: Any = averages(joined)
        streamed: Any = averages(ap.self_join(stream(coming), **ASKED))
        refused = ap.rejects(joined.select("left_key", "right_key"))
        explained = ap.explain(joined.where("probability > 0.9"))
        with pytest.raises(ap.BadArgument, match="withWatermark"):
            ap.self_join(stream(coming.withWatermark("ts", "1 second")), **ASKED)
        wrong: Any = ap.self_join(stream(frame, schema=COLUMNS.replace("y DOUBLE", "y FLOAT")), **ASKED)
    assert is_streaming(spark.sql("SELECT 1")) is False  # what only the server knows
    assert ap.self_join(stream(frame, schema=None), **ASKED).count() == joined.count()
    named = frame.withColumnsRenamed({"id": "thing.id", "ts": "at`utc", "x": "pos.x"})
    other: Any = ap.Stream(named, key="thing.id", time="at`utc", value=ap.Gaussian("pos.x", "y", sigma=0.1))
    of_names: Any = ap.self_join(other, **ASKED)
    assert of_names.count() == joined.count()
    assert ap.rejects(of_names).count() == ap.rejects(joined).count()
    with pytest.raises(PySparkException, match="schema= says that column 'y' is float, and in the frame it is double"):
        wrong.collect()
    pq.write_table(joined.toArrow(), f"{folder}/joined.parquet")
    pq.write_table(changes.toArrow(), f"{folder}/changes.parquet")
    pq.write_table(batch.toArrow(), f"{folder}/batch.parquet")
    said = {"window": explained.steps["window"], "refused": [row.key for row in refused.collect()]}
    (Path(folder) / "said.json").write_text(json.dumps(said), encoding="utf-8")
    with pytest.raises(ap.SessionError, match=r"Use result\.writeStream"):
        ap.start(streamed, ("parquet", {"path": f"{folder}/started"}), checkpoint=f"{folder}/of-start")
    assert not Path(folder, "of-start").exists()  # so that another job may take it
    topic = {"kafka.bootstrap.servers": "nowhere:9092", "topic": "loop"}
    read = spark.readStream.format("kafka").options(**topic | {"subscribe": "loop"}).load()
    read = read.selectExpr("offset AS id", "timestamp AS ts", "1D AS x", "2D AS y")
    with no_analysis(spark), pytest.raises(ap.BadArgument, match="the query reads the topic 'loop'"):
        ap.start(ap.self_join(stream(read), **ASKED), ("kafka", topic), checkpoint=f"{folder}/of-start")
    own = ("parquet", {"path": f"{folder}/in"})
    for one in (coming, spark.readStream.format("parquet").schema(COLUMNS).option("PATH", f"{folder}/in").load()):
        with no_analysis(spark), pytest.raises(ap.BadArgument, match="/in is the folder of a source"):
            ap.start(ap.self_join(stream(one), **ASKED), own, checkpoint=f"{folder}/of-start")
    spark.catalog.createTable("read_here", f"{folder}/in", "parquet")
    for one in (coming, spark.readStream.table("read_here"), coming.join(spark.table("read_here").select("id"), "id")):
        for sink in (own, ("delta", {"table": "default.read_here"})):
            with pytest.raises(ap.BadArgument, match="/in is the folder of a source"):
                ap.start(ap.self_join(stream(one, lateness=0), **ASKED), sink, checkpoint=f"{folder}/of-start")
    assert not Path(folder, "of-start").exists()
    writer = streamed.writeStream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    writer.format("parquet").option("path", f"{folder}/streamed").start().awaitTermination()


if __name__ == "__main__":
    main()
