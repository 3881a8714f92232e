"""Rows in the order of cells: how cells are laid out for a join, and what is near what."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from appulse.kernels.cells import (
    CellRows,
    CloseRule,
    Layout,
    cell_codes,
    close_rows,
    extremes,
    packed_order_in,
    take_triples,
    wide_order,
)
from appulse.model.room import room
from appulse.operators.pairs import farthest
from appulse.operators.plan import JoinPlan
from appulse.operators.whole_partners import joint_extents

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats, Ints, Whole
    from appulse.kernels.geodesic import Earth
    from appulse.model.workers import Workers

# Rows of a table that are looked at to see how time and space are laid out.
_SAMPLE = 256
# Cells that a row's reach is cut into where near rows come first: in few dimensions, and in more.
_FINEST, _FINER = 4, 2
# Coordinates of places, and how far out all have to be along one of them, in radii, that cells need not separate them
# by it: the ground is less than 60 degrees steep there.
_PLACED, _FACING = 3, 0.5
# A coordinate with fewer cells than this is no help.
_FEW_CELLS = 4.0
# A coordinate has at most as many cells, so that its rounding is below a billionth of one.
_MOST_CELLS = 1 << 20
_CODE_BITS = 62
# Rows larger than most others by this factor would make the cells of all as large, where these are wider by the other.
_LARGE, _WIDER = 4.0, 2.0
# Time has slots where a row would look at more rows than this without, and at so much fewer with them.
_MANY, _FEWER = 48.0, 4.0


class PlacedRows(NamedTuple):
    """When and where rows are, how far around each is looked for it, and the numbers of their groups."""

    time: Ints
    centre: Floats
    extent: Floats
    group: Ints


@dataclass(frozen=True)
class Laid:
    """The cells of a join: the bits of their codes, how far apart neighbours' codes are, and their least side.

    Rows that are not farther apart than ``near`` are in neighbouring cells. No two rows of an answer are farther apart
    than ``limit`` and their extents; ``points``: no row has one.
    """

    layout: Layout
    bits: int
    strides: Sequence[int]
    side: float
    near: float
    limit: float
    points: bool

    def order(self, rows: PlacedRows) -> tuple[Ints, Ints]:
        """The codes of the rows' cells in order, and the place of each among the rows."""
        n = len(rows.time)
        code = room(n, np.int64)
        cell_codes(self.layout, rows.centre, rows.time, rows.group, code)
        index_bits = n.bit_length()
        if self.bits + index_bits < _CODE_BITS:
            return packed_order_in(code, self.bits, index_bits, room(n, np.int64), room(n, np.int64))
        return wide_order(code, self.bits)

    def strips(self, rim: int, *, slot: bool, own: bool) -> Ints:
        """How far away the codes of lines are, up to ``rim`` to either side; ``own``: those that come later alone.

        With ``slot``, of slots of time, which come first, only neighbours are looked at.
        """
        rims = [1 if slot and k == 0 else rim for k in range(len(self.strides) - 1)]
        steps = itertools.product(*(range(-many, many + 1) for many in rims))
        found = sorted(sum(a * b for a, b in zip(step, self.strides[:-1], strict=True)) for step in steps)
        return np.array([delta for delta in found if delta >= 0 or not own], np.int64)


def near_rows(
    begin: Whole, end: Whole, strips: Ints, rule: CloseRule, sides: tuple[CellRows, CellRows], many: int
) -> tuple[list[tuple[Ints, Ints]], int]:
    """The pairs of left rows from ``begin`` to ``end`` that are candidates, and how many right rows were looked at.

    As many at a time as there is room for, which is ``many`` at first.
    """
    found, looked = [], 0
    while begin < end:
        one, other = room(many, np.int64), room(many, np.int64)
        begin, n, seen = close_rows(begin, end, strips, rule, *sides, one, other)
        looked += seen
        if n:
            found.append((one[:n], other[:n]))
        elif begin < end:
            many *= 4
    return found, looked


def taken_in_order(plan: JoinPlan) -> bool:
    """Whether a join has pairs and little else, so that its rows may be taken in the order of cells."""
    # Whatever else a plan may ask for is not known here.
    known = JoinPlan(
        plan.streams,
        plan.models,
        plan.windows,
        plan.epsilon,
        plan.threshold,
        plan.quantile,
        self_join=plan.self_join,
        check_differ=plan.check_differ,
        bounds=plan.bounds,
        grouped=plan.grouped,
        bounded=plan.bounded,
        vertical=plan.vertical,
        how=plan.how,
        density=plan.density,
        audit=plan.audit,
        fewer_than=plan.fewer_than,
        certain=plan.certain,
    )
    return plan == known and plan.closed_form


def limit_of(plan: JoinPlan, d: int) -> float | None:
    """How far apart the rows of any answer are at most; None where that is for the extents of each to say."""
    if "reach" not in plan.bounds or plan.fewer_than:
        return None
    models = plan.models
    kinds = itertools.combinations_with_replacement(models, 2) if plan.self_join else itertools.combinations(models, 2)
    away = max(farthest(plan, pair, d) for pair in kinds)
    return None if away == math.inf else away


