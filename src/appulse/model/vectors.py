"""Vectors: rows whose coordinates are the numbers of a list."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from appulse.errors import BadArgument
from appulse.kernels.products import direct
from appulse.model import defects as why
from appulse.model.columns import chunk, floats, is_list, is_numeric, lengths
from appulse.model.uncertainty import Exact, Model, Vectors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.kernels.arrays import Floats
    from appulse.model.defects import Defects

#: Coordinates that a vector may have.
MOST_COORDINATES = 4096


def as_vectors(model: Model, schema: pa.Schema) -> Model:
    """The model of a stream with these columns: an `Exact` of one column of lists of numbers is one of vectors."""
    if not isinstance(model, Exact) or len(model.columns) != 1 or schema.get_field_index(model.columns[0]) < 0:
        return model  # a column that is missing, or there twice, is refused later
    kind = schema.field(model.columns[0]).type
    return Vectors(model.columns[0]) if is_list(kind) and is_numeric(kind.value_type) else model


def is_open(model: Model, schema: pa.Schema) -> bool:
    """Whether rows may be numbers or vectors: an `Exact` of one column that has no type."""
    if not isinstance(model, Exact) or len(model.columns) != 1 or schema.get_field_index(model.columns[0]) < 0:
        return False
    return bool(pa.types.is_null(schema.field(model.columns[0]).type))


def all_as_vectors(models: Sequence[Model], schemas: Sequence[pa.Schema]) -> list[Model]:
    """The models of the streams of a call; where one has vectors, those whose column has no type have, too."""
    found = [as_vectors(model, schema) for model, schema in zip(models, schemas, strict=True)]
    if not any(isinstance(model, Vectors) for model in found):
        return found
    return [
        Vectors(model.columns[0]) if isinstance(model, Exact) and is_open(model, schema) else model
        for model, schema in zip(found, schemas, strict=True)
    ]


def coordinates_of_type(model: Vectors, schema: pa.Schema) -> int | None:
    """How many coordinates vectors have, where the type of their column says so."""
    kind = schema.field(model.columns[0]).type
    return checked_width(model, kind.list_size) if pa.types.is_fixed_size_list(kind) else None


def coordinates(table: pa.Table, model: Vectors) -> int | None:
    """How many coordinates most rows have; None if no row has any."""
    found, counts = np.unique(lengths(chunk(table[model.columns[0]])), return_counts=True)
    some = found > 0
    return checked_width(model, int(found[some][np.argmax(counts[some])])) if some.any() else None


def checked_width(model: Vectors, d: int) -> int:
    """So many coordinates, unless a join takes fewer."""
    if d > MOST_COORDINATES:
        raise BadArgument(
            f"Vectors of {model.columns[0]!r} have {d} coordinates. At most {MOST_COORDINATES} are joined."
        )
    return d


def checked_vectors(table: pa.Table, model: Vectors, d: int | None, defects: Defects) -> Floats:
    """The vectors of a table, (n, d); rows that are null, of another length or not finite are marked."""
    name = model.columns[0]
    column = chunk(table[name])
    counts = lengths(column)
    defects.mark(counts == 0, why.EMPTY_SAMPLES, f"column {name!r} is null or empty")
    d = max(1, int(counts.max(initial=1))) if d is None else d
    even = counts == d
    defects.mark(
        ~even, why.WRONG_DIMENSION, why.of_values(f"column {name!r} has ", counts, f" numbers, the call has {d}")
    )
    if len(even) and even.all():
        rows = _numbers(column.flatten()).reshape(-1, d)
    else:
        rows = np.full((len(table), d), np.nan)
        if even.any():
            rows[even] = floats(column.flatten())[np.repeat(even, counts)].reshape(-1, d)
    finite = np.isfinite(rows)
    if not finite.all():
        defects.mark(~finite.all(axis=1), why.NON_FINITE, f"a number of {name!r} is null, NaN or infinite")
    return rows


def _numbers(array: pa.Array) -> Floats:
    """A copy as float64, null as NaN."""
    plain = pa.types.is_floating(array.type) and array.null_count == 0
    return np.array(array.to_numpy() if plain else floats(array), np.float64)


def directed(rows: Floats, defects: Defects) -> Floats:
    """The rows at length 1, in place; those of length 0 are marked."""
    largest = np.empty(len(rows))
    direct(rows, largest)
    defects.mark(largest == 0.0, why.NO_DIRECTION, "all coordinates are 0")
    return rows
