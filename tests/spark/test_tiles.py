"""Tiles and their state: whatever the plan, the cuts, the caches and the failures, answers are those in process."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.bucket import Bucket
from appulse.engines.join.call import JoinCall, JoinSettings, resolve
from appulse.engines.join.local import LocalJoin
from appulse.engines.options import Options
from appulse.engines.spark.codec import pack, unpack
from appulse.engines.spark.join.tile_bucket import Tile
from appulse.engines.spark.state import Cache, TileState
from appulse.engines.spark.tiles import TilePlan, hashed_plan, planned, spread_keys
from appulse.engines.spark.tiling import Tiling, Version
from appulse.errors import CheckpointError, StateError
from appulse.model.encode import encode
from appulse.operators import few_points, large_pushes
from tests.helpers.fake_spark import FakeHandle, FakeSpark
from tests.helpers.strategies import Case, cases, pushes

_CHANGES = ("change", "time")
_KEYS = ("left_stream", "left_key", "left_time", "right_stream", "right_key", "right_time")


def call_of(case: Case, options: Options | None = None) -> JoinCall:
    """The resolved call of a case."""
    streams = [replace(s, name=name) for s, name in zip(case.streams, case.names, strict=True)]
    return resolve(
        streams,
        [table.schema for table in case.tables],
        JoinSettings(
            options=options or Options(),
            **{"different": None} | case.settings,
        ),
    )


def rows_of(tables: list[pa.Table]) -> list[tuple[Any, ...]]:
    """Answers in a fixed order, probabilities rounded to what engines agree on."""
    rows = []
    for table in tables:
        for row in table.to_pylist():
            key = tuple(str(row[name]) for name in (*_KEYS, *_CHANGES) if name in row)
            rows.append((*key, round(row["distance"], 6), round(row["probability"], 8)))
    return sorted(rows)


def check_tiles(data: st.DataObject, case: Case) -> None:
    """Tiles answer, over restarts, as one process does."""
    case = replace(case, emit=data.draw(st.sampled_from(("matches", "changes"))))
    call = call_of(case)
    spark = FakeSpark(call, data.draw(plans(case)), Random(data.draw(st.integers(0, 1 << 30))))
    local, expected, found = LocalJoin(call), [], []
    for push in data.draw(pushes(case)):
        expected.append(local.push(case.frames(push)))
        found += spark.batch(case.frames(push))[0]
    expected.append(local.drain())
    found += spark.end()[0]
    assert rows_of(found) == rows_of(expected)


@st.composite
def plans(draw: st.DrawFn, case: Case, tiles: int | None = None) -> TilePlan:
    """Hashed plans of many sides, with and without a coarse lane, and plans made from the rows themselves."""
    call = call_of(case)
    tiles = draw(st.sampled_from((1, 2, 3, 8))) if tiles is None else tiles
    side = draw(st.sampled_from((None, 0.3, 1.0, 5.0)))
    if draw(st.booleans()):
        sample = [encode(table, e)[0] for table, e in zip(case.tables, call.encodings, strict=True)]
        plan = planned(
            call.plan, tiles, [s for s in sample if len(s)] or sample, max(call.plan.windows, default=1 << 60), side
        )
    else:
        plan = hashed_plan(call.plan, tiles, call.encodings[0].gaussian_reach, side)
    coarse = draw(st.sampled_from((0.0, 2.0, 16.0)))
    return replace(plan, coarse_side=plan.side * coarse) if not plan.hot else plan


@given(st.data())
def test_tiles_answer_as_one_process_does(data: st.DataObject) -> None:
    """Any plan, any cuts into batches and tasks, lost caches, failed attempts: pushes in process answer the same.

    Also where all rows of a task are many enough to be taken in the order of cells.
    """
    case = data.draw(cases(lateness=True, everywhere=True, most=8))
    call, plan = call_of(case), data.draw(plans(case))
    cut = data.draw(pushes(case, late=data.draw(st.booleans())))
    spark = FakeSpark(call, plan, Random(data.draw(st.integers(0, 1 << 30))))
    local, large = LocalJoin(call), data.draw(st.booleans())
    for push in cut:
        tables = case.frames(push)
        expected = local.push(tables)
        least, few = (1, 0) if large else (1 << 30, few_points.FEW)
        with patch.object(large_pushes, "_FROM", least), patch.object(few_points, "FEW", few):
            answers, _ = spark.batch(tables)
        assert rows_of(answers) == rows_of([expected])


WINDOWS = ("time", "count", "delta", "tumble", "uncertain", "uncertain-delta")


def _check_drained(data: st.DataObject) -> None:
    case = data.draw(cases(windows=WINDOWS, lateness=True, everywhere=True, most=8))
    case = replace(case, emit=data.draw(st.sampled_from(("matches", "changes"))))
    call, plan = call_of(case), data.draw(plans(case))
    spark = FakeSpark(call, plan, Random(data.draw(st.integers(0, 1 << 30))))
    local = LocalJoin(call)
    expected, found = [], []
    slack = data.draw(st.sampled_from((-(1 << 40), -500, 1 << 18)))  # logs begun anew often, sometimes, never
    with patch.object(Tile, "slack", slack), patch.object(Bucket, "slack", slack):
        for push in data.draw(pushes(case, late=data.draw(st.booleans()))):
            expected.append(local.push(case.frames(push)))
            found += spark.batch(case.frames(push))[0]
            if data.draw(st.integers(0, 5)) == 0:
                spark.replan(data.draw(plans(case, plan.tiles)))
        expected.append(local.drain())
        found += spark.end()[0]
    assert rows_of(found) == rows_of(expected)


@settings(max_examples=50)
@given(st.data())
def test_tiles_answer_as_one_process_does_once_drained(data: st.DataObject) -> None:
    """Windows of any kind, matches or changes, new versions of the plan: all is answered in the end, and once."""
    _check_drained(data)


@pytest.mark.long
@settings(max_examples=3000)
@given(st.data())
def test_tiles_answer_as_one_process_does_once_drained_long(data: st.DataObject) -> None:
    """The same over many more cases."""
    _check_drained(data)


@given(st.data())
def test_tiles_reject_as_one_process_does(data: st.DataObject) -> None:
    """Bad and late rows leave once each, whatever tiles hold copies of them."""
    case = data.draw(cases(windows=WINDOWS, lateness=True, everywhere=True, most=8))
    call, plan = call_of(case), data.draw(plans(case))
    spark = FakeSpark(call, plan, Random(data.draw(st.integers(0, 1 << 30))))
    local = LocalJoin(call)
    found = []
    for push in data.draw(pushes(case, late=True)):
        local.push(case.frames(push))
        found += spark.batch(case.frames(push))[1]
    told = sorted(str(row) for table in found for row in table.to_pylist())
    assert told == sorted(str(row) for row in local.rejects().to_pylist())


@given(st.data())
def test_a_block_restores_its_rows_exactly(data: st.DataObject) -> None:
    """Packing loses nothing, to the last bit, whichever width the samples travel in."""
    case = data.draw(cases(everywhere=True))
    for s, (table, encoding) in enumerate(zip(case.tables, call_of(case).encodings, strict=True)):
        objects, _ = encode(table, encoding)
        stream, lane, back = unpack(pack(objects, s, 1))
        assert (stream, lane, back.form) == (s, 1, objects.form)
        for name in ("time", "mass", "centre", "spread", "reach", "samples", "first", "weights"):
            np.testing.assert_array_equal(getattr(back, name), getattr(objects, name), err_msg=name)
        assert back.key.to_list() == objects.key.to_list()
        for name in ("group", "differ"):
            labels, mine = getattr(objects, name), getattr(back, name)
            assert (labels is None) == (mine is None)
            if labels is not None:
                told = [mine.values[code] for code in mine.codes]
                assert told == [labels.values[code] for code in labels.codes]


def test_round_samples_travel_in_four_bytes() -> None:
    """Integer and dyadic samples are stored as float32 offsets; others as they are."""
    for step, short in ((1.0, True), (1 / 64, True), (0.1, False)):
        samples = [[[1e6 + step * (i * 7 % 31), step * i] for i in range(50)] for _ in range(20)]
        table = pa.table({"id": range(20), "ts": range(20), "s": samples})
        stream = ap.Stream(None, key="id", time="ts", value=ap.Samples("s"), name="a")
        call = resolve(
            [stream, replace(stream, name="b")],
            [table.schema] * 2,
            JoinSettings(
                epsilon=1.0,
                probability=0.5,
                window=ap.TimeWindow(1),
            ),
        ).with_dimensions(2)
        block = pack(encode(table, call.encodings[0])[0], 0, 0)
        assert (len(block) < 20 * 50 * 2 * 8) is short


@pytest.mark.parametrize("spoil", ["cut", "flip", "foreign", "empty"])
def test_a_damaged_block_is_an_error(spoil: str) -> None:
    """Truncated, corrupt and foreign blobs never become answers."""
    table = pa.table({"id": [1, 2], "ts": [0, 1], "x": [0.0, 1.0]})
    stream = ap.Stream(None, key="id", time="ts", value=ap.Exact("x"), name="a")
    call = resolve(
        [stream],
        [table.schema],
        JoinSettings(
            epsilon=1.0,
            probability=0.5,
            window=ap.TimeWindow(1),
        ),
    )
    block = pack(encode(table, call.encodings[0])[0], 0, 0)
    damaged = {
        "cut": block[:-9],
        "flip": block[:60] + bytes([block[60] ^ 1]) + block[61:],
        "foreign": b"PAR1" + block[4:],
        "empty": b"",
    }[spoil]
    with pytest.raises(StateError, match=r"checkpoint|appulse"):
        unpack(damaged)


def test_a_checkpoint_of_another_job_is_refused() -> None:
    """State written under one plan is not read under another."""
    store: dict[str, Any] = {}
    handle: Any = FakeHandle(store)
    state = TileState(handle, "one", Cache(1 << 20))

    class Nothing:
        nbytes = 0

    cached, _ = state.load(0, Nothing, lambda _operator, _payload: None)
    state.save(0, cached, [], 0, -1)
    with pytest.raises(CheckpointError, match="new checkpoint"):
        TileState(handle, "two", Cache(1 << 20)).load(0, Nothing, lambda _operator, _payload: None)


def test_a_warm_worker_reads_no_state_and_a_cold_one_reads_the_window() -> None:
    """State read per batch is at most the deltas a worker has missed, and expired deltas leave the log."""
    n = 400
    table = pa.table({"id": range(n), "ts": [i / 10 for i in range(n)], "x": [float(i % 7) for i in range(n)]})
    stream = ap.Stream(None, key="id", time="ts", value=ap.Exact("x"), name="a")
    call = resolve(
        [stream],
        [table.schema],
        JoinSettings(
            epsilon=0.5,
            probability=0.5,
            window=ap.TimeWindow(3),
        ),
    )
    plan = hashed_plan(call.plan, 1, None)
    spark = FakeSpark(call, plan, Random(0), workers=1)
    spark.random.random = lambda: 1.0  # type: ignore[method-assign]  # nothing is lost, nothing fails
    for i in range(0, n, 20):
        spark.batch({"a": table.slice(i, 20)})
        assert len(spark.stores["join", 0]["log"]) <= 6
    state = TileState(FakeHandle(spark.stores["join", 0]), "join", spark.caches[0])  # type: ignore[arg-type]
    state.serves(plan.fingerprint())
    state.load(0, lambda: None, lambda _operator, _payload: None)
    assert state.bytes_read == 0


def test_an_attempt_that_fails_without_rows_takes_nothing_with_it() -> None:
    """Time alone ends a pair and trims the log: an attempt at it that never counted changes no later one."""
    table = pa.table({"id": [1, 2, 3], "ts": [1.0, 1.5, 9.0], "x": [0.0, 0.0, 0.0]})
    stream = ap.Stream(None, key="id", time="ts", value=ap.Exact("x"), name="a")
    call = resolve(
        [stream],
        [table.schema],
        JoinSettings(
            epsilon=0.5,
            probability=0.5,
            window=ap.TimeWindow(3),
            emit="changes",
        ),
    )
    spark = FakeSpark(call, hashed_plan(call.plan, 1, None), Random(0), workers=1)
    (stage,), key = spark.stages, spark.tiling.keys[0]
    store = spark.stores["join", key]
    told = []
    for i in range(3):
        blocks = [pack(encode(table.slice(i, 1), call.encodings[0])[0], 0, 0)]
        stage.run(key, blocks, None, TileState(FakeHandle(store), "join", spark.caches[0]), lambda _: None)  # type: ignore[arg-type]
    for attempt in (deepcopy(store), store):
        state = TileState(FakeHandle(attempt), "join", spark.caches[0])  # type: ignore[arg-type]
        out = stage.run(key, None, 8_000_000, state, lambda _: None)
        told.append(spark._answered([blob for _, blob in out])[0])
        assert list(attempt["log"]) == [(3, 0)]
    assert rows_of(told[0]) == rows_of(told[1]) != []


def test_a_worker_that_lags_over_a_new_start_reads_by_the_new_plan() -> None:
    """It kept a tile of the start before, and reads rows of which the new tiles report the pairs."""
    n = 40
    table = pa.table({"id": range(n), "ts": [1.0 + i for i in range(n)], "x": [0.0] * n})
    stream = ap.Stream(None, key="id", time="ts", value=ap.Exact("x"), name="a")
    asked = JoinSettings(epsilon=0.5, probability=0.5, window=ap.TimeWindow(8), emit="changes")
    call = resolve([stream], [table.schema], asked)
    for seed in range(4):
        spark = FakeSpark(call, hashed_plan(call.plan, 2, None), Random(seed))
        spark.random.random = lambda: 1.0  # type: ignore[method-assign]  # nothing is lost, nothing fails
        answers: list[pa.Table] = []
        for i in range(0, n, 4):
            if i == 20:
                spark.replan(hashed_plan(call.plan, 3, None))
            answers += spark.batch({"a": table.slice(i, 4)})[0]
        changes = [(row["left_key"], row["right_key"], row["change"]) for part in answers for row in part.to_pylist()]
        assert len(changes) == len(set(changes))
        assert {change for _, _, change in changes} == {1, -1}


@pytest.mark.parametrize("partitions", [1, 2, 3, 8, 200])
def test_keys_are_spread_evenly_over_partitions(partitions: int) -> None:
    """As many tiles as partitions: none shares its task."""
    from appulse.engines.spark.tiles import _murmur3

    keys = spread_keys(partitions, partitions)
    assert len(set(keys)) == partitions
    assert len({_murmur3(key) % partitions for key in keys}) == partitions
    more = spread_keys(2 * partitions, partitions)
    counts = np.bincount([_murmur3(key) % partitions for key in more], minlength=partitions)
    assert counts.tolist() == [2] * partitions


def test_tile_numbers_belong_to_the_plan() -> None:
    """A session that has another number of shuffle partitions today finds the same tiles; versions share none."""
    plan = TilePlan(2, 1.0, 16.0, 0.1, slots=3)
    assert Version(plan).keys == spread_keys(4, 3)
    assert plan.fingerprint() != replace(plan, slots=2).fingerprint()
    assert plan.over(5).slots == 3
    first = Tiling((Version(plan),), 0)
    second = first.followed_by(plan, 7).followed_by(plan, 9)
    assert second.keys[:4] == first.keys
    assert len(set(second.keys)) == 12


def test_a_hot_spot_is_shared_out() -> None:
    """Half of all rows in one spot: the plan cuts it, and every tile gets about the same estimated rows."""
    rng = np.random.default_rng(3)
    n = 4000
    x = np.where(rng.random(n) < 0.5, 0.5 + rng.normal(0, 0.001, n), rng.random(n))
    y = np.where(rng.random(n) < 0.5, 0.5 + rng.normal(0, 0.001, n), rng.random(n))
    table = pa.table({"id": range(n), "ts": np.arange(n) / 400, "x": x, "y": y})
    stream = ap.Stream(None, key="id", time="ts", value=ap.Exact("x", "y"), name="a")
    call = resolve(
        [stream, replace(stream, name="b")],
        [table.schema] * 2,
        JoinSettings(
            epsilon=0.002,
            probability=0.5,
            window=ap.TimeWindow(10),
        ),
    )
    objects, _ = encode(table, call.encodings[0])
    plan = planned(call.plan, 8, [objects, objects], max(call.plan.windows))
    _, tiles, _ = plan.copies(objects)
    counts = np.bincount(tiles, minlength=8)
    assert plan.hot
    assert counts.max() <= 2 * counts.mean()


def test_a_stream_that_is_silent_in_one_bucket_may_be_live_in_another() -> None:
    """Silence is of a stream, not of a stream's groups: rows within the lateness are never late in any bucket."""

    def rows(*seconds_and_groups: tuple[int, str]) -> pa.Table:
        return pa.table(
            {
                "id": [f"{group}{t}" for t, group in seconds_and_groups],
                "ts": [t for t, _ in seconds_and_groups],
                "x": [0.0] * len(seconds_and_groups),
                "g": [group for _, group in seconds_and_groups],
            }
        )

    def stream(name: str) -> ap.Stream:
        settings: dict[str, Any] = {"partition_by": "g", "lateness": 5.0, "idle_after": 3.0, "name": name}
        return ap.Stream(None, key="id", time="ts", value=ap.Exact("x"), **settings)

    call = resolve(
        [stream("a"), stream("b")],
        [rows((0, "p")).schema] * 2,
        JoinSettings(
            epsilon=1.0,
            probability=1.0,
            window=ap.CountWindow(9),
            on_reject="fail",
        ),
    )
    spark = FakeSpark(call, hashed_plan(call.plan, 8, None), Random(0))
    groups = [chr(ord("p") + i) for i in range(8)]
    spark.batch({"a": rows(*((t, g) for t in (10, 20) for g in groups)), "b": rows((10, "p"), (18, "p"))})
    spark.batch({"b": rows(*((14, g) for g in groups))})
    answers, _ = spark.end()
    found = {(row["left_key"], row["right_key"]) for table in answers for row in table.to_pylist()}
    assert {(f"{g}20", f"{g}14") for g in groups} <= found


