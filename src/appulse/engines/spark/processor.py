"""A stage in `transformWithStateInPandas`.

Spark also loads this module in a process that only asks for the schema of the state, at every start of a query. So
it stays light: what a stage does is unpacked on first use.
"""

from __future__ import annotations

import pickle
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from appulse.engines.spark.deltas import RecentDeltas
from appulse.engines.spark.state import TileState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pandas as pd
    from pyspark.sql import Row

    from appulse.engines.spark.stage import Sent, Stage


class StageProcessor(StatefulProcessor):
    """Hands a key's blobs, its state and its timer to a stage; ``frames`` makes rows of Spark of what that says."""

    def __init__(self, stage: Stage, frames: Callable[[Sent], Iterator[pd.DataFrame]]) -> None:
        self._packed = pickle.dumps((stage, frames))  # travels within Spark's own closure, to our own workers
        self._fingerprint = f"{stage.call.fingerprint()}-{stage.name}"

    @cached_property
    def _unpacked(self) -> Any:
        return pickle.loads(self._packed)  # noqa: S301 - written a few lines above

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self._handle = handle
        self._state = TileState(handle, self._fingerprint, recent=RecentDeltas.of_task())

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame] | Iterator[Row],
        timerValues: Any,  # noqa: N803 - Spark's name
    ) -> Iterator[pd.DataFrame]:
        """Take in the blobs of one key."""
        blobs = [bytes(blob) for frame in rows for blob in frame["block"]]
        yield from self._run(key, blobs, timerValues)

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self,
        key: Any,
        timerValues: Any,  # noqa: N803 - Spark's name
        expiredTimerInfo: Any,  # noqa: ARG002, N803 - Spark's name
    ) -> Iterator[pd.DataFrame]:
        """Do what time brings about in a key that gets no rows."""
        yield from self._run(key, None, timerValues)

    def close(self) -> None:
        """Nothing to close: state is Spark's, caches outlive the task."""

    def _run(self, key: Any, blobs: list[bytes] | None, timer_values: Any) -> Iterator[pd.DataFrame]:
        stage, frames = self._unpacked
        watermark = int(timer_values.getCurrentWatermarkInMs())
        limit = watermark * 1000 if watermark > 0 else None
        yield from frames(stage.run(int(key[0]), blobs, limit, self._state, self._handle.registerTimer))
