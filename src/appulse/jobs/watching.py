"""What a page gets of a job on Spark: answers of micro-batches, the newest place of each thing, and figures."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - the usual name of this module

from appulse.engines.spark.inputs import quoted
from appulse.report.live import MOST_THINGS, place_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from appulse.jobs.job import Job
    from appulse.jobs.live import Board, Clock
    from appulse.report.live import Shown

__all__ = ["Watcher"]

#: In the checkpoint: how far the page has read the sources.
FOLDER = "appulse-page"
#: Answers of a micro-batch that a page gets.
_MOST_ANSWERS = 10_000
_STATE = ("state_rows", "state_bytes")
_COUNTED = ("candidates", "pruned_", "accepted", "refined")
_LOG = logging.getLogger("appulse")


class Watcher:
    """Shows a job on a page. What fails here is logged, for the job is worth more."""

    def __init__(self, board: Board, number: int, job: Job) -> None:
        self._board, self._number = board, number
        self._streams = {str(stream.name): stream for stream in job.table.streams()}
        self._state: dict[str, int] = {}

    def answered(self, answers: DataFrame, _batch: int) -> None:
        """Show answers of a micro-batch, once they are written."""
        try:
            table = answers.limit(_MOST_ANSWERS).toArrow()
        except Exception as error:  # noqa: BLE001 - see the class
            _LOG.warning("The page lacks answers of a micro-batch: %s", error)
            return
        self._show(lambda shown: shown.message({}, table, None, self._state))

    def measured(self, rows: int, metrics: Mapping[str, float]) -> None:
        """Take in the figures of a micro-batch."""
        counts = {name: int(metrics.get(own, 0)) for name, own in (("answers", "answers"), ("rejects", "rejected"))}
        counted = {name: int(count) for name, count in metrics.items() if name.startswith(_COUNTED)}
        self._state |= {name: int(metrics[name]) for name in _STATE if name in metrics}

        def message(shown: Shown) -> dict[str, Any]:
            shown.count({"rows": rows, **counts}, counted)
            return shown.message({}, None, None, self._state)

        self._show(message)

    def follow(self, frames: Mapping[str, DataFrame], checkpoint: str, clock: Clock) -> Callable[[], None]:
        """Show where things of the sources are, by queries of their own; what ends these."""
        self._board.clocked(self._number, clock)
        queries = []
        for name, frame in frames.items():
            stream = self._streams[name]
            columns = place_columns(stream)
            if not columns or not set(columns) <= set(frame.columns):
                continue
            place = f"{checkpoint.rstrip('/')}/{FOLDER}/{name}"
            writer = frame.select(*map(quoted, columns)).writeStream.foreachBatch(self._placing(name, columns))
            queries.append(writer.option("checkpointLocation", place).start())

        def end() -> None:
            for query in queries:
                query.stop()

        return end

    def _placing(self, name: str, columns: list[str]) -> Callable[[DataFrame, int], None]:
        key, time = columns[:2]

        def show(rows: DataFrame, _batch: int) -> None:
            newest = F.max_by(F.struct(*map(quoted, columns)), quoted(time))
            found = rows.groupBy(quoted(key).alias("thing")).agg(newest.alias("row")).limit(MOST_THINGS)
            table = found.where("row IS NOT NULL").select("row.*").toArrow()
            if len(table):
                self._show(lambda shown: shown.message({name: table}, None, None, self._state))

        return show

    def _show(self, message: Callable[[Shown], dict[str, Any]]) -> None:
        self._board.update(self._number, message)
