"""Calls with states by key go on with more or fewer partitions, and answer as one call does."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import appulse as ap
from appulse.engines.spark import repartition
from tests.helpers.streaming import files, read_stream, read_written

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

N = 240
ZONES = {"query": [1, 2], "region": [f"POLYGON (({x} 0, {x + 3} 0, {x + 3} 9, {x} 9, {x} 0))" for x in (1, 5)]}


def _table() -> pa.Table:
    """Twelve things that walk to and fro among the zones, a second for each row of all."""
    i = np.arange(N)
    rng = np.random.default_rng(3)
    x = 4.5 + 4.5 * np.sin(i / 25 + i % 12) + rng.normal(0, 0.1, N)
    columns = {
        "id": i % 12,
        "ts": i * 1.0,
        "x": x,
        "y": rng.uniform(0, 9, N),
        "room": i % 5,
        "level": rng.integers(0, 6, N),
    }
    return pa.table(columns)


def _stream(frame: Any, value: Any = None, **more: Any) -> ap.Stream:
    return ap.Stream(frame, key="id", time="ts", value=value or ap.Gaussian("x", "y", sigma=0.3), lateness=2, **more)


def _aggregate(frame: Any) -> Any:
    stream = _stream(frame, ap.Exact("x"), partition_by="room")
    return ap.window_aggregate(stream, {"x": ["sum", "count"]}, window=ap.CountWindow(7))


def _fences(frame: Any) -> Any:
    return ap.fence_events(_stream(frame), pa.table(ZONES))


def _encounters(frame: Any) -> Any:
    stream = _stream(frame, motion=ap.Straight(max_gap=30, max_speed=5))
    return ap.encounters(stream, epsilon=1.5, probability=0.5, gap=5)


def _sensors(frame: Any) -> Any:
    return ap.sensor_join(_stream(frame, "level"), resolution=1, window=ap.TimeWindow("40 s"))


def _nearest(frame: Any) -> Any:
    here, there = (replace(_stream(frame, ap.Exact("x", "y")), name=name) for name in ("here", "there"))
    return ap.nearest(here, there, k=2, epsilon=3.0, window=ap.TimeWindow(5))


def _phenomena(frame: Any) -> Any:
    places = pa.table({"id": range(12), "x": [i % 4 for i in range(12)], "y": [i // 4 for i in range(12)]})
    asked: dict[str, Any] = {"resolution": 1, "strength": 1, "span": "5 s", "locations": places, "reach": 1.0}
    return ap.phenomena(_stream(frame, "level"), **asked)


@pytest.mark.parametrize(
    "call",
    [
        _fences,
        _encounters,
        _sensors,
        _nearest,
        *(pytest.param(call, marks=pytest.mark.long) for call in (_aggregate, _phenomena)),
    ],
)
def test_a_query_goes_on_with_more_or_fewer_partitions(
    spark: SparkSession, tmp_path: Path, call: Callable[[Any], Any]
) -> None:
    table, folder = _table(), tmp_path / "in"
    sink = ("parquet", {"path": str(tmp_path / "out")})
    for at, partitions in enumerate((2, 3, 1)):
        part = table.slice(at * 80, 80)
        for file in files(tmp_path / str(at), part, 80).iterdir():
            folder.mkdir(exist_ok=True)
            file.rename(folder / f"{at}-{file.name}")
        result = call(read_stream(spark, folder))
        going: dict[str, Any] = {"drain": True} if at == 2 else {"trigger": {"availableNow": True}}
        idle = pytest.warns(UserWarning, match="2 buckets, .* of 3 partitions 1 have nothing to do")
        with idle if partitions == 3 and call is not _nearest else nullcontext():  # tiles are not counted
            query = ap.start(result, sink, checkpoint=str(tmp_path / "checkpoint"), partitions=partitions, **going)
        query.awaitTermination()
        offsets = tmp_path / "checkpoint" / "offsets"
        last = max(int(file.name) for file in offsets.iterdir() if file.name.isdecimal())
        settings = json.loads((offsets / str(last)).read_text().splitlines()[1])["conf"]
        # States of tiles are spread over more, and never put together again.
        assert settings["spark.sql.shuffle.partitions"] == str((2, 3, 3)[at] if call is _nearest else partitions)
    found, expected = read_written(tmp_path / "out"), call(table)
    if not isinstance(expected, pa.Table):
        expected = expected.to_arrow()
    assert len(expected) > 10
    assert _rows(found) == _rows(expected)


def test_a_query_that_was_killed_within_a_batch_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    """With the partitions it has; other ones come between batches, also after a move of states that was cut short."""
    checkpoint, sink = tmp_path / "checkpoint", ("parquet", {"path": str(tmp_path / "out")})
    table, folder = _table(), files(tmp_path / "in", _table().slice(0, 120), 60)

    def run(partitions: int | None, **going: Any) -> None:
        result = _fences(read_stream(spark, folder))
        ap.start(result, sink, checkpoint=str(checkpoint), partitions=partitions, **going).awaitTermination()

    def kill() -> None:
        batches = [int(file.name) for file in (checkpoint / "commits").iterdir() if file.name.isdecimal()]
        (checkpoint / "commits" / str(max(batches))).unlink()

    now = {"availableNow": True}
    run(2, trigger=now)
    kill()
    with pytest.raises(ap.CheckpointError, match=r"in 2 partitions, between batches only\. .* let it end by itself"):
        run(1, trigger=now)
    run(2, trigger=now)
    repartition._manager(spark).repartition(str(checkpoint), 1, False)
    kill()
    for file in files(tmp_path / "later", table.slice(120), 60).iterdir():
        file.rename(folder / f"later-{file.name}")
    run(2, drain=True)
    assert _rows(read_written(tmp_path / "out")) == _rows(_fences(table))


def _rows(table: pa.Table) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in table.to_pylist())
