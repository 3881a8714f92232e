"""Several imputers at once, against their samples put together one by one."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appulse.imputation.mixture import Mixture, weights_of
from appulse.imputation.scores import scored
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


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.floats(0.0, 100.0), min_size=1))
def test_weights_fall_with_the_score(scores: dict[str, float]) -> None:
    weights = weights_of(scores)
    assert sum(weights.values()) == pytest.approx(1.0)
    assert len(weights) <= 4
    best = min(scores.values())
    assert all(scores[name] <= 1.5 * best for name in weights)
    order = [scores[name] for name in weights]
    assert order == sorted(order)
    for name, weight in weights.items():
        if best > 0.0:
            assert weight / max(weights.values()) == pytest.approx((best / scores[name]) ** 4)


def test_an_imputer_without_a_finite_score_is_alone_only_where_all_are() -> None:
    assert weights_of({"a": np.inf, "b": 1.0}) == {"b": 1.0}
    assert weights_of({"a": np.inf, "b": np.inf}) == {"a": 1.0}


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
