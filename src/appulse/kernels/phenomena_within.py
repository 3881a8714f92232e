"""Phenomena by nearness of values: which chains of neighbouring sensors hang together, and what becomes of these.

A phenomenon is a connected component of chains (`appulse.kernels.chains`). It shares a sensor with a former one if a
chain of the sensor in the one is near a chain of it in the other; by shared sensors numbers are inherited, as
tests/helpers/naive_sensors.py works it out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.chains import (
    COUNT,
    FIRST,
    HIGH,
    JOINED,
    LOW,
    NEXT,
    OPEN,
    PART,
    PAST,
    REPLACED,
    SLOT,
    TOTAL,
    Chained,
    change,
    drop,
    is_in,
    judge,
    near,
    sum_up,
    take_in,
)
from appulse.kernels.identities import (
    APPEARS,
    EVENTS,
    MEMBERS,
    MOVES,
    NUMBER,
    OTHERS,
    PENDING,
    PLACE,
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
    from appulse.kernels.arrays import Flags, Floats, Ints, Whole
    from appulse.kernels.identities import Criteria, Events, Place


# Sensors of new chains up to which it is looked for what these are near.
_FEW = 32


class ValuedReadings(NamedTuple):
    """Readings of whole ticks, in order of time; a sensor of -1 is no reading, and its time a tick all the same."""

    time: Ints
    sensor: Ints
    value: Floats


@exact_kernel
def apply_within(field: Chained, readings: ValuedReadings, span: Whole) -> None:
    """Take in whole ticks without reporting what becomes of phenomena."""
    time, sensor, value = readings
    begin: Whole = 0
    while begin < len(time):
        end = tick_end(time, begin)
        for number in take_in(field, time, sensor, value, begin, end, span).numbers:
            change(field, number)
        begin = end


@exact_kernel
def observe_within(
    field: Chained,
    place: Place,
    order: Ints,
    readings: ValuedReadings,
    begin: Whole,
    criteria: Criteria,
    reach: float,
    events: Events,
) -> Whole:
    """Take in whole ticks, and report what becomes of phenomena; where it came to, short of the end without room.

    ``order`` are sensors in their order.
    """
    time, sensor, value = readings
    while True:
        if field.counts[PENDING]:
            if not _settled(field, place, order, criteria, reach, events):
                return begin
            field.counts[PENDING] = 0
        if begin == len(time):
            return begin
        end = tick_end(time, begin)
        changes = take_in(field, time, sensor, value, begin, end, criteria.span)
        judge(field, place, changes, criteria.strength, reach)
        begin = end


@exact_kernel
def _settled(field: Chained, place: Place, order: Ints, criteria: Criteria, reach: float, events: Events) -> bool:
    """Find regions that may be others anew, and report what became of them; False without room, nothing changed."""
    some, changed = _changed(field, place, order, reach)
    chains, owner = _in_order(field, some, changed)
    field.counts[JOINED] += len(chains)
    part = _parts(field, place, chains, owner, reach)
    component = _named(chains, part)
    first, members = _large_enough(part, owner, criteria.least)
    old, old_first, old_members = _stood(field, some, changed)
    pairs, shared = _shared(field, some, chains, part, len(first) - 1, reach)
    if (
        events.counts[EVENTS] + len(first) + len(old) >= len(events.time)
        or events.counts[MEMBERS] + len(members) + len(old_members) > len(events.members)
        or events.counts[OTHERS] + 2 * len(pairs) > len(events.others)
    ):
        return False
    slots = inherited(field, pairs, shared, old, len(first) - 1)
    news = np.ones(len(slots), np.bool_)  # whether there is something to report of a part
    for one in range(len(slots)):
        heir = field.phenomena[slots[one], PLACE]
        if 0 <= heir < len(old) and old[heir] == slots[one]:
            mine = members[first[one] : first[one + 1]]
            news[one] = not np.array_equal(mine, old_members[old_first[heir] : old_first[heir + 1]])
    for i in range(len(chains)):
        if part[i] >= 0 and news[part[i]]:
            sum_up(field, owner[i], chains[i], criteria.strength, reach)
    mean = _means(field, chains, part, news)
    by_part = np.argsort(pairs % max(len(slots), 1), kind="mergesort")
    part_of = pairs[by_part] % max(len(slots), 1)
    for one in by_number(field, old, slots):
        if one < len(slots):
            if not news[one]:
                continue
            heir = field.phenomena[slots[one], PLACE]
            stays = 0 <= heir < len(old) and old[heir] == slots[one]
            mine = members[first[one] : first[one + 1]]
            own = by_part[np.searchsorted(part_of, one) : np.searchsorted(part_of, one, side="right")]
            low = events.counts[MEMBERS]
            _report_members(mine, events)
            if not stays:
                report_others(field, Lineage(old, slots, pairs[own], shared[own]), one, events, split=True)
            move_on(field, place, slots[one], low, events)
            field.reported[slots[one]] = mean[one]
            close(field, _bits(mean[one]), slots[one], MOVES if stays else APPEARS, events)
        else:
            i = one - len(slots)
            _report_members(old_members[old_first[i] : old_first[i + 1]], events)
            own = np.arange(np.searchsorted(pairs, i * len(slots)), np.searchsorted(pairs, (i + 1) * len(slots)))
            report_others(field, Lineage(old, slots, pairs[own], shared[own]), i, events, split=False)
            give_up(field, old[i], _bits(field.reported[old[i]]), events)
    _settle(field, some, chains, component, part, slots)
    return True


@exact_kernel
def _changed(field: Chained, place: Place, order: Ints, reach: float) -> tuple[Ints, Flags]:
    """Which components may have changed, by their numbers, and the sensors with chains in these, in their order.

    They are those that lost a chain, and those that a new one is near. Of many new ones, all are.
    """
    replaced = order[field.sensors[order, REPLACED] == field.counts[TICK]]
    if len(replaced) > _FEW:
        return order, np.ones(len(field.chains), np.bool_)
    changed = np.zeros(len(field.chains), np.bool_)
    everyone = len(place.near_first) == 0
    for sensor in replaced:
        chain = field.sensors[sensor, PAST]
        while chain >= 0:
            if field.chains[chain, PART] >= 0:
                changed[field.chains[chain, PART]] = True
            chain = field.chains[chain, NEXT]
        begin = 0 if everyone else place.near_first[sensor]
        end = len(field.sensors) if everyone else place.near_first[sensor + 1]
        for k in range(begin, end):
            other = field.sensors[k if everyone else place.near[k], FIRST]
            while other >= 0:
                part, low, high = field.chains[other, PART], field.bounds[other, LOW], field.bounds[other, HIGH]
                chain = -1 if part < 0 or changed[part] else field.sensors[sensor, FIRST]
                while chain >= 0:
                    changed[part] |= near(low, high, field.bounds[chain, LOW], field.bounds[chain, HIGH], reach)
                    chain = field.chains[chain, NEXT]
                other = field.chains[other, NEXT]
    some = np.empty(len(order), np.int64)
    n = 0
    for sensor in order:
        chain = field.sensors[sensor, FIRST]
        found = field.sensors[sensor, REPLACED] == field.counts[TICK]
        while chain >= 0 and not found:
            found = _is_of(field, chain, changed)
            chain = field.chains[chain, NEXT]
        some[n] = sensor
        n += found
    return some[:n], changed


@exact_kernel
def _is_of(field: Chained, chain: Whole, changed: Flags) -> bool:
    """Whether a chain is of a component that may have changed: new ones are of none."""
    part = field.chains[chain, PART]
    return bool(part < 0 or changed[part])


@exact_kernel
def _in_order(field: Chained, order: Ints, changed: Flags) -> tuple[Ints, Ints]:
    """Chains of these sensors and components in the order of (sensor, value), and their sensors."""
    chains = np.empty(len(field.chains), np.int64)
    owner = np.empty(len(field.chains), np.int64)
    n = 0
    for sensor in order:
        chain = field.sensors[sensor, FIRST]
        while chain >= 0:
            chains[n], owner[n] = chain, sensor
            n += _is_of(field, chain, changed)
            chain = field.chains[chain, NEXT]
    return chains[:n], owner[:n]


@exact_kernel
def _parts(field: Chained, place: Place, chains: Ints, owner: Ints, reach: float) -> Ints:
    """The connected component of each chain, numbered by their first chains."""
    n = len(chains)
    low, high = field.bounds[chains, LOW], field.bounds[chains, HIGH]
    above = np.arange(n)
    if len(place.near_first) == 0:
        _join_in_value(above, low, high, reach)
    else:
        _join_in_space(field, place, above, owner, low, high, reach)
    part, fresh = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    parts = 0
    for i in range(n):
        root = _root(above, i)
        if fresh[root] < 0:
            fresh[root] = parts
            parts += 1
        part[i] = fresh[root]
    return part


@exact_kernel
def _named(chains: Ints, part: Ints) -> Ints:
    """The component of each chain by the number of its first: no other one is known by that, now or later."""
    first, parts = np.empty(len(part), np.int64), 0
    for i in range(len(part)):
        if part[i] == parts:
            first[parts] = chains[i]
            parts += 1
    return first[part]


@exact_kernel
def _join_in_value(above: Ints, low: Floats, high: Floats, reach: float) -> None:
    """Join what is near, where all sensors are neighbours: from low to high, each with what came before it."""
    highest, last = -np.inf, -1
    for i in np.argsort(low):
        if last >= 0 and low[i] - highest <= reach:
            above[_root(above, i)] = _root(above, last)
        highest, last = max(highest, high[i]), i


@exact_kernel
def _join_in_space(
    field: Chained, place: Place, above: Ints, owner: Ints, low: Floats, high: Floats, reach: float
) -> None:
    """Join what is near, of neighbours: each, from low to high, with those before it that reach up to it.

    Whichever are fewer are looked at: these, or the newest chains of its neighbours, for a sensor's chains lie apart.
    """
    active, n, room = np.empty(len(above), np.int64), 0, 16
    field.sensors[:, OPEN] = -1
    for i in np.argsort(low):
        sensor = owner[i]
        begin, end = place.near_first[sensor], place.near_first[sensor + 1]
        if n <= end - begin:
            for k in range(n):
                j = active[k]
                if low[i] - high[j] <= reach and is_in(place.near, begin, end, owner[j]):
                    above[_root(above, i)] = _root(above, j)
        else:
            for k in range(begin, end):
                j = field.sensors[place.near[k], OPEN]
                if j >= 0 and low[i] - high[j] <= reach:
                    above[_root(above, i)] = _root(above, j)
        field.sensors[sensor, OPEN] = i
        active[n] = i
        n += 1
        if n >= room:  # those that end too low are left out, once there are twice as many as were left
            kept = 0
            for k in range(n):
                if low[i] - high[active[k]] <= reach:
                    active[kept] = active[k]
                    kept += 1
            n, room = kept, 2 * kept + 16


@exact_kernel
def _root(above: Ints, i: Whole) -> Whole:
    while above[i] != i:
        above[i] = above[above[i]]
        i = above[i]
    return i


@exact_kernel
def _large_enough(part: Ints, owner: Ints, least: Whole) -> tuple[Ints, Ints]:
    """Number parts anew without those of too few sensors, which get -1; the sensors of each, in order.

    Sensors of part p are ``members[first[p]:first[p + 1]]``.
    """
    parts = 0 if len(part) == 0 else part.max() + 1
    rows, sensors = _each_once(part, owner)
    size, fresh = np.bincount(rows, minlength=parts), np.full(parts, -1, np.int64)
    many = 0
    for p in range(parts):
        if size[p] >= least:
            fresh[p] = many
            many += 1
    for i in range(len(part)):
        part[i] = fresh[part[i]]
    for i in range(len(rows)):
        rows[i] = fresh[rows[i]]
    return _grouped(rows, sensors, many)


@exact_kernel
def _each_once(group: Ints, sensor: Ints) -> tuple[Ints, Ints]:
    """Pairs of a group and a sensor, sensors being in order: each once, without those of no group (-1)."""
    last = np.full(0 if len(group) == 0 else group.max() + 1, -1, np.int64)
    groups, sensors = np.empty(len(group), np.int64), np.empty(len(group), np.int64)
    n = 0
    for i in range(len(group)):
        if group[i] >= 0 and last[group[i]] != sensor[i]:
            groups[n], sensors[n], last[group[i]] = group[i], sensor[i], sensor[i]
            n += 1
    return groups[:n], sensors[:n]


@exact_kernel
def _grouped(group: Ints, sensor: Ints, many: Whole) -> tuple[Ints, Ints]:
    """Sensors by group, in their order: where each group's begin, and the sensors."""
    first = np.zeros(many + 1, np.int64)
    for g in group:
        if g >= 0:
            first[g + 1] += 1
    first = np.cumsum(first)
    at, members = first[:-1].copy(), np.empty(first[-1], np.int64)
    for i in range(len(group)):
        if group[i] >= 0:
            members[at[group[i]]] = sensor[i]
            at[group[i]] += 1
    return first, members


