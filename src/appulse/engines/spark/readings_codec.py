"""Readings as byte strings between stages and in logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from appulse.engines.spark.codec import pack_arrays, unpack_arrays
from appulse.model.readings import Readings
from appulse.model.strings import Bytes, Labels

if TYPE_CHECKING:
    from numpy.typing import NDArray


def pack_readings(readings: Readings) -> bytes:
    """The readings as a block; labels that none of them has are left out."""
    n = len(readings)
    arrays: dict[str, NDArray[Any]] = {"time": readings.time, "bits": readings.bits}
    widths = np.diff(readings.sensor.offsets)
    if n and (widths == widths[0]).all():
        arrays["width"] = widths[:1]
    else:
        arrays["ends"] = readings.sensor.offsets
    arrays["sensors"] = readings.sensor.data
    if readings.label:
        used, codes = np.unique(readings.bits, return_inverse=True)
        _put_labels(arrays, "label", Labels(codes.astype(np.int32), tuple(readings.label[i] for i in used.tolist())))
        del arrays["bits"]
    elif readings.key is not readings.bits:
        arrays["key"] = readings.key
    if readings.group is not None:
        _put_labels(arrays, "group", readings.group.compact())
    if readings.length is not None:
        arrays["length"] = readings.length
    if readings.asks is not None:
        arrays["asks"] = readings.asks
    if readings.carry is not None:
        arrays["carry"] = np.frombuffer(_table_bytes(readings.carry), np.uint8)
    return pack_arrays(arrays)


def unpack_readings(block: bytes) -> Readings:
    """What `pack_readings` packed."""
    arrays = unpack_arrays(block)
    label = _labels(arrays, "label")
    bits = arrays["bits"] if label is None else label.codes.astype(np.int64)
    n = len(arrays["time"])
    ends = arrays["ends"] if "ends" in arrays else np.arange(n + 1) * arrays["width"]
    return Readings(
        arrays["time"],
        Bytes(ends, arrays["sensors"]),
        bits,
        arrays.get("key", bits),
        () if label is None else label.values,
        _labels(arrays, "group"),
        arrays.get("length"),
        arrays.get("asks"),
        pa.ipc.open_stream(arrays["carry"]).read_all() if "carry" in arrays else None,
    )


def _put_labels(arrays: dict[str, NDArray[Any]], name: str, labels: Labels) -> None:
    values = Bytes.of(labels.values)
    arrays |= {name: labels.codes, f"{name}-ends": values.offsets, f"{name}-bytes": values.data}


def _labels(arrays: dict[str, NDArray[Any]], name: str) -> Labels | None:
    if name not in arrays:
        return None
    values = Bytes(arrays[f"{name}-ends"], arrays[f"{name}-bytes"])
    return Labels(arrays[name], tuple(values.to_list()))


def _table_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return bytes(sink.getvalue().to_pybytes())
