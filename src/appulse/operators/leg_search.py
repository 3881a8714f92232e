"""Which of some legs may come close: by a sweep through time, or by slots of time and cells of space."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from appulse.kernels import legs as kernels
from appulse.kernels.arrays import RowPairs
from appulse.kernels.held_legs import LegIndex
from appulse.kernels.leg_sweep import Stretch, sweep
from appulse.model.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from appulse.kernels.arrays import Ints

_FEW_AT_ONCE = 256  # legs that a leg is compared with, on average, up to which bins do not pay
MOST_ENTRIES = 16  # bins of a leg, on average
_PARTS, _A_PART = 8, 8192  # for several threads; each stretch of a sweep looks again at legs before it
_ALONE = Workers()


def joined(parts: Sequence[kernels.Legs]) -> kernels.Legs:
    """Legs of several streams."""
    if len(parts) == 1:
        return parts[0]
    whole: dict[str, Any] = {"instant": parts[0].instant}
    for name in kernels.Legs._fields[:-1]:
        whole[name] = np.concatenate([getattr(part, name) for part in parts])
    return kernels.Legs(**whole)


def taken(legs: kernels.Legs, rows: Ints) -> kernels.Legs:
    """Some of the legs."""
    columns = {name: getattr(legs, name).take(rows, axis=0) for name in kernels.Legs._fields[:-1]}
    return kernels.Legs(**columns, instant=legs.instant)


def near_pairs(legs: kernels.Legs, epsilon: float, *, alone: bool, workers: Workers = _ALONE) -> RowPairs:
    """Pairs of legs that share a time and may come within epsilon."""
    pairs = swept_pairs(legs, epsilon, _FEW_AT_ONCE * len(legs.begin), alone=alone, workers=workers)
    return binned_pairs(legs, epsilon, alone=alone, workers=workers) if pairs is None else pairs


def swept_pairs(
    legs: kernels.Legs, epsilon: float, most: int, *, alone: bool, workers: Workers = _ALONE
) -> RowPairs | None:
    """The same by about so many comparisons at most; None: by more."""
    n = len(legs.begin)
    if not n:
        return _room(0)
    order, lasting = np.lexsort((legs.begin, legs.group)), legs.end - legs.begin
    groups = 1 + int(np.count_nonzero(np.diff(legs.group[order])))
    extent = max(1, int(legs.end.max()) - int(legs.begin.min())) * groups
    if n * n * float(lasting.mean()) > extent * most:  # by as many, were legs spread evenly over time
        return None
    ends = _cuts(n)
    longest, most = int(lasting.max()), most if len(ends) == 2 else 2 * most // (len(ends) - 1)

    def swept(stretch: Stretch) -> RowPairs | None:
        room = _room(4 * (stretch.last - stretch.first))
        found = sweep(legs, order, stretch, epsilon, alone, most, room)
        if found > len(room.left):
            room = _room(found)
            sweep(legs, order, stretch, epsilon, alone, most, room)
        return None if found < 0 else RowPairs(room.left[:found], room.right[:found])

    made = workers.map(swept, [Stretch(*some, longest) for some in pairwise(ends)])
    parts = [pairs for pairs in made if pairs is not None]
    return _in_one(parts) if len(parts) == len(made) else None


def binned_pairs(legs: kernels.Legs, epsilon: float, *, alone: bool, workers: Workers = _ALONE) -> RowPairs:
    """The same by slots of time and cells of space, where many legs are there at once."""
    index = leg_index(legs, epsilon)
    # No bin is cut.
    ends = np.append(index.hashes.searchsorted(index.hashes.take(_cuts(len(index.hashes))[:-1])), len(index.hashes))

    def binned(part: tuple[int, int]) -> RowPairs:
        hashes, owner = index.hashes[slice(*part)], index.owner[slice(*part)]
        room = 4 * len(legs.begin) * len(hashes) // len(index.hashes)
        return found_in(lambda room: kernels.find(legs, epsilon, alone, index.bins, hashes, owner, room), room)

    return _in_one(workers.map(binned, list(pairwise(ends.tolist()))))


def leg_index(legs: kernels.Legs, epsilon: float) -> LegIndex:
    """Some legs in bins that suit them."""
    n = len(legs.begin)
    origin, newest = int(legs.begin.min()), int(legs.end.max())
    lasting = float((legs.end - legs.begin).mean())
    slot = max(1, int(lasting), (newest - origin) // max(1, 4 * n))
    extent = float(np.abs(legs.to - legs.at).mean()) + epsilon + 2.0 * float(legs.reach.mean())
    bins = kernels.Bins(origin, slot, extent or 1.0)
    entries = kernels.entries(legs, epsilon, bins)
    while entries > MOST_ENTRIES * n:
        bins = bins._replace(slot=2 * bins.slot, cell=2.0 * bins.cell)
        entries = kernels.entries(legs, epsilon, bins)
    hashes, owner = np.empty(int(entries), np.uint64), np.empty(int(entries), np.int64)
    kernels.enter(legs, epsilon, bins, hashes, owner)
    bits = max(1, len(hashes).bit_length() - 1)
    return LegIndex(bins, *kernels.by_bin(hashes, owner, bits), 64 - bits)


def found_in(look: Callable[[RowPairs], int], expected: int) -> RowPairs:
    """The pairs that are found: those beyond the room there is are counted, and looked for again."""
    room = _room(expected)
    found = look(room)
    if found > len(room.left):
        room = _room(found)
        look(room)
    return RowPairs(room.left[:found], room.right[:found])


def _cuts(n: int) -> list[int]:
    """Where so many rows are cut for several threads: as often whatever the threads, on which no result depends."""
    cuts: list[int] = np.linspace(0, n, 1 + max(1, min(_PARTS, n // _A_PART))).astype(np.int64).tolist()
    return cuts


def _in_one(parts: Sequence[RowPairs]) -> RowPairs:
    return parts[0] if len(parts) == 1 else RowPairs(*map(np.concatenate, zip(*parts, strict=True)))


def _room(n: int) -> RowPairs:
    return RowPairs(np.empty(n, np.int64), np.empty(n, np.int64))
