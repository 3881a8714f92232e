"""What becomes of phenomena, whatever they are made of: plans, events, regions that stand."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

import numpy as np

from appulse.kernels.identities import (
    DISAPPEARS,
    EVENTS,
    MEMBERS,
    NUMBER,
    OTHERS,
    POINTS,
    STANDS,
    Criteria,
    Events,
    Known,
    Place,
)
from appulse.kernels.tangent import leads
from appulse.kernels.tracks import TRACK, motion
from appulse.model.meaning import digest_of
from appulse.model.positions import degrees_of
from appulse.model.readings import Readings
from appulse.model.strings import Bytes
from appulse.operators.fields import SAME, F, Fields, Fresh, stands
from appulse.operators.labels import LabelNumbers
from appulse.operators.names import Names
from appulse.operators.output import Output, Watch
from appulse.operators.properties import Properties
from appulse.operators.rosters import Everywhere, Roster, Somewhere
from appulse.operators.sensor_order import order_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats, Ints
    from appulse.kernels.geodesic import Earth
    from appulse.model.meaning import Meaning
    from appulse.model.strings import Labels
    from appulse.operators.properties import Property


_NOTHING = np.empty(0, np.int64)
#: Before every tick.
NEVER = -(1 << 62)


@dataclass(frozen=True)
class Sites:
    """Where sensors are: ``at`` has a row of coordinates for each of ``sensors`` (canonical bytes), in their order.

    Neighbours of sensor s are ``near[first[s]:first[s + 1]]``. On an ``earth`` the coordinates are metres east and
    north in the plane around a place.
    """

    sensors: tuple[bytes, ...]
    at: Floats
    first: Ints
    near: Ints
    earth: tuple[Earth, tuple[float, float, float]] | None = None
    listed: bool = False  # neighbours are a list, and do not follow from places

    def on_map(self, points: Floats) -> Floats:
        """Points as users have them: on the Earth longitudes and latitudes."""
        if self.earth is None or points.shape[1] == 0:
            return points
        earth, origin = self.earth
        out = np.empty((len(points), 3))
        leads(earth, np.tile(origin, (len(points), 1)), np.ascontiguousarray(points), out)
        return degrees_of(out, earth)[:, ::-1]

    def meaning(self) -> Meaning:
        """How many sensors are where; neighbours follow from that, and from how near they are to be."""
        places = np.ascontiguousarray(self.at, "<f8") + 0.0
        around = [] if self.earth is None else [np.array([*self.earth[0], *self.earth[1]], "<f8").tobytes()]
        listed = [self.first.astype("<i8").tobytes(), self.near.astype("<i8").tobytes()] if self.listed else []
        return {"sensors": len(self.sensors), "digest": digest_of([*self.sensors, places.tobytes(), *around, *listed])}


@dataclass(frozen=True)
class PhenomenaPlan:
    """What the operator does; times are in microseconds."""

    strength: int
    span: int
    least: int
    binned: bool  # keys are those of bins, in the order of these
    width: float
    value_type: pa.DataType  # of what regions hold
    sites: Sites | None = None
    by: Property | None = None  # readings count by it, in place of their values
    within: float | None = None  # in place of bins: values at most so far apart
    regions: bool = False  # report all that stand at each tick that changes any
    silence: int | None = None  # after so long without a reading of a group its regions end; at least the span

    @property
    def criteria(self) -> Criteria:
        """As kernels take them."""
        return Criteria(self.strength, self.span, self.least)


@dataclass(frozen=True, slots=True)
class PhenomenonEvents:
    """What became of phenomena of one group, in order; shapes as in `kernels.identities.Events`.

    ``sensor`` numbers ``sensors``; ``key`` is a bin, 64 bits of a value, or the number of a label among ``labels``.
    """

    group: bytes
    sensors: Names
    labels: LabelNumbers
    time: Ints
    key: Ints
    number: Ints
    kind: Ints
    first: Ints
    sensor: Ints
    first_other: Ints
    other: Ints
    centroid: Floats
    velocity: Floats

    def __len__(self) -> int:
        return len(self.time)


@dataclass(frozen=True, slots=True)
class Region:
    """A phenomenon as it stands."""

    number: int
    key: int
    sensors: Ints
    places: Floats  # (2, d): centroid, velocity

    @staticmethod
    def of(happened: PhenomenonEvents, e: int) -> Region:
        return Region(
            int(happened.number[e]),
            int(happened.key[e]),
            happened.sensor[happened.first[e] : happened.first[e + 1]],
            np.stack([happened.centroid[e], happened.velocity[e]]),
        )

    @staticmethod
    def last_reported(known: Known, slot: int, key: int, sensors: Ints) -> Region:
        """What was last reported of a phenomenon, from its track."""
        track, points = known.track[slot], int(known.phenomena[slot, POINTS])
        places = np.empty((2, track.shape[1] - 1))
        places[0] = track[(points - 1) % TRACK, 1:]
        motion(track, points, places[1])
        return Region(int(known.phenomena[slot, NUMBER]), key, sensors, places)


@dataclass
class OpenRegions:
    """The regions that stand, group by group, as they were last reported."""

    _known: dict[bytes, dict[int, Region]] = field(default_factory=dict)
    _begun: dict[bytes, int] = field(default_factory=dict)  # ticks of which more is to be reported

    def forget(self, group: bytes) -> None:
        """Nothing stands in a group."""
        self._known.pop(group, None)

    def put(self, group: bytes, region: Region) -> None:
        """A region stands."""
        self._known.setdefault(group, {})[region.number] = region

    def renumber(self, group: bytes, fresh: Fresh) -> None:
        """The sensors and keys of a group have other numbers from now on."""
        for region in self._known.get(group, {}).values():
            sensors = fresh.sensors[region.sensors] if len(fresh.sensors) else region.sensors
            key = int(fresh.keys[region.key]) if len(fresh.keys) else region.key
            self._known[group][region.number] = replace(region, sensors=sensors, key=key)

    def after(
        self, group: bytes, happened: PhenomenonEvents, count: Callable[[int, int], None], *, whole: bool = True
    ) -> PhenomenonEvents:
        """All that stand at each tick at which something happened; ``whole``: the last of these is reported to its end.

        ``count`` gets the number of rows, and of sensors in them, before they are put together.
        """
        standing, time = self._known.setdefault(group, {}), self._begun.pop(group, None)
        rows: list[tuple[int, Region]] = []

        def report(time: int) -> None:
            count(len(standing), sum(len(region.sensors) for region in standing.values()))
            rows.extend((time, standing[known]) for known in sorted(standing))

        for e in range(len(happened)):
            if time is not None and time != happened.time[e]:
                report(time)
            region, time = Region.of(happened, e), int(happened.time[e])
            if happened.kind[e] == DISAPPEARS:
                standing.pop(region.number, None)
            else:
                standing[region.number] = region
        if time is not None and whole:
            report(time)
        elif time is not None:
            self._begun[group] = time
        return _of_regions(rows, happened)


def _of_regions(rows: Sequence[tuple[int, Region]], happened: PhenomenonEvents) -> PhenomenonEvents:
    n, d = len(rows), happened.centroid.shape[1]
    places = np.stack([region.places for _, region in rows]) if rows else np.empty((0, 2, d))
    none = np.empty(0, np.int64)
    return replace(
        happened,
        time=np.array([time for time, _ in rows], np.int64),
        key=np.array([region.key for _, region in rows], np.int64),
        number=np.array([region.number for _, region in rows], np.int64),
        kind=np.full(n, STANDS, np.int64),
        first=np.cumsum([0, *(len(region.sensors) for _, region in rows)]),
        sensor=np.concatenate([none, *(region.sensors for _, region in rows)]),
        first_other=np.zeros(n + 1, np.int64),
        other=none,
        centroid=places[:, 0],
        velocity=places[:, 1],
    )


class Ticks(NamedTuple):
    """Rows of a group in order of time: its readings, and ticks without any, whose reading is -1."""

    time: Ints
    reading: Ints  # the reading's place among all that came
    ends: Ints  # times of ticks at which a silence is over: events at them are reported a microsecond earlier

    def sensors(self, roster: Roster, readings: Readings | None) -> Ints:
        """The number of each reading's sensor, of ticks without any -1."""
        numbers, mine = np.full(len(self.time), -1, np.int64), np.flatnonzero(self.reading >= 0)
        if readings is not None and len(mine) == len(self.time) == len(readings):
            return roster.of(readings.sensor)  # one group, and nothing but its readings
        if readings is not None and len(mine):
            numbers[mine] = roster.of(readings.sensor.take(self.reading[mine]))
        return numbers

    def reported(self, happened: PhenomenonEvents) -> PhenomenonEvents:
        """What happened, with the times that are reported."""
        if not len(self.ends):
            return happened
        return replace(happened, time=happened.time - np.isin(happened.time, self.ends))


