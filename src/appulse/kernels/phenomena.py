"""Phenomena in a field of sensors: which sensors hold a value, as connected regions, and what becomes of these.

A *cell* is a value and a sensor that produced it; it is active while it did so often enough. A region is a connected
part of a value's active cells. Ali et al. 2005 and 2007; identities over time as tests/naive_sensors.py works them out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats, Ints, Whole

# Columns of a cell: its value, its sensor, occurrences in the span, whether active, its phenomenon's slot (-1: none),
# the next cell of the value's list (-1: the last), whether it is on that list, the tick it was last touched at.
VALUE, SENSOR, COUNT, ACTIVE, SLOT, NEXT, LISTED, TOUCHED = range(8)
# Columns of a value: its key, its place in the order of values, the first cell of its list, the tick it changed at.
KEY, ORDER, FIRST, CHANGED = range(4)
# Columns of a phenomenon: its number, how many points its track has had, and scratch: its place among its value's at
# the tick at hand, and how many cells it had before it.
NUMBER, POINTS, PLACE, SIZE = range(4)
# Counters of a field.
TAIL, HEAD, CELLS, VALUES, SLOTS, FREE, NUMBERS, TICK, PENDING, DONE, NOW = range(11)
COUNTERS = 11
# Counters of events.
EVENTS, MEMBERS, OTHERS = range(3)
APPEARS, MOVES, DISAPPEARS, STANDS = range(4)
#: Points of a track that velocity and prediction go by.
TRACK = 8


class Field(NamedTuple):
    """The state of one field."""

    counts: Ints  # (COUNTERS,)
    ring: Ints  # (capacity, 2): time and cell of each reading in the span
    cell_table: NDArray[np.int32]  # cells by hash
    cells: Ints  # (most, 8)
    value_table: NDArray[np.int32]  # values by hash
    values: Ints  # (most, 4)
    phenomena: Ints  # (most, 4)
    track: Floats  # (most, TRACK, 1 + d): times and centroids, in a ring
    free: Ints  # (most,): slots to be used again
    pending: Ints  # (most,): values that changed at the tick at hand
    where: Ints  # (sensors, 2): scratch, the cell of a sensor and the mark it was put under


class Events(NamedTuple):
    """What became of phenomena; event e has ``members[first[e]:first[e + 1]]``, and so its others."""

    counts: Ints  # (3,)
    time: Ints
    key: Ints
    number: Ints
    kind: Ints
    first: Ints
    members: Ints
    first_other: Ints
    others: Ints
    centroid: Floats  # (n, d)
    velocity: Floats  # (n, d), NaN where there is none
    predicted: Floats  # (n, d)
    error: Floats


class Place(NamedTuple):
    """Where sensors are: neighbours of s are ``near[near_first[s]:near_first[s + 1]]``; ``rank`` is their order."""

    near_first: Ints  # (sensors + 1,), or (0,): all are neighbours
    near: Ints
    at: Floats  # (sensors, d)
    rank: Ints


@exact_kernel
def _hash(a: Whole, b: Whole) -> Whole:
    mixed = (np.uint64(a) ^ np.uint64(b) * np.uint64(0xD1342543DE82EF95)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return np.int64(mixed >> np.uint64(32))


@exact_kernel
def value_of(field: Field, key: Whole, order: Whole) -> Whole:
    """The number of a value, a new one if need be."""
    most = len(field.value_table) - 1
    at = _hash(key, 0) & most
    while field.value_table[at] >= 0:
        known: Whole = np.int64(field.value_table[at])
        if field.values[known, KEY] == key:
            field.values[known, ORDER] = order
            return known
        at = (at + 1) & most
    value: Whole = field.counts[VALUES]
    field.counts[VALUES] += 1
    field.value_table[at] = value
    field.values[value, KEY], field.values[value, ORDER] = key, order
    field.values[value, FIRST], field.values[value, CHANGED] = -1, -1
    return value


@exact_kernel
def cell_of(field: Field, value: Whole, sensor: Whole) -> Whole:
    """The number of a cell, a new one if need be."""
    most = len(field.cell_table) - 1
    at = _hash(value, sensor) & most
    while field.cell_table[at] >= 0:
        known: Whole = np.int64(field.cell_table[at])
        if field.cells[known, VALUE] == value and field.cells[known, SENSOR] == sensor:
            return known
        at = (at + 1) & most
    cell: Whole = field.counts[CELLS]
    field.counts[CELLS] += 1
    field.cell_table[at] = cell
    field.cells[cell, VALUE], field.cells[cell, SENSOR] = value, sensor
    field.cells[cell, COUNT], field.cells[cell, ACTIVE], field.cells[cell, SLOT] = 0, 0, -1
    field.cells[cell, LISTED], field.cells[cell, TOUCHED] = 0, -1
    return cell


@exact_kernel
def _list(field: Field, cell: Whole) -> None:
    if not field.cells[cell, LISTED]:
        value = field.cells[cell, VALUE]
        field.cells[cell, LISTED] = 1
        field.cells[cell, NEXT] = field.values[value, FIRST]
        field.values[value, FIRST] = cell


@exact_kernel
def _flip(field: Field, cell: Whole, strength: Whole) -> None:
    """Activate or deactivate a cell, if its count says so, and have its value looked at."""
    active = field.cells[cell, COUNT] >= strength
    if active == (field.cells[cell, ACTIVE] != 0):
        return
    field.cells[cell, ACTIVE] = active
    _list(field, cell)
    value = field.cells[cell, VALUE]
    if field.values[value, CHANGED] != field.counts[TICK]:
        field.values[value, CHANGED] = field.counts[TICK]
        field.pending[field.counts[PENDING]] = value
        field.counts[PENDING] += 1


@exact_kernel
def _count_tick(
    field: Field,
    time: Ints,
    sensor: Ints,
    key: Ints,
    order: Ints,
    begin: Whole,
    end: Whole,
    strength: Whole,
    span: Whole,
) -> None:
    """Take in the readings of one tick, after what has expired; values whose active cells changed are pending."""
    counts, mask = field.counts, len(field.ring) - 1
    now = time[begin]
    counts[TICK] += 1
    counts[PENDING], counts[DONE], counts[NOW] = 0, 0, now
    expired = counts[TAIL]
    while counts[TAIL] < counts[HEAD] and field.ring[counts[TAIL] & mask, 0] < now - span:
        field.cells[field.ring[counts[TAIL] & mask, 1], COUNT] -= 1
        counts[TAIL] += 1
    came = counts[HEAD]
    for i in range(begin, end):
        cell = cell_of(field, value_of(field, key[i], order[i]), sensor[i])
        field.cells[cell, COUNT] += 1
        field.ring[counts[HEAD] & mask, 0], field.ring[counts[HEAD] & mask, 1] = now, cell
        counts[HEAD] += 1
    for number in range(expired, counts[TAIL]):
        _flip(field, field.ring[number & mask, 1], strength)
    for number in range(came, counts[HEAD]):
        _flip(field, field.ring[number & mask, 1], strength)


@exact_kernel
def apply(field: Field, time: Ints, sensor: Ints, key: Ints, order: Ints, strength: Whole, span: Whole) -> None:
    """Take in whole ticks without telling what becomes of phenomena."""
    begin = 0
    while begin < len(time):
        end = begin + 1
        while end < len(time) and time[end] == time[begin]:
            end += 1
        _count_tick(field, time, sensor, key, order, begin, end, strength, span)
        field.counts[PENDING] = 0
        begin = end


@exact_kernel
def stand_in(field: Field, cell: Whole) -> None:
    """Have a cell active that others know to be, whose readings are no longer at hand, for they expire at any tick.

    One occurrence older than all stands in for them, so that the next tick judges the cell anew.
    """
    if field.cells[cell, ACTIVE]:
        return
    field.counts[TAIL] -= 1
    at = field.counts[TAIL] & (len(field.ring) - 1)
    field.ring[at, 0], field.ring[at, 1] = np.int64(-(1 << 62)), cell
    field.cells[cell, COUNT] += 1
    field.cells[cell, ACTIVE] = 1
    _list(field, cell)


@exact_kernel
def observe(
    field: Field,
    place: Place,
    time: Ints,
    sensor: Ints,
    key: Ints,
    order: Ints,
    begin: Whole,
    strength: Whole,
    span: Whole,
    least: Whole,
    horizon: Whole,
    events: Events,
) -> Whole:
    """Take in whole ticks, and tell what becomes of phenomena; where it came to, short of the end without room."""
    counts = field.counts
    while True:
        while counts[DONE] < counts[PENDING]:
            if not _told(field, place, field.pending[counts[DONE]], least, horizon, events):
                return begin
            counts[DONE] += 1
        if begin == len(time):
            return begin
        end = begin + 1
        while end < len(time) and time[end] == time[begin]:
            end += 1
        _count_tick(field, time, sensor, key, order, begin, end, strength, span)
        keys = field.values[field.pending[: counts[PENDING]], ORDER]
        field.pending[: counts[PENDING]] = field.pending[: counts[PENDING]][np.argsort(keys)]
        begin = end


@exact_kernel
def _told(field: Field, place: Place, value: Whole, least: Whole, horizon: Whole, events: Events) -> bool:
    """Tell what became of one value's phenomena at the tick at hand; False without room."""
    cells = _listed(field, value)
    if (
        events.counts[MEMBERS] + 2 * len(cells) > len(events.members)
        or events.counts[EVENTS] + 2 * len(cells) >= len(events.time)
        or events.counts[OTHERS] + 2 * len(cells) > len(events.others)
    ):
        return False
    active = _active_by_rank(field, cells, place.rank)
    part = _parts(field, place, active)
    many = _large_enough(part, least)
    old = np.unique(field.cells[cells, SLOT])
    old = old[old >= 0]
    old = old[np.argsort(field.phenomena[old, NUMBER])]
    pairs, shared = _shared(field, active, part, old, many)
    slots = _inherited(field, pairs, shared, old, many)
    _tell_events(field, place, value, cells, active, part, old, slots, pairs, shared, horizon, events)
    _settle(field, value, cells, active, part, slots)
    return True


