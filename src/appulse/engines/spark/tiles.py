"""Tiles: how space is shared out among the tasks of a join."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from appulse.kernels.strings import hash_rows
from appulse.kernels.tiles import MOST_CELLS, Cut, Hot, Placed, assign, cell_hash, pair_owners, row_owners
from appulse.model.covariance import widest_known
from appulse.model.meaning import digest, real, without_defaults
from appulse.model.uncertainty import Ball, Gaussian, Position, Samples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats, Hashes, Ints, Ints32
    from appulse.model.meaning import Meaning
    from appulse.model.objects import Objects
    from appulse.operators.pairs import CandidatePairs
    from appulse.operators.plan import JoinPlan
    from appulse.operators.store import WindowBuffer

# Copies per row are (1 + 2 reach / side)^d: 1.27 at this ratio in two dimensions.
_SIDE_PER_REACH = 16.0
_COARSER = 16.0
# Time of a candidate pair, in rows: about 5 ns against 1 us.
_PAIR_COST = 0.005
_MOST_CLASSES = 12
_HOT = ("hot", "hot_classes", "hot_first", "hot_tiles")
_DEFAULTS: Meaning = {"coarse_side": 0.0, "slots": 0, "dims": 2, **{name: [] for name in _HOT}}


@dataclass(frozen=True)
class TilePlan:
    """An immutable division of space among ``tiles`` tiles.

    Cells of ``side`` over the first ``dims`` dimensions belong to tiles by hash; ``hot`` lists the hashes of cells that
    are cut once more, ``hot_classes`` into how many classes of rows, ``hot_tiles`` (from ``hot_first``) the tile of
    each pair of classes. ``coarse_side`` is that of the coarse lane's cells, 0 where there is none. Tiles are numbered
    so that Spark spreads them evenly over ``slots`` shuffle partitions (0: as many as tiles); a checkpoint keeps that.
    """

    tiles: int
    side: float
    coarse_side: float
    margin: float
    hot: tuple[int, ...] = ()
    hot_classes: tuple[int, ...] = ()
    hot_first: tuple[int, ...] = ()
    hot_tiles: tuple[int, ...] = ()
    slots: int = 0
    dims: int = 2

    @property
    def numbers(self) -> int:
        """How many tile numbers there are, the coarse ones included."""
        return self.tiles * (2 if self.coarse_side > 0 else 1)

    def over(self, tiles: int) -> TilePlan:
        """The same cells over another number of tiles; hot cells are not placed any more."""
        return TilePlan(tiles, self.side, self.coarse_side, self.margin, slots=self.slots, dims=self.dims)

    def meaning(self) -> Meaning:
        """The plan in plain JSON; `of` reads it."""
        return without_defaults(
            {
                "tiles": self.tiles,
                "side": real(self.side),
                "coarse_side": real(self.coarse_side),
                "margin": real(self.margin),
                "hot": list(self.hot),
                "hot_classes": list(self.hot_classes),
                "hot_first": list(self.hot_first),
                "hot_tiles": list(self.hot_tiles),
                "slots": self.slots,
                "dims": self.dims,
            },
            _DEFAULTS,
        )

    @staticmethod
    def of(meaning: Meaning) -> TilePlan:
        """The plan with this meaning."""
        known: Meaning = _DEFAULTS | meaning
        known |= {name: tuple(map(int, known[name])) for name in _HOT}
        return TilePlan(**known)

    def fingerprint(self) -> str:
        """A short text that differs when the plan does."""
        return digest(self.meaning())

    @cached_property
    def hot_arrays(self) -> Hot:
        return Hot(
            np.array(self.hot, np.uint64),
            np.array(self.hot_classes, np.int64),
            np.array(self.hot_first, np.int64),
            np.array(self.hot_tiles, np.int64),
        )

    def copies(self, objects: Objects) -> tuple[Ints, Ints32, NDArray[np.int8]]:
        """Copies of the rows for tiles, as (row, tile, lane)."""
        rows, tiles, lanes = assign(self._placed(objects), group_hashes(objects), self.cut(objects.d))
        return rows, tiles, lanes

    def owners(self, objects: Objects) -> Ints32:
        """For each row the one tile that speaks for it."""
        owners: Ints32 = row_owners(self._placed(objects), group_hashes(objects), self.cut(objects.d))
        return owners

    def cut(self, d: int) -> Cut:
        """As kernels take it, in so many dimensions."""
        dims = np.arange(min(d, self.dims), dtype=np.int64)
        return Cut(self.margin, dims, self.side, self.coarse_side, self.tiles, self.hot_arrays)

    def _placed(self, objects: Objects) -> Placed:
        return Placed(objects.centre, objects.reach, self._row_hashes(objects))

    def _row_hashes(self, objects: Objects) -> Hashes:
        if not self.hot:
            return np.zeros(len(objects), np.uint64)
        hashes: Hashes = hash_rows(objects.key.offsets, objects.key.data, objects.time)
        return hashes


def pair_places(plan: TilePlan, pairs: CandidatePairs, group_hashes: Hashes) -> Ints32:
    """The tile that reports each pair; ``group_hashes`` by number of group."""
    a, b = pairs.left_store, pairs.right_store
    one = Placed(a.centre.view, a.reach.view, _pair_hashes(plan, a, pairs.left))
    other = Placed(b.centre.view, b.reach.view, _pair_hashes(plan, b, pairs.right))
    group = group_hashes[a.group.view[pairs.left]]
    owners: Ints32 = pair_owners(pairs.rows, one, other, group, plan.cut(a.d))
    return owners


def _pair_hashes(plan: TilePlan, store: WindowBuffer, rows: Ints) -> Hashes:
    if not plan.hot:
        return np.zeros(len(rows), np.uint64)
    keys = store.keys(rows)
    hashes: Hashes = hash_rows(keys.offsets, keys.data, store.time.view[rows])
    return hashes


def label_hash(value: bytes) -> int:
    """Hash of a group's label, the same in every process; 0 for none."""
    return int.from_bytes(hashlib.blake2b(value, digest_size=8).digest(), "little") if value else 0


