"""The algorithm of the paper whole: continuous queries as a spatial join of data and queries (Lim et al. 2006).

A query, a box, is a point of twice the dimensions: its corners. Rows of a batch are put in Hilbert order and cut into
clusters. The objects that overlap a cluster's box [lo, hi] are the points with low <= hi and high >= lo, its spatial
join window. One search of the query index finds them all, and each is tested against each row of the cluster.

Open ends are closed at the next double, so that the test of a closed box is exact. What joins two streams has the
attributes of both as dimensions, and the age of the older row; a join predicate, which is no box, is covered by slabs.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from appulse.kernels.jit import kernel
from benchmarks.ibs import IBS, filled, grown, stab
from benchmarks.query_sets import ABOVE, AT_LEAST, AT_MOST, BELOW, EQUAL, at_most

if TYPE_CHECKING:
    from collections.abc import Iterator

    from appulse.kernels.arrays import Floats, Ints
    from benchmarks.ibs import Marks, Numbers, Pairs, Small
    from benchmarks.query_sets import JoinQueries, Matrix

    Triples: TypeAlias = tuple[Numbers, Numbers, Numbers]  # left rows, right rows, and the queries they match

Blocks: TypeAlias = NDArray[
    np.float64
]  # per node of the index, the low ends of its entries by attribute, then the high

Fronts: TypeAlias = NDArray[np.int32]  # two sides: the entries of a search at one level, and at the next

# In what is compiled here, arrays are indexed and not sliced where it matters: a slice counts references, atomically.
HILBERT, Z_ORDER, ARRIVAL = "hilbert", "z", "arrival"
LANES = 16  # entries of a node: those of one attribute and side lie side by side
_CHUNK = 64  # candidates that are compared at once

# --- the order of the data ------------------------------------------------------------------------------------------


@kernel
def _to_hilbert(x: Ints, bits: int) -> None:
    """Coordinates into the transposed Hilbert number, in place (Skilling 2004)."""
    d = x.shape[0]
    for b in range(bits - 1, 0, -1):
        below = (1 << b) - 1
        for i in range(d):
            # Where the bit is set the lower ones of x[0] are turned, else exchanged with those of x[i]: no branches.
            turned = below & -((x[i] >> b) & 1)
            swapped = (x[0] ^ x[i]) & (below ^ turned)
            x[0] ^= swapped | turned
            x[i] ^= swapped
    for i in range(1, d):
        x[i] ^= x[i - 1]
    flips = 0
    for b in range(bits - 1, 0, -1):
        if (x[d - 1] >> b) & 1:
            flips ^= (1 << b) - 1
    for i in range(d):
        x[i] ^= flips


@kernel
def _keys(points: Matrix, low: Floats, scale: Floats, bits: int, hilbert: int, keys: Ints) -> None:
    n, d = points.shape
    x = np.empty(d, np.int64)
    for row in range(n):
        for i in range(d):
            x[i] = int((points[row, i] - low[i]) * scale[i])
        if hilbert:
            _to_hilbert(x, bits)
        key = 0
        for b in range(bits - 1, -1, -1):
            for i in range(d):
                key = (key << 1) | ((x[i] >> b) & 1)
        keys[row] = key


def keys_of(points: Matrix, curve: str = HILBERT) -> Ints:
    """The place of each row on a curve through the box around all of them."""
    n, d = points.shape
    if n == 0:
        return np.empty(0, np.int64)
    # Three bits more than a grid with one row a cell would need: what is finer than that does not matter.
    bits = max(1, min(16, 62 // d, -(-n.bit_length() // d) + 3))
    low, high = points.min(axis=0), points.max(axis=0)
    scale = np.where(high > low, ((1 << bits) - 0.5) / np.maximum(high - low, 1e-300), 0.0)
    keys = np.empty(n, np.int64)
    _keys(points, low, scale, bits, int(curve == HILBERT), keys)
    return keys


def order_of(points: Matrix, curve: str) -> Ints:
    """The rows of one batch along a curve, or as they came."""
    return np.arange(len(points)) if curve == ARRIVAL else np.argsort(keys_of(points, curve))


# --- the query index ------------------------------------------------------------------------------------------------


@kernel
def _select(values: Floats, order: Ints, k: int) -> None:
    """Move values, and the order with them, so that none before place k is above one from k on (Hoare)."""
    begin, end = 0, values.shape[0] - 1
    while begin < end:
        pivot = values[(begin + end) // 2]
        i, j = begin, end
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
        if k <= j:
            end = j
        elif k >= i:
            begin = i
        else:
            return


@kernel
def _split(corners: Matrix, lanes: int, order: Ints) -> None:
    """Order corner points by halving along the widest dimension, so that runs of lanes^k of them are nodes."""
    todo = [(0, order.shape[0])]
    while len(todo) > 0:
        begin, end = todo.pop()
        if end - begin <= lanes:
            continue
        best = -1.0
        wide = 0
        for a in range(corners.shape[1]):
            low = high = corners[order[begin], a]
            for i in range(begin + 1, end):
                low = min(low, corners[order[i], a])
                high = max(high, corners[order[i], a])
            if high - low > best:
                best, wide = high - low, a
        node = lanes
        while node * lanes < end - begin:
            node *= lanes
        middle = begin + (end - begin + node) // (2 * node) * node
        values = np.empty(end - begin)
        for i in range(begin, end):
            values[i - begin] = corners[order[i], wide]
        _select(values, order[begin:end], middle - begin)
        todo.append((begin, middle))
        todo.append((middle, end))


@kernel
def _search(
    members: Matrix, count: int, blocks: Blocks, first: Ints, last: int, front: Fronts, window: Matrix, inside: Ints
) -> int:
    """The range search of a cluster's spatial join window, from the root down to a level, 0 for the whole of it.

    Returns how many of that level's entries were met, which are then on side 0 of the front. Above the root there is
    one entry.
    """
    d = window.shape[1]
    for a in range(d):
        window[0, a] = window[1, a] = members[0, a]
        for i in range(1, count):
            window[0, a] = min(window[0, a], members[i, a])
            window[1, a] = max(window[1, a], members[i, a])
    side = (first.shape[0] - last) % 2
    front[side, 0] = 0
    found = 1
    for level in range(first.shape[0] - 1, last - 1, -1):
        n, found = found, 0
        for f in range(n):
            node = front[side, f]
            at = first[level] + node
            for c in range(LANES):
                inside[c] = (blocks[at, 0, c] <= window[1, 0]) & (blocks[at, d, c] >= window[0, 0])
            for a in range(1, d):
                low, high = window[0, a], window[1, a]
                for c in range(LANES):
                    inside[c] &= (blocks[at, a, c] <= high) & (blocks[at, d + a, c] >= low)
            for c in range(LANES):
                front[1 - side, found] = node * LANES + c
                found += inside[c]
        side = 1 - side
    return found


@dataclass(frozen=True)
class QueryIndex:
    """Corner points in a packed multilevel directory. Entry e of a level is place e % LANES of its node e // LANES."""

    blocks: Blocks
    first: Ints  # node of each level, the lowest one first
    owner: Numbers  # the query of each entry of the lowest level

    @staticmethod
    def of(low: Matrix, high: Matrix, owner: Ints) -> QueryIndex:
        """The index of closed boxes."""
        corners = np.hstack([low, high])
        order = np.arange(len(low))
        if len(low):
            _split(_bounded(corners), LANES, order)
        levels = [_packed(corners[order])]
        d = low.shape[1]
        while len(levels[-1]) > 1:
            below = levels[-1]
            levels.append(_packed(np.hstack([below[:, :d].min(axis=2), below[:, d:].max(axis=2)])))
        first = np.cumsum([0, *map(len, levels[:-1])])
        return QueryIndex(np.concatenate(levels), first, owner[order].astype(np.int32))

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return len(self.blocks)


