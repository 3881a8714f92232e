"""The contestants of the benchmark of continuous queries: their generators, and their answers against all pairs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from benchmarks import query_rivals
from benchmarks.ibs import IBS
from benchmarks.query_sets import (
    ABOVE,
    AT_LEAST,
    AT_MOST,
    BELOW,
    EQUAL,
    OPERATORS,
    BoxQueries,
    JoinQueries,
    conjunctions,
    join_queries,
    range_queries,
    rows,
)
from benchmarks.spatial_join_cq import (
    ARRIVAL,
    HILBERT,
    LANES,
    Z_ORDER,
    SharedJoinIBS,
    SpatialJoinCQ,
    SpatialJoinWindows,
    decomposition,
    keys_of,
    order_of,
    pieces,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from benchmarks.ibs import Pairs
    from benchmarks.query_sets import Matrix

    Times = NDArray[np.int64]

pytestmark = pytest.mark.rivals
CURVES = (HILBERT, Z_ORDER, ARRIVAL)
COMPARE = (np.equal, np.less, np.less_equal, np.greater, np.greater_equal)
# Values and ends are drawn from few numbers, so that rows lie on ends often.
POOL = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0])


# --- the slow truth -------------------------------------------------------------------------------------------------


def holds(queries: BoxQueries, points: Matrix) -> NDArray[np.bool_]:
    """Whether each row satisfies each query."""
    x = points[:, None, :]
    above = np.where(queries.low_open, x > queries.low, x >= queries.low)
    below = np.where(queries.high_open, x < queries.high, x <= queries.high)
    return np.asarray((above & below).all(axis=-1), bool)


def truth(queries: BoxQueries, points: Matrix) -> list[tuple[int, ...]]:
    return sorted(map(tuple, np.argwhere(holds(queries, points)).tolist()))


def nested_loops(
    queries: JoinQueries, left: Matrix, left_times: Times, right: Matrix, right_times: Times
) -> list[tuple[int, ...]]:
    both = holds(queries.left, left)[:, None] & holds(queries.right, right)[None]
    both &= np.abs(left_times[:, None] - right_times)[..., None] <= queries.window
    for q, (x, operator, y) in enumerate(zip(queries.x, queries.operator, queries.y, strict=True)):
        both[..., q] &= COMPARE[operator](left[:, None, x], right[None, :, y])
    return sorted(map(tuple, np.argwhere(both).tolist()))


def found(columns: tuple[NDArray[np.int32], ...]) -> list[tuple[int, ...]]:
    """What a contestant answers, in order; an answer given twice stays twice."""
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def contestants(queries: BoxQueries) -> dict[str, Callable[[Matrix], Pairs]]:
    join = SpatialJoinCQ(*queries.closed())
    made: dict[str, Callable[[Matrix], Pairs]] = {"ibs": IBS(queries).match, "immediate": join.immediate}
    for n_dc, n_batch, curve in ((1, None, HILBERT), (3, 10, Z_ORDER), (7, None, HILBERT), (100, 33, ARRIVAL)):
        name = f"batch {n_batch} in clusters of {n_dc}, {curve}"
        made[name] = partial(join.match, n_dc=n_dc, n_batch=n_batch, curve=curve)
    return made


@st.composite
def boxes(draw: st.DrawFn, d: int, most: int = 40) -> BoxQueries:
    """Queries with ends from the pool, missing or open at times, and empty at times."""
    shape = (draw(st.integers(0, most)), d)
    low = draw(hnp.arrays(np.float64, shape, elements=POOL | st.just(-np.inf)))
    high = draw(hnp.arrays(np.float64, shape, elements=POOL | st.just(np.inf)))
    low_open, high_open = (draw(hnp.arrays(np.bool_, shape)) for _ in range(2))
    return BoxQueries(low, high, low_open & np.isfinite(low), high_open & np.isfinite(high))


@st.composite
def streams(draw: st.DrawFn, d: int) -> tuple[Matrix, Times]:
    points = draw(hnp.arrays(np.float64, (draw(st.integers(0, 12)), d), elements=POOL))
    times = draw(hnp.arrays(np.int64, len(points), elements=st.integers(0, 20)))
    return points, np.sort(times)


@st.composite
def joins(draw: st.DrawFn, d: int) -> JoinQueries:
    left = draw(boxes(d, most=12))
    n = len(left)
    right = draw(boxes(d, most=12).filter(lambda other: len(other) >= n)) if n else left
    x, y = (draw(hnp.arrays(np.int64, n, elements=st.integers(0, d - 1))) for _ in range(2))
    operator = draw(hnp.arrays(np.int64, n, elements=st.integers(0, len(OPERATORS) - 1)))
    window = draw(hnp.arrays(np.int64, n, elements=st.integers(0, 25)))
    return JoinQueries(left, right.take(slice(n)), x, operator, y, window)


# --- selection queries ----------------------------------------------------------------------------------------------


@given(st.data())
def test_contestants_answer_as_all_pairs_do(data: st.DataObject) -> None:
    d = data.draw(st.integers(1, 3))
    queries = data.draw(boxes(d))
    points = data.draw(hnp.arrays(np.float64, (data.draw(st.integers(0, 25)), d), elements=POOL))
    expected = truth(queries, points)
    for name, match in contestants(queries).items():
        assert found(match(points)) == expected, name


@pytest.mark.parametrize("d", [1, 2, 5, 20])
@pytest.mark.parametrize("share", [0.0, 0.6, 1.0])
def test_contestants_agree_on_the_papers_queries(d: int, share: float) -> None:
    queries = conjunctions(600, d, seed=d, share=share)
    points = rows(150, d, seed=d, skew=0.3, levels=64)
    expected = truth(queries, points)
    assert d == 20 or expected
    for name, match in contestants(queries).items():
        assert found(match(points)) == expected, name


def test_ends_hold_to_the_last_bit() -> None:
    near = np.array([np.nextafter(0.3, 0.0), 0.3, np.nextafter(0.3, 1.0)])
    ends = [(low, high, a, b) for low in near for high in near for a in (False, True) for b in (False, True)]
    low, high, low_open, high_open = (np.array(column)[:, None] for column in zip(*ends, strict=True))
    queries = BoxQueries(low, high, low_open, high_open)
    for name, match in contestants(queries).items():
        assert found(match(near[:, None])) == truth(queries, near[:, None]), name


def test_counts_are_as_before_after_each_call() -> None:
    queries, points = conjunctions(300, 3, seed=4, share=0.5), rows(50, 3, seed=4)
    trees = IBS(queries)
    assert found(trees.match(points)) == found(trees.match(points)) == truth(queries, points)


def test_the_oracle_of_the_paper() -> None:
    low, high = np.array([[0.1, 0.2], [0.3, 0.0], [0.0, 0.5]]), np.array([[0.4, 0.6], [0.9, 0.3], [1.0, 1.0]])
    closed = np.zeros((3, 2), bool)
    queries = BoxQueries(low, high, closed, closed)
    points = np.array([[0.35, 0.25], [0.2, 0.55], [0.95, 0.9]])
    for name, match in contestants(queries).items():
        assert found(match(points)) == [(0, 0), (0, 1), (1, 0), (1, 2), (2, 2)], name
    cluster = points[:2]
    assert (low <= cluster.max(axis=0)).all(axis=1).tolist() == [True, True, True]
    assert (high >= cluster.min(axis=0)).all(axis=1).tolist() == [True, True, True]


def test_the_spatial_join_window_dismisses_no_match() -> None:
    rng = np.random.default_rng(8)
    queries = conjunctions(400, 2, seed=8, reach=0.4)
    low, high = queries.closed()
    wrong = 0
    for _ in range(75):
        cluster = rng.random(2) * 0.9 + rng.random((4, 2)) * 0.1
        window = (low <= cluster.max(axis=0)).all(axis=1) & (high >= cluster.min(axis=0)).all(axis=1)
        matched = holds(queries, cluster).any(axis=0)
        assert not (matched & ~window).any()
        wrong += int((window & ~matched).sum())
    assert wrong > 0  # which is what refinement is for


def test_boxes_of_one_query_answer_once() -> None:
    queries, points = conjunctions(300, 2, seed=9), rows(60, 2, seed=9)
    owner = np.arange(300) % 100
    join = SpatialJoinCQ(*queries.closed(), owner)
    expected = sorted({(row, int(owner[query])) for row, query in truth(queries, points)})
    for n_dc in (1, 8, 60):
        assert found(join.match(points, n_dc)) == expected


# --- order, index, buffer -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 3])
def test_neighbours_in_hilbert_order_are_neighbours_in_space(d: int) -> None:
    side = {1: 256, 2: 16, 3: 8}[d]
    cells = np.stack(np.meshgrid(*[np.arange(side, dtype=np.float64)] * d), axis=-1).reshape(-1, d)
    along = cells[order_of(cells, HILBERT)]
    assert (np.abs(np.diff(along, axis=0)).sum(axis=1) == 1).all()
    assert len(np.unique(keys_of(cells))) == len(cells)
    if d > 1:
        jumps = np.abs(np.diff(cells[order_of(cells, Z_ORDER)], axis=0)).sum(axis=1)
        assert jumps.min() == 1
        assert jumps.max() > 1


def test_adjacent_clusters_share_nodes() -> None:
    join = SpatialJoinCQ(*range_queries(20_000, 2, 10.0, seed=1).closed())
    points = rows(2_000, 2, seed=1)
    reads = {curve: join.node_reads(points, buffer=30, n_dc=4, curve=curve) for curve in CURVES}
    assert reads[HILBERT] < reads[Z_ORDER] < reads[ARRIVAL]
    # A buffer for all nodes fetches each at most once, whatever the order of the same clusters of one row.
    everything = {join.node_reads(points, buffer=join.index.nodes, curve=curve) for curve in CURVES}
    assert len(everything) == 1
    assert everything.pop() <= join.index.nodes


@settings(max_examples=30)
@given(st.integers(1, 30), st.integers(0, 2**32 - 1))
def test_the_buffer_drops_what_was_read_longest_ago(buffer: int, seed: int) -> None:
    join = SpatialJoinCQ(*conjunctions(40 * LANES, 2, seed=3, reach=0.1).closed())
    points = np.random.default_rng(seed).random((30, 2))
    index = join.index
    held: list[int] = []
    fetched = 0
    for point in points:
        here = [0]
        for level in range(len(index.first) - 1, -1, -1):
            below = []
            for place in here:
                node = int(index.first[level]) + place
                fetched += node not in held
                held = [other for other in held if other != node][-(buffer - 1) :] if buffer > 1 else []
                held.append(node)
                block = index.blocks[node]
                low, high = block[:2].T, block[2:].T
                met = ((low <= point) & (point <= high)).all(axis=1)
                below += (place * LANES + np.flatnonzero(met)).tolist()
            here = below
    assert join.node_reads(points, buffer, curve=ARRIVAL) == fetched


@pytest.mark.parametrize("n", [0, 1, LANES, LANES + 1, LANES**2 + 1, 5000])
def test_the_index_holds_each_query_once(n: int) -> None:
    low, high = conjunctions(n, 2, seed=n).closed()
    index = SpatialJoinCQ(low, high).index
    assert sorted(index.owner.tolist()) == list(range(n))
    lowest = index.blocks[: max(-(-n // LANES), 1)]
    entries = lowest.transpose(0, 2, 1).reshape(-1, 4)[:n]
    np.testing.assert_array_equal(entries, np.hstack([low, high])[index.owner])


# --- window joins ---------------------------------------------------------------------------------------------------


@given(st.data())
def test_window_joins_answer_as_nested_loops_do(data: st.DataObject) -> None:
    queries = data.draw(joins(2))
    given_rows = *data.draw(streams(2)), *data.draw(streams(2))
    expected = nested_loops(queries, *given_rows)
    for slabs, n_dc, curve in ((1, 1, HILBERT), (2, 3, Z_ORDER), (4, 16, HILBERT), (8, 2, ARRIVAL)):
        assert found(SpatialJoinWindows(queries, slabs).match(*given_rows, n_dc, curve)) == expected
    assert found(SharedJoinIBS(queries).match(*given_rows)) == expected


@pytest.mark.parametrize("window", [30, (5, 60)])
@pytest.mark.parametrize("levels", [8, None])
def test_window_joins_agree_on_the_papers_queries(window: int | tuple[int, int], levels: int | None) -> None:
    queries = join_queries(150, 2, seed=5, share=0.7, window=window)
    left, right = rows(100, 2, seed=1, levels=levels), rows(120, 2, seed=2, levels=levels)
    rng = np.random.default_rng(5)
    given_rows = left, np.sort(rng.integers(0, 200, 100)), right, np.sort(rng.integers(0, 200, 120))
    expected = nested_loops(queries, *given_rows)
    assert len(expected) > 1000
    for slabs in (1, 4):
        assert found(SpatialJoinWindows(queries, slabs).match(*given_rows)) == expected
    assert found(SharedJoinIBS(queries).match(*given_rows)) == expected


def test_rows_outside_the_domain_are_not_lost() -> None:
    queries = join_queries(60, 1, seed=6, share=0.0, window=5)
    free = BoxQueries(*(np.full((60, 1), end) for end in (-np.inf, np.inf)), *np.zeros((2, 60, 1), bool))
    queries = JoinQueries(free, free, queries.x, queries.operator, queries.y, queries.window)
    points, times = np.array([[-3.0], [-3.0], [0.5], [7.0], [7.5]]), np.arange(5)
    expected = nested_loops(queries, points, times, points, times)
    for slabs in (1, 2, 4):
        assert found(SpatialJoinWindows(queries, slabs).match(points, times, points, times)) == expected


@pytest.mark.parametrize("slabs", [1, 2, 4, 8])
def test_decomposition_covers_the_areas_of_the_paper(slabs: int) -> None:
    for operator in range(len(OPERATORS)):
        x_low, x_high, y_low, y_high = decomposition(operator, slabs).T
        area = ((x_high - x_low) * (y_high - y_low)).sum()
        assert area == pytest.approx(1 / slabs if operator == EQUAL else (slabs + 1) / (2 * slabs))
        x, y = np.meshgrid(np.linspace(0, 1, 33), np.linspace(0, 1, 33))
        x, y = x.reshape(-1, 1), y.reshape(-1, 1)
        covered = ((x_low <= x) & (x <= x_high) & (y_low <= y) & (y <= y_high)).any(axis=1)
        assert covered[COMPARE[operator](x, y)[:, 0]].all()


def test_selections_leave_out_slabs_they_do_not_meet() -> None:
    closed = np.zeros((1, 1), bool)
    narrow = BoxQueries(np.array([[0.3]]), np.array([[0.4]]), closed, closed)
    one = np.zeros(1, np.int64)
    for operator, left in ((EQUAL, 1), (BELOW, 2), (AT_MOST, 2), (ABOVE, 3), (AT_LEAST, 3)):
        # The right side of the stream's box is narrow: what remains are the slabs of x that can meet it.
        free = BoxQueries(np.full((1, 1), -np.inf), np.full((1, 1), np.inf), closed, closed)
        queries = JoinQueries(free, narrow, one, one + operator, one, one + 10)
        assert len(pieces(queries, 4)[2]) == left, OPERATORS[operator]


def test_pairs_on_the_border_of_slabs_are_told_once() -> None:
    closed = np.zeros((1, 1), bool)
    free = BoxQueries(np.full((1, 1), -np.inf), np.full((1, 1), np.inf), closed, closed)
    one = np.zeros(1, np.int64)
    points, times = np.array([[0.25], [0.5], [0.75]]), np.zeros(3, np.int64)
    for operator in (EQUAL, AT_MOST, AT_LEAST):
        queries = JoinQueries(free, free, one, one + operator, one, one)
        expected = nested_loops(queries, points, times, points, times)
        for slabs in (2, 4, 8):
            assert found(SpatialJoinWindows(queries, slabs).match(points, times, points, times)) == expected


# --- generators -----------------------------------------------------------------------------------------------------


def test_ranges_match_as_many_rows_as_asked_for() -> None:
    for d in (2, 4):
        queries, points = range_queries(200_000, d, 10.0, seed=1), rows(2_000, d, seed=1)
        row, _ = SpatialJoinCQ(*queries.closed()).match(points)
        assert len(row) / len(points) == pytest.approx(10.0, rel=0.15)


def test_conjunctions_are_as_the_paper_has_them() -> None:
    queries = conjunctions(20_000, 5, seed=2, share=0.5)
    has = queries.constrained
    assert has.mean() == pytest.approx(0.5, abs=0.01)
    assert has.any(axis=1).all()
    sides = np.stack([np.isfinite(queries.low) & has, np.isfinite(queries.high) & has])
    assert (sides.all(axis=0).sum() / has.sum()) == pytest.approx(1 / 3, abs=0.02)
    assert (sides[0].sum() / has.sum()) == pytest.approx(2 / 3, abs=0.02)
    assert queries.low_open[sides[0]].mean() == pytest.approx(0.5, abs=0.02)
    assert not queries.low_open[~sides[0]].any()


def test_rows_are_skewed_as_asked_for() -> None:
    points = rows(10_000, 2, seed=3, skew=0.7)
    near = (np.abs(points - 0.5) <= 0.005).all(axis=1)
    assert near.mean() == pytest.approx(0.7, abs=0.02)
    np.testing.assert_array_equal(points, rows(10_000, 2, seed=3, skew=0.7))


def test_queries_are_told_as_text() -> None:
    queries = BoxQueries(
        np.array([[0.1, 0.2], [-np.inf, -np.inf]]),
        np.array([[0.3, np.inf], [np.inf, np.inf]]),
        np.array([[True, False], [False, False]]),
        np.array([[False, False], [False, False]]),
    )
    assert queries.conditions(["a", "b"]) == ["a > 0.1 AND a <= 0.3 AND b >= 0.2", "TRUE"]
    one = np.zeros(2, np.int64)
    join = JoinQueries(queries, queries.take(np.array([1, 1])), one, one + BELOW, one + 1, one + 9)
    assert join.conditions(["r.a", "r.b"], ["s.c", "s.d"]) == [
        "r.a > 0.1 AND r.a <= 0.3 AND r.b >= 0.2 AND r.a < s.d WITHIN 9 SECONDS",
        "r.a < s.d WITHIN 9 SECONDS",
    ]


# --- libraries ------------------------------------------------------------------------------------------------------

RIVALS: dict[str, Callable[[BoxQueries], query_rivals.Rival]] = {
    "shapely": query_rivals.STRtree,
    "rtree": query_rivals.RTree,
    "intervaltree": query_rivals.Intervals,
    "duckdb": query_rivals.DuckDB,
    "polars": query_rivals.Polars,
}


@pytest.mark.parametrize("package", RIVALS)
@pytest.mark.parametrize("d", [2, 4])
def test_rivals_answer_as_all_pairs_do(package: str, d: int) -> None:
    pytest.importorskip(package, reason=f"{package} is not installed")
    queries, points = conjunctions(300, d, seed=d, share=0.6), rows(120, d, seed=d, levels=32)
    # Boxes with ends on rows, and an empty one.
    queries.low[:50, 0] = queries.high[:50, 0] = points[:50, 0]
    queries.low[60], queries.high[60] = 0.8, 0.2
    assert found(RIVALS[package](queries).match(points)) == truth(queries, points)


def test_a_rival_that_is_not_there_says_how_to_get_it() -> None:
    with pytest.raises(ImportError, match="pip install no_such_rival"):
        query_rivals.library("no_such_rival")
