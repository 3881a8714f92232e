"""A few rows with large errors make a join look at no more: what has a large error is nowhere likely."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import appulse as ap
from appulse.kernels.gaussian import TAIL, at_most, ball_probability
from appulse.model.reach import densest

if TYPE_CHECKING:
    from numpy.typing import NDArray

_N, _METRE = 6_000, 1.0 / 111_000.0
VALUES: dict[str, Any] = {
    "normal": ap.Gaussian("x", "y", sigma="s"),
    "covariance": ap.Gaussian("x", "y", sigma=("s", "half")),
    "position": ap.Position("lat", "lon", sigma="s"),
    "line": ap.Gaussian("x", sigma="s"),
}


def _table(seed: int, sigma: NDArray[np.float64]) -> pa.Table:
    random, n = np.random.default_rng(seed), len(sigma)
    x, y = random.uniform(0, 150, (2, n))
    columns = {"id": range(n), "t": np.arange(n) * 0.01, "x": x, "y": y, "lat": y * _METRE, "lon": x * _METRE}
    return pa.table(columns | {"s": sigma, "half": 0.5 * sigma})


def _streams(value: Any, wide: float, n: int = _N) -> list[ap.Stream]:
    sigma = np.where(np.arange(n) % 100 == 5, wide, 0.3)
    return [ap.Stream(_table(i, sigma), key="id", time="t", value=value) for i in (0, 1)]


def _looked_at(value: Any, wide: float, **asked: Any) -> tuple[int, int]:
    """How many pairs were near enough to be judged, and how many were computed."""
    counts = ap.explain(ap.similarity_join(*_streams(value, wide), epsilon=1.0, **asked)).counts
    return counts["candidates"] - counts["pruned_reach"], counts["refined"]


@pytest.mark.parametrize("window", ["10 seconds", ap.CountWindow(1_000)])
@pytest.mark.parametrize("wide", [30.0, 3000.0])
@pytest.mark.parametrize("probability", [0.3, 0.05])
@pytest.mark.parametrize("name", VALUES)
def test_wide_rows_are_looked_for_no_farther_than_they_match(
    name: str, probability: float, wide: float, window: Any
) -> None:
    asked: dict[str, Any] = {"probability": probability, "window": window}
    near, computed = _looked_at(VALUES[name], wide, **asked)
    usual, usually = _looked_at(VALUES[name], 0.3, **asked)
    assert near <= 1.1 * usual
    assert computed <= 1.1 * usually


@pytest.mark.parametrize("probability", [0.6, 0.3, 0.05, 0.001])
@pytest.mark.parametrize("name", VALUES)
def test_the_answers_are_those_without_bounds(name: str, probability: float) -> None:
    """From a sigma of 1 to 30 it depends on the probability whether a row may match."""
    sigma = np.random.default_rng(3).choice([0.0, 0.1, 0.3, 1.0, 3.0, 8.0, 30.0, 3000.0], 1_000)
    streams = [ap.Stream(_table(i, sigma), key="id", time="t", value=VALUES[name]) for i in (4, 5)]
    asked: dict[str, Any] = {"epsilon": 2.0, "probability": probability, "window": 100}
    found, wanted = (
        {
            (a, b): p
            for a, b, p in zip(*(t[c].to_pylist() for c in ("left_key", "right_key", "probability")), strict=True)
        }
        for t in (
            ap.similarity_join(*streams, **asked),
            ap.similarity_join(*streams, **asked, options=ap.Options(bounds=frozenset())),
        )
    )
    assert found == pytest.approx(wanted, abs=1e-9)
    assert found


@pytest.mark.parametrize("d", [1, 2, 3, 8, 20])
def test_bounds_are_no_less_than_probabilities(d: int) -> None:
    """Of any distance and deviation; and no distance or deviation beyond those of `densest` is as likely."""
    random = np.random.default_rng(d)
    for _ in range(2_000):
        epsilon = 10.0 ** random.uniform(-3, 3)
        deviation = epsilon * 10.0 ** random.uniform(-2, 4)
        distance = random.choice([0.0, epsilon * 10.0 ** random.uniform(-3, 3), deviation * random.uniform(0.0, TAIL)])
        found = ball_probability(distance, deviation, epsilon, d)
        assert at_most(distance, deviation, epsilon, d) >= found * (1.0 - 1e-9) - 1e-12
        if found > 1e-8:
            away, most = densest(found, d)
            assert distance <= epsilon * (1.0 + away) * (1.0 + 1e-9)
            assert deviation <= epsilon * most * (1.0 + 1e-6)


def test_nothing_bounds_what_need_not_be_likely() -> None:
    assert densest(0.0, 2) == (np.inf, np.inf)
