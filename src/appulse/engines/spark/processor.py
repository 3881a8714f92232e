"""The stateful stages in `transformWithStateInPandas`: one numbers rows, by bucket of groups; one answers.

Spark also loads this module in a process that only asks for the schema of the state, at every start of a query. So
it stays light: what the tiles do is unpacked on first use.
"""

from __future__ import annotations

import pickle
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from appulse.engines.spark.state import TileState

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd
    from pyspark.sql import Row

    from appulse.engines.spark.aggregate_stage import AggregateStage
    from appulse.engines.spark.number_stage import NumberStage
    from appulse.engines.spark.readings_stage import ReadingsStage
    from appulse.engines.spark.tile_join import TileJoin
    from appulse.engines.spark.window_stage import WindowStage


class _Processor(StatefulProcessor):
    """Hands a key's blobs, its state and its timer to a stage."""

    def __init__(self, stage: TileJoin | NumberStage | AggregateStage | ReadingsStage | WindowStage, name: str) -> None:
        self._packed = pickle.dumps(stage)  # travels within Spark's own closure, to our own workers
        self._fingerprint = f"{stage.call.fingerprint()}-{name}"

    @cached_property
    def _stage(self) -> Any:
        return pickle.loads(self._packed)  # noqa: S301 - written a few lines above

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self._handle = handle
        self._state = TileState(handle, self._fingerprint)

    def close(self) -> None:
        """Nothing to close: state is Spark's, caches outlive the task."""


class AnswerProcessor(_Processor):
    """Answers each micro-batch's blocks: the last stage, of tiles that join or of buckets that aggregate."""

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame] | Iterator[Row],
        timerValues: Any,  # noqa: N803 - Spark's name
    ) -> Iterator[pd.DataFrame]:
        """Answer the blocks of one key."""
        out = self._stage.answer(
            int(key[0]), _blobs(rows), _limit(timerValues), self._state, self._handle.registerTimer
        )
        yield _frame(out=out)

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self,
        key: Any,
        timerValues: Any,  # noqa: N803 - Spark's name
        expiredTimerInfo: Any,  # noqa: ARG002, N803 - Spark's name
    ) -> Iterator[pd.DataFrame]:
        """Do what time brings about in a key that gets no rows."""
        out = self._stage.expire(int(key[0]), _limit(timerValues), self._state, self._handle.registerTimer)
        if out:
            yield _frame(out=out)


class NumberProcessor(_Processor):
    """Numbers the rows of a bucket's groups, and sends them on to tiles."""

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame] | Iterator[Row],
        timerValues: Any,  # noqa: N803 - Spark's name
    ) -> Iterator[pd.DataFrame]:
        """Number the rows whose ticks are complete."""
        out = self._stage.answer(
            int(key[0]), _blobs(rows), _limit(timerValues), self._state, self._handle.registerTimer
        )
        yield _frame(tile=[tile for tile, _ in out], block=[blob for _, blob in out])

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self,
        key: Any,
        timerValues: Any,  # noqa: N803 - Spark's name
        expiredTimerInfo: Any,  # noqa: ARG002, N803 - Spark's name
    ) -> Iterator[pd.DataFrame]:
        """Send on what time has completed in a bucket that gets no rows."""
        out = self._stage.wake(int(key[0]), _limit(timerValues), self._state, self._handle.registerTimer)
        if out:
            yield _frame(tile=[tile for tile, _ in out], block=[blob for _, blob in out])


def _blobs(rows: Iterator[pd.DataFrame] | Iterator[Row]) -> list[bytes]:
    return [bytes(blob) for frame in rows for blob in frame["block"]]


def _frame(**columns: Any) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(columns)


def _limit(timer_values: Any) -> int | None:
    """Rows before this (microseconds) are late; None while there is no watermark."""
    watermark = int(timer_values.getCurrentWatermarkInMs())
    return watermark * 1000 if watermark > 0 else None
