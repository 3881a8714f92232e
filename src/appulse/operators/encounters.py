"""Encounters: runs of legs of two things that come close, over streams that move.

A deterministic state machine: ``push`` takes complete ticks, makes legs of them, compares each with those that share
its time, and puts what comes close together to encounters. Legs are kept as long as one to come may overlap them,
encounters as long as one may lengthen them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels import earth_legs
from appulse.kernels import legs as kernels
from appulse.kernels.arrays import RowPairs
from appulse.model.batch import Batch
from appulse.model.encode import sampled
from appulse.model.strings import Bytes, Labels
from appulse.operators.legs import LegMaker, Legs, Pending, routes, things
from appulse.operators.plan import tolerated

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from appulse.kernels.geodesic import Earth
    from appulse.model.motion import Motion
    from appulse.model.objects import Objects
    from appulse.model.uncertainty import Model

#: Before every time, and after all of them.
NEVER, EVER = -(1 << 62), 1 << 62
_FEW_AT_ONCE = 64  # legs that share a time, on average, up to which cells of space do not pay
_MOST_ENTRIES = 16  # bins of a leg, on average


@dataclass(frozen=True)
class EncounterPlan:
    """What is asked: microseconds, and per stream its model and its motion. ``limit`` is epsilon with its tolerance.

    ``reach`` is that of a Gaussian in sigmas; None where errors are compared sample by sample. Of positions, there is
    an ``earth``, and perhaps a ``vertical`` epsilon, beside which ``epsilon`` is the horizontal one.
    """

    models: tuple[Model, ...]
    motions: tuple[Motion, ...]
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

    @property
    def alone(self) -> bool:
        """Whether a stream meets itself."""
        return len(self.models) == 1


@dataclass(frozen=True)
class Approaches(Batch):
    """Pairs of legs that come close, and encounters, which are runs of them; times and ``within`` in microseconds.

    ``left_time`` and ``right_time`` are of the readings that legs start with, ``begin`` and ``end`` of the overlaps.
    """

    left_key: Bytes
    right_key: Bytes
    left_time: NDArray[np.int64]
    right_time: NDArray[np.int64]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    closest_time: NDArray[np.float64]
    distance: NDArray[np.float64]
    within: NDArray[np.int64]
    probability: NDArray[np.float64]
    legs: NDArray[np.int64]
    announced: NDArray[np.bool_]
    group: Labels | None = None

    @classmethod
    def none(cls, group: Labels | None = None) -> Approaches:
        """No pair at all."""
        ints, floats, keys = np.empty(0, np.int64), np.empty(0), Bytes.of([])
        few = (ints, ints, ints, ints, floats, floats, ints, floats, ints, np.empty(0, bool))
        return cls(keys, keys, *few, group)


class Found(NamedTuple):
    """Answers of a push: what entered, what is final, and readings with the time of another of their key, by stream."""

    entered: Approaches
    final: Approaches
    twice: list[tuple[int, Objects]]


@dataclass
class Encounters:
    """The state: readings that may start a leg, legs that may be met, pairs that wait for earlier ones, encounters."""

    plan: EncounterPlan
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.makers = [LegMaker(motion, self.plan.earth) for motion in self.plan.motions]
        self.legs: list[Legs | None] = [None] * len(self.makers)
        self.waiting: Approaches | None = None
        self.open: Approaches | None = None

    def push(self, rows: Sequence[Sequence[Objects]], complete: int, *, ended: bool) -> Found:
        """Take in the readings of complete ticks, by stream; none before ``complete`` is to come."""
        made = [maker.push(own, complete, ended=ended) for maker, own in zip(self.makers, rows, strict=True)]
        since = min([complete, *(maker.since for maker in self.makers if maker.since is not None)])
        since = EVER if ended else since
        met = self._met([None if one is None else one.legs for one in made])
        for i, legs in enumerate(self.legs):
            self.legs[i] = None if legs is None else legs.filter(legs.end >= since)
        twice = [(i, one.twice) for i, one in enumerate(made) if one is not None and len(one.twice)]
        if self.plan.emit == "legs":
            return Found(Approaches.none(), met, twice)
        entered, final = self._put_together(met, since)
        return Found(entered, final, twice)

    # --- legs

    def _met(self, fresh: Sequence[Legs | None]) -> Approaches:
        """The pairs of legs that come close, one of them new; new ones are kept from now on."""
        parts: list[tuple[int, Legs, NDArray[np.bool_]]] = []
        for i, new in enumerate(fresh):
            known = self.legs[i]
            held = [legs for legs in (known, new) if legs is not None and len(legs)]
            if held:
                before = 0 if known is None else len(known)
                self.legs[i] = legs = Legs.concat(held)
                parts.append((i, legs, np.arange(len(legs)) >= before))
        if len(parts) < len(fresh) or not any(new.any() for _, _, new in parts):
            return Approaches.none()
        return self._compared(parts)

    def _compared(self, parts: Sequence[tuple[int, Legs, NDArray[np.bool_]]]) -> Approaches:
        plan = self.plan
        sides = np.concatenate([np.full(len(legs), i) for i, legs, _ in parts])
        fresh = np.concatenate([new for _, _, new in parts])
        rows = [self._with_errors(i, legs.rows) for i, legs, _ in parts]
        begin = np.concatenate([own.time for own in rows])
        end = np.concatenate([legs.end for _, legs, _ in parts])
        at = np.concatenate([own.centre for own in rows])
        to = np.concatenate([legs.to for _, legs, _ in parts])
        keys = Bytes.concat([own.key for own in rows])
        group = None if rows[0].group is None else Labels.concat([own.group for own in rows if own.group is not None])
        codes = np.zeros(len(begin), np.int64) if group is None else group.compact().codes.astype(np.int64)
        reach = np.concatenate([self._reach(i, own, legs) for (i, legs, _), own in zip(parts, rows, strict=True)])
        legs = kernels.Legs(begin, end, at, to, reach, sides, things(keys, None), codes, fresh)
        if plan.earth is not None:
            pairs, found = self._met_on_earth(plan.earth, legs, rows)
        else:
            pairs = _candidates(legs, plan.limit, alone=plan.alone)
            found = _meetings(len(pairs.left))
            kernels.approach(legs, pairs, plan.limit, found)
            if plan.reach is None:
                errors = kernels.Displacements(*_displacements(rows))
                kernels.sampled_meetings(legs, errors, pairs, plan.limit, plan.threshold, found)
            else:
                noise = kernels.Noise(*self._noise(sides, rows), begin)
                kernels.gaussian_meetings(legs, noise, pairs, plan.epsilon, plan.limit, plan.threshold, found)
        self.counts["candidates"] += len(pairs.left)
        if plan.reach is not None:
            mass = np.concatenate([own.mass for own in rows])
            found.probability[:] *= mass[pairs.left] * mass[pairs.right]
        close = np.flatnonzero(found.probability >= plan.threshold)
        left, right = pairs.left[close], pairs.right[close]
        ones = np.ones(len(close), np.int64)
        return Approaches(
            keys.take(left),
            keys.take(right),
            begin[left],
            begin[right],
            found.begin[close],
            found.end[close],
            found.closest_time[close],
            found.distance[close],
            np.rint(found.within[close]).astype(np.int64),
            found.probability[close],
            ones,
            ones == 0,
            None if group is None else group.take(left),
        )

    def _met_on_earth(
        self, earth: Earth, legs: kernels.Legs, rows: Sequence[Objects]
    ) -> tuple[RowPairs, kernels.Meetings]:
        """Pairs of legs that may come close, and what becomes of them."""
        plan = self.plan
        at, to = np.ascontiguousarray(legs.at[:, :3]), np.ascontiguousarray(legs.to[:, :3])
        bulge = np.empty(len(at))
        earth_legs.bulges(earth, at, to, bulge)
        altitude = np.stack([legs.at[:, 3:], legs.to[:, 3:]], axis=1)[:, :, 0] if legs.at.shape[1] > 3 else at[:, :0]
        taken = earth_legs.Routes(routes(earth, at, to), altitude)
        cylinder = plan.vertical is not None
        legs = legs._replace(reach=legs.reach + bulge)
        if cylinder:  # altitudes have a threshold of their own
            legs = legs._replace(at=at, to=to)
        pairs = _candidates(legs, plan.limit, alone=plan.alone)
        found = _meetings(len(pairs.left))
        variance, growth = self._noise(legs.side, rows)
        steep = np.square(np.concatenate([_sigma(own, -1) for own in rows]))
        vertical = plan.vertical or 0.0
        wanted = earth_legs.Wanted(
            (plan.epsilon, vertical), (plan.limit, tolerated(vertical)), cylinder, plan.threshold
        )
        legs = legs._replace(at=at, to=to)
        earth_legs.earth_meetings(earth, legs, taken, earth_legs.Errors(variance, steep, growth), pairs, wanted, found)
        return pairs, found

    def _with_errors(self, stream: int, rows: Objects) -> Objects:
        """The readings with samples of their errors, where these are compared one by one."""
        return rows if self.plan.reach is not None else sampled(rows, self.plan.models[stream], self.plan.quantile)

    def _reach(self, stream: int, rows: Objects, legs: Legs) -> NDArray[np.float64]:
        """How far beyond epsilon a leg has to be looked for, with what noise adds until its end."""
        noise, reach = self.plan.motions[stream].noise, self.plan.reach
        if not noise or reach is None:
            return rows.reach
        variance = np.square(_sigma(rows)) + noise * noise * (legs.end - rows.time) * 1e-6
        wide: NDArray[np.float64] = reach * np.sqrt(variance)
        return wide

    def _noise(
        self, sides: NDArray[np.int64], rows: Sequence[Objects]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The variance of each leg, and its growth in a microsecond."""
        growth = np.array([motion.noise**2 * 1e-6 for motion in self.plan.motions])
        return np.square(np.concatenate([_sigma(own) for own in rows])), growth[sides]

    # --- encounters

    def _put_together(self, met: Approaches, since: int) -> tuple[Approaches, Approaches]:
        """Encounters that entered and that are final; none to come begins before ``since``.

        Pairs wait until none to come may be before them, so that what they are put together to does not depend on
        when they were found.
        """
        waiting = met if self.waiting is None else Approaches.concat([self.waiting, met])
        ready, self.waiting = waiting.filter(waiting.begin < since), waiting.filter(waiting.begin >= since)
        runs = ready if self.open is None else Approaches.concat([self.open, ready])
        if not len(runs):
            return runs, runs
        runs = _runs(runs, self.plan.gap)
        over = runs.end + self.plan.gap < since
        long = runs.within >= self.plan.least
        entered = long & ~runs.announced
        kept = replace(runs, announced=runs.announced | long).filter(~over)
        self.open = kept
        return runs.filter(entered), runs.filter(over & long)

    # --- what stands

    def __len__(self) -> int:
        """Readings, legs and pairs held."""
        pending = sum(len(maker.pending) for maker in self.makers if maker.pending is not None)
        pairs = [self.waiting, self.open]
        return pending + sum(len(one) for one in [*self.legs, *pairs] if one is not None)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        held = [maker.pending for maker in self.makers]
        return sum(one.nbytes for one in [*held, *self.legs, self.waiting, self.open] if one is not None)

    def due(self, first: int | None) -> int | None:
        """What ticks have to be complete beyond for anything to be answered, ``first`` being the oldest that waits."""
        times = [] if first is None else [first]
        times += [maker.since + maker.longest for maker in self.makers if maker.since is not None]
        if self.waiting is not None and len(self.waiting):
            times.append(int(self.waiting.begin.min()))
        if self.open is not None and len(self.open):
            times.append(int(self.open.end.min()) + self.plan.gap)
        return min(times, default=None)

    def state(self) -> Mapping[str, Batch]:
        """All there is, by name."""
        held: dict[str, Batch | None] = {"waiting": self.waiting, "open": self.open}
        for i, (maker, legs) in enumerate(zip(self.makers, self.legs, strict=True)):
            held |= {f"pending{i}": maker.pending, f"legs{i}": legs}
        return {name: batch for name, batch in held.items() if batch is not None and len(batch)}

    def restore(self, state: Mapping[str, Batch]) -> None:
        """Take in what `state` gave."""
        for name, batch in state.items():
            if isinstance(batch, Pending):
                self.makers[int(name.removeprefix("pending"))].pending = batch
            elif isinstance(batch, Legs):
                self.legs[int(name.removeprefix("legs"))] = batch
            elif isinstance(batch, Approaches):
                setattr(self, name, batch)


