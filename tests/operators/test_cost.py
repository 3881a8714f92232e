"""The index by its cost: what is chosen, that it follows the data, and that estimates are near the truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import appulse as ap
from appulse.kernels.grid import UNKNOWN
from appulse.operators.cost import Probes, cells_for, choose, same_group, some, spread
from tests.helpers import hands


def _rows(seed: int, n: int, wide: float, reach: float, variance: float = UNKNOWN, d: int = 2) -> Probes:
    rng = np.random.default_rng(seed)
    return Probes(rng.random((n, d)) * wide, np.full(n, reach), np.full(n, variance))


def _choice(n: int, wide: float, reach: float, variance: float = UNKNOWN, held: str | None = None) -> Any:
    probes, rows = _rows(1, 32, wide, reach, variance), _rows(2, min(n, 256), wide, reach, variance)
    cells = cells_for(probes, rows, 0.5, 1.0, np.arange(2))
    return choose(probes, rows, n, cells, 0.5, 1.0, held)


def test_few_rows_and_crowded_ones_are_scanned_and_many_far_apart_are_not() -> None:
    assert _choice(300, 1.5, 0.1).index == "scan"
    assert _choice(100_000, 1.0, 0.1).index == "scan"
    assert "grid" in _choice(100_000, 1000.0, 0.1).index


def test_many_groups_at_one_place_are_not_scanned() -> None:
    """A look-up finds the rows of a cell that are of its group."""
    probes, rows = (Probes(np.zeros((k, 2)), np.zeros(k), np.full(k, UNKNOWN)) for k in (32, 256))
    cells = cells_for(probes, rows, 0.5, 1.0, np.arange(2))
    assert choose(probes, rows, 100_000, cells, 0.5, 1.0, None).index == "scan"
    apart = choose(probes, rows, 100_000, cells, 0.5, 1.0, None, same=1e-4)
    assert "grid" in apart.index
    assert apart.visited == pytest.approx(1e-4)


@pytest.mark.parametrize("groups", [1, 7, 64])
@pytest.mark.parametrize("n", [2, 500, 50_000])
def test_the_share_of_pairs_in_one_group(groups: int, n: int) -> None:
    group = np.arange(n) % groups
    times = np.bincount(group)
    assert same_group(group) == pytest.approx((times * (times - 1)).sum() / (n * (n - 1)), rel=0.05, abs=1e-4)


@pytest.mark.parametrize("period", range(2, 41))
def test_a_sample_has_rows_of_each_that_come_in_turn(period: int) -> None:
    """However many rows there are: every tenth of them could be of one device alone."""
    for n in range(5_000, 5_000 + period):
        places = np.arange(n)[spread(n, 500)]
        assert len(places) == len(set(places.tolist())) == 500
        times = np.bincount(places % period, minlength=period)
        assert times.min() > 200 / period - 5
        assert times.max() < 1000 / period + 5


def test_a_grid_takes_rows_of_two_sizes_that_come_in_turn() -> None:
    """None of them lie in the chain of those too large for it, which each row would walk."""
    reach = np.tile([0.05, 0.5], 4_096)
    rows = Probes(np.random.default_rng(2).random((8_192, 2)) * 90.0, reach, np.square(reach))
    cells = cells_for(some(rows, 32), some(rows, 4_096), 0.5, 1.0, np.arange(2))
    assert cells.cap >= (reach.max() if not cells.by_variance else reach.max() ** 2)


def test_cells_go_by_variance_where_that_sees_less() -> None:
    assert not _choice(10_000, 100.0, 1.0).cells.by_variance
    small = _choice(10_000, 100.0, 1.0, variance=0.01)
    assert small.cells.by_variance
    assert small.cells.span < _choice(10_000, 100.0, 1.0).cells.span
    assert not _choice(10_000, 100.0, 0.01, variance=4.0).cells.by_variance


def test_a_choice_is_steady_and_made_anew_after_half_as_many_rows() -> None:
    choice = _choice(10_000, 100.0, 0.1)
    assert choice.stands(4_999)
    assert not choice.stands(5_001)
    costs = choice.costs
    assert costs[_choice(10_000, 100.0, 0.1, held="scan").index] <= costs[choice.index] * 1.3


def test_what_a_probe_visits_is_about_what_the_formula_says() -> None:
    n, wide = 4_000, 40.0
    probes, rows = _rows(1, 200, wide, 0.2), _rows(2, n, wide, 0.2)
    cells = cells_for(some(probes, 32), some(rows, 256), 0.5, 1.0, np.arange(2))
    choice = choose(some(probes, 32), some(rows, 256), n, cells, 0.5, 1.0, None)
    side, span = choice.cells.side, choice.cells.span
    low, high = (np.floor((probes.centre + s * span) / side) for s in (-1, 1))
    cell = np.floor(rows.centre / side)
    seen = ((cell[None] >= low[:, None]) & (cell[None] <= high[:, None])).all(axis=2).mean()
    assert choice.visited == pytest.approx(float(seen), rel=0.5)


def test_a_join_changes_its_index_as_its_rows_drift_apart_and_together() -> None:
    """And its answers are those of a scan."""
    rng = np.random.default_rng(5)
    joins = [
        hands.similarity_join(
            left=ap.Stream(None, key="id", time="ts", value=ap.Exact("x", "y")),
            right=ap.Stream(None, key="id", time="ts", value=ap.Exact("x", "y")),
            epsilon=0.5,
            probability=0.5,
            window=ap.CountWindow(600),
            options=ap.Options(index=index),
        )
        for index in ("auto", "dense")
    ]
    seen = []
    for step, wide in enumerate((2.0, 2.0, 300.0, 300.0, 300.0, 300.0, 2.0, 2.0, 2.0, 2.0)):
        n = 400
        tables = [
            pa.table(
                {
                    "id": np.arange(n) + step * n,
                    "ts": np.arange(n) / 10 + step * 100,
                    "x": rng.random(n) * wide,
                    "y": rng.random(n) * wide,
                }
            )
            for _ in range(2)
        ]
        found = [join.push(left=tables[0], right=tables[1]) for join in joins]
        pairs = [sorted(zip(f["left_key"].to_pylist(), f["right_key"].to_pylist(), strict=True)) for f in found]
        assert pairs[0] == pairs[1]
        engine = joins[0]._engine
        assert engine is not None
        seen.append(engine.operator.choices[0][1].index)
    assert seen[0] == "scan"
    assert any("grid" in index for index in seen)
    assert seen[-1] == "scan"


def _scattered(n: int, seed: int, wide: float, at: float, far: float | None) -> pa.Table:
    chance = np.random.default_rng(seed)
    x, y = chance.random((2, n)) * wide + at
    if far is not None:
        x[:3], y[:3] = far, -far
    return pa.table({"id": np.arange(n), "ts": np.arange(n) / 100, "x": x, "y": y, "z": y})


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize(
    ("epsilon", "wide", "at", "far"),
    [
        (0.0, 300.0, 0.0, None),
        (1e-9, 300.0, 0.0, None),
        (1e-12, 3e6, 0.0, None),
        (1e-3, 300.0, 5e8, None),
        (0.0, 1e200, 0.0, None),
        (0.0, 300.0, 0.0, 1e12),
        (0.0, 300.0, -1e5, 1e150),
        (1e-2, 3e4, 0.0, 1e150),
    ],
)
@pytest.mark.parametrize("step", [100, 4_000])
def test_no_epsilon_and_no_place_brings_all_rows_together(
    d: int, epsilon: float, wide: float, at: float, far: float | None, step: int
) -> None:
    """Cells of a billionth begin anew after some steps, and rows that are far away hold nobody up."""
    n, value = 4_000, ap.Exact(*"xyz"[:d])
    left, right = (_scattered(n, seed, wide, at, far) for seed in (1, 2))
    # Every tenth row has a twin.
    twins = np.arange(n) % 10 == 0
    for name in "xyz":
        mixed = np.where(twins, left[name], right[name])
        right = right.set_column(right.column_names.index(name), name, pa.array(mixed))
    streams = (ap.Stream(None, key="id", time="ts", value=value) for _ in range(2))
    join = ap.SimilarityJoin(*streams, epsilon=epsilon, probability=1, window=ap.CountWindow(n))
    found = 0
    for begin in range(0, n, step):
        found += join.push(left=left.slice(begin, step), right=right.slice(begin, step)).num_rows
    found += join.drain().num_rows
    assert found >= n // 10
    # The first rows are scanned, and a few far ones look at all.
    assert join.counted()["candidates"] < 60 * n + 2 * found
