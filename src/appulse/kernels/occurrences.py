"""One hash structure for all sensors: values, the occurrences of each newest first, and a clean sweep, oldest first.

Ali et al. 2007, section 4.1, with one step more: what a value holds stands side by side, in a *block*. Its occurrences
are *settled* in groups, one a sensor, in the order in which answers tell them, so that a probe copies what it tells
from end to end: it chases no pointer, and tests no time. New occurrences are put behind, *fresh*, and settled only when
somebody asks. Where windows or values of readings decide one by one, nothing is settled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import exact_kernel, inlined_kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Flags, Floats, Ints, Whole

    Small = NDArray[np.int32]

# Columns of a value, on one line of cache: its key, its group, how many of its occurrences the sweep has yet to pass
# (none: it is free); its block's place in the pool and room (a power of two); how many times are settled, in how many
# groups, and how many behind them are fresh.
KEY, GROUP, HELD, PLACE, ROOM, SETTLED, GROUPS, FRESH = range(8)
# Counters of a structure (the last tells that an occurrence found no room).
TAIL, HEAD, VALUES, FREE_VALUES, POOL, STARVED = range(6)
COUNTERS = 6
# The least room of a block, as a power of two; and how many such powers there are.
LEAST, SIZES = 2, 48
# So few fresh occurrences are settled one by one.
_FEW = 4


class Structure(NamedTuple):
    """The state. Lengths are powers of two; the table is twice as long as the values it numbers.

    Everything from ``time`` on is the pool, in which blocks have their places: occurrences in order of their groups,
    those that were told of last behind, oldest first in each, then fresh ones; and beside them groups, in that order.
    """

    counts: Ints  # (COUNTERS,)
    sweep: Ints  # (capacity, 2): time and value of each occurrence, in order of arrival: the clean-sweep list
    values: Ints  # (most, 8)
    table: Small  # values by hash, -1 where there is none
    free_values: Small
    free_rooms: Ints  # (SIZES,): the first free room of each size, -1 for none; it holds the place of the next
    time: Ints  # (pool,)
    sensor: Small  # (pool,): of fresh occurrences
    group_sensor: Small  # (pool,)
    group_size: Small  # (pool,)
    number: Ints  # (pool,), or (0,) where nobody asks
    value: Floats  # (pool,), or (0,)
    length: Ints  # (pool,), or (0,)


class Scratch(NamedTuple):
    """Room for the occurrences of one block or of one probe's matches, and the last mark of each sensor."""

    sensor: Ints
    time: Ints
    number: Ints
    group: Ints
    size: Ints
    place: Ints
    latest: Ints  # (sensors,)
    mark: Ints  # (1,): marks grow for ever, so what was left behind is below


@inlined_kernel
def _hash(a: Whole, b: Whole) -> Whole:
    z = (np.uint64(a) ^ np.uint64(b) * np.uint64(0xD1342543DE82EF95)) * np.uint64(0x9E3779B97F4A7C15)
    z ^= z >> np.uint64(29)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    return np.int64(z >> np.uint64(32))


@inlined_kernel
def slot_of(table: Small, values: Ints, key: Whole, group: Whole) -> Whole:
    """The slot of a value, or the free one where it belongs."""
    most = len(table) - 1
    slot = _hash(key, group) & most
    while True:
        value = table[slot]
        if value < 0 or (values[value, KEY] == key and values[value, GROUP] == group):
            return slot
        slot = (slot + 1) & most


@exact_kernel
def _remove_value(
    counts: Ints, values: Ints, table: Small, free_values: Small, free_rooms: Ints, time: Ints, value: Whole
) -> None:
    """Take a value out of the table; those behind it there move up. Its block goes, too."""
    hole = slot_of(table, values, values[value, KEY], values[value, GROUP])
    most = len(table) - 1
    slot = (hole + 1) & most
    while table[slot] >= 0:
        other = table[slot]
        home = _hash(values[other, KEY], values[other, GROUP]) & most
        if (slot - home) & most >= (slot - hole) & most:
            table[hole] = other
            hole = slot
        slot = (slot + 1) & most
    table[hole] = -1
    _free_room(free_rooms, time, values[value, PLACE], values[value, ROOM])
    free_values[counts[FREE_VALUES]] = value
    counts[FREE_VALUES] += 1


@exact_kernel
def _size(room: Whole) -> Whole:
    size = 0
    while (np.int64(1) << size) < room:
        size += 1
    return size


@exact_kernel
def _take_room(counts: Ints, free_rooms: Ints, time: Ints, size: Whole) -> Whole:
    """The place of a free room of 2 ** size occurrences; -1 if the pool is used up."""
    place: Whole = free_rooms[size]
    if place >= 0:
        free_rooms[size] = time[place]
        return place
    place = counts[POOL]
    if place + (np.int64(1) << size) > len(time):
        return -1
    counts[POOL] += np.int64(1) << size
    return place


