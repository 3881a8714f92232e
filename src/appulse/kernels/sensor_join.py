"""The walk of the sensor join: Insert-Probe of readings, one by one, and the elements of what they meet.

Ali et al. 2007, section 4.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.bins import bin_key
from appulse.kernels.jit import exact_kernel, inlined_kernel
from appulse.kernels.occurrences import (
    END,
    FRESH,
    FRONT,
    GROUPS,
    HEAD,
    HELD,
    PLACE,
    SIZE,
    STARVED,
    TAIL,
    clean,
    clean_settled,
    first_of,
    group_first,
    is_clean,
    new_value,
    settle,
    slot_of,
    sweep,
    widen,
)
from appulse.kernels.simd import shift

if TYPE_CHECKING:
    from appulse.kernels.arrays import ByteArray, Flags, Floats, Hashes, Ints, Whole
    from appulse.kernels.occurrences import Scratch, Structure

# Counters of an output: answers, their groups, the times of these.
PROBES, REPORTED_GROUPS, TIMES = range(3)


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

    counts: Ints  # (3,)
    probe: Ints
    first: Ints
    sensor: Ints
    begin: Ints
    time: Ints
    number: Ints  # of each occurrence, or (0,) where nobody asks


class Match(NamedTuple):
    """Which occurrences a reading meets."""

    span: Whole  # the longest window
    reach: float  # at least 0: values match that are no further apart
    width: float  # that of bins then, three times as much
    keeps: bool  # readings are kept; else it is probes alone
    eager: bool


@exact_kernel
def join(
    state: Structure, arrivals: Arrivals, begin: Whole, end: Whole, match: Match, found: Found, room: Scratch
) -> Whole:
    """Insert-Probe of the arrivals ``begin`` to ``end``; where it came to, short of the end without room."""
    span, reach, width, keeps, eager = match
    # Arrays by their own names: to take one out of a tuple costs about as much as what is done to it.
    counts, due, values, table = state.counts, state.sweep, state.values, state.table
    pool, owner, numbers, measures, lengths = state.time, state.owner, state.number, state.value, state.length
    time, sensors, groups, keys, asks = arrivals.time, arrivals.sensor, arrivals.group, arrivals.key, arrivals.asks
    reported, answers, firsts, met, begins = found.counts, found.probe, found.first, found.sensor, found.begin
    times, marks, space = found.time, found.number, room.time
    heads, ends = np.full(3, -1, np.int64), np.zeros(4, np.int64)
    plain = reach < 0.0 and len(arrivals.length) == 0
    for i in range(begin, end):
        before = time[i] - span
        if eager:
            sweep(state, before)
        slot = slot_of(table, values, keys[i], groups[i])
        value: Whole = np.int64(table[slot])
        if keeps and not (counts[HEAD] - counts[TAIL] < len(due)):
            counts[STARVED] = 1
            return i
        if keeps and value >= 0 and values[value, FRONT] == values[value, PLACE]:
            clean(state, value, before)
            # With room for a few more it would be cleaned, from end to end, again and again.
            held, most = values[value, END] - values[value, FRONT], values[value, END] - values[value, PLACE]
            if 4 * held > 3 * most and not widen(state, value):
                counts[STARVED] = 1
                return i
        if keeps and value < 0:
            value = new_value(state, slot, keys[i], groups[i])
            if value < 0:
                counts[STARVED] = 1
                return i
        settled = False
        if len(asks) == 0 or asks[i]:
            if plain:
                if value >= 0 and values[value, FRONT] < values[value, END]:
                    held = values[value, END] - values[value, FRONT]
                    if reported[TIMES] + held > len(times) or held > len(space):
                        return i
                    last, front, many = values[value, END], values[value, FRONT], values[value, GROUPS]
                    # In steady state about one occurrence has expired since the last probe.
                    if values[value, FRESH]:
                        settle(state, value, before, room)
                        front, many = values[value, FRONT], values[value, GROUPS]
                    elif not is_clean(pool, owner, front, many, last, before):
                        clean_settled(values, value, pool, numbers, owner, before)
                        front, many = values[value, FRONT], values[value, GROUPS]
                    more, own, rest, size = _groups_but(
                        owner, last - many, last, sensors[i], front, reported, met, begins
                    )
                    at, after = reported[TIMES], last - rest - size
                    shift(times, at, pool, front, rest - front)
                    shift(times, at + rest - front, pool, rest + size, after)
                    if len(marks):
                        shift(marks, at, numbers, front, rest - front)
                        shift(marks, at + rest - front, numbers, rest + size, after)
                    if more:
                        answers[reported[PROBES]], firsts[reported[PROBES]] = i, reported[REPORTED_GROUPS]
                        reported[PROBES] += 1
                        reported[REPORTED_GROUPS] += more
                        reported[TIMES] = at + rest - front + after
                    if keeps:  # where its group is is known now
                        settled = True
                        if size:
                            first_of(pool, front, rest, size, space)
                            if len(numbers):
                                first_of(numbers, front, rest, size, space)
                            group_first(owner, last - many, own, sensors[i], size + 1)
                        else:
                            owner[last - many - 1] = (sensors[i] << 32) | 1
                            values[value, GROUPS] = many + 1
            else:
                heads[0] = value
                if reach >= 0.0:
                    _neighbours(state, arrivals, i, reach, width, heads)
                live = _live(values, heads)
                if reported[TIMES] + live > len(times) or live > len(space):
                    return i
                ends[0] = 0
                for k in range(3):
                    ends[k + 1] = ends[k]
                    if heads[k] >= 0:
                        ends[k + 1] = _gather(state, heads[k], arrivals, i, span, reach, ends[k], room)
                if ends[3]:
                    _report(i, ends, found, room)
        if keeps:
            at = values[value, FRONT] - 1
            values[value, FRONT] = at
            values[value, HELD] += 1
            if not settled:
                values[value, FRESH] += 1
                owner[at] = sensors[i]
            head = counts[HEAD]
            pool[at] = time[i]
            if len(numbers):
                numbers[at] = head
                if len(measures):
                    measures[at] = arrivals.value[i]
                if len(lengths):
                    lengths[at] = arrivals.length[i]
            due[head & (len(due) - 1), 0], due[head & (len(due) - 1), 1] = time[i], value
            counts[HEAD] = head + 1
    return end


@inlined_kernel
def _groups_but(
    owner: Ints, begin: Whole, end: Whole, sensor: Whole, front: Whole, reported: Ints, met: Ints, begins: Ints
) -> tuple[Whole, Whole, Whole, Whole]:
    """Report groups but for a sensor's own; how many, and the own one: its number, where its times begin, how many."""
    # Without a jump at the own group, which nobody can foresee; indices without sign spare the test for negative ones.
    first, at = np.uint64(reported[REPORTED_GROUPS]), reported[TIMES]
    write, read = first, front
    own, rest, mine = end, np.int64(0), np.int64(0)
    for g in range(np.uint64(begin), np.uint64(end)):
        size, other = owner[g] & SIZE, np.int64(owner[g] >> 32 != sensor)
        met[write], begins[write] = owner[g] >> 32, at
        write += np.uint64(other)
        at += size * other
        own += (np.int64(g) - end) * (1 - other)
        rest += read * (1 - other)
        mine += size * (1 - other)
        read += size
    return np.int64(write - first), own, rest if mine else read, mine


