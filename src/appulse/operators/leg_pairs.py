"""Pairs of legs that come close: legs are kept as long as one to come may overlap them, new ones compared with all."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels import earth_legs, time_near
from appulse.kernels import legs as kernels
from appulse.kernels.arrays import RowPairs
from appulse.model.batch import Batch
from appulse.model.covariance import flat_and_above, matrices, widest
from appulse.model.encode import sampled
from appulse.model.strings import Bytes, Labels
from appulse.model.uncertainty import Position
from appulse.model.workers import Workers
from appulse.operators.held_legs import HeldLegs, Swept
from appulse.operators.leg_search import joined, near_pairs, taken
from appulse.operators.legs import LegMakers, Legs, routes, split_keys, things

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from appulse.kernels.arrays import Flags, Floats, Ints
    from appulse.kernels.geodesic import Earth
    from appulse.model.motion import LegMotion
    from appulse.model.objects import Objects
    from appulse.model.uncertainty import Model
    from appulse.operators.plan import Groups

    #: Fills in what becomes of some pairs, and how long they are expected to be near.
    Decide = Callable[[RowPairs, kernels.Meetings], None]
    Expect = Callable[[RowPairs, Floats], None]

#: Before every time, and after all of them.
NEVER, EVER = -(1 << 62), 1 << 62
_PAIRS = 1 << 13  # that a thread takes at once
_PLACE = 3  # coordinates of a place on the Earth; an altitude is behind them


@dataclass(frozen=True)
class EncounterPlan:
    """What is asked: microseconds, and per stream its model and its motion. ``limit`` is epsilon with its tolerance.

    ``reach`` is that of a Gaussian in sigmas; None where errors are compared sample by sample. ``groups`` of dimensions
    have an epsilon each; ``limit`` is then that of all together. Of positions, there is an ``earth``, and perhaps a
    ``vertical`` epsilon, beside which ``epsilon`` is the horizontal one.
    """

    models: tuple[Model, ...]
    motions: tuple[LegMotion, ...]
    epsilon: float
    limit: float
    threshold: float
    quantile: float
    reach: float | None
    gap: int
    least: int  # that the means are within epsilon
    emit: str
    earth: Earth | None = None
    vertical: float | None = None
    groups: Groups = ()
    carried: tuple[bool, ...] = (False, False)  # whether keys have columns behind them
    windows: tuple[int, ...] | None = None  # of joins, which compare readings at one instant
    expected: bool = False  # whether to say how long pairs are expected to be near

    @property
    def longest(self) -> int:
        """The most that a leg lasts, or may be met."""
        return max(motion.longest for motion in self.motions) if self.windows is None else max(1, *self.windows)

    @property
    def makers(self) -> LegMakers:
        """What makes the legs of the streams."""
        return LegMakers(self.motions, self.earth, self.carried, self.windows)

    def near(self, d: int) -> kernels.Near:
        """When points of ``d`` dimensions are near each other; of positions, two along the Earth and the altitude."""
        if self.vertical is not None:
            return kernels.Near(np.array([0, 0, 1]), np.array([self.epsilon, self.vertical]))
        groups = self.groups or ((tuple(range(d)), self.epsilon),)
        group = np.empty(d, np.int64)
        for g, (own, _) in enumerate(groups):
            group[list(own)] = g
        return kernels.Near(group, np.array([epsilon for _, epsilon in groups]))

    @property
    def by_pairs(self) -> bool:
        """Whether pairs of legs are the answers."""
        return self.emit == "legs" or self.windows is not None

    @property
    def alone(self) -> bool:
        """Whether a stream meets itself."""
        return len(self.models) == 1


@dataclass(frozen=True)
class Approaches(Batch):
    """Pairs of legs that come close, and encounters, which are runs of them; times and durations in microseconds.

    ``left_time`` and ``right_time`` are of the readings that legs start with, ``begin`` and ``end`` of the overlaps.
    ``within`` is how long the means are near, ``expected`` how long the two are expected to be. What is carried is that
    of the readings which the legs of the closest approach start with.
    """

    left_key: Bytes
    right_key: Bytes
    left_time: Ints
    right_time: Ints
    begin: Ints
    end: Ints
    closest_time: Floats
    distance: Floats
    within: Ints
    probability: Floats
    legs: Ints
    announced: Flags
    group: Labels | None = None
    left_carried: Bytes | None = None
    right_carried: Bytes | None = None
    expected: Ints | None = None

    @classmethod
    def none(cls, group: Labels | None = None) -> Approaches:
        """No pair at all."""
        ints, floats, keys = np.empty(0, np.int64), np.empty(0), Bytes.of([])
        few = (ints, ints, ints, ints, floats, floats, ints, floats, ints, np.empty(0, bool))
        return cls(keys, keys, *few, group)


@dataclass
class LegPairs:
    """The legs that may still be met, by stream. ``owned`` leaves the others of the candidates to other tiles."""

    plan: EncounterPlan
    counts: Counter[str] = field(default_factory=Counter)
    owned: Callable[[kernels.Legs, RowPairs, Labels | None], Flags] | None = None
    workers: Workers = field(default_factory=Workers)

    def __post_init__(self) -> None:
        plan = self.plan
        self.held = [HeldLegs(partial(swept_legs, plan, i), plan.limit) for i in range(len(plan.motions))]

    def __len__(self) -> int:
        return sum(map(len, self.held))

    @property
    def nbytes(self) -> int:
        return sum(own.nbytes for own in self.held)

    def state(self) -> dict[str, Legs]:
        """The legs held, by name."""
        legs = {f"legs{i}": own.all() for i, own in enumerate(self.held)}
        return {name: own for name, own in legs.items() if own is not None}

    def restore(self, name: str, legs: Legs) -> None:
        """Take in what `state` has of a name."""
        own = self.held[int(name.removeprefix("legs"))]
        own.add(own.placed(legs))

    def know(self, fresh: Sequence[Legs | None]) -> None:
        """Keep legs that were compared with those kept."""
        for own, legs in zip(self.held, fresh, strict=True):
            if legs is not None and len(legs):
                own.add(own.placed(legs))

    def forget(self, since: int) -> None:
        """No leg to come begins before a time."""
        for own in self.held:
            own.forget(since)

    def meet(self, fresh: Sequence[Legs | None]) -> Approaches:
        """The pairs of legs that come close, one of them new; new ones are kept from now on."""
        came = [
            own.placed(legs) if legs is not None and len(legs) else None
            for own, legs in zip(self.held, fresh, strict=True)
        ]
        # What a stream's legs are looked for by: another's, or its own.
        askers = [0] if self.plan.alone else [1, 0]
        near = [list(own.near(came[i])) for own, i in zip(self.held, askers, strict=True)]
        for own, new in zip(self.held, came, strict=True):
            if new is not None:
                own.add(new)
        looked = [
            [*([] if new is None else [new]), *(part for _, part in some)] for new, some in zip(came, near, strict=True)
        ]
        if not all(looked):
            return Approaches.none()
        parts = [Swept.concat(several) for several in looked]
        first = np.append(0, np.cumsum([len(part.legs) for part in parts])).tolist()
        many = [0 if new is None else len(new.legs) for new in came]
        among = np.concatenate([np.arange(at, at + n) for at, n in zip(first, many, strict=False)])
        asked = [
            RowPairs(np.concatenate([first[i] + rows for rows, _ in some]), np.arange(first[j] + many[j], first[j + 1]))
            for (j, some), i in zip(enumerate(near), askers, strict=True)
            if some
        ]
        return self._compared(list(enumerate(parts)), among, asked)

    def _compared(self, parts: Sequence[tuple[int, Swept]], new: Ints, asked: Sequence[RowPairs]) -> Approaches:
        """The pairs that come close of ``new`` ones of some legs, and of those ``asked`` for."""
        plan = self.plan
        keys, tails = zip(*(split_keys(part.legs.rows.key, plan.carried[i]) for i, part in parts), strict=True)
        labels = [part.legs.rows.group for _, part in parts if part.legs.rows.group is not None]
        group = Labels.concat(labels) if labels else None
        key = Bytes.concat(keys)
        thing = things(key, None)
        swept = joined([part.swept for _, part in parts])._replace(thing=thing, group=swept_groups(group, len(key)))
        pairs = self._candidates(swept, new, asked)
        self.counts["candidates"] += len(pairs.left)
        if self.owned is not None:
            own = np.flatnonzero(self.owned(swept, pairs, group))
            self.counts["elsewhere"] += len(pairs.left) - len(own)
            pairs = RowPairs(pairs.left[own], pairs.right[own])
        found, close, expected = self._met([(i, part.legs) for i, part in parts], swept, pairs)
        left, right = pairs.left[close], pairs.right[close]
        if plan.windows is not None and plan.alone:  # the earlier one is on the left
            later = swept.begin[left] > swept.begin[right]
            left, right = np.where(later, right, left), np.where(later, left, right)
        ones = np.ones(len(close), np.int64)
        # What the legs of a side carry: those of a stream alone are on both.
        first = len(keys[0])
        carried = [None if tail is None else tail.take(at) for tail, at in _sides(tails, left, right, first)]
        return Approaches(
            key.take(left),
            key.take(right),
            swept.begin[left],
            swept.begin[right],
            found.begin[close],
            found.end[close],
            found.closest_time[close],
            found.distance[close],
            np.rint(found.within[close]).astype(np.int64),
            found.probability[close],
            ones,
            ones == 0,
            None if group is None else group.take(left),
            carried[0],
            carried[1],
            expected,
        )

    def _candidates(self, swept: kernels.Legs, new: Ints, asked: Sequence[RowPairs]) -> RowPairs:
        """The pairs to be compared, each once and in the order of its sides."""
        alone = self.plan.alone
        if not asked:
            return near_pairs(swept, self.plan.limit, alone=alone, workers=self.workers)
        among = near_pairs(taken(swept, new), self.plan.limit, alone=alone, workers=self.workers)
        left, right = (np.concatenate([pair[side] for pair in asked]) for side in (0, 1))
        apart = swept.thing if alone else swept.side
        there = (swept.group[left] == swept.group[right]) & (apart[left] != apart[right])
        left, right = left[there], right[there]
        swap = apart[left] > apart[right]
        return RowPairs(
            np.concatenate([new[among.left], np.where(swap, right, left)]),
            np.concatenate([new[among.right], np.where(swap, left, right)]),
        )

    def _met(
        self, parts: Sequence[tuple[int, Legs]], swept: kernels.Legs, pairs: RowPairs
    ) -> tuple[kernels.Meetings, Ints, Ints | None]:
        """What becomes of pairs of legs, which come close, and how long these are expected to be near."""
        plan = self.plan
        swept = swept._replace(end=np.concatenate([legs.end for _, legs in parts]))
        rows = [legs.rows for _, legs in parts]
        if plan.reach is None and plan.earth is None:  # samples of errors are compared one by one
            parts, swept, pairs = _only_met(parts, swept, pairs)
            rows = [sampled(legs.rows, plan.models[i], plan.quantile) for i, legs in parts]
        found = _meetings(len(pairs.left))
        if plan.earth is not None:
            decide, expect = self._on_earth(plan.earth, parts, swept, pairs)
        elif plan.reach is None:
            decide, expect = self._by_samples(rows, swept)
        else:
            decide, expect = self._by_deviations(rows, swept)

        def decide_some(first: int) -> None:
            some = slice(first, first + _PAIRS)
            own = RowPairs(pairs.left[some], pairs.right[some])
            decide(own, kernels.Meetings._make(column[some] for column in found))

        self.workers.map(decide_some, range(0, len(pairs.left), _PAIRS))
        exists = np.ones(len(pairs.left))  # samples have it in their weights
        if plan.reach is not None:
            mass = np.concatenate([own.mass for own in rows])
            exists = mass[pairs.left] * mass[pairs.right]
            found.probability[:] *= exists
        close = np.flatnonzero(found.probability >= plan.threshold)
        if not plan.expected:
            return found, close, None
        near, time = RowPairs(pairs.left[close], pairs.right[close]), np.empty(len(close))

        def expect_some(first: int) -> None:
            some = slice(first, first + _PAIRS)
            expect(RowPairs(near.left[some], near.right[some]), time[some])

        self.workers.map(expect_some, range(0, len(close), _PAIRS))
        return found, close, np.rint(time * exists[close]).astype(np.int64)

    def _by_deviations(self, rows: Sequence[Objects], swept: kernels.Legs) -> tuple[Decide, Expect]:
        near, threshold = self.plan.near(swept.at.shape[1]), self.plan.threshold
        spread = _spreads([own.spread for own in rows], swept.at.shape[1])
        noise = kernels.Noise(spread, self._growth[swept.side], swept.begin)

        def decide(pairs: RowPairs, found: kernels.Meetings) -> None:
            kernels.approach(swept, pairs, near, found)
            kernels.gaussian_meetings(swept, noise, pairs, near, threshold, found)

        return decide, lambda pairs, out: time_near.gaussian_times(swept, noise, pairs, near, out)

    def _by_samples(self, rows: Sequence[Objects], swept: kernels.Legs) -> tuple[Decide, Expect]:
        near, threshold = self.plan.near(swept.at.shape[1]), self.plan.threshold
        errors = kernels.Displacements(*_displacements(rows))

        def decide(pairs: RowPairs, found: kernels.Meetings) -> None:
            kernels.approach(swept, pairs, near, found)
            kernels.sampled_meetings(swept, errors, pairs, near, threshold, found)

        return decide, lambda pairs, out: time_near.sampled_times(swept, errors, pairs, near, out)

    def _on_earth(
        self, earth: Earth, parts: Sequence[tuple[int, Legs]], swept: kernels.Legs, pairs: RowPairs
    ) -> tuple[Decide, Expect]:
        plan = self.plan
        at, to = (np.ascontiguousarray(places[:, :_PLACE]) for places in (swept.at, swept.to))
        met = np.zeros(len(at), bool)  # a way takes long, and most legs are in no pair
        met[pairs.left], met[pairs.right] = True, True
        some = np.flatnonzero(met)
        way = np.zeros((len(at), 2))
        way[some] = routes(earth, at.take(some, axis=0), to.take(some, axis=0))
        altitude = np.concatenate([np.hstack([legs.rows.centre[:, _PLACE:], legs.to[:, _PLACE:]]) for _, legs in parts])
        high = altitude.shape[1] > 0
        taken = earth_legs.Routes(way, altitude)
        flat, steep = [], []
        for i, legs in parts:
            model = plan.models[i]
            assert isinstance(model, Position)  # noqa: S101 - all of a call with an earth are
            along, above = flat_and_above(legs.rows.spread, model)
            flat.append(along)
            steep.append(np.square(above[:, 0]) if above.shape[1] else np.zeros(len(legs)))
        climbs = plan.vertical is None
        errors = earth_legs.Errors(_spreads(flat, 2), np.concatenate(steep), self._growth[swept.side], climbs)
        wanted = earth_legs.Wanted(plan.near(2 + high), plan.threshold)
        moving = earth_legs.EarthLegs(earth, swept._replace(at=at, to=to), taken)

        def decide(pairs: RowPairs, found: kernels.Meetings) -> None:
            earth_legs.earth_meetings(moving, errors, pairs, wanted, found)

        return decide, lambda pairs, out: earth_legs.earth_times(moving, errors, pairs, wanted.near, out)

    @cached_property
    def _growth(self) -> Floats:
        """How much the variance of a leg grows in a microsecond, by stream."""
        return np.array([motion.noise**2 * 1e-6 for motion in self.plan.motions])


def swept_legs(plan: EncounterPlan, stream: int, legs: Legs) -> kernels.Legs:
    """Where legs of a stream are to be looked for, the same in every process; things and groups are left open."""
    rows, to = legs.rows, legs.to
    at, reach = rows.centre, rows.reach
    margin = np.zeros(len(rows)) if rows.margin is None else rows.margin
    noise = plan.motions[stream].noise
    if noise and plan.reach is not None:
        variance = np.square(widest(rows.spread, plan.models[stream])) if rows.spread.shape[1] else 0.0
        variance = variance + noise * noise * (legs.over - rows.time) * 1e-6
        reach = plan.reach * np.sqrt(variance) + margin * (1.0 + 1e-9)
    if plan.earth is not None:
        bulge = np.empty(len(at))
        flat = np.ascontiguousarray(at[:, :3]), np.ascontiguousarray(to[:, :3])
        earth_legs.bulges(plan.earth, *flat, bulge)
        reach = reach + bulge
        if plan.vertical is not None:  # altitudes have a threshold of their own
            at, to = flat
    none = np.zeros(len(at), np.int64)
    side = np.full(len(at), stream)
    return kernels.Legs(
        rows.time, legs.over, at, to, reach, margin, side, none, none, none == 0, plan.windows is not None
    )


def swept_groups(group: Labels | None, n: int) -> Ints:
    """A number for each leg's group."""
    return np.zeros(n, np.int64) if group is None else group.compact().codes.astype(np.int64)


