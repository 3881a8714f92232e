"""Readings to samples: those of one thing in one interval become one row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints
    from appulse.model.objects import Objects
    from appulse.model.strings import Bytes


@dataclass(frozen=True)
class Collected:
    """Samples of things: ``last`` are the latest of their readings, and ``first`` where the samples of each begin."""

    last: Ints
    first: Ints
    points: Floats
    weights: Floats


def collect(rows: Objects, keys: Bytes, every: int) -> Collected:
    """The samples of readings in canonical order, by their own ``keys`` and intervals (microseconds) since 1970.

    Readings of an interval weigh the same, each as much of that as the probability that it exists.
    """
    interval = rows.time // every
    key = np.asarray(keys.to_arrow().dictionary_encode().indices).astype(np.int64)
    group = np.zeros(len(rows), np.int64) if rows.group is None else rows.group.codes.astype(np.int64)
    order = np.lexsort((group, key, interval))
    said = np.column_stack([interval, key, group])[order]
    begins = np.flatnonzero(np.r_[True, (said[1:] != said[:-1]).any(axis=1)])
    first = np.append(begins, len(order))
    counts = np.diff(first)
    return Collected(order[first[1:] - 1], first, rows.centre[order], rows.mass[order] / np.repeat(counts, counts))
