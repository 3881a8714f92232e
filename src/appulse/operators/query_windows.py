"""Choices of one row of each stream that lie in their windows together, for queries over several streams.

Queries are put into *lanes* by the equalities between streams that all their answers satisfy: rows are joined on those
by search in sorted order, and only what that leaves is looked up in the index of queries, with its age as an axis of
its own (Lim et al. 2006, section 5).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from appulse.queries.columns import NUMBER, Values, values_of
from appulse.queries.index import NULL
from appulse.queries.keys import keys_of
from appulse.queries.rows import TIME, Rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from appulse.kernels.arrays import Flags, Floats, Ints, Ints32
    from appulse.operators.query_match import Points
    from appulse.queries.sets import QuerySet

#: Axes that are no columns: how old a choice of rows is, in microseconds, and in rows of each stream.
AGE, LAG = "\0age", "\0lag"
_FOREVER = np.int64(1 << 62)
# Choices looked up at once.
_AT_ONCE = 1 << 20
_FEW = 16  # so many times as many rows as choices


class Sampled:
    """The samples of a stream's rows, each column of which is read once."""

    def __init__(self, points: Points) -> None:
        self.columns, self.n, self.weight, self.time = points.columns, points.n, points.weight, points.time
        self.owner = np.arange(points.n) if points.owner is None else points.owner
        self._keys: dict[str, Ints] = {}
        self._values: dict[str, Values] = {}

    def keys(self, name: str) -> Ints:
        """The keys of a column."""
        if name not in self._keys:
            self._keys[name] = keys_of(self.columns[name])
        return self._keys[name]

    def values(self, name: str) -> Values:
        """The values of a column."""
        if name not in self._values:
            self._values[name] = values_of(self.columns[name])
        return self._values[name]


