"""One hash structure for all sensors: values, the occurrences of each newest first, and a clean sweep, oldest first.

Ali et al. 2007, section 4.1, with one step more: the occurrences of a value stand in *runs*, one a sensor, and the
runs of a value in a list, the one with the newest occurrence first. So a probe reads a few runs from end to end, finds
what it tells grouped already, and stops at the first run that is too old; it never chases a pointer an occurrence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import exact_kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Flags, Floats, Hashes, Ints, Whole

# Columns of a run, all that a walk reads on one line of cache: time of the newest, the next run of the value, its
# sensor, where in the pool it begins, its room (a power of two), its first and the end of its occurrences (counted from
# the run's first day, taken modulo the room), the run before it.
LATEST, NEXT, SENSOR, PLACE, ROOM, FIRST, END, BEFORE = range(8)
# Columns of a value: its key, its group, its first run, how many occurrences are live.
KEY, GROUP, NEWEST, LIVE = range(4)
# Counters of a structure (the last tells that an occurrence found no room), and of an output.
TAIL, HEAD, RUNS, FREE_RUNS, VALUES, FREE_VALUES, POOL, STARVED = range(8)
COUNTERS = 8
PROBES, GROUPS, TIMES, MARK = range(4)
# The least room of a run, as a power of two; and how many such powers there are.
_LEAST, SIZES = 2, 48


class Structure(NamedTuple):
    """The state. Lengths are powers of two; tables by hash are twice as long as what they number."""

    counts: Ints  # (COUNTERS,)
    sweep: Ints  # (capacity, 2): time and run of each occurrence, in order of arrival: the clean-sweep list
    runs: Ints  # (most, 8)
    value_of: NDArray[np.int32]  # (most,): the value of each run
    run_table: NDArray[np.int32]  # runs by hash of (value, sensor), -1 where there is none
    values: Ints  # (most, 4)
    value_table: NDArray[np.int32]  # values by hash
    free_runs: NDArray[np.int32]
    free_values: NDArray[np.int32]
    free_rooms: Ints  # (SIZES,): the first free room of each size, -1 for none; it holds the place of the next
    time: Ints  # (pool,)
    number: Ints  # (pool,), or (0,) where nobody asks
    value: Floats  # (pool,), or (0,)
    length: Ints  # (pool,), or (0,)


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
    number: Ints  # of each occurrence, or (0,) where nobody asks


class Scratch(NamedTuple):
    """Room for the matches of one probe, and the last group of each sensor."""

    sensor: Ints
    time: Ints
    number: Ints
    group: Ints
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
def _hash(a: Whole, b: Whole) -> Whole:
    z = (np.uint64(a) ^ np.uint64(b) * np.uint64(0xD1342543DE82EF95)) * np.uint64(0x9E3779B97F4A7C15)
    z ^= z >> np.uint64(29)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    return np.int64(z >> np.uint64(32))


@exact_kernel
def _value_slot(table: NDArray[np.int32], values: Ints, key: Whole, group: Whole) -> Whole:
    """The slot of a value, or the free one where it belongs."""
    most = len(table) - 1
    slot = _hash(key, group) & most
    while True:
        value = table[slot]
        if value < 0 or (values[value, KEY] == key and values[value, GROUP] == group):
            return slot
        slot = (slot + 1) & most


@exact_kernel
def _run_slot(table: NDArray[np.int32], value_of: NDArray[np.int32], runs: Ints, value: Whole, sensor: Whole) -> Whole:
    """The slot of a run, or the free one where it belongs."""
    most = len(table) - 1
    slot = _hash(sensor, value + 1) & most
    while True:
        run = table[slot]
        if run < 0 or (value_of[run] == value and runs[run, SENSOR] == sensor):
            return slot
        slot = (slot + 1) & most


@exact_kernel
def _remove_run(state: Structure, run: Whole) -> None:
    """Take a run out of its value's list and of the table; those behind it in the table move up."""
    value = state.value_of[run]
    hole = _run_slot(state.run_table, state.value_of, state.runs, value, state.runs[run, SENSOR])
    most = len(state.run_table) - 1
    slot = (hole + 1) & most
    while state.run_table[slot] >= 0:
        other = state.run_table[slot]
        home = _hash(state.runs[other, SENSOR], state.value_of[other] + 1) & most
        if (slot - home) & most >= (slot - hole) & most:
            state.run_table[hole] = other
            hole = slot
        slot = (slot + 1) & most
    state.run_table[hole] = -1
    _unlink(state.values, state.runs, value, run)
    _free_room(state, run)
    state.free_runs[state.counts[FREE_RUNS]] = run
    state.counts[FREE_RUNS] += 1


