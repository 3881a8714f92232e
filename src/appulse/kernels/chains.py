"""Chains: what a sensor has read often enough of late, by nearness of values; what is left of them tick by tick.

A reading is *strong* if at least so many readings of its sensor in the span, itself among them, lie within reach of it.
A *chain* is a longest run of a sensor's strong readings, in order of value, each within reach of the next. So chains
of one sensor are farther apart than the reach, and two chains have readings within reach of each other if, and only
if, their ends say so: a gap inside of a chain is too narrow for any value to lie in it out of reach.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.identities import FREE, HEAD, NOW, PENDING, SLOTS, TAIL, TICK
from appulse.kernels.jit import exact_kernel
from appulse.kernels.value_order import AFTER, BEFORE, HELD, OWNER, ROOT, TIME, first_from, put_in, take_out

if TYPE_CHECKING:
    from appulse.kernels.arrays import Flags, Floats, Ints, Whole
    from appulse.kernels.identities import Place

# Columns of a sensor, after those of its readings: its first chain (-1: none), the first of those it had before the
# tick at hand, the tick these were replaced at, the tick it was touched at, and scratch: its newest chain in a sweep,
# and its first change in the tick.
FIRST, PAST, REPLACED, TOUCHED, OPEN, CHANGE = range(2, 8)
# Columns of a chain: the next of its sensor, by value (-1: the last), its phenomenon's slot (-1: none), the component
# that it was part of when these were last found: the number of a chain of it.
NEXT, SLOT, PART = range(3)
# Its least and greatest value, the sum of what its readings lie above the least, and how many these are: the last two
# are summed up when they are asked for.
LOW, HIGH, TOTAL, COUNT = range(4)
UNKNOWN = -1.0
# At most so many chains come in the place of those that a reading changes: what is left of one to either side, and one
# of readings within reach of it to either side.
_PIECES = 4
# Counters of chained readings, beside those of every field: chains ever used, unused ones among them, whether what
# stands was brought from elsewhere, comparisons that are left for this tick, readings that were looked at, chains that
# were put in regions.
CHAINS, UNUSED, STALE, LEFT, LOOKED, JOINED = range(8, 14)
COUNTERS = 14


class Chained(NamedTuple):
    """The state of one field."""

    counts: Ints  # (COUNTERS,)
    ring: Ints  # (capacity, 6): of each reading in the span, as `appulse.kernels.value_order` has it
    value: Floats  # (capacity,)
    sensors: Ints  # (sensors, 8)
    chains: Ints  # (most, 3)
    bounds: Floats  # (most, 4)
    unused: Ints  # (most,): chains to be used again
    phenomena: Ints  # (most, 4)
    reported: Floats  # (most,): the value that was last reported of a phenomenon
    track: Floats  # (most, TRACK, 1 + d)
    free: Ints  # (most,): slots to be used again


class Changes(NamedTuple):
    """What expires and what comes in a tick."""

    touched: Ints  # the sensors of it
    numbers: Ints  # readings, the older first
    following: Ints  # of each the next of its sensor (-1: none)


class Span(NamedTuple):
    """The ends of a chain."""

    low: float
    high: float


@exact_kernel
def near(low: float, high: float, other_low: float, other_high: float, reach: float) -> bool:
    """Whether two chains, of any sensors, have readings within reach of each other."""
    return other_low - high <= reach and low - other_high <= reach


@exact_kernel
def take_in(field: Chained, time: Ints, sensor: Ints, value: Floats, begin: Whole, end: Whole, span: Whole) -> Changes:
    """Take in the readings of one tick, after what has expired; `change` puts them in order of value."""
    counts, mask, now = field.counts, len(field.ring) - 1, time[begin]
    counts[TICK] += 1
    counts[NOW] = now
    first = counts[TAIL]
    while counts[TAIL] < counts[HEAD] and field.ring[counts[TAIL] & mask, TIME] < now - span:
        counts[TAIL] += 1
    came = counts[HEAD]
    for i in range(begin, end):
        if sensor[i] < 0:  # no reading: time goes on
            continue
        at = counts[HEAD] & mask
        field.ring[at, TIME], field.ring[at, OWNER] = now, sensor[i]
        field.value[at] = value[i] + 0.0  # -0.0 is 0.0
        counts[HEAD] += 1
    expired = counts[TAIL] - first
    many = expired + counts[HEAD] - came
    numbers, following, touched = np.empty(many, np.int64), np.empty(many, np.int64), np.empty(many, np.int64)
    n = 0
    for k in range(many):
        numbers[k] = first + k if k < expired else came + k - expired
        one = field.ring[numbers[k] & mask, OWNER]
        if field.sensors[one, TOUCHED] != counts[TICK]:
            field.sensors[one, TOUCHED], field.sensors[one, CHANGE] = counts[TICK], -1
            touched[n] = one
            n += 1
    for k in range(many - 1, -1, -1):
        one = field.ring[numbers[k] & mask, OWNER]
        following[k], field.sensors[one, CHANGE] = field.sensors[one, CHANGE], k
    return Changes(touched[:n], numbers, following)


@exact_kernel
def change(field: Chained, number: Whole) -> None:
    """Put a reading that came in order of value, or take out one that has expired."""
    if number >= field.counts[TAIL]:
        put_in(field, number)
    else:
        take_out(field, number)


@exact_kernel
def judge(field: Chained, place: Place, changes: Changes, strength: Whole, reach: float) -> None:
    """Find the chains of sensors anew. Where more than their ends may have changed, what stands is pending."""
    counts = field.counts
    # What comparisons may cost at most, in all: as much as to find all regions anew.
    counts[LEFT] = 4 * (counts[CHAINS] - counts[UNUSED] + 16)
    if counts[STALE]:
        counts[STALE] = 0
        for number in changes.numbers:
            change(field, number)
        for sensor in range(len(field.sensors)):
            _replace(field, sensor, _chains_of(field, sensor, strength, reach))
        return
    for sensor in changes.touched:
        fresh = _changed_chains(field, changes, sensor, strength, reach)
        if not _goes_on(field, place, sensor, fresh, reach):
            _replace(field, sensor, fresh)
            continue
        chain = field.sensors[sensor, FIRST]
        for i in range(len(fresh)):
            field.bounds[chain] = fresh[i]
            chain = field.chains[chain, NEXT]


@exact_kernel
def _changed_chains(field: Chained, changes: Changes, sensor: Whole, strength: Whole, reach: float) -> Floats:
    """A sensor's chains (m, 4), in order of value, after its changes."""
    many, k = 0, field.sensors[sensor, CHANGE]
    while k >= 0:
        many, k = many + 1, changes.following[k]
    k = field.sensors[sensor, CHANGE]
    if strength >= field.sensors[sensor, HELD] // (6 * many):  # as much is looked at for the changes as is held
        while k >= 0:
            change(field, changes.numbers[k])
            k = changes.following[k]
        return _chains_of(field, sensor, strength, reach)
    chain = field.sensors[sensor, FIRST]
    n: Whole = 0
    while chain >= 0:
        n, chain = n + 1, field.chains[chain, NEXT]
    fresh = np.empty((n + _PIECES * many, 4))
    n, chain = 0, field.sensors[sensor, FIRST]
    while chain >= 0:
        fresh[n] = field.bounds[chain]
        n, chain = n + 1, field.chains[chain, NEXT]
    while k >= 0:
        n = _after_one(field, changes.numbers[k], fresh, n, strength, reach)
        k = changes.following[k]
    return fresh[:n]


