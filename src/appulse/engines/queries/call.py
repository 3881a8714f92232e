"""Continuous queries: a checked call, and the engine in this process."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from appulse.arguments import shown
from appulse.engines.carrying import carried_of, refuse_repeated
from appulse.engines.meaning import of_call, of_stream, of_types
from appulse.engines.objects import ObjectsCall
from appulse.engines.options import Options, options_of
from appulse.engines.pushes import fitted
from appulse.engines.queries.rows import matched, normal_columns
from appulse.engines.schemas import encoding_of, is_joined
from appulse.engines.swapped import Swapped
from appulse.engines.thresholds import within_tolerance
from appulse.errors import BadArgument, bad_rows, nearest
from appulse.model import uncertainty
from appulse.model.columns import as_array, chunk, is_text, plain_values
from appulse.model.defects import BAD_CONDITION, BAD_REGION, NEVER_TRUE, concat_rejects, no_rejects, rows_as_json
from appulse.model.encode import checked, infer_dimensions, keys_of
from appulse.model.encoding import Encoding, check_columns
from appulse.model.geometries import geometries_of
from appulse.model.meaning import of_type, real
from appulse.model.positions import given_degrees
from appulse.model.regions import QUERY, RADIUS, REGION, radii_of
from appulse.model.strings import encode
from appulse.model.times import from_micros, is_number, is_time, to_micros
from appulse.model.uncertainty import is_certain
from appulse.model.workers import Workers, cores
from appulse.operators.output import Output, Watch
from appulse.queries.condition import parse
from appulse.queries.index import MOST
from appulse.queries.places import place_of
from appulse.queries.regions import GivenRegions
from appulse.queries.sets import QuerySet
from appulse.queries.slots import as_keys, plain_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from appulse.kernels.arrays import Ints, Ints32
    from appulse.model.carried import Columns
    from appulse.model.encode import ValidRows
    from appulse.model.meaning import Meaning
    from appulse.model.stream import Stream
    from appulse.operators.query_match import Matched
    from appulse.queries.places import Place

ADD, REMOVE = "add", "remove"
# Rows are matched in blocks: the first of so many, or of so many pairs of rows and queries, and then of as many as have
# about so many answers. A block is matched in parts, each by one thread and within its cache.
_PART = 1 << 14
_ROWS_FIRST, _ROWS_LEAST, _PAIRS_AT_ONCE, _ANSWERS_AT_ONCE = 4096, 64, 1 << 26, 1 << 23
#: Columns of a frame of queries.
CONDITION, CHANGE, SELECT, UNTIL = "condition", "change", "select", "until"
_FAILED = {QUERY: "key", CONDITION: "text"}


@dataclass(frozen=True)
class QueryCall(ObjectsCall):
    """A checked call of queries over one stream, without frames."""

    encoding: Encoding
    types: tuple[tuple[str, pa.DataType], ...]  # of all that a condition may name
    query_type: pa.DataType
    probability: float | None
    schema: pa.Schema  # of the frame
    selecting: bool = False
    carry: Columns = ()

    grouped = holds_back = stateful = False

    @property
    def encodings(self) -> tuple[Encoding, ...]:
        """The one stream's."""
        return (self.encoding,)

    @property
    def columns(self) -> list[str]:
        """The columns that rows have to bring: all of them, as queries may name any."""
        own = [name for name, _ in self.types if not self.encoding.is_dimension(name)]
        return list(dict.fromkeys([*self.encoding.columns(), *own]))

    @cached_property
    def answer_schema(self) -> pa.Schema:
        fields = [(QUERY, self.query_type), ("key", self.key_type), ("time", self.time_type)]
        values = [("values", pa.string())] if self.selecting else []
        return pa.schema([*fields, ("probability", pa.float64()), *values, *self.carry])

    @cached_property
    def place(self) -> Place | None:
        """The columns that regions are of."""
        return place_of(self.encoding.model, self.encoding.dimensions)

    @property
    def normal(self) -> tuple[str, ...]:
        """The columns that have independent normal errors."""
        return normal_columns(self.encoding)

    def query_set(self) -> QuerySet:
        """A set without queries."""
        read = partial(parse, place=self.place)
        return QuerySet(dict(self.types), self.query_type, read, place=self.place, normal=self.normal)

    @property
    def threshold(self) -> float | None:
        """What probabilities have to reach; None where rows are certain."""
        return None if self.probability is None else within_tolerance(self.probability)

    def meaning(self) -> Meaning:
        """What is asked, in plain JSON; the queries are no part of it."""
        arguments = {
            "streams": [of_stream(self.encoding) | of_types([], self.types)],
            "probability": None if self.probability is None else real(self.probability),
            "select": self.selecting,
            "carry": [[name, of_type(kind)] for name, kind in self.carry],
            "types": of_types([("query", self.query_type)]),
        }
        return of_call("match_queries", arguments, {"probability": None, "select": False, "carry": []})