class Observer(Generic[F]):
    """What both ways to find phenomena have in common: fields of groups, places, and readings put in order."""

    def __init__(self, plan: PhenomenaPlan) -> None:
        self.plan = plan
        self.fields: Fields[F] = Fields(plan.span)
        self._everywhere: Everywhere | None = None
        if plan.sites is not None:
            names = Names()
            names.of(Bytes.of(plan.sites.sensors))
            self._everywhere = Everywhere(names, place_of(plan.sites))
        self._standing = OpenRegions()
        self._properties = None if plan.by is None else Properties(plan.by)
        self.output = Output()  # of the call, push or task at hand
        self._members = Watch(0, _members, values=True)
        self._newest: dict[bytes, int] = {}  # of groups the last reading, until the silence after it is over
        self._ends: list[tuple[int, bytes]] = []  # a heap: when silences are over, and the group of each

    def __len__(self) -> int:
        return len(self.fields)

    @property
    def nbytes(self) -> int:
        return self.fields.nbytes

    @property
    def span(self) -> int:
        """How far back (microseconds) readings count."""
        return self.plan.span + (0 if self.plan.by is None else self.plan.by.over)

    @property
    def due(self) -> int | None:
        """When the first regions end if no reading comes; None: nothing stands."""
        return min(
            (end for end, group in self._ends if self._end_of(group) == end and stands(self.fields[group])),
            default=None,
        )

    def _fresh(self, group: bytes) -> F:
        """An empty field."""
        raise NotImplementedError

    def _field(self, group: bytes) -> F:
        return self.fields[group] if group in self.fields else self.fields.put(group, self._fresh(group))

    def _roster(self, *, all_sites: bool) -> Roster:
        """The sensors of a field."""
        if self._everywhere is None:
            return Roster()
        return self._everywhere if all_sites else Somewhere(self._everywhere)

    def _end_of(self, group: bytes) -> int | None:
        """The time at which the silence after a group's last reading is over; None: it is, or never will be."""
        newest = self._newest.get(group)
        return None if newest is None or self.plan.silence is None else newest + self.plan.silence + 1

    def _grouped(self, parts: Sequence[Readings], before: int) -> Iterable[tuple[F, bytes, Readings | None, Ticks]]:
        """The ticks of each group before some time, and all readings that came: these in order, others, silences."""
        readings, others = self._ordered(parts), self._others(parts)
        mine = {} if readings is None else rows_of(readings.group, len(readings))
        over = set()
        while self._ends and self._ends[0][0] < before:
            end, group = heappop(self._ends)
            if self._end_of(group) == end:
                over.add(group)
        known = {group for group in others if group in self.fields}
        for group in sorted(mine.keys() | over | known):
            rows = mine.get(group, _NOTHING)
            time = _NOTHING if readings is None else readings.time[rows]
            ticks = self._ticks(group, time, rows, others.get(group, _NOTHING), before)
            yield self._field(group), group, readings, ticks

    def _ticks(self, group: bytes, time: Ints, rows: Ints, others: Ints, before: int) -> Ticks:
        ends = np.setdiff1d(self._silences(group, time, before), np.concatenate([time, others]))
        more = np.setdiff1d(np.concatenate([others, ends]), time)
        if not len(more):
            return Ticks(time, rows, ends)
        time = np.concatenate([time, more])
        order, none = np.argsort(time, kind="stable"), np.full(len(more), -1, np.int64)
        return Ticks(time[order], np.append(rows, none)[order], ends)

    def forget(self, before: int) -> None:
        """Nothing: readings go with the ticks of their group, or once they are out of any span to come."""

    def _settle(self, group: bytes, before: int) -> None:
        """After ticks of a group: nothing is kept of it that can have no effect."""
        fresh = self.fields.settled(group, before)
        if fresh is None:
            self._standing.forget(group)
            self._newest.pop(group, None)
        elif self.plan.regions:  # which have sensors by what they are reported by: their sites stay
            self._standing.renumber(group, fresh if self._everywhere is None else Fresh(SAME.sensors, fresh.keys))

    def _settle_others(self, before: int) -> None:
        """The same of groups without ticks, whose readings are over as time goes on."""
        for group in self.fields.ended(before):
            self._settle(group, before)

    def _silences(self, group: bytes, time: Ints, before: int) -> Ints:
        """When silences of a group are over, before some time."""
        if self.plan.silence is None:
            return _NOTHING
        newest = self._newest.pop(group, None)
        readings = time if newest is None else np.append(newest, time)
        ends = readings + (self.plan.silence + 1)
        over = ends < np.append(readings[1:], before)[: len(readings)]
        if len(readings) and not over[-1]:
            self._listen(group, int(readings[-1]))
        return ends[over]

    def _listen(self, group: bytes, newest: int) -> None:
        """Wait for what comes after a group's last reading, if a silence is to be reported."""
        if self.plan.silence is not None and newest > NEVER:
            self._newest[group] = newest
            heappush(self._ends, (newest + self.plan.silence + 1, group))

    def _last_readings(self, groups: Sequence[bytes]) -> dict[str, NDArray[Any]]:
        """For `standing`: the last readings of groups whose silence is not over."""
        if self.plan.silence is None:
            return {}
        return {"newest": np.array([self._newest.get(group, NEVER) for group in groups], np.int64)}

    def _others(self, parts: Sequence[Readings]) -> dict[bytes, Ints]:
        """The times of rows that are no readings, by group."""
        found: dict[bytes, list[Ints]] = {}
        for part in parts:
            if part.counts is not None:
                rows = part.filter(~part.counts)
                for group, mine in rows_of(rows.group, len(rows)).items():
                    found.setdefault(group, []).append(rows.time[mine])
        return {group: np.unique(np.concatenate(times)) for group, times in found.items()}

    def _ordered(self, parts: Sequence[Readings]) -> Readings | None:
        """The readings in order, or what counts in their place; None of none."""
        parts = [part.counting() for part in parts]
        if self._properties is not None:
            parts = self._properties.of(parts)
        parts = [part for part in parts if len(part)]
        if not parts:
            return None
        readings = Readings.concat(parts)
        self._members = Watch(len(readings), _members, values=True)
        arranged = order_of(readings)
        return readings if arranged is None else readings.take(arranged)

    def _count(self, rows: int, members: int) -> None:
        """So many rows more, and sensors in them."""
        self.output.add(rows)
        self._members.add(members)

    def _reported(self, group: bytes, happened: PhenomenonEvents, *, whole: bool = True) -> PhenomenonEvents:
        """What happened, or all that stand after it; ``whole`` as in `OpenRegions.after`."""
        if self.plan.regions:
            return self._standing.after(group, happened, self._count, whole=whole)
        self._count(len(happened), len(happened.sensor))
        return happened


