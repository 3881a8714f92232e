"""The similarity join: pairs within epsilon with probability at least alpha, over sliding windows.

A deterministic state machine over batches of arrivals: ``push`` answers them against the windows and puts them
there, ``apply`` only puts them there (what a worker does that catches up); ``advance`` (time windows) and ``leave``
(windows that go by rows) forget what no row can meet any more. Lian & Chen 2009, USJ_Framework.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from appulse.errors import report_exploding, warn_exploding
from appulse.kernels.grid import squared_distances
from appulse.kernels.sweep import ArrivalRows, Balls, Candidates, Cursor, PairRule, sweep
from appulse.model.batch import Batch
from appulse.model.degrees import degrees_hint
from appulse.model.uncertainty import names
from appulse.model.workers import Workers
from appulse.operators.answers import NO_ANSWERS, Answers
from appulse.operators.audit import NOTHING, Audit, Noted, in_windows
from appulse.operators.cost import Probes, spread
from appulse.operators.estimate import Estimate, estimated
from appulse.operators.few_points import FewPairsFound, FewPoints
from appulse.operators.held_pairs import leading, values_of
from appulse.operators.large_pushes import LargePush
from appulse.operators.one_dimension import matches, prepare
from appulse.operators.output import Watch, explodes
from appulse.operators.pairs import (
    CandidatePairs,
    ScoredPairs,
    by_means,
    evaluated,
    likelihood_ratios,
    pairings,
    scored,
    sorts_after_partner,
)
from appulse.operators.presence import pair_factor
from appulse.operators.vectors import close_vectors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from appulse.kernels.arrays import Flags, Floats, Ints
    from appulse.model.objects import Objects
    from appulse.model.strings import Bytes
    from appulse.model.uncertainty import Model
    from appulse.operators.arrivals import Arrivals
    from appulse.operators.presence import ExistenceTable
    from appulse.operators.running_presence import RunningPresence
    from appulse.operators.store import LineIndex, WindowBuffer
    from appulse.windows.frames import Rule

_FIRST_CAPACITY = 1 << 15
# Rows of a push from which on its output is estimated, and rows after which that is done again.
_ESTIMATED_FROM, _ESTIMATED_EVERY = 512, 100_000
_PROBES = 256  # arrivals that are looked at for what an index costs
_FEWER_SAMPLES = (
    "values=True puts out all of them. Give rows fewer samples, ask for fewer answers, or leave out values=True."
)


@dataclass
class SimilarityJoin(FewPoints):
    """The state: the windows, and how many pairs each bound decided. ``push`` takes ``(stream, lane, rows)``."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.workers = Workers()
        self.estimate: Estimate | None = None
        self._come = 0  # rows since the last estimate
        self._audit, self.noted = Audit.of_plan(self.plan, self.counts), NOTHING  # pairs of audited rows
        self._matching = Watch(0, _matching_samples, values=True)  # samples that match, of the push at hand
        self._out = (np.empty(_FIRST_CAPACITY, np.int64), np.empty(_FIRST_CAPACITY, np.int64))

    def push(
        self, batches: Sequence[tuple[int, int, Objects]], presence: Sequence[ExistenceTable | RunningPresence] = ()
    ) -> Answers:
        """Answer the rows against the windows and each other, and keep them.

        Where windows are uncertain ``presence`` has the rows that those of the batches' groups held.
        """
        if (few := self._few(batches)) is not None:
            self._come += sum(len(rows) for _, _, rows in batches)
            return few
        for i, updates in enumerate(presence):
            self._present.learn(updates, self._groups, forget=i == 0 and not self.plan.changes)
        arrivals = self._admit(batches)
        if arrivals is None:
            return NO_ANSWERS
        came = np.bincount(arrivals.store, minlength=len(self._stores)).tolist()
        if (push := LargePush.of(self, self._stores, came)) is not None:
            return self._in_cells(push, len(arrivals.time))
        self._prepare_indexes(arrivals)
        given = sum(max(len(rows), len(rows.samples) // max(1, rows.d)) for _, _, rows in batches)
        self._matching = Watch(given, _matching_samples, values=True)
        self._estimate(arrivals)
        found = []
        for own, store in enumerate(self._stores):
            found += self._sweep(own, store, arrivals)
        return Answers.concat(found)

    def _in_cells(self, push: LargePush, rows: int) -> Answers:
        """The answers of many rows; the next few find no index, and make one."""
        if self._due(rows):
            self.announce(push.estimate)
        found = push.answers()
        for store in self._stores:
            store.use_none()
            store.linked = len(store)
        return Answers.concat([NO_ANSWERS, *found])

    def push_few(self, asked: Ints, places: Sequence[Ints], many: Sequence[int]) -> FewPairsFound | None:
        """As `push`, for a few exact points by the short way; None where they have to go the general way."""
        found = super().push_few(asked, places, many)
        self._come += 0 if found is None else sum(many)
        return found

    def beside(self) -> SimilarityJoin:
        """A join of the same windows that counts for itself, for another thread."""
        other = SimilarityJoin(self.plan, self.lanes, self.ownership, output=self.output)
        other._stores, other.partners = self._stores, self.partners
        other._groups, other._differs = self._groups, self._differs
        other._audit = replace(self._audit, counts=other.counts)
        return other

    def evaluate(self, left: int, right: int, pairs: CandidatePairs) -> Answers:
        """The answers among candidates, of whole tables."""
        return self._evaluate(left, right, pairs, None)

    def audit(self, left: int, right: int, pairs: CandidatePairs) -> None:
        """Compute pairs in full that had no answer."""
        self._audit.compare(pairs, self.kinds(left, right))

    def apply(self, batches: Sequence[tuple[int, int, Objects]], presence: Sequence[ExistenceTable] = ()) -> None:
        """Keep the rows without answering: the state is then as if they had been pushed."""
        if self.plan.changes or self.remembers:  # the pairs that stand are state
            self.push(batches, presence)
            return
        arrivals = self._admit(batches)
        if arrivals is not None:
            self._prepare_indexes(arrivals)
            for store in self._stores:
                store.link_rest()

    def _prepare_indexes(self, arrivals: Arrivals) -> None:
        """Let each store's index suit the rows that will probe it."""
        for own, store in enumerate(self._stores):
            if self._by_products_of(store.d, len(arrivals.time)):
                store.use_none()
                continue
            if self._lies_on_a_line and prepare(
                store, self._stores, arrivals, self.meets[own], self.plan.index, self.plan.limit
            ):
                continue
            store.prepare_index(partial(self._probes, own, arrivals))

    def _probes(self, own: int, arrivals: Arrivals) -> Probes:
        """Some of the rows that will look for others in a store."""
        probing = np.flatnonzero((self.meets[own] | (np.arange(len(self.meets)) == own))[arrivals.store])
        probing = probing[spread(len(probing), _PROBES)]
        return Probes(arrivals.centre[probing], arrivals.extent[probing], arrivals.variance[probing])

    def _due(self, rows: int) -> bool:
        """Whether to estimate the output of a push: it is large, and there was no estimate lately."""
        self._come += rows
        if self.plan.held or rows < _ESTIMATED_FROM or (self.estimate is not None and self._come < _ESTIMATED_EVERY):
            return False
        self._come = 0
        return True

    def _estimate(self, arrivals: Arrivals) -> None:
        if not self._due(len(arrivals.time)):
            return
        self.announce(
            estimated(
                self.plan,
                self._stores,
                self._stream_of,
                self.meets,
                arrivals,
                lambda own: self._reach_of(own, arrivals),
            )
        )

    def announce(self, estimate: Estimate) -> None:
        """Keep an estimate, and warn where it says that there will be more than anybody may want."""
        self.estimate = estimate
        self.output.expected = self.estimate.answers
        if self.estimate.explodes:
            report_exploding(self.estimate.answers, self.estimate.rows, hint=self._suspected())
        elif explodes(self.estimate.pairings, self._matching.given, values=True):
            self._matching.announced = True
            warn_exploding(
                f"These {self.estimate.rows:,} rows will have about {self.estimate.answers:,.0f} answers with "
                f"{self.estimate.pairings:,.0f} matching pairs of samples, by a sample of their pairs. "
                f"{_FEWER_SAMPLES}"
            )

    def _suspected(self) -> str:
        """What may be wrong with a call that explodes."""
        if self.plan.earth is not None:
            return ""
        centres = [store.centre.view for store in self._stores if len(store)]
        least, most = (f([f(centre, axis=0) for centre in centres], axis=0) for f in (np.min, np.max))
        named = names(self.plan.models[0], centres[0].shape[1])
        return degrees_hint(named, self.plan.epsilon, least, most, exploding=True)

    @property
    def _lies_on_a_line(self) -> bool:
        """Whether every pair is of samples, in one dimension; two Gaussians among other models are not."""
        otherwise = self.plan.points_only or self.plan.some_closed_form or self.plan.by_means
        return self._stores[0].d == 1 and self.plan.plain and not otherwise

    def _rule(self, own: int) -> PairRule:
        """Which arrivals are joined with a store, and which pairs are answers."""
        return PairRule(self.meets[own], own, self.plan.check_differ, self.plan.limit, self.plan.threshold)

    def _on_a_line(self, own: int, store: WindowBuffer, index: LineIndex, arrivals: Arrivals) -> list[Answers]:
        """Where the index finds the pairs with their probabilities."""
        found, tally = [], np.zeros(3, np.int64)
        rule, (oldest, newest) = self._rule(own), self._reach_of(own, arrivals)
        asked = ArrivalRows(arrivals.store, oldest, newest, arrivals.group, arrivals.differ, arrivals.mass)
        self._note_windows(store, rule, arrivals, asked)
        for at, rows, probability in matches(index, store, arrivals, self._stores, rule, oldest, newest, tally):
            for other, close, mask in self._by_store(store, arrivals, at, rows):
                pairs, here = self._owned(close)
                exact = probability[mask][here]
                answers = self._accept(other, own, ScoredPairs(pairs, exact, exact), arrivals)
                if len(answers):
                    found.append(answers)
        for name, value in zip(("candidates", "pruned_projection", "refined"), tally.tolist(), strict=True):
            self.counts[name] += value
        self._compare(own, store, arrivals)
        return found

    def _sweep(self, own: int, store: WindowBuffer, arrivals: Arrivals) -> list[Answers]:
        if store.line is not None:
            return self._on_a_line(own, store, store.line, arrivals)
        if not self.meets[own][arrivals.store].any():
            store.link_rest()
            return []
        found, start, tally = [], 0, np.zeros(4, np.int64)
        oldest, newest = self._reach_of(own, arrivals)
        # Anew in every push: within the lateness rows may come that are older than those of the push before.
        low = int(store.rank_max.view.searchsorted(oldest[0]))
        rows = ArrivalRows(arrivals.store, oldest, newest, arrivals.group, arrivals.differ, arrivals.mass)
        if self._by_products_of(store.d, len(arrivals.time)):
            return self._by_products(own, store, arrivals, rows)
        rule, window, balls, grid = self._rule(own), store.window_rows, store.balls, store.grid
        probes = Balls(arrivals.centre, arrivals.extent, arrivals.variance)
        audited = self._audit.of(arrivals.time, arrivals.centre)
        while start < len(arrivals.time):
            out = Candidates(*self._out, tally, audited)
            begin, cursor = start, Cursor(start, store.linked, low)
            start, store.linked, low, n = sweep(cursor, rule, rows, probes, window, balls, grid, out)
            if beside := int(tally[3]):
                self.noted = Noted(audited, out.arrival[-beside:], out.row[-beside:])
            if n:
                found += self._resolve(own, store, arrivals, out.arrival[:n], out.row[:n])
            self._compare(own, store, arrivals)
            if start == begin and n == 0 and start < len(arrivals.time):
                self._out = (np.empty(2 * len(out.row), np.int64), np.empty(2 * len(out.row), np.int64))
        self.counts["candidates"] += int(tally[0])
        self.counts["pruned_reach"] += int(tally[1])
        self.counts["pruned_cantelli"] += int(tally[2])
        return found

    def _note_windows(self, store: WindowBuffer, rule: PairRule, arrivals: Arrivals, asked: ArrivalRows) -> None:
        """Note the pairs of arrivals to be audited, where an index looks at all rows of a window."""
        if self.plan.audit:
            some = self._audit.of(arrivals.time, arrivals.centre)
            self.noted = Noted(some, *in_windows(store, rule, asked, some))

    def _compare(self, own: int, store: WindowBuffer, arrivals: Arrivals) -> None:
        """Audit the pairs that were noted and had no answer."""
        if self.noted is NOTHING:
            return
        for other, pairs, _ in self._by_store(store, arrivals, *self.noted.open):
            ours = pairs if self.ownership is None else pairs.filter(self.ownership.owned(pairs, self._groups))
            self.audit(other, own, ours)
        self.noted = NOTHING

    def _by_products(self, own: int, store: WindowBuffer, arrivals: Arrivals, asked: ArrivalRows) -> list[Answers]:
        """As `_sweep` does, in many dimensions."""
        found, rule = [], self._rule(own)
        places = partial(arrivals.places, self._stores)
        self._note_windows(store, rule, arrivals, asked)
        for at, rows, looked in close_vectors(store, rule, asked, places, self.plan.limit):
            self.counts["candidates"] += looked
            self.counts["pruned_product"] += looked - len(rows)
            found += self._resolve(own, store, arrivals, at, rows)
        store.link_rest()
        self._compare(own, store, arrivals)
        return found

    def _resolve(self, own: int, store: WindowBuffer, arrivals: Arrivals, at: Ints, rows: Ints) -> list[Answers]:
        """From candidates to answers, one arriving store at a time."""
        found = []
        for other, pairs, _ in self._by_store(store, arrivals, at, rows):
            answers = self._evaluate(other, own, pairs, arrivals)
            if len(answers):
                found.append(answers)
        return found

    def _by_store(
        self, store: WindowBuffer, arrivals: Arrivals, at: Ints, rows: Ints
    ) -> Iterator[tuple[int, CandidatePairs, Flags]]:
        """The pairs by the store of the arriving row, and which of them these are."""
        arriving = arrivals.store[at]
        for other in np.bincount(arriving).nonzero()[0].tolist():
            mask = arriving == other
            pairs = CandidatePairs(self._stores[other], arrivals.row[at], store, rows, at)
            yield other, pairs.filter(mask), mask

    def _owned(self, pairs: CandidatePairs) -> tuple[CandidatePairs, Flags]:
        """The pairs that are ours to report, and which of them these are."""
        if self.ownership is None:
            return pairs, np.ones(len(pairs.left), bool)
        mask = self.ownership.owned(pairs, self._groups)
        self.counts["elsewhere"] += int(len(mask) - mask.sum())
        return pairs.filter(mask), mask

    def _evaluate(self, left: int, right: int, pairs: CandidatePairs, arrivals: Arrivals | None) -> Answers:
        pairs = pairs if self.ownership is None else self._owned(pairs)[0]
        kinds = self.kinds(left, right)
        if self.partners is not None and self.partners.counted:
            for some in self._near_first(left, right, pairs):
                self._accept(left, right, evaluated(self.plan, some, kinds, self.counts), arrivals)
            return NO_ANSWERS
        if self.plan.by_means:
            pairs, distance = by_means(self.plan, pairs)
            kept = np.ones(len(distance), bool) if self.plan.withdrawn else self._leading(left, pairs, distance)
            found = scored(self.plan, pairs.filter(kept), distance[kept], kinds, self.counts)
        else:
            found = evaluated(self.plan, self._likely(pairs), kinds, self.counts)
        return self._accept(left, right, found, arrivals)

    def _near_first(self, left: int, right: int, pairs: CandidatePairs) -> Iterator[CandidatePairs]:
        """Pairs within epsilon, then the rest, where rows with few partners are looked for: without certain ones."""
        assert self.partners is not None  # noqa: S101 - asked before
        own, other = int(self._stream_of[left]), int(self._stream_of[right])
        a, b = pairs.left_store, pairs.right_store
        near = squared_distances(pairs.left, pairs.right, a.centre.view, b.centre.view) <= self.plan.limit**2
        for part in (near, ~near):
            open_rows = self.partners.open(own, a, pairs.left) | self.partners.open(other, b, pairs.right)
            yield pairs.filter(part & open_rows)

    def kinds(self, left: int, right: int) -> tuple[Model, Model]:
        """The models of two stores' rows."""
        return self.plan.models[int(self._stream_of[left])], self.plan.models[int(self._stream_of[right])]

    def _accept(self, left: int, right: int, found: ScoredPairs, arrivals: Arrivals | None) -> Answers:
        """Answers, of pairs that match with these probabilities; windows may still make them less."""
        if self.plan.audit:
            self.noted.answered(found.pairs.left if arrivals is None else found.pairs.arrival, found.pairs.right)
        factor = np.ones(len(found.probability))
        if self.plan.rule is not None and self.plan.uncertain and arrivals is not None:
            factor = self._inside(left, right, found.pairs, arrivals, self.plan.rule)
            found = found.times(factor)
            passed = found.probability >= self.plan.threshold
            self.counts["pruned_window"] += int(len(passed) - passed.sum())
            found, factor = found.filter(passed), factor[passed]
        if self.plan.held:
            if self.plan.best and not self.plan.by_means and not self.plan.withdrawn:
                value = values_of(self.plan.by, found.distances, found.probability)
                kept = self._leading(left, found.pairs, value)
                found, factor = found.filter(kept), factor[kept]
            answers = self._held(left, right, found, factor)
            if self.remembers:
                self._remember(left, right, found.pairs, answers)
            return answers
        if self.partners is not None:
            self.partners.met(int(self._stream_of[left]), found.pairs.left_store, found.pairs.left)
            self.partners.met(int(self._stream_of[right]), found.pairs.right_store, found.pairs.right)
            if self.plan.how == "left_anti":
                return NO_ANSWERS
        self.counts["answers"] += len(found.probability)
        self.output.add(len(found.probability))
        return self._answers(left, right, found, factor)

    def _held(self, left: int, right: int, found: ScoredPairs, factor: Floats) -> Answers:
        """Pairs with the left row that they wait for; of a stream with itself each row is one."""
        if not self.plan.fewer_than:
            return self._answers(left, right, found, factor)
        a, b = found.pairs.left_store, found.pairs.right_store
        mine, theirs = a.mass.view[found.pairs.left], b.mass.view[found.pairs.right]
        if self.partners is not None and self.partners.counted:
            sides = (left, a, found.pairs.left, mine), (right, b, found.pairs.right, theirs)
            for side, store, rows, mass in sides:
                self.partners.count(int(self._stream_of[side]), store, rows, found.probability / mass)
            return NO_ANSWERS
        answers = self._answers(left, right, found, factor)
        if not self.plan.self_join:
            own = mine if self._stream_of[left] == 0 else theirs
            return replace(answers, probability=answers.probability / own)
        ends = self._ends(left, a, found.pairs.left), self._ends(right, b, found.pairs.right)
        return Answers.concat(
            [
                replace(
                    answers,
                    left_key=one.key,
                    left_time=one.time,
                    left_rank=one.rank,
                    right_rank=other.rank if self.plan.withdrawn else None,
                    right_key=other.key,
                    right_time=other.time,
                    probability=answers.probability / own,
                )
                for one, other, own in ((*ends, mine), (ends[1], ends[0], theirs))
            ]
        )

    def _remember(self, left: int, right: int, pairs: CandidatePairs, answers: Answers) -> None:
        """Pairs stand until their left row leaves; of a stream with itself each has a pair."""
        end = answers.left_time + np.array(self.plan.windows, np.int64)[answers.left_stream]
        rows = self._serials(left, right, pairs, np.zeros(len(pairs), bool))
        self.standing.add_timed(answers, (end, end), np.tile(rows, (len(answers) // max(1, len(pairs)), 1)))

    def _likely(self, pairs: CandidatePairs) -> CandidatePairs:
        """The pairs that are likely enough, where that is asked for: a density costs far less than a probability."""
        if self.plan.least_ratio is None or (ratios := likelihood_ratios(self.plan, pairs)) is None:
            return pairs
        likely = ~(ratios <= self.plan.least_ratio)  # those without a density have none
        self.counts["pruned_likelihood"] += int(len(likely) - likely.sum())
        return pairs.filter(likely)

    def _leading(self, left: int, pairs: CandidatePairs, value: Floats) -> Flags:
        """Which of the pairs may be the best of their left rows."""
        own, other = (pairs.left, pairs.right), (pairs.left_store, pairs.right_store)
        first = 0 if self._stream_of[left] == 0 else 1
        return leading(own[first], value, other[1 - first].time.view[own[1 - first]], self.plan.best)

    def _inside(self, left: int, right: int, pairs: CandidatePairs, arrivals: Arrivals, rule: Rule) -> Floats:
        """The probability that both rows of each pair are in their windows, at the tick of the later one."""
        streams = int(self._stream_of[left]), int(self._stream_of[right])
        a, b = pairs.left_store, pairs.right_store
        frame = arrivals.frame[pairs.arrival]
        n = len(self.plan.streams)
        return pair_factor(
            self._present,
            a.group.view[pairs.left],
            streams,
            (a.rank.view[pairs.left], b.rank.view[pairs.right]),
            (frame[:, n + streams[0]], frame[:, n + streams[1]]),
            rule,
        )

    def _answers(self, left: int, right: int, found: ScoredPairs, factor: Floats) -> Answers:
        """Pairs as answers: the earlier argument, or in a self-join the earlier row, on the left."""
        pairs, probability = found.pairs, found.probability
        a, b = pairs.left_store, pairs.right_store
        a_stream, b_stream = int(self._stream_of[left]), int(self._stream_of[right])
        if a_stream != b_stream:
            swap = np.full(len(pairs), a_stream > b_stream)
        else:
            mine, theirs = a.rank.view[pairs.left], b.rank.view[pairs.right]
            swap = mine > theirs
            tied = mine == theirs  # never where ranks are numbers
            if tied.any():
                swap[tied] = sorts_after_partner(pairs.filter(tied))
        samples = pairings(self.plan, pairs, swap, factor, self._matching) if self.plan.values else None
        if a is b:
            sides = np.where(swap, pairs.right, pairs.left), np.where(swap, pairs.left, pairs.right)
            first, second = self._ends(left, a, sides[0]), self._ends(left, a, sides[1])
        else:
            first, second = _swapped(self._ends(left, a, pairs.left), self._ends(right, b, pairs.right), swap)
        answers = Answers(
            first.stream,
            first.key,
            first.time,
            second.stream,
            second.key,
            second.time,
            found.distances,
            probability,
            pairings=samples,
            upper=found.upper if self.plan.bounded else None,
            ratio=likelihood_ratios(self.plan, pairs),
            left_rank=first.rank if self.plan.held else None,
            right_rank=second.rank if self.plan.held and self.plan.withdrawn else None,
        )
        if not self.plan.changes:
            return answers
        answers = answers.entering()
        if self.plan.rule is None:
            windows = np.array(self.plan.windows, np.int64)
            left_end = answers.left_time + windows[answers.left_stream]
            right_end = answers.right_time + windows[answers.right_stream]
            self.standing.add_timed(answers, (left_end, right_end), self._serials(left, right, pairs, swap))
        else:
            self.standing.add_ranked(answers, a.group.view[pairs.left], first.rank, second.rank)
        return answers

    def _ends(self, own: int, store: WindowBuffer, rows: Ints) -> _Ends:
        """These rows of a store; where pairs wait for rows that may be withdrawn, by numbers that never change."""
        serial = store.serial if self.plan.held and not self.remembers else None
        time = store.time.view[rows]
        if serial is not None:
            rank = serial.view[rows] * len(self._stores) + own
        else:
            rank = time if store.rank is store.time else store.rank.view[rows]
        return _Ends(np.full(len(rows), self._stream_of[own]), store.keys(rows), time, rank)

    def _serials(self, left: int, right: int, pairs: CandidatePairs, swap: Flags) -> Ints:
        """Numbers of the rows of pairs (n, 2) that never change, where rows may be withdrawn."""
        found = np.zeros((len(swap), 2), np.int64)
        for side, own, store, rows in (
            (0, left, pairs.left_store, pairs.left),
            (1, right, pairs.right_store, pairs.right),
        ):
            if store.serial is not None:
                found[:, side] = store.serial.view[rows] * len(self._stores) + own
        return np.where(swap[:, None], found[:, ::-1], found)


@dataclass(frozen=True)
class _Ends(Batch):
    """One of the two rows of each of some pairs."""

    stream: Ints
    key: Bytes
    time: Ints
    rank: Ints


def _swapped(left: _Ends, right: _Ends, swap: Flags) -> tuple[_Ends, _Ends]:
    """Both rows of each pair, the other way round where ``swap`` says so."""
    if swap.all():
        return right, left
    if not swap.any():
        return left, right
    both, own = _Ends.concat([left, right]), np.arange(len(swap))
    other = own + len(swap)
    return both.take(np.where(swap, other, own)), both.take(np.where(swap, own, other))


def _matching_samples(made: float) -> str:
    return f"The answers have {made:,.0f} matching pairs of samples by now. {_FEWER_SAMPLES}"
