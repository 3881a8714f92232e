"""The objects of Join-iDS (Ren et al. 2019): boxes around them, what may fill their holes, and Eq. (3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels.jit import kernel
from benchmarks.ids_index import Index, hull_of, instances_of, nodes_of

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints

#: What is known of an object, see `benchmarks.ids`.
EMPTY, OBSERVED, BOXED, FILLED = range(4)
#: Sub-boxes of an object, but for the box itself.
LEVELS = 8
_SLACK = 1e-12  # of squared distances and of masses, for rounding


class Objects(NamedTuple):
    """The windows by slot: stream s has the slots from s w on, its object ``number`` the one of number modulo w."""

    row: Floats  # (slots, d), NaN where something is missing
    low: Floats  # (slots, d) the box
    high: Floats
    holes: Ints  # (slots) how many
    attribute: Ints  # (slots, holes) which
    rule: Ints  # (slots, holes)
    nodes: Ints  # (slots, holes, nodes) that the rule touches
    touched: Ints  # (slots, holes) how many
    values: Floats  # (slots, holes, 2, values) what may stand in a hole, with probabilities
    sizes: Ints  # (slots, holes) how many
    nested: Floats  # (slots, LEVELS + 1, d, 2) sub-boxes
    state: Ints
    number: Ints
    leaving: Ints  # answers that leave with the object of this number, in this slot, at the latest

    @staticmethod
    def of(slots: int, d: int, holes: int, nodes: int, values: int) -> Objects:
        """Empty windows, for objects with so many holes, nodes and values of a hole at most."""
        return Objects(
            row=np.full((slots, d), np.nan),
            low=np.zeros((slots, d)),
            high=np.zeros((slots, d)),
            holes=np.zeros(slots, np.int64),
            attribute=np.zeros((slots, holes), np.int64),
            rule=np.full((slots, holes), -1, np.int64),
            nodes=np.zeros((slots, holes, nodes), np.int64),
            touched=np.zeros((slots, holes), np.int64),
            values=np.zeros((slots, holes, 2, values)),
            sizes=np.zeros((slots, holes), np.int64),
            nested=np.zeros((slots, LEVELS + 1, d, 2)),
            state=np.zeros(slots, np.int64),
            number=np.full(slots, -1, np.int64),
            leaving=np.zeros(slots, np.int64),
        )


# --- boxes ------------------------------------------------------------------------------------------------------


@kernel
def apart(low: Floats, high: Floats, others_low: Floats, others_high: Floats, limit: float) -> bool:
    """Whether two boxes are further apart than ``limit``."""
    square = 0.0
    for k in range(low.shape[0]):
        gap = max(low[k] - others_high[k], others_low[k] - high[k], 0.0)
        square += gap * gap
    return square > limit * limit * (1.0 + _SLACK)


@kernel
def apart_in_common(row: Floats, other: Floats, limit: float) -> bool:
    """Whether the attributes that both have put them further apart than ``limit``."""
    square = 0.0
    for k in range(row.shape[0]):
        gap = row[k] - other[k]
        if not np.isnan(gap):
            square += gap * gap
    return square > limit * limit * (1.0 + _SLACK)


@kernel
def sub_boxes_apart(own: Floats, other: Floats, limit: float) -> bool:
    """Lemma 4.2 for nested sub-boxes: those whose masses suffice together, the one shrinking as the other grows."""
    for level in range(LEVELS + 1):
        mine, theirs = own[level], other[LEVELS - level]
        if apart(mine[:, 0], mine[:, 1], theirs[:, 0], theirs[:, 1], limit):
            return True
    return False


@kernel
def _nest(objects: Objects, slot: int, alpha: float) -> None:
    """Sub-boxes of an object, level l with mass above (1 - alpha)^(l / LEVELS): of instances near the mean.

    Near by the greatest difference in an attribute, so that the mass within a radius is a product over attributes.
    Levels of two objects that add up to `LEVELS` have masses whose product is above 1 - alpha. What of appendix C is
    lost is which prefixes are looked at: all, or these.
    """
    holes = objects.holes[slot]
    mean, radii, n = np.zeros(holes), np.empty(objects.sizes[slot, :holes].sum()), 0
    for hole in range(holes):
        values, weights = objects.values[slot, hole, 0], objects.values[slot, hole, 1]
        for i in range(objects.sizes[slot, hole]):
            mean[hole] += values[i] * weights[i]
        for i in range(objects.sizes[slot, hole]):
            radii[n] = abs(values[i] - mean[hole])
            n += 1
    radii.sort()
    for level in range(LEVELS + 1):
        wanted = (1.0 - alpha + 1e-9) ** (level / LEVELS) + _SLACK
        first, last = 0, n - 1  # the least radius that holds enough is among these places
        while first < last:
            middle = (first + last) // 2
            if _mass_within(objects, slot, mean, radii[middle]) > wanted:
                last = middle
            else:
                first = middle + 1
        out = objects.nested[slot, level]
        for k in range(len(out)):
            out[k, 0], out[k, 1] = objects.row[slot, k], objects.row[slot, k]
        for hole in range(holes):
            values = objects.values[slot, hole, 0, : objects.sizes[slot, hole]]
            _enclose_within(values, mean[hole], radii[first], out[objects.attribute[slot, hole]])


@kernel
def _enclose_within(values: Floats, mean: float, radius: float, out: Floats) -> None:
    """From where to where those values go that are within a radius of the mean."""
    out[0], out[1] = np.inf, -np.inf
    for x in values:
        if abs(x - mean) <= radius:
            out[0], out[1] = min(out[0], x), max(out[1], x)


@kernel
def _mass_within(objects: Objects, slot: int, mean: Floats, radius: float) -> float:
    mass = 1.0
    for hole in range(len(mean)):
        own = 0.0
        for i in range(objects.sizes[slot, hole]):
            if abs(objects.values[slot, hole, 0, i] - mean[hole]) <= radius:
                own += objects.values[slot, hole, 1, i]
        mass *= own
    return mass


# --- imputation -------------------------------------------------------------------------------------------------


@kernel
def observe(objects: Objects, slot: int, row: Floats, index: Index) -> None:
    """An object as it comes: its holes may be anything that the repository has."""
    holes = 0
    for k in range(row.shape[0]):
        objects.row[slot, k] = row[k]
        objects.low[slot, k], objects.high[slot, k] = row[k], row[k]
        if np.isnan(row[k]):
            objects.low[slot, k], objects.high[slot, k] = index.bounds[k, 0, k, 0], index.bounds[k, 0, k, 1]
            objects.attribute[slot, holes] = k
            holes += 1
    objects.holes[slot] = holes
    objects.state[slot] = OBSERVED if holes else FILLED


@kernel
def _look_up(objects: Objects, slot: int, index: Index, counts: Ints) -> None:
    """The rule of each hole, and the nodes that it touches."""
    for hole in range(objects.holes[slot]):
        k, nodes = objects.attribute[slot, hole], objects.nodes[slot, hole]
        rule, n = nodes_of(index, k, objects.row[slot], counts, nodes)
        objects.rule[slot, hole], objects.touched[slot, hole] = rule, n


@kernel
def enclose(objects: Objects, slot: int, index: Index, counts: Ints) -> None:
    """From `OBSERVED` to `BOXED`: the buckets of the histograms of a hole's nodes."""
    _look_up(objects, slot, index, counts)
    for hole in range(objects.holes[slot]):
        k, nodes = objects.attribute[slot, hole], objects.nodes[slot, hole, : objects.touched[slot, hole]]
        objects.low[slot, k], objects.high[slot, k] = hull_of(index, k, objects.rule[slot, hole], nodes)
    objects.state[slot] = BOXED


