"""Few pairs as a table, written in one go: whole numbers as keys, and pairs of two streams alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from appulse.kernels.few import put_pairs
from appulse.model.few import Layout, per_unit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.operators.answers import Answers

    Side = tuple[NDArray[np.uint64], NDArray[np.int64]]

_SIDES = [f"{side}_{what}" for side in ("left", "right") for what in ("stream", "key", "time")]
_WRITTEN = [1, 2, 4, 5, 6, 7]  # columns that differ from table to table
_TWO = 2


class _Blank(NamedTuple):
    """The message of a table of some length, and where in it its numbers are."""

    message: NDArray[np.uint8]
    places: NDArray[np.int64]


class FewPairs:
    """How pairs of a call become a table, where each has its rows, a distance and a probability, and no more.

    Tables of one length have the same message but for their numbers: these are written into a copy of it.
    """

    def __init__(self, schema: pa.Schema, names: tuple[str, str], per: int) -> None:
        self._schema, self._names, self._per = schema, names, per
        self._blanks: dict[int, _Blank] = {}

    @classmethod
    def of(cls, schema: pa.Schema, names: tuple[str, str], unit: str) -> FewPairs | None:
        """That of two streams, whose times are of a unit; None where their pairs have more to them, or other types."""
        plain = schema.names == [*_SIDES, "distance", "probability"] and schema.field("left_key").type == pa.int64()
        per = per_unit(schema.field("left_time").type, unit) if plain else 0
        return cls(schema, names, per) if per else None

    def table(self, answers: Answers) -> pa.Table:
        """Some pairs as a table."""
        return self.table_of(
            (answers.left_key.data.view(np.uint64), answers.left_time),
            (answers.right_key.data.view(np.uint64), answers.right_time),
            (answers.distance, answers.probability),
        )

    def table_of(self, left: Side, right: Side, figures: tuple[NDArray[np.float64], NDArray[np.float64]]) -> pa.Table:
        """Pairs whose rows have these canonical keys and times, with their distances and probabilities, as a table."""
        n = len(left[0])
        blank = self._blanks.get(n)
        if blank is None:
            self._blanks[n] = blank = self._blank(n)
        message = blank.message.copy()
        put_pairs(*left, *right, *figures, self._per, blank.places, message.view(np.int64))
        batch = pa.ipc.read_record_batch(pa.py_buffer(message), self._schema)
        return pa.Table.from_batches([batch], self._schema)

    def _blank(self, n: int) -> _Blank:
        zeros = pa.array(np.zeros(n, np.int64))
        columns = [
            pa.repeat(self._names[i // 3], n) if pa.types.is_string(field.type) else zeros.cast(field.type)
            for i, field in enumerate(self._schema)
        ]
        message = pa.RecordBatch.from_arrays(columns, schema=self._schema).serialize()
        layout = Layout.of(message, self._schema, _WRITTEN)
        assert layout is not None  # noqa: S101 - no column has nulls
        return _Blank(np.frombuffer(message, np.uint8), layout.places)
