"""The public functions: check the arguments, pick the engine."""

from __future__ import annotations

import weakref
from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from appulse.engines.call import AnyCall, JoinCall, Options, resolve, stream_names
from appulse.engines.sensors import SensorOptions
from appulse.errors import BadArgument, NotBuilt
from appulse.model.stream import Stream
from appulse.windows.definitions import TimeWindow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from appulse.engines.local import LocalJoin
    from appulse.engines.queries import LocalQueries
    from appulse.engines.readings import LocalReadings, ReadingsCall
    from appulse.imputation.dependencies import DifferentialDependency
    from appulse.windows.definitions import Window

_TWICE = "The same Stream is given twice among several. Pair it with itself by self_join, apart."
# Arrow tables take no attributes: what stands behind results is kept beside them.
_RESULTS: dict[int, tuple[weakref.ref[Any], pa.Table, AnyCall]] = {}


def similarity_join(
    left: Stream,
    right: Stream,
    *more: Stream,
    epsilon: float,
    probability: float,
    window: Window,
    imputer: Any = None,
    metric: str = "euclidean",
    emit: str = "matches",
    probabilities: str = "exact",
    values: bool = False,
    on_reject: str = "collect",
    options: Options | None = None,
) -> Any:
    """Pairs of rows of different streams within ``epsilon`` with probability at least ``probability``.

    Both rows lie in their windows at some tick; each pair is reported once. ``epsilon`` is in the unit of the
    coordinates; comparisons are inclusive. Passing one `Stream` twice pairs it with itself, as `self_join` does.
    Columns: ``left_stream, left_key, left_time, right_stream, right_key, right_time, distance, probability``, where
    ``distance`` is between the two mean positions. ``emit="changes"`` adds ``change`` (+1 a pair enters, -1 it leaves)
    and ``time``: for -1 under time windows the last time at which the pair holds, else the tick that pushed a row out.
    ``values=True`` adds ``pairs``, the matching pairs of samples: ``left`` and ``right`` with their coordinates, and
    ``weight``. Weights sum to the probability, so ``Samples("pairs")`` over the result is a stream again. Gaussians are
    then answered through their points.
    ``probabilities="bounds"`` may stop early: ``probability`` is then a proven lower bound, at least the threshold, and
    ``probability_upper`` an upper one. The pairs are the same.
    Spark frames give a Spark frame (streaming if they are), others a `pyarrow.Table`. Bad rows are in `rejects`, or
    raise `BadInput` with ``on_reject="fail"``.

    ``imputer`` fills the values of streams that are `Incomplete`: one for all of them, a mapping by stream name, or
    ``"auto"``, which chooses one for each by how it fills values that are there (`AutoImputer`). The answers are those
    of `impute` first and the join then. It adds ``left_filled, right_filled``: what was filled in each row, as
    (attribute, rule), the rule ``"marginal"`` where none matched.

    Lian & Chen 2009, Eqs. 1 and 2; Ren et al. 2019, Definition 2.6.
    """
    _refuse_unbuilt(metric=metric)
    if right is left:
        if more:
            raise BadArgument(_TWICE)
        return self_join(
            left,
            epsilon=epsilon,
            probability=probability,
            window=window,
            emit=emit,
            probabilities=probabilities,
            values=values,
            on_reject=on_reject,
            options=options,
            imputer=imputer,
        )
    return _join(
        (left, right, *more),
        epsilon=epsilon,
        probability=probability,
        window=window,
        self_join=False,
        different=None,
        on_reject=on_reject,
        options=options,
        emit=emit,
        probabilities=probabilities,
        values=values,
        imputer=imputer,
    )


def self_join(
    stream: Stream,
    *,
    epsilon: float,
    probability: float,
    window: Window,
    different: str | None = None,
    imputer: Any = None,
    metric: str = "euclidean",
    emit: str = "matches",
    probabilities: str = "exact",
    values: bool = False,
    on_reject: str = "collect",
    options: Options | None = None,
) -> Any:
    """Unordered pairs of rows of one stream, the earlier on the left, no row with itself.

    ``different`` names a column in which the two rows have to differ; null does not differ. Everything else as in
    `similarity_join`.
    """
    _refuse_unbuilt(metric=metric)
    return _join(
        (stream,),
        epsilon=epsilon,
        probability=probability,
        window=window,
        self_join=True,
        different=different,
        on_reject=on_reject,
        options=options,
        emit=emit,
        probabilities=probabilities,
        values=values,
        imputer=imputer,
    )


