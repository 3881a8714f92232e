"""Queries on their way into a set, and out of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from appulse.queries.keys import ordered_columns

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from concurrent.futures import Future

    import pyarrow as pa

    from appulse.kernels.arrays import Flags, Ints, Ints32
    from appulse.queries.columns import Values
    from appulse.queries.templates import Box, Boxes
    from appulse.queries.tree import Comparison

_MOST_APART = 16  # boxes of a query that are asked whether they are apart


@dataclass(frozen=True)
class JoinGroup:
    """Queries that only rows of one kind can satisfy: its number, and the comparisons true of all of them."""

    number: int
    known: frozenset[Comparison] = frozenset()


@dataclass(frozen=True)
class Boxed:
    """Queries of one template on their way into a set: which of the texts given, and their boxes."""

    template: int
    members: Ints
    boxes: Boxes
    lane: JoinGroup
    given: Sequence[Values]


@dataclass(frozen=True)
class Smaller:
    """What a thread makes: the texts and keys of the slots ``kept`` among the first ``size``, those not removed."""

    kept: Ints32
    size: int
    columns: Future[list[pa.Array]]


def is_product(boxes: Sequence[Box], kept: Ints, cut: Flags, normal: Collection[str], planar: Collection[str]) -> Flags:
    """Whether the probability of queries is a product over columns, or a sum of such: their boxes are apart.

    They are those ``kept``; columns are ``normal`` or not. Of two, which are ``planar``, a region may be: its mass is
    known within ranges of them where these may have ``cut`` it.
    """
    bounds = {column.name for box in boxes for column in box}
    if len(boxes) > _MOST_APART or any(set(normal) & set(ordered_columns(name) or ()) for name in bounds):
        return np.zeros(len(kept), bool)
    apart = np.ones(len(kept), bool)
    for i, a in enumerate(boxes):
        for b in boxes[:i]:
            gaps = [(a[axis][1] < b[axis][0]) | (b[axis][1] < a[axis][0]) for axis in set(a) & set(b)]
            apart &= np.logical_or.reduce([np.zeros(len(kept), bool), *(gap[kept] for gap in gaps)])
    return apart & cut if bounds & set(planar) else apart
