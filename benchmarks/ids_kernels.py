"""The ticks of Join-iDS (Ren et al. 2019, Algorithm 2), compiled: see `benchmarks.ids`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.jit import kernel
from benchmarks.ids_grid import Grid, far, put, take
from benchmarks.ids_objects import (
    EMPTY,
    FILLED,
    LEVELS,
    OBSERVED,
    Objects,
    apart,
    apart_in_common,
    enclose,
    fetch,
    instances,
    observe,
    probability,
    sub_boxes_apart,
)

if TYPE_CHECKING:
    from appulse.kernels.arrays import Flags, Floats, Ints
    from benchmarks.ids_index import Index

COUNTS = (
    "joined",  # pairs of a new object and one in a window
    "met",  # those that the grid did not keep apart
    "pruned_common",
    "pruned_object",
    "pruned_sample",
    "refined",
    "reported",  # pairs in the join set, over all ticks
    "left_observed",  # objects with holes that expired so
    "left_boxed",
    "left_filled",
    "nodes",  # of the indexes, looked at
    "rows",  # of the repository, looked at
    "products",  # pairs of instances summed
    "cells",  # that objects met, over all of them
)
JOINED, MET, COMMON, OBJECT, SAMPLE, REFINED, REPORTED, LEFT = range(8)
NODES, PRODUCTS, CELLS = 10, 12, 13
ANSWERS = 4  # columns
_FEW = 64.0  # cells, beyond which a box of buckets is cheaper than to stand in them all

# What `settings` has.
GRID, BY_COMMON, BY_HISTOGRAM, BY_OBJECT, BY_SAMPLE, BY_CELL, LAZY = range(7)


@kernel
def _near(
    objects: Objects,
    grid: Grid,
    slot: int,
    w: int,
    settings: Flags,
    level: int,
    limit: float,
    side: float,
    seen: Ints,
    stamp: int,
    out: Ints,
) -> int:
    """The objects of other streams in cells near a box, each once; without the grid all that there are.

    With a ``level`` cells far from the object's sub-box of that level are left out (Lemma 4.2 with all of the other's
    mass). It is one and the same for all cells: so an object in several of them, all left out, is left out rightly.
    """
    stream, n = slot // w, 0
    if not settings[GRID]:
        for other in range(len(objects.state)):
            if other // w != stream and objects.state[other] != EMPTY:
                out[n] = other
                n += 1
        return n
    streams = grid.heads.shape[1]
    box = objects.nested[slot, level]
    for place in range(grid.active[-1]):
        cell = grid.active[place]
        if far(grid, cell, objects.low[slot], objects.high[slot], side, limit):
            continue
        if level and far(grid, cell, box[:, 0], box[:, 1], side, limit):
            continue
        for other in range(streams):
            if other == stream:
                continue
            entry = grid.heads[cell, other]
            while entry >= 0:
                if seen[grid.slot[entry]] != stamp:
                    seen[grid.slot[entry]] = stamp
                    out[n] = grid.slot[entry]
                    n += 1
                entry = grid.following[entry]
    return n


@kernel
def _nesting(alpha: float, settings: Flags) -> float:
    """Alpha where sub-boxes are asked for, else 0."""
    return alpha if settings[BY_SAMPLE] or settings[BY_CELL] else 0.0


@kernel
def _leave(objects: Objects, grid: Grid, slot: int, w: int, settings: Flags, counts: Ints) -> None:
    """An object expires."""
    if settings[GRID]:
        take(grid, slot, slot // w)
    if objects.holes[slot]:
        counts[LEFT + objects.state[slot] - OBSERVED] += 1
    objects.state[slot] = EMPTY


@kernel
def _settle(
    objects: Objects,
    slot: int,
    index: Index,
    grid: Grid,
    settings: Flags,
    limits: tuple[float, float, float],
    w: int,
    seen: Ints,
    stamp: int,
    out: Ints,
    counts: Ints,
) -> bool:
    """Lines 3 to 6 of Algorithm 2 for a new object: impute it as far as it has to be; whether it is to be joined."""
    limit, alpha, side = limits
    if objects.state[slot] != FILLED and settings[LAZY]:
        if settings[BY_COMMON]:
            n, some = _near(objects, grid, slot, w, settings, 0, limit, side, seen, stamp, out), False
            for i in range(n):
                some = some or not apart_in_common(objects.row[slot], objects.row[out[i]], limit)
            if not some:
                return False
        if settings[BY_HISTOGRAM]:
            enclose(objects, slot, index, counts[NODES : NODES + 2])
            n, some = _near(objects, grid, slot, w, settings, 0, limit, side, seen, stamp + 1, out), False
            for i in range(n):
                some = some or not (
                    settings[BY_OBJECT]
                    and apart(objects.low[slot], objects.high[slot], objects.low[out[i]], objects.high[out[i]], limit)
                )
            if not some:
                return False
    fetch(objects, slot, index, _nesting(alpha, settings), counts[NODES : NODES + 2])
    return True


@kernel
def _pruned(
    objects: Objects,
    slot: int,
    other: int,
    index: Index,
    grid: Grid,
    settings: Flags,
    limits: tuple[float, float, float],
    w: int,
    counts: Ints,
) -> bool:
    """Lines 9 to 13: whether a pair is no answer; the other object is imputed as far as it takes."""
    limit, alpha, side = limits
    low, high = objects.low, objects.high
    common = settings[BY_COMMON] and objects.state[other] != FILLED
    if common and apart_in_common(objects.row[slot], objects.row[other], limit):
        counts[COMMON] += 1
        return True
    while True:
        if settings[BY_OBJECT] and apart(low[slot], high[slot], low[other], high[other], limit):
            counts[OBJECT] += 1
            return True
        if objects.state[other] == FILLED:
            break
        if objects.state[other] == OBSERVED and settings[BY_HISTOGRAM]:
            enclose(objects, other, index, counts[NODES : NODES + 2])
        else:
            fetch(objects, other, index, _nesting(alpha, settings), counts[NODES : NODES + 2])
        if settings[GRID]:
            take(grid, other, other // w)
            put(grid, other, other // w, low[other], high[other], side)
    if settings[BY_SAMPLE] and sub_boxes_apart(objects.nested[slot], objects.nested[other], limit):
        counts[SAMPLE] += 1
        return True
    return False


@kernel
def _arrive(
    objects: Objects,
    slot: int,
    index: Index,
    grid: Grid,
    settings: Flags,
    limits: tuple[float, float, float],
    w: int,
    seen: Ints,
    stamp: int,
    out: Ints,
    pairs: Ints,
    chance: Floats,
    found: int,
    counts: Ints,
) -> int:
    """Lines 3 to 15 for a new object: its answers go to ``pairs``, from ``found`` on."""
    limit, alpha, side = limits
    if not _settle(objects, slot, index, grid, settings, limits, w, seen, stamp, out, counts):
        return found
    level = LEVELS if settings[BY_CELL] else 0
    n = _near(objects, grid, slot, w, settings, level, limit, side, seen, stamp + 2, out)
    counts[MET] += n
    points, weights = instances(objects, slot)
    for i in range(n):
        other = out[i]
        if _pruned(objects, slot, other, index, grid, settings, limits, w, counts):
            continue
        counts[REFINED] += 1
        others, theirs = instances(objects, other)
        counts[PRODUCTS] += len(weights) * len(theirs)
        p = probability(points, weights, others, theirs, limit * limit)
        if p >= alpha - 1e-9:
            pairs[found, 0], pairs[found, 1] = slot // w, objects.number[slot]
            pairs[found, 2], pairs[found, 3] = other // w, objects.number[other]
            chance[found] = p
            objects.leaving[other] += 1
            found += 1
    return found


@kernel
def run(
    streams: Floats,  # (streams, n, d)
    index: Index,
    objects: Objects,
    grid: Grid,
    settings: Flags,
    limits: tuple[float, float, float],  # epsilon, alpha, side of a cell
    cells: int,  # that an object meets at most
    w: int,
    tick: int,
    last: int,
    pairs: Ints,
    chance: Floats,
    counts: Ints,
) -> tuple[int, int]:
    """Algorithm 1 from a tick on, while there is room; up to which tick, and how many pairs were found."""
    kinds, side = len(streams), limits[2]
    seen, out = np.full(kinds * w, -1), np.empty(kinds * w, np.int64)
    standing, found, stamp = np.sum(objects.leaving), 0, 0
    while tick < last:
        if found + kinds * (kinds - 1) * w > len(pairs) or grid.free[-1] < kinds * cells:
            return tick, found
        for stream in range(kinds):
            slot = stream * w + tick % w
            if objects.state[slot] != EMPTY:
                _leave(objects, grid, slot, w, settings, counts)
                standing -= objects.leaving[slot]
                objects.leaving[slot] = 0
        for stream in range(kinds):
            slot = stream * w + tick % w
            objects.number[slot] = tick
            observe(objects, slot, streams[stream, tick], index)
            counts[JOINED] += _others(objects, stream, w)
            stamp += 3
            before = found
            found = _arrive(
                objects, slot, index, grid, settings, limits, w, seen, stamp, out, pairs, chance, found, counts
            )
            standing += found - before
            if settings[GRID]:
                if settings[BY_HISTOGRAM] and objects.state[slot] == OBSERVED and _meets(objects, slot, side) > _FEW:
                    enclose(objects, slot, index, counts[NODES : NODES + 2])
                spare = grid.free[-1]
                put(grid, slot, stream, objects.low[slot], objects.high[slot], side)
                counts[CELLS] += spare - grid.free[-1]
        counts[REPORTED] += standing
        tick += 1
    return tick, found


@kernel
def load(streams: Floats, index: Index, objects: Objects, w: int, tick: int, counts: Ints) -> None:
    """The objects of a tick into their slots, imputed, without a grid."""
    for stream in range(len(streams)):
        slot = stream * w + tick % w
        objects.number[slot], objects.leaving[slot] = tick, 0
        observe(objects, slot, streams[stream, tick], index)
        fetch(objects, slot, index, 0.0, counts[NODES : NODES + 2])


@kernel
def _others(objects: Objects, stream: int, w: int) -> int:
    """Objects in the windows of other streams."""
    n = 0
    for slot in range(len(objects.state)):
        n += slot // w != stream and objects.state[slot] != EMPTY
    return n


@kernel
def _meets(objects: Objects, slot: int, side: float) -> float:
    """About how many cells an object's box meets."""
    cells = 1.0
    for k in range(objects.low.shape[1]):
        cells *= (objects.high[slot, k] - objects.low[slot, k]) / side + 1.0
    return cells


@kernel
def rebuilt(grid: Grid, objects: Objects, w: int, side: float) -> None:
    """Put all objects into an empty grid."""
    for slot in range(len(objects.state)):
        if objects.state[slot] != EMPTY:
            put(grid, slot, slot // w, objects.low[slot], objects.high[slot], side)
