"""Pairs whose difference has no density: how likely they are, and that `assign` chooses the likeliest first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.engines.join.assign import AssignSettings, resolve_assign
from appulse.operators.limits import limits
from tests.operators.test_assignment import best_of, loss_of, total

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.operators.test_assignment import Gain, Pair

ASSIGN: Any = ap.assign
ASKED: dict[str, Any] = {"epsilon": 5.0, "probability": 0.5, "window": "tick", "density": 0.001, "how": "full"}
# Exact, along x, along y, along a diagonal, and in all directions.
ERRORS = [(0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (0.0, 0.0, 0.5), (0.5, 0.5, 0.5), (2.0, 2.0, 2.0), (1.0, 0.5, 1.0)]
COVARIANCE = ap.Gaussian("x", "y", covariance=["xx", "xy", "yy"])


def stream(rows: Any, value: Any, **more: Any) -> ap.Stream:
    return ap.Stream(rows, key="k", time="t", value=value, **more)


def table(rows: list[tuple[int, int, tuple[float, float, float]]], first: int) -> pa.Table:
    columns: dict[str, Any] = {"k": pa.array(range(first, first + len(rows)), pa.int64()), "t": [0.0] * len(rows)}
    for name, own in (("x", [row[0] for row in rows]), ("y", [row[1] for row in rows])):
        columns[name] = pa.array(own, pa.float64())
    for i, name in enumerate(("xx", "xy", "yy")):
        columns[name] = pa.array([row[2][i] for row in rows], pa.float64())
    return pa.table(columns)


def gain_of(gap: NDArray[np.float64], covariance: NDArray[np.float64], density: float) -> Gain | None:
    """By singular values: what is left of the density along the axes that have an error, and how many have none."""
    axes, variance, _ = np.linalg.svd(covariance)
    free = variance < 1e-9
    along = axes.T @ gap
    if np.abs(along[free]).max(initial=0.0) > 1e-9:
        return None
    rest = -0.5 * (along[~free] ** 2 / variance[~free] + np.log(variance[~free])).sum()
    return int(free.sum()), float(rest) - 0.5 * len(gap) * math.log(2.0 * math.pi) - math.log(density)


errors = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.sampled_from(ERRORS)), max_size=6)


@settings(max_examples=80)
@given(errors, errors)
def test_covariances_along_lines_equal_the_twin(left: list[Any], right: list[Any]) -> None:
    tables = [table(left, 0), table(right, 100)]
    both = [stream(rows, COVARIANCE) for rows in tables]
    rows = {row["k"]: row for one in tables for row in one.to_pylist()}
    join: Any = ap.similarity_join
    asked = {name: ASKED[name] for name in ("epsilon", "probability", "density")}
    pairs: list[Pair] = []
    for pair in join(*both, **asked, window=1, likelihood=True).to_pylist():
        one, other = rows[pair["left_key"]], rows[pair["right_key"]]
        gap = np.array([one["x"] - other["x"], one["y"] - other["y"]])
        xx, xy, yy = (one[name] + other[name] for name in ("xx", "xy", "yy"))
        gain = gain_of(gap, np.array([[xx, xy], [xy, yy]]), ASKED["density"])
        if pair["log_likelihood_ratio"] is not None:
            assert gain is not None
            assert gain[0] == 0
            assert math.isclose(gain[1], pair["log_likelihood_ratio"], abs_tol=1e-9)
        if gain is not None:
            pairs.append((one["k"], other["k"], gain))
    found = ASSIGN(*both, **ASKED).to_pylist()
    taken = {
        (row["left_key"], row["right_key"]): row for row in found if None not in (row["left_key"], row["right_key"])
    }
    order, gained = total(gain for left_key, right_key, gain in pairs if (left_key, right_key) in taken)
    assert set(taken) <= {pair[:2] for pair in pairs}
    greatest = best_of(pairs)
    assert order == greatest[0]
    assert math.isclose(gained, greatest[1], abs_tol=1e-6)
    for at, (left_key, right_key, _) in enumerate(pairs):
        if (row := taken.get((left_key, right_key))) is not None:
            assert math.isclose(row["margin"], loss_of(pairs, at), abs_tol=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_the_limit_is_that_of_errors_that_shrink(seed: int) -> None:
    """In three dimensions: one more error of deviation s in all directions, and s as small as rounding lets it."""
    chance = np.random.default_rng(seed)
    root = chance.normal(size=(3, int(seed % 3)))
    whole, gap = root @ root.T, root @ chance.normal(size=int(seed % 3))
    rows: dict[str, Any] = {"k": [1], "t": [0.0]} | {name: [0.0] for name in "xyz"}
    rows |= {f"c{i}": [whole[a, b]] for i, (a, b) in enumerate(zip(*np.triu_indices(3), strict=True))}
    moved = rows | {name: [step] for name, step in zip("xyz", gap.tolist(), strict=True)}
    value = ap.Gaussian("x", "y", "z", covariance=[f"c{i}" for i in range(6)])
    both = [stream(pa.table(one), value if i else ap.Exact("x", "y", "z")) for i, one in enumerate((rows, moved))]
    settings_of: Any = {name: one for name, one in ASKED.items() if name != "how"}
    call = resolve_assign(both, [one.frame.schema for one in both], AssignSettings(**settings_of))
    left, right = (call.encode(i, one.frame)[0] for i, one in enumerate(both))
    order, rest = (one[0] for one in limits(call.plan, left, right))
    assert order == 3 - seed % 3
    for s in (1e-3, 1e-4):
        larger = whole + s * s * np.eye(3)
        square, size = gap @ np.linalg.solve(larger, gap), np.linalg.slogdet(larger)[1]
        density = -0.5 * (square + size + 3 * math.log(2.0 * math.pi))
        assert math.isclose(density + order * math.log(s), rest, abs_tol=1e-3)
    steps = zip("xyz", gap.tolist(), (1.0, -1.0, 2.0), strict=True)
    away = moved | {name: [step + one] for name, step, one in steps}
    assert limits(call.plan, left, call.encode(1, pa.table(away))[0])[0].tolist() == [0]


def exact_rows(sigma: float) -> list[pd.DataFrame]:
    rows = {"t": 0, "x": [0.0, 50.0], "y": 0.0, "s": [sigma, 1.0]}
    return [pd.DataFrame({"k": [f"{name}1", f"{name}2"]} | rows) for name in "ab"]


@pytest.mark.parametrize("sigma", [0.0, 1e-200, 1e-170, 1e-150, 1e-9])
@pytest.mark.parametrize("method", ["optimal", "greedy"])
def test_two_exact_rows_at_one_place_are_one_thing(sigma: float, method: str) -> None:
    found = ASSIGN(
        *[stream(rows, ap.Gaussian("x", "y", sigma="s")) for rows in exact_rows(sigma)], **ASKED, method=method
    )
    rows = {row["left_key"]: row for row in found.to_pylist()}
    assert {key: row["right_key"] for key, row in rows.items()} == {"a1": "b1", "a2": "b2"}
    sure = sigma < 1e-160  # so that its square is nothing
    assert (rows["a1"]["log_likelihood_ratio"] is None) is sure
    if method == "optimal":
        assert math.isinf(rows["a1"]["margin"]) is sure
    text = str(ap.explain(found))
    said = "as neither row has an error in some direction: 1, of which 1 are at one place there and come first"
    assert (said in text) is sure


def test_exact_rows_that_are_apart_are_never_one_thing() -> None:
    left = pa.table({"k": [1, 2], "t": [0.0] * 2, "x": [0.0, 0.5], "s": [0.0, 0.0]})
    right = pa.table({"k": [7, 8], "t": [0.0] * 2, "x": [0.25, 0.5], "s": [0.0, 1.0]})
    both = [stream(rows, ap.Gaussian("x", sigma="s")) for rows in (left, right)]
    found = ASSIGN(*both, **ASKED)
    chosen = [(row["left_key"], row["right_key"]) for row in found.to_pylist() if row["distance"] is not None]
    assert chosen == [(2, 8)]
    assert "in some direction: 2, of which 0 are at one place there" in str(ap.explain(found))


def test_an_infinitely_likely_pair_comes_before_any_other() -> None:
    """Alone it costs two pairs that are likely; what another of its kind may replace has a margin."""
    left = pa.table({"k": [1, 2], "t": [0.0] * 2, "x": [0.0, 0.1], "s": [0.0, 1e-6]})
    right = pa.table({"k": [7, 8, 9], "t": [0.0] * 3, "x": [0.0, 1e-7, 0.1], "s": [0.0, 1e-6, 0.0]})
    both = [stream(rows, ap.Gaussian("x", sigma="s")) for rows in (left, right)]
    chosen = {row["left_key"]: row for row in ASSIGN(*both, **ASKED).to_pylist() if row["left_key"] is not None}
    assert (chosen[1]["right_key"], chosen[2]["right_key"]) == (7, 9)
    assert chosen[1]["margin"] == math.inf
    twice = pa.concat_tables([left, left.set_column(0, "k", pa.array([3, 4]))])
    (row,) = [
        row
        for row in ASSIGN(stream(twice, ap.Gaussian("x", sigma="s")), both[1], **ASKED).to_pylist()
        if row["right_key"] == 7 and row["left_key"] is not None
    ]
    assert 0.0 <= row["margin"] < 100.0


@pytest.mark.parametrize("earth", ["wgs84", "sphere"])
def test_on_the_earth_places_and_altitudes_have_errors_of_their_own(earth: Any) -> None:
    """Without errors of altitudes, those of one thing are the same; without errors along the Earth, the places are."""

    def rows(name: str, **columns: list[float]) -> pd.DataFrame:
        n = len(columns["lat"])
        return pd.DataFrame({"k": [f"{name}{i}" for i in range(n)], "t": [0] * n, "lon": [179.9999] * n} | columns)

    def chosen(value: ap.Position, left: pd.DataFrame, right: pd.DataFrame) -> dict[str, str]:
        asked = ASKED | {"epsilon": {"horizontal": 500.0, "vertical": 500.0}, "density": 1e-9}
        found = ASSIGN(stream(left, value), stream(right, value), **asked).to_pylist()
        return {row["left_key"]: row["right_key"] for row in found if None not in (row["left_key"], row["right_key"])}

    level = ap.Position("lat", "lon", sigma=100.0, altitude="up", earth=earth)
    left = rows("a", lat=[50.0, 50.0], up=[300.0, 330.0])
    right = rows("b", lat=[50.001, 50.0, 50.0], up=[300.0, 330.0, 310.0])
    assert chosen(level, left, right) == {"a0": "b0", "a1": "b1"}
    post = ap.Position("lat", "lon", altitude="up", altitude_sigma=10.0, earth=earth)
    left = rows("a", lat=[50.0, 50.001], up=[300.0, 300.0])
    right = rows("b", lat=[50.0, 50.001, 50.0005], up=[310.0, 290.0, 300.0])
    assert chosen(post, left, right) == {"a0": "b0", "a1": "b1"}
    mixed = ap.Position("lat", "lon", sigma="s", altitude="up", altitude_sigma="v", earth=earth)
    left = rows("a", lat=[50.0, 50.0, 50.0], up=[300.0, 300.0, 300.0], s=[0.0, 0.0, 9.0], v=[0.0, 9.0, 9.0])
    right = rows("b", lat=[50.0, 50.0, 50.0], up=[300.0, 300.0, 300.0], s=[0.0, 0.0, 9.0], v=[0.0, 9.0, 9.0])
    assert chosen(mixed, left, right) == {"a0": "b0", "a1": "b1", "a2": "b2"}


def test_in_many_dimensions_and_with_errors_beyond_doubles() -> None:
    names = [f"x{k}" for k in range(9)]
    rows = pa.table(
        {"k": [1, 2, 3], "t": [0.0] * 3, "s": [0.0, 1.0, 1e200]} | {name: [0.0, 9.0, 50.0] for name in names}
    )
    both = [stream(rows, ap.Gaussian(*names, sigma="s")) for _ in range(2)]
    found = ASSIGN(
        *both, **(ASKED | {"epsilon": 20.0, "probability": 1e-9, "density": 1e-9, "how": "inner"})
    ).to_pylist()
    assert [(row["left_key"], row["right_key"], row["margin"] == math.inf) for row in found] == [
        (1, 1, True),
        (2, 2, False),
    ]