@exact_kernel
def _free_room(free_rooms: Ints, time: Ints, place: Whole, room: Whole) -> None:
    size = _size(room)
    time[place] = free_rooms[size]
    free_rooms[size] = place


@exact_kernel
def sweep(state: Structure, before: Whole) -> None:
    """Forget values of which nothing is left that is not older than ``before``. Blocks in use are cleaned by use."""
    # Arrays by their own names: to take one out of a tuple costs about as much as what is done to it.
    counts, due, values = state.counts, state.sweep, state.values
    mask, tail, head = len(due) - 1, counts[TAIL], counts[HEAD]
    while tail < head and due[tail & mask, 0] < before:
        value = due[tail & mask, 1]
        values[value, HELD] -= 1
        if values[value, HELD] == 0:
            _remove_value(counts, values, state.table, state.free_values, state.free_rooms, state.time, value)
        tail += 1
    counts[TAIL] = tail


@exact_kernel
def new_value(state: Structure, slot: Whole, key: Whole, group: Whole) -> Whole:
    """A value for a free slot, with a block; -1, with nothing changed, without room."""
    counts = state.counts
    if counts[FREE_VALUES] == 0 and counts[VALUES] == len(state.values):
        return -1
    place = _take_room(counts, state.free_rooms, state.time, LEAST)
    if place < 0:
        return -1
    if counts[FREE_VALUES]:
        counts[FREE_VALUES] -= 1
        value = np.int64(state.free_values[counts[FREE_VALUES]])
    else:
        value = counts[VALUES]
        counts[VALUES] += 1
    state.table[slot] = value
    one = state.values[value]
    one[KEY], one[GROUP], one[HELD], one[PLACE], one[ROOM] = key, group, 0, place, 1 << LEAST
    one[SETTLED] = one[GROUPS] = one[FRESH] = 0
    return value


@exact_kernel
def _move(state: Structure, source: Whole, target: Whole, many: Whole) -> None:
    """Occurrences in the pool, to a place before their own, or apart from it."""
    for k in range(many):
        state.time[target + k] = state.time[source + k]
        state.sensor[target + k] = state.sensor[source + k]
    if len(state.number):
        for k in range(many):
            state.number[target + k] = state.number[source + k]
    if len(state.value):
        for k in range(many):
            state.value[target + k] = state.value[source + k]
    if len(state.length):
        for k in range(many):
            state.length[target + k] = state.length[source + k]


@exact_kernel
def widen(state: Structure, value: Whole) -> bool:
    """Twice the room for a value's block; False if the pool is used up."""
    one = state.values[value]
    wider = _take_room(state.counts, state.free_rooms, state.time, _size(one[ROOM]) + 1)
    if wider < 0:
        return False
    _move(state, one[PLACE], wider, one[SETTLED] + one[FRESH])
    for g in range(one[GROUPS]):
        state.group_sensor[wider + g] = state.group_sensor[one[PLACE] + g]
        state.group_size[wider + g] = state.group_size[one[PLACE] + g]
    _free_room(state.free_rooms, state.time, one[PLACE], one[ROOM])
    one[PLACE], one[ROOM] = wider, 2 * one[ROOM]
    return True


@exact_kernel
def clean(state: Structure, value: Whole, before: Whole, room: Ints) -> None:
    """Drop what is older than ``before`` from a value's block."""
    values, time = state.values, state.time
    place, old = values[value, PLACE], values[value, SETTLED]
    _clean_settled(values, value, time, state.number, state.group_sensor, state.group_size, before, room)
    first, fresh = np.int64(0), values[value, FRESH]
    while first < fresh and time[place + old + first] < before:
        first += 1
    if first or values[value, SETTLED] < old:
        _move(state, place + old + first, place + values[value, SETTLED], fresh - first)
        values[value, FRESH] = fresh - first


@inlined_kernel
def _clean_settled(
    values: Ints,
    value: Whole,
    time: Ints,
    number: Ints,
    group_sensor: Small,
    group_size: Small,
    before: Whole,
    room: Ints,
) -> None:
    """As `clean`, without what is fresh."""
    place = values[value, PLACE]
    groups, read, write, kept = place, place, place, place  # what was read and not yet written begins at `kept`
    for g in range(place, place + values[value, GROUPS]):
        end = read + np.int64(group_size[g])
        if time[read] < before:
            _move_settled(time, number, kept, write, read - kept, room)
            write += read - kept
            while read < end and time[read] < before:
                read += 1
            kept = read
        if read < end:
            group_sensor[groups], group_size[groups] = group_sensor[g], end - read
            groups += 1
        read = end
    _move_settled(time, number, kept, write, read - kept, room)
    write += read - kept
    values[value, SETTLED], values[value, GROUPS] = write - place, groups - place