@exact_kernel
def _listed(field: Field, value: Whole) -> Ints:
    n, cell = 0, field.values[value, FIRST]
    while cell >= 0:
        n += 1
        cell = field.cells[cell, NEXT]
    cells = np.empty(n, np.int64)
    cell = field.values[value, FIRST]
    for i in range(n):
        cells[i] = cell
        cell = field.cells[cell, NEXT]
    return cells


@exact_kernel
def _active_by_rank(field: Field, cells: Ints, rank: Ints) -> Ints:
    """Active cells in the order of their sensors."""
    active: Ints = cells[field.cells[cells, ACTIVE] != 0]
    return active[np.argsort(rank[field.cells[active, SENSOR]])]


@exact_kernel
def _parts(field: Field, place: Place, active: Ints) -> Ints:
    """The connected part of each active cell, numbered by their first sensors."""
    part = np.full(len(active), -1, np.int64)
    if len(place.near_first) == 0:
        part[:] = 0
        return part
    mark = field.counts[TICK] * np.int64(1 << 20) + field.counts[DONE]
    for i in range(len(active)):
        sensor = field.cells[active[i], SENSOR]
        field.where[sensor, 0], field.where[sensor, 1] = i, mark
    stack = np.empty(len(active), np.int64)
    parts = 0
    for i in range(len(active)):
        if part[i] >= 0:
            continue
        stack[0], high, part[i] = i, 1, parts
        while high:
            high -= 1
            sensor = field.cells[active[stack[high]], SENSOR]
            for k in range(place.near_first[sensor], place.near_first[sensor + 1]):
                other = place.near[k]
                if field.where[other, 1] == mark and part[field.where[other, 0]] < 0:
                    part[field.where[other, 0]] = parts
                    stack[high] = field.where[other, 0]
                    high += 1
        parts += 1
    return part


