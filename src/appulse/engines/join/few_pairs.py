"""Few pairs as a table, written in one go: whole numbers or texts as keys, and pairs of two streams alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from appulse.kernels.few import put_pairs
from appulse.model.few import Layout, offset_bytes, per_unit
from appulse.model.strings import decode
from appulse.operators.few_points import FewPairsFound

if TYPE_CHECKING:
    from appulse.kernels.arrays import ByteArray, Ints
    from appulse.operators.answers import Answers

_SIDES = [f"{side}_{what}" for side in ("left", "right") for what in ("stream", "key", "time")]
_WRITTEN = [1, 2, 4, 5, 6, 7]  # columns that differ from table to table
_KEYS = (1, 4)
_TWO = 2


class _Blank(NamedTuple):
    """The message of a table of some length, and where in it its numbers are."""

    message: ByteArray
    places: Ints


class FewPairs:
    """How pairs of a call become a table, where each has its rows, a distance and a probability, and no more.

    Tables of one length have the same message but for their numbers: these are written into a copy of it. Texts are put
    beside it, in place of numbers; ``text`` is how many bytes each of their offsets has.
    """

    def __init__(self, schema: pa.Schema, names: tuple[str, str], per: int, text: int) -> None:
        self._schema, self._names, self._per, self.text = schema, names, per, text
        self._written = schema
        for i in _KEYS if text else ():
            self._written = self._written.set(i, schema.field(i).with_type(pa.int64()))
        self._blanks: dict[int, _Blank] = {}

    @classmethod
    def of(cls, schema: pa.Schema, names: tuple[str, str], unit: str) -> FewPairs | None:
        """That of two streams, whose times are of a unit; None where their pairs have more to them, or other types."""
        if schema.names != [*_SIDES, "distance", "probability"]:
            return None
        key, per = schema.field("left_key").type, per_unit(schema.field("left_time").type, unit)
        text = offset_bytes(key)
        return cls(schema, names, per, text) if per and (text or key == pa.int64()) else None

    def table(self, answers: Answers) -> pa.Table:
        """Some pairs as a table."""
        n, keys = len(answers), (answers.left_key, answers.right_key)
        words, figures = np.zeros((4, n), np.uint64), np.stack((answers.distance, answers.probability))
        times = words.view(np.int64)
        times[1], times[3] = answers.left_time, answers.right_time
        if self.text:
            return self.table_of(FewPairsFound(n, words, figures, keys))
        for side, key in zip((0, 2), keys, strict=True):
            words[side] = key.data.view(np.uint64)
        return self.table_of(FewPairsFound(n, words, figures, None))

    def table_of(self, pairs: FewPairsFound) -> pa.Table:
        """Pairs as a table."""
        n = pairs.many
        blank = self._blanks.get(n)
        if blank is None:
            self._blanks[n] = blank = self._blank(n)
        message = blank.message.copy()
        put_pairs(n, pairs.words, pairs.figures, self._per, blank.places, message.view(np.int64))
        batch = pa.ipc.read_record_batch(pa.py_buffer(message), self._written)
        if pairs.texts is None:
            return pa.Table.from_batches([batch], self._schema)
        columns = batch.columns
        for i, keys in zip(_KEYS, pairs.texts, strict=True):
            columns[i] = decode(keys, self._schema.field(i).type)
        return pa.Table.from_arrays(columns, schema=self._schema)

    def _blank(self, n: int) -> _Blank:
        zeros = pa.array(np.zeros(n, np.int64))
        columns = [
            pa.repeat(self._names[i // 3], n) if pa.types.is_string(field.type) else zeros.cast(field.type)
            for i, field in enumerate(self._written)
        ]
        message = pa.RecordBatch.from_arrays(columns, schema=self._written).serialize()
        layout = Layout.of(message, self._written, _WRITTEN)
        assert layout is not None  # noqa: S101 - no column has nulls
        return _Blank(np.frombuffer(message, np.uint8), layout.places)
