"""Rows that are withdrawn from the windows of aggregates: what comes later is as if they had never been there."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.aggregates.call import AggregateBucket, resolve_aggregate

Row = dict[str, Any]
KINDS = {"k": pa.int64(), "t": pa.int64(), "x": pa.float64(), "p": pa.float64(), "g": pa.int64(), "op": pa.string()}
ASKED = {"x": ["sum", "count", "max"]}
WINDOWS = (
    ap.TimeWindow(3),
    ap.CountWindow(2),
    ap.TumblingWindow(3),
    ap.TumblingWindow("3 seconds"),
    ap.DeltaWindow("x", 1.5),
    ap.UncertainCountWindow(2, 0.9),
)


def table(rows: list[Row], op: str) -> pa.Table:
    return pa.table({name: pa.array([{**row, "op": op}[name] for row in rows], kind) for name, kind in KINDS.items()})


def both(added: list[Row], gone: list[Row], *, bare: bool) -> pa.Table:
    gone = [{**row, "x": None, "p": None} for row in gone] if bare else gone
    return pa.concat_tables([table(added, "add"), table(gone, "remove")])


def stream(frame: pa.Table | None = None, **more: Any) -> ap.Stream:
    return ap.Stream(frame, key="k", time="t", value="x", existence="p", partition_by="g", **more)


@st.composite
def stories(draw: st.DrawFn) -> list[tuple[list[Row], list[Row]]]:
    """Rows in order of time, some a push, and some of them withdrawn: up to a push before they come, or after it."""
    values = st.sampled_from((0.0, 1.0, 2.0, 5.0))
    n, t, pushes = draw(st.integers(1, 10)), 0, draw(st.integers(1, 5))
    story: list[tuple[list[Row], list[Row]]] = [([], []) for _ in range(pushes + 3)]
    at = sorted(draw(st.lists(st.integers(0, pushes - 1), min_size=n, max_size=n)))
    for k, push in enumerate(at):
        t += draw(st.integers(0, 2))
        row = {"k": k, "t": t, "x": draw(values), "p": draw(st.sampled_from((1.0, 0.5))), "g": draw(st.integers(0, 1))}
        story[push][0].append(row)
        if draw(st.booleans()):
            story[max(0, push + draw(st.integers(-1, 3)))][1].append(row)
    return story


def by_hand(window: Any, lateness: int) -> ap.WindowAggregate:
    return ap.WindowAggregate(stream(change="op", lateness=lateness), ASKED, window=window)


def rows_of(found: pa.Table) -> list[tuple[Any, ...]]:
    """Numbers but for rounding."""
    rows = [tuple(row.values()) for row in found.to_pylist()]
    return sorted(tuple(round(v, 6) if isinstance(v, float) else v for v in row) for row in rows)


@settings(max_examples=60)
@given(stories(), st.sampled_from(WINDOWS), st.booleans())
def test_rows_withdrawn_before_their_tick_is_complete_never_came(story: Any, window: Any, bare: bool) -> None:
    engine = by_hand(window, 1000)
    found = [engine.push(both(*push, bare=bare)) for push in story]
    assert sum(map(len, found)) == 0
    gone = [row for _, own in story for row in own]
    stand = [row for added, _ in story for row in added if row not in gone]
    expected = ap.window_aggregate(stream(table(stand, "add")), ASKED, window=window)
    assert rows_of(engine.drain()) == rows_of(expected)
    assert len(engine.rejects()) == 0


@settings(max_examples=60)
@given(stories(), st.sampled_from((ap.TimeWindow(3), ap.TumblingWindow("3 seconds"))), st.integers(0, 3))
def test_later_ticks_are_those_of_the_rows_that_stand_then(story: Any, window: Any, lateness: int) -> None:
    """The twin: after each push, the ticks that it completes, of a batch over the rows that stand."""
    engine, before = by_hand(window, lateness), -1
    came: list[Row] = []
    gone: list[Row] = []
    block = isinstance(window, ap.TumblingWindow)
    for added, withdrawn in story:
        found = engine.push(both(added, withdrawn, bare=False))
        came, gone = came + added, gone + withdrawn
        if not came:
            continue
        complete = max(row["t"] for row in came) - lateness
        stand = table([row for row in came if row not in gone], "add")
        expected = ap.window_aggregate(stream(stand), ASKED, window=window)
        assert rows_of(found) == [row for row in rows_of(expected) if before <= row[1] - block < complete]
        before = max(before, complete)


class Twin:
    """Windows of whole numbers of rows: what waits, and what each group holds."""

    def __init__(self, window: Any, lateness: int) -> None:
        self.window, self.lateness = window, lateness
        self.waiting: list[Row] = []
        self.held: dict[int, list[Row]] = {0: [], 1: []}
        self.gone: list[Row] = []
        self.newest = -1

    def push(self, added: list[Row], withdrawn: list[Row], *, ended: bool = False) -> list[tuple[Any, ...]]:
        self.waiting, self.gone = self.waiting + added, self.gone + withdrawn
        self.newest = max([self.newest, *(row["t"] for row in added)])
        self.waiting = [row for row in self.waiting if row not in self.gone]
        self.held = {g: [row for row in own if row not in self.gone] for g, own in self.held.items()}
        complete = 1 << 60 if ended else self.newest - self.lateness
        ready = [row for row in self.waiting if row["t"] < complete]
        self.waiting = [row for row in self.waiting if row not in ready]
        found = []
        for g, own in self.held.items():
            mine = [row for row in ready if row["g"] == g]
            if isinstance(self.window, ap.CountWindow):
                for t in sorted({row["t"] for row in mine}):
                    own.extend(row for row in mine if row["t"] == t)
                    del own[: -self.window.size]
                    found.append(self.answer(g, t, own))
                continue
            own.extend(mine)
            while len(own) >= self.window.length or (ended and own):
                found.append(self.answer(g, own[: self.window.length][-1]["t"], own[: self.window.length]))
                del own[: self.window.length]
        return sorted(found)

    @staticmethod
    def answer(g: int, t: int, rows: list[Row]) -> tuple[Any, ...]:
        return g, t, round(sum(row["x"] * row["p"] for row in rows), 6), round(sum(row["p"] for row in rows), 6)


@settings(max_examples=60)
@given(stories(), st.sampled_from((ap.CountWindow(2), ap.TumblingWindow(3))), st.integers(0, 3))
def test_windows_of_rows_close_up(story: Any, window: Any, lateness: int) -> None:
    engine, twin = by_hand(window, lateness), Twin(window, lateness)
    for push in story:
        found = engine.push(both(*push, bare=False))
        assert [row[:3] + row[4:5] for row in rows_of(found)] == twin.push(*push)
    assert [row[:3] + row[4:5] for row in rows_of(engine.drain())] == twin.push([], [], ended=True)


@settings(max_examples=30)
@given(stories(), st.sampled_from(WINDOWS), st.integers(0, 3), st.data())
def test_a_bucket_goes_on_from_its_log(story: Any, window: Any, lateness: int, data: st.DataObject) -> None:
    """After each step from what it wrote: all of it, or what stands."""
    settings: dict[str, Any] = {"distribution": False, "single_valued": False, "on_reject": "collect"}
    frame = both(*story[0], bare=False)
    call = resolve_aggregate(stream(change="op", lateness=lateness), frame, ASKED, window=window, **settings)
    through, log, follower = (AggregateBucket(call) for _ in range(3))
    for push in story:
        tables = []
        for bucket in (through, log):
            bucket.admit([(0, call.encode(0, both(*push, bare=False))[0])])
            tables.append([row for part in bucket.advance() for row in rows_of(part)])
        assert tables[0] == tables[1]
        step = through.delta()
        assert step is not None
        follower.restore(step[0])
        if data.draw(st.booleans()):
            stood, log = log.snapshot(), AggregateBucket(call)
            log.restore(stood)
    ended = [
        sorted(row for part in b.advance(ended=99 << 20) for row in rows_of(part)) for b in (through, log, follower)
    ]
    assert ended[0] == ended[1] == ended[2]


def test_what_cannot_be_withdrawn_is_a_reject() -> None:
    engine = by_hand(ap.TimeWindow(3), 1)
    row = {"k": 1, "t": 1, "x": 1.0, "p": 1.0, "g": 0}
    engine.push(both([row], [{**row, "k": 9}], bare=True))
    engine.push(both([{**row, "k": 2, "t": 9}], [], bare=True))
    (reject,) = engine.rejects().to_pylist()
    assert (reject["key"], reject["time"], reject["reason"]) == (9, 1, "no such row")
    engine.push(both([], [row], bare=True))  # it has left its window
    assert len(engine.rejects()) == 1


def test_a_correction_withdraws_the_row_that_was_there() -> None:
    """Bare of values, and in one push with the row that takes its place."""
    engine = by_hand(ap.TimeWindow(3), 5)
    row = {"k": 1, "t": 1, "x": 1.0, "p": 1.0, "g": 0}
    engine.push(both([row], [], bare=True))
    for x in (7.0, 0.5):
        engine.push(both([{**row, "x": x}], [row], bare=True))
    assert engine.drain()["x_sum"].to_pylist() == [0.5]


@pytest.mark.parametrize("window", WINDOWS)
def test_a_call_on_tables_is_that_of_the_rows_that_stand(window: Any) -> None:
    rows = [{"k": k, "t": k // 2, "x": float(k % 3), "p": 1.0, "g": 0} for k in range(8)]
    frame = both(rows, rows[2:5], bare=True)
    expected = ap.window_aggregate(stream(table(rows[:2] + rows[5:], "add")), ASKED, window=window)
    assert rows_of(ap.window_aggregate(stream(frame, change="op"), ASKED, window=window)) == rows_of(expected)
