"""Join-iDS of Ren et al. 2019 as printed (Algorithms 1 and 2), and DD+join, compiled with the same care as ours.

Each tick brings one object of every stream. Expired objects leave the epsilon-grid; then each new one is looked up in
it, imputed as far as it has to be, joined, and put into it. An object is known in one of three ways: by its observed
attributes alone, which is a box over all that the repository has (`OBSERVED`); by the nodes of the imputation indexes
that its rule touches, which is a box of histogram buckets (`BOXED`, the paper's "not completely imputed"); or by its
instances (`FILLED`). It goes from one to the next when something comes near enough. Instances are the product of what
single attributes may be (Definition 2.4), and are multiplied out only to be summed (Eq. 3).

Every step can be switched off (`Switches`); what is found never changes. Join-iDS without any, its indexes scans of the
repository, is DD+join: impute first, then join by nested loops.

Readings of ours: which sub-boxes (appendix C is lost) is told by `nested`; pairs leave the join set with their older
object; sums are not ended early, as the paper does not say so.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.ids_grid import grid_of
from benchmarks.ids_index import index_of, room_for
from benchmarks.ids_kernels import ANSWERS, COUNTS, load, rebuilt, run
from benchmarks.ids_objects import Objects

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from appulse.imputation.imputer import DependencyImputer
    from benchmarks.ids_index import Index

    Matrix = NDArray[np.float64]
    Pair = tuple[int, int, int, int]


@dataclass(frozen=True)
class Question:
    """Pairs within epsilon with probability at least alpha, of the newest ``w`` objects of each stream.

    Comparisons have the tolerances of ours.
    """

    epsilon: float
    alpha: float
    w: int

    def __post_init__(self) -> None:
        if self.alpha < 1e-6:
            raise ValueError(f"alpha is {self.alpha}: pairs that cannot be close would be answers. Give 1e-6 or more.")

    @property
    def limit(self) -> float:
        return self.epsilon + 1e-9 * max(1.0, self.epsilon)


@dataclass(frozen=True)
class Switches:
    """The steps of Algorithm 2, all of them on."""

    grid: bool = True  # objects are found by cells; off: all of the other windows
    common: bool = True  # the distance over commonly observed attributes, before any imputation
    histograms: bool = True  # boxes of index nodes before instances
    objects: bool = True  # Lemma 4.1 for two objects
    samples: bool = True  # Lemma 4.2 for two objects
    cells: bool = True  # Lemma 4.2 for an object and a cell
    lazy: bool = True  # impute what something may match; off: on arrival
    clusters: bool = True  # clusters by the cost of appendix B.2; off: cut along the axes by turns

    @staticmethod
    def none() -> Switches:
        """All of them off."""
        return Switches(**dict.fromkeys((field.name for field in fields(Switches)), False))


@dataclass
class Found:
    """Pairs in order of discovery: stream and number of one, stream and number of the other; their probabilities."""

    pairs: NDArray[np.int64]
    probability: Matrix
    counts: dict[str, int]

    @property
    def told(self) -> dict[Pair, float]:
        """Probability by pair."""
        keys = [(int(a), int(i), int(b), int(j)) for a, i, b, j in self.pairs]
        return dict(zip(keys, self.probability.tolist(), strict=True))


class JoinIDS:
    """The join of streams (n, d) each, NaN where something is missing.

    ``scan`` has the repository scanned; an ``index`` that was made before is taken as it is.
    """

    def __init__(
        self,
        streams: Sequence[Matrix],
        imputer: DependencyImputer,
        question: Question,
        switches: Switches | None = None,
        *,
        buckets: int = 32,
        scan: bool = False,
        index: Index | None = None,
    ) -> None:
        self.streams, self.question = np.ascontiguousarray(np.stack(streams)), question
        self.switches = switches = switches or Switches()
        names, by_cost = imputer.repository.names, switches.clusters
        self.index = index or index_of(imputer, names, buckets=buckets, by_cost=by_cost, scan=scan)
        kinds, _, d = self.streams.shape
        # A cell is epsilon wide, but for an epsilon of next to nothing.
        spread = np.ptp(self.index.columns[0], axis=1)
        far = float(np.nanmax(np.abs(self.streams), initial=1.0))
        self.side = max(question.epsilon, float(spread.max()) / 64.0, 1e-9 * far)
        holes = int(np.isnan(self.streams).sum(axis=2).max(initial=0))
        room = room_for(self.index, self.streams.reshape(-1, d)) if holes else (1, 1)
        self.objects = Objects.of(kinds * question.w, d, holes, *room)
        self.cells = int(np.prod(np.sort(spread / self.side + 3.0)[d - holes :]))
        self.grid = grid_of(kinds * question.w, kinds, d, 4 * kinds * (question.w + 8))

    def run(self, first: int, last: int) -> Found:
        """The ticks from ``first`` to ``last`` (exclusive): what enters the answer at them, and what was counted."""
        q, counts = self.question, np.zeros(len(COUNTS), np.int64)
        kinds = len(self.streams)
        most = max(1, kinds * (kinds - 1) * q.w)
        pairs, chance = np.empty((4 * most, ANSWERS), np.int64), np.empty(4 * most)
        told: list[NDArray[np.int64]] = []
        chances: list[Matrix] = []
        settings = np.array([getattr(self.switches, field.name) for field in fields(Switches)])
        tick = first
        while tick < last:
            tick, found = run(
                self.streams,
                self.index,
                self.objects,
                self.grid,
                settings,
                (q.limit, q.alpha, self.side),
                self.cells,
                q.w,
                tick,
                last,
                pairs,
                chance,
                counts,
            )
            told.append(pairs[:found].copy())
            chances.append(chance[:found].copy())
            if tick < last and found == 0:
                self._grow()
        told.append(pairs[:0])
        chances.append(chance[:0])
        return Found(np.concatenate(told), np.concatenate(chances), dict(zip(COUNTS, counts.tolist(), strict=True)))

    def fill(self, first: int, last: int) -> None:
        """Put the objects of these ticks in their windows, imputed; nothing is asked, and there is no grid."""
        counts = np.zeros(len(COUNTS), np.int64)
        for tick in range(max(first, last - self.question.w), last):
            load(self.streams, self.index, self.objects, self.question.w, tick, counts)

    def _grow(self) -> None:
        """A grid with room for twice as many entries."""
        slots, (kinds, _, d) = len(self.objects.number), self.streams.shape
        self.grid = grid_of(slots, kinds, d, 2 * len(self.grid.slot))
        rebuilt(self.grid, self.objects, self.question.w, self.side)


def straight(
    streams: Sequence[Matrix], imputer: DependencyImputer, question: Question, index: Index | None = None
) -> JoinIDS:
    """DD+join: each object is imputed by scans on its arrival, and compared with all others by Eq. (3)."""
    return JoinIDS(streams, imputer, question, Switches.none(), scan=True, index=index)
