"""What a join is asked, and how it goes about it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from appulse.model.positions import earth_of
from appulse.model.reach import densest, gaussian_reach
from appulse.model.uncertainty import (
    MOST_DIMENSIONS,
    MOST_IN_CLOSED_FORM,
    Form,
    Model,
    Position,
    dimensions,
    in_closed_form,
    is_round,
    pairs_in_closed_form,
)

if TYPE_CHECKING:
    from appulse.kernels.geodesic import Earth
    from appulse.windows.frames import Rule

#: Bounds that can be switched off; the answers never change.
BOUNDS = frozenset(
    {"reach", "moment", "square", "sample", "accept", "axes", "narrow", "projection", "eviction", "lazy"}
)
METRICS = ("euclidean", "manhattan", "chebyshev")
INDEXES = ("auto", "grid", "dense", "sorted")
# Far above the error of a probability.
_ROUNDED = 1e-9

#: Dimensions by number, and the epsilon of each group of them.
Groups: TypeAlias = tuple[tuple[tuple[int, ...], float], ...]


def tolerated(epsilon: float) -> float:
    """A distance with its tolerance."""
    return epsilon + 1e-9 * max(1.0, epsilon)


@dataclass(frozen=True)
class JoinPlan:
    """What to join and how; nothing of frames or engines.

    ``windows`` are microseconds, one per stream; where ``rule`` is given windows go by rows instead, in groups if
    ``grouped``. ``quantile`` is the mass that reaches exceed. With ``changes`` pairs are reported when they leave, with
    ``values`` the samples that match are, and everything is sampled.
    ``bounds`` and ``index`` change the speed, never the answers. Where probabilities are ``bounded`` a lower and an
    upper bound of them will do. Where there is a ``vertical`` epsilon, ``epsilon`` is the horizontal one, and both have
    to hold. ``how`` says of which streams rows without a partner are answers, too. Where there is a
    ``density`` of unrelated rows, likelihood ratios are answers, too. ``best`` is the number of right rows wanted of
    each left row, the nearest ``by`` distance or probability; 0: all. Where rows are ``assigned`` to each other, pairs
    have a margin. Where ``fewer_than`` is above 0, left rows that have fewer partners than that with probability
    ``certain`` are the answers. Pairs whose likelihood ratio is known and not above ``least_ratio`` are no answers.
    Where rows may be ``withdrawn``, pairs that stand know their rows. Where there are ``margins`` each row
    of a pair adds its own to epsilon. ``groups`` of dimensions have an epsilon each, and all have to hold; distances go
    by the ``metric``. ``dimensions`` is 0 where they are not known. ``audit`` is the share of rows whose pairs are
    computed in full where bounds decided against them.
    """

    streams: tuple[str, ...]
    models: tuple[Model, ...]
    windows: tuple[int, ...]
    epsilon: float
    threshold: float
    quantile: float
    self_join: bool = False
    check_differ: bool = False
    bounds: frozenset[str] = BOUNDS
    index: str = "auto"
    rule: Rule | None = None
    grouped: bool = False
    changes: bool = False
    values: bool = False
    bounded: bool = False
    vertical: float | None = None
    how: str = "inner"
    density: float | None = None
    best: int = 0
    by: str = "distance"
    assigned: bool = False
    least_ratio: float | None = None
    fewer_than: int = 0
    certain: float = 1.0
    withdrawn: bool = False
    margins: bool = False
    metric: str = "euclidean"
    groups: Groups = ()
    dimensions: int = 0
    audit: float = 0.0

    @cached_property
    def followed(self) -> tuple[bool, bool]:
        """Of which streams rows are followed until they leave: left ones, and right ones."""
        return self.held or self.how in ("left", "full", "left_anti"), self.how in ("right", "full")

    @cached_property
    def held(self) -> bool:
        """Whether pairs wait until their left row leaves."""
        return self.best > 0 or self.fewer_than > 0

    @cached_property
    def by_means(self) -> bool:
        """Whether rows are near where their means are, however likely."""
        return self.best > 0 and self.by == "distance" and self.threshold == 0.0

    @cached_property
    def limit(self) -> float:
        """Epsilon with its tolerance: points are close iff d2 <= limit^2. No two that match are farther apart."""
        if self.vertical is not None:
            return math.hypot(tolerated(self.epsilon), tolerated(self.vertical))
        if self.euclidean:
            return tolerated(self.epsilon)
        return math.hypot(*map(tolerated, self.within(self.dimensions or MOST_DIMENSIONS)[1]))

    @cached_property
    def euclidean(self) -> bool:
        """Whether there is one distance, and it is Euclidean, or along the Earth."""
        return self.metric == "euclidean" and not self.groups

    @cached_property
    def plain(self) -> bool:
        """Whether it has one limit, too, for all pairs."""
        return self.euclidean and not self.margins

    def within(self, d: int) -> tuple[list[int], list[float]]:
        """The group of each of ``d`` dimensions, and the epsilon of each group; Chebyshev's metric is one for each."""
        groups = self.groups or ((tuple(range(d)), self.epsilon),)
        if self.metric == "chebyshev":
            groups = tuple(((k,), epsilon) for own, epsilon in groups for k in own)
        group = [0] * d
        for g, (own, _) in enumerate(groups):
            for k in own:
                group[k] = g
        return group, [epsilon for _, epsilon in groups]

    @cached_property
    def closed_form(self) -> bool:
        """Whether every stream is exact, a position, or normal in few dimensions, so that nothing need be sampled."""
        return not self.values and all(map(self.closes, self.models))

    def closes(self, model: Model) -> bool:
        """Whether a pair of rows of such models needs no samples; a sum of differences does in many dimensions."""
        few = self.metric != "manhattan" or (dimensions(model) or 0) <= MOST_IN_CLOSED_FORM
        return few and in_closed_form(model)

    @cached_property
    def earth(self) -> Earth | None:
        """What distances of positions are measured on; None where values are no positions."""
        return earth_of(self.models)

    @cached_property
    def densest(self) -> tuple[float, float, float]:
        """How far beyond the limit the means of an answer may be apart, the largest deviation of its rows, and a reach.

        Rows that reach no farther need not be looked at for either. Infinite where these are not bounded by how dense
        normal errors are: in all directions where they are the same in all, else along one line.
        """
        models = self.models
        flat = all(not isinstance(model, Position) or model.altitude is None for model in models)
        if not (self.closed_form and self.plain and flat) or self.fewer_than or self.limit == math.inf:
            return math.inf, math.inf, math.inf
        known = dimensions(models[0]) or 1 if self.earth is None else 2
        away, deviation = densest(self.threshold - _ROUNDED, known if all(map(is_round, models)) else 1)
        away, deviation = away * self.limit * (1.0 + _ROUNDED), deviation * self.limit * (1.0 + _ROUNDED)
        return away, deviation, min(away, deviation * gaussian_reach(self.threshold))

    @cached_property
    def some_closed_form(self) -> bool:
        """Whether some pairs of uncertain rows need not be sampled."""
        models = self.models
        partners = [models[i if self.self_join else i + 1 :] for i in range(len(models))]
        return not self.values and any(
            self.closes(one) and self.closes(other) and pairs_in_closed_form(one, other)
            for one, others in zip(models, partners, strict=True)
            for other in others
        )

    @cached_property
    def uncertain(self) -> bool:
        """Whether rows are in their windows with a probability."""
        return self.rule is not None and self.rule.uncertain

    @cached_property
    def frame_width(self) -> int:
        """Columns of frames: a floor for each stream, and its newest number where windows are uncertain."""
        return len(self.streams) * (2 if self.uncertain else 1)

    @cached_property
    def least_inside(self) -> float:
        """Rows in an uncertain window with less probability can be in no answer (Dallachiesa et al., Algorithm 2).

        Where pairs are reported when they leave, they leave with their windows, and no earlier.
        """
        return self.threshold if self.uncertain and not self.changes and "eviction" in self.bounds else 0.0

    @cached_property
    def points_only(self) -> bool:
        """Whether every stream is exact, and no more is asked for."""
        return not self.values and all(model.form == Form.POINT for model in self.models)
