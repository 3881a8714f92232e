"""Rows that nothing can match are not filled: where whole frames are joined, and their boxes tell.

The box of an incomplete row comes from the index of its imputer alone: its observed attributes as they are, and around
what may stand in its holes the least and greatest of the nodes it touches. A row whose box lies farther than epsilon
from those of all rows that may share a window with it is in no answer, whatever fills it, and stands in the windows as
one point of its box (Ren et al. 2019, Lemma 4.1, and the objects of section 5.2 that are not completely imputed).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeGuard

import numpy as np

from appulse.kernels.apart import meeting_boxes
from appulse.model.encode import holes_of
from appulse.model.filled import OBSERVED, Fill, Filled
from appulse.model.times import to_micros
from appulse.model.uncertainty import Exact, Incomplete

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from appulse.engines.call import JoinCall
    from appulse.model.encode import Encoding

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

# Pairs of boxes to look at, beyond which rows are just filled.
_MOST = 1 << 28


@dataclass(frozen=True)
class Boxes:
    """Boxes of a stream's rows in order of time, and how far apart in time they still meet, in microseconds."""

    time: Ints
    lows: Floats
    highs: Floats
    window: int


@dataclass
class LazyFill:
    """A fill that does not fill rows that nothing of the ``others`` can match; ``spared`` counts them."""

    whole: Boxing
    others: list[Boxes]
    limit: float
    spared: int = 0

    in_order = False

    @property
    def version(self) -> str:
        return self.whole.version

    def __repr__(self) -> str:
        return repr(self.whole)

    def told(self, way: int) -> str:
        return self.whole.told(way)

    def fill(self, values: Floats, time: Ints, group: Ints) -> Filled:
        """See `appulse.model.filled.Fill`; a row that is not filled is the middle of its box."""
        lows, highs = self.whole.boxes(values)
        wanted: NDArray[np.bool_] = np.array(~np.isnan(values).any(axis=1))
        for boxes in self.others:
            begin = np.searchsorted(boxes.time, time - boxes.window, side="left")
            end = np.searchsorted(boxes.time, time + boxes.window, side="right")
            meeting_boxes(lows, highs, time, boxes.lows, boxes.highs, begin, end, self.limit**2, wanted)
        rows, spared = np.flatnonzero(wanted), np.flatnonzero(~wanted)
        self.spared += len(spared)
        if not len(spared):
            return self.whole.fill(values, time, group)
        filled = self.whole.fill(values[rows], time[rows], group[rows])
        sizes = np.ones(len(values), np.int64)
        sizes[rows] = np.diff(filled.first)
        first = np.concatenate([[0], np.cumsum(sizes)])
        own = np.repeat(wanted, sizes)
        points, weights = np.empty((int(first[-1]), values.shape[1])), np.ones(int(first[-1]))
        points[own], weights[own] = filled.rows, filled.weights
        points[~own] = lows[spared] + 0.5 * (highs[spared] - lows[spared])
        way = np.full(values.shape, OBSERVED, np.int64)
        way[rows] = filled.way
        return Filled(first, points, weights, way)


class Boxing(Fill, Protocol):
    """A fill that can tell boxes around what it would fill in."""

    def boxes(self, values: Floats) -> tuple[Floats, Floats]:
        """Lows and highs, (n, d) each."""
        ...


def lazily(call: JoinCall, tables: Sequence[pa.Table]) -> JoinCall:
    """The call with rows filled only if something may match them, where that can be told beforehand.

    Under time windows, between streams of exact or incomplete values without conditions.
    """
    plan, encodings = call.plan, call.encodings
    known = all(isinstance(encoding.model, Exact | Incomplete) and not encoding.where for encoding in encodings)
    if not known or plan.rule is not None or plan.self_join or "lazy" not in plan.bounds:
        return call
    if not any(hasattr(encoding.fill, "boxes") for encoding in encodings):
        return call
    boxes = [_boxes(encoding, table) for encoding, table in zip(encodings, tables, strict=True)]
    if any(one is None for one in boxes) or sum(map(len, tables)) ** 2 > _MOST:
        return call
    lazy = []
    for i, encoding in enumerate(encodings):
        others = [
            replace(other, window=max(plan.windows[i], plan.windows[j]))
            for j, other in enumerate(boxes)
            if j != i and other is not None
        ]
        fill = LazyFill(encoding.fill, others, plan.limit) if is_boxing(encoding.fill) else encoding.fill
        lazy.append(replace(encoding, fill=fill))
    return replace(call, encodings=tuple(lazy))


def is_boxing(fill: Fill | None) -> TypeGuard[Boxing]:
    """Whether a fill tells boxes."""
    return hasattr(fill, "boxes")


def _boxes(encoding: Encoding, table: pa.Table) -> Boxes | None:
    """The boxes of a stream's rows, bad ones among them; None where they cannot be told."""
    if not isinstance(encoding.model, Exact | Incomplete):
        return None
    rows = holes_of(table, encoding.model)
    lows, highs = rows, rows
    if isinstance(encoding.model, Incomplete):
        if not is_boxing(encoding.fill):
            return None
        lows, highs = encoding.fill.boxes(rows)
    time = to_micros(table[encoding.time].combine_chunks(), encoding.unit)[0]
    order = np.argsort(time, kind="stable")
    return Boxes(time[order], lows[order], highs[order], 0)