@exact_kernel
def _live(values: Ints, heads: Ints) -> Whole:
    live: Whole = 0
    for k in range(3):
        if heads[k] >= 0:
            live += values[heads[k], FRESH]
    return live


@exact_kernel
def _gather(
    state: Structure, value: Whole, arrivals: Arrivals, i: Whole, span: Whole, reach: float, many: Whole, room: Scratch
) -> Whole:
    """Collect what matches of one value, behind the ``many`` collected so far; how many there are then."""
    now, sensor, front = arrivals.time[i], arrivals.sensor[i], state.values[value, FRONT]
    for at in range(front, front + state.values[value, FRESH]):
        old = now - state.time[at]
        if state.owner[at] == sensor or old > span or (len(state.length) and old > state.length[at]):
            continue
        if reach >= 0.0 and not abs(arrivals.value[i] - state.value[at]) <= reach:
            continue
        room.sensor[many], room.time[many], room.number[many] = state.owner[at], state.time[at], state.number[at]
        many += 1
    return many


@exact_kernel
def _report(i: Whole, ends: Ints, found: Found, room: Scratch) -> None:
    """Put what was collected into groups by sensor, newest first; the matches of value k end at ``ends[k + 1]``."""
    counts, many = found.counts, ends[3]
    mark, groups = room.mark[0], 0
    # Each value's are in order: the newest is the first of one of the three.
    first, second, third = ends[0], ends[1], ends[2]
    for place in range(many):
        k = first if first < ends[1] else second if second < ends[2] else third
        if second < ends[2] and room.number[second] > room.number[k]:
            k = second
        if third < ends[3] and room.number[third] > room.number[k]:
            k = third
        if k < ends[1]:
            first += 1
        elif k < ends[2]:
            second += 1
        else:
            third += 1
        room.place[place] = k
        other = room.sensor[k]
        if room.latest[other] < mark:
            room.latest[other] = mark + groups
            room.size[groups] = 0
            found.sensor[counts[REPORTED_GROUPS] + groups] = other
            groups += 1
        room.group[k] = room.latest[other] - mark
        room.size[room.group[k]] += 1
    begin = counts[TIMES]
    for group in range(groups):
        found.begin[counts[REPORTED_GROUPS] + group] = begin
        size = room.size[group]
        room.size[group] = begin
        begin += size
    for place in range(many):
        k = room.place[place]
        at = room.size[room.group[k]]
        room.size[room.group[k]] = at + 1
        found.time[at] = room.time[k]
        if len(found.number):
            found.number[at] = room.number[k]
    found.probe[counts[PROBES]], found.first[counts[PROBES]] = i, counts[REPORTED_GROUPS]
    counts[PROBES] += 1
    counts[REPORTED_GROUPS] += groups
    counts[TIMES] += many
    room.mark[0] = mark + groups


