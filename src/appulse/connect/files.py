"""Files as rows: a line that is no row is a reject, and the other lines of its file are rows all the same."""

from __future__ import annotations

import csv
import json
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
import pyarrow.dataset as ds
import pyarrow.json as pj

from appulse.connect.source import Unreadable
from appulse.engines.decoding import fitting, read_each, read_json
from appulse.errors import BadArgument
from appulse.model.columns import is_text
from appulse.model.crs import of_geoparquet
from appulse.model.defects import NOT_DECODED
from appulse.model.stored_types import miscased, unlike

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from appulse.connect.patterns import Pattern

__all__ = ["Form", "LineFiles", "Rows", "read_files", "rows_of", "undecoded"]

#: Bytes that are read at once; JSON of one row is within.
_BLOCK = 1 << 22
#: Bytes whose lines are looked at one by one where one of them is no row.
_FEW = 1 << 14
#: Bytes of a file that are looked at for some of its rows.
_HEAD = 1 << 24
_OF_LINES = ("csv", "json")
_NULL = re.compile(rb"\n\s*null")
_COLUMN = re.compile(r"In CSV column #(\d+): ")
_NOT_UTF8 = "is not UTF-8; options = { encoding = ... } names another encoding"


@dataclass(frozen=True)
class Form:
    """What files are, and how their lines are read.

    ``names`` are those of the columns of CSV, in place of those in its first line; ``nulls`` is what stands for no
    value there, in place of what Arrow takes for it. ``times`` and ``dates`` are how such columns of CSV are written,
    where a schema says which these are. ``only`` says of a name whether such a column of Parquet or ORC is read; None:
    all are.
    """

    kind: str
    names: tuple[str, ...] = ()
    header: bool = False
    separator: str = ","
    quote: str = '"'
    escape: str = '"'
    nulls: tuple[str, ...] | None = None
    times: Pattern | None = None
    dates: Pattern | None = None
    encoding: str = "utf-8"
    multiline: bool = False
    only: Callable[[str], bool] | None = None

    @property
    def of_lines(self) -> bool:
        """Whether each row is a line, of which all columns are read."""
        return self.kind in _OF_LINES

    @property
    def arrow(self) -> Any:
        """The format as Arrow's data sets have it."""
        if self.kind != "csv":
            return self.kind
        reading = self.reading
        reading.encoding = self.encoding
        scan = ds.CsvFragmentScanOptions(self.converting(None), reading)
        return ds.CsvFileFormat(self.parsing, default_fragment_scan_options=scan)

    @property
    def parsing(self) -> pv.ParseOptions:
        """How Arrow takes lines of CSV apart."""
        doubled = self.escape == self.quote
        return pv.ParseOptions(
            delimiter=self.separator,
            quote_char=self.quote,
            double_quote=doubled,
            escape_char=False if doubled else self.escape,
            newlines_in_values=self.multiline,
        )

    @property
    def reading(self) -> pv.ReadOptions:
        """Where Arrow finds the names of columns of CSV."""
        return pv.ReadOptions(column_names=list(self.names), skip_rows=int(self.header and bool(self.names)))

    def converting(self, schema: pa.Schema | None) -> pv.ConvertOptions:
        """Which types Arrow gives to columns of CSV."""
        known: dict[str, Any] = {}
        if self.nulls is not None:
            known = {"null_values": list(self.nulls), "strings_can_be_null": True}
        if schema is not None:
            known |= {"column_types": schema, "include_columns": schema.names, "include_missing_columns": True}
        return pv.ConvertOptions(**known)

    def pattern(self, kind: pa.DataType) -> Pattern | None:
        """How values of a type are written; None: as Arrow takes them."""
        if pa.types.is_timestamp(kind) and kind.tz is not None:  # as of Spark's option, which is not for the others
            return self.times
        return self.dates if pa.types.is_date(kind) else None

    @property
    def dialect(self) -> dict[str, Any]:
        """How Python takes lines of CSV apart."""
        doubled = self.escape == self.quote
        marks = {"delimiter": self.separator, "quotechar": self.quote, "doublequote": doubled}
        return marks if doubled else {**marks, "escapechar": self.escape}


class Rows(NamedTuple):
    """The rows of files, None where no columns are known, and the lines that are none."""

    table: pa.Table | None
    unreadable: list[Unreadable]