@exact_kernel
def _large_enough(part: Ints, least: Whole) -> int:
    """Number the parts anew without those of too few cells, which get -1; how many are left."""
    parts = 0 if len(part) == 0 else part.max() + 1
    size, fresh = np.zeros(parts, np.int64), np.full(parts, -1, np.int64)
    for p in part:
        size[p] += 1
    many = 0
    for p in range(parts):
        if size[p] >= least:
            fresh[p] = many
            many += 1
    for i in range(len(part)):
        part[i] = fresh[part[i]]
    return many


@exact_kernel
def _shared(field: Field, active: Ints, part: Ints, old: Ints, many: Whole) -> tuple[Ints, Ints]:
    """Pairs of a former phenomenon and a part that share cells, as one number, and how many they share."""
    for i in range(len(old)):
        field.phenomena[old[i], PLACE] = i
    keys = np.empty(len(active), np.int64)
    n = 0
    for i in range(len(active)):
        slot = field.cells[active[i], SLOT]
        if slot >= 0 and part[i] >= 0:
            keys[n] = field.phenomena[slot, PLACE] * many + part[i]
            n += 1
    keys = np.sort(keys[:n])
    pairs, shared = np.empty(n, np.int64), np.zeros(n, np.int64)
    k = -1
    for i in range(n):
        if i == 0 or keys[i] != keys[i - 1]:
            k += 1
            pairs[k] = keys[i]
        shared[k] += 1
    return pairs[: k + 1], shared[: k + 1]


