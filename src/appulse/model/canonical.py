"""Rows in canonical order: by partition, time, key and values, so that the order of a frame changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.numbering import sort_ties
from appulse.model.batch import Ragged
from appulse.model.columns import chunk, nulls
from appulse.model.filled import Fill, Filled
from appulse.model.strings import Bytes, encode

if TYPE_CHECKING:
    import pyarrow as pa

    from appulse.kernels.arrays import Floats, Ints


def canonical_places(key: pa.ChunkedArray | pa.Array | None, time: Ints, group: Ints, values: Floats) -> Ints:
    """The places of rows by partition, time, key (None: all have the same), and values, missing ones last."""
    order = np.lexsort((time, group))
    new = (time[order[1:]] != time[order[:-1]]) | (group[order[1:]] != group[order[:-1]])
    if new.all():
        return order
    moment = np.empty(len(order), np.int64)
    moment[order] = np.append(0, np.cumsum(new))
    keys = Bytes.of([b""] * len(order)) if key is None else _key_bytes(key)
    rows = np.where(np.isnan(values), np.inf, values)
    nothing = np.empty(0, np.int64), np.empty(0), np.empty(0)
    sort_ties(order, moment, keys.offsets, keys.data, rows, *nothing)
    return order


def _key_bytes(key: pa.ChunkedArray | pa.Array) -> Bytes:
    """Canonical bytes of keys, none of those that are null."""
    column = chunk(key)
    there = ~nulls(column)
    own = encode(column.drop_null())
    sizes = np.zeros(len(column), np.int64)
    sizes[there] = np.diff(own.offsets)
    return Bytes(np.append(0, np.cumsum(sizes)), own.data)


def filled_rows(fill: Fill, values: Floats, time: Ints, group: Ints, key: pa.ChunkedArray | pa.Array | None) -> Filled:
    """Rows filled, each the same in whatever order they come; partitions are numbered in the order of their values."""
    if not fill.in_order or len(values) < 2:
        return fill.fill(values, time, group)
    order = canonical_places(key, time, group, values)
    filled = fill.fill(values[order], time[order], group[order])
    if (np.diff(order) > 0).all():
        return filled
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    rows, weights = (Ragged(filled.first, own).take(place) for own in (filled.rows, filled.weights))
    return Filled(rows.offsets, rows.values, weights.values, filled.way[place])