@exact_kernel
def _remove_value(state: Structure, value: Whole) -> None:
    hole = _value_slot(state.value_table, state.values, state.values[value, KEY], state.values[value, GROUP])
    most = len(state.value_table) - 1
    slot = (hole + 1) & most
    while state.value_table[slot] >= 0:
        other = state.value_table[slot]
        home = _hash(state.values[other, KEY], state.values[other, GROUP]) & most
        if (slot - home) & most >= (slot - hole) & most:
            state.value_table[hole] = other
            hole = slot
        slot = (slot + 1) & most
    state.value_table[hole] = -1
    state.free_values[state.counts[FREE_VALUES]] = value
    state.counts[FREE_VALUES] += 1


@exact_kernel
def _unlink(values: Ints, runs: Ints, value: Whole, run: Whole) -> None:
    before, after = runs[run, BEFORE], runs[run, NEXT]
    if before < 0:
        values[value, NEWEST] = after
    else:
        runs[before, NEXT] = after
    if after >= 0:
        runs[after, BEFORE] = before


@exact_kernel
def _link(values: Ints, runs: Ints, value: Whole, run: Whole) -> None:
    """Put a run first in its value's list."""
    after = values[value, NEWEST]
    runs[run, BEFORE], runs[run, NEXT] = -1, after
    if after >= 0:
        runs[after, BEFORE] = run
    values[value, NEWEST] = run


@exact_kernel
def _size(room: Whole) -> Whole:
    size = 0
    while (np.int64(1) << size) < room:
        size += 1
    return size


@exact_kernel
def _take_room(state: Structure, size: Whole) -> Whole:
    """The place of a free room of 2 ** size occurrences; -1 if the pool is used up."""
    place: Whole = state.free_rooms[size]
    if place >= 0:
        state.free_rooms[size] = state.time[place]
        return place
    place = state.counts[POOL]
    if place + (np.int64(1) << size) > len(state.time):
        return -1
    state.counts[POOL] += np.int64(1) << size
    return place


@exact_kernel
def _free_room(state: Structure, run: Whole) -> None:
    size = _size(state.runs[run, ROOM])
    state.time[state.runs[run, PLACE]] = state.free_rooms[size]
    state.free_rooms[size] = state.runs[run, PLACE]


@exact_kernel
def sweep(state: Structure, before: Whole) -> None:
    """Forget what is older than ``before``, the oldest first."""
    # Arrays by their own names: to take one out of a tuple costs about as much as what is done to it.
    counts, due, runs, values, value_of = state.counts, state.sweep, state.runs, state.values, state.value_of
    mask = len(due) - 1
    while counts[TAIL] < counts[HEAD] and due[counts[TAIL] & mask, 0] < before:
        run = due[counts[TAIL] & mask, 1]
        value = value_of[run]
        runs[run, FIRST] += 1
        if runs[run, FIRST] == runs[run, END]:
            _remove_run(state, run)
        values[value, LIVE] -= 1
        if values[value, LIVE] == 0:
            _remove_value(state, value)
        counts[TAIL] += 1


