"""Phenomena in a field of sensors: which sensors hold a value, as connected regions, and what becomes of these.

A *cell* is a value and a sensor that produced it; it is active while it did so often enough. A region is a connected
part of a value's active cells. Ali et al. 2005 and 2007; identities over time as tests/helpers/naive_sensors.py works
them out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.bins import hash_of_two
from appulse.kernels.identities import (
    APPEARS,
    EVENTS,
    FREE,
    HEAD,
    MEMBERS,
    MOVES,
    NOW,
    NUMBER,
    OTHERS,
    PENDING,
    PLACE,
    SIZE,
    SLOTS,
    TAIL,
    TICK,
    Lineage,
    by_number,
    close,
    counted,
    give_up,
    inherited,
    move_on,
    report_others,
    tick_end,
)
from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Flags, Floats, Ints, Whole
    from appulse.kernels.identities import Criteria, Events, Place

# Columns of a cell: its value, its sensor, occurrences in the span, whether active, its phenomenon's slot (-1: none),
# the next cell of the value's list (-1: the last), whether it is on that list, the tick it was last touched at.
VALUE, SENSOR, COUNT, ACTIVE, SLOT, NEXT, LISTED, TOUCHED = range(8)
# Columns of a value: its key, its place in the order of values, the first cell of its list, the tick it changed at.
KEY, ORDER, FIRST, CHANGED = range(4)
# Counters of a field, beside those of every field.
CELLS, VALUES, DONE = 8, 9, 10
COUNTERS = 11


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
    where: Ints  # (sensors, 2): scratch of all fields, the cell of a sensor and its mark; nobody's is the latest mark


@exact_kernel
def value_of(field: Field, key: Whole, order: Whole) -> Whole:
    """The number of a value, a new one if need be."""
    most = len(field.value_table) - 1
    at = hash_of_two(key, 0) & most
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
    at = hash_of_two(value, sensor) & most
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


class KeyedReadings(NamedTuple):
    """Readings of whole ticks, in order of time: the key of each value, and its place in the order of values.

    A sensor of -1 is no reading, and its time a tick all the same.
    """

    time: Ints
    sensor: Ints
    key: Ints
    order: Ints


class Parts(NamedTuple):
    """A value's active cells in the order of their sensors, and the connected part of each (-1: too few cells)."""

    active: Ints
    part: Ints


@exact_kernel
def _count_tick(field: Field, readings: KeyedReadings, begin: Whole, end: Whole, strength: Whole, span: Whole) -> None:
    """Take in the readings of one tick, after what has expired; values whose active cells changed are pending."""
    time, sensor, key, order = readings
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
        if sensor[i] < 0:  # no reading: time goes on
            continue
        cell = cell_of(field, value_of(field, key[i], order[i]), sensor[i])
        field.cells[cell, COUNT] += 1
        field.ring[counts[HEAD] & mask, 0], field.ring[counts[HEAD] & mask, 1] = now, cell
        counts[HEAD] += 1
    for number in range(expired, counts[TAIL]):
        _flip(field, field.ring[number & mask, 1], strength)
    for number in range(came, counts[HEAD]):
        _flip(field, field.ring[number & mask, 1], strength)


@exact_kernel
def apply(field: Field, readings: KeyedReadings, strength: Whole, span: Whole) -> None:
    """Take in whole ticks without reporting what becomes of phenomena."""
    begin: Whole = 0
    while begin < len(readings.time):
        end = tick_end(readings.time, begin)
        _count_tick(field, readings, begin, end, strength, span)
        field.counts[PENDING] = 0
        begin = end


@exact_kernel
def stand_in(field: Field, cell: Whole) -> None:
    """Mark a cell active although its readings have expired here, as they do at any tick.

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
def stand_down(field: Field, strength: Whole) -> None:
    """Undo `stand_in`: what ended since may have ended at a tick that is in no log any more."""
    counts, mask = field.counts, len(field.ring) - 1
    while counts[TAIL] < counts[HEAD] and field.ring[counts[TAIL] & mask, 0] == np.int64(-(1 << 62)):
        cell = field.ring[counts[TAIL] & mask, 1]
        field.cells[cell, COUNT] -= 1
        field.cells[cell, ACTIVE] = field.cells[cell, COUNT] >= strength
        counts[TAIL] += 1


@exact_kernel
def observe(
    field: Field, place: Place, readings: KeyedReadings, begin: Whole, criteria: Criteria, events: Events
) -> Whole:
    """Take in whole ticks, and report what becomes of phenomena; where it came to, short of the end without room."""
    counts = field.counts
    while True:
        while counts[DONE] < counts[PENDING]:
            if not _reported(field, place, field.pending[counts[DONE]], criteria.least, events):
                return begin
            counts[DONE] += 1
        if begin == len(readings.time):
            return begin
        end = tick_end(readings.time, begin)
        _count_tick(field, readings, begin, end, criteria.strength, criteria.span)
        keys = field.values[field.pending[: counts[PENDING]], ORDER]
        field.pending[: counts[PENDING]] = field.pending[: counts[PENDING]][np.argsort(keys)]
        begin = end


@exact_kernel
def _reported(field: Field, place: Place, value: Whole, least: Whole, events: Events) -> bool:
    """Report what became of one value's phenomena at the tick at hand; False without room."""
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
    slots = inherited(field, pairs, shared, old, many)
    lineage = Lineage(old, slots, pairs, shared)
    _report_events(field, place, value, cells, Parts(active, part), lineage, events)
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
    field.where[0, 1] += 1
    mark = field.where[0, 1]
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
    return counted(keys[:n])


