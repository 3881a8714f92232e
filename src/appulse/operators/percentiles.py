"""Aggregates whose names have a number: percentiles ``p1`` to ``p99``, and frequent values ``frequent1`` to ``99``."""

from __future__ import annotations

from math import gcd

PERCENTILES = tuple(f"p{k}" for k in range(1, 100))
#: Values that at least so many percent of the rows have.
FREQUENT = tuple(f"frequent{k}" for k in range(1, 100))


def share_of(aggregate: str) -> tuple[int, int] | None:
    """Which share of rows are at most that, as a fraction; None of an aggregate that is no quantile."""
    if aggregate == "median":
        return 1, 2
    if aggregate not in PERCENTILES:
        return None
    part = int(aggregate[1:])
    return part // gcd(part, 100), 100 // gcd(part, 100)


def least_share(aggregate: str) -> float | None:
    """Which share of the rows has to have a value that is frequent; None of another aggregate."""
    return int(aggregate.removeprefix("frequent")) / 100.0 if aggregate in FREQUENT else None
