"""Whether rules hold on a repository."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from appulse.errors import BadArgument
from appulse.imputation.dependencies import within
from appulse.imputation.repository import Constraints, Index

if TYPE_CHECKING:
    from appulse.imputation.dependencies import DifferentialDependency
    from appulse.imputation.repository import Repository
    from appulse.kernels.arrays import Ints

#: All pairs of close rows are looked at up to so many.
MOST_PAIRS = 100_000_000
_FIRST = 1024  # rows that show how many pairs there are


@dataclass(frozen=True)
class Verification:
    """How a rule fared: ordered pairs of close rows, and how many of them agree.

    ``sampled`` is the number of rows whose pairs were looked at where there are more than `MOST_PAIRS`, else None:
    every pair was.
    """

    rule: DifferentialDependency
    close: int
    good: int
    sampled: int | None
    against: tuple[int, int] | None  # two rows of the repository

    @property
    def confidence(self) -> float:
        """The share of close pairs that agree; 1 where there are none."""
        return self.good / self.close if self.close else 1.0

    @property
    def holds(self) -> bool:
        """Whether that is what the rule says."""
        return self.good >= (self.rule.confidence - 1e-9) * self.close


def verified(
    repository: Repository, rule: DifferentialDependency, most: int = MOST_PAIRS, index: Index | None = None
) -> Verification:
    """Count the close pairs, and those that agree: all of them up to ``most``, else those of evenly spaced rows.

    ``index`` is one over what the rule reads, if there is one, with its dependent alone.
    """
    if index is None:
        scale = [dict(rule.determinants).get(name, float(np.ptp(repository[name]))) for name in rule.reads]
        index = Index(repository, rule.reads, (rule.dependent,), scale)
    nodes = Constraints(1, index.axes)
    nodes.add(0, {name: within(of) for name, of in rule.determinants}, dict(rule.where))
    n = len(repository)
    limit = within(rule.tolerance)
    first = index.agree(_spaced(n, _FIRST), nodes, 0, 0, limit)
    pairs = float(np.mean(first[0])) * n
    rows = n if pairs <= most else max(_FIRST, int(n * most / pairs))
    places = _spaced(n, rows)
    close, good, other = first if rows == min(_FIRST, n) else index.agree(places, nodes, 0, 0, limit)
    at = np.flatnonzero(other >= 0)
    against = (int(index.order[places[at[0]]]), int(index.order[other[at[0]]])) if len(at) else None
    inside = close > 0  # rows outside the rule's ranges are in no pair, not even with themselves
    sampled = None if rows >= n else rows
    return Verification(rule, int((close - inside).sum()), int((good - inside).sum()), sampled, against)


def check(repository: Repository, rule: DifferentialDependency, index: Index | None = None) -> Verification:
    """As `verified`; raises `BadArgument` with two rows against the rule where it does not hold."""
    found = verified(repository, rule, index=index)
    if found.holds or found.against is None:
        return found
    names = (*rule.reads, rule.dependent)
    rows = [f"row {i}: {', '.join(f'{name} {repository[name][i]:g}' for name in names)}" for i in sorted(found.against)]
    how = "" if found.sampled is None else f" (of the pairs of {found.sampled:,} rows)"
    raise BadArgument(
        f"The rule {rule} does not hold on the repository: {found.good:,} of {found.close:,} pairs of close rows agree"
        f"{how}, which is {found.confidence:.4g}, and its confidence is {rule.confidence:g}. Against it, {rows[0]}; "
        f"{rows[1]}. Lower confidence=, widen the tolerance, or leave the rule out."
    )


def _spaced(n: int, most: int) -> Ints:
    """Places in leaf order, evenly spaced: rows from all over."""
    return np.arange(n) if n <= most else (np.arange(most) * n) // most