def _members(made: float) -> str:
    return (
        f"The phenomena have {made:,.0f} sensors in their rows by now, all of a region in each row. A coarser "
        "resolution, a shorter span or more readings (strength) change regions less often; emit='events' has fewer "
        "rows than emit='regions'."
    )


def happened_of(events: Events, group: bytes, roster: Roster, labels: LabelNumbers) -> PhenomenonEvents:
    """Events as kernels reported them."""
    n, members, others = (int(events.counts[k]) for k in (EVENTS, MEMBERS, OTHERS))
    return PhenomenonEvents(
        group,
        roster.names,
        labels,
        _own(events.time, n),
        _own(events.key, n),
        _own(events.number, n),
        _own(events.kind, n),
        _own(events.first, n + 1),
        _own(roster.reported(events.members[:members]), members),
        _own(events.first_other, n + 1),
        _own(events.others, others),
        _own(events.centroid, n),
        _own(events.velocity, n),
    )


def _own(array: NDArray[Any], many: int) -> NDArray[Any]:
    """The first rows of an array; of a few, a copy without the room for more."""
    whole = array if array.base is None else array.base
    return array[:many].copy() if 4 * many < len(whole) else array[:many]


def rows_of(groups: Labels | None, n: int) -> dict[bytes, Ints]:
    """The rows of each group, in their order, by its label; all rows where there are no groups."""
    labels = LabelNumbers()
    numbers = labels.of(groups, n)
    if len(labels) == 1:
        return {b"": np.arange(n)} if n else {}
    order = np.argsort(numbers, kind="stable")
    used, first = np.unique(numbers[order], return_index=True)
    return {labels.values[k]: rows for k, rows in zip(used.tolist(), np.split(order, first[1:]), strict=True)}