def impute(stream: Stream, imputer: Any) -> Stream:
    """The stream with what is missing in its rows filled by an imputer: a stream of samples.

    ``stream`` has the value ``Incomplete(...)``. Its frame gets the columns ``imputed`` (the samples),
    ``imputed_weights`` and ``filled``, a list of (attribute, rule): what was filled, and by what. Rows that lack every
    attribute, or hold an infinite one, have null there, and are rejects of what comes next. A Spark frame stays one.

    Ren et al. 2019, Definition 2.4.
    """
    from appulse.engines import imputing

    _check_stream(stream)
    model = imputing.incomplete_model(stream)
    if _is_spark(stream.frame):
        from appulse.engines.spark.imputing import filled_frame

        return imputing.filled_stream(stream, filled_frame(stream, imputing.bound(imputer, model)))
    from appulse.engines.local import as_table

    table = as_table(stream.frame)
    fill = imputing.bound(imputing.chosen_for(imputer, stream, table), model)
    return imputing.filled_stream(stream, imputing.filled_table(table, stream, fill))


def discover_dependencies(
    repository: Any,
    columns: Sequence[str] | None = None,
    confidence: float = 0.95,
    progress: Callable[[str], None] | None = None,
) -> list[DifferentialDependency]:
    """Rules by which the columns of a table tell each other, for a `DependencyImputer` over it.

    ``repository`` is any frame of complete rows, ``columns`` those to look at (default: all numbers). Every rule holds
    on at least the share ``confidence`` of its close pairs of rows. Of each attribute the determinants are those by
    which rows held out are filled best; they come together in several widths, and each alone. Conditional rules are
    not looked for. ``progress`` is told of the rules of each column as they are found.

    Song & Chen 2011; Ren et al. 2019, section 6.1.
    """
    from appulse.imputation.discovery import discovered

    return [found.rule for found in discovered(repository, columns, confidence, progress)]


def filter(stream: Stream, condition: str) -> Stream:  # noqa: A001 - the contract's name, used as ap.filter
    """The stream with those rows, and samples of rows, that satisfy a condition; nothing is computed yet.

    ``condition`` is a SQL boolean expression over the stream's columns and the dimensions of its value: comparisons,
    ``BETWEEN``, ``IN (...)``, ``IS [NOT] NULL``, ``AND``, ``OR``, ``NOT`` and arithmetic, such as ``"load > 20 AND room
    IN ('a', 'b')"``. It holds where it is true, not where it is unknown. An uncertain row keeps the samples that
    satisfy it, so its existence shrinks; a row left without any goes, and is no reject. A Gaussian or a ball whose
    dimensions a condition names is its deterministic points from then on. Raises `BadArgument` with the position of
    what cannot be read.

    Dallachiesa et al. 2015, section 3.2.
    """
    from appulse.queries.condition import parse

    if not isinstance(stream, Stream):
        raise BadArgument(f"filter() got a {type(stream).__name__}. Wrap the frame: ap.Stream(frame, ...).")
    parse(condition)
    return replace(stream, where=(*stream.where, condition))


def window_aggregate(
    stream: Stream,
    aggregates: Mapping[str, str | Sequence[str]],
    *,
    window: Window,
    distribution: bool = False,
    single_valued: bool = False,
    on_reject: str = "collect",
) -> Any:
    """Aggregates of a stream's values over its window, at every tick, over all possible worlds.

    ``aggregates`` maps dimensions of the value, by name, to one or several of ``"sum"``, ``"mean"``, ``"count"``,
    ``"min"`` and ``"max"``: ``{"load": ["sum", "max"]}``. In each world a count window, uncertain or not, holds the
    newest ``size`` existing rows of those it keeps, another window its existing rows.

    Columns: those of ``partition_by``, ``time``, and of each aggregate its mean over the worlds,
    ``<column>_<aggregate>``, and its standard deviation, ``..._std``. A mean, least or greatest value is over the
    worlds where a row exists, and ``..._exists`` is their probability. ``distribution=True`` adds
    ``..._distribution``, a list of (value, probability), exact up to 4096 values; beyond that neighbours are put
    together, and ``..._distribution_error`` is the root mean square of what values were moved by (0: exact). There is a
    row per tick and group, under a `TumblingWindow` one per block, at its end. ``single_valued=True`` gives the sum
    over the window's rows of their mean values, as if all of them existed. Bad rows are in `rejects`, or raise
    `BadInput` with ``on_reject="fail"``. Spark frames give a Spark frame (streaming if they are), others a
    `pyarrow.Table`.

    Dallachiesa et al. 2015, sections 3.3 and 7.3.
    """
    _check_stream(stream)
    settings: dict[str, Any] = {
        "window": window,
        "distribution": distribution,
        "single_valued": single_valued,
        "on_reject": on_reject,
    }
    if _is_spark(stream.frame):
        from appulse.engines.spark.aggregate import spark_aggregate

        return spark_aggregate(stream, aggregates, **settings)
    from appulse.engines.aggregate import resolve_aggregate, run_local
    from appulse.engines.local import as_table

    table = as_table(stream.frame)
    call = resolve_aggregate(stream, table, aggregates, **settings)
    result, rejected = run_local(call, table)
    _remember(result, rejected, call)
    return result


