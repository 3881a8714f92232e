"""How good distributions are against what was really there: accuracy and calibration."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from operator import mul
from typing import TYPE_CHECKING

import numpy as np

from appulse.imputation.repository import units
from appulse.kernels.differences import differences_between, mean_differences, of_missing, weights_below

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from appulse.imputation.imputer import Imputer
    from appulse.kernels.arrays import Floats, Ints

_LEVELS = np.arange(0.1, 1.0, 0.1)


@dataclass(frozen=True)
class Score:
    """Of masked values: mean CRPS and root mean square error, in deviations of their attribute; calibration error.

    The continuous ranked probability score (Gneiting & Raftery 2007) is the absolute error where one value is filled
    in. ``calibration`` is how far, on the average, shares of values below their 0.1 ... 0.9 quantiles are off.
    ``spread`` is how wide fills are: the mean difference of two draws, in deviations.
    """

    crps: float
    error: float
    calibration: float
    spread: float
    holes: int


@dataclass(frozen=True)
class Judged:
    """What was said of masked values, in deviations: of each the values from ``first[i]`` on, in order, with shares.

    ``off`` is E|X - y| of each, ``spread`` is E|X - X'|, ``truth`` is y.
    """

    values: Floats
    shares: Floats
    first: Ints
    truth: Floats
    off: Floats
    spread: Floats

    @cached_property
    def score(self) -> Score:
        """Its `score_of`."""
        return score_of(self)


def pooled(scores: Sequence[Score]) -> Score:
    """Several rounds as one."""
    holes = sum(score.holes for score in scores)
    if holes == 0:
        return Score(0.0, 0.0, 0.0, 0.0, 0)
    shares = [score.holes / holes for score in scores]

    def mean(values: Iterable[float]) -> float:
        return math.fsum(map(mul, shares, values))

    crps, spread = mean(score.crps for score in scores), mean(score.spread for score in scores)
    error = math.sqrt(mean(score.error**2 for score in scores))
    return Score(crps, error, mean(score.calibration for score in scores), spread, holes)


def crps(values: Floats, shares: Floats, first: Ints, truth: Floats) -> Floats:
    """E|X - y| - E|X - X'| / 2 of each distribution: the values from ``first[i]`` on, in any order."""
    off, spread = _parts(values, shares, first, truth)
    return off - spread / 2


def _parts(values: Floats, shares: Floats, first: Ints, truth: Floats) -> tuple[Floats, Floats]:
    """E|X - y| and E|X - X'|."""
    off, spread = np.empty(len(truth)), np.empty(len(truth))
    mean_differences(np.ascontiguousarray(values), shares, first, truth, off, spread)
    return off, spread


def below(values: Floats, shares: Floats, first: Ints, truth: Floats) -> tuple[Floats, Floats]:
    """The weight of each distribution below the truth, half of that at it counted (mid-distribution), and its mean."""
    place, mean = np.empty(len(truth)), np.empty(len(truth))
    weights_below(np.ascontiguousarray(values), shares, first, truth, place, mean)
    return place, mean


def scored(
    imputer: Imputer,
    attributes: Sequence[str],
    truth: Floats,
    masked: Floats,
    time: Ints | None = None,
    group: Ints | None = None,
) -> Score:
    """How an imputer fills ``masked`` (n, d), NaN where something was taken out of ``truth``."""
    return score_of(judged(imputer, attributes, truth, masked, time, group))


@np.errstate(over="ignore", invalid="ignore")
def judged(
    imputer: Imputer,
    attributes: Sequence[str],
    truth: Floats,
    masked: Floats,
    time: Ints | None = None,
    group: Ints | None = None,
    unit: Floats | None = None,
    *,
    empty_rows: bool = False,
) -> Judged:
    """What an imputer says of the values taken out, attribute by attribute in order of the rows.

    ``unit`` is that of each attribute; None: as `own_units` has it. With ``empty_rows`` rows without any value are
    filled, too; else they are left out.
    """
    n = len(truth)
    nothing = np.zeros(n, np.int64)
    rows = np.flatnonzero(empty_rows | ~np.isnan(masked).all(axis=1))
    fill = imputer.bind(attributes)
    wanted = np.asarray((np.isnan(masked) & ~np.isnan(truth)).any(axis=1))
    if not fill.in_order:
        rows = rows[wanted[rows]]
    at = (nothing if time is None else time)[rows], (nothing if group is None else group)[rows]
    some = getattr(fill, "fill_some", None)
    given = masked[rows]
    filled = fill.fill(given, *at) if some is None else some(given, *at, wanted[rows])
    if unit is None:
        unit = own_units(truth)
    points = np.ascontiguousarray(filled.rows)
    said = of_missing(points, filled.weights, filled.first, given, truth[rows], unit)
    return Judged(*said, *_parts(*said))


def own_units(truth: Floats) -> Floats:
    """The deviation of what is known of each attribute; 1 of one that never varies."""
    deviation = units(truth)[1]
    return np.where(np.isfinite(deviation), deviation, 1.0)


@np.errstate(over="ignore", invalid="ignore")
def score_of(said: Judged) -> Score:
    """The score of what was said."""
    n = len(said.truth)
    if n == 0:
        return Score(0.0, 0.0, 0.0, 0.0, 0)
    place, mean = below(said.values, said.shares, said.first, said.truth)
    squares = (mean - said.truth) ** 2
    calibration = np.abs((place[:, None] <= _LEVELS).mean(axis=0) - _LEVELS).mean()
    crps, spread = float((said.off - said.spread / 2).mean()), float(said.spread.mean())
    return Score(crps, float(np.sqrt(squares.mean())), float(calibration), spread, n)


def apart(one: Judged, other: Judged) -> Floats:
    """E|X - Y| of each masked value by two imputers."""
    found = np.empty(len(one.truth))
    differences_between(one.values, one.shares, one.first, other.values, other.shares, other.first, found)
    return found


def mask(truth: Floats, share: float, most: int, seed: int) -> Floats:
    """Rows with values taken out at random: of that share of the rows, one to ``most`` attributes each, never all."""
    chance = np.random.default_rng(seed)
    n, d = truth.shape
    masked = truth.copy()
    rows = np.flatnonzero(chance.random(n) < share)
    holes = chance.integers(1, max(2, min(most, d - 1) + 1), len(rows))
    ranks = chance.random((len(rows), d)).argsort(axis=1).argsort(axis=1)
    masked[rows] = np.where(ranks < holes[:, None], np.nan, masked[rows])
    return masked
