"""An index of boxes that come and go: immutable trees, each some times as large as the next.

Who adds many boxes makes a tree of them, so that a look-up finds few that stand in none, and makes a small tree of
those. Small trees are made into larger ones as they become many, all but the smallest by a thread of their own, while
the old ones go on answering. What is removed is left out of answers, and of the next tree made.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from appulse.kernels import boxes as kernels
from appulse.kernels.simd import LANES
from appulse.model.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from appulse.kernels.arrays import Flags, Ints, Ints32

#: The bounds of a box where it has none: any value and none, or any value.
NULL, LEAST, MOST = int(kernels.NULL), int(kernels.NULL) + 1, int(np.iinfo(np.int64).max)
#: Sizes of clusters of points to choose from, automatically.
CLUSTERS = (1, 4, 16, 64)

_RATIO = 4  # a tree is this many times as large as the next, at least
_TAIL = 1 << 13  # boxes that may wait for a look-up to make a tree of them
_APART = 1 << 14  # boxes: trees from here on are merged by a thread
_TABLE = 256
_MOST_ROOM = 1 << 20  # pairs of a part
_SAMPLE = 1 << 12
_PROBED = 64
# Calls from one look to the next: points of one call are like those of the last, and to look takes up to a fifth of it.
_LOOK_EVERY = 16
_FRONT = 1 << 14  # blocks that clusters may have before them at first
# What it costs to look at a block for a hull, and for one of its points, in a unit of time: only their ratio counts.
_BLOCK, _POINT = 1.0, 1.0
# Below this many blocks a point it does not pay to put points in order.
_FEW = 64


@dataclass(frozen=True)
class Scale:
    """How the keys of an axis are split in two parts."""

    base: int
    top: int
    shift: int

    @staticmethod
    def of(bounds: Ints) -> Scale:
        """For keys between these bounds; `keys` makes none that are too far apart."""
        finite = bounds[(bounds > LEAST) & (bounds < MOST)]
        if not len(finite):
            return Scale(0, -1, 0)
        base, top = int(finite.min()), int(finite.max())
        shift = max(0, (top - base).bit_length() - 32)
        shift += (top - base) >> shift > int(kernels.SPREAD)
        if shift > 32:
            raise OverflowError(f"Bounds of {base} and {top} along one axis are too far apart for an index.")
        return Scale(base, top, shift)

    def split(self, keys: Ints) -> tuple[Ints32, NDArray[np.uint32]]:
        """The two parts of keys."""
        coarse, fine = np.empty(len(keys), np.int32), np.empty(len(keys), np.uint32)
        kernels.coarsen(keys, np.int64(self.base), np.int64(self.top), np.uint64(self.shift), coarse, fine)
        return coarse, fine

    def join(self, coarse: Ints32, fine: NDArray[np.uint32]) -> Ints:
        """The keys of bounds again."""
        past = (coarse.astype(np.int64) + (1 << 31) - 2 << self.shift) + fine + self.base
        return np.select(
            [coarse == kernels.NO_VALUE, coarse == kernels.BEFORE, coarse == kernels.AFTER], [NULL, LEAST, MOST], past
        )


@dataclass(frozen=True, slots=True)
class Met(Batch):
    """Rows, the entries whose boxes they meet, and the bounds of these, axis by axis."""

    rows: Ints32
    entries: Ints32
    lows: list[Ints]
    highs: list[Ints]


class Tree:
    """Boxes that never change: ``lows`` and ``highs`` (axes, n) are closed bounds as keys, ``entries`` what they are.

    Only axes along which some box is bounded are kept. Bytes a box of two such axes: 37.
    """

    gone = 0  # boxes of entries that are gone, and -1

    def __init__(self, lows: Ints, highs: Ints, entries: Ints32) -> None:
        self.n = n = len(entries)
        self._chosen, self._looks = 1, 0
        axes = np.flatnonzero(((lows != NULL) | (highs != MOST)).any(axis=1))
        if not len(axes):
            axes = np.arange(min(1, len(lows)))
        # The axes along which boxes are narrowest come first: most boxes are ruled out before the others are looked at.
        stride = max(1, n // _SAMPLE)
        self.axes = axes[np.argsort([_width(lows[a, ::stride], highs[a, ::stride]) for a in axes], kind="stable")]
        self.scales = [Scale.of(np.concatenate([lows[a], highs[a]])) for a in self.axes.tolist()]
        self.tight = np.array([scale.shift > 0 for scale in self.scales], bool)
        sides = 2 * len(self.axes)
        coarse, fine = np.empty((sides, n), np.int32), np.empty((sides, n), np.uint32)
        corners = np.empty((sides, n), np.float32)
        for i, (axis, scale) in enumerate(zip(self.axes.tolist(), self.scales, strict=True)):
            for side, keys in ((2 * i, lows[axis]), (2 * i + 1, highs[axis])):
                coarse[side], fine[side] = scale.split(keys)
            table = np.quantile(coarse[2 * i : 2 * i + 2, ::stride].astype(np.float64), np.linspace(0.0, 1.0, _TABLE))
            corners[2 * i : 2 * i + 2] = np.interp(coarse[2 * i : 2 * i + 2], table, np.linspace(0.0, 1.0, _TABLE))
        order = np.arange(n, dtype=np.int32)
        kernels.arrange(corners, order)
        self.offsets = _offsets(n)
        leaves = int(self.offsets[1])
        self.blocks = np.empty((int(self.offsets[-1]), sides, LANES), np.int32)
        kernels.fill(order, coarse, self.offsets, self.blocks)
        padded = np.zeros((leaves * LANES, sides), np.uint32)
        padded[:n] = fine[:, order].T
        self.rests = np.ascontiguousarray(padded.reshape(leaves, LANES, sides).transpose(0, 2, 1))
        self.entries = np.full(leaves * LANES, -1, np.int32)
        self.entries[:n] = entries[order]

    @property
    def nbytes(self) -> int:
        return int(self.blocks.nbytes + self.rests.nbytes + self.entries.nbytes)

    def renumbered(self, numbers: Ints32) -> Tree:
        """The same boxes, of entries by other numbers; the last of ``numbers`` is -1, and for those that are gone."""
        other = copy(self)
        other.entries = numbers[self.entries]
        other.gone = int((other.entries[: self.n] < 0).sum())
        return other

    def boxes(self, axes: int) -> tuple[Ints, Ints, Ints32]:
        """What it was made of, along that many axes, in its own order."""
        lows, highs = np.full((axes, self.n), NULL), np.full((axes, self.n), MOST)
        leaves = int(self.offsets[1])
        coarse = self.blocks[:leaves].transpose(1, 0, 2).reshape(-1, leaves * LANES)[:, : self.n]
        fine = self.rests.transpose(1, 0, 2).reshape(-1, leaves * LANES)[:, : self.n]
        for i, (axis, scale) in enumerate(zip(self.axes.tolist(), self.scales, strict=True)):
            lows[axis] = scale.join(coarse[2 * i], fine[2 * i])
            highs[axis] = scale.join(coarse[2 * i + 1], fine[2 * i + 1])
        return lows, highs, self.entries[: self.n]

    def match(self, keys: Ints, cluster: int | None = None) -> tuple[Ints32, Ints32]:
        """The boxes that points lie in, as (point, entry) pairs; ``keys`` is (axes, n), with `NULL` for no value."""
        return together(list(self.parts(keys, cluster)))

    def parts(self, keys: Ints, cluster: int | None = None) -> Iterator[tuple[Ints32, Ints32]]:
        """The same in parts: about `_MOST_ROOM` pairs, or those of one cluster.

        ``cluster`` points go down the tree together; None: as many as cost least, by a look at a sample of this call's
        points, or of those of a call not long ago.
        """
        n = keys.shape[1]
        points, rests = np.empty((n, len(self.axes)), np.int32), np.empty((n, len(self.axes)), np.uint32)
        for i, (axis, scale) in enumerate(zip(self.axes.tolist(), self.scales, strict=True)):
            points[:, i], rests[:, i] = scale.split(keys[axis])
        order = None
        if cluster is None and n >= _PROBED:
            if self._looks % _LOOK_EVERY == 0:
                self._chosen, order = self._choice(points)
            self._looks += 1
            cluster = self._chosen
        cluster = 1 if cluster is None else cluster
        if cluster > 1 and n:
            order = in_hilbert_order(points) if order is None else order
            points, rests = points[order], rests[order]
        for found, entries in self._match(points, rests, cluster):
            yield found if order is None or cluster == 1 else order[found].astype(np.int32), entries

    def _match(self, points: Ints32, rests: NDArray[np.uint32], cluster: int) -> Iterator[tuple[Ints32, Ints32]]:
        first, lows, highs = _clusters(points, cluster)
        tree = kernels.Tree(self.offsets, self.blocks, self.rests, self.entries, self.tight)
        clusters = kernels.Clusters(points, rests, first, lows, highs)
        done, room = 0, min(_MOST_ROOM, 4 * len(points) + LANES)
        front = np.empty((4, max(_FRONT, 2 * self._roots)), np.int32)
        while done < len(first) - 1:
            found = np.empty((2, room), np.int32)
            after, pairs = kernels.match(tree, clusters, done, front, found[0], found[1])
            if pairs < 0:
                front = np.empty((4, 4 * front.shape[1]), np.int32)
            elif pairs:
                yield found[0, :pairs], found[1, :pairs]
            # Room for the rest, as it goes on like this: what does not fit is looked up again.
            left, looked_up = len(first) - 1 - after, after - done
            room = min(_MOST_ROOM, left * pairs // looked_up * 5 // 4 + room) if looked_up else 4 * room
            done = after

    def meeting(self, lows: Ints, highs: Ints) -> Met:
        """The boxes that rows, boxes of keys (axes, n) themselves, meet, with their bounds."""
        n, axes = lows.shape[1], len(lows)
        least, most = np.empty((2, n, len(self.axes)), np.int32)
        for i, (axis, scale) in enumerate(zip(self.axes.tolist(), self.scales, strict=True)):
            least[:, i], most[:, i] = scale.split(lows[axis])[0], scale.split(highs[axis])[0]
        tree = kernels.Tree(self.offsets, self.blocks, self.rests, self.entries, self.tight)
        parts, done, room = [], 0, 4 * n + LANES
        front = np.empty((4, max(_FRONT, 2 * self._roots)), np.int32)
        while done < n:
            found = np.empty((2, room), np.int32)
            done, pairs = kernels.meet(tree, least, most, done, front, found[0], found[1])
            if pairs < 0:
                front = np.empty((4, 4 * front.shape[1]), np.int32)
            else:
                parts.append(found[:, :pairs])
            room = min(_MOST_ROOM, 2 * room) if pairs > 0 else 2 * room if pairs == 0 else room
        joined = np.concatenate([np.empty((2, 0), np.int32), *parts], axis=1)
        met, place = joined[0], joined[1]
        bounds = np.full((axes, len(met)), NULL), np.full((axes, len(met)), MOST)
        block, lane = place // LANES, place % LANES
        for i, (axis, scale) in enumerate(zip(self.axes.tolist(), self.scales, strict=True)):
            for side in range(2):
                at = block, 2 * i + side, lane
                bounds[side][axis] = scale.join(self.blocks[at], self.rests[at])
        # Coarse keys may meet where keys do not.
        stays = np.logical_and.reduce((bounds[0] <= highs[:, met]) & (bounds[1] >= lows[:, met]))
        return Met(met, self.entries[place], *map(list, bounds)).filter(stays)

    @cached_property
    def _roots(self) -> int:
        return int(self.offsets[-1] - self.offsets[-2])

    def _choice(self, points: Ints32) -> tuple[int, Ints | None]:
        """The size of clusters that costs least, and the order of points if it took that to tell."""
        if self._cost(points[:: len(points) // _PROBED], 1) <= _FEW * _BLOCK:
            return 1, None
        order = in_hilbert_order(points)
        return min(CLUSTERS, key=lambda size: self._cost_in(points[order], size)), order

    def _cost(self, points: Ints32, cluster: int) -> float:
        """What it costs to look up a point, in clusters of so many."""
        first, lows, highs = _clusters(np.ascontiguousarray(points), cluster)
        front = np.empty((4, max(self.blocks.shape[0] + LANES, 2 * self._roots)), np.int32)
        met, alone = kernels.work(self.offsets, self.blocks, first, lows, highs, front)
        return (_BLOCK * met + (_POINT * alone if cluster > 1 else 0.0)) / len(points)

    def _cost_in(self, ordered: Ints32, cluster: int) -> float:
        """The same for points in order, by some of their clusters."""
        clusters = max(1, len(ordered) // cluster)
        chosen = np.linspace(0, clusters - 1, min(clusters, max(1, _PROBED // cluster * 2))).astype(np.int64)
        rows = (chosen[:, None] * cluster + np.arange(cluster)).ravel()
        return self._cost(ordered[rows[rows < len(ordered)]], cluster)


@dataclass(frozen=True)
class _Building:
    """A tree that a thread makes of ``count`` others, from ``first`` on, and the numbers entries were given since."""

    first: int
    count: int
    tree: Future[Tree | None]
    numbers: list[Ints32] = field(default_factory=list)


class BoxIndex:
    """Boxes of entries along some axes; an entry may have several. Entries are small whole numbers."""

    def __init__(self) -> None:
        self._trees: list[Tree] = []
        self._waiting: list[tuple[Ints, Ints, Ints32]] = []
        self._building: _Building | None = None
        self._lock = Lock()  # held by who puts other trees in place: several threads may look boxes up
        #: The thread, which starts with its first work, and ends with the index.
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="appulse-queries")

    @property
    def nbytes(self) -> int:
        return sum(tree.nbytes for tree in self._trees) + sum(a.nbytes for part in self._waiting for a in part)

    def __len__(self) -> int:
        """Boxes held, those of entries removed among them."""
        return sum(tree.n for tree in self._trees) + sum(len(part[2]) for part in self._waiting)

    def add(self, lows: Ints, highs: Ints, entries: Ints32) -> None:
        """Boxes (axes, n), each of an entry; those that contain nothing are left out."""
        full = (lows <= highs).all(axis=0)
        if full.any():
            at = np.flatnonzero(full)
            self._waiting.append((lows[:, at], highs[:, at], entries[at]))

    def planted(self, axes: int) -> None:
        """Make a tree of what was added, if it is much: a look-up soon after has little left to do."""
        if sum(len(part[2]) for part in self._waiting) >= _TAIL:
            self._plant(axes)

    def match(self, keys: Ints, alive: Flags | None = None, cluster: int | None = None) -> tuple[Ints32, Ints32]:
        """The boxes that points lie in, as (point, entry) pairs, those of entries that are alive."""
        return together(list(self.parts(keys, alive, cluster)))

    def parts(
        self, keys: Ints, alive: Flags | None = None, cluster: int | None = None
    ) -> Iterator[tuple[Ints32, Ints32]]:
        """The same in parts, as those of a tree are."""
        for tree in self._settle(len(keys), alive):
            for points, entries in tree.parts(keys, cluster):
                stays = _staying(entries, alive)
                yield (points, entries) if stays.all() else (points[stays], entries[stays])

    def meeting(self, lows: Ints, highs: Ints, alive: Flags | None = None) -> Met:
        """The boxes that rows, boxes of keys (axes, n) themselves, meet: those of entries that are alive."""
        trees = self._settle(len(lows), alive)
        none, bounds = np.empty(0, np.int32), [np.empty(0, np.int64)] * len(lows)
        found = Met.concat([Met(none, none, bounds, bounds), *(tree.meeting(lows, highs) for tree in trees)])
        return found.filter(_staying(found.entries, alive))

    def boxes(self, axes: int) -> tuple[Ints, Ints, Ints32]:
        """All boxes along that many axes, and their entries."""
        self.settle(axes)
        none = np.empty((axes, 0), np.int64), np.empty((axes, 0), np.int64), np.empty(0, np.int32)
        lows, highs, entries = _joined([none, *(tree.boxes(axes) for tree in self._trees)])
        stays = entries >= 0
        return lows[:, stays], highs[:, stays], entries[stays]

    def renumber(self, numbers: Ints32) -> None:
        """Give each entry another number; those that get -1 are gone: left out of answers, and of the next tree."""
        numbers = np.append(numbers, np.int32(-1))
        self._trees = [tree.renumbered(numbers) for tree in self._trees]
        self._waiting = [(lows, highs, numbers[entries]) for lows, highs, entries in self._waiting]
        if self._building is not None:
            self._building.numbers.append(numbers)

    def settle(self, axes: int, alive: Flags | None = None) -> None:
        """Build what there is to build, now."""
        self._settle(axes, alive)
        self._finish(wait=True)

    def _settle(self, axes: int, alive: Flags | None) -> tuple[Tree, ...]:
        with self._lock:
            self._finish(wait=False)
            self._plant(axes)
            if self._building is None:
                self._merge(axes, alive)
            return tuple(self._trees)

    def _plant(self, axes: int) -> None:
        """Make a tree of what waits."""
        if self._waiting:
            wide = [(*_widened(lows, highs, axes), entries) for lows, highs, entries in self._waiting]
            self._trees.append(Tree(*_joined(wide)))
            self._waiting = []  # last: other threads see at any time that there are boxes

    def _merge(self, axes: int, alive: Flags | None) -> None:
        """Make one tree of the last ones, until each is some times as large as the next and holds few that are gone."""
        first = len(self._trees)
        total = 0
        while first and (first == len(self._trees) or self._trees[first - 1].n < _RATIO * total):
            first -= 1
            total += self._trees[first].n
        sparse = [i for i, tree in enumerate(self._trees) if 2 * tree.gone >= tree.n]
        first = min([first, *sparse])
        merged = self._trees[first:]
        if len(merged) < 2 and not sparse:
            return
        kept = None if alive is None else alive.copy()
        if sum(tree.n for tree in merged) < _APART:
            self._trees[first:] = [tree for tree in [_merged(merged, axes, kept)] if tree is not None]
            return
        self._building = _Building(first, len(merged), self.pool.submit(_merged, merged, axes, kept))

    def _finish(self, *, wait: bool) -> None:
        """Take the tree that the thread has built in place of those it was made of."""
        building = self._building
        if building is None or not (wait or building.tree.done()):
            return
        self._building = None
        tree = building.tree.result()
        for numbers in building.numbers:
            tree = None if tree is None else tree.renumbered(numbers)
        self._trees[building.first : building.first + building.count] = [] if tree is None else [tree]


def _width(lows: Ints, highs: Ints) -> float:
    """The mean share of all bounds that lie within a box's own."""
    bounds = np.sort(np.concatenate([lows, highs]))
    inside = np.searchsorted(bounds, highs, side="right") - np.searchsorted(bounds, lows)
    return float(inside.mean() / len(bounds)) if len(bounds) else 1.0


