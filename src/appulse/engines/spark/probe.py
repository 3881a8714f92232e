"""The least stateful query there is, to see whether a session can run one."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from appulse.errors import SessionError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

__all__ = ["run_probe"]

_ROWS = 8


class _Count(StatefulProcessor):
    """Counts the rows of a key over micro-batches."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "n long")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: TimerValues,  # noqa: ARG002, N803 - Spark's name, and it passes it by that
    ) -> Iterator[pd.DataFrame]:
        before = self._count.get()
        count = sum(map(len, rows)) + (before[0] if before else 0)
        self._count.update((count,))
        yield pd.DataFrame({"key": [key[0]], "n": [count]})

    def close(self) -> None:
        """Nothing to close."""


def run_probe(spark: SparkSession) -> None:
    """Count rows over two micro-batches with state; raises ``SessionError`` if the answer is wrong."""
    with tempfile.TemporaryDirectory(prefix="appulse-probe-") as folder:
        source, answers = Path(folder, "source"), Path(folder, "answers")
        source.mkdir()
        for batch in range(2):
            pd.DataFrame({"key": range(_ROWS)}).to_parquet(source / f"{batch}.parquet")
        rows = spark.readStream.schema("key long").option("maxFilesPerTrigger", 1).parquet(str(source))
        counts = rows.groupBy("key").transformWithStateInPandas(_Count(), "key long, n long", "append", "none")
        query = (
            counts.writeStream.format("parquet")
            .option("checkpointLocation", str(Path(folder, "checkpoint")))
            .trigger(availableNow=True)
            .start(str(answers))
        )
        query.awaitTermination()
        found = sorted(row.n for row in spark.read.parquet(str(answers)).collect())
    if found != [1] * _ROWS + [2] * _ROWS:
        raise SessionError(f"a stateful query counted {found} instead of {_ROWS} ones and {_ROWS} twos")
