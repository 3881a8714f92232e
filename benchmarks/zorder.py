"""Sort-Match in two and three dimensions: sorted runs of samples in Z-order, against our operators and all pairs.

The samples of a window stand in a large and a small run, sorted by the Morton code of their cell, as those on a line
are by value. An arrival walks over the codes in the box around its samples, epsilon wider on every side, and jumps over
the stretches of codes that leave the box (BIGMIN, Tropf & Herzog 1981). In each cell its samples are within epsilon of
all of the cell, of none, or compared. Figures, of each setting, all answers compared first:

* ``of_ours_*, of_pairs_*``: time of Z-order / ours and / all pairs, compiled, with the best of a few cell sides.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from appulse.kernels.jit import kernel
from benchmarks.existence import Tuples, existence
from benchmarks.harness import arguments, report, say
from benchmarks.window_joins import Join, Result

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats, Ints

    Places = NDArray[np.float64]  # one point a row, or one coordinate a row
    # Samples and masses of arrivals, those of the others, their number a row; of each arrival the newest other row and
    # the oldest one; epsilon, the threshold, and the probability of each pair, NaN below the threshold.
    Compare = Callable[[Places, Floats, Places, Floats, int, Ints, Ints, float, float, Floats], None]

BITS = 10  # of a cell's number in one dimension
MERGE_ROWS = 64
SIDES = (2.0, 1.0, 0.5)  # sides of cells tried, in epsilons
_FEW = 2  # samples of a cell that are compared at once


@kernel
def _number(value: float, side: float) -> int:
    """The cell in one dimension; the outermost cells hold all that lies beyond them."""
    middle = float(1 << (BITS - 1))
    return int(min(max(np.floor(value / side) + middle, 0.0), 2.0 * middle - 1.0))


@kernel
def _morton(point: Floats, side: float) -> int:
    """The code of a point's cell: bit b of dimension i is bit b * d + i."""
    d = point.shape[0]
    code = 0
    for i in range(d):
        number = _number(point[i], side)
        for b in range(BITS):
            code |= ((number >> b) & 1) << (b * d + i)
    return code


@kernel
def _inside(code: int, least: int, most: int, masks: Ints) -> bool:
    inside = True
    for mask in masks:
        inside &= least & mask <= code & mask <= most & mask
    return inside


@kernel
def next_inside(code: int, least: int, most: int, masks: Ints) -> int:
    """The first code after ``code``, which is outside the box, that is inside it; a huge one if there is none."""
    d = masks.shape[0]
    best = 1 << 62
    for b in range(BITS * d - 1, -1, -1):
        bit = 1 << b
        lower = masks[b % d] & (bit - 1)
        if code & bit == 0:
            if least & bit:
                return least
            if most & bit:
                best = (least & ~lower) | bit
                most = (most & ~bit) | lower
        elif most & bit == 0:
            return best
        elif least & bit == 0:
            least = (least & ~lower) | bit
    return best


@kernel
def _add(
    x: Places, n: int, places: Places, rows: Ints, begin: int, end: int, whole: int, limit2: float, found: Ints
) -> None:
    """Add to the rows of some places how many of the first n columns of x lie within the limit, and ``whole``."""
    u, v = x[0], x[1]
    if x.shape[0] == 2:
        for at in range(begin, end):
            p, q = places[at, 0], places[at, 1]
            close = whole
            for k in range(n):
                a = u[k] - p
                b = v[k] - q
                close += a * a + b * b <= limit2
            found[rows[at]] += close
    else:
        w = x[2]
        for at in range(begin, end):
            p, q, r = places[at, 0], places[at, 1], places[at, 2]
            close = whole
            for k in range(n):
                a = u[k] - p
                b = v[k] - q
                c = w[k] - r
                close += a * a + b * b + c * c <= limit2
            found[rows[at]] += close


