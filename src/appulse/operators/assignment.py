"""One partner per row: the pairs of a block with the greatest sum of gains, in which no row occurs twice."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.errors import BadArgument
from appulse.kernels.assignment import margins

if TYPE_CHECKING:
    from collections import Counter

    from appulse.kernels.arrays import Flags, Floats, Ints

# Gains below this are the same where an order counts more: they are those of rows hundreds of deviations apart.
_LEAST = -1e5
# Rows of a component up to which all its pairs are laid out as a matrix.
_DENSE = 128
#: What gains may be.
BY = ("likelihood", "probability", "distance")
METHODS = ("optimal", "greedy")


class Gains(NamedTuple):
    """What pairs gain. One of a higher ``order`` gains more than any number of lower ones: sums go by order first."""

    gain: Floats
    order: Ints | None = None


def assigned(
    left: Ints, right: Ints, gains: Gains, *, greedy: bool, most: int, counts: Counter[str]
) -> tuple[Ints, Floats]:
    """Which pairs are chosen, and how much the greatest sum falls where each is forbidden (NaN for the greedy choice).

    Pairs that gain nothing are never chosen. Pairs of rows that follow from each other are a component, which has
    at most ``most`` rows. Where the sum falls by an order it falls by infinity.
    """
    gain, order = gains.gain, np.zeros(len(left), np.int64) if gains.order is None else gains.order
    worth = np.flatnonzero((gain > 0.0) | (order > 0))
    left, right, gain, order = left[worth], right[worth], gain[worth], order[worth]
    if len(worth) == 0:
        return worth, np.empty(0)
    (left, n), (right, m) = _renumbered(left), _renumbered(right)
    if greedy:
        chosen = _greedy(left, right, np.lexsort((right, left, -gain, -order)), n, m)
        return worth[chosen], np.full(int(chosen.sum()), np.nan)
    component = _components(left, right, n, m)
    gain, step = _by_order(left, gain, order, component)
    chosen = _optimal(left, right, gain, component, most, counts)
    lost: Floats = margins(left, right, gain, chosen, n, m)
    return worth[chosen], np.where(lost < 0.5 * step[component[left]], lost, np.inf)[chosen]


def _greedy(left: Ints, right: Ints, best: Ints, n: int, m: int) -> Flags:
    """The pair that gains most, which comes first in ``best``, then the first among the other rows, and so on."""
    chosen, ours, theirs = np.zeros(len(left), bool), [False] * n, [False] * m
    for e, i, j in zip(best.tolist(), left[best].tolist(), right[best].tolist(), strict=True):
        if not ours[i] and not theirs[j]:
            ours[i] = theirs[j] = chosen[e] = True
    return chosen


def _components(left: Ints, right: Ints, n: int, m: int) -> Ints:
    """The component of each row: ``n`` left ones, then ``m`` right ones."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    graph = csr_array((np.ones(len(left), bool), (left, right + n)), shape=(n + m, n + m))
    component: Ints = connected_components(graph, directed=False)[1]
    return component


def _by_order(left: Ints, gain: Floats, order: Ints, component: Ints) -> tuple[Floats, Floats]:
    """Gains as one number, and what an order is worth in each component: more than sums differ by otherwise."""
    gain, own = np.where(order > 0, np.maximum(gain, _LEAST), gain), component[left]
    most_of = np.zeros(len(component))
    np.maximum.at(most_of, left, np.abs(gain))
    step = 1.0 + 4.0 * np.bincount(component, weights=most_of).astype(np.float64)
    return gain + order * step[own], step


def _optimal(left: Ints, right: Ints, gain: Floats, component: Ints, most: int, counts: Counter[str]) -> Flags:
    """Component by component, by solvers of SciPy, which take long to import."""
    n, sizes = int(left.max()) + 1, np.bincount(component)
    found = len(sizes)
    largest = int(sizes.max())
    counts["components"] += found
    counts["largest component"] = max(counts["largest component"], largest)
    if largest > most:
        raise BadArgument(
            f"A component of the assignment has {largest:,} rows, each of which may be a partner of others in it, and "
            f"Options(max_component={most}) allows {most:,}. Ask for a higher probability, a smaller epsilon or "
            "shorter blocks, raise the limit, or give method='greedy'."
        )
    lefts = np.bincount(component[:n], minlength=found)
    own = component[left]
    chosen = np.zeros(len(gain), bool)
    # Where one side has a single row, its best pair is all there is to find.
    single = (lefts == 1) | (sizes - lefts == 1)
    order = np.lexsort((right, left, -gain, own))
    first = order[np.r_[True, own[order][1:] != own[order][:-1]]]
    chosen[first[single[own[first]]]] = True
    rest = order[~single[own[order]]]
    rows, columns = _places(component[:n])[left[rest]], _places(component[n:])[right[rest]]
    gains, cuts = gain[rest], [0, *(np.flatnonzero(np.diff(own[rest])) + 1).tolist(), len(rest)]
    for begin, end in pairwise(cuts):
        if begin < end:
            solve = _dense if sizes[own[rest[begin]]] <= _DENSE else _sparse
            chosen[rest[begin:end][solve(rows[begin:end], columns[begin:end], gains[begin:end])]] = True
    return chosen


def _renumbered(rows: Ints) -> tuple[Ints, int]:
    """Rows by their places among those that occur, and how many these are."""
    places = np.cumsum(np.bincount(rows) > 0)
    return places[rows] - 1, int(places[-1])


def _places(component: Ints) -> Ints:
    """The place of each row among those of its component."""
    order = np.argsort(component, kind="stable")
    ordered, places = component[order], np.empty(len(order), np.int64)
    places[order] = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    return places


def _dense(rows: Ints, columns: Ints, gain: Floats) -> Flags:
    """Which of a component's pairs; rows without a partner are as if paired for nothing."""
    from scipy.optimize import linear_sum_assignment

    matrix = np.zeros((int(rows.max()) + 1, int(columns.max()) + 1))
    matrix[rows, columns] = gain
    ours, theirs = linear_sum_assignment(matrix, maximize=True)
    partner = np.full(len(matrix), -1)
    partner[ours] = theirs
    same: Flags = partner[rows] == columns
    return same


def _sparse(rows: Ints, columns: Ints, gain: Floats) -> Flags:
    """The same of many rows: each left row may also be paired with nobody, which is a column of its own."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching

    n, m = int(rows.max()) + 1, int(columns.max()) + 1
    nobody = float(gain.max()) + 1.0
    at = np.concatenate([rows, np.arange(n)]), np.concatenate([columns, m + np.arange(n)])
    costs = np.concatenate([nobody - gain, np.full(n, nobody)])  # above 0, as 0 would be no pair
    matching = min_weight_full_bipartite_matching(csr_array((costs, at), shape=(n, m + n)))
    partner = np.full(n, -1)
    partner[matching[0]] = matching[1]
    same: Flags = partner[rows] == columns
    return same
