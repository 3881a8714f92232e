"""Rows with few partners: by call, and by hand."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from appulse.api.by_hand import Bare, ByHand
from appulse.api.calls import settings_of
from appulse.api.results import Framed, is_spark
from appulse.api.survivors import answers_over_survivors
from appulse.arguments import Count, OnReject, Probability, checked
from appulse.engines.join.outliers import OutlierSettings, resolve_outliers
from appulse.engines.options import Options
from appulse.engines.thresholds import Epsilon, warn_swapped_dimensions
from appulse.errors import BadArgument
from appulse.model.stream import Result
from appulse.windows.definitions import GivenWindow, TimeWindow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from appulse.engines.join.local import LocalJoin
    from appulse.model.stream import Stream


@checked
def outliers(
    stream: Framed[Result],
    reference: Framed[Result] | None = None,
    *,
    epsilon: Epsilon,
    fewer_than: Count,
    probability: Probability,
    window: GivenWindow,
    on_reject: OnReject = "collect",
    options: Options | None = None,
) -> Result:
    """Rows that have fewer than ``fewer_than`` partners within ``epsilon``, with at least a given probability.

    Partners are rows that are in their windows with the row at some tick, as in `similarity_join`. Each is within
    ``epsilon`` with a probability, given that the row exists. Their number has a Poisson-binomial distribution if they
    are independent of each other, as for a row whose own value is certain. Partners with a probability below 1e-12 are
    not counted.

    Arguments:
    * ``stream``: the rows to judge.
    * ``reference``: the stream of the partners. None: the other rows of ``stream``.
    * ``epsilon``: the greatest distance of a partner, as in `similarity_join`.
    * ``fewer_than``: a row with at least this many partners is not an outlier.
    * ``probability``: the threshold for the probability that there are fewer, in (0, 1].
    * ``window``: a window, or a duration: text, a timedelta, or seconds.
    * ``on_reject``: ``"collect"`` keeps bad rows for `rejects`, ``"fail"`` raises `BadInput` at the first.
    * ``options``: speed and output size; see `Options`.

    Returns a Spark frame for Spark frames (streaming if they are), else a `pyarrow.Table`, with the columns ``key,
    time, expected, probability`` and those that ``carry=`` names: the expected number of partners, and the probability
    that there are fewer than ``fewer_than``. A row is reported once, when no partner can arrive any more: when its
    window is over, when it leaves a row window, or when the streams end.

    Raises `BadArgument` for a wrong argument, `BadInput` with ``on_reject="fail"``, `OutputLimit` beyond
    ``Options(max_output=)``, and `NotBuilt` for combinations that are not built yet.

    Lian & Chen 2009, section 1; sensor quality control's test of neighbours.

    >>> rows = pa.table({"mote": [1, 2, 3], "t": [0, 1, 2], "celsius": [20.0, 20.3, 27.0]})
    >>> stream = ap.Stream(rows, key="mote", time="t", value=ap.Gaussian("celsius", sigma=0.2))
    >>> ap.outliers(stream, epsilon=2, fewer_than=1, probability=0.9, window="1 minute")["key"].to_pylist()
    [3]
    """
    settings = settings_of("outliers", locals())

    def on_spark(streams: Sequence[Stream]) -> Any:
        from appulse.engines.spark.join.call import spark_pairs

        asked = OutlierSettings(**settings)
        return spark_pairs(streams, partial(resolve_outliers, settings=asked), asked.options)

    streams = (stream,) if reference is None else (stream, reference)
    warn_swapped_dimensions(streams)
    asked = is_spark(stream.frame) and not isinstance(window, TimeWindow)
    return answers_over_survivors(streams, "left", settings, _engine, on_spark, asked=asked)


def _engine(streams: Sequence[Stream], schemas: Sequence[pa.Schema], settings: Mapping[str, Any]) -> LocalJoin:
    from appulse.engines.join.local import LocalJoin

    return LocalJoin(resolve_outliers(streams, schemas, OutlierSettings(**settings), tiled=False))


@checked
class Outliers(ByHand["LocalJoin"]):
    """`outliers` without Spark, push by push: push rows as they arrive, and get the answers that they complete.

    Streams have ``frame=None``; a second one is the reference. Other arguments are as in `outliers`.

    >>> stream = ap.Stream(None, key="mote", time="t", value="celsius")
    >>> call = ap.Outliers(stream, epsilon=2, fewer_than=1, probability=0.9, window="1 minute")
    >>> call.push(pa.table({"mote": [1, 2, 3], "t": [0, 1, 2], "celsius": [20.0, 20.3, 27.0]})).num_rows
    0
    >>> call.drain()["key"].to_pylist()
    [3]
    """

    _engine_of = staticmethod(_engine)
    _pairs = True

    def __init__(
        self,
        *streams: Bare,
        epsilon: Epsilon,
        fewer_than: Count,
        probability: Probability,
        window: GivenWindow,
        on_reject: OnReject = "collect",
        options: Options | None = None,
    ) -> None:
        if len(streams) > 2:
            raise BadArgument(f"Outliers() got {len(streams)} streams. Give one, or one and a reference.")
        self._settings = settings_of("outliers", locals())
        super().__init__(streams, "left")
