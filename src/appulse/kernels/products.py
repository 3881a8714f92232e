"""Points in many dimensions: which pairs of them may be close, by the products of their coordinates."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Floats32, Ints, Whole
    from appulse.kernels.sweep import ArrivalRows, WindowRows


# Products that are looked at together: most pairs are far apart, and 16 products at a time tell that of all of them.
_TOGETHER = 64


class Products(NamedTuple):
    """Scalar products of some arrivals with some rows of a store."""

    product: Floats32  # (arrivals, rows)
    need: Floats32  # of each arrival: the least product of a pair that may be close is this and ``half`` of the row
    half: Floats32  # of each row: half its squared length
    arrival: Ints  # the number of each arrival in the push
    upto: Ints  # of each arrival: rows of the store before this one were there when it came
    begin: Whole  # the first of the rows


@kernel
def close_pairs(
    block: Products,
    arrivals: ArrivalRows,
    window: WindowRows,
    check_differ: bool,
    out_arrival: Ints,
    out_row: Ints,
) -> int:
    """The pairs of a block that may be close and are in each other's windows; how many there are.

    Only as many are written as there is room for. What is not a number counts as close, so that nothing is lost where
    products are too large for their type.
    """
    n, half = 0, block.half
    for i in range(block.product.shape[0]):
        p, need, product = block.arrival[i], block.need[i], block.product[i]
        oldest, newest, group, differ = arrivals.oldest[p], arrivals.newest[p], arrivals.group[p], arrivals.differ[p]
        end = min(len(product), block.upto[i] - block.begin)
        for first in range(0, end, _TOGETHER):
            last, far = min(first + _TOGETHER, end), np.int32(0)
            # As slices and 32 bits: in other forms compilers find fewer or no products to take at once.
            some, halves = product[first:last], half[first:last]
            for k in range(len(some)):
                far += np.int32(some[k] - halves[k] < need)
            if far == last - first:
                continue
            for k in range(first, last):
                if product[k] - half[k] < need:
                    continue
                j = block.begin + k
                rank = window.rank[j]
                if rank < oldest or rank > newest or window.group[j] != group:
                    continue
                if check_differ and (window.differ[j] == 0 or differ == 0 or window.differ[j] == differ):
                    continue
                if n < out_row.shape[0]:
                    out_arrival[n], out_row[n] = p, j
                n += 1
    return n


class Leaders(NamedTuple):
    """Of each place, what is known of the nearest rows so far, and its window."""

    half: Floats  # half its squared length
    slack: Floats  # how far half a squared distance may be off
    oldest: Ints
    newest: Ints
    best: Floats  # (places, k): half the squared distances of the nearest are no greater, in order


@kernel
def leading_pairs(
    product: Floats32,
    half: Floats,
    time: Ints,
    leaders: Leaders,
    out_place: Ints,
    out_row: Ints,
    out_least: Floats,
) -> int:
    """Rows of a block that may be among the nearest of each place; how many pairs there are.

    ``out_least`` is what half the squared distance is at least. There has to be room for all.
    """
    n, k = 0, leaders.best.shape[1]
    for i in range(product.shape[0]):
        own, slack, best = leaders.half[i], leaders.slack[i], leaders.best[i]
        oldest, newest = leaders.oldest[i], leaders.newest[i]
        for j in range(product.shape[1]):
            square = own + half[j] - product[i, j]
            if square - slack > best[k - 1] or time[j] < oldest or time[j] > newest:
                continue
            out_place[n], out_row[n], out_least[n] = i, j, square - slack
            n += 1
            at = k - 1
            most = square + slack
            if most < best[at]:
                while at > 0 and best[at - 1] > most:
                    best[at] = best[at - 1]
                    at -= 1
                best[at] = most
    return n


@kernel
def direct(rows: Floats, largest: Floats) -> None:
    """Scale rows to length 1, in place; ``largest`` is set to the sizes of their largest coordinates. NaN stays."""
    for i in range(rows.shape[0]):
        row, most, square = rows[i], 0.0, 0.0
        for k in range(len(row)):
            most = max(most, abs(row[k]))
        # First by the largest, whose square may be no double.
        scale = most if most > 0.0 else 1.0
        for k in range(len(row)):
            row[k] /= scale
            square += row[k] * row[k]
        largest[i] = most if square == square else square  # noqa: PLR0124 - whether it is a number
        length = math.sqrt(square) if square > 0.0 else 1.0
        for k in range(len(row)):
            row[k] /= length
