"""A join of whole tables: in the order of cells, part by part, on several threads.

Where all rows are there from the start nothing has to be kept, no row is late, and a pair is a pair whichever of its
rows comes first. So the rows are sorted by cells, which costs less than an index, and are then read in order.
What becomes of the pairs is what `SimilarityJoin` makes of them. Where this does not apply, `WholeJoin.of` is None.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from appulse.kernels.cells import CellRows, CloseRule, Labelled, PairColumns, close_points
from appulse.kernels.grid import squared_distances
from appulse.model.room import full, room, steps
from appulse.model.workers import Workers
from appulse.operators.audit import Noted, chosen
from appulse.operators.buffers import Arena
from appulse.operators.cell_order import (
    Laid,
    PlacedRows,
    in_order,
    is_one,
    lay_out,
    limit_of,
    moved,
    near_rows,
    spread_rows,
    taken_in_order,
)
from appulse.operators.cost import Cells, Choice
from appulse.operators.estimate import Estimate
from appulse.operators.output import Output
from appulse.operators.pairs import CandidatePairs
from appulse.operators.store import TableRows
from appulse.operators.vectors import MANY_DIMENSIONS
from appulse.operators.whole_partners import PART, Found, Lines, PartnerCount

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from appulse.kernels.arrays import Floats, Ints, Whole
    from appulse.model.objects import Objects
    from appulse.model.uncertainty import Model
    from appulse.operators.answers import Answers
    from appulse.operators.similarity_join import SimilarityJoin
    from appulse.operators.store import WindowBuffer

    T = TypeVar("T")

# Rows of all tables from which on it pays; rows of a part, which alone says where parts end.
_FROM, _PART = 2_048, 1 << 16
# Farther than any two rows are apart.
_EVERYWHERE = 1e150
# Pairs that a part may be expected to have: what is done to them, one thing after the other, stays in the cache.
_PAIRS = 1 << 17
# Rows of a table that are looked at to see how many answers the join will have, and how time and space are laid out.
_SAMPLE, _RUN = 256, 16  # in runs of so many
# Pairs of a row from which on it pays to look up what stands for it beforehand.
_PLAIN_FROM = 0.5
# Pairs of a row from which on it pays to move the keys with the rows.
_MOVED_FROM = 1.0
_WORD = 8  # bytes of a place


class WholeJoin:
    """Tables, one a stream, that are held by a join and sorted by cells."""

    @staticmethod
    def of(join: SimilarityJoin, tables: Sequence[Objects], workers: Workers) -> WholeJoin | None:
        """None where a join of such a plan, or of such rows, has to take them one after the other."""
        plan = join.plan
        if not taken_in_order(plan) or len(join) or sum(map(len, tables)) < _FROM:
            return None
        counting = join.partners is not None and join.partners.counted > 0
        if plan.fewer_than and (plan.audit or not counting):
            return None
        if not all(map(len, tables)) or len({rows.d for rows in tables}) > 1 or tables[0].d >= MANY_DIMENSIONS:
            return None
        limit = limit_of(plan, tables[0].d)

        # Most tables have no extents and no groups: one array of zeros for all of them stays in the cache.
        nothing = full(max(map(len, tables)), 0)

        def given_of(one: tuple[Objects, Model]) -> TableRows:
            rows, model = one
            none = nothing[: len(rows)]
            extent = join.extents(rows, model) if limit is None else none.view(np.float64)
            return TableRows(rows, extent, none if rows.group is None else join.groups_of(rows))

        # Labels are numbered as they come.
        alone = any(rows.group is not None for rows in tables)
        given = (Workers() if alone else workers).map(given_of, list(zip(tables, plan.models, strict=True)))
        laid = lay_out(plan, [_placed(table) for table in given], plan.limit if limit is None else limit, workers)
        return None if laid is None else WholeJoin(join, given, laid, workers)

    def __init__(self, join: SimilarityJoin, tables: Sequence[TableRows], laid: Laid, workers: Workers) -> None:
        self._join, self._laid, self._workers = join, laid, workers
        done = workers.map(self._sorted, tables)
        # A column that is the same in all rows has stayed as it was.
        self._even = all(table.rows.mass is given.rows.mass for given, (table, _) in zip(tables, done, strict=True))
        self._stores = join.hold([table for table, _ in done], workers)
        self._rows = [
            CellRows(code, store.time.view, store.centre.view, store.extent.view, store.differ.view)
            for store, (_, code) in zip(self._stores, done, strict=True)
        ]
        self._per_row = self._partners = 0.0  # candidates, and rows within epsilon, by the sample
        n = range(len(tables))
        self._sides = [(0, 0)] if join.plan.self_join else list(itertools.combinations(n, 2))
        self._report()

    def answers(self, finish: Callable[[Answers], T]) -> list[T]:
        """What ``finish`` makes of the answers, part by part; where partners are counted, rows leave with theirs."""
        if self._join.plan.fewer_than:
            self._count()
            return []
        if self._per_row >= _MOVED_FROM:
            keys = self._workers.map(lambda store: store.key.settled(), self._stores)
            for store, key in zip(self._stores, keys, strict=True):
                store.key = key
        return self._parts(lambda part: self._part(part, finish))

    @property
    def two_sided(self) -> bool:
        """Whether keys are asked for nowhere but in pairs of rows of different tables."""
        plan = self._join.plan
        return not plan.self_join and plan.how == "inner" and not plan.fewer_than and not plan.audit

    def numbered(self) -> WholeJoin:
        """The same, with the places of rows in their tables for keys in answers, as words."""
        for store in self._stores:
            store.key = Arena.of(steps(len(store) + 1, _WORD), store.key.places.view(np.uint8))
        return self

    @property
    def plain(self) -> bool:
        """Whether points are within the limit or not, there is no more to a pair, and there are not far fewer pairs."""
        plan = self._join.plan
        asked = (plan.self_join, plan.how, plan.density, plan.bounded, plan.earth, plan.fewer_than)
        usual = asked == (False, "inner", None, False, None, 0)
        many = self._per_row >= _PLAIN_FROM
        return many and usual and plan.points_only and self._even

    def of_stores(self, makers: Sequence[Callable[[int, WindowBuffer], T]]) -> list[list[T]]:
        """What each maker makes of the tables, in the order of their cells, and of their numbers."""
        n = len(self._stores)
        made = self._workers.map(lambda k: makers[k // n](k % n, self._stores[k % n]), range(n * len(makers)))
        return [made[k : k + n] for k in range(0, len(made), n)]

    def points(self, labels: Sequence[Labelled], finish: Callable[[Points], T]) -> list[T]:
        """As `answers`, of a `plain` join; ``labels`` are of the rows of `stores`."""
        return self._parts(lambda part: self._points_of(part, labels, finish))

    def _parts(self, do: Callable[[_Part], tuple[list[T], Counter[str]]]) -> list[T]:
        most = PART if self._join.plan.fewer_than else _PART
        step = max(1, min(most, int(_PAIRS / max(self._per_row, 1.0))))
        parts = [
            _Part(left, right, begin, min(begin + step, len(self._rows[left].code)))
            for left, right in self._sides
            for begin in range(0, len(self._rows[left].code), step)
        ]
        done = self._workers.map(do, parts)
        for _, counts in done:
            self._join.counts.update(counts)
        return [made for several, _ in done for made in several]

    def _part(self, part: _Part, finish: Callable[[Answers], T]) -> tuple[list[T], Counter[str]]:
        join = self._join.beside()
        made: list[T] = []
        found = self._candidates(part, join.counts)
        if join.plan.audit:
            self._note(part, join)
        for pairs in found:
            answers = join.evaluate(part.left, part.right, pairs)
            if len(answers):
                made.append(finish(answers))
        if join.plan.audit:
            one, other = join.noted.open
            stores = self._stores[part.left], self._stores[part.right]
            join.audit(part.left, part.right, CandidatePairs(stores[0], one, stores[1], other, other))
        return made, join.counts

    def _count(self) -> None:
        """Count the partners of rows, pass by pass."""
        (left, right), layout = self._sides[0], self._laid.layout
        rule, _, many = self._asked(_Part(left, right, 0, PART))
        lines = [[Lines(self._strips(rim, own=own), rim) for rim in (1, layout.rim)] for own in (False, True)]
        count = PartnerCount(
            self._join.plan,
            self._join.kinds(left, right),
            (self._stores[left], self._stores[right]),
            (self._rows[left], self._rows[right]),
            rule,
            (lines[0][0], lines[0][1]),
            (lines[1][0], lines[1][1]),
            self._laid.near,
            self._partners,
            many,
        )
        for one in count.passes():

            def done(part: _Part, one: Callable[..., Found | None] = one) -> tuple[list[Found], Counter[str]]:
                counts = Counter[str]()
                found = one(part.begin, part.end, counts)
                return [] if found is None else [found], counts

            count.add(self._parts(done))

    def _strips(self, rim: int, *, own: bool) -> Ints:
        """The lines around a row, nearest first."""
        strips = self._laid.strips(rim, slot=self._laid.layout.slot > 0, own=own)
        return strips[np.argsort(np.abs(strips), kind="stable")]

    def _points_of(
        self, part: _Part, labels: Sequence[Labelled], finish: Callable[[Points], T]
    ) -> tuple[list[T], Counter[str]]:
        rule, strips, many = self._asked(part)
        sides = (self._rows[part.left], self._rows[part.right])
        own = (labels[part.left], labels[part.right])
        mass = float(self._stores[part.left].mass.view[0] * self._stores[part.right].mass.view[0])
        made, found, looked = [], 0, 0
        begin: Whole = part.begin
        while begin < part.end and mass >= self._join.plan.threshold:
            numbers, distance = room((4, many), np.int64), room(many)
            out = PairColumns(numbers[0], numbers[1], numbers[2], numbers[3], distance)
            begin, n, seen = close_points(begin, part.end, strips, rule, sides, own, out)
            looked += seen
            self._join.output.add(n)
            found += n
            if n:
                made.append(finish(Points(part.left, part.right, _first(out, n), mass)))
            elif begin < part.end:
                many *= 4
        counts = {"candidates": looked, "pruned_reach": looked - found, "refined": found, "answers": found}
        return made, Counter(counts)

    def _asked(self, part: _Part) -> tuple[CloseRule, Ints, int]:
        """Which rows are candidates, where they are, and for how many of a part there is to be room."""
        plan, windows = self._join.plan, self._join.plan.windows
        own = plan.self_join
        rule = CloseRule(
            self._laid.limit, windows[part.right], windows[part.left], own, self._laid.points, plan.check_differ
        )
        many = max(1 << 12, int((1.5 * self._per_row + 0.25) * (part.end - part.begin)))
        return rule, self._laid.strips(1, slot=False, own=own), many

    def _candidates(self, part: _Part, counts: Counter[str]) -> list[CandidatePairs]:
        """The candidates of a part."""
        sides = self._rows[part.left], self._rows[part.right]
        left, right = self._stores[part.left], self._stores[part.right]
        rule, strips, many = self._asked(part)
        found, looked = near_rows(part.begin, part.end, strips, rule, sides, many)
        counts["candidates"] += looked
        counts["pruned_reach"] += looked - sum(len(one) for one, _ in found)
        return [CandidatePairs(left, one, right, other, other) for one, other in found]

    def _close(self, pairs: CandidatePairs) -> int:
        """How many of some pairs are within epsilon, by their means."""
        means = pairs.left_store.centre.view, pairs.right_store.centre.view
        return int((squared_distances(pairs.left, pairs.right, *means) <= self._join.plan.limit**2).sum())

    def _note(self, part: _Part, join: SimilarityJoin) -> None:
        """Note the pairs that are looked at of the left rows that are audited."""
        left, right = self._rows[part.left], self._rows[part.right]
        own, some = slice(part.begin, part.end), np.zeros(part.end, bool)
        some[own] = chosen(join.plan.audit, left.time[own], left.centre[own])
        audited = np.flatnonzero(some)
        rows = CellRows(
            left.code[audited], left.time[audited], left.centre[audited], left.extent[audited], left.differ[audited]
        )
        rule, strips, _ = self._asked(part)
        rule = rule._replace(limit=_EVERYWHERE, own=False)
        found, _ = near_rows(0, len(audited), strips, rule, (rows, right), 1 << 12)
        none = np.empty(0, np.int64)
        one = np.concatenate([none, *(audited[own] for own, _ in found)])
        other = np.concatenate([none, *(theirs for _, theirs in found)])
        if join.plan.self_join:
            one, other = one[other > one], other[other > one]
        join.noted = Noted(some, one, other)

    def _sorted(self, table: TableRows) -> tuple[TableRows, Ints]:
        """The rows of a table in the order of their cells, and the codes of these."""
        code, order = self._laid.order(_placed(table))
        return _reordered(table, order), code

    def _report(self) -> None:
        """How many answers the join will have, by what some rows do, and a warning where that is too much."""
        join, plan, counts = self._join, self._join.plan, Counter[str]()
        layout = self._laid.layout
        beside = join.beside()
        beside.output = Output()
        near = answers = pairs = looked = 0.0
        for left, right in self._sides:
            n = len(self._rows[left].code)
            runs = [(p, min(p + _RUN, n)) for p in spread_rows(n, _SAMPLE // _RUN).tolist()]
            share, counts = n / sum(end - begin for begin, end in runs), Counter()
            weight = share * ((2 * layout.rim + 1) / 3.0) ** len(layout.dims)  # cells that `_candidates` leaves out
            found = [one for run in runs for one in self._candidates(_Part(left, right, *run), counts)]
            many = weight * sum(map(len, found))
            near += many
            looked += weight * counts["candidates"]
            self._per_row = max(self._per_row, many / n)
            if plan.fewer_than:
                self._partners = share / n * (1 + plan.self_join) * sum(map(self._close, found))
                continue
            answers += weight * len(beside.evaluate(left, right, CandidatePairs.concat(found))) if found else 0.0
            times = self._rows[left].time, self._rows[right].time
            pairs += _in_windows(*times, plan.windows[left], plan.windows[right], own=plan.self_join)
        rows = sum(map(len, self._stores))
        if not plan.fewer_than:
            join.announce(Estimate(rows, pairs, near, answers, _SAMPLE**2))
        product = max(1.0, float(sum(len(self._stores[i]) * len(self._stores[j]) for i, j in self._sides)))
        cells = Cells(layout.dims, self._laid.side, 0.0, self._laid.side, by_variance=False)
        choice = Choice("cells in order", rows, looked / product, near / product, {}, cells)
        for store in self._stores:
            store.choice = choice


def _first(columns: PairColumns, n: int) -> PairColumns:
    one, its, other, theirs, distance = columns
    return PairColumns(one[:n], its[:n], other[:n], theirs[:n], distance[:n])


@dataclass(frozen=True)
class Points:
    """Pairs of two streams, all of one probability."""

    left: int
    right: int
    columns: PairColumns
    probability: float


@dataclass(frozen=True)
class _Part:
    """Rows of the left table, in the order of cells, against the right table."""

    left: int
    right: int
    begin: int
    end: int


def _placed(table: TableRows) -> PlacedRows:
    return PlacedRows(table.rows.time, table.rows.centre, table.extent, table.group)


def _reordered(table: TableRows, order: Ints) -> TableRows:
    """The rows in another order, but for their keys; a column that is the same in all rows stays as it is."""
    given = table.rows
    columns = {name: getattr(given, name) for name in ("mass", "reach", "radius")}
    distinct = {id(column): column for column in columns.values()}  # reach and radius may be one
    even = {key: is_one(column) for key, column in distinct.items()}
    done: dict[str, Any] = {name: column for name, column in columns.items() if even[id(column)]}
    # Of columns without width NumPy moves every row all the same.
    wide = {"spread": given.spread, "covariance": given.covariance}
    done |= {name: column for name, column in wide.items() if all(map(is_one, column.T))}
    done["key"] = given.key
    done["time"], done["centre"] = in_order(given.time, order), in_order(given.centre, order)
    nothing: dict[str, Any] = dict.fromkeys(done)
    rows = replace(replace(given, **nothing).take(order), **done)
    extent = rows.reach if table.extent is given.reach else moved(table.extent, order)
    return TableRows(rows, extent, moved(table.group, order), order)


def _zeros(n: int) -> Floats:
    made = room(n)
    made.fill(0.0)
    return made


def _in_windows(left: Ints, right: Ints, of_left: int, of_right: int, *, own: bool) -> float:
    """How many pairs of rows are in each other's windows, by a sample; of a table with itself each pair is one."""
    gap = right[spread_rows(len(right), _SAMPLE)][None, :] - left[spread_rows(len(left), _SAMPLE)][:, None]
    met = (gap <= of_left) & (-gap <= of_right)
    if not own:
        return float(met.mean()) * len(left) * len(right)
    np.fill_diagonal(met, val=False)
    return float(met.sum()) / max(1, met.size - len(met)) * len(left) * (len(left) - 1) / 2
