"""Warnings name the line of the user's program that led to them, not one of appulse."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import appulse as ap

if TYPE_CHECKING:
    from collections.abc import Callable

N = 3000


def rows(**columns: Any) -> pa.Table:
    chance = np.random.default_rng(0)
    usual = {"id": range(N), "t": chance.uniform(0, 10, N), "x": chance.uniform(0, 1, N), "p": [0.5] * N}
    return pa.table(usual | columns)


def stream(frame: Any, value: Any = "x", **settings: Any) -> ap.Stream:
    return ap.Stream(frame, key="id", time="t", value=value, **settings)


def a_self_join() -> None:
    ap.self_join(stream(rows()), epsilon=1, probability=1, window=10)


def a_join() -> None:
    ap.similarity_join(stream(rows()), stream(rows()), epsilon=1, probability=1, window=10)


def a_push() -> None:
    join = ap.SimilarityJoin(stream(None), epsilon=1, probability=1, window=10)
    join.push(rows())


def queries() -> None:
    every = pa.table({"query": range(500), "condition": ["x >= 0"] * 500})
    ap.match_queries(stream(rows()), every)


def late_rows() -> None:
    join = ap.SimilarityJoin(stream(None), epsilon=1e-9, probability=1, window=1)
    join.push(rows(t=[100.0] * N))
    join.push(rows())


def a_window_that_is_cut() -> None:
    window = ap.UncertainCountWindow(50, confidence=0.99, max_rows=60)
    ap.self_join(stream(rows(), existence="p"), epsilon=1e-9, probability=0.1, window=window)


def swapped_places() -> None:
    places = rows(lat=[8.0] * N, lon=[47.0] * N)
    yard = pa.table({"query": ["a"], "region": ["POLYGON ((7 46, 9 46, 9 48, 7 48, 7 46))"]})
    ap.fence_events(stream(places, ap.Position("lat", "lon", sigma=5.0)), yard, enter=0.9, leave=0.1)


def swapped_dimensions() -> None:
    one, other = (stream(rows(y=[0.0] * N), ap.Exact(*names)) for names in ("xy", "yx"))
    ap.nearest(one, other, epsilon=1e-9, window=1)


@pytest.mark.parametrize(
    ("kind", "call"),
    [
        (ap.ExplodingOutput, a_self_join),
        (ap.ExplodingOutput, a_join),
        (ap.ExplodingOutput, a_push),
        (ap.ExplodingOutput, queries),
        (ap.LateRows, late_rows),
        (ap.CappedWindow, a_window_that_is_cut),
        (ap.SwappedPlaces, swapped_places),
        (ap.SwappedDimensions, swapped_dimensions),
    ],
)
def test_a_warning_names_the_line_of_the_call(kind: type[Warning], call: Callable[[], None]) -> None:
    with pytest.warns(kind) as caught:
        call()
    places = {(Path(one.filename).name, one.lineno) for one in caught if issubclass(one.category, kind)}
    first = call.__code__.co_firstlineno
    assert all(name == Path(__file__).name and first < line <= first + 5 for name, line in places), places
