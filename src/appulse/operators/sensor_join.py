"""The sensor join: each reading meets the readings of other sensors of like value, however many they are.

A deterministic state machine over ticks, free of any engine. Readings come in the order (time, sensor, number); each
meets those before it. Ali et al. 2007, section 4.1 and Definition 1.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from appulse.kernels.occurrences import (
    COUNTERS,
    END,
    FREE_VALUES,
    FRONT,
    GROUP,
    HEAD,
    HELD,
    KEY,
    SIZES,
    STARVED,
    TAIL,
    VALUES,
    Scratch,
    Structure,
    rehash,
    renumber,
    sensors_in,
    sweep,
)
from appulse.kernels.sensor_join import PROBES, REPORTED_GROUPS, TIMES, Arrivals, Found, Match, join
from appulse.model.readings import Readings, numbers_of
from appulse.operators.labels import LabelNumbers
from appulse.operators.names import Names
from appulse.operators.output import Output, Watch
from appulse.operators.properties import Properties, Property
from appulse.operators.sensor_order import order_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from appulse.kernels.arrays import Ints

SWEEPS = ("eager", "periodic", "lazy")
# Readings between two sweeps.
_SLICE = 1 << 12
# Readings and values there is room for at first.
_LEAST = 32
# Room that is cheap enough to have at the first rebuilding.
_FEW = 1024
# Matches of one call of the kernel: at first, and as many as there is ever room for unless one reading meets more.
_ROOM, _MOST_ROOM = 1 << 16, 1 << 20
# Labels are numbered; once there are so many, and twice as many as after the last time, those of none are forgotten.
_LABELS = 1 << 17
_NO_INTS, _NO_FLOATS, _NO_FLAGS = np.empty(0, np.int64), np.empty(0), np.empty(0, bool)


@dataclass(frozen=True)
class SensorPlan:
    """What a sensor join does.

    ``span`` is the window in microseconds, ``own`` whether readings have windows of their own. ``reach`` is how far
    apart values may be (None: of one key), ``width`` that of bins then. ``sweep`` is when expired readings are
    forgotten: at each reading, now and then, or once there is no room.
    """

    span: int
    value_type: pa.DataType
    own: bool = False
    reach: float | None = None
    width: float = 1.0
    carries: bool = False
    by: Property | None = None  # readings match by it, in place of their values
    sweep: str = "periodic"


@dataclass(frozen=True, slots=True)
class Matches:
    """Factorised answers: probe ``p`` has groups ``first[p]`` to ``first[p + 1]``, one a sensor, newest first.

    Group ``g`` has the times ``begin[g]`` to ``begin[g + 1]``, newest first. ``probe`` indexes ``readings``, ``sensor``
    numbers ``sensors``; ``carried`` has a row per time.
    """

    readings: Readings
    probe: Ints
    first: Ints
    sensor: Ints
    begin: Ints
    time: Ints
    sensors: Names
    carried: pa.Table | None = None

    def __len__(self) -> int:
        return len(self.probe)


class SensorJoin:
    """One structure for all sensors, values and groups."""

    def __init__(self, plan: SensorPlan) -> None:
        self.plan = plan
        self._span = plan.span
        self.sensors, self._groups, self._values = Names(), LabelNumbers(), LabelNumbers()
        self._state = self._structure(_LEAST, _LEAST)
        self._found = _found(_ROOM, numbered=plan.carries)
        self._room = _scratch(1024, 64)
        self._carried: deque[tuple[int, pa.Table]] = deque()
        self._labels_kept = 0
        self._properties = None if plan.by is None else Properties(plan.by)
        self.output = Output()  # of the call, push or task at hand
        self._met = Watch(0, _met)

    def __len__(self) -> int:
        return int(self._state.counts[HEAD] - self._state.counts[TAIL])

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for part in (self._state, self._found, self._room) for array in part)

    @property
    def span(self) -> int:
        """How far back (microseconds) a reading may be met, or name its sensor."""
        return self._span + (0 if self.plan.by is None else self.plan.by.over)

    due = None  # time alone answers nothing

    def push(self, parts: Sequence[Readings], before: int | None = None) -> list[Matches]:  # noqa: ARG002 - as `due`
        """Whole ticks, later than all before: what each reading meets. They stay, to be met by others."""
        return self._run(parts, probing=True, keeping=True)

    def apply(self, parts: Sequence[Readings], before: int | None = None) -> None:  # noqa: ARG002 - as `due`
        """As `push`, without answers."""
        self._run(parts, probing=False, keeping=True)

    def probe(self, parts: Sequence[Readings]) -> list[Matches]:
        """What readings would meet; they do not stay."""
        return self._run(parts, probing=True, keeping=False)

    def forget(self, before: int) -> None:
        """Drop readings older than ``before``: nothing can meet them any more."""
        sweep(self._state, before + self.span - self._span)
        self._drop_carried()

    def standing(self) -> dict[str, NDArray[Any]]:
        """What it knows beyond the readings in their windows: the longest window there was."""
        return {"span": np.array([self._span], np.int64)} if self.plan.own else {}

    def restore(self, standing: dict[str, NDArray[Any]]) -> None:
        """Take in what `standing` returned."""
        self._span = max([self._span, *map(int, standing.get("span", ()))])

    def _run(self, parts: Sequence[Readings], *, probing: bool, keeping: bool) -> list[Matches]:
        if self._properties is not None:
            parts = self._properties.of(parts, keeping=keeping)
        parts = [part for part in parts if len(part)]
        if not parts:
            return []
        readings = Readings.concat(parts)
        order = order_of(readings)
        if order is not None:
            readings = readings.take(order)
        arrivals = self._arrivals(readings, probing=probing)
        self._met = Watch(len(readings), _met)
        if keeping and self.plan.carries and readings.carry is not None:
            self._carried.append((int(self._state.counts[HEAD]), readings.carry))
        found: list[Matches] = []
        for begin in range(0, len(readings), _SLICE):
            found += self._run_slice(readings, arrivals, begin, min(begin + _SLICE, len(readings)), keeping=keeping)
        if keeping:
            self._drop_carried()
            self._forget_labels()
        return found

    def _run_slice(
        self, readings: Readings, arrivals: Arrivals, begin: int, end: int, *, keeping: bool
    ) -> list[Matches]:
        if keeping and self.plan.sweep == "periodic":
            sweep(self._state, int(arrivals.time[begin]) - self._span)
        found: list[Matches] = []
        reach = -1.0 if self.plan.reach is None else self.plan.reach
        match = Match(self._span, reach, self.plan.width, keeping, self.plan.sweep == "eager")
        while begin < end:
            state = self._state
            begin = int(join(state, arrivals, begin, end, match, self._found, self._room))
            reported = bool(self._found.counts[PROBES])
            if reported:
                found.append(self._reported(readings))
            if self._state.counts[STARVED]:
                self._rebuild(int(arrivals.time[begin]) - self._span)
            elif begin < end and not reported:
                self._widen()
        return found

    def _reported(self, readings: Readings) -> Matches:
        """What the kernel found; it gets room anew, where that is cheaper than to copy what it found."""
        found = self._found
        probes, groups, times = (int(found.counts[k]) for k in (PROBES, REPORTED_GROUPS, TIMES))
        self.output.add(probes)
        self._met.add(times)
        number = found.number[:times]
        found.begin[groups] = times
        matches = Matches(
            readings,
            found.probe[:probes].copy(),
            np.append(found.first[:probes], groups),
            found.sensor[:groups],
            found.begin[: groups + 1],
            found.time[:times],
            self.sensors,
            self._carried_by(number) if self.plan.carries else None,
        )
        if 2 * times < len(found.time):
            found.counts[:] = 0
            sensor, begin, time = (array.copy() for array in (matches.sensor, matches.begin, matches.time))
            return replace(matches, sensor=sensor, begin=begin, time=time)
        self._found = _found(max(min(2 * len(found.time), _MOST_ROOM), len(found.time)), numbered=self.plan.carries)
        return matches

    def _arrivals(self, readings: Readings, *, probing: bool) -> Arrivals:
        n, plan = len(readings), self.plan
        sensor = self.sensors.of(readings.sensor)
        if len(self.sensors) > len(self._room.latest):
            self._room = self._room._replace(latest=_grown(self._room.latest, 2 * len(self.sensors)))
        valued = plan.reach is not None
        if plan.own and readings.length is not None:
            self._span = max(self._span, int(readings.length.max()))
        return Arrivals(
            np.ascontiguousarray(readings.time),
            sensor,
            self._groups.of(readings.group, n),
            self._values.keys(readings),
            numbers_of(readings.bits, readings.label, plan.value_type) if valued else _NO_FLOATS,
            readings.length if plan.own and readings.length is not None else _NO_INTS,
            (_NO_FLAGS if readings.asks is None else readings.asks) if probing else np.zeros(n, bool),
        )

    def _rebuild(self, before: int) -> None:
        """Tables with room for twice as much as there is, without what is older than ``before``."""
        sweep(self._state, before)
        counts = self._state.counts
        fresh = self._structure(max(len(self), _FEW), max(int(counts[VALUES] - counts[FREE_VALUES]), _LEAST))
        rehash(fresh, self._state, before)
        self._state = fresh

    def _structure(self, live: int, values: int) -> Structure:
        """Empty tables with room for twice as much; blocks take at most 8 times their occurrences of the pool."""
        numbered = self.plan.carries or self.plan.own or self.plan.reach is not None
        capacity, values = _power(2 * live), _power(2 * values)
        pool = 8 * capacity
        return Structure(
            np.zeros(COUNTERS, np.int64),
            np.zeros((capacity, 2), np.int64),
            np.zeros((values, 8), np.int64),
            np.full(2 * values, -1, np.int32),
            np.zeros(values, np.int32),
            np.full(SIZES, -1, np.int64),
            np.empty(pool, np.int64),
            np.empty(pool, np.int64),
            np.empty(pool if numbered else 0, np.int64),
            np.empty(pool if self.plan.reach is not None else 0),
            np.empty(pool if self.plan.own else 0, np.int64),
        )

    def _widen(self) -> None:
        """Room for the matches of a reading that meets more than there was room for."""
        values = self._state.values[: int(self._state.counts[VALUES])]
        most = 6 * int((values[:, END] - values[:, FRONT]).max())
        if most > len(self._found.time):
            self._found = _found(most, numbered=self.plan.carries)
        if most > len(self._room.time):
            self._room = _scratch(most, 0)._replace(latest=self._room.latest, mark=self._room.mark)

    def _carried_by(self, number: Ints) -> pa.Table:
        base = self._carried[0][0]
        return pa.concat_tables([table for _, table in self._carried]).take(pa.array(number - base))

    def _drop_carried(self) -> None:
        while len(self._carried) > 1 and self._carried[1][0] <= int(self._state.counts[TAIL]):
            self._carried.popleft()

    def _forget_labels(self) -> None:
        """Begin anew with the labels of live readings, where most belong to sensors, groups and values long gone."""
        known = len(self.sensors) + len(self._groups) + len(self._values)
        if known <= max(_LABELS, 2 * self._labels_kept):
            return
        state = self._state
        before = int(state.sweep[(state.counts[HEAD] - 1) % len(state.sweep), 0]) - self._span
        sweep(state, before)
        used = np.zeros(len(self.sensors), bool)
        sensors_in(state, used)
        kept, numbers = self.sensors.strings.take(np.flatnonzero(used)), np.zeros(len(used), np.int64)
        self.sensors = Names()
        numbers[used] = self.sensors.of(kept)
        renumber(state, numbers)
        values = np.flatnonzero(state.values[: state.counts[VALUES], HELD])
        self._groups = _kept(self._groups, state.values[:, GROUP], values)
        if len(self._values) > 1:
            self._values = _kept(self._values, state.values[:, KEY], values)
        self._labels_kept = len(self.sensors) + len(self._groups) + len(self._values)
        self._room.latest[:] = 0
        self._rebuild(before)  # keys are others now


def _met(made: float) -> str:
    return (
        f"Readings have met {made:,.0f} others by now, each of which is a time in the answers. Give a shorter window, "
        "or a finer resolution (or within), or groups by partition_by."
    )


def _kept(labels: LabelNumbers, column: Ints, rows: Ints) -> LabelNumbers:
    """Fresh numbers for the labels that the rows of a column have; the column is rewritten."""
    used, codes = np.unique(column[rows], return_inverse=True)
    fresh = LabelNumbers()
    column[rows] = fresh.add([labels.values[number] for number in used.tolist()])[codes]
    return fresh


def _found(room: int, *, numbered: bool) -> Found:
    empty = [np.empty(n, np.int64) for n in (_SLICE, _SLICE, room, room + 1, room, room if numbered else 0)]
    return Found(np.zeros(3, np.int64), empty[0], empty[1], empty[2], empty[3], empty[4], empty[5])


def _scratch(room: int, sensors: int) -> Scratch:
    sensor, time, number, group, size, place = (np.empty(room, np.int64) for _ in range(6))
    return Scratch(sensor, time, number, group, size, place, np.zeros(sensors, np.int64), np.ones(1, np.int64))


def _grown(array: Ints, length: int) -> Ints:
    return np.concatenate([array, np.zeros(length - len(array), np.int64)])


def _power(n: int) -> int:
    return 1 << max(4, (n - 1).bit_length())
