"""Identities of phenomena: who inherits whose number from tick to tick, and events as they are reported.

Whatever a phenomenon is made of: *parts* are what stands at a tick, *old* the slots of what stood before it, and pairs
of both share sensors. Identities over time as tests/helpers/naive_sensors.py works them out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from appulse.kernels.jit import exact_kernel
from appulse.kernels.tracks import TRACK, motion

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints, Whole

# Columns of a phenomenon: its number, how many points its track has had, and scratch: its place among the old, and how
# many sensors it had.
NUMBER, POINTS, PLACE, SIZE = range(4)
# Counters of every field; each kind has more of its own.
TAIL, HEAD, SLOTS, FREE, NUMBERS, TICK, PENDING, NOW = range(8)
# Counters of events.
EVENTS, MEMBERS, OTHERS = range(3)
APPEARS, MOVES, DISAPPEARS, STANDS = range(4)


class Known(Protocol):
    """What every kind of field knows of its phenomena."""

    @property
    def counts(self) -> Ints: ...
    @property
    def phenomena(self) -> Ints: ...  # (most, 4)
    @property
    def track(self) -> Floats: ...  # (most, TRACK, 1 + d): times and centroids, in a ring
    @property
    def free(self) -> Ints: ...  # (most,): slots to be used again


class Events(NamedTuple):
    """What became of phenomena; event e has ``members[first[e]:first[e + 1]]``, and so its others."""

    counts: Ints  # (3,)
    time: Ints
    key: Ints
    number: Ints
    kind: Ints
    first: Ints
    members: Ints
    first_other: Ints
    others: Ints
    centroid: Floats  # (n, d)
    velocity: Floats  # (n, d), NaN where there is none


class Place(NamedTuple):
    """Where sensors are: neighbours of s are ``near[near_first[s]:near_first[s + 1]]``; ``rank`` is their order."""

    near_first: Ints  # (sensors + 1,), or (0,): all are neighbours
    near: Ints
    at: Floats  # (sensors, d)
    rank: Ints


class Criteria(NamedTuple):
    """What makes a phenomenon."""

    strength: Whole  # readings in the span that make a sensor count
    span: Whole
    least: Whole  # sensors


class Lineage(NamedTuple):
    """Who inherits from whom, at one tick: the slots of what was, those of each part, and what they share."""

    old: Ints
    slots: Ints
    pairs: Ints  # of a former phenomenon and a part, as one number
    shared: Ints


@exact_kernel
def tick_end(time: Ints, begin: Whole) -> Whole:
    """Where the tick ends that begins at ``begin``."""
    end = begin + 1
    while end < len(time) and time[end] == time[begin]:
        end += 1
    return end


@exact_kernel
def counted(keys: Ints) -> tuple[Ints, Ints]:
    """Each of the keys once, in order, and how often it is there."""
    keys = np.sort(keys)
    each, often = np.empty(len(keys), np.int64), np.zeros(len(keys), np.int64)
    k = -1
    for i in range(len(keys)):
        if i == 0 or keys[i] != keys[i - 1]:
            k += 1
            each[k] = keys[i]
        often[k] += 1
    return each[: k + 1], often[: k + 1]


@exact_kernel
def inherited(field: Known, pairs: Ints, shared: Ints, old: Ints, many: Whole) -> Ints:
    """The slot that each part inherits: by most that is shared, then the older, then the first sensor; or a new one."""
    slots = np.full(many, -1, np.int64)
    taken = np.zeros(len(old), np.bool_)
    # Pairs are in the order of (older, first sensor): a stable sort by what is shared leaves ties in it.
    for k in np.argsort(-shared, kind="mergesort"):
        i, p = pairs[k] // many, pairs[k] % many
        if slots[p] < 0 and not taken[i]:
            slots[p], taken[i] = old[i], True
    counts = field.counts
    for p in range(many):
        if slots[p] < 0:
            if counts[FREE]:
                counts[FREE] -= 1
                slots[p] = field.free[counts[FREE]]
            else:
                slots[p] = counts[SLOTS]
                counts[SLOTS] += 1
            field.phenomena[slots[p], NUMBER], field.phenomena[slots[p], POINTS] = counts[NUMBERS], 0
            counts[NUMBERS] += 1
    return slots


@exact_kernel
def by_number(field: Known, old: Ints, slots: Ints) -> Ints:
    """What is to be reported, in the order of numbers: part p as p, and the i-th of old without heir as many + i."""
    many = len(slots)
    gone = np.ones(len(old), np.bool_)
    for slot in slots:
        i = field.phenomena[slot, PLACE]
        if 0 <= i < len(old) and old[i] == slot:
            gone[i] = False
    total = many + gone.sum()
    numbers, which = np.empty(total, np.int64), np.empty(total, np.int64)
    n = 0
    for p in range(many):
        numbers[n], which[n] = field.phenomena[slots[p], NUMBER], p
        n += 1
    for i in range(len(old)):
        if gone[i]:
            numbers[n], which[n] = field.phenomena[old[i], NUMBER], many + i
            n += 1
    in_order: Ints = which[np.argsort(numbers)]
    return in_order


@exact_kernel
def move_on(field: Known, place: Place, slot: Whole, low: Whole, events: Events) -> None:
    """The centroid of the event at hand, whose members begin at ``low``, and a point more on its phenomenon's track."""
    e, size = events.counts[EVENTS], events.counts[MEMBERS] - low
    for c in range(place.at.shape[1]):
        total = 0.0
        for k in range(low, events.counts[MEMBERS]):
            total += place.at[events.members[k], c]
        events.centroid[e, c] = total / size
    at = field.phenomena[slot, POINTS] % TRACK
    field.track[slot, at, 0] = field.counts[NOW]
    field.track[slot, at, 1:] = events.centroid[e]
    field.phenomena[slot, POINTS] += 1