def match_queries(
    *streams: Any,
    queries: Any = None,
    probability: float | None = None,
    window: Window | None = None,
    on_reject: str = "collect",
) -> Any:
    """Which of many standing queries each row of a stream satisfies, or each choice of rows of several streams.

    ``queries`` (or the last positional argument) is a frame with the columns ``query``, of any type, and
    ``condition``, a SQL boolean expression over the stream's columns and the dimensions of its value, as in `filter`;
    perhaps ``change`` (``"add"`` or ``"remove"``, taken in order), ``until``, the time of the last row that a query is
    asked of, and ``select``, columns to bring along, divided by commas. A query given twice stands as given last. A
    row satisfies a query where its condition is true; an uncertain row does so with a probability, and is told if that
    is at least ``probability``, which only certain rows can do without.

    Over several streams conditions name columns as ``stream.column`` and end with a window of their own, such as
    ``WITHIN 30 SECONDS`` or ``WITHIN 100 ROWS``, or take ``window``: rows, one of each stream, satisfy a query if they
    are all in their windows when the newest of them comes.

    Columns: ``query, key, time, probability``, and ``values`` (JSON) with ``select``; a row per (query, row), in the
    order of rows. Over two streams ``query, left_key, left_time, right_key, right_time, probability``, over more of
    them keys and times by their names. Rows and queries that cannot be used are in `rejects`, those of queries under
    the stream name ``queries`` with the position and the reason, or raise `BadInput` with ``on_reject="fail"``;
    queries that no row can ever satisfy are told there, too. Spark frames give a Spark frame (streaming if they are),
    others a `pyarrow.Table`.

    Lim et al. 2006, sections 4 and 5.
    """
    given, frame = _with_queries(streams, queries, "match_queries")
    for stream in given:
        _check_stream(stream)
    if len({id(stream) for stream in given}) < len(given):
        raise BadArgument("The same Stream is given twice. Wrap the frame twice: two Streams are two streams.")
    settings: dict[str, Any] = {"probability": probability, "on_reject": on_reject}
    if any(_is_spark(stream.frame) for stream in given):
        if len(given) > 1:
            from appulse.engines.spark.window_queries import spark_window_queries

            return spark_window_queries(given, frame, window=window, **settings)
        from appulse.engines.spark.queries import spark_queries

        return spark_queries(given[0], frame, **settings)
    from appulse.engines.local import as_table
    from appulse.engines.queries import LocalQueries, resolve_queries
    from appulse.engines.window_queries import LocalWindowQueries, resolve_window_queries

    tables, asked = [as_table(stream.frame) for stream in given], as_table(frame)
    if len(given) > 1:
        several = LocalWindowQueries(resolve_window_queries(given, tables, asked.schema, window=window, **settings))
        several.change(asked)
        result = several.answers(tables)
        _remember(result, several.rejects(), several.call)
        return result
    if window is not None:
        raise BadArgument("window= is for queries over several streams: a row of one is judged by itself.")
    call = resolve_queries(given[0], tables[0], asked.schema, **settings)
    engine = LocalQueries(call)
    engine.change(asked)
    result = engine.push(tables[0])
    _remember(result, engine.rejects(), call)
    return result


def ask(rows: Stream, queries: Any, *, probability: float | None = None, on_reject: str = "collect") -> Any:
    """Which of the rows at hand satisfy new queries: `match_queries`, asked the other way round.

    Data and queries are equals: the answers are the same whoever came first.
    """
    return match_queries(rows, queries, probability=probability, on_reject=on_reject)