def _only_met(
    parts: Sequence[tuple[int, Legs]], swept: kernels.Legs, pairs: RowPairs
) -> tuple[list[tuple[int, Legs]], kernels.Legs, RowPairs]:
    """The legs that are in pairs, and these pairs."""
    meets = np.zeros(len(swept.begin), bool)
    meets[pairs.left], meets[pairs.right] = True, True
    ends = np.cumsum([len(legs) for _, legs in parts])[:-1]
    met = [(i, legs.filter(own)) for (i, legs), own in zip(parts, np.split(meets, ends), strict=True)]
    place = np.cumsum(meets) - 1
    return met, taken(swept, np.flatnonzero(meets)), RowPairs(place[pairs.left], place[pairs.right])


def _sides(tails: Sequence[Bytes | None], left: Ints, right: Ints, first: int) -> list[tuple[Bytes | None, Ints]]:
    """Of what legs carry, by stream: that of the left ones and of the right ones, with their rows."""
    return [(tails[0], left), (tails[0], right) if len(tails) == 1 else (tails[1], right - first)]


def _spreads(parts: Sequence[Floats], d: int) -> Floats:
    """The spreads of several streams: one deviation for all dimensions (n, 1), or upper triangles."""
    if all(part.shape[1] <= 1 for part in parts):
        return np.concatenate([part if part.shape[1] else np.zeros((len(part), 1)) for part in parts])
    rows, columns = np.triu_indices(d)
    # By rows, as the deviations are: for another layout the kernels would be compiled again.
    return np.ascontiguousarray(np.concatenate([matrices(part, d)[:, rows, columns] for part in parts]))


def _meetings(n: int) -> kernels.Meetings:
    whole, real = np.empty((2, n), np.int64), np.empty((4, n))
    return kernels.Meetings(whole[0], whole[1], real[0], real[1], real[2], real[3])


def _displacements(rows: Sequence[Objects]) -> tuple[Ints, Floats, Floats]:
    """The samples of all rows as displacements from their means, with their weights."""
    counts, points, weights = [], [], []
    for own in rows:
        runs = own.sample_runs
        assert runs is not None  # noqa: S101 - rows were sampled
        # All of a row's first coordinates come first.
        d, flat = own.d, runs.values.reshape(-1)
        index = (runs.offsets[:-1] * d)[runs.owner] + np.arange(len(runs.owner)) - runs.offsets[:-1][runs.owner]
        steps = runs.counts[runs.owner]
        points.append(np.column_stack([flat[index + k * steps] for k in range(d)]) - own.centre[runs.owner])
        equal = own.mass[runs.owner] / runs.counts[runs.owner]
        weights.append(equal if own.weight_runs is None else own.weight_runs.values)
        counts.append(runs.counts)
    first = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
    return first, np.concatenate(points), np.concatenate(weights)