@exact_kernel
def _past(field: Chained, sensor: Whole) -> Whole:
    """A sensor's first chain before the tick at hand."""
    row = field.sensors[sensor]
    chain: Whole = row[PAST] if row[REPLACED] == field.counts[TICK] else row[FIRST]
    return chain


@exact_kernel
def _stood(field: Chained, order: Ints, changed: Flags) -> tuple[Ints, Ints, Ints]:
    """The slots of what stood before the tick, in the order of numbers; and the sensors of each, as in `_grouped`."""
    slot, owner = np.empty(len(field.chains), np.int64), np.empty(len(field.chains), np.int64)
    n = 0
    for sensor in order:
        chain = _past(field, sensor)
        while chain >= 0:
            slot[n], owner[n] = field.chains[chain, SLOT], sensor
            n += _is_of(field, chain, changed)
            chain = field.chains[chain, NEXT]
    slots, sensors = _each_once(slot[:n], owner[:n])
    old = np.unique(slots)
    old = old[np.argsort(field.phenomena[old, NUMBER])]
    for i in range(len(old)):
        field.phenomena[old[i], PLACE] = i
    first, members = _grouped(field.phenomena[slots, PLACE], sensors, len(old))
    return old, first, members


@exact_kernel
def _shared(field: Chained, order: Ints, chains: Ints, part: Ints, many: Whole, reach: float) -> tuple[Ints, Ints]:
    """Pairs of a former phenomenon and a part that share sensors, as one number, and how many they share."""
    part_of = np.full(len(field.chains), -1, np.int64)
    part_of[chains] = part
    keys = np.empty(2 * len(field.chains), np.int64)
    n: Whole = 0
    for sensor in order:
        begin = n
        if field.sensors[sensor, REPLACED] == field.counts[TICK]:
            n = _near_pairs(field, sensor, part_of, many, reach, keys, n)
        else:
            chain = field.sensors[sensor, FIRST]
            while chain >= 0:
                n = _pair(field, chain, part_of[chain], many, keys, n)
                chain = field.chains[chain, NEXT]
        if n - begin > 1:
            each = np.unique(keys[begin:n])
            n = begin + len(each)
            keys[begin:n] = each
    return counted(keys[:n])