def sensor_join(
    readings: Any,
    *,
    sensor: str,
    time: str,
    value: str,
    resolution: float | None = None,
    within: float | None = None,
    window: Any,
    lateness: Any = None,
    partition_by: str | Sequence[str] | None = None,
    carry: Sequence[str] = (),
    expand: bool = False,
    similar: str = "value",
    over: Any = None,
    unit: str = "s",
    on_reject: str = "collect",
    options: SensorOptions | None = None,
) -> Any:
    """Which sensors read alike: each reading with the readings of other sensors of like value, however many they are.

    ``readings`` is a frame with a column of sensors (any type), one of times and one of values. Values are alike if
    equal, or with ``resolution`` in one bin ``floor(value / resolution)``, or with ``within`` at most that far apart. A
    reading meets readings that come before it in the order (time, sensor, number) and are in their window: ``window``
    is a `TimeWindow` (``per_stream`` names sensors), a mapping from sensors to durations (None: all others), or the
    name of a column with each sensor's window in seconds. ``unit`` is that of times that are plain numbers.
    ``similar`` has sensors compared by what they did in the time ``over`` up to a reading, which is ``value`` then:
    ``"summary"``, the mean and standard deviation, each in a bin of ``resolution``; ``"slope"``, a second, by least
    squares, by ``resolution`` or ``within``, else by its sign; ``"pattern"``, the signs of the steps, such as "+0-".

    Columns: those of ``partition_by``, then ``value, sensor, time`` of each reading that met others, the columns of
    ``carry``, and ``matches``, a list of (sensor, times, carried values): sensors by their newest reading, newest
    first, and so are the times of each. That is the Cartesian product of the sensors' readings in factorised form;
    with ``expand=True`` there is a row for each of its elements, whose ``matches`` are (sensor, time, carried values).
    Bad rows are in `rejects`, or raise `BadInput` with ``on_reject="fail"``. Spark frames give a Spark frame (streaming
    if they are), others a `pyarrow.Table`.

    Ali et al. 2007, Definition 1 and section 4.1.
    """
    options = options or SensorOptions()
    settings: dict[str, Any] = {
        "sensor": sensor,
        "time": time,
        "value": value,
        "resolution": resolution,
        "within": within,
        "window": window,
        "lateness": lateness,
        "partition_by": partition_by,
        "carry": carry,
        "expand": expand,
        "similar": similar,
        "over": over,
        "unit": unit,
        "on_reject": on_reject,
    }
    if _is_spark(readings):
        from appulse.engines.spark.sensors import spark_sensors

        return spark_sensors(readings, options=options, **settings)
    from appulse.engines.local import as_table
    from appulse.engines.readings import LocalReadings
    from appulse.engines.sensors import resolve_sensors

    table = as_table(readings)
    call = resolve_sensors(table.schema, sweep=options.sweep, **settings)
    engine = LocalReadings(call)
    result = pa.concat_tables([call.answer_schema.empty_table(), *engine.push(table), *engine.drain()])
    _remember(result, engine.rejects(), call)
    return result


def phenomena(
    readings: Any,
    *,
    sensor: str,
    time: str,
    value: str,
    resolution: float | None = None,
    strength: int,
    span: Any,
    min_sensors: int = 2,
    locations: Any = None,
    reach: float | None = None,
    horizon: Any = None,
    similar: str = "value",
    over: Any = None,
    emit: str = "events",
    lateness: Any = None,
    partition_by: str | Sequence[str] | None = None,
    unit: str = "s",
    on_reject: str = "collect",
) -> Any:
    """What is going on in a field of sensors: values that connected regions of sensors hold, and where these move.

    A sensor is active in a value (with ``resolution`` a bin, as in `sensor_join`) while it has produced it at least
    ``strength`` times within ``span`` of the tick at hand. A phenomenon is a value and a connected region of at least
    ``min_sensors`` active sensors: neighbours are at most ``reach`` apart, by ``locations``, a frame with the column of
    sensors and two of coordinates; without these all sensors are neighbours. Ticks are the times of readings.
    ``similar`` is as in `sensor_join`, ``over`` by default ``span``.

    Columns of events: those of ``partition_by``, ``phenomenon`` (a number, kept while the region changes), ``event``
    ("appears", "moves", "disappears", at the first tick at which that is so), ``time``, ``value`` (the lower end of the
    bin), ``sensors``, ``centroid``, ``hull`` (its corners), ``velocity`` (units of the locations a second, by least
    squares over the last 8 centroids), ``predicted`` (the centroid ``horizon``, by default ``span``, later) and
    ``error`` (its standard error); ``merged``, the phenomena that one which disappears goes on in, and ``split``, those
    that one which appears comes from. A region that joins others takes the number of that with which it shares most
    sensors, the older of two. ``emit="regions"`` gives all that stand at each tick that changed any of them. Bad rows,
    among them those of sensors without a location, are in `rejects`, or raise `BadInput` with ``on_reject="fail"``.
    Spark frames give a Spark frame (streaming if they are), others a `pyarrow.Table`; on Spark groups are spread, and
    each is one task's.

    Ali et al. 2005 and 2007.
    """
    from appulse.engines.local import as_table

    settings: dict[str, Any] = {
        "sensor": sensor,
        "time": time,
        "value": value,
        "resolution": resolution,
        "strength": strength,
        "span": span,
        "min_sensors": min_sensors,
        "locations": locations.toArrow()
        if _is_spark(locations)
        else None
        if locations is None
        else as_table(locations),
        "reach": reach,
        "horizon": horizon,
        "similar": similar,
        "over": over,
        "emit": emit,
        "lateness": lateness,
        "partition_by": partition_by,
        "unit": unit,
        "on_reject": on_reject,
    }
    if _is_spark(readings):
        from appulse.engines.spark.sensors import spark_phenomena

        return spark_phenomena(readings, **settings)
    from appulse.engines.phenomena import resolve_phenomena
    from appulse.engines.readings import LocalReadings

    table = as_table(readings)
    engine = LocalReadings(resolve_phenomena(table.schema, **settings))
    result = pa.concat_tables([engine.call.answer_schema.empty_table(), *engine.push(table), *engine.drain()])
    _remember(result, engine.rejects(), engine.call)
    return result


