"""Tables larger than memory: read batch by batch in order of time, answered batch by batch."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import numpy as np
import pyarrow as pa

from appulse.api.by_hand import ByHand
from appulse.arguments import Count, checked, instance
from appulse.errors import BadArgument
from appulse.model.columns import arrow_table, chunk, decoded_type, is_text
from appulse.model.geography import with_points
from appulse.model.times import MIN_TIME, to_micros

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyarrow.dataset import Dataset

    from appulse.model.stream import Stream

_Call: TypeAlias = Annotated[
    Any, instance(ByHand, "a call by hand, such as ap.SimilarityJoin(ap.Stream(None, ...), ap.Stream(None, ...), ...)")
]


@checked
def stream_batches(call: _Call, *frame: Any, rows: Count = 65_536, **frames: Any) -> pa.RecordBatchReader:
    """The results of a class such as `SimilarityJoin` over frames larger than memory, as a reader of batches.

    Memory holds a few batches, and the rows in windows. Results arrive as soon as they are known.

    Arguments:
    * ``call``: a new object, such as an `ap.SimilarityJoin`.
    * ``frame, frames``: as for ``push``: one frame for a single stream, else one per stream, by name: a
      `pyarrow.RecordBatchReader`, a `pyarrow.dataset.Dataset`, a path to a Parquet file or to a folder of them, read in
      the order of their names, a Polars ``LazyFrame``, or a table. Rows must be in order of time, within the lateness
      of their stream; others are rejects, ``call.rejects()``.
    * ``rows``: the greatest number of rows per push, from the stream that is farthest behind.

    Returns a `pyarrow.RecordBatchReader`, which `pyarrow.dataset.write_dataset` takes. Raises `BadArgument` for a frame
    that cannot be read, and for files that differ in the type of a column, except in the width of numbers, and in
    integers and doubles of values.

    >>> left, right = (ap.Stream(None, key="id", time="t", value="x", name=name) for name in ("left", "right"))
    >>> join = ap.SimilarityJoin(left, right, epsilon=1, probability=1, window="10 seconds")
    >>> rows = pa.table({"id": range(1000), "t": range(1000), "x": [float(i) for i in range(1000)]})
    >>> sum(batch.num_rows for batch in ap.stream_batches(join, left=rows, right=rows, rows=100))
    2998
    """
    streams = call.streams
    if frame:
        if len(frame) > 1 or frames or len(streams) > 1:
            raise BadArgument("stream_batches() takes one frame of a single stream, else name=frame for each.")
        frames = {next(iter(streams)): frame[0]}
    if set(frames) != set(streams):
        raise BadArgument(
            f"stream_batches() needs a frame for each stream, {', '.join(streams)}, and got "
            f"{', '.join(sorted(frames)) or 'none'}."
        )
    sources = [_Source(name, streams[name], *_opened(name, streams[name], frames[name], rows)) for name in streams]
    # Frames without rows show the columns of answers before any row is read.
    schema = call.push(**{source.name: source.schema.empty_table() for source in sources}).schema
    return pa.RecordBatchReader.from_batches(schema, _answered(call, sources, schema, rows))


def _answered(call: ByHand[Any], sources: list[_Source], schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
    # By time, and of equal times by the order of the streams.
    waiting: list[tuple[int, int, pa.Table, Iterator[pa.Table]]] = []
    for i, source in enumerate(sources):
        _put(waiting, i, source, source.parts(rows))
    while waiting:
        _, i, table, rest = heapq.heappop(waiting)
        yield from call.push(**{sources[i].name: table}).cast(schema).to_batches()
        _put(waiting, i, sources[i], rest)
    yield from call.drain().cast(schema).to_batches()


def _put(waiting: list[Any], i: int, source: _Source, rest: Iterator[pa.Table]) -> None:
    table = next(rest, None)
    if table is not None:
        heapq.heappush(waiting, (source.least_time(table), i, table, rest))


@dataclass(frozen=True)
class _Source:
    """Where the rows of a stream come from."""

    name: str
    stream: Stream
    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]

    def parts(self, rows: int) -> Iterator[pa.Table]:
        """The rows, at most so many at a time."""
        for batch in self._read():
            for begin in range(0, len(batch), rows):
                yield pa.Table.from_batches([batch.slice(begin, rows)])

    def _read(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self.batches
        except (OSError, pa.ArrowException) as error:
            raise BadArgument(f"The frame of stream {self.name!r} cannot be read: {error}") from None

    def least_time(self, table: pa.Table) -> int:
        """The least time of some rows."""
        if self.stream.time not in table.column_names:
            return MIN_TIME  # the push says so
        micros, null, strange = to_micros(chunk(table[self.stream.time]), self.stream.unit)
        known = micros[~(null | strange)]
        return int(np.min(known)) if len(known) else MIN_TIME


def _read_in_turn(frame: Dataset, rows: int) -> Iterator[pa.RecordBatch]:
    """The batches of a dataset, one file after the other: a scan of all reads on while answers are made."""
    how: dict[str, Any] = {"batch_size": rows, "batch_readahead": 1, "use_threads": False}
    try:
        files = frame.get_fragments()
    except ValueError:  # those of a filtered dataset cannot be had
        return iter(frame.scanner(**how, fragment_readahead=1).to_batches())
    return (batch for file in files for batch in file.to_batches(schema=frame.schema, **how))


def _opened(name: str, stream: Stream, frame: Any, rows: int) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The columns of a frame, and its batches, read as they are asked for."""
    import pyarrow.dataset as ds

    if isinstance(frame, str | Path):
        try:
            schema = _schema_of_files(name, stream, ds.dataset(str(frame), format="parquet"))
            frame = ds.dataset(str(frame), schema=schema, format="parquet")
        except BadArgument:
            raise
        except (OSError, pa.ArrowException, ValueError) as error:
            raise BadArgument(f"{str(frame)!r} is not a Parquet file or a folder of them: {error}") from None
    if isinstance(frame, ds.Dataset):
        return frame.schema, _read_in_turn(frame, rows)
    if isinstance(frame, pa.RecordBatchReader):
        return frame.schema, iter(frame)
    if type(frame).__module__.startswith("polars") and hasattr(frame, "collect_batches"):
        batches = frame.collect_batches(chunk_size=rows, maintain_order=True)
        return frame.head(0).collect().to_arrow().schema, (b for part in batches for b in part.to_arrow().to_batches())
    table = arrow_table(with_points(frame))
    if table is None:
        kind = f"{type(frame).__module__}.{type(frame).__name__}"
        raise BadArgument(
            f"A frame of stream_batches() is a {kind}. Give a RecordBatchReader, a dataset, a path to Parquet, a "
            "Polars LazyFrame, or a table."
        )
    return table.schema, iter(table.to_batches())


