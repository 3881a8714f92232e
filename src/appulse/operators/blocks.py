"""Blocks of two streams: their pairs, and of those one for each row."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import chdtr

from appulse.model.batch import Batch
from appulse.model.positions import degrees_of
from appulse.model.strings import Labels
from appulse.model.uncertainty import Gaussian
from appulse.operators.answers import NO_ANSWERS, Answers
from appulse.operators.assignment import Gains, assigned
from appulse.operators.labels import LabelNumbers
from appulse.operators.limits import limits
from appulse.operators.numbering import in_canonical_order
from appulse.operators.output import Output
from appulse.operators.partners import LEFT, notes_of
from appulse.operators.similarity_join import SimilarityJoin
from appulse.operators.whole_nearest import QuietJoin

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence

    from appulse.kernels.arrays import Flags, Floats, Ints
    from appulse.model.objects import Objects
    from appulse.operators.plan import JoinPlan

#: Whatever the times of two rows, they are in this window together.
ALWAYS = 1 << 60
# Rows of blocks that are joined together, at least; and how far computed probabilities may be off.
_AT_ONCE, _DOUBT = 1 << 14, 1e-9


@dataclass(frozen=True)
class BlockPlan:
    """Which pairs may be partners, and which of them are.

    ``span`` is the length of blocks (microseconds), 0 where each time is one. Gains are ``by`` likelihood, probability
    or distance; ``density`` of unrelated right rows is estimated block by block where it is None.
    """

    join: JoinPlan
    span: int
    by: str
    density: float | None
    greedy: bool
    most: int

    def block_of(self, time: Ints) -> Ints:
        """The number of each time's block."""
        return time // self.span if self.span else time

    def first_open(self, complete: int) -> int:
        """Rows before this are in blocks that have ended, where ticks before ``complete`` have."""
        return complete // self.span * self.span if self.span else complete


@dataclass(frozen=True)
class _Rows(Batch):
    """Rows of one stream with the number of their block, in the order of blocks."""

    rows: Objects
    block: Ints


def partners(plan: BlockPlan, streams: Sequence[Objects], counts: Counter[str]) -> Answers:
    """The pairs that are chosen, and the rows without a partner that the plan asks for, of whole blocks."""
    sides, join = _in_blocks(plan, streams), plan.join
    if join.density is not None:  # pairs that gain nothing in any block need not be looked at
        densities = np.log(_densities(plan, sides))
        join = replace(join, least_ratio=float(densities.min()))
    pairs, left, right = _pairs(join, sides, counts)
    ratio = None if pairs.ratio is None else pairs.ratio - densities[sides[0].block[left]]
    if ratio is None:
        gains = _gains(plan, pairs, _margin(sides[0].rows, left) + _margin(sides[1].rows, right))
    else:
        gains = _of_ratios(join, sides, (left, right), ratio, densities, counts)
    chosen, margin = assigned(left, right, gains, greedy=plan.greedy, most=plan.most, counts=counts)
    counts["answers"] += len(chosen)
    ours, theirs = left[chosen], right[chosen]
    found = replace(
        pairs.take(chosen),
        left_time=sides[0].rows.time[ours],
        right_time=sides[1].rows.time[theirs],
        ratio=None if ratio is None else ratio[chosen],
        margin=margin,
    )
    alone = [
        notes_of(i, side.rows.take(np.setdiff1d(np.arange(len(side)), taken)), LEFT).alone(plan.join)
        for i, (side, taken, followed) in enumerate(zip(sides, (ours, theirs), plan.join.followed, strict=True))
        if followed
    ]
    answers = [] if plan.join.how == "left_anti" else [found]
    return Answers.concat([*answers, *alone]) if answers or alone else NO_ANSWERS


def _margin(rows: Objects, at: Ints) -> Floats:
    return np.zeros(len(at)) if rows.margin is None else rows.margin[at]


def _gains(plan: BlockPlan, pairs: Answers, margins: Floats) -> Gains:
    return Gains(pairs.probability if plan.by == "probability" else plan.join.limit + margins - pairs.distance)


def _of_ratios(
    plan: JoinPlan,
    sides: Sequence[_Rows],
    pairs: tuple[Ints, Ints],
    ratio: Floats,
    densities: Floats,
    counts: Counter[str],
) -> Gains:
    """Logarithms of likelihood ratios, and what they tend to where the difference has no density."""
    lacking = np.flatnonzero(np.isnan(ratio))
    if len(lacking) == 0:
        return Gains(ratio)
    left, right = (side.rows.take(at[lacking]) for side, at in zip(sides, pairs, strict=True))
    gain, order = ratio.copy(), np.zeros(len(ratio), np.int64)
    order[lacking], logarithm = limits(plan, left, right)
    gain[lacking] = np.where(order[lacking] > 0, logarithm - densities[sides[0].block[pairs[0][lacking]]], 0.0)
    counts["without density"] += len(lacking)
    counts["infinitely likely"] += int((order > 0).sum())
    return Gains(gain, order)


def _in_blocks(plan: BlockPlan, streams: Sequence[Objects]) -> list[_Rows]:
    """The rows in canonical order, and by blocks of their groups."""
    groups, ordered = LabelNumbers(), [in_canonical_order(rows) for rows in streams]
    numbers = [groups.of(rows.group, len(rows)) for rows in ordered]
    times = [plan.block_of(rows.time) for rows in ordered]
    sizes = [len(rows) for rows in ordered]
    blocks = np.split(_ranked(np.concatenate(numbers), np.concatenate(times)), [sizes[0]])
    found = []
    for rows, own in zip(ordered, blocks, strict=True):
        order = np.argsort(own, kind="stable")
        found.append(_Rows(rows.take(order), own[order]))
    return found


