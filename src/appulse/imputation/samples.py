"""From distributions of single attributes to samples of whole rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from appulse.errors import BadArgument
from appulse.kernels import neighbours as kernels
from appulse.model.batch import SHARED, Batch
from appulse.model.filled import OBSERVED, Filled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from appulse.kernels.arrays import Flags, Floats, Ints

# Samples of one row, and of all rows that are filled at once, beyond which they are refused, not filled.
MOST_COMBINED, _MOST_TOGETHER = 1 << 24, 1 << 27


@dataclass(frozen=True)
class Choices(Batch):
    """What some attributes of each of n rows may be, together.

    Row i has ``count[i]`` choices from ``values[begin[i]]`` on, (total, attributes), with ``shares`` that sum to 1.
    ``columns`` are the attributes, ``way`` (n) what filled them.
    """

    columns: Ints = field(metadata=SHARED)
    begin: Ints
    count: Ints
    values: Floats = field(metadata=SHARED)
    shares: Floats = field(metadata=SHARED)
    way: Ints

    def thinned(self, most: int) -> Choices:
        """At most so many choices for each row, at evenly spaced quantiles."""
        n = len(self.begin)
        if n == 0 or int(self.count.max()) <= most:
            return self
        places, weights, sizes = np.empty((n, most), np.int64), np.empty((n, most)), np.empty(n, np.int64)
        kernels.thin(self.begin, self.count, self.shares, most, places, weights, sizes)
        kept = np.arange(most) < sizes[:, None]
        begin = np.cumsum(sizes) - sizes
        return Choices(self.columns, begin, sizes, self.values[places[kept]], weights[kept], self.way)


def unknown(holes: Ints, n: int) -> Choices:
    """For n rows whose holes nothing is known of: NaN, so that they are rejects."""
    begin, one = np.zeros(n, np.int64), np.ones(n, np.int64)
    return Choices(holes, begin, one, np.full((1, len(holes)), np.nan), np.ones(1), np.zeros(n, np.int64))


def thinned(values: Floats, counts: Ints, most: int) -> tuple[Floats, Floats]:
    """Distinct values (m, attributes) in order and their shares: all, or those of ``most`` evenly spaced rows."""
    n = int(counts.sum())
    if len(values) <= most:
        return values, counts / n
    at = np.searchsorted(np.cumsum(counts), (2 * np.arange(most) + 1) * n // (2 * most), side="right")
    picked, times = np.unique(at, return_counts=True)
    return values[picked], times / most


def expanded(
    values: Floats,
    choices: Callable[[Floats, Ints, Ints], Sequence[Choices]],
    instances: int | None = None,
    wanted: Flags | None = None,
    together: Callable[[Floats, Ints, Ints], Sequence[Choices]] | None = None,
) -> Filled:
    """Rows (n, d), NaN where something is missing, as samples: every combination of what its holes may be.

    ``choices(values, holes, rows)`` tells the distributions of rows that all lack the same attributes. ``instances``
    caps the samples of a row. Rows that are not ``wanted`` are left with their holes. ``together`` is for rows with
    more samples than memory is for; without it these raise `BadArgument`.
    """
    n, d = values.shape
    missing = np.isnan(values)
    way = np.full((n, d), OBSERVED, np.int64)
    sizes = np.ones(n, np.int64)
    known: list[tuple[Ints, list[Choices]]] = []
    for holes, rows in patterns(missing if wanted is None else missing & wanted[:, None]):
        parts: list[Choices] = list(choices(values[rows], holes, rows)) if len(holes) else []
        if instances is not None and parts:
            most = max(1, int(instances ** (1.0 / len(parts)) + 1e-9))
            parts = [part.thinned(most) for part in parts]
        combined = _combined(parts, len(rows))
        over = combined > MOST_COMBINED
        if over.any() and (together is None or len(parts) < 2):
            raise BadArgument(
                f"A row with {len(holes)} holes has {combined.max():,.0f} combinations of what may "
                "stand there. Fill them together (joint=True), or cap them (instances=10_000)."
            )
        if not over.any():
            known.append((rows, parts))
            continue
        if not over.all():
            known.append((rows[~over], [part.filter(~over) for part in parts]))
        if together is not None:
            known.append((rows[over], list(together(values[rows[over]], holes, rows[over]))))
    for rows, parts in known:
        for part in parts:
            way[rows[:, None], part.columns] = part.way[:, None]
        sizes[rows] = _combined(parts, len(rows)).astype(np.int64)
    _refuse_too_many(sizes, missing)
    first = np.concatenate([[0], np.cumsum(sizes)])
    points, weights = np.empty((int(first[-1]), d)), np.ones(int(first[-1]))
    for rows, parts in known:
        if not parts:
            points[first[rows]] = values[rows]
        else:
            _multiply(values[rows], parts, first[rows], points, weights)
    return Filled(first, points, weights, way)


def evenly(
    values: Floats, samples: Callable[[Sequence[tuple[Ints, Ints]]], Sequence[Floats]], wanted: Flags | None = None
) -> Filled:
    """As `expanded`, where nothing is combined: samples are put in place at once.

    ``samples`` are, of each pair of holes and the rows that lack just these, what all holes of a row may be together,
    (rows, k, holes), each as likely.
    """
    asked = np.isnan(values) if wanted is None else np.isnan(values) & wanted[:, None]
    sizes = np.ones(len(values), np.int64)
    holed = [(holes, rows) for holes, rows in patterns(asked) if len(holes)]
    found = samples(holed)
    for (_, rows), some in zip(holed, found, strict=True):
        sizes[rows] = some.shape[1]
    _refuse_too_many(sizes, asked)
    first = np.concatenate([[0], np.cumsum(sizes)])
    points = np.repeat(values, sizes, axis=0)
    for (holes, rows), some in zip(holed, found, strict=True):
        places = first[rows][:, None] + np.arange(some.shape[1])
        points[places[:, :, None], holes] = some
    return Filled(first, points, np.repeat(1.0 / sizes, sizes), np.where(asked, 0, OBSERVED))


def _combined(parts: Sequence[Choices], n: int) -> Floats:
    """How many combinations each of n rows has."""
    found = np.ones(n)
    for part in parts:
        found *= part.count
    return found


def patterns(missing: Flags) -> list[tuple[Ints, Ints]]:
    """Which attributes are missing together, and in which rows: each set once."""
    packed = np.packbits(missing, axis=1)
    # Few attributes are one byte, whose order is found by counting.
    order = np.argsort(packed[:, 0], kind="stable") if packed.shape[1] == 1 else np.lexsort(packed.T[::-1])
    ordered = packed[order]
    changes = np.flatnonzero((ordered[1:] != ordered[:-1]).any(axis=1)) + 1
    bounds = [0, *changes.tolist(), len(order)]
    return [(missing[order[begin]].nonzero()[0], order[begin:end]) for begin, end in pairwise(bounds) if end > begin]


def _refuse_too_many(sizes: Ints, missing: Flags) -> None:
    """Raise `BadArgument`, before there is any, for more samples than memory is for."""
    total, d = int(sizes.sum()), missing.shape[1]
    if total <= _MOST_TOGETHER:
        return
    worst = int(np.argmax(sizes))
    raise BadArgument(
        f"{len(sizes):,} rows have {total:,} samples once they are filled, which takes {total * (d + 1) * 8 / 1e9:.1f} "
        f"GB; one with {int(missing[worst].sum())} holes alone has {sizes[worst]:,}. Fill the holes of a row together "
        "(joint=True), cap its samples (instances=1_000), or push fewer rows at once."
    )


def _multiply(values: Floats, parts: Sequence[Choices], place: Ints, points: Floats, weights: Floats) -> None:
    """Write the samples of rows with the same holes."""
    widest = max(len(part.columns) for part in parts)
    columns = np.full((len(parts), widest), -1, np.int64)
    starts = np.cumsum([0] + [len(part.shares) for part in parts])
    table = np.zeros((int(starts[-1]), widest))
    for p, part in enumerate(parts):
        columns[p, : len(part.columns)] = part.columns
        table[starts[p] : starts[p + 1], : len(part.columns)] = part.values
    holes = kernels.Choices(
        np.column_stack([part.begin + start for part, start in zip(parts, starts[:-1], strict=True)]),
        np.column_stack([part.count for part in parts]),
        columns,
        table,
        np.concatenate([part.shares for part in parts]),
    )
    kernels.product(np.ascontiguousarray(values), holes, place, points, weights)