class StreamView:
    """The rows of one stream as windows of one kind see them, by their samples.

    Of each row are given its ``tick``, its ``group``, and its ``rank`` among rows of one tick: in this order rows are
    numbered, from 0 in each group. ``there`` are the rows that may be chosen, ``fresh`` those of them that could not
    be chosen before.
    """

    def __init__(
        self,
        samples: Sampled,
        tick: Ints,
        group: Ints,
        rank: Ints,
        there: Flags | None = None,
        fresh: Flags | None = None,
    ) -> None:
        self.samples, self.n, self.weight, self.owner = samples, samples.n, samples.weight, samples.owner
        self.rows = len(tick)
        self._order = order = np.lexsort((rank, tick, group))
        self._ticks, self._groups = tick[order], group[order]
        starts = np.flatnonzero(np.append(True, np.diff(self._groups) != 0)) if len(tick) else np.empty(0, np.int64)
        number = np.empty(len(tick), np.int64)
        number[order] = np.arange(len(tick)) - np.repeat(starts, np.diff(np.append(starts, len(tick))))
        self.tick, self.group, self.number = tick[self.owner], group[self.owner], number[self.owner]
        there = np.ones(len(tick), bool) if there is None else there
        self._there, self.there = there[order], there[self.owner]
        self.fresh = self.there if fresh is None else fresh[self.owner]

    def leaves(self, length: int, *, rows: bool) -> Ints:
        """The last tick at which each sample's row is in its window, of so many microseconds or rows."""
        if not rows:
            return self.tick + min(length, int(_FOREVER) // 2)
        here = np.arange(len(self._order))
        there = np.minimum(here + length, len(here) - 1)
        pushed = (here + length < len(here)) & (self._groups[here] == self._groups[there])
        out = np.empty(len(here), np.int64)
        out[self._order] = np.where(pushed, self._ticks[there] - 1, _FOREVER)
        return out[self.owner]

    def newest(self, length: int) -> Flags:
        """The rows than which fewer than ``length`` newer ones are there, in their group."""
        first, last = (np.searchsorted(self._groups, self._groups, side=side) for side in ("left", "right"))
        there = np.append(0, np.cumsum(self._there))
        kept = np.empty(len(self._order), bool)
        kept[self._order] = np.arange(len(self._order)) - first >= there[last] - there[first] - length
        return kept

    def come(self, group: Ints, tick: Ints) -> Ints:
        """How many rows of a group there are up to a tick."""
        return _search(self._groups, self._ticks, group, tick, side="right") - np.searchsorted(self._groups, group)


@dataclass(frozen=True)
class Equality:
    """Two columns, each of a stream by number, that are equal."""

    left: tuple[int, str]
    right: tuple[int, str]


@dataclass(frozen=True)
class Wanted:
    """What choices a lane is about: equal columns, and the longest window of its queries, in microseconds or rows."""

    number: int
    equalities: tuple[Equality, ...]
    length: tuple[int, ...]
    rows: bool


class Choices(Rows):
    """Choices of rows, one of each stream, as queries read them."""

    def __init__(
        self, sides: Sequence[StreamView], names: Mapping[str, tuple[int, str]], wanted: Wanted, at: Sequence[Ints]
    ) -> None:
        super().__init__({})
        self._sides, self._names, self._wanted, self.at, self.lane = sides, names, wanted, at, wanted.number

    @cached_property
    def _tick(self) -> Ints:
        tick: Ints = np.maximum.reduce([side.tick[at] for side, at in zip(self._sides, self.at, strict=True)])
        return tick

    @cached_property
    def _time(self) -> Ints:
        time: Ints = np.maximum.reduce([side.samples.time[at] for side, at in zip(self._sides, self.at, strict=True)])
        return time

    def keys(self, name: str) -> Ints:
        """The key of every choice, be it of a column, of its age or of its newest row's time."""
        if name == TIME:
            return self._time
        what, _, stream = name.partition(":")
        if what in (AGE, LAG):
            if (what == LAG) != self._wanted.rows:
                return np.full(len(self.at[0]), NULL)
            of = range(len(self._sides)) if not stream else [int(stream)]
            ages: Ints = np.maximum.reduce([self._age(i) for i in of])
            return ages
        stream_number, column = self._names[name]
        return self._sides[stream_number].samples.keys(column)[self.at[stream_number]]

    def values(self, name: str, rows: Ints32) -> Values:
        """The values of some choices."""
        stream, column = self._names[name]
        return self._sides[stream].samples.values(column).take(self.at[stream][rows])

    def whole(self, name: str) -> Values:
        """The values of every choice."""
        stream, column = self._names[name]
        return self._sides[stream].samples.values(column).take(self.at[stream])

    def _age(self, stream: int) -> Ints:
        side, at = self._sides[stream], self.at[stream]
        if not self._wanted.rows:
            age: Ints = self._tick - side.tick[at]
            return age
        newer: Ints = side.come(side.group[at], self._tick) - side.number[at]
        return newer


def choices(sides: Sequence[StreamView], wanted: Wanted) -> Iterator[list[Ints]]:
    """Rows of each stream that are in their windows together and equal where they have to be, some at a time.

    Each has a fresh row; it is found by the first stream that has one in it, so once.
    """
    leaves = [side.leaves(length, rows=wanted.rows) for side, length in zip(sides, wanted.length, strict=True)]
    for first, side in enumerate(sides):
        open_to = [other.there & ~other.fresh if i < first else other.there for i, other in enumerate(sides)]
        if side.fresh.any() and all(mask.any() for mask in open_to):
            order = _order_from(first, len(sides), wanted.equalities)
            yield from _grown(sides, leaves, wanted, order, open_to, {first: np.flatnonzero(side.fresh)})


def _order_from(first: int, streams: int, equalities: Sequence[Equality]) -> list[int]:
    """The streams, each after one that it has to be equal to, where there is one."""
    order = [first]
    linked = {(one, other) for e in equalities for one, other in ((e.left[0], e.right[0]), (e.right[0], e.left[0]))}
    while len(order) < streams:
        left = [stream for stream in range(streams) if stream not in order]
        order.append(next((s for s in left if any((s, known) in linked for known in order)), left[0]))
    return order


def _grown(
    sides: Sequence[StreamView],
    leaves: Sequence[Ints],
    wanted: Wanted,
    order: Sequence[int],
    open_to: Sequence[Flags],
    at: dict[int, Ints],
) -> Iterator[list[Ints]]:
    """Choices of some streams, each with the rows of the next that go with it."""
    if len(at) == len(sides):
        yield [at[i] for i in range(len(sides))]
        return
    following = order[len(at)]
    partners = _partners(sides, leaves, wanted, open_to, at, following)
    begin = 0
    while begin < len(partners.total):
        before = partners.total[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(partners.total, before + _AT_ONCE, side="right")))
        if partners.total[end - 1] > before:
            chosen, rows = partners.of(np.arange(before, partners.total[end - 1]))
            grown = {i: given[chosen] for i, given in at.items()}
            yield from _grown(sides, leaves, wanted, order, open_to, {**grown, following: rows})
        begin = end


