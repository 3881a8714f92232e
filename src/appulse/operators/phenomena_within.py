"""Phenomena by nearness of values, in place of bins: regions whose readings hang together, each near the next.

A deterministic state machine over ticks, free of any engine. A reading is strong if its sensor read something near it
often enough in the span; a phenomenon is a connected component of strong readings, each joined with those of its
sensor and of neighbours that are near. Ali et al. 2005, 2007: similarity |v1 - v2| <= d.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from appulse.kernels.chains import (
    CHAINS,
    COUNTERS,
    FIRST,
    HIGH,
    LOW,
    NEXT,
    SLOT,
    STALE,
    UNUSED,
    Chained,
    put,
    widen,
)
from appulse.kernels.identities import EVENTS, FREE, HEAD, NUMBER, NUMBERS, PENDING, POINTS, SLOTS, TAIL
from appulse.kernels.phenomena_within import ValuedReadings, apply_within, observe_within
from appulse.kernels.tracks import TRACK
from appulse.model.readings import Readings, numbers_of
from appulse.model.strings import Bytes
from appulse.operators.happenings import (
    NEVER,
    Observer,
    PhenomenaPlan,
    PhenomenonEvents,
    Region,
    Ticks,
    as_arrays,
    as_bytes,
    happened_of,
    room_for,
    whole_ticks,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats, Ints

_SLICE = 1 << 14
# Of a chain that others know of: its ends; its sum and count are found with the next tick.
_ENDS = 2


class PhenomenaWithin(Observer):
    """All groups' fields, one after the other; values are numbers, so that there are no labels."""

    def __init__(self, plan: PhenomenaPlan) -> None:
        super().__init__(plan)
        self._fields: dict[int, Chained] = {}

    def __len__(self) -> int:
        return sum(int(known.counts[HEAD] - known.counts[TAIL]) for known in self._fields.values())

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(array.nbytes for known in self._fields.values() for array in known)

    def push(self, parts: Sequence[Readings], before: int) -> list[PhenomenonEvents]:
        """Whole ticks, later than all before: what becomes of phenomena. All before a time is known to have come."""
        return [
            self._reported(number, ticks.reported(happened))
            for number, ticks, value in self._arranged(parts, before)
            for happened in self._observed(number, ticks, value)
            if len(happened)
        ]

    def apply(self, parts: Sequence[Readings], before: int) -> None:
        """As `push`, without reporting what becomes of phenomena; `restore` has to follow."""
        for number, ticks, value in self._arranged(parts, before):
            for begin, end in whole_ticks(ticks.time, _SLICE):
                known = self._with_room(number, end - begin)
                mine = slice(begin, end)
                readings = ValuedReadings(ticks.time[mine], ticks.sensor[mine], value[mine])
                apply_within(known, readings, self.plan.span)

    def standing(self) -> dict[str, NDArray[Any]]:
        """The phenomena that stand, with their chains, numbers and tracks, and how many there have been."""
        groups = sorted(self._fields, key=self._groups.values.__getitem__)
        fields = [self._fields[number] for number in groups]
        slots = [_slots(known) for known in fields]
        chains = [self._chains(known, own) for known, own in zip(fields, slots, strict=True)]
        tracks = [_track(known, slot) for known, own in zip(fields, slots, strict=True) for slot in own]
        return {
            **as_arrays("groups", [self._groups.values[number] for number in groups]),
            "numbers": np.array([known.counts[NUMBERS] for known in fields], np.int64),
            "held": np.array([len(own) for own in slots], np.int64),
            "number": _joined([known.phenomena[own, NUMBER] for known, own in zip(fields, slots, strict=True)], int),
            "points": _joined([known.phenomena[own, POINTS] for known, own in zip(fields, slots, strict=True)], int),
            "told": _joined([known.reported[own] for known, own in zip(fields, slots, strict=True)], float),
            "track": _joined(tracks, float),
            "chains": np.array([len(part) for part in chains], np.int64),
            "place": np.array([place for part in chains for place, *_ in part], np.int64),
            "ends": np.array([ends for part in chains for *_, ends in part]).reshape(-1, _ENDS),
            **as_arrays("sensors", [sensor for part in chains for _, sensor, _ in part]),
            **self._last_readings(groups),
        }

    def restore(self, standing: dict[str, NDArray[Any]]) -> None:
        """Take in what `standing` returned, after the readings that the spans hold."""
        sensors = self.sensors.of(Bytes.of(as_bytes(standing, "sensors")))
        at = slot = 0
        self._newest.clear()
        for g, label in enumerate(as_bytes(standing, "groups")):
            number = int(self._groups.add([label])[0])
            self._listen(number, int(standing["newest"][g]) if "newest" in standing else NEVER)
            many, held = int(standing["chains"][g]), int(standing["held"][g])
            known = self._with_room(number, many)
            known.sensors[:, FIRST] = -1
            known.counts[[CHAINS, UNUSED, FREE, PENDING]] = 0
            known.counts[STALE], known.counts[SLOTS], known.counts[NUMBERS] = 1, held, standing["numbers"][g]
            mine, theirs = slice(at, at + many), slice(slot, slot + held)
            place, ends = standing["place"][mine], standing["ends"][mine]
            for k in range(many - 1, -1, -1):  # the last of a sensor first
                row = known.sensors[sensors[at + k]]
                row[FIRST] = put(known, row[FIRST], np.array([ends[k, 0], ends[k, 1], 0.0, 0.0]))
                known.chains[row[FIRST], SLOT] = place[k]
            known.phenomena[:held, NUMBER], known.phenomena[:held, POINTS] = (
                standing["number"][theirs],
                standing["points"][theirs],
            )
            known.reported[:held] = standing["told"][theirs]
            width = known.track[0].size
            track = standing["track"][slot * width : (slot + held) * width]
            known.track[:held] = track.reshape(known.track[:held].shape)
            if self.plan.regions:
                self._restore_regions(number, known, np.unique(place), place, sensors[mine])
            at, slot = at + many, slot + held

    def _restore_regions(self, number: int, known: Chained, slots: Ints, place: Ints, sensors: Ints) -> None:
        self._standing.forget(number)
        rank = self._known_place().rank
        for slot in slots.tolist():
            mine = np.unique(sensors[place == slot])
            mine = mine[np.argsort(rank[mine], kind="stable")]
            key = int(known.reported[slot : slot + 1].view(np.int64)[0])
            self._standing.put(number, Region.last_reported(known, slot, key, mine))

    def _chains(self, known: Chained, slots: Ints) -> list[tuple[int, bytes, tuple[float, float]]]:
        """The chains of what stands, by sensor and value: which phenomenon of these, sensor, ends."""
        names = self.sensors.strings
        places = {slot: place for place, slot in enumerate(slots.tolist())}
        rows = []
        for sensor in np.flatnonzero(known.sensors[:, FIRST] >= 0).tolist():
            chain = int(known.sensors[sensor, FIRST])
            name = names.slice(sensor, sensor + 1).to_list()[0]
            while chain >= 0:
                slot = int(known.chains[chain, SLOT])
                if slot >= 0:
                    low, high = known.bounds[chain, LOW], known.bounds[chain, HIGH]
                    rows.append((places[slot], name, (float(low), float(high))))
                chain = int(known.chains[chain, NEXT])
        return sorted(rows, key=lambda row: row[1:])

    def _knows(self, group: int) -> bool:
        return group in self._fields

    def _known_of(self, group: int) -> Chained:
        return self._fields[group]

    def _arranged(self, parts: Sequence[Readings], before: int) -> Iterable[tuple[int, Ticks, Floats]]:
        """Each group's ticks, and the values of their readings."""
        ordered, others = self._ordered(parts), self._others(parts)
        time = sensor = groups = np.empty(0, np.int64)
        value = np.zeros(1)
        if ordered is not None:
            readings, sensor, groups = ordered
            kind = self.plan.value_type if self.plan.by is None else self.plan.by.result_type
            value, time = np.ascontiguousarray(numbers_of(readings.bits, readings.label, kind)), readings.time
        for number, ticks in self._grouped(time, sensor, groups, others, before):
            yield number, ticks, value[ticks.reading]

    def _observed(self, number: int, ticks: Ticks, value: Floats) -> Iterable[PhenomenonEvents]:
        plan, place = self.plan, self._known_place()
        reach, criteria = 0.0 if plan.within is None else plan.within, plan.criteria
        order = np.argsort(place.rank, kind="stable")
        for begin, end in whole_ticks(ticks.time, _SLICE):
            known = self._with_room(number, end - begin)
            mine = slice(begin, end)
            readings = ValuedReadings(ticks.time[mine], ticks.sensor[mine], value[mine])
            room, at = 1024 + 4 * (end - begin), 0
            while at < end - begin or known.counts[PENDING]:
                events = room_for(room, place.at.shape[1])
                at = int(observe_within(known, place, order, readings, at, criteria, reach, events))
                if events.counts[EVENTS] == 0:
                    room *= 2
                yield happened_of(events, self._groups.values[number], self.sensors, self._labels)

    def _with_room(self, number: int, more: int) -> Chained:
        """The field of a group, with room for so many readings more, each perhaps a chain, and for all sensors."""
        known = self._fields.get(number)
        need = 2 * more + (0 if known is None else _held(known))
        if known is None or need > len(known.ring) or len(self.sensors) > len(known.sensors):
            d = 0 if self.plan.sites is None else self.plan.sites.at.shape[1]
            wider = _field(2 * need, 2 * len(self.sensors), d)
            if known is not None:
                widen(wider, known)
            self._fields[number] = known = wider
        return known


