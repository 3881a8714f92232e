"""What readings do at fences: enter, stay, leave, key by key in order of time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import exact_kernel
from appulse.kernels.regions import RegionIndex, Regions, candidates, chance, covers, margin

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints
    from appulse.kernels.geodesic import Earth

ENTER, DWELL, EXIT = 0, 1, 2
# Beyond this many deviations a normal tail is below 1e-12.
_TAIL = 7.0
# By so much a bound has to clear a threshold: more than the error of a probability.
_CLEAR = 1e-9


class Readings(NamedTuple):
    """Readings, those of a thing together and in order of time.

    ``at`` is (x, y), or longitude and latitude; ``scale`` the deviations in a unit of each, infinite for exact ones.
    ``place`` is Earth-centred, ``sigma`` in the unit of radii, ``exists`` a probability.
    """

    thing: Ints
    time: Ints
    at: Floats
    scale: Floats
    place: Floats
    sigma: Floats
    exists: Floats


class Visits(NamedTuple):
    """Visits that have not ended, those of a thing together: (n, 5) and (n, 2).

    ``whole`` is thing, fence, begin, whether it has dwelt, and its readings; ``real`` the highest probability and the
    last one.
    """

    whole: Ints
    real: Floats


class Rules(NamedTuple):
    """When a thing is in and when it is out. ``dwell`` is in microseconds, -1: none; ``reach`` in deviations.

    ``highest`` says whether the highest probability of a visit is asked for, which costs an integral a reading.
    Everything before ``now`` is known, and what is at it, too, where it is the ``last`` time of all.
    """

    enter: float
    leave: float
    dwell: int
    reach: float
    highest: bool
    now: int
    last: bool


@exact_kernel
def _more(whole: Ints, real: Floats) -> tuple[Ints, Floats]:
    """Twice the room."""
    wider, deeper = np.empty((2 * whole.shape[0], whole.shape[1]), np.int64), np.empty((2 * real.shape[0], 2))
    wider[: whole.shape[0]], deeper[: real.shape[0]] = whole, real
    return wider, deeper


@exact_kernel
def _chance(regions: Regions, fence: int, readings: Readings, r: int, earth: Earth, on_earth: bool) -> float:
    """Pr{inside} of a reading; on the Earth also of its copies beyond the 180th meridian."""
    x, y = readings.at[r, 0], readings.at[r, 1]
    across, along = readings.scale[r, 0], readings.scale[r, 1]
    place, sigma = readings.place[r], readings.sigma[r]
    total = chance(regions, fence, x, y, across, along, place, sigma, earth, on_earth)
    if on_earth and math.isnan(regions.radius[fence]):
        wide = _TAIL / across
        if x + wide >= 180.0:
            total += chance(regions, fence, x - 360.0, y, across, along, place, sigma, earth, on_earth)
        if x - wide <= -180.0:
            total += chance(regions, fence, x + 360.0, y, across, along, place, sigma, earth, on_earth)
    return float(min(1.0, total) * readings.exists[r])


@exact_kernel
def _over_180(readings: Readings, r: int) -> bool:
    """Whether a reading on the Earth has a part beyond the 180th meridian."""
    return bool(abs(readings.at[r, 0]) + _TAIL / readings.scale[r, 0] >= 180.0)


@exact_kernel
def _reaches(
    regions: Regions, fence: int, readings: Readings, r: int, least: float, earth: Earth, on_earth: bool
) -> tuple[bool, float]:
    """Whether Pr{inside} of a reading is ``least`` or more; and itself, -1 where bounds decide.

    A disc around the mean that the boundary does not cross has a mass of 1 - exp(-radius^2 / 2), in deviations.
    """
    across, along = readings.scale[r, 0], readings.scale[r, 1]
    if math.isnan(regions.radius[fence]) and not (on_earth and _over_180(readings, r)):
        if across == np.inf:
            p = readings.exists[r] if covers(regions, fence, readings.at[r, 0], readings.at[r, 1]) else 0.0
            return p >= least, p
        free = margin(regions, fence, readings.at[r, 0], readings.at[r, 1], across, along)
        beyond, exists = math.exp(-0.5 * free * free), readings.exists[r]
        if free >= 0.0 and (1.0 - beyond) * exists - _CLEAR >= least:
            return True, -1.0
        if free < 0.0 and beyond * exists + _CLEAR < least:
            return False, -1.0
    p = _chance(regions, fence, readings, r, earth, on_earth)
    return p >= least, p


@exact_kernel
def _near(
    index: RegionIndex, regions: Regions, readings: Readings, r: int, reach: float, on_earth: bool, out: Ints
) -> int:
    """Fences that a reading may be in; their number."""
    x, y = readings.at[r, 0], readings.at[r, 1]
    wide, high = reach / readings.scale[r, 0], reach / readings.scale[r, 1]
    if not on_earth:
        return int(candidates(index, regions, x, y, wide, high, out))
    wide, high = min(wide, 360.0), min(high, 180.0)
    found = candidates(index, regions, x, y, wide, high, out)
    tail = _TAIL / readings.scale[r, 0]
    if x + tail >= 180.0:
        found += candidates(index, regions, x - 360.0, y, wide, high, out[min(found, out.shape[0]) :])
    if x - tail <= -180.0:
        found += candidates(index, regions, x + 360.0, y, wide, high, out[min(found, out.shape[0]) :])
    return int(found)


@exact_kernel
def watch(
    index: RegionIndex,
    regions: Regions,
    readings: Readings,
    visits: Visits,
    rules: Rules,
    earth: Earth,
    on_earth: bool,
) -> tuple[Ints, Floats, Ints, Floats]:
    """What happened, and the visits that go on, as `Visits`.

    Of each event: thing, fence, kind, time, begin of the visit and its readings; its probability and the highest one.
    """
    happened, chances, events = np.empty((64, 6), np.int64), np.empty((64, 2)), 0
    kept, highest, going = np.empty((64, 5), np.int64), np.empty((64, 2)), 0
    own, best, inside = np.empty((8, 5), np.int64), np.empty((8, 2)), 0
    near = np.empty(64, np.int64)
    n, m = readings.thing.shape[0], visits.whole.shape[0]
    r, v = 0, 0
    while r < n or v < m:
        thing = readings.thing[r] if r < n else visits.whole[v, 0]
        if v < m:
            thing = min(thing, visits.whole[v, 0])
        inside = 0
        while v < m and visits.whole[v, 0] == thing:
            if inside == own.shape[0]:
                own, best = _more(own, best)
            own[inside], best[inside] = visits.whole[v], visits.real[v]
            inside += 1
            v += 1
        while True:
            at_end = r >= n or readings.thing[r] != thing
            time = rules.now if at_end else readings.time[r]
            # What was inside before: it may have dwelt by now, and have left.
            k = 0
            while k < inside:
                if events + 2 > happened.shape[0]:
                    happened, chances = _more(happened, chances)
                due = own[k, 2] + rules.dwell
                waits = rules.dwell >= 0 and own[k, 3] == 0
                if waits and (due < time or (at_end and rules.last and due == time)):
                    _record(happened, chances, events, own[k], best[k], DWELL, due, best[k, 1])
                    events, own[k, 3], waits = events + 1, 1, False
                if at_end:
                    k += 1
                    continue
                stays, p = _reaches(regions, own[k, 1], readings, r, rules.leave, earth, on_earth)
                # A dwell reports the probability of the last reading before it, perhaps in a later call.
                ahead = r + 1 < n and readings.thing[r + 1] == thing and readings.time[r + 1] < due
                asked = not stays or (rules.highest and best[k, 0] < 1.0) or (waits and not ahead)
                if p < 0.0 and asked:
                    p = _chance(regions, own[k, 1], readings, r, earth, on_earth)
                if not stays:
                    _record(happened, chances, events, own[k], best[k], EXIT, time, p)
                    events, inside = events + 1, inside - 1
                    for later in range(k, inside):
                        own[later], best[later] = own[later + 1], best[later + 1]
                    continue
                own[k, 4] += 1
                best[k, 0], best[k, 1] = max(best[k, 0], p), p
                if waits and due == time:
                    _record(happened, chances, events, own[k], best[k], DWELL, due, p)
                    events, own[k, 3] = events + 1, 1
                k += 1
            if at_end:
                break
            found = _near(index, regions, readings, r, rules.reach, on_earth, near)
            while found > near.shape[0]:
                near = np.empty(2 * found, np.int64)
                found = _near(index, regions, readings, r, rules.reach, on_earth, near)
            for c in range(found):
                fence, known = near[c], False
                for k in range(inside):
                    known = known or own[k, 1] == fence
                if known:
                    continue
                enters, p = _reaches(regions, fence, readings, r, rules.enter, earth, on_earth)
                if not enters:
                    continue
                if p < 0.0:
                    p = _chance(regions, fence, readings, r, earth, on_earth)
                if inside == own.shape[0]:
                    own, best = _more(own, best)
                if events == happened.shape[0]:
                    happened, chances = _more(happened, chances)
                own[inside, 0], own[inside, 1], own[inside, 2] = thing, fence, time
                own[inside, 3], own[inside, 4] = 0, 1
                best[inside, 0], best[inside, 1] = p, p
                _record(happened, chances, events, own[inside], best[inside], ENTER, time, p)
                events, inside = events + 1, inside + 1
            r += 1
        for k in range(inside):
            if going == kept.shape[0]:
                kept, highest = _more(kept, highest)
            kept[going], highest[going] = own[k], best[k]
            going += 1
    return happened[:events], chances[:events], kept[:going], highest[:going]


@exact_kernel
def _record(
    happened: Ints, chances: Floats, at: int, visit: Ints, best: Floats, kind: int, time: int, probability: float
) -> None:
    happened[at, 0], happened[at, 1], happened[at, 2], happened[at, 3] = visit[0], visit[1], kind, time
    happened[at, 4], happened[at, 5] = visit[2], visit[4]
    chances[at, 0], chances[at, 1] = probability, best[0]