@exact_kernel
def _chains_of(field: Chained, sensor: Whole, strength: Whole, reach: float) -> Floats:
    """A sensor's chains (m, 4), in order of value, by all of its readings."""
    n = field.sensors[sensor, HELD]
    values = np.empty(n)
    _copy(field, first_from(field, sensor, -np.inf), AFTER, values, 0, 1, n)
    strong = _strong(values, strength, reach)
    found = np.empty((n, 4))
    many = 0
    for i in range(n):
        if not strong[i]:
            continue
        if many == 0 or values[i] - found[many - 1, HIGH] > reach:
            found[many, LOW], found[many, TOTAL], found[many, COUNT] = values[i], 0.0, 0.0
            many += 1
        found[many - 1, HIGH] = values[i]
        found[many - 1, TOTAL] += values[i] - found[many - 1, LOW]
        found[many - 1, COUNT] += 1.0
    return found[:many]


@exact_kernel
def _copy(field: Chained, number: Whole, link: Whole, values: Floats, at: Whole, step: Whole, most: Whole) -> Whole:
    """Copy values of readings, from one on along links, to ``at``, ``at + step`` and so on; how many there were."""
    mask, n = len(field.ring) - 1, 0
    while number >= 0 and n < most:
        values[at + n * step] = field.value[number & mask]
        n, number = n + 1, field.ring[number & mask, link]
    field.counts[LOOKED] += n
    return n


