"""A few good rows of plain columns, read in a few calls: what most pushes are.

Reading many rows takes what their values do; of a few it takes what each call of NumPy and Arrow does. Where anything
is out of the ordinary, the general way reads them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from appulse.kernels.few import FewRead, read_rows
from appulse.model.defects import UNDECODED
from appulse.model.objects import Objects
from appulse.model.strings import Bytes
from appulse.model.times import PER_ARROW_UNIT, UNITS
from appulse.model.uncertainty import Exact, Gaussian

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

#: So many rows are few.
FEW = 256
_WORD = 8  # bytes
_WHOLE, _REAL = pa.int64(), pa.float64()


class Layout(NamedTuple):
    """The message in which Arrow writes rows without nulls: how it begins, and where its columns are (8 bytes)."""

    head: pa.Buffer
    places: NDArray[np.int64]

    @staticmethod
    def of(message: pa.Buffer, schema: pa.Schema, columns: Sequence[int]) -> Layout | None:
        """That of rows of some length, where these columns of eight bytes have no nulls."""
        read = [pa.ipc.read_record_batch(message, schema).column(i) for i in columns]
        if any(column.null_count for column in read):
            return None
        places = [column.buffers()[1].address - message.address for column in read]
        return Layout(message[: min(places)], np.array(places) // _WORD)


@dataclass(frozen=True)
class FewRows:
    """How rows of one schema are read: all of its columns that are, in order, and none of them is of another type."""

    columns: list[str] | None  # None: all that there are
    schema: pa.Schema
    per: int  # microseconds of one unit of its times, less than 0 where these are no whole numbers
    model: Exact | Gaussian
    reach: float  # of a deviation of 1
    layouts: dict[int, Layout] = field(default_factory=dict)

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
        if not numbers or fields[0].type != _WHOLE or not per or UNDECODED in schema.names:
            return None
        return cls(None if names == schema.names else names, pa.schema(fields), per, model, reach)

    def message(self, table: pa.Table) -> tuple[pa.Buffer, NDArray[np.int64]] | None:
        """The rows as Arrow writes them, and where in that their columns are; None where some may be null."""
        batches = (table if self.columns is None else table.select(self.columns)).to_batches()
        if len(batches) != 1:
            return None
        n, message = len(table), batches[0].serialize()
        layout = self.layouts.get(n)
        if layout is None:
            layout = Layout.of(message, self.schema, range(len(self.schema)))
            if layout is None:
                return None
            self.layouts[n] = layout
        return (message, layout.places) if message[: len(layout.head)].equals(layout.head) else None

    def read(self, table: pa.Table) -> Objects | None:
        """The rows, if all of them are good."""
        found = self.message(table)
        if found is None:
            return None
        message, places = found
        n = len(table)
        sigma = self.model.sigma if isinstance(self.model, Gaussian) else None
        words, spread = np.frombuffer(message, np.int64), np.empty((n, 0 if sigma is None else 1))
        out = FewRead(np.empty(n, np.int64), np.empty(n, np.uint64), np.empty((n, len(self.model.columns))), spread)
        if not read_rows(words, words.view(np.float64), places, self.per, out):
            return None
        if isinstance(sigma, float):
            spread[:] = sigma
        zeros = np.zeros(n)
        return Objects(
            form=self.model.form,
            time=out.time,
            key=Bytes(np.arange(n + 1) * _WORD, out.key.view(np.uint8)),
            mass=np.ones(n),
            centre=out.centre,
            spread=spread,
            reach=zeros if sigma is None else self.reach * spread[:, 0],
            radius=zeros,
            covariance=np.empty((n, 0)),
        )


def per_unit(kind: pa.DataType, unit: str) -> int:
    """Microseconds of one unit of times, less than 0 where these are no whole numbers; 0: of some other type."""
    if pa.types.is_timestamp(kind):
        return PER_ARROW_UNIT.get(kind.unit, 0)
    per = UNITS.get(unit, 0)
    return per if kind == _WHOLE else -per if kind == _REAL else 0
