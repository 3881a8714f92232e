"""Phenomena: values that connected regions of sensors hold, and what becomes of these regions from tick to tick.

A deterministic state machine over ticks, free of any engine. A sensor is active in a value while it has produced it
often enough in the span; a phenomenon is a value and a connected region of its active sensors. Ali et al. 2005, 2007.
"""

from __future__ import annotations

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
    rest,
    stand_down,
    stand_in,
    standing_of,
    used_of,
    value_of,
)
from appulse.kernels.tracks import TRACK
from appulse.model.strings import Bytes, is_scalar
from appulse.operators.fields import SAME, Fresh, held, sizes, stands
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
from appulse.operators.labels import LabelNumbers
from appulse.operators.sensor_order import ranks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from appulse.kernels.arrays import Flags, Ints
    from appulse.model.readings import Readings
    from appulse.operators.rosters import Roster

_SLICE = 1 << 14
_SIGN = np.int64(-(1 << 63))
_NO_LABELS = LabelNumbers()


class _Group:
    """The field of one group."""

    def __init__(self, roster: Roster, where: Ints, d: int) -> None:
        self.roster, self.labels, self.awaited = roster, _NO_LABELS, False
        self.known = _field(0, 0, 0, where, d)

    @property
    def newest(self) -> int:
        """The time of the last reading in the span."""
        known, counts = self.known, self.known.counts
        return int(known.ring[(counts[HEAD] - 1) & (len(known.ring) - 1), 0]) if counts[HEAD] > counts[TAIL] else NEVER

    @property
    def room(self) -> int:
        """Rows, sensors and the like that there is room for, whichever are most."""
        known = self.known
        sensors = 0 if self.roster.kept else len(self.roster)
        return max(len(known.ring), len(known.cells), len(known.values), sensors, len(self.labels))

    @property
    def nbytes(self) -> int:
        return sizes(self.known) - self.known.where.nbytes + self.roster.nbytes

    @property
    def _has_labels(self) -> bool:
        return len(self.labels) > len(_NO_LABELS)

    def make_room(self, more: int) -> None:
        """For so many readings more, each perhaps of a new value and cell."""
        known, counts = self.known, self.known.counts
        fits = (
            held(self) + more <= len(known.ring)
            and counts[CELLS] + more <= len(known.cells)
            and counts[VALUES] + more <= len(known.values)
        )
        if not fits:
            cells, _, values = self._used(standing=False)
            wider = self._wider(2 * (held(self) + more), 2 * (cells + more), 2 * (int(values.sum()) + more))
            rebuild(wider, known, *SAME)
            self.known = wider

    def tidy(self) -> Fresh:
        """Give back room, and forget sensors and labels of which there is nothing."""
        cells, sensors, values = self._used(standing=False)
        wider = self._wider(2 * held(self), 2 * cells, 2 * int(values.sum()))
        fresh = self._fresh(sensors, values)
        rebuild(wider, self.known, *fresh)
        self.known = wider
        return fresh

    def rest(self) -> Fresh:
        """Once all readings are older than the span of any tick to come: keep what stands, and nothing but."""
        cells, sensors, values = self._used(standing=True)
        wider = self._wider(cells, cells, int(values.sum()))
        fresh = self._fresh(sensors, values)
        rest(wider, self.known, *fresh)
        self.known = wider
        return fresh

    def order(self, plan: PhenomenaPlan) -> Callable[[Ints], Ints]:
        """The place of keys in the order of values."""
        if plan.binned:
            return lambda key: key
        if _labelled(plan):
            place = ranks(Bytes.of(self.labels.values))
            return lambda key: place[key]
        return lambda key: key ^ _SIGN

    def keys(self, readings: Readings, rows: Ints, plan: PhenomenaPlan) -> Ints:
        """Numbers of readings that are equal where these match: of their bins, or else of their values."""
        if readings.key is not None:
            return np.ascontiguousarray(readings.key[rows])
        bits = np.ascontiguousarray(readings.bits[rows])
        if not _labelled(plan):
            return bits
        used, codes = np.unique(bits, return_inverse=True)
        return self.labelled([readings.label[k] for k in used.tolist()])[codes]

    def labelled(self, values: Sequence[bytes]) -> Ints:
        """The numbers of labels; new ones are numbered as they come."""
        self.labels = self.labels if self._has_labels else LabelNumbers()
        return self.labels.add(values)

    def _wider(self, readings: int, cells: int, values: int) -> Field:
        return _field(readings, cells, values, self.known.where, self.known.track.shape[2] - 1)

    def _used(self, *, standing: bool) -> tuple[int, Flags, Flags]:
        """How many cells there are, and of which sensors and values."""
        known = self.known
        sensors, values = np.zeros(len(self.roster), bool), np.zeros(known.counts[VALUES], bool)
        cells = int((standing_of if standing else used_of)(known, sensors, values))
        return cells, sensors, values

    def _fresh(self, sensors: Flags, values: Flags) -> Fresh:
        """Numbers without those of sensors and labels of which there is nothing."""
        keys = SAME.keys
        if self._has_labels:
            former, keys = self.labels.values, np.zeros(len(self.labels), np.int64)
            used = self.known.values[: len(values)][values, KEY]
            self.labels = LabelNumbers()
            keys[used] = self.labels.add([former[key] for key in used.tolist()])
        return Fresh(SAME.sensors if self.roster.kept else self.roster.keep(sensors), keys)