@exact_kernel
def _strong(values: Floats, strength: Whole, reach: float) -> Flags:
    """Which of these are strong, values being in order, by these alone."""
    strong = np.empty(len(values), np.bool_)
    first = last = 0
    for i in range(len(values)):
        while values[i] - values[first] > reach:
            first += 1
        while last < len(values) and values[last] - values[i] <= reach:
            last += 1
        strong[i] = last - first >= strength
    return strong


@exact_kernel
def _after_one(field: Chained, number: Whole, fresh: Floats, n: Whole, strength: Whole, reach: float) -> Whole:
    """Change one reading and the chains near it; ``fresh[:n]`` are those of its sensor, how many they are then.

    Any ``strength`` readings that lie within reach of each other are strong. So the change makes fewer readings than
    that strong or weak to either side, and fewer weak ones lie from there to a strong one of a chain that goes on.
    """
    own = field.value[number & (len(field.ring) - 1)]
    values, middle = _around(field, number, strength)
    strong = _strong(values, strength, reach)
    # What may have become strong, or weak: from ``low`` to ``high``.
    low, high = max(0, middle - strength), min(len(values), middle + strength + 1)
    while low < middle and own - values[low] > reach:
        low += 1
    while high > middle and values[high - 1] - own > reach:
        high -= 1
    # The strong readings beside it, if they are near, and the chains of these, or else the next ones.
    left, right = _next_strong(strong, low - 1, -1, strength + 1), _next_strong(strong, high, 1, strength + 1)
    if left >= 0:
        one = np.searchsorted(fresh[:n, LOW], values[left], side="right") - 1
    else:
        one = np.searchsorted(fresh[:n, HIGH], values[low] if low < middle else own) - 1
    if right >= 0:
        other = np.searchsorted(fresh[:n, HIGH], values[right])
    else:
        other = np.searchsorted(fresh[:n, LOW], values[high - 1] if high > middle else own, side="right")
    pieces = np.empty((_PIECES, 4))
    many: Whole = 0
    if one >= 0:
        pieces[0], many = fresh[one], 1
        if left >= 0:
            pieces[0, HIGH], pieces[0, COUNT] = values[left], UNKNOWN
    for i in range(low, high):
        if strong[i]:
            many = _lengthen(pieces, many, values[i], values[i], reach)
    if other < n:
        so_far = many
        many = _lengthen(pieces, many, values[right] if right >= 0 else fresh[other, LOW], fresh[other, HIGH], reach)
        if many > so_far and right < 0:
            pieces[so_far] = fresh[other]
    return _put_for(fresh, n, max(one, 0), min(other + 1, n), pieces[:many])


