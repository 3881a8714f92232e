"""Several regions under one name: of those that can be used the last stands, in every call and on both engines."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.fences.bucket import FenceBucket
from appulse.engines.fences.call import FenceSettings, resolve_fences
from appulse.engines.queries.call import LocalQueries
from appulse.engines.spark.tiles import TilePlan
from tests.fences.test_fence_events import Case, FakeFences, cases, rows_of, table_of
from tests.helpers.streaming import read_stream, read_written

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Repeated:
    """Fences whose names repeat; ``good`` says which of them can be used."""

    case: Case
    names: tuple[str, ...]
    good: tuple[bool, ...]
    tags: tuple[str | None, ...] | None

    @property
    def fences(self) -> pa.Table:
        table = self.case.fences.set_column(0, "query", pa.array(self.names, pa.string()))
        regions = [one if good else None for one, good in zip(table["region"].to_pylist(), self.good, strict=True)]
        if self.tags is None:
            return table.set_column(1, "region", pa.array(regions, pa.binary()))
        # These are wrong by their conditions, and their regions are good.
        texts = [None if tag is None else f"tag = '{tag}'" for tag in self.tags]
        texts = [text if good else "tag >" for text, good in zip(texts, self.good, strict=True)]
        return table.append_column("condition", pa.array(texts, pa.string()))

    @property
    def twin(self) -> pa.Table:
        """The same without those that are replaced."""
        last = {name: row for row, (name, good) in enumerate(zip(self.names, self.good, strict=True)) if good}
        kept = [row for row, good in enumerate(self.good) if not good or last[self.names[row]] == row]
        return self.fences.take(pa.array(kept, pa.int64()))


@st.composite
def repeated(draw: st.DrawFn) -> Repeated:
    case = draw(cases())
    more = draw(cases())
    case = replace(case, shapes=case.shapes + more.shapes, radii=case.radii + more.radii)
    names, good, tags = (
        st.tuples(*(one for _ in case.shapes))
        for one in (st.sampled_from("ab"), st.integers(0, 4).map(bool), st.sampled_from((None, "u", "v")))
    )
    return Repeated(case, draw(names), draw(good), draw(st.none() | tags))


def _rejects(result: Any) -> list[str]:
    return rows_of([ap.rejects(result).select(["reason", "detail", "values"])])


@settings(deadline=None)
@given(repeated(), st.integers(1, 9), st.integers(1, 3), st.sampled_from((-(1 << 40), 1 << 18)))
def test_the_last_fence_of_a_name_stands(given_: Repeated, cut: int, buckets: int, slack: int) -> None:
    """In one table, by hand with changes, and on a played Spark whose workers forget and fail."""
    case, fences, twin = given_.case, given_.fences, given_.twin
    expected = ap.fence_events(case.stream(case.table), twin, **case.asked)
    found = ap.fence_events(case.stream(case.table), fences, **case.asked)
    assert rows_of([found]) == rows_of([expected])
    assert _rejects(found) == _rejects(expected)
    parts = [table_of(case.rows[at : at + cut]) for at in range(0, len(case.rows), cut)]
    came = []
    for own in (fences, twin):
        by_hand = ap.FenceEvents(case.stream(None, lateness=100), own, **case.asked)
        answers = [by_hand.push(part) for part in parts[:1]]
        by_hand.change(pa.table({"query": ["a"], "change": ["remove"]}))
        answers += [by_hand.push(part) for part in parts[1:2]]
        by_hand.change(own)
        came.append(rows_of([*answers, *map(by_hand.push, parts[2:]), *([by_hand.drain()] if parts else [])]))
    assert came[0] == came[1]
    asked = FenceSettings(**case.asked)
    call = resolve_fences(case.stream(None, lateness=100), case.table.schema, fences, asked)
    spark = FakeFences(call, TilePlan(buckets, 1.0, 0.0, 0.0), Random(cut))
    played: list[pa.Table] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FenceBucket, "slack", slack)
        for part in parts:
            played += spark.batch({call.encoding.name: part})[0]
        played += spark.end()[0]
    assert rows_of(played) == rows_of([expected])


@settings(deadline=None)
@given(repeated().filter(lambda one: one.case.rows).map(lambda one: replace(one, tags=None)))
def test_crossings_and_advice_know_the_last_fence_alone(given_: Repeated) -> None:
    case = given_.case
    moving = case.stream(case.table, motion=ap.Straight(max_gap=12))
    found, expected = (ap.fence_events(moving, own, crossing=0.5, **case.asked) for own in (given_.fences, given_.twin))
    assert rows_of([found]) == rows_of([expected])
    advice = [ap.fence_advice(case.stream(case.table), own, draws=1) for own in (given_.fences, given_.twin)]
    assert advice[0] == advice[1]


def test_a_leg_crosses_the_last_fence_of_a_name_alone() -> None:
    discs = _discs("qq", (0.0, 10.0), (1.0, 1.0))
    leg = pa.table({"id": [1, 1], "t": [0, 10], "x": [-20.0, 20.0], "y": [0.0, 0.0]})
    found = ap.fence_events(replace(_stream(leg), motion=ap.Straight(20)), discs, crossing=0.9)
    assert found.select(["query", "event", "time"]).to_pylist() == [{"query": "q", "event": "cross", "time": 7}]
    assert ap.fence_advice(_stream(ROWS), discs) == ap.fence_advice(_stream(ROWS), discs.slice(1))


@settings(deadline=None)
@given(repeated(), st.sampled_from((0.05, 0.5, 1.0)))
def test_the_last_region_of_a_query_stands(given_: Repeated, least: float) -> None:
    """In one table, and by hand with changes; also where a refused query has a good region."""
    case, queries, twin = given_.case, given_.fences, given_.twin
    stream = case.stream(case.table)
    asked: dict[str, Any] = {"probability": least}
    expected = ap.match_queries(stream, twin, **asked)
    found = ap.match_queries(stream, queries, **asked)
    assert rows_of([found]) == rows_of([expected])
    assert _rejects(found) == _rejects(expected)
    assert rows_of([ap.ask(stream, queries, **asked)]) == rows_of([expected])
    came = []
    for own in (queries, twin):
        by_hand = ap.QueryMatch(case.stream(None), **asked)
        by_hand.change(own)
        answers = [by_hand.push(case.table)]
        by_hand.change(pa.table({"query": ["a"], "change": ["remove"]}))
        answers.append(by_hand.push(case.table))
        by_hand.change(own)
        answers.append(by_hand.push(case.table))
        came.append([rows_of([one]) for one in answers])
    assert came[0] == came[1]
    assert came[0][0] == came[0][2] == rows_of([expected])


def test_a_set_keeps_no_region_that_was_replaced() -> None:
    """Ten thousand updates of one name in one frame leave one region."""
    n = 10_000
    points = pa.table({"query": ["q"] * n, "region": [f"POINT ({i} 0)" for i in range(n)], "radius": [1.0] * n})
    by_hand = ap.QueryMatch(ap.Stream(None, key="id", time="t", value=ap.Exact("x", "y")))
    by_hand.change(points)
    rows = pa.table({"id": np.arange(n), "t": np.zeros(n), "x": np.arange(float(n)), "y": np.zeros(n)})
    assert by_hand.push(rows)["key"].to_pylist() == [n - 2, n - 1]
    assert isinstance(by_hand._engine, LocalQueries)
    assert len(by_hand._engine.queries.regions.arrays.radius) == 1


ROWS = pa.table({"id": [1] * 8, "t": range(8), "x": [0.0, 10.0] * 4, "y": [0.0] * 8})


def _discs(names: str, at: tuple[float, ...], radii: tuple[float, ...]) -> pa.Table:
    return pa.table({"query": list(names), "region": [f"POINT ({x} 0)" for x in at], "radius": radii})


FIRST = _discs("qrq", (0.0, 0.0, 10.0), (1.0, 1.0, 1.0))
# The last of these three is no region.
SECOND = _discs("qqq", (10.0, 0.0, 10.0), (1.0, 1.0, -1.0))
CALLS = pytest.mark.parametrize(
    ("call", "asked"), [(ap.match_queries, {}), (ap.fence_events, {"enter": 1.0, "leave": 1.0})]
)


def _stream(frame: Any) -> ap.Stream[Any]:
    return ap.Stream(frame, key="id", time="t", value=ap.Exact("x", "y"))


@CALLS
def test_in_a_frame_of_spark_the_last_region_of_a_name_stands(
    spark: SparkSession, call: Any, asked: dict[str, Any]
) -> None:
    """Also of queries in parts."""
    table = pa.concat_tables([FIRST, SECOND])
    expected = call(_stream(ROWS), table, **asked)
    assert rows_of([expected]) == rows_of([call(_stream(ROWS), table.take([1, 4]), **asked)])
    rows, regions = (spark.createDataFrame(one.to_pandas()) for one in (ROWS, table))
    for options in (None, ap.Options(partitions=2)):
        result = call(_stream(rows), regions, **asked, options=options)
        assert rows_of([result.toArrow()]) == rows_of([expected])
        assert [row.reason for row in ap.rejects(result).collect()] == ["bad region"]


@CALLS
def test_in_a_micro_batch_the_last_change_of_a_name_stands(
    spark: SparkSession, tmp_path: Path, call: Any, asked: dict[str, Any]
) -> None:
    """And after a second start, from the checkpoint."""
    bare, none = _stream(None), FIRST.slice(0, 0)
    by_hand: Any = ap.QueryMatch(bare) if call is ap.match_queries else ap.FenceEvents(bare, none, **asked)
    expected = []
    for i, table in enumerate((FIRST, SECOND)):
        parts = {"changes": table.append_column("change", pa.array(["add"] * 3)), "rows": ROWS.slice(4 * i, 4)}
        by_hand.change(parts["changes"])
        expected.append(by_hand.push(parts["rows"]))
        for name, part in parts.items():
            (tmp_path / name).mkdir(exist_ok=True)
            pq.write_table(part, tmp_path / name / f"{i}.parquet")
        changes, rows = (read_stream(spark, tmp_path / name) for name in parts)
        how: dict[str, Any] = {"drain": True} if i else {"trigger": {"availableNow": True}}
        sinks = [("parquet", {"path": str(tmp_path / name)}) for name in ("answers", "rejects")]
        result = call(_stream(rows), changes, **asked)
        ap.start(result, *sinks, checkpoint=str(tmp_path / "checkpoint"), **how).awaitTermination()
    if call is ap.fence_events:
        expected.append(by_hand.drain())
    found = rows_of([read_written(tmp_path / "answers")])
    assert found == rows_of(expected)
    assert sum("'q'" in row for row in found) > 3
    assert read_written(tmp_path / "rejects")["reason"].to_pylist() == ["bad region"]