@exact_kernel
def give_up(field: Known, slot: Whole, key: Whole, events: Events) -> None:
    """The rest of the event that a phenomenon disappears, and its slot to be used again."""
    last = (field.phenomena[slot, POINTS] - 1) % TRACK
    events.centroid[events.counts[EVENTS]] = field.track[slot, last, 1:]
    close(field, key, slot, DISAPPEARS, events)
    field.free[field.counts[FREE]] = slot
    field.counts[FREE] += 1


@exact_kernel
def report_others(field: Known, lineage: Lineage, one: Whole, events: Events, split: bool) -> None:
    """The phenomena that share sensors with one: most of them first, then the older."""
    old, slots, pairs, shared = lineage
    many = len(slots)
    n = 0
    numbers, weights = np.empty(len(pairs), np.int64), np.empty(len(pairs), np.int64)
    for k in range(len(pairs)):
        i, p = pairs[k] // many, pairs[k] % many
        if (p if split else i) == one:
            numbers[n] = field.phenomena[old[i] if split else slots[p], NUMBER]
            weights[n] = shared[k]
            n += 1
    by_number = np.argsort(numbers[:n])
    for k in by_number[np.argsort(-weights[:n][by_number], kind="mergesort")]:
        events.others[events.counts[OTHERS]] = numbers[k]
        events.counts[OTHERS] += 1


@exact_kernel
def close(field: Known, key: Whole, slot: Whole, kind: Whole, events: Events) -> None:
    """The rest of an event, whose members, others and centroid are there; ``key`` is its value."""
    e = events.counts[EVENTS]
    events.time[e], events.key[e] = field.counts[NOW], key
    events.number[e], events.kind[e] = field.phenomena[slot, NUMBER], kind
    motion(field.track[slot], field.phenomena[slot, POINTS], events.velocity[e])
    events.counts[EVENTS] = e + 1
    events.first[e + 1], events.first_other[e + 1] = events.counts[MEMBERS], events.counts[OTHERS]