def lay_out(plan: JoinPlan, tables: Sequence[PlacedRows], limit: float, workers: Workers) -> Laid | None:
    """Cells as wide as two rows can be apart; None where some rows are far larger than others, or far too far away."""
    ends = workers.map(_ends, tables)
    largest = [one.extent for one in ends]
    for table, most in zip(tables, largest, strict=True):
        usual = float(np.quantile(table.extent, 0.9)) if most > 0.0 else 0.0
        if most > _LARGE * usual and limit + 2.0 * most > _WIDER * (limit + 2.0 * usual):
            return None
    pair = sorted(largest * 2)[-2:]
    span = limit + (math.hypot(*pair) if plan.fewer_than and joint_extents(plan) else sum(pair))
    low, high = np.min([one.low for one in ends], axis=0), np.max([one.high for one in ends], axis=0)
    if not np.isfinite(high - low).all() or span == np.inf:
        return None
    # No two rows in reach are more than a rim of cells apart, whatever rounding does to them.
    blur = (np.maximum(np.abs(low), np.abs(high)) + span) * 4e-15
    rim = 1
    if plan.fewer_than:  # in cells of epsilon, or a few of them at least
        edge = float(blur.max())
        rim = max(
            1, min(_FINER if tables[0].centre.shape[1] > 2 else _FINEST, int((span + edge) / (plan.limit + edge)))
        )
    sides = np.maximum((span + blur) * (1.0 + 1e-8) / rim, (high - low) / _MOST_CELLS)
    many = (high - low) / sides
    if plan.earth is not None:
        many[_facing(plan.earth, low, high)] = 0.0
    dims = np.sort(np.argsort(-many, kind="stable")[:3])
    dims = dims[many[dims] >= min(_FEW_CELLS, many.max())]
    width = many[dims].astype(np.int64) + 2 * rim + 1
    slot, lines = 0, width.tolist()
    first, last = min(one.first for one in ends), max(one.last for one in ends)
    window = max(plan.windows)
    if last - first > 3 * window and _pays(tables, (rim + 0.5) * sides, window):
        slot = max(1, window)
        lines = [(last - first) // slot + 3, *lines]
    bits = math.prod([*lines, 1 + max(one.group for one in ends)]).bit_length()
    if bits > _CODE_BITS:
        return None
    strides = [math.prod(lines[k + 1 :]) for k in range(len(lines))]
    layout = Layout(dims, low[dims], 1.0 / sides[dims], width, first, slot, lines[0], rim)
    side = float(sides[dims].min())
    near = max(plan.limit, side * (1.0 - 2e-8) - float(blur.max()))
    return Laid(layout, bits, strides, side, near, limit, points=max(largest) == 0.0)


def _facing(earth: Earth, low: Floats, high: Floats) -> list[int]:
    """The coordinate that follows from the others, where all places lie on one side of the Earth."""
    above = np.maximum(low, -high)[:_PLACED]
    highest = int(above.argmax())
    return [highest] if above[highest] >= _FACING * earth.b else []


class _Ends(NamedTuple):
    """The least and greatest coordinates and times of a table, and its greatest group and extent."""

    low: Floats
    high: Floats
    first: int
    last: int
    group: int
    extent: float


def _ends(table: PlacedRows) -> _Ends:
    low, high = np.empty((2, table.centre.shape[1]))
    extremes(table.centre, low, high)
    time, group, extent = table.time, table.group, table.extent
    return _Ends(low, high, int(time.min()), int(time.max()), int(group.max()), float(extent.max()))


def _pays(tables: Sequence[PlacedRows], reach: Floats, window: int) -> bool:
    """Whether slots of time leave much less to look at than cells alone, by a sample of pairs."""
    one, other = tables[0], tables[-1]
    left, right = spread_rows(len(one.time), _SAMPLE), spread_rows(len(other.time), _SAMPLE - 1)
    near = np.ones((len(left), len(right)), bool)
    for k in range(one.centre.shape[1]):
        near &= np.abs(one.centre[left, k][:, None] - other.centre[right, k][None, :]) <= reach[k]
    apart = np.abs(one.time[left][:, None] - other.time[right][None, :])
    both = near & (apart <= 1.5 * window)
    looked = float(near.mean()) * len(other.time)
    return looked > _MANY and float(near.sum()) > _FEWER * float(both.sum())


def spread_rows(n: int, many: int) -> Ints:
    """Some rows of ``n``, evenly spread."""
    return np.unique(np.linspace(0, n - 1, many).astype(np.int64))


def in_order(column: NDArray[Any], order: Ints) -> NDArray[Any]:
    """The rows of a column in another order."""
    out = room((len(order), *column.shape[1:]), column.dtype)
    if column.shape[1:] == (3,):
        take_triples(column, order, out)
    else:
        np.take(column, order, axis=0, out=out, mode="clip")  # in another mode NumPy takes a copy
    return out


def moved(column: NDArray[Any], order: Ints) -> NDArray[Any]:
    """A column in another order; one that is the same in all rows stays as it is."""
    return column if is_one(column) else column[order]


def is_one(column: Floats | Ints) -> bool:
    """Whether all rows have the same value."""
    return bool(column[0] == column[-1]) and bool((column == column[0]).all())
