"""One hash structure for all sensors: values, the occurrences of each newest first, and a clean sweep, oldest first.

Ali et al. 2007, section 4.1. Occurrences stand in a ring in order of arrival, which is the clean-sweep list; each
points to the one before it of the same value, which is the value-occurrence list. So to expire is to move the tail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Flags, Floats, Hashes, Ints, Whole

# Columns of an occurrence: side by side, as a walk reads them all.
TIME, BEFORE, SENSOR, LENGTH = range(4)
# Columns of an entry: the value's key, its group, its newest occurrence, how many are live.
KEY, GROUP, NEWEST, LIVE = range(4)
# Counters of a structure, and of an output.
TAIL, HEAD, ENTRIES, FREE = range(4)
PROBES, GROUPS, TIMES, MARK = range(4)


class Structure(NamedTuple):
    """The state: rings and tables have lengths that are powers of two, and more room than there are occurrences."""

    counts: Ints  # (4,)
    ring: Ints  # (capacity, 4)
    value: Floats  # (capacity,) or (0,)
    entry: NDArray[np.int32]  # (capacity,): that of each occurrence
    table: NDArray[np.int32]  # (slots,): entries by hash, -1 where there is none
    entries: Ints  # (most, 4)
    free: NDArray[np.int32]  # (most,): entries to be used again


class Arrivals(NamedTuple):
    """Readings in order; ``length`` and ``value`` are empty where nothing asks for them, ``asks`` where all do."""

    time: Ints
    sensor: Ints
    group: Ints
    key: Ints
    value: Floats
    length: Ints
    asks: Flags


class Found(NamedTuple):
    """Matches: probe p has the groups from ``first[p]`` on, group g the times from ``begin[g]`` on, newest first."""

    counts: Ints  # (4,)
    probe: Ints
    first: Ints
    sensor: Ints
    begin: Ints
    time: Ints
    number: Ints  # of each occurrence


class Scratch(NamedTuple):
    """Room for the matches of one probe, and the last group of each sensor."""

    group: Ints
    time: Ints
    number: Ints
    size: Ints
    latest: Ints  # (sensors,)


@exact_kernel
def bin_key(value: float, width: float) -> Whole:
    """Which bin a value lies in: the bits of ``floor(value / width)``, which has no largest, in the order of bins."""
    bits = np.float64(np.floor(value / width) + 0.0).view(np.int64)
    return bits ^ np.int64(0x7FFFFFFFFFFFFFFF) if bits < 0 else bits


@exact_kernel
def bin_floors(keys: Ints, floors: Floats) -> None:
    """``floor(value / width)`` of bins."""
    for i in range(len(keys)):
        bits = keys[i] ^ np.int64(0x7FFFFFFFFFFFFFFF) if keys[i] < 0 else keys[i]
        floors[i] = np.int64(bits).view(np.float64)


@exact_kernel
def bin_keys(values: Floats, width: float, keys: Ints) -> None:
    """`bin_key` of many values."""
    for i in range(len(values)):
        keys[i] = bin_key(values[i], width)


@exact_kernel
def mixed(values: Hashes) -> Hashes:
    """Each number's bits, mixed so that any of them tell numbers apart."""
    out = np.empty_like(values)
    for i in range(len(values)):
        z = values[i] * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        out[i] = z ^ (z >> np.uint64(27))
    return out


