"""Few pairs as a table: whole numbers as keys, and pairs of two streams alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from appulse.kernels.few import float_times, whole_numbers
from appulse.model.times import UNITS, from_micros

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.engines.join.call import JoinCall
    from appulse.operators.answers import Answers

_NAMES = [f"{side}_{what}" for side in ("left", "right") for what in ("stream", "key", "time")]
_TWO = 2


class FewPairs:
    """How pairs of a call become a table, where each has its rows, a distance and a probability, and no more."""

    def __init__(self, call: JoinCall) -> None:
        self._call, self._schema = call, call.answer_schema
        self._seconds = call.time_type == pa.float64() and call.units[0] in UNITS
        self._per = float(UNITS.get(call.units[0], 1))

    @classmethod
    def of(cls, call: JoinCall) -> FewPairs | None:
        """That of a call; None where its answers have more to them."""
        plain = call.answer_schema.names == [*_NAMES, "distance", "probability"] and call.key_type == pa.int64()
        two = len(call.streams) == _TWO and not call.plan.self_join and len(set(call.units)) == 1
        told_apart = call.encodings[0].told_apart or call.cosine is not None
        return cls(call) if plain and two and not told_apart else None

    def table(self, answers: Answers) -> pa.Table:
        """Some pairs as a table."""
        n, call = len(answers.distance), self._call
        columns = [
            call.repeated(0, n),
            pa.array(whole_numbers(answers.left_key.data.view(np.uint64))),
            self._times(answers.left_time),
            call.repeated(1, n),
            pa.array(whole_numbers(answers.right_key.data.view(np.uint64))),
            self._times(answers.right_time),
            pa.array(answers.distance),
            pa.array(answers.probability, from_pandas=True),
        ]
        return pa.Table.from_arrays(columns, schema=self._schema)

    def _times(self, micros: NDArray[np.int64]) -> pa.Array:
        if self._seconds:
            return pa.array(float_times(micros, self._per))
        return from_micros(micros, self._call.time_type, self._call.units[0])
