"""One hash structure for all sensors: values, the occurrences of each newest first, and a clean sweep, oldest first.

Ali et al. 2007, section 4.1, with one step more: what a value holds stands side by side, in a *block*. Its occurrences
are *settled* in groups, one a sensor, in the order in which answers report them, so that a probe copies them: it chases
no pointer, and tests no time. What comes and is not a probe is put before them, *fresh*, and settled when
somebody asks. Where windows or values of readings decide one by one, nothing is settled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.bins import hash_of_two
from appulse.kernels.jit import exact_kernel, inlined_kernel
from appulse.kernels.simd import shift

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Flags, Floats, Ints, Whole

    Small = NDArray[np.int32]

# Columns of a value, on one line of cache: its key, its group, how many of its occurrences the sweep has yet to pass
# (none: it is free); its block's place in the pool and the end of its room (a power of two); where its occurrences
# begin, how many of them are fresh, how many groups the others are in.
KEY, GROUP, HELD, PLACE, END, FRONT, FRESH, GROUPS = range(8)
# Counters of a structure (the last says that an occurrence found no room).
TAIL, HEAD, VALUES, FREE_VALUES, POOL, STARVED = range(6)
COUNTERS = 6
# The least room of a block, as a power of two; and how many such powers there are.
LEAST, SIZES = 2, 48
# Of a group's number, the bits of its size.
SIZE = 0xFFFFFFFF
# So few fresh occurrences are settled one by one.
_FEW = 4


class Structure(NamedTuple):
    """The state. Lengths are powers of two; the table is twice as long as the values it numbers.

    ``time``, ``owner`` and what follows are the pool, in which blocks have their places. A block's occurrences end
    where its room does, the newest first: fresh ones, then groups, that with the newest first. `owner` has the sensor
    of each fresh one, and in its last places a number for each group: 32 bits of its sensor, 32 of its size.
    """

    counts: Ints  # (COUNTERS,)
    sweep: Ints  # (capacity, 2): time and value of each occurrence, in order of arrival: the clean-sweep list
    values: Ints  # (most, 8)
    table: Small  # values by hash, -1 where there is none
    free_values: Small
    free_rooms: Ints  # (SIZES,): the first free room of each size, -1 for none; it holds the place of the next
    time: Ints  # (pool,)
    owner: Ints  # (pool,)
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
def slot_of(table: Small, values: Ints, key: Whole, group: Whole) -> Whole:
    """The slot of a value, or the free one where it belongs."""
    most = len(table) - 1
    slot = hash_of_two(key, group) & most
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
        home = hash_of_two(values[other, KEY], values[other, GROUP]) & most
        if (slot - home) & most >= (slot - hole) & most:
            table[hole] = other
            hole = slot
        slot = (slot + 1) & most
    table[hole] = -1
    _free_room(free_rooms, time, values[value, PLACE], values[value, END])
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
def _free_room(free_rooms: Ints, time: Ints, place: Whole, end: Whole) -> None:
    size = _size(end - place)
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
    one, end = state.values[value], place + (1 << LEAST)
    one[KEY], one[GROUP], one[HELD], one[PLACE], one[END] = key, group, 0, place, end
    one[FRONT], one[FRESH], one[GROUPS] = end, 0, 0
    return value


@exact_kernel
def _move(to: Structure, target: Whole, of: Structure, source: Whole, many: Whole) -> None:
    """Occurrences from place to place, but for their owners."""
    shift(to.time, target, of.time, source, many)
    if len(to.number):
        shift(to.number, target, of.number, source, many)
    if len(to.value):
        shift(to.value, target, of.value, source, many)
    if len(to.length):
        shift(to.length, target, of.length, source, many)


@exact_kernel
def _move_block(to: Structure, target: Ints, place: Whole, end: Whole, of: Structure, source: Ints) -> None:
    """A block to another room; ``source`` and ``target`` are its value, before and after."""
    front, was = end - (source[END] - source[FRONT]), source[FRONT]
    _move(to, front, of, was, end - front)
    shift(to.owner, front, of.owner, was, source[FRESH])
    shift(to.owner, end - source[GROUPS], of.owner, source[END] - source[GROUPS], source[GROUPS])
    target[PLACE], target[END], target[FRONT] = place, end, front


@exact_kernel
def widen(state: Structure, value: Whole) -> bool:
    """Twice the room for a value's block; False if the pool is used up."""
    one = state.values[value]
    place, end = one[PLACE], one[END]
    wider = _take_room(state.counts, state.free_rooms, state.time, _size(end - place) + 1)
    if wider < 0:
        return False
    _move_block(state, one, wider, wider + 2 * (end - place), state, one)
    _free_room(state.free_rooms, state.time, place, end)
    return True