@exact_kernel
def _hash(key: Whole, group: Whole) -> Whole:
    mixed = (np.uint64(key) ^ np.uint64(group) * np.uint64(0xD1342543DE82EF95)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return np.int64(mixed >> np.uint64(32))


@exact_kernel
def _slot(state: Structure, key: Whole, group: Whole) -> Whole:
    """The slot of a value's entry, or the free one where it belongs."""
    most = len(state.table) - 1
    slot = _hash(key, group) & most
    while True:
        entry = state.table[slot]
        if entry < 0 or (state.entries[entry, KEY] == key and state.entries[entry, GROUP] == group):
            return slot
        slot = (slot + 1) & most


@exact_kernel
def _remove(state: Structure, entry: Whole) -> None:
    """Take an entry out of the table; those behind it in its run move up, so that no look-up ends too early."""
    most = len(state.table) - 1
    hole = _slot(state, state.entries[entry, KEY], state.entries[entry, GROUP])
    slot = (hole + 1) & most
    while state.table[slot] >= 0:
        other = state.table[slot]
        home = _hash(state.entries[other, KEY], state.entries[other, GROUP]) & most
        if (slot - home) & most >= (slot - hole) & most:
            state.table[hole] = other
            hole = slot
        slot = (slot + 1) & most
    state.table[hole] = -1
    state.free[state.counts[FREE]] = entry
    state.counts[FREE] += 1


@exact_kernel
def sweep(state: Structure, before: Whole) -> None:
    """Forget what is older than ``before``, the oldest first."""
    counts, mask = state.counts, len(state.ring) - 1
    while counts[TAIL] < counts[HEAD] and state.ring[counts[TAIL] & mask, TIME] < before:
        entry = state.entry[counts[TAIL] & mask]
        state.entries[entry, LIVE] -= 1
        if state.entries[entry, LIVE] == 0:
            _remove(state, entry)
        counts[TAIL] += 1


@exact_kernel
def _insert(state: Structure, arrivals: Arrivals, i: Whole) -> None:
    counts, slot = state.counts, _slot(state, arrivals.key[i], arrivals.group[i])
    entry = state.table[slot]
    if entry < 0:
        if counts[FREE]:
            counts[FREE] -= 1
            entry = state.free[counts[FREE]]
        else:
            entry = np.int32(counts[ENTRIES])
            counts[ENTRIES] += 1
        state.table[slot] = entry
        state.entries[entry, KEY], state.entries[entry, GROUP] = arrivals.key[i], arrivals.group[i]
        state.entries[entry, NEWEST], state.entries[entry, LIVE] = -1, 0
    number = counts[HEAD]
    at = number & (len(state.ring) - 1)
    state.ring[at, TIME], state.ring[at, BEFORE] = arrivals.time[i], state.entries[entry, NEWEST]
    state.ring[at, SENSOR] = arrivals.sensor[i]
    if len(arrivals.length):
        state.ring[at, LENGTH] = arrivals.length[i]
    if len(arrivals.value):
        state.value[at] = arrivals.value[i]
    state.entry[at] = entry
    state.entries[entry, NEWEST] = number
    state.entries[entry, LIVE] += 1
    counts[HEAD] += 1


@exact_kernel
def _newest(state: Structure, key: Whole, group: Whole) -> tuple[int, int]:
    """A value's newest occurrence (-1: none), and how many are live."""
    entry = state.table[_slot(state, key, group)]
    return (-1, 0) if entry < 0 else (state.entries[entry, NEWEST], state.entries[entry, LIVE])


@exact_kernel
def _walk(
    state: Structure, arrivals: Arrivals, i: Whole, heads: Ints, span: Whole, reach: float, found: Found, room: Scratch
) -> None:
    """Visit occurrences newest first, of up to three values at once, and put what matches into groups by sensor."""
    mask, tail, before = len(state.ring) - 1, state.counts[TAIL], found.counts[GROUPS]
    now, sensor, mark = arrivals.time[i], arrivals.sensor[i], found.counts[MARK]
    many, groups = 0, 0
    a, b, c = heads[0], heads[1], heads[2]
    while True:
        number = max(a, b, c)
        at = number & mask
        if number < tail or now - state.ring[at, TIME] > span:
            break
        if number == a:
            a = state.ring[at, BEFORE]
        elif number == b:
            b = state.ring[at, BEFORE]
        else:
            c = state.ring[at, BEFORE]
        other = state.ring[at, SENSOR]
        if other == sensor:
            continue
        if len(arrivals.length) and now - state.ring[at, TIME] > state.ring[at, LENGTH]:
            continue
        if reach >= 0.0 and not abs(arrivals.value[i] - state.value[at]) <= reach:
            continue
        # Marks grow for ever, so what another probe left behind is below this one's.
        if room.latest[other] < mark:
            room.latest[other] = mark + groups
            room.size[groups] = 0
            found.sensor[before + groups] = other
            groups += 1
        group = room.latest[other] - mark
        room.group[many], room.time[many], room.number[many] = group, state.ring[at, TIME], number
        room.size[group] += 1
        many += 1
    if many:
        _tell(found, room, i, groups, many)


@exact_kernel
def _tell(found: Found, room: Scratch, i: Whole, groups: Whole, many: Whole) -> None:
    """Write the groups of one probe, each in a row."""
    counts = found.counts
    begin = counts[TIMES]
    for group in range(groups):
        found.begin[counts[GROUPS] + group] = begin
        size = room.size[group]
        room.size[group] = begin
        begin += size
    for k in range(many):
        at = room.size[room.group[k]]
        room.size[room.group[k]] = at + 1
        found.time[at], found.number[at] = room.time[k], room.number[k]
    found.probe[counts[PROBES]], found.first[counts[PROBES]] = i, counts[GROUPS]
    counts[PROBES] += 1
    counts[GROUPS] += groups
    counts[TIMES] += many
    counts[MARK] += groups


@exact_kernel
def join(
    state: Structure,
    arrivals: Arrivals,
    begin: Whole,
    end: Whole,
    span: Whole,
    reach: float,
    width: float,
    keeps: bool,
    eager: bool,
    found: Found,
    room: Scratch,
) -> Whole:
    """Insert-Probe of the arrivals ``begin`` to ``end``; where it came to, short of the end where the room is full.

    ``span`` is the longest window. With ``reach`` (at least 0) values match that are no further apart; ``width`` is
    then that of bins, three times as much. Without ``keeps`` it is probes alone.
    """
    heads = np.empty(3, np.int64)
    for i in range(begin, end):
        now = arrivals.time[i]
        if eager:
            sweep(state, now - span)
        if len(arrivals.asks) == 0 or arrivals.asks[i]:
            heads[:] = -1
            if reach < 0.0:
                heads[0], live = _newest(state, arrivals.key[i], arrivals.group[i])
            else:
                live = _neighbours(state, arrivals, i, reach, width, heads)
            if live:
                if found.counts[TIMES] + live > len(found.time) or live > len(room.time):
                    return i
                _walk(state, arrivals, i, heads, span, reach, found, room)
        if keeps:
            _insert(state, arrivals, i)
    return end


@exact_kernel
def _neighbours(state: Structure, arrivals: Arrivals, i: Whole, reach: float, width: float, heads: Ints) -> int:
    """The newest of each bin that values within reach can lie in, and how many are live in all.

    The bins of the two ends and of the value itself: with a width of three times the reach no other lies between,
    whatever is rounded; where numbers are so large that they are further apart than the reach, only equal ones match.
    """
    value, group = arrivals.value[i], arrivals.group[i]
    more = reach * (1.0 + 1e-15)
    low, high = np.nextafter(value - more, -np.inf), np.nextafter(value + more, np.inf)
    before, own, after = bin_key(low, width), bin_key(value, width), bin_key(high, width)
    heads[0], live = _newest(state, own, group)
    if before != own:
        heads[1], some = _newest(state, before, group)
        live += some
    if after not in (own, before):
        heads[2], some = _newest(state, after, group)
        live += some
    return live


@exact_kernel
def rehash(state: Structure, former: Structure) -> None:
    """Fill fresh tables and rings with what former ones hold; entries of values without occurrences are left out."""
    old, new = len(former.ring) - 1, len(state.ring) - 1
    state.counts[TAIL], state.counts[HEAD] = former.counts[TAIL], former.counts[HEAD]
    place = np.empty(former.counts[ENTRIES], np.int32)
    for e in range(former.counts[ENTRIES]):
        if former.entries[e, LIVE]:
            fresh = state.counts[ENTRIES]
            state.counts[ENTRIES] += 1
            state.entries[fresh], place[e] = former.entries[e], fresh
            state.table[_slot(state, former.entries[e, KEY], former.entries[e, GROUP])] = fresh
    for number in range(former.counts[TAIL], former.counts[HEAD]):
        state.ring[number & new] = former.ring[number & old]
        state.entry[number & new] = place[former.entry[number & old]]
        if len(former.value):
            state.value[number & new] = former.value[number & old]


@exact_kernel
def ranked(time: Ints, rank: Ints, keys: Hashes) -> bool:
    """One number a row in the order of (time, rank); False where they do not fit."""
    n = len(time)
    least, most, ranks = time[0], time[0], np.int64(0)
    for i in range(n):
        least, most, ranks = min(least, time[i]), max(most, time[i]), max(ranks, rank[i])
    if np.float64(most - least + 1) * np.float64(ranks + 1) > 9e18:
        return False
    for i in range(n):
        keys[i] = np.uint64(time[i] - least) * np.uint64(ranks + 1) + np.uint64(rank[i])
    return True


@exact_kernel
def expand(
    first: Ints, begin: Ints, probe: Whole, digits: Ints, rows: Ints, starts: Ints, picks: Ints
) -> tuple[Whole, int]:
    """Elements of the Cartesian products of factorised matches, as many as there is room for.

    Begins with ``probe`` at the element that ``digits`` (one a group of it) tell, the last digit fastest, and leaves
    there where it ended. ``rows[k]`` is an element's probe, ``picks[starts[k]:starts[k + 1]]`` its occurrences. Returns
    the probe to go on with, and the number of elements.
    """
    count, at = 0, 0
    starts[0] = 0
    while probe < len(first) - 1:
        low, groups = first[probe], first[probe + 1] - first[probe]
        while True:
            if count == len(rows) or at + groups > len(picks):
                return probe, count
            for g in range(groups):
                picks[at + g] = begin[low + g] + digits[g]
            at += groups
            rows[count] = probe
            count += 1
            starts[count] = at
            g = groups - 1
            while g >= 0:
                digits[g] += 1
                if digits[g] < begin[low + g + 1] - begin[low + g]:
                    break
                digits[g] = 0
                g -= 1
            if g < 0:
                break
        probe += 1
    return probe, count