def rejects(result: Any) -> Any:
    """The rows of a call that could not be used: ``stream, key, time, reason, detail, values`` (JSON).

    ``result`` is what the call returned, itself. On a streaming result this raises: `start` writes rejects there.
    """
    if isinstance(result, pa.Table):
        return _kept(result)[1]
    if _is_spark(result):
        from appulse.engines.spark.engine import rejects_of

        return rejects_of(result)
    raise BadArgument(f"rejects() got a {type(result).__name__}. Pass the result of a call, itself.")


def explain(result: Any) -> str:
    """Print, and return, how a call is carried out: streams, window, how probabilities come about, index, tiles.

    ``result`` is what the call returned, itself. Of a join in process it also tells the index that each stream's rows
    had and what others would have cost, expected and actual pairs and answers, and how many pairs each bound decided.
    Warns where a stream is the output of a join, whose answers are not independent where they share a row.
    """
    from appulse.engines.explain import explained

    if isinstance(result, pa.Table):
        lines = explained(_kept(result)[2], None)
    elif _is_spark(result):
        from appulse.engines.spark.engine import result_of

        known = result_of(result)
        lines = explained(known.call, known.tiling.latest.tiles)
    else:
        raise BadArgument(f"explain() got a {type(result).__name__}. Pass the result of a call, itself.")
    text = "\n".join(lines)
    print(text)  # noqa: T201 - what it is for
    return text


def explain_pair(
    left_row: Any,
    right_row: Any,
    *,
    left: Stream,
    right: Stream | None = None,
    epsilon: float,
    probability: float,
    window: Window | None = None,
    imputer: Any = None,
    options: Options | None = None,
) -> str:
    """Print, and return, why two rows are an answer or none: each bound with its numbers, and which one decided.

    Rows are mappings of the streams' columns, or frames of one row; ``left`` and ``right`` describe the streams as for
    `SimilarityJoin` (``right`` is ``left`` if not given), everything else is as in `similarity_join`. A time window is
    checked against the rows' times; whether rows are in windows that go by rows depends on others, and is not told.
    """
    from appulse.engines.explain_pair import explained_pair

    for stream in (left, left if right is None else right):
        if not isinstance(stream, Stream):
            raise BadArgument(
                f"explain_pair() got a {type(stream).__name__}. Describe the stream: ap.Stream(None, ...)."
            )
    text = "\n".join(
        explained_pair(
            (left_row, right_row),
            (left, left if right is None else right),
            epsilon=epsilon,
            probability=probability,
            window=window,
            imputer=imputer,
            options=options or Options(),
        )
    )
    print(text)  # noqa: T201 - what it is for
    return text


def start(
    result: Any,
    sink: Any,
    rejects: Any = None,
    *,
    checkpoint: str,
    partitions: int | None = None,
    drain: bool = False,
    trigger: dict[str, Any] | None = None,
) -> Any:
    """Run a streaming result as one query that writes answers to ``sink`` and bad rows to ``rejects``.

    A sink is a ``("format", {options})`` pair or a function of (batch frame, batch id). Files and JDBC tables are
    written exactly once, functions at least once with the batch id. ``drain=True`` takes what is available now,
    answers what is held and closes the checkpoint.
    """
    from appulse.engines.spark.start import start as start_query

    return start_query(
        result, sink, rejects, checkpoint=checkpoint, partitions=partitions, drain=drain, trigger=trigger
    )