def _held(known: Chained) -> int:
    """What has to have room: a chain a reading, twice while some are replaced, and those that are there."""
    counts = known.counts
    return int(2 * (counts[HEAD] - counts[TAIL]) + counts[CHAINS] - counts[UNUSED])


def _slots(known: Chained) -> Ints:
    """The slots of what stands, in the order of numbers."""
    slots: set[int] = set()
    for sensor in np.flatnonzero(known.sensors[:, FIRST] >= 0).tolist():
        chain = int(known.sensors[sensor, FIRST])
        while chain >= 0:
            slots.add(int(known.chains[chain, SLOT]))
            chain = int(known.chains[chain, NEXT])
    some = np.array(sorted(slots - {-1}), np.int64)
    return some[np.argsort(known.phenomena[some, NUMBER])]


def _track(known: Chained, slot: int) -> Floats:
    """A phenomenon's track, without what was there before it."""
    points = int(known.phenomena[slot, POINTS])
    return np.where(np.arange(TRACK)[:, None] < points, known.track[slot], 0.0).ravel()


def _joined(parts: Sequence[NDArray[Any]], kind: type) -> NDArray[Any]:
    return np.concatenate([np.empty(0, np.int64 if kind is int else np.float64), *parts])


def _field(readings: int, sensors: int, d: int) -> Chained:
    most = 1 << max(6, (readings - 1).bit_length())
    fresh = np.full((sensors, 6), -1, np.int64)
    return Chained(
        np.zeros(COUNTERS, np.int64),
        np.zeros((most, 3), np.int64),
        np.zeros(most),
        fresh,
        np.zeros((most, 3), np.int64),
        np.zeros((most, 4)),
        np.zeros(most, np.int64),
        np.zeros((most, 4), np.int64),
        np.zeros(most),
        np.zeros((most, TRACK, 1 + d)),
        np.zeros(most, np.int64),
    )