@exact_kernel
def _value_for(state: Structure, key: Whole, group: Whole) -> Whole:
    """The value, a new one if need be; -1 without room."""
    slot = _value_slot(state.value_table, state.values, key, group)
    value: Whole = np.int64(state.value_table[slot])
    if value >= 0:
        return value
    counts = state.counts
    if counts[FREE_VALUES]:
        counts[FREE_VALUES] -= 1
        value = np.int64(state.free_values[counts[FREE_VALUES]])
    elif counts[VALUES] == len(state.values):
        return -1
    else:
        value = counts[VALUES]
        counts[VALUES] += 1
    state.value_table[slot] = value
    state.values[value, KEY], state.values[value, GROUP] = key, group
    state.values[value, NEWEST], state.values[value, LIVE] = -1, 0
    return value


@exact_kernel
def _run_for(state: Structure, value: Whole, sensor: Whole) -> Whole:
    """The run, a new one if need be; -1 without room."""
    slot = _run_slot(state.run_table, state.value_of, state.runs, value, sensor)
    run: Whole = np.int64(state.run_table[slot])
    if run >= 0:
        return run
    counts = state.counts
    if counts[FREE_RUNS] == 0 and counts[RUNS] == len(state.runs):
        return -1
    place = _take_room(state, _LEAST)
    if place < 0:
        return -1
    if counts[FREE_RUNS]:
        counts[FREE_RUNS] -= 1
        run = np.int64(state.free_runs[counts[FREE_RUNS]])
    else:
        run = counts[RUNS]
        counts[RUNS] += 1
    state.run_table[slot] = run
    state.value_of[run] = value
    state.runs[run, SENSOR], state.runs[run, PLACE], state.runs[run, ROOM] = sensor, place, 1 << _LEAST
    state.runs[run, FIRST] = state.runs[run, END] = 0
    _link(state.values, state.runs, value, run)
    return run


@exact_kernel
def _widen(state: Structure, run: Whole) -> bool:
    """Twice the room for a run that is full; False if the pool is used up."""
    room, place = state.runs[run, ROOM], state.runs[run, PLACE]
    wider = _take_room(state, _size(room) + 1)
    if wider < 0:
        return False
    for k in range(state.runs[run, FIRST], state.runs[run, END]):
        old, new = place + (k & (room - 1)), wider + (k & (2 * room - 1))
        state.time[new] = state.time[old]
        if len(state.number):
            state.number[new] = state.number[old]
        if len(state.value):
            state.value[new] = state.value[old]
        if len(state.length):
            state.length[new] = state.length[old]
    _free_room(state, run)
    state.runs[run, PLACE], state.runs[run, ROOM] = wider, 2 * room
    return True


@exact_kernel
def _place_for(state: Structure, sensor: Whole, group: Whole, key: Whole) -> Whole:
    """The run where an occurrence finds room, made if need be; -1, with nothing changed, without room."""
    value = _value_for(state, key, group)
    if value < 0:
        return -1
    run = _run_for(state, value, sensor)
    if run < 0 or (state.runs[run, END] - state.runs[run, FIRST] == state.runs[run, ROOM] and not _widen(state, run)):
        if state.values[value, LIVE] == 0:
            _remove_value(state, value)
        return -1
    return run


@exact_kernel
def _found_run(
    value_table: NDArray[np.int32],
    values: Ints,
    run_table: NDArray[np.int32],
    value_of: NDArray[np.int32],
    runs: Ints,
    sensor: Whole,
    group: Whole,
    key: Whole,
) -> Whole:
    """The run where an occurrence finds room; -1 if one has to be made first."""
    value = value_table[_value_slot(value_table, values, key, group)]
    if value < 0:
        return -1
    run: Whole = np.int64(run_table[_run_slot(run_table, value_of, runs, value, sensor)])
    return -1 if run < 0 or runs[run, END] - runs[run, FIRST] == runs[run, ROOM] else run


@exact_kernel
def _put(
    counts: Ints, due: Ints, values: Ints, value_of: NDArray[np.int32], runs: Ints, pool: Ints, run: Whole, time: Whole
) -> Whole:
    """Put an occurrence into a run with room, and the run first in its value's list; its place in the pool."""
    value = np.int64(value_of[run])
    at: Whole = runs[run, PLACE] + (runs[run, END] & (runs[run, ROOM] - 1))
    pool[at] = time
    runs[run, END] += 1
    runs[run, LATEST] = time
    if values[value, NEWEST] != run:
        _unlink(values, runs, value, run)
        _link(values, runs, value, run)
    values[value, LIVE] += 1
    slot = counts[HEAD] & (len(due) - 1)
    due[slot, 0], due[slot, 1] = time, run
    counts[HEAD] += 1
    return at


