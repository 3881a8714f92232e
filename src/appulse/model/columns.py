"""Columns of a user's table: as one array, as numbers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from appulse.arguments import shown
from appulse.errors import BadArgument, nearest, shown_scalar
from appulse.model.room import room

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from appulse.kernels.arrays import Flags, Floats, Ints

#: What Arrow calls an index of pandas that has no name.
_INDEX = re.compile(r"__index_level_\d+__")

# A double holds each whole number of so many digits, and ten to powers up to this.
_EXACT_DIGITS, _EXACT_POWER = 15, 22


def chunk(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return (
        column.chunk(0)
        if column.num_chunks == 1
        else pa.concat_arrays(column.chunks)
        if column.num_chunks
        else (pa.array([], column.type))
    )


def single_digits(column: pa.Array) -> list[str]:
    """Numbers in single precision, with no more digits than distinguish them from others; nulls as 0."""
    texts: list[str] = np.asarray(column.cast(pa.float32()).fill_null(0.0)).astype(str).tolist()
    return texts


def as_array(values: Sequence[Any], kind: pa.DataType | None, wrong: str) -> pa.Array:
    """What a user gave as a column of a type; a `BadArgument` that says what is ``wrong`` where Arrow cannot."""
    try:
        return pa.array(values, kind)
    except Exception as error:  # noqa: BLE001 - values of any type, and Arrow's errors are of many
        raise BadArgument(f"{wrong} ({type(error).__name__}: {error})") from None


def column(table: pa.Table, name: str, what: str) -> pa.Array:
    """A column of a user's frame; `BadArgument` if there is none."""
    if name not in table.column_names:
        raise BadArgument(f"{what} have no column {shown(name)}.{nearest(name, table.column_names)}")
    return chunk(table[name])


def number_column(table: pa.Table, name: str, what: str) -> Floats:
    """A column of numbers of a user's frame, null as NaN; `BadArgument` if it is none."""
    found = column(table, name, what)
    if not is_numeric(found.type):
        raise BadArgument(f"Column {shown(name)} of the {what.lower()} is {found.type}. Give numbers.")
    return floats(found)


def floats(column: pa.ChunkedArray | pa.Array) -> Floats:
    """As float64, null as NaN."""
    array = chunk(column)
    if array.type.id == _FLOAT64 and array.null_count == 0:
        return _numbers(array)
    if pa.types.is_null(array.type):
        return np.full(len(array), np.nan)
    if pa.types.is_decimal(array.type):
        return _decimals(array)
    if not pa.types.is_float64(array.type):
        array = array.cast(pa.float64(), safe=False)
    return np.asarray(array.to_numpy(zero_copy_only=False), np.float64)


def rows_of(columns: Sequence[Floats]) -> tuple[Floats, bool]:
    """Columns as rows (n, d), and whether all of them are finite."""
    from appulse.kernels.centres import pairs, triples  # Numba takes long to import

    rows = room((len(columns[0]), len(columns)))
    if len(columns) in (2, 3):
        write: Callable[..., bool] = pairs if len(columns) == 2 else triples
        return rows, write(*columns, rows)
    for k, column in enumerate(columns):
        rows[:, k] = column
    return rows, bool(np.isfinite(rows).all())


def _decimals(array: pa.Array) -> Floats:
    """The nearest float64 of each decimal, null as NaN; Arrow's own cast is off by a bit in one of eight."""
    scale = array.type.scale
    if array.type.precision <= _EXACT_DIGITS and 0 <= scale <= _EXACT_POWER:
        whole = array.cast(pa.decimal128(array.type.precision, scale)).fill_null(0)
        words = np.frombuffer(whole.buffers()[1], np.int64)[2 * whole.offset :: 2][: len(whole)]
        return np.where(nulls(array), np.nan, words / 10.0**scale)
    return np.asarray(array.cast(pa.string()).cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)


def _numbers(array: pa.Array) -> NDArray[Any]:
    """Numbers without nulls, where they are."""
    found: NDArray[Any] = array.to_numpy()
    return found


def held(table: pa.Table, name: str, rows: Ints) -> list[str]:
    """What a column holds in some rows, as text: what is null is not nan."""
    there = chunk(table[name]).take(pa.array(rows))
    try:
        values = there.to_pylist()
    except (OverflowError, ValueError):  # times that Python has no object for
        values = [shown_scalar(value) for value in there]
    return ["null" if value is None else str(value) for value in values]


def nulls(column: pa.ChunkedArray | pa.Array) -> Flags:
    """Where a column is null."""
    array = chunk(column)
    if array.null_count == 0 and array.type.id in _PLAIN:  # values of other types may be null in their parts
        return np.zeros(len(array), bool)
    return np.asarray(array.is_null())


def without_nulls(array: pa.Array) -> NDArray[Any]:
    """Numbers, 0 for null."""
    return np.asarray(array.fill_null(0)) if array.null_count else _numbers(array)


def lengths(lists: pa.Array) -> Ints:
    """How many values each list has, 0 for null."""
    if pa.types.is_null(lists.type):
        return np.zeros(len(lists), np.int64)
    return without_nulls(pc.list_value_length(lists)).astype(np.int64)


def is_numeric(kind: pa.DataType) -> bool:
    """Whether a column of this type holds numbers, or nothing at all."""
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)
    )