def _bounded(corners: Matrix) -> Matrix:
    """Corners with missing ends at the outermost of the others, for distances between them."""
    finite = np.isfinite(corners)
    least = np.min(corners, axis=0, where=finite, initial=np.inf)
    most = np.max(corners, axis=0, where=finite, initial=-np.inf)
    none = least > most
    return np.clip(corners, np.where(none, 0.0, least), np.where(none, 0.0, most))


def _packed(corners: Matrix) -> Blocks:
    """Entries in nodes; what is left of the last one is never met."""
    n, sides = corners.shape
    nodes = max(-(-n // LANES), 1)
    padded = np.empty((nodes * LANES, sides))
    padded[:n] = corners
    padded[n:, : sides // 2], padded[n:, sides // 2 :] = np.inf, -np.inf
    return np.ascontiguousarray(padded.reshape(nodes, LANES, sides).transpose(0, 2, 1))


# --- selection queries ----------------------------------------------------------------------------------------------


@kernel
def _refine(
    members: Matrix,
    count: int,
    n: int,
    blocks: Blocks,
    owner: Numbers,
    front: Fronts,
    corners: Blocks,  # room for the candidates, a chunk of them like a node
    names: Numbers,
    inside: Ints,
    out: Numbers,
    found: int,
    ends: Ints,
) -> None:
    """Add the candidates that hold a member, one member after the other; ``ends`` says where each one's stop."""
    d = members.shape[1]
    for i in range(n):
        entry = front[0, i]
        names[i] = owner[entry]
        for side in range(2 * d):
            corners[i // _CHUNK, side, i % _CHUNK] = blocks[entry // LANES, side, entry % LANES]
    for i in range(count):
        for begin in range(0, n, _CHUNK):
            at, size = begin // _CHUNK, min(_CHUNK, n - begin)
            x = members[i, 0]
            for c in range(size):
                inside[c] = (corners[at, 0, c] <= x) & (corners[at, d, c] >= x)
            for a in range(1, d):
                x = members[i, a]
                for c in range(size):
                    inside[c] &= (corners[at, a, c] <= x) & (corners[at, d + a, c] >= x)
            for c in range(size):
                out[found] = names[begin + c]
                found += inside[c]
        ends[i] = found


@kernel
def _distinct(out: Numbers, found: int, ends: Ints, count: int, seen: Ints, serial: int) -> None:
    """Keep each query of a member once; members are numbered from ``serial``."""
    kept = begin = found
    for i in range(count):
        for k in range(begin, ends[i]):
            query = out[k]
            if seen[query] != serial + i:
                seen[query] = serial + i
                out[kept] = query
                kept += 1
        begin = ends[i]
        ends[i] = kept


@kernel
def _select_rows(
    points: Matrix,
    order: Ints,
    cuts: Ints,  # between batches
    size: int,  # of a cluster
    blocks: Blocks,
    first: Ints,
    owner: Numbers,
    seen: Ints,  # by query; empty where each has one box
) -> tuple[Numbers, Numbers]:
    d = points.shape[1]
    room = owner.shape[0] + LANES
    front, names = np.empty((2, room), np.int32), np.empty(room, np.int32)
    corners, members = np.empty((room // _CHUNK + 1, 2 * d, _CHUNK)), np.empty((size, d))
    inside, ends, window = np.empty(_CHUNK, np.int64), np.empty(size, np.int64), np.empty((2, d))
    rows, queries = np.empty(1024, np.int32), np.empty(1024, np.int32)
    found = 0
    for batch in range(cuts.shape[0] - 1):
        for begin in range(cuts[batch], cuts[batch + 1], size):
            count = min(size, cuts[batch + 1] - begin)
            for i in range(count):
                for a in range(d):
                    members[i, a] = points[order[begin + i], a]
            n = _search(members, count, blocks, first, 0, front, window, inside)
            if found + n * count > queries.shape[0]:
                queries = grown(queries, found, n * count)
            if count == 1:  # the cluster's box is its one member
                for i in range(n):
                    queries[found + i] = owner[front[0, i]]
                ends[0] = found + n
            else:
                _refine(members, count, n, blocks, owner, front, corners, names, inside, queries, found, ends)
            if seen.shape[0]:
                _distinct(queries, found, ends, count, seen, begin)
            if ends[count - 1] > rows.shape[0]:
                rows = grown(rows, found, ends[count - 1] - found)
            for i in range(count):
                for k in range(found, ends[i]):
                    rows[k] = order[begin + i]
                found = ends[i]
    return rows[:found], queries[:found]


@kernel
def _touch(node: int, size: int, after: Ints, before: Ints, held: Ints) -> int:
    """Read a node through a buffer: 1 if it has to be fetched.

    The buffer is a ring of nodes from the newest to the oldest; its head is the place after the last node.
    """
    head = after.shape[0] - 1
    fetched = after[node] < 0
    gone = node
    if fetched and held[0] == size:
        gone = before[head]
    if gone != node or not fetched:
        after[before[gone]], before[after[gone]] = after[gone], before[gone]
        after[gone] = -1
    else:
        held[0] += 1
    after[node], before[node] = after[head], head
    before[after[head]] = node
    after[head] = node
    return int(fetched)


@kernel
def _node_reads(
    points: Matrix, order: Ints, cuts: Ints, size: int, blocks: Blocks, first: Ints, entries: int, buffer: int
) -> int:
    d = points.shape[1]
    nodes = blocks.shape[0]
    front = np.empty((2, entries + LANES), np.int32)
    members, window = np.empty((size, d)), np.empty((2, d))
    inside, held = np.empty(LANES, np.int64), np.zeros(1, np.int64)
    after, before = np.full(nodes + 1, -1), np.full(nodes + 1, -1)
    after[nodes] = before[nodes] = nodes
    fetched = 0
    for batch in range(cuts.shape[0] - 1):
        for begin in range(cuts[batch], cuts[batch + 1], size):
            count = min(size, cuts[batch + 1] - begin)
            for i in range(count):
                for a in range(d):
                    members[i, a] = points[order[begin + i], a]
            for level in range(first.shape[0] - 1, -1, -1):
                n = _search(members, count, blocks, first, level + 1, front, window, inside)
                for f in range(n):
                    fetched += _touch(first[level] + front[0, f], buffer, after, before, held)
    return fetched


class SpatialJoinCQ:
    """Selection queries by spatial join. Boxes with the same ``owner`` are one query, a disjunction of them."""

    def __init__(self, low: Matrix, high: Matrix, owner: Ints | None = None) -> None:
        """Ends are closed: `BoxQueries.closed` gives them."""
        names = np.arange(len(low)) if owner is None else owner
        self.index = QueryIndex.of(low, high, names)
        self._queries = 0 if owner is None else int(names.max(initial=-1)) + 1

    def match(self, points: Matrix, n_dc: int = 1, n_batch: int | None = None, curve: str = HILBERT) -> Pairs:
        """The matching pairs of row and query, by batches of rows (all at once if not said) in clusters of ``n_dc``."""
        order, cuts = _batches(points, n_batch, curve)
        seen = np.full(self._queries, -1, np.int64)
        index = self.index
        found: Pairs = _select_rows(points, order, cuts, n_dc, index.blocks, index.first, index.owner, seen)
        return found

    def immediate(self, points: Matrix) -> Pairs:
        """Each row for itself, as it comes."""
        return self.match(points, curve=ARRIVAL)

    def node_reads(
        self, points: Matrix, buffer: int, n_dc: int = 1, n_batch: int | None = None, curve: str = HILBERT
    ) -> int:
        """How many nodes are fetched where the ``buffer`` that were read last are at hand."""
        order, cuts = _batches(points, n_batch, curve)
        index = self.index
        return _node_reads(points, order, cuts, n_dc, index.blocks, index.first, len(index.owner), buffer)


def _batches(points: Matrix, n_batch: int | None, curve: str) -> tuple[Ints, Ints]:
    """The data index: the order of the rows, batch by batch, and where the batches begin and end."""
    n = len(points)
    size = max(n, 1) if n_batch is None else n_batch
    cuts = np.append(np.arange(0, n, size), n)
    if curve == ARRIVAL:
        return np.arange(n), cuts
    parts = [order_of(points[begin:end], curve) + begin for begin, end in pairwise(cuts.tolist())]
    return np.concatenate([np.empty(0, np.int64), *parts]), cuts


# --- window joins ---------------------------------------------------------------------------------------------------


def decomposition(operator: int, slabs: int, low: float = 0.0, high: float = 1.0) -> Matrix:
    """Boxes that cover where ``x operator y``, one for each slab of x: low and high of x, low and high of y."""
    cuts = low + (high - low) * np.arange(slabs + 1) / slabs
    x_low, x_high = cuts[:-1], cuts[1:]
    y_low = np.full(slabs, low) if operator in {ABOVE, AT_LEAST} else x_low
    y_high = np.full(slabs, high) if operator in {BELOW, AT_MOST} else x_high
    return np.stack([x_low, x_high, y_low, y_high], axis=1)


def pieces(queries: JoinQueries, slabs: int, low: float = 0.0, high: float = 1.0) -> tuple[Matrix, Matrix, Ints]:
    """Closed boxes over both streams' attributes and age that cover the queries, and the query of each.

    The outermost slabs reach beyond the domain, so that rows outside it are not lost.
    """
    lows, highs = queries.left.beside(queries.right).closed()
    window = queries.window[:, None].astype(np.float64)
    lows, highs = np.hstack([lows, np.zeros_like(window)]), np.hstack([highs, window])
    every = np.arange(len(queries))
    places = queries.x, queries.left.attributes + queries.y
    covers = np.stack([decomposition(operator, slabs, low, high) for operator in range(EQUAL, AT_LEAST + 1)])
    covers[..., 0::2][covers[..., 0::2] <= low] = -np.inf
    covers[..., 1::2][covers[..., 1::2] >= high] = np.inf
    parts = []
    for k in range(slabs):
        cover = covers[queries.operator, k]
        part_low, part_high = lows.copy(), highs.copy()
        for side, place in enumerate(places):
            part_low[every, place] = np.maximum(lows[every, place], cover[:, 2 * side])
            part_high[every, place] = np.minimum(highs[every, place], cover[:, 2 * side + 1])
        some = (part_low <= part_high).all(axis=1)
        parts.append((part_low[some], part_high[some], every[some]))
    boxes_low, boxes_high, owner = (np.concatenate(part) for part in zip(*parts, strict=True))
    return boxes_low, boxes_high, owner


@kernel
def _holds(operator: int, x: float, y: float) -> bool:
    if operator == EQUAL:
        return x == y
    if operator == BELOW:
        return x < y
    if operator == AT_MOST:
        return x <= y
    if operator == ABOVE:
        return x > y
    return x >= y


@kernel
def _joining(
    out: Numbers, found: int, ends: Ints, members: Matrix, count: int, x: Ints, operator: Ints, y: Ints
) -> None:
    """Keep the queries whose join predicate holds."""
    kept = begin = found
    for i in range(count):
        for k in range(begin, ends[i]):
            query = out[k]
            out[kept] = query
            kept += _holds(operator[query], members[i, x[query]], members[i, y[query]])
        begin = ends[i]
        ends[i] = kept


@kernel
def _place(keys: Ints, rows: Numbers, n: int, key: int, row: int) -> int:
    """Where a row of this key stands, or would be put after rows of the same key."""
    at = int(np.searchsorted(keys[:n], key))
    while at < n and keys[at] == key and rows[at] != row:
        at += 1
    return at


@kernel
def _insert(keys: Ints, rows: Numbers, n: int, key: int, row: int) -> None:
    at = _place(keys, rows, n, key, row)
    for i in range(n, at, -1):
        keys[i] = keys[i - 1]
        rows[i] = rows[i - 1]
    keys[at], rows[at] = key, row


@kernel
def _remove(keys: Ints, rows: Numbers, n: int, key: int, row: int) -> None:
    for i in range(_place(keys, rows, n, key, row), n - 1):
        keys[i] = keys[i + 1]
        rows[i] = rows[i + 1]


@kernel
def _label(
    partners: Numbers, own: Numbers, row: int, rows: Numbers, begin: int, found: int, ends: Ints, count: int
) -> None:
    """The rows of the pairs of a cluster, beside the queries they match."""
    for i in range(count):
        for k in range(found, ends[i]):
            partners[k] = rows[begin + i]
            own[k] = row
        found = ends[i]


@kernel
def _join_windows(
    points: tuple[Matrix, Matrix],
    times: tuple[Ints, Ints],
    keys: tuple[Ints, Ints],
    arrivals: Ints,  # rows of the left stream, then those of the right one, in order of time
    window: int,  # the largest of all
    size: int,  # of a cluster
    blocks: Blocks,
    first: Ints,
    owner: Numbers,
    x: Ints,
    operator: Ints,
    y: Ints,  # places among the attributes of both
    seen: Ints,
) -> tuple[Numbers, Numbers, Numbers]:
    n_left = points[0].shape[0]
    d = points[0].shape[1] + points[1].shape[1] + 1
    room = owner.shape[0] + LANES
    front, names = np.empty((2, room), np.int32), np.empty(room, np.int32)
    corners, members = np.empty((room // _CHUNK + 1, 2 * d, _CHUNK)), np.empty((size, d))
    inside, ends, span = np.empty(_CHUNK, np.int64), np.empty(size, np.int64), np.empty((2, d))
    left, right, queries = np.empty(1024, np.int32), np.empty(1024, np.int32), np.empty(1024, np.int32)
    found = serial = 0
    held_keys = (np.empty(n_left, np.int64), np.empty(points[1].shape[0], np.int64))
    held_rows = (np.empty(n_left, np.int32), np.empty(points[1].shape[0], np.int32))
    held, oldest = np.zeros(2, np.int64), np.zeros(2, np.int64)
    for arrival in arrivals:
        mine = 1 if arrival >= n_left else 0
        other = 1 - mine
        row = arrival - mine * n_left
        now = times[mine][row]
        own_at = mine * points[0].shape[1]
        other_at = other * points[0].shape[1]
        own, others, other_times, other_rows = points[mine], points[other], times[other], held_rows[other]
        while held[other] > 0 and other_times[oldest[other]] < now - window:
            gone = oldest[other]
            _remove(held_keys[other], other_rows, held[other], keys[other][gone], gone)
            held[other] -= 1
            oldest[other] += 1
        for begin in range(0, held[other], size):
            count = min(size, held[other] - begin)
            for i in range(count):
                partner = other_rows[begin + i]
                for a in range(own.shape[1]):
                    members[i, own_at + a] = own[row, a]
                for a in range(others.shape[1]):
                    members[i, other_at + a] = others[partner, a]
                members[i, d - 1] = now - other_times[partner]
            n = _search(members, count, blocks, first, 0, front, span, inside)
            if found + n * count > queries.shape[0]:
                queries = grown(queries, found, n * count)
            if count == 1:  # the cluster's box is its one member
                for i in range(n):
                    queries[found + i] = owner[front[0, i]]
                ends[0] = found + n
            else:
                _refine(members, count, n, blocks, owner, front, corners, names, inside, queries, found, ends)
            _joining(queries, found, ends, members, count, x, operator, y)
            _distinct(queries, found, ends, count, seen, serial)
            serial += count
            if ends[count - 1] > min(left.shape[0], right.shape[0]):
                left = grown(left, found, ends[count - 1] - found)
                right = grown(right, found, ends[count - 1] - found)
            _label(left if mine else right, right if mine else left, row, other_rows, begin, found, ends, count)
            found = ends[count - 1]
        _insert(held_keys[mine], held_rows[mine], held[mine], keys[mine][row], row)
        held[mine] += 1
    return left[:found], right[:found], queries[:found]


def arrivals_of(left_times: Ints, right_times: Ints) -> Ints:
    """The rows of both streams in order of time, those of the right one numbered after the left ones."""
    return np.argsort(np.concatenate([left_times, right_times]), kind="stable")


class SpatialJoinWindows:
    """Window-join queries by spatial join. Times of rows never fall."""

    def __init__(self, queries: JoinQueries, slabs: int = 4) -> None:
        self._queries = queries
        self.index = QueryIndex.of(*pieces(queries, slabs))
        self._window = int(queries.window.max(initial=0))

    def match(
        self, left: Matrix, left_times: Ints, right: Matrix, right_times: Ints, n_dc: int = 16, curve: str = HILBERT
    ) -> Triples:
        """The matching triples of left row, right row and query, each found when the later row arrives."""
        queries, index = self._queries, self.index
        found: Triples = _join_windows(
            (left, right),
            (left_times, right_times),
            (_window_keys(left, curve), _window_keys(right, curve)),
            arrivals_of(left_times, right_times),
            self._window,
            n_dc,
            index.blocks,
            index.first,
            index.owner,
            queries.x,
            queries.operator,
            queries.left.attributes + queries.y,
            np.full(len(queries), -1, np.int64),
        )
        return found


def _window_keys(points: Matrix, curve: str) -> Ints:
    return np.arange(len(points)) if curve == ARRIVAL else keys_of(points, curve)


# --- the baseline of window joins -----------------------------------------------------------------------------------


@kernel
def _shared_join(
    points: tuple[Matrix, Matrix],
    columns: tuple[Floats, Floats],  # what the join predicate compares
    times: tuple[Ints, Ints],
    arrivals: Ints,
    window: int,
    operator: int,
    values: Floats,
    first: Ints,
    starts: Ints,
    marks: Marks,
    always: Numbers,
    counts: Small,
) -> tuple[Numbers, Numbers, Numbers]:
    lefts, rights = points
    n_left, width = lefts.shape
    pair = np.empty(width + rights.shape[1] + 1)
    joined = np.empty(max(n_left, rights.shape[0]), np.int64)
    left, right, queries = np.empty(1024, np.int32), np.empty(1024, np.int32), np.empty(1024, np.int32)
    found = 0
    oldest, newest = np.zeros(2, np.int64), np.zeros(2, np.int64)
    for arrival in arrivals:
        mine = 1 if arrival >= n_left else 0
        other = 1 - mine
        row = arrival - mine * n_left
        now = times[mine][row]
        other_times = times[other]
        while oldest[other] < newest[other] and other_times[oldest[other]] < now - window:
            oldest[other] += 1
        value, column = columns[mine][row], columns[other]
        partners = 0
        for partner in range(oldest[other], newest[other]):
            a, b = (column[partner], value) if mine else (value, column[partner])
            joined[partners] = partner
            partners += _holds(operator, a, b)
        for k in range(partners):
            partner = joined[k]
            i, j = (partner, row) if mine else (row, partner)
            for a in range(width):
                pair[a] = lefts[i, a]
            for a in range(rights.shape[1]):
                pair[width + a] = rights[j, a]
            pair[-1] = now - other_times[partner]
            before = found
            queries, found = stab(pair, values, first, starts, marks, always, counts, queries, found)
            if found > before:
                left, right = filled(left, before, found, i), filled(right, before, found, j)
        newest[mine] = row + 1
    return left[:found], right[:found], queries[:found]


class SharedJoinIBS:
    """IBS-JS: one windowed join for each distinct join predicate, then the trees of its queries for each pair."""

    def __init__(self, queries: JoinQueries) -> None:
        self._plans = [_Plan.of(queries, members) for members in _alike(queries)]

    def match(self, left: Matrix, left_times: Ints, right: Matrix, right_times: Ints) -> Triples:
        """The matching triples of left row, right row and query."""
        arrivals = arrivals_of(left_times, right_times)
        parts = [plan.match((left, right), (left_times, right_times), arrivals) for plan in self._plans]
        none = np.empty(0, np.int32)
        lefts, rights, queries = (
            np.concatenate([none, *part]) for part in (zip(*parts, strict=True) if parts else ((), (), ()))
        )
        return lefts, rights, queries


def _alike(queries: JoinQueries) -> Iterator[Ints]:
    """Queries of the same join predicate."""
    conditions = np.stack([queries.x, queries.operator, queries.y], axis=1)
    _, which = np.unique(conditions, axis=0, return_inverse=True)
    for k in range(int(which.max(initial=-1)) + 1):
        yield np.flatnonzero(which == k)


@dataclass(frozen=True)
class _Plan:
    """One shared join and the trees over what it joins."""

    members: Numbers
    x: int
    operator: int
    y: int
    window: int
    trees: IBS

    @staticmethod
    def of(queries: JoinQueries, members: Ints) -> _Plan:
        one = members[0]
        windows = queries.window[members]
        boxes = queries.left.take(members).beside(queries.right.take(members))
        # Where all windows are alike the join sees to them, and age bears no predicates.
        age = np.where(windows < windows.max(), windows, np.inf)[:, None]
        trees = IBS(boxes.beside(at_most(age)))
        place = (int(queries.x[one]), int(queries.operator[one]), int(queries.y[one]))
        return _Plan(members.astype(np.int32), *place, int(windows.max()), trees)

    def match(self, points: tuple[Matrix, Matrix], times: tuple[Ints, Ints], arrivals: Ints) -> Triples:
        columns = np.ascontiguousarray(points[0][:, self.x]), np.ascontiguousarray(points[1][:, self.y])
        left, right, query = _shared_join(
            points, columns, times, arrivals, self.window, self.operator, *self.trees.arrays
        )
        return left, right, self.members[self.trees.names(query)]
