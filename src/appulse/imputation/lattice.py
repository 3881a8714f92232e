"""The imputation lattice of an attribute: its rules, combined; and the order in which they are tried."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from appulse.errors import BadArgument
from appulse.imputation.dependencies import within
from appulse.imputation.repository import Constraints, Index
from appulse.imputation.samples import thinned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.imputation.dependencies import DifferentialDependency
    from appulse.imputation.repository import Repository
    from appulse.kernels.arrays import Floats, Ints

#: Rules that can be combined: 2^n - 1 nodes.
MOST_RULES = 10
_SAMPLE = 256  # rows that show how many matches to expect
_DIMENSION_ROWS = 20_000
_MIX = np.uint64(0x9E3779B97F4A7C15)


class Lattice:
    """All combinations of some rules, as constraints over one index, in offline order.

    ``dependents`` are filled together, from the same repository rows; ``numbers`` are what the rules are known by. A
    combined rule reads the union of what its rules read, and of tolerances takes the least. Combinations of more rules
    come first; among those of as many, in order of the matches to expect: from 1 on upward, then those below 1
    downward (Ren et al. 2019, section 3). ``known`` is that of the same lattice, made before.
    """

    @np.errstate(over="ignore", invalid="ignore")  # a range may be beyond a double
    def __init__(
        self,
        repository: Repository,
        rules: Sequence[DifferentialDependency],
        numbers: Sequence[int],
        dependents: Sequence[str],
        known: tuple[Index, Floats, str] | None = None,
    ) -> None:
        if len(rules) > MOST_RULES:
            raise BadArgument(
                f"{len(rules)} rules fill {', '.join(dependents)} together, which makes {2 ** len(rules) - 1:,} "
                f"combinations; at most {MOST_RULES} rules can be combined. Keep the tightest."
            )
        self.rules, self.dependents = tuple(rules), tuple(dependents)
        self._numbers = tuple(numbers)
        self._marginals: dict[int, tuple[Floats, Floats]] = {}
        axes = list(dict.fromkeys(name for rule in rules for name in rule.reads))
        combined = [members for size in range(len(rules), 0, -1) for members in combinations(range(len(rules)), size)]
        drafts = self._constraints(axes, combined)
        if known is None:
            least = [float(drafts.limits[drafts.used[:, a], a].min(initial=np.inf)) for a in range(len(axes))]
            ranges = [float(np.ptp(repository[axis])) for axis in axes]
            scale = [of if np.isfinite(of) else spread for of, spread in zip(least, ranges, strict=True)]
            index = Index(repository, axes, dependents, scale)
            known = index, *expected_matches(repository, index, drafts)
        self.index, self.expected, self.method = known
        #: What took time to find out: the index, and what to expect of each combination before they are put in order.
        self.known = known
        order = sorted(range(len(combined)), key=lambda v: (-len(combined[v]), *_rank(float(self.expected[v])), v))
        # A box met before has had no match, or the object would not have come here.
        first: dict[bytes, int] = {}
        for v in order:
            first.setdefault(drafts.box(v), v)
        order = list(first.values())
        self.combined = [combined[v] for v in order]
        self.expected = self.expected[order]
        self.constraints = self._constraints(axes, self.combined)
        #: Of each node, a bit for each of its rules.
        self.ways = np.array([sum(1 << self._numbers[i] for i in members) for members in self.combined], np.int64)

    @property
    def axes(self) -> tuple[str, ...]:
        """The attributes that rules read, as the index has them."""
        return self.index.axes

    def usable(self, observed: frozenset[str]) -> Ints:
        """The nodes that read only observed attributes, in offline order."""
        known = np.array([axis in observed for axis in self.axes], bool)
        return np.flatnonzero(~(self.constraints.used & ~known).any(axis=1))

    def marginal(self, most: int) -> tuple[Floats, Floats]:
        """The dependents' values over the whole repository, with their shares: all, or ``most`` evenly spaced rows."""
        if most not in self._marginals:
            self._marginals[most] = thinned(self.index.values, self.index.counts, most)
        return self._marginals[most]

    def _constraints(self, axes: Sequence[str], combined: Sequence[tuple[int, ...]]) -> Constraints:
        found = Constraints(len(combined), axes)
        for v, members in enumerate(combined):
            for i in members:
                rule = self.rules[i]
                found.add(v, {name: within(of) for name, of in rule.determinants}, dict(rule.where))
        return found


def _rank(expected: float) -> tuple[int, float]:
    return (0, expected) if expected >= 1.0 else (1, -expected)


