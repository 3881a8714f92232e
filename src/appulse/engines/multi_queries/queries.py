"""A set of standing queries over several streams: what they ask for, and which choices of rows satisfy them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from appulse.engines.multi_queries.aggregates import aggregate_table
from appulse.engines.queries.call import (
    ADD,
    CONDITION,
    REMOVE,
    SELECT,
    changes_of,
    checked_changes,
    failed_queries,
    micros_before,
    refused_queries,
    unknown_change,
    until_of,
    without,
)
from appulse.errors import BadArgument, nearest
from appulse.model.columns import chunk, plain_values
from appulse.model.defects import NEVER_TRUE, concat_rejects, rows_as_json
from appulse.model.encode import keys_of
from appulse.model.regions import QUERY, REGION
from appulse.model.times import duration, from_micros
from appulse.model.uncertainty import is_certain
from appulse.operators.output import Output
from appulse.operators.query_estimate import Forecast, estimated_choices, fresh_rows
from appulse.operators.query_windows import AGE, LAG, Equality, Joined, Wanted, match_choices
from appulse.queries.boxed import JoinGroup
from appulse.queries.columns import NUMBER, kind_of
from appulse.queries.condition import MOST_LENGTH, parse, qualified, too_long
from appulse.queries.index import MOST, NULL
from appulse.queries.keys import is_axis
from appulse.queries.outcomes import reason_of
from appulse.queries.sets import QuerySet
from appulse.queries.slots import plain_key
from appulse.queries.templates import Template, together
from appulse.queries.tree import Column, Comparison
from appulse.windows.definitions import CountWindow, TimeWindow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from appulse.engines.multi_queries.call import WindowCall
    from appulse.engines.multi_queries.rows import Links, Longest, Snapshot
    from appulse.queries.condition import Condition
    from appulse.queries.keys import Range

_NO_WINDOW = (
    "it has no window: end it with WITHIN and a number of MILLISECONDS, SECONDS, MINUTES, HOURS, DAYS or ROWS, or give "
    "window="
)
_NO_ROWS = "WITHIN ... ROWS takes a whole number of rows, at least 1"
_TAIL = re.compile(
    r"(?P<condition>.*\S)\s+WITHIN\s+(?P<length>\d+(?:\.\d+)?)\s+"
    r"(?P<unit>MILLISECOND|SECOND|MINUTE|HOUR|DAY|ROW)S?\s*",
    re.IGNORECASE | re.DOTALL,
)
# More rows than there can be: a window of more holds all of them, too. It has more digits than this.
_MOST_ROWS, _MOST_DIGITS = 1 << 62, 18
# Queries removed or replaced since windows were last looked through: so many do not matter.
_FEW_GONE = 64


@dataclass(frozen=True)
class QueryWindow:
    """What a query says beside its condition: its window over each stream, in microseconds or rows; what it selects."""

    length: tuple[int, ...]
    rows: bool
    selected: tuple[str, ...] = ()


@dataclass(frozen=True)
class Changed:
    """What became of changes: queries that cannot be used, or never match, as rejects; the changes that count."""

    rejects: pa.Table
    usable: pa.Table


class WindowQueries:
    """Standing queries over several streams, which come and go."""

    def __init__(self, call: WindowCall) -> None:
        self.call = call
        self._names = call.names
        self._columns = {one.encoding.name: [name for name, _ in one.types] for one in call.streams}
        self._forecast = Forecast()
        self._begin()

    def _begin(self) -> None:
        self._lanes: dict[tuple[Equality, ...], JoinGroup] = {}
        self._longest: dict[tuple[int, bool], tuple[int, ...]] = {}
        self._terms: dict[QueryWindow, int] = {}
        self._gone = 0
        query_type = self.call.streams[0].query_type
        self.queries = QuerySet(self.call.types, query_type, partial(_read, self._columns), self._lane_of)

    def __len__(self) -> int:
        """Queries that stand."""
        return len(self.queries)

    @property
    def waits(self) -> bool:
        """Whether some answers wait until ticks are complete."""
        return bool(self.call.aggregates) or any(rows for _, rows in self._longest)

    @property
    def longest(self) -> Longest:
        """The longest windows of queries that stand, or stood not long ago."""
        found: Longest = {}
        for (_, rows), length in self._longest.items():
            found[rows] = tuple(map(max, found.get(rows, length), length))
        return found

    @property
    def links(self) -> Links | None:
        """The columns by which rows of two streams are linked in all choices; None: all rows have to be looked at."""
        wanted = self._wanted()
        certain = all(is_certain(one.encoding.held_as) and one.encoding.existence is None for one in self.call.streams)
        # As rows arrive, the order of rows of a time depends on others that came with them.
        if len(self.call.streams) != 2 or not certain or not wanted or self.waits or self.call.arrival:
            return None
        shared = [e for e in wanted[0].equalities if all(e in lane.equalities for lane in wanted)]
        columns = [dict([e.left, e.right]) for e in shared]
        columns = [own for own in columns if len(own) == 2]
        if not columns and not self.call.partitions:
            return None
        return tuple(own[0] for own in columns), tuple(own[1] for own in columns)

    def change(self, table: pa.Table) -> Changed:
        """Add and remove queries, in order. What raises has changed nothing."""
        if REGION in table.column_names:
            raise BadArgument(
                "The queries have a column 'region', which is for queries over one stream. Write the region into the "
                "condition: ST_Within(stream.x, stream.y, 'POLYGON ...')."
            )
        table = checked_changes(table, self.call.streams[0])
        if pa.types.is_null(self.call.streams[0].query_type):  # of frames without rows so far
            first, *others = self.call.streams
            first = replace(first, query_type=plain_key(table.schema.field(QUERY).type))
            self.call = replace(self.call, streams=(first, *others))
            self._begin()
        rejects, usable = [], [table.slice(0, 0)]
        for kind, part in changes_of(table):
            wrong: list[tuple[int, str]] = []
            if kind == ADD:
                wrong, never = self._add(part)
                rejects.append(refused_queries(part, never, self.call.reject_schema, NEVER_TRUE))
            elif kind == REMOVE:
                self._gone += self.queries.remove(chunk(part[QUERY]))
            else:
                wrong = unknown_change(part)
            rejects.append(refused_queries(part, wrong, self.call.reject_schema))
            usable.append(without(part, wrong))
        self._look_through()
        return Changed(concat_rejects(rejects, self.call.reject_schema), pa.concat_tables(usable))

    def expire(self, before: object) -> int:
        """Forget queries that hold up to a time before this."""
        gone = self.queries.expire(micros_before(before, self.call.streams[0]))
        self._gone += gone
        self._look_through()
        return gone

    def failed(self) -> pa.Table:
        """Queries removed since the last call because they could not be evaluated over rows, as rejects."""
        return failed_queries(self.queries, self.call.reject_schema)

    def answers(self, shown: Snapshot, output: Output | None = None) -> pa.Table:
        """The choices of rows that satisfy queries, and could not be made before; or what they add up to.

        ``output`` counts them; without it they are counted for themselves.
        """
        output = Output(self.call.max_output) if output is None else output
        if self.call.aggregates:
            lengths = [term.length for term in self._terms]
            table = aggregate_table(self.call, shown, self.queries, self._wanted(), lengths)
            output.add(len(table))
            return table
        found = self.matched(shown)
        output.add(len(found.slot))
        return self._table(shown, found)

    def matched(self, shown: Snapshot) -> Joined:
        """The same as numbers of rows and slots of queries."""
        given = self.queries, shown, self._names, self._wanted()
        self._forecast.announce(fresh_rows(shown), lambda: estimated_choices(*given))
        return match_choices(*given, self.call.threshold)

    def _wanted(self) -> list[Wanted]:
        """What choices queries ask for."""
        by_lane = {lane.number: equalities for equalities, lane in self._lanes.items()}
        return [Wanted(lane, by_lane[lane], length, rows) for (lane, rows), length in self._longest.items()]

    def _table(self, shown: Snapshot, found: Joined) -> pa.Table:
        columns = [self.queries.keys(found.slot).cast(self.call.streams[0].query_type)]
        for call, own, at in zip(self.call.streams, shown.rows, found.rows, strict=True):
            columns.append(keys_of(own.table, call.encoding).take(pa.array(at)))
            columns.append(from_micros(own.time[at], call.time_type, call.encoding.unit))
        columns.append(pa.array(found.probability))
        if self.call.selecting:
            columns.append(self._values(shown, found))
        for call, own, at in zip(self.call.streams, shown.rows, found.rows, strict=True):
            columns += [plain_values(own.table[name]).cast(kind).take(pa.array(at)) for name, kind in call.carry]
        return pa.Table.from_arrays(columns, schema=self.call.answer_schema)

    def _values(self, shown: Snapshot, found: Joined) -> pa.Array:
        """What each answer's query selects, as JSON."""
        label = self.queries.labels[found.slot]
        out: list[str | None] = [None] * len(label)
        for term, number in self._terms.items():
            at = np.flatnonzero(label == number)
            if not (term.selected and len(at)):
                continue
            values = {}
            for name in term.selected:
                stream, column = self._names[name]
                values[name] = shown.rows[stream].table[column].take(pa.array(found.rows[stream][at]))
            for i, row in zip(at.tolist(), rows_as_json(pa.table(values)), strict=True):
                out[i] = row
        return pa.array(out, pa.string())

    # --- adding ---------------------------------------------------------------------------------------------------

    def _add(self, table: pa.Table) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
        """Those that cannot be used, and those that never match, by row and with what is wrong."""
        conditions = chunk(table[CONDITION]).cast(pa.string()).to_pylist() if CONDITION in table.column_names else []
        until, wrong = until_of(table, self.call.streams[0].encoding.unit)
        selects = chunk(table[SELECT]).to_pylist() if SELECT in table.column_names else [None] * len(table)
        texts: dict[int, str | None] = {}
        terms: dict[int, QueryWindow] = {}
        for i, (given, select) in enumerate(zip(conditions or [None] * len(table), selects, strict=True)):
            try:
                texts[i], terms[i] = self._term(given, select)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this query's
                wrong.append((i, reason_of(error)))
        good = np.setdiff1d(np.arange(len(table)), [i for i, _ in wrong])
        chosen = [terms[i] for i in good.tolist()]
        before = len(self.queries)
        added = self.queries.add(
            chunk(table[QUERY]).take(pa.array(good)),
            pa.array([texts[i] for i in good.tolist()], pa.string()),
            np.array([self._terms.setdefault(term, len(self._terms)) for term in chosen], np.int32),
            self._bounds([(term.length, term.rows) for term in chosen]),
            None if until is None else until[good],
        )
        self._gone += before + int((added.lanes >= 0).sum()) - len(self.queries)
        for lane, term in set(zip(added.lanes.tolist(), chosen, strict=True)):
            if lane >= 0:
                self._reach(lane, term)
        wrong += [(int(good[one.row]), one.reason) for one in added.refused]
        never = [(int(good[i]), "no rows can ever satisfy it") for i in added.never.tolist()]
        return sorted(wrong), never

    def _reach(self, lane: int, term: QueryWindow) -> None:
        """Rows of a lane are joined within this window, too."""
        known = self._longest.get((lane, term.rows), term.length)
        self._longest[lane, term.rows] = tuple(map(max, known, term.length))

    def _look_through(self) -> None:
        """Join no further than queries that stand ask for, once many have gone: a constant cost a query."""
        if self._gone <= max(_FEW_GONE, len(self.queries) // 8):
            return
        self._gone, self._longest = 0, {}
        terms = list(self._terms)
        for lane, term in self.queries.standing().tolist():
            self._reach(lane, terms[term])

    def _selected(self, given: str) -> tuple[str, ...]:
        """The columns that a query selects, each with its stream."""
        known: dict[str, list[str]] = {}
        for name, (stream, column) in self._names.items():
            if not self.call.streams[stream].encoding.is_dimension(column):
                known[name] = [name]
                known.setdefault(column, []).append(name)
        names = [name.strip() for name in given.split(",")]
        for name in names:
            if len(known.get(name, ())) != 1:
                found = "no column of the streams" if name not in known else "in several streams: say in which"
                raise BadArgument(f"select names {name!r}, which is {found}.{nearest(name, known)}")
        return tuple(known[name][0] for name in names)

    def _term(self, given: str | None, select: str | None) -> tuple[str | None, QueryWindow]:
        """The condition of a query, and what it says beside; `BadArgument` if it cannot be used."""
        selected = () if select is None else self._selected(select)
        if given is None:
            return None, QueryWindow((0,) * len(self.call.streams), rows=False, selected=selected)
        if len(given) > MOST_LENGTH:
            raise BadArgument(too_long(len(given)))
        text, within = _split(given)
        length, rows = self._window(within)
        return text, QueryWindow(length, rows, selected)

    def _window(self, within: tuple[str, str] | None) -> tuple[tuple[int, ...], bool]:
        """Each stream's window in microseconds or rows, and whether these are rows."""
        streams = tuple(call.encoding.name for call in self.call.streams)
        window = self.call.window
        if within is None:
            if isinstance(window, TimeWindow):
                return window.micros(streams), False
            if isinstance(window, CountWindow):
                return (min(window.size, _MOST_ROWS),) * len(streams), True
            raise BadArgument(_NO_WINDOW)
        length, unit = within
        if unit == "ROW":
            digits = length.lstrip("0")
            if not digits.isdigit():
                raise BadArgument(_NO_ROWS)
            return (_MOST_ROWS if len(digits) > _MOST_DIGITS else int(digits),) * len(streams), True
        return (duration(f"{length} {unit.lower()}s", "WITHIN"),) * len(streams), False

    def _bounds(self, lengths: Sequence[tuple[tuple[int, ...], bool]]) -> dict[str, Range]:
        """How old choices may be: each query bounds the axes of its kind of window."""
        each = isinstance(self.call.window, TimeWindow) and bool(self.call.window.per_stream)
        out = {}
        counts = np.array([rows for _, rows in lengths], bool)
        for i in range(len(self.call.streams) if each else 1):
            length = np.array([min(length[i], MOST) for length, _ in lengths], np.int64)
            for axis, mine in ((AGE, ~counts), (LAG, counts)):
                name = f"{axis}:{i}" if each else axis
                out[name] = np.where(mine, 0, NULL), np.where(mine, length, MOST)
        return out

    def _lane_of(self, made: Template) -> JoinGroup:
        """The lane of queries of a template: by the equalities between streams that hold for all their answers."""
        found: set[Equality] = set()
        known: set[Comparison] = set()
        for node in together(made):
            joined = self._equality(node)
            if joined is not None:
                found.add(joined[0])
                known |= {node} if joined[1] else set()
        equalities = tuple(sorted(found, key=repr))
        lane = self._lanes.setdefault(equalities, JoinGroup(len(self._lanes)))
        return JoinGroup(lane.number, frozenset(known))

    def _equality(self, node: Comparison) -> tuple[Equality, bool] | None:
        """The equality between streams that a comparison is, if any, and whether joining on it is exact."""
        if node.operator != "=" or not (isinstance(node.left, Column) and isinstance(node.right, Column)):
            return None
        if node.left.name not in self._names or node.right.name not in self._names:
            return None
        left, right = sorted((self._names[node.left.name], self._names[node.right.name]))
        types = [self.call.types[column.name] for column in (node.left, node.right)]
        kinds = [kind_of(kind) for kind in types]
        if left[0] == right[0] or kinds[0] != kinds[1] or not all(map(is_axis, types)):
            return None
        floating = [pa.types.is_floating(kind) for kind in types]
        return Equality(left, right), kinds[0] != NUMBER or floating[0] == floating[1]


def _read(columns: Mapping[str, Sequence[str]], text: str) -> Condition:
    return qualified(parse(text, tuple(columns)), columns)


def _split(text: str) -> tuple[str, tuple[str, str] | None]:
    """A condition without its window, and that window, as (length, unit)."""
    found = _TAIL.fullmatch(text)
    if found is None or _ends_in_comment(found["condition"]):
        return text, None
    return found["condition"], (found["length"], found["unit"].upper())


def _ends_in_comment(text: str) -> bool:
    """Whether what follows a text would be part of a comment in it."""
    return "--" in text.rpartition("\n")[2] or text.rfind("/*") > text.rfind("*/")
