"""Rows that wait for their ticks to be complete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appulse.kernels.arrays import Flags, Ints


class Timed(Protocol):
    """A batch of rows with their times in microseconds."""

    @property
    def time(self) -> Ints: ...
    @property
    def nbytes(self) -> int: ...
    def __len__(self) -> int: ...
    def filter(self, mask: Any) -> Any: ...


R = TypeVar("R", bound=Timed)


class Waiting(Generic[R]):
    """What came, part by part, until everything before some time is known to be there."""

    def __init__(self) -> None:
        self.parts: list[R] = []

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)

    @property
    def due(self) -> int | None:
        """The oldest time that waits."""
        return min((int(part.time.min()) for part in self.parts), default=None)

    def hold(self, rows: R) -> None:
        """Take in rows."""
        if len(rows):
            self.parts.append(rows)

    def keep(self, masks: Sequence[Flags]) -> None:
        """Drop rows, part by part."""
        kept = [part.filter(mask) for part, mask in zip(self.parts, masks, strict=True)]
        self.parts = [part for part in kept if len(part)]

    def release(self, before: int | None = None) -> list[R]:
        """Hand over what is older than a time (None: all there is)."""
        if before is None:
            released, self.parts = self.parts, []
            return released
        released = [part.filter(part.time < before) for part in self.parts]
        kept = [part.filter(part.time >= before) for part in self.parts]
        self.parts = [part for part in kept if len(part)]
        return [part for part in released if len(part)]
