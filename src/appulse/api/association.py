"""The nearest rows of another stream: by call, and by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

from appulse.api.by_hand import Bare, ByHand, refuse_twice
from appulse.api.results import Framed, is_spark, remember
from appulse.arguments import Count, OnReject, checked, number
from appulse.engines.join.nearest import NearestBy, NearestHow, resolve_nearest
from appulse.engines.options import Options, options_of
from appulse.engines.thresholds import Epsilon
from appulse.errors import BadArgument
from appulse.model.stream import Result
from appulse.windows.definitions import GivenWindow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.api.by_hand import Frames, Types
    from appulse.engines.join.local import LocalJoin

_AtLeast = Annotated[float, number(least=0.0, most=1.0)]


@checked
def nearest(
    left: Framed[Result],
    right: Framed[Result],
    k: Count = 1,
    *,
    epsilon: Epsilon | None,
    window: GivenWindow,
    by: NearestBy = "distance",
    probability: _AtLeast = 0.0,
    how: NearestHow = "inner",
    on_reject: OnReject = "collect",
    options: Options | None = None,
) -> Result:
    """For each left row the ``k`` nearest rows of the right stream, within ``epsilon`` of it.

    Both rows lie in their windows at some tick, as in `similarity_join`. ``by="distance"`` takes the rows whose means
    are nearest: with ``probability=0`` those whose means are within ``epsilon``, else those that are within it with
    that probability. ``by="probability"`` takes the rows that are likeliest to be within ``epsilon``, with at least
    ``probability`` (0: 1e-9). Of equal rows the earliest is nearest, then the one with the least key.
    ``epsilon=None`` sets no limit: for whole tables, time windows and ``by="distance"``.

    Columns: those of `similarity_join`, and ``rank``, which counts from 1. ``probability`` is that of being within
    ``epsilon``, null without one. With ``how="left"`` a left row without any has nulls on the right. A left row is
    answered once no nearer row can come: when its window is over, when it is pushed out of a window that counts rows,
    or when the streams end. Bad rows are in `rejects`, or raise `BadInput` with ``on_reject="fail"``. Spark frames give
    a Spark frame (streaming if they are), others a `pyarrow.Table`. On Spark, without ``epsilon``, the right table has
    to fit into the memory of every worker.

    Example::

        ports = ap.Stream(ports, key="name", time="t", value=ap.Position("lat", "lon"))
        ap.nearest(ships, ports, epsilon=50_000, window="1 hour")
    """
    settings: dict[str, Any] = {
        "k": k,
        "epsilon": epsilon,
        "window": window,
        "by": by,
        "probability": probability,
        "how": how,
        "on_reject": on_reject,
        "options": options_of(options, "nearest"),
    }
    streams = (left, right)
    refuse_twice(streams)
    spark = [is_spark(stream.frame) for stream in streams]
    if all(spark):
        from appulse.engines.spark.join.nearest import spark_nearest

        return cast("Result", spark_nearest(streams, settings))
    if any(spark):
        raise BadArgument(
            "The call mixes Spark frames with others. Convert them: spark.createDataFrame(...) or .toArrow()."
        )
    from appulse.engines.join.local import LocalJoin
    from appulse.engines.local import as_table

    tables = [as_table(stream.frame) for stream in streams]
    call = resolve_nearest(streams, [table.schema for table in tables], **settings, whole=True)
    engine = LocalJoin(call)
    result = engine.answers(dict(zip(call.plan.streams, tables, strict=True)))
    return cast("Result", remember(result, engine.rejects(), engine.observed()))


@checked
class Nearest(ByHand["LocalJoin"]):
    """The nearest rows by hand, without Spark: push rows as they come, take the answers they complete.

    Streams have ``frame=None``; other arguments are as in `nearest`.
    """

    def __init__(
        self,
        left: Bare,
        right: Bare,
        k: Count = 1,
        *,
        epsilon: Epsilon,
        window: GivenWindow,
        by: NearestBy = "distance",
        probability: _AtLeast = 0.0,
        how: NearestHow = "inner",
        on_reject: OnReject = "collect",
        options: Options | None = None,
    ) -> None:
        self._settings: dict[str, Any] = {
            "k": k,
            "epsilon": epsilon,
            "window": window,
            "by": by,
            "probability": probability,
            "how": how,
            "on_reject": on_reject,
            "options": options_of(options, "nearest"),
        }
        super().__init__((left, right), "left")

    def _make(self, held: Sequence[Frames], types: Types) -> tuple[LocalJoin, Types]:
        from appulse.engines.join.local import LocalJoin

        schemas = [self._schema(name, held) for name in self._streams]
        call = resolve_nearest(list(self._streams.values()), schemas, **self._settings, whole=False)
        return LocalJoin(call), types
