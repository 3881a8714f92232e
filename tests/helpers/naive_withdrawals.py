"""The slow twin of rows that are withdrawn: which pairs come and go, push by push."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import strategies as st

import appulse as ap
from appulse.model import uncertainty
from tests.helpers import naive, strategies

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.helpers.naive import Change, Row
    from tests.helpers.strategies import Case

    Numbers = Mapping[int, Sequence[int]]  # rows by stream


@dataclass(frozen=True)
class Step:
    """A push: rows that are added, and rows that are withdrawn, by stream and number."""

    added: Numbers = field(default_factory=dict)
    withdrawn: Numbers = field(default_factory=dict)


@st.composite
def steps(draw: st.DrawFn, case: Case, share: int = 3, *, sure: bool = False) -> list[Step]:
    """All rows of a case in some pushes, and some of them withdrawn: before they come, with them, or after them.

    Where it has to be ``sure`` which row is meant, none is withdrawn that has key and time of another: once its own
    has left, a withdrawal means that one.
    """
    cut = draw(strategies.pushes(case))
    # Before it comes, a row is known from others of its key and time by nothing.
    early = [-alone(table, stream) for table, stream in zip(case.tables, case.streams, strict=True)]
    at = [(p, s, i) for p, push in enumerate(cut) for s, numbers in push.items() for i in numbers]
    withdrawn: list[dict[int, list[int]]] = [{} for _ in range(len(cut) + 2)]
    several = [
        doubled(table, stream) if sure else set() for table, stream in zip(case.tables, case.streams, strict=True)
    ]
    for p, s, i in at:
        if i not in several[s] and draw(st.integers(0, share)) == 0:
            when = min(max(0, p + draw(st.integers(early[s], 3))), len(cut))
            withdrawn[when].setdefault(s, []).append(i)
    cut = [*cut, {}, {}]
    return [Step(added, gone) for added, gone in zip(cut, withdrawn, strict=True)]


@st.composite
def small(draw: st.DrawFn) -> strategies.Case:
    """A stream of certain places joined with itself, in order of time and without lateness."""
    n = draw(st.integers(4, 12))
    table = pa.table(
        {
            "key": list(range(n)),
            "ts": pa.array([i // draw(st.sampled_from((1, 1, 2))) for i in range(n)], pa.int64()),
            "x": pa.array(draw(st.lists(st.sampled_from((0.0, 0.5, 1.0, 3.0)), min_size=n, max_size=n))),
            "p": pa.array(draw(st.lists(st.sampled_from((1.0, 0.5)), min_size=n, max_size=n))),
        }
    ).sort_by("ts")
    windows = (
        ap.CountWindow(draw(st.integers(1, 4))),
        ap.TumblingWindow(draw(st.integers(2, 4))),
        ap.TumblingWindow("3 seconds"),
        ap.DeltaWindow("x", draw(st.sampled_from((0.5, 1.0)))),
        ap.UncertainCountWindow(2, 0.9),
        ap.TimeWindow(draw(st.integers(0, 4))),
    )
    window = draw(st.sampled_from(windows))
    uncertain = isinstance(window, ap.UncertainCountWindow)
    stream = ap.Stream(None, key="key", time="ts", value="x", existence="p" if uncertain else None)
    return strategies.Case((table,), (stream,), 1, 1.0, 0.2, window, self_join=True)


@st.composite
def one_by_one(draw: st.DrawFn, case: Case) -> list[Step]:
    """The rows of the first stream of a case, one a push, and some of them withdrawn up to three pushes later."""
    n = len(case.tables[0])
    gone: list[dict[int, list[int]]] = [{} for _ in range(n + 3)]
    for i in range(n):
        if draw(st.integers(0, 2)) == 0:
            gone[i + draw(st.integers(0, 3))].setdefault(0, []).append(i)
    return [Step({0: [i]} if i < n else {}, own) for i, own in enumerate(gone)]


def corrected(case: Case) -> list[ap.Stream]:
    """The streams of a case, with a column of changes."""
    return [replace(s, name=name, change="op") for s, name in zip(case.streams, case.names, strict=True)]


def frames(case: Case, step: Step, *, bare: bool = False) -> dict[str, pa.Table]:
    """The tables of a push; rows that are withdrawn are ``bare`` of values, where only one has their key and time."""
    tables = {}
    for s, (name, table) in enumerate(zip(case.names, case.tables, strict=True)):
        added = table.take(pa.array(step.added.get(s, []), pa.int64()))
        gone = table.take(pa.array(step.withdrawn.get(s, []), pa.int64()))
        stream = case.streams[s]
        if bare and alone(table, stream):
            own = {*uncertainty.columns(stream.value), stream.existence}
            for column in own & set(table.column_names):
                at = table.schema.get_field_index(column)
                gone = gone.set_column(at, column, pa.nulls(len(gone), table.schema.field(at).type))
        both = pa.concat_tables([added, gone])
        op = pa.array(["add"] * len(added) + ["remove"] * len(gone), pa.string())
        tables[name] = both.append_column("op", op)
    return tables


def alone(table: pa.Table, stream: ap.Stream) -> bool:
    """Whether no two rows have one key and time."""
    return not doubled(table, stream)


def doubled(table: pa.Table, stream: ap.Stream) -> set[int]:
    """The rows that have key and time of another."""
    rows = [
        (naive.plain(row[stream.key]), naive.plain(row[stream.time]), *(naive.plain(row[p]) for p in stream.partitions))
        for row in table.to_pylist()
    ]
    known = Counter(rows)
    return {i for i, row in enumerate(rows) if known[row] > 1}


def frontiers(case: Case, rows: Sequence[Row], pushes: Sequence[Step]) -> list[int | None]:
    """What the slowest stream has reached after each push: rows before that are late."""
    micros = {(row.stream, row.number): row.micros for row in rows}
    newest: dict[int, int] = {}
    found: list[int | None] = []
    for push in pushes:
        for s, numbers in push.added.items():
            for i in numbers:
                newest[s] = max(newest.get(s, micros[s, i]), micros[s, i])
        reached = [
            (newest[s] // 1000 + -stream.lateness_micros // 1000) * 1000
            for s, stream in enumerate(case.streams)
            if s in newest
        ]
        found.append(min(reached) if len(reached) == len(case.streams) else None)
    return found


class Held(naive.Held):
    """What a stream holds, from which rows may be withdrawn."""

    def withdraw(self, row: Row) -> None:
        """As if the row had never come."""
        at = [other for _, other in self.rows].index(row)
        later = [(number - 1, other) for number, other in self.rows[at + 1 :]]
        self.rows[at:] = later
        self._numbered -= 1


def changes(case: Case, pushes: Sequence[Step]) -> list[Change]:
    """When pairs enter the answer of a corrected case, and when they leave it."""
    rows, _ = naive.rows_of(
        case.rows, case.streams, case.d, case.different, case.attribute, naive.dimension_of(case.window)
    )
    after = frontiers(case, rows, pushes)
    timed = isinstance(case.window, ap.TimeWindow)
    found = _by_time(case, rows, pushes, after) if timed else by_rows(case, rows, pushes, after)[0]
    out = []
    for a, b, since, until, factor in found:
        if (a.stream == b.stream) is not case.self_join:
            continue
        if case.different is not None and (
            a.differ is None or b.differ is None or naive.plain(a.differ) == naive.plain(b.differ)
        ):
            continue
        answer = naive.answer_of(a, b, case.names, case.epsilon, case.probability, factor)
        if answer is not None:
            out.append(naive.Change(1, since, answer))
            out += [naive.Change(-1, until, answer)] if until is not None else []
    return out


def held(case: Case, pushes: Sequence[Step]) -> tuple[list[Row], list[naive.Meeting]]:
    """Under windows that go by rows: the rows that leave their windows, and whom they have met when they do."""
    dimension = naive.dimension_of(case.window)
    rows, _ = naive.rows_of(case.rows, case.streams, case.d, None, case.attribute, dimension)
    met, lost = by_rows(case, rows, pushes, frontiers(case, rows, pushes))
    return [row for row in rows if row not in lost], [one for one in met if one.since != one.until]


def _by_time(
    case: Case, rows: Sequence[Row], pushes: Sequence[Step], after: Sequence[int | None]
) -> list[naive.Meeting]:
    """A pair is there if both rows were at once; it stood for no time if one of them is withdrawn while it stands."""
    came = {(s, i): p for p, push in enumerate(pushes) for s, numbers in push.added.items() for i in numbers}
    gone = {(s, i): p for p, push in enumerate(pushes) for s, numbers in push.withdrawn.items() for i in numbers}
    window, never = case.window, len(pushes)
    ends = {}
    for row in rows:
        own, over = (row.stream, row.number), window.micros(tuple(case.names))[row.stream] + row.micros
        when = max(gone[own], came[own]) if own in gone else never
        settled = after[when - 1] if 0 < when < never else None
        # Rows that have left their window are withdrawn in vain.
        ends[own] = never if settled is not None and settled > 0 and over < settled else when
    found = []
    last = max((row.micros for row in rows), default=0)
    for a, b, since, until, factor in naive.meetings(rows, case.names, window, last):
        both = (a.stream, a.number), (b.stream, b.number)
        begin, end = max(came[one] for one in both), min(ends[one] for one in both)
        if begin >= end:
            continue
        left = after[end - 1] if 0 < end < never else None
        parted = until is not None and left is not None and left > 0 and until < left
        found.append(naive.Meeting(a, b, since, since if end < never and not parted else until, factor))
    return found


def by_rows(
    case: Case, rows: Sequence[Row], pushes: Sequence[Step], after: Sequence[int | None]
) -> tuple[list[naive.Meeting], set[Row]]:
    """Tick by tick, as they are complete, and the rows that are withdrawn; before their tick they never come."""
    lost: set[Row] = set()
    known = {(row.stream, row.number): row for row in rows}
    groups = sorted({row.group for row in rows})
    held = {group: [Held(case.window, name) for name in case.names] for group in groups}
    waiting: list[Row] = []
    wanted: set[tuple[int, int]] = set()
    met: dict[tuple[Row, Row], list[Any]] = {}
    for push, frontier in [*zip(pushes, after, strict=True), (Step(), 1 << 62)]:
        waiting += [known[s, i] for s, numbers in push.added.items() for i in numbers]
        wanted |= {(s, i) for s, numbers in push.withdrawn.items() for i in numbers}
        for own in sorted(wanted):
            row = known[own]
            store = held[row.group][row.stream]
            if row in waiting:
                waiting.remove(row)
                wanted.remove(own)
                lost.add(row)
            elif row in [other for _, other in store.rows]:
                wanted.remove(own)
                lost.add(row)
                store.withdraw(row)
                for pair, meeting in met.items():
                    if (
                        row in pair
                        and meeting[1] is None
                        and not any(one in held[one.group][one.stream].gone for one in pair)
                    ):
                        meeting[1] = meeting[0]
        ready = [row for row in waiting if frontier is not None and row.micros < frontier]
        waiting = [row for row in waiting if row not in ready]
        for group in groups:
            _ticks(held[group], [row for row in ready if row.group == group], case.window, met)
    for pair, meeting in met.items():
        if meeting[1] is None:
            ends = [held[one.group][one.stream].gone.get(one) for one in pair]
            meeting[1] = min((end for end in ends if end is not None), default=None)
    return [naive.Meeting(*pair, *meeting) for pair, meeting in met.items()], lost


def _ticks(held: list[Held], ready: list[Row], window: Any, met: dict[tuple[Row, Row], list[Any]]) -> None:
    """Complete ticks of one group."""
    for tick in sorted({row.micros for row in ready}):
        for s, stream in enumerate(held):
            stream.expire(tick)
            stream.insert([row for row in ready if row.stream == s and row.micros == tick], tick)
        together = [row for stream in held for _, row in stream.rows]
        for a, b in combinations(together, 2):
            if (a, b) not in met:
                met[a, b] = [tick, None, naive.presence(window, a, b, held)]
