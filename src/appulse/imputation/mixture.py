"""Several imputers at once: each fills a row, and what they say counts by their weights."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from appulse.imputation.scores import apart, pooled
from appulse.model.filled import OBSERVED, Filled
from appulse.model.meaning import real
from appulse.model.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from appulse.imputation.imputer import Imputer
    from appulse.imputation.scores import Judged
    from appulse.kernels.arrays import Flags, Floats, Ints
    from appulse.model.filled import Fill
    from appulse.model.meaning import Meaning

_FAR = 1.5  # times the best score: imputers with a greater one have no part
_TRIED, _MOST = 5, 4  # imputers to choose from, and chosen: each takes its time, and its samples
_LEAST = 0.05  # weight of a part
_MANY = 256  # rows from which on threads pay


def stacked(said: Mapping[str, Mapping[int, Judged]]) -> dict[str, float]:
    """The weights by which several imputers together say best what was masked, by CRPS, the heaviest first.

    ``said`` is by the number of a round, in each of which all say the same values. Those near the best are compared in
    the rounds that all of them have. The CRPS of a mixture is quadratic in its weights: the mean difference off the
    truth, less half of that between parts.
    """
    score = {name: _score(list(of.values())) for name, of in said.items()}
    order = sorted(score, key=lambda name: score[name])
    first, best = order[0], score[order[0]]
    if not np.isfinite(best):
        return {first: 1.0}
    near: list[str] = []
    common = set(said[first])
    for name in order:
        if score[name] <= _FAR * best and len(near) < _TRIED and common & said[name].keys():
            near.append(name)
            common &= said[name].keys()
    rounds = sorted(common)
    if sum(len(said[first][number].truth) for number in rounds) == 0:
        return {first: 1.0}
    off = np.array([_mean([said[name][number].off for number in rounds]) for name in near])
    between = np.diag([_mean([said[name][number].spread for number in rounds]) for name in near])
    for i in range(len(near)):
        for j in range(i):
            both = [apart(said[near[i]][number], said[near[j]][number]) for number in rounds]
            between[i, j] = between[j, i] = _mean(both)
    weights = least(off, between, _MOST)
    weights = np.where(weights >= min(_LEAST, weights.max()), weights, 0.0)
    found = {name: float(of) for name, of in zip(near, weights / weights.sum(), strict=True) if of > 0.0}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def least(off: Floats, between: Floats, most: int) -> Floats:
    """Weights w >= 0 that sum to 1, at most so many above 0, with the least ``off @ w - w @ between @ w / 2``.

    That is convex where ``between`` are mean differences (Székely & Rizzo 2013). So the least of all with some weights
    above 0 is where its derivatives are equal, and of few all sets are looked at: the smallest first, for ties.
    """
    n = len(off)
    lowest = np.inf
    best: Floats = np.eye(n)[0]
    for size in range(1, min(n, most) + 1):
        for some in combinations(range(n), size):
            own = list(some)
            equal = np.ones((size + 1, size + 1))
            equal[:size, :size], equal[size, size] = -between[np.ix_(own, own)], 0.0
            found = np.linalg.lstsq(equal, np.append(-off[own], 1.0), rcond=None)[0][:size]
            if (found < 0.0).any() or not found.sum() > 0.5:
                continue
            weights = np.zeros(n)
            weights[own] = found / found.sum()
            cost = float(off @ weights - weights @ between @ weights / 2)
            if cost < lowest - 1e-12 * abs(off[0]):
                lowest, best = cost, weights
    return best


def _score(rounds: Sequence[Judged]) -> float:
    found = pooled([one.score for one in rounds]).crps
    # A fill that is not finite has no score, and that of a perfect one may be below 0 by rounding.
    return max(0.0, found) if np.isfinite(found) else np.inf


def _mean(rounds: Sequence[Floats]) -> float:
    every = np.concatenate(rounds)
    return float(every.mean()) if len(every) else 0.0


@dataclass(frozen=True)
class Mixture:
    """Imputers by name, and their weights, which sum to 1; so many ``threads`` fill, each by one of them."""

    parts: Mapping[str, Imputer]
    weights: Mapping[str, float]
    threads: int = 1

    def bind(self, attributes: Sequence[str]) -> MixedFill:
        """The object that fills rows with these attributes."""
        fills = {name: imputer.bind(attributes) for name, imputer in self.parts.items()}
        return MixedFill(fills, self.weights, self.threads)


class MixedFill:
    """A linear opinion pool: the samples of several fills together, those of each with its weight.

    A fill that knows nothing of some hole of a row has no part in that row, unless none knows more.
    """

    def __init__(self, fills: Mapping[str, Fill], weights: Mapping[str, float], threads: int = 1) -> None:
        self.fills, self.threads = tuple(fills.values()), threads
        self.weights = tuple(weights[name] for name in fills)
        self._description = " + ".join(f"{weights[name]:.2f} {name}" for name in fills)

    @property
    def in_order(self) -> bool:
        """Whether any part is filled by the rows around."""
        return any(fill.in_order for fill in self.fills)

    def meaning(self) -> Meaning:
        parts = [[real(weight), fill.meaning()] for fill, weight in zip(self.fills, self.weights, strict=True)]
        return {"kind": "Mixture", "parts": parts}

    def describe(self, way: int) -> str:  # noqa: ARG002 - there is one way
        return self._description

    def fill(self, values: Floats, time: Ints, group: Ints) -> Filled:
        workers = Workers(self.threads if len(values) >= _MANY else 1)
        return self._mixed(workers.map(lambda fill: fill.fill(values, time, group), self.fills))

    def _mixed(self, parts: Sequence[Filled]) -> Filled:
        n = len(parts[0].way)
        owners = [np.repeat(np.arange(n), np.diff(part.first)) for part in parts]
        share = np.stack([self._able(*own) for own in zip(parts, owners, strict=True)], axis=1)
        share[~share.any(axis=1), 0] = True
        # A row without holes is what it is, once.
        share[(parts[0].way == OBSERVED).all(axis=1)] = np.arange(len(parts)) == 0
        weight = share * np.array(self.weights)
        weight /= weight.sum(axis=1, keepdims=True)
        kept = [share[owner, i] for i, owner in enumerate(owners)]
        owner = np.concatenate([of[own] for of, own in zip(owners, kept, strict=True)])
        rows = np.concatenate([part.rows[own] for part, own in zip(parts, kept, strict=True)])
        apart = enumerate(zip(parts, owners, kept, strict=True))
        shares = [part.weights[own] * weight[of[own], i] for i, (part, of, own) in apart]
        order = np.argsort(owner, kind="stable")
        first = np.append(0, np.cumsum(np.bincount(owner, minlength=n)))
        way = np.where(parts[0].way == OBSERVED, OBSERVED, 0)
        return Filled(first, np.ascontiguousarray(rows[order]), np.concatenate(shares)[order], way)

    @staticmethod
    def _able(part: Filled, owner: Ints) -> Flags:
        able = np.ones(len(part.way), np.bool_)
        able[owner[~np.isfinite(part.rows).all(axis=1)]] = False
        return able
