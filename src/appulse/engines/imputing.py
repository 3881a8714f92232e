"""Incomplete streams: which imputer fills which, tables filled, and what answers report of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import numpy as np
import pyarrow as pa

from appulse.arguments import NAME, NOTHING, either, has, mapping, one_of
from appulse.errors import BadArgument, nearest
from appulse.imputation.choosing import AutoImputer
from appulse.imputation.in_time import LastValueImputer
from appulse.imputation.noise import with_noise
from appulse.model.canonical import canonical_places, filled_rows
from appulse.model.columns import chunk, nulls
from appulse.model.encode import holes_of
from appulse.model.filled import FILLED, Prefilled, column_of, split_ways
from appulse.model.stream import stream_names
from appulse.model.strings import Labels
from appulse.model.times import to_micros
from appulse.model.uncertainty import Incomplete, filled_samples

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from appulse.kernels.arrays import Flags, Floats, Ints
    from appulse.model.encoding import Encoding
    from appulse.model.filled import Fill
    from appulse.model.stream import Stream
    from appulse.model.strings import Bytes
    from appulse.model.uncertainty import Model

_ONE = either(one_of("auto"), has("bind", "an imputer such as ap.DependencyImputer(repository, rules)"))
#: What fills one stream, or each of several.
OneImputer: TypeAlias = Annotated[Any, _ONE]
Imputers: TypeAlias = Annotated[
    Any, either(_ONE, mapping(NAME, either(_ONE, NOTHING), "a mapping from names of streams to imputers"))
]
#: Columns that `impute` adds: samples, their weights, and what was filled by what.
SAMPLES, WEIGHTS, FILLED_BY = "imputed", "imputed_weights", "filled"


def fills_of(imputer: Any, names: Sequence[str], models: Sequence[Model]) -> list[Fill | None]:
    """What fills each stream of a call; ``imputer`` is one for all of them, or a mapping by stream name."""
    if isinstance(imputer, Mapping):
        for name in imputer:
            if name not in names:
                raise BadArgument(f"imputer= names a stream {name!r}.{nearest(str(name), names)}")
        chosen = [imputer.get(name) for name in names]
    else:
        chosen = [imputer] * len(names)
    fills = [
        bound(own, model) if isinstance(model, Incomplete) and own is not None else None
        for own, model in zip(chosen, models, strict=True)
    ]
    idle = [name for name, own, fill in zip(names, chosen, fills, strict=True) if own is not None and fill is None]
    if idle and (isinstance(imputer, Mapping) or len(idle) == len(names)):
        raise BadArgument(
            f"imputer= fills what is missing of ap.Incomplete('a', 'b', ...), and the value of {idle[0]!r} is none. "
            "Give it such a value=, or leave imputer= out."
        )
    return fills


def bound(imputer: Any, model: Incomplete) -> Fill:
    """The imputer for a value's attributes."""
    if imputer == "auto":
        raise BadArgument(
            "imputer='auto' chooses by whole frames, in process, and here rows come piece by piece. Choose on a frame "
            "of typical rows (ap.AutoImputer().chosen), or name an imputer with a repository."
        )
    if isinstance(imputer, Prefilled):  # its errors are in what was filled
        return imputer
    fill: Fill = imputer.bind(model.columns)
    return with_noise(fill, model.deviations)


def refuse_in_order(encodings: Sequence[Encoding]) -> None:
    """Raise `BadArgument` for imputers that have to see all rows of a stream, in order."""
    for encoding in encodings:
        if encoding.fill is not None:
            refuse_whole(encoding.fill, encoding.name)


def refuse_whole(fill: Fill, name: str) -> None:
    """Raise `BadArgument` for a fill that has to see all rows of a stream, in order."""
    if fill.in_order:
        raise BadArgument(
            f"The imputer of stream {name!r} fills a row by the rows before and after it, and here rows come piece by "
            "piece. Fill whole frames first (ap.impute), or take an imputer with a repository, ap.LastValueImputer() "
            "or ap.SpeedImputer(...)."
        )


def incomplete_model(stream: Stream) -> Incomplete:
    """The model of a stream to be filled; `BadArgument` for others."""
    if not isinstance(stream.value, Incomplete):
        raise BadArgument(
            f"impute() got a stream whose value is {stream.value!r}. What is to be filled is said by "
            "value=ap.Incomplete('a', 'b', ...)."
        )
    return stream.value


def filled_stream(stream: Stream, frame: Any) -> Stream:
    """The stream over a frame with the columns of `filled_table`."""
    model = incomplete_model(stream)
    return replace(stream, frame=frame, schema=None, value=filled_samples(SAMPLES, WEIGHTS, model))


