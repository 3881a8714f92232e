"""How likely it is that few of some independent events come true: a Poisson-binomial distribution, cut off."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints


@exact_kernel
def add_partners(row: Ints, chance: Floats, counts: Floats) -> None:
    """Add partners, each to the counts of its row: how likely 0 to n - 1 partners are, and how many are expected."""
    n = counts.shape[1] - 1
    for e in range(row.shape[0]):
        r, p = row[e], min(1.0, chance[e])
        for k in range(n - 1, 0, -1):
            counts[r, k] = counts[r, k] * (1.0 - p) + counts[r, k - 1] * p
        counts[r, 0] *= 1.0 - p
        counts[r, n] += p


@exact_kernel
def few_of(counts: Floats, rows: Ints, few: Floats) -> None:
    """How likely some rows have fewer partners than asked for, by the counts of all rows."""
    n = counts.shape[1] - 1
    for i in range(len(rows)):
        total = 0.0
        for k in range(n):
            total += counts[rows[i], k]
        few[i] = min(1.0, total)


@exact_kernel
def fewer_than(chance: Floats, first: Ints, n: int, few: Floats, expected: Floats) -> None:
    """How likely fewer than ``n`` of each run of events come true, and how many are expected to.

    A run is from ``first[i]`` to ``first[i + 1]``. Event by event, with the probabilities of 0 to n - 1; all terms are
    positive, so that none cancel.
    """
    longest = 0
    for i in range(few.shape[0]):
        longest = max(longest, first[i + 1] - first[i])
    size = min(n, longest + 1)
    count = np.empty(size)
    for i in range(few.shape[0]):
        count[:] = 0.0
        count[0] = 1.0
        total = 0.0
        for e in range(first[i], first[i + 1]):
            p = min(1.0, chance[e])
            total += p
            for k in range(min(size - 1, e - first[i] + 1), 0, -1):
                count[k] = count[k] * (1.0 - p) + count[k - 1] * p
            count[0] *= 1.0 - p
        few[i], expected[i] = min(1.0, count.sum()), total