def read_files(files: Sequence[str], form: Form, schema: pa.Schema | None, where: str, most: int | None = None) -> Rows:
    """The rows of files of one format, in the columns of those before; raises `BadArgument` for a file that has none.

    Lines of CSV and JSON that are no rows are given back beside the rows. ``most`` is how many bytes of each such file
    are read.
    """
    if not form.of_lines:
        with suppress(OSError, pa.ArrowException, ValueError):  # which of them it is comes out below
            return Rows(_whole(files, form, schema), [])
    tables, unreadable = [], []
    for file in files:
        try:
            found = _rows(file, form, schema, most)
        except (OSError, pa.ArrowException, ValueError, LookupError) as error:
            raise BadArgument(f"{where}: {file} cannot be read: {error}") from error
        if found.table is not None:
            tables.append(found.table)
            schema = found.table.schema
        unreadable += found.unreadable
    if not tables and unreadable and most is None:
        raise BadArgument(
            f"{where}: {files[0]} has no line that can be read, the first because of this: {unreadable[0].detail}. "
            "Give the schema of the source, with which such lines are rejects."
        )
    return Rows(pa.concat_tables(tables) if tables else None, unreadable)


class LineFiles:
    """Files of CSV or JSON as a data set of Arrow, without the lines that are no rows."""

    def __init__(self, files: Sequence[str], form: Form, schema: pa.Schema | None, where: str) -> None:
        self._files, self._form, self._known, self._where = files, form, schema, where
        self.unreadable: list[Unreadable] = []  # lines that were no rows, of what was read last

    @property
    def schema(self) -> pa.Schema:
        """The columns; none where no file has rows."""
        if self._known is None:
            found = next(filter(None, (self._read([file], _HEAD).table for file in self._files)), None)
            self._known = None if found is None else found.schema
        return pa.schema([]) if self._known is None else self._known

    @property
    def partition_expression(self) -> Any:
        """What the names of their folders say: nothing."""
        return ds.scalar(True)  # noqa: FBT003 - a value

    def get_fragments(self) -> Iterator[LineFiles]:
        """Each file alone."""
        schema = self.schema
        return (LineFiles([file], self._form, schema, self._where) for file in self._files)

    def head(self, rows: int) -> pa.Table:
        """The first rows."""
        schema, found, count = self.schema, [], 0
        self.unreadable = []
        for file in self._files:
            if count >= rows:
                break
            table, unreadable = self._read([file], _HEAD)
            self.unreadable += unreadable
            found += [] if table is None else [table]
            count += 0 if table is None else len(table)
        return pa.concat_tables([schema.empty_table(), *found]).slice(0, rows)

    def to_table(self) -> pa.Table:
        """All rows."""
        table, self.unreadable = self._read(self._files)
        return pa.table({}) if table is None else table

    def to_batches(self, columns: Sequence[str] | None = None) -> list[pa.RecordBatch]:
        """All rows, or some of their columns."""
        table = self.to_table()
        batches: list[pa.RecordBatch] = (table if columns is None else table.select(list(columns))).to_batches()
        return batches

    def _read(self, files: Sequence[str], most: int | None = None) -> Rows:
        return read_files(files, self._form, self._known, self._where, most)


def undecoded(lines: Sequence[Unreadable]) -> str:
    """How many lines were no rows, and why the first was none."""
    count = f"{len(lines):,} line{'s' * (len(lines) != 1)}"
    return f"{count} could not be decoded, the first because of this: {lines[0].detail}"


def rows_of(dataset: ds.Dataset) -> pa.Table:
    """All rows of some files; an empty cell of CSV is null, as for Spark."""
    table = dataset.to_table()
    return _without_empty(table) if isinstance(getattr(dataset, "format", None), ds.CsvFileFormat) else table


def _rows(file: str, form: Form, schema: pa.Schema | None, most: int | None) -> Rows:
    if not form.of_lines:
        return Rows(_whole([file], form, schema), [])
    with pa.input_stream(file) as stream:
        data = stream.read(most)
    if len(data) == most:  # the last line is not whole
        data = data[: data.rfind(b"\n") + 1]
    if form.encoding.lower() not in ("utf-8", "utf8"):
        data = data.decode(form.encoding).encode()
    data = data.removeprefix(b"\xef\xbb\xbf").rstrip(b"\r\n")
    if not data:
        return Rows(None if schema is None else schema.empty_table(), [])
    if (table := _at_once(data, form, schema)) is not None:
        return Rows(table, [])
    rows, bad = _by_lines(data, form, schema)
    bad.sort(key=lambda one: one.line)
    name = Path(file).name
    unreadable = [Unreadable(NOT_DECODED, f"{name}, line {one.line}: the line {one.why}", one.text) for one in bad]
    return Rows(rows, unreadable)