@exact_kernel
def clean(state: Structure, value: Whole, before: Whole) -> None:
    """Drop what is older than ``before`` from a value's block."""
    values, time, owner = state.values, state.time, state.owner
    clean_settled(values, value, time, state.number, owner, before)
    front, fresh = values[value, FRONT], values[value, FRESH]
    last = front + fresh
    while last > front and time[last - 1] < before:
        last -= 1
    ahead = front + fresh - last
    if ahead:
        _move(state, front + ahead, state, front, last - front)
        shift(owner, front + ahead, owner, front, last - front)
        values[value, FRONT], values[value, FRESH] = front + ahead, last - front


@inlined_kernel
def clean_settled(values: Ints, value: Whole, time: Ints, number: Ints, owner: Ints, before: Whole) -> None:
    """As `clean`, of what is settled alone: what stays moves up to the end, and what is fresh behind it."""
    end, front, fresh = values[value, END], values[value, FRONT], values[value, FRESH]
    groups, kept, read, write = end, end, end, end  # what was read, and has not been moved yet, ends at `kept`
    for g in range(end - 1, end - values[value, GROUPS] - 1, -1):
        begin = read - (owner[g] & SIZE)
        if time[read - 1] < before:
            write -= kept - read
            if write > read:
                shift(time, write, time, read, kept - read)
                if len(number):
                    shift(number, write, number, read, kept - read)
            while read > begin and time[read - 1] < before:
                read -= 1
            kept = read
        if read > begin:
            groups -= 1
            owner[groups] = (owner[g] & ~SIZE) | (read - begin)
        read = begin
    values[value, GROUPS] = end - groups
    ahead = write - kept
    if ahead:
        shift(time, front + ahead, time, front, kept - front)
        if len(number):
            shift(number, front + ahead, number, front, kept - front)
        shift(owner, front + ahead, owner, front, fresh)
        values[value, FRONT] = front + ahead


@inlined_kernel
def is_clean(time: Ints, owner: Ints, first: Whole, groups: Whole, end: Whole, before: Whole) -> bool:
    """Whether no settled occurrence, the first of them at ``first``, is older than ``before``."""
    # Indices without sign spare the test for negative ones; to leave at once would be a jump nobody can foresee.
    old, read = np.int64(0), np.uint64(first - 1)
    for g in range(np.uint64(end - groups), np.uint64(end)):
        read += np.uint64(owner[g] & SIZE)
        old += np.int64(time[read] < before)
    return bool(old == 0)


@inlined_kernel
def first_of(array: Ints, first: Whole, begin: Whole, size: Whole, room: Ints) -> None:
    """Put the ``size`` numbers from ``begin`` on before the others from ``first`` on."""
    if begin > first:
        shift(room, 0, array, begin, size)
        shift(array, first + size, array, first, begin - first)
        shift(array, first, room, 0, size)


@inlined_kernel
def group_first(owner: Ints, first: Whole, g: Whole, sensor: Whole, size: Whole) -> None:
    """Put the group ``g``, of so many now, before the others from ``first`` on."""
    shift(owner, first + 1, owner, first, g - first)
    owner[first] = (sensor << 32) | size


@exact_kernel
def settle(state: Structure, value: Whole, before: Whole, room: Scratch) -> None:
    """Put a block in order: nothing older than ``before``, nothing fresh. ``room`` takes all it holds."""
    clean(state, value, before)
    values, time, number, owner = state.values, state.time, state.number, state.owner
    if values[value, FRESH] > _FEW:
        _settle_many(state, value, room)
    end = values[value, END]
    while values[value, FRESH]:
        values[value, FRESH] -= 1
        at = values[value, FRONT] + values[value, FRESH]
        sensor, first = owner[at], end - values[value, GROUPS]
        g, begin = first, at + 1
        while g < end and owner[g] >> 32 != sensor:
            begin += owner[g] & SIZE
            g += 1
        if g < end:
            size = owner[g] & SIZE
            first_of(time, at + 1, begin, size, room.time)
            if len(number):
                first_of(number, at + 1, begin, size, room.time)
            group_first(owner, first, g, sensor, size + 1)
        else:
            owner[first - 1] = (sensor << 32) | 1
            values[value, GROUPS] += 1