@exact_kernel
def _around(field: Chained, number: Whole, strength: Whole) -> tuple[Floats, Whole]:
    """Change a reading: the values around it, in order, and where it is among them or was before them."""
    at, new, most = number & (len(field.ring) - 1), number >= field.counts[TAIL], 3 * strength + 4
    change(field, number)
    room, end = np.empty(2 * most + 1), most
    if new:
        room[most] = field.value[at]
        end += 1
    begin = most - _copy(field, field.ring[at, BEFORE], BEFORE, room, most - 1, -1, most)
    end += _copy(field, field.ring[at, AFTER], AFTER, room, end, 1, most)
    return room[begin:end], most - begin


@exact_kernel
def _next_strong(strong: Flags, at: Whole, step: Whole, most: Whole) -> Whole:
    """The first strong reading from one on, of so many at most; -1: none is."""
    for _ in range(most):
        if at < 0 or at >= len(strong):
            return -1
        if strong[at]:
            return at
        at += step
    return -1


@exact_kernel
def _lengthen(pieces: Floats, many: Whole, low: float, high: float, reach: float) -> Whole:
    """Chains go on with strong readings from low to high; how many they are then."""
    if many == 0 or low - pieces[many - 1, HIGH] > reach:
        pieces[many, LOW] = low
        many += 1
    pieces[many - 1, HIGH], pieces[many - 1, COUNT] = high, UNKNOWN
    return many


@exact_kernel
def _put_for(fresh: Floats, n: Whole, begin: Whole, end: Whole, pieces: Floats) -> Whole:
    """Put these chains in the place of those from ``begin`` to ``end``; how many they all are then."""
    more = len(pieces) - (end - begin)
    if more > 0:
        for i in range(n - 1, end - 1, -1):
            fresh[i + more] = fresh[i]
    elif more < 0:
        for i in range(end, n):
            fresh[i + more] = fresh[i]
    fresh[begin : begin + len(pieces)] = pieces
    return n + more


@exact_kernel
def sum_up(field: Chained, sensor: Whole, chain: Whole, strength: Whole, reach: float) -> None:
    """The sum and the count of a chain, where they are not known: its strong readings in order of value."""
    bounds = field.bounds[chain]
    if bounds[COUNT] != UNKNOWN:
        return
    first = first_from(field, sensor, bounds[LOW])
    most = min(strength, field.sensors[sensor, HELD])
    room = np.empty(most + field.sensors[sensor, HELD])
    before = field.ring[first & (len(field.ring) - 1), BEFORE]
    begin = most - _copy(field, before, BEFORE, room, most - 1, -1, most)
    end, number = most, first
    # Those above it make its readings strong, as those below it do.
    behind = 0
    while number >= 0 and behind < most:
        room[end] = field.value[number & (len(field.ring) - 1)]
        behind += room[end] > bounds[HIGH]
        end, number = end + 1, field.ring[number & (len(field.ring) - 1), AFTER]
    field.counts[LOOKED] += end - most
    values = room[begin:end]
    strong = _strong(values, strength, reach)
    bounds[TOTAL] = bounds[COUNT] = 0.0
    for i in range(most - begin, len(values)):
        if strong[i] and values[i] <= bounds[HIGH]:
            bounds[TOTAL] += values[i] - bounds[LOW]
            bounds[COUNT] += 1.0


@exact_kernel
def _goes_on(field: Chained, place: Place, sensor: Whole, fresh: Floats, reach: float) -> bool:
    """Whether a sensor's chains are those it had but for their ends, each near its former self alone.

    If so, and if each hangs together with the same chains of neighbours as before, regions are what they were.
    """
    chain = field.sensors[sensor, FIRST]
    for i in range(len(fresh)):
        if chain < 0 or not _is_near(field, chain, fresh, i, reach):
            return False
        if i + 1 < len(fresh) and _is_near(field, chain, fresh, i + 1, reach):
            return False
        following = field.chains[chain, NEXT]
        if following >= 0 and _is_near(field, following, fresh, i, reach):
            return False
        chain = following
    if chain >= 0:
        return False
    chain = field.sensors[sensor, FIRST]
    for i in range(len(fresh)):
        moved = field.bounds[chain, LOW] != fresh[i, LOW] or field.bounds[chain, HIGH] != fresh[i, HIGH]
        if moved and not _hangs_together(field, place, sensor, chain, fresh[i, LOW], fresh[i, HIGH], reach):
            return False
        chain = field.chains[chain, NEXT]
    return True


