"""What readings do at fences: enter, stay, leave, key by key in order of time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from appulse.kernels.jit import exact_kernel, inlined_kernel
from appulse.kernels.near_regions import Reach, Readings, Search, nearby
from appulse.kernels.region_matches import at_most, decided_by, next_readings, place_chance
from appulse.kernels.regions import is_convex

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats, Ints
    from appulse.kernels.regions import Ground, Regions

ENTER, DWELL, EXIT = 0, 1, 2
# So many deviations from the boundary Pr{inside} is 1 to 1e-9, which is what it is exact to.
_SURE = 6.45
#: After all times there are.
NEVER = 1 << 62
_MANY = 1 << 20


class Visits(NamedTuple):
    """Visits that have not ended, those of a thing together: (n, 7) and (n, 2).

    ``whole`` is thing, fence, begin, whether it has dwelt, its readings, the last time at which the fence holds, and
    the row of the last reading; ``real`` the highest probability and the last one.
    """

    whole: Ints
    real: Floats


class Events(NamedTuple):
    """What happened: (n, 4), (n, 2) and (n, 1 or 2), in as few bytes as hold it, as there may be many.

    ``which`` is the row of the reading, the fence, the kind and the readings of the visit so far; ``when`` the time and
    the begin of the visit; ``chances`` the probability and, where it is asked for, the highest one.
    """

    which: NDArray[np.int32]
    when: Ints
    chances: Floats


class Terms(NamedTuple):
    """The last time at which each fence holds, and the number of its condition (-1: none); both empty without terms.

    The conditions that hold of row i are ``held[begin[i] : begin[i + 1]]``, in order.
    """

    ends: Ints
    condition: Ints
    begin: Ints
    held: Ints


class Rules(NamedTuple):
    """When a thing is in and when it is out. ``dwell`` is in microseconds, -1: none; ``reach`` of what matters.

    ``highest`` says whether the highest probability of each visit is asked for, and not those of events.
    Everything before ``now`` is known, and what is at it, too, where it is the ``last`` time of all.
    """

    enter: float
    leave: float
    dwell: int
    reach: Reach
    highest: bool
    now: int
    last: bool


@exact_kernel
def _more(whole: Ints, real: Floats) -> tuple[Ints, Floats]:
    """Twice the room."""
    wider = np.empty((2 * whole.shape[0], whole.shape[1]), np.int64)
    deeper = np.empty((2 * real.shape[0], real.shape[1]))
    wider[: whole.shape[0]], deeper[: real.shape[0]] = whole, real
    return wider, deeper


@exact_kernel
def _more_events(events: Events, share: float) -> Events:
    """Twice the room, or what there will be if readings go on as in this ``share`` of them."""
    which, when, chances = events
    n = which.shape[0]
    room = max(2 * n, int(1.1 * n / share))
    other = Events(np.empty((room, 4), np.int32), np.empty((room, 2), np.int64), np.empty((room, chances.shape[1])))
    other.which[:n], other.when[:n], other.chances[:n] = which, when, chances
    return other


@exact_kernel
def _holds(terms: Terms, fence: int, row: int, time: int) -> bool:
    """Whether a fence holds for a reading."""
    if time > terms.ends[fence]:
        return False
    wanted = terms.condition[fence]
    if wanted < 0:
        return True
    low, high = terms.begin[row], terms.begin[row + 1]
    while low < high:
        middle = (low + high) >> 1
        if terms.held[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return bool(low < terms.begin[row + 1] and terms.held[low] == wanted)


@exact_kernel
def watch(
    regions: Regions,
    search: Search,
    readings: Readings,
    rows: Ints,
    visits: Visits,
    rules: Rules,
    terms: Terms,
    ground: Ground,
) -> tuple[Events, Ints, Floats]:
    """What happened, and the visits that go on, as `Visits`. A visit to a fence that holds no longer is forgotten.

    ``rows`` numbers the readings, as ``visits.whole`` does those of the visits: so do events and visits returned.
    """
    room, width = 64 + min(_MANY, 4 * readings.thing.shape[0]), 2 if rules.highest else 1
    happened = Events(np.empty((room, 4), np.int32), np.empty((room, 2), np.int64), np.empty((room, width)))
    events = 0
    kept, highest, going = np.empty((64, 7), np.int64), np.empty((64, 2)), 0
    own, best, inside = np.empty((8, 7), np.int64), np.empty((8, 2)), 0
    near, begin, upto = nearby(regions, search, readings, 0, 0, rules.reach, ground), 0, 0
    # Of each fence the last reading that it is near to, counted from 1, and where that stands; 0 once dealt with.
    mark, where = np.zeros(regions.radius.shape[0], np.int64), np.empty(regions.radius.shape[0], np.int64)
    n, limited = readings.thing.shape[0], terms.ends.shape[0] > 0
    r, v, most = 0, 0, rules.reach.free
    while r < n or v < visits.whole.shape[0]:
        thing = readings.thing[r] if r < n else visits.whole[v, 0]
        if v < visits.whole.shape[0]:
            thing = min(thing, visits.whole[v, 0])
        inside = 0
        while v < visits.whole.shape[0] and visits.whole[v, 0] == thing:
            if inside == own.shape[0]:
                own, best = _more(own, best)
            own[inside], best[inside] = visits.whole[v], visits.real[v]
            inside += 1
            v += 1
        while True:
            at_end = r >= n or readings.thing[r] != thing
            time = rules.now if at_end else readings.time[r]
            if not at_end and r == upto:
                begin, upto = r, min(n, r + next_readings(n, r - begin, near))
                near = nearby(regions, search, readings, begin, upto, rules.reach, ground)
            first, last, exact, exists = 0, 0, False, 0.0
            if not at_end:
                first = near.begin[r - begin]
                last = first + near.many[r - begin]
                exact, exists = readings.scale[r, 0] == np.inf, readings.exists[r]
            for at in range(first, last):
                close: Any = np.int64(near.region[at])
                if not limited or _holds(terms, close, rows[r], time):
                    mark[close], where[close] = r + 1, at
            # What was inside before: it may have dwelt by now, and have left.
            stay = 0
            for k in range(inside):
                if events + 2 > happened.which.shape[0]:
                    happened = _more_events(happened, (r + 1) / (n + 1))
                due = own[k, 2] + rules.dwell
                waits = rules.dwell >= 0 and own[k, 3] == 0 and due <= own[k, 5]
                if waits and (due < time or (at_end and rules.last and due == time)):
                    _record(happened, events, own, best, k, DWELL, due, best[k, 1])
                    events, own[k, 3], waits = events + 1, 1, False
                if own[k, 5] < time:
                    continue
                if not at_end:
                    fence, decided, p, bound = own[k, 1], 0, -1.0, 1.0
                    if limited:
                        if terms.ends[fence] < time:
                            continue
                        own[k, 5] = terms.ends[fence]
                        waits = waits and due <= own[k, 5]
                    if mark[fence] == r + 1:
                        free = near.free[where[fence]]
                        # Deep inside the integral is known.
                        decided = decided_by(free, most, is_convex(regions, fence), exists, rules.leave)
                        if rules.highest:
                            bound = at_most(free, most, is_convex(regions, fence))
                        p = exists if free >= _SURE else -1.0
                    elif exact or (limited and not _holds(terms, fence, rows[r], time)):
                        p = 0.0
                    mark[fence] = 0
                    higher = rules.highest and decided != 0 and best[k, 0] < bound * exists
                    if decided < 0 or (higher and p < 0.0):
                        p = place_chance(regions, fence, readings, r, ground, ground.on_earth)
                    if decided < 0:
                        decided = 1 if p >= rules.leave else 0
                    stays = decided == 1 or rules.leave <= 0.0
                    # A dwell reports the probability of the last reading before it, perhaps in a later call.
                    ahead = r + 1 < n and readings.thing[r + 1] == thing and readings.time[r + 1] < due
                    if p < 0.0 and not rules.highest and (not stays or (waits and not ahead)):
                        p = place_chance(regions, fence, readings, r, ground, ground.on_earth)
                    own[k, 6] = rows[r]
                    if not stays:
                        _record(happened, events, own, best, k, EXIT, time, p)
                        events += 1
                        continue
                    own[k, 4] += 1
                    best[k, 0], best[k, 1] = max(best[k, 0], p), p
                    if waits and due == time:
                        _record(happened, events, own, best, k, DWELL, due, p)
                        events, own[k, 3] = events + 1, 1
                if stay < k:
                    for column in range(7):
                        own[stay, column] = own[k, column]
                    best[stay, 0], best[stay, 1] = best[k, 0], best[k, 1]
                stay += 1
            inside = stay
            if at_end:
                break
            for at in range(first, last):
                number: Any = np.int64(near.region[at])
                fence = number
                if mark[fence] != r + 1:
                    continue
                mark[fence] = 0
                decided = decided_by(near.free[at], most, is_convex(regions, fence), exists, rules.enter)
                if decided == 0:
                    continue
                sure = near.free[at] >= _SURE
                p = exists if sure else place_chance(regions, fence, readings, r, ground, ground.on_earth)
                if p < rules.enter and decided < 0:
                    continue
                if inside == own.shape[0]:
                    own, best = _more(own, best)
                if events == happened.which.shape[0]:
                    happened = _more_events(happened, (r + 1) / (n + 1))
                own[inside, 0], own[inside, 1], own[inside, 2] = thing, fence, time
                own[inside, 3], own[inside, 4] = 0, 1
                own[inside, 5] = terms.ends[fence] if limited else NEVER
                own[inside, 6] = rows[r]
                best[inside, 0], best[inside, 1] = p, p
                _record(happened, events, own, best, inside, ENTER, time, p)
                events, inside = events + 1, inside + 1
            r += 1
        for k in range(inside):
            if going == kept.shape[0]:
                kept, highest = _more(kept, highest)
            kept[going], highest[going] = own[k], best[k]
            going += 1
    which, when, chances = happened
    return Events(which[:events], when[:events], chances[:events]), kept[:going], highest[:going]


@inlined_kernel
def _record(events: Events, at: int, own: Ints, best: Floats, k: int, kind: int, time: int, probability: float) -> None:
    which, when, chances = events
    which[at, 0], which[at, 1], which[at, 2], which[at, 3] = own[k, 6], own[k, 1], kind, own[k, 4]
    when[at, 0], when[at, 1] = time, own[k, 2]
    chances[at, 0] = probability
    if chances.shape[1] > 1:
        chances[at, 1] = best[k, 0]


@exact_kernel
def columns(events: Events, order: Ints) -> tuple[Ints, Ints, Ints, Ints, Floats, Ints]:
    """Events in an order: row, fence, kind, time, probability, begin of the visit."""
    n = order.shape[0]
    whole, probability = np.empty((5, n), np.int64), np.empty(n)
    for k in range(n):
        at = order[k]
        for column in range(3):
            whole[column, k] = events.which[at, column]
        whole[3, k], whole[4, k] = events.when[at, 0], events.when[at, 1]
        probability[k] = events.chances[at, 0]
    return whole[0], whole[1], whole[2], whole[3], probability, whole[4]