def resolve_queries(
    stream: Stream,
    table: pa.Table,
    queries: pa.Schema,
    *,
    probability: float | None,
    on_reject: str,
    options: Options | None = None,
) -> QueryCall:
    """Check a call against the columns there are; ``table`` may have no rows, where its columns tell the dimensions."""
    name, schema = stream.name or "stream", table.schema
    encoding = encoding_of(stream, schema)
    d = encoding.dimensions or infer_dimensions(table, stream.value)
    if d is None and len(table):
        d = 1
    if d is None:
        raise BadArgument(
            f"The columns of stream {name!r} do not say how many dimensions its value has. Name the dimensions: "
            "ap.Samples(..., names=['x', 'y'])."
        )
    types = {column.name: column.type for column in schema}
    if not is_certain(stream.value):
        types |= dict.fromkeys(uncertainty.names(stream.value, d), pa.float64())
    check_queries(queries)
    call = QueryCall(
        replace(encoding, dimensions=d),
        tuple(types.items()),
        plain_key(queries.field(QUERY).type),
        checked_probability(probability, [stream]),
        without_views(schema),
        selecting=SELECT in queries.names,
        carry=carried_of(stream, schema, name),
        on_reject=on_reject,
        dependent=(name,) if is_joined(schema) else (),
        max_output=options_of(options, "match_queries").max_output,
    )
    refuse_repeated(call.answer_schema)
    return call


def checked_probability(probability: float | None, streams: Sequence[Stream]) -> float | None:
    """The probability asked for; None where rows are certain and none was. `BadArgument` for others."""
    if probability is None:
        if all(is_certain(stream.value) and stream.existence is None for stream in streams):
            return None
        raise BadArgument(
            "probability= is missing, and rows are uncertain. Give the least they have to reach, in (0, 1]."
        )
    return probability


def as_known(table: pa.Table, call: QueryCall) -> pa.Table:
    """A table with its columns in the types that conditions were read for; `BadArgument` where they do not fit."""
    check_columns(call.encoding, table.schema)
    kinds = {name: kind for name, kind in call.types if not call.encoding.is_dimension(name)}
    for name in kinds:
        if name not in table.column_names:
            raise BadArgument(f"The push has no column {name!r}, which earlier ones had.")
    return fitted(table, kinds)


def check_queries(schema: pa.Schema) -> None:
    """Raise `BadArgument` unless these are the columns of a frame of queries."""
    # Who only removes need not say what, and a region may stand alone.
    for name in (QUERY,) if {CHANGE, REGION} & set(schema.names) else (QUERY, CONDITION):
        if name not in schema.names:
            raise BadArgument(
                f"The frame of queries has no column {name!r}.{nearest(name, schema.names)} It needs query (any type) "
                "and condition (text), or region (geometries)."
            )
    if RADIUS in schema.names and REGION not in schema.names:
        raise BadArgument("The frame of queries has a column 'radius' and no column 'region' that it widens.")
    for name in (CONDITION, CHANGE, SELECT):
        if name in schema.names and not is_text(schema.field(name).type):
            raise BadArgument(f"Column {name!r} of the queries is {schema.field(name).type}. It has to be text.")


