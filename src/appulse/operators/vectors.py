"""Rows in many dimensions: candidates by blocked matrix products, as no cell of a grid tells such rows apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.arrays import RowPairs
from appulse.kernels.nearest import mean_distances, nearest
from appulse.kernels.products import Leaders, Products, close_pairs, leading_pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from appulse.kernels.arrays import Floats, Ints
    from appulse.kernels.nearest import Search
    from appulse.kernels.nearest_tree import Tree
    from appulse.kernels.sweep import ArrivalRows, PairRule
    from appulse.operators.store import WindowBuffer

    Places = Callable[[Ints], Floats]

#: Dimensions, and arrivals of a push, from which on products cost less than distances one by one.
MANY_DIMENSIONS, MANY_ARRIVALS = 24, 8
# Nanoseconds of a pair in a block when the nearest are looked for, of each of its coordinates, and of a block.
_PER_PAIR, _PER_COORDINATE, _PER_BLOCK = 1.2, 0.015, 1e5
_ARRIVALS, _ROWS = 512, 2048  # of a block: its products, and the rows they are of, stay in the cache
_TOGETHER = 16_384  # arrivals that meet a block of rows before the next one is made
_SAMPLE = 256  # rows of each side that choose the axes
_MANY_PRODUCTS = 1 << 34  # of all pairs and coordinates: from here on axes may save more than they cost to find
_ONE_BY_ONE = 20.0  # what a coordinate costs in a distance by itself, where one in a product of blocks costs 1
_ROUNDING = 2.0**-24  # of a float32
_MOST = 1e36  # a product that is larger may not fit


def close_vectors(
    store: WindowBuffer, rule: PairRule, arrivals: ArrivalRows, places: Places, limit: float
) -> Iterator[tuple[Ints, Ints, int]]:
    """Arrivals and rows of a store that may be within the limit, in order, and how many pairs were looked at.

    Arrivals meet the rows that were there before them, those of their own push included. ``places`` tells where some
    of them are.
    """
    own = arrivals.store == rule.own
    upto = store.linked + np.cumsum(own) - own  # rows that are there when each arrival comes
    probing = np.flatnonzero(rule.meets[arrivals.store] & (upto > 0))
    axes = _leading_axes(places, probing, store.centre.view, limit)
    for first in range(0, len(probing), _TOGETHER):
        some = probing[first : first + _TOGETHER]
        begin = int(np.searchsorted(store.rank_max.view, arrivals.oldest[some].min(), side="left"))
        lefts = [_Probes(part, upto[part], _Block(places(part), axes)) for part in _parts(some)]
        found = [(np.empty(0, np.int64), np.empty(0, np.int64))]
        for row in range(begin, int(upto[some[-1]]), _ROWS):
            right = _Block(store.centre.view[row : row + _ROWS], axes)
            found += [_close(store, rule, arrivals, left, right, row, limit) for left in lefts if left.upto[-1] > row]
        at, rows = (np.concatenate([pairs[i] for pairs in found]) for i in (0, 1))
        order = np.argsort(at, kind="stable")  # by row already
        yield at[order], rows[order], int(np.maximum(upto[some] - begin, 0).sum())


def _parts(some: Ints) -> list[Ints]:
    return [some[first : first + _ARRIVALS] for first in range(0, len(some), _ARRIVALS)]


class _Block:
    """Some points: as float32, and half of their squared lengths.

    With ``axes`` they have their coordinates along these, and the length of the rest as one more: the product of two
    points is then at least that of all coordinates (Cauchy and Schwarz).
    """

    def __init__(self, points: Floats, axes: Floats | None = None) -> None:
        self.axes = axes
        self.half: Floats = np.einsum("ij,ij->i", points, points) / 2.0
        if axes is not None:
            along = points @ axes
            rest = 2.0 * self.half - np.einsum("ij,ij->i", along, along)
            points = np.column_stack([along, np.sqrt(np.maximum(rest, 0.0) + 1e-12 * self.half)])
        with np.errstate(over="ignore"):
            self.points = points.astype(np.float32)
        self.largest = float(self.half.max(initial=0.0))


class _Probes(NamedTuple):
    """Some arrivals, how many rows were there before each of them, and where they are."""

    arrival: Ints
    upto: Ints
    block: _Block


def _close(
    store: WindowBuffer,
    rule: PairRule,
    arrivals: ArrivalRows,
    left: _Probes,
    right: _Block,
    begin: int,
    limit: float,
) -> tuple[Ints, Ints]:
    """The pairs of some arrivals and a block of rows, from ``begin`` on, that may be close."""
    need = needed(left.block.half, right.largest, limit, store.d)
    if left.block.largest + right.largest > _MOST:
        need[:] = -np.inf  # looked at one by one
    with np.errstate(over="ignore", invalid="ignore"):
        product = left.block.points @ right.points.T
        need32, half = need.astype(np.float32), right.half.astype(np.float32)
    block = Products(product, need32, half, left.arrival, left.upto, begin)
    room = _ROWS
    while True:
        at, rows = np.empty(room, np.int64), np.empty(room, np.int64)
        n = close_pairs(block, arrivals, store.window_rows, rule.check_differ, at, rows)
        if n <= room:
            return at[:n], rows[:n]
        room = n


def _leading_axes(places: Places, probing: Ints, right: Floats, limit: float) -> Floats | None:
    """The axes along which most of the points lie, (d, k), where few pairs are close along them; None: all are needed.

    By a sample: k axes cost k products a pair, and all of those a pair that they leave open.
    """
    d = right.shape[1]
    if len(right) < 2 or len(probing) * len(right) * d < _MANY_PRODUCTS:
        return None
    rows, probes = right[:: 1 + len(right) // (2 * _SAMPLE)], places(probing[:: 1 + len(probing) // _SAMPLE])
    # Judged by other rows than those that they are of, which lie along them in any case.
    axes: Floats = np.linalg.svd(rows[::2], full_matrices=False)[2].T
    rows = rows[1::2]
    costs = {None: float(d)}
    for k in (d // 24, d // 12, d // 6, d // 3):
        a, b = _Block(probes, axes[:, :k]), _Block(rows, axes[:, :k])
        need = needed(a.half, b.largest, limit, d)
        open_share = (a.points @ b.points.T >= need[:, None] + b.half).mean()
        costs[k] = k + float(open_share) * d * _ONE_BY_ONE
    best = min(costs, key=lambda k: costs[k])
    return None if best is None else np.ascontiguousarray(axes[:, :best])


def nearest_vectors(
    points: Floats, place: Floats, time: Ints, when: Ints, search: Search, found: Ints, distance: Floats
) -> int:
    """As `appulse.kernels.nearest.nearest`, in many dimensions: ``points`` were at ``when``, and there is no tree."""
    ties = 0
    order, begins, ends = _blocks(time, when, search)
    for part, begin, end in zip(_parts(order), begins, ends, strict=True):
        pairs = _leading(points[begin:end], place[part], time[part], when[begin:end], search)
        away = np.empty(len(pairs.left))
        mean_distances(pairs, place[part], points[begin:end], search.earth, away)
        near = np.flatnonzero(away <= search.limit)
        left, right, away = pairs.left[near], pairs.right[near] + begin, away[near]
        sorted_ = np.lexsort((right, away, left))
        left, right, away = left[sorted_], right[sorted_], away[sorted_]
        same = (left[1:] == left[:-1]) & (away[1:] == away[:-1])
        ties += int((same & (when[right[1:]] == when[right[:-1]])).sum())
        rank = np.arange(len(left)) - np.searchsorted(left, np.arange(len(part)))[left]
        kept = rank < search.k
        found[part], distance[part] = -1, np.nan
        at = part[left[kept]], rank[kept]
        found[at], distance[at] = right[kept], away[kept]
    return ties


def cost_of_blocks(time: Ints, when: Ints, search: Search, d: int) -> float:
    """Nanoseconds that `nearest_vectors` takes, about."""
    order, begins, ends = _blocks(time, when, search)
    sizes = np.array([len(part) for part in _parts(order)], np.float64)
    return float((sizes * (ends - begins)).sum()) * (_PER_PAIR + _PER_COORDINATE * d) + len(sizes) * _PER_BLOCK


def _blocks(time: Ints, when: Ints, search: Search) -> tuple[Ints, Ints, Ints]:
    """Places in the order of time; and for each block of them the rows in the windows of any, which are in order, too.

    Where rows are in no order of time, all of them.
    """
    order = np.argsort(time, kind="stable")
    first = np.arange(0, len(order), _ARRIVALS)
    if (when[1:] < when[:-1]).any():
        return order, np.zeros(len(first), np.int64), np.full(len(first), len(when))
    last = np.minimum(first + _ARRIVALS, len(order)) - 1
    begins = np.searchsorted(when, time[order[first]] - search.older)
    ends = np.searchsorted(when, time[order[last]] + search.newer, side="right")
    return order, begins, np.maximum(begins, ends)


def nearest_of_several(
    tree: Tree, points: Floats, place: Floats, time: Ints, when: Ints, search: Search, found: Ints, distance: Floats
) -> int:
    """By the tree, or where rows fill so many dimensions that it leaves most of them open, as of many dimensions."""
    budget = cost_of_blocks(time, when, search, points.shape[1])
    ties = nearest(tree, place, time, when, search._replace(budget=budget), found, distance)
    return ties if ties >= 0 else nearest_vectors(points, place, time, when, search, found, distance)


def _leading(points: Floats, place: Floats, time: Ints, when: Ints, search: Search) -> RowPairs:
    """The pairs among which are the nearest of each place."""
    left, d = _Block(place), points.shape[1]
    limit = search.limit * search.limit * (1.0 + 1e-6) / 2.0
    best = np.full((len(place), search.k), limit)
    parts = [(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))]
    for begin in range(0, len(points), _ROWS):
        right = _Block(points[begin : begin + _ROWS])
        slack = _slack(left.half, right.largest, d)
        if left.largest + right.largest > _MOST:
            slack[:] = np.inf
        with np.errstate(over="ignore", invalid="ignore"):
            product = left.points @ right.points.T
        leaders = Leaders(left.half, slack, time - search.older, time + search.newer, best)
        out = np.empty(product.size, np.int64), np.empty(product.size, np.int64), np.empty(product.size)
        n = leading_pairs(product, right.half, when[begin : begin + _ROWS], leaders, *out)
        parts.append((out[0][:n].copy(), out[1][:n] + begin, out[2][:n].copy()))
    at, rows, least = (np.concatenate([part[i] for part in parts]) for i in range(3))
    kept = ~(least > best[at, -1])
    return RowPairs(at[kept], rows[kept])


def needed(half: Floats, largest: float, limit: float, d: int) -> Floats:
    """What a product has to reach for a distance within the limit, less half the squared length of the other point.

    For |a - b|^2 = |a|^2 + |b|^2 - 2 ab.
    """
    need: Floats = half - limit * limit * (1.0 + 1e-6) / 2.0 - _slack(half, largest, d)
    return need


def _slack(half: Floats, largest: float, d: int) -> Floats:
    """How far half the squared distance of two points may be off, with at most ``largest`` for half a squared length.

    A product of d float32 numbers is off by at most d + 12 roundings of the product of the lengths (Higham 2002, 3.5),
    those of the coordinates and of the sums here among them, which may be float32 numbers themselves.
    """
    slack: Floats = (d + 12) * _ROUNDING * (2.0 * np.sqrt(half * largest) + half + largest) + 1e-30
    return slack
