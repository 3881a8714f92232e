"""What engines have to know of a call over readings, and how one is carried out in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from appulse.engines.arriving import Arrivals
from appulse.engines.call import AnyCall
from appulse.errors import bad_rows
from appulse.model import defects as why
from appulse.model.defects import concat_rejects, reject_schema
from appulse.model.readings import check_reading_columns, encode_readings, late_readings, refused_readings
from appulse.operators.waiting import Waiting
from appulse.windows.clock import Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from appulse.model.readings import Readings, ReadingsEncoding
    from appulse.operators.output import Output


class Operator(Protocol):
    """An operator over whole ticks of readings; ``output`` counts the rows of the call, push or task at hand."""

    output: Output

    @property
    def span(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def __len__(self) -> int: ...
    def push(self, parts: Sequence[Readings]) -> Sequence[Any]: ...
    def apply(self, parts: Sequence[Readings]) -> None: ...
    def forget(self, before: int) -> None: ...
    def standing(self) -> dict[str, NDArray[Any]]: ...
    def restore(self, standing: dict[str, NDArray[Any]]) -> None: ...


class ReadingsCall(AnyCall, Protocol):
    """A call of such an operator: what it finds becomes tables, and these, one by one, answers.

    ``stage_output`` is a fresh one to count what the operator finds.
    """

    @property
    def encoding(self) -> ReadingsEncoding: ...
    @property
    def stage_schema(self) -> pa.Schema: ...
    def operator(self) -> Operator: ...
    def tables(self, found: Sequence[Any]) -> Iterable[pa.Table]: ...
    @property
    def stage_output(self) -> Output: ...
    def finishing(self) -> Callable[[pa.Table], Iterable[pa.Table]]: ...


class LocalReadings:
    """A call over readings in process, batch by batch."""

    def __init__(self, call: ReadingsCall) -> None:
        self.call = call
        self.operator = call.operator()
        self._clock = Clock.of(call)
        self._arrivals = Arrivals((call.encoding,), call.ahead)
        self._waiting = Waiting()
        self._rejects: list[pa.Table] = []

    def push(self, table: pa.Table) -> Iterator[pa.Table]:
        """Take in readings; the answers of the ticks that this completes, part by part."""
        self._hold(table)
        complete = self._clock.tick()
        return self._answered([] if complete is None else self._waiting.release(complete))

    def drain(self) -> Iterator[pa.Table]:
        """The readings have ended: the answers of what was held."""
        return self._answered(self._waiting.release())

    def answers(self, table: pa.Table) -> pa.Table:
        """The answers of a whole table."""
        self._hold(table)
        return pa.concat_tables([self.call.answer_schema.empty_table(), *self.drain()])

    def rejects(self) -> pa.Table:
        """Every row that could not be used so far."""
        return concat_rejects(self._rejects, reject_schema(self.call.key_type, self.call.time_type))

    def _hold(self, table: pa.Table) -> None:
        """Take in readings that came in time; they wait for their ticks."""
        encoding = self.call.encoding
        check_reading_columns(encoding, table.schema)
        readings, rejects = encode_readings(table, encoding)
        rejected, came, behind = [rejects], len(readings), 0
        self._arrivals.begin()
        if len(judged := self._arrivals.judge(0, readings.time, readings.sensor)):
            rejected.append(refused_readings(readings.take(judged.rows), why.FUTURE, judged.details, encoding))
            readings = readings.take(np.setdiff1d(np.arange(len(readings)), judged.rows))
        frontier = self._clock.frontier
        if frontier is not None and (readings.time < frontier).any():
            late = readings.time < frontier
            behind = int(late.sum())
            rejected.append(late_readings(readings.take(np.flatnonzero(late)), frontier, encoding))
            readings = readings.take(np.flatnonzero(~late))
        for part in rejected:
            if len(part) and self.call.on_reject == "fail":
                raise bad_rows(len(part), part.slice(0, 1).to_pylist()[0])
        self._rejects += [part for part in rejected if len(part)]
        self._clock.see(0, readings)
        self._arrivals.settle()
        self._arrivals.count(came, behind, self._clock)
        self._waiting.hold(readings)

    def _answered(self, released: list[Readings]) -> Iterator[pa.Table]:
        self.operator.output = self.call.stage_output
        finish = self.call.finishing()
        found = self.operator.push(released)
        return (part for table in self.call.tables(found) for part in finish(table))