@exact_kernel
def _near_pairs(field: Chained, sensor: Whole, part_of: Ints, many: Whole, reach: float, keys: Ints, n: Whole) -> Whole:
    """Pairs by the chains of a sensor, former ones and those there are; both are in order of value, and lie apart."""
    past, low = field.sensors[sensor, PAST], field.sensors[sensor, FIRST]
    while past >= 0:
        while low >= 0 and field.bounds[past, LOW] - field.bounds[low, HIGH] > reach:
            low = field.chains[low, NEXT]
        chain = low
        while chain >= 0 and field.bounds[chain, LOW] - field.bounds[past, HIGH] <= reach:
            n = _pair(field, past, part_of[chain], many, keys, n)
            chain = field.chains[chain, NEXT]
        past = field.chains[past, NEXT]
    return n


@exact_kernel
def _pair(field: Chained, past: Whole, p: Whole, many: Whole, keys: Ints, n: Whole) -> Whole:
    slot = field.chains[past, SLOT]
    if slot < 0 or p < 0:
        return n
    keys[n] = field.phenomena[slot, PLACE] * many + p
    return n + 1


@exact_kernel
def _means(field: Chained, chains: Ints, part: Ints, some: Flags) -> Floats:
    """The mean of some parts' readings, summed up in their order, above the least: huge numbers do not overflow."""
    least, total, count = np.full(len(some), np.inf), np.zeros(len(some)), np.zeros(len(some))
    for i in range(len(chains)):
        if part[i] >= 0:
            least[part[i]] = min(least[part[i]], field.bounds[chains[i], LOW])
    for i in range(len(chains)):
        if part[i] >= 0 and some[part[i]]:
            low, more = field.bounds[chains[i], LOW], field.bounds[chains[i], COUNT]
            total[part[i]] += field.bounds[chains[i], TOTAL] + more * (low - least[part[i]])
            count[part[i]] += more
    means: Floats = least + total / count
    return means


@exact_kernel
def _report_members(members: Ints, events: Events) -> None:
    for sensor in members:
        events.members[events.counts[MEMBERS]] = sensor
        events.counts[MEMBERS] += 1


@exact_kernel
def _bits(value: float) -> Whole:
    """A value as events tell it: its 64 bits."""
    return np.int64(np.float64(value).view(np.int64))


@exact_kernel
def _settle(field: Chained, order: Ints, chains: Ints, component: Ints, part: Ints, slots: Ints) -> None:
    """Chains take their phenomena; those that were replaced are dropped."""
    for sensor in order:
        if field.sensors[sensor, REPLACED] == field.counts[TICK]:
            drop(field, field.sensors[sensor, PAST])
            field.sensors[sensor, PAST] = -1
    for i in range(len(chains)):
        field.chains[chains[i], SLOT] = slots[part[i]] if part[i] >= 0 else -1
        field.chains[chains[i], PART] = component[i]
