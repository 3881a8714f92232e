"""Continuous queries over the windows of several streams: a checked call, and the engine in this process."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from appulse.engines.call import check_partitions, stream_names
from appulse.engines.queries import (
    CHANGE,
    CONDITION,
    QUERY,
    SELECT,
    UNTIL,
    QueryCall,
    check_queries,
    column_of,
    points_of,
    refused_queries,
    resolve_queries,
    threshold_of,
)
from appulse.errors import BadArgument, NotBuilt, bad_rows
from appulse.model.defects import NEVER_TRUE, as_text, concat_rejects, reject_schema
from appulse.model.encode import checked, keys_of
from appulse.model.strings import Labels, encode
from appulse.model.times import duration, from_micros
from appulse.operators.labels import LabelNumbers
from appulse.operators.query_windows import AGE, LAG, Equality, Joined, Side, Wanted, match_choices
from appulse.queries.columns import NUMBER, kind_of
from appulse.queries.condition import Column, Comparison, parse, qualified
from appulse.queries.index import MOST, NULL
from appulse.queries.keys import is_axis
from appulse.queries.sets import Lane, QuerySet
from appulse.queries.templates import Template, together
from appulse.windows.definitions import CountWindow, TimeWindow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from appulse.model.encode import Checked, Encoding
    from appulse.model.stream import Stream
    from appulse.queries.condition import Condition
    from appulse.queries.keys import Range
    from appulse.windows.definitions import Window

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


@dataclass(frozen=True)
class WindowCall:
    """A checked call of queries over several streams, without frames."""

    streams: tuple[QueryCall, ...]
    window: Window | None
    threshold: float | None
    on_reject: str = "collect"
    arrival: bool = field(default=False, init=False)
    bucketed: bool = field(default=False, init=False)
    holds_back: bool = field(default=False, init=False)

    @property
    def encodings(self) -> tuple[Encoding, ...]:
        """Those of the streams."""
        return tuple(call.encoding for call in self.streams)

    @property
    def lateness(self) -> tuple[int, ...]:
        """Of each stream, in microseconds."""
        return (0,) * len(self.streams)

    @property
    def idle_after(self) -> tuple[int | None, ...]:
        """Of each stream: nobody is waited for."""
        return (None,) * len(self.streams)

    @property
    def key_type(self) -> pa.DataType:
        """Of keys among the rejects."""
        return self.reject_schema.field("key").type

    @property
    def time_type(self) -> pa.DataType:
        """Of times among the rejects."""
        return self.reject_schema.field("time").type

    @property
    def grouped(self) -> bool:
        """Whether there are groups."""
        return all(call.encoding.partition_by for call in self.streams)

    @property
    def dependent(self) -> tuple[str, ...]:
        """Streams whose rows are answers of a join."""
        return tuple(name for call in self.streams for name in call.dependent)

    @property
    def names(self) -> dict[str, tuple[int, str]]:
        """Each column, as conditions name it, by stream and own name."""
        return {
            f"{call.encoding.name}.{name}": (i, name) for i, call in enumerate(self.streams) for name, _ in call.types
        }

    @property
    def types(self) -> dict[str, pa.DataType]:
        """The types of those columns."""
        return {f"{call.encoding.name}.{name}": kind for call in self.streams for name, kind in call.types}

    @property
    def answer_schema(self) -> pa.Schema:
        """Columns of the answers."""
        sides = ["left", "right"] if len(self.streams) == 2 else [call.encoding.name for call in self.streams]
        fields = [(QUERY, self.streams[0].query_type)]
        for side, call in zip(sides, self.streams, strict=True):
            fields += [(f"{side}_key", call.key_type), (f"{side}_time", call.time_type)]
        return pa.schema([*fields, ("probability", pa.float64())])

    @property
    def reject_schema(self) -> pa.Schema:
        """Columns of the rejects; keys and times are text where streams have them of several types."""
        keys, times = ({kind(call) for call in self.streams} for kind in (_key_type, _time_type))
        return reject_schema(*(kinds.pop() if len(kinds) == 1 else pa.string() for kinds in (keys, times)))

    def fingerprint(self) -> str:
        """A short text that differs when the meaning of the call does; the queries are no part of it."""
        text = repr(([call.fingerprint() for call in self.streams], self.window, self.threshold))
        return blake2b(text.encode(), digest_size=8).hexdigest()

    def rejects_of(self, stream: int, table: pa.Table) -> pa.Table:
        """The rows of a stream that cannot be used."""
        return self.as_rejects(checked(table, self.streams[stream].encoding, self.streams[stream].columns)[1])

    def as_rejects(self, rejects: pa.Table) -> pa.Table:
        """The rejects of one stream, as those of all."""
        for name in ("key", "time"):
            kind = self.reject_schema.field(name).type
            if rejects.schema.field(name).type != kind:
                told = [None if value is None else as_text(value) for value in rejects[name].to_pylist()]
                rejects = rejects.set_column(rejects.schema.get_field_index(name), name, pa.array(told, kind))
        return rejects


def resolve_window_queries(
    streams: Sequence[Stream],
    tables: Sequence[pa.Table],
    queries: pa.Schema,
    *,
    probability: float | None,
    window: Window | None,
    on_reject: str,
) -> WindowCall:
    """Check a call against the columns there are."""
    if window is not None and not isinstance(window, TimeWindow | CountWindow):
        raise BadArgument(f"window={window!r}. Queries over several streams take a TimeWindow or a CountWindow.")
    threshold = threshold_of(probability, streams)
    calls = [
        resolve_queries(replace(stream, name=name), table, queries, probability=1.0, on_reject=on_reject)
        for stream, table, name in zip(streams, tables, stream_names(streams), strict=True)
    ]
    check_partitions(streams, [table.schema for table in tables], [call.encoding.name for call in calls])
    call = WindowCall(tuple(calls), window, threshold, on_reject)
    if len(call.names) < sum(len(one.types) for one in calls):
        raise BadArgument("Two columns have one name once that of their stream is put before it. Rename a stream.")
    if isinstance(window, TimeWindow):
        window.micros(tuple(one.encoding.name for one in calls))
    return call


class LocalWindowQueries:
    """Standing queries over several streams in process, over all rows there are."""

    def __init__(self, call: WindowCall) -> None:
        self.call = call
        self._names = call.names
        columns = {one.encoding.name: [name for name, _ in one.types] for one in call.streams}
        self._lanes: dict[tuple[Equality, ...], Lane] = {}
        self._longest: dict[tuple[int, bool], list[int]] = {}
        self.queries = QuerySet(call.types, call.streams[0].query_type, partial(_read, columns), self._lane_of)
        self._rejects: list[pa.Table] = []

    def change(self, table: pa.Table) -> None:
        """Add queries."""
        check_queries(table.schema)
        for name in (CHANGE, SELECT, UNTIL):
            if name in table.column_names:
                raise NotBuilt(f"Column {name!r} is not built yet for queries over several streams. See docs/index.md.")
        table = table.combine_chunks()
        texts = column_of(table, CONDITION).cast(pa.string()).to_pylist()
        split = [_split(text) for text in texts]
        windows = [self._window(within) for _, within in split]
        wrong = [
            (i, _NO_ROWS if split[i][1] is not None else _NO_WINDOW)
            for i, (text, window) in enumerate(zip(texts, windows, strict=True))
            if text is not None and window is None
        ]
        good = np.setdiff1d(np.arange(len(texts)), [i for i, _ in wrong])
        lengths = [windows[i] or ((0,) * len(self.call.streams), False) for i in good.tolist()]
        added = self.queries.add(
            column_of(table, QUERY).take(pa.array(good)),
            pa.array([split[i][0] for i in good.tolist()], pa.string()),
            bounds=self._bounds(lengths),
        )
        for lane, (length, rows) in zip(added.lanes.tolist(), lengths, strict=True):
            if lane >= 0:
                known = self._longest.get((lane, rows), [0] * len(length))
                self._longest[lane, rows] = list(map(max, known, length))
        wrong += [(int(good[one.row]), one.reason) for one in added.refused]
        self._keep(refused_queries(table, sorted(wrong), self.call.reject_schema))
        never = [(int(good[i]), "no rows can ever satisfy it") for i in added.never.tolist()]
        if never:
            self._rejects.append(refused_queries(table, never, self.call.reject_schema, NEVER_TRUE))

    def answers(self, tables: Sequence[pa.Table]) -> pa.Table:
        """The choices of rows that satisfy queries."""
        rows = []
        for call, table in zip(self.call.streams, tables, strict=True):
            good, rejects = checked(table, call.encoding, call.columns)
            self._keep(self.call.as_rejects(rejects))
            rows.append(good)
        return self._table(rows, self.matched(rows))

    def matched(self, rows: Sequence[Checked]) -> Joined:
        """The same as numbers of rows and slots of queries."""
        groups = LabelNumbers()
        sides = [_side(own, call, groups) for own, call in zip(rows, self.call.streams, strict=True)]
        by_lane = {lane.number: equalities for equalities, lane in self._lanes.items()}
        lanes = [Wanted(lane, by_lane[lane], tuple(length), counts) for (lane, counts), length in self._longest.items()]
        return match_choices(self.queries, sides, self._names, lanes, self.call.threshold)

    def forget_rejects(self) -> None:
        """They have been told elsewhere."""
        self._rejects.clear()

    def rejects(self) -> pa.Table:
        """Every row and query that could not be used so far."""
        return concat_rejects(self._rejects, self.call.reject_schema)

    def _table(self, rows: Sequence[Checked], found: Joined) -> pa.Table:
        columns = [self.queries.keys(found.slot).cast(self.call.streams[0].query_type)]
        for call, own, at in zip(self.call.streams, rows, found.rows, strict=True):
            columns.append(keys_of(own.table, call.encoding).take(pa.array(at)))
            columns.append(from_micros(own.time[at], call.time_type, call.encoding.unit))
        return pa.Table.from_arrays([*columns, pa.array(found.probability)], schema=self.call.answer_schema)

    def _keep(self, rejects: pa.Table) -> None:
        if len(rejects) and self.call.on_reject == "fail":
            raise bad_rows(len(rejects), rejects.slice(0, 1).to_pylist()[0])
        if len(rejects):
            self._rejects.append(rejects)

    def _window(self, within: tuple[str, str] | None) -> tuple[tuple[int, ...], bool] | None:
        """Each stream's window in microseconds or rows, and whether these are rows."""
        streams = tuple(call.encoding.name for call in self.call.streams)
        if within is None:
            if isinstance(self.call.window, TimeWindow):
                return self.call.window.micros(streams), False
            return (
                ((self.call.window.size,) * len(streams), True) if isinstance(self.call.window, CountWindow) else None
            )
        length, unit = within
        if unit == "ROW":
            return ((int(length),) * len(streams), True) if length.isdigit() and int(length) > 0 else None
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

    def _lane_of(self, made: Template) -> Lane:
        """The lane of queries of a template: by the equalities between streams that hold for all their answers."""
        found: set[Equality] = set()
        known: set[Comparison] = set()
        for node in together(made):
            joined = self._equality(node)
            if joined is not None:
                found.add(joined[0])
                known |= {node} if joined[1] else set()
        equalities = tuple(sorted(found, key=repr))
        lane = self._lanes.setdefault(equalities, Lane(len(self._lanes)))
        return Lane(lane.number, frozenset(known))

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


