"""Regions in queries on Spark: answers are those in process, from whole sets, parts, and a stream of changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import shapely

import appulse as ap

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


def test_regions_answer_as_in_process(spark: SparkSession, tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).uniform(0, 10, (2, 200))
    rows = pd.DataFrame({"k": np.arange(200), "t": np.arange(200) * 1.0, "x": x, "y": y})
    shapes = [shapely.box(0, 0, 3, 3), shapely.LineString([(0, 0), (9, 9)]), shapely.box(5, 5, 9, 9)]
    zones = pd.DataFrame({"query": [1, 2, 3], "region": shapely.to_wkb(shapes), "radius": [None, 0.5, None]})
    zones["condition"] = [None, None, "x > 6"]

    def asked(frame: Any, queries: Any, **options: Any) -> Any:
        stream = ap.Stream(frame, key="k", time="t", value=ap.Gaussian("x", "y", ellipse=(0.7, 0.3, 30)))
        return ap.match_queries(stream, queries, probability=0.3, **options)

    def found(frame: Any) -> dict[tuple[int, int], float]:
        return {(row["query"], row["key"]): row["probability"] for row in frame.to_dict("records")}

    expected = found(asked(rows, zones).to_pandas())
    assert len(expected) > 50
    frame = spark.createDataFrame(rows)
    assert found(asked(frame, zones).toPandas()) == expected
    assert found(asked(frame, spark.createDataFrame(zones), options=ap.Options(partitions=2)).toPandas()) == expected

    def streamed(name: str, table: pd.DataFrame) -> DataFrame:
        (tmp_path / name).mkdir()
        table.to_parquet(tmp_path / name / "1.parquet")
        path = str(tmp_path / name)
        return spark.readStream.schema(spark.read.parquet(path).schema).parquet(path)

    answers = asked(streamed("rows", rows), streamed("changes", zones.assign(change="add")))
    sinks = ("parquet", {"path": str(tmp_path / "out")}), ("json", {"path": str(tmp_path / "rejects")})
    ap.start(answers, *sinks, checkpoint=str(tmp_path / "checkpoint"), drain=True).awaitTermination()
    assert found(pd.read_parquet(tmp_path / "out")) == expected


def test_spark_warns_where_degrees_are_swapped(spark: SparkSession, tmp_path: Path) -> None:
    rows = pd.DataFrame({"k": range(8), "t": np.arange(8.0), "lat": [8.02] * 8, "lon": [47.02] * 8})
    (tmp_path / "rows").mkdir()
    rows.to_parquet(tmp_path / "rows" / "1.parquet")
    frame = spark.readStream.schema("k long, t double, lat double, lon double").parquet(str(tmp_path / "rows"))
    zones = pd.DataFrame({"query": ["a"], "region": ["POLYGON ((8 47, 9 47, 9 48, 8 48, 8 47))"]})
    for call in (ap.fence_events, ap.match_queries):
        batch = call(ap.Stream(spark.createDataFrame(rows), "k", "t", ap.Position("lat", "lon")), zones)
        with pytest.warns(ap.SwappedPlaces, match="would"):
            assert batch.count() == 0
    zones["query"] = "b"  # another call: workers report once for each
    events = ap.fence_events(ap.Stream(frame, key="k", time="t", value=ap.Position("lat", "lon")), zones)
    with pytest.warns(ap.SwappedPlaces, match="8 would"):
        ap.start(events, ("noop", {}), checkpoint=str(tmp_path / "checkpoint"), drain=True).awaitTermination()