@kernel
def _split(x: Places, point: Floats, side: float, limit2: float, rest: Places) -> tuple[int, int]:
    """How many columns of x are within the limit of all of the point's cell, and how many of some of it: ``rest``."""
    d = x.shape[0]
    low = np.empty(3)
    high = np.empty(3)
    last = (1 << BITS) - 1
    for i in range(d):
        number = _number(point[i], side)
        corner = (number - (1 << (BITS - 1))) * side
        slack = 1e-9 * side + 1e-14 * abs(corner)
        low[i] = corner - slack if number > 0 else -np.inf
        high[i] = corner + side + slack if number < last else np.inf
    whole = 0
    some = 0
    for k in range(x.shape[1]):
        near = 0.0
        far = 0.0
        for i in range(d):
            a = low[i] - x[i, k]
            b = x[i, k] - high[i]
            gap = max(0.0, a, b)
            near += gap * gap
            reach = max(-a, -b)
            far += reach * reach
        whole += far <= limit2
        if near <= limit2 < far:
            for i in range(d):
                rest[i, some] = x[i, k]
            some += 1
    return whole, some


@kernel
def _walk(
    x: Places,
    limit: float,
    side: float,
    masks: Ints,
    codes: Ints,
    rows: Ints,
    places: Places,
    rest: Places,
    found: Ints,
) -> None:
    """Add to each row how many pairs of its samples in a run and the columns of x are close."""
    d, n = x.shape
    limit2 = limit * limit
    corner = np.empty(d)
    for i in range(d):
        corner[i] = x[i].min() - limit * (1.0 + 1e-12)
    least = _morton(corner, side)
    for i in range(d):
        corner[i] = x[i].max() + limit * (1.0 + 1e-12)
    most = _morton(corner, side)
    here = int(np.searchsorted(codes, least))
    while here < codes.shape[0] and codes[here] <= most:
        code = codes[here]
        if not _inside(code, least, most, masks):
            here += int(np.searchsorted(codes[here:], next_inside(code, least, most, masks)))
            continue
        end = here + 1
        while end < codes.shape[0] and codes[end] == code:
            end += 1
        if end - here <= _FEW:
            _add(x, n, places, rows, here, end, 0, limit2, found)
        else:
            whole, some = _split(x, places[here], side, limit2, rest)
            if whole + some > 0:
                _add(rest, some, places, rows, here, end, whole, limit2, found)
        here = end


@kernel
def _merge(
    oldest: int, codes: Ints, rows: Ints, places: Places, n: int, new_codes: Ints, new_rows: Ints, new_places: Places
) -> int:
    """Merge a run into another of n samples, without rows before ``oldest``; how many there are then."""
    kept = 0
    for at in range(n):
        if rows[at] >= oldest:
            if kept < at:
                codes[kept], rows[kept] = codes[at], rows[at]
                places[kept] = places[at]
            kept += 1
    at = kept - 1
    to = end = kept + len(new_codes)
    for k in range(new_codes.shape[0] - 1, -1, -1):
        while at >= 0 and codes[at] > new_codes[k]:
            to -= 1
            codes[to], rows[to] = codes[at], rows[at]
            places[to] = places[at]
            at -= 1
        to -= 1
        codes[to], rows[to] = new_codes[k], new_rows[k]
        places[to] = new_places[k]
    return end