def _pairs(plan: JoinPlan, sides: Sequence[_Rows], counts: Counter[str]) -> tuple[Answers, Ints, Ints]:
    """All pairs of the blocks that may be partners, and the places of their rows.

    A row travels through the join with its place for a time, and with its block for a group. Some blocks at a time do:
    a row so wide that no index is of use is looked at by all rows of a join.
    """
    names, sizes = np.unique(np.concatenate([side.block for side in sides]), return_counts=True)
    run = (np.cumsum(sizes) - 1) // _AT_ONCE
    firsts = np.flatnonzero(np.r_[True, run[1:] != run[:-1]])[: len(names)]
    places = [np.flatnonzero(_may_match(plan, i, side.rows)) for i, side in enumerate(sides)]
    asked = [side if len(at) == len(side) else side.take(at) for side, at in zip(sides, places, strict=True)]
    parts, announced = [NO_ANSWERS], False
    for first, end in zip(firsts.tolist(), [*firsts.tolist()[1:], len(names)], strict=True):
        labels = tuple(int(name).to_bytes(9, "big") for name in names[first:end].tolist())
        batches = []
        for i, (side, place) in enumerate(zip(asked, places, strict=True)):
            begin, until = np.searchsorted(side.block, [names[first], names[end - 1] + 1]).tolist()
            own = side.slice(begin, until)
            codes = Labels(np.searchsorted(names[first:end], own.block).astype(np.int32), labels)
            batches.append((i, 0, replace(own.rows, time=place[begin:until], group=codes)))
        join = (QuietJoin if announced else SimilarityJoin)(replace(plan, how="inner"), output=Output())
        parts.append(join.push(batches))
        announced |= join.estimate is not None and join.estimate.explodes
        for name, count in join.counts.items():
            counts[name] += 0 if name == "answers" else count
    found = Answers.concat([part for part in parts if len(part)] or parts[:1])
    found = found.take(np.lexsort((found.right_time, found.left_time)))
    return found, found.left_time, found.right_time


def _may_match(plan: JoinPlan, stream: int, rows: Objects) -> Flags:
    """Which rows may match any: one with errors is within epsilon of what it is sure to be at most as often.

    The sum of two errors is nowhere more likely to be near than one of them is (Anderson 1955).
    """
    if not isinstance(plan.models[stream], Gaussian) or not plan.plain or rows.spread.shape[1] != 1:
        return np.ones(len(rows), bool)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        most = chdtr(rows.d, np.square(plan.limit / rows.spread[:, 0])) * rows.mass
    return np.asarray(~(most < plan.threshold - _DOUBT))


def _ranked(number: Ints, time: Ints) -> Ints:
    """Which of the distinct pairs of number and time, in their order, each one is."""
    order = np.lexsort((time, number))
    number, time = number[order], time[order]
    first = np.r_[False, (number[1:] != number[:-1]) | (time[1:] != time[:-1])][: len(order)]
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.cumsum(first)
    return ranks


def _densities(plan: BlockPlan, sides: Sequence[_Rows]) -> Floats:
    """The density of unrelated right rows in each block: as given, or by how many the block has, and in what box."""
    n = 1 + max(int(side.block.max(initial=0)) for side in sides)
    if plan.density is not None:
        return np.full(n, plan.density)
    block = np.concatenate([side.block for side in sides])
    centre = np.concatenate([side.rows.centre for side in sides])
    order = np.argsort(block, kind="stable")
    block, centre = block[order], centre[order]
    first = np.flatnonzero(np.r_[True, block[1:] != block[:-1]])[: len(block)]
    volume = np.ones(n)
    volume[block[first]] = _volumes(plan.join, centre, first)
    number = np.bincount(sides[1].block, minlength=n)
    return np.maximum(number, 1) / volume


def _volumes(plan: JoinPlan, centre: Floats, first: Ints) -> Floats:
    """The volume of the box around the rows of each block, no side less than twice epsilon."""
    least = 2.0 * plan.epsilon
    if plan.earth is None:
        sides = np.maximum.reduceat(centre, first) - np.minimum.reduceat(centre, first)
        group, epsilon = plan.within(centre.shape[1])
        volumes: Floats = np.prod(np.maximum(sides, 2.0 * np.array(epsilon)[group]), axis=1)
        return volumes
    degrees = degrees_of(centre, plan.earth)
    radius = plan.earth.a
    low, high = np.minimum.reduceat(degrees, first), np.maximum.reduceat(degrees, first)
    south, north = np.radians(low[:, 0]), np.radians(high[:, 0])
    tall = np.maximum(radius * (north - south), least)
    middle = np.cos(0.5 * (south + north))
    wide = np.maximum(radius * np.radians(_spans(degrees[:, 1], first)) * middle, least)
    area: Floats = tall * wide
    if centre.shape[1] == 3:
        return area
    vertical = plan.epsilon if plan.vertical is None else plan.vertical
    area *= np.maximum(high[:, 2] - low[:, 2], 2.0 * vertical)
    return area


def _spans(longitude: Floats, first: Ints) -> Floats:
    """The degrees of longitude that each block spans: all around, less the widest gap."""
    block = np.repeat(np.arange(len(first)), np.diff(np.r_[first, len(longitude)]))
    around = longitude[np.lexsort((longitude, block))]
    gaps = np.diff(around, append=math.nan)
    last = np.r_[first[1:], len(longitude)] - 1
    gaps[last] = around[first] + 360.0 - around[last]
    spans: Floats = 360.0 - np.maximum.reduceat(gaps, first)
    return spans
