"""How rows exist: each by itself, or in bursts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from appulse.arguments import Name, checked, number


@checked
@dataclass(frozen=True)
class Bursts:
    """Rows that exist with a probability, and tend to exist or fail together.

    The existence of consecutive rows of a stream, in the order of their times, or of their arrival, per partition, is a
    Markov chain of two states.

    Arguments:
    * ``column``: of the probability that the row exists, in (0, 1].
    * ``correlation``: of the existence of a row with that of the next, from -1 to 1; 0 means independence. Not every
      correlation is possible: rows of probabilities p and r exist together with at most the smaller of these.

    Pass it as ``Stream(existence=)``. `similarity_join` of several streams takes it, and so does `window_aggregate` for
    sums, counts and frequent values, but not over an `UncertainCountWindow`.

    Raises `BadArgument` for a wrong argument. Other calls with such a stream raise `NotBuilt`. A pair of consecutive
    rows that does not allow the correlation is a `BadInput` that names its probabilities, in aggregates and uncertain
    windows, where it would change an answer.

    >>> import appulse as ap
    >>> ap.Stream(None, key="id", time="at", value="x", existence=ap.Bursts("p", correlation=0.8)).existence
    Bursts(column='p', correlation=0.8)
    """

    column: Name
    correlation: Annotated[float, number(least=-1.0, most=1.0)]