def checked_changes(table: pa.Table, call: QueryCall) -> pa.Table:
    """A frame of changes, its keys in the type that all have; `BadArgument` if as a whole it cannot be taken in.

    All that can be wrong with more than a single query is found here, before anything is changed.
    """
    check_queries(table.schema)
    if REGION in table.column_names and call.place is None:
        raise BadArgument(
            f"The queries have a column 'region', and the value of stream {call.encoding.name!r} is not a place: "
            f"{call.encoding.model!r}. Regions need a value of two columns, or ap.Position(lat, lon)."
        )
    if SELECT in table.column_names and not call.selecting:
        raise BadArgument("The first frame of queries had no column 'select', and this one has. Give it to all.")
    if UNTIL in table.column_names:
        check_until(table.schema.field(UNTIL).type, call.time_type)
    table = table.cast(without_views(table.schema)).combine_chunks()
    keys = chunk(table[QUERY])
    known = plain_key(keys.type) if pa.types.is_null(call.query_type) else call.query_type
    return table.set_column(table.schema.get_field_index(QUERY), QUERY, as_keys(keys, known))


class LocalQueries:
    """Standing queries in process: changes and rows in, answers out."""

    def __init__(self, call: QueryCall, threads: int | None = 1) -> None:
        self.call, self._workers = call, Workers(threads or cores())
        self.queries = call.query_set()
        self._selected: dict[str | None, tuple[str, ...]] = {None: ()}
        self._rejects: list[pa.Table] = []
        self.swapped = Swapped()

    def change(self, table: pa.Table) -> pa.Table:
        """Add and remove queries, in order; they count from the next push on. The changes that can be used.

        What raises has changed nothing.
        """
        table = checked_changes(table, self.call)
        if self.call.on_reject == "fail" and len(table):
            tried = LocalQueries(replace(self.call, on_reject="collect"))
            tried.change(table)
            bad = tried.rejects().filter(pc.not_equal(tried.rejects()["reason"], NEVER_TRUE))
            self._keep(bad)
        if pa.types.is_null(self.call.query_type):  # of frames without rows so far
            self.call = replace(self.call, query_type=plain_key(table.schema.field(QUERY).type))
            self.queries = self.call.query_set()
        usable = [table.slice(0, 0)]
        for kind, part in changes_of(table):
            wrong: list[tuple[int, str]] = []
            regions: list[tuple[int, str]] = []
            if kind == ADD:
                wrong, regions = self._add(part)
            elif kind == REMOVE:
                self.queries.remove(chunk(part[QUERY]))
            else:
                wrong = unknown_change(part)
            self._keep(refused_queries(part, wrong, self.call.reject_schema))
            self._keep(refused_queries(part, regions, self.call.reject_schema, BAD_REGION))
            usable.append(without(part, [*wrong, *regions]))
        return pa.concat_tables(usable)

    def push(self, table: pa.Table) -> pa.Table:
        """The queries that rows satisfy."""
        answers, rejects = self.judge(as_known(table, self.call), Output(self.call.max_output))
        self.swapped.warn()
        self._keep(rejects)
        self._keep(self.failed())
        return answers

    def judge(self, table: pa.Table, output: Output) -> tuple[pa.Table, pa.Table]:
        """Answers, counted by ``output``, and rejects of rows; neither is kept."""
        answers: list[pa.Table] = []
        rejects: list[pa.Table] = []
        begin, watch = 0, Watch(len(table), _answered)
        size = min(_ROWS_FIRST, max(_ROWS_LEAST, _PAIRS_AT_ONCE // max(1, len(self.queries))))
        while begin < len(table) or not answers:
            block = table.slice(begin, size)
            self.queries.expect(len(block))
            parts = [block.slice(i, _PART) for i in range(0, max(1, len(block)), _PART)]
            judged = self._workers.map(self._match, parts)
            if self.queries.has_failed:  # in one part, and perhaps before it matched in another
                judged = [(rows, found.filter(self.queries.stand(found.slot)), bad) for rows, found, bad in judged]
            for rows, found, _ in judged:
                self._doubt(rows)
                self.queries.count(found.slot)
                watch.add(len(found))
                output.add(len(found))
            answers += self._workers.map(lambda one: self.answers(*one[:2]), judged)
            rejects += [refused for *_, refused in judged]
            # What comes next has about as many answers a row, and never more than there is room for.
            a_row = max(1.0, 2.0 * watch.made / (begin + size))
            begin, size = begin + size, max(_ROWS_LEAST, int(_ANSWERS_AT_ONCE / a_row))
        return pa.concat_tables(answers), pa.concat_tables(rejects)

    def _match(self, table: pa.Table) -> tuple[ValidRows, Matched, pa.Table]:
        """Rows that can be used, the queries they satisfy, and rejects of the others."""
        rows, refused = checked(table, self.call.encoding, self.call.columns)
        return rows, matched(self.queries, rows, self.call.encoding, self.call.threshold), refused

    def _doubt(self, rows: ValidRows) -> None:
        """Look at the first rows, whether latitude and longitude are swapped."""
        regions = self.queries.regions
        if regions and not self.swapped.done:
            at = given_degrees(rows.table, self.call.encoding.held_as)
            if at is not None:
                self.swapped.look(at, lambda some: regions.covering(some).row)

    def failed(self) -> pa.Table:
        """Queries removed since the last call because they could not be evaluated over rows, as rejects."""
        return failed_queries(self.queries, self.call.reject_schema)

    def take_rejects(self) -> pa.Table:
        """The rows and queries that could not be used since the last call; they are not kept."""
        found = self.rejects()
        self.forget_rejects()
        return found

    def forget_rejects(self) -> None:
        """They have been reported elsewhere."""
        self._rejects.clear()

    def answers(self, rows: ValidRows, found: Matched) -> pa.Table:
        """As a table, in the types the user gave."""
        call, at = self.call, pa.array(found.row)
        columns = [
            self.queries.keys(found.slot).cast(call.query_type),
            keys_of(rows.table, call.encoding).take(at),
            from_micros(rows.time[found.row], call.time_type, call.encoding.unit),
            pa.array(found.probability),
        ]
        if call.selecting:
            columns.append(self._values(rows, found))
        columns += [plain_values(rows.table[name]).cast(kind).take(at) for name, kind in call.carry]
        return pa.Table.from_arrays(columns, schema=call.answer_schema)

    def expire(self, before: object) -> int:
        """Forget queries that hold up to a time before this."""
        return self.queries.expire(micros_before(before, self.call))

    def explain(self, query: object) -> dict[str, Any]:
        """What is known of a query that stands."""
        return explained_query(self.queries, query)

    def busiest(self, n: int) -> pa.Table:
        """The queries with the most candidates, the most first."""
        return costliest(self.queries, n)

    def rejects(self) -> pa.Table:
        """Every row and query that could not be used so far."""
        return concat_rejects(self._rejects, self.call.reject_schema)

    def _add(self, table: pa.Table) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
        """Those that cannot be used, by row and with what is wrong: with conditions and others, and with regions."""
        conditions = chunk(table[CONDITION]) if CONDITION in table.column_names else pa.nulls(len(table), pa.string())
        wrong, labels = self._labels(table)
        until, odd = until_of(table, self.call.encoding.unit)
        wrong += odd
        regions = given_regions(table)
        bad = {i for i, _ in wrong}
        good = np.array([i for i in range(len(table)) if i not in bad], np.int64) if bad else np.arange(len(table))
        added = self.queries.add(
            chunk(table[QUERY]).take(pa.array(good)),
            conditions.take(pa.array(good)),
            None if labels is None else labels[good],
            until=None if until is None else until[good],
            regions=regions if regions is None else regions.take(good),
        )
        wrong += [(int(good[one.row]), one.reason) for one in added.refused if not one.region]
        outside = [(int(good[one.row]), one.reason) for one in added.refused if one.region]
        # They stand, and do no harm: their author has to hear of it.
        never = [(int(good[i]), "no row can ever satisfy it") for i in added.never.tolist()]
        if never:
            self._rejects.append(refused_queries(table, never, self.call.reject_schema, NEVER_TRUE))
        return sorted(wrong), outside

    def _labels(self, table: pa.Table) -> tuple[list[tuple[int, str]], Ints32 | None]:
        """What queries select, by number; and those that select what there is not."""
        if SELECT not in table.column_names:
            return [], np.zeros(len(table), np.int32) if self.call.selecting else None
        wrong, selected = [], chunk(table[SELECT]).to_pylist()
        for i, given in enumerate(selected):
            if given not in self._selected:
                try:
                    self._selected[given] = self._columns_of(given)
                except BadArgument as error:
                    wrong.append((i, str(error)))
        order = {given: i for i, given in enumerate(self._selected)}
        return wrong, np.array([order.get(given, 0) for given in selected], np.int32)

    def _columns_of(self, given: str) -> tuple[str, ...]:
        names = tuple(name.strip() for name in given.split(","))
        known = [name for name, _ in self.call.types if not self.call.encoding.is_dimension(name)]
        for name in names:
            if name not in known:
                raise BadArgument(f"select names {name!r}, which is not a column of the stream.{nearest(name, known)}")
        return names

    def _values(self, rows: ValidRows, found: Matched) -> pa.Array:
        """What each answer's query selects, as JSON."""
        label = self.queries.labels[found.slot]
        out: list[str | None] = [None] * len(label)
        for number, names in enumerate(self._selected.values()):
            own = [name for name in names if name in rows.table.column_names]
            at = np.flatnonzero(label == number)
            if names and len(at):
                chosen = rows.table.select(own).take(pa.array(found.row[at]))
                for i, row in zip(at.tolist(), rows_as_json(chosen), strict=True):
                    out[i] = row
        return pa.array(out, pa.string())

    def _keep(self, rejects: pa.Table) -> None:
        if len(rejects) and self.call.on_reject == "fail":
            raise bad_rows(rejects)
        if len(rejects):
            self._rejects.append(rejects)


def _answered(made: float) -> str:
    return (
        f"Rows satisfy {made:,.0f} queries by now, a row of output each. Narrower conditions, a higher probability or "
        "fewer queries have fewer; ap.QueryMatch.busiest() lists those that match most."
    )


def changes_of(table: pa.Table) -> Iterator[tuple[str | None, pa.Table]]:
    """Queries that are added or removed one after the other, as parts with what is done to them, in small letters."""
    table = table.combine_chunks()
    if CHANGE not in table.column_names:
        yield ADD, table
        return
    kinds = [None if kind is None else kind.lower() for kind in chunk(table[CHANGE]).to_pylist()]
    begin = 0
    for end in range(1, len(kinds) + 1):
        if end == len(kinds) or kinds[end] != kinds[begin]:
            yield kinds[begin], table.slice(begin, end - begin).combine_chunks()
            begin = end


def unknown_change(table: pa.Table) -> list[tuple[int, str]]:
    """What is wrong with queries of which nobody knows what is to be done to them."""
    given = chunk(table[CHANGE])[0].as_py()
    return [(i, f"change is {given!r}, and 'add' or 'remove' is known") for i in range(len(table))]


def without(table: pa.Table, wrong: Sequence[tuple[int, str]]) -> pa.Table:
    """The queries of a table but those with which something is wrong."""
    return table.take(pa.array(np.setdiff1d(np.arange(len(table)), [i for i, _ in wrong]))) if wrong else table


def last_changes(table: pa.Table) -> pa.Table:
    """Of each query its last change, where all can be used; those removed are left out."""
    keys = chunk(table[QUERY])
    keys = encode(keys.drop_null()).to_arrow() if pa.types.is_nested(keys.type) and not keys.null_count else keys
    codes = np.asarray(keys.dictionary_encode(null_encoding="encode").indices)
    last = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
    last[codes] = np.arange(len(codes))
    kept = table.take(pa.array(np.sort(last)))
    if CHANGE not in kept.column_names:
        return kept
    return kept.filter(pc.not_equal(pc.utf8_lower(kept[CHANGE]), REMOVE))


def check_until(kind: pa.DataType, own: pa.DataType) -> None:
    """Raise `BadArgument` unless queries may end at times of this type, beside those of the stream."""
    if not (pa.types.is_null(kind) or (is_time(own) and is_time(kind)) or (is_number(own) and is_number(kind))):
        raise BadArgument(f"Column 'until' is {kind}, and the stream's times are {own}. Give such.")


def until_of(table: pa.Table, unit: str) -> tuple[Ints | None, list[tuple[int, str]]]:
    """The last time at which queries hold, as a stream has its times; and those where that is none."""
    if UNTIL not in table.column_names:
        return None, []
    column = chunk(table[UNTIL])
    micros, null, strange = to_micros(column, unit)
    wrong = [(i, "until is not a finite time in range") for i in np.flatnonzero(strange & ~null).tolist()]
    return np.where(null, MOST, micros), wrong


def given_regions(table: pa.Table) -> GivenRegions | None:
    """The regions of queries, and by how much each is widened."""
    if REGION not in table.column_names:
        return None
    return GivenRegions(geometries_of(table), radii_of(table, "queries"))


def micros_before(before: object, call: QueryCall) -> int:
    """The time before which queries are forgotten, in microseconds; given as the stream has its times."""
    wrong = f"expire({shown(before)}): give a time as the stream has them."
    given = as_array([before], None, wrong)
    if not (is_time(given.type) if is_time(call.time_type) else is_number(given.type)):
        raise BadArgument(wrong)
    micros, null, strange = to_micros(given, call.encoding.unit)
    if null[0] or strange[0]:
        raise BadArgument(wrong)
    return int(micros[0])


def explained_query(queries: QuerySet, query: object) -> dict[str, Any]:
    """What is known of a query that stands."""
    wrong = f"No query {shown(query)} stands: it was never added, was refused, or has been removed."
    slots = queries.find(as_array([query], queries.key_type, wrong))
    if not len(slots):
        raise BadArgument(wrong)
    return queries.described(int(slots[0]))


def costliest(queries: QuerySet, n: int) -> pa.Table:
    """The queries with the most candidates, the most first."""
    slots = queries.busiest(n)
    return pa.table(
        {
            QUERY: queries.keys(slots),
            CONDITION: queries.texts(slots),
            "matches": pa.array(queries.counts[slots].astype(np.int64)),
            "candidates": pa.array(queries.candidates(slots)),
        }
    )


def refused_queries(
    table: pa.Table, wrong: Sequence[tuple[int, str]], schema: pa.Schema, reason: str = BAD_CONDITION
) -> pa.Table:
    """Queries of a table that cannot be used, by row and with what is wrong, as rejects."""
    n = len(wrong)
    shown = table.drop_columns([REGION]) if REGION in table.column_names and table.num_columns > 1 else table
    own = shown.take(pa.array([i for i, _ in wrong], pa.int64()))
    return pa.table(
        {
            "stream": ["queries"] * n,
            "key": pa.nulls(n, schema.field("key").type),
            "time": pa.nulls(n, schema.field("time").type),
            "reason": [reason] * n,
            "detail": [detail for _, detail in wrong],
            "values": rows_as_json(own),
        },
        schema=schema,
    )


def failed_queries(queries: QuerySet, schema: pa.Schema) -> pa.Table:
    """The queries that a set removed because they could not be evaluated over rows, as rejects, each once."""
    failed = queries.failed()
    if not failed:
        return no_rejects(schema.field("key").type, schema.field("time").type)
    table = pa.table({name: pa.concat_arrays([getattr(one, of) for one in failed]) for name, of in _FAILED.items()})
    wrong = [(i, f"{one.reason} (over rows; the query was removed)") for i, one in enumerate(failed)]
    return refused_queries(table, wrong, schema)


def without_views(schema: pa.Schema) -> pa.Schema:
    """With texts in types that Arrow can take some of."""
    fields = [f.with_type(pa.string()) if pa.types.is_string_view(f.type) else f for f in schema]
    return pa.schema(fields, schema.metadata)