def in_hilbert_order(points: Ints32) -> Ints:
    """An order in which points that follow upon each other lie close together."""
    ranks = np.empty(points.shape, np.uint32)
    bits = max(1, min(16, 62 // max(1, points.shape[1])))
    for axis in range(points.shape[1]):
        low, high = int(points[:, axis].min()), int(points[:, axis].max())
        ranks[:, axis] = (points[:, axis].astype(np.int64) - low) * ((1 << bits) - 1) // max(1, high - low)
    return np.argsort(kernels.hilbert_keys(ranks, bits), kind="stable")


def _offsets(n: int) -> Ints:
    """Where the levels of a tree of n boxes begin, leaves first, and where the last one ends."""
    offsets, blocks = [0], max(1, -(-n // LANES))
    while True:
        offsets.append(offsets[-1] + blocks)
        if blocks == 1:
            return np.array(offsets)
        blocks = -(-blocks // LANES)


def _clusters(points: Ints32, size: int) -> tuple[Ints, Ints32, Ints32]:
    first = np.append(np.arange(0, len(points), size), len(points))
    if size == 1:
        return first, points, points
    lows, highs = np.empty((2, len(first) - 1, points.shape[1]), np.int32)
    kernels.hulls(points, first, lows, highs)
    return first, lows, highs


def _merged(trees: Sequence[Tree], axes: int, alive: Flags | None) -> Tree | None:
    lows, highs, entries = _joined([tree.boxes(axes) for tree in trees])
    if not (stays := _staying(entries, alive)).all():
        lows, highs, entries = lows[:, stays], highs[:, stays], entries[stays]
    return Tree(lows, highs, entries) if len(entries) else None


def _staying(entries: Ints32, alive: Flags | None) -> Flags:
    """Which of these are there and alive."""
    there = entries >= 0
    if alive is not None:
        there[there] = alive[entries[there]]
    return there


def together(parts: Sequence[tuple[Ints32, Ints32]]) -> tuple[Ints32, Ints32]:
    """Pairs of points and entries that were found in parts."""
    if len(parts) == 1:
        return parts[0]
    none = np.empty(0, np.int32), np.empty(0, np.int32)
    points, entries = (np.concatenate([part[i] for part in [none, *parts]]) for i in range(2))
    return points, entries


def _joined(parts: Sequence[tuple[Any, Any, Any]]) -> tuple[Any, Any, Any]:
    if len(parts) == 1:
        return parts[0]
    lows, highs, entries = (np.concatenate([part[i] for part in parts], axis=-1) for i in range(3))
    return lows, highs, entries


def _widened(lows: Ints, highs: Ints, axes: int) -> tuple[Ints, Ints]:
    """With axes that did not exist yet, along which nothing is bounded."""
    more = axes - len(lows)
    if not more:
        return lows, highs
    free = np.full((more, lows.shape[1]), NULL), np.full((more, lows.shape[1]), MOST)
    return np.concatenate([lows, free[0]]), np.concatenate([highs, free[1]])