@exact_kernel
def _neighbours(state: Structure, arrivals: Arrivals, i: Whole, reach: float, width: float, heads: Ints) -> None:
    """The values of each bin that values within reach can lie in.

    The bins of the two ends and of the value itself: with a width of three times the reach no other lies between,
    whatever is rounded; where numbers are so large that they are further apart than the reach, only equal ones match.
    """
    value, group = arrivals.value[i], arrivals.group[i]
    more = reach * (1.0 + 1e-15)
    low, high = np.nextafter(value - more, -np.inf), np.nextafter(value + more, np.inf)
    before, own, after = bin_key(low, width), bin_key(value, width), bin_key(high, width)
    heads[1] = heads[2] = -1
    if before != own:
        heads[1] = state.table[slot_of(state.table, state.values, before, group)]
    if after not in (own, before):
        heads[2] = state.table[slot_of(state.table, state.values, after, group)]


@exact_kernel
def ascends(time: Ints, offsets: Ints, data: ByteArray) -> bool:
    """Whether rows, of which each has a string, are in the order of (time, string), and no two are equal."""
    for i in range(1, len(time)):
        if time[i] > time[i - 1]:
            continue
        if time[i] < time[i - 1]:
            return False
        left, right, k = offsets[i - 1], offsets[i], 0
        shorter = min(right - left, offsets[i + 1] - right)
        while k < shorter and data[left + k] == data[right + k]:
            k += 1
        if k < shorter:
            if data[left + k] > data[right + k]:
                return False
        elif right - left >= offsets[i + 1] - right:
            return False
    return True


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