def listen(spark: Any, on_batch: Any = None, prometheus: int | str | None = None) -> Any:
    """Tell of every micro-batch of the streaming queries of a session, those of `start` and of ``writeStream``.

    ``on_batch`` is a function of a dict: ``query_id, name, batch_id, timestamp`` (ISO 8601, the start of the batch),
    ``input_rows``, ``batch_seconds``, and the figures that docs/semantics.md lists under Metrics, as numbers. It runs
    beside the query: what it raises is logged once and does no harm. ``prometheus`` is a port, open to this machine
    only, or text ``"host:port"``, where the figures are served for Prometheus, per query: sums since this call,
    and the state as of the latest batch; it needs ``appulse[prometheus]``.

    Returns an object with ``stop()``, which first tells what is still on its way, and ``address``, that of the
    figures; it is a context manager too. Raises `BadArgument` if the port is taken or the package is missing.
    """
    from appulse.engines.spark.metrics import listen as start_listening

    return start_listening(spark, on_batch, prometheus)


def session(cores: int | None = None, **settings: Any) -> Any:
    """A local SparkSession with what appulse needs, Java found or brought along."""
    from appulse.engines.spark.session import session as make_session

    return make_session(cores, **settings)


class SimilarityJoin:
    """The join by hand, without Spark: push rows as they come, take the answers they complete.

    Streams are keyword arguments by name, with ``frame=None``; a single one is joined with itself. Their order is
    that of the arguments.
    """

    def __init__(
        self,
        *,
        epsilon: float,
        probability: float,
        window: Window,
        different: str | None = None,
        emit: str = "matches",
        probabilities: str = "exact",
        values: bool = False,
        on_reject: str = "collect",
        options: Options | None = None,
        imputer: Any = None,
        **streams: Stream,
    ) -> None:
        for name, stream in streams.items():
            if not isinstance(stream, Stream):
                raise BadArgument(f"SimilarityJoin({name}=...) is no Stream, and no argument it knows.")
        if not streams:
            raise BadArgument("SimilarityJoin has no streams. Give it some: left=ap.Stream(None, ...), right=...")
        if len({id(stream) for stream in streams.values()}) < len(streams):
            raise BadArgument(_TWICE)
        if different is not None and len(streams) > 1:
            raise BadArgument(
                f"different={different!r} is for a stream joined with itself, and there are {len(streams)}."
            )
        named = [replace(stream, name=stream.name or name) for name, stream in streams.items()]
        stream_names(named, self_join=len(named) == 1)
        self._streams = dict(zip((str(stream.name) for stream in named), zip(streams, named, strict=True), strict=True))
        self._settings: dict[str, Any] = {
            "epsilon": epsilon,
            "probability": probability,
            "window": window,
            "different": different,
            "emit": emit,
            "probabilities": probabilities,
            "values": values,
            "on_reject": on_reject,
            "options": options or Options(),
            "imputer": imputer,
        }
        self._engine: LocalJoin | None = None
        self._held: dict[str, pa.Table] = {}
        self._drained = False

    def push(self, **frames: Any) -> pa.Table:
        """Take in rows of any of the streams; the pairs they complete."""
        from appulse.engines.local import LocalJoin, as_table

        known = {name for name, _ in self._streams.values()}
        for name in frames:
            if name not in known:
                raise BadArgument(f"push({name}=...): there is no such stream. There are: {', '.join(sorted(known))}.")
        tables = {
            own: as_table(frames[name]) for own, (name, _) in self._streams.items() if frames.get(name) is not None
        }
        if self._drained:
            raise BadArgument("This join was drained: its streams have ended. Make a new SimilarityJoin.")
        if self._engine is not None:
            return self._engine.push(tables)
        # Key and time types are settled once every stream has shown its columns; until then nothing can match, and
        # a silent stream makes no row late.
        for own, table in tables.items():
            self._held[own] = pa.concat_tables(
                [*([self._held[own]] if own in self._held else []), table], promote_options="permissive"
            )
        if len(self._held) < len(self._streams):
            shown = list(self._held) or list(self._streams)[:0]
            return self._resolve(shown).answer_schema.empty_table() if shown else pa.table({})
        self._engine, held = LocalJoin(self._resolve(list(self._streams)), standing=True), self._held
        self._held = {}
        return self._engine.push(held)

    def drain(self) -> pa.Table:
        """Complete what is held and end the streams; the pairs (or changes) that this completes."""
        answers = self.push() if self._engine is None else self._engine.drain()
        self._drained = True
        return answers

    def current(self) -> pa.Table:
        """The pairs that stand: both rows in their windows at the newest tick answered so far."""
        if self._engine is None:
            raise BadArgument("Nothing stands yet: push every stream first, if only an empty frame.")
        return self._engine.current()

    def rejects(self) -> pa.Table:
        """Every row that could not be used so far."""
        if self._engine is None:
            raise BadArgument(
                "Nothing has been judged yet: rejects are known once every stream has been pushed, if only empty."
            )
        return self._engine.rejects()

    def _resolve(self, shown: list[str]) -> JoinCall:
        """The call over the streams that have shown their columns."""
        streams = [self._streams[own][1] for own in shown]
        settings = self._settings
        if len(shown) < len(self._streams):
            window = settings["window"]
            if isinstance(window, TimeWindow):  # its per_stream may name a stream not shown yet
                settings = settings | {"window": TimeWindow(window.length)}
        return resolve(streams, [self._held[own].schema for own in shown], self_join=len(streams) == 1, **settings)


