"""A stream: a frame, and which of its columns mean what."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Annotated, Any, Generic, Protocol, TypeAlias, overload

import pyarrow as pa

from appulse.arguments import (
    NAME,
    NOT_NEGATIVE,
    TEXT,
    Kind,
    Name,
    Names,
    Unfit,
    checked,
    either,
    instance,
    one_of,
    several,
)
from appulse.errors import BadArgument
from appulse.model import uncertainty
from appulse.model.ddl import columns_of
from appulse.model.existence import Bursts
from appulse.model.motion import Course, Motion, Straight, Velocity
from appulse.model.streaming import is_streaming
from appulse.model.times import UNITS, Duration, duration
from appulse.model.uncertainty import Exact, Model

ORDERS = ("time", "arrival")


def ahead_micros(ahead: object, *, live: bool) -> int | None:
    """How far rows may be ahead of others, in microseconds; None: any time, as where rows are not ``live``."""
    unlimited = isinstance(ahead, float) and math.isinf(ahead) and ahead > 0.0
    return duration(ahead, "ahead") if live and not unlimited else None


def _ahead(value: Any) -> Any:
    ahead_micros(value, live=True)
    return value


#: How far a row may be ahead: a duration, or `math.inf`.
Ahead: TypeAlias = Annotated[Any, Kind("a duration such as '1 hour', or math.inf for any time", _ahead)]
#: How times that are plain numbers are counted.
Unit: TypeAlias = Annotated[str, one_of(*UNITS, "ns")]
Order: TypeAlias = Annotated[str, one_of(*ORDERS)]
Conditions: TypeAlias = Annotated[tuple[str, ...], several(TEXT, "a tuple of conditions", single=str)]
Margin: TypeAlias = Annotated[
    str | float,
    either(Kind("a column name", NAME.take), Kind("a number that is finite and at least 0", NOT_NEGATIVE.take)),
]


def _model(value: Any) -> Model:
    if isinstance(value, str):
        return Exact(NAME.take(value))
    if not isinstance(value, Model):
        raise Unfit
    return value


_GivenModel: TypeAlias = Annotated[
    str | Model,
    Kind(
        "the name of a column, or an uncertainty model: Exact, Samples, Gaussian, Ball, Position or Incomplete, e.g. "
        "ap.Gaussian('x', sigma=15.0)",
        _model,
    ),
]


_Existence: TypeAlias = Annotated[
    str | Bursts,
    either(
        Kind("a column name", NAME.take), instance((Bursts,), "bursts of rows, e.g. ap.Bursts('p', correlation=0.8)")
    ),
]


_GivenMotion: TypeAlias = Annotated[
    Straight | Velocity | Course,
    instance((Straight, Velocity, Course), "a motion: Straight, Velocity or Course, e.g. ap.Straight('5 minutes')"),
]


def _columns(value: Any) -> Any:
    if isinstance(value, str):
        try:
            columns_of(value)
        except BadArgument as error:
            raise Unfit(str(error)) from None
    elif not isinstance(value, pa.Schema) and not any(
        kind.__name__ == "StructType" and kind.__module__.startswith("pyspark.sql") for kind in type(value).__mro__
    ):
        raise Unfit
    return value


#: The columns of a frame.
_Columns: TypeAlias = Annotated[
    Any,
    Kind("columns as text, such as 'id BIGINT, at TIMESTAMP, x DOUBLE', a pyarrow.Schema or a StructType", _columns),
]


#: What a call over a stream returns: a Spark frame of the kind that it was given, or a `pyarrow.Table`.
if TYPE_CHECKING:
    from typing_extensions import TypeVar

    class SparkFrame(Protocol):
        """What tells a Spark DataFrame from other frames, without importing Spark."""

        @property
        def isStreaming(self) -> bool: ...  # noqa: N802 - Spark's name
        @property
        def sparkSession(self) -> Any: ...  # noqa: N802

    Result = TypeVar("Result", default=Any)
    OfSpark = TypeVar("OfSpark", bound=SparkFrame)
else:
    from typing import TypeVar

    Result = TypeVar("Result")


@checked
@dataclass(frozen=True, eq=False, init=False)
class Stream(Generic[Result]):
    """Rows with a key, a time and an uncertain value: a frame, and the roles of its columns.

    Two ``Stream`` objects are two streams, even over one frame.

    Arguments:
    * ``frame``: a Spark DataFrame (batch or streaming); a pyarrow, pandas or Polars table, a Polars LazyFrame, a DuckDB
      relation, or another object that exports an Arrow stream; ``None`` for rows that are pushed.
    * ``key``: the column that names the thing that a row is about.
    * ``time``: a timestamp, date or number column. Numbers are in ``unit``.
    * ``value``: the uncertainty model. A column name is an exact value: of any type for `sensor_join` and `phenomena`,
      else a number, as in ``Exact(name)``.
    * ``existence``: a column of the probability that the row exists, in (0, 1], or `Bursts` of rows that exist or fail
      together.
    * ``partition_by``: columns that split the stream into independent ones.
    * ``lateness``: how late a row may be, compared with the slowest stream of the call: text, a timedelta or seconds.
      It applies to pushed and streamed rows, and so does ``ahead``.
    * ``idle_after``: after this silence, by the time of the others, a stream no longer holds the others back.
    * ``ahead``: a row that is this much later than the wall clock, or than all rows of its stream so far, is a reject
      ``future`` and does not advance time; by default an hour. ``math.inf`` admits every row.
    * ``order``: ``"time"``, or ``"arrival"`` on all inputs: rows are taken in order of arrival, and row windows do not
      wait.
    * ``where``: conditions, as `filter` adds them.
    * ``carry``: columns of any type that are copied into the results: ``left_speed`` and ``right_speed`` of pairs,
      ``speed`` of results about one row.
    * ``name``: the stream's name in results, metrics and messages; by default ``left``, ``right`` and so on.
    * ``motion``: how things move between their readings, for `encounters` and joins of two streams: `Straight`,
      `Velocity` or `Course`.
    * ``change``: a column that says whether a row is added or withdraws an earlier one: ``"add"`` or ``"remove"``, or
      the codes of change streams of Delta and Debezium.
    * ``margin``: a row's own size, a column or a number, at least 0, in the unit of distance. All calls that look for
      partners add the margins of both rows to ``epsilon``.
    * ``schema``: the columns to read, with their types, in Spark's notation (``"id BIGINT, at TIMESTAMP"``), as a
      ``pyarrow.Schema`` or a ``StructType``. A frame without them, or with other types, is refused; nothing is cast. A
      call then does not query Spark Connect for the schema, as Declarative Pipelines require: there the query fails.

    Raises `BadArgument` for a wrong argument.

    >>> import appulse as ap
    >>> ap.Stream(None, key="ship", time="at", value=ap.Position("lat", "lon"), margin="hull_radius").margin
    'hull_radius'
    """

    frame: Any
    key: str
    time: str
    value: Model
    existence: str | Bursts | None
    partition_by: str | Sequence[str] | None
    lateness: Any
    idle_after: Any
    ahead: Any
    order: str
    unit: str
    name: str | None
    where: tuple[str, ...]
    carry: Sequence[str]
    motion: Motion | None
    change: str | None
    margin: str | float
    schema: Any

    @overload
    def __init__(
        self: Stream[OfSpark],
        frame: OfSpark,
        key: Name,
        time: Name,
        value: _GivenModel,
        existence: _Existence | None = None,
        partition_by: Names | None = None,
        lateness: Duration | None = None,
        idle_after: Duration | None = None,
        ahead: Ahead = "1 hour",
        order: Order = "time",
        unit: Unit = "s",
        name: Name | None = None,
        where: Conditions = (),
        carry: Names = (),
        motion: _GivenMotion | None = None,
        change: Name | None = None,
        margin: Margin = 0.0,
        schema: _Columns | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: Stream[pa.Table],
        frame: object,
        key: Name,
        time: Name,
        value: _GivenModel,
        existence: _Existence | None = None,
        partition_by: Names | None = None,
        lateness: Duration | None = None,
        idle_after: Duration | None = None,
        ahead: Ahead = "1 hour",
        order: Order = "time",
        unit: Unit = "s",
        name: Name | None = None,
        where: Conditions = (),
        carry: Names = (),
        motion: _GivenMotion | None = None,
        change: Name | None = None,
        margin: Margin = 0.0,
        schema: _Columns | None = None,
    ) -> None: ...
    def __init__(
        self,
        frame: Any,
        key: Name,
        time: Name,
        value: _GivenModel,
        existence: _Existence | None = None,
        partition_by: Names | None = None,
        lateness: Duration | None = None,
        idle_after: Duration | None = None,
        ahead: Ahead = "1 hour",
        order: Order = "time",
        unit: Unit = "s",
        name: Name | None = None,
        where: Conditions = (),
        carry: Names = (),
        motion: _GivenMotion | None = None,
        change: Name | None = None,
        margin: Margin = 0.0,
        schema: _Columns | None = None,
    ) -> None:
        vars(self).update(
            frame=frame,
            key=key,
            time=time,
            value=value,
            existence=existence,
            partition_by=partition_by or (),
            lateness=lateness,
            idle_after=idle_after,
            ahead=ahead,
            order=order,
            unit=unit,
            name=name,
            where=where,
            carry=carry,
            motion=motion,
            change=change,
            margin=margin,
            schema=schema,
        )

    @property
    def existence_column(self) -> str | None:
        """The column of existence probabilities."""
        return self.existence.column if isinstance(self.existence, Bursts) else self.existence

    @property
    def correlation(self) -> float:
        """Of the existence of consecutive rows; 0 where rows exist independently."""
        return self.existence.correlation if isinstance(self.existence, Bursts) else 0.0

    @property
    def partitions(self) -> tuple[str, ...]:
        """The columns that split the stream, perhaps none."""
        assert isinstance(self.partition_by, tuple)  # noqa: S101 - set when it was made
        return self.partition_by

    @property
    def lateness_micros(self) -> int:
        """Lateness in microseconds; 0 where none was given."""
        return 0 if self.lateness is None else duration(self.lateness, "lateness")

    @property
    def idle_after_micros(self) -> int | None:
        """The silence after which the stream holds no other back, in microseconds; None: never."""
        return None if self.idle_after is None else duration(self.idle_after, "idle_after")

    @property
    def ahead_micros(self) -> int | None:
        """How far a row may be ahead of others, in microseconds; None: any time."""
        return ahead_micros(self.ahead, live=self.frame is None or is_streaming(self.frame))

    def columns(self, *further: str | None) -> list[str]:
        """Every column the stream reads, each once."""
        wanted = [
            self.key,
            self.time,
            *uncertainty.columns(self.value),
            self.existence_column,
            *self.partitions,
            self.change,
            *further,
        ]
        return list(dict.fromkeys(c for c in wanted if c is not None))

    def __repr__(self) -> str:
        given = (f"{name}={value!r}" for name, value in self._said().items())
        return f"Stream({', '.join([self._held(), *given])})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in self._said().items()
        )
        held = "no frame: rows are pushed" if self.frame is None else self._held()
        return f"<table><caption>Stream of {escape(held)}</caption>{rows}</table>"

    def _said(self) -> dict[str, Any]:
        """What was given beside the frame, which may be large."""
        usual = {"ahead": "1 hour", "order": "time", "unit": "s"}
        return {
            name: value
            for name, value in vars(self).items()
            if name != "frame" and value not in (None, (), 0.0) and value != usual.get(name)
        }

    def _held(self) -> str:
        return "None" if self.frame is None else f"<{type(self.frame).__name__}>"


def stream_names(streams: Sequence[Stream]) -> tuple[str, ...]:
    """Names of the streams of a call: ``left, right, s3, ...`` unless they have their own."""
    if len(streams) > 16:
        raise BadArgument(f"A join of {len(streams)} streams: at most 16 are supported.")
    default = ["left", "right", *(f"s{i}" for i in range(3, 17))]
    names = tuple(s.name if s.name is not None else default[i] for i, s in enumerate(streams))
    for name in names:
        if names.count(name) > 1:
            raise BadArgument(f"Two streams are named {name!r}. Give each its own Stream(name=...).")
    return names