@exact_kernel
def _read_runs(
    runs: Ints,
    pool: Ints,
    numbers: Ints,
    run: Whole,
    now: Whole,
    sensor: Whole,
    span: Whole,
    counts: Ints,
    sensors: Ints,
    begins: Ints,
    times: Ints,
    told: Ints,
) -> bool:
    """Matches of one value by time alone: runs as they stand, from ``run`` on, each a group; whether there are any."""
    groups, at = counts[GROUPS], counts[TIMES]
    numbered = len(told) > 0
    while run >= 0 and now - runs[run, LATEST] <= span:
        if runs[run, SENSOR] != sensor:
            sensors[groups], begins[groups] = runs[run, SENSOR], at
            groups += 1
            place, mask = runs[run, PLACE], runs[run, ROOM] - 1
            k, first = runs[run, END] - 1, runs[run, FIRST]
            if not numbered:  # the newest stands in the run itself: most runs of large fields have no other
                times[at] = runs[run, LATEST]
                at += 1
                k -= 1
            while k >= first and now - pool[place + (k & mask)] <= span:
                times[at] = pool[place + (k & mask)]
                if numbered:
                    told[at] = numbers[place + (k & mask)]
                at += 1
                k -= 1
        run = runs[run, NEXT]
    some: bool = at > counts[TIMES]
    counts[GROUPS], counts[TIMES] = groups, at
    return some


@exact_kernel
def _gather(
    state: Structure, value: Whole, arrivals: Arrivals, i: Whole, span: Whole, reach: float, many: Whole, room: Scratch
) -> Whole:
    """Collect what matches of one value, behind the ``many`` collected so far; how many there are then."""
    now, sensor = arrivals.time[i], arrivals.sensor[i]
    run = state.values[value, NEWEST]
    while run >= 0 and now - state.runs[run, LATEST] <= span:
        if state.runs[run, SENSOR] != sensor:
            place, mask = state.runs[run, PLACE], state.runs[run, ROOM] - 1
            for k in range(state.runs[run, FIRST], state.runs[run, END]):
                at = place + (k & mask)
                old = now - state.time[at]
                if old > span or (len(state.length) and old > state.length[at]):
                    continue
                if reach >= 0.0 and not abs(arrivals.value[i] - state.value[at]) <= reach:
                    continue
                room.sensor[many], room.time[many] = state.runs[run, SENSOR], state.time[at]
                room.number[many] = state.number[at]
                many += 1
        run = state.runs[run, NEXT]
    return many


