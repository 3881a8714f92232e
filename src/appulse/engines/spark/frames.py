"""What stages put out, as pandas frames: `transformWithStateInPandas` takes nothing else, and sends on Arrow."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import pandas as pd
import pyarrow as pa
from pandas.arrays import ArrowExtensionArray

from appulse.engines.spark.tagged import decoded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from appulse.engines.base import Finish
    from appulse.engines.spark.stage import Sent

# A frame costs Spark some milliseconds, however few rows it has.
_SMALL = 1 << 20


class ArrowColumn(ArrowExtensionArray):
    """A column that leaves as the Arrow array that it came as.

    Spark converts nested values one by one, by `map`, which is slow and makes null of NaN. These need no conversion.
    """

    def map(self, mapper: Any, na_action: Any = None) -> Self:  # noqa: ARG002 - pandas' signature
        """The column as it is."""
        return self


def block_frames(sent: Sent) -> Iterator[pd.DataFrame]:
    """What a stage before the last one sends on, by key."""
    yield pd.DataFrame({"tile": [key for key, _ in sent], "block": [blob for _, blob in sent]})


@dataclass(frozen=True)
class TaggedFrames:
    """What the last stage puts out, as tagged rows; one for all keys of a task."""

    schema: pa.Schema
    finishing: Callable[[], Finish]

    @cached_property
    def _finish(self) -> Finish:
        return self.finishing()

    def __call__(self, sent: Sent) -> Iterator[pd.DataFrame]:
        """The rows of a key."""
        return frames_of(decoded((blob for _, blob in sent), self.schema, self._finish))


def frames_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pd.DataFrame]:
    """Batches as frames, no value converted: large ones as they come, small ones together."""
    small: list[pa.RecordBatch] = []
    for batch in batches:
        if batch.nbytes >= _SMALL:
            yield _frame([batch])
        elif batch.num_rows:
            small.append(batch)
        if sum(part.nbytes for part in small) >= _SMALL:
            yield _frame(small)
            small = []
    if small:
        yield _frame(small)


def _frame(batches: list[pa.RecordBatch]) -> pd.DataFrame:
    table = pa.Table.from_batches(batches).combine_chunks()  # Spark takes each column in one piece
    return pd.DataFrame({n: ArrowColumn(c) for n, c in zip(table.column_names, table.columns, strict=True)})
