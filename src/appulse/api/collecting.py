"""Samples of readings: by call, and by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from appulse.api.by_hand import Bare, ByHand
from appulse.api.calls import answers_of, settings_of
from appulse.api.results import Framed
from appulse.arguments import OnReject, checked
from appulse.engines.collecting.call import CollectSettings, resolve_collect
from appulse.engines.options import Options
from appulse.model.stream import Result
from appulse.model.times import Duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from appulse.engines.local import Local
    from appulse.model.objects import Objects
    from appulse.model.stream import Stream


@checked
def collect_samples(
    stream: Framed[Result],
    *,
    every: Duration,
    on_reject: OnReject = "collect",
    options: Options | None = None,
) -> Result:
    """Turn the readings of a key in each interval into one row of samples, for `Samples`.

    Arguments:
    * ``stream``: the readings. Values are numbers without error, as `Exact` names them, or one column.
    * ``every``: the length of the intervals, which count from 1970: text, a timedelta, or seconds.
    * ``on_reject``: ``"collect"`` keeps bad rows for `rejects`, ``"fail"`` raises `BadInput` at the first.

    Returns a Spark frame for Spark frames (streaming if they are), else a `pyarrow.Table`, with the columns ``key,
    time, samples, weights`` and those that ``partition_by`` and ``carry=`` name: ``time`` and what is carried are those
    of the latest reading. ``samples`` is a list of points, of numbers where the value is one column. The readings of an
    interval weigh the same; with ``existence`` each weighs as much of that as the probability that it exists, so that
    the row exists with their mean. A row comes when its interval has ended: when the stream has passed its end by
    ``lateness``, or ends.

    Raises `BadArgument` for a wrong argument, and `BadInput` with ``on_reject="fail"``.

    Lian & Chen 2009, section 2: objects as samples.

    >>> fixes = pa.table({"van": ["a", "a"], "t": [1, 4], "x": [0.0, 2.0]})
    >>> rows = ap.collect_samples(ap.Stream(fixes, key="van", time="t", value=ap.Exact("x")), every="10 seconds")
    >>> rows.select(["key", "time", "samples", "weights"]).to_pylist()
    [{'key': 'a', 'time': 4, 'samples': [0.0, 2.0], 'weights': [0.5, 0.5]}]
    """
    settings = settings_of("collect_samples", locals())
    streams = (stream,)

    def on_spark() -> Any:
        from appulse.engines.collecting.call import CollectBucket
        from appulse.engines.spark.grouped import spark_grouped

        return spark_grouped(
            streams,
            lambda streams, schemas: resolve_collect(streams[0], schemas[0], CollectSettings(**settings)),
            CollectBucket,
            "collect",
            settings["options"],
            by_key=True,
        )

    return answers_of(streams, lambda tables: _engine(streams, [table.schema for table in tables], settings), on_spark)


def _engine(streams: Sequence[Stream], schemas: Sequence[pa.Schema], settings: Mapping[str, Any]) -> Local[Objects]:
    from appulse.engines.collecting.call import CollectBucket
    from appulse.engines.local import Local

    return Local(CollectBucket(resolve_collect(streams[0], schemas[0], CollectSettings(**settings))))


@checked
class SampleCollector(ByHand["Local[Objects]"]):
    """`collect_samples` without Spark, push by push: push readings as they arrive, and get the rows they complete.

    The stream has ``frame=None``; other arguments are as in `collect_samples`.

    >>> call = ap.SampleCollector(ap.Stream(None, key="van", time="t", value=ap.Exact("x")), every="10 seconds")
    >>> call.push(pa.table({"van": ["a", "a", "a"], "t": [1, 4, 12], "x": [0.0, 2.0, 3.0]}))["samples"].to_pylist()
    [[0.0, 2.0]]
    >>> call.drain()["samples"].to_pylist()
    [[3.0]]
    """

    _engine_of = staticmethod(_engine)

    def __init__(
        self, stream: Bare, *, every: Duration, on_reject: OnReject = "collect", options: Options | None = None
    ) -> None:
        self._settings = settings_of("collect_samples", locals())
        super().__init__([stream], "stream")
