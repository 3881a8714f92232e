"""Similarity joins: by call, by hand, and one pair explained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import pyarrow as pa

from appulse.api.results import Described, Framed, Pushes, is_spark, remember
from appulse.arguments import Name, OnReject, Probability, checked, instance
from appulse.engines.call import Emit, Epsilon, JoinCall, Probabilities, resolve
from appulse.engines.imputing import Imputers
from appulse.engines.options import Options, options_of
from appulse.engines.pushes import FirstTypes, schema_of
from appulse.errors import BadArgument, NotBuilt
from appulse.model.stream import Stream, stream_names
from appulse.windows.definitions import GivenWindow, TimeWindow, as_window

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.engines.local_join import LocalJoin

_Named: TypeAlias = Annotated[Stream, instance(Stream, "a Stream under its name, or an argument that there is")]
_TWICE = "The same Stream is given twice among several. Pair it with itself by self_join, apart."


@checked
def similarity_join(
    left: Framed,
    right: Framed,
    *more: Framed,
    epsilon: Epsilon,
    probability: Probability,
    window: GivenWindow,
    imputer: Imputers | None = None,
    metric: str = "euclidean",
    emit: Emit = "matches",
    probabilities: Probabilities = "exact",
    values: bool = False,
    on_reject: OnReject = "collect",
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
    raise `BadInput` with ``on_reject="fail"``. ``options`` are for speed and the size of the output: see `Options`.

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


@checked
def self_join(
    stream: Framed,
    *,
    epsilon: Epsilon,
    probability: Probability,
    window: GivenWindow,
    different: Name | None = None,
    imputer: Imputers | None = None,
    metric: str = "euclidean",
    emit: Emit = "matches",
    probabilities: Probabilities = "exact",
    values: bool = False,
    on_reject: OnReject = "collect",
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


@checked
class SimilarityJoin:
    """The join by hand, without Spark: push rows as they come, take the answers they complete.

    Streams are keyword arguments by name, with ``frame=None``; a single one is joined with itself. Their order is
    that of the arguments.
    """

    def __init__(
        self,
        *,
        epsilon: Epsilon,
        probability: Probability,
        window: GivenWindow,
        different: Name | None = None,
        emit: Emit = "matches",
        probabilities: Probabilities = "exact",
        values: bool = False,
        on_reject: OnReject = "collect",
        options: Options | None = None,
        imputer: Imputers | None = None,
        **streams: _Named,
    ) -> None:
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
            "options": options_of(options, "similarity_join"),
            "imputer": imputer,
        }
        self._pushes = Pushes()
        self._engine: LocalJoin | None = None
        self._held: list[dict[str, pa.Table]] = []
        self._types = {
            own: FirstTypes(f"stream {own!r}", [*self._identity(own), *([different] if different is not None else [])])
            for own in self._streams
        }
        self._drained = False

    def push(self, **frames: Any) -> pa.Table:
        """Take in rows of any of the streams; the pairs they complete.

        A push whose keys, times or partitions do not fit the types of the first one is a `BadArgument`. What raises
        has changed nothing.
        """
        from appulse.engines.local import as_table
        from appulse.engines.local_join import check_rows

        known = {name for name, _ in self._streams.values()}
        for name in frames:
            if name not in known:
                raise BadArgument(f"push({name}=...): there is no such stream. There are: {', '.join(sorted(known))}.")
        tables = {
            own: as_table(frames[name]) for own, (name, _) in self._streams.items() if frames.get(name) is not None
        }
        if self._drained:
            raise BadArgument("This join was drained: its streams have ended. Make a new SimilarityJoin.")
        types = self._types | {own: self._types[own].and_those_of(table.schema) for own, table in tables.items()}
        if self._engine is not None:
            with self._pushes:
                answers = self._engine.push({own: types[own].fit(table) for own, table in tables.items()})
            self._types = types
            return answers
        # Key and time types are settled once every stream has shown its columns, and two of them types; until then
        # nothing can match.
        held = [*self._held, tables] if tables else self._held
        shown = self._shown(held)
        if len(shown) == len(self._streams) and self._may_match(shown, types):
            with self._pushes:
                return self._start(held, types)
        if not shown:
            return pa.table({})
        call = self._resolve(held)
        check_rows(call, {own: types[own].fit(table) for own, table in tables.items()})
        self._held, self._types = held, types
        return call.answer_schema.empty_table()

    def drain(self) -> pa.Table:
        """Complete what is held and end the streams; the pairs (or changes) that this completes."""
        with self._pushes:
            return self._ended()

    def _ended(self) -> pa.Table:
        parts, shown = [], self._shown(self._held)
        if self._engine is None and self._may_match(shown, self._types):
            parts.append(self._start(self._held, self._types))
        self._drained = True
        if self._engine is not None:
            return pa.concat_tables([*parts, self._engine.drain()])
        return self._resolve(self._held).answer_schema.empty_table() if shown else pa.table({})

    def current(self) -> pa.Table:
        """The pairs that stand: what all changes so far add up to, whether or not changes are asked for."""
        self._pushes.check()
        if self._engine is not None:
            return self._engine.current()
        shown = self._shown(self._held)
        if not shown or (len(shown) < len(self._streams) and not self._drained):
            raise BadArgument("Nothing stands yet: push every stream first, if only an empty frame.")
        return self._resolve(self._held, emit="matches").answer_schema.empty_table()

    def rejects(self) -> pa.Table:
        """Every row that could not be used so far."""
        from appulse.engines.local_join import rejected

        if self._engine is not None:
            return self._engine.rejects()
        if not self._held:
            raise BadArgument("Nothing has been judged yet: push some rows first, if only an empty frame.")
        call = self._resolve(self._held)
        found = (rejected(call, {own: self._types[own].fit(t) for own, t in push.items()}) for push in self._held)
        return pa.concat_tables([call.reject_schema.empty_table(), *found])

    def _shown(self, held: Sequence[dict[str, pa.Table]]) -> list[str]:
        """The streams that have shown their columns, in the order of the call."""
        return [own for own in self._streams if any(own in push for push in held)]

    def _may_match(self, shown: Sequence[str], types: dict[str, FirstTypes]) -> bool:
        """Whether there are types, and so perhaps rows, of enough streams for a pair."""
        typed = [own for own in shown if types[own].knows(self._identity(own))]
        return len(typed) >= min(2, len(self._streams))

    def _identity(self, own: str) -> tuple[str, ...]:
        """The columns of a stream that have to have types."""
        stream = self._streams[own][1]
        return stream.key, stream.time, *stream.partitions

    def _start(self, held: Sequence[dict[str, pa.Table]], types: dict[str, FirstTypes]) -> pa.Table:
        """Join what has been held, push by push."""
        from appulse.engines.local_join import LocalJoin

        call = self._resolve(held)
        # Streams that have no types so far will have those of the others.
        columns = zip(*(self._identity(own) for own in self._streams), strict=True)
        groups = [
            next(kind for own, name in zip(self._streams, names, strict=True) if (kind := types[own].of(name)))
            for names in list(columns)[2:]
        ]
        common = (call.key_type, call.time_type, *groups)
        types = {
            own: known.and_rather(dict(zip(self._identity(own), common, strict=True))) for own, known in types.items()
        }
        engine = LocalJoin(call, standing=True)
        found = [engine.push({own: types[own].fit(table) for own, table in push.items()}) for push in held]
        self._engine, self._held, self._types = engine, [], types
        return pa.concat_tables(found)

    def _resolve(self, held: Sequence[dict[str, pa.Table]], **others: Any) -> JoinCall:
        """The call over the streams that have shown their columns."""
        shown = self._shown(held)
        settings = self._settings | others
        if len(shown) < len(self._streams):
            window, imputer = settings["window"], settings["imputer"]
            if isinstance(window, TimeWindow) and window.per_stream:  # may name a stream not shown yet
                own = {name: length for name, length in window.per_stream.items() if name in shown}
                settings["window"] = TimeWindow(window.length, per_stream=own)
            if isinstance(imputer, Mapping):
                settings["imputer"] = {name: given for name, given in imputer.items() if name in shown}
        schemas = [schema_of([push[own] for push in held if own in push]) for own in shown]
        return resolve([self._streams[own][1] for own in shown], schemas, self_join=len(shown) == 1, **settings)


@checked
def explain_pair(
    left_row: Any,
    right_row: Any,
    *,
    left: Described,
    right: Described | None = None,
    epsilon: Epsilon,
    probability: Probability,
    window: GivenWindow | None = None,
    imputer: Imputers | None = None,
    options: Options | None = None,
) -> str:
    """Print, and return, why two rows are an answer or none: each bound with its numbers, and which one decided.

    Rows are mappings of the streams' columns, or frames of one row; ``left`` and ``right`` describe the streams as for
    `SimilarityJoin` (``right`` is ``left`` if not given), everything else is as in `similarity_join`. A time window is
    checked against the rows' times; whether rows are in windows that go by rows depends on others, and is not told.
    """
    from appulse.engines.explain_pair import explained_pair

    text = "\n".join(
        explained_pair(
            (left_row, right_row),
            (left, left if right is None else right),
            epsilon=epsilon,
            probability=probability,
            window=None if window is None else as_window(window),
            imputer=imputer,
            options=options_of(options, "explain_pair"),
        )
    )
    print(text)  # noqa: T201 - what it is for
    return text


def _join(streams: tuple[Stream, ...], *, options: Options | None, **settings: Any) -> Any:
    if len({id(stream) for stream in streams}) < len(streams):
        raise BadArgument(_TWICE)
    stream_names(streams, self_join=settings["self_join"])
    options = options_of(options, "self_join" if settings["self_join"] else "similarity_join")
    spark = [is_spark(stream.frame) for stream in streams]
    if all(spark):
        from appulse.engines.spark.join import spark_join

        return spark_join(streams, options=options, **settings)
    if any(spark):
        raise BadArgument(
            "The call mixes Spark frames with others. Convert them: spark.createDataFrame(...) or .toArrow()."
        )
    from appulse.engines.local import as_table
    from appulse.engines.local_join import LocalJoin

    tables = [as_table(stream.frame) for stream in streams]
    if settings["imputer"] is not None:
        from appulse.engines.imputing import all_chosen

        settings["imputer"] = all_chosen(settings["imputer"], streams, tables, self_join=settings["self_join"])
    call = resolve(streams, [table.schema for table in tables], options=options, **settings)
    engine = LocalJoin(call)
    result = engine.answers(dict(zip(call.plan.streams, tables, strict=True)))
    remember(result, engine.rejects(), engine.observed())
    return result


def _refuse_unbuilt(*, metric: str) -> None:
    if metric != "euclidean":
        raise NotBuilt(
            f"metric={metric!r} is planned and not built yet; today metric='euclidean' is. See docs/index.md."
        )
