"""What the pushes of one stream have in common: the types of its columns, which are those of the first that had any."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from appulse.errors import BadArgument
from appulse.model.columns import decoded_type
from appulse.model.times import is_number, is_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class FirstTypes:
    """The types of some columns of a stream, each known from the first push in which the column had one."""

    def __init__(self, stream: str, columns: Iterable[str], kinds: Mapping[str, pa.DataType] | None = None) -> None:
        self._stream = stream
        self._columns = tuple(dict.fromkeys(columns))
        self._kinds = dict(kinds or {})
        self._fits: pa.Schema | None = None  # the columns of the latest push that had these types

    def knows(self, columns: Iterable[str]) -> bool:
        """Whether all of these have a type."""
        return all(column in self._kinds for column in columns)

    def of(self, column: str) -> pa.DataType | None:
        """The type of a column, once it has one."""
        return self._kinds.get(column)

    def and_rather(self, kinds: Mapping[str, pa.DataType]) -> FirstTypes:
        """These, and for columns without a type one of ``kinds``."""
        return FirstTypes(self._stream, self._columns, dict(kinds) | self._kinds)

    def and_those_of(self, schema: pa.Schema) -> FirstTypes:
        """These, and for columns without a type those of a further push."""
        if self.knows(self._columns):
            return self
        more = {name: decoded_type(schema.field(name).type) for name in self._columns if schema.names.count(name) == 1}
        more = {name: kind for name, kind in more.items() if not pa.types.is_null(kind)}
        return FirstTypes(self._stream, self._columns, more | self._kinds)

    def fit(self, table: pa.Table) -> pa.Table:
        """A push in these types; `BadArgument` where its values do not fit them."""
        if table.schema == self._fits:
            return table
        found = fitted(table, self._kinds, f" of {self._stream}")
        self._fits = table.schema if found is table else None
        return found


def fitted(table: pa.Table, kinds: Mapping[str, pa.DataType], whose: str = "") -> pa.Table:
    """The table with columns in the types of earlier pushes; `BadArgument` where that would change a value."""
    for name, kind in kinds.items():
        at = table.schema.get_field_index(name)
        if at < 0 or table.schema.field(at).type == kind or decoded_type(table.schema.field(at).type) == kind:
            continue
        given = table.schema.field(at).type
        try:
            column = _cast(table.column(at), kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise BadArgument(
                f"Column {name!r}{whose} was {kind} in earlier pushes and is {given}: {error}. Cast it before the push."
            ) from None
        table = table.set_column(at, name, column)
    return table


def schema_of(pushes: Sequence[pa.Table]) -> pa.Schema:
    """The columns of the first of some pushes; those that have no type there have that of a later one."""

    def typed(field: pa.Field) -> pa.Field:
        others = [push.schema.field(field.name) for push in pushes if push.schema.names.count(field.name) == 1]
        return next((other for other in others if not pa.types.is_null(other.type)), field)

    return pa.schema([typed(field) for field in pushes[0].schema])


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """The same values in another type."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    given = column.type
    if pa.types.is_null(given):
        return column.cast(kind)
    if _family(given) != _family(decoded_type(kind)) and _family(decoded_type(kind)) != "text":
        raise pa.ArrowInvalid(f"{given} is no {kind}")
    cast = column.cast(kind)
    # Arrow says so where it cuts whole numbers and times, and rounds other numbers, and times to dates, in silence.
    back = cast.cast(given, safe=False)
    if not back.equals(column) and not _equal(back, column):
        raise pa.ArrowInvalid("values would be rounded")
    return cast


def _equal(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    """Whether numbers are the same, NaN among them."""
    if not pa.types.is_floating(one.type):
        return False
    a, b = (np.asarray(column.cast(pa.float64()).fill_null(0.0)) for column in (one, other))
    return bool(pc.all(pc.equal(one.is_null(), other.is_null())).as_py()) and np.array_equal(a, b, equal_nan=True)


def _family(kind: pa.DataType) -> str:
    if is_number(kind):
        return "number"
    if is_time(kind):
        return "time"
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    return "text" if text else "other"