@exact_kernel
def _tell(i: Whole, many: Whole, found: Found, room: Scratch) -> None:
    """Put what was collected into groups by sensor, newest first."""
    counts = found.counts
    mark, groups = counts[MARK], 0
    order = np.argsort(-room.number[:many])
    for k in order:
        other = room.sensor[k]
        # Marks grow for ever, so what another probe left behind is below this one's.
        if room.latest[other] < mark:
            room.latest[other] = mark + groups
            room.size[groups] = 0
            found.sensor[counts[GROUPS] + groups] = other
            groups += 1
        room.group[k] = room.latest[other] - mark
        room.size[room.group[k]] += 1
    begin = counts[TIMES]
    for group in range(groups):
        found.begin[counts[GROUPS] + group] = begin
        size = room.size[group]
        room.size[group] = begin
        begin += size
    for k in order:
        at = room.size[room.group[k]]
        room.size[room.group[k]] = at + 1
        found.time[at] = room.time[k]
        if len(found.number):
            found.number[at] = room.number[k]
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
    """Insert-Probe of the arrivals ``begin`` to ``end``; where it came to, short of the end without room.

    ``span`` is the longest window. With ``reach`` (at least 0) values match that are no further apart; ``width`` is
    then that of bins, three times as much. Without ``keeps`` it is probes alone.
    """
    # Arrays by their own names: to take one out of a tuple costs about as much as what is done to it.
    counts, due, runs, values, value_of = state.counts, state.sweep, state.runs, state.values, state.value_of
    value_table, run_table, pool, told = state.value_table, state.run_table, state.time, found.counts
    time, sensors, groups, keys, asks = arrivals.time, arrivals.sensor, arrivals.group, arrivals.key, arrivals.asks
    numbers, measures, lengths = state.number, state.value, state.length
    out = found.sensor, found.begin, found.time, found.number
    heads = np.full(3, -1, np.int64)
    plain = reach < 0.0 and len(arrivals.length) == 0
    for i in range(begin, end):
        if eager:
            sweep(state, time[i] - span)
        before = told[PROBES], told[GROUPS], told[TIMES]
        if len(asks) == 0 or asks[i]:
            heads[0] = value_table[_value_slot(value_table, values, keys[i], groups[i])]
            if reach >= 0.0:
                _neighbours(state, arrivals, i, reach, width, heads)
            live = 0
            for k in range(3):
                if heads[k] >= 0:
                    live += values[heads[k], LIVE]
            if live:
                if told[TIMES] + live > len(found.time) or live > len(room.time):
                    return i
                if plain:
                    group, run = told[GROUPS], values[heads[0], NEWEST]
                    if _read_runs(
                        runs, pool, numbers, run, time[i], sensors[i], span, told, out[0], out[1], out[2], out[3]
                    ):
                        found.probe[told[PROBES]], found.first[told[PROBES]] = i, group
                        told[PROBES] += 1
                else:
                    many: Whole = 0
                    for k in range(3):
                        if heads[k] >= 0:
                            many = _gather(state, heads[k], arrivals, i, span, reach, many, room)
                    if many:
                        _tell(i, many, found, room)
        if not keeps:
            continue
        run = np.int64(-1)
        if counts[HEAD] - counts[TAIL] < len(due):
            run = _found_run(value_table, values, run_table, value_of, runs, sensors[i], groups[i], keys[i])
            if run < 0:
                run = _place_for(state, sensors[i], groups[i], keys[i])
        if run < 0:
            told[PROBES], told[GROUPS], told[TIMES] = before  # to be told again
            counts[STARVED] = 1
            return i
        if len(numbers):
            number = counts[HEAD]
            at = _put(counts, due, values, value_of, runs, pool, run, time[i])
            numbers[at] = number
            if len(measures):
                measures[at] = arrivals.value[i]
            if len(lengths):
                lengths[at] = arrivals.length[i]
        else:
            _put(counts, due, values, value_of, runs, pool, run, time[i])
    return end


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
        heads[1] = state.value_table[_value_slot(state.value_table, state.values, before, group)]
    if after not in (own, before):
        heads[2] = state.value_table[_value_slot(state.value_table, state.values, after, group)]


@exact_kernel
def rehash(state: Structure, former: Structure) -> None:
    """Fill a fresh structure, with room for them, with the occurrences of a former one, the oldest first."""
    old = len(former.sweep) - 1
    taken = np.empty(former.counts[RUNS], np.int64)
    for run in range(former.counts[RUNS]):
        taken[run] = former.runs[run, FIRST]
    state.counts[TAIL] = state.counts[HEAD] = former.counts[TAIL]
    for number in range(former.counts[TAIL], former.counts[HEAD]):
        run = former.sweep[number & old, 1]
        value = former.value_of[run]
        was = former.runs[run, PLACE] + (taken[run] & (former.runs[run, ROOM] - 1))
        taken[run] += 1
        place = _place_for(state, former.runs[run, SENSOR], former.values[value, GROUP], former.values[value, KEY])
        time = former.time[was]
        at = _put(state.counts, state.sweep, state.values, state.value_of, state.runs, state.time, place, time)
        if len(former.number):
            state.number[at] = number
        if len(former.value):
            state.value[at] = former.value[was]
        if len(former.length):
            state.length[at] = former.length[was]


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
