"""The slow twins of the sensor join and of phenomena: every reading against every earlier one, every tick from scratch.

Written from the specification (api.md, section 5, and Ali et al., Definition 1); nothing here knows src/appulse. Bins
are float64 by definition (``floor(value / resolution)``), and so are tolerances: no fractions are needed. A call is
for one group of ``partition_by``; groups never meet.
"""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    Locations = Mapping[Any, tuple[float, ...]]
    Pairs = frozenset[tuple[Any, Any]]


class Reading(NamedTuple):
    """What a sensor said, and when, in microseconds."""

    sensor: Any
    time: int
    value: float


class Answer(NamedTuple):
    """A probing reading, by its position in the input, and what it matched, newest first."""

    probe: int
    matches: list[tuple[Any, list[int]]]


def same(a: float, b: float, resolution: float | None, within: float | None) -> bool:
    """Whether two values have the same bin."""
    if within is not None:
        return abs(a - b) <= within + 1e-9 * max(1.0, within)
    return bin_of(a, resolution) == bin_of(b, resolution)


def bin_of(value: float, resolution: float | None) -> float:
    return value if resolution is None else math.floor(value / resolution)


# --- the join -------------------------------------------------------------------------------------------------------


def sensor_join(
    readings: Sequence[Reading],
    window: int | Mapping[Any, int],
    resolution: float | None = None,
    within: float | None = None,
) -> list[Answer]:
    """The answers in order of their probing readings: time, sensor, number. A window is the stored reading's."""
    answers = []
    for i in order(readings):
        probe = readings[i]
        met = [
            stored
            for stored in readings
            if stored.sensor != probe.sensor
            and (stored.time, stored.sensor) < (probe.time, probe.sensor)
            and probe.time - stored.time <= (window if isinstance(window, int) else window[stored.sensor])
            and same(probe.value, stored.value, resolution, within)
        ]
        if met:
            answers.append(Answer(i, by_sensor(met)))
    return answers


def order(readings: Sequence[Reading]) -> list[int]:
    return sorted(range(len(readings)), key=lambda i: (readings[i].time, readings[i].sensor, i))


def by_sensor(met: Iterable[Reading]) -> list[tuple[Any, list[int]]]:
    """Times of each sensor; the sensor of the newest reading first, at one time the greater one."""
    times: dict[Any, list[int]] = defaultdict(list)
    for reading in met:
        times[reading.sensor].append(reading.time)
    lists = [(sensor, sorted(some, reverse=True)) for sensor, some in times.items()]
    return sorted(lists, key=lambda pair: (pair[1][0], pair[0]), reverse=True)


def expand(answer: Answer) -> Iterator[tuple[tuple[Any, int], ...]]:
    """The Cartesian product over the sensors of their times, as (sensor, time) pairs, the last sensor's fastest."""
    return product(*([(sensor, time) for time in times] for sensor, times in answer.matches))


# --- phenomena ------------------------------------------------------------------------------------------------------


class Event(NamedTuple):
    """What became of a phenomenon at a tick.

    ``merged`` are the phenomena that its sensors went on in when it disappeared, ``split`` those its sensors came from
    when it appeared: most shared sensors first, then the older.
    """

    time: int
    bin: float
    phenomenon: int
    event: str  # "appears", "moves" or "disappears"
    sensors: tuple[Any, ...]  # in order; of what disappears, the last ones it had
    merged: tuple[int, ...] = ()
    split: tuple[int, ...] = ()


def phenomena(
    readings: Sequence[Reading],
    strength: int,
    span: int,
    min_sensors: int = 2,
    locations: Locations | None = None,
    reach: float | Pairs = math.inf,
    resolution: float | None = None,
    clock: Clock | None = None,
) -> list[Event]:
    """Events in order of time, bin and phenomenon. Without locations all sensors are neighbours."""
    events: list[Event] = []
    standing: dict[float, dict[int, frozenset[Any]]] = {}
    numbers = 0
    for tick, shown in ticks_of(readings, clock):
        active = active_sensors(readings, tick, strength, span, resolution)
        for value in sorted(active.keys() | standing.keys()):
            old = standing.get(value, {})
            new = [part for part in components(active.get(value, ()), locations, reach) if len(part) >= min_sensors]
            heirs = inherit(old, new)
            for i in range(len(new)):
                if i not in heirs:
                    heirs[i] = numbers
                    numbers += 1
            now = {heirs[i]: part for i, part in enumerate(new)}
            events += sorted(changes(shown, value, old, now), key=lambda event: event.phenomenon)
            standing[value] = now
    return events


