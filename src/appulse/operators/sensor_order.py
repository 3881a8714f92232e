"""The one order of readings: time, sensor, value, what is carried."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from appulse.kernels.sensor_join import ascends, ranked
from appulse.model.strings import Bytes, encode

if TYPE_CHECKING:
    from appulse.kernels.arrays import Flags, Ints
    from appulse.model.readings import Readings


def order_of(readings: Readings) -> Ints | None:
    """The order (time, sensor, value, what is carried); None where the readings are in it already."""
    if ascends(readings.time, readings.sensor.offsets, readings.sensor.data):
        return None
    step = np.diff(readings.time)
    if (step < 0).any():
        return _ordered(readings, np.arange(len(readings)))
    # In order of time: only those that share theirs have to be looked at.
    tied = np.flatnonzero(np.concatenate([step == 0, [False]]) | np.concatenate([[False], step == 0]))
    order = np.arange(len(readings))
    order[tied] = _ordered(readings, tied)
    return order


def _ordered(readings: Readings, rows: Ints) -> Ints:
    """Some of the readings, in order."""
    time, rank = readings.time[rows], ranks(readings.sensor.take(rows))
    keys = np.empty(len(time), np.uint64)
    order = np.argsort(keys) if ranked(time, rank, keys) else np.lexsort((rank, time))
    same = (np.diff(time[order]) == 0) & (np.diff(rank[order]) == 0)
    order = rows[order]
    return _by_value(readings, order, same) if same.any() else order


def _by_value(readings: Readings, order: Ints, same: Flags) -> Ints:
    """Readings of one sensor at one time, in the order of their values and of what they carry."""
    value = readings.bits.view(np.uint64)
    if readings.label:
        value = ranks(Bytes.of(readings.label))[readings.bits].view(np.uint64)
    run = np.concatenate([[0], np.cumsum(~same)])
    if readings.carry is None or readings.carry.num_columns == 0:
        return order[np.lexsort((value[order], run))]
    rows = pa.StructArray.from_arrays(
        [column.combine_chunks() for column in readings.carry.columns], names=readings.carry.column_names
    )
    twins = np.flatnonzero(np.concatenate([same, [False]]) | np.concatenate([[False], same]))
    carried = np.zeros(len(order), np.int64)
    carried[twins] = ranks(encode(rows.take(pa.array(order[twins]))))
    return order[np.lexsort((carried, value[order], run))]


def ranks(values: Bytes) -> Ints:
    """The place of each value in the order of all, equal ones alike."""
    widths = np.diff(values.offsets)
    if len(values) and (widths == 8).all():
        _, places = np.unique(values.data.view(">u8").astype(np.uint64), return_inverse=True)
        return places.astype(np.int64)
    return np.asarray(pc.rank(values.to_arrow(), tiebreaker="dense")).astype(np.int64) - 1
