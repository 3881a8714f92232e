"""Legs of readings in any order; pairs of legs by a sweep through time, by bins, and one by one."""

from __future__ import annotations

from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import appulse as ap
from appulse.kernels.legs import Legs, swept_box
from appulse.model.workers import Workers
from appulse.operators import leg_pairs, leg_search

if TYPE_CHECKING:
    from appulse.kernels.arrays import RowPairs

_SIZES = st.integers(1, 60)


def _legs(n: int, d: int, seed: int, *, alone: bool) -> Legs:
    """Legs at a few places and times, some of an instant, with ties of all kinds."""
    chance = np.random.default_rng(seed)
    begin, at = chance.integers(0, 40, n), chance.integers(0, 9, (n, d)).astype(float)
    return Legs(
        begin=begin,
        end=begin + chance.integers(0, 20, n) * chance.integers(0, 2, n),
        at=at,
        to=at + chance.integers(-2, 3, (n, d)),
        reach=chance.uniform(0.0, 0.5, n),
        margin=np.zeros(n),
        side=np.zeros(n, np.int64) if alone else chance.integers(0, 2, n),
        thing=chance.integers(0, 1 + n // 3, n),
        group=chance.integers(0, 2, n),
        fresh=chance.random(n) < 0.7,
        instant=False,
    )


def _by_hand(legs: Legs, epsilon: float, *, alone: bool) -> set[tuple[int, int]]:
    found = set()
    for i, j in combinations(range(len(legs.begin)), 2):
        boxes = [(swept_box(legs, i, k, epsilon), swept_box(legs, j, k, epsilon)) for k in range(legs.at.shape[1])]
        what = legs.thing if alone else legs.side
        if (
            legs.begin[i] <= legs.end[j]
            and legs.begin[j] <= legs.end[i]
            and legs.group[i] == legs.group[j]
            and what[i] != what[j]
            and (legs.fresh[i] or legs.fresh[j])
            and all(one[0] <= other[1] and other[0] <= one[1] for one, other in boxes)
        ):
            found.add((i, j) if what[i] < what[j] else (j, i))
    return found


@given(_SIZES, st.integers(1, 4), st.integers(0, 1 << 20), st.booleans(), st.sampled_from((0.0, 0.5, 30.0)))
def test_the_pairs_of_legs_are_those_found_one_by_one(n: int, d: int, seed: int, alone: bool, epsilon: float) -> None:
    legs = _legs(n, d, seed, alone=alone)
    expected = _by_hand(legs, epsilon, alone=alone)

    def listed(pairs: RowPairs | None) -> list[tuple[int, int]]:
        assert pairs is not None
        return sorted(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True))

    searches: list[Any] = [partial(leg_search.swept_pairs, most=n * n), leg_search.binned_pairs]
    for search in searches:
        whole = search(legs, epsilon, alone=alone)
        assert listed(whole) == sorted(expected)
        with pytest.MonkeyPatch.context() as patch:  # in parts, by several threads: the same, in the same order
            patch.setattr(leg_search, "_A_PART", 1 + seed % 20)
            parts = search(legs, epsilon, alone=alone, workers=Workers(1 + seed % 3))
        np.testing.assert_array_equal(parts, whole)


def test_a_sweep_gives_up_where_too_many_legs_are_there_at_once() -> None:
    legs = _legs(300, 2, 0, alone=True)
    assert leg_search.swept_pairs(legs, 0.5, 300, alone=True) is None


@pytest.mark.parametrize("motion", [ap.Straight(5.0), ap.Velocity("vx", "vy", horizon=5.0)])
def test_the_order_of_readings_makes_no_difference(motion: Any) -> None:
    """Nor does it matter where among them those stand that have the time of another of their key."""
    chance = np.random.default_rng(4)
    n = 400
    key, at = chance.integers(0, 12, n), chance.integers(0, 90, n)
    columns: dict[str, Any] = {"id": key, "t": at, "room": key % 2}
    columns |= {name: chance.integers(0, 9, n).astype(float) for name in ("x", "y")}
    columns |= {name: chance.integers(-1, 2, n).astype(float) for name in ("vx", "vy")}
    table = pa.table(columns)

    def found(rows: pa.Table) -> list[Any]:
        stream = ap.Stream(rows, key="id", time="t", value=ap.Exact("x", "y"), motion=motion, partition_by="room")
        legs = ap.encounters(stream, epsilon=1.0, probability=1.0, emit="legs")
        return [sorted(map(repr, some.to_pylist())) for some in (legs, ap.rejects(legs))]

    in_order = found(table.sort_by([("t", "ascending"), ("id", "ascending"), ("x", "ascending"), ("y", "ascending")]))
    assert all(in_order)
    assert found(table) == in_order
    assert found(table.take(pa.array(chance.permutation(n)))) == in_order


@pytest.mark.parametrize(
    "value",
    [
        ap.Gaussian("x", "y", sigma=0.5),
        ap.Ball("x", "y", radius=0.5),
        ap.Position("y", "x", sigma=5_000.0),
    ],
)
def test_threads_make_no_difference(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(5)
    n = 400
    table = pa.table(
        {"id": np.arange(n) % 20, "t": np.arange(n), "x": chance.uniform(0, 5, n), "y": chance.uniform(0, 5, n)}
    )
    stream = ap.Stream(table, key="id", time="t", value=value, motion=ap.Straight("1 minute"))
    epsilon = 60_000.0 if isinstance(value, ap.Position) else 0.5
    asked: dict[str, Any] = {"epsilon": epsilon, "probability": 0.3, "emit": "legs"}
    whole = ap.encounters(stream, **asked, options=ap.Options(threads=1))
    monkeypatch.setattr(leg_pairs, "_PAIRS", 70)
    assert len(whole) > 100
    for threads in (1, 3):
        assert ap.encounters(stream, **asked, options=ap.Options(threads=threads)).equals(whole)
