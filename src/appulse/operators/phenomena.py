"""Phenomena: values that connected regions of sensors hold, and what becomes of these regions from tick to tick.

A deterministic state machine over ticks, free of any engine. A sensor is active in a value while it has produced it
often enough in the span; a phenomenon is a value and a connected region of its active sensors. Ali et al. 2005, 2007.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from appulse.kernels.identities import EVENTS, FREE, HEAD, NUMBER, NUMBERS, PENDING, POINTS, SLOTS, TAIL
from appulse.kernels.phenomena import (
    CELLS,
    COUNTERS,
    DONE,
    FIRST,
    KEY,
    NEXT,
    ORDER,
    SENSOR,
    SLOT,
    VALUES,
    Field,
    KeyedReadings,
    apply,
    cell_of,
    observe,
    rebuild,
    stand_down,
    stand_in,
    value_of,
)
from appulse.kernels.tracks import TRACK
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
from appulse.operators.sensor_order import ranks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from appulse.kernels.arrays import Ints
    from appulse.model.readings import Readings

_SLICE = 1 << 14
_SIGN = np.int64(-(1 << 63))
_NONE = np.empty(0, np.int64)


@dataclass
class _Group:
    """The field of one group."""

    plan: PhenomenaPlan
    field: Field = field(init=False)

    def __post_init__(self) -> None:
        d = 0 if self.plan.sites is None else self.plan.sites.at.shape[1]
        self.field = _field(_SLICE, 64, 64, 64, d)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.field)

    def __len__(self) -> int:
        return int(self.field.counts[HEAD] - self.field.counts[TAIL])

    def make_room(self, more: int, sensors: int) -> None:
        """For so many readings more, each perhaps of a new value and cell, and so many sensors."""
        known, counts = self.field, self.field.counts
        fits = (
            len(self) + more <= len(known.ring)
            and counts[CELLS] + more <= len(known.cells)
            and counts[VALUES] + more <= len(known.values)
        )
        if not fits:
            d = known.track.shape[2] - 1
            wider = _field(len(self) + more, int(counts[CELLS]) + more, int(counts[VALUES]) + more, sensors, d)
            rebuild(wider, known)
            self.field = wider
        elif sensors > len(known.where):
            self.field = known._replace(where=np.full((2 * sensors, 2), -1, np.int64))


class Phenomena(Observer):
    """All groups' fields, one after the other."""

    def __init__(self, plan: PhenomenaPlan) -> None:
        super().__init__(plan)
        self._fields: dict[int, _Group] = {}

    def __len__(self) -> int:
        return sum(map(len, self._fields.values()))

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(group.nbytes for group in self._fields.values())

    def push(self, parts: Sequence[Readings], before: int) -> list[PhenomenonEvents]:
        """Whole ticks, later than all before: what becomes of phenomena. All before a time is known to have come."""
        found = []
        for number, ticks, key, order in self._arranged(parts, before):
            for happened in self._observed(number, ticks, key, order):
                counts = self._fields[number].field.counts
                whole = bool(counts[DONE] == counts[PENDING])
                found.append(self._reported(number, ticks.reported(happened), whole=whole))
        return [happened for happened in found if len(happened)]

    def apply(self, parts: Sequence[Readings], before: int) -> None:
        """As `push`, without reporting what becomes of phenomena; `restore` has to follow."""
        for number, ticks, key, order in self._arranged(parts, before):
            group = self._fields[number]
            for begin, end in whole_ticks(ticks.time, _SLICE):
                group.make_room(end - begin, len(self.sensors))
                mine = slice(begin, end)
                readings = KeyedReadings(ticks.time[mine], ticks.sensor[mine], key[mine], order[mine])
                apply(group.field, readings, self.plan.strength, self.plan.span)

    def standing(self) -> dict[str, NDArray[Any]]:
        """The phenomena that stand, with their numbers and tracks, and how many there have been."""
        groups = sorted(self._fields, key=self._groups.values.__getitem__)
        rows = [self._standing_of(number) for number in groups]
        slots = [slot for row in rows for slot in row[2]]
        sensors = [sensor for *_, members in slots for sensor in members]
        return {
            **as_arrays("groups", [row[0] for row in rows]),
            "numbers": np.array([row[1] for row in rows], np.int64),
            "held": np.array([len(row[2]) for row in rows], np.int64),
            "key": np.array([slot[0] for slot in slots], np.int64),
            "number": np.array([slot[1] for slot in slots], np.int64),
            "points": np.array([slot[2] for slot in slots], np.int64),
            "track": np.concatenate([slot[3] for slot in slots]) if slots else np.empty(0),
            "members": np.array([len(slot[5]) for slot in slots], np.int64),
            **as_arrays("labels", [slot[4] for slot in slots]),
            **as_arrays("sensors", sensors),
            **self._last_readings(groups),
        }

    def restore(self, standing: dict[str, NDArray[Any]]) -> None:
        """Take in what `standing` returned, after the readings that the spans hold."""
        groups, labels, sensors = (as_bytes(standing, name) for name in ("groups", "labels", "sensors"))
        sensor_numbers = self.sensors.of(Bytes.of(sensors))
        slot = member = point = 0
        self._newest.clear()
        for g, label in enumerate(groups):
            number = int(self._groups.add([label])[0])
            self._listen(number, int(standing["newest"][g]) if "newest" in standing else NEVER)
            group = self._field(number)
            group.make_room(int(standing["members"].sum()) + len(standing["key"]), len(self.sensors))
            known = group.field
            stand_down(known, self.plan.strength)
            for cell in range(known.counts[CELLS]):
                known.cells[cell, SLOT] = -1
            self._standing.forget(number)
            known.counts[NUMBERS], known.counts[SLOTS], known.counts[FREE] = standing["numbers"][g], 0, 0
            for k in range(int(standing["held"][g])):
                key = int(standing["key"][slot])
                key = int(self._labels.add([labels[slot]])[0]) if labels[slot] else key
                value = value_of(known, key, self._order_of_key(key))
                size = int(standing["members"][slot])
                for sensor in sensor_numbers[member : member + size].tolist():
                    cell = int(cell_of(known, value, sensor))
                    known.cells[cell, SLOT] = k
                    stand_in(known, cell)
                known.phenomena[k, NUMBER] = standing["number"][slot]
                known.phenomena[k, POINTS] = standing["points"][slot]
                width = known.track[k].size
                known.track[k] = standing["track"][point : point + width].reshape(known.track[k].shape)
                if self.plan.regions:
                    mine = np.sort(sensor_numbers[member : member + size])
                    mine = mine[np.argsort(self._known_place().rank[mine], kind="stable")]
                    self._standing.put(number, Region.last_reported(known, k, key, mine))
                known.counts[SLOTS] += 1
                slot, member, point = slot + 1, member + size, point + width

    def _standing_of(
        self, number: int
    ) -> tuple[bytes, int, list[tuple[int, int, int, NDArray[Any], bytes, list[bytes]]]]:
        known, names = self._fields[number].field, self.sensors.strings.to_list()
        members: dict[int, list[bytes]] = {}
        keys: dict[int, int] = {}
        for value in range(known.counts[VALUES]):
            cell = int(known.values[value, FIRST])
            while cell >= 0:
                slot = int(known.cells[cell, SLOT])
                if slot >= 0:
                    members.setdefault(slot, []).append(names[known.cells[cell, SENSOR]])
                    keys[slot] = int(known.values[value, KEY])
                cell = int(known.cells[cell, NEXT])
        rows = []
        for slot in sorted(members, key=lambda slot: int(known.phenomena[slot, NUMBER])):
            label = self._labels.values[keys[slot]] if len(self._labels) > 1 else b""
            points = int(known.phenomena[slot, POINTS])
            track = np.where(np.arange(TRACK)[:, None] < points, known.track[slot], 0.0).ravel()
            key = 0 if label else keys[slot]
            rows.append((key, int(known.phenomena[slot, NUMBER]), points, track, label, sorted(members[slot])))
        return self._groups.values[number], int(known.counts[NUMBERS]), rows

    def _arranged(self, parts: Sequence[Readings], before: int) -> Iterable[tuple[int, Ticks, Ints, Ints]]:
        """Each group's ticks, the keys of their readings, and where these lie among all."""
        ordered, others = self._ordered(parts), self._others(parts)
        time = sensor = groups = _NONE
        key = order = np.zeros(1, np.int64)
        if ordered is not None:
            readings, sensor, groups = ordered
            key = self._labels.keys(readings)
            order = self._order(key)
            time = np.ascontiguousarray(readings.time)
        for number, ticks in self._grouped(time, sensor, groups, others, before):
            known = self._field(number).field
            if len(self._labels) > 1:  # others have come between, perhaps
                values = known.values[: known.counts[VALUES]]
                values[:, ORDER] = self._order(values[:, KEY])
            yield number, ticks, key[ticks.reading], order[ticks.reading]

    def _field(self, number: int) -> _Group:
        if number not in self._fields:
            self._fields[number] = _Group(self.plan)
        return self._fields[number]

    def _order(self, key: Ints) -> Ints:
        if self.plan.binned:
            return key
        if len(self._labels) > 1:
            return ranks(Bytes.of(self._labels.values))[key]
        return key ^ _SIGN

    def _order_of_key(self, key: int) -> int:
        return int(self._order(np.array([key], np.int64))[0])

    def _knows(self, group: int) -> bool:
        return group in self._fields

    def _known_of(self, group: int) -> Field:
        return self._fields[group].field

    def _observed(self, number: int, ticks: Ticks, key: Ints, order: Ints) -> Iterable[PhenomenonEvents]:
        group, place, criteria = self._fields[number], self._known_place(), self.plan.criteria
        for begin, end in whole_ticks(ticks.time, _SLICE):
            group.make_room(end - begin, len(self.sensors))
            mine = slice(begin, end)
            readings = KeyedReadings(ticks.time[mine], ticks.sensor[mine], key[mine], order[mine])
            room, at = 1024 + 4 * (end - begin), 0
            while at < end - begin or group.field.counts[PENDING] > group.field.counts[DONE]:
                events = room_for(room, place.at.shape[1])
                at = int(observe(group.field, place, readings, at, criteria, events))
                if events.counts[EVENTS] == 0:
                    room *= 2
                yield happened_of(events, self._groups.values[number], self.sensors, self._labels)


def _field(readings: int, cells: int, values: int, sensors: int, d: int) -> Field:
    capacity, cells, values = (1 << max(6, (2 * n - 1).bit_length()) for n in (readings, cells, values))
    return Field(
        np.zeros(COUNTERS, np.int64),
        np.zeros((capacity, 2), np.int64),
        np.full(2 * cells, -1, np.int32),
        np.zeros((cells, 8), np.int64),
        np.full(2 * values, -1, np.int32),
        np.zeros((values, 4), np.int64),
        np.zeros((cells, 4), np.int64),
        np.zeros((cells, TRACK, 1 + d)),
        np.zeros(cells, np.int64),
        np.zeros(values, np.int64),
        np.full((2 * sensors, 2), -1, np.int64),
    )
