"""The slow, obvious twin of imputation: a scan of the repository for every row, weights as exact fractions.

A row of the repository matches where ``o - limit <= r <= o + limit`` in doubles, with the limit of the house,
``tolerance + 1e-9 * max(1, tolerance)``.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import combinations, product
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    import appulse as ap

Row: TypeAlias = "dict[str, float]"
Holed: TypeAlias = "dict[str, float | None]"
Choice: TypeAlias = "tuple[tuple[float, ...], Fraction]"


def limit(tolerance: float) -> float:
    return tolerance + 1e-9 * max(1.0, tolerance)


def matches(rules: Sequence[ap.DifferentialDependency], row: Holed, other: Row) -> bool:
    """Whether a complete row matches an object under all of some rules, whose determinants it has."""
    for rule in rules:
        for name, tolerance in rule.determinants:
            x = row[name]
            assert x is not None
            if not x - limit(tolerance) <= other[name] <= x + limit(tolerance):
                return False
        for name, (low, high) in rule.where:
            x = row[name]
            assert x is not None
            if not (low <= x <= high and low <= other[name] <= high):
                return False
    return True


def lattice(
    repository: Sequence[Row], rules: Sequence[ap.DifferentialDependency]
) -> list[tuple[ap.DifferentialDependency, ...]]:
    """Combined rules in offline order, for repositories small enough for all rows to be counted."""
    assert len(repository) <= 512
    ordered: list[tuple[ap.DifferentialDependency, ...]] = []
    for size in range(len(rules), 0, -1):
        level = []
        for place, members in enumerate(combinations(rules, size)):
            found = [sum(matches(members, dict(row), other) for other in repository) for row in repository]
            expected = Fraction(sum(max(0, own - 1) for own in found), len(repository))
            rank = (0, expected) if expected >= 1 else (1, -expected)
            level.append((rank, place, members))
        ordered += [members for _, _, members in sorted(level, key=lambda entry: entry[:2])]
    return ordered


def holds(repository: Sequence[Row], rule: ap.DifferentialDependency) -> tuple[int, int]:
    """Ordered pairs of close rows, and how many of them agree in the dependent."""
    close = good = 0
    for i, row in enumerate(repository):
        for j, other in enumerate(repository):
            if i != j and matches([rule], dict(row), other):
                close += 1
                good += abs(row[rule.dependent] - other[rule.dependent]) <= limit(rule.tolerance)
    return close, good


def distribution(
    row: Holed,
    repository: Sequence[Row],
    rules: Sequence[ap.DifferentialDependency],
    dependents: tuple[str, ...],
    marginal: int = 256,
) -> tuple[list[Choice], str]:
    """What some attributes may be, together, and what says so."""
    known = set(row) - set(dependents)
    observed = {name for name, value in row.items() if value is not None}
    usable = [rule for rule in rules if rule.dependent in dependents and set(rule.reads) <= known]
    for members in lattice(repository, usable):
        if not all(set(rule.reads) <= observed for rule in members):
            continue
        found = [other for other in repository if matches(members, row, other)]
        if found:
            told = " and ".join(str(rule) for rule in rules if rule in members)
            return _shares([tuple(other[name] for name in dependents) for other in found]), told
    everything = sorted(tuple(other[name] for name in dependents) for other in repository)
    if len(set(everything)) > marginal:
        everything = [everything[(2 * i + 1) * len(everything) // (2 * marginal)] for i in range(marginal)]
    return _shares(everything), "marginal"


def _shares(values: Sequence[tuple[float, ...]]) -> list[Choice]:
    return [(value, Fraction(times, len(values))) for value, times in sorted(Counter(values).items())]


def filled(
    row: Holed,
    repository: Sequence[Row],
    rules: Sequence[ap.DifferentialDependency],
    *,
    joint: bool = False,
    marginal: int = 256,
) -> tuple[list[Choice], list[tuple[str, str]]]:
    """The samples of a row with their weights, and what filled each hole."""
    holes = tuple(name for name, value in row.items() if value is None)
    parts = ([holes] if holes else []) if joint else [(name,) for name in holes]
    told: dict[str, str] = {}
    choices = []
    for part in parts:
        known, way = distribution(row, repository, rules, part, marginal)
        told |= dict.fromkeys(part, way)
        choices.append([(dict(zip(part, values, strict=True)), share) for values, share in known])
    samples = []
    for chosen in product(*choices):
        values: dict[str, float | None] = dict(row)
        weight = Fraction(1)
        for one, share in chosen:
            values |= one
            weight *= share
        samples.append((tuple(float(value) for value in values.values() if value is not None), weight))
    return samples, [(name, told[name]) for name in holes]