def expected_matches(repository: Repository, index: Index, nodes: Constraints) -> tuple[Floats, str]:
    """How many other rows a row of the repository matches, under each node; and which estimate is used.

    That is ``"count"``, the mean over a sample of rows, or ``"dimension"``, by correlation dimension: whichever tells
    the matches of other rows better, by the mean error of the logarithm. Of up to 512 rows all are counted.
    """
    n = len(repository)
    if len(nodes) == 0:
        return np.empty(0), "count"
    rows = repository.matrix(index.axes).T
    whole = n <= 2 * _SAMPLE
    spaced = np.arange(n) if whole else (np.arange(2 * _SAMPLE) * n) // (2 * _SAMPLE)
    sampled, held_out = (spaced, spaced) if whole else (spaced[::2], spaced[1::2])
    counts, truth = (_mean_matches(index, rows, sample, nodes) for sample in (sampled, held_out))
    model = by_dimension(rows, nodes)
    errors = [float(np.abs(np.log((guess + 1.0) / (truth + 1.0))).mean()) for guess in (counts, model)]
    return (counts, "count") if errors[0] <= errors[1] else (model, "dimension")


def _mean_matches(index: Index, rows: Floats, sample: Ints, nodes: Constraints) -> Floats:
    """Matches of a row other than itself, under each node; rows outside the node's ranges have none."""
    known: dict[bytes, float] = {}
    for v in range(len(nodes)):
        if nodes.box(v) not in known:
            found = index.count(rows[sample], nodes, v)
            known[nodes.box(v)] = float(np.maximum(found - 1, 0).sum()) / len(sample)
    return np.array([known[nodes.box(v)] for v in range(len(nodes))])


def by_dimension(rows: Floats, nodes: Constraints) -> Floats:
    """Expected matches under each node by the power law of neighbour counts: (N - 1) (product of 2 h)^(D2 / E).

    ``rows`` is (n, axes). Sides are shares of the axis' range; N counts the rows inside the node's ranges (Belussi &
    Faloutsos 1995; Ren et al. 2019, appendix B.1, re-derived).
    """
    found, known = np.empty(len(nodes)), Dimensions(rows)
    for v in range(len(nodes)):
        inside = np.ones(len(rows), bool)
        for axis in np.flatnonzero(nodes.used[v]):
            inside &= (rows[:, axis] >= nodes.ranges[v, axis, 0]) & (rows[:, axis] <= nodes.ranges[v, axis, 1])
        axes = np.flatnonzero(np.isfinite(nodes.limits[v]))
        share = float(inside.mean())
        volume = float(np.prod(np.minimum(1.0, 2.0 * nodes.limits[v, axes] / known.spread[axes])))
        found[v] = share * max(0.0, share * len(rows) - 1.0) * volume ** (known.of(tuple(axes.tolist())) / len(axes))
    return found


@dataclass
class Dimensions:
    """Correlation dimensions of subsets of axes, each found once."""

    rows: Floats

    def __post_init__(self) -> None:
        self._known: dict[tuple[int, ...], float] = {}

    @cached_property
    def spread(self) -> Floats:
        """The range of each axis, at least a little."""
        spread: Floats = np.maximum(np.ptp(self.rows, axis=0), 1e-300)
        return spread

    def of(self, axes: tuple[int, ...]) -> float:
        """The correlation dimension of the rows along these axes."""
        if axes not in self._known:
            sample = self.rows[:: max(1, len(self.rows) // _DIMENSION_ROWS), list(axes)]
            self._known[axes] = correlation_dimension((sample - sample.min(axis=0)) / self.spread[list(axes)])
        return self._known[axes]


def correlation_dimension(points: Floats) -> float:
    """D2 of points (n, axes) in [0, 1]: the slope of log S2 against log r, S2 the share of pairs in one cell.

    Over the cells of side 1/2 to 1/256 that hold two points or more on the average.
    """
    n, axes = points.shape
    if n < 2:
        return float(axes)
    sides, sums = [], []
    for k in range(1, 9):
        cells = np.minimum((points * (1 << k)).astype(np.int64), (1 << k) - 1)
        # Hashed: cells of many axes do not fit one number.
        key = (cells.astype(np.uint64) * (_MIX ** np.arange(1, 2 * axes, 2, dtype=np.uint64))).sum(axis=1)
        occupied = np.unique(key, return_counts=True)[1]
        if k > 2 and n < 2 * len(occupied):
            break
        sides.append(-k * np.log(2.0))
        sums.append(np.log(max(float((occupied * (occupied - 1.0)).sum()) / (n * (n - 1.0)), 1e-300)))
    slope = float(np.polyfit(sides, sums, 1)[0]) if len(sides) > 1 else float(axes)
    return min(float(axes), max(0.0, slope))
