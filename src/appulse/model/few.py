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
from appulse.model.uncertainty import Exact, Gaussian, Vectors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.model.encoding import Encoding

#: So many rows are few.
FEW = 256
_WORD = 8  # bytes
_WHOLE, _REAL = pa.int64(), pa.float64()


class Form(NamedTuple):
    """The message in which Arrow writes rows without nulls: how it begins, and where its columns are (8 bytes)."""

    head: pa.Buffer
    places: NDArray[np.int64]

    @staticmethod
    def of(message: pa.Buffer, schema: pa.Schema, columns: list[int] | range) -> Form | None:
        """That of rows of some length, where these columns of eight bytes have no nulls."""
        read = [pa.ipc.read_record_batch(message, schema).column(i) for i in columns]
        if any(column.null_count for column in read):
            return None
        places = [column.buffers()[1].address - message.address for column in read]
        return Form(message[: min(places)], np.array(places) // _WORD)


@dataclass(frozen=True)
class FewRows:
    """How rows of one schema are read: all of its columns that are, in order, and none of them is of another type."""

    columns: tuple[str, ...] | None  # None: all that there are
    schema: pa.Schema
    per: int  # microseconds of one unit of its times, less than 0 where these are no whole numbers
    d: int
    spread: float | None  # of all rows, where it is no column
    spreads: int  # 1 where there is one
    forms: dict[int, Form] = field(default_factory=dict)

    @classmethod
    def of(cls, encoding: Encoding, schema: pa.Schema) -> FewRows | None:
        """That of a schema; None where the general way has to read its rows."""
        model = encoding.model
        if not _is_plain(encoding) or UNDECODED in schema.names or not isinstance(model, Exact | Gaussian):
            return None
        sigma = model.sigma if isinstance(model, Gaussian) else None
        names = (encoding.key, encoding.time, *model.columns, *([sigma] if isinstance(sigma, str) else []))
        key, time, *numbers = (schema.field(name) for name in names)
        per = per_unit(time.type, encoding.unit)
        others = any(number.type != _REAL for number in numbers) or len(set(names)) < len(names)
        if others or key.type != _WHOLE or key.type != encoding.key_type or not per:
            return None
        columns = None if names == tuple(schema.names) else names
        spread = sigma if isinstance(sigma, float) else None
        return cls(columns, pa.schema([key, time, *numbers]), per, len(model.columns), spread, int(sigma is not None))

    def read(self, table: pa.Table, encoding: Encoding) -> Objects | None:
        """The rows, if all of them are good."""
        batches = (table if self.columns is None else table.select(self.columns)).to_batches()
        if len(batches) != 1:
            return None
        n, message = len(table), batches[0].serialize()
        form = self.forms.get(n)
        if form is None:
            form = Form.of(message, self.schema, range(len(self.schema)))
            if form is None:
                return None
            self.forms[n] = form
        if not message[: len(form.head)].equals(form.head):
            return None
        words, spread = np.frombuffer(message, np.int64), np.empty((n, self.spreads))
        out = FewRead(np.empty(n, np.int64), np.empty(n, np.uint64), np.empty((n, self.d)), spread)
        if not read_rows(words, words.view(np.float64), form.places, self.per, out):
            return None
        if self.spread is not None:
            spread[:] = self.spread
        zeros = np.zeros(n)
        return Objects(
            form=encoding.model.form,
            time=out.time,
            key=Bytes(np.arange(n + 1) * _WORD, out.key.view(np.uint8)),
            mass=np.ones(n),
            centre=out.centre,
            spread=spread,
            reach=(encoding.gaussian_reach or 0.0) * spread[:, 0] if self.spreads else zeros,
            radius=zeros,
            covariance=np.empty((n, 0)),
        )


def per_unit(kind: pa.DataType, unit: str) -> int:
    """Microseconds of one unit of times, less than 0 where these are no whole numbers; 0: of some other type."""
    if pa.types.is_timestamp(kind):
        return PER_ARROW_UNIT.get(kind.unit, 0)
    per = UNITS.get(unit, 0)
    return per if kind == _WHOLE else -per if kind == _REAL else 0


def _is_plain(encoding: Encoding) -> bool:
    """Whether rows have a key, a time and a value, and nothing else is read of them."""
    model = encoding.model
    if isinstance(model, Gaussian) and not (model.isotropic and encoding.gaussian_reach is not None):
        return False
    more = (encoding.existence, encoding.differ, encoding.measure, encoding.fill, encoding.motion, encoding.change)
    told = encoding.partition_by or encoding.where or encoding.behind or encoding.tells_filled or encoding.directions
    plain = encoding.units is None and encoding.margin == 0.0 and not encoding.degrees
    return plain and not told and not any(one is not None for one in more) and not isinstance(model, Vectors)
