"""Several imputers at once, against their samples put together one by one."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appulse.imputation.mixture import Mixture, least, stacked
from appulse.imputation.scores import Judged, apart, crps, judged, scored
from appulse.imputation.simple import SimpleFill
from appulse.model.filled import OBSERVED, Filled


class Drawn:
    """An imputer with so many samples for each hole, of which some rows know nothing."""

    def __init__(self, seed: int, k: int) -> None:
        self.seed, self.k = seed, k

    def bind(self, attributes: Any) -> SimpleFill:  # noqa: ARG002
        return SimpleFill((f"drawn {self.seed}",), {"kind": "Drawn", "seed": self.seed}, self.fill)

    def fill(self, values: Any, *_: Any) -> Filled:
        chance = np.random.default_rng(self.seed)
        n, missing = len(values), np.isnan(values)
        counts = np.where(missing.any(axis=1), self.k, 1)
        owner = np.repeat(np.arange(n), counts)
        rows = np.where(missing[owner], chance.normal(size=(len(owner), values.shape[1])), values[owner])
        blind = chance.random(n) < 0.3
        rows[(blind[owner])[:, None] & missing[owner]] = np.nan
        first = np.append(0, np.cumsum(counts))
        return Filled(first, rows, 1.0 / counts[owner], np.where(missing, 0, OBSERVED))


def worlds(filled: Filled, row: int) -> dict[bytes, float]:
    """The weight of each sample of a row."""
    found: dict[bytes, float] = defaultdict(float)
    for k in range(int(filled.first[row]), int(filled.first[row + 1])):
        found[filled.rows[k].tobytes()] += float(filled.weights[k])
    return found


@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 4))
def test_a_mixture_is_the_samples_of_its_parts_by_their_weights(seed: int, n: int, many: int) -> None:
    chance = np.random.default_rng(seed)
    values = np.where(chance.random((n, 3)) < 0.4, np.nan, chance.normal(size=(n, 3)))
    values[:, 0] = np.arange(n)
    parts = {f"p{i}": Drawn(seed + i, i + 1) for i in range(many)}
    drawn = chance.random(many) + 0.1
    weights = dict(zip(parts, (drawn / drawn.sum()).tolist(), strict=True))
    nothing = np.zeros(n, np.int64)
    mixed = Mixture(parts, weights).bind("abc").fill(values, nothing, nothing)
    apart = {name: part.fill(values) for name, part in parts.items()}
    for row in range(n):
        able = [name for name, fill in apart.items() if not np.isnan(_rows(fill, row)).any()] or ["p0"]
        if not np.isnan(values[row]).any():
            able = ["p0"]
        total = sum(weights[name] for name in able)
        wanted: dict[bytes, float] = defaultdict(float)
        for name in able:
            for point, weight in worlds(apart[name], row).items():
                wanted[point] += weight * weights[name] / total
        assert worlds(mixed, row) == pytest.approx(wanted)


def _rows(filled: Filled, row: int) -> Any:
    return filled.rows[int(filled.first[row]) : int(filled.first[row + 1])]


def said(chance: np.random.Generator, n: int, truth: Any, off: float) -> Judged:
    """Of n values a few samples each, as `judged` has them."""
    counts = chance.integers(1, 6, n)
    shares = chance.random(int(counts.sum())) + 0.1
    owner = np.repeat(np.arange(n), counts)
    shares /= np.bincount(owner, shares, n)[owner]
    values = truth[owner] + chance.normal(0.0, off, len(owner))
    values = values[np.lexsort((values, owner))]
    first = np.append(0, np.cumsum(counts))
    found = np.zeros((2, n))
    for i in range(n):
        x, w = (part[first[i] : first[i + 1]] for part in (values, shares))
        found[:, i] = w @ np.abs(x - truth[i]), w @ np.abs(x[:, None] - x) @ w
    return Judged(values, shares, first, truth, *found)


def drawn(seed: int, n: int, many: int, rounds: int) -> dict[str, dict[int, Judged]]:
    """What several imputers said of the same values."""
    chance = np.random.default_rng(seed)
    truths = [chance.normal(size=n) for _ in range(rounds)]
    offs = 0.5 + chance.random(many)
    return {
        f"p{i}": {number: said(chance, n, truth, off) for number, truth in enumerate(truths)}
        for i, off in enumerate(offs)
    }


def crps_of(parts: dict[str, dict[int, Judged]], weights: dict[str, float]) -> float:
    """The mean CRPS of a mixture, its samples put together one by one."""
    found = []
    for i, one in next(iter(parts.values())).items():
        for k in range(len(one.truth)):
            own = [
                (of, said[i], slice(*said[i].first[k : k + 2]))
                for name, of in weights.items()
                for said in [parts[name]]
            ]
            values = np.concatenate([of.values[at] for _, of, at in own])
            shares = np.concatenate([weight * of.shares[at] for weight, of, at in own])
            found.append(crps(values, shares, np.array([0, len(values)]), one.truth[k : k + 1])[0])
    return float(np.mean(found))


@given(st.integers(0, 10_000), st.integers(1, 12))
def test_how_far_two_are_apart_is_the_mean_over_all_pairs_of_samples(seed: int, n: int) -> None:
    one, other = (rounds[0] for rounds in drawn(seed, n, 2, 1).values())
    for i, found in enumerate(apart(one, other).tolist()):
        (x, v), (y, w) = (
            (of.values[of.first[i] : of.first[i + 1]], of.shares[of.first[i] : of.first[i + 1]]) for of in (one, other)
        )
        assert found == pytest.approx(v @ np.abs(x[:, None] - y) @ w, abs=1e-9)


@given(st.integers(0, 10_000), st.integers(1, 3), st.integers(1, 2))
def test_no_weights_make_a_better_mixture(seed: int, many: int, rounds: int) -> None:
    parts = drawn(seed, 4, many, rounds)
    best = min(crps_of(parts, {name: 1.0}) for name in parts)
    near = [name for name in parts if crps_of(parts, {name: 1.0}) <= 1.5 * best]
    weights = stacked(parts)
    assert sum(weights.values()) == pytest.approx(1.0)
    assert set(weights) <= set(near)
    assert list(weights.values()) == sorted(weights.values(), reverse=True)
    found = crps_of(parts, weights)
    grid = np.array([(a, b, 6 - a - b) for a in range(7) for b in range(7 - a)]) / 6
    for own in grid[(grid[:, len(near) :] == 0.0).all(axis=1)].tolist():
        assert found <= crps_of(parts, dict(zip(near, own, strict=False))) + 0.02 * best  # small parts are left out


@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(1, 4))
def test_few_weights_above_0_are_chosen_from_all_sets(seed: int, n: int, most: int) -> None:
    chance = np.random.default_rng(seed)
    points = chance.normal(size=(n, 3))
    between = np.sqrt(((points[:, None] - points) ** 2).sum(axis=2))
    off = np.sqrt((points**2).sum(axis=1))
    weights = least(off, between, most)
    assert weights.sum() == pytest.approx(1.0)
    assert (weights >= 0.0).all()
    assert (weights > 0.0).sum() <= most
    lowest = off @ weights - weights @ between @ weights / 2
    for _ in range(50):
        other = np.where(chance.random(n) < 0.6, chance.random(n), 0.0)
        other[np.argsort(other)[: n - most]] = 0.0
        if other.sum() > 0.0:
            other /= other.sum()
            assert lowest <= off @ other - other @ between @ other / 2 + 1e-9


def test_of_the_same_twice_one_is_enough() -> None:
    parts = drawn(1, 20, 1, 1)
    assert stacked(parts | {"again": parts["p0"]}) == {"p0": 1.0}


def test_an_imputer_without_a_finite_score_is_alone_only_where_all_are() -> None:
    finite = drawn(1, 4, 1, 1)["p0"]
    one = finite[0]
    nan = {0: Judged(one.values * np.nan, one.shares, one.first, one.truth, one.off * np.nan, one.spread)}
    assert stacked({"a": nan, "b": finite}) == {"b": 1.0}
    assert stacked({"a": nan, "b": nan}) == {"a": 1.0}


@given(st.integers(0, 10_000))
def test_rounds_that_not_all_have_do_not_count(seed: int) -> None:
    parts = drawn(seed, 6, 2, 3)
    weights = stacked({"p0": parts["p0"], "p1": {k: parts["p1"][k] for k in (0, 2)}})
    assert sum(weights.values()) == pytest.approx(1.0)
    if len(weights) == 2:
        kept = {name: {k: rounds[k] for k in (0, 2)} for name, rounds in parts.items()}
        for own in np.linspace(0.0, 1.0, 9).tolist():
            assert crps_of(kept, weights) <= crps_of(kept, {"p0": own, "p1": 1.0 - own}) + 1e-9


def test_imputers_without_a_round_in_common_are_not_mixed() -> None:
    few, many = (drawn(3, n, 1, 1)["p0"][0] for n in (3, 8))
    assert len(stacked({"a": {0: few}, "b": {1: many}})) == 1


def test_what_is_judged_is_what_is_filled() -> None:
    chance = np.random.default_rng(5)
    truth = chance.normal(size=(40, 2))
    masked = np.where(np.arange(2) == np.arange(40)[:, None] % 3, np.nan, truth)
    one = judged(Solid(3), "xy", truth, masked)
    filled = Solid(3).fill(masked)
    deviation = truth.std(axis=0)
    at = 0
    for k in range(2):
        for row in np.flatnonzero(np.isnan(masked[:, k])).tolist():
            own = slice(*one.first[at : at + 2])
            np.testing.assert_allclose(one.values[own] * deviation[k], np.sort(_rows(filled, row)[:, k]))
            np.testing.assert_allclose(one.shares[own], [0.3, 0.5, 0.2])
            assert one.truth[at] * deviation[k] == pytest.approx(truth[row, k])
            at += 1
    assert at == len(one.truth)


class Solid(Drawn):
    """Three samples for each hole, out of order."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, 3)

    def fill(self, values: Any, *_: Any) -> Filled:
        # By the values of a row alone, as rows are judged without the others.
        found, shares = [], []
        for row in values:
            holes = np.isnan(row)
            many = 3 if holes.any() else 1
            found.append(np.where(holes, np.nansum(row) + self.seed * np.array([1, 0, 2])[:many, None], row))
            shares.append(np.array([0.5, 0.3, 0.2] if many == 3 else [1.0]))
        first = np.append(0, np.cumsum([len(of) for of in shares]))
        way = np.where(np.isnan(values), 0, OBSERVED)
        return Filled(first, np.concatenate(found), np.concatenate(shares), way)


def test_a_mixture_of_two_that_err_apart_is_better_than_either() -> None:
    chance = np.random.default_rng(3)
    truth = chance.normal(size=(400, 2))
    masked = truth.copy()
    masked[:, 1] = np.nan

    class Off(Drawn):
        def fill(self, values: Any, *_: Any) -> Filled:
            off = np.random.default_rng(self.seed).normal(size=len(values))
            points = np.column_stack([values[:, 0], truth[:, 1] + off])
            way = np.where(np.isnan(values), 0, OBSERVED)
            return Filled(np.arange(len(values) + 1), points, np.ones(len(values)), way)

    parts = {"a": Off(1, 1), "b": Off(2, 1)}
    apart = [scored(part, "xy", truth, masked).crps for part in parts.values()]
    assert scored(Mixture(parts, {"a": 0.5, "b": 0.5}), "xy", truth, masked).crps < 0.85 * min(apart)