class Clock(NamedTuple):
    """What moves time on beside readings: the times of other rows, and the end of silences, until some time."""

    others: tuple[int, ...] = ()
    silence: int | None = None
    until: int = 0


def ticks_of(readings: Sequence[Reading], clock: Clock | None) -> list[tuple[int, int]]:
    """Ticks, and the times that are reported for them: of a silence its end, a microsecond before its tick."""
    clock = Clock() if clock is None else clock
    times = {reading.time for reading in readings}
    ticks = {time: time for time in times | set(clock.others)}
    if clock.silence is not None:
        for time in times:
            end = time + clock.silence + 1
            if end <= clock.until and not any(time < other <= end for other in times):
                ticks.setdefault(end, end - 1)
    return sorted(ticks.items())


def active_sensors(
    readings: Sequence[Reading], tick: int, strength: int, span: int, resolution: float | None
) -> dict[float, set[Any]]:
    """The sensors of each bin that produced it often enough in [tick - span, tick]."""
    counts: dict[tuple[float, Any], int] = defaultdict(int)
    for reading in readings:
        if tick - span <= reading.time <= tick:
            counts[bin_of(reading.value, resolution), reading.sensor] += 1
    active: dict[float, set[Any]] = defaultdict(set)
    for (value, sensor), count in counts.items():
        if count >= strength:
            active[value].add(sensor)
    return active


def components(sensors: Iterable[Any], locations: Locations | None, reach: float | Pairs) -> list[frozenset[Any]]:
    """Connected components, the one with the least sensor first."""
    left, found = sorted(sensors), []
    while left:
        part, grown = {left[0]}, True
        while grown:
            more = [s for s in left if s not in part and any(neighbours(s, other, locations, reach) for other in part)]
            part.update(more)
            grown = bool(more)
        left = [sensor for sensor in left if sensor not in part]
        found.append(frozenset(part))
    return found


def neighbours(a: Any, b: Any, locations: Locations | None, reach: float | Pairs) -> bool:
    if isinstance(reach, frozenset):
        return (a, b) in reach or (b, a) in reach
    if locations is None or math.isinf(reach):
        return True
    d2 = sum((x - y) ** 2 for x, y in zip(locations[a], locations[b], strict=True))
    return d2 <= (reach + 1e-9 * max(1.0, reach)) ** 2


def inherit(old: Mapping[int, frozenset[Any]], new: Sequence[frozenset[Any]]) -> dict[int, int]:
    """The id that each new component inherits, by its position: greedily by shared sensors, age, first sensor."""
    return greedily([(len(old[number] & part), number, i) for number in old for i, part in enumerate(new)])


def greedily(pairs: Iterable[tuple[int, int, int]]) -> dict[int, int]:
    """Each new component's heritage, from (shared sensors, number, component), components by their first sensors."""
    heirs: dict[int, int] = {}
    for _, number, i in sorted((pair for pair in pairs if pair[0]), key=lambda pair: (-pair[0], *pair[1:])):
        if i not in heirs and number not in heirs.values():
            heirs[i] = number
    return heirs


def changes(
    tick: int, value: float, old: Mapping[int, frozenset[Any]], now: Mapping[int, frozenset[Any]]
) -> Iterator[Event]:
    for number, part in now.items():
        if number not in old:
            yield Event(tick, value, number, "appears", tuple(sorted(part)), split=sharing(part, old))
        elif part != old[number]:
            yield Event(tick, value, number, "moves", tuple(sorted(part)))
    for number, part in old.items():
        if number not in now:
            yield Event(tick, value, number, "disappears", tuple(sorted(part)), merged=sharing(part, now))


