"""What the columns of streams say before any row is read: the types of keys and times, dimensions, partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from appulse.errors import BadArgument, NotBuilt, likely
from appulse.model import structs, uncertainty
from appulse.model.columns import decoded_type, is_text
from appulse.model.encoding import Encoding, check_columns
from appulse.model.existence import Bursts
from appulse.model.positions import check_positions
from appulse.model.strings import Bytes, decode, label_parts, widest
from appulse.model.times import check_time_type, is_number, is_time
from appulse.model.uncertainty import Incomplete, dimensions, read_from
from appulse.model.vectors import coordinates_of_type
from appulse.queries.condition import parse
from appulse.queries.places import place_of
from appulse.windows.definitions import UncertainCountWindow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.model.motion import Motion
    from appulse.model.stream import Stream
    from appulse.model.strings import Labels
    from appulse.queries.condition import Condition
    from appulse.windows.definitions import Window


def refuse_bursts(streams: Sequence[Stream], call: str) -> None:
    """Raise `NotBuilt` where rows exist in bursts and a call would take them to exist independently."""
    for stream in streams:
        if isinstance(stream.existence, Bursts):
            raise NotBuilt(
                f"{call} does not take existence={stream.existence!r}: it takes rows to exist independently. Give the "
                "column itself, if that will do. See docs/index.md."
            )


def refuse_holes(streams: Sequence[Stream], call: str) -> None:
    """Raise `BadArgument` where values may be missing and a call needs whole ones."""
    for stream in streams:
        if isinstance(stream.value, Incomplete):
            raise BadArgument(f"{call} needs whole values, and got {stream.value!r}. Fill holes by ap.impute first.")


def check_bursts(streams: Sequence[Stream], window: Window) -> None:
    """Raise where rows exist in bursts and something else is asked that takes them to exist independently."""
    given = [stream for stream in streams if isinstance(stream.existence, Bursts)]
    for stream in given:
        if stream.where:
            raise NotBuilt(
                f"A filter of a stream with existence={stream.existence!r} would leave out rows of the chain. Give the "
                "column itself, or filter the frame before the stream is made. See docs/index.md."
            )
    if given and isinstance(window, UncertainCountWindow) and window.method != "exact":
        raise BadArgument(
            f"method={window.method!r} approximates the number of rows that exist independently, and ap.Bursts says "
            "that they do not. Leave it out."
        )


def encoding_of(
    stream: Stream,
    schema: pa.Schema,
    measure: str | None = None,
    motion: Motion | None = None,
    *,
    bursts: bool = False,
    margins: bool = False,
) -> Encoding:
    """How the rows of one stream are read that looks for no partners; ``measure`` is the column of a delta window.

    Rows may exist in ``bursts`` and have ``margins`` only where the call knows what to make of that.
    """
    if not bursts:
        refuse_bursts([stream], "This call")
    name = stream.name or "stream"
    if not margins:
        refuse_margin(stream)
    encoding = Encoding(
        name=name,
        model=read_from(stream.value, schema.names),
        key=stream.key,
        time=stream.time,
        unit=stream.unit,
        existence=stream.existence_column,
        correlation=stream.correlation,
        partition_by=stream.partitions,
        differ=None,
        key_type=column_type(schema, stream.key, name),
        time_type=common_time_type([stream], [schema], [name]),
        quantile=0.0,
        gaussian_reach=0.0,
        dimensions=known_dimensions([name], [stream.value], [schema]),
        measure=measure,
        where=conditions_of(stream),
        motion=motion,
        change=stream.change,
        margin=stream.margin,
    )
    check_columns(encoding, schema)
    return encoding


def conditions_of(stream: Stream) -> tuple[Condition, ...]:
    """What rows of a stream have to satisfy."""
    place = place_of(stream.value, dimensions(stream.value))
    return tuple(parse(text, place=place) for text in stream.where)


def refuse_margin(stream: Stream) -> None:
    """Raise `BadArgument` where rows have a margin and the call would not add it to an epsilon."""
    if stream.margin != 0.0:
        raise BadArgument(
            f"Stream(margin={stream.margin!r}) is added to the epsilon of joins and encounters, and the call has none. "
            "Leave it out; a region has its radius."
        )


def group_columns(group: Labels | None, partitions: Sequence[tuple[str, pa.DataType]]) -> list[pa.Array]:
    """What rows are apart by, as columns of answers; None: there are no rows, or nothing that they are apart by."""
    if group is None:
        return [pa.array([], kind) for _, kind in partitions]
    used = group.compact()
    parts, codes = [label_parts(value) for value in used.values], pa.array(used.codes)
    return [decode(Bytes.of([part[i] for part in parts]), kind).take(codes) for i, (_, kind) in enumerate(partitions)]


def is_joined(schema: pa.Schema) -> bool:
    """Whether rows are answers of a join, which share rows, so that they do not exist independently."""
    return {"left_stream", "left_key", "right_stream", "right_key", "probability"} <= set(schema.names)


def column_type(schema: pa.Schema, column: str, stream: str) -> pa.DataType:
    """The type of a stream's column; `BadArgument` if there is none."""
    if column not in schema.names:
        raise BadArgument(
            f"Stream {stream!r} has no column {column!r}.{likely(column, schema.names)} "
            f"It has: {', '.join(schema.names)}."
        )
    return decoded_type(schema.field(column).type)