@kernel
def z_order(
    own: Places,
    own_mass: Floats,
    other: Places,
    other_mass: Floats,
    k: int,
    newest: Ints,
    floor: Ints,
    limit: float,
    threshold: float,
    side: float,
    probability: Floats,
) -> None:
    """As `all_pairs`, by runs in Z-order."""
    d = own.shape[1]
    masks = np.zeros(d, np.int64)
    for b in range(BITS * d):
        masks[b % d] |= 1 << b
    room = (np.max(newest - floor) + 2 * MERGE_ROWS + 2) * k
    codes, rows, places = np.empty(room, np.int64), np.empty(room, np.int64), np.empty((room, d))
    few = MERGE_ROWS * k
    small_codes, small_rows, small_places = np.empty(few, np.int64), np.empty(few, np.int64), np.empty((few, d))
    found = np.zeros(other_mass.shape[0], np.int64)
    new_codes = np.empty(k, np.int64)
    rest = np.empty((d, k))
    n = small = linked = at = 0
    for i in range(own_mass.shape[0]):
        while linked <= newest[i]:
            if small == few:
                n = _merge(floor[i], codes, rows, places, n, small_codes, small_rows, small_places)
                small = 0
            mine = other[linked * k : (linked + 1) * k]
            for s in range(k):
                new_codes[s] = _morton(mine[s], side)
            order = np.argsort(new_codes)
            new_rows = np.full(k, linked)
            small = _merge(0, small_codes, small_rows, small_places, small, new_codes[order], new_rows, mine[order])
            linked += 1
        x = np.ascontiguousarray(own[i * k : (i + 1) * k].T)
        _walk(x, limit, side, masks, codes[:n], rows[:n], places[:n], rest, found)
        _walk(x, limit, side, masks, small_codes[:small], small_rows[:small], small_places[:small], rest, found)
        for j in range(floor[i], newest[i] + 1):
            match = (found[j] / (k * k)) * (own_mass[i] * other_mass[j])
            probability[at] = match if match >= threshold else np.nan
            found[j] = 0
            at += 1


@kernel
def all_pairs(
    own: Places,
    own_mass: Floats,
    other: Places,
    other_mass: Floats,
    k: int,
    newest: Ints,
    floor: Ints,
    limit: float,
    threshold: float,
    probability: Floats,
) -> None:
    """Each arrival against every row of the other window, all pairs of samples."""
    rows = np.repeat(np.arange(other_mass.shape[0]), k)
    found = np.zeros(other_mass.shape[0], np.int64)
    at = 0
    for i in range(own_mass.shape[0]):
        x = np.ascontiguousarray(own[i * k : (i + 1) * k].T)
        _add(x, k, other, rows, floor[i] * k, (newest[i] + 1) * k, 0, limit * limit, found)
        for j in range(floor[i], newest[i] + 1):
            match = (found[j] / (k * k)) * (own_mass[i] * other_mass[j])
            probability[at] = match if match >= threshold else np.nan
            found[j] = 0
            at += 1


@dataclass(frozen=True)
class Points(Tuples):
    """An uncertain stream in several dimensions: ``samples`` of rows, samples, coordinates."""

    def table(self, stream: int) -> pa.Table:
        """As a table, one tuple a tick; two streams take turns."""
        n, k, d = self.samples.shape
        points = pa.ListArray.from_arrays(
            pa.array(np.arange(n * k + 1, dtype=np.int32) * d), pa.array(self.samples.reshape(-1))
        )
        return pa.table(
            {
                "id": np.arange(n, dtype=np.int64),
                "ts": 2 * np.arange(n, dtype=np.int64) + stream,
                "p": self.exist,
                "samples": pa.ListArray.from_arrays(pa.array(np.arange(n + 1, dtype=np.int32) * k), points),
            }
        )


def points(rng: np.random.Generator, n: int, d: int, k: int) -> Points:
    """Places that are unit-normal, samples of deviation 0.5 around them, existence of deviation 0.1."""
    return Points(existence(rng, n, 0.1), rng.normal(size=(n, 1, d)) + rng.normal(0.0, 0.5, (n, k, d)))


def epsilon_for(rng: np.random.Generator, u: Points, v: Points, share: float = 0.01, probability: float = 0.5) -> float:
    """The epsilon at which ``share`` of all pairs of tuples match with at least ``probability``, windows apart."""
    n = 5_000
    reached = np.full(n, np.inf)
    pairs = zip(rng.integers(len(u), size=n), rng.integers(len(v), size=n), strict=True)
    for at, (i, j) in enumerate(pairs):
        distances = np.sqrt(((u.samples[i][:, None] - v.samples[j][None]) ** 2).sum(axis=2)).reshape(-1)
        needed = int(np.ceil(probability / (u.exist[i] * v.exist[j]) * len(distances) - 1e-9))
        if needed <= len(distances):
            reached[at] = np.partition(distances, needed - 1)[needed - 1]
    return float(np.sort(reached)[int(share * n)])


