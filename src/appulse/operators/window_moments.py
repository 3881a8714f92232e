"""Sums, means and counts of the rows of windows, which are runs that may not exist, over all possible worlds."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.aggregates import counted
from appulse.kernels.exact_sums import doubles, roots, run_sums

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints

__all__ = ["CountedRows", "counted_moments", "existences", "sums"]


class CountedRows(NamedTuple):
    """Rows: the probability that each exists, its mean, what rounding took away from that, and its deviation."""

    exist: Floats
    mean: Floats
    rest: Floats
    deviation: Floats


def existences(begin: Ints, end: Ints, exist: Floats) -> Floats:
    """The probability that any row of each window exists."""
    sure = exist == 1.0
    log_none = doubles(*run_sums(begin, end, np.log1p(-np.where(sure, 0.0, exist))))
    found: Floats = np.where(_many(begin, end, sure) > 0, 1.0, -np.expm1(log_none))
    return found


def sums(begin: Ints, end: Ints, exist: Floats, mean: Floats, deviation: Floats) -> Floats:
    """Mean and deviation of the sum over all existing rows of each window: a row of two each."""
    total = doubles(*run_sums(begin, end, exist * mean))
    return np.column_stack([total, roots(*_variances(begin, end, exist, mean, deviation))])


def counted_moments(begin: Ints, end: Ints, rows: CountedRows, size: int) -> Floats:
    """Mean and deviation of sum, mean and count of each window: a row of six each.

    With ``size`` above 0 a window holds in each world its newest so many rows that exist.
    """
    first = np.maximum(begin, end - size) if size else begin
    out = np.empty((len(begin), 6))
    sure = _many(first, end, rows.exist < 1.0) == 0
    if not sure.all():
        part = np.empty((len(sure) - int(sure.sum()), 6))
        counted(begin[~sure], end[~sure], *rows, size, part)
        out[~sure] = part
    if sure.any():
        out[sure] = _certain_moments(first[sure], end[sure], rows)
    return out


def _certain_moments(begin: Ints, end: Ints, rows: CountedRows) -> Floats:
    """As `counted_moments`, of windows whose rows all exist."""
    n = end - begin
    total, shift = run_sums(begin, end, rows.mean)
    lost = doubles(*run_sums(begin, end, rows.rest))
    spread, spread_shift = _variances(begin, end, np.ones(len(rows.mean)), rows.mean, rows.deviation)
    return np.column_stack(
        [
            doubles(total, shift) + lost,
            roots(spread, spread_shift),
            doubles(total / n, shift) + lost / n,
            roots(spread / n / n, spread_shift),
            n,
            np.zeros(len(n)),
        ]
    )


def _many(begin: Ints, end: Ints, mask: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Ints:
    """How many rows of each run are so."""
    before = np.append(0, np.cumsum(mask))
    many: Ints = before[end] - before[begin]
    return many


def _variances(begin: Ints, end: Ints, exist: Floats, mean: Floats, deviation: Floats) -> tuple[Floats, Ints]:
    """Of each run that of the sum over all existing rows, which are independent, as `run_sums` gives it."""
    if not deviation.any() and (exist == 1.0).all():
        return np.zeros(len(begin)), np.zeros(len(begin), np.int64)
    unit = np.frexp(np.maximum(np.abs(mean), deviation))[1].astype(np.int64)  # in which squares are doubles
    value, own = np.ldexp(mean, -unit), np.ldexp(deviation, -unit)
    return run_sums(begin, end, exist * own * own + exist * (1.0 - exist) * value * value, 2 * unit)
