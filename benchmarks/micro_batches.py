"""What a micro-batch costs on Spark: ours beside an empty stateful query, Spark's own equi-join, and a pass-through.

All read the same files of few rows, one a micro-batch, and write Parquet.

    python -m benchmarks.micro_batches [--quick] [--json]
"""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - the usual name of this module
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

import appulse as ap
from benchmarks.harness import arguments, read_stream, report, say, scratch, write_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

_ROWS = 1_000  # of a stream in a micro-batch
# The first ones start workers and compile.
_WARM = 4
_EPSILON = 0.005


class _Empty(StatefulProcessor):
    """Reads what comes in, keeps one number a key and puts out nothing."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._seen = handle.getValueState("seen", "n long")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,  # noqa: ARG002
        rows: Iterator[Any],
        timerValues: Any,  # noqa: ARG002, N803
    ) -> Iterator[pd.DataFrame]:
        known = self._seen.get()
        self._seen.update(((known[0] if known else 0) + sum(map(len, rows)),))
        return iter(())

    def close(self) -> None:
        """Nothing is open."""


def _points(seed: int, batches: int) -> pa.Table:
    chance, n = np.random.default_rng(seed), _ROWS * batches
    time = np.repeat(np.arange(batches), _ROWS) * 1_000_000 + np.tile(np.arange(_ROWS) * 1_000, batches)
    return pa.table(
        {
            "id": np.arange(n),
            "ts": pa.array(time, pa.timestamp("us", "UTC")),
            "x": chance.random(n),
            "y": chance.random(n),
        }
    )


def _ours(frames: list[DataFrame], out: Path, *, rejects: bool) -> StreamingQuery:
    streams = [
        ap.Stream(f, key="id", time="ts", value=ap.Gaussian("x", "y", sigma=0.001), lateness="1 second", name=name)
        for f, name in zip(frames, ("a", "b"), strict=True)
    ]
    result: Any = ap.similarity_join(*streams, epsilon=_EPSILON, probability=0.5, window="2 seconds")
    sinks = [("parquet", {"path": str(out / name)}) for name in (("pairs", "rejects") if rejects else ("pairs",))]
    query: StreamingQuery = ap.start(result, *sinks, checkpoint=str(out / "checkpoint"), trigger={"availableNow": True})
    return query


def _written(frame: DataFrame, out: Path) -> StreamingQuery:
    writer = frame.writeStream.format("parquet").option("path", str(out / "rows"))
    return writer.option("checkpointLocation", str(out / "checkpoint")).trigger(availableNow=True).start()


def _empty(frames: list[DataFrame], out: Path) -> StreamingQuery:
    rows = frames[0].union(frames[1]).withWatermark("ts", "1 second").withColumn("key", F.col("id") % 2)
    kept = rows.groupBy("key").transformWithStateInPandas(_Empty(), "n long", outputMode="append", timeMode="eventTime")
    return _written(kept, out)


def _equi_join(frames: list[DataFrame], out: Path) -> StreamingQuery:
    a, b = (frame.withWatermark("ts", "1 second").alias(name) for frame, name in zip(frames, "ab", strict=True))
    near = F.expr("a.id = b.id AND b.ts BETWEEN a.ts - INTERVAL 2 SECONDS AND a.ts + INTERVAL 2 SECONDS")
    return _written(a.join(b, near).select(F.col("a.id").alias("id"), F.col("a.ts").alias("ts")), out)


def _pass(frames: list[DataFrame], out: Path) -> StreamingQuery:
    return _written(frames[0].union(frames[1]), out)


def _took(start: Callable[[list[DataFrame], Path], StreamingQuery], frames: list[DataFrame], out: Path) -> Counter[str]:
    """Milliseconds of the middle micro-batch, and of its parts."""
    query = start(frames, out)
    query.awaitTermination()
    batches = [p.durationMs for p in query.recentProgress if p.numInputRows][_WARM:]
    return Counter({name: median(batch.get(name, 0) for batch in batches) for name in batches[0]})


def measured(spark: SparkSession, folder: Path, batches: int) -> dict[str, float | None]:
    """The figures, each the middle of all micro-batches but the first."""
    frames = [
        read_stream(spark, write_stream(folder / name, _points(seed, batches), batches))
        for seed, name in enumerate(("a", "b"))
    ]
    contestants: dict[str, Callable[[list[DataFrame], Path], StreamingQuery]] = {
        "pass": _pass,
        "empty": _empty,
        "equijoin": _equi_join,
        "ours": lambda given, out: _ours(given, out, rejects=False),
        "ours with rejects": lambda given, out: _ours(given, out, rejects=True),
    }
    found = {}
    for name, start in contestants.items():
        parts = found[name] = _took(start, frames, folder / f"out {name}")
        say(f"{name:>18}  " + "  ".join(f"{part} {ms:.0f}" for part, ms in parts.items()))
    whole = {name: parts["triggerExecution"] for name, parts in found.items()}
    return {
        "batch_fixed_of_empty": whole["ours with rejects"] / whole["empty"],
        "batch_fixed_of_equijoin": whole["ours with rejects"] / whole["equijoin"],
        "batch_without_rejects_of_empty": whole["ours"] / whole["empty"],
        "batch_ms": whole["ours with rejects"],
        "pass_ms": whole["pass"],
    }


def main() -> None:
    """Print the figures."""
    args = arguments(__doc__ or "")
    with scratch() as folder:
        spark = ap.session(2)
        spark.sparkContext.setLogLevel("ERROR")
        figures = measured(spark, folder, 14 if args.quick else 40)
        spark.stop()
    report(figures, as_json=args.json)


if __name__ == "__main__":
    main()
