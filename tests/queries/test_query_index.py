"""The index of boxes: whatever way it is built, changed and asked, it says what looking at every box says."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from appulse.kernels import boxes as kernels
from appulse.queries import index as module
from appulse.queries.index import CLUSTERS, LEAST, MOST, NULL, BoxIndex, Scale, Tree, in_hilbert_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Keys = NDArray[np.int64]
    Part = tuple[Keys, Keys, NDArray[np.int32]]  # lows, highs, entries

_INFINITY = int(np.array(np.inf).view(np.int64))
#: Finite bounds: few, so that they tie; as far out as whole numbers go on one side; as far apart as doubles are.
_POOLS: tuple[tuple[int, ...], ...] = (
    tuple(range(-3, 4)),
    (LEAST + 1, LEAST + 2, LEAST + 3, -(1 << 62), -1, 0, 1 << 62),
    (-(1 << 62), 0, 1, 1 << 62, MOST - 3, MOST - 2, MOST - 1),
    (NULL + _INFINITY, -_INFINITY, -_INFINITY + 1, -(1 << 33), 0, 1, 1 << 33, (1 << 33) + 1, _INFINITY),
    (0, 1 << 32, (1 << 32) + 1, (1 << 33) - 1, 1 << 33),
)


@dataclass(frozen=True)
class _Pool:
    """What bounds and points are drawn from, axis by axis."""

    random: np.random.Generator
    axes: tuple[tuple[int, ...], ...]
    often: float  # how many sides have a bound

    def boxes(self, axes: int, n: int, entries: int) -> Part:
        """Some are empty, some have no bounds, some bound nulls alone."""
        lows, highs = np.empty((2, axes, n), np.int64)
        for axis in range(axes):
            for side, free in ((lows, (NULL, LEAST)), (highs, (MOST, MOST))):
                finite = self.random.random(n) < self.often
                drawn = self.random.choice(np.array(self.axes[axis]), n)
                side[axis] = np.where(finite, drawn, self.random.choice(np.array(free), n))
            swapped = (lows[axis] > highs[axis]) & (self.random.random(n) < 0.9)
            lows[axis], highs[axis] = (
                np.where(swapped, highs[axis], lows[axis]),
                np.where(swapped, lows[axis], highs[axis]),
            )
            null = self.random.random(n) < 0.05
            lows[axis, null], highs[axis, null] = NULL, NULL
        return lows, highs, self.random.integers(0, entries, n).astype(np.int32)

    def points(self, axes: int, n: int) -> Keys:
        """Values on bounds and next to them, all the way out, and none."""
        found = np.empty((axes, n), np.int64)
        for axis in range(axes):
            near = {min(max(value + by, LEAST), MOST) for value in self.axes[axis] for by in (-1, 0, 1)}
            found[axis] = self.random.choice(np.array(sorted(near | {NULL, LEAST, MOST})), n)
        return found


@st.composite
def _pools(draw: st.DrawFn) -> _Pool:
    axes = draw(st.integers(1, 6))
    random = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    pools = tuple(draw(st.sampled_from(_POOLS)) for _ in range(axes))
    return _Pool(random, pools, draw(st.sampled_from((0.2, 0.6, 1.0))))


def _pairs(found: tuple[NDArray[np.int32], NDArray[np.int32]]) -> list[tuple[int, int]]:
    return sorted(zip(found[0].tolist(), found[1].tolist(), strict=True))


def _brute(parts: Sequence[Part], keys: Keys, alive: NDArray[np.bool_] | None = None) -> list[tuple[int, int]]:
    """Every box against every point; axes that a box does not know do not bound it."""
    found: list[tuple[int, int]] = []
    for lows, highs, entries in parts:
        within = np.ones((keys.shape[1], len(entries)), bool)
        for axis in range(len(lows)):
            within &= (keys[axis][:, None] >= lows[axis]) & (keys[axis][:, None] <= highs[axis])
        if alive is not None:
            within &= alive[entries]
        points, boxes = np.nonzero(within)
        found += zip(points.tolist(), entries[boxes].tolist(), strict=True)
    return sorted(found)


sizes = st.sampled_from((0, 1, 2, 15, 16, 17, 90, 257, 700))
counts = st.sampled_from((0, 1, 3, 17, 64, 65, 200))


@given(_pools(), st.data())
@settings(max_examples=50)
def test_the_index_says_what_every_box_says(pool: _Pool, data: st.DataObject) -> None:
    """Parts come one after the other, with ever more axes, and are asked for in between."""
    index, parts, axes = BoxIndex(), [], 1
    for n in data.draw(st.lists(sizes, min_size=1, max_size=4)):
        axes = data.draw(st.integers(axes, len(pool.axes)))
        parts.append(pool.boxes(axes, n, max(1, n // 2)))
        index.add(*parts[-1])
        keys = pool.points(axes, data.draw(counts))
        expected = _brute(parts, keys)
        for cluster in (None, *CLUSTERS):
            assert _pairs(index.match(keys, cluster=cluster)) == expected
    assert len(index) <= sum(len(entries) for _, _, entries in parts)
    assert index.nbytes >= 0


@given(_pools(), st.data())
def test_what_is_removed_is_found_no_more(pool: _Pool, data: st.DataObject) -> None:
    """Before, while and after trees are merged, and under other numbers, which entries are given again and again."""
    axes, entries = len(pool.axes), 60
    index, parts = BoxIndex(), []
    alive, own = np.ones(entries, bool), np.arange(entries, dtype=np.int32)  # the number of each entry now

    def found(keys: Keys, cluster: int | None = None) -> list[tuple[int, int]]:
        of = np.full(entries, -1)
        of[own[own >= 0]] = np.flatnonzero(own >= 0)
        standing = np.zeros(entries, bool)
        standing[own[own >= 0]] = alive[own >= 0]
        points, numbers = index.match(keys, standing, cluster)
        return sorted(zip(points.tolist(), of[numbers].tolist(), strict=True))

    with mock.patch.object(module, "_APART", data.draw(st.sampled_from((1, 100, 1 << 17)))):
        for _ in range(data.draw(st.integers(1, 6))):
            lows, highs, boxes = pool.boxes(axes, data.draw(sizes), entries)
            kept = own[boxes] >= 0
            parts.append((lows[:, kept], highs[:, kept], boxes[kept]))
            index.add(lows[:, kept], highs[:, kept], own[boxes[kept]])
            alive &= pool.random.random(entries) < data.draw(st.sampled_from((0.0, 0.5, 0.9, 1.0)))
            keys = pool.points(axes, 40)
            assert found(keys) == _brute(parts, keys, alive)
            if data.draw(st.booleans()):
                numbers = np.full(entries, -1, np.int32)
                own = np.where(alive, own, -1).astype(np.int32)
                numbers[own[own >= 0]] = pool.random.permutation(entries)[: (own >= 0).sum()]
                own = np.where(own >= 0, numbers[own], -1).astype(np.int32)
                index.renumber(numbers)
                assert found(keys) == _brute(parts, keys, alive)
        index.settle(axes)
        assert found(keys, 16) == _brute(parts, keys, alive)
        lows, highs, boxes = index.boxes(axes)
        assert set(own[alive & (own >= 0)]) >= set(boxes[np.isin(boxes, own[alive])].tolist())
        assert (boxes >= 0).all()


@given(_pools(), sizes, st.integers(0, 3))
def test_a_tree_gives_back_what_it_was_made_of(pool: _Pool, n: int, more: int) -> None:
    """In its own order, with axes it does not know as free ones."""
    axes = len(pool.axes)
    lows, highs, _ = pool.boxes(axes, n, 1)
    full = (lows <= highs).all(axis=0)
    lows, highs = lows[:, full], highs[:, full]
    assume(bool(full.any()))
    tree = Tree(lows, highs, np.arange(lows.shape[1], dtype=np.int32))
    found_lows, found_highs, entries = tree.boxes(axes + more)
    assert sorted(entries.tolist()) == list(range(lows.shape[1]))
    assert (found_lows[:axes] == lows[:, entries]).all()
    assert (found_highs[:axes] == highs[:, entries]).all()
    assert (found_lows[axes:] == NULL).all()
    assert (found_highs[axes:] == MOST).all()


@pytest.mark.parametrize("cluster", [None, *CLUSTERS])
def test_rows_without_a_value_and_beyond_all_bounds_side_by_side(cluster: int | None) -> None:
    """A cluster of both has a hull that is all there is, and still meets no lane that holds nothing."""
    n = 17 * 16 + 1
    lows = np.arange(n)[None, :]
    keys = np.array([[NULL, MOST, LEAST, n + 5, -5, NULL, MOST, 3] * 20])
    found = BoxIndex()
    found.add(lows, lows, np.arange(n, dtype=np.int32))
    assert _pairs(found.match(keys, cluster=cluster)) == [(i, 3) for i in range(7, 160, 8)]


@given(_pools(), st.sampled_from(CLUSTERS), st.sampled_from((16, 20, 64)))
def test_too_little_room_on_the_way_down_loses_nothing(pool: _Pool, cluster: int, front: int) -> None:
    """Room for blocks grows when one cluster needs more; what the clusters before it found stays."""
    part = pool.boxes(len(pool.axes), 2000, 2000)
    keys = pool.points(len(pool.axes), 100)
    index = BoxIndex()
    index.add(*part)
    with mock.patch.object(module, "_FRONT", front):
        assert _pairs(index.match(keys, cluster=cluster)) == _brute([part], keys)


def test_a_wide_cluster_after_narrow_ones_keeps_what_these_found() -> None:
    """It alone needs more room than there is, once they are through."""
    n = 16 * 16 * 16
    lows = np.arange(n)[None, :]
    keys = np.concatenate([np.full(128, 7), np.linspace(0, n - 1, 64).astype(np.int64)])[None, :]
    part = lows, lows, np.arange(n, dtype=np.int32)
    tree = Tree(*part)
    with mock.patch.object(module, "_FRONT", 32):
        points, rests = tree.scales[0].split(keys[0])
        assert _pairs(module.together(list(tree._match(points[:, None], rests[:, None], 64)))) == _brute([part], keys)


def test_more_pairs_than_there_is_room_for() -> None:
    """Every box holds every point: the room for pairs grows until they fit."""
    n, points = 3000, 70
    part = np.full((1, n), 0), np.full((1, n), 9), np.arange(n, dtype=np.int32)
    index = BoxIndex()
    index.add(*part)
    for cluster in (1, 64):
        found = index.match(np.full((1, points), 5), cluster=cluster)
        assert _pairs(found) == list(product(range(points), range(n)))


def test_a_thread_merges_while_the_old_trees_answer() -> None:
    """Rows see every box once, before and after; what is removed meanwhile stays removed."""
    random = np.random.default_rng(3)
    pool = _Pool(random, _POOLS[:2], 0.8)
    go, merged = threading.Event(), module._merged

    def slowly(*args: Any) -> Tree | None:
        assert go.wait(30)
        return merged(*args)

    parts = [pool.boxes(2, n, 500) for n in (300, 200, 200)]
    keys, alive = pool.points(2, 100), np.ones(500, bool)
    index = BoxIndex()
    with mock.patch.object(module, "_APART", 1), mock.patch.object(module, "_merged", slowly):
        for i, part in enumerate(parts):
            index.add(*part)
            assert _pairs(index.match(keys, alive)) == _brute(parts[: i + 1], keys, alive)
        assert index._building is not None
        assert len(index._trees) == 3
        alive[::3] = False
        assert _pairs(index.match(keys, alive)) == _brute(parts, keys, alive)
        go.set()
        index.settle(2, alive)
        index.settle(2, alive)
    assert len(index._trees) == 1
    assert _pairs(index.match(keys, alive)) == _brute(parts, keys, alive)


def test_trees_are_some_times_as_large_as_the_next() -> None:
    """A set that grows a box at a time has few trees."""
    index = BoxIndex()
    for i in range(200):
        index.add(np.full((1, 1), i), np.full((1, 1), i), np.array([i], np.int32))
        index.match(np.array([[i]]))
        assert all(a.n >= module._RATIO * b.n for a, b in pairwise(index._trees))
    assert _pairs(index.match(np.arange(200)[None, :])) == [(i, i) for i in range(200)]
    assert len(index) == 200


def test_a_look_up_makes_small_trees_only() -> None:
    """Whoever adds many boxes makes a tree of them; few wait for the look-up, and threads merge what is large."""
    random = np.random.default_rng(4)
    pool = _Pool(random, _POOLS[:2], 0.8)
    keys, parts = pool.points(2, 50), []
    index = BoxIndex()
    with mock.patch.object(module, "_TAIL", 64), mock.patch.object(module, "_APART", 128):
        for n in (40, 40, 200, 10, 63, 500):
            parts.append(pool.boxes(2, n, 1000))
            index.add(*parts[-1])
            index.planted(2)
            assert sum(len(part[2]) for part in index._waiting) < 64
            with mock.patch.object(module, "_merged", side_effect=module._merged) as merged:
                found = _pairs(index.match(keys))
                inline = [call for call in merged.call_args_list if sum(tree.n for tree in call.args[0]) < 128]
                assert len(merged.call_args_list) <= len(inline) + 1
            assert found == _brute(parts, keys, np.ones(1000, bool))
    index.settle(2)
    assert _pairs(index.match(keys)) == _brute(parts, keys, np.ones(1000, bool))


def test_all_that_stood_may_go() -> None:
    index = BoxIndex()
    for part in range(3):
        index.add(np.zeros((1, 5), np.int64), np.ones((1, 5), np.int64), np.arange(5, dtype=np.int32) + 5 * part)
        assert not len(index.match(np.zeros((1, 3), np.int64), np.zeros(15, bool))[0])
    index.renumber(np.full(15, -1, np.int32))
    assert not len(index.match(np.zeros((1, 3), np.int64))[0])
    assert len(index) == 0


# --- keys in two parts ------------------------------------------------------------------------------------------


@given(st.sampled_from(_POOLS), st.lists(st.integers(NULL, MOST), max_size=20), st.data())
def test_keys_in_two_parts_are_in_order_and_come_back(pool: tuple[int, ...], others: list[int], data: Any) -> None:
    """Bounds exactly; other keys lie where they did between the bounds."""
    bounds = np.array([*data.draw(st.lists(st.sampled_from(pool), max_size=10)), NULL, LEAST, MOST])
    scale = Scale.of(bounds)
    assert (scale.join(*scale.split(bounds)) == bounds).all()
    keys = np.array(sorted({*others, *pool, *bounds.tolist()}))
    parts = list(zip(*(part.tolist() for part in scale.split(keys)), strict=True))
    assert parts == sorted(parts)
    inside = (keys >= scale.base) & (keys <= scale.top)
    assert (scale.join(*scale.split(keys))[inside] == keys[inside]).all()
    assert len(set(parts)) >= inside.sum()


def test_bounds_too_far_apart_are_told() -> None:
    """No column has such bounds; were there some, keys that differ would be taken for the same."""
    with pytest.raises(OverflowError, match="too far apart"):
        Scale.of(np.array([LEAST + 1, MOST - 1]))


# --- the order of points ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("axes", "bits"), [(1, 5), (2, 1), (2, 4), (3, 3), (4, 2), (6, 1)])
def test_the_hilbert_curve_goes_through_every_place_step_by_step(axes: int, bits: int) -> None:
    grid = np.array(list(product(range(1 << bits), repeat=axes)), np.uint32)
    keys = kernels.hilbert_keys(grid, bits)
    assert sorted(keys.tolist()) == list(range(len(grid)))
    walk = grid[np.argsort(keys)].astype(np.int64)
    assert (np.abs(np.diff(walk, axis=0)).sum(axis=1) == 1).all()


@pytest.mark.parametrize("axes", [1, 2, 5, 20, 40])
def test_any_points_have_an_order(axes: int) -> None:
    random = np.random.default_rng(axes)
    points = random.integers(-(1 << 31), (1 << 31) - 1, (50, axes), endpoint=True).astype(np.int32)
    assert sorted(in_hilbert_order(points).tolist()) == list(range(50))
