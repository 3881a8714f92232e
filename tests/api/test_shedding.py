"""The recall that load shedding before a join costs, as the deployment guide states it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

import appulse as ap

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

_ROWS, _SIDE, _EPSILON, _CELL, _KEPT = 30_000, 3_000.0, 10.0, 500.0, 0.7


def _rows(seed: int) -> pd.DataFrame:
    chance = np.random.default_rng(seed)
    x, y = chance.uniform(0.0, _SIDE, (2, _ROWS))
    return pd.DataFrame({"k": np.arange(_ROWS), "t": np.zeros(_ROWS), "x": x, "y": y})


def _pairs(left: pd.DataFrame, right: pd.DataFrame) -> int:
    streams = [ap.Stream(rows, key="k", time="t", value=ap.Exact("x", "y")) for rows in (left, right)]
    return len(ap.similarity_join(*streams, epsilon=_EPSILON, probability=1.0, window=1.0))


def _kept(values: Iterable[object], salt: str = "") -> NDArray[np.bool_]:
    hashed = pd.util.hash_array(np.array([f"{value}{salt}" for value in values], object))
    return hashed % np.uint64(100) < int(100 * _KEPT)


def _cells(rows: pd.DataFrame) -> list[tuple[int, int]]:
    return [(int(x // _CELL), int(y // _CELL)) for x, y in zip(rows["x"], rows["y"], strict=True)]


def test_random_shedding_costs_the_product_and_shedding_by_place_the_share() -> None:
    """Cells are few here, and so not just 70 % of all pairs are in those kept: held against those that are."""
    left, right = _rows(1), _rows(2)
    every = _pairs(left, right)
    one, both = left[_kept(left["k"])], right[_kept(right["k"], "b")]
    assert _pairs(one, right) / every == pytest.approx(_KEPT, abs=0.02)
    assert _pairs(one, both) / every == pytest.approx(_KEPT**2, abs=0.02)
    near, beside = left[_kept(_cells(left))], right[_kept(_cells(right))]
    share = len(near) / len(left)
    assert _pairs(near, beside) / every == pytest.approx(share, rel=0.015)


def test_rows_that_can_have_no_partner_cost_no_recall() -> None:
    left, right = _rows(1), _rows(2)
    right = right[right["x"] < 1_000.0]
    assert _pairs(left[left["x"] < 1_000.0 + _EPSILON], right) == _pairs(left, right)
