"""Whether latitude and longitude look swapped: no row lies in a region, and some would the other way round."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from appulse.errors import warn_swapped

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats

    #: Of places, longitudes and latitudes (n, 2), the rows that lie in some region.
    Covering = Callable[[Floats], NDArray[np.integer]]

# Rows that are looked at, until one lies in a region.
_ENOUGH = 10_000
# Degrees by which a place has to move when it is swapped: near the diagonal both ways are as good.
_FAR, _POLE = 1.0, 90.0


class Swapped:
    """Looks at the first rows of a call, and has something to report at most once."""

    def __init__(self) -> None:
        self._looked_at, self._would = 0, 0

    @property
    def done(self) -> bool:
        """Whether enough rows were looked at."""
        return self._looked_at >= _ENOUGH

    def look(self, at: Floats, covering: Covering) -> None:
        """Look at the longitudes and latitudes (n, 2) of rows."""
        at = at[: _ENOUGH - self._looked_at]
        if not len(at):
            return
        self._looked_at += len(at)
        if len(covering(at)):
            self._looked_at = _ENOUGH
            return
        other = at[(np.abs(at[:, 0]) <= _POLE) & (np.abs(at[:, 0] - at[:, 1]) >= _FAR)][:, ::-1]
        if len(other) and (would := len(np.unique(covering(other)))):
            self._looked_at, self._would = _ENOUGH, would

    def taken(self) -> int:
        """How many rows would lie in a region, where none does; reported once."""
        would, self._would = self._would, 0
        return would

    def warn(self) -> None:
        """Report it as a warning."""
        if would := self.taken():
            warn_swapped(would)


@lru_cache(maxsize=8)
def swapped_of(fingerprint: str) -> Swapped:  # noqa: ARG001 - the key of the cache
    """What a worker process looks with for all of its buckets of a call: those are made anew with every snapshot."""
    return Swapped()