def place_of(sites: Sites) -> Place:
    """Sites by number; the first, 0, is nobody's."""
    at = np.concatenate([np.zeros((1, sites.at.shape[1])), sites.at])
    return Place(np.concatenate([[0], sites.first]), sites.near + 1, at, np.arange(len(at)))


def whole_ticks(time: Ints, most: int) -> Iterable[tuple[int, int]]:
    """Begins and ends of whole ticks, about ``most`` rows at a time."""
    begin = 0
    while begin < len(time):
        end = min(begin + most, len(time))
        end = int(np.searchsorted(time, time[end - 1], side="right"))
        yield begin, end
        begin = end


def as_arrays(name: str, values: Sequence[bytes]) -> dict[str, NDArray[Any]]:
    """Byte strings as two arrays of that name."""
    packed = Bytes.of(values)
    return {f"{name}-ends": packed.offsets, f"{name}-bytes": packed.data}


def as_bytes(arrays: dict[str, NDArray[Any]], name: str) -> list[bytes]:
    """What `as_arrays` took."""
    return Bytes(arrays[f"{name}-ends"], arrays[f"{name}-bytes"]).to_list()


def room_for(room: int, d: int) -> Events:
    """No events yet, and room for some."""
    whole = [np.empty(room, np.int64) for _ in range(8)]
    wide = [np.empty((room, d)) for _ in range(2)]
    whole[4][0] = whole[6][0] = 0
    return Events(
        np.zeros(3, np.int64),
        whole[0],
        whole[1],
        whole[2],
        whole[3],
        whole[4],
        whole[5],
        whole[6],
        whole[7],
        wide[0],
        wide[1],
    )
