"""The seam by a toy operator: in process, in a played Spark with every fault, on Spark in batch and streaming."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.local import Local
from appulse.engines.spark.routing import ToGroups, bucket_keys
from appulse.engines.spark.stage import GroupBuckets, Stage
from appulse.engines.spark.tiles import TilePlan
from tests.engines import running_max as toy
from tests.helpers.fake_spark import FakeQuery
from tests.helpers.streaming import drained, files, read_stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from appulse.engines.spark.pipeline import Routing
    from appulse.engines.spark.tiling import Tiling

LATENESS = 5
rows = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 40), st.integers(-5, 5)), max_size=40)


def _table(given: Sequence[tuple[str, int, int]]) -> pa.Table:
    columns = list(zip(*given, strict=True)) if given else [(), (), ()]
    names, kinds = ("id", "ts", "x"), (pa.string(), pa.int64(), pa.float64())
    return pa.table({n: pa.array(c, k) for n, c, k in zip(names, columns, kinds, strict=True)})


def _stream(frame: Any, **settings: Any) -> ap.Stream[Any]:
    return ap.Stream(frame, key="id", time="ts", value=ap.Exact("x"), partition_by="id", name="s", **settings)


def _naive(given: Sequence[tuple[str, int, int]]) -> list[tuple[str, int, float]]:
    """Each row with the greatest value of its key so far; of one time the lesser values first."""
    ordered = sorted(given, key=lambda row: (row[1], row[0], row[2]))
    return [
        (key, at, float(max(v for k, _, v in ordered[: i + 1] if k == key))) for i, (key, at, _) in enumerate(ordered)
    ]


def _found(tables: Sequence[pa.Table]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for table in tables for row in table.to_pylist())


def test_the_toy_is_small() -> None:
    assert len(Path(toy.__file__).read_text(encoding="utf-8").splitlines()) < 80


@given(given=rows)
def test_a_whole_table_is_as_the_twin(given: list[tuple[str, int, int]]) -> None:
    assert _found([toy.running_max(_stream(_table(given)))]) == sorted(_naive(given))


@dataclass
class FakeMax(FakeQuery):
    """The toy on a played Spark."""

    def _routing(self, tiling: Tiling) -> Routing:
        return ToGroups(bucket_keys(tiling, grouped=True))

    def _stages(self, tiling: Tiling) -> Sequence[Stage]:  # noqa: ARG002 - whatever the tiling
        return [Stage(GroupBuckets(self.call, toy.MaxBucket), "max")]


@pytest.mark.filterwarnings("ignore::appulse.LateRows")  # most rows may be late, by chance
@given(given=rows, cut=st.integers(1, 9), buckets=st.integers(1, 3), slack=st.sampled_from((-(1 << 40), 1 << 18)))
def test_a_played_spark_is_as_pushes_in_process(
    given: list[tuple[str, int, int]], cut: int, buckets: int, slack: int
) -> None:
    """Late rows, workers that forget, attempts that fail, logs that begin anew: nothing is lost or comes twice."""
    call = toy.resolve(_stream(None, lateness=LATENESS), _table([]).schema)
    local = Local(toy.MaxBucket(call))
    spark = FakeMax(call, TilePlan(buckets, 1.0, 0.0, 0.0), Random(len(given)))
    expected: list[pa.Table] = []
    found: list[pa.Table] = []
    refused: list[pa.Table] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(toy.MaxBucket, "slack", slack)
        for at in range(0, len(given), cut):
            table = _table(given[at : at + cut])
            expected.append(local.push({"s": table}))
            answers, rejects = spark.batch({"s": table})
            found += answers
            refused += rejects
        found += spark.end()[0]
    assert _found([*expected, local.drain()]) == sorted(_naive(_without(given, local.rejects().to_pylist())))
    # A bucket of some keys may wait for rows that are late to all of them, so each engine has late rows of its own.
    assert _found(found) == sorted(_naive(_without(given, [row for table in refused for row in table.to_pylist()])))


def _without(given: Sequence[tuple[str, int, int]], late: Sequence[dict[str, Any]]) -> list[tuple[str, int, int]]:
    kept = list(given)
    for row in late:
        kept.remove((row["key"], row["time"], int(json.loads(row["values"])["x"])))
    return kept


def test_spark_in_batch_and_streaming_is_as_in_process(spark: SparkSession, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    keys, values = rng.choice(list("abcdefgh"), 200).tolist(), rng.integers(-50, 50, 200).tolist()
    table = _table(list(zip(keys, (100 + np.arange(200) // 2).tolist(), values, strict=True)))
    expected = _found([toy.running_max(_stream(table))])
    folder = files(tmp_path / "in", table, 100)
    batch = toy.running_max(_stream(spark.read.parquet(str(folder)))).toArrow()
    assert _found([batch]) == expected
    assert batch.schema.names == ["key", "time", "max"]
    answers, rejects = drained(toy.running_max(_stream(read_stream(spark, folder))), tmp_path / "out")
    assert _found([answers]) == expected
    assert len(rejects) == 0
