"""A few good rows of plain columns, read in a few calls: what most pushes are.

Reading many rows takes what their values do; of a few it takes what each call of NumPy and Arrow does. Where anything
is out of the ordinary, the general way reads them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from appulse.kernels.few import FewRead, read_rows, texts
from appulse.model.defects import UNDECODED
from appulse.model.objects import Objects
from appulse.model.strings import Bytes
from appulse.model.times import PER_ARROW_UNIT, UNITS
from appulse.model.uncertainty import Exact, Gaussian

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.kernels.arrays import Ints

#: So many rows are few.
FEW = 256
_WORD = 8  # bytes
_WHOLE, _REAL = pa.int64(), pa.float64()
# Beginnings of messages that are known at a time: those of texts say how long these are.
_KNOWN = 1_024


class Layout(NamedTuple):
    """The message in which Arrow writes rows without nulls: how it begins, and where its columns are (8 bytes)."""

    head: bytes
    places: Ints

    @staticmethod
    def of(message: pa.Buffer, schema: pa.Schema, columns: Sequence[int], text: int | None = None) -> Layout | None:
        """That of rows of some length, where these columns have no nulls; the last place is that of a column's text."""
        batch = pa.ipc.read_record_batch(message, schema)
        read = [batch.column(i) for i in columns]
        if any(column.null_count for column in read):
            return None
        buffers = [column.buffers()[1] for column in read]
        if text is not None:
            data = batch.column(text).buffers()[2]
            buffers.append(buffers[0] if data is None else data)
        places = [buffer.address - message.address for buffer in buffers]
        return Layout(message[: min(places)].to_pybytes(), np.array(places) // _WORD)


@dataclass
class FewRows:
    """How rows of one schema are read: all of its columns that are, in order, and none of them is of another type."""

    columns: list[str] | None  # None: all that there are
    schema: pa.Schema
    per: int  # microseconds of one unit of its times, less than 0 where these are no whole numbers
    model: Exact | Gaussian
    reach: float  # of a deviation of 1
    text: int = 0  # bytes of an offset of its keys; 0: they are whole numbers
    layouts: dict[bytes, Ints] = field(default_factory=dict)
    begins: int = 0  # bytes of a message before its columns, as far as is known

    @classmethod
    def of(
        cls, model: Exact | Gaussian, key: str, time: str, unit: str, reach: float, schema: pa.Schema
    ) -> FewRows | None:
        """That of a schema; None where the general way has to read its rows."""
        sigma = model.sigma if isinstance(model, Gaussian) else None
        names = [key, time, *model.columns, *([sigma] if isinstance(sigma, str) else [])]
        fields = [schema.field(name) for name in names]
        per = per_unit(fields[1].type, unit)
        numbers = all(one.type == _REAL for one in fields[2:])
        text = offset_bytes(fields[0].type)
        if not numbers or not (text or fields[0].type == _WHOLE) or not per or UNDECODED in schema.names:
            return None
        return cls(None if names == schema.names else names, pa.schema(fields), per, model, reach, text)

    def message(self, table: pa.Table) -> tuple[pa.Buffer, Ints] | None:
        """The rows as Arrow writes them, and where in that their columns are; None where some may be null."""
        batches = (table if self.columns is None else table.select(self.columns)).to_batches()
        if len(batches) != 1:
            return None
        message = batches[0].serialize()
        places = self.layouts.get(message[: self.begins].to_pybytes())
        if places is None:
            layout = Layout.of(message, self.schema, range(len(self.schema)), 0 if self.text else None)
            if layout is None:
                return None
            if len(self.layouts) == _KNOWN:
                self.layouts.clear()
            self.begins, places = len(layout.head), layout.places
            self.layouts[layout.head] = places
        return message, places

    def read(self, table: pa.Table) -> Objects | None:
        """The rows, if all of them are good."""
        found = self.message(table)
        if found is None:
            return None
        message, places = found
        n = len(table)
        sigma = self.model.sigma if isinstance(self.model, Gaussian) else None
        words, spread = np.frombuffer(message, np.int64), np.empty((n, int(isinstance(sigma, str))))
        key, centre = np.empty(0 if self.text else n, np.uint64), np.empty((n, len(self.model.columns)))
        out = FewRead(np.empty(n, np.int64), key, centre, spread)
        if not read_rows(words, words.view(np.float64), places, self.per, out):
            return None
        keys = texts(words, places, self.text, n) if self.text else (np.arange(n + 1) * _WORD, key.view(np.uint8))
        if isinstance(sigma, float):
            spread = np.full((n, 1), sigma)
        zeros = np.zeros(n)
        return Objects(
            form=self.model.form,
            time=out.time,
            key=Bytes(*keys),
            mass=np.ones(n),
            centre=out.centre,
            spread=spread,
            reach=zeros if sigma is None else self.reach * spread[:, 0],
            radius=zeros,
            covariance=np.empty((n, 0)),
        )


def offset_bytes(kind: pa.DataType) -> int:
    """Bytes of each offset of a column of text; 0 where it is of something else."""
    return 4 if pa.types.is_string(kind) else _WORD if pa.types.is_large_string(kind) else 0


def per_unit(kind: pa.DataType, unit: str) -> int:
    """Microseconds of one unit of times, less than 0 where these are no whole numbers; 0: of some other type."""
    if pa.types.is_timestamp(kind):
        return PER_ARROW_UNIT.get(kind.unit, 0)
    per = UNITS.get(unit, 0)
    return per if kind == _WHOLE else -per if kind == _REAL else 0