class Phenomena(Observer[_Group]):
    """All groups' fields, one after the other."""

    def __init__(self, plan: PhenomenaPlan) -> None:
        super().__init__(plan)
        self._where = np.zeros((1 if self._everywhere is None else len(self._everywhere), 2), np.int64)

    def push(self, parts: Sequence[Readings], before: int) -> list[PhenomenonEvents]:
        """Whole ticks, later than all before: what becomes of phenomena. All before a time is known to have come."""
        found = []
        for field, group, ticks, readings in self._arranged(parts, before):
            for happened in self._observed(field, group, readings):
                counts = field.known.counts
                whole = bool(counts[DONE] == counts[PENDING])
                found.append(self._reported(group, ticks.reported(happened), whole=whole))
            self._settle(group, before)
        self._settle_others(before)
        return [happened for happened in found if len(happened)]

    def apply(self, parts: Sequence[Readings], before: int) -> None:
        """As `push`, without reporting what becomes of phenomena; `restore` has to follow."""
        for field, group, _, readings in self._arranged(parts, before):
            for begin, end in whole_ticks(readings.time, _SLICE):
                field.make_room(end - begin)
                mine = KeyedReadings(*(column[begin:end] for column in readings))
                apply(field.known, mine, self.plan.strength, self.plan.span)
            self.fields.wait(group)

    def standing(self) -> dict[str, NDArray[Any]]:
        """The phenomena that stand, with their numbers and tracks, and how many there have been."""
        groups = self.fields.labels
        rows = [self._standing_of(group) for group in groups]
        slots = [slot for _, own in rows for slot in own]
        sensors = [sensor for *_, members in slots for sensor in members]
        return {
            **as_arrays("groups", groups),
            "numbers": np.array([numbers for numbers, _ in rows], np.int64),
            "held": np.array([len(own) for _, own in rows], np.int64),
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
        slot = member = point = 0
        self._newest.clear()
        for g, group in enumerate(groups):
            newest = int(standing["newest"][g]) if "newest" in standing else NEVER
            many = int(standing["held"][g])
            if group not in self.fields and not many and newest == NEVER:
                self.fields.number(group, int(standing["numbers"][g]))
                continue
            field = self._field(group)
            self._listen(group, newest)
            members = standing["members"][slot : slot + many]
            field.make_room(int(members.sum()) + many)
            known, roster = field.known, field.roster
            numbers = roster.of(Bytes.of(sensors[member : member + int(members.sum())]))
            stand_down(known, self.plan.strength)
            for cell in range(known.counts[CELLS]):
                known.cells[cell, SLOT] = -1
            self._standing.forget(group)
            known.counts[NUMBERS], known.counts[SLOTS], known.counts[FREE] = standing["numbers"][g], 0, 0
            keys = standing["key"][slot : slot + many]
            if _labelled(self.plan):
                keys = field.labelled(labels[slot : slot + many])
            order, at = field.order(self.plan)(keys), 0
            for k in range(many):
                key, size = int(keys[k]), int(members[k])
                value = value_of(known, key, int(order[k]))
                mine = numbers[at : at + size]
                for sensor in mine.tolist():
                    cell = int(cell_of(known, value, sensor))
                    known.cells[cell, SLOT] = k
                    stand_in(known, cell)
                known.phenomena[k, NUMBER] = standing["number"][slot]
                known.phenomena[k, POINTS] = standing["points"][slot]
                width = known.track[k].size
                known.track[k] = standing["track"][point : point + width].reshape(known.track[k].shape)
                if self.plan.regions:
                    mine = np.sort(mine)
                    mine = mine[np.argsort(roster.place.rank[mine], kind="stable")]
                    self._standing.put(group, Region.last_reported(known, k, key, mine))
                known.counts[SLOTS] += 1
                slot, at, point = slot + 1, at + size, point + width
            member += at
            self.fields.wait(group)

    def _standing_of(self, group: bytes) -> tuple[int, list[tuple[int, int, int, NDArray[Any], bytes, list[bytes]]]]:
        if group not in self.fields:
            return self.fields.over[group], []
        field = self.fields[group]
        known, names = field.known, field.roster.strings.to_list() if stands(field) else []
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
            labelled = _labelled(self.plan)
            label = field.labels.values[keys[slot]] if labelled else b""
            points = int(known.phenomena[slot, POINTS])
            track = np.where(np.arange(TRACK)[:, None] < points, known.track[slot], 0.0).ravel()
            key = 0 if labelled else keys[slot]
            rows.append((key, int(known.phenomena[slot, NUMBER]), points, track, label, sorted(members[slot])))
        return int(known.counts[NUMBERS]), rows

    def _arranged(self, parts: Sequence[Readings], before: int) -> Iterable[tuple[_Group, bytes, Ticks, KeyedReadings]]:
        """Each group's ticks, and their readings by number."""
        for field, group, readings, ticks in self._grouped(parts, before):
            sensor = ticks.sensors(field.roster, readings)
            key = np.zeros(len(sensor), np.int64)
            mine = np.flatnonzero(sensor >= 0)
            if readings is not None:
                key[mine] = field.keys(readings, ticks.reading[mine], self.plan)
            order = field.order(self.plan)
            if _labelled(self.plan):  # others have come between, perhaps
                values = field.known.values[: field.known.counts[VALUES]]
                values[:, ORDER] = order(values[:, KEY])
            yield field, group, ticks, KeyedReadings(ticks.time, sensor, key, order(key))

    def _fresh(self, group: bytes) -> _Group:  # noqa: ARG002 - all are the same at first
        d = 0 if self.plan.sites is None else self.plan.sites.at.shape[1]
        return _Group(self._roster(all_sites=True), self._where, d)

    def _observed(self, field: _Group, group: bytes, readings: KeyedReadings) -> Iterable[PhenomenonEvents]:
        place, criteria = field.roster.place, self.plan.criteria
        for begin, end in whole_ticks(readings.time, _SLICE):
            field.make_room(end - begin)
            mine = KeyedReadings(*(column[begin:end] for column in readings))
            room, at, known = 1024 + 4 * (end - begin), 0, field.known
            while at < end - begin or known.counts[PENDING] > known.counts[DONE]:
                events = room_for(room, place.at.shape[1])
                at = int(observe(known, place, mine, at, criteria, events))
                if events.counts[EVENTS] == 0:
                    room *= 2
                yield happened_of(events, group, field.roster, field.labels)


def _labelled(plan: PhenomenaPlan) -> bool:
    """Whether values are labels."""
    return not plan.binned and not is_scalar(plan.value_type)


def _field(readings: int, cells: int, values: int, where: Ints, d: int) -> Field:
    capacity, cells, values = (1 << max(0, n - 1).bit_length() for n in (readings, cells, values))
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
        where,
    )