def drawn(
    sides: Sequence[StreamView], wanted: Wanted, random: np.random.Generator, most: int
) -> Iterator[tuple[float, list[Ints]]]:
    """Of the choices that `choices` gives some, at most so many at a time, and how many each of them stands for."""
    leaves = [side.leaves(length, rows=wanted.rows) for side, length in zip(sides, wanted.length, strict=True)]
    for first, side in enumerate(sides):
        open_to = [other.there & ~other.fresh if i < first else other.there for i, other in enumerate(sides)]
        fresh = np.flatnonzero(side.fresh)
        if not (len(fresh) and all(mask.any() for mask in open_to)):
            continue
        some = fresh if len(fresh) <= most else np.sort(random.choice(fresh, most, replace=False))
        weight, at = len(fresh) / len(some), {first: some}
        for following in _order_from(first, len(sides), wanted.equalities)[1:]:
            partners = _partners(sides, leaves, wanted, open_to, at, following)
            total = int(partners.total[-1])
            picked = np.arange(total) if total <= most else np.sort(random.integers(total, size=most))
            weight *= total / max(1, len(picked))
            chosen, rows = partners.of(picked)
            at = {**{i: given[chosen] for i, given in at.items()}, following: rows}
            if not total:
                break
        else:
            yield weight, [at[i] for i in range(len(sides))]


@dataclass(frozen=True)
class _Partners:
    """The rows of the next stream that go with choices of others: how many with those up to each, and which."""

    total: Ints
    count: Ints
    first: Ints
    placed: Ints

    def of(self, numbers: Ints) -> tuple[Ints, Ints]:
        """The choices and rows of pairs by number, in the order of choices."""
        chosen = np.searchsorted(self.total, numbers, side="right")
        place = numbers - (self.total - self.count)[chosen]
        return chosen, self.placed[self.first[chosen] + place]


def _partners(
    sides: Sequence[StreamView],
    leaves: Sequence[Ints],
    wanted: Wanted,
    open_to: Sequence[Flags],
    at: Mapping[int, Ints],
    following: int,
) -> _Partners:
    side = sides[following]
    placed = np.flatnonzero(open_to[following])
    links = _links(sides, wanted, at, following)
    if _FEW * len(links[0][0].valid) < len(placed):  # what meets none of a few choices need not be put in order
        for given, own in links:
            placed = placed[_among(given, own.take(placed))]
    codes, mine = _codes([(given, own.take(placed)) for given, own in links])
    newest = np.maximum.reduce([sides[i].tick[rows] for i, rows in at.items()])
    until = np.minimum.reduce([leaves[i][rows] for i, rows in at.items()])
    # Within a group rows leave in the order in which they came: what goes with a choice stands side by side.
    order = np.lexsort((side.number[placed], side.tick[placed], mine))
    order = order[mine[order] >= 0]
    placed, mine = placed[order], mine[order]
    first = _search(mine, leaves[following][placed], codes, newest, side="left")
    last = _search(mine, side.tick[placed], codes, until, side="right")
    count = np.where(codes >= 0, np.maximum(last - first, 0), 0)
    return _Partners(np.cumsum(count), count, first, placed)


def _search(codes: Ints, values: Ints, of: Ints, value: Ints, *, side: str) -> Ints:
    """Where a value would stand among those of its code; both are in order, the values within their code."""
    known = np.unique(values)
    span = np.int64(len(known) + 1)
    ranks = np.searchsorted(known, values)
    if side == "left":
        asked = np.searchsorted(known, value, side="left")
        found: Ints = np.searchsorted(codes * span + ranks, of * span + asked, side="left")
    else:
        asked = np.searchsorted(known, value, side="right")
        found = np.searchsorted(codes * span + ranks, of * span + asked, side="left")
    return found


def _links(
    sides: Sequence[StreamView], wanted: Wanted, at: Mapping[int, Ints], following: int
) -> list[tuple[Values, Values]]:
    """What has to be equal, of choices and of the next stream's rows: their groups, and the columns of equalities."""
    known, rows = next(iter(at.items()))
    links = [(_whole(sides[known].group[rows]), _whole(sides[following].group))]
    for equality in wanted.equalities:
        for (one, column), (other, theirs) in ((equality.left, equality.right), (equality.right, equality.left)):
            if other == following and one in at:
                given = sides[one].samples.values(column).take(at[one])
                links.append((given, sides[following].samples.values(theirs)))
    return links


