"""Continuous queries over the windows of several streams: a checked call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import pyarrow as pa

from appulse.arguments import NAME, TEXT, mapping, several, shown
from appulse.engines.base import Call
from appulse.engines.carrying import refuse_carry, refuse_repeated
from appulse.engines.meaning import of_call, of_stream, of_types
from appulse.engines.multi_queries.rows import WindowRows, rows_of
from appulse.engines.options import CallSettings, Options, options_of
from appulse.engines.queries.call import QueryCall, checked_probability, resolve_queries
from appulse.engines.schemas import check_partitions, common_time_type
from appulse.engines.thresholds import within_tolerance
from appulse.errors import BadArgument, NotBuilt, nearest
from appulse.model.defects import as_text, reject_schema, rows_as_json
from appulse.model.encode import keys_of
from appulse.model.meaning import of_type, real
from appulse.model.regions import QUERY
from appulse.model.stream import stream_names
from appulse.model.strings import encode
from appulse.model.times import from_micros
from appulse.model.uncertainty import is_certain
from appulse.operators.query_aggregates import AGGREGATES, CONDITIONAL, COUNT, MEAN, OF_CERTAIN, QueryAggregate
from appulse.queries.columns import NUMBER, kind_of
from appulse.windows.definitions import CountWindow, TimeWindow
from appulse.windows.frames import meaning_of, rule_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.model.encoding import Encoding
    from appulse.model.meaning import Meaning
    from appulse.model.stream import Stream
    from appulse.model.strings import Bytes
    from appulse.windows.definitions import Window


_MAPPED = mapping(
    NAME,
    several(TEXT, "'count', ('sum', 'r.v') or ('mean', 'r.v')", least=1, single=str),
    "a mapping such as {'n': 'count', 'mean_v': ('mean', 'r.v')}",
    least=1,
)
Aggregate: TypeAlias = Annotated[Mapping[str, str | tuple[str, str]], _MAPPED]


def is_signed(streams: Sequence[Stream[Any]], emit: str) -> bool:
    """Whether rows that are withdrawn take their answers back."""
    if emit == "matches":
        return False
    if len(streams) > 1:
        raise NotBuilt("emit='changes' of queries over several streams is not built yet. Leave emit out.")
    if streams[0].change is None:
        raise BadArgument("emit='changes' is about rows that are withdrawn. Give Stream(change='op'), or leave it out.")
    return True


@dataclass(frozen=True)
class WindowCall(Call[WindowRows]):
    """A checked call of queries over several streams, without frames."""

    streams: tuple[QueryCall, ...]
    window: Window | None
    probability: float | None
    aggregates: tuple[QueryAggregate, ...] = ()  # in place of the choices themselves
    common_time: pa.DataType = field(default_factory=pa.int64)  # of times that are no stream's own

    @property
    def encodings(self) -> tuple[Encoding, ...]:
        """Those of the streams."""
        return tuple(call.encoding for call in self.streams)

    @property
    def key_type(self) -> pa.DataType:
        """Of keys among the rejects."""
        return self.reject_schema.field("key").type

    @property
    def time_type(self) -> pa.DataType:
        """Of times among the rejects."""
        return self.reject_schema.field("time").type

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
        if self.aggregates:
            return self._aggregate_schema
        fields = [(QUERY, self.streams[0].query_type)]
        for side, call in self.sides:
            fields += [(f"{side}_key", call.key_type), (f"{side}_time", call.time_type)]
        values = [("values", pa.string())] if self.selecting else []
        carried = [(f"{side}_{name}", kind) for side, one in self.sides for name, kind in one.carry]
        return pa.schema([*fields, ("probability", pa.float64()), *values, *carried])

    @property
    def sides(self) -> list[tuple[str, QueryCall]]:
        """The streams, by what stands before their columns among the answers."""
        names = ["left", "right"] if len(self.streams) == 2 else [call.encoding.name for call in self.streams]
        return list(zip(names, self.streams, strict=True))

    @property
    def partitions(self) -> list[tuple[str, pa.DataType]]:
        """The columns that name groups, as the first stream has them."""
        first = self.streams[0]
        return [(name, first.schema.field(name).type) for name in first.encoding.partition_by]

    @property
    def _aggregate_schema(self) -> pa.Schema:
        fields = [(QUERY, self.streams[0].query_type), *self.partitions, ("time", self.common_time)]
        for asked in self.aggregates:
            fields.append((asked.name, pa.float64()))
            if asked.aggregate in CONDITIONAL:
                fields.append((f"{asked.name}_exists", pa.float64()))
        return pa.schema(fields)

    @property
    def lag(self) -> int | None:
        """Of choices the times of their rows, as far apart as any window; of aggregates that of the tick."""
        return 0 if self.aggregates else None

    @property
    def selecting(self) -> bool:
        """Whether queries name columns to bring along."""
        return self.streams[0].selecting

    @property
    def reject_schema(self) -> pa.Schema:
        """Columns of the rejects; keys and times are text where streams have them of several types."""
        keys, times = {call.key_type for call in self.streams}, {call.time_type for call in self.streams}
        return reject_schema(*(kinds.pop() if len(kinds) == 1 else pa.string() for kinds in (keys, times)))

    @property
    def threshold(self) -> float | None:
        """What probabilities have to reach; None where rows are certain, or nothing is chosen."""
        return None if self.probability is None else within_tolerance(self.probability)

    def meaning(self) -> Meaning:
        """What is asked, in plain JSON; the queries are no part of it."""
        asked = [[one.name, one.aggregate, *([] if one.column is None else [one.column])] for one in self.aggregates]
        arguments = {
            "streams": [
                of_stream(one.encoding, late, idle, arrival=self.arrival)
                | of_types([], one.types)
                | ({"carry": [[name, of_type(kind)] for name, kind in one.carry]} if one.carry else {})
                for one, late, idle in zip(self.streams, self.lateness, self.idle_after, strict=True)
            ],
            "probability": None if self.probability is None else real(self.probability),
            "window": None if self.window is None else self._window,
            "aggregate": asked,
            "select": self.selecting,
            "types": of_types([("query", self.streams[0].query_type), ("time", self.common_time)]),
        }
        defaults: Meaning = {"probability": None, "window": None, "aggregate": [], "select": False}
        return of_call("match_queries", arguments, defaults)

    @property
    def _window(self) -> Meaning:
        assert self.window is not None  # noqa: S101 - else there is nothing to say
        names = tuple(encoding.name for encoding in self.encodings)
        lengths = self.window.micros(names) if isinstance(self.window, TimeWindow) else ()
        return meaning_of(rule_of(self.window), dict(zip(names, lengths, strict=False)))

    def encode(self, stream: int, table: pa.Table) -> tuple[WindowRows, pa.Table]:
        rows, bad = rows_of(self.streams[stream], table)
        return rows, self.as_rejects(bad)

    def columns_of(self, stream: int) -> list[str]:
        return self.streams[stream].columns

    def keys(self, stream: int, rows: WindowRows) -> Bytes:
        return encode(keys_of(rows.table, self.streams[stream].encoding))

    def refused(self, stream: int, rows: WindowRows, reason: str, details: Sequence[str]) -> pa.Table:
        call, n = self.streams[stream], len(rows)
        names = [name for name, _ in call.types if name in rows.table.column_names]
        rejects = pa.table(
            {
                "stream": [call.encoding.name] * n,
                "key": keys_of(rows.table, call.encoding),
                "time": from_micros(rows.time, call.time_type, call.encoding.unit),
                "reason": [reason] * n,
                "detail": list(details),
                "values": rows_as_json(rows.table.select(names)),
            },
            schema=reject_schema(call.key_type, call.time_type),
        )
        return self.as_rejects(rejects)

    def as_rejects(self, rejects: pa.Table) -> pa.Table:
        """The rejects of one stream, as those of all."""
        for name in ("key", "time"):
            kind = self.reject_schema.field(name).type
            if rejects.schema.field(name).type != kind:
                texts = [None if value is None else as_text(value) for value in rejects[name].to_pylist()]
                rejects = rejects.set_column(rejects.schema.get_field_index(name), name, pa.array(texts, kind))
        return rejects


def resolve_window_queries(
    streams: Sequence[Stream],
    tables: Sequence[pa.Table],
    queries: pa.Schema,
    *,
    probability: float | None,
    window: Window | None,
    on_reject: str,
    aggregate: Mapping[str, Any] | None = None,
    options: Options | None = None,
) -> WindowCall:
    """Check a call against the columns there are."""
    if window is not None and not isinstance(window, TimeWindow | CountWindow):
        raise BadArgument(f"window={shown(window)}. Queries over several streams take a TimeWindow or a CountWindow.")
    least = None if aggregate is not None else checked_probability(probability, streams)
    calls = [
        resolve_queries(replace(stream, name=name), table, queries, probability=1.0, on_reject=on_reject)
        for stream, table, name in zip(streams, tables, stream_names(streams), strict=True)
    ]
    check_partitions(streams, [table.schema for table in tables], [call.encoding.name for call in calls])
    orders = {one.encoding.name: stream.order for one, stream in zip(calls, streams, strict=True)}
    if len(set(orders.values())) > 1:
        raise BadArgument(f"order differs over the streams: {orders}. Give every stream the same.")
    common = common_time_type(streams, [table.schema for table in tables], list(orders))
    call = WindowCall(
        tuple(calls),
        window,
        least,
        arrival=streams[0].order == "arrival",
        dependent=tuple(name for call in calls for name in call.dependent),
    ).over(streams, CallSettings(on_reject=on_reject, options=options_of(options, "match_queries")))
    if aggregate is not None:
        call = replace(
            call, aggregates=_aggregates(call, _MAPPED(aggregate, "aggregate="), probability), common_time=common
        )
        refuse_carry(streams, "match_queries(aggregate=...)", "aggregates are about many rows")
    refuse_repeated(call.answer_schema)
    if len(call.names) < sum(len(one.types) for one in calls):
        raise BadArgument("Two columns have one name once that of their stream is put before it. Rename a stream.")
    if isinstance(window, TimeWindow):
        window.micros(tuple(one.encoding.name for one in calls))
    return call


def _aggregates(
    call: WindowCall, given: Mapping[str, Sequence[str]], probability: float | None
) -> tuple[QueryAggregate, ...]:
    """The aggregates of a call; `BadArgument` where they are none."""
    if probability is not None:
        raise BadArgument("probability= goes with choices of rows; aggregates weigh all of them. Leave it out.")
    if call.arrival:
        raise BadArgument("aggregate= needs ticks that are complete, and order='arrival' waits for none. Leave it out.")
    if call.selecting:
        raise BadArgument(
            "Column 'select' of the queries names columns of rows, and aggregates have none. Leave it out."
        )
    uncertain = [
        one.encoding.name
        for one in call.streams
        if not is_certain(one.encoding.held_as) or one.encoding.existence is not None
    ]
    asked = []
    taken = {QUERY, "time", *(name for name, _ in call.partitions)}
    for name, how in given.items():
        aggregate, column = (*how, None)[:2]
        if aggregate not in AGGREGATES:
            raise BadArgument(
                f"aggregate={{{name!r}: {how!r}}}: {aggregate!r} is none.{nearest(str(aggregate), AGGREGATES)}"
            )
        if (column is None) != (aggregate == COUNT) or len(how) > 2:
            raise BadArgument(f"aggregate={{{name!r}: {how!r}}}: give 'count', ('sum', 'r.v') or ('median', 'r.v').")
        if column is not None and (column not in call.types or kind_of(call.types[column]) != NUMBER):
            known = [own for own, kind in call.types.items() if kind_of(kind) == NUMBER]
            raise BadArgument(
                f"aggregate= names {column!r}, which is not a column of numbers.{nearest(str(column), known)}"
            )
        if aggregate == MEAN and len(uncertain) > 1:
            raise BadArgument(
                f"A mean over choices of rows of which {' and '.join(uncertain)} are uncertain has no closed form, for "
                "choices share rows. Ask for sum and count, or make rows of all but one stream certain."
            )
        if aggregate in OF_CERTAIN and uncertain:
            raise BadArgument(
                f"{aggregate!r} is over rows that are certain, and those of {' and '.join(uncertain)} are not. Ask for "
                "the mean, or take the aggregate of one stream by ap.window_aggregate first."
            )
        for own in (name, f"{name}_exists")[: 2 if aggregate in CONDITIONAL else 1]:
            if own in taken:
                raise BadArgument(f"Two columns of the answers would be named {own!r}. Rename an aggregate.")
            taken.add(own)
        asked.append(QueryAggregate(str(name), aggregate, column))
    return tuple(asked)
