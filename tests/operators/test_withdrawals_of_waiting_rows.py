"""Rows that are withdrawn while they wait for their ticks: `assign`, `fence_events` and `collect_samples`."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.bucket import Bucket
from appulse.engines.collecting.call import CollectBucket, CollectSettings, resolve_collect
from appulse.engines.local import Local
from appulse.engines.spark.tiles import TilePlan
from tests.fences.test_changing_fences import FakeChanges
from tests.fences.test_fence_events import FakeFences
from tests.helpers.fake_spark import FakeAssign, FakeQuery
from tests.operators.test_collecting import FakeCollect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]
KINDS = {"k": pa.int64(), "t": pa.int64(), "x": pa.float64(), "y": pa.float64(), "op": pa.string()}
FENCES = pa.table({"query": ["yard", "gate"], "region": ["POLYGON ((0 0, 4 0, 4 4, 0 4, 0 0))", "POINT (6 6)"]})
FENCES = FENCES.append_column("radius", pa.array([0.0, 3.0]))
BLOCK = 4
#: How long rows are held beyond their ticks: to the end of their block, or interval.
CALLS: dict[str, tuple[Any, Any, type[FakeQuery], int]] = {
    "assign": (
        lambda streams: ap.assign(*streams, **ASSIGNED),
        lambda streams: ap.Assign(*streams, **ASSIGNED),
        FakeAssign,
        BLOCK,
    ),
    "fences": (
        lambda streams: ap.fence_events(streams[0], FENCES),
        lambda streams: ap.FenceEvents(streams[0], FENCES),
        FakeFences,
        1,
    ),
    "samples": (
        lambda streams: ap.collect_samples(*streams, every=BLOCK),
        lambda streams: collecting(*streams),
        FakeCollect,
        BLOCK,
    ),
}
ASSIGNED: dict[str, Any] = {
    "epsilon": 3,
    "probability": 0.1,
    "window": ap.TumblingWindow(f"{BLOCK} seconds"),
    "density": 0.05,
    "how": "full",
}


def collecting(stream: ap.Stream) -> Local[Any]:
    schema = table([], "add").schema
    return Local(CollectBucket(resolve_collect(stream, schema, CollectSettings(every=BLOCK))))


def pushed(engine: Any, frames: dict[str, pa.Table]) -> pa.Table:
    """Calls by hand take tables by name, engines all of them."""
    return engine.push(frames) if isinstance(engine, Local) else engine.push(**frames)


def table(rows: list[Row], op: str) -> pa.Table:
    return pa.table({name: pa.array([{**row, "op": op}[name] for row in rows], kind) for name, kind in KINDS.items()})


def streams(name: str, frames: dict[str, pa.Table] | None = None, **more: Any) -> list[ap.Stream]:
    value: Any = ap.Exact("x", "y") if name == "samples" else ap.Gaussian("x", "y", sigma=0.5)
    sides = ("a", "b") if name == "assign" else ("a",)
    frames = frames or {}
    return [ap.Stream(frames.get(side), key="k", time="t", value=value, name=side, **more) for side in sides]


def rows_of(found: pa.Table) -> list[Any]:
    return sorted(map(str, found.to_pylist()))


@st.composite
def stories(draw: st.DrawFn, sides: int, lateness: int) -> list[dict[str, tuple[list[Row], list[Row]]]]:
    """Rows in order of time, some a push, and some of them withdrawn: before them, with them, or later."""
    pushes = draw(st.integers(1, 5))
    names = ("a", "b")[:sides]
    story: list[dict[str, tuple[list[Row], list[Row]]]] = [
        {name: ([], []) for name in names} for _ in range(pushes + 3)
    ]
    t = 1000
    for push in sorted(draw(st.lists(st.integers(0, pushes - 1), min_size=2, max_size=12))):
        t += draw(st.integers(0, 3))
        # Some rows are alike in all that they hold, or in their key and time.
        row = {"k": draw(st.integers(0, 1)), "t": t - draw(st.integers(0, lateness)), "x": 0.0, "y": 0.0}
        row |= {"x": draw(st.sampled_from((2.0, 6.0, 20.0))), "y": draw(st.sampled_from((2.0, 6.0)))}
        name = draw(st.sampled_from(names))
        story[push][name][0].append(row)
        if draw(st.booleans()):
            story[push + draw(st.integers(0, 3))][name][1].append(row)
    return story


def frontiers(story: list[dict[str, tuple[list[Row], list[Row]]]], lateness: int) -> list[int]:
    """Ticks before these are complete after each push."""
    newest: dict[str, int] = {}
    found = []
    for push in story:
        for side, (added, _) in push.items():
            newest[side] = max([newest.get(side, 0), *(row["t"] for row in added)])
        found.append(min(newest.values()) - lateness)
    return found


def frames_of(push: dict[str, tuple[list[Row], list[Row]]]) -> dict[str, pa.Table]:
    return {side: pa.concat_tables([table(own[0], "add"), table(own[1], "remove")]) for side, own in push.items()}


@settings(max_examples=60)
@given(st.sampled_from([*CALLS]), st.integers(0, 4), st.data())
def test_a_row_may_be_withdrawn_until_it_is_answered(name: str, lateness: int, data: st.DataObject) -> None:
    """The twin: a batch over the rows that came in time, without those withdrawn before they were answered."""
    call, by_hand, _, held = CALLS[name]
    story = data.draw(stories(2 if name == "assign" else 1, lateness))
    engine, tables = by_hand(streams(name, change="op", lateness=lateness)), []
    stand: dict[str, list[Row]] = {side: [] for side in story[0]}
    reached = [-1, *frontiers(story, lateness)]
    for before, push in zip(reached, story, strict=False):
        tables.append(pushed(engine, frames_of(push)))
        for side, (added, gone) in push.items():
            stand[side] += [row for row in added if row["t"] >= before]
            for row in gone:
                if row["t"] >= before // held * held and row in stand[side]:
                    stand[side].remove(row)
    tables.append(engine.drain())
    whole = {side: table(rows, "add") for side, rows in stand.items()}
    assert rows_of(pa.concat_tables(tables)) == rows_of(call(streams(name, whole)))


@given(st.sampled_from([*CALLS, "changing"]), st.data())
def test_a_played_spark_withdraws_rows_that_wait(name: str, data: st.DataObject) -> None:
    """Any number of buckets; workers forget, attempts fail, and logs begin anew: as a batch over what stands."""
    called = "fences" if name == "changing" else name
    call, by_hand, fake, _ = CALLS[called]
    story = data.draw(stories(2 if name == "assign" else 1, 0))
    hand = by_hand(streams(called, change="op", lateness=100))
    pushed(hand, frames_of({side: ([], []) for side in story[0]}))
    plan, random = TilePlan(data.draw(st.integers(1, 3)), 1.0, 0.0, 0.0), Random(data.draw(st.integers(0, 1 << 30)))
    if name == "changing":
        fake = FakeChanges
    played, tables = fake(call=getattr(hand, "_engine", hand).call, plan=plan, random=random), []
    slack = data.draw(st.sampled_from((-(1 << 40), 1 << 18)))
    with patch.object(Bucket, "slack", slack):
        for push in [*story, None]:
            answers, rejects = played.end() if push is None else played.batch(frames_of(push))
            assert not any(map(len, rejects))
            tables += answers
    stand = {side: [row for push in story for row in push[side][0]] for side in story[0]}
    for push in story:
        for side, (_, gone) in push.items():
            for row in gone:
                stand[side].remove(row)
    expected = call(streams(called, {side: table(rows, "add") for side, rows in stand.items()}))
    assert rows_of(pa.concat_tables([expected.schema.empty_table(), *tables])) == rows_of(expected)


@pytest.mark.parametrize("name", CALLS)
def test_what_withdraws_no_row_is_a_reject(name: str) -> None:
    call, by_hand, _, _ = CALLS[name]
    row = {"k": 1, "t": 1000, "x": 2.0, "y": 2.0}
    never = {**row, "k": 7}
    frame = pa.concat_tables([table([row], "add"), table([never], "remove")])
    found = call(streams(name, dict.fromkeys("ab", frame), change="op"))
    expected = [(7, "no such row")] * len(streams(name))
    assert [(one["key"], one["reason"]) for one in ap.rejects(found).to_pylist()] == expected
    assert rows_of(found) == rows_of(call(streams(name, dict.fromkeys("ab", table([row], "add")))))
    engine = by_hand(streams(name, change="op"))
    names = [str(one.name) for one in streams(name)]
    later = {**row, "t": 2000}
    for own in ([row], [later]):
        pushed(engine, dict.fromkeys(names, table(own, "add")))
    pushed(engine, dict.fromkeys(names, table([row], "remove")))
    engine.drain()
    assert not len(engine.rejects())  # the row came, and its answer has left


@pytest.mark.spark
def test_a_batch_of_spark_is_that_of_the_rows_that_stand(spark: SparkSession) -> None:
    rows = [{"k": k % 3, "t": 1000 + k, "x": float(k % 5), "y": 2.0} for k in range(30)]
    never = {**rows[0], "k": 7}
    frame = pa.concat_tables([table(rows, "add"), table([*rows[3:9], never], "remove")])
    stand = table(rows[:3] + rows[9:], "add")
    for name, (call, *_) in CALLS.items():
        if name == "samples":
            continue  # its bucket is that of ticks
        found = call(streams(name, dict.fromkeys("ab", spark.createDataFrame(frame)), change="op"))
        assert rows_of(found.toArrow()) == rows_of(call(streams(name, dict.fromkeys("ab", stand))))
        rejects = ap.rejects(found).toArrow().to_pylist()
        assert [(row["key"], row["reason"]) for row in rejects] == [(7, "no such row")] * len(streams(name))
