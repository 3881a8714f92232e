"""Samples of readings: those of a search through all rows, whatever the cut into pushes, in process and on Spark."""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.collecting.call import CollectBucket, CollectCall, CollectSettings, resolve_collect
from appulse.engines.local import Local
from appulse.engines.spark.routing import ToThings, bucket_keys
from appulse.engines.spark.stage import GroupBuckets, Stage
from appulse.engines.spark.tiles import TilePlan
from tests.helpers.fake_spark import FakeQuery
from tests.helpers.streaming import drained, files, read_stream

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from appulse.engines.spark.pipeline import Routing
    from appulse.engines.spark.tiling import Tiling

LATENESS = 4
KINDS = {"k": pa.string(), "t": pa.int64(), "x": pa.float64(), "y": pa.float64(), "p": pa.float64(), "g": pa.string()}
readings = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.integers(-9, 30),
        st.integers(-4, 4).map(float),
        st.integers(-4, 4).map(float),
        st.sampled_from([1.0, 0.5, 0.25]),
        st.sampled_from("uv"),
    ),
    max_size=30,
)
Given = list[tuple[Any, ...]]


def table(rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(KINDS)
    return pa.table({name: pa.array(c, kind) for (name, kind), c in zip(KINDS.items(), columns, strict=True)})


def stream(frame: Any, **settings: Any) -> ap.Stream[Any]:
    usual: dict[str, Any] = {"value": ap.Exact("x", "y"), "existence": "p", "partition_by": "g", "carry": ["p"]}
    return ap.Stream(frame, key="k", time="t", name="s", **usual | settings)


def expected(rows: Given, every: int) -> list[tuple[Any, ...]]:
    """The twin: readings by key, group and interval, in order of time, then of values."""
    parts = defaultdict(list)
    for k, t, x, y, p, g in rows:
        parts[k, g, t // every].append((t, x, y, p))
    found = []
    for (k, g, _), part in parts.items():
        part.sort(key=lambda row: row[:3])
        points = sorted((x, y, p / len(part)) for _, x, y, p in part)
        found.append((k, part[-1][0], points, g))
    return sorted(found, key=repr)


def reported(tables: Iterable[pa.Table]) -> list[tuple[Any, ...]]:
    found = []
    for row in pa.concat_tables(tables).to_pylist():
        points = sorted((*point, weight) for point, weight in zip(row["samples"], row["weights"], strict=True))
        found.append((row["key"], row["time"], points, row["g"]))
    return sorted(found, key=repr)


@given(readings, st.integers(1, 12))
def test_whole_tables_are_as_the_twin(rows: Given, every: int) -> None:
    found = ap.collect_samples(stream(table(rows)), every=every)
    assert found.column_names == ["key", "time", "samples", "weights", "g", "p"]
    assert reported([found]) == expected(rows, every)


class FakeCollect(FakeQuery):
    """The call on a played Spark."""

    call: CollectCall

    def _routing(self, tiling: Tiling) -> Routing:
        return ToThings(bucket_keys(tiling, grouped=True), self.call.encodings[:1])

    def _stages(self, tiling: Tiling) -> Sequence[Stage]:  # noqa: ARG002 - whatever the tiling
        return [Stage(GroupBuckets(self.call, CollectBucket), "collect")]


@given(readings, st.integers(1, 12), st.integers(1, 9), st.integers(1, 3))
def test_pushes_and_a_played_spark_are_as_the_twin(rows: Given, every: int, cut: int, buckets: int) -> None:
    """In any cut within the lateness; on Spark workers forget, attempts fail, and logs begin anew."""
    chance = Random(len(rows))
    rows.sort(key=lambda row: row[1] + chance.uniform(0, LATENESS))
    call = resolve_collect(stream(None, lateness=LATENESS), table([]).schema, CollectSettings(every=every))
    local, spark = Local(CollectBucket(call)), FakeCollect(call, TilePlan(buckets, 1.0, 0.0, 0.0), chance)
    ours, found = [call.answer_schema.empty_table()], [call.answer_schema.empty_table()]
    for at in range(0, len(rows), cut):
        part = table(rows[at : at + cut])
        ours.append(local.push({"s": part}))
        assert all(row["time"] // every * every + every <= local.bucket.complete / 1e6 for row in ours[-1].to_pylist())
        found += spark.batch({"s": part})[0]
    found += spark.end()[0]
    assert reported([*ours, local.drain()]) == reported(found) == expected(rows, every)


def test_readings_become_rows_that_join() -> None:
    """Fixes of ten seconds as one uncertain place; what is carried is that of the latest."""
    fixes = pa.table(
        {
            "van": ["a", "a", "b", "a", "b"],
            "at": [0.0, 4.0, 5.0, 11.0, 9.5],
            "x": [0.0, 2.0, 1.0, 9.0, 3.0],
            "driver": ["Ann", "Bo", "Cy", "Ann", "Di"],
        }
    )
    samples = ap.collect_samples(ap.Stream(fixes, key="van", time="at", value="x", carry=["driver"]), every="10 s")
    assert samples.to_pylist() == [
        {"key": "a", "time": 4.0, "samples": [0.0, 2.0], "weights": [0.5, 0.5], "driver": "Bo"},
        {"key": "b", "time": 9.5, "samples": [1.0, 3.0], "weights": [0.5, 0.5], "driver": "Di"},
        {"key": "a", "time": 11.0, "samples": [9.0], "weights": [1.0], "driver": "Ann"},
    ]
    value = ap.Samples("samples", weights="weights")
    pairs = ap.self_join(
        ap.Stream(samples, key="key", time="time", value=value), epsilon=1, probability=0.5, window="10 s"
    )
    assert pairs["probability"].to_pylist() == [0.75]


def test_by_hand_a_row_comes_when_its_interval_is_over() -> None:
    by_hand = ap.SampleCollector(ap.Stream(None, key="k", time="t", value="x", name="s", lateness=2), every=10)
    assert len(by_hand.push(s=pa.table({"k": ["a", "a"], "t": [1.0, 9.0], "x": [1.0, 2.0]}))) == 0
    assert len(by_hand.push(s=pa.table({"k": ["b"], "t": [11.9], "x": [5.0]}))) == 0
    late = pa.table({"k": ["a", "b"], "t": [9.95, 12.5], "x": [3.0, 6.0]})
    assert by_hand.push(s=late).to_pylist() == [
        {"key": "a", "time": 9.95, "samples": [1.0, 2.0, 3.0], "weights": [1 / 3] * 3}
    ]
    assert by_hand.drain()["samples"].to_pylist() == [[5.0, 6.0]]


@pytest.mark.parametrize(
    ("changed", "every", "words"),
    [
        ({"value": ap.Gaussian("x", sigma=1)}, 10, "readings without error"),
        ({"order": "arrival"}, 10, "Intervals go by time"),
        ({}, 0, "not an interval"),
        ({}, "soon", "every"),
        ({"carry": ["g"]}, 10, "two columns"),
    ],
)
def test_what_makes_no_sense_is_an_error(changed: dict[str, Any], every: Any, words: str) -> None:
    with pytest.raises(ap.BadArgument, match=words):
        ap.collect_samples(stream(table([]), **changed), every=every)


def test_spark_in_batch_and_streaming_is_as_in_process(spark: SparkSession, tmp_path: Path) -> None:
    chance = Random(1)
    rows: Given = [
        (
            chance.choice("abcdef"),
            100 + i // 4,
            float(chance.randint(0, 5)),
            float(i),
            chance.choice([1.0, 0.5]),
            chance.choice("uv"),
        )
        for i in range(200)
    ]
    every = 7
    folder = files(tmp_path / "in", table(rows), 100)
    batch = ap.collect_samples(stream(spark.read.parquet(str(folder))), every=every).toArrow()
    assert reported([batch]) == expected(rows, every)
    answers, rejects = drained(ap.collect_samples(stream(read_stream(spark, folder)), every=every), tmp_path / "out")
    assert reported([answers]) == expected(rows, every)
    assert len(rejects) == 0
    carried = {(row["key"], row["time"], row["g"]): row["p"] for row in answers.to_pylist()}
    in_process = ap.collect_samples(stream(table(rows)), every=every).to_pylist()
    assert carried == {(row["key"], row["time"], row["g"]): row["p"] for row in in_process}
