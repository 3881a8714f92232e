"""Attributes of incomplete rows that have an error, known or filled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.imputation.noise import noisy
from appulse.model.filled import OBSERVED, Filled

numbers = st.integers(-4, 4).map(float)


@given(st.lists(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=90), min_size=1, max_size=6), numbers)
def test_errors_leave_the_mean_and_known_rows_have_their_covariance(
    rows: list[list[tuple[float, float]]], sigma: float
) -> None:
    counts = np.array([len(row) for row in rows])
    points = np.array([point for row in rows for point in row])
    weights = np.concatenate([np.full(n, 1.0 / n) for n in counts])
    first = np.append(0, np.cumsum(counts))
    deviations = np.array([abs(sigma), 0.5])
    found = noisy(Filled(first, points, weights, np.full((len(rows), 2), OBSERVED)), deviations)
    for i, count in enumerate(counts.tolist()):
        own = slice(int(found.first[i]), int(found.first[i + 1]))
        known = points[first[i] : first[i + 1]]
        assert found.weights[own].sum() == pytest.approx(1.0)
        np.testing.assert_allclose(found.weights[own] @ found.rows[own], known.mean(axis=0), atol=1e-12)
        if count == 1:
            off = found.rows[own] - known
            np.testing.assert_allclose(off.T @ off / len(off), np.diag(deviations**2), atol=1e-12)


@settings(max_examples=30)
@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=8))
def test_complete_rows_are_the_points_of_a_gaussian(rows: list[tuple[float, float]]) -> None:
    """To the last bits: they are what a Gaussian is where it has no closed form."""
    x, y = zip(*rows, strict=True)
    table = pa.table({"id": range(len(rows)), "t": [0] * len(rows), "x": x, "y": y})
    asked: dict[str, Any] = {"epsilon": 1.0, "probability": 0.05, "window": 1}
    incomplete = ap.Stream(table, key="id", time="t", value=ap.Incomplete("x", "y", sigma=0.5))
    gaussian = ap.Stream(table, key="id", time="t", value=ap.Gaussian("x", "y", sigma=0.5))
    found = ap.self_join(incomplete, imputer=ap.ZeroFill(), **asked)
    expected = ap.self_join(ap.filter(gaussian, "x > -1e9"), **asked)  # which makes it its points
    pairs = [(p["left_key"], p["right_key"]) for p in found.to_pylist()]
    assert pairs == [(p["left_key"], p["right_key"]) for p in expected.to_pylist()]
    np.testing.assert_allclose(found["probability"].to_numpy(), expected["probability"].to_numpy(), atol=1e-12)


def test_models_with_an_error_say_so() -> None:
    assert repr(ap.Incomplete("x", "y")) == "Incomplete('x', 'y')"
    assert repr(ap.Incomplete("x", "y", sigma=[0.5, 1.0])) == "Incomplete('x', 'y', sigma=(0.5, 1.0))"
    with pytest.raises(ap.BadArgument, match="2 columns and 1 sigmas"):
        ap.Incomplete("x", "y", sigma=[0.5])
    with pytest.raises(ap.BadArgument, match="at least 0"):
        ap.Incomplete("x", "y", sigma=-1.0)
