"""Samples of readings: by call, and by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from appulse.api.by_hand import Bare, ByHand
from appulse.api.results import Framed, is_spark, remember
from appulse.arguments import OnReject, checked
from appulse.engines.collecting.call import resolve_collect
from appulse.engines.options import Options, options_of
from appulse.model.stream import Result
from appulse.model.times import Duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.api.by_hand import Frames, Types
    from appulse.engines.collecting.call import LocalCollect


@checked
def collect_samples(
    stream: Framed[Result],
    *,
    every: Duration,
    on_reject: OnReject = "collect",
    options: Options | None = None,
) -> Result:
    """The readings of a key in each interval as one row of samples, which `Samples` reads.

    Intervals of length ``every`` count from 1970. The readings of an interval weigh the same; with ``existence`` each
    weighs as much of that as the probability that it exists, so that the row exists with their mean. Values are
    numbers without error, as `Exact` names them, or one column.

    Columns: ``key, time, samples, weights``, columns that ``partition_by`` and ``carry=`` name: ``time`` and what is
    carried are those of the latest reading. ``samples`` is a list of points, of numbers where the value is one column.
    A row comes when its interval has ended: when the stream has passed its end by ``lateness``, or ends. Bad rows are
    in `rejects`, or raise `BadInput` with ``on_reject="fail"``. Spark frames give a Spark frame (streaming if they
    are), others a `pyarrow.Table`.

    Lian & Chen 2009, section 2: objects as samples.

    >>> fixes = pa.table({"van": ["a", "a"], "t": [1, 4], "x": [0.0, 2.0]})
    >>> rows = ap.collect_samples(ap.Stream(fixes, key="van", time="t", value=ap.Exact("x")), every="10 seconds")
    >>> rows.select(["key", "time", "samples", "weights"]).to_pylist()
    [{'key': 'a', 'time': 4, 'samples': [0.0, 2.0], 'weights': [0.5, 0.5]}]
    """
    settings: dict[str, Any] = {
        "every": every,
        "on_reject": on_reject,
        "options": options_of(options, "collect_samples"),
    }
    if is_spark(stream.frame):
        from appulse.engines.collecting.call import CollectBucket
        from appulse.engines.spark.grouped import spark_grouped

        result = spark_grouped(
            [stream],
            lambda streams, schemas: resolve_collect(streams[0], schemas[0], **settings),
            CollectBucket,
            "collect",
            settings["options"],
            by_key=True,
        )
        return cast("Result", result)
    from appulse.engines.collecting.call import LocalCollect
    from appulse.engines.local import as_table

    table = as_table(stream.frame)
    engine = LocalCollect(resolve_collect(stream, table.schema, **settings))
    found = engine.answers({engine.call.encodings[0].name: table})
    return cast("Result", remember(found, engine.rejects(), engine.call))


@checked
class SampleCollector(ByHand["LocalCollect"]):
    """Samples of readings by hand, without Spark: push readings as they come, take the rows they complete.

    The stream has ``frame=None``; other arguments are as in `collect_samples`.

    >>> call = ap.SampleCollector(ap.Stream(None, key="van", time="t", value=ap.Exact("x")), every="10 seconds")
    >>> call.push(pa.table({"van": ["a", "a", "a"], "t": [1, 4, 12], "x": [0.0, 2.0, 3.0]}))["samples"].to_pylist()
    [[0.0, 2.0]]
    >>> call.drain()["samples"].to_pylist()
    [[3.0]]
    """

    def __init__(
        self, stream: Bare, *, every: Duration, on_reject: OnReject = "collect", options: Options | None = None
    ) -> None:
        self._settings: dict[str, Any] = {
            "every": every,
            "on_reject": on_reject,
            "options": options_of(options, "collect_samples"),
        }
        super().__init__([stream], "stream")

    def _make(self, held: Sequence[Frames], types: Types) -> tuple[LocalCollect, Types]:
        from appulse.engines.collecting.call import LocalCollect

        (name,) = self._streams
        return LocalCollect(resolve_collect(self._streams[name], self._schema(name, held), **self._settings)), types