def _typed(kinds: list[pa.DataType]) -> list[pa.DataType]:
    """The types without those of empty columns that never had a value, if others have one."""
    return [kind for kind in kinds if not pa.types.is_null(kind)] or kinds


def common_key_type(streams: Sequence[Stream], schemas: Sequence[pa.Schema], names: Sequence[str]) -> pa.DataType:
    """The type of the answers' keys."""
    kinds = [column_type(schema, s.key, name) for s, schema, name in zip(streams, schemas, names, strict=True)]
    kinds = _typed(kinds)
    if len(set(kinds)) == 1:
        return kinds[0]
    if pa.uint64() in kinds:  # no integer type holds these and negative ones
        return pa.string()
    for family, common in (
        (pa.types.is_integer, pa.int64()),
        (pa.types.is_floating, pa.float64()),
        (is_text, pa.string()),
    ):
        if all(family(kind) for kind in kinds):
            return common
    return pa.string()


def common_time_type(streams: Sequence[Stream], schemas: Sequence[pa.Schema], names: Sequence[str]) -> pa.DataType:
    """The type of the answers' times."""
    kinds = [column_type(schema, s.time, name) for s, schema, name in zip(streams, schemas, names, strict=True)]
    for stream, kind in zip(streams, kinds, strict=True):
        check_time_type(stream.time, kind)
    kinds = _typed(kinds)
    if pa.types.is_null(kinds[0]):
        return kinds[0]
    if len({is_time(kind) for kind in kinds}) > 1:
        raise BadArgument(
            f"The streams' times are {', '.join(map(str, kinds))}: timestamps and numbers do not mix. "
            "Convert one of the columns."
        )
    if len(set(kinds)) == 1:
        return kinds[0]
    if is_time(kinds[0]):
        zones = [kind.tz for kind in kinds if pa.types.is_timestamp(kind) and kind.tz]
        return pa.timestamp("us", zones[0] if zones else None)
    return pa.int64() if all(pa.types.is_integer(kind) for kind in kinds) else pa.float64()


def known_dimensions(
    names: Sequence[str], models: Sequence[uncertainty.Model], schemas: Sequence[pa.Schema]
) -> int | None:
    """The one number of dimensions of the call, where models or column types tell it."""
    check_positions(names, models)
    known: dict[str, int] = {}
    for name, model, schema in zip(names, models, schemas, strict=True):
        d = uncertainty.dimensions(model)
        if isinstance(model, uncertainty.Vectors):
            d = coordinates_of_type(model, schema)
            known |= {} if d is None else {name: d}
            continue
        if d is None and isinstance(model, uncertainty.Samples):
            kind = column_type(schema, model.column, name)
            inner = getattr(kind, "value_type", None)
            if structs.is_samples(kind):
                d = structs.dimensions(kind)
            elif inner is not None and is_number(inner):
                d = 1
            elif inner is not None and pa.types.is_fixed_size_list(inner):
                d = inner.list_size
        if d is not None:
            uncertainty.check_dimensions(f"The value of stream {name!r}", d)
            known[name] = d
    if len(set(known.values())) > 1:
        each = ", ".join(f"{name} has {d}" for name, d in known.items())
        raise BadArgument(f"The streams differ in dimensions: {each}. A distance needs the same number on both sides.")
    return next(iter(known.values()), None)


def check_partitions(streams: Sequence[Stream], schemas: Sequence[pa.Schema], names: Sequence[str]) -> None:
    """Raise `BadArgument` unless the streams' partitions are of one type."""
    counts = {name: len(stream.partitions) for name, stream in zip(names, streams, strict=True)}
    if len(set(counts.values())) > 1:
        raise BadArgument(f"partition_by differs in number over the streams: {counts}. Give every stream the same.")
    for i in range(len(streams[0].partitions)):
        # Long texts and bytes, as Polars has them, are the same as short ones, and integers are in any width.
        kinds = {
            f"{stream.partitions[i]!r} of {name!r}": column_type(schema, stream.partitions[i], name)
            for name, stream, schema in zip(names, streams, schemas, strict=True)
        }
        plain = {widest(kind) if pa.types.is_integer(kind) else kind for kind in kinds.values()}
        if len({str(kind).removeprefix("large_") for kind in plain} - {"null"}) > 1:
            listed = ", ".join(f"{column} is {kind}" for column, kind in kinds.items())
            raise BadArgument(f"partition_by has columns of different types: {listed}. Cast one of them.")
