"""The stateful stage: one join per tile, in `transformWithStateInPandas`.

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

    from appulse.engines.spark.tile_join import TileJoin


class JoinProcessor(StatefulProcessor):
    """Answers each micro-batch's blocks against the tile's windows, and logs them as a delta."""

    def __init__(self, join: TileJoin) -> None:
        self._packed = pickle.dumps(join)  # travels within Spark's own closure, to our own workers
        self._fingerprint = f"{join.call.fingerprint()}-{join.plan.fingerprint()}"

    @cached_property
    def _join(self) -> TileJoin:
        join: TileJoin = pickle.loads(self._packed)  # noqa: S301 - written a few lines above
        return join

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self._handle = handle
        self._state = TileState(handle, self._fingerprint)

    def close(self) -> None:
        """Nothing to close: state is Spark's, caches outlive the task."""

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame] | Iterator[Row],
        timerValues: Any,  # noqa: N803 - Spark's name
    ) -> Iterator[pd.DataFrame]:
        """Answer the blocks of one tile."""
        import pandas as pd

        blobs = [bytes(blob) for frame in rows for blob in frame["block"]]
        out = self._join.answer(int(key[0]), blobs, _limit(timerValues), self._state, self._handle.registerTimer)
        yield pd.DataFrame({"out": out})

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self,
        key: Any,
        timerValues: Any,  # noqa: N803 - Spark's name
        expiredTimerInfo: Any,  # noqa: ARG002, N803 - Spark's name
    ) -> Iterator[pd.DataFrame]:
        """Forget what has expired in a tile that gets no rows."""
        self._join.expire(int(key[0]), _limit(timerValues), self._state, self._handle.registerTimer)
        yield from ()


def _limit(timer_values: Any) -> int | None:
    """Rows before this (microseconds) are late; None while there is no watermark."""
    watermark = int(timer_values.getCurrentWatermarkInMs())
    return watermark * 1000 if watermark > 0 else None
