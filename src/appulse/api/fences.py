"""Fence events: by call, and by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import pyarrow as pa

from appulse.api.by_hand import Bare, ByHand
from appulse.api.calls import answers_of, settings_of
from appulse.api.results import Framed, is_spark
from appulse.arguments import OnReject, Probabilities, Probability, Seed, checked, whole
from appulse.engines.fences.call import EmitFences, FenceSettings, resolve_fences
from appulse.engines.options import Options
from appulse.errors import AppulseError, BadArgument
from appulse.model.stream import Result
from appulse.model.times import Duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.api.by_hand import Frames, Types
    from appulse.engines.fences.local import LocalFences

_Draws: TypeAlias = Annotated[int, whole(1, 1_000)]


@checked
def fence_events(
    stream: Framed[Result],
    fences: Any,
    *,
    enter: Probability = 0.9,
    leave: Probability = 0.5,
    dwell: Duration | None = None,
    crossing: Probability | None = None,
    emit: EmitFences = "events",
    on_reject: OnReject = "collect",
    options: Options | None = None,
) -> Result:
    """When things enter regions, dwell in them and leave, without the flicker of errors at a border.

    A thing outside *enters* by a reading that is inside with probability at least ``enter``. A thing inside *exits* by
    one with less than ``leave``; between the two nothing changes. The probabilities are exact.

    Arguments:
    * ``stream``: places with normal errors, or none: `Position`, or `Exact` or `Gaussian` of two columns.
    * ``fences``: a pyarrow, pandas or Polars table of ``query`` (a name), ``region`` (polygons with holes, lines and
      points, of one part or several: WKB, WKT or shapely geometries) and perhaps ``radius``, which widens a region: a
      point becomes a disc, a line a corridor. Boundaries belong to regions. Of a `Position` coordinates are longitude
      and latitude, radii metres; edges are straight in degrees, and regions over the 180th meridian are cut there, as
      GeoJSON has it. Perhaps also with ``condition``, SQL over other columns of the stream: a reading for which it is
      not true is inside with probability 0; and with ``until``, the last time at which a fence holds: a visit that goes
      on then is forgotten without an event. Of several rows with one name the last stands. On Spark it may be a Spark
      frame. A streaming one is a stream of changes, with a column ``change`` (``"add"`` or ``"remove"``); those of a
      micro-batch count for its readings and later ones, as in `FenceEvents.change`.
    * ``enter, leave``: the probabilities of entering and leaving, in (0, 1].
    * ``dwell``: a duration: text, a timedelta, or seconds. A thing has *dwelt*, once in a visit, as soon as the
      readings' time has reached its entry and ``dwell``, and no exit has come; so a thing that falls silent dwells,
      too.
    * ``crossing``: a probability, for a stream with ``motion=ap.Straight(...)``. Of two readings that it joins, both
      outside, the way between *crosses* what it passes through with at least that probability, its error being that of
      the first reading all along. The event is at the middle of the first stretch inside of the straight way between
      the two (on an Earth the geodesic), or where this is closest.
    * ``emit``: ``"events"``, or ``"visits"``: a row a visit, at its end.
    * ``on_reject``: ``"collect"`` keeps bad rows for `rejects`, ``"fail"`` raises `BadInput` at the first.
    * ``options``: for the size of the output, threads and partitions; see `Options`.

    Returns a Spark frame for Spark frames (streaming if they are), else a `pyarrow.Table`, with the columns ``query,
    key, event, time, probability, since``. ``event`` is ``"enter"``, ``"dwell"``, ``"exit"`` or ``"cross"``;
    ``probability`` is that of the reading, at ``"dwell"`` of the last one, at ``"cross"`` of having passed through;
    ``since`` is the entry, null at ``"cross"``. ``emit="visits"`` has ``query, key, start, end, readings,
    probability``, the highest. Columns that the stream carries are of the reading that enters or exits, at ``"dwell"``
    of the last one, at ``"cross"`` of the one before, and of a visit that of its exit. Fences that are no regions are
    bad rows, too: in `rejects` they are under the stream name ``queries``, with what is wrong.

    Raises `BadArgument` for a wrong argument, `BadInput` with ``on_reject="fail"``, `OutputLimit` beyond
    ``Options(max_output=)``, and `NotBuilt` for choices that do not go together yet.

    >>> fences = pa.table({"query": ["yard"], "region": ["POLYGON ((0 0, 100 0, 100 100, 0 100, 0 0))"]})
    >>> fixes = pa.table({"van": ["a"] * 4, "t": [0, 10, 20, 30], "x": [-50.0, 3.0, 50.0, 180.0], "y": [50.0] * 4})
    >>> stream = ap.Stream(fixes, key="van", time="t", value=ap.Gaussian("x", "y", sigma=10))
    >>> ap.fence_events(stream, fences, enter=0.9, leave=0.1).select(["event", "time"]).to_pylist()
    [{'event': 'enter', 'time': 20}, {'event': 'exit', 'time': 30}]
    """
    settings = settings_of("fence_events", locals())
    regions = fences if is_spark(stream.frame) and is_spark(fences) else _regions(fences)

    def on_spark() -> Any:
        from appulse.engines.spark.fences import spark_fences

        return spark_fences(stream, regions, FenceSettings(**settings))

    def in_process(tables: list[pa.Table]) -> LocalFences:
        from appulse.engines.fences.local import LocalFences

        return LocalFences(resolve_fences(stream, tables[0].schema, regions, FenceSettings(**settings)))

    return answers_of((stream,), in_process, on_spark)


@checked
def fence_advice(
    sample: Framed[Any],
    fences: Any,
    *,
    enter: Probabilities = (0.5, 0.7, 0.9, 0.95),
    leave: Probabilities = (0.5, 0.1, 0.01, 0.0001),
    tolerance: Duration = "1 minute",
    draws: _Draws = 4,
    seed: Seed = 0,
) -> pa.Table:
    """How many false and missed events to expect of each choice of ``enter`` and ``leave`` of `fence_events`.

    A likely track of each thing is drawn many times: one that may have led to its readings, given their errors.
    Readings of that track are drawn anew with the same errors, and their events are compared with those of the track
    itself. So the figures follow from the errors that the stream states; if these are too small, so are the figures.

    Arguments:
    * ``sample``: a stretch of the stream: a `Stream` of a pyarrow, pandas or Polars frame.
    * ``fences``: as in `fence_events`.
    * ``enter, leave``: the probabilities to try. Choices with ``leave`` above ``enter`` are left out.
    * ``tolerance``: a visit is true if it overlaps one of the track, by this duration, that no earlier visit has;
      others are two false events each. Visits of the track that last this long or longer and that no visit reports are
      two missed events.
    * ``draws``: how many tracks of each thing; ``seed`` is that of their random numbers.

    Returns a `pyarrow.Table` with the columns ``enter, leave, true_events, false_events, missed_events, delay, never``.
    Events are over the time of the sample, means of the draws; ``true_events`` are those of the tracks, ``delay`` is
    how late true entries are reported (mean, seconds; null if none is), and ``never`` how many fences are too small for
    the least error of the sample to be entered at all. Rows that `fence_events` would reject are left out.

    Raises `BadArgument` for a wrong argument.

    >>> fences = pa.table({"query": ["yard"], "region": ["POLYGON ((0 0, 100 0, 100 100, 0 100, 0 0))"]})
    >>> fixes = pa.table({"van": ["a"] * 4, "t": [0, 10, 20, 30], "x": [-50.0, 3.0, 50.0, 180.0], "y": [50.0] * 4})
    >>> stream = ap.Stream(fixes, key="van", time="t", value=ap.Gaussian("x", "y", sigma=10))
    >>> advice = ap.fence_advice(stream, fences, enter=(0.5, 0.9), leave=(0.1,))
    >>> advice.column_names[:5]
    ['enter', 'leave', 'true_events', 'false_events', 'missed_events']
    """
    from appulse.engines.fences.advice import advice_table
    from appulse.engines.local import as_table

    if is_spark(sample.frame):
        raise BadArgument("fence_advice() takes a sample in this process. Give frame.limit(100_000).toArrow().")
    table = as_table(sample.frame)
    high, low = ((one,) if isinstance(one, float) else one for one in (enter, leave))
    return advice_table(sample, table, _regions(fences), high, low, tolerance, draws, seed)


@checked
class FenceEvents(ByHand["LocalFences"]):
    """Fence events by hand, without Spark: push readings as they come, take the events they complete.

    The stream has ``frame=None``; other arguments are as in `fence_events`.

    >>> fences = pa.table({"query": ["yard"], "region": ["POLYGON ((0 0, 100 0, 100 100, 0 100, 0 0))"]})
    >>> fixes = pa.table({"van": ["a"] * 4, "t": [0, 10, 20, 30], "x": [-50.0, 3.0, 50.0, 180.0], "y": [50.0] * 4})
    >>> stream = ap.Stream(None, key="van", time="t", value=ap.Gaussian("x", "y", sigma=10))
    >>> call = ap.FenceEvents(stream, fences, enter=0.9, leave=0.1)
    >>> call.push(fixes)["event"].to_pylist()
    ['enter']
    >>> call.drain()["event"].to_pylist()
    ['exit']
    """

    def __init__(
        self,
        stream: Bare,
        fences: Any,
        *,
        enter: Probability = 0.9,
        leave: Probability = 0.5,
        dwell: Duration | None = None,
        crossing: Probability | None = None,
        emit: EmitFences = "events",
        on_reject: OnReject = "collect",
        options: Options | None = None,
    ) -> None:
        self._settings = settings_of("fence_events", locals())
        self._fences = _regions(fences)
        self._waiting: list[pa.Table] = []
        super().__init__([stream], "stream")

    def _make(self, held: Sequence[Frames], types: Types) -> tuple[LocalFences, Types]:
        from appulse.engines.fences.local import LocalFences

        (name,) = self._streams
        schema = self._schema(name, held)
        asked = FenceSettings(**self._settings)
        call = resolve_fences(self._streams[name], schema, self._fences, asked, changing=True)
        engine = LocalFences(call, self._fences)
        for i, waiting in enumerate(self._waiting):
            try:
                engine.change(waiting)
            except AppulseError:  # it is forgotten, so that the push may be made again
                del self._waiting[i]
                raise
        return engine, types

    def _start(self, held: Sequence[Frames], types: Types) -> pa.Table:
        answers = super()._start(held, types)
        self._waiting = []
        return answers

    def change(self, fences: Any) -> None:
        """Add, move and remove fences, which counts for the readings that are pushed from now on.

        ``fences`` is a table of the columns that `fence_events` takes, and perhaps ``change``: ``"add"`` or
        ``"remove"``. A fence that is added under the name of one that stands takes its place, and visits go on. One
        that is removed is forgotten at the next reading of each thing that is inside, without an event.

        Raises `BadArgument` where the table has other columns, or conditions and the first one had none, or with
        ``crossing``; what raises has changed nothing.
        Fences that are no regions are in `rejects`.

        >>> yard, moved = "POLYGON ((0 0, 9 0, 9 9, 0 9, 0 0))", "POLYGON ((50 0, 59 0, 59 9, 50 9, 50 0))"
        >>> stream = ap.Stream(None, key="van", time="t", value=ap.Exact("x", "y"))
        >>> call = ap.FenceEvents(stream, pa.table({"query": ["yard"], "region": [yard]}))
        >>> fixes = pa.table({"van": ["a"] * 4, "t": [0, 10, 20, 30], "x": [5.0] * 4, "y": [5.0] * 4})
        >>> call.push(fixes.slice(0, 2))["event"].to_pylist()
        ['enter']
        >>> call.change(pa.table({"query": ["yard"], "region": [moved], "change": ["add"]}))
        >>> call.push(fixes.slice(2, 2))["event"].to_pylist()
        ['exit']
        """
        from appulse.engines.fences.versions import check_changes

        table = _regions(fences)
        check_changes(table.schema)
        if self._engine is None:
            self._waiting.append(table)
        else:
            self._engine.change(table)


def _regions(fences: Any) -> Any:
    """The fences as a table, geometries of shapely as WKB."""
    from appulse.engines.local import as_table
    from appulse.model.geometries import with_wkb

    return as_table(with_wkb(fences), "The frame of fences")