def ours(join: Join) -> Result:
    """As `Join.ours`, by the processor's time."""
    return join.ours(clock=time.thread_time)


def compared(join: Join, compare: Compare) -> Result:
    """As `Join.compared`, by the processor's time."""
    samples = [stream.samples.reshape(-1, stream.samples.shape[2]) for stream in (join.left, join.right)]
    return join.compared(compare, samples, samples, time.thread_time)


def sorted_runs(join: Join, cells: float) -> Result:
    """The join by Sort-Match in Z-order, cells that many epsilons wide."""
    side = cells * join.epsilon

    def compare(*asked: *tuple[Places, Floats, Places, Floats, int, Ints, Ints, float, float, Floats]) -> None:
        z_order(*asked[:-1], side, asked[-1])

    return compared(join, compare)


def measure(rng: np.random.Generator, d: int, k: int, size: int, repeats: int) -> tuple[float, float]:
    """Time of Z-order over ours and over all pairs in one setting, answers compared; prints a row of the table."""
    n = 250 + 3 * size // 2
    left, right = points(rng, n, d, k), points(rng, n, d, k)
    join = Join(left, right, epsilon_for(rng, left, right), size)
    expected = ours(join)
    tried = {cells: sorted_runs(join, cells) for cells in SIDES}
    best = min(SIDES, key=lambda cells: tried[cells].seconds)
    runs = [(sorted_runs(join, best), ours(join), compared(join, all_pairs)) for _ in range(repeats)]
    if not all(result.agrees(expected) for result in (*tried.values(), *(result for run in runs for result in run))):
        raise RuntimeError(f"answers differ: {d} dimensions, {k} samples, window {size}")
    z, mine, pairs = (median(run[who].seconds for run in runs) for who in range(3))
    say(
        f"| {d} | {k} | {size:,} | {join.epsilon:.2f} | {len(expected.pairs) / (2 * n):.1f} | {1e6 * pairs:.0f} "
        f"| {1e6 * mine:.0f} | {1e6 * z:.0f} ({best:g}) | {z / mine:.2f} | {z / pairs:.2f} |"
    )
    return z / mine, z / pairs


def warm_up() -> None:
    """Compile everything before a clock runs."""
    for d in (2, 3):
        rng = np.random.default_rng(d)
        join = Join(points(rng, 200, d, 3), points(rng, 200, d, 3), 0.7, 50)
        for run in (ours, lambda join: sorted_runs(join, 0.5), lambda join: compared(join, all_pairs)):
            run(join)


def main() -> None:
    """Measure all settings, and report."""
    asked = arguments(__doc__ or "")
    warm_up()
    figures: dict[str, float] = {}
    say(f"load {os.getloadavg()[0]:.1f}; us a tuple of the processor's time, cell sides in epsilons in brackets")
    say("| d | samples | w | epsilon | answers | all pairs | ours | Z-order (cell side) | / ours | / all pairs |")
    say("|---|---|---|---|---|---|---|---|---|---|")
    for size in (500,) if asked.quick else (500, 2_000):
        for d in (2, 3):
            for k in (10, 30):
                rng = np.random.default_rng([size, d, k])
                setting = f"d{d}_k{k}_w{size}"
                of_ours, of_pairs = measure(rng, d, k, size, 1 if asked.quick else 3)
                figures[f"of_ours_{setting}"], figures[f"of_pairs_{setting}"] = of_ours, of_pairs
    say(f"load {os.getloadavg()[0]:.1f}")
    report(figures, as_json=asked.json)


if __name__ == "__main__":
    main()
