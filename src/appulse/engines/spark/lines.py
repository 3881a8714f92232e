"""Files of CSV and JSON as Spark reads them: lines that are no rows are kept, as messages that cannot be decoded."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql import functions as F  # noqa: N812 - the usual name of this module
from pyspark.sql import types as T  # noqa: N812 - the usual name of this module

from appulse.engines.spark.inputs import quoted
from appulse.model.defects import UNDECODED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame

__all__ = ["known_schema", "rows_of_lines"]

_CORRUPT = "columnNameOfCorruptRecord"
_BYTES = "ISO-8859-1"  # a character for each byte, of which bytes can be made again
_LINE = T.StructField(UNDECODED, T.StringType())
_FILE = "_file_name"
_STRANGE = "the line is not as the schema says"
_NOT_UTF8 = "the line is not UTF-8; options = { encoding = ... } names another encoding"


def known_schema(reader: Any, kind: str, options: Mapping[str, Any], path: str) -> T.StructType:
    """The columns of the files that are there, as Spark infers them."""
    if kind == "json":
        options = {_CORRUPT: UNDECODED, **options}
    found = reader.format(kind).options(**options).load(path).schema
    return T.StructType([field for field in found if field.name != UNDECODED])


def rows_of_lines(
    reader: Any, kind: str, options: Mapping[str, Any], schema: str | T.StructType, path: str
) -> DataFrame:
    """The rows of files, and the column `UNDECODED`: null, or the line where it is none; its columns are null then."""
    columns = schema if isinstance(schema, T.StructType) else cast("T.StructType", T.StructType.fromDDL(schema))
    given = {name.lower() for name in options}
    if given & {"mode", _CORRUPT.lower()}:  # what is to become of such lines is known
        return cast("DataFrame", reader.format(kind).options(**options).schema(columns).load(path))
    lines = reader.format("text").options(**options).load(path)
    parts = [name for name in lines.columns if name != "value"]  # of folders such as day=1
    own = T.StructType([field for field in columns if field.name not in parts])
    # Marks and texts among the options are compared with characters, of which some are several bytes.
    plain = all(str(value).isascii() for value in options.values())
    encoded = bool(given & {"encoding", "charset"})
    as_bytes = {"encoding": _BYTES} if kind == "csv" and plain and not encoded else {}
    # First, as Spark puts columns of folders behind the others, also of folders that come later.
    asked = T.StructType([_LINE, *columns.fields])
    frame = reader.format(kind).options(**options, **as_bytes, **{_CORRUPT: UNDECODED}).schema(asked).load(path)
    if as_bytes:
        return _read(frame, own, parts, _separator(options))
    # The reader of JSON takes no line that is not UTF-8, and gives it as it is.
    valid = F.is_valid_utf8(UNDECODED) if kind == "json" and not encoded else F.lit(True)  # noqa: FBT003 - a column
    return _plain(frame, own, parts, valid)


def _read(frame: DataFrame, own: T.StructType, parts: Sequence[str], separator: str) -> DataFrame:
    """CSV of which each character is a byte."""
    texts = {field.name for field in own if isinstance(field.dataType, T.StringType)}
    values = {name: _as_text(quoted(name)) if name in texts else quoted(name) for name in own.names}
    line = _as_text(F.col(UNDECODED))
    checked = [*[values[name] for name in sorted(texts)], line]
    valid = reduce(and_, [one.isNull() | F.is_valid_utf8(one) for one in checked])
    written = F.to_csv(
        F.struct(*[F.make_valid_utf8(v).alias(n) if n in texts else v.alias(n) for n, v in values.items()]),
        {"sep": separator, "escape": '"'},
    )
    payload = F.coalesce(F.make_valid_utf8(line), written)
    found = frame.select("*", F.col("_metadata.file_name").alias(_FILE))
    return _with_lines(found, values, parts, (payload, F.col(UNDECODED).isNull(), valid))


def _plain(frame: DataFrame, own: T.StructType, parts: Sequence[str], valid: Column) -> DataFrame:
    values = {name: quoted(name) for name in own.names}
    line = F.col(UNDECODED)
    # Spark reads no file for this column alone: the values are named beside it, for lines that are there always.
    payload = F.coalesce(F.make_valid_utf8(line), F.to_json(F.struct(*values.values())))
    found = frame.select("*", F.col("_metadata.file_name").alias(_FILE))
    return _with_lines(found, values, parts, (payload, line.isNull(), line.isNull() | valid))


def _with_lines(
    frame: DataFrame, values: Mapping[str, Column], parts: Sequence[str], line: tuple[Column, Column, Column]
) -> DataFrame:
    """The values of lines that are rows, and the other lines with their files and what is wrong.

    A ``line`` is its text, whether it is as the schema says, and whether it is UTF-8.
    """
    text, fits, valid = line
    detail = F.concat_ws(": ", F.col(_FILE), F.when(valid, F.lit(_STRANGE)).otherwise(F.lit(_NOT_UTF8)))
    good = fits & valid
    message = F.when(~good, F.struct(detail.alias("detail"), text.alias("payload"))).alias(UNDECODED)
    columns = [F.when(good, value).alias(name) for name, value in values.items()]
    return frame.select(*columns, *map(quoted, parts), message)


def _as_text(column: Column) -> Column:
    return F.encode(column, _BYTES).cast("string")


def _separator(options: Mapping[str, Any]) -> str:
    given = {name.lower(): str(value) for name, value in options.items()}
    return given.get("sep", given.get("delimiter", ","))