@exact_kernel
def _report_events(
    field: Field,
    place: Place,
    value: Whole,
    cells: Ints,
    parts: Parts,
    lineage: Lineage,
    events: Events,
) -> None:
    """Events in the order of phenomena's numbers."""
    many = len(lineage.slots)
    for slot in lineage.old:
        field.phenomena[slot, SIZE] = 0
    for cell in cells:
        if field.cells[cell, SLOT] >= 0:
            field.phenomena[field.cells[cell, SLOT], SIZE] += 1
    for one in by_number(field, lineage.old, lineage.slots):
        if one < many:
            _report_part(field, place, value, parts, one, lineage, events)
        else:
            _report_gone(field, place, value, cells, one - many, lineage, events)


@exact_kernel
def _report_part(
    field: Field,
    place: Place,
    value: Whole,
    parts: Parts,
    p: Whole,
    lineage: Lineage,
    events: Events,
) -> None:
    """A part that appears, or moves if its cells are others than they were."""
    active, part = parts
    old, slots, pairs, shared = lineage
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
        report_others(field, lineage, p, events, split=True)
    move_on(field, place, slot, low, events)
    close(field, field.values[value, KEY], slot, APPEARS if fresh else MOVES, events)


@exact_kernel
def _report_gone(
    field: Field, place: Place, value: Whole, cells: Ints, i: Whole, lineage: Lineage, events: Events
) -> None:
    """A phenomenon without heir, with the cells it had."""
    slot = lineage.old[i]
    mine = cells[field.cells[cells, SLOT] == slot]
    for cell in mine[np.argsort(place.rank[field.cells[mine, SENSOR]])]:
        events.members[events.counts[MEMBERS]] = field.cells[cell, SENSOR]
        events.counts[MEMBERS] += 1
    report_others(field, lineage, i, events, split=False)
    give_up(field, slot, field.values[value, KEY], events)


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
def used_of(field: Field, sensors: Flags, values: Flags) -> int:
    """Mark the sensors and values that cells are held of; how many cells."""
    many = 0
    for cell in range(field.counts[CELLS]):
        if field.cells[cell, COUNT] != 0 or field.cells[cell, LISTED]:
            many += 1
            sensors[field.cells[cell, SENSOR]] = values[field.cells[cell, VALUE]] = True
    return many


@exact_kernel
def standing_of(field: Field, sensors: Flags, values: Flags) -> int:
    """As `used_of`, of the cells of phenomena alone."""
    many = 0
    for cell in range(field.counts[CELLS]):
        if field.cells[cell, SLOT] >= 0:
            many += 1
            sensors[field.cells[cell, SENSOR]] = values[field.cells[cell, VALUE]] = True
    return many


@exact_kernel
def rebuild(field: Field, former: Field, sensors: Ints, keys: Ints) -> None:
    """Fill a fresh field, of other room, with what a former one holds; cells of none, and their values, are left out.

    ``sensors`` and ``keys`` are fresh numbers by former ones; where there are none, numbers stay.
    """
    _begin_from(field, former)
    place, slots = np.full(former.counts[CELLS], -1, np.int64), np.full(former.counts[SLOTS], -1, np.int64)
    for cell in range(former.counts[CELLS]):
        if former.cells[cell, COUNT] != 0 or former.cells[cell, LISTED]:
            place[cell] = fresh = _moved(field, former, cell, slots, sensors, keys)
            field.cells[fresh, COUNT] = former.cells[cell, COUNT]
    mask, wide = len(former.ring) - 1, len(field.ring) - 1
    for number in range(former.counts[TAIL], former.counts[HEAD]):
        field.ring[number & wide, 0] = former.ring[number & mask, 0]
        field.ring[number & wide, 1] = place[former.ring[number & mask, 1]]


@exact_kernel
def rest(field: Field, former: Field, sensors: Ints, keys: Ints) -> None:
    """As `rebuild` once all readings are older than the span of any tick to come: what stands, and nothing but."""
    _begin_from(field, former)
    field.counts[TAIL] = field.counts[HEAD] = 0
    slots = np.full(former.counts[SLOTS], -1, np.int64)
    for cell in range(former.counts[CELLS]):
        if former.cells[cell, SLOT] >= 0:
            fresh = _moved(field, former, cell, slots, sensors, keys)
            field.cells[fresh, ACTIVE] = 0
            stand_in(field, fresh)


@exact_kernel
def _begin_from(field: Field, former: Field) -> None:
    field.counts[:] = former.counts
    field.counts[CELLS] = field.counts[VALUES] = field.counts[SLOTS] = field.counts[FREE] = 0


@exact_kernel
def _moved(field: Field, former: Field, cell: Whole, slots: Ints, sensors: Ints, keys: Ints) -> Whole:
    """A cell in another field, but for its count; phenomena get the slots there that come first."""
    old, sensor = former.cells[cell, VALUE], former.cells[cell, SENSOR]
    key = former.values[old, KEY]
    value = value_of(field, keys[key] if len(keys) else key, former.values[old, ORDER])
    fresh = cell_of(field, value, sensors[sensor] if len(sensors) else sensor)
    slot = former.cells[cell, SLOT]
    if slot >= 0 and slots[slot] < 0:
        slots[slot] = at = field.counts[SLOTS]
        field.counts[SLOTS] += 1
        field.phenomena[at], field.track[at] = former.phenomena[slot], former.track[slot]
    field.cells[fresh, ACTIVE] = former.cells[cell, ACTIVE]
    field.cells[fresh, SLOT] = slots[slot] if slot >= 0 else -1
    if former.cells[cell, LISTED]:
        _list(field, fresh)
    return fresh
