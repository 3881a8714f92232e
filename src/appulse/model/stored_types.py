"""Which columns of Parquet and ORC files are read into which types: those whose every value stays, on Spark, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from appulse.model.ddl import ddl_of
from appulse.model.times import is_number

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

__all__ = ["miscased", "unlike"]

_WHOLE = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
#: Whole numbers without a sign, with what Spark reads them into. An `uint32` as a double would be wrong there.
_UNSIGNED = {
    pa.uint8(): (*_WHOLE[1:], pa.float64()),
    pa.uint16(): (*_WHOLE[2:], pa.float64()),
    pa.uint32(): (pa.int64(),),
    pa.uint64(): (pa.decimal128(20, 0),),
}


def unlike(
    stored: pa.Schema, wanted: pa.Schema, names: Collection[str] | None = None, kind: str = "parquet"
) -> str | None:
    """The first column of a file that cannot be read into the wanted type, in words; None: all can.

    Only ``names`` are looked at, where they are given. A column that the file lacks is null. Readers of ORC convert
    types by values; what is refused are types that Spark takes for other values, such as numbers as seconds.
    """
    for field in wanted:
        if (names is not None and field.name not in names) or field.name not in stored.names:
            continue
        own = stored.field(field.name).type
        if _is_other_on_spark(own, field.type) if kind == "orc" else not _is_read(own, field.type):
            return _said(field.name, own, field.type)
    return None


def miscased(stored: pa.Schema, wanted: pa.Schema, names: Collection[str] | None = None) -> str | None:
    """The first column that a file has in other letter case, in words: in process it would be null; None: no such one.

    So are fields within columns. Only ``names`` are looked at, where they are given. Spark reads such columns.
    """
    fields = [field for field in wanted if names is None or field.name in names]
    for own, name in _other_cases(stored, fields):
        return (
            f"its column {own} is {name} in the schema of the source, and in process names are compared with their "
            f"case. Name it {own} there and in the job, or write the file anew."
        )
    return None


def _other_cases(stored: Iterable[pa.Field], wanted: Iterable[pa.Field], within: str = "") -> Iterator[tuple[str, str]]:
    """What is named in other letter case, in a file and as it is wanted."""
    own = {field.name: field for field in stored}
    cases = {name.casefold(): name for name in own}
    for field in wanted:
        if field.name in own:
            inner = _fields(own[field.name].type), _fields(field.type)
            yield from _other_cases(*inner, f"{within}{field.name}.")
        elif (name := cases.get(field.name.casefold())) is not None:
            yield within + name, within + field.name


def _fields(kind: Any) -> list[pa.Field]:
    """What a type is made of, by the same names in all files."""
    kind = _plain(kind)
    if pa.types.is_struct(kind):
        return list(kind.fields)
    if pa.types.is_map(kind):
        return [kind.key_field.with_name("key"), kind.item_field.with_name("value")]
    return [kind.value_field.with_name("element")] if pa.types.is_list(kind) else []


def _is_other_on_spark(stored: Any, wanted: Any) -> bool:
    """Whether a type of ORC as another one has other values on Spark than by Arrow."""
    stored, wanted, types = _plain(stored), _plain(wanted), pa.types
    if stored == wanted or types.is_null(stored):
        return False
    if inner := {field.name: field.type for field in _fields(stored)}:
        fields = [field for field in _fields(wanted) if field.name in inner]
        return any(_is_other_on_spark(inner[field.name], field.type) for field in fields)
    if types.is_string(wanted):
        return not (types.is_integer(stored) or types.is_date(stored))
    if types.is_boolean(wanted):
        return bool(types.is_floating(stored))
    return (types.is_timestamp(stored) and is_number(wanted)) or (is_number(stored) and types.is_timestamp(wanted))


def _said(name: str, stored: pa.DataType, wanted: pa.DataType) -> str:
    own, asked = ddl_of(stored), ddl_of(wanted) or wanted
    of_times = pa.types.is_integer(stored) and pa.types.is_timestamp(wanted)
    unit = ", and in unit what these numbers count" if of_times else ""
    instead = f"Give {name} the type {own} in the schema of the source{unit}; or write" if own else "Write"
    return (
        f"its column {name} is {stored}, and the source has {asked}, which may change its values. {instead} the file "
        f"anew, with {asked}."
    )


def _is_read(stored: Any, wanted: Any) -> bool:
    """Whether all values of a type are read as what they are."""
    stored, wanted = _plain(stored), _plain(wanted)
    if stored == wanted or pa.types.is_null(stored):
        return True
    if stored in _WHOLE:
        return wanted in _WHOLE[_WHOLE.index(stored) :] or _is_wider(stored, wanted)
    if stored in _UNSIGNED:
        return wanted in _UNSIGNED[stored]
    if pa.types.is_timestamp(stored):  # as a number it is the count that the file has
        return bool(pa.types.is_timestamp(wanted) or pa.types.is_int64(wanted))
    if pa.types.is_decimal(stored) and pa.types.is_decimal(wanted):
        more = wanted.scale - stored.scale
        return bool(more >= 0 and wanted.precision - stored.precision >= more)
    if pa.types.is_struct(stored) and pa.types.is_struct(wanted):
        own = {field.name: field.type for field in stored.fields}
        return all(_is_read(own.get(field.name, field.type), field.type) for field in wanted.fields)
    if pa.types.is_map(stored) and pa.types.is_map(wanted):
        return _is_read(stored.key_type, wanted.key_type) and _is_read(stored.item_type, wanted.item_type)
    if pa.types.is_list(stored) and pa.types.is_list(wanted):
        return _is_read(stored.value_type, wanted.value_type)
    return (stored, wanted) in _FURTHER or bool(pa.types.is_fixed_size_binary(stored) and pa.types.is_binary(wanted))


def _is_wider(stored: Any, wanted: Any) -> bool:
    """Whether another type of numbers has all whole numbers of a type, as Spark takes it."""
    if pa.types.is_decimal(wanted):
        return bool(wanted.precision - wanted.scale >= (20 if pa.types.is_int64(stored) else 10))
    return bool(pa.types.is_float64(wanted)) and not pa.types.is_int64(stored)


#: What else is read into another type, by both engines.
_FURTHER = {
    (pa.float32(), pa.float64()),
    (pa.string(), pa.binary()),
    (pa.binary(), pa.string()),  # which is an error where it is no text
    (pa.date32(), pa.timestamp("us")),
    (pa.time32("ms"), pa.int32()),
    (pa.time64("us"), pa.int64()),
}


def _plain(kind: Any) -> Any:
    """A type as Parquet has it: texts of every kind are one."""
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_date64(kind):
        return pa.date32()
    if pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_type)
    return kind
