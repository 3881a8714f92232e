"""What every call is: its checked arguments without its frames, so that it travels to workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

import numpy as np

from appulse.model import defects as why
from appulse.model.defects import reject_schema
from appulse.model.meaning import digest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from appulse.engines.arriving import Arrivals
    from appulse.engines.options import CallSettings
    from appulse.kernels.arrays import Ints
    from appulse.model.encoding import Encoding
    from appulse.model.meaning import Meaning
    from appulse.model.readings import ReadingsEncoding
    from appulse.model.stream import Stream
    from appulse.model.strings import Bytes


class Rows(Protocol):
    """A batch of rows of one stream, with their times in microseconds."""

    @property
    def time(self) -> Ints: ...
    def __len__(self) -> int: ...
    def take(self, index: Any) -> Any: ...
    def filter(self, mask: Any) -> Any: ...


Finish = Callable[["pa.Table"], Iterable["pa.Table"]]
R = TypeVar("R", bound=Rows)


@dataclass(frozen=True, kw_only=True)
class Call(Generic[R]):
    """A checked call over streams whose good rows are an ``R``; times are in microseconds, one per stream."""

    lateness: tuple[int, ...] = (0,)
    idle_after: tuple[int | None, ...] = (None,)
    ahead: tuple[int | None, ...] = (None,)
    arrival: bool = False  # rows are taken as they come
    on_reject: str = "collect"
    max_output: int | None = None
    dependent: tuple[str, ...] = ()  # streams whose rows are answers of a join
    chained: bool = False  # rows are answers of another call in the same streaming query

    # --- what an operator says

    @property
    def encodings(self) -> Sequence[Encoding | ReadingsEncoding]:
        """How the columns of each stream are read."""
        raise NotImplementedError

    @property
    def answer_schema(self) -> pa.Schema:
        """Columns of the answers."""
        raise NotImplementedError

    def meaning(self) -> Meaning:
        """What is asked, in plain JSON; settings of speed do not count."""
        raise NotImplementedError

    def encode(self, stream: int, table: pa.Table) -> tuple[R, pa.Table]:
        """The good rows of a stream, and its bad rows as rejects."""
        raise NotImplementedError

    def keys(self, stream: int, rows: R) -> Bytes:
        """The key of each row."""
        raise NotImplementedError

    def timed(self, rows: R) -> R:
        """The first of the rows, that move time on; by default all do."""
        return rows

    def refused(self, stream: int, rows: R, reason: str, details: Sequence[str]) -> pa.Table:
        """Good rows as rejects all the same."""
        raise NotImplementedError

    def columns_of(self, stream: int) -> list[str]:
        """The columns of a stream that are read."""
        return self.encodings[stream].columns()

    def figures(self, stream: int) -> Mapping[str, float]:  # noqa: ARG002 - for subclasses
        """What encoding a micro-batch of a stream adds to the metrics."""
        return {}

    def finishing(self) -> Finish:
        """What makes answers, part by part, of what buckets put out; by default that is what they are."""
        return lambda table: (table,)

    # --- what follows

    @property
    def key_type(self) -> pa.DataType:
        """Of keys among the answers and rejects."""
        return self.encodings[0].key_type

    @property
    def time_type(self) -> pa.DataType:
        """Of times among the answers and rejects."""
        return self.encodings[0].time_type

    @property
    def grouped(self) -> bool:
        """Whether there are groups, so that rows of several go to several buckets."""
        return all(encoding.partition_by for encoding in self.encodings)

    @property
    def known_rejects(self) -> pa.Table | None:
        """Rejects that are known before any row."""
        return None

    @property
    def holds_back(self) -> bool:
        """Whether the end of the streams makes answers that nothing else does."""
        return True

    @property
    def stateful(self) -> bool:
        """Whether rows meet others, and are kept until they have."""
        return True

    @property
    def emits_changes(self) -> bool:
        """Whether answers say which ones come and which go."""
        return False

    @property
    def rejects_for_next(self) -> bool:
        """Whether the call that takes its answers reports its rejects."""
        return False

    @property
    def lag(self) -> int | None:
        """How far (microseconds) an answer's times may be behind those of rows to come; None: any time."""
        return 0

    @property
    def reject_schema(self) -> pa.Schema:
        """Columns of the rejects."""
        return reject_schema(self.key_type, self.time_type)

    def over(self, streams: Sequence[Stream], settings: CallSettings) -> Self:
        """The call with how its streams wait for rows, and with what is asked of every call."""
        return replace(
            self,
            lateness=tuple(stream.lateness_micros for stream in streams),
            idle_after=tuple(stream.idle_after_micros for stream in streams),
            ahead=tuple(stream.ahead_micros for stream in streams),
            on_reject=settings.on_reject,
            max_output=settings.options.max_output,
        )

    def fingerprint(self) -> str:
        """A short text that differs when the meaning of the call does."""
        return digest(self.meaning())

    def late(self, stream: int, rows: R, before: int) -> pa.Table:
        """Rows that came too late, as rejects that say by how much."""
        return self.refused(stream, rows, why.LATE, behind_frontier(rows.time, before))

    def take_in(
        self, stream: int, table: pa.Table, arrivals: Arrivals, now: int | None = None
    ) -> tuple[R, list[pa.Table]]:
        """The good rows of a stream that are not from the future, and rejects for the others.

        ``now`` is the time of the rows' micro-batch; None: this machine's.
        """
        rows, bad = self.encode(stream, table)
        rejects = [bad] if len(bad) else []
        timed = self.timed(rows)
        judged = arrivals.judge(stream, timed.time, self.keys(stream, timed), now)
        if len(judged):
            order = np.argsort(judged.rows)
            details = [judged.details[i] for i in order.tolist()]
            rejects.append(self.refused(stream, rows.take(judged.rows[order]), why.FUTURE, details))
            rows = rows.take(np.setdiff1d(np.arange(len(rows)), judged.rows))
        return rows, rejects


def behind_frontier(time: Ints, frontier: int) -> list[str]:
    """How late each row is."""
    return [f"{s:.6f} seconds behind the slowest stream's frontier" for s in ((frontier - time) / 1e6).tolist()]
