"""Arrivals look into the index of a window, one after the other: the pairs that are near enough to be judged."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.grid import OVERFLOW, RIM, SLACK, bucket_of, cell_coordinate, link, pack_cell
from appulse.kernels.jit import inlined_kernel, kernel
from appulse.kernels.simd import prefetch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Flags, Floats, Ints, Whole
    from appulse.kernels.grid import Grid


# Farther than any two rows are apart; its square is a double.
_EVERYWHERE = 1e153
# A probe that would look into more cells scans every row.
_MOST_CELLS = 256


class Cursor(NamedTuple):
    """Where a walk over arrivals and rows stands."""

    start: int  # first arrival to process
    linked: int  # rows of the store already in the index
    low: int  # no row before this one can still be in reach


class PairRule(NamedTuple):
    """Which arrivals are joined with a store, and which pairs are answers."""

    meets: Flags  # meets[s]: arrivals of store s are joined with this store
    own: int  # this store's number
    check_differ: bool
    epsilon: float  # with its tolerance
    threshold: float


class ArrivalRows(NamedTuple):
    """The rows of a push, in tick order."""

    store: Ints  # which store each belongs to
    oldest: Ints  # least rank that is in this store's window for each
    newest: Ints  # greatest rank that still finds it in its own
    group: Ints
    differ: Ints
    mass: Floats


class WindowRows(NamedTuple):
    """What windows and groups tell of the rows of a store."""

    rank: Ints
    rank_max: Ints  # its running maximum
    group: Ints
    differ: Ints


class Balls(NamedTuple):
    """Where rows are, and how far around."""

    centre: Floats
    radius: Floats
    variance: Floats  # at least what each has along any line


class Candidates(NamedTuple):
    """Pairs to be judged: room for them, and tallies.

    Of arrivals that are ``audited`` (empty: none) all rows that were looked at are written as well, from the end on.
    """

    arrival: Ints
    row: Ints
    counts: Ints  # [rows reached, pruned by the ball test, by Cantelli's inequality, written from the end]
    audited: Flags


class Probe(NamedTuple):
    """One arrival; ``spare`` is the product of masses over the threshold, less 1."""

    position: Floats
    radius: float
    variance: float
    spare: float
    group: Whole
    oldest: Whole
    newest: Whole


class Room(NamedTuple):
    """Room for something of each row, and one more in ``rows``."""

    squares: NDArray[np.float64]
    flags: NDArray[np.uint8]
    rows: NDArray[np.int64]


@kernel
def _room_for(n: int) -> Room:
    """Room for so many rows: to ask for that of a large window takes longer than a few look-ups."""
    return Room(np.empty(n, np.float64), np.empty(n, np.uint8), np.empty(n + 1, np.int64))


@kernel
def scan(
    probe: Probe, epsilon: float, begin: Whole, end: Whole, rows: WindowRows, balls: Balls, room: Room
) -> tuple[int, int, int]:
    """The rows near to a probe: how many it could have met, how many are in reach, how many of them Cantelli leaves.

    Of the rows from ``begin`` to ``end``; those left are counted from ``begin``.

    By Cantelli's inequality along the line of centres, objects are no answer that lie further apart than epsilon and
    a number of deviations; ``variance`` is at least that along any line.

    First a loop without branches, which the compiler makes SIMD of, for two and three dimensions by name; then the rows
    are picked, again without branches.
    """
    position, reach, variance, spare, asked, oldest, newest = probe
    squares, flags, near_rows = room
    rank, group = rows.rank[begin:end], rows.group[begin:end]
    centre, radius, variances = balls.centre[begin:end], balls.radius[begin:end], balls.variance[begin:end]
    n, d = centre.shape
    flat = centre.ravel()
    magnitude = 0.0
    for k in range(d):
        magnitude += abs(position[k])
    if d == 3:
        x, y, z = position[0], position[1], position[2]
        for j in range(n):
            a, b, c = x - flat[3 * j], y - flat[3 * j + 1], z - flat[3 * j + 2]
            squares[j] = a * a + b * b + c * c
    elif d == 2:
        x, y = position[0], position[1]
        for j in range(n):
            a, b = x - flat[2 * j], y - flat[2 * j + 1]
            squares[j] = a * a + b * b
    else:
        for j in range(n):
            square = 0.0
            for k in range(d):
                gap = position[k] - flat[d * j + k]
                square += gap * gap
            squares[j] = square
    reached = 0
    within = 0
    for j in range(n):
        far = epsilon + reach + radius[j]
        # The other row's coordinates are at most that much larger.
        blur = 4e-16 * (2.0 * magnitude + d * far)
        near = epsilon + blur + math.sqrt(spare * (variance + variances[j] + blur * blur)) * (1.0 + 1e-9)
        there = (rank[j] >= oldest) & (rank[j] <= newest) & (group[j] == asked)
        there_near = there & (squares[j] <= far * far * (1.0 + SLACK))
        reached += there
        within += there_near
        flags[j] = there_near & (squares[j] <= near * near * (1.0 + SLACK))
    count = 0
    for j in range(n):
        near_rows[count] = j
        count += flags[j]
    return reached, within, count


@kernel
def _cell_gap(position: float, cell: Whole, inverse_side: float) -> float:
    """At most how far a position is from a cell along an axis; 0 for those at the rim, which have no end."""
    if cell >= RIM or cell <= -RIM:
        return 0.0
    side = 1.0 / inverse_side
    gap = max(cell * side - position, position - (cell + 1) * side, 0.0)
    return max(0.0, gap * (1.0 - 1e-12) - 1e-12 * side - 1e-15 * abs(position))


@inlined_kernel
def _fetch(row: Whole, d: int, rows: WindowRows, balls: Balls, grid: Grid) -> None:
    """Have what a walk reads of a row on its way."""
    prefetch(rows.rank, row)
    prefetch(rows.rank_max, row)
    prefetch(grid.cell, row)
    prefetch(grid.following, row)
    prefetch(rows.group, row)
    prefetch(balls.radius, row)
    prefetch(balls.variance, row)
    prefetch(balls.centre, row * d)
    prefetch(balls.centre, row * d + d - 1)  # a row may lie in two lines


@kernel
def sweep(
    cursor: Cursor,
    rule: PairRule,
    arrivals: ArrivalRows,
    probes: Balls,  # of the arrivals
    window: WindowRows,
    balls: Balls,  # of the rows
    grid: Grid,
    found: Candidates,
) -> tuple[int, int, int, int]:
    """Arrivals in tick order: each probes the store, and those of the store itself are put in it.

    A pair is found by whichever of the two comes later in the order, so once. Returns the arrival to go on with
    (all of them when the sweep is done), ``linked``, ``low`` and the number of candidates written. When the
    output is full the probe under way is undone, to be repeated.
    """
    start, linked, low = cursor
    meets, own, check_differ, epsilon, threshold = rule
    a_store, a_oldest, a_newest, a_group, a_differ, a_mass = arrivals
    a_centre, a_radius, a_variance = probes
    rank, rank_max, group, differ = window
    centre, radius, variance = balls
    base, cell, following, heads, dims = grid.base, grid.cell, grid.following, grid.heads, grid.dims
    inverse_side, size_cap, by_variance = grid.inverse_side, grid.size_cap, grid.by_variance
    out_arrival, out_row, counts, audited = found
    n = a_store.shape[0]
    d = centre.shape[1]
    n_dims = dims.shape[0]
    capacity = out_row.shape[0]
    use_grid = heads.shape[0] > 0
    count = 0
    beside = 0
    room = _room_for(0)
    codes, starts = np.empty(_MOST_CELLS + 1, np.int64), np.empty(_MOST_CELLS + 1, np.int64)
    low_cell = np.zeros(3, np.int64)
    high_cell = np.zeros(3, np.int64)
    for p in range(start, n):
        store = a_store[p]
        if meets[store]:
            begin = count
            before = beside
            noted = audited.shape[0] > 0 and audited[p]
            reached = 0
            pruned = 0
            unlikely = 0
            spare = max(0.0, min(1.0, a_mass[p]) / max(threshold - 1e-12, 1e-300) - 1.0)
            magnitude = 0.0
            for k in range(d):
                magnitude += abs(a_centre[p, k])
            oldest = a_oldest[p]
            newest = a_newest[p]
            while low < linked and rank_max[low] < oldest:
                low += 1
            reach = epsilon + a_radius[p]
            dense = not use_grid
            if use_grid:
                cells = 1
                span = (reach + size_cap) * (1.0 + SLACK)
                if by_variance:
                    blur = 8e-16 * magnitude
                    either = a_variance[p] + size_cap + blur * blur
                    span = (epsilon + blur + math.sqrt(spare * either) * (1.0 + 1e-9)) * (1.0 + SLACK)
                for k in range(n_dims):
                    c = a_centre[p, dims[k]]
                    wide = span + (abs(c) + span) * 1e-15
                    low_cell[k] = cell_coordinate(c - wide, inverse_side)
                    high_cell[k] = cell_coordinate(c + wide, inverse_side)
                    extent = high_cell[k] - low_cell[k] + 1
                    cells = cells * extent if extent <= _MOST_CELLS and cells <= _MOST_CELLS else _MOST_CELLS + 1
                dense = cells > _MOST_CELLS or cells > linked - low
            if dense:
                if room.flags.shape[0] < linked - low:
                    room = _room_for(centre.shape[0])
                probe = Probe(a_centre[p], a_radius[p], a_variance[p], spare, a_group[p], oldest, newest)
                reached, within, near = scan(probe, epsilon, low, linked, window, balls, room)
                pruned = reached - within
                unlikely = within - near
                for i in range(near):
                    j = low + room.rows[i]
                    if check_differ and (differ[j] == 0 or a_differ[p] == 0 or differ[j] == a_differ[p]):
                        reached -= 1
                        continue
                    if count + beside == capacity:
                        counts[3] = before
                        return p, linked, low, begin
                    out_arrival[count] = p
                    out_row[count] = j
                    count += 1
                if noted:
                    probe = Probe(a_centre[p], _EVERYWHERE, a_variance[p], 1.0, a_group[p], oldest, newest)
                    _, _, near = scan(probe, epsilon, low, linked, window, balls, room)
                    for i in range(near):
                        j = low + room.rows[i]
                        if check_differ and (differ[j] == 0 or a_differ[p] == 0 or differ[j] == a_differ[p]):
                            continue
                        if count + beside == capacity:
                            counts[3] = before
                            return p, linked, low, begin
                        beside += 1
                        out_arrival[capacity - beside] = p
                        out_row[capacity - beside] = j
            else:
                # All cells are looked up before any row is: rows lie anywhere in memory, and are on their way by then.
                there = 0
                for x in range(low_cell[0], high_cell[0] + 1):
                    x_gap = _cell_gap(a_centre[p, dims[0]], x, inverse_side)
                    for y in range(low_cell[1], high_cell[1] + 1):
                        y_gap = _cell_gap(a_centre[p, dims[1]], y, inverse_side) if n_dims > 1 else 0.0
                        for z in range(low_cell[2], high_cell[2] + 1):
                            z_gap = _cell_gap(a_centre[p, dims[2]], z, inverse_side) if n_dims > 2 else 0.0
                            if x_gap * x_gap + y_gap * y_gap + z_gap * z_gap > span * span:
                                continue
                            code = pack_cell(x, y, z, n_dims)
                            at = heads[bucket_of(code, a_group[p], heads.shape[0] - 2)]
                            if at >= base:
                                codes[there] = code
                                starts[there] = at
                                there += 1
                                _fetch(at - base, d, window, balls, grid)
                codes[there] = OVERFLOW
                starts[there] = heads[heads.shape[0] - 1]
                live = there + 1 if starts[there] >= base else there
                # A row of each chain in turn: the next one of a chain is on its way while others are looked at.
                while live > 0:
                    chains = live
                    live = 0
                    for c in range(chains):
                        code = codes[c]
                        j = starts[c] - base
                        if rank_max[j] < oldest:
                            continue
                        at = following[j]
                        if at >= base:
                            _fetch(at - base, d, window, balls, grid)
                            codes[live] = code
                            starts[live] = at
                            live += 1
                        u = rank[j]
                        if cell[j] != code or u < oldest or u > newest or group[j] != a_group[p]:
                            continue
                        if check_differ and (differ[j] == 0 or a_differ[p] == 0 or differ[j] == a_differ[p]):
                            continue
                        reached += 1
                        if noted:
                            if count + beside == capacity:
                                counts[3] = before
                                return p, linked, low, begin
                            beside += 1
                            out_arrival[capacity - beside] = p
                            out_row[capacity - beside] = j
                        limit_d = reach + radius[j]
                        d2 = 0.0
                        for k in range(d):
                            gap = a_centre[p, k] - centre[j, k]
                            d2 += gap * gap
                        if d2 > limit_d * limit_d * (1.0 + SLACK):
                            pruned += 1
                            continue
                        blur = 4e-16 * (2.0 * magnitude + d * limit_d)
                        either = a_variance[p] + variance[j] + blur * blur
                        limit_d = epsilon + blur + math.sqrt(spare * either) * (1.0 + 1e-9)
                        if d2 > limit_d * limit_d * (1.0 + SLACK):
                            unlikely += 1
                            continue
                        if count + beside == capacity:
                            counts[3] = before
                            return p, linked, low, begin
                        out_arrival[count] = p
                        out_row[count] = j
                        count += 1
            counts[0] += reached
            counts[1] += pruned
            counts[2] += unlikely
        if store == own:
            if use_grid:
                link(linked, grid)
            linked += 1
    counts[3] = beside
    return n, linked, low, count
