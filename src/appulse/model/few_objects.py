"""Which tables of a stream are read as a few rows, looked at once a schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

from appulse.model.few import FEW, FewRows
from appulse.model.uncertainty import Exact, Form, Gaussian, Vectors

if TYPE_CHECKING:
    import pyarrow as pa

    from appulse.model.encoding import Encoding
    from appulse.model.objects import Objects


def few_objects(table: pa.Table, encoding: Encoding) -> Objects | None:
    """Objects of a few rows that are plain and good; None where the general way has to read them."""
    if not 0 < len(table) <= FEW:
        return None
    seen = encoding.seen
    if seen.short != table.schema:
        seen.short, seen.few = table.schema, _rows_of(table.schema, encoding)
    return None if seen.few is None else seen.few.read(table)


def _rows_of(schema: pa.Schema, encoding: Encoding) -> FewRows | None:
    """How few rows are read, where they have a key, a time and a value, and nothing else is asked of them."""
    model, reach = encoding.model, encoding.gaussian_reach
    if not encoding.bare or schema.field(encoding.key).type != encoding.key_type:
        return None
    if not isinstance(model, Exact | Gaussian) or isinstance(model, Vectors):
        return None
    normal = isinstance(model, Gaussian) and model.isotropic and reach is not None
    if model.form != Form.POINT and not normal:
        return None
    return FewRows.of(model, encoding.key, encoding.time, encoding.unit, reach or 0.0, schema)
