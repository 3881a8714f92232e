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
    held_of,
    put,
    rest,
    widen,
)
from appulse.kernels.identities import EVENTS, FREE, HEAD, NUMBER, NUMBERS, PENDING, POINTS, SLOTS, TAIL
from appulse.kernels.phenomena_within import ValuedReadings, apply_within, observe_within
from appulse.kernels.tracks import TRACK
from appulse.kernels.value_order import HELD, TIME
from appulse.model.readings import Readings, numbers_of
from appulse.model.strings import Bytes
from appulse.operators.fields import SAME, Fresh, held, sizes
from appulse.operators.happenings import (
    NEVER,
    Observer,
    PhenomenonEvents,
    Region,
    Ticks,
    as_arrays,
    as_bytes,
    happened_of,
    room_for,
    whole_ticks,
)
from appulse.operators.labels import LabelNumbers
from appulse.operators.rosters import Roster

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats, Ints

_SLICE = 1 << 14
# Of a chain that others know of: its ends; its sum and count are found with the next tick.
_ENDS = 2


class _Group:
    """The field of one group."""

    def __init__(self, roster: Roster, d: int) -> None:
        self.roster, self.awaited = roster, False
        self.known = _field(1, 1, 1, d)

    @property
    def newest(self) -> int:
        """The time of the last reading in the span."""
        ring, counts = self.known.ring, self.known.counts
        return int(ring[(counts[HEAD] - 1) & (len(ring) - 1), TIME]) if counts[HEAD] > counts[TAIL] else NEVER

    @property
    def room(self) -> int:
        """Rows and sensors that there is room for, whichever are most."""
        chains = len(self.known.chains) // 4  # these take several times the room of readings, while some are replaced
        return max(len(self.known.ring), chains, 0 if self.roster.kept else len(self.known.sensors))

    @property
    def nbytes(self) -> int:
        return sizes(self.known) + self.roster.nbytes

    def make_room(self, more: int) -> None:
        """For so many readings more, each perhaps a chain, and for all sensors."""
        known, counts = self.known, self.known.counts
        chains = int(2 * held(self) + counts[CHAINS] - counts[UNUSED]) + 2 * more
        readings, sensors = held(self) + more, len(self.roster)
        if readings > len(known.ring) or chains > len(known.chains) or sensors > len(known.sensors):
            self._move(2 * readings, 2 * chains, 2 * sensors, np.arange(len(self.roster)))

    def tidy(self) -> Fresh:
        """Give back room, and forget sensors of which there is nothing."""
        chains, fresh = self._kept()
        self._move(2 * held(self), 4 * held(self) + 2 * chains, 2 * len(self.roster), fresh.sensors)
        return fresh

    def rest(self) -> Fresh:
        """Once all readings are older than the span of any tick to come: keep what stands, and nothing but."""
        self.known.counts[TAIL] = self.known.counts[HEAD]
        chains, fresh = self._kept()
        self._move(1, chains, len(self.roster), fresh.sensors, rest)
        return fresh

    def _kept(self) -> tuple[int, Fresh]:
        """How many chains there are; and numbers without those of sensors of which there is nothing."""
        used = np.zeros(len(self.roster), bool)
        chains = int(held_of(self.known, used))
        if self.roster.kept:
            return chains, Fresh(np.arange(len(used)), SAME.keys)
        return chains, Fresh(self.roster.keep(used), SAME.keys)

    def _move(self, readings: int, chains: int, sensors: int, fresh: Ints, move: Any = widen) -> None:
        former = self.known
        self.known = _field(readings, chains, sensors, former.track.shape[2] - 1)
        move(self.known, former, fresh[: len(former.sensors)])


