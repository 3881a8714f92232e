"""Which row belongs to which: the nearest rows of another stream, and one partner each; by call, and by hand."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from appulse.api.by_hand import Bare, ByHand
from appulse.api.calls import answers_of, settings_of
from appulse.api.results import Framed, is_spark
from appulse.api.survivors import answers_over_survivors
from appulse.arguments import Count, OnReject, Positive, Probability, checked, number
from appulse.engines.join.assign import AssignBy, AssignMethod, AssignSettings, Blocks, resolve_assign
from appulse.engines.join.call import How
from appulse.engines.join.nearest import NearestBy, NearestHow, NearestSettings, resolve_nearest
from appulse.engines.options import Options
from appulse.engines.thresholds import Epsilon, NearestMetric, warn_swapped_dimensions
from appulse.model.stream import Result
from appulse.windows.definitions import GivenWindow, TimeWindow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from appulse.engines.join.assign import LocalAssign
    from appulse.engines.join.local import LocalJoin
    from appulse.model.stream import Stream

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
    metric: NearestMetric = "euclidean",
    on_reject: OnReject = "collect",
    options: Options | None = None,
) -> Result:
    """The ``k`` nearest rows of the right stream for each left row, within ``epsilon``.

    Both rows are in their windows at some tick, as in `similarity_join`. Ties go to the earliest row, then to the least
    key. A left row is answered once no nearer row can arrive: when its window is over, when it leaves a row window, or
    when the streams end.

    Arguments:
    * ``left, right``: the streams.
    * ``k``: how many right rows each left row gets at most.
    * ``epsilon``: the greatest distance, as in `similarity_join`. None sets no limit: for whole tables, time windows
      and ``by="distance"``. On Spark the right table then has to fit into the memory of every worker.
    * ``window``: a window, or a duration: text, a timedelta, or seconds.
    * ``by``: ``"distance"`` ranks by the distance of means, ``"probability"`` by the probability of being within
      ``epsilon``.
    * ``probability``: the threshold for the probability of being within ``epsilon``, in [0, 1]. With 0, by distance the
      means must be within ``epsilon``; by probability the threshold is 1e-9.
    * ``how``: ``"left"`` also reports left rows without a right row, with nulls on the right.
    * ``metric``: ``"euclidean"``, or for `Exact` rows ``"cosine"``, as in `similarity_join`.
    * ``on_reject``: ``"collect"`` keeps bad rows for `rejects`, ``"fail"`` raises `BadInput` at the first.
    * ``options``: speed and output size; see `Options`.

    Returns a Spark frame for Spark frames (streaming if they are), else a `pyarrow.Table`, with the columns of
    `similarity_join` and ``rank``, from 1. ``probability`` is that of being within ``epsilon``, null without one.

    Raises `BadArgument` for a wrong argument, `BadInput` with ``on_reject="fail"``, `OutputLimit` beyond
    ``Options(max_output=)``, and `NotBuilt` for combinations that are not built yet.

    >>> ships = pa.table({"ship": ["Anna"], "t": [0], "lat": [50.76], "lon": [-1.14]})
    >>> ports = pa.table({"port": ["Cowes", "Ryde"], "t": [0, 0], "lat": [50.762, 50.733], "lon": [-1.297, -1.161]})
    >>> ships = ap.Stream(ships, key="ship", time="t", value=ap.Position("lat", "lon"))
    >>> ports = ap.Stream(ports, key="port", time="t", value=ap.Position("lat", "lon"))
    >>> best = ap.nearest(ships, ports, epsilon=50_000, window="1 hour")
    >>> [(row["right_key"], round(row["distance"]), row["rank"]) for row in best.to_pylist()]
    [('Ryde', 3349, 1)]
    """
    settings = settings_of("nearest", locals())
    warn_swapped_dimensions((left, right))

    def on_spark(streams: Sequence[Stream]) -> Any:
        from appulse.engines.spark.join.nearest import spark_nearest

        return spark_nearest(streams, NearestSettings(**settings))

    asked = is_spark(left.frame) and (epsilon is None or not isinstance(window, TimeWindow))
    engine = partial(_nearest, whole=True)
    return answers_over_survivors((left, right), "left", settings, engine, on_spark, asked=asked)


def _nearest(
    streams: Sequence[Stream], schemas: Sequence[pa.Schema], settings: Mapping[str, Any], *, whole: bool
) -> LocalJoin:
    from appulse.engines.join.local import LocalJoin

    return LocalJoin(resolve_nearest(streams, schemas, NearestSettings(**settings), whole=whole))


@checked
class Nearest(ByHand["LocalJoin"]):
    """`nearest` without Spark, push by push: push rows as they arrive, and get the answers that they complete.

    Streams have ``frame=None``; other arguments are as in `nearest`.

    >>> left, right = (ap.Stream(None, key="id", time="t", value="x", name=name) for name in ("a", "b"))
    >>> call = ap.Nearest(left, right, epsilon=5, window="10 seconds")
    >>> rows = pa.table({"id": [7, 8], "t": [1, 2], "x": [3.0, 1.0]})
    >>> call.push(a=pa.table({"id": [1], "t": [0], "x": [0.0]}), b=rows).num_rows  # a nearer one may still come
    0
    >>> call.drain()["right_key"].to_pylist()
    [8]
    """

    _engine_of = staticmethod(partial(_nearest, whole=False))
    _pairs = True

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
        metric: NearestMetric = "euclidean",
        on_reject: OnReject = "collect",
        options: Options | None = None,
    ) -> None:
        self._settings = settings_of("nearest", locals())
        super().__init__((left, right), "left")


@checked
def assign(
    left: Framed[Result],
    right: Framed[Result],
    *,
    epsilon: Epsilon,
    probability: Probability,
    window: Blocks,
    by: AssignBy = "likelihood",
    method: AssignMethod = "optimal",
    density: Positive | None = None,
    how: How = "inner",
    on_reject: OnReject = "collect",
    options: Options | None = None,
) -> Result:
    """One partner per row: the pairs of a block with the greatest sum of gains, in which no row occurs twice.

    In each block rows of ``left`` are assigned to rows of ``right`` that are within ``epsilon`` with at least
    ``probability``. Pairs without a positive gain are left out, so a row may have no partner. A block is answered when
    it ends.

    Arguments:
    * ``left, right``: the streams.
    * ``epsilon``: the greatest distance, as in `similarity_join`.
    * ``probability``: the least probability of being within epsilon, in (0, 1].
    * ``window``: the blocks: ``ap.TumblingWindow("10 seconds")``, or ``"tick"``, the rows of one time, such as a scan.
    * ``by``: the gain of a pair. ``"likelihood"``: the logarithm of the density of the difference of the two rows under
      the sum of their errors, over ``density``; infinite where both rows have no error and are at one place.
      ``"probability"``: the probability of the pair. ``"distance"``: how much less than ``epsilon`` and their margins
      their means are apart.
    * ``method``: ``"optimal"``, or ``"greedy"``, which takes the best pair first, then the best of the rest, without
      margins.
    * ``density``: the expected number of unrelated right rows per unit of length, area or volume. Unless given, the
      number of right rows of the block over the volume of the box around its rows, no side of which is less than twice
      ``epsilon``.
    * ``how``: also reports rows without a partner, as in `similarity_join`.
    * ``on_reject``: ``"collect"`` keeps bad rows for `rejects`, ``"fail"`` raises `BadInput` at the first.
    * ``options``: partitions, output size and the size of components; see `Options`.

    Returns a Spark frame for Spark frames (streaming if they are), else a `pyarrow.Table`, with the columns of
    `similarity_join`, by likelihood ``log_likelihood_ratio`` (null if it is infinite), and ``margin``: how much the
    greatest sum drops if the pair is forbidden; small if another choice is about as good.

    Raises `BadArgument` for a wrong argument, or for a component of more than ``Options(max_component=5000)`` rows:
    rows that may be partners of each other's partners (`explain` has their number). Raises `BadInput` with
    ``on_reject="fail"``, `OutputLimit` beyond ``Options(max_output=)``, and `NotBuilt` for combinations that are not
    built yet.

    >>> old = pa.table({"star": [1, 2], "scan": [0, 0], "x": [0.0, 1.0]})
    >>> new = pa.table({"star": [11, 12], "scan": [0, 0], "x": [0.9, 1.8]})
    >>> a, b = (ap.Stream(f, key="star", time="scan", value=ap.Gaussian("x", sigma=0.7)) for f in (old, new))
    >>> pairs = ap.assign(a, b, epsilon=3, probability=0.1, window="tick", density=0.05)
    >>> pairs.sort_by("left_key").select(["left_key", "right_key"]).to_pylist()
    [{'left_key': 1, 'right_key': 11}, {'left_key': 2, 'right_key': 12}]
    """
    settings = settings_of("assign", locals())
    streams = (left, right)
    warn_swapped_dimensions(streams)

    def on_spark() -> Any:
        from appulse.engines.spark.join.assign import spark_assign

        return spark_assign(streams, AssignSettings(**settings))

    return answers_of(streams, lambda tables: _assign(streams, [table.schema for table in tables], settings), on_spark)


def _assign(streams: Sequence[Stream], schemas: Sequence[pa.Schema], settings: Mapping[str, Any]) -> LocalAssign:
    from appulse.engines.join.assign import LocalAssign

    return LocalAssign(resolve_assign(streams, schemas, AssignSettings(**settings)))


@checked
class Assign(ByHand["LocalAssign"]):
    """`assign` without Spark, push by push: push rows as they arrive, and get the answers that they complete.

    Streams have ``frame=None``; other arguments are as in `assign`.

    >>> value = ap.Gaussian("x", sigma=0.5)
    >>> a, b = (ap.Stream(None, key="id", time="scan", value=value, name=name) for name in ("a", "b"))
    >>> call = ap.Assign(a, b, epsilon=3, probability=0.1, window="tick", density=0.05)
    >>> scan = pa.table({"id": [1], "scan": [0], "x": [0.0]})
    >>> call.push(a=scan, b=scan).num_rows  # the scan may not be over
    0
    >>> call.drain()["left_key"].to_pylist()
    [1]
    """

    _engine_of = staticmethod(_assign)
    _pairs = True

    def __init__(
        self,
        left: Bare,
        right: Bare,
        *,
        epsilon: Epsilon,
        probability: Probability,
        window: Blocks,
        by: AssignBy = "likelihood",
        method: AssignMethod = "optimal",
        density: Positive | None = None,
        how: How = "inner",
        on_reject: OnReject = "collect",
        options: Options | None = None,
    ) -> None:
        self._settings = settings_of("assign", locals())
        super().__init__((left, right), "left")
