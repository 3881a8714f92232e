"""What a join costs by the analytical model of Ali et al. (Sec. 7.1, Figs. 7 and 13)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True)
class Constants:
    """Cost of: insertion, reaching a further table, comparing with a value, an occurrence, a column of output."""

    c1: float = 26.25
    c2: float = 6.93
    c3: float = 0.24
    c4: float = 2.72
    c5: float = 5.7


@dataclass(frozen=True)
class Load:
    """What is joined: ``k`` streams of ``n`` live readings, of which ``sigma`` match another stream's reading.

    ``distinct`` values live in a stream's table, ``distinct_all`` in the one of all streams, each in ``buckets``
    buckets; ``local`` is the share of streams with a match (k').
    """

    k: int
    sigma: float
    distinct_all: float
    n: float = 1000
    distinct: float = 100
    buckets: float = 13
    local: float = 0.4

    @property
    def product(self) -> float:
        """Elements of the output of one reading: the product over the other streams of sigma n."""
        return float((self.sigma * self.n) ** (self.k - 1))


PAPER = (
    Load(5, 0.00130, 210),
    Load(10, 0.00129, 372),
    Load(15, 0.00122, 455),
    Load(20, 0.00116, 485),
    Load(25, 0.00112, 494),
)


def outer_mjoin(load: Load, constants: Constants | None = None) -> float:
    """Cost of a reading in an outer MJoin, in the unit of the constants (Fig. 7)."""
    c = constants or Constants()
    compared = c.c3 * (load.k - 1) * load.distinct / load.buckets
    return c.c1 + c.c2 * (load.k - 1) + compared + c.c5 * load.k * load.product


def snjoin(load: Load, constants: Constants | None = None) -> float:
    """Cost of a reading in the SNJoin (Fig. 7)."""
    c = constants or Constants()
    occurrences = c.c4 * load.k * load.sigma * load.n  # those of the own stream are walked over, too
    columns = 2 * load.k * load.local
    return c.c1 + c.c3 * load.distinct_all / load.buckets + occurrences + c.c5 * columns * load.product


def factorised(load: Load, constants: Constants | None = None, *, tables: bool) -> float:
    """The same where output is factorised: a column a match in place of the product; ``tables``: one a stream."""
    c = constants or Constants()
    matches = (load.k - 1) * load.sigma * load.n
    if tables:
        looked = c.c2 * (load.k - 1) + c.c3 * (load.k - 1) * load.distinct / load.buckets
    else:
        looked = c.c3 * load.distinct_all / load.buckets + c.c4 * matches
    return c.c1 + looked + c.c5 * matches


def distributed_size(streams: Sequence[float], local: Sequence[float], matches: Sequence[NDArray[np.float64]]) -> float:
    """Size of a distributed output: (sum over clusters of 2 k k') x the product over all of sigma n (Sec. 7.1).

    ``matches`` has for each cluster sigma n of each of its streams with a match: those without add no factor.
    """
    columns = sum(2.0 * k * share for k, share in zip(streams, local, strict=True))
    return float(columns * np.prod([np.prod(cluster) for cluster in matches]))
