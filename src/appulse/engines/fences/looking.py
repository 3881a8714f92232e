"""Buckets that look at the first readings, whether latitude and longitude are swapped."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from appulse.engines.swapped import swapped_of
from appulse.engines.waiting import WaitingBucket
from appulse.queries.regions import covered_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from appulse.engines.fences.call import FenceCall
    from appulse.model.objects import Objects
    from appulse.model.regions import RegionSet


class LookingBucket(WaitingBucket):
    """A bucket of readings that lie in regions or not."""

    call: FenceCall

    def __init__(self, call: FenceCall) -> None:
        super().__init__(call)
        self.swapped = swapped_of(call.fingerprint())
        self._last: int | None = None  # the newest time of all, once the streams have ended

    @property
    def regions(self) -> RegionSet:
        """Those that readings are held against."""
        raise NotImplementedError

    def admit(self, batches: Iterable[tuple[int, Objects]], limit: int | None = None) -> None:
        """Begin a step with readings."""
        super().admit(batches, limit)
        earth, regions = self.call.plan.earth, self.regions
        if earth is None or self.swapped.done or not len(regions.arrays.radius):
            return
        for _, rows in self.came:
            if rows.degrees is not None:
                self.swapped.look(rows.degrees, partial(covered_rows, regions, earth=earth))

    def advance(self, limit: int | None = None, ended: int | None = None) -> list[pa.Table]:
        """The answers of ticks that are complete now."""
        self._last = ended
        return super().advance(limit, ended)

    def step(self) -> tuple[list[int], Mapping[str, NDArray[Any]]]:
        return [self.complete, self._last is not None, self._last or 0], {}

    def again(self, numbers: Sequence[int], arrays: Mapping[str, NDArray[Any]]) -> None:  # noqa: ARG002
        """Take the same step; its answers are known."""
        ended, last = numbers
        self._last = last if ended else None
        self.answer(ended=bool(ended))

    def levels(self) -> Mapping[str, float]:
        """Further figures of a step."""
        return {**super().levels(), "swapped": self.swapped.taken()}
