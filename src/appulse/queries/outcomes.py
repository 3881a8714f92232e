"""What becomes of queries that are put into a set: taken in, refused, or removed later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from appulse.errors import AppulseError

if TYPE_CHECKING:
    import pyarrow as pa

    from appulse.kernels.arrays import Ints


@dataclass(frozen=True)
class Refused:
    """A query that was not taken: its index in the input, and the reason."""

    row: int
    reason: str
    region: bool = False


@dataclass(frozen=True)
class Failed:
    """A query whose condition could not be evaluated over rows, and which was removed for it: its key, text and why."""

    key: pa.Array
    text: pa.Array
    reason: str


@dataclass(frozen=True)
class Added:
    """What became of queries: those refused, and those, by row, that no row can ever satisfy."""

    refused: list[Refused]
    never: Ints
    lanes: Ints  # by row; -1 where there is none


def reason_of(error: Exception) -> str:
    """An error as the reason why a query is refused."""
    return str(error) if isinstance(error, AppulseError) else f"{type(error).__name__}: {error}"