@exact_kernel
def _settle_many(state: Structure, value: Whole, room: Scratch) -> None:
    """All fresh occurrences at once: their groups, by their newest, then those without any, as they stand."""
    time, number, owner = state.time, state.number, state.owner
    end, front, groups = state.values[value, END], state.values[value, FRONT], state.values[value, GROUPS]
    first, mark, many = front + state.values[value, FRESH], room.mark[0], np.int64(0)
    for k in range(front, first):
        sensor = owner[k]
        if room.latest[sensor] < mark:
            room.latest[sensor] = mark + many
            room.sensor[many], room.size[many], room.group[many] = sensor, 0, 0
            many += 1
        room.size[room.latest[sensor] - mark] += 1
    room.mark[0] = mark + many
    begin, alone = first, end  # groups without any are at last from `alone` on
    for g in range(end - groups, end):
        sensor, size = owner[g] >> 32, owner[g] & SIZE
        if room.latest[sensor] >= mark:
            room.group[room.latest[sensor] - mark] = begin
            room.size[room.latest[sensor] - mark] += size << 32
        begin += size
    written = np.int64(0)
    for k in range(many):
        fresh, size = room.size[k] & SIZE, room.size[k] >> 32
        room.place[k] = written
        _copy(time, room.group[k], room.time, written + fresh, size)
        _copy(number, room.group[k], room.number, written + fresh, size)
        written += fresh + size
    begin = first
    for g in range(end - groups, end):
        size = owner[g] & SIZE
        if room.latest[owner[g] >> 32] < mark:
            _copy(time, begin, room.time, written, size)
            _copy(number, begin, room.number, written, size)
            written += size
        begin += size
    for k in range(front, first):
        g = room.latest[owner[k]] - mark
        room.time[room.place[g]] = time[k]
        if len(number):
            room.number[room.place[g]] = number[k]
        room.place[g] += 1
    for g in range(end - 1, end - groups - 1, -1):
        if room.latest[owner[g] >> 32] < mark:
            alone -= 1
            owner[alone] = owner[g]
    for k in range(many - 1, -1, -1):
        alone -= 1
        owner[alone] = (room.sensor[k] << 32) | ((room.size[k] & SIZE) + (room.size[k] >> 32))
    shift(time, front, room.time, 0, written)
    if len(number):
        shift(number, front, room.number, 0, written)
    state.values[value, FRESH], state.values[value, GROUPS] = 0, end - alone


@exact_kernel
def _copy(source: Ints, begin: Whole, target: Ints, at: Whole, many: Whole) -> None:
    if len(source):
        shift(target, at, source, begin, many)


@exact_kernel
def rehash(state: Structure, former: Structure, before: Whole) -> None:
    """Fill a fresh structure, with room for it, with what of a former one is not older than ``before``."""
    moved = np.full(former.counts[VALUES], -1, np.int64)
    for old in range(former.counts[VALUES]):
        was = former.values[old]
        if was[HELD] == 0:
            continue
        clean(former, old, before)
        value = state.counts[VALUES]
        state.counts[VALUES] += 1
        state.table[slot_of(state.table, state.values, was[KEY], was[GROUP])] = value
        state.values[value] = was
        place, room = state.counts[POOL], np.int64(1) << max(LEAST, _size(was[END] - was[FRONT]))
        state.counts[POOL] += room
        _move_block(state, state.values[value], place, place + room, former, was)
        moved[old] = value
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
            for k in range(one[FRONT], one[FRONT] + one[FRESH]):
                used[state.owner[k]] = True
            for g in range(one[END] - one[GROUPS], one[END]):
                used[state.owner[g] >> 32] = True


@exact_kernel
def renumber(state: Structure, numbers: Ints) -> None:
    """Sensors of what is held, by other numbers."""
    owner = state.owner
    for value in range(state.counts[VALUES]):
        one = state.values[value]
        if one[HELD]:
            for k in range(one[FRONT], one[FRONT] + one[FRESH]):
                owner[k] = numbers[owner[k]]
            for g in range(one[END] - one[GROUPS], one[END]):
                owner[g] = (numbers[owner[g] >> 32] << 32) | (owner[g] & SIZE)