def _of_long_batches(random: Random, spans: list[float], lateness: float, begin: float) -> tuple[JoinCall, list[Any]]:
    """A join of two streams under a window of 3 s, and batches of so many seconds, whose rows come in any order."""
    streams, batches, at = {}, [], begin
    for span in spans:
        batch = {}
        for name in ("a", "b"):
            n = random.randint(4, 40)
            times = [at - lateness * random.random() + span * random.random() for _ in range(n)] + [at + span]
            random.shuffle(times)
            batch[name] = pa.table({"id": range(len(times)), "ts": times, "x": [random.random() for _ in times]})
        batches.append(batch)
        at += span
    for name in ("a", "b"):
        streams[name] = ap.Stream(None, key="id", time="ts", value=ap.Exact("x"), name=name, lateness=lateness)
    call = resolve(
        list(streams.values()),
        [table.schema for table in batches[0].values()],
        JoinSettings(epsilon=0.05, probability=0.5, window=ap.TimeWindow(3)),
    )
    return call, batches


@settings(max_examples=60)
@given(
    st.integers(0, 1 << 30),
    st.lists(st.sampled_from((0.5, 2.0, 4.0, 30.0)), min_size=2, max_size=5),
    st.sampled_from((0.0, 0.7, 5.0)),
    st.sampled_from((1e3, 1.0, -20.0)),
)
def test_batches_may_outlast_windows(seed: int, spans: list[float], lateness: float, begin: float) -> None:
    """Rows that the watermark passes before the next batch are not written: workers that know only the log agree."""
    call, batches = _of_long_batches(Random(seed), spans, lateness, begin)
    spark = FakeSpark(call, hashed_plan(call.plan, 2, None), Random(seed))
    local, found, expected = LocalJoin(call), [], []
    for batch in batches:
        for cache in spark.caches:
            cache.clear()
        found += spark.batch(batch)[0]
        expected.append(local.push(batch))
    assert rows_of(found + spark.end()[0]) == rows_of([*expected, local.drain()])


def test_rows_that_nothing_can_meet_are_not_written() -> None:
    """Of a batch of 30 s under a window of 3 s, a tenth goes into the log."""
    call, batches = _of_long_batches(Random(1), [30.0], 0.0, 1e3)
    spark = FakeSpark(call, hashed_plan(call.plan, 1, None), Random(1))
    spark.batch(batches[0])
    key = spark.tiling.keys[0]
    state = TileState(FakeHandle(spark.stores["join", key]), "join", Cache(1 << 30))  # type: ignore[arg-type]
    cached, _ = spark.stages[0]._load(key, state)
    times = [batch["ts"].to_numpy() for batch in batches[0].values()]
    newest = min(max(t) for t in times)
    assert len(cached.operator) == sum(int((t >= newest - 3.0).sum()) for t in times) < sum(map(len, times)) / 4
