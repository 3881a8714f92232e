"""Calls in this process: one bucket, without a log, push by push."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic

import pyarrow as pa

from appulse.engines.arriving import Arrivals
from appulse.engines.base import R
from appulse.engines.bucket import fail_if_asked
from appulse.errors import BadArgument, report_capped
from appulse.model.columns import arrow_table
from appulse.model.defects import concat_rejects
from appulse.model.geography import with_points
from appulse.model.workers import Workers
from appulse.windows.future import wall_clock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from appulse.engines.base import Call
    from appulse.engines.bucket import Bucket

# Rows of a push from which on its streams are encoded side by side.
_MANY_ROWS = 1 << 15


def as_table(frame: Any, what: str = "A stream's frame") -> pa.Table:
    """Any frame of this process as an Arrow table, in plain types; errors name ``what`` it is."""
    table = arrow_table(with_points(frame))
    if table is None:
        kind = frame if isinstance(frame, type) else type(frame)
        named = f"{'the class' if kind is frame else 'a'} {kind.__module__}.{kind.__name__}"
        raise BadArgument(
            f"{what} is {named}. Give a Spark DataFrame, a pyarrow, pandas or Polars table, a DuckDB "
            "relation, or another object that exports an Arrow stream; a RecordBatchReader to stream_batches()."
            f"{_how_to_read(frame)}"
        )
    return table


def _how_to_read(frame: Any) -> str:
    """How what is no frame, but leads to one, becomes one."""
    if hasattr(frame, "to_table"):  # a data set of pyarrow
        return " Here: its to_table()."
    if isinstance(frame, pa.RecordBatchReader):  # as `arrow()` of DuckDB gives
        return " Here: its read_all()."
    if isinstance(frame, str | PathLike):
        return " Read the file first, as with polars.scan_parquet(path)."
    if isinstance(frame, dict):
        return " Make a table: pyarrow.table(columns)."
    if isinstance(frame, Iterator | list):
        return " Make a table: of Arrow's batches by pyarrow.Table.from_batches, of dicts by pyarrow.Table.from_pylist."
    if hasattr(frame, "sql") and not isinstance(frame, type):  # a connection of DuckDB, as of its execute()
        return " Here: what its sql() gives."
    return ""


class Local(Generic[R]):
    """A call in process: tables of rows in, answers out."""

    def __init__(self, bucket: Bucket[R]) -> None:
        self.bucket = bucket
        self.arrivals = Arrivals(bucket.call.encodings, bucket.call.ahead)
        self._rejects: list[pa.Table] = []

    @property
    def call(self) -> Call[R]:
        """What was called."""
        return self.bucket.call

    def push(self, tables: Mapping[str, pa.Table]) -> pa.Table:
        """Take in rows by stream name; the answers they complete. What raises has changed nothing."""
        self._admit(tables)
        return self._advance(None)

    def drain(self) -> pa.Table:
        """The streams have ended: the answers of what was held."""
        self.bucket.admit([])
        return self._advance(self.bucket.clock.now or 0)

    def answers(self, tables: Mapping[str, pa.Table]) -> pa.Table:
        """The answers of whole streams."""
        self._admit(tables)
        return self._advance(self.bucket.clock.now or 0)

    def rejects(self) -> pa.Table:
        """All rows so far that could not be used."""
        return concat_rejects(self._rejects, self.call.reject_schema)

    def take_rejects(self) -> pa.Table:
        """The rows that could not be used since the last call; they are not kept."""
        found = self.rejects()
        self._rejects.clear()
        return found

    def counted(self) -> dict[str, int]:
        """What the last step counted: candidates, and which test decided about them."""
        return dict(self.bucket.counts)

    def observed(self) -> Call[R]:
        """The call, with what it did so far where that is known."""
        return self.call

    def _admit(self, tables: Mapping[str, pa.Table]) -> None:
        """Take in rows; nothing is kept before all of it is known to be good."""
        call = self.call
        self.arrivals.begin()
        given = [(i, tables[e.name]) for i, e in enumerate(call.encodings) if e.name in tables]
        many = sum(len(table) for _, table in given) >= _MANY_ROWS
        workers = self.bucket.workers if many else Workers()
        now = wall_clock()  # here, for a clock is held for one thread
        taken = workers.map(lambda one: call.take_in(*one, self.arrivals, now), given)
        batches = [(i, rows) for (i, _), (rows, _) in zip(given, taken, strict=True)]
        rejected = [table for _, bad in taken for table in bad]
        fail_if_asked(call, rejected)
        self.bucket.admit(batches)
        self._rejects += [*rejected, *self.bucket.rejected]
        self.bucket.rejected = []
        self.arrivals.settle()
        for i, rows in batches:
            if i in self.arrivals.unseen:
                self.arrivals.look(i, call.timed(rows).time)
        came = sum(len(rows) for _, rows in batches)
        self.arrivals.count(came, self.bucket.counts["late"], self.bucket.clock)

    def _advance(self, ended: int | None) -> pa.Table:
        found = self.bucket.advance(None, ended)
        self._rejects += [table for table in self.bucket.rejected if len(table)]
        report_capped(self.bucket.counts["capped"])
        finish = self.call.finishing()
        parts = [part for table in found for part in finish(table)]
        return parts[0] if len(parts) == 1 else pa.concat_tables([self.call.answer_schema.empty_table(), *parts])
