"""Readings as byte strings between stages and in logs."""

from __future__ import annotations

import numpy as np

from appulse.engines.spark import old_blocks
from appulse.model.codec import pack_columns, unpack_columns
from appulse.model.readings import Readings
from appulse.model.strings import Labels


def pack_readings(readings: Readings) -> bytes:
    """The readings as a block; labels that none of them has are left out."""
    columns = {"time": readings.time, "sensor": readings.sensor, "key": readings.key}
    if readings.label:
        columns["label"] = Labels(readings.bits.astype(np.int32), readings.label)
    else:
        columns["bits"] = readings.bits
    for name in ("group", "length", "asks", "carry", "counts"):
        columns[name] = getattr(readings, name)
    return pack_columns("readings", columns)


def unpack_readings(block: bytes) -> Readings:
    """What `pack_readings` packed."""
    if block[:4] == old_blocks.ARRAYS:
        return old_blocks.readings_of(block)
    columns, _ = unpack_columns("readings", block, copied=True)
    if (label := columns.pop("label", None)) is not None:
        columns |= {"bits": label.codes.astype(np.int64), "label": label.values}
    return Readings(**columns)