def group_hashes(objects: Objects) -> Hashes:
    """Hash of each row's group."""
    if objects.group is None:
        return np.zeros(len(objects), np.uint64)
    table = np.array([label_hash(value) for value in objects.group.values], np.uint64)
    return table[objects.group.codes]


class Reaching(Protocol):
    """What says how far rows reach."""

    @property
    def models(self) -> Sequence[Any]: ...
    @property
    def limit(self) -> float: ...
    @property
    def earth(self) -> Any: ...


def hashed_plan(plan: Reaching, tiles: int, gaussian_reach: float | None, side: float | None = None) -> TilePlan:
    """A plan without a sample: cells by epsilon and what the models tell of reaches, spread by hash."""
    margin = plan.limit / 2.0
    known, varying = 0.0, False
    for model in plan.models:
        if isinstance(model, Samples):
            varying = True
        elif isinstance(model, Gaussian | Position | Ball):
            given = widest_known(model)
            factor = gaussian_reach if gaussian_reach is not None else 3.0
            if factor > 0.0 and given is not None:
                known = max(known, factor * given)
            varying = varying or (factor > 0.0 and given is None)
    side = _SIDE_PER_REACH * (margin + known) if side is None else side
    # A row never has more copies than there are tiles: a coarse lane pays only beyond that.
    coarse = _COARSER * side if varying and tiles > MOST_CELLS else 0.0
    return TilePlan(tiles, side, coarse, margin, dims=_dims(plan))


def _dims(plan: Reaching) -> int:
    """Dimensions that are cut into cells: of the Earth all three, as two would put north and south into one cell."""
    return 2 if plan.earth is None else 3


def planned(plan: JoinPlan, tiles: int, sample: Sequence[Objects], window: int, side: float | None = None) -> TilePlan:
    """A plan that balances the estimated work of a sample's rows (after RecPart): heavy cells are cut and placed.

    ``sample`` holds some rows of each stream, ``window`` the longest window in microseconds.
    """
    margin = plan.limit / 2.0
    reach = np.concatenate([objects.reach for objects in sample])
    typical = float(np.quantile(reach, 0.9)) if len(reach) else 0.0
    side = _SIDE_PER_REACH / 2.0 * (margin + typical) if side is None else side
    dims = _dims(plan)
    touched = (2.0 * (reach + margin) / side + 1.0) ** min(dims, sample[0].d if sample else 1)
    some = tiles > MOST_CELLS and len(reach) > 0 and bool((touched > MOST_CELLS).mean() > 1e-3)
    coarse = _COARSER * side if some else 0.0
    base = TilePlan(tiles, side, coarse, margin, dims=dims)
    parts = [_cell_hashes(objects, side, dims) for objects in sample]
    hashes = np.concatenate(parts) if parts else np.empty(0, np.uint64)
    if tiles == 1 or len(hashes) == 0:
        return base
    cells, rows = np.unique(hashes, return_counts=True)
    times = np.concatenate([objects.time for objects in sample])
    duration = max(1, int(times.max() - times.min()))
    in_window = min(1.0, 2.0 * window / duration)
    return _placed(base, cells, rows.astype(np.float64), in_window)