def _whole(numbers: Ints) -> Values:
    return Values(NUMBER, numbers, np.ones(len(numbers), bool))


def _among(given: Values, own: Values) -> Flags:
    """Which of a stream's rows have a value that some choice has, too."""
    wanted, values = _comparable(given, own)
    wanted = np.unique(wanted[given.valid])
    if not len(wanted):
        return np.zeros(len(values), bool)
    nearest = np.minimum(np.searchsorted(wanted, values), len(wanted) - 1)
    found: Flags = own.valid & (wanted[nearest] == values)
    return found


def _codes(links: Sequence[tuple[Values, Values]]) -> tuple[Ints, Ints]:
    """Numbers of what has to be equal, of choices and of the next stream's rows; -1 where there is no value."""
    size = len(links[0][0].valid)
    codes = np.zeros(size + len(links[0][1].valid), np.int64)
    valid = np.ones(len(codes), bool)
    for given, own in links:
        found = np.unique(np.concatenate(_comparable(given, own)), return_inverse=True)[1]
        codes = np.unique(codes * (int(found.max(initial=0)) + 1) + found, return_inverse=True)[1]
        valid &= np.concatenate([given.valid, own.valid])
    codes = np.where(valid, codes, -1)
    return codes[:size], codes[size:]


def _comparable(left: Values, right: Values) -> tuple[NDArray[Any], NDArray[Any]]:
    """Two columns of values as one type, equal where they are; whole numbers too large for doubles may be so, too."""
    if left.data.dtype == right.data.dtype:
        return left.data, right.data
    return left.data.astype(np.float64), right.data.astype(np.float64)


class Streams(Protocol):
    """The rows of some streams."""

    def sides(self, *, counted: bool) -> list[StreamView]:
        """As windows in rows see them, if rows are ``counted``, or as windows in time do."""


@dataclass(frozen=True)
class Joined:
    """Choices of rows, one array a stream, the query each satisfies by slot, and with what probability."""

    rows: list[Ints]
    slot: Ints32
    probability: Floats


def match_choices(
    queries: QuerySet,
    shown: Streams,
    names: Mapping[str, tuple[int, str]],
    lanes: Sequence[Wanted],
    threshold: float | None,
) -> Joined:
    """The choices of rows in their windows that satisfy queries with a probability of at least ``threshold``.

    ``shown`` tells the streams' rows as windows of one kind see them.
    """
    queries.tidy()
    sides = shown.sides(counted=False)
    certain = all(side.weight is None for side in sides)
    rows: list[list[Ints]] = [[np.empty(0, np.int64)] for _ in sides]
    slots, weights = [np.empty(0, np.int32)], [np.empty(0)]
    for wanted in lanes:
        sides = shown.sides(counted=wanted.rows)
        for at in choices(sides, wanted):
            found, slot = queries.match(Choices(sides, names, wanted, at), len(at[0]), counted=certain)
            for i, side in enumerate(sides):
                own = at[i][found]
                rows[i].append(own if side.weight is None else side.owner[own])
            slots.append(slot)
            if not certain:
                chosen = [
                    side.weight[own[found]] for side, own in zip(sides, at, strict=True) if side.weight is not None
                ]
                weights.append(np.multiply.reduce(chosen))
    slot = np.concatenate(slots)
    weight = np.ones(len(slot)) if certain else np.concatenate(weights)
    joined = Joined([np.concatenate(parts) for parts in rows], slot, weight)
    if certain:
        return joined
    summed = _summed(joined, threshold)
    queries.count(summed.slot)  # rows, not their samples
    return summed


def _summed(joined: Joined, threshold: float | None) -> Joined:
    """Choices of samples put together into choices of rows."""
    columns = [*joined.rows, joined.slot.astype(np.int64)]
    order = np.lexsort(columns[::-1])
    changes = [np.diff(column[order]) != 0 for column in columns]
    first = np.flatnonzero(np.append(True, np.logical_or.reduce(changes))) if len(order) else order
    probability = np.add.reduceat(joined.probability[order], first) if len(order) else joined.probability
    stays = probability >= threshold if threshold is not None else probability > 0.0
    kept = order[first[stays]]
    return Joined([column[kept] for column in joined.rows], joined.slot[kept], np.minimum(probability[stays], 1.0))
