"""Standing queries: by call, asked of rows at hand, and by hand."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from appulse.api.by_hand import Bare, Changing, fitted, refuse_twice
from appulse.api.results import FRAMED, Framed, is_spark, remember
from appulse.api.survivors import over_survivors
from appulse.arguments import Count, OnReject, Probability, checked
from appulse.engines.join.call import Emit
from appulse.engines.multi_queries.call import Aggregate, is_signed
from appulse.engines.options import Options, options_of
from appulse.errors import BadArgument
from appulse.model.geometries import with_wkb
from appulse.model.stream import Result, Stream
from appulse.model.streaming import is_streaming
from appulse.windows.definitions import GivenWindow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.api.by_hand import Frames, Types
    from appulse.engines.multi_queries.local import LocalWindowQueries
    from appulse.engines.queries.call import LocalQueries


@checked
def match_queries(
    stream: Framed[Result],
    *more: Any,
    queries: Any = None,
    probability: Probability | None = None,
    window: GivenWindow | None = None,
    aggregate: Aggregate | None = None,
    emit: Emit = "matches",
    on_reject: OnReject = "collect",
    options: Options | None = None,
) -> Result:
    """Which of many standing queries each row of a stream satisfies, or each combination of rows of several streams.

    A row satisfies a query where its condition is true. An uncertain row does so with a probability. Over several
    streams a combination has one row of each, all in their windows when the newest of them arrives.

    Arguments:
    * ``stream, *more``: the streams. Over several, conditions name columns as ``stream.column``.
    * ``queries`` (or the last positional argument): a frame with the columns ``query``, of any type, and ``condition``,
      an SQL boolean expression over the stream's columns and the dimensions of its value, as in `filter`, or
      ``region``, a geometry that rows lie in (as in `fence_events`, perhaps with a ``radius``), or both. Optional
      columns are ``change`` (``"add"`` or ``"remove"``, applied in order), ``until``, the last time at which the query
      holds, and ``select``, columns to copy into the result, separated by commas. Of several queries with one name the
      last counts.
    * ``probability``: the threshold for the probability of a match, in (0, 1]. Required unless rows are certain.
    * ``window``, for several streams: the window of conditions that do not end with their own, such as ``WITHIN 30
      SECONDS`` or ``WITHIN 100 ROWS``.
    * ``aggregate``, for several streams: reports aggregates of the matches in each query's window, in place of the
      matches. A mapping of names to ``"count"``, ``("sum", "r.v")`` or ``("mean", "r.v")``, and where all rows are
      certain ``("median", "r.v")``, percentiles (``"p90"``) and ``"std"``, too.
    * ``emit``: ``"matches"``, or ``"changes"`` for a stream with `Stream(change=)` and static queries: a row is
      answered as it arrives, with 1 in a last column ``change``, and once more with -1 if it is withdrawn within the
      stream's lateness.
    * ``on_reject``: ``"collect"`` keeps bad rows for `rejects`, ``"fail"`` raises `BadInput` at the first.
    * ``options``: for the size of the output, partitions and threads; see `Options`. More queries over one Spark
      frame than a worker can hold are held in parts that lie apart in space.

    Returns a Spark frame for Spark frames (streaming if they are), else a `pyarrow.Table`, with the columns ``query,
    key, time, probability``, and ``values`` (JSON) with ``select``: a row per (query, row), in the order of rows. Over
    two streams they are ``query, left_key, left_time, right_key, right_time, probability``, over more keys and times by
    their names. With ``aggregate`` there is a row ``query, time`` (with the columns of ``partition_by`` between them)
    per tick at which something can match, with each name's expected value. A mean is over the worlds in which there is
    one, with ``<name>_exists`` its probability (so for the others that need a value). Invalid queries are rejects under
    the stream name ``queries``, with the position and the reason. Queries that no row can satisfy are listed there,
    too, and never raise.

    Raises `BadArgument` for a wrong argument, `BadInput` with ``on_reject="fail"``, `OutputLimit` beyond
    ``Options(max_output=)``, and `NotBuilt` for combinations that are not built yet.

    Lim et al. 2006, sections 4 and 5.

    >>> conditions = ["celsius > 30", "celsius < 25 AND room = 'lab'"]
    >>> queries = pa.table({"query": ["hot", "cold"], "condition": conditions})
    >>> rows = pa.table({"id": [1, 2], "t": [0, 1], "celsius": [31.0, 20.0], "room": ["lab", "lab"]})
    >>> stream = ap.Stream(rows, key="id", time="t", value=ap.Gaussian("celsius", sigma=0.5))
    >>> found = ap.match_queries(stream, queries, probability=0.9)
    >>> [(row["query"], row["key"], round(row["probability"], 3)) for row in found.to_pylist()]
    [('hot', 1, 0.977), ('cold', 2, 1.0)]
    """
    given, frame = _with_queries((stream, *more), queries, "match_queries")
    frame = with_wkb(frame)
    for one in given:
        FRAMED(one, "match_queries(", ")")
    refuse_twice(given)
    options = options_of(options, "match_queries")
    settings: dict[str, Any] = {"probability": probability, "on_reject": on_reject, "options": options}
    if len(given) == 1:
        _refuse_of_one(window=window, aggregate=aggregate)
    else:
        settings |= {"window": window, "aggregate": aggregate}
    signed = is_signed(given, emit)
    if signed and is_spark(frame) and is_streaming(frame):
        raise BadArgument(_STAY)
    call = partial(_matched, frame=frame, settings=settings)
    return cast("Result", over_survivors(given, "stream", settings, call, signed=signed))


def _matched(given: Sequence[Stream[Any]], frame: Any, settings: dict[str, Any]) -> Any:
    """The answers of a call over the rows that are left."""
    if any(is_spark(one.frame) for one in given):
        if len(given) > 1:
            from appulse.engines.spark.multi_queries.call import spark_window_queries

            return spark_window_queries(given, frame, **settings)
        from appulse.engines.spark.queries.call import spark_queries

        return spark_queries(given[0], frame, **settings)
    from appulse.engines.given import table_of
    from appulse.engines.local import as_table
    from appulse.engines.multi_queries.call import resolve_window_queries
    from appulse.engines.multi_queries.local import LocalWindowQueries
    from appulse.engines.queries.call import LocalQueries, resolve_queries

    tables, asked = [table_of(one) for one in given], as_table(frame, "The frame of queries")
    if len(given) > 1:
        several = LocalWindowQueries(resolve_window_queries(given, tables, asked.schema, **settings))
        several.change(asked)
        result = several.answers({one.name: table for one, table in zip(several.call.encodings, tables, strict=True)})
        return remember(result, several.rejects(), several.call)
    call = resolve_queries(given[0], tables[0], asked.schema, **settings)
    engine = LocalQueries(call, settings["options"].threads)
    engine.change(asked)
    result = engine.push(tables[0])
    return remember(result, engine.rejects(), call)


@checked
def ask(
    rows: Framed[Result],
    queries: Any,
    *,
    probability: Probability | None = None,
    on_reject: OnReject = "collect",
    options: Options | None = None,
) -> Result:
    """Which rows of a table satisfy new queries: `match_queries` over one stream, for one-off questions.

    The answers are the same whether rows or queries come first.

    Arguments:
    * ``rows``: a stream.
    * ``queries``: a frame, as in `match_queries`.
    * ``probability, on_reject, options``: as in `match_queries`.

    Returns a Spark frame for Spark frames, else a `pyarrow.Table`, with the columns ``query, key, time, probability``,
    and ``values`` with ``select``, as `match_queries` does over one stream.

    Raises as `match_queries` does.

    >>> conditions = ["celsius > 30", "celsius < 25 AND room = 'lab'"]
    >>> queries = pa.table({"query": ["hot", "cold"], "condition": conditions})
    >>> rows = pa.table({"id": [1, 2], "t": [0, 1], "celsius": [31.0, 20.0], "room": ["lab", "lab"]})
    >>> stream = ap.Stream(rows, key="id", time="t", value="celsius")
    >>> ap.ask(stream, queries).select(["query", "key"]).to_pylist()
    [{'query': 'hot', 'key': 1}, {'query': 'cold', 'key': 2}]
    """
    return match_queries(rows, queries, probability=probability, on_reject=on_reject, options=options)


@checked
class QueryMatch(Changing["LocalQueries | LocalWindowQueries"]):
    """`match_queries` without Spark, push by push: change queries at any time, push rows, and get their matches.

    Streams have ``frame=None``; other arguments are as in `match_queries`, and `change` takes its queries. Changes
    apply from the next push. Over several streams a new query also sees earlier rows that are still in a window of
    another query. Nothing is answered before every stream has been pushed.

    >>> conditions = ["celsius > 30", "celsius < 25 AND room = 'lab'"]
    >>> queries = pa.table({"query": ["hot", "cold"], "condition": conditions})
    >>> rows = pa.table({"id": [1, 2], "t": [0, 1], "celsius": [31.0, 20.0], "room": ["lab", "lab"]})
    >>> call = ap.QueryMatch(ap.Stream(None, key="id", time="t", value="celsius"))
    >>> call.change(queries)
    >>> call.push(rows).select(["query", "key"]).to_pylist()
    [{'query': 'hot', 'key': 1}, {'query': 'cold', 'key': 2}]
    """

    _withdraws_before = True

    def __init__(
        self,
        *streams: Bare,
        probability: Probability | None = None,
        window: GivenWindow | None = None,
        aggregate: Aggregate | None = None,
        emit: Emit = "matches",
        on_reject: OnReject = "collect",
        options: Options | None = None,
    ) -> None:
        self._signed = is_signed(streams, emit)
        self._keeps_rows = len(streams) > 1
        super().__init__(streams, "stream")
        options = options_of(options, "match_queries")
        self._settings: dict[str, Any] = {"probability": probability, "on_reject": on_reject, "options": options}
        if len(streams) == 1:
            _refuse_of_one(window=window, aggregate=aggregate)
        else:
            self._settings |= {"window": window, "aggregate": aggregate}

    def change(self, queries: Any) -> None:
        """Add and remove queries: a frame as `match_queries` takes it. What raises has changed nothing.

        With ``emit="changes"`` queries cannot change after the first push.

        Before the first push the stream's columns are not known: changes wait, and a wrong one raises at that push and
        is forgotten.
        """
        from appulse.engines.local import as_table
        from appulse.engines.queries.call import check_queries

        if self._signed and (self._engine is not None or self._held):
            raise BadArgument(_STAY)
        table = as_table(with_wkb(queries), "The frame of queries")
        check_queries(table.schema)
        self._take(table)

    def expire(self, before: Any) -> int:
        """Forget queries whose ``until`` lies before a time, given as the stream has them; how many there were.

        They match no later row anyway; this frees their memory.
        """
        return self._known.expire(before)

    def _may_start(self, held: Sequence[Frames], types: Types, *, ended: bool) -> bool:
        typed = {name for push in held for name, table in push.items() if not _untyped(table)}
        return len(typed) == len(self._streams) and super()._may_start(held, types, ended=ended)

    def _fresh(self, held: Sequence[Frames], types: Types) -> LocalQueries | LocalWindowQueries:
        from appulse.engines.multi_queries.call import resolve_window_queries
        from appulse.engines.multi_queries.local import LocalWindowQueries
        from appulse.engines.queries.call import LocalQueries, resolve_queries

        # The first rows show how many dimensions a value has.
        shown = {name: table for push in reversed(held) for name, table in push.items() if not _untyped(table)}
        shown = fitted(held[-1] | shown, types)
        streams = self._left()
        tables = [_with_columns(shown[name], self._schema(name, [shown])) for name in self._streams]
        if len(streams) == 1:
            call = resolve_queries(streams[0], tables[0], self._first.schema, **self._settings)
            return LocalQueries(call, self._settings["options"].threads)
        return LocalWindowQueries(resolve_window_queries(streams, tables, self._first.schema, **self._settings))

    def _feed(self, engine: LocalQueries | LocalWindowQueries, tables: Frames) -> pa.Table:
        from appulse.engines.queries.call import LocalQueries

        if not isinstance(engine, LocalQueries):
            return engine.push(tables)
        found = [engine.push(table) for table in tables.values()]
        return found[0] if found else engine.call.answer_schema.empty_table()

    def _finish(self, engine: LocalQueries | LocalWindowQueries) -> pa.Table:
        from appulse.engines.queries.call import LocalQueries

        return engine.call.answer_schema.empty_table() if isinstance(engine, LocalQueries) else engine.drain()

    def _state_of(self, engine: LocalQueries | LocalWindowQueries) -> dict[str, int]:
        from appulse.engines.queries.call import LocalQueries

        if not isinstance(engine, LocalQueries):
            return super()._state_of(engine)
        return {"state_rows": len(engine.queries), "state_bytes": int(engine.queries.nbytes)}

    def _checked(self, held: Sequence[Frames], types: Types) -> pa.Table:
        self._first  # noqa: B018 - raises where there are no queries
        if len(self._streams) > 1:
            return pa.table({})
        rows = self._surviving(held, types).push(fitted(held[-1], types))
        return self._feed(self._fresh(held, types), rows)

    def _early_rejects(self) -> pa.Table:
        return self._known.rejects()

    @property
    def _first(self) -> pa.Table:
        if not self._waiting:
            raise BadArgument("There are no queries yet. Add some by change() (an empty frame is enough).")
        return self._waiting[0]

    def explain_query(self, query: Any) -> dict[str, Any]:
        """What is known of a standing query: its condition, boxes, whether these say it all, and what came of it.

        Of its ``candidates`` each is a row that came to its boxes, or a sample of one: where these do not say it all,
        the condition is asked of each. ``region`` is what is known of its region, and ``probability`` says of normal
        rows whether theirs is ``"exact"`` or ``"by points"``.
        """
        return self._known.explain(query)

    @checked
    def busiest(self, n: Count = 10) -> pa.Table:
        """The most expensive queries so far: ``query, condition, matches, candidates``, by `candidates`."""
        return self._known.busiest(n)

    @property
    def _known(self) -> LocalQueries | LocalWindowQueries:
        if self._engine is None:
            raise BadArgument("Nothing has been judged yet: push rows first (an empty frame is enough).")
        return self._engine


_STAY = (
    "emit='changes' needs queries that stay: a row that is withdrawn leaves the queries that it has matched. Give all "
    "queries before the rows, or leave emit out."
)


def _with_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of a schema, nulls where a table has none."""
    there = table.column_names
    columns = [table[field.name] if field.name in there else pa.nulls(len(table), field.type) for field in schema]
    return pa.table(columns, names=schema.names)


def _untyped(table: pa.Table) -> bool:
    """Whether a frame has no types: those of some libraries have none before they have rows."""
    return not len(table) and any(pa.types.is_null(kind) for kind in table.schema.types)


def _refuse_of_one(**given: Any) -> None:
    """Raise `BadArgument` where something is asked of one stream that is about several."""
    for name, value in given.items():
        if value is not None:
            raise BadArgument(f"{name}= is for queries over several streams: a row of one is judged by itself.")


def _with_queries(given: tuple[Any, ...], queries: Any, name: str) -> tuple[tuple[Any, ...], Any]:
    """The streams and the queries, which may come last among them."""
    if queries is None and not isinstance(given[-1], Stream):
        given, queries = given[:-1], given[-1]
    if queries is None:
        raise BadArgument(f"{name}() got no queries. Give a frame with columns query and condition.")
    return given, queries
