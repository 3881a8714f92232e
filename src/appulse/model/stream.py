"""A stream: a frame, and which of its columns mean what."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from appulse.errors import BadArgument, nearest
from appulse.model import uncertainty
from appulse.model.times import UNITS, duration
from appulse.model.uncertainty import Ball, Exact, Gaussian, Incomplete, Model, Samples

if TYPE_CHECKING:
    from collections.abc import Sequence

ORDERS = ("time", "arrival")
_AHEAD = "1 hour"


def ahead_micros(ahead: float | str | None, *, live: bool) -> int | None:
    """How far rows may be ahead of others, in microseconds; None: any time, as where rows are not ``live``."""
    unlimited = isinstance(ahead, float) and math.isinf(ahead) and ahead > 0.0
    micros = None if unlimited else duration(_AHEAD if ahead is None else ahead, "ahead")
    return micros if live else None


@dataclass(frozen=True, eq=False)
class Stream:
    """Rows of uncertain objects in time.

    ``frame`` is a Spark DataFrame (batch or streaming), or a pyarrow, pandas or Polars table; ``None`` where rows
    are pushed by hand. ``key`` names the column that identifies a row to the user, ``time`` a timestamp, date or
    number column (numbers in ``unit``), ``value`` the uncertainty model. ``existence`` is a column in (0, 1];
    ``partition_by`` columns split the stream into independent ones. ``lateness`` says how late a row may be,
    against the slowest stream of the call; a stream silent for ``idle_after`` (by the time of the others) holds them
    back no longer. A row more than ``ahead`` past the wall clock, or past the newest row of every other key of its
    stream, is a reject ``future`` and moves no time on; ``math.inf`` admits every row. It counts, as does lateness,
    where rows are pushed or streamed. With ``order="arrival"``, on all inputs, rows are taken as they come: windows
    that go by rows then wait for nothing. ``where`` holds conditions, which `filter` adds. Two ``Stream`` objects are
    two streams, even over one frame.
    """

    frame: Any
    key: str
    time: str
    value: Model
    existence: str | None = None
    partition_by: Sequence[str] | str | None = None
    lateness: float | str | None = None
    idle_after: float | str | None = None
    ahead: float | str | None = _AHEAD
    order: str = "time"
    unit: str = "s"
    name: str | None = None
    where: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.value, Exact | Samples | Gaussian | Ball | Incomplete):
            raise BadArgument(
                f"Stream(value={self.value!r}) is no uncertainty model. Give Exact, Samples, Gaussian, Ball or "
                "Incomplete, e.g. value=ap.Gaussian('x', 'y', sigma=15.0)."
            )
        for what in ("key", "time"):
            if not isinstance(getattr(self, what), str):
                raise BadArgument(f"Stream({what}={getattr(self, what)!r}): give a column name.")
        if self.order not in ORDERS:
            raise BadArgument(f"Stream(order={self.order!r}).{nearest(str(self.order), ORDERS)}")
        if self.unit not in (*UNITS, "ns"):
            raise BadArgument(f"Stream(unit={self.unit!r}).{nearest(str(self.unit), (*UNITS, 'ns'))}")
        by = (self.partition_by,) if isinstance(self.partition_by, str) else tuple(self.partition_by or ())
        object.__setattr__(self, "partition_by", by)
        for what in ("lateness", "idle_after"):
            if getattr(self, what) is not None:
                duration(getattr(self, what), what)
        ahead_micros(self.ahead, live=False)

    @property
    def partitions(self) -> tuple[str, ...]:
        """The columns that split the stream, perhaps none."""
        assert isinstance(self.partition_by, tuple)  # noqa: S101 - set in __post_init__
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
        return ahead_micros(self.ahead, live=self.frame is None or bool(getattr(self.frame, "isStreaming", False)))

    def columns(self, *further: str | None) -> list[str]:
        """Every column the stream reads, each once."""
        wanted = [self.key, self.time, *uncertainty.columns(self.value), self.existence, *self.partitions, *further]
        return list(dict.fromkeys(c for c in wanted if c is not None))