def _at_once(data: bytes, form: Form, schema: pa.Schema | None) -> pa.Table | None:
    """The rows, where each line is one."""
    lines = data.count(b"\n") + 1 - int(form.kind == "csv" and form.header)
    try:
        table = _csv(data, form, schema) if form.kind == "csv" else _json(data, schema)
    except (pa.ArrowException, ValueError):
        if form.multiline and form.kind == "json":
            raise
        return None
    # Else lines are empty, or an end of line is within a row.
    return table if data[0] not in b"\r\n" and (form.multiline or len(table) == lines) else None


def _by_lines(data: bytes, form: Form, schema: pa.Schema | None) -> tuple[pa.Table | None, list[_Bad]]:
    """The rows, and lines that are none: only where some bytes have such lines, these are taken apart."""
    each = _csv_lines if form.kind == "csv" else _json_lines
    if schema is None or form.multiline:
        return each(data, form, schema)
    tables, before = [schema.empty_table()], 0
    bad: list[_Bad] = []
    for some in _pieces(data):
        stripped = some.rstrip(b"\r\n")
        if stripped.strip():
            if (table := _at_once(stripped, form, schema)) is None:
                table, found = each(stripped, form, schema)
                bad += [one._replace(line=one.line + before) for one in found]
            tables.append(table)
            if form.header:
                names = form.names or next(_taken_apart(stripped, form)).fields
                form = replace(form, names=tuple(names), header=False)
        before += len(some.splitlines())
    return pa.concat_tables(tables).combine_chunks(), bad


def _pieces(data: bytes) -> Iterator[bytes]:
    """Some bytes at a time, each with whole lines."""
    begin = 0
    while begin < len(data):
        end = data.find(b"\n", begin + _FEW) + 1 or len(data)
        yield data[begin:end]
        begin = end


def _whole(files: Sequence[str], form: Form, schema: pa.Schema | None) -> pa.Table:
    try:
        table = _read_whole(files, form, schema)
    except pa.ArrowInvalid:
        if schema is None or (naive := _without_zones(schema)) == schema:
            raise
        table = _read_whole(files, form, naive)
        table = table.cast(pa.schema([schema.field(name) for name in table.column_names]))
    table.validate(full=True)  # text is UTF-8
    return table


def _read_whole(files: Sequence[str], form: Form, schema: pa.Schema | None) -> pa.Table:
    dataset = ds.dataset(list(files), format=form.kind, schema=schema)
    names = [name for name in dataset.schema.names if form.only is None or form.only(name)]
    metadata: dict[bytes, bytes] = {}
    for fragment in dataset.get_fragments():
        stored = fragment.physical_schema
        metadata = of_geoparquet(stored) | metadata
        if wrong := unlike(stored, dataset.schema, names, form.kind) or miscased(stored, dataset.schema, names):
            raise ValueError(wrong)
    return dataset.to_table(names).replace_schema_metadata(metadata)


class _Bad(NamedTuple):
    """A line that is no row, its number, and why."""

    line: int
    text: str
    why: str


class _Line(NamedTuple):
    """A row of CSV as it stands in a file: the number of its first line, its bytes, and its fields."""

    number: int
    data: bytes
    fields: list[str]


# --- CSV ------------------------------------------------------------------------------------------------------------


