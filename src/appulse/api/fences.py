"""Fence events: by call, and by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import pyarrow as pa

from appulse.api.by_hand import Bare, Changing
from appulse.api.calls import answers_of, settings_of
from appulse.api.results import Framed, is_spark
from appulse.arguments import OnReject, Probabilities, Probability, Seed, checked, whole
from appulse.engines.fences.call import EmitFences, FenceSettings, resolve_fences
from appulse.engines.options import Options
from appulse.errors import BadArgument
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
    """When things enter regions, dwell in them and leave, without flicker at the border.

    A thing outside *enters* with a reading that is inside with probability at least ``enter``. A thing inside *exits*
    with a reading of probability below ``leave``; in between nothing changes.

    Arguments:
    * ``stream``: places with normal errors, or none: `Position`, or `Exact` or `Gaussian` of two columns.
    * ``fences``: a pyarrow, pandas or Polars table of ``query`` (a name), ``region`` (polygons with holes, lines and
      points, of one part or several: WKB, WKT or shapely geometries) and optionally ``radius``, which widens a region:
      a point becomes a disc, a line a corridor. Boundaries belong to regions. For a `Position` coordinates are
      longitude and latitude, and radii are metres; edges are straight in degrees, and regions across the 180th meridian
      are cut there, as in GeoJSON. Also optional are ``condition``, SQL over other columns of the stream: a reading
      that does not satisfy it is inside with probability 0; and ``until``, the last time at which a fence holds: a
      visit that is open then is dropped without an event. Of several rows with one name the last counts. On Spark it
      may be a Spark frame. A streaming frame is a stream of changes, with a column ``change`` (``"add"`` or
      ``"remove"``), which apply to the readings of their micro-batch and later ones, as in `FenceEvents.change`.
    * ``enter, leave``: the probabilities of entering and leaving, in (0, 1].
    * ``dwell``: a duration: text, a timedelta, or seconds. Reported once per visit, when the time of the stream reaches
      the entry plus ``dwell`` and the thing has not exited, even if it is silent.
    * ``crossing``: a probability, for a stream with ``motion=ap.Straight(...)``. The leg between two connected
      readings, both outside, *crosses* a fence if it passes through it with at least that probability. It has the error
      of its first reading. The event is at the middle of the first stretch inside, or where the leg (on Earth a
      geodesic) is closest.
    * ``emit``: ``"events"``, or ``"visits"``: one row per visit, at its end.
    * ``on_reject``: ``"collect"`` keeps bad rows for `rejects`, ``"fail"`` raises `BadInput` at the first.
    * ``options``: output size, threads and partitions; see `Options`.

    Returns a Spark frame for Spark frames (streaming if they are), else a `pyarrow.Table`, with the columns ``query,
    key, event, time, probability, since``. ``event`` is ``"enter"``, ``"dwell"``, ``"exit"`` or ``"cross"``;
    ``probability`` is that of the reading, at ``"dwell"`` of the last one, at ``"cross"`` of passing through; ``since``
    is the time of entry, null at ``"cross"``. ``emit="visits"`` has ``query, key, start, end, readings, probability``,
    the highest. Carried columns come from the reading that enters or exits, at ``"dwell"`` from the last one, at
    ``"cross"`` from the one before, and for a visit from the one at its exit. Invalid fences are rejects under the
    stream name ``queries``.

    Raises `BadArgument` for a wrong argument, `BadInput` with ``on_reject="fail"``, `OutputLimit` beyond
    ``Options(max_output=)``, and `NotBuilt` for combinations that are not built yet.

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
    """The false and missed events to expect of `fence_events` for each choice of ``enter`` and ``leave``.

    For each thing, tracks are simulated that may have led to its readings, given their errors. For each track readings
    are simulated with the same errors, and their events are compared with those of the track. So the result depends on
    the errors that the stream states: if these are too small, it is too optimistic.

    Arguments:
    * ``sample``: a stretch of the stream: a `Stream` of a pyarrow, pandas or Polars frame.
    * ``fences``: as in `fence_events`.
    * ``enter, leave``: the probabilities to try. Choices with ``leave`` above ``enter`` are left out.
    * ``tolerance``: a visit is true if it overlaps a visit of the track that is not matched yet, give or take this
      duration; each other visit is two false events. A visit of the track that lasts at least this long and is not
      matched is two missed events.
    * ``draws``: the number of simulated tracks per thing; ``seed``: of their random numbers.

    Returns a `pyarrow.Table` with the columns ``enter, leave, true_events, false_events, missed_events, delay, never``.
    Numbers of events are totals over the sample, averaged over the draws. ``true_events`` are those of the tracks,
    ``delay`` is the mean delay of true entries in seconds (null if there are none), ``never`` the number of fences too
    small to be entered at all, even with the smallest error of the sample. Rows that `fence_events` would reject are
    left out.

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
class FenceEvents(Changing["LocalFences"]):
    """`fence_events` without Spark, push by push: push readings as they arrive, and get the events they complete.

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
        super().__init__([stream], "stream")

    def _fresh(self, held: Sequence[Frames], types: Types) -> LocalFences:  # noqa: ARG002 - any serve
        from appulse.engines.fences.local import LocalFences

        (name,) = self._streams
        schema = self._schema(name, held)
        asked = FenceSettings(**self._settings)
        call = resolve_fences(self._streams[name], schema, self._fences, asked, changing=True)
        return LocalFences(call, self._fences)

    def change(self, fences: Any) -> None:
        """Add, move and remove fences, for the readings of later pushes.

        ``fences`` is a table with the columns that `fence_events` takes, and optionally ``change``: ``"add"`` or
        ``"remove"``. A fence added under an existing name replaces that fence, and open visits continue. Removing a
        fence ends its visits without an event, at the next reading of each thing inside.

        Raises `BadArgument` where the table has other columns, or conditions and the first one had none, or with
        ``crossing``; what raises has changed nothing. Invalid fences are in `rejects`.

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
        self._take(table)


def _regions(fences: Any) -> Any:
    """The fences as a table, geometries of shapely as WKB."""
    from appulse.engines.local import as_table
    from appulse.model.geometries import with_wkb

    return as_table(with_wkb(fences), "The frame of fences")
