"""Warnings name the line of the user's program that led to them, not one of appulse."""

from __future__ import annotations

import warnings
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


def rows_that_are_rejects() -> None:
    ap.nearest(stream(rows()), stream(rows(x=[np.nan] * N)), epsilon=1e-9, window=1)


def an_unlikely_unit() -> None:
    times = 1_717_200_000_000 + np.arange(N) * 60_000
    ap.self_join(stream(rows(t=times)), epsilon=1e-9, probability=1, window=10)


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
        (ap.UnlikelyUnit, an_unlikely_unit),
        (ap.AllRejected, rows_that_are_rejects),
    ],
)
def test_a_warning_names_the_line_of_the_call(kind: type[Warning], call: Callable[[], None]) -> None:
    with pytest.warns(kind) as caught:
        call()
    places = {(Path(one.filename).name, one.lineno) for one in caught if issubclass(one.category, kind)}
    first = call.__code__.co_firstlineno
    assert all(name == Path(__file__).name and first < line <= first + 5 for name, line in places), places


def units_of_pushes(times: list[list[float]], unit: str) -> list[str]:
    """The warnings of pushes, by their units."""
    join = ap.SimilarityJoin(stream(None, unit=unit), epsilon=1e-9, probability=1, window=10)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ap.UnlikelyUnit)
        for some in times:
            given = {"id": pa.array(range(len(some)), pa.int64()), "t": pa.array(some, pa.float64())}
            join.push(pa.table(given | {"x": given["t"]}))
    return [str(one.message).split("the stream unit=")[-1][1:3] for one in caught if one.category is ap.UnlikelyUnit]


@pytest.mark.parametrize(
    ("unit", "likelier", "first"),
    [("s", "ms", 1.7e12), ("ms", "us", 1.7e15), ("us", "ns", 1.7e18), ("min", "s'", 1.7e9)],
)
def test_times_in_another_unit_are_announced_once(unit: str, likelier: str, first: float) -> None:
    assert units_of_pushes([[], [first, first], [first], [1.0]], unit) == [likelier]


@pytest.mark.parametrize(
    ("times", "unit"),
    [
        ([1.7e9, 1.7e9 + 1], "s"),
        ([1.7e12, 1.7e12], "ms"),
        ([1.7e18, 1.7e18], "ns"),
        ([0.0, 1.7e12], "s"),  # one broken clock
        ([0.0, 1.0, 1e3], "s"),
        ([-1.7e12], "s"),
        ([1e11, 2e11], "s"),  # a count of something
        ([4.2e12, 4.3e12], "s"),
        ([1e14], "us"),
    ],
)
def test_times_that_may_be_right_are_not_announced(times: list[float], unit: str) -> None:
    assert units_of_pushes([times, [1.7e12]], unit) == []


def test_the_warning_of_a_unit_names_the_stream_and_the_day() -> None:
    with pytest.warns(
        ap.UnlikelyUnit, match=r"stream 'left' .* in unit='s'; in unit='ms' the first is of 2024-06-01\."
    ):
        an_unlikely_unit()


def test_timestamps_have_no_unit() -> None:
    times = pa.array([1_717_200_000_000] * N, pa.timestamp("s"))
    ap.self_join(stream(rows(t=times)), epsilon=1e-9, probability=1, window=10)
