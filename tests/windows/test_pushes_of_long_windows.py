"""Aggregates over long windows have the same bits however rows are cut into pushes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import appulse as ap

EXACT = ["sum", "mean", "count", "max", "min", "median", "p90", "frequent10"]
WINDOWS: dict[str, Any] = {
    "time": 150.0,
    "blocks": ap.TumblingWindow("50 seconds"),
    "rows": ap.CountWindow(80),
    "existing rows": ap.UncertainCountWindow(30, 0.9),
}


def _rows(seed: int, n: int) -> pa.Table:
    chance = np.random.default_rng(seed)
    exist = np.where(chance.random(n) < 0.25 * seed, 1.0, chance.uniform(0.3, 1.0, n))
    columns = {
        "id": np.arange(n),
        "t": np.sort(chance.integers(0, 300, n)).astype(float),
        "x": chance.normal(size=n) * 10.0 ** chance.integers(-3, 4),
        "s": np.abs(chance.normal(size=n)),
        "p": exist,
        "g": chance.integers(0, 2, n),
    }
    return pa.table(columns)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("groups", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_cuts_change_no_bit(seed: int, groups: bool, window: str) -> None:
    rows = _rows(seed, 160 if window == "existing rows" else 500)
    normal, certain = seed == 3, window == "rows"
    asked: dict[str, Any] = {"value": ap.Gaussian("x", sigma="s") if normal else ap.Exact("x")}
    asked |= {"key": "id", "time": "t", "existence": None if certain else "p", "partition_by": ("g",) * groups}
    aggregates = {"x": EXACT[:3] if normal else EXACT + ["std"] * certain}
    whole = ap.window_aggregate(ap.Stream(rows, **asked), aggregates, window=WINDOWS[window])
    call = ap.WindowAggregate(ap.Stream(None, **asked), aggregates, window=WINDOWS[window])
    chance = np.random.default_rng(seed)
    cuts = np.unique(np.r_[0, chance.integers(0, len(rows), 40), len(rows)]).tolist()
    pushes = [call.push(rows.slice(a, b - a)) for a, b in pairwise(cuts)]
    found = pa.concat_tables([push for push in [*pushes, call.drain()] if len(push)])
    order = [("time", "ascending"), *([("g", "ascending")] if groups else [])]
    assert len(found)
    assert found.sort_by(order).combine_chunks().equals(whole.sort_by(order).combine_chunks())