@inlined_kernel
def _move_settled(time: Ints, number: Ints, source: Whole, target: Whole, many: Whole, room: Ints) -> None:
    if source > target:
        _shift(time, source, target, many, room)
        if len(number):
            _shift(number, source, target, many, room)


@inlined_kernel
def _shift(array: Ints, source: Whole, target: Whole, many: Whole, room: Ints) -> None:
    """Move numbers to the left, by way of ``room``: where a copy does not overlap what it copies, it is SIMD.

    Indices without sign spare the test for negative ones, which would be in the way, too.
    """
    for begin in range(0, many, len(room)):
        some = np.uint64(min(len(room), many - begin))
        read, write = np.uint64(source + begin), np.uint64(target + begin)
        for k in range(some):
            room[k] = array[read + k]
        for k in range(some):
            array[write + k] = room[k]


@inlined_kernel
def settle(
    values: Ints,
    value: Whole,
    time: Ints,
    number: Ints,
    sensor: Small,
    group_sensor: Small,
    group_size: Small,
    before: Whole,
    room: Ints,
) -> bool:
    """Put a value's block in order: nothing older than ``before``, nothing fresh. False if too much of it is fresh.

    ``room`` takes all it holds. In steady state about one occurrence has expired since the last time, and one has come.
    """
    read = place = values[value, PLACE]
    dirty = False
    for g in range(place, place + values[value, GROUPS]):
        dirty |= time[read] < before
        read += np.int64(group_size[g])
    fresh = values[value, FRESH]
    if fresh > _FEW or (fresh and time[read] < before):
        return False
    if dirty:
        _clean_settled(values, value, time, number, group_sensor, group_size, before, room)
        write = place + values[value, SETTLED]
        for k in range(fresh):
            time[write + k], sensor[write + k] = time[read + k], sensor[read + k]
            if len(number):
                number[write + k] = number[read + k]
    for _ in range(fresh):
        _settle_one(values, value, time, number, sensor, group_sensor, group_size, room)
    return True


@inlined_kernel
def _settle_one(
    values: Ints,
    value: Whole,
    time: Ints,
    number: Ints,
    sensor: Small,
    group_sensor: Small,
    group_size: Small,
    room: Ints,
) -> None:
    """The first fresh occurrence: its group becomes the last, and it the last of it."""
    place = values[value, PLACE]
    end, last = place + values[value, SETTLED], place + values[value, GROUPS] - 1
    mine = sensor[end]
    g, begin = last, end
    while g >= place:
        begin -= np.int64(group_size[g])
        if group_sensor[g] == mine:
            break
        g -= 1
    size = np.int64(0)
    if g < place:
        last += 1
        values[value, GROUPS] += 1
    else:
        size = np.int64(group_size[g])
        if g < last:
            _to_end(time, begin, size, end, room)
            if len(number):
                _to_end(number, begin, size, end, room)
            for h in range(g, last):
                group_sensor[h], group_size[h] = group_sensor[h + 1], group_size[h + 1]
    group_sensor[last], group_size[last] = mine, size + 1
    values[value, SETTLED] += 1
    values[value, FRESH] -= 1


@inlined_kernel
def _to_end(array: Ints, begin: Whole, size: Whole, end: Whole, room: Ints) -> None:
    """Put the ``size`` numbers from ``begin`` on behind those up to ``end``."""
    many = end - begin
    for k in range(np.uint64(many)):
        room[k] = array[np.uint64(begin) + k]
    for k in range(np.uint64(many - size)):
        array[np.uint64(begin) + k] = room[np.uint64(size) + k]
    for k in range(np.uint64(size)):
        array[np.uint64(end - size) + k] = room[k]