@exact_kernel
def _inherited(field: Field, pairs: Ints, shared: Ints, old: Ints, many: Whole) -> Ints:
    """The slot that each part inherits: by most shared cells, then the older, then the first sensor; or a new one."""
    slots = np.full(many, -1, np.int64)
    taken = np.zeros(len(old), np.bool_)
    # Pairs are in the order of (older, first sensor): a stable sort by shared cells leaves ties in it.
    for k in np.argsort(-shared, kind="mergesort"):
        i, p = pairs[k] // many, pairs[k] % many
        if slots[p] < 0 and not taken[i]:
            slots[p], taken[i] = old[i], True
    counts = field.counts
    for p in range(many):
        if slots[p] < 0:
            if counts[FREE]:
                counts[FREE] -= 1
                slots[p] = field.free[counts[FREE]]
            else:
                slots[p] = counts[SLOTS]
                counts[SLOTS] += 1
            field.phenomena[slots[p], NUMBER], field.phenomena[slots[p], POINTS] = counts[NUMBERS], 0
            counts[NUMBERS] += 1
    return slots


@exact_kernel
def _tell_events(
    field: Field,
    place: Place,
    value: Whole,
    cells: Ints,
    active: Ints,
    part: Ints,
    old: Ints,
    slots: Ints,
    pairs: Ints,
    shared: Ints,
    horizon: Whole,
    events: Events,
) -> None:
    """Events in the order of phenomena's numbers."""
    many = len(slots)
    gone = np.ones(len(old), np.bool_)
    for i in range(len(old)):
        for p in range(many):
            if slots[p] == old[i]:
                gone[i] = False
    total = many + gone.sum()
    numbers, which = np.empty(total, np.int64), np.empty(total, np.int64)
    n = 0
    for p in range(many):
        numbers[n], which[n] = field.phenomena[slots[p], NUMBER], p
        n += 1
    for i in range(len(old)):
        if gone[i]:
            numbers[n], which[n] = field.phenomena[old[i], NUMBER], many + i
            n += 1
    for slot in old:
        field.phenomena[slot, SIZE] = 0
    for cell in cells:
        if field.cells[cell, SLOT] >= 0:
            field.phenomena[field.cells[cell, SLOT], SIZE] += 1
    for k in np.argsort(numbers):
        if which[k] < many:
            _tell_part(field, place, value, active, part, which[k], old, slots, pairs, shared, horizon, events)
        else:
            _tell_gone(field, place, value, cells, which[k] - many, old, slots, pairs, shared, events)