def _key_type(call: QueryCall) -> pa.DataType:
    return call.key_type


def _time_type(call: QueryCall) -> pa.DataType:
    return call.time_type


def _read(columns: Mapping[str, Sequence[str]], text: str) -> Condition:
    return qualified(parse(text, tuple(columns)), columns)


def _split(text: str | None) -> tuple[str | None, tuple[str, str] | None]:
    """A condition without its window, and that window, as (length, unit)."""
    found = None if text is None else _TAIL.fullmatch(text)
    if found is None or _ends_in_comment(found["condition"]):
        return text, None
    return found["condition"], (found["length"], found["unit"].upper())


def _ends_in_comment(text: str) -> bool:
    """Whether what follows a text would be part of a comment in it."""
    return "--" in text.rpartition("\n")[2] or text.rfind("/*") > text.rfind("*/")


def _side(rows: Checked, call: QueryCall, groups: LabelNumbers) -> Side:
    table, n = rows.table, len(rows.table)
    by = call.encoding.partition_by
    group = groups.of(Labels.of([table[name] for name in by]) if by else None, n)
    keys = encode(keys_of(table, call.encoding)).to_arrow()
    rank = np.empty(n, np.int64)
    rank[np.asarray(pc.sort_indices(keys))] = np.arange(n)
    return Side(points_of(rows, call), rows.time, group, rank)