def filled_table(table: pa.Table, stream: Stream, fill: Fill, *, empty_rows: bool = False) -> pa.Table:
    """The table with what its rows may be: columns ``imputed``, ``imputed_weights`` and ``filled``.

    Rows that lack everything (unless ``empty_rows`` are to be filled) or hold what is not finite have null there, and
    so have those that cannot be filled with finite numbers, as where nothing is known of what is missing: they are
    rejects of whatever comes next. Rows without key, time or partition fill no others, and have null where rows around
    fill.
    """
    check_filled(table.schema, stream)
    for name, column in zip(
        (SAMPLES, WEIGHTS, FILLED_BY), filled_values(table, stream, fill, empty_rows=empty_rows), strict=True
    ):
        table = table.append_column(name, column)
    return table


def filled_values(
    table: pa.Table, stream: Stream, fill: Fill, *, empty_rows: bool, ordered: bool = False
) -> list[pa.Array]:
    """The columns that `filled_table` adds; ``ordered`` says that rows are in canonical order."""
    model = incomplete_model(stream)
    rows, time, group = read_holes(table, stream)
    fit = _fillable(rows, empty_rows=empty_rows)
    good = np.flatnonzero(fit & _identified(table, stream) if fill.in_order else fit)
    given = rows[good], time[good], group[good]
    filled = fill.fill(*given) if ordered else filled_rows(fill, *given, _keys(table, stream, good))
    owner = np.repeat(np.arange(len(good)), np.diff(filled.first))
    odd = owner[~(np.isfinite(filled.rows).all(axis=1) & np.isfinite(filled.weights))]
    at = np.full(len(rows), -1)
    at[good] = np.arange(len(good))
    at[good[odd]] = -1  # nothing is known of what is missing
    index = pa.array(at, mask=at < 0)
    points = pa.ListArray.from_arrays(
        pa.array(np.arange(len(filled.rows) + 1) * rows.shape[1], pa.int32()), pa.array(filled.rows.reshape(-1))
    )
    first = pa.array(filled.first)
    columns = {
        SAMPLES: pa.LargeListArray.from_arrays(first, points),
        WEIGHTS: pa.LargeListArray.from_arrays(first, pa.array(filled.weights)),
        FILLED_BY: column_of(filled.way, model.columns, fill),
    }
    return [column.cast(filled_field(name).type).take(index) for name, column in columns.items()]


def filled_field(name: str) -> pa.Field:
    """A column that `filled_table` adds."""
    numbers = pa.list_(pa.float64())
    return pa.field(name, {SAMPLES: pa.list_(numbers), WEIGHTS: numbers, FILLED_BY: FILLED}[name])


def check_filled(schema: pa.Schema, stream: Stream) -> None:
    """Raise `BadArgument` where the frame lacks columns, or has those that would be added."""
    for column in (*incomplete_model(stream).columns, stream.time, *stream.partitions):
        if column not in schema.names:
            raise BadArgument(f"impute(): the frame has no column {column!r}.{nearest(column, schema.names)}")
    for column in (SAMPLES, WEIGHTS, FILLED_BY):
        if column in schema.names:
            raise BadArgument(f"impute() adds a column {column!r}, and the frame has one already. Rename that.")


def filled_columns(carried: Bytes, stream: Ints, encodings: Sequence[Encoding]) -> tuple[Bytes, pa.Array]:
    """Of the rows of answers on one side, by their keys as carried: the keys, and what was filled in each.

    ``stream`` says which of the ``encodings`` each row is of.
    """
    if not encodings[0].carries_fill_source:
        return carried, pa.array([[]] * len(carried), FILLED)
    keys, ways = split_ways(carried, encodings[0].dimensions or 1)
    parts, places = [], []
    for i, encoding in enumerate(encodings):
        rows = np.flatnonzero(stream == i)
        places.append(rows)
        if encoding.fill is None or not isinstance(encoding.model, Incomplete):
            parts.append(pa.array([[]] * len(rows), FILLED))
        else:
            parts.append(column_of(ways[rows], encoding.model.columns, encoding.fill))
    order = np.argsort(np.concatenate(places), kind="stable")
    return keys, pa.concat_arrays(parts).take(pa.array(order))


def chosen_for(
    imputer: Any,
    stream: Stream,
    table: pa.Table,
    beside: Mapping[str, Any] | None = None,
    *,
    empty_rows: bool = False,
    threads: int | None = None,
) -> Any:
    """The imputer of a stream, chosen by its rows where it is automatic; ``beside`` is what it is joined with.

    With ``empty_rows`` it is to fill rows that lack everything, too. ``threads`` are those of ``"auto"``.
    """
    if imputer == "auto":
        imputer = AutoImputer(threads=threads)
    if not isinstance(imputer, AutoImputer) or not isinstance(stream.value, Incomplete):
        return imputer
    read = _usable(stream, table, empty_rows=empty_rows)
    if read is None:  # the call reports what is wrong with the frame
        return imputer
    if np.isnan(read[0]).all():
        return LastValueImputer()
    return imputer.chosen(stream.value.columns, *read, beside, empty_rows=empty_rows)


