"""The contestants of Lian & Chen 2009 as the paper has them, compiled with the same care as ours.

`WoP` keeps the candidate set from tick to tick and judges each new pair by Eq. (2), without pruning. `Grid` prunes:
cells by Eq. (10) with one r_max of a whole window, objects by Lemma 5.1, samples by Lemma 5.2 over every pair of
masses, found by two pointers as Lemma 5.4 allows; several arrivals of a tick are grouped by mean search volume
(Sec. 6.2). Both refine by the kernel that ours refines by. Objects have as many samples each, all of one weight.

Readings of ours where the text is lost: the side of a cell, (epsilon + 2 mean radius) / 2; the ball of a group, that
around the balls of its members.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.arrays import SampleRun
from appulse.kernels.jit import kernel
from appulse.kernels.within_epsilon import Open, close_count
from benchmarks.usj_grid import SLACK, grouped, push_radius, put, sample_level, summary, take, visited, window

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats, Ints
    from benchmarks.usj_data import Sides
    from benchmarks.usj_grid import Window

# What `counts` has.
JOINED, PRUNED_CELLS, PRUNED_OBJECT, PRUNED_SAMPLE, REFINED, REPORTED, GROUPS = range(7)
_NAMES = ("joined", "pruned_cells", "pruned_object", "pruned_sample", "refined", "reported", "groups")


@dataclass(frozen=True)
class Question:
    """What is asked: pairs within epsilon with probability at least alpha, of the newest ``w`` objects each.

    Comparisons have the tolerances of ours; ``stop`` ends a refinement once the threshold is out of reach.
    """

    epsilon: float
    alpha: float
    w: int
    per_tick: int = 1
    stop: bool = False

    @property
    def limit(self) -> float:
        return self.epsilon + 1e-9 * max(1.0, self.epsilon)

    def need(self, samples: int) -> int:
        """How many of the pairs of samples have to be close."""
        return math.ceil((self.alpha - 1e-9) * samples * samples)

    def least(self, samples: int) -> float:
        """Below how many a refinement ends; it never does unless asked to."""
        return float(self.need(samples)) if self.stop else 0.0


@dataclass
class Found:
    """Pairs in order of discovery, as object numbers; of how many pairs of samples each has close ones."""

    left: NDArray[np.int64]
    right: NDArray[np.int64]
    close: NDArray[np.int64]
    counts: dict[str, int]

    @property
    def pairs(self) -> set[tuple[int, int]]:
        return set(zip(self.left.tolist(), self.right.tolist(), strict=True))


class WoP:
    """Incremental, without pruning."""

    def __init__(self, sides: Sides, question: Question) -> None:
        self.sides, self.question = _flat(sides), question
        self.candidates = _Candidates()

    def run(self, first: int, last: int) -> Found:
        """The ticks ``first`` to ``last`` (exclusive): the pairs that enter the answer at them."""
        q, counts = self.question, np.zeros(len(_NAMES), np.int64)
        m = self.sides[0].shape[2]
        room = self.candidates.room(2 * (last - first) * q.per_tick * q.w)
        ticks = (q.w, q.per_tick, first, last)
        n = wop(*self.sides, *ticks, q.limit**2, q.need(m), q.least(m), room[0], room[1], room[2], counts)
        return self.candidates.found(n, counts)


class Grid:
    """A grid over each window, object-level and sample-level pruning."""

    def __init__(self, sides: Sides, question: Question, side: float | None = None) -> None:
        self.sides, self.question = _flat(sides), question
        d, w, m = sides[0].d, question.w, sides[0].l
        centres = [s.mean(axis=2, keepdims=True) for s in self.sides]
        radius = [np.sqrt(((s - c) ** 2).sum(axis=1).max(axis=1)) for s, c in zip(self.sides, centres, strict=True)]
        far = max(float(np.abs(c).max(initial=0.0)) for c in centres)
        self.side = side or max(1e-300, 1e-9 * far, (question.epsilon + 2.0 * float(np.mean(radius))) / 2.0)
        capacity = w + question.per_tick
        self.windows = window(capacity, d, m), window(capacity, d, m)
        self.radius = np.zeros((2, capacity))
        self.candidates = _Candidates()

    def fill(self, first: int, last: int) -> None:
        """Put the objects of these ticks in their windows; nothing is asked."""
        at = np.empty(self.sides[0].shape[1], np.int64)
        for tick in range(first, last):
            for samples, own, radius in zip(self.sides, self.windows, self.radius, strict=True):
                advance(samples, self.question.w, self.question.per_tick, tick, self.side, own, radius, at)

    def run(self, first: int, last: int) -> Found:
        """As `WoP.run`."""
        q, counts = self.question, np.zeros(len(_NAMES), np.int64)
        m = self.sides[0].shape[2]
        room = self.candidates.room(2 * (last - first) * q.per_tick * q.w)
        ticks, side, radius = (q.w, q.per_tick, first, last), self.side, self.radius
        (left, right), (a, b) = self.sides, self.windows
        limits = (q.limit, q.need(m), q.least(m))
        n = grid(
            left, right, *ticks, limits[0], limits[1], limits[2], side, a, b, radius, room[0], room[1], room[2], counts
        )
        return self.candidates.found(n, counts)


class _Candidates:
    """The pairs in the windows that are answers, from run to run."""

    def __init__(self) -> None:
        self.standing = np.empty((0, 2), np.int64)

    def room(self, most: int) -> tuple[NDArray[np.int64], int, NDArray[np.int64]]:
        """The candidates with room for more, how many there are, and room for what is found."""
        n = len(self.standing)
        pairs = np.empty((n + most, 2), np.int64)
        pairs[:n] = self.standing
        self._pairs, self._new = pairs, np.empty((most, 3), np.int64)
        return pairs, n, self._new

    def found(self, n: tuple[int, int], counts: NDArray[np.int64]) -> Found:
        self.standing = self._pairs[: n[1]].copy()
        left, right, close = (self._new[: n[0], k].copy() for k in range(3))
        return Found(left, right, close, dict(zip(_NAMES, counts.tolist(), strict=True)))


def _flat(sides: Sides) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return np.ascontiguousarray(sides[0].samples), np.ascontiguousarray(sides[1].samples)


@kernel
def _dropped(pairs: NDArray[np.int64], n: int, left_floor: int, right_floor: int) -> int:
    """Candidates without those that contain an object that expired."""
    kept = 0
    for i in range(n):
        if pairs[i, 0] >= left_floor and pairs[i, 1] >= right_floor:
            pairs[kept, 0] = pairs[i, 0]
            pairs[kept, 1] = pairs[i, 1]
            kept += 1
    return kept


@kernel
def judge(
    left: Floats,
    right: Floats,
    side: int,
    number: int,
    others: Ints,
    limit2: float,
    need: int,
    least: float,
    upper: Floats,  # how many samples of a partner may be close to one: all
    scratch: NDArray[np.float64],
    out: NDArray[np.int64],
    found: int,
) -> int:
    """Eq. (2) for an arrival of a side and partners of the other; the answers go to ``out``, from ``found`` on."""
    d, m = left.shape[1], left.shape[2]
    own, partners = left.reshape(-1), right.reshape(-1)
    most, order = float(m * m), np.arange(m)
    for at in range(others.shape[0]):
        i = number if side == 0 else others[at]
        j = others[at] if side == 0 else number
        one, other = SampleRun(own, i * d * m, upper, 0, m), SampleRun(partners, j * d * m, upper, 0, m)
        close, _ = close_count(one, other, d, limit2, Open(order, m, upper, 0.0, most, least, np.inf), scratch)
        if close >= need:
            out[found, 0] = i
            out[found, 1] = j
            out[found, 2] = close
            found += 1
    return found


@kernel
def wop(
    left: Floats,  # (n, d, m)
    right: Floats,
    w: int,
    per_tick: int,
    first: int,
    last: int,
    limit2: float,
    need: int,
    least: float,  # below it a refinement ends
    pairs: NDArray[np.int64],
    standing: int,
    out: NDArray[np.int64],
    counts: Ints,
) -> tuple[int, int]:
    """Each arrival against the whole window of the other stream; how many pairs are new, how many stand."""
    upper, scratch = np.full(left.shape[2], float(left.shape[2])), np.empty(left.shape[2])
    found = 0
    for tick in range(first, last):
        end = (tick + 1) * per_tick
        floor = max(0, end - w)
        begin = max(tick * per_tick, floor)
        standing = _dropped(pairs, standing, floor, floor)
        for side in range(2):
            # A pair of one tick is found from the left.
            others = np.arange(floor, end if side == 0 else begin)
            for own in range(begin, end):
                counts[JOINED] += others.shape[0]
                counts[REFINED] += others.shape[0]
                new = judge(left, right, side, own, others, limit2, need, least, upper, scratch, out, found)
                for k in range(found, new):
                    pairs[standing, 0] = out[k, 0]
                    pairs[standing, 1] = out[k, 1]
                    standing += 1
                found = new
        counts[REPORTED] += standing
    return found, standing


@kernel
def advance(
    samples: Floats,
    w: int,
    per_tick: int,
    tick: int,
    side: float,
    own: Window,
    radius: NDArray[np.float64],
    at: NDArray[np.int64],
) -> None:
    """What a tick does to one window: objects leave, objects come, r_max follows."""
    centre, profile, objects, cells, heads, active, deque = own
    d, m = samples.shape[1], samples.shape[2]
    capacity = objects.shape[1]
    begin, end = tick * per_tick, (tick + 1) * per_tick
    floor = max(0, end - w)
    for number in range(max(0, floor - per_tick), floor):
        if objects[3, number % capacity] == number:
            take(number % capacity, d, objects, cells, heads, active)
            objects[3, number % capacity] = -1
    for number in range(max(begin, floor), end):
        slot = number % capacity
        summary(samples[number], centre[slot], profile[slot])
        radius[slot] = profile[slot, m - 1]
        put(slot, number, centre, objects, cells, heads, active, side, at)
        push_radius(deque, radius, number, capacity)
    while deque[deque[capacity] % capacity] < floor:
        deque[capacity] += 1


@kernel
def probe(
    cell: int,
    number: int,  # of the arrival
    end: int,  # partners from this number on are not asked
    own: Window,
    other: Window,
    radius: float,
    radii: Floats,
    limit: float,
    need: int,
    out: NDArray[np.int64],
    seen: int,
    counts: Ints,
) -> int:
    """The objects of one cell against an arrival: object-level, then sample-level pruning; the rest go to ``out``."""
    d = own[0].shape[1]
    capacity = own[2].shape[1]
    row = number % capacity
    left = 0
    slot = other[3][cell, d]
    while slot >= 0:
        there = slot
        slot = other[2][0, slot]
        if other[2][3, there] >= end:
            continue
        counts[PRUNED_CELLS] -= 1
        square = 0.0
        for k in range(d):
            gap = own[0][row, k] - other[0][there, k]
            square += gap * gap
        apart = math.sqrt(square)
        if apart > (limit + radius + radii[there]) * (1.0 + SLACK):
            counts[PRUNED_OBJECT] += 1
        elif sample_level(apart * (1.0 - SLACK), own[1][row], other[1][there], limit, need):
            counts[PRUNED_SAMPLE] += 1
        else:
            out[seen + left] = other[2][3, there]
            left += 1
    return left


@kernel
def grid(
    left: Floats,
    right: Floats,
    w: int,
    per_tick: int,
    first: int,
    last: int,
    limit: float,
    need: int,
    least: float,
    side: float,
    left_window: Window,
    right_window: Window,
    radius: NDArray[np.float64],  # of both windows, by slot
    pairs: NDArray[np.int64],
    standing: int,
    out: NDArray[np.int64],
    counts: Ints,
) -> tuple[int, int]:
    """USJ_Framework with Obtain_Cand_Pairs; how many pairs are new, how many stand."""
    d, m = left.shape[1], left.shape[2]
    capacity = left_window[2].shape[1]
    upper, scratch, at = np.full(m, float(m)), np.empty(m), np.empty(d, np.int64)
    near, open_ = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    group, rows, ball = np.empty(per_tick, np.int64), np.empty(per_tick, np.int64), np.empty((per_tick, d + 1))
    found = 0
    for tick in range(first, last):
        begin, end = tick * per_tick, (tick + 1) * per_tick
        floor = max(0, end - w)
        standing = _dropped(pairs, standing, floor, floor)
        advance(left, w, per_tick, tick, side, left_window, radius[0], at)
        advance(right, w, per_tick, tick, side, right_window, radius[1], at)
        begin = max(begin, floor)
        for s in range(2):
            own = left_window if s == 0 else right_window
            other = right_window if s == 0 else left_window
            before = end if s == 0 else begin  # a pair of one tick is found from the left
            largest = radius[1 - s, other[6][other[6][capacity] % capacity] % capacity]
            for i in range(end - begin):
                rows[i] = (begin + i) % capacity
            groups = grouped(own[0], radius[s], rows[: end - begin], limit + largest, group, ball)
            counts[GROUPS] += groups
            n = 0
            for i in range(end - begin):
                if i == 0 or group[i] != group[i - 1]:
                    n = visited(ball[group[i]], limit + largest, side, other[3], other[5], capacity, near)
                number = begin + i
                counts[JOINED] += before - floor
                counts[PRUNED_CELLS] += before - floor
                seen = 0
                for place in range(n):
                    mine = radius[s, rows[i]]
                    seen += probe(
                        near[place], number, before, own, other, mine, radius[1 - s], limit, need, open_, seen, counts
                    )
                counts[REFINED] += seen
                new = judge(
                    left, right, s, number, open_[:seen], limit * limit, need, least, upper, scratch, out, found
                )
                for k in range(found, new):
                    pairs[standing, 0] = out[k, 0]
                    pairs[standing, 1] = out[k, 1]
                    standing += 1
                found = new
        counts[REPORTED] += standing
    return found, standing