def arrow_table(frame: Any) -> pa.Table | None:
    """A pyarrow, pandas, Polars or DuckDB frame as a table of `plain_types`; None for anything else.

    So is what exports an Arrow stream; a reader is not, since it is empty when it is read a second time. Raises
    `BadArgument` for a frame that Arrow cannot hold.
    """
    if isinstance(frame, pa.Table):
        return plain_types(_without_index(frame))
    if isinstance(frame, pa.RecordBatch):
        return plain_types(pa.Table.from_batches([frame]))
    if isinstance(frame, type):  # a class of frames has what a frame has
        return None
    try:
        known = nw.from_native(frame)
    except TypeError:
        return _exported(frame)
    except nw.exceptions.DuplicateError:
        raise _repeated(frame) from None
    if isinstance(known, nw.LazyFrame):
        if known.implementation.is_spark_like():
            return None
        known = known.collect("pyarrow")
    _refuse_strange(known)
    try:
        return plain_types(_without_index(known.to_arrow()))
    except nw.exceptions.DuplicateError:
        raise _repeated(frame) from None
    except (pa.ArrowException, nw.exceptions.NarwhalsError, TypeError, ValueError, OverflowError) as error:
        raise _inconvertible(known, error) from None


def _refuse_strange(frame: Any) -> None:
    """Raise `BadArgument` for columns without a name, and for those of Polars that Arrow gets the addresses of."""
    for name in frame.columns:
        if not isinstance(name, str):
            raise BadArgument(
                f"The frame has a column labelled {name!r}, and columns are named by text. Rename its columns, in "
                "pandas: frame.columns = frame.columns.map(str)."
            )
    for name, kind in frame.schema.items() if frame.implementation.is_polars() else ():
        if kind == nw.Object:
            raise BadArgument(f"Arrow cannot hold column {name!r}, which is {kind}. Cast it before the call.")


def _without_index(table: pa.Table) -> pa.Table:
    """A table of pandas without an index that has no name: every filter, sort and concatenation leaves one."""
    if b"pandas" not in (table.schema.metadata or {}):  # then it is a column like others
        return table
    made = [name for name in table.column_names if _INDEX.fullmatch(name)]
    return table.drop_columns(made) if made else table


def _exported(frame: Any) -> pa.Table | None:
    """The table of a frame that exports an Arrow stream, if it is one of rows and can be read again."""
    if isinstance(frame, pa.RecordBatchReader) or not hasattr(frame, "__arrow_c_stream__"):
        return None
    try:
        return plain_types(pa.table(frame))
    except (pa.ArrowException, TypeError, ValueError):  # such as a stream of one column
        return None


def _repeated(frame: Any) -> BadArgument:
    names = list(frame.columns)
    repeated = next(name for name in names if names.count(name) > 1)
    return BadArgument(f"The frame has several columns {repeated!r}. Rename all but one.")


def _inconvertible(frame: Any, error: Exception) -> BadArgument:
    """Names the first column that Arrow cannot hold."""
    for name in frame.columns:
        try:
            frame.select(name).to_arrow()
        except Exception as own:  # noqa: BLE001 - whatever it is, this is the column
            return BadArgument(
                f"Arrow cannot hold column {name!r}, which is {frame.schema[name]}: {own}. Cast it before the call: "
                "wide integers to 64 bits or decimals, arrays in cells to lists (of lists), mixed objects to one type. "
                "Or leave it out, if the call does not use it."
            )
    return BadArgument(f"Arrow cannot hold the frame: {error}. Cast its columns before the call.")


_FLOAT64 = pa.float64().id
# Types that are plain whatever their parameters, as most columns are.
_PLAIN = frozenset(
    kind.id
    for kind in (
        *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float16(), pa.float32(), pa.float64(), pa.string(), pa.large_string(), pa.binary(), pa.large_binary()),
        *(pa.date32(), pa.date64(), pa.timestamp("us"), pa.null()),
    )
)


def plain_values(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array of its values, where they are in a dictionary."""
    values = chunk(column)
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def plain_types(table: pa.Table) -> pa.Table:
    """A table in types for which Arrow has every function that calls need.

    Views become plain text, bytes and lists, decimals of 32 and 64 bits those of 128, and runs single values; so do
    dictionaries, but those of text and bytes.
    """
    for i, given in enumerate(table.schema.types):
        if given.id in _PLAIN:
            continue
        field = table.schema.field(i)
        kind = plain_type(field.type)
        if kind == field.type:
            continue
        column = table.column(i)
        if pa.types.is_run_end_encoded(field.type):
            column = pa.chunked_array([pc.run_end_decode(part) for part in column.chunks], field.type.value_type)
        # Arrow's own cast of list views makes arrays that are not valid.
        views = "list_view" in str(field.type)
        column = pa.array(column.to_pylist(), kind) if views else column.cast(kind)
        table = table.set_column(i, field.with_type(kind), column)
    return table


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type that `plain_types` gives a column."""
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_decimal32(kind) or pa.types.is_decimal64(kind):
        return pa.decimal128(kind.precision, kind.scale)
    if pa.types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if pa.types.is_dictionary(kind):
        of = plain_type(kind.value_type)
        apart = is_text(of) or pa.types.is_binary(of) or pa.types.is_large_binary(of)
        return pa.dictionary(kind.index_type, of, kind.ordered) if apart else of
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(plain_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        key, item = (field.with_type(plain_type(field.type)) for field in (kind.key_field, kind.item_field))
        return pa.map_(key, item, kind.keys_sorted)
    if not is_list(kind):
        return kind
    of = kind.value_field.with_type(plain_type(kind.value_type))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(of, kind.list_size)
    return pa.large_list(of) if pa.types.is_large_list(kind) or pa.types.is_large_list_view(kind) else pa.list_(of)


def decoded_type(kind: pa.DataType) -> pa.DataType:
    """The type of a column's values, where they are in a dictionary."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type holds text, or nothing yet."""
    kind = decoded_type(kind)
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    return bool(text or pa.types.is_null(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Whether a column of this type holds bytes."""
    plain = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    return bool(plain or pa.types.is_fixed_size_binary(kind))


def is_list(kind: pa.DataType) -> bool:
    """Whether a column of this type holds lists."""
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )
