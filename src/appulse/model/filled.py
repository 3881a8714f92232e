"""Rows whose missing attributes have been filled: weighted samples, and how each attribute came about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from appulse.model.carried import split_tail, with_tail
from appulse.model.columns import chunk, lengths
from appulse.model.strings import Bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.kernels.arrays import Floats, Ints
    from appulse.model.meaning import Meaning

#: The way of an attribute that was there.
OBSERVED = -1
#: What was filled, and by what.
FILLED = pa.list_(pa.struct([("attribute", pa.string()), ("rule", pa.string())]))


@dataclass(frozen=True)
class Filled:
    """Rows as samples: those of row i from ``first[i]`` to ``first[i + 1]``, points (total, d) with their weights.

    The weights of a row sum to 1. ``way`` (n, d) numbers what filled each attribute, `OBSERVED` where nothing had to.
    """

    first: Ints
    rows: Floats
    weights: Floats
    way: Ints


class Fill(Protocol):
    """What fills the missing attributes of one stream's rows."""

    def meaning(self) -> Meaning:
        """What fills, in plain JSON: it differs where answers may."""
        ...

    @property
    def in_order(self) -> bool:
        """Whether a row is filled by the rows around it, so that all of them have to be there, in order of time."""
        ...

    def fill(self, values: Floats, time: Ints, group: Ints) -> Filled:
        """Rows (n, d), NaN where something is missing but never everything; with their times and partitions."""
        ...

    def describe(self, way: int) -> str:
        """The name of a way to fill."""
        ...


#: Columns of rows that were filled in an earlier stage: samples, their weights, and what was filled by what.
PREFILLED = ("appulse imputed", "appulse imputed weights", "appulse filled")


@dataclass(frozen=True)
class Prefilled:
    """A fill that has been carried out: what rows may be stands in the columns `PREFILLED`."""

    whole: Fill

    in_order = False

    def bind(self, attributes: Sequence[str]) -> Prefilled:  # noqa: ARG002 - those that were filled
        """Itself, in the place of the imputer."""
        return self

    def meaning(self) -> Meaning:
        """That of the fill."""
        return self.whole.meaning()

    def describe(self, way: int) -> str:
        return self.whole.describe(way)

    def fill(self, values: Floats, time: Ints, group: Ints) -> Filled:
        """Rows that are not read from a table: as the fill has them."""
        return self.whole.fill(values, time, group)

    def read(self, table: pa.Table, values: Floats) -> Filled:
        """What rows (n, d) may be, by the table that they come from."""
        points, weights = (chunk(table[name]) for name in PREFILLED[:2])
        flat = points.flatten().flatten().to_numpy(zero_copy_only=False)
        rows = np.asarray(flat, np.float64).reshape(-1, values.shape[1])
        way = np.where(np.isnan(values), 0, OBSERVED).astype(np.int64)
        first = np.append(0, np.cumsum(lengths(points)))
        return Filled(first, rows, weights.flatten().to_numpy(zero_copy_only=False), way)


def column_of(way: Ints, attributes: Sequence[str], fill: Fill) -> pa.Array:
    """What was filled in each row and by what, as a column of `FILLED`."""
    rows, columns = np.nonzero(way != OBSERVED)
    used, codes = np.unique(way[rows, columns], return_inverse=True)
    names = pa.array([fill.describe(code) for code in used.tolist()], pa.string())
    filled_by = pa.StructArray.from_arrays(
        [pa.array(list(attributes), pa.string()).take(pa.array(columns)), names.take(pa.array(codes))],
        fields=list(FILLED.value_type),
    )
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(way)))])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), filled_by).cast(FILLED)


def with_ways(keys: Bytes, centre: Floats, way: Ints | None) -> Bytes:
    """Keys that carry how their rows were filled: ``way`` is None where nothing was missing."""
    ways = np.full(centre.shape, OBSERVED, np.int64) if way is None else np.ascontiguousarray(way)
    return with_tail(keys, centre, Bytes.fixed(ways.view(np.uint8).reshape(len(centre), 8 * centre.shape[1])))


def split_ways(keys: Bytes, d: int) -> tuple[Bytes, Ints]:
    """What `with_ways` put together: the keys as they were, and the ways (n, d)."""
    own, ways = split_tail(keys, d, 8 * d)
    return own, ways.data.view(np.int64).reshape(len(keys), d)