@kernel
def fetch(objects: Objects, slot: int, index: Index, alpha: float, counts: Ints) -> None:
    """From `OBSERVED` or `BOXED` to `FILLED`: instances, the box around them, and sub-boxes if alpha is not 0.

    ``counts`` gets nodes of the indexes and rows of the repository that were looked at.
    """
    if objects.state[slot] == OBSERVED:
        _look_up(objects, slot, index, counts)
    row = objects.row[slot]
    for hole in range(objects.holes[slot]):
        k, nodes = objects.attribute[slot, hole], objects.nodes[slot, hole, : objects.touched[slot, hole]]
        values = objects.values[slot, hole]
        n = instances_of(index, k, objects.rule[slot, hole], nodes, row, counts, values)
        objects.sizes[slot, hole] = n
        objects.low[slot, k], objects.high[slot, k] = values[0, 0], values[0, n - 1]
    objects.state[slot] = FILLED
    if alpha > 0.0:
        _nest(objects, slot, alpha)


@kernel
def instances(objects: Objects, slot: int) -> tuple[Floats, Floats]:
    """The product of what the holes may be: points (d, n) and weights."""
    d, n = objects.row.shape[1], 1
    for hole in range(objects.holes[slot]):
        n *= objects.sizes[slot, hole]
    points, weights = np.empty((d, n)), np.ones(n)
    for k in range(d):
        for i in range(n):
            points[k, i] = objects.row[slot, k]
    run = n  # how many instances in a row share a value of the hole
    for hole in range(objects.holes[slot]):
        size = objects.sizes[slot, hole]
        run //= size
        for i in range(n):
            at = (i // run) % size
            points[objects.attribute[slot, hole], i] = objects.values[slot, hole, 0, at]
            weights[i] *= objects.values[slot, hole, 1, at]
    return points, weights


@kernel
def probability(points: Floats, weights: Floats, others: Floats, theirs: Floats, limit2: float) -> float:
    """Eq. (3): the weight of the pairs of instances within the limit."""
    d, n, m = points.shape[0], points.shape[1], others.shape[1]
    square, total = np.empty(m), 0.0
    for i in range(n):
        for j in range(m):
            square[j] = 0.0
        for k in range(d):
            x = points[k, i]
            for j in range(m):
                gap = x - others[k, j]
                square[j] += gap * gap
        near = 0.0
        for j in range(m):
            near += theirs[j] if square[j] <= limit2 else 0.0
        total += weights[i] * near
    return total
