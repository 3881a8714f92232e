"""A few good rows of plain columns, read in a few calls: what most pushes are.

Reading many rows takes what their values do; of a few it takes what each call of NumPy and Arrow does. Where anything
is out of the ordinary, the general way reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from appulse.kernels.few import float_micros, order_words, put_finite, whole_micros
from appulse.model.defects import UNDECODED
from appulse.model.objects import Objects
from appulse.model.strings import Bytes
from appulse.model.strings import encode as canonical
from appulse.model.times import PER_ARROW_UNIT, UNITS
from appulse.model.uncertainty import Exact, Gaussian, Vectors

if TYPE_CHECKING:
    from appulse.model.encoding import Encoding

#: So many rows are few.
FEW = 256
_WORD = 8  # bytes
_WHOLE, _FLOAT = pa.int64(), pa.float64()
_KEYS, _TIMES = (_WHOLE, pa.string()), (_WHOLE, _FLOAT)


@dataclass(frozen=True)
class FewRows:
    """How rows of one schema are read, whose columns are all of plain types: where these are."""

    key: int
    time: int
    per: int  # microseconds of one of its units
    places: tuple[int, ...]
    sigma: int | float | None

    @cached_property
    def columns(self) -> tuple[int, ...]:
        """All columns that are read."""
        sigma = (self.sigma,) if isinstance(self.sigma, int) else ()
        return self.key, self.time, *self.places, *sigma

    @classmethod
    def of(cls, encoding: Encoding, schema: pa.Schema) -> FewRows | None:
        """That of a schema; None where the general way has to read its rows."""
        model = encoding.model
        if not _is_plain(encoding) or UNDECODED in schema.names or not isinstance(model, Exact | Gaussian):
            return None
        sigma = model.sigma if isinstance(model, Gaussian) else None
        columns = [*model.columns, *([sigma] if isinstance(sigma, str) else [])]
        key, time = (schema.field(name).type for name in (encoding.key, encoding.time))
        numbers = all(schema.field(name).type == _FLOAT for name in columns)
        per = PER_ARROW_UNIT.get(time.unit) if pa.types.is_timestamp(time) else UNITS[encoding.unit]
        timed = time in _TIMES or pa.types.is_timestamp(time)
        if not numbers or key not in _KEYS or key != encoding.key_type or not timed or per is None:
            return None
        at = schema.get_field_index
        return cls(
            at(encoding.key),
            at(encoding.time),
            per,
            tuple(map(at, model.columns)),
            at(sigma) if isinstance(sigma, str) else sigma if isinstance(sigma, float) else None,
        )

    def read(self, table: pa.Table, encoding: Encoding) -> Objects | None:
        """The rows, if all of them are good."""
        n = len(table)
        batches = table.to_batches()
        if len(batches) != 1:
            return None
        columns = [batches[0].column(at) for at in self.columns]
        if any([column.null_count for column in columns]):  # noqa: C419 - of so few a list takes less time
            return None
        key, time, *numbers = columns
        micros, whole = np.empty(n, np.int64), time.type != _FLOAT
        given = (time.view(_WHOLE) if whole else time).to_numpy()
        good = (whole_micros if whole else float_micros)(given, self.per, micros)
        centre = np.empty((n, len(self.places)))
        for k in range(len(self.places)):
            good = put_finite(numbers[k].to_numpy(), k, -np.inf, centre) and good
        reach, spread = np.zeros(n), np.empty((n, 0 if self.sigma is None else 1))
        if isinstance(self.sigma, int):
            good = put_finite(numbers[-1].to_numpy(), 0, 0.0, spread) and good
        elif self.sigma is not None:
            spread[:] = self.sigma
        if not good:
            return None
        if encoding.gaussian_reach is not None and self.sigma is not None:
            reach = encoding.gaussian_reach * spread[:, 0]
        return Objects(
            form=encoding.model.form,
            time=micros,
            key=_bytes(key),
            mass=np.ones(n),
            centre=centre,
            spread=spread,
            reach=reach,
            radius=np.zeros(n),
            covariance=np.empty((n, 0)),
        )


def _is_plain(encoding: Encoding) -> bool:
    """Whether rows have a key, a time and a value, and nothing else is read of them."""
    model = encoding.model
    if isinstance(model, Gaussian) and not (model.isotropic and encoding.gaussian_reach is not None):
        return False
    more = (encoding.existence, encoding.differ, encoding.measure, encoding.fill, encoding.motion, encoding.change)
    told = encoding.partition_by or encoding.where or encoding.behind or encoding.tells_filled or encoding.directions
    plain = encoding.units is None and encoding.margin == 0.0 and encoding.unit in UNITS and not encoding.degrees
    return plain and not told and not any(one is not None for one in more) and not isinstance(model, Vectors)


def _bytes(key: pa.Array) -> Bytes:
    """Canonical bytes of keys."""
    if key.type != _WHOLE:
        return canonical(key)
    return Bytes(np.arange(len(key) + 1) * _WORD, order_words(key.to_numpy()).view(np.uint8))
