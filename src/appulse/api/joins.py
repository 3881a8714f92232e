"""Similarity joins: by call, by hand, and one pair explained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from appulse.api.by_hand import Bare, ByHand, fitted, refuse_twice
from appulse.api.calls import answers_of, settings_of
from appulse.api.results import Described, Framed, is_spark
from appulse.api.survivors import over_survivors
from appulse.arguments import Name, OnReject, Positive, Probability, checked
from appulse.engines.encounters.joining import moves, resolve_moving
from appulse.engines.filling import around_of, with_fills
from appulse.engines.imputing import Imputers
from appulse.engines.join.call import Emit, How, JoinCall, JoinSettings, Probabilities, check_how, resolve
from appulse.engines.options import Options, options_of
from appulse.engines.thresholds import Epsilon, Metric, Scale, warn_swapped_dimensions
from appulse.errors import BadArgument, NotBuilt
from appulse.model.existence import Bursts
from appulse.model.stream import Result, Stream, stream_names
from appulse.windows.definitions import GivenWindow, TimeWindow, UncertainCountWindow, as_window

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.api.by_hand import Frames, Types
    from appulse.engines.encounters.bucket import LocalEncounters
    from appulse.engines.join.local import LocalJoin


@checked
def similarity_join(
    left: Framed[Result],
    right: Framed[Result],
    *more: Framed[Result],
    epsilon: Epsilon,
    probability: Probability,
    window: GivenWindow,
    imputer: Imputers | None = None,
    metric: Metric = "euclidean",
    scale: Scale | None = None,
    how: How = "inner",
    likelihood: bool = False,
    density: Positive | None = None,
    emit: Emit = "matches",
    probabilities: Probabilities = "exact",
    values: bool = False,
    on_reject: OnReject = "collect",
    options: Options | None = None,
) -> Result:
    """Pairs of rows of different streams within ``epsilon`` with probability at least ``probability``.

    Both rows are in their windows at some tick, and each pair is reported once. The call is the same for tables and for
    batch and streaming frames of Spark. Passing one `Stream` twice joins it with itself, as `self_join` does.

    Arguments:
    * ``left, right, *more``: 2 to 16 streams. Those with ``motion``, under a `TimeWindow`, are compared at one instant:
      the earlier row of a pair is moved to the time of the later one.
    * ``epsilon``: the greatest distance, inclusive, in the unit of the coordinates, of a `Position` in metres. With an
      altitude it may be ``{"horizontal": 9260, "vertical": 305}``, a cylinder; of other values ``{("x", "y"): 50.0,
      "z": 10.0}``, a distance for each group of dimensions. All must hold.
    * ``probability``: the threshold for the probability of being within epsilon, in (0, 1]. It includes existence.
    * ``window``: a window, or a duration: text, a timedelta, or seconds.
    * ``imputer``: fills `Incomplete` streams: one for all, a mapping by stream name, or ``"auto"`` (`AutoImputer`). The
      result is the same as with `impute` before the join.
    * ``metric``: ``"euclidean"``, ``"manhattan"`` (sums of absolute differences), ``"chebyshev"`` (the greatest of
      them), or for `Exact` rows ``"cosine"``: 1 minus the cosine of the angle between them.
    * ``scale``: ``{dimension: unit}`` divides dimensions first. Distances, epsilon and margins are then in these units.
    * ``how``, for two streams: ``"left"``, ``"right"`` and ``"full"`` also report each row without a partner, of that
      stream or of both, with nulls on the other side, once no partner can arrive. ``"left_anti"`` reports only such
      rows of the left stream: ``left_stream, left_key, left_time``.
    * ``likelihood``: for normal errors, adds ``log_likelihood_ratio``: the logarithm of the density of the difference
      of the two rows over ``density``, the expected number of unrelated right rows per unit of length, area or volume
      (1 unless given). It is null where errors have no density, as between two exact rows.
    * ``emit``: ``"changes"`` also reports pairs that end.
    * ``probabilities``: ``"bounds"`` may stop early, with the same pairs. ``probability`` is then a lower bound, at
      least the threshold, and ``probability_upper`` an upper bound.
    * ``values``: adds the matching pairs of samples. Gaussians are then represented by points.
    * ``on_reject``: ``"collect"`` keeps bad rows for `rejects`, ``"fail"`` raises `BadInput` at the first.
    * ``options``: speed and output size; see `Options`.

    Returns a Spark frame for Spark frames (streaming if they are), else a `pyarrow.Table`, with the columns
    ``left_stream, left_key, left_time, right_stream, right_key, right_time, distance, probability``, where ``distance``
    is between the two mean positions, and the columns that streams ``carry``. ``emit="changes"`` adds ``change`` (+1
    when a pair enters, -1 when it leaves) and ``time``: for -1 under time windows the last time at which the pair
    holds, else the tick at which a row left its window. ``values=True`` adds ``pairs``: ``left`` and ``right`` with
    their coordinates, and ``weight``. Weights sum to the probability, so the result is the frame of a stream with
    ``Samples("pairs")``. ``imputer`` adds ``left_filled, right_filled``: lists of (attribute, rule), with
    ``"marginal"`` where no rule matched.

    Raises `BadArgument` for a wrong argument, `BadInput` with ``on_reject="fail"``, `OutputLimit` beyond
    ``Options(max_output=)``, and `NotBuilt` for combinations that are not built yet.

    >>> ships = pa.table({"ship": ["Anna", "Bella"], "t": [0, 20], "x": [0.0, 900.0], "y": [0.0, 50.0]})
    >>> echoes = pa.table({"echo": [1, 2], "t": [5, 24], "x": [30.0, 970.0], "y": [10.0, 30.0]})
    >>> left = ap.Stream(ships, key="ship", time="t", value=ap.Gaussian("x", "y", sigma=10))
    >>> right = ap.Stream(echoes, key="echo", time="t", value=ap.Gaussian("x", "y", sigma=40))
    >>> pairs = ap.similarity_join(left, right, epsilon=100, probability=0.8, window="30 seconds")
    >>> [(p["left_key"], p["right_key"], round(p["probability"], 3)) for p in pairs.to_pylist()]
    [('Anna', '1', 0.899)]

    A distance for each group of dimensions:

    >>> one = pa.table({"id": [1], "at": [0], "x": [0.0], "y": [0.0], "z": [0.0]})
    >>> two = pa.table({"id": [2], "at": [0], "x": [30.0], "y": [30.0], "z": [8.0]})
    >>> left, right = (ap.Stream(t, key="id", time="at", value=ap.Exact("x", "y", "z")) for t in (one, two))
    >>> ap.similarity_join(left, right, epsilon={("x", "y"): 50.0, "z": 10.0}, probability=1, window=0).num_rows
    1
    >>> ap.similarity_join(left, right, epsilon=50, metric="manhattan", probability=1, window=0).num_rows
    0
    """
    settings = settings_of("similarity_join", locals())
    if right is left:
        if more:
            refuse_twice((left, right, *more))
        if how != "inner":
            raise BadArgument(f"how={how!r} is of two streams, and this is one twice. Leave it out.")
        del settings["how"], settings["likelihood"], settings["density"]
        return self_join(left, **settings)
    return _join((left, right, *more), settings)


@checked
def self_join(
    stream: Framed[Result],
    *,
    epsilon: Epsilon,
    probability: Probability,
    window: GivenWindow,
    different: Name | None = None,
    imputer: Imputers | None = None,
    metric: Metric = "euclidean",
    scale: Scale | None = None,
    emit: Emit = "matches",
    probabilities: Probabilities = "exact",
    values: bool = False,
    on_reject: OnReject = "collect",
    options: Options | None = None,
) -> Result:
    """Unordered pairs of different rows of one stream, the earlier row on the left.

    Arguments:
    * ``stream``: a stream. With ``motion``, rows of one key are never a pair.
    * ``different``: a column in which the two rows must differ; null does not differ.
    * ``epsilon, probability, window, imputer, metric, scale, emit, probabilities, values, on_reject, options``: as in
      `similarity_join`.

    Returns the columns of `similarity_join`, and raises the same errors.

    >>> rows = pa.table({"id": [1, 2, 3], "t": [0, 1, 2], "x": [0.0, 5.0, 0.4]})
    >>> stream = ap.Stream(rows, key="id", time="t", value=ap.Gaussian("x", sigma=0.2))
    >>> pairs = ap.self_join(stream, epsilon=1, probability=0.9, window="10 seconds")
    >>> [(p["left_key"], p["right_key"], round(p["probability"], 3)) for p in pairs.to_pylist()]
    [(1, 3, 0.983)]
    """
    return _join((stream,), settings_of("self_join", locals()))


@checked
class SimilarityJoin(ByHand["LocalJoin"]):
    """The join without Spark, push by push: push rows as they arrive, and get the pairs that they complete.

    Streams have ``frame=None``, and names: ``left, right, s3, ...`` by default. A single stream is joined with itself.
    Other arguments are as in `similarity_join`.

    >>> left, right = (ap.Stream(None, key="id", time="t", value="x", name=name) for name in ("radio", "radar"))
    >>> join = ap.SimilarityJoin(left, right, epsilon=1, probability=1, window="10 seconds")
    >>> ship = pa.table({"id": [1], "t": [0], "x": [0.0]})
    >>> join.push(radio=ship, radar=pa.table({"id": [7], "t": [9], "x": [5.0]})).num_rows
    0
    >>> join.push(radar=pa.table({"id": [8], "t": [10], "x": [0.5]})).select(["left_key", "right_key"]).to_pylist()
    [{'left_key': 1, 'right_key': 8}]
    >>> join.drain().num_rows
    0
    """

    _pairs = True

    def __init__(
        self,
        *streams: Bare,
        epsilon: Epsilon,
        probability: Probability,
        window: GivenWindow,
        different: Name | None = None,
        how: How = "inner",
        likelihood: bool = False,
        density: Positive | None = None,
        emit: Emit = "matches",
        probabilities: Probabilities = "exact",
        values: bool = False,
        on_reject: OnReject = "collect",
        options: Options | None = None,
        imputer: Imputers | None = None,
        metric: Metric = "euclidean",
        scale: Scale | None = None,
    ) -> None:
        self._settings = settings_of("similarity_join", locals())
        super().__init__(streams, "left")
        self._moves = moves(list(self._streams.values()))
        changes = any(stream.change is not None for stream in streams)
        self._withdraws_before = changes and (self._moves or _withdraws_before(streams, self._settings))
        self._fills = around_of(imputer, list(self._streams), list(self._streams.values()))
        check_how(JoinSettings(**self._settings), list(self._streams))
        if different is not None and len(streams) > 1:
            raise BadArgument(
                f"different={different!r} is for a stream joined with itself, and there are {len(streams)}."
            )

    def current(self) -> pa.Table:
        """The current pairs: the sum of all changes so far, with or without ``emit="changes"``."""
        self._turn.check()
        if self._moves:
            raise NotBuilt("current() is not built for streams with motion=. See docs/index.md.")
        if self._engine is not None:
            return self._engine.current()
        shown = self._shown(self._held)
        if not shown or (len(shown) < len(self._streams) and not self._drained):
            raise BadArgument("Nothing stands yet: push every stream first (an empty frame is enough).")
        return self._resolve(self._held, emit="matches").answer_schema.empty_table()

    def _fixed(self, name: str) -> tuple[str, ...]:
        different = self._settings["different"]
        return *super()._fixed(name), *(() if different is None else (different,))

    def _may_start(self, held: Sequence[Frames], types: Types, *, ended: bool) -> bool:
        """Whether there are types, and so perhaps rows, of enough streams for a pair.

        Key and time types are settled once every stream has shown its columns; until then nothing can match.
        """
        if self._moves:
            return super()._may_start(held, types, ended=ended)
        shown = self._shown(held)
        typed = [name for name in shown if types[name].knows(self._identity(name))]
        inner = self._settings["how"] == "inner"
        if ended and not inner and typed:
            self._check_shown(held)
        least = min(2, len(self._streams)) if inner else 1
        known = ended or (len(shown) == len(self._streams) and self._has_values(held))
        return known and len(typed) >= least

    def _checked(self, held: Sequence[Frames], types: Types) -> pa.Table:
        if self._moves or self._withdraws_before or self._fills:
            return super()._checked(held, types)
        from appulse.engines.bucket import fail_if_asked
        from appulse.engines.join.local import rejected

        call = self._resolve(held)
        fail_if_asked(call, [rejected(call, fitted(held[-1], types))])
        return call.answer_schema.empty_table()

    def _early_rejects(self) -> pa.Table:
        if self._moves or self._withdraws_before or self._fills:
            return super()._early_rejects()
        from appulse.engines.join.local import rejected

        call = self._resolve(self._held)
        found = (rejected(call, fitted(push, self._types)) for push in self._held)
        return pa.concat_tables([call.reject_schema.empty_table(), *found])

    def _make(self, held: Sequence[Frames], types: Types) -> tuple[LocalJoin, Types]:
        if self._moves:
            return self._made_moving(held), types
        from appulse.engines.join.local import LocalJoin

        call = self._resolve(held)
        # Streams that have no types so far will have those of the others.
        columns = zip(*(self._identity(name) for name in self._streams), strict=True)
        groups = [
            next(kind for name, column in zip(self._streams, names, strict=True) if (kind := types[name].of(column)))
            for names in list(columns)[2:]
        ]
        common = (call.key_type, call.time_type, *groups)
        settled = {
            name: known.and_rather(dict(zip(self._identity(name), common, strict=True)))
            for name, known in types.items()
        }
        return LocalJoin(call, standing=True), settled

    def _made_moving(self, held: Sequence[Frames]) -> LocalJoin:
        from appulse.engines.encounters.bucket import LocalEncounters

        streams = self._left()
        schemas = [self._schema(name, held) for name in self._streams]
        call = resolve_moving(streams, schemas, JoinSettings(**self._settings))
        return cast("LocalJoin", LocalEncounters(call))  # which pushes and drains as that does

    def _resolve(self, held: Sequence[Frames], **others: Any) -> JoinCall:
        """The call over the streams that have shown their columns."""
        shown = self._shown(held)
        settings = self._settings | others
        settings["imputer"] = with_fills(settings["imputer"], list(self._streams), self._fills)
        if len(shown) < len(self._streams):
            window, imputer = settings["window"], settings["imputer"]
            if isinstance(window, TimeWindow) and window.per_stream:  # may name a stream not shown yet
                own = {name: length for name, length in window.per_stream.items() if name in shown}
                settings["window"] = TimeWindow(window.length, per_stream=own)
            if isinstance(imputer, Mapping):
                settings["imputer"] = {name: given for name, given in imputer.items() if name in shown}
        schemas = [self._schema(name, held) for name in shown]
        how, one = settings["how"], len(shown) == 1
        settings["how"] = "inner" if one else how
        streams = [stream for stream in self._left() if stream.name in shown]
        call = resolve(streams, schemas, JoinSettings(**settings))
        return replace(call, plan=replace(call.plan, how=how)) if one and how != "inner" else call


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
    metric: Metric = "euclidean",
    scale: Scale | None = None,
    options: Options | None = None,
) -> str:
    """Print and return why two rows are a pair or not: each bound with its numbers, and which one decided.

    Arguments:
    * ``left_row, right_row``: mappings of the streams' columns, rows of pandas (``frame.iloc[0]``) or frames of one
      row.
    * ``left, right``: describe the streams as for `SimilarityJoin`; ``right`` is ``left`` if not given.
    * ``window``: as in `similarity_join`. A time window is checked against the rows' times; row windows depend on other
      rows and are not checked. None: ignore times.
    * ``epsilon, probability, imputer, metric, scale, options``: as in `similarity_join`.

    Returns the text that it prints.

    Raises `BadArgument` for a wrong argument, and `BadInput` for a row that cannot be used.

    >>> stream = ap.Stream(None, key="id", time="t", value=ap.Gaussian("x", sigma=0.2))
    >>> here, there = {"id": 1, "t": 0, "x": 0.0}, {"id": 2, "t": 3, "x": 0.5}
    >>> reasons = ap.explain_pair(here, there, left=stream, epsilon=1, probability=0.9, window="10 seconds")
    left: mean (0), exists with 1, closed form where it meets its like, radius 0.498595, reach 0
    right: mean (0.5), exists with 1, closed form where it meets its like, radius 0.498595, reach 0
    distance of the means: 0.5; epsilon 1; with both reaches 1
    mass: at most 1, if both exist
    half-space (deviation 0.282843): at most 0.96145
    probability: 0.961450007; an answer from 0.9 on
    an answer; decided by refinement: the sum over their samples, or the closed form
    """
    from appulse.engines.join.explain_pair import FOREVER, explained_pair

    settings = JoinSettings(
        epsilon=epsilon,
        probability=probability,
        window=as_window(FOREVER if window is None else window),
        imputer=imputer,
        metric=metric,
        scale=scale,
        options=options_of(options, "explain_pair"),
    )
    streams = (left, left if right is None else right)
    warn_swapped_dimensions(streams)
    text = "\n".join(explained_pair((left_row, right_row), streams, settings))
    print(text)  # noqa: T201 - what it is for
    return text


def _join(streams: tuple[Stream[Result], ...], settings: dict[str, Any]) -> Result:
    refuse_twice(streams)
    names = stream_names(streams)
    warn_swapped_dimensions(streams)
    fills = around_of(settings["imputer"], names, streams)
    settings = settings | {"imputer": with_fills(settings["imputer"], names, fills)}
    moving = moves(streams)
    join = partial(_join_moving if moving else _join_fixed, settings=JoinSettings(**settings))
    before = (
        moving
        or _withdraws_before(streams, settings)
        or (
            settings["emit"] == "changes"
            and isinstance(settings["window"], UncertainCountWindow)
            and is_spark(streams[0].frame)
        )
    )
    return over_survivors(streams, "left", settings, join, asked=before, fills=fills)


def _withdraws_before(streams: Sequence[Stream], settings: Mapping[str, Any]) -> bool:
    """Whether rows wait for their ticks, and are withdrawn before the join has them."""
    chained = any(isinstance(stream.existence, Bursts) for stream in streams)
    return chained or settings.get("how", "inner") != "inner" or settings["imputer"] is not None


def _join_fixed(streams: Sequence[Stream[Result]], settings: JoinSettings) -> Result:
    """Rows where they were."""

    def on_spark() -> Any:
        from appulse.engines.spark.join.call import spark_join

        return spark_join(streams, settings)

    def in_process(tables: list[pa.Table]) -> LocalJoin:
        from appulse.engines.imputing import all_chosen
        from appulse.engines.join.local import LocalJoin

        chosen = (
            None
            if settings.imputer is None
            else all_chosen(settings.imputer, streams, tables, settings.options.threads)
        )
        return LocalJoin(resolve(streams, [table.schema for table in tables], replace(settings, imputer=chosen)))

    return answers_of(streams, in_process, on_spark)


def _join_moving(streams: Sequence[Stream[Result]], settings: JoinSettings) -> Result:
    """Rows at one instant, by the legs of their things."""
    resolved = partial(resolve_moving, settings=settings)

    def on_spark() -> Any:
        from appulse.engines.spark.encounters.call import spark_legs

        return spark_legs(streams, resolved, settings.options)

    def in_process(tables: list[pa.Table]) -> LocalEncounters:
        from appulse.engines.encounters.bucket import LocalEncounters

        return LocalEncounters(resolved(streams, [table.schema for table in tables]))

    return answers_of(streams, in_process, on_spark)