class QueryMatch:
    """Standing queries by hand, without Spark: they come and go, rows are pushed, answers come out at once.

    ``stream`` has ``frame=None``. Changes count from the next push on, and see all its rows.
    """

    def __init__(self, stream: Stream, *, probability: float | None = None, on_reject: str = "collect") -> None:
        if not isinstance(stream, Stream):
            raise BadArgument(f"QueryMatch got a {type(stream).__name__}. Describe the stream: ap.Stream(None, ...).")
        self._stream, self._probability, self._on_reject = stream, probability, on_reject
        self._engine: LocalQueries | None = None
        self._waiting: list[pa.Table] = []

    def change(self, queries: Any) -> None:
        """Add and remove queries: a frame as `match_queries` takes it."""
        from appulse.engines.local import as_table
        from appulse.engines.queries import check_queries

        table = as_table(queries)
        check_queries(table.schema)
        if self._engine is None:
            self._waiting.append(table)
        else:
            self._engine.change(table)

    def expire(self, before: Any) -> int:
        """Forget queries whose ``until`` lies before a time, given as the stream has them; how many there were.

        They answer no later row anyway: this is for the memory they take.
        """
        return self._known.expire(before)

    def push(self, frame: Any) -> pa.Table:
        """Take in rows; the queries that they satisfy."""
        from appulse.engines.local import as_table
        from appulse.engines.queries import LocalQueries, resolve_queries

        table = as_table(frame)
        if self._engine is None:
            if not self._waiting:
                raise BadArgument("There are no queries yet. Add some by change(), if only an empty frame of them.")
            settings: dict[str, Any] = {"probability": self._probability, "on_reject": self._on_reject}
            engine = LocalQueries(resolve_queries(self._stream, table, self._waiting[0].schema, **settings))
            if not len(table) and any(pa.types.is_null(kind) for kind in table.schema.types):
                return engine.push(table)  # frames of some libraries have no types before they have rows
            for waiting in self._waiting:
                engine.change(waiting)
            self._engine, self._waiting = engine, []
        return self._engine.push(table)

    def explain_query(self, query: Any) -> dict[str, Any]:
        """What is known of a standing query: its condition, boxes, whether these say it all, and its matches so far."""
        return self._known.explain(query)

    def busiest(self, n: int = 10) -> pa.Table:
        """The queries with the most matches so far: ``query, condition, matches``."""
        return self._known.busiest(n)

    def rejects(self) -> pa.Table:
        """Every row and query that could not be used so far."""
        return self._known.rejects()

    @property
    def _known(self) -> LocalQueries:
        if self._engine is None:
            raise BadArgument("Nothing has been judged yet: push rows first, if only an empty frame.")
        return self._engine


class _OverReadings:
    """An operator over readings by hand, without Spark: push them as they come, take the answers they complete."""

    _call: Any = None

    def __init__(self, **settings: Any) -> None:
        signature(self._call).bind(None, **settings)  # what is missing, or not known, is told here
        self._settings = settings
        self._engine: LocalReadings | None = None

    def _resolve(self, schema: pa.Schema) -> ReadingsCall:
        raise NotImplementedError

    def push(self, frame: Any) -> pa.Table:
        """Take in readings; the answers of the ticks that this completes."""
        from appulse.engines.local import as_table
        from appulse.engines.readings import LocalReadings

        table = as_table(frame)
        if self._engine is None:
            self._engine = LocalReadings(self._resolve(table.schema))
        return pa.concat_tables([self._known.call.answer_schema.empty_table(), *self._known.push(table)])

    def drain(self) -> pa.Table:
        """The readings have ended: the answers of what was held."""
        return pa.concat_tables([self._known.call.answer_schema.empty_table(), *self._known.drain()])

    def rejects(self) -> pa.Table:
        """Every row that could not be used so far."""
        return self._known.rejects()

    @property
    def _known(self) -> LocalReadings:
        if self._engine is None:
            raise BadArgument("No readings have been pushed yet: push some first, if only an empty frame.")
        return self._engine