def _schema_of_files(name: str, stream: Stream, dataset: Any) -> pa.Schema:
    """A schema that holds the columns of all files; `BadArgument` without files, or where two differ."""
    if not dataset.files:
        raise BadArgument(f"The folder of stream {name!r} holds no Parquet files.")
    used, names = set(stream.columns()), {stream.key, stream.time, *stream.partitions}
    fields: dict[str, pa.Field] = {}
    kinds: dict[str, pa.DataType | None] = {}  # None: files differ in it
    first: dict[str, str] = {}
    for fragment in dataset.get_fragments():
        for field in fragment.physical_schema:
            known = kinds.setdefault(field.name, field.type)
            fields.setdefault(field.name, field)
            measured = field.name in used - names
            kinds[field.name] = None if known is None else _common(known, field.type, measured=measured)
            if kinds[field.name] is None and field.name in used:
                raise BadArgument(
                    f"Column {field.name!r} of stream {name!r} is {known} in {first[field.name]} and {field.type} in "
                    f"{fragment.path}. Write the files anew with one type."
                )
            first.setdefault(field.name, fragment.path)
    kept = [field.with_type(kinds[column]) for column, field in fields.items() if kinds[column] is not None]
    return pa.schema(kept, dataset.schema.metadata)


def _common(one: pa.DataType, other: pa.DataType, *, measured: bool) -> pa.DataType | None:
    """The type that holds the values of both as they are; None: there is none. Numbers ``measured`` may be doubles."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    one, other = decoded_type(one), decoded_type(other)
    if one == other:
        return one
    if is_text(one) and is_text(other):
        return pa.large_string()
    for family in (pa.types.is_signed_integer, pa.types.is_unsigned_integer, pa.types.is_floating):
        if family(one) and family(other):
            return max(one, other, key=lambda kind: kind.bit_width)
    if measured and all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in (one, other)):
        return pa.float64()
    return None
