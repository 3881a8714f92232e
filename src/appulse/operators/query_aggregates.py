"""Count, sum, mean, deviation and quantiles over the choices of rows that satisfy a query, in its windows at each tick.

Counts and sums of what may or may not be are expected ones: the sum of expectations, however choices share rows. A mean
is no such sum: it is taken over worlds (`expected_means`), where one stream at most is uncertain. Deviations and
quantiles are of choices that are certain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels.exact_sums import deviations
from appulse.kernels.means import expected_means
from appulse.kernels.ordered_runs import certain_quantiles
from appulse.model.batch import Batch
from appulse.operators.percentiles import PERCENTILES, share_of
from appulse.operators.query_windows import Choices, choices

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from appulse.kernels.arrays import Floats, Ints, Ints32
    from appulse.operators.query_windows import StreamView, Wanted
    from appulse.queries.sets import QuerySet


COUNT, SUM, MEAN = "count", "sum", "mean"
#: Those of choices that are certain.
OF_CERTAIN = frozenset({"std", "median", *PERCENTILES})
#: Those that there are only where a choice has a value.
CONDITIONAL = frozenset({MEAN, *OF_CERTAIN})
AGGREGATES = (COUNT, SUM, MEAN, "std", "median", *PERCENTILES)
# Choices at ticks that are put together at once.
_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class QueryAggregate:
    """An aggregate: what it is called, which one it is, and over which column, named as conditions do."""

    name: str
    aggregate: str
    column: str | None = None


@dataclass(frozen=True)
class Aggregated(Batch):
    """Queries by slot, at a tick of a group: of each aggregate the values, and the probability that there is one."""

    slot: Ints32
    group: Ints
    tick: Ints
    values: list[list[Floats]]


@dataclass(frozen=True)
class _Found(Batch):
    """Choices of samples, the query each satisfies, from which tick on and until which it stands."""

    at: list[Ints]
    slot: Ints32
    since: Ints
    until: Ints


def aggregate_choices(
    queries: QuerySet,
    sides: Sequence[StreamView],
    names: Mapping[str, tuple[int, str]],
    lanes: Sequence[Wanted],
    lengths: Sequence[tuple[int, ...]],
    asked: Sequence[QueryAggregate],
    since: int,
) -> Aggregated:
    """The aggregates at ticks from ``since`` on; ticks at which nothing can match report nothing.

    ``lengths`` are the windows that queries have, by their label in the set.
    """
    queries.tidy()
    ticks = _Ticks(sides, since)
    parts = list(_standing(queries, sides, names, lanes, lengths, since))
    if not sum(map(len, parts)):
        empty = np.empty(0, np.int64)
        return Aggregated(np.empty(0, np.int32), empty, empty, [[np.empty(0), np.empty(0)] for _ in asked])
    found = _Found.concat(parts)
    found = found.take(np.argsort(found.slot, kind="stable"))
    first, last = ticks.of(sides[0].group[found.at[0]], found.since, found.until)
    done = [
        _in_cells(sides, names, found.take(mine), first[mine], last[mine], ticks, asked)
        for mine in _blocks(found.slot, last - first)
    ]
    return Aggregated.concat(done)


class _Ticks:
    """The ticks of each group from some time on, as numbers in order of group and time."""

    def __init__(self, sides: Sequence[StreamView], since: int) -> None:
        group = np.concatenate([side.group[side.there & (side.tick >= since)] for side in sides])
        tick = np.concatenate([side.tick[side.there & (side.tick >= since)] for side in sides])
        self._known, rank = np.unique(tick, return_inverse=True)
        self._span = len(self._known) + 1
        self.codes = np.unique(group * self._span + rank)

    @property
    def group(self) -> Ints:
        return self.codes // self._span

    @property
    def tick(self) -> Ints:
        return self._known[self.codes % self._span]

    def of(self, group: Ints, since: Ints, until: Ints) -> tuple[Ints, Ints]:
        """The first tick of a group from a time on, and the first one after another time."""
        begin = group * self._span + np.searchsorted(self._known, since)
        end = group * self._span + np.searchsorted(self._known, until, side="right")
        return np.searchsorted(self.codes, begin), np.searchsorted(self.codes, end)


def _standing(
    queries: QuerySet,
    sides: Sequence[StreamView],
    names: Mapping[str, tuple[int, str]],
    lanes: Sequence[Wanted],
    lengths: Sequence[tuple[int, ...]],
    since: int,
) -> Iterator[_Found]:
    """The choices that satisfy queries, and stand at some time from ``since`` on."""
    leaves: dict[tuple[int, int, bool], Ints] = {}
    for wanted in lanes:
        for at in choices(sides, wanted):
            found, slot = queries.match(Choices(sides, names, wanted, at), len(at[0]), counted=False)
            own = [rows[found] for rows in at]
            tick = np.maximum.reduce([side.tick[rows] for side, rows in zip(sides, own, strict=True)])
            until = np.empty(len(slot), np.int64)
            label = queries.labels[slot]
            for number in np.unique(label).tolist():
                mine = np.flatnonzero(label == number)
                ends = []
                for i, length in enumerate(lengths[number]):
                    key = i, length, wanted.rows
                    if key not in leaves:
                        leaves[key] = sides[i].leaves(length, rows=wanted.rows)
                    ends.append(leaves[key][own[i][mine]])
                until[mine] = np.minimum.reduce(ends)
            stays = np.flatnonzero(until >= since)
            yield _Found(own, slot, tick, until).take(stays)


def _blocks(slot: Ints32, ticks: Ints) -> Iterator[Ints]:
    """Choices in parts that are not too large, those of one query together."""
    ends = np.append(np.flatnonzero(np.diff(slot) != 0) + 1, len(slot)) if len(slot) else np.empty(0, np.int64)
    total = np.append(0, np.cumsum(ticks))
    begin = 0
    for i, end in enumerate(ends.tolist()):
        if i + 1 == len(ends) or total[ends[i + 1]] - total[begin] > _AT_ONCE:
            yield np.arange(begin, end)
            begin = end


def _in_cells(
    sides: Sequence[StreamView],
    names: Mapping[str, tuple[int, str]],
    found: _Found,
    first: Ints,
    last: Ints,
    ticks: _Ticks,
    asked: Sequence[QueryAggregate],
) -> Aggregated:
    """What choices add up to in each cell: a query at a tick."""
    count = np.maximum(last - first, 0)
    chosen = np.repeat(np.arange(len(count)), count)
    code = np.arange(len(chosen)) - np.repeat(np.cumsum(count) - count, count) + first[chosen]
    cells, cell = np.unique(found.slot[chosen].astype(np.int64) * len(ticks.codes) + code, return_inverse=True)
    slot, code = np.divmod(cells, len(ticks.codes))
    weight = np.ones(len(found.slot))
    for side, rows in zip(sides, found.at, strict=True):
        if side.weight is not None:
            weight *= side.weight[rows]
    values = []
    for one in asked:
        valid, value = np.ones(len(found.slot), bool), np.ones(len(found.slot))
        if one.column is not None:
            stream, column = names[one.column]
            known = sides[stream].samples.values(column)
            at = found.at[stream]
            valid = known.valid[at]
            value = np.where(valid, known.data[at], 0).astype(np.float64)
        if one.aggregate == MEAN:
            values.append(
                _means(sides, found.at, chosen[valid[chosen]], cell[valid[chosen]], value, weight, len(cells))
            )
        elif one.aggregate in OF_CERTAIN:
            kept = valid[chosen]
            values.append(_spreads(one.aggregate, cell[kept], value[chosen[kept]], len(cells)))
        else:
            total = np.bincount(cell, weights=(weight * value)[chosen], minlength=len(cells)).astype(np.float64)
            values.append([total, np.ones(len(cells))])
    return Aggregated(slot.astype(np.int32), ticks.group[code], ticks.tick[code], values)


def _means(
    sides: Sequence[StreamView],
    at: Sequence[Ints],
    chosen: Ints,
    cell: Ints,
    value: Floats,
    weight: Floats,
    cells: int,
) -> list[Floats]:
    """The mean in each cell given that there is one, and the probability that there is."""
    mean, exists = np.full(cells, np.nan), np.zeros(cells)
    uncertain = [i for i, side in enumerate(sides) if side.weight is not None]
    if not uncertain:
        number = np.bincount(cell, minlength=cells)
        total = np.bincount(cell, weights=value[chosen], minlength=cells)
        there = number > 0
        mean[there], exists[there] = total[there] / number[there], 1.0
        return [mean, exists]
    sample = at[uncertain[0]][chosen]
    order = np.lexsort((sample, cell))
    cell, sample, chosen = cell[order], sample[order], chosen[order]
    changes = (np.diff(cell) != 0) | (np.diff(sample) != 0)
    first = np.flatnonzero(np.append(True, changes)) if len(cell) else np.empty(0, np.int64)
    if not len(first):
        return [mean, exists]
    number = np.diff(np.append(first, len(cell)))
    summed: Floats = np.add.reduceat(value[chosen], first).astype(np.float64)
    row = sides[uncertain[0]].owner[sample[first]]
    there = np.unique(cell[first])
    mean[there], exists[there] = expected_means(cell[first], row, number, summed, weight[chosen[first]])
    return [mean, exists]


def _spreads(aggregate: str, cell: Ints, value: Floats, cells: int) -> list[Floats]:
    """The deviation, or a quantile, of the values in each cell, and whether there is one."""
    order = np.argsort(cell, kind="stable")
    ends = np.searchsorted(cell[order], np.arange(cells), side="right")
    begins, found = np.append(0, ends[:-1])[:cells], np.empty(cells)
    share = share_of(aggregate)
    if share is None:
        deviations(begins, ends, value[order], found)
    else:
        certain_quantiles(begins, ends, value[order], *share, found)
    return [found, (~np.isnan(found)).astype(np.float64)]
