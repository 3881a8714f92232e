"""How calls are carried out: one set of options for all of them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Annotated, Any, TypeAlias

from appulse.arguments import Count, Kind, Positive, checked, number, one_of, several, whole
from appulse.errors import BadArgument
from appulse.operators.plan import BOUNDS, INDEXES
from appulse.operators.sensor_join import SWEEPS

_TABLES = ("similarity_join", "self_join")
_JOINS = (*_TABLES, "explain_pair")
_HELD = ("nearest", "outliers")
_OF_READINGS = ("sensor_join", "phenomena")
_ON_TILES = (
    "encounters",
    *_JOINS,
    *_HELD,
    "assign",
    *_OF_READINGS,
    "collect_samples",
    "window_aggregate",
    "match_queries",
    "fence_events",
)
#: The calls that each option makes a difference to; a call by hand takes those of its function.
USED_BY = {
    "bounds": (*_JOINS, *_HELD),
    "index": (*_JOINS, *_HELD),
    "side": ("encounters", *_JOINS, *_HELD),
    "sample": (*_JOINS, *_HELD, "sensor_join"),
    "sweep": ("sensor_join",),
    "partitions": _ON_TILES,
    "max_output": (*_ON_TILES, "ask"),
    "max_component": ("assign",),
    "threads": ("encounters", "fence_events", "match_queries", "ask", *_TABLES, *_HELD),
    "audit": _TABLES,
}


#: Of tiles, buckets and tasks.
Partitions: TypeAlias = Annotated[int, whole(1, (1 << 31) - 1)]
Threads: TypeAlias = Annotated[int, whole(1, 1 << 10)]
_NAMED = several(one_of(*sorted(BOUNDS)), "some of the names of bounds")
_Bounds: TypeAlias = Annotated[frozenset[str], Kind(_NAMED.wanted, lambda value: frozenset(_NAMED.take(value)))]


@checked
@dataclass(frozen=True)
class Options:
    """How a call is carried out; no option changes a result.

    Arguments:
    * ``bounds``: the names of the bounds that similarity joins, `nearest` and `outliers` use; default: all.
    * ``index``: ``"auto"``, ``"grid"``, ``"dense"`` or ``"sorted"``: how these calls find partners.
    * ``partitions``: on Spark, the number of tiles or buckets, and so of tasks (default: the session's cores); it
      belongs to the checkpoint. For queries over one stream it is the number of parts, by space, that the queries are
      divided into (default: by their size).
    * ``sample``: on Spark, a small frame of typical rows, from which the tiles of a join are planned (or a mapping of
      stream names to such), and by which a sensor join splits values that most sensors hold.
    * ``side``: on Spark, fixes the side of a tile's cells; above 0.
    * ``sweep``: when a sensor join forgets expired readings: ``"periodic"``, ``"eager"`` (at each reading) or
      ``"lazy"`` (once there is no room).
    * ``max_output``: the greatest number of rows that a call, a push, or a task of a Spark batch or micro-batch may
      return; beyond it the call raises `OutputLimit`, before memory is full. None: no limit.
    * ``max_component``: the greatest number of rows of `assign` that depend on each other; beyond it the call raises
      `BadArgument`, because it would take minutes.
    * ``threads``: the number of cores that a call in process may use; default: all. On Spark each task has one.
    * ``audit``: a share, 0 to 1, of the rows of a similarity join: their pairs that the index looked at and bounds
      decided against are computed in full. `explain` and the metrics of Spark report how many were (``audited``), and
      how many of them should have been answers (``false_dismissals``: always 0, or a bound is wrong).

    Pass it as ``options``. Calls in process ignore the options of Spark.

    Raises `BadArgument` for a wrong argument; a call raises it for an option that it does not use.

    >>> rows = pa.table({"id": range(100), "t": range(100), "x": [0.0] * 100})
    >>> stream = ap.Stream(rows, key="id", time="t", value="x")
    >>> few = ap.Options(max_output=10)
    >>> try:
    ...     ap.self_join(stream, epsilon=1, probability=1, window=100, options=few)
    ... except ap.OutputLimit as error:
    ...     print(str(error)[:23])
    The output has at least
    """

    bounds: _Bounds = BOUNDS
    index: Annotated[str, one_of(*INDEXES)] = "auto"
    partitions: Partitions | None = None
    sample: Any = None
    side: Positive | None = None
    sweep: Annotated[str, one_of(*SWEEPS)] = "periodic"
    max_output: Count | None = None
    max_component: Count = 5_000
    threads: Threads | None = None
    audit: Annotated[float, number(least=0.0, most=1.0)] = 0.0


@dataclass(frozen=True, kw_only=True)
class CallSettings:
    """The arguments that all calls share, beside their streams."""

    on_reject: str = "collect"
    options: Options = field(default_factory=Options)


def options_of(given: Options | None, call: str) -> Options:
    """The options of a call, checked: `BadArgument` for one that makes no difference to it."""
    if given is None:
        return Options()
    for own in fields(Options):
        value, users = getattr(given, own.name), USED_BY[own.name]
        # A sample is a frame, which does not compare.
        at_default = value is own.default or (own.name != "sample" and value == own.default)
        if call not in users and not at_default:
            known = [user for user in users if user != "explain_pair"]
            raise BadArgument(
                f"{call} has no use for Options({own.name}=), which is for {', '.join(known)}. Leave it out."
            )
    return given