@exact_kernel
def _tell_part(
    field: Field,
    place: Place,
    value: Whole,
    active: Ints,
    part: Ints,
    p: Whole,
    old: Ints,
    slots: Ints,
    pairs: Ints,
    shared: Ints,
    horizon: Whole,
    events: Events,
) -> None:
    """A part that appears, or moves if its cells are others than they were."""
    many, slot = len(slots), slots[p]
    fresh, same, size = True, False, 0
    for i in range(len(active)):
        size += part[i] == p
    for k in range(len(pairs)):
        if pairs[k] % many == p and old[pairs[k] // many] == slot:
            fresh, same = False, shared[k] == size == field.phenomena[slot, SIZE]
    if same:
        return
    low = events.counts[MEMBERS]
    for i in range(len(active)):
        if part[i] == p:
            events.members[events.counts[MEMBERS]] = field.cells[active[i], SENSOR]
            events.counts[MEMBERS] += 1
    if fresh:
        _tell_others(field, pairs, shared, p, old, slots, events, split=True)
    e = events.counts[EVENTS]
    d = place.at.shape[1]
    for c in range(d):
        total = 0.0
        for k in range(low, events.counts[MEMBERS]):
            total += place.at[events.members[k], c]
        events.centroid[e, c] = total / size
    at = field.phenomena[slot, POINTS] % TRACK
    field.track[slot, at, 0] = field.counts[NOW]
    field.track[slot, at, 1:] = events.centroid[e]
    field.phenomena[slot, POINTS] += 1
    _close(field, value, slot, APPEARS if fresh else MOVES, horizon, events)


@exact_kernel
def _tell_gone(
    field: Field,
    place: Place,
    value: Whole,
    cells: Ints,
    i: Whole,
    old: Ints,
    slots: Ints,
    pairs: Ints,
    shared: Ints,
    events: Events,
) -> None:
    """A phenomenon without heir, with the cells it had."""
    slot = old[i]
    mine = cells[field.cells[cells, SLOT] == slot]
    for cell in mine[np.argsort(place.rank[field.cells[mine, SENSOR]])]:
        events.members[events.counts[MEMBERS]] = field.cells[cell, SENSOR]
        events.counts[MEMBERS] += 1
    _tell_others(field, pairs, shared, i, old, slots, events, split=False)
    last = (field.phenomena[slot, POINTS] - 1) % TRACK
    events.centroid[events.counts[EVENTS]] = field.track[slot, last, 1:]
    _close(field, value, slot, DISAPPEARS, 0, events)
    field.free[field.counts[FREE]] = slot
    field.counts[FREE] += 1


@exact_kernel
def _tell_others(
    field: Field, pairs: Ints, shared: Ints, one: Whole, old: Ints, slots: Ints, events: Events, split: bool
) -> None:
    """The phenomena that share cells with one: most of them first, then the older."""
    many = len(slots)
    n = 0
    numbers, weights = np.empty(len(pairs), np.int64), np.empty(len(pairs), np.int64)
    for k in range(len(pairs)):
        i, p = pairs[k] // many, pairs[k] % many
        if (p if split else i) == one:
            numbers[n] = field.phenomena[old[i] if split else slots[p], NUMBER]
            weights[n] = shared[k]
            n += 1
    by_number = np.argsort(numbers[:n])
    for k in by_number[np.argsort(-weights[:n][by_number], kind="mergesort")]:
        events.others[events.counts[OTHERS]] = numbers[k]
        events.counts[OTHERS] += 1


@exact_kernel
def _close(field: Field, value: Whole, slot: Whole, kind: Whole, horizon: Whole, events: Events) -> None:
    """The rest of an event, whose members and centroid are there."""
    e = events.counts[EVENTS]
    events.time[e], events.key[e] = field.counts[NOW], field.values[value, KEY]
    events.number[e], events.kind[e] = field.phenomena[slot, NUMBER], kind
    motion(field.track[slot], field.phenomena[slot, POINTS], horizon, events.velocity[e], events.predicted[e])
    events.error[e] = spread(field.track[slot], field.phenomena[slot, POINTS], horizon)
    events.counts[EVENTS] = e + 1
    events.first[e + 1], events.first_other[e + 1] = events.counts[MEMBERS], events.counts[OTHERS]


@exact_kernel
def _moments(track: Floats, points: Whole) -> tuple[Whole, float, float]:
    """How many points there are, their mean time before the last in seconds, and the sum of squares around it."""
    n = min(points, TRACK)
    last = track[(points - 1) % TRACK, 0]
    mean = 0.0
    for k in range(n):
        mean += (track[k, 0] - last) * 1e-6
    mean /= max(n, 1)
    squares = 0.0
    for k in range(n):
        squares += ((track[k, 0] - last) * 1e-6 - mean) ** 2
    return n, mean, squares


@exact_kernel
def motion(track: Floats, points: Whole, horizon: Whole, velocity: Floats, predicted: Floats) -> None:
    """Least squares of a straight track: its velocity a second, and where it is ``horizon`` after the last point."""
    n, mean, squares = _moments(track, points)
    last = track[(points - 1) % TRACK, 0]
    for c in range(len(velocity)):
        if n < 2:
            velocity[c] = predicted[c] = np.nan
            continue
        centre, slope = 0.0, 0.0
        for k in range(n):
            centre += track[k, 1 + c]
        centre /= n
        for k in range(n):
            slope += ((track[k, 0] - last) * 1e-6 - mean) * (track[k, 1 + c] - centre)
        velocity[c] = slope / squares
        predicted[c] = centre + velocity[c] * (horizon * 1e-6 - mean)


@exact_kernel
def spread(track: Floats, points: Whole, horizon: Whole) -> float:
    """The standard error of that prediction, over all dimensions; NaN below three points."""
    n, mean, squares = _moments(track, points)
    if n < 3:
        return np.nan
    d = track.shape[1] - 1
    last = track[(points - 1) % TRACK, 0]
    residual = 0.0
    for c in range(d):
        centre, slope = 0.0, 0.0
        for k in range(n):
            centre += track[k, 1 + c]
        centre /= n
        for k in range(n):
            slope += ((track[k, 0] - last) * 1e-6 - mean) * (track[k, 1 + c] - centre)
        slope /= squares
        for k in range(n):
            residual += (track[k, 1 + c] - centre - slope * ((track[k, 0] - last) * 1e-6 - mean)) ** 2
    ahead = horizon * 1e-6 - mean
    return float(np.sqrt(residual / (n - 2) * (1.0 + 1.0 / n + ahead * ahead / squares)))


@exact_kernel
def _settle(field: Field, value: Whole, cells: Ints, active: Ints, part: Ints, slots: Ints) -> None:
    """Cells take their phenomena; those that are active no more leave the list."""
    for cell in cells:
        field.cells[cell, SLOT] = -1
    for i in range(len(active)):
        if part[i] >= 0:
            field.cells[active[i], SLOT] = slots[part[i]]
    field.values[value, FIRST] = -1
    for cell in cells:
        field.cells[cell, LISTED] = 0
        if field.cells[cell, ACTIVE]:
            _list(field, cell)


@exact_kernel
def rebuild(field: Field, former: Field) -> None:
    """Fill a fresh field, of more room, with what a former one holds; cells of none, and their values, are left out."""
    field.counts[:] = former.counts
    field.counts[CELLS] = field.counts[VALUES] = 0
    place = np.full(former.counts[CELLS], -1, np.int64)
    for cell in range(former.counts[CELLS]):
        if former.cells[cell, COUNT] == 0 and not former.cells[cell, LISTED]:
            continue
        old = former.cells[cell, VALUE]
        value = value_of(field, former.values[old, KEY], former.values[old, ORDER])
        place[cell] = fresh = cell_of(field, value, former.cells[cell, SENSOR])
        for column in (COUNT, ACTIVE, SLOT):
            field.cells[fresh, column] = former.cells[cell, column]
        if former.cells[cell, LISTED]:
            _list(field, fresh)
    mask, wide = len(former.ring) - 1, len(field.ring) - 1
    for number in range(former.counts[TAIL], former.counts[HEAD]):
        field.ring[number & wide, 0] = former.ring[number & mask, 0]
        field.ring[number & wide, 1] = place[former.ring[number & mask, 1]]
    for slot in range(former.counts[SLOTS]):
        field.phenomena[slot], field.track[slot] = former.phenomena[slot], former.track[slot]
    for k in range(former.counts[FREE]):
        field.free[k] = former.free[k]


@exact_kernel
def hulls(first: Ints, members: Ints, at: Floats, hull_first: Ints, corners: Ints) -> None:
    """Convex hulls in the plane: for each run of members those at the corners, counter-clockwise from the leftmost.

    Andrew 1979. Points between corners are left out; ``corners`` has room for all members.
    """
    total = 0
    hull_first[0] = 0
    for e in range(len(first) - 1):
        mine = members[first[e] : first[e + 1]]
        mine = mine[np.argsort(at[mine, 1], kind="mergesort")]
        mine = mine[np.argsort(at[mine, 0], kind="mergesort")]
        chain = np.empty(2 * len(mine) + 1, np.int64)
        n = 0
        for turn in range(2):
            low = n
            for k in range(len(mine)):
                point = mine[k] if turn == 0 else mine[len(mine) - 1 - k]
                while n - low >= 2 and _turn(at, chain[n - 2], chain[n - 1], point) <= 0.0:
                    n -= 1
                chain[n] = point
                n += 1
            n -= 1  # the last of a chain is the first of the other
        n = max(n, min(len(mine), 1))
        if n == 2 and at[chain[0], 0] == at[chain[1], 0] and at[chain[0], 1] == at[chain[1], 1]:
            n = 1
        corners[total : total + n] = chain[:n]
        total += n
        hull_first[e + 1] = total


@exact_kernel
def _turn(at: Floats, a: Whole, b: Whole, c: Whole) -> float:
    return float((at[b, 0] - at[a, 0]) * (at[c, 1] - at[a, 1]) - (at[b, 1] - at[a, 1]) * (at[c, 0] - at[a, 0]))