class PhenomenaWithin(Observer[_Group]):
    """All groups' fields, one after the other; values are numbers, so that there are no labels."""

    def push(self, parts: Sequence[Readings], before: int) -> list[PhenomenonEvents]:
        """Whole ticks, later than all before: what becomes of phenomena. All before a time is known to have come."""
        found = []
        for field, group, ticks, readings in self._arranged(parts, before):
            found += [
                self._reported(group, ticks.reported(happened))
                for happened in self._observed(field, group, readings)
                if len(happened)
            ]
            self._settle(group, before)
        self._settle_others(before)
        return found

    def apply(self, parts: Sequence[Readings], before: int) -> None:
        """As `push`, without reporting what becomes of phenomena; `restore` has to follow."""
        for field, group, _, readings in self._arranged(parts, before):
            for begin, end in whole_ticks(readings.time, _SLICE):
                field.make_room(end - begin)
                mine = ValuedReadings(readings.time[begin:end], readings.sensor[begin:end], readings.value[begin:end])
                apply_within(field.known, mine, self.plan.span)
            self.fields.wait(group)

    def standing(self) -> dict[str, NDArray[Any]]:
        """The phenomena that stand, with their chains, numbers and tracks, and how many there have been."""
        groups, over = self.fields.labels, self.fields.over
        numbers = [over[group] if group in over else self.fields[group].known.counts[NUMBERS] for group in groups]
        fields = [_NOTHING if group in over else self.fields[group] for group in groups]
        slots = [_slots(field.known) for field in fields]
        chains = [self._chains(field, own) for field, own in zip(fields, slots, strict=True)]
        known = [field.known for field in fields]
        tracks = [_track(one, slot) for one, own in zip(known, slots, strict=True) for slot in own]
        return {
            **as_arrays("groups", groups),
            "numbers": np.array(numbers, np.int64),
            "held": np.array([len(own) for own in slots], np.int64),
            "number": _joined([one.phenomena[own, NUMBER] for one, own in zip(known, slots, strict=True)], int),
            "points": _joined([one.phenomena[own, POINTS] for one, own in zip(known, slots, strict=True)], int),
            "told": _joined([one.reported[own] for one, own in zip(known, slots, strict=True)], float),
            "track": _joined(tracks, float),
            "chains": np.array([len(part) for part in chains], np.int64),
            "place": np.array([place for part in chains for place, *_ in part], np.int64),
            "ends": np.array([ends for part in chains for *_, ends in part]).reshape(-1, _ENDS),
            **as_arrays("sensors", [sensor for part in chains for _, sensor, _ in part]),
            **self._last_readings(groups),
        }

    def restore(self, standing: dict[str, NDArray[Any]]) -> None:
        """Take in what `standing` returned, after the readings that the spans hold."""
        names = as_bytes(standing, "sensors")
        at = slot = 0
        self._newest.clear()
        for g, group in enumerate(as_bytes(standing, "groups")):
            newest = int(standing["newest"][g]) if "newest" in standing else NEVER
            many, own = int(standing["chains"][g]), int(standing["held"][g])
            if group not in self.fields and not own and newest == NEVER:
                self.fields.number(group, int(standing["numbers"][g]))
                continue
            field = self._field(group)
            self._listen(group, newest)
            mine, theirs = slice(at, at + many), slice(slot, slot + own)
            sensors = field.roster.of(Bytes.of(names[mine]))
            field.make_room(many)
            known = field.known
            known.sensors[:, FIRST] = -1
            known.counts[[CHAINS, UNUSED, FREE, PENDING]] = 0
            known.counts[STALE], known.counts[SLOTS], known.counts[NUMBERS] = 1, own, standing["numbers"][g]
            place, ends = standing["place"][mine], standing["ends"][mine]
            for k in range(many - 1, -1, -1):  # the last of a sensor first
                row = known.sensors[sensors[k]]
                row[FIRST] = put(known, row[FIRST], np.array([ends[k, 0], ends[k, 1], 0.0, 0.0]))
                known.chains[row[FIRST], SLOT] = place[k]
            known.phenomena[:own, NUMBER], known.phenomena[:own, POINTS] = (
                standing["number"][theirs],
                standing["points"][theirs],
            )
            known.reported[:own] = standing["told"][theirs]
            width = known.track[0].size
            track = standing["track"][slot * width : (slot + own) * width]
            known.track[:own] = track.reshape(known.track[:own].shape)
            if self.plan.regions:
                self._restore_regions(group, field, place, sensors)
            at, slot = at + many, slot + own
            self.fields.wait(group)

    def _restore_regions(self, group: bytes, field: _Group, place: Ints, sensors: Ints) -> None:
        self._standing.forget(group)
        rank, known = field.roster.place.rank, field.known
        for slot in np.unique(place).tolist():
            mine = np.unique(sensors[place == slot])
            mine = field.roster.reported(mine[np.argsort(rank[mine], kind="stable")])
            key = int(known.reported[slot : slot + 1].view(np.int64)[0])
            self._standing.put(group, Region.last_reported(known, slot, key, mine))

    def _chains(self, field: _Group, slots: Ints) -> list[tuple[int, bytes, tuple[float, float]]]:
        """The chains of what stands, by sensor and value: which phenomenon of these, sensor, ends."""
        known, names = field.known, field.roster.strings
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

    def _arranged(
        self, parts: Sequence[Readings], before: int
    ) -> Iterable[tuple[_Group, bytes, Ticks, ValuedReadings]]:
        """Each group's ticks, and their readings by number."""
        former, value = None, np.zeros(0)
        kind = self.plan.value_type if self.plan.by is None else self.plan.by.result_type
        for field, group, readings, ticks in self._grouped(parts, before):
            if readings is not None and readings is not former:
                former, value = readings, np.ascontiguousarray(numbers_of(readings.bits, readings.label, kind))
            sensor = ticks.sensors(field.roster, readings)
            own, mine = np.zeros(len(sensor)), np.flatnonzero(sensor >= 0)
            own[mine] = value[ticks.reading[mine]]
            yield field, group, ticks, ValuedReadings(ticks.time, sensor, own)

    def _fresh(self, group: bytes) -> _Group:
        d = 0 if self.plan.sites is None else self.plan.sites.at.shape[1]
        return _Group(self._roster(all_sites=not group), d)

    def _observed(self, field: _Group, group: bytes, readings: ValuedReadings) -> Iterable[PhenomenonEvents]:
        plan, place = self.plan, field.roster.place
        reach, criteria = 0.0 if plan.within is None else plan.within, plan.criteria
        order = np.argsort(place.rank, kind="stable")
        for begin, end in whole_ticks(readings.time, _SLICE):
            field.make_room(end - begin)
            mine = ValuedReadings(readings.time[begin:end], readings.sensor[begin:end], readings.value[begin:end])
            room, at, known = 1024 + 4 * (end - begin), 0, field.known
            while at < end - begin or known.counts[PENDING]:
                events = room_for(room, place.at.shape[1])
                at = int(observe_within(known, place, order, mine, at, criteria, reach, events))
                if events.counts[EVENTS] == 0:
                    room *= 2
                yield happened_of(events, group, field.roster, _NO_LABELS)


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


def _field(readings: int, chains: int, sensors: int, d: int) -> Chained:
    most, chains = (1 << max(0, n - 1).bit_length() for n in (readings, chains))
    known = np.full((sensors, 8), -1, np.int64)
    known[:, HELD] = 0
    return Chained(
        np.zeros(COUNTERS, np.int64),
        np.zeros((most, 6), np.int64),
        np.zeros(most),
        known,
        np.zeros((chains, 3), np.int64),
        np.zeros((chains, 4)),
        np.zeros(chains, np.int64),
        np.zeros((chains, 4), np.int64),
        np.zeros(chains),
        np.zeros((chains, TRACK, 1 + d)),
        np.zeros(chains, np.int64),
    )


_NO_LABELS = LabelNumbers()
_NOTHING = _Group(Roster(), 0)