def sharing(part: frozenset[Any], others: Mapping[int, frozenset[Any]]) -> tuple[int, ...]:
    """The phenomena that share sensors with ``part``, most of them first, then the older."""
    found = [(-len(part & other), number) for number, other in others.items() if part & other]
    return tuple(number for _, number in sorted(found))


# --- phenomena by nearness of values --------------------------------------------------------------------------------

Part = tuple[Reading, ...]


def phenomena_within(
    readings: Sequence[Reading],
    strength: int,
    span: int,
    within: float,
    min_sensors: int = 2,
    locations: Locations | None = None,
    reach: float | Pairs = math.inf,
    clock: Clock | None = None,
) -> list[Event]:
    """Events in order of time and phenomenon, with the mean of its readings, as last reported, in place of a bin.

    A reading is strong if enough readings of its sensor in [tick - span, tick], itself included, are within reach of
    it. Strong readings of one sensor, or of neighbours, are joined if they are; a phenomenon is a connected component.
    """
    events: list[Event] = []
    standing: dict[int, Part] = {}
    reported: dict[int, float] = {}
    numbers = 0
    for tick, shown in ticks_of(readings, clock):
        held = [reading for reading in readings if tick - span <= reading.time <= tick]
        strong = [
            one
            for one in held
            if sum(one.sensor == other.sensor and same(one.value, other.value, None, within) for other in held)
            >= strength
        ]
        new = [part for part in joined(strong, within, locations, reach) if len(sensors_of(part)) >= min_sensors]
        heirs = greedily(
            (len(shared(standing[number], part, within)), number, i)
            for number in standing
            for i, part in enumerate(new)
        )
        for i in range(len(new)):
            if i not in heirs:
                heirs[i] = numbers
                numbers += 1
        now = {heirs[i]: part for i, part in enumerate(new)}
        for number in sorted(now.keys() | standing.keys()):
            if number not in now:
                mine = standing[number]
                merged = by_weight({n: len(shared(mine, part, within)) for n, part in now.items()})
                events.append(Event(shown, reported[number], number, "disappears", sensors_of(mine), merged=merged))
            elif number not in standing:
                mine = now[number]
                reported[number] = mean(mine)
                split = by_weight({n: len(shared(part, mine, within)) for n, part in standing.items()})
                events.append(Event(shown, reported[number], number, "appears", sensors_of(mine), split=split))
            elif sensors_of(now[number]) != sensors_of(standing[number]):
                reported[number] = mean(now[number])
                events.append(Event(shown, reported[number], number, "moves", sensors_of(now[number])))
        standing = now
    return events


def joined(strong: Sequence[Reading], within: float, locations: Locations | None, reach: float | Pairs) -> list[Part]:
    """Connected components of readings, the one with the least (sensor, value) first."""
    left = sorted(strong, key=lambda reading: (reading.sensor, reading.value))
    found = []
    while left:
        part, others = [left[0]], left[1:]
        for one in part:  # grows while it is gone through
            more = [
                other
                for other in others
                if same(one.value, other.value, None, within)
                and (one.sensor == other.sensor or neighbours(one.sensor, other.sensor, locations, reach))
            ]
            part += more
            others = [other for other in others if other not in more]
        left = others
        found.append(tuple(part))
    return found


def sensors_of(part: Part) -> tuple[Any, ...]:
    return tuple(sorted({reading.sensor for reading in part}))


def shared(one: Part, other: Part, within: float) -> set[Any]:
    """The sensors with a reading in the one that is within reach of a reading of theirs in the other."""
    return {a.sensor for a in one for b in other if a.sensor == b.sensor and same(a.value, b.value, None, within)}


def by_weight(weights: Mapping[int, int]) -> tuple[int, ...]:
    """Numbers by their weights, if they have any, the heaviest first, then the older."""
    return tuple(number for weight, number in sorted((-w, number) for number, w in weights.items()) if weight)


def mean(part: Part) -> float:
    return float(sum(Fraction(reading.value) for reading in part) / len(part))
