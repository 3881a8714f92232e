"""Sums, means and counts of the rows of windows, which are runs that may not exist, over all possible worlds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.aggregates import CountedRows, counted, long_means
from appulse.kernels.exact_sums import doubles, roots, run_means, run_sums

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints

__all__ = ["counted_moments", "existences", "means", "sums", "variances"]


# Where so many rows are expected to exist there are worlds without a row, but of a probability below rounding.
_LONG = 64.0


#: The Gauss-Laguerre rule of 16 nodes: these, and their weights times exp(node). Written out, for to compute them is
#: not the same to the last bit on all machines.
_NODES = (
    np.array(
        [
            0.08764941047892784,
            0.46269632891508083,
            1.141057774831227,
            2.1292836450983805,
            3.4370866338932067,
            5.078018614549768,
            7.070338535048234,
            9.438314336391938,
            12.21422336886616,
            15.441527368781617,
            19.180156856753136,
            23.515905693991908,
            28.57872974288214,
            34.58339870228662,
            41.94045264768833,
            51.70116033954332,
        ]
    ),
    np.array(
        [
            0.22503631486424724,
            0.5258360527623425,
            0.831961391687087,
            1.1460992409637516,
            1.4717513169668086,
            1.813134687381348,
            2.1755175196946075,
            2.565762750165029,
            2.993215086371375,
            3.4712344831020903,
            4.020044086444669,
            4.672516607732854,
            5.487420657986153,
            6.5853612332892135,
            8.276357984364234,
            11.824277551658435,
        ]
    ),
)


def existences(begin: Ints, end: Ints, exist: Floats) -> Floats:
    """The probability that any row of each window exists."""
    sure = exist == 1.0
    if sure.all():
        return np.where(end > begin, 1.0, 0.0)
    log_none = doubles(*run_sums(begin, end, np.log1p(-np.where(sure, 0.0, exist))))
    found: Floats = np.where(_many(begin, end, sure) > 0, 1.0, -np.expm1(log_none))
    return found


def sums(begin: Ints, end: Ints, exist: Floats, mean: Floats, deviation: Floats) -> Floats:
    """Mean and deviation of the sum over all existing rows of each window: a row of two each."""
    total = doubles(*run_sums(begin, end, exist * mean))
    return np.column_stack([total, roots(*_variances(begin, end, exist, mean, deviation))])


def means(begin: Ints, end: Ints, rows: CountedRows) -> Floats:
    """Mean and deviation of the mean over all existing rows of each window, where any exist: a row of two each."""
    sure = _many(begin, end, rows.exist < 1.0) == 0
    if sure.all():
        return _certain_moments(begin, end, rows)[:, 2:4]
    out = np.empty((len(begin), 2))
    out[sure] = _certain_moments(begin[sure], end[sure], rows)[:, 2:4]
    long = ~sure & (doubles(*run_sums(begin, end, rows.exist)) >= _LONG)
    part = np.empty((int(long.sum()), 2))
    long_means(begin[long], end[long], rows, *_NODES, part)
    out[long] = part
    short = ~(sure | long)
    every = np.empty((int(short.sum()), 6))
    counted(begin[short], end[short], *rows, 0, every)
    out[short] = every[:, 2:4]
    return out


def counted_moments(begin: Ints, end: Ints, rows: CountedRows, size: int) -> Floats:
    """Mean and deviation of sum, mean and count over the newest ``size`` existing rows of each window.

    A row of six each.
    """
    first = np.maximum(begin, end - size)
    out = np.empty((len(begin), 6))
    sure = _many(first, end, rows.exist < 1.0) == 0
    out[sure] = _certain_moments(first[sure], end[sure], rows)
    part = np.empty((len(sure) - int(sure.sum()), 6))
    counted(begin[~sure], end[~sure], *rows, size, part)
    out[~sure] = part
    return out


def _certain_moments(begin: Ints, end: Ints, rows: CountedRows) -> Floats:
    """As `counted_moments`, of windows whose rows all exist."""
    n = end - begin
    total, mean, shift = run_means(begin, end, rows.mean)
    spread, spread_shift = _variances(begin, end, np.ones(len(rows.mean)), rows.mean, rows.deviation)
    out = np.zeros((len(begin), 6))
    out[:, 0], out[:, 1] = doubles(total, shift), roots(spread, spread_shift)
    out[:, 2], out[:, 3] = doubles(mean, shift), roots(spread / n / n, spread_shift)
    out[:, 4] = n
    if rows.rest.any():
        lost = doubles(*run_sums(begin, end, rows.rest))
        out[:, 0] += lost
        out[:, 2] += lost / n
    return out


def _many(begin: Ints, end: Ints, mask: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Ints:
    """How many rows of each run are so."""
    before = np.append(0, np.cumsum(mask))
    many: Ints = before[end] - before[begin]
    return many


def _variances(begin: Ints, end: Ints, exist: Floats, mean: Floats, deviation: Floats) -> tuple[Floats, Ints]:
    """Of each run that of the sum over all existing rows, which are independent, as `run_sums` gives it."""
    if not deviation.any() and (exist == 1.0).all():
        return np.zeros(len(begin)), np.zeros(len(begin), np.int64)
    return run_sums(begin, end, *variances(exist, mean, deviation))


def variances(exist: Floats, mean: Floats, deviation: Floats) -> tuple[Floats, Ints]:
    """That of what each row brings to a sum, as multiples of powers of two."""
    unit = np.frexp(np.maximum(np.abs(mean), deviation))[1].astype(np.int64)  # in which squares are doubles
    value, own = np.ldexp(mean, -unit), np.ldexp(deviation, -unit)
    return exist * own * own + exist * (1.0 - exist) * value * value, 2 * unit
