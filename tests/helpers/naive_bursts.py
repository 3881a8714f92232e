"""Rows that exist in bursts, by possible worlds: the slow twin of `appulse.kernels.bursts`."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import appulse as ap
from tests.helpers import naive

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pytest

World = tuple[bool, ...]


def worlds(exist: Sequence[Fraction], correlation: Fraction) -> dict[World, Fraction]:
    """Which of consecutive rows exist, with the probability of that."""
    found: dict[World, Fraction] = {(): Fraction(1)}
    for i, r in enumerate(exist):
        longer = {}
        for world, chance in found.items():
            for here in (False, True):
                if i == 0:
                    step = r if here else 1 - r
                else:
                    step = _joint(exist[i - 1], r, correlation, (world[-1], here))
                    step /= exist[i - 1] if world[-1] else 1 - exist[i - 1]
                longer[*world, here] = chance * step
        found = {world: chance for world, chance in longer.items() if chance}
    return found


def _joint(p: Fraction, r: Fraction, correlation: Fraction, states: tuple[bool, bool]) -> Fraction:
    both = p * r + correlation * root(p * (1 - p) * r * (1 - r))
    return {(True, True): both, (True, False): p - both, (False, True): r - both}.get(states, 1 - p - r + both)


def root(square: Fraction) -> Fraction:
    """Exact where it is rational."""
    parts = math.isqrt(square.numerator), math.isqrt(square.denominator)
    if parts[0] ** 2 == square.numerator and parts[1] ** 2 == square.denominator:
        return Fraction(*parts)
    return Fraction(math.sqrt(square))


def at_most(most: int, exist: Sequence[Fraction], correlation: Fraction, *, given: bool) -> Fraction:
    """Pr(at most ``most`` of the rows after the first exist), perhaps ``given`` that the first does."""
    every = worlds(exist, correlation)
    if given:
        every = {world: chance / exist[0] for world, chance in every.items() if world[0]}
    return sum((chance for world, chance in every.items() if sum(world[1:]) <= most), Fraction(0))


def in_bursts(patch: pytest.MonkeyPatch, correlations: Mapping[str, Fraction]) -> None:
    """Have the naive twin of joins take streams to be such, by name."""

    def exist(held: naive.Held, row: naive.Row) -> list[Fraction]:
        return [Fraction(one.value.mass) for one in (row, *held.after(row))]

    def enough(held: naive.Held, window: ap.UncertainCountWindow, oldest: naive.Row) -> bool:
        if window.max_rows is not None and len(held.rows) > window.max_rows:
            return True
        if len(held.after(oldest)) < window.size:
            return False
        fewer = at_most(window.size - 1, exist(held, oldest), correlations[held.name], given=False)
        return 1 - fewer >= Fraction(window.confidence) - naive.TOLERANCE

    def presence(window: Any, a: naive.Row, b: naive.Row, held: Sequence[naive.Held]) -> Fraction:
        assert isinstance(window, ap.UncertainCountWindow)
        sides = [held[row.stream] for row in (a, b)]
        chances = (
            at_most(window.size - 1, exist(side, row), correlations[side.name], given=True)
            for side, row in zip(sides, (a, b), strict=True)
        )
        return math.prod(chances, start=Fraction(1))

    patch.setattr(naive.Held, "_enough_after", enough)
    patch.setattr(naive, "presence", presence)