class SensorJoin(_OverReadings):
    """The sensor join by hand, without Spark: push readings as they come, take the answers they complete.

    Arguments as in `sensor_join`, without the frame. A reading waits until its tick is complete: until a later one
    has come, by more than ``lateness``.
    """

    _call = staticmethod(sensor_join)

    def _resolve(self, schema: pa.Schema) -> ReadingsCall:
        from appulse.engines.sensors import resolve_sensors

        options = self._settings.get("options") or SensorOptions()
        settings = {name: value for name, value in self._settings.items() if name != "options"}
        return resolve_sensors(schema, sweep=options.sweep, **settings)


class Phenomena(_OverReadings):
    """Phenomena by hand, without Spark: push readings as they come, take the events they complete.

    Arguments as in `phenomena`, without the frame. A reading waits until its tick is complete: until a later one has
    come, by more than ``lateness``.
    """

    _call = staticmethod(phenomena)

    def _resolve(self, schema: pa.Schema) -> ReadingsCall:
        from appulse.engines.local import as_table
        from appulse.engines.phenomena import resolve_phenomena

        locations = self._settings.get("locations")
        known = None if locations is None else as_table(locations)
        return resolve_phenomena(schema, **(self._settings | {"locations": known}))


def _with_queries(given: tuple[Any, ...], queries: Any, name: str) -> tuple[tuple[Any, ...], Any]:
    """The streams and the queries, which may come last among them."""
    if queries is None and given and not isinstance(given[-1], Stream):
        given, queries = given[:-1], given[-1]
    if queries is None:
        raise BadArgument(f"{name}() got no queries. Give a frame with columns query and condition.")
    if not given:
        raise BadArgument(f"{name}() got no stream. Wrap the frame: ap.Stream(frame, ...).")
    return given, queries


def _join(streams: tuple[Stream, ...], *, options: Options | None, **settings: Any) -> Any:
    for stream in streams:
        _check_stream(stream)
    if len({id(stream) for stream in streams}) < len(streams):
        raise BadArgument(_TWICE)
    stream_names(streams, self_join=settings["self_join"])
    options = options or Options()
    spark = [_is_spark(stream.frame) for stream in streams]
    if all(spark):
        from appulse.engines.spark.engine import spark_join

        return spark_join(streams, options=options, **settings)
    if any(spark):
        raise BadArgument(
            "The call mixes Spark frames with others. Convert them: spark.createDataFrame(...) or .toArrow()."
        )
    from appulse.engines.local import LocalJoin, as_table

    tables = [as_table(stream.frame) for stream in streams]
    if settings["imputer"] is not None:
        from appulse.engines.imputing import all_chosen

        settings["imputer"] = all_chosen(settings["imputer"], streams, tables, self_join=settings["self_join"])
    call = resolve(streams, [table.schema for table in tables], options=options, **settings)
    if call.imputes:
        from appulse.engines.lazy import lazily

        call = lazily(call, tables)
    engine = LocalJoin(call)
    parts = [engine.push(dict(zip(call.plan.streams, tables, strict=True))), engine.drain()]
    result = pa.concat_tables(parts)
    _remember(result, engine.rejects(), engine.observed())
    return result


def _check_stream(stream: Any) -> None:
    if not isinstance(stream, Stream):
        raise BadArgument(f"A stream of the call is a {type(stream).__name__}. Wrap the frame: ap.Stream(frame, ...).")
    if stream.frame is None:
        raise BadArgument("A stream of the call has no frame. Streams without one are for ap.SimilarityJoin.")


def _remember(result: pa.Table, rejected: pa.Table, call: AnyCall) -> None:
    """Keep what stands behind an in-process result for as long as the result lives."""
    number = id(result)
    _RESULTS[number] = (weakref.ref(result, lambda _: _RESULTS.pop(number, None)), rejected, call)


def _kept(result: pa.Table) -> tuple[Any, pa.Table, AnyCall]:
    kept = _RESULTS.get(id(result))
    if kept is None or kept[0]() is not result:
        raise BadArgument("This table is not what a call of appulse returned. Pass the result itself, not a slice.")
    return kept


def _is_spark(frame: Any) -> bool:
    """Whether this is a Spark DataFrame, classic or Connect, without importing Spark."""
    return any(
        kind.__module__.startswith("pyspark.sql") and kind.__name__ == "DataFrame" for kind in type(frame).__mro__
    )


def _refuse_unbuilt(*, metric: str) -> None:
    if metric != "euclidean":
        raise NotBuilt(
            f"metric={metric!r} is planned and not built yet; today metric='euclidean' is. See docs/index.md."
        )