def chosen_by_sample(
    imputer: Any, stream: Stream, sample: Callable[[int, list[str]], pa.Table | None], *, empty_rows: bool
) -> Any:
    """As `chosen_for`, for rows that come piece by piece: by a sample of the stream, else by the repository's rows.

    ``sample`` takes the most rows and the columns; it is None where the stream cannot be read beforehand. What looks at
    rows around is not tried.
    """
    if imputer == "auto":
        imputer = AutoImputer()
    if not isinstance(imputer, AutoImputer) or not isinstance(stream.value, Incomplete):
        return imputer
    columns = stream.value.columns
    table = sample(imputer.sample, list(dict.fromkeys([*columns, stream.time, *stream.partitions])))
    read = None if table is None else _usable(stream, table, empty_rows=empty_rows)
    if read is None:
        if imputer.repository is None:
            raise BadArgument(
                f"imputer='auto' chooses by rows of stream {stream.name or 'stream'!r}, and a streaming frame has none "
                "yet. Give typical complete rows: imputer=ap.AutoImputer(repository)."
            )
        rows = imputer.repository.matrix(columns).T
        read = rows, 1_000_000 * np.arange(len(rows)), np.zeros(len(rows), np.int64)
    return imputer.chosen(columns, *read, whole=False, empty_rows=empty_rows)


def _usable(stream: Stream, table: pa.Table, *, empty_rows: bool = False) -> tuple[Floats, Ints, Ints] | None:
    """Values, times and partitions of the rows that can be filled or need not be, in order of time."""
    if not isinstance(stream.value, Incomplete):
        return None
    if any(c not in table.schema.names for c in (*stream.value.columns, stream.time, *stream.partitions)):
        return None
    rows, time, group = read_holes(table, stream)
    usable = np.flatnonzero(_fillable(rows, empty_rows=empty_rows) & _identified(table, stream))
    order = canonical_places(_keys(table, stream, usable), time[usable], group[usable], rows[usable])
    usable = usable[order]
    usable = usable[np.argsort(time[usable], kind="stable")]
    return rows[usable], time[usable], group[usable]


def all_chosen(imputer: Any, streams: Sequence[Stream], tables: Sequence[pa.Table], threads: int | None) -> Any:
    """The imputer of a call, those chosen that are automatic: then a mapping by stream name."""
    names = stream_names(streams)
    given = imputer if isinstance(imputer, Mapping) else dict.fromkeys(names, imputer)
    if not any(isinstance(one, str | AutoImputer) for one in given.values()):
        return imputer
    known = dict(zip(names, zip(streams, tables, strict=True), strict=True))
    beside = _beside(names, streams, tables)
    return {
        name: chosen_for(
            one, *known[name], {other: rows for other, rows in beside.items() if other != name}, threads=threads
        )
        if name in known
        else one
        for name, one in given.items()
    }


def _beside(
    names: Sequence[str], streams: Sequence[Stream], tables: Sequence[pa.Table]
) -> dict[str, tuple[Floats, Ints]]:
    """What incomplete streams measured and when; nothing where there are partitions, each a world of its own."""
    found = {}
    for name, stream, table in zip(names, streams, tables, strict=True):
        read = None if stream.partitions else _usable(stream, table)
        if read is not None:
            found[name] = read[:2]
    return found


def _keys(table: pa.Table, stream: Stream, rows: Ints) -> pa.ChunkedArray | None:
    """The keys of some rows; None where the table has none."""
    return table[stream.key].take(pa.array(rows)) if stream.key in table.schema.names else None


def _fillable(rows: Floats, *, empty_rows: bool) -> Flags:
    """Which rows hold only finite numbers, and some of them unless ``empty_rows`` are to be filled."""
    some = np.ones(len(rows), bool) if empty_rows else ~np.isnan(rows).all(axis=1)
    return np.logical_and(some, ~np.isinf(rows).any(axis=1))


def _identified(table: pa.Table, stream: Stream) -> Flags:
    """Which rows have a key, a time and a partition; others are rejects of any call, and nothing is learned of them."""
    _, null, strange = to_micros(table[stream.time].combine_chunks(), stream.unit)
    lacking = null | strange
    for name in (stream.key, *stream.partitions):
        if name in table.schema.names:
            lacking |= nulls(chunk(table[name]))
    return ~lacking


def read_holes(table: pa.Table, stream: Stream) -> tuple[Floats, Ints, Ints]:
    """Values with their holes, times and partitions of all rows."""
    model = incomplete_model(stream)
    time = to_micros(table[stream.time].combine_chunks(), stream.unit)[0]
    labels = Labels.of([table[c] for c in stream.partitions]) if stream.partitions else None
    group = np.zeros(len(table), np.int64) if labels is None else labels.ranks()
    return holes_of(table, model), time, group
