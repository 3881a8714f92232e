"""Other ways to the sensor join, compiled with the same care: MJoin, trees of binary joins, Flink's MultiJoin.

All take readings in order of (time, sensor, number), sensors and bins as whole numbers, and give the same factorised
answers (`Factorised`). They share what costs them nothing to share: one ring of readings in order of arrival, in
which a pointer below the tail has expired, so that nothing is ever deleted from a table.

* `MJoin` (Viglas et al. 2003): a hash table a stream; a reading probes all others. Outer: it never stops early.
* `DistributedMJoin`: the same by clusters, its own first, the others in descending average selectivity.
* `JoinTree`: binary symmetric hash outer joins. A node's output is a row as wide as its subtree, NULL (-1) for streams
  without a match. Factorised, one row stands for all combinations, so a side keeps the newest row of each bin: the
  kindest tree there can be. Balanced, or left-deep.
* `FlinkMultiJoin`: as StreamingMultiJoinOperator of Flink 2 does: state by join key, and all inputs iterated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from benchmarks.mjoin_kernels import Out, Ring, clusters_mjoin, flink, join_tree, mjoin, number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.kernels.arrays import Ints

BUCKETS = 128  # of a stream's table: measured best of 16 to 256 at ten live readings a stream


class Factorised(NamedTuple):
    """Answer k is of reading ``probe[k]``: groups ``first[k]`` to ``first[k + 1]``.

    Group g is of ``sensor[g]``, with the times ``begin[g]`` to ``begin[g + 1]``. All newest first.
    """

    probe: Ints
    first: Ints
    sensor: Ints
    begin: Ints
    time: Ints


class Contestant(Protocol):
    """What all of them are."""

    def push(self, time: Ints, sensor: Ints, bins: Ints) -> Factorised:
        """Join readings, in order, with those before them; probes are positions in this batch."""
        ...


class _Contestant:
    """The ring, room for answers, and what grows with both."""

    def __init__(self, streams: int, window: int | Sequence[int] | Ints) -> None:
        """``window`` in the unit of times: of all streams, or one for each."""
        self.streams = streams
        self.window = np.ascontiguousarray(np.broadcast_to(np.asarray(window, np.int64), streams))
        self._ring = _ring(1024)
        self._out = _out(1024)
        self._found = np.empty(streams, np.int32)

    def push(self, time: Ints, sensor: Ints, bins: Ints) -> Factorised:
        """Join readings, in order, with those before them; probes are positions in this batch."""
        self._room(len(time))
        self._out.counts[:] = 0
        at = 0
        while (at := self._run(time, sensor, bins, at)) < len(time):
            self._out = _grown(self._out)
        probes, groups, times = self._out.counts
        first, begin = self._out.first[: probes + 1].copy(), self._out.begin[: groups + 1].copy()
        first[-1], begin[-1] = groups, times
        probe, sensors = self._out.probe[:probes].copy(), self._out.sensor[:groups].copy()
        return Factorised(probe, first, sensors, begin, self._out.time[:times].copy())

    def _run(self, time: Ints, sensor: Ints, bins: Ints, begin: int) -> int:
        raise NotImplementedError

    def _room(self, more: int) -> None:
        """A ring that takes so many more."""
        tail, head = self._ring.counts[:2]
        if head + more >= 2**31:
            raise ValueError(f"{head + more:,} readings do not fit the 32 bits of a contestant's pointers")
        if head - tail + more <= len(self._ring.time):
            return
        ring, numbers = _ring(2 * (head - tail + more)), np.arange(tail, head)
        ring.counts[:] = self._ring.counts
        for name in ("time", "bin", "sensor", "before"):
            new, old = getattr(ring, name), getattr(self._ring, name)
            new[numbers & (len(new) - 1)] = old[numbers & (len(old) - 1)]
        self._ring = ring


class MJoin(_Contestant):
    """A hash table a stream; a reading probes all others."""

    def __init__(self, streams: int, window: int | Sequence[int] | Ints, buckets: int = BUCKETS) -> None:
        super().__init__(streams, window)
        self._heads = np.full((streams, buckets), -1, np.int32)

    def _run(self, time: Ints, sensor: Ints, bins: Ints, begin: int) -> int:
        return int(mjoin(self._ring, self._heads, self.window, time, sensor, bins, begin, self._out, self._found))


class DistributedMJoin(_Contestant):
    """An `MJoin` a cluster: its own first, the others in descending average selectivity."""

    def __init__(self, streams: int, window: int | Sequence[int] | Ints, cluster: Ints, buckets: int = BUCKETS) -> None:
        """``cluster`` (streams,) numbers the cluster of each stream, from 0."""
        super().__init__(streams, window)
        self._heads = np.full((streams, buckets), -1, np.int32)
        self._cluster = np.asarray(cluster, np.int64)
        self._members = np.argsort(self._cluster, kind="stable")
        self._bounds = np.concatenate([[0], np.cumsum(np.bincount(self._cluster))])
        self._met = np.zeros(len(self._bounds) - 1, np.int64)

    def _run(self, time: Ints, sensor: Ints, bins: Ints, begin: int) -> int:
        tables = self._heads, self.window, self._cluster, self._members, self._bounds, self._met
        return int(clusters_mjoin(self._ring, *tables, time, sensor, bins, begin, self._out, self._found))


class FlinkMultiJoin(_Contestant):
    """State by join key; all inputs of the key are iterated."""

    def __init__(self, streams: int, window: int | Sequence[int] | Ints) -> None:
        super().__init__(streams, window)
        self._slots = Slots()
        self._state = np.full((64, streams), -1, np.int32)

    def _run(self, time: Ints, sensor: Ints, bins: Ints, begin: int) -> int:
        slots = self._slots.of(bins)
        if self._slots.many > len(self._state):
            more = np.full((2 * self._slots.many - len(self._state), self.streams), -1, np.int32)
            self._state = np.concatenate([self._state, more])
        return int(flink(self._ring, self._state, self.window, time, sensor, slots, begin, self._out, self._found))


class JoinTree(_Contestant):
    """Binary symmetric hash outer joins; ``shape`` is "balanced" or "left-deep"; at most ``bins`` different bins."""

    def __init__(
        self, streams: int, window: int | Sequence[int] | Ints, bins: int, shape: str = "balanced", most: int = 2**30
    ) -> None:
        super().__init__(streams, window)
        self._nodes, self._parent = _left_deep(streams) if shape == "left-deep" else _balanced(streams)
        widths = np.where(self._nodes[:, 2] >= 0, self._nodes[:, 1] - self._nodes[:, 0], 0) * bins
        if widths.sum() > most:
            raise ValueError(
                f"A {shape} tree over {streams} streams and {bins} bins keeps {widths.sum():,} columns, more than "
                f"{most:,}. Take fewer streams, or a balanced tree."
            )
        self._nodes[:, 3] = np.cumsum(widths) - widths
        self._rows = np.full(widths.sum(), -1, np.int32)
        self._bins, self._slots = bins, Slots()

    def _run(self, time: Ints, sensor: Ints, bins: Ints, begin: int) -> int:
        slots = self._slots.of(bins)
        if self._slots.many > self._bins:
            raise ValueError(f"The tree was made for {self._bins} bins, and there are {self._slots.many}")
        tables = self._nodes, self._parent, self._rows, self.window
        return int(join_tree(self._ring, *tables, time, sensor, slots, begin, self._out, self._found))


class Slots:
    """Bins as numbers from 0, in order of appearance: one look-up for all tables of a contestant."""

    def __init__(self) -> None:
        self.many = 0
        self._table = np.full((1024, 2), -1, np.int64)

    def of(self, bins: Ints) -> Ints:
        """The slot of each bin, new ones for those that have none."""
        distinct = len(np.unique(bins)) if 2 * (self.many + len(bins)) > len(self._table) else 0
        if 2 * (self.many + distinct) > len(self._table):
            old = self._table[self._table[:, 1] >= 0]
            old = old[np.argsort(old[:, 1])]
            self._table = np.full((1 << int(4 * (self.many + distinct)).bit_length(), 2), -1, np.int64)
            number(self._table, old[:, 0].copy(), 0, np.empty(len(old), np.int64))
        slots = np.empty(len(bins), np.int64)
        self.many = int(number(self._table, bins, self.many, slots))
        return slots


def _ring(least: int) -> Ring:
    n = 1 << max(int(least) - 1, 1).bit_length()
    return Ring(
        np.zeros(2, np.int64),
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.empty(n, np.int32),
        np.full(n, -1, np.int32),
    )


def _out(n: int) -> Out:
    return Out(np.zeros(3, np.int64), *(np.empty(n, np.int64) for _ in range(5)))


def _grown(out: Out) -> Out:
    """Twice the room, with what is there."""
    new = _out(2 * len(out.time))
    for field, former in zip(new, out, strict=True):
        field[: len(former)] = former
    return new


def _balanced(streams: int) -> tuple[Ints, Ints]:
    """The nodes of `join_tree`, leaves first, and their parents: neighbours joined level by level."""
    nodes, parents = [[s, s + 1, -1, 0] for s in range(streams)], [-1] * streams
    level = list(range(streams))
    while len(level) > 1:
        above = [_join(nodes, parents, level[k], level[k + 1]) for k in range(0, len(level) - 1, 2)]
        level = above + level[len(level) - len(level) % 2 :]
    return np.array(nodes, np.int64), np.array(parents, np.int64)


def _left_deep(streams: int) -> tuple[Ints, Ints]:
    nodes, parents = [[s, s + 1, -1, 0] for s in range(streams)], [-1] * streams
    node = 0
    for leaf in range(1, streams):
        node = _join(nodes, parents, node, leaf)
    return np.array(nodes, np.int64), np.array(parents, np.int64)


def _join(nodes: list[list[int]], parents: list[int], left: int, right: int) -> int:
    """Append the join of two nodes; its number."""
    nodes[left][2], nodes[right][2] = right, left
    parents[left] = parents[right] = len(nodes)
    nodes.append([nodes[left][0], nodes[right][1], -1, 0])
    parents.append(-1)
    return len(nodes) - 1
