"""Joins on a line: which index is the better one, and the pairs it finds, with their probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.one_dimension import ArrivalSamples, Matches, scan_line
from appulse.kernels.sort_match import sort_match
from appulse.kernels.strings import gather_runs
from appulse.kernels.sweep import ArrivalRows, Cursor
from appulse.operators.cost import spread
from appulse.operators.runs import Columns, SortedRuns, line_costs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from appulse.kernels.arrays import Flags, Floats, Ints
    from appulse.kernels.sweep import PairRule
    from appulse.operators.arrivals import Arrivals
    from appulse.operators.store import LineIndex, WindowBuffer

_FIRST_CAPACITY = 1 << 15


def prepare(
    store: WindowBuffer, stores: Sequence[WindowBuffer], arrivals: Arrivals, meets: Flags, index: str, limit: float
) -> bool:
    """Make sorted runs or columns the store's index, if one of them is the better one; whether it is."""
    kind = _better(store, stores, arrivals, np.flatnonzero(meets[arrivals.store]), index, limit)
    if kind is None:
        return False
    line = store.line if isinstance(store.line, kind) else kind()
    line.prepare(store)
    store.use(line)
    return True


def _better(
    store: WindowBuffer, stores: Sequence[WindowBuffer], arrivals: Arrivals, probes: Ints, index: str, limit: float
) -> type[SortedRuns | Columns] | None:
    """By name, or by what a sample of the probes costs."""
    if index == "grid":
        return None
    if index == "sorted":
        return SortedRuns
    fits = Columns.fit(store)
    if index == "dense":
        return Columns if fits else None
    if len(probes) == 0 or len(store) == 0:
        return type(store.line) if isinstance(store.line, SortedRuns | Columns) else None
    probes = probes[spread(len(probes), 32)]
    radius = np.empty(len(probes))
    for k, p in enumerate(probes.tolist()):
        radius[k] = stores[int(arrivals.store[p])].radius.view[arrivals.row[p]]
    costs = line_costs(store, arrivals.centre[probes, 0], arrivals.extent[probes], radius, limit, len(arrivals.time))
    kinds: dict[str, type[SortedRuns | Columns] | None] = {"runs": SortedRuns, "columns": Columns, "pairs": None}
    if not fits:
        del costs["columns"]
    for name, kind in kinds.items():  # to change the index costs something, too
        if name in costs and kind is (None if store.line is None else type(store.line)):
            costs[name] /= 1.3
    return kinds[min(costs, key=lambda name: costs[name])]


def matches(
    index: LineIndex,
    store: WindowBuffer,
    arrivals: Arrivals,
    stores: Sequence[WindowBuffer],
    rule: PairRule,
    oldest: Ints,  # ranks that windows let each arrival find
    newest: Ints,
    tally: Ints,  # candidates, pruned, refined
) -> Iterator[tuple[Ints, Ints, Floats]]:
    """The pairs above the threshold, as (arrival, row, probability)."""
    start = 0
    low = int(np.searchsorted(store.rank_max.view, oldest[0], side="left"))
    given, mass = samples_of(arrivals, stores)
    rows = ArrivalRows(arrivals.store, oldest, newest, arrivals.group, arrivals.differ, mass)
    room = max(_FIRST_CAPACITY, 2 * len(store))
    out = Matches(np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room), tally)
    window, held = store.window_rows, store.sampled
    while start < len(arrivals.time):
        cursor = Cursor(start, store.linked, low)
        if isinstance(index, Columns):
            start, store.linked, low, n = scan_line(cursor, rule, rows, given, window, held, index.of(store), out)
            index.linked(store)
        elif isinstance(index, SortedRuns):
            start, store.linked, low, n = sort_match(cursor, rule, rows, given, window, held, index.of(store), out)
            tally[2] = tally[0]
        else:
            raise TypeError(f"{index!r} is not an index on a line")
        yield out.arrival[:n], out.row[:n], out.probability[:n]


def samples_of(arrivals: Arrivals, stores: Sequence[WindowBuffer]) -> tuple[ArrivalSamples, Floats]:
    """The samples of arrivals, in tick order, and their masses."""
    n = len(arrivals.time)
    every = [(own, store, np.flatnonzero(arrivals.store == own)) for own, store in enumerate(stores)]
    present = [(own, store, at) for own, store, at in every if len(at)]
    even = not any(len(store.weights.begin) for _, store, _ in present)
    length, mass, place = np.empty(n, np.int64), np.empty(n), np.empty(n, np.int64)
    centre = np.ascontiguousarray(arrivals.centre[:, 0])
    values, weights, end = [], [], 0
    for _, store, at in present:
        rows = arrivals.row[at]
        offsets, samples = gather_runs(
            store.samples.begin, store.samples.length, store.samples.base, store.samples.values, rows
        )
        length[at], mass[at], place[at] = np.diff(offsets), store.mass.view[rows], offsets[:-1] + end
        end += len(samples)
        values.append(samples)
        if len(store.weights.begin):
            runs = (store.weights.begin, store.weights.length, store.weights.base, store.weights.values)
            weights.append(gather_runs(*runs, rows)[1])
        else:
            weights.append(np.repeat(mass[at] / length[at], length[at]))
    first, samples = gather_runs(place, length, 0, np.concatenate(values), np.arange(n))
    shares = np.empty(0) if even else gather_runs(place, length, 0, np.concatenate(weights), np.arange(n))[1]
    return ArrivalSamples(first, samples, shares, centre), mass
