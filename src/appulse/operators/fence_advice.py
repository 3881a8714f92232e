"""What thresholds of fences are worth: false and missed events to expect, by the errors that a sample has.

Tracks are drawn that may have led to the readings of the sample, and readings of each are drawn anew, with the errors
that the sample's have. Events of these readings are held against those of the track itself.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from appulse.kernels import fences as kernels
from appulse.kernels.likely_tracks import Motion, compare_visits, draw_tracks
from appulse.model.covariance import unwhitening, whitening
from appulse.model.positions import centred, ground_of
from appulse.operators.fences import NO_TERMS, FencePlan, readings_of
from appulse.operators.legs import things

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.kernels.arrays import Flags, Floats, Ints
    from appulse.kernels.geodesic import Earth
    from appulse.kernels.near_regions import Readings
    from appulse.model.objects import Objects
    from appulse.model.regions import RegionSet
    from appulse.model.workers import Workers

# Readings before and after a step whose means say whether the thing moved, and the square of how far apart, in
# deviations, they are if it did: for one that stands still in 1 % of cases.
_AROUND, _MOVED = 4, 9.21
# What is left of the variance of a step where those that are farther are cut off.
_CUT = 0.9535
_TURN = 360.0


class Expected(NamedTuple):
    """What is expected of a choice of thresholds; ``delay`` in microseconds, NaN if no true visit was reported."""

    enter: float
    leave: float
    true_events: float
    false_events: float
    missed_events: float
    delay: float


def advise(
    rows: Objects,
    regions: RegionSet,
    earth: Earth | None,
    choices: Sequence[tuple[float, float]],
    slack: int,
    draws: int,
    seed: int,
    workers: Workers,
) -> list[Expected]:
    """What to expect of each choice of ``enter`` and ``leave`` over the time of the sample: means over the draws."""
    thing = things(rows.key, rows.group)
    order = np.lexsort((rows.time, thing))
    readings = readings_of([rows], thing, rows.time, earth, order)
    away = unwhitening(readings.scale)
    error = np.column_stack([away[:, 0] ** 2, away[:, 1] ** 2 + away[:, 2] ** 2])
    path = _unwrapped(readings) if earth is not None else readings.at
    motion = _motion(readings, path, error)
    chance = np.random.default_rng(seed)
    totals, exact = np.zeros((len(choices), 5)), whitening(np.zeros((len(error), 1)))
    for _ in range(draws):
        true_path = np.empty_like(path)
        draw_tracks(readings.thing, path, error, motion, chance.standard_normal((len(path), 4)), true_path)
        drawn = chance.standard_normal(path.shape)
        seen_path = true_path + away[:, :2] * drawn
        seen_path[:, 1] += away[:, 2] * drawn[:, 0]
        sharp = readings._replace(scale=exact, exists=np.ones(len(error)))
        truth = _visits(_moved(sharp, true_path, earth), regions, earth, (1.0, 1.0))
        seen = _moved(readings, seen_path, earth)
        visits = workers.map(partial(_visits, seen, regions, earth), choices)
        totals += [_held_against(found, truth, slack) for found in visits]
    found = totals / draws
    return [
        Expected(high, low, found[k, 0], found[k, 1], found[k, 2], found[k, 3] / found[k, 4] if found[k, 4] else np.nan)
        for k, (high, low) in enumerate(choices)
    ]


def _unwrapped(readings: Readings) -> Floats:
    """Longitudes and latitudes without the leap at the 180th meridian."""
    step = np.diff(readings.at[:, 0], prepend=readings.at[:1, 0])
    step -= _TURN * np.round(step / _TURN)
    return np.column_stack([readings.at[:1, 0] + np.cumsum(step), readings.at[:, 1]])


def _moved(readings: Readings, path: Floats, earth: Earth | None) -> Readings:
    """The readings elsewhere."""
    if earth is None:
        return readings._replace(at=path)
    lon, lat = path[:, 0] - _TURN * np.round(path[:, 0] / _TURN), path[:, 1].clip(-90.0, 90.0)
    return readings._replace(at=np.column_stack([lon, lat]), place=centred(lat, lon, earth))


def _motion(readings: Readings, path: Floats, error: Floats) -> Motion:
    """How the things of a sample move, by what their steps have beyond the errors of their ends."""
    new = np.append(True, np.diff(readings.thing) != 0)[: len(path)]
    step, both = np.diff(path, axis=0, prepend=path[:1]), error + np.roll(error, 1, axis=0)
    gap = np.maximum(1e-6, np.diff(readings.time, prepend=readings.time[:1]) / 1e6)
    moves, wide = _moves(readings.thing, path, error), gap[:, None]
    move, still = moves & ~new, ~moves & ~new
    on = np.flatnonzero(move[:-1] & move[1:])  # and on at the next step
    turn = step[on + 1] / wide[on + 1] - step[on] / wide[on]
    noise = error[on - 1] / wide[on] ** 2 + error[on] * (1.0 / wide[on] + 1.0 / wide[on + 1]) ** 2
    noise += error[on + 1] / wide[on + 1] ** 2
    return Motion(
        moves,
        gap,
        _beyond(turn**2 - noise, (gap[on] + gap[on + 1]) / 3.0),
        _beyond(step[move] ** 2 - both[move], gap[move] ** 2),
        _beyond(step[still] ** 2 - _CUT * both[still], gap[still]),
    )


def _beyond(variances: Floats, shares: Floats) -> Floats:
    """The variance that adds up to some, each having a share of it."""
    found: Floats = variances.sum(axis=0) / max(shares.sum(), 1e-300)
    return np.maximum(0.0, found)


def _moves(thing: Ints, path: Floats, error: Floats) -> Flags:
    """Whether a thing moved on its way to each reading, by the means of a few readings before and after."""
    n, here = len(path), np.arange(len(path))
    begin = np.searchsorted(thing, thing)
    end = np.searchsorted(thing, thing, side="right")
    low, high = np.maximum(begin, here - _AROUND), np.minimum(end, here + _AROUND)
    sums = np.vstack([np.zeros((1, 4)), np.cumsum(np.hstack([path - path[:1], error]), axis=0)])
    before, after = np.maximum(1, here - low)[:, None], np.maximum(1, high - here)[:, None]
    earlier, later = sums[here] - sums[low], sums[high] - sums[here]
    apart = later[:, :2] / after - earlier[:, :2] / before
    variance = later[:, 2:] / after**2 + earlier[:, 2:] / before**2
    with np.errstate(divide="ignore", invalid="ignore"):
        square = np.where(apart == 0.0, 0.0, apart**2 / variance).sum(axis=1)
    return (square > _MOVED) if n else np.zeros(0, bool)


def _visits(readings: Readings, regions: RegionSet, earth: Earth | None, choice: tuple[float, float]) -> Ints:
    """Visits by thing, fence and begin: thing, fence, begin, end; those that go on end after the last reading."""
    enter, leave = choice
    plan = FencePlan(enter, leave, None, False, earth)  # noqa: FBT003 - the highest probability is not asked for
    last = int(readings.time.max(initial=0))
    rules = kernels.Rules(enter, leave, -1, plan.reach, False, last, True)  # noqa: FBT003
    none = kernels.Visits(np.empty((0, 7), np.int64), np.empty((0, 2)))
    rows, ground = np.arange(len(readings.thing)), ground_of(earth)
    found, kept, _ = kernels.watch(regions.arrays, regions.search, readings, rows, none, rules, NO_TERMS, ground)
    row, fence, kind, _ = found.which.T
    over = np.column_stack([readings.thing[row], fence, found.when[:, ::-1]])[kind == kernels.EXIT]
    going = np.column_stack([kept[:, :3], np.full(len(kept), last + 1)])
    whole = np.vstack([over, going])
    return whole[np.lexsort((whole[:, 2], whole[:, 1], whole[:, 0]))]


def _held_against(found: Ints, truth: Ints, slack: int) -> tuple[float, float, float, float, float]:
    """True, false and missed events, the sum of the delays of true visits, and how many there are.

    True visits shorter than the slack need not be reported.
    """
    taken = np.empty(len(truth), np.int64)
    compare_visits(found, truth, slack, taken)
    known, long = taken >= 0, truth[:, 3] - truth[:, 2] >= slack
    timely = np.flatnonzero(known & long)
    late = np.maximum(0, found[taken[timely], 2] - truth[timely, 2])
    false, missed = len(found) - int(known.sum()), int((long & ~known).sum())
    return 2.0 * len(truth), 2.0 * false, 2.0 * missed, float(late.sum()), float(len(timely))
