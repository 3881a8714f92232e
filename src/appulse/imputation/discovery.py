"""Differential dependencies found in a repository: which attributes determine another, how close they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from appulse.errors import BadArgument
from appulse.imputation.conditions import LEAST_PAIRS, conditions
from appulse.imputation.dependencies import DifferentialDependency, within
from appulse.imputation.lattice import MOST_RULES
from appulse.imputation.repository import Constraints, Index, Repository
from appulse.imputation.scores import crps
from appulse.imputation.verification import verified

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from appulse.kernels.arrays import Floats

#: Tolerances that are tried, in deviations of an attribute, wide ones first.
STEPS = tuple(2.0**-k for k in range(12))
_MOST_DETERMINANTS = 5
_WIDTHS = 4  # in which determinants are taken together
_TESTED = 256  # rows that choose
_TRAINED = 20_000  # rows they choose from
_PAIRS = 1_000_000  # pairs of close rows that tell a tolerance
_GAIN = 0.98


@dataclass(frozen=True)
class Discovery:
    """A rule with what speaks for it.

    ``support`` is the share of pairs of rows that are close, ``pairs`` how many were looked at, ``confidence`` of those
    the share that agrees; ``tightness`` the tolerance against that of all pairs, close or not, at the same confidence:
    the smaller the better.
    """

    rule: DifferentialDependency
    support: float
    confidence: float
    tightness: float
    pairs: int


@np.errstate(over="ignore", invalid="ignore")
def discovered(
    repository: Any,
    columns: Sequence[str] | None = None,
    confidence: float = 0.95,
    progress: Callable[[str], None] | None = None,
    *,
    conditional: bool = False,
) -> list[Discovery]:
    """Rules for each of the columns by the others, with what speaks for them.

    For each attribute the determinants, and their tolerances, are those by which rows held out are filled best (least
    mean CRPS), found by steps from the other attributes that determine most. All of them together make rules of several
    widths, so that a row in the midst of others is filled from nearer ones than a row apart; and each alone makes one,
    for rows that lack the others. The tolerance of a rule is the least that holds for the share
    ``confidence`` of close pairs: of all of them, or of a sample and then a little wider where there are many.
    ``conditional`` adds rules with a range, where they hold much more tightly (`conditions`), as far as rules can be
    combined. Rules of which fewer than `LEAST_PAIRS` (ordered) pairs of close rows speak are left out. ``progress`` is
    called for each attribute.
    """
    known = repository if isinstance(repository, Repository) else Repository(repository, columns)
    names = tuple(known.names if columns is None else columns)
    if len(names) < 2:
        raise BadArgument("Dependencies need at least two columns of numbers, one to determine the other.")
    found = []
    for dependent in names:
        others = tuple(name for name in names if name != dependent and np.ptp(known[name]) > 0.0)
        drafts = [described(known, close, dependent, confidence) for close in determinants(known, dependent, others)]
        rules = [one for one in drafts if one.pairs >= LEAST_PAIRS]
        if conditional:
            rules += _conditional(known, rules, confidence)
        found += rules
        if progress is not None:
            progress("\n".join(str(one.rule) for one in rules) or f"nothing determines {dependent}")
    return found


def determinants(repository: Repository, dependent: str, others: Sequence[str]) -> list[dict[str, float]]:
    """What rules should go by, as attributes with tolerances: all together in several widths, then each alone."""
    if len(repository) < 8 or not others:
        return []
    search = _Search(repository, dependent, others)
    single = {name: min((search.cost([{name: step}]), step) for step in STEPS) for name in others}
    telling = sorted(others, key=lambda name: single[name][0])[:_MOST_DETERMINANTS]
    alone = {name: single[name][1] for name in telling}
    starts = [dict.fromkeys(telling, step) for step in STEPS] + [{telling[0]: alone[telling[0]]}]
    best, chosen = _improved(search, min(starts, key=lambda steps: search.cost([steps])))
    if best >= _GAIN * search.cost([]):
        chosen = {}
    if not chosen:
        return []
    ladders = [
        [_scaled(chosen, low * factor**k) for k in range(_WIDTHS)]
        for low in (0.125, 0.25, 0.5, 1.0)
        for factor in (2.0, 4.0, 8.0)
    ]
    rules = min(ladders, key=search.cost)
    if len(chosen) > 1:
        rules = rules + [{name: max(alone[name], rules[0][name])} for name in chosen]
    return [{name: _rounded(step * search.unit[name]) for name, step in steps.items()} for steps in rules]


def _conditional(repository: Repository, rules: Sequence[Discovery], confidence: float) -> list[Discovery]:
    """The tightest rules with a range: of each set of determinants those of the rule that comes first."""
    firsts: dict[frozenset[str], DifferentialDependency] = {}
    for one in rules:
        firsts.setdefault(frozenset(one.rule.reads), one.rule)
    drafts = [
        (found.tolerance / rule.tolerance, -found.pairs, str(rule), found, rule)
        for rule in firsts.values()
        for found in conditions(repository, dict(rule.determinants), rule.dependent, confidence, rule.tolerance)
    ]
    chosen = sorted(drafts, key=lambda draft: draft[:3])[: max(0, MOST_RULES - len(rules))]
    return [
        described(
            repository, dict(rule.determinants), rule.dependent, confidence, {found.name: (found.low, found.high)}
        )
        for *_, found, rule in chosen
    ]


def _improved(search: _Search, steps: dict[str, float]) -> tuple[float, dict[str, float]]:
    """Tolerances made wider and narrower, and determinants left out, one at a time, as long as it helps."""
    best = search.cost([steps])
    while True:
        trials = [
            {**steps, name: steps[name] * factor} if factor else {one: of for one, of in steps.items() if one != name}
            for name in steps
            for factor in (4.0, 2.0, 0.5, 0.25, 0.0)
            if factor or len(steps) > 1
        ]
        costs = [search.cost([trial]) for trial in trials]
        at = int(np.argmin(costs))
        if costs[at] >= best * (1.0 - 1e-3):
            return best, steps
        best, steps = costs[at], trials[at]


def _scaled(steps: dict[str, float], factor: float) -> dict[str, float]:
    return {name: step * factor for name, step in steps.items()}


class _Search:
    """Rows to choose from, and rows held out to choose by."""

    def __init__(self, repository: Repository, dependent: str, others: Sequence[str]) -> None:
        n = len(repository)
        rows = np.arange(n) if n <= _TRAINED + _TESTED else (np.arange(_TRAINED + _TESTED) * n) // (_TRAINED + _TESTED)
        every = max(2, len(rows) // _TESTED)
        out = np.arange(len(rows)) % every == every // 2
        names = [*others, dependent]
        matrix = repository.matrix(names)
        trained = pa.table(dict(zip(names, matrix[:, rows[~out]], strict=True)))
        self.unit = {name: float(repository[name].std()) for name in others}
        self.others = tuple(others)
        self.index = Index(Repository(trained), others, (dependent,), [self.unit[name] / 8 for name in others])
        self.asked = np.ascontiguousarray(matrix[:-1, rows[out]].T)
        self.truth = matrix[-1, rows[out]]
        shares = self.index.counts / self.index.counts.sum()
        every_one = np.tile(self.index.values[:, 0], len(self.truth))
        first = np.arange(len(self.truth) + 1) * len(shares)
        many = len(shares) * len(self.truth) > 1 << 24
        self.marginal = (
            np.abs(self.truth - np.median(matrix[-1]))
            if many
            else crps(every_one, np.tile(shares, len(self.truth)), first, self.truth)
        )

    def cost(self, rules: Sequence[dict[str, float]]) -> float:
        """The mean CRPS of rows held out, each filled by the first of the rules that matches.

        Tolerances are in deviations.
        """
        if not rules:
            return float(self.marginal.mean())
        nodes = Constraints(len(rules), self.others)
        for v, steps in enumerate(rules):
            nodes.add(v, {name: within(step * self.unit[name]) for name, step in steps.items()}, {})
        place, first, code, times = self.index.fill(self.asked, np.arange(len(rules)), nodes)
        some = place >= 0
        cost = self.marginal.copy()
        if some.any():
            kept = np.concatenate([[0], np.cumsum(np.diff(first)[some])])
            shares = times / np.repeat(np.add.reduceat(times, kept[:-1]), np.diff(kept))
            cost[some] = crps(self.index.values[code, 0], shares, kept, self.truth[some])
        return float(cost.mean())


def described(
    repository: Repository,
    close: dict[str, float],
    dependent: str,
    confidence: float,
    where: dict[str, tuple[float, float]] | None = None,
) -> Discovery:
    """The rule with the least tolerance that holds with a confidence, and what speaks for it."""
    tolerance = _tolerance(repository, close, dependent, confidence, where or {})
    while True:
        rule = DifferentialDependency(close, dependent, tolerance, confidence, where)
        found = verified(repository, rule)
        if found.holds:
            break
        tolerance *= 1.02  # the sample that told it was a lucky one
    n = len(repository)
    looked_at = n if found.sampled is None else found.sampled
    pairs = looked_at * (n - 1)
    every = _all_pairs(repository[dependent], confidence)
    support = found.close / pairs if pairs else 0.0
    return Discovery(rule, support, found.confidence, tolerance / every if every else 1.0, found.close)


def _tolerance(
    repository: Repository,
    close: dict[str, float],
    dependent: str,
    confidence: float,
    where: dict[str, tuple[float, float]],
) -> float:
    """The least difference that the share ``confidence`` of close pairs does not exceed."""
    n = len(repository)
    axes = tuple(dict.fromkeys([*close, *where]))
    node = Constraints(1, axes)
    node.add(0, {name: within(width) for name, width in close.items()}, where)
    index = Index(repository, axes, (dependent,), [close.get(axis, float(np.ptp(repository[axis]))) for axis in axes])
    rows = repository.matrix(axes).T
    few = (np.arange(min(n, 256)) * n) // min(n, 256)
    pairs = float(index.count(rows[few], node, 0).mean()) * n
    sample = (
        np.arange(n)
        if pairs <= _PAIRS
        else (np.arange(max(256, int(n * _PAIRS / pairs))) * n) // max(256, int(n * _PAIRS / pairs))
    )
    _, first, code, times = index.fill(rows[sample], np.zeros(1, np.int64), node)
    owner = np.repeat(np.arange(len(sample)), np.diff(first))
    own = repository[dependent][sample][owner]
    differences = np.abs(index.values[code, 0] - own)
    times = times - (differences == 0.0)  # no row is a pair with itself
    order = np.argsort(differences, kind="stable")
    reached = np.cumsum(times[order])
    if len(reached) == 0 or reached[-1] == 0:
        return 0.0
    at = int(np.searchsorted(reached, confidence * reached[-1] * (1.0 - 1e-12), side="left"))
    return float(differences[order[at]])


def _all_pairs(values: Floats, confidence: float) -> float:
    """The difference that the share ``confidence`` of all pairs does not exceed, from a sample of them."""
    chance = np.random.default_rng(0)
    a, b = chance.integers(0, len(values), (2, 200_000))
    return float(np.quantile(np.abs(values[a] - values[b])[a != b], confidence)) if len(values) > 1 else 0.0


def _rounded(width: float) -> float:
    """Three digits: what people read."""
    return float(f"{width:.3g}")
