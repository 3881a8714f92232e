"""Aggregates over the windows of a stream: by call, and by hand."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from appulse.api.by_hand import Bare, ByHand
from appulse.api.calls import answers_of, settings_of
from appulse.api.results import Framed
from appulse.api.survivors import over_survivors
from appulse.arguments import OnReject, checked
from appulse.engines.aggregates.call import Aggregates
from appulse.engines.options import Options
from appulse.model.existence import Bursts
from appulse.model.stream import Result
from appulse.model.uncertainty import names
from appulse.windows.definitions import GivenWindow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from appulse.api.by_hand import Frames, Types
    from appulse.engines.aggregates.call import AggregateCall
    from appulse.engines.local import Local
    from appulse.model.objects import Objects
    from appulse.model.stream import Stream


@checked
def window_aggregate(
    stream: Framed[Result],
    aggregates: Aggregates,
    *,
    window: GivenWindow,
    distribution: bool = False,
    single_valued: bool = False,
    on_reject: OnReject = "collect",
    options: Options | None = None,
) -> Result:
    """Aggregates of a stream's values over its window, at every tick, over all possible worlds.

    In each world a count window, uncertain or not, holds the newest ``size`` existing rows of those it keeps, another
    window its existing rows. There is one row per tick and group, or with a `TumblingWindow` one per block, at its end.

    Arguments:
    * ``stream``: the rows.
    * ``aggregates``: maps dimensions of the value, by name, to one or several of ``"sum"``, ``"mean"``, ``"count"``,
      ``"min"``, ``"max"``, ``"median"``, percentiles such as ``"p90"``, and, of rows that are certain, ``"std"``:
      ``{"load": ["sum", "max"]}``. A median or percentile is one of the values: of the two in the middle the lower,
      where pandas and NumPy give their mean. ``"frequent1"`` to ``"frequent99"`` list the values that at least so many
      percent of the rows have, of `Exact` and `Samples`, which may repeat.
    * ``window``: a window, or a duration: text, a timedelta, or seconds.
    * ``distribution``: adds ``..._distribution``, a list of (value, probability), exact up to 4096 values. Beyond that
      neighbours are put together, and ``..._distribution_error`` is the root mean square of what values were moved by
      (0: exact).
    * ``single_valued``: gives the sum over the window's rows of their mean values, as if all of them existed.
    * ``on_reject``: ``"collect"`` keeps bad rows for `rejects`, ``"fail"`` raises `BadInput` at the first.
    * ``options``: output size and partitions; see `Options`.

    Returns a Spark frame for Spark frames (streaming if they are), else a `pyarrow.Table`, with the columns of
    ``partition_by``, ``time``, and of each aggregate its mean over the worlds, ``<column>_<aggregate>``, and its
    standard deviation, ``..._std``. All but sums and counts are over the worlds where a row exists, and ``..._exists``
    is their probability. ``<column>_frequent10`` is a list of (value, count), most frequent first, without further
    columns: ``count`` is the number of existing rows that have the value, in the mean over the worlds; the share is of
    the number of all existing rows, in the same mean.

    Raises `BadArgument` for a wrong argument, `BadInput` with ``on_reject="fail"``, `OutputLimit` beyond
    ``Options(max_output=)``, and `NotBuilt` for combinations that are not built yet.

    Dallachiesa et al. 2015, sections 3.3, 7.3 and 9.

    >>> import appulse as ap
    >>> import pyarrow as pa
    >>> rows = pa.table({"id": [1, 2, 3], "at": [0, 1, 2], "port": [80, 443, 80], "p": [0.5, 1.0, 1.0]})
    >>> stream = ap.Stream(rows, key="id", time="at", value=ap.Exact("port"), existence="p")
    >>> ap.window_aggregate(stream, {"port": "frequent50"}, window=10)["port_frequent50"].to_pylist()[-1]
    [{'value': 80.0, 'count': 1.5}]
    """
    settings = settings_of("window_aggregate", locals())

    def on_spark(streams: Sequence[Stream]) -> Any:
        from appulse.engines.aggregates.call import AggregateBucket, resolve_unseen
        from appulse.engines.spark.grouped import spark_grouped

        def resolve(streams: Sequence[Stream], schemas: Sequence[pa.Schema]) -> AggregateCall:
            return resolve_unseen(streams[0], schemas[0], **settings)

        return spark_grouped(streams, resolve, AggregateBucket, "aggregate", settings["options"])

    def call(left: Sequence[Stream[Result]]) -> Result:
        return answers_of(left, lambda tables: _engine(left[0], tables[0], settings), partial(on_spark, left))

    return over_survivors((stream,), "stream", settings, call, asked=isinstance(stream.existence, Bursts))


def _engine(stream: Stream, table: pa.Table, settings: Mapping[str, Any]) -> Local[Objects]:
    from appulse.engines.aggregates.call import AggregateBucket, resolve_aggregate
    from appulse.engines.local import Local

    return Local(AggregateBucket(resolve_aggregate(stream, table, **settings)))


@checked
class WindowAggregate(ByHand["Local[Objects]"]):
    """`window_aggregate` without Spark, push by push: push rows as they arrive, and get the answers they complete.

    ``stream`` has ``frame=None``; other arguments are as in `window_aggregate`. A tick is answered once it is complete:
    when a later row has come, by more than ``lateness``. With ``order="arrival"`` each push is complete.

    >>> stream = ap.Stream(None, key="id", time="t", value="load")
    >>> call = ap.WindowAggregate(stream, {"load": "sum"}, window="10 seconds")
    >>> call.push(pa.table({"id": [1, 2], "t": [0, 5], "load": [10.0, 20.0]}))["load_sum"].to_pylist()
    [10.0]
    >>> call.drain()["load_sum"].to_pylist()
    [30.0]
    """

    def __init__(
        self,
        stream: Bare,
        aggregates: Aggregates,
        *,
        window: GivenWindow,
        distribution: bool = False,
        single_valued: bool = False,
        on_reject: OnReject = "collect",
        options: Options | None = None,
    ) -> None:
        self._settings = settings_of("window_aggregate", locals())
        super().__init__((stream,), "stream")
        self._withdraws_before = isinstance(stream.existence, Bursts)

    def _may_start(self, held: Sequence[Frames], types: Types, *, ended: bool) -> bool:
        """Whether there are types, and rows that show how many dimensions values have."""
        return self._with_dimensions(held) is not None and super()._may_start(held, types, ended=ended)

    def _make(self, held: Sequence[Frames], types: Types) -> tuple[Local[Objects], Types]:
        (name,), (stream,) = self._streams, self._left()
        sample, settings = self._with_dimensions(held), self._settings
        if sample is None:  # the rows so far can only be rejects
            sample = self._schema(name, held).empty_table()
            settings = settings | {"aggregates": {names(stream.value, 1)[0]: ("sum",)}}
        return _engine(stream, types[name].fit(sample), settings), types

    def _checked(self, held: Sequence[Frames], types: Types) -> pa.Table:
        answers = super()._checked(held, types)
        return pa.table({}) if self._with_dimensions(held) is None else answers

    def _with_dimensions(self, held: Sequence[Frames]) -> pa.Table | None:
        """The first table that shows how many dimensions values have."""
        from appulse.engines.aggregates.call import first_dimensions

        (stream,) = self._streams.values()
        return first_dimensions(stream, [table for push in held for table in push.values()])
