"""Nodes in space, the hops between them, and clusters with a head each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra
from scipy.spatial import cKDTree

from appulse.errors import BadArgument

if TYPE_CHECKING:
    from appulse.kernels.arrays import Flags, Floats, Ints


@dataclass(frozen=True)
class Topology:
    """``n`` nodes at ``positions`` (n, 2), whose radio goes as far as ``radio``, in the same unit.

    ``routes`` (n, n) are hops between nodes where they are known; else they follow from distances.
    """

    positions: Floats
    radio: float = 0.1
    routes: Ints | None = None

    def __post_init__(self) -> None:
        if not self.radio > 0:
            raise BadArgument(f"radio={self.radio} is not a range. Give a positive number.")

    def hops(self, a: Ints, b: Ints) -> Ints:
        """Hops from each node of ``a`` to each of ``b``, shape (len(a), len(b)); at least 1 between two nodes."""
        if self.routes is not None:
            return np.asarray(self.routes[np.ix_(a, b)], np.int64)
        apart = np.linalg.norm(self.positions[a][:, None] - self.positions[b][None], axis=-1)
        hops: Ints = np.maximum(np.ceil(apart / self.radio - 1e-9), 1).astype(np.int64)
        hops[np.asarray(a)[:, None] == np.asarray(b)[None]] = 0
        return hops

    @staticmethod
    def by_quality(positions: Floats, quality: Floats, radio: float = 0.1, least: float = 0.1) -> Topology:
        """Hops along the routes of fewest expected transmissions.

        ``quality`` (n, n): the chance that a message of one node reaches another. A link of quality p takes 1 / p
        transmissions; links below ``least`` are not used. Raises `BadArgument` where no route leads to some node.
        """
        n = len(positions)
        usable = np.where(np.eye(n, dtype=bool) | ~(quality >= least), 0.0, quality)
        cost = csr_array(np.divide(1.0, usable, out=np.zeros_like(usable), where=usable > 0))
        distance, before = dijkstra(cost, return_predecessors=True)
        if np.isinf(distance).any():
            a, b = np.argwhere(np.isinf(distance))[0].tolist()
            raise BadArgument(
                f"No route of links of quality {least} or better leads from node {a} to node {b}. Lower `least`."
            )
        hops = np.zeros((n, n), np.int64)
        for a in range(n):  # nearest first: a predecessor is counted before those behind it
            for b in np.argsort(distance[a], kind="stable")[1:]:
                hops[a, b] = hops[a, before[a, b]] + 1
        return Topology(positions, radio, hops)


@dataclass(frozen=True)
class Clusters:
    """Cluster ``of[node]``, from 0, of each node; cluster c has the node ``head[c]`` as its head."""

    topology: Topology
    of: Ints
    head: Ints
    sink: int = 0

    def __len__(self) -> int:
        return len(self.head)

    @cached_property
    def between(self) -> Ints:
        """Hops between heads, shape (clusters, clusters)."""
        return self.topology.hops(self.head, self.head)

    @cached_property
    def to_sink(self) -> Ints:
        """Hops from each head to the sink."""
        return self.topology.hops(self.head, np.array([self.sink]))[:, 0]

    @cached_property
    def tours(self) -> Ints:
        """From each head to all others, each time to the nearest that is left; shape (clusters, clusters - 1)."""
        n = len(self)
        tours = np.zeros((n, n - 1), np.int64)
        for start in range(n):
            left, at = np.ones(n, bool), start
            left[start] = False
            for step in range(n - 1):
                at = int(np.where(left, self.between[at], np.iinfo(np.int64).max).argmin())
                left[at] = False
                tours[start, step] = at
        return tours

    @cached_property
    def rank(self) -> Ints:
        """The place of each node in the order (head, node): that of ties in time."""
        rank = np.empty(len(self.of), np.int64)
        rank[np.lexsort((np.arange(len(self.of)), self.head[self.of]))] = np.arange(len(self.of))
        return rank


def grid_cells(topology: Topology, side: float = 0.1, sink: int = 0) -> Clusters:
    """Clusters by square cells; the head is the node nearest the middle, the lower number of two."""
    cell = np.floor(topology.positions / side).astype(np.int64)
    apart = np.linalg.norm(topology.positions - (cell + 0.5) * side, axis=1)
    head = np.arange(len(cell))
    cells, of = np.unique(cell, axis=0, return_inverse=True)
    for c in range(len(cells)):
        members = np.flatnonzero(of == c)
        head[members] = members[apart[members].argmin()]
    return _clusters(topology, head, sink)


def heed(
    topology: Topology,
    seed: int,
    reach: float = 0.1,
    energy: Floats | None = None,
    chance: float = 0.05,
    least: float = 1e-4,
    sink: int = 0,
) -> Clusters:
    """HEED (Younis and Fahmy 2004): nodes rich in energy volunteer as heads, the others join the cheapest in reach.

    The probability of volunteering is max(``chance`` x energy, ``least``) and doubles each iteration; ``energy`` (n,)
    is the share that is left, drawn by the seed if not given. The cost of a head is the number of its neighbours.
    """
    n = len(topology.positions)
    random = np.random.default_rng([seed, 0x4EED])
    volunteer = np.maximum(chance * (random.uniform(0.5, 1.0, n) if energy is None else energy), least)
    near = _near(topology.positions, reach)
    cost = np.diff(near.indptr)
    tentative, final = np.zeros(n, bool), np.zeros(n, bool)
    while True:
        cheapest = _cheapest(near, cost, tentative)
        done = volunteer >= 1.0
        # A node that hears a cheaper candidate withdraws, and who is left alone may volunteer again.
        final |= done & (cheapest == np.arange(n))
        tentative = final | (cheapest == np.arange(n)) | ((cheapest < 0) & (random.random(n) <= volunteer))
        if done.all():
            break
        volunteer = np.minimum(2.0 * volunteer, 1.0)
    for node in np.lexsort((np.arange(n), -cost)).tolist():  # who hears no head by now is one, one after the other
        final[node] |= not final[near.indices[near.indptr[node] : near.indptr[node + 1]]].any()
    return _clusters(topology, np.where(final, np.arange(n), _cheapest(near, cost, final)), sink)


def _near(positions: Floats, reach: float) -> csr_array:
    """Who hears whom, each node itself too."""
    n = len(positions)
    pairs = cKDTree(positions).query_pairs(reach, output_type="ndarray")
    a = np.concatenate([pairs[:, 0], pairs[:, 1], np.arange(n)])
    b = np.concatenate([pairs[:, 1], pairs[:, 0], np.arange(n)])
    near = csr_array((np.ones(len(a), np.int8), (a, b)), shape=(n, n))
    near.sort_indices()
    return near


def _cheapest(near: csr_array, cost: Ints, heads: Flags) -> Ints:
    """Of each node the cheapest head that it hears, the lower number of two; -1 where there is none."""
    n = len(cost)
    order = np.lexsort((np.arange(n), cost))
    place = np.full(n, n, np.int64)
    place[order] = np.arange(n)
    place[~heads] = n
    best = np.minimum.reduceat(place[near.indices], near.indptr[:-1])
    return np.where(best < n, np.append(order, -1)[best], -1)


def _clusters(topology: Topology, head: Ints, sink: int) -> Clusters:
    """Clusters numbered by their heads."""
    heads, of = np.unique(head, return_inverse=True)
    return Clusters(topology, of, heads, sink)