def _cell_hashes(objects: Objects, side: float, dims: int) -> Hashes:
    cells = np.zeros((len(objects), 3), np.int64)
    known = np.floor(objects.centre[:, :dims] / side).astype(np.int64)
    cells[:, : known.shape[1]] = known
    placed = zip(*cells.T, group_hashes(objects), strict=True)
    return np.array([cell_hash(x, y, z, 0, group) for x, y, z, group in placed], np.uint64)


def _placed(base: TilePlan, cells: Hashes, rows: Floats, in_window: float) -> TilePlan:
    """Place the heavy cells, largest part first on the least loaded tile; the light ones stay with their hash."""
    work = rows + _PAIR_COST * rows * rows * in_window
    heavy = np.flatnonzero(rows > max(1.0, 0.02 * rows.sum() / base.tiles))
    heavy = heavy[np.argsort(-work[heavy], kind="stable")][:4096]
    load = np.zeros(base.tiles)
    light = np.setdiff1d(np.arange(len(cells)), heavy)
    np.add.at(load, (cells[light] % np.uint64(base.tiles)).astype(np.int64), work[light])
    best: tuple[float, TilePlan] | None = None
    for most in range(1, _MOST_CLASSES + 1):
        loads, plan = _attempt(base, cells, rows, work, heavy, load.copy(), in_window, most)
        if best is None or float(loads.max()) < best[0] * 0.98:
            best = float(loads.max()), plan
    assert best is not None  # noqa: S101 - at least one attempt was made
    return best[1]


def _attempt(
    base: TilePlan, cells: Hashes, rows: Floats, work: Floats, heavy: Ints, load: Floats, in_window: float, most: int
) -> tuple[Floats, TilePlan]:
    fair = work.sum() / base.tiles
    parts: list[tuple[float, int, int]] = []  # (work, cell, place in its triangle)
    classes: dict[int, int] = {}
    for cell in heavy.tolist():
        k = int(min(most, max(1.0, np.ceil(2.0 * work[cell] / fair))))
        classes[cell] = k
        place = 0
        for i in range(k):
            for j in range(i, k):
                own_rows = rows[cell] / k * (1 if i == j else 2)
                pairs = (rows[cell] / k) ** 2 * (1 if i == j else 2)
                parts.append((own_rows + _PAIR_COST * pairs * in_window, cell, place))
                place += 1
    placed = {cell: [0] * (k * (k + 1) // 2) for cell, k in classes.items()}
    for cost, cell, place in sorted(parts, key=lambda part: -part[0]):
        tile = int(np.argmin(load))
        load[tile] += cost
        placed[cell][place] = tile
    order = sorted(classes, key=lambda cell: int(cells[cell]))
    counts = [len(placed[cell]) for cell in order]
    return load, TilePlan(
        base.tiles,
        base.side,
        base.coarse_side,
        base.margin,
        hot=tuple(int(cells[cell]) for cell in order),
        hot_classes=tuple(classes[cell] for cell in order),
        hot_first=tuple(np.cumsum([0, *counts[:-1]]).tolist()) if order else (),
        hot_tiles=tuple(tile for cell in order for tile in placed[cell]),
        dims=base.dims,
    )


def spread_keys(n: int, partitions: int, start: int = 0) -> list[int]:
    """``n`` integers from ``start`` on; Spark's hash partitioning sends an equal share to each of ``partitions``."""
    free = [[] for _ in range(partitions)]  # type: list[list[int]]
    share = -(-n // partitions)
    missing = min(partitions, n)
    candidate, full = start, 0
    while full < missing:
        where = _murmur3(candidate) % partitions
        if len(free[where]) < share:
            free[where].append(candidate)
            full += len(free[where]) == share
        candidate += 1
    rounds = [keys for keys in free if len(keys) == share]
    return [rounds[i % len(rounds)][i // len(rounds)] for i in range(n)]


def _murmur3(value: int) -> int:
    """Spark's hash of an int: Murmur3 (x86, 32 bits) with seed 42, as a signed number."""
    mask = 0xFFFFFFFF
    k = value * 0xCC9E2D51 & mask
    k = (k << 15 | k >> 17) & mask
    h = 42 ^ (k * 0x1B873593 & mask)
    h = (h << 13 | h >> 19) & mask
    h = (h * 5 + 0xE6546B64) & mask
    h ^= 4
    h ^= h >> 16
    h = h * 0x85EBCA6B & mask
    h ^= h >> 13
    h = h * 0xC2B2AE35 & mask
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h