@exact_kernel
def settle_many(state: Structure, value: Whole, before: Whole, room: Scratch) -> None:
    """As `settle`, all fresh ones at once: groups without any as they stand, then the others, by their newest."""
    clean(state, value, before, room.time)
    one = state.values[value]
    place, groups, fresh = one[PLACE], one[GROUPS], one[FRESH]
    end, mark, many = place + one[SETTLED], room.mark[0], np.int64(0)
    for k in range(end + fresh - 1, end - 1, -1):
        mine = state.sensor[k]
        if room.latest[mine] < mark:
            room.latest[mine] = mark + many
            room.sensor[many], room.size[many], room.group[many] = mine, 0, -1
            many += 1
        room.size[room.latest[mine] - mark] += 1
    room.mark[0] = mark + many
    # Where each group goes: `place` is its new begin, `group` the number of the old one.
    told, at, kept = np.int64(0), place, np.int64(0)
    for g in range(groups):
        mine, size = state.group_sensor[place + g], np.int64(state.group_size[place + g])
        if room.latest[mine] >= mark:
            room.group[room.latest[mine] - mark] = at - place
            room.size[room.latest[mine] - mark] += size << 32
        else:
            _copy(state.time, at, room.time, told, size)
            _copy(state.number, at, room.number, told, size)
            state.group_sensor[place + kept], state.group_size[place + kept] = mine, size
            kept += 1
            told += size
        at += size
    for g in range(many - 1, -1, -1):
        size, more = room.size[g] >> 32, room.size[g] & 0xFFFFFFFF
        if size:
            _copy(state.time, place + room.group[g], room.time, told, size)
            _copy(state.number, place + room.group[g], room.number, told, size)
        room.place[g] = told + size
        state.group_sensor[place + kept], state.group_size[place + kept] = room.sensor[g], size + more
        kept += 1
        told += size + more
    for k in range(end, end + fresh):
        g = room.latest[state.sensor[k]] - mark
        room.time[room.place[g]] = state.time[k]
        if len(state.number):
            room.number[room.place[g]] = state.number[k]
        room.place[g] += 1
    _copy(room.time, 0, state.time, place, told)
    if len(state.number):
        _copy(room.number, 0, state.number, place, told)
    one[SETTLED], one[GROUPS], one[FRESH] = told, kept, 0


@exact_kernel
def _copy(source: Ints, begin: Whole, target: Ints, at: Whole, many: Whole) -> None:
    if len(source):
        for k in range(many):
            target[at + k] = source[begin + k]


@exact_kernel
def rehash(state: Structure, former: Structure, before: Whole, room: Ints) -> None:
    """Fill a fresh structure, with room for it, with what of a former one is not older than ``before``."""
    moved = np.full(former.counts[VALUES], -1, np.int64)
    for old in range(former.counts[VALUES]):
        was = former.values[old]
        if was[HELD] == 0:
            continue
        clean(former, old, before, room)
        slot = slot_of(state.table, state.values, was[KEY], was[GROUP])
        many, size = was[SETTLED] + was[FRESH], np.int64(LEAST)
        while (np.int64(1) << size) < many:
            size += 1
        value = state.counts[VALUES]
        state.counts[VALUES] += 1
        state.table[slot] = value
        moved[old] = value
        state.values[value] = was
        place = state.counts[POOL]
        state.counts[POOL] += np.int64(1) << size
        state.values[value, PLACE], state.values[value, ROOM] = place, np.int64(1) << size
        for k in range(many):
            state.time[place + k] = former.time[was[PLACE] + k]
            state.sensor[place + k] = former.sensor[was[PLACE] + k]
            if len(state.number):
                state.number[place + k] = former.number[was[PLACE] + k]
            if len(state.value):
                state.value[place + k] = former.value[was[PLACE] + k]
            if len(state.length):
                state.length[place + k] = former.length[was[PLACE] + k]
        for g in range(was[GROUPS]):
            state.group_sensor[place + g] = former.group_sensor[was[PLACE] + g]
            state.group_size[place + g] = former.group_size[was[PLACE] + g]
    state.counts[TAIL], state.counts[HEAD] = former.counts[TAIL], former.counts[HEAD]
    for number in range(former.counts[TAIL], former.counts[HEAD]):
        entry = former.sweep[number & (len(former.sweep) - 1)]
        state.sweep[number & (len(state.sweep) - 1), 0] = entry[0]
        state.sweep[number & (len(state.sweep) - 1), 1] = moved[entry[1]]


@exact_kernel
def sensors_in(state: Structure, used: Flags) -> None:
    """Flag the sensors of what is held."""
    for value in range(state.counts[VALUES]):
        one = state.values[value]
        if one[HELD]:
            for g in range(one[GROUPS]):
                used[state.group_sensor[one[PLACE] + g]] = True
            for k in range(one[SETTLED], one[SETTLED] + one[FRESH]):
                used[state.sensor[one[PLACE] + k]] = True


@exact_kernel
def renumber(state: Structure, numbers: Ints) -> None:
    """Sensors of what is held, by other numbers."""
    for value in range(state.counts[VALUES]):
        one = state.values[value]
        if one[HELD]:
            for g in range(one[GROUPS]):
                state.group_sensor[one[PLACE] + g] = numbers[state.group_sensor[one[PLACE] + g]]
            for k in range(one[SETTLED], one[SETTLED] + one[FRESH]):
                state.sensor[one[PLACE] + k] = numbers[state.sensor[one[PLACE] + k]]