def _sigma(rows: Objects, column: int = 0) -> NDArray[np.float64]:
    """The deviation of each row; 0 for points. Of positions with an altitude, the last one is that of this."""
    return rows.spread[:, column] if rows.spread.shape[1] else np.zeros(len(rows))


def _meetings(n: int) -> kernels.Meetings:
    whole, real = np.empty((2, n), np.int64), np.empty((4, n))
    return kernels.Meetings(whole[0], whole[1], real[0], real[1], real[2], real[3])


def _displacements(
    rows: Sequence[Objects],
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
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


def _candidates(legs: kernels.Legs, epsilon: float, *, alone: bool) -> RowPairs:
    """Pairs of legs that share a time and may come within epsilon."""
    n = len(legs.begin)
    origin, newest = int(legs.begin.min()), int(legs.end.max())
    lasting = float((legs.end - legs.begin).mean())
    slot = max(1, int(lasting), (newest - origin) // max(1, 4 * n))
    at_once = n * lasting / max(1.0, float(newest - origin))
    extent = float(np.abs(legs.to - legs.at).mean()) + epsilon + 2.0 * float(legs.reach.mean())
    bins = kernels.Bins(origin, slot, extent or 1.0, at_once > _FEW_AT_ONCE)
    entries = kernels.entries(legs, epsilon, bins)
    while entries > _MOST_ENTRIES * n:
        bins = bins._replace(slot=2 * bins.slot, cell=2.0 * bins.cell)
        entries = kernels.entries(legs, epsilon, bins)
    hashes, owner = np.empty(int(entries), np.uint64), np.empty(int(entries), np.int64)
    kernels.enter(legs, epsilon, bins, hashes, owner)
    order = np.argsort(hashes, kind="stable")
    hashes, owner = hashes[order], owner[order]
    room = RowPairs(np.empty(4 * n, np.int64), np.empty(4 * n, np.int64))
    found = kernels.find(legs, epsilon, alone, bins, hashes, owner, room)
    if found > len(room.left):
        room = RowPairs(np.empty(found, np.int64), np.empty(found, np.int64))
        kernels.find(legs, epsilon, alone, bins, hashes, owner, room)
    return RowPairs(room.left[:found], room.right[:found])


def _runs(parts: Approaches, gap: int) -> Approaches:
    """Parts put together to runs: of one pair, each beginning at most ``gap`` after those before it have ended."""
    left = things(parts.left_key, parts.group)
    right = things(parts.right_key, None)
    order = np.lexsort((parts.right_time, parts.left_time, parts.end, parts.begin, right, left))
    parts, left, right = parts.take(order), left[order], right[order]
    run = np.empty(len(parts), np.int64)
    count = kernels.number_runs(left, right, parts.begin, parts.end, gap, run)
    first = np.searchsorted(run, np.arange(count))
    # Of parts that are as close, the first.
    nearest = np.lexsort((parts.closest_time, parts.distance, run))[first]
    whole = parts.take(first)
    return replace(
        whole,
        end=np.maximum.reduceat(parts.end, first),
        closest_time=parts.closest_time[nearest],
        distance=parts.distance[nearest],
        within=np.add.reduceat(parts.within, first),
        probability=np.maximum.reduceat(parts.probability, first),
        legs=np.add.reduceat(parts.legs, first),
        announced=np.logical_or.reduceat(parts.announced, first),
    )
