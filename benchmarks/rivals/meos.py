"""PyMEOS: pairs of trips that ever come within a distance, boxes first, then the exact test.

    python meos.py rows.parquet epsilon max_gap

The rows have ``key`` (a number), ``t`` (microseconds), ``x`` and ``y``, in order of key and time.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pymeos_cffi as meos
from pymeos import pymeos_initialize

if TYPE_CHECKING:
    from collections.abc import Iterator

_FROM_2000 = 946_684_800_000_000


def trips(columns: list[Any], max_gap: int) -> tuple[Any, list[Any], Any]:
    """The stretches without gaps: their keys, MEOS sequences, and boxes."""
    key, t, x, y = columns
    cut = np.flatnonzero((np.diff(key) != 0) | (np.diff(t) > max_gap)) + 1
    begins, ends = np.append(0, cut), np.append(cut, len(key))
    made: list[Any] = []
    srid, geodetic, lower, upper, normalize = 0, False, True, True, False
    ffi = meos.functions._ffi  # noqa: SLF001 - arrays go in no other way
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        xs, ys = np.ascontiguousarray(x[begin:end]), np.ascontiguousarray(y[begin:end])
        ts = np.ascontiguousarray(t[begin:end] - _FROM_2000)
        made.append(
            meos.tpointseq_make_coords(
                ffi.from_buffer("double[]", xs),
                ffi.from_buffer("double[]", ys),
                ffi.NULL,
                ffi.from_buffer("int64_t[]", ts),
                end - begin,
                *(srid, geodetic, lower, upper, meos.InterpolationType.LINEAR, normalize),
            )
        )
    boxes = np.column_stack(
        [part.reduceat(column, begins) for column in (x, y, t) for part in (np.minimum, np.maximum)]
    )
    return key[begins], made, boxes


def candidates(boxes: Any, key: Any, epsilon: float) -> Iterator[tuple[int, int]]:
    """Pairs of stretches of two keys whose boxes come so near."""
    for i in range(len(boxes) - 1):
        rest = boxes[i + 1 :]
        near = key[i + 1 :] != key[i]
        for axis, reach in ((0, epsilon), (2, epsilon), (4, 0)):
            near &= (rest[:, axis] - reach <= boxes[i, axis + 1]) & (rest[:, axis + 1] + reach >= boxes[i, axis])
        for j in np.flatnonzero(near).tolist():
            yield i, i + 1 + j


def meeting(columns: list[Any], epsilon: float, max_gap: int) -> set[tuple[int, int]]:
    """The pairs of keys."""
    own, made, boxes = trips(columns, max_gap)
    found: set[tuple[int, int]] = set()
    for i, j in candidates(boxes, own, epsilon):
        pair = (int(own[i]), int(own[j]))
        if pair not in found and meos.edwithin_tgeo_tgeo(made[i], made[j], epsilon) > 0:
            found.add(pair)
    return found


def main() -> None:
    """Print the least time of three, and the pairs."""
    pymeos_initialize()
    table = pq.read_table(sys.argv[1])
    epsilon, max_gap = float(sys.argv[2]), int(float(sys.argv[3]) * 1e6)
    columns = [table[name].to_numpy() for name in ("key", "t", "x", "y")]
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        found = meeting(columns, epsilon, max_gap)
        seconds.append(time.perf_counter() - begin)
    print(json.dumps({"seconds": min(seconds), "pairs": sorted(found)}))


if __name__ == "__main__":
    main()