@exact_kernel
def _is_near(field: Chained, chain: Whole, fresh: Floats, i: Whole, reach: float) -> bool:
    return near(field.bounds[chain, LOW], field.bounds[chain, HIGH], fresh[i, LOW], fresh[i, HIGH], reach)


@exact_kernel
def _hangs_together(
    field: Chained, place: Place, sensor: Whole, chain: Whole, low: float, high: float, reach: float
) -> bool:
    """Whether a chain with these ends leaves components as they are; False, too, if that is dear to tell.

    So it is if what it comes near is of its component, and what it leaves still hangs together with it by a third.
    """
    everyone = len(place.near_first) == 0
    begin = 0 if everyone else place.near_first[sensor]
    end = len(field.sensors) if everyone else place.near_first[sensor + 1]
    old_low, old_high = field.bounds[chain, LOW], field.bounds[chain, HIGH]
    for k in range(begin, end):
        neighbour = k if everyone else place.near[k]
        if neighbour == sensor:
            continue
        other = field.sensors[neighbour, FIRST]
        while other >= 0:
            field.counts[LEFT] -= 1
            if field.counts[LEFT] < 0:
                return False
            other_low, other_high = field.bounds[other, LOW], field.bounds[other, HIGH]
            was = near(old_low, old_high, other_low, other_high, reach)
            if near(low, high, other_low, other_high, reach):
                if not was and field.chains[other, PART] != field.chains[chain, PART]:
                    return False
            elif was and not _by_a_third(
                field, place, sensor, neighbour, Span(low, high), Span(other_low, other_high), reach
            ):
                return False
            other = field.chains[other, NEXT]
    return True


@exact_kernel
def _by_a_third(field: Chained, place: Place, one: Whole, two: Whole, span: Span, other: Span, reach: float) -> bool:
    """Whether chains of two sensors are both near a chain of a third, which is a neighbour of both."""
    everyone = len(place.near_first) == 0
    begin = 0 if everyone else place.near_first[one]
    end = len(field.sensors) if everyone else place.near_first[one + 1]
    for k in range(begin, end):
        third = k if everyone else place.near[k]
        if third in (one, two):
            continue
        if not everyone and not is_in(place.near, place.near_first[two], place.near_first[two + 1], third):
            continue
        chain = field.sensors[third, FIRST]
        while chain >= 0:
            field.counts[LEFT] -= 1
            its_low, its_high = field.bounds[chain, LOW], field.bounds[chain, HIGH]
            near_one = near(span.low, span.high, its_low, its_high, reach)
            if near_one and near(other.low, other.high, its_low, its_high, reach):
                return True
            chain = field.chains[chain, NEXT]
        if field.counts[LEFT] < 0:
            return False
    return False


@exact_kernel
def is_in(values: Ints, begin: Whole, end: Whole, value: Whole) -> bool:
    """Whether a value is among those, in order, from ``begin`` to ``end``."""
    stop = end
    while begin < end:
        middle = (begin + end) // 2
        if values[middle] < value:
            begin = middle + 1
        else:
            end = middle
    return bool(begin < stop and values[begin] == value)


@exact_kernel
def _replace(field: Chained, sensor: Whole, fresh: Floats) -> None:
    """Other chains for a sensor; those it had are kept until what stands is settled."""
    counts, row = field.counts, field.sensors[sensor]
    row[PAST], row[REPLACED], row[FIRST] = row[FIRST], counts[TICK], -1
    for i in range(len(fresh) - 1, -1, -1):
        row[FIRST] = put(field, row[FIRST], fresh[i])
    counts[PENDING] = 1


