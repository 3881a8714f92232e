"""What each pair of an optimal assignment is worth: how much the best total falls where it is forbidden.

An assignment is a flow: from a source to left rows, along pairs to right rows, and back to the source. Where a pair of
an optimal one is forbidden, the best that is left follows from the shortest way, in the residual graph, by which its
unit gets from its left row to its right row. Ways through the source follow from one search of the whole graph (both
ways); the others are cycles of pairs, and are looked for by Dijkstra's algorithm, with distances from the source as
potentials, no farther than what a way through the source costs (Ahuja, Magnanti & Orlin 1993, chapter 9).
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from appulse.kernels.arrays import Flags, Floats, Ints

# Of what a way costs, how much less another one has to cost: far above the rounding of equal ways, which would lower
# each other without end.
_LESS = 1e-12


@exact_kernel
def _index(ends: Ints, n: int) -> tuple[Ints, Ints]:
    """The pairs of each of ``n`` rows, one row after the other, and where those of each begin."""
    first, order = np.zeros(n + 1, np.int64), np.empty(ends.shape[0], np.int64)
    for e in range(ends.shape[0]):
        first[ends[e] + 1] += 1
    for i in range(n):
        first[i + 1] += first[i]
    free = first.copy()
    for e in range(ends.shape[0]):
        order[free[ends[e]]] = e
        free[ends[e]] += 1
    return order, first


@exact_kernel
def _costs(left: Ints, right: Ints, gain: Floats, chosen: Flags, n: int, m: int, outward: int) -> Floats:
    """The least cost from the source to each row (``outward`` 1), or to it (0): left rows first, then right ones.

    By relaxing rows in turn, as in Bellman and Ford's algorithm; an optimal assignment has no cycle of negative cost.
    """
    by_left, of_left = _index(left, n)
    by_right, of_right = _index(right, m)
    pair_of_left, pair_of_right = np.full(n, -1), np.full(m, -1)
    for e in range(left.shape[0]):
        if chosen[e]:
            pair_of_left[left[e]], pair_of_right[right[e]] = e, e
    cost = np.full(n + m, np.inf)
    queue, waits = np.empty(n + m + 1, np.int64), np.zeros(n + m, np.bool_)
    head, tail, size = 0, 0, n + m + 1
    for v in range(n + m):
        taken = pair_of_left[v] >= 0 if v < n else pair_of_right[v - n] >= 0
        # The source gives to left rows that are free, and takes back from right rows that are not; and the other way.
        if taken == ((v >= n) == (outward == 1)):
            cost[v], queue[tail], waits[v] = 0.0, v, True
            tail += 1
    while head != tail:
        v = queue[head]
        head, waits[v] = (head + 1) % size, False
        if (v < n) == (outward == 1):
            # Along all pairs that are not chosen.
            order, first, own = (by_left, of_left, v) if v < n else (by_right, of_right, v - n)
            for at in range(first[own], first[own + 1]):
                e = order[at]
                u = right[e] + n if v < n else left[e]
                less = _LESS * max(1.0, gain[e], abs(cost[v]))
                if not chosen[e] and cost[v] - gain[e] < cost[u] - less:
                    cost[u] = cost[v] - gain[e]
                    if not waits[u]:
                        queue[tail], waits[u] = u, True
                        tail = (tail + 1) % size
        else:
            e = pair_of_right[v - n] if v >= n else pair_of_left[v]
            if e >= 0:
                u = left[e] if v >= n else right[e] + n
                less = _LESS * max(1.0, gain[e], abs(cost[v]))
                if cost[v] + gain[e] < cost[u] - less:
                    cost[u] = cost[v] + gain[e]
                    if not waits[u]:
                        queue[tail], waits[u] = u, True
                        tail = (tail + 1) % size
    return cost


@exact_kernel
def margins(left: Ints, right: Ints, gain: Floats, chosen: Flags, n: int, m: int) -> Floats:
    """Of each chosen pair, how much less the greatest total is without it; 0 of the others.

    ``chosen`` is an assignment of the greatest total, of ``n`` left and ``m`` right rows; gains are above 0.
    """
    given = _costs(left, right, gain, chosen, n, m, 1)
    back = _costs(left, right, gain, chosen, n, m, 0)
    by_left, of_left = _index(left, n)
    partner = np.full(m, -1)
    for e in range(left.shape[0]):
        if chosen[e]:
            partner[right[e]] = e
    out, known, stamp = np.zeros(left.shape[0]), np.empty(n), np.full(n, -1)
    for e in range(left.shape[0]):
        if not chosen[e]:
            continue
        start, goal = left[e], right[e]
        best = min(0.0, back[start] + given[n + goal])
        # From left row to left row, over a pair that is not chosen and back over one that is; costs are reduced.
        heap = [(0.0, start)]
        known[start], stamp[start] = 0.0, e
        while heap:
            reduced, i = heapq.heappop(heap)
            if reduced > known[i] or reduced - given[start] + given[n + goal] >= best:
                if reduced > known[i]:
                    continue
                break
            for at in range(of_left[i], of_left[i + 1]):
                other = by_left[at]
                if chosen[other]:
                    continue
                j = right[other]
                along = reduced - gain[other] + given[i] - given[n + j]
                if j == goal:
                    best = min(best, along - given[start] + given[n + goal])
                    continue
                if partner[j] < 0:
                    continue  # free: a way through the source
                k = left[partner[j]]
                # No less than before: what potentials lack by rounding would lead around equal ways without end.
                total = max(reduced, along + gain[partner[j]] + given[n + j] - given[k])
                if stamp[k] != e or total < known[k]:
                    known[k], stamp[k] = total, e
                    heapq.heappush(heap, (total, k))
        out[e] = gain[e] + best
    return out