def _csv(data: bytes, form: Form, schema: pa.Schema | None) -> pa.Table:
    if schema is None:
        return _typed_csv(data, form, None)
    patterns = {name: one for name, kind in zip(schema.names, schema.types, strict=True) if (one := form.pattern(kind))}
    read = pa.schema([field.with_type(pa.string()) if field.name in patterns else field for field in schema])
    try:
        table = _typed_csv(data, form, read)
    except pa.ArrowInvalid:
        # Arrow takes texts without a zone for no time with one, where Spark takes them for UTC.
        if (naive := _without_zones(read)) == read:
            raise
        table = _typed_csv(data, form, naive).cast(read)
    columns = [
        patterns[field.name].read(table[field.name], field.type) if field.name in patterns else table[field.name]
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _typed_csv(data: bytes, form: Form, schema: pa.Schema | None) -> pa.Table:
    return _without_empty(pv.read_csv(BytesIO(data), form.reading, form.parsing, form.converting(schema)))


def _without_empty(table: pa.Table) -> pa.Table:
    columns = [
        pc.if_else(pc.equal(column, ""), pa.scalar(None, column.type), column) if is_text(column.type) else column
        for column in table.columns
    ]
    return pa.Table.from_arrays(columns, schema=table.schema)


def _without_zones(schema: pa.Schema) -> pa.Schema:
    kinds = [pa.timestamp(kind.unit) if pa.types.is_timestamp(kind) else kind for kind in schema.types]
    return pa.schema([field.with_type(kind) for field, kind in zip(schema, kinds, strict=True)])


def _csv_lines(data: bytes, form: Form, schema: pa.Schema | None) -> tuple[pa.Table | None, list[_Bad]]:
    lines = list(_taken_apart(data, form))
    first = lines.pop(0) if form.header else None
    names = form.names or (tuple(first.fields) if first is not None else ())
    bad: list[_Bad] = []
    good: list[_Line] = []
    for line in lines:
        why = _why_not(line, len(names))
        if why is None:
            good.append(line)
        else:
            bad.append(_bad(line.number, line.data, why))
    plain, each = replace(form, names=names, header=False), [line.data for line in good]

    def read(some: Sequence[bytes]) -> pa.Table:
        return _csv(b"\n".join(some), plain, schema)

    if schema is None:
        if not good:
            return None, bad
        schema = read(each).schema
    reasons: dict[int, str] = {}
    rows = fitting(each, schema, read, reasons)
    for i, why in reasons.items():  # Arrow counts columns, from 0
        named = _COLUMN.sub(lambda found: f"column {names[int(found[1])]!r}: ", why)
        bad.append(_bad(good[i].number, each[i], named))
    return _without(rows, reasons), bad


def _taken_apart(data: bytes, form: Form) -> Iterator[_Line]:
    """The rows of CSV, each one line, or as many as its quoted fields go over where a form allows that."""
    held: list[bytes] = []

    def given() -> Iterator[str]:
        for line in data.splitlines(keepends=True):
            held.append(line)
            yield line.decode("utf-8", "surrogateescape")

    lines, number = given(), 1
    for some in [lines] if form.multiline else ([line] for line in lines):
        for fields in _fields(some, form):
            text = b"".join(held).rstrip(b"\r\n")
            if text.strip():
                yield _Line(number, text, fields)
            number += len(held)
            held.clear()


def _fields(lines: Iterable[str], form: Form) -> Iterator[list[str]]:
    """The fields of each row; none where there is one too long."""
    if isinstance(lines, list) and form.quote not in lines[0] and form.escape not in lines[0]:
        yield lines[0].rstrip("\r\n").split(form.separator)
        return
    reader = csv.reader(lines, **form.dialect)
    while True:
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error:
            yield []


def _why_not(line: _Line, names: int) -> str | None:
    found = len(line.fields)
    if not _is_utf8(line.data):
        return _NOT_UTF8
    return None if found == names else f"has {found} field{'s' * (found != 1)}, and there are {names} columns"


# --- JSON -----------------------------------------------------------------------------------------------------------


def _json(data: bytes, schema: pa.Schema | None) -> pa.Table:
    if _NULL.search(data) or data.lstrip().startswith(b"null"):
        raise pa.ArrowInvalid("A line is null, with which Arrow may crash.")
    if schema is None:
        table = pj.read_json(BytesIO(data), pj.ReadOptions(block_size=_BLOCK))
    else:
        table = read_json(data, schema, block=_BLOCK, threads=True)
    table.validate(full=True)  # text is UTF-8
    return table


def _json_lines(data: bytes, _form: Form, schema: pa.Schema | None) -> tuple[pa.Table | None, list[_Bad]]:
    lines = [(i, line) for i, line in enumerate(data.splitlines(), 1) if line.strip()]
    bad: list[_Bad] = []
    good: list[tuple[int, bytes]] = []
    for i, line in lines:
        if _is_utf8(line):
            good.append((i, line))
        else:
            bad.append(_bad(i, line, _NOT_UTF8))
    each = [line for _, line in good]
    if schema is None:
        objects = [line for line in each if _is_object(line)]
        if not objects:
            return None, [*bad, *(_bad(i, line, "is not a JSON object") for i, line in good)]
        schema = _json(b"\n".join(objects), None).schema
    rows, reasons = read_each(each, schema, as_text=True)
    return _without(rows, reasons), [*bad, *(_bad(*good[i], why) for i, why in reasons.items())]


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


# --- Both -----------------------------------------------------------------------------------------------------------


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _bad(number: int, line: bytes, why: str) -> _Bad:
    return _Bad(number, line.decode(errors="replace"), why)


def _without(rows: pa.Table, which: Collection[int]) -> pa.Table:
    """Rows but for some, by their numbers."""
    stays = np.ones(len(rows), bool)
    stays[list(which)] = False
    return rows.filter(pa.array(stays))