@exact_kernel
def put(field: Chained, following: Whole, bounds: Floats) -> Whole:
    """A chain more, before another of its sensor (-1: the last)."""
    counts = field.counts
    if counts[UNUSED]:
        counts[UNUSED] -= 1
        chain: Whole = field.unused[counts[UNUSED]]
    else:
        chain = counts[CHAINS]
        counts[CHAINS] += 1
    field.chains[chain, NEXT], field.chains[chain, SLOT], field.chains[chain, PART] = following, -1, -1
    field.bounds[chain] = bounds
    return chain


@exact_kernel
def drop(field: Chained, chain: Whole) -> None:
    """A chain and those that follow it are no more."""
    while chain >= 0:
        field.unused[field.counts[UNUSED]] = chain
        field.counts[UNUSED] += 1
        chain = field.chains[chain, NEXT]


@exact_kernel
def held_of(field: Chained, sensors: Flags) -> int:
    """Mark the sensors that have readings in the span, or chains; how many chains there are."""
    mask = len(field.ring) - 1
    for number in range(field.counts[TAIL], field.counts[HEAD]):
        sensors[field.ring[number & mask, OWNER]] = True
    many = 0
    for sensor in range(len(sensors)):
        chain = field.sensors[sensor, FIRST]
        sensors[sensor] |= chain >= 0
        while chain >= 0:
            many += 1
            chain = field.chains[chain, NEXT]
    return many


@exact_kernel
def widen(field: Chained, former: Chained, sensors: Ints) -> None:
    """Fill a fresh field, of other room, with what a former one holds; ``sensors`` are fresh numbers by former ones.

    Those that have none, 0, hold nothing.
    """
    field.counts[:] = former.counts
    mask, wide = len(former.ring) - 1, len(field.ring) - 1
    for number in range(former.counts[TAIL], former.counts[HEAD]):
        field.ring[number & wide] = former.ring[number & mask]
        field.ring[number & wide, OWNER] = sensors[former.ring[number & mask, OWNER]]
        field.value[number & wide] = former.value[number & mask]
    _move_chains(field, former, sensors)


@exact_kernel
def rest(field: Chained, former: Chained, sensors: Ints) -> None:
    """As `widen` once all readings are older than the span of any tick to come: the next one judges all sensors."""
    field.counts[:] = former.counts
    field.counts[TAIL] = field.counts[HEAD]
    field.counts[STALE] = 1
    _move_chains(field, former, sensors)
    field.sensors[:, ROOT], field.sensors[:, HELD] = -1, 0


@exact_kernel
def _move_chains(field: Chained, former: Chained, sensors: Ints) -> None:
    """Chains of a former field, and the phenomena they are of, numbered anew."""
    counts = field.counts
    counts[CHAINS] = counts[UNUSED] = counts[SLOTS] = counts[FREE] = 0
    slots, parts = np.full(former.counts[SLOTS], -1, np.int64), np.full(len(former.chains), -1, np.int64)
    for sensor in range(len(sensors)):
        fresh = sensors[sensor]
        if fresh == 0:
            continue
        field.sensors[fresh] = former.sensors[sensor]
        field.sensors[fresh, FIRST] = field.sensors[fresh, PAST] = -1
        last: Whole = -1
        chain = former.sensors[sensor, FIRST]
        while chain >= 0:
            at = put(field, -1, former.bounds[chain])
            if last < 0:
                field.sensors[fresh, FIRST] = at
            else:
                field.chains[last, NEXT] = at
            last, slot = at, former.chains[chain, SLOT]
            if slot >= 0 and slots[slot] < 0:
                slots[slot] = to = counts[SLOTS]
                counts[SLOTS] += 1
                field.phenomena[to], field.reported[to] = former.phenomena[slot], former.reported[slot]
                field.track[to] = former.track[slot]
            field.chains[at, SLOT] = slots[slot] if slot >= 0 else -1
            part = former.chains[chain, PART]
            if part >= 0:
                parts[part] = at if parts[part] < 0 else parts[part]
                field.chains[at, PART] = parts[part]
            chain = former.chains[chain, NEXT]
