"""Rows that are withdrawn from calls that keep none: each comes when its tick is complete, unless it was withdrawn."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.bucket import Bucket
from appulse.engines.options import CallSettings
from appulse.engines.spark.routing import ToThings, bucket_keys
from appulse.engines.spark.stage import GroupBuckets, Stage
from appulse.engines.spark.tiles import TilePlan
from appulse.engines.surviving import SurvivingCall, bucket_of, resolve_surviving
from tests.helpers.fake_spark import FakeQuery
from tests.helpers.streaming import drained, files, read_stream
from tests.operators.test_withdrawals_of_waiting_rows import Row, frames_of, rows_of, stories, table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from appulse.engines.spark.pipeline import Routing
    from appulse.engines.spark.tiling import Tiling

QUERIES = pa.table({"query": ["far", "low"], "condition": ["x > 4", "y < 4 AND x < 10"]})
BOTH = pa.table({"query": ["near"], "condition": ["a.x - b.x < 1 AND b.x - a.x < 1"]})
NEAR: dict[str, Any] = {"epsilon": 3.0, "probability": 0.1}
MOVING: dict[str, Any] = {"motion": ap.Straight(max_gap=4)}
BURSTS: dict[str, Any] = {"existence": ap.Bursts("p", correlation=0.5)}
CHAIN = ap.UncertainCountWindow(2, confidence=0.9)
FILL = ap.ZeroFill()


def queried(*streams: ap.Stream) -> ap.QueryMatch:
    many = len(streams) > 1
    call = ap.QueryMatch(*streams, probability=0.5, window=ap.TimeWindow(3) if many else None)
    call.change(BOTH if many else QUERIES)
    return call


#: The call over tables, by hand, how many streams it has, and what these have.
CALLS: dict[str, tuple[Any, Any, int, dict[str, Any]]] = {
    "queries": (lambda a: ap.match_queries(a, QUERIES, probability=0.5), queried, 1, {}),
    "choices": (lambda a, b: ap.match_queries(a, b, BOTH, probability=0.5, window=3), queried, 2, {}),
    "sensors": (
        lambda a: ap.sensor_join(a, resolution=3.0, window=5, expand=True),
        lambda a: ap.SensorJoin(a, resolution=3.0, window=5, expand=True),
        1,
        {"value": "x"},
    ),
    "phenomena": (
        lambda a: ap.phenomena(a, resolution=3.0, strength=1, span=4),
        lambda a: ap.Phenomena(a, resolution=3.0, strength=1, span=4),
        1,
        {"value": "x"},
    ),
    "encounters": (lambda a, b: ap.encounters(a, b, **NEAR), lambda *s: ap.Encounters(*s, **NEAR), 2, MOVING),
    "moving": (
        lambda a, b: ap.similarity_join(a, b, window=4, **NEAR),
        lambda *s: ap.SimilarityJoin(*s, window=4, **NEAR),
        2,
        MOVING,
    ),
    "bursts": (
        lambda a, b: ap.similarity_join(a, b, window=CHAIN, **NEAR),
        lambda *s: ap.SimilarityJoin(*s, window=CHAIN, **NEAR),
        2,
        BURSTS,
    ),
    "sums": (
        lambda a: ap.window_aggregate(a, {"x": "sum"}, window=3),
        lambda a: ap.WindowAggregate(a, {"x": "sum"}, window=3),
        1,
        BURSTS | {"value": "x"},
    ),
    "filled": (
        lambda a, b: ap.similarity_join(a, b, window=4, imputer=FILL, **NEAR),
        lambda *s: ap.SimilarityJoin(*s, window=4, imputer=FILL, **NEAR),
        2,
        {"value": ap.Incomplete("x", "y")},
    ),
    "left": (
        lambda a, b: ap.similarity_join(a, b, window=4, how="full", **NEAR),
        lambda *s: ap.SimilarityJoin(*s, window=4, how="full", **NEAR),
        2,
        {},
    ),
}


def streams(name: str, frames: dict[str, pa.Table] | None = None, **more: Any) -> list[ap.Stream]:
    _, _, sides, own = CALLS[name]
    given = {"value": ap.Gaussian("x", "y", sigma=0.5)} | own | more
    found = prepared(name, frames or {})
    return [ap.Stream(found.get(side), key="k", time="t", name=side, **given) for side in "ab"[:sides]]


def prepared(name: str, frames: dict[str, Any]) -> dict[str, Any]:
    """With probabilities, or with holes, where the call is about these."""
    if name == "filled":
        holes = {s: pc.if_else(pc.equal(frame["x"], 20.0), None, frame["x"]) for s, frame in frames.items()}
        return {side: frame.set_column(2, "x", holes[side]) for side, frame in frames.items()}
    if name in ("bursts", "sums"):
        return {side: frame.append_column("p", pa.array([0.5] * len(frame))) for side, frame in frames.items()}
    return frames


@settings(max_examples=60)
@given(st.sampled_from([*CALLS]), st.integers(0, 4), st.data())
def test_a_row_may_be_withdrawn_until_its_tick_is_complete(name: str, lateness: int, data: st.DataObject) -> None:
    """The twin: a batch over the rows that came in time, without those withdrawn before their ticks were complete."""
    call, by_hand, sides, _ = CALLS[name]
    story = data.draw(stories(sides, lateness))
    engine = by_hand(*streams(name, change="op", lateness=lateness))
    tables, reached = [], dict.fromkeys(story[0], -1)
    stand: dict[str, list[Row]] = {side: [] for side in story[0]}
    for push in story:
        tables.append(engine.push(**prepared(name, frames_of(push))))
        for side, (added, gone) in push.items():
            before = reached[side]
            stand[side] += [row for row in added if row["t"] >= before]
            for row in gone:
                if row["t"] >= before and row in stand[side]:
                    stand[side].remove(row)
            reached[side] = max([before, *(row["t"] - lateness for row in added)])
    tables.append(engine.drain())
    whole = {side: table(rows, "add") for side, rows in stand.items()}
    assert rows_of(pa.concat_tables(tables)) == rows_of(call(*streams(name, whole)))


@given(st.integers(0, 4), st.data())
def test_changes_of_queries_add_up_to_the_rows_that_stand(lateness: int, data: st.DataObject) -> None:
    """After each push, withdrawn before the tick is complete or not at all."""
    story = data.draw(stories(1, lateness))
    call = ap.QueryMatch(*streams("queries", change="op", lateness=lateness), probability=0.5, emit="changes")
    call.change(QUERIES)
    stand: list[Row] = []
    found: Counter[str] = Counter()
    reached = -1
    for push in story:
        for row in call.push(**frames_of(push)).to_pylist():
            found[str({name: row[name] for name in row if name != "change"})] += row["change"]
        added, gone = push["a"]
        stand += [row for row in added if row["t"] >= reached]
        for row in gone:
            if row["t"] >= reached and row in stand:
                stand.remove(row)
        reached = max([reached, *(row["t"] - lateness for row in added)])
        expected = CALLS["queries"][0](*streams("queries", {"a": table(stand, "add")}))
        assert +found == Counter(map(str, expected.to_pylist()))
        assert not -found
    assert not len(call.drain())


def test_changes_of_queries_need_queries_that_stay() -> None:
    (stream,) = streams("queries", change="op")
    call = ap.QueryMatch(stream, probability=0.5, emit="changes")
    call.change(QUERIES)
    call.push(table([], "add"))
    with pytest.raises(ap.BadArgument, match="needs queries that stay"):
        call.change(QUERIES)
    with pytest.raises(ap.BadArgument, match="Give Stream\\(change='op'\\)"):
        ap.QueryMatch(*streams("queries"), probability=0.5, emit="changes")
    with pytest.raises(ap.NotBuilt, match="several streams"):
        ap.QueryMatch(*streams("choices", change="op"), probability=0.5, window=3, emit="changes")
    with pytest.raises(ap.BadArgument, match="a column 'change'"):
        ap.match_queries(
            ap.Stream(pa.table({"k": [1], "t": [1], "change": [0], "op": ["add"]}), "k", "t", "change", change="op"),
            pa.table({"query": ["all"], "condition": ["k > 0"]}),
            emit="changes",
        )


@settings(max_examples=30)
@given(st.sampled_from([*CALLS]), st.data())
def test_a_call_on_tables_is_that_of_the_rows_left(name: str, data: st.DataObject) -> None:
    call, _, sides, _ = CALLS[name]
    story = data.draw(stories(sides, 4))
    parts = {side: [frames_of(push)[side] for push in story] for side in story[0]}
    given = {side: pa.concat_tables(data.draw(st.permutations(own))) for side, own in parts.items()}
    assert rows_of(call(*streams(name, given, change="op"))) == rows_of(call(*streams(name, left_of(story))))


def left_of(story: Sequence[Any]) -> dict[str, pa.Table]:
    stand: dict[str, list[Row]] = {side: [row for push in story for row in push[side][0]] for side in story[0]}
    for push in story:
        for side, (_, gone) in push.items():
            for row in gone:
                stand[side].remove(row)
    return {side: table(rows, "add") for side, rows in stand.items()}


class FakeSurviving(FakeQuery):
    """The rows that are left, on a played Spark."""

    call: SurvivingCall

    def _routing(self, tiling: Tiling) -> Routing:
        return ToThings(bucket_keys(tiling, grouped=True), self.call.encodings)

    def _stages(self, tiling: Tiling) -> Sequence[Stage]:  # noqa: ARG002 - whatever the tiling
        return [Stage(GroupBuckets(self.call, bucket_of), "surviving")]


@settings(max_examples=20)
@given(st.data())
def test_a_played_spark_leaves_the_same_rows(data: st.DataObject) -> None:
    """Any number of buckets; workers forget, attempts fail, and logs begin anew."""
    story = data.draw(stories(1, 0))
    (stream,) = streams("queries", change="op", lateness=100)
    signed = data.draw(st.booleans())
    call = resolve_surviving(stream, table([], "add").schema, CallSettings(), signed=signed)
    plan, random = TilePlan(data.draw(st.integers(1, 3)), 1.0, 0.0, 0.0), Random(data.draw(st.integers(0, 1 << 30)))
    played, found = FakeSurviving(call=call, plan=plan, random=random), [call.answer_schema.empty_table()]
    with patch.object(Bucket, "slack", data.draw(st.sampled_from((-(1 << 40), 1 << 18)))):
        for push in [*story, None]:
            answers, rejects = played.end() if push is None else played.batch(frames_of(push))
            assert not any(map(len, rejects))
            found += answers
    rows, stand = pa.concat_tables(found), left_of(story)["a"].drop_columns("op")
    if signed:
        signs = rows["change"]
        rows = rows.drop_columns("change")
        assert not len(rows.filter(pc.equal(signs, 0)))
        came, gone = (Counter(map(str, rows.filter(pc.equal(signs, sign)).to_pylist())) for sign in (1, -1))
        assert came - gone == Counter(map(str, stand.to_pylist()))
        assert not gone - came
        return
    assert rows_of(rows) == rows_of(stand)


def test_rejects_of_both_calls_are_told() -> None:
    good = {"k": 1, "t": 1, "x": 2.0, "y": 2.0}
    rows: list[Row] = [good, {**good, "k": None}, {**good, "k": 2, "x": float("nan")}, {**good, "k": 3, "x": None}]
    frame = pa.concat_tables([table(rows, "add"), table([{**good, "k": 3, "x": None}, {**good, "k": 7}], "remove")])
    found = ap.match_queries(*streams("queries", {"a": frame}, change="op"), QUERIES, probability=0.5)
    reported = [(row["key"], row["reason"]) for row in ap.rejects(found).to_pylist()]
    assert reported == [(None, "null key"), (7, "no such row"), (2, "non-finite value")]
    assert ap.rejects(found)["values"][0].as_py() == '{"x": 2.0, "y": 2.0}'
    call = queried(*streams("queries", change="op"))
    assert not len(call.push(frame))
    assert [row["key"] for row in call.drain().to_pylist()] == [1]
    assert [(row["key"], row["reason"]) for row in call.rejects().to_pylist()] == reported
    assert len(call.take_rejects()) == 3  # type: ignore[arg-type]
    assert not len(call.rejects())


def test_rejects_have_keys_as_the_call_has_them() -> None:
    """Of streams whose keys differ in type: those in front of the call, too."""
    keys = pa.array([{"a": 1}, {"a": 2}], pa.struct([("a", pa.int64())]))
    rows = pa.table({"k": keys, "t": [1, None], "x": [0.0, 0.0], "op": ["add", "add"]})
    others = pa.table({"k": pa.array([b"\xff", b"abc"]), "t": [1, 1], "x": [0.0, 0.0]})
    left = ap.Stream(rows, key="k", time="t", value="x", change="op")
    found = ap.nearest(left, ap.Stream(others, key="k", time="t", value="x"), 2, epsilon=1, window=5)
    assert found["left_key"].unique().to_pylist() == ['{"a": 1}']
    assert sorted(found["right_key"].to_pylist()) == ['"/w=="', "abc"]  # whatever bytes there are beside
    assert ap.rejects(found).select(["key", "reason"]).to_pylist() == [{"key": '{"a": 2}', "reason": "null time"}]


@pytest.mark.parametrize("lost", [["x"], ["x", "y"], ["op"]])
def test_a_column_that_is_missing_is_named(lost: list[str]) -> None:
    """With the columns that there are, and no others."""
    rows = pa.table({"id": [1], "ts": [0], "x": [0.0], "y": [0.0], "op": ["add"]}).drop_columns(lost)
    stream = ap.Stream(rows, key="id", time="ts", value=ap.Exact("x", "y"), change="op")
    with pytest.raises(ap.BadArgument, match=f"no column '{lost[0]}'.* It has: {', '.join(rows.column_names)}\\.$"):
        ap.match_queries(stream, QUERIES)


def test_a_push_that_fails_leaves_the_rows_where_they_were() -> None:
    call = ap.SensorJoin(*streams("sensors", change="op"), resolution=1.0, window=5, on_reject="fail")
    bad = {"k": 1, "t": 1, "x": float("nan"), "y": 0.0}
    call.push(table([bad], "add"))
    later = table([{**bad, "t": 3, "x": 1.0}], "add")
    for _ in range(2):
        with pytest.raises(ap.BadInput, match="nan"):
            call.push(later)
    call.push(table([bad], "remove"))
    assert call.state()["state_rows"] == 0
    call.push(later)
    assert call.state()["state_rows"] == 1


@pytest.mark.spark
def test_spark_leaves_the_rows_that_are_not_withdrawn(spark: SparkSession, tmp_path: Path) -> None:
    """A batch, and a stream in which additions and removals come in any order: what a batch over the rest tells."""
    rows: list[Row] = [{"k": k % 3, "t": 1000 + k, "x": float(k % 5), "y": 2.0} for k in range(30)]
    gone: list[Row] = [rows[4], {**rows[9], "x": None}, {**rows[0], "k": 7}]
    bad = {**rows[0], "k": 9, "x": float("nan")}
    frame = pa.concat_tables([table([*rows[:12], bad], "add"), table(gone, "remove"), table(rows[12:], "add")])
    stand = table([row for row in rows if row not in (rows[4], rows[9])], "add")
    reported = [(7, "no such row"), (9, "non-finite value")]
    named = stand.set_column(0, "k", pc.binary_join_element_wise("k", stand["k"].cast("string"), ""))
    expected = CALLS["left"][0](*streams("left", {"a": stand, "b": named}))
    batch = {"a": spark.createDataFrame(frame.to_pandas()), "b": spark.createDataFrame(named.to_pandas())}
    found = CALLS["left"][0](*corrected("left", batch))
    assert rows_of(found.toArrow()) == rows_of(expected)
    rejects = [(row["key"], row["reason"]) for row in ap.rejects(found).toArrow().to_pylist()]
    assert sorted(rejects) == [(str(key), reason) for key, reason in reported]  # as text, as the keys of the call are
    (signed,) = corrected("queries", {"a": batch["a"]})
    changes = ap.match_queries(signed, QUERIES, probability=0.5, emit="changes").toArrow()
    assert changes["change"].unique().to_pylist() == [1]
    assert rows_of(changes.drop_columns("change")) == rows_of(CALLS["queries"][0](*streams("queries", {"a": stand})))
    streamed = corrected("queries", {"a": read_stream(spark, files(tmp_path / "in", frame, 18))}, lateness=60)
    answers, rejects = drained(CALLS["queries"][0](*streamed), tmp_path / "out")
    assert rows_of(answers) == rows_of(CALLS["queries"][0](*streams("queries", {"a": stand})))
    assert sorted((row["key"], row["reason"]) for row in rejects.to_pylist()) == reported


def corrected(name: str, frames: dict[str, Any], **more: Any) -> list[ap.Stream]:
    """The first stream has changes."""
    first, *others = streams(name, frames, change="op", **more)
    return [first, *streams(name, frames, **more)[1:]] if others else [first]
