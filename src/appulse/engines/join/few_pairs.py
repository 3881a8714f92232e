"""Few pairs as a table, written in one go: whole numbers as keys, and pairs of two streams alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from appulse.kernels.few import put_pairs
from appulse.model.times import PER_ARROW_UNIT, UNITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.engines.join.call import JoinCall
    from appulse.operators.answers import Answers

_SIDES = [f"{side}_{what}" for side in ("left", "right") for what in ("stream", "key", "time")]
_WRITTEN = (1, 2, 4, 5, 6, 7)  # columns that differ from table to table
_TWO = 2
_WORD = 8  # bytes


class _Form(NamedTuple):
    """The message of a table of some length, as Arrow writes it, and where in it the columns are (8 bytes)."""

    message: NDArray[np.uint8]
    places: NDArray[np.int64]


class FewPairs:
    """How pairs of a call become a table, where each has its rows, a distance and a probability, and no more.

    Tables of one length have the same message but for their numbers: these are written into a copy of it.
    """

    def __init__(self, call: JoinCall, per: int) -> None:
        self._call, self._schema, self._per = call, call.answer_schema, per
        self._forms: dict[int, _Form] = {}

    @classmethod
    def of(cls, call: JoinCall) -> FewPairs | None:
        """That of a call; None where its answers have more to them, or other types."""
        plain = call.answer_schema.names == [*_SIDES, "distance", "probability"] and call.key_type == pa.int64()
        two = len(call.streams) == _TWO and not call.plan.self_join and len(set(call.units)) == 1
        more = call.encodings[0].told_apart or call.cosine is not None
        per = _per(call.time_type, call.units[0])
        return cls(call, per) if plain and two and not more and per else None

    def table(self, answers: Answers) -> pa.Table:
        """Some pairs as a table."""
        n = len(answers.distance)
        form = self._forms.get(n)
        if form is None:
            self._forms[n] = form = self._form(n)
        message = form.message.copy()
        sides = (
            (answers.left_key.data.view(np.uint64), answers.left_time),
            (answers.right_key.data.view(np.uint64), answers.right_time),
        )
        figures = answers.distance, answers.probability
        put_pairs(sides, figures, self._per, form.places, message.view(np.int64), message.view(np.float64))
        batch = pa.ipc.read_record_batch(pa.py_buffer(message), self._schema)
        return pa.Table.from_batches([batch], self._schema)

    def _form(self, n: int) -> _Form:
        zeros = pa.array(np.zeros(n, np.int64))
        columns = [
            self._call.repeated(i // 3, n) if i in (0, 3) else zeros.cast(field.type)
            for i, field in enumerate(self._schema)
        ]
        message = pa.RecordBatch.from_arrays(columns, schema=self._schema).serialize()
        read = pa.ipc.read_record_batch(message, self._schema)
        places = [(read.column(i).buffers()[1].address - message.address) // _WORD for i in _WRITTEN]
        return _Form(np.frombuffer(message, np.uint8), np.array(places))


def _per(kind: pa.DataType, unit: str) -> int:
    """Microseconds of one unit of times, less than 0 where these are no whole numbers; 0: of some other type."""
    if pa.types.is_timestamp(kind):
        return PER_ARROW_UNIT.get(kind.unit, 0)
    per = UNITS.get(unit, 0)
    return per if kind == pa.int64() else -per if kind == pa.float64() else 0
