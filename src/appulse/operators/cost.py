"""What an index costs, from a sample of the rows that probe and of those held: which one to take, and until when."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.grid import UNKNOWN

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints

# Nanoseconds, measured on one machine; what counts is how they compare. A scan takes rows by SIMD and in order, a walk
# along a chain one by one and from anywhere.
_PER_ROW, _PER_LINK, _PER_CELL = 0.9, 6.0, 8.0
PROBES, ROWS = 32, 256
_GROUPS = 1024  # rows that show how many groups there are
_DRAWN = np.random.default_rng(0).random(1 << 12)  # once, for a push of few rows has no time for it
# Rows whose size exceeds that of most others by this factor would open the whole grid for everybody.
_LARGE = 4.0
# Rows to come may be a little larger than those seen.
_ROOM = 1.25
_LEAST_SIDE = 1e-300
# Coordinates are doubles. Of cells smaller than a few steps between them, a probe would have to look into hundreds for
# rounding alone, and scans all rows: a side is tried for this share of the rows each, as a few may be far away.
_STEPS, _SHARES = 2.0**-48, (0.5, 0.9, 1.0)
# The choice stands until as many rows came as this, or as half of those there are.
_LEAST_STANDING = 1024
# To change the index costs something, too.
_STEADY = 1.3


@dataclass(frozen=True)
class Probes:
    """Rows that look into an index, or a sample of them: centres (n, d), reaches, and variances along any line."""

    centre: Floats
    reach: Floats
    variance: Floats


@dataclass(frozen=True)
class Cells:
    """What a grid goes by: its dimensions, the side of its cells, and how large a row it takes.

    Rows are measured by their reach, or where that finds fewer by their variance (``by_variance``), which Cantelli's
    inequality turns into a distance. ``span`` is how far a typical probe has to look.
    """

    dims: Ints
    side: float
    cap: float
    span: float
    by_variance: bool


@dataclass(frozen=True)
class Choice:
    """The index taken, with what made it the better one.

    ``visited`` and ``near`` are shares of the rows: in the cells that a probe looks into, and near enough to it to be
    judged. ``costs`` are in nanoseconds a probe. ``rows`` is how many there were.
    """

    index: str
    rows: int
    visited: float
    near: float
    costs: dict[str, float]
    cells: Cells

    def stands(self, come: int) -> bool:
        """Whether it need not be made anew, after so many more rows."""
        return come < max(_LEAST_STANDING, self.rows // 2)


def cells_for(probes: Probes, rows: Probes, epsilon: float, spare: float, dims: Ints) -> Cells:
    """Cells of the span of a typical probe, for rows as these are."""
    by_reach = epsilon + _most(probes.reach) + _cap(rows.reach)
    variances = np.concatenate([probes.variance, rows.variance])
    if len(variances) and variances.max() < UNKNOWN:
        by_variance = epsilon + float(np.sqrt(spare * (_most(probes.variance) + _cap(rows.variance))))
        if by_variance < by_reach:
            return Cells(dims, by_variance, _cap(rows.variance), by_variance, by_variance=True)
    return Cells(dims, by_reach, _cap(rows.reach), by_reach, by_variance=False)


def same_group(group: Ints) -> float:
    """The share of the pairs of rows that are of one group, from a sample of the rows."""
    n = len(group)
    if n < 2:
        return 1.0
    some = group[spread(n, _GROUPS)]
    times = np.unique(some, return_counts=True)[1].astype(np.float64)
    return float((times * (times - 1.0)).sum() / (len(some) * (len(some) - 1.0)))


def choose(
    probes: Probes,
    rows: Probes,
    n: int,
    cells: Cells,
    epsilon: float,
    spare: float,
    held: str | None,
    same: float = 1.0,
) -> Choice:
    """Grid or scan, and how large the grid's cells: by how many rows lie in those that a probe looks into.

    ``rows`` is a sample of the ``n`` there are; ``same`` the share of the pairs in one group, as a grid looks at no
    others.
    """
    gap = np.abs(probes.centre[:, None, :] - rows.centre[None, :, :])
    costs, shares, sides = {"scan": _PER_ROW * n}, {"scan": 1.0}, {"scan": cells.side}
    far, rounded = (_STEPS * np.abs(some.centre[:, cells.dims]).max(axis=1, initial=0.0) for some in (probes, rows))
    least = [_LEAST_SIDE, *(np.quantile(rounded, _SHARES).tolist() if len(rounded) else ())]
    for name, cut in (("grid", 0.5), ("fine grid", 1.0), ("finest grid", 2.0)):
        for side in sorted({max(cells.span / cut, one) for one in least}):
            # A row is looked at if its cell meets the span: surely within it, and up to a side beyond by chance.
            inside = np.clip((cells.span + side - gap[:, :, cells.dims]) / side, 0.0, 1.0).prod(axis=2)
            share = same * float(inside.mean()) if inside.size else 0.0
            cost = _PER_LINK * share * n + _PER_CELL * (1.0 + 2.0 * cut) ** len(cells.dims)
            scanning = float((far > side).mean()) if len(far) else 0.0
            cost += scanning * (costs["scan"] - cost)
            if cost < costs.get(name, math.inf):
                costs[name], shares[name], sides[name] = cost, share, side
    best = min(costs, key=lambda name: costs[name] / (_STEADY if name == held else 1.0))
    with np.errstate(over="ignore"):  # rows without a bound on their variance are near whatever there is
        apart = np.sqrt(np.square(gap).sum(axis=2))
        near = apart <= epsilon + probes.reach[:, None] + rows.reach[None, :]
        near &= apart <= epsilon + np.sqrt(spare * (probes.variance[:, None] + rows.variance[None, :]))
    share = same * float(near.mean()) if near.size else 0.0
    return Choice(best, n, shares[best], share, costs, replace(cells, side=sides[best]))


def spread(n: int, most: int) -> slice | Ints:
    """At most so many of ``n`` places, in order: a random one of each stretch, always the same for the same numbers.

    Rows often come in turn, from one device and another: every tenth, say, could be of one of them alone.
    """
    if n <= most:
        return slice(None)
    first = np.arange(most + 1) * n // most
    return first[:-1] + (_DRAWN[:most] * np.diff(first)).astype(np.int64)


def some(values: Probes, n: int) -> Probes:
    """At most ``n`` of the rows, evenly spread."""
    at = spread(len(values.reach), n)
    return Probes(values.centre[at], values.reach[at], values.variance[at])


def _most(sizes: Floats) -> float:
    return float(np.quantile(sizes, 0.9)) if len(sizes) else 0.0


def _cap(sizes: Floats) -> float:
    """The largest size of a row that a grid takes: others would open it for everybody."""
    return min(_LARGE * _most(sizes), _ROOM * float(sizes.max())) if len(sizes) else 0.0
