"""Contestants on Spark: the recipe users have today, and an operator that only counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - the usual name of this module
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from appulse.engines.spark.results import result_of
from appulse.model.encode import encode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, Row

    from appulse.engines.objects import ObjectsCall
    from appulse.engines.spark.tiling import Tiling

_ROWS = "tile int, stream int, t long, id long, x double, y double, spread double, payload binary, ts timestamp"


def explode_cells(frames: list[DataFrame], epsilon: float, seconds: int) -> DataFrame:
    """Explode grid cells and equi-join: what a stream-stream distance join takes on plain Spark."""
    left, right = frames

    def cell(column: str) -> Any:
        return F.floor(F.col(column) / epsilon)

    near = F.explode(F.expr("array(-1L, 0L, 1L)"))
    a = left.withWatermark("ts", "0 seconds").select(
        *[F.col(c).alias(f"l_{c}") for c in left.columns], cell("x").alias("cx"), cell("y").alias("cy")
    )
    b = (
        right.withWatermark("ts", "0 seconds")
        .withColumn("dx", near)
        .withColumn("dy", near)
        .select(
            *[F.col(c).alias(f"r_{c}") for c in right.columns],
            (cell("x") + F.col("dx")).alias("cx"),
            (cell("y") + F.col("dy")).alias("cy"),
        )
    )
    within = F.expr(
        f"l_ts >= r_ts - interval {seconds} seconds and l_ts <= r_ts + interval {seconds} seconds "
        f"and pow(l_x - r_x, 2) + pow(l_y - r_y, 2) <= {epsilon!r} * {epsilon!r}"
    )
    joined = a.alias("a").join(b.alias("b"), F.expr("a.cx = b.cx and a.cy = b.cy") & within, "inner")
    return joined.select(F.col("l_id").alias("left_key"), F.col("r_id").alias("right_key"))


def empty(result: DataFrame, frames: list[DataFrame], operators: int = 1) -> DataFrame:
    """Our encode, tile keys, copies and partitions, row by row, into stateful operators that only count.

    Of two the first counts and passes its rows on.
    """
    known = result_of(result)
    call = cast("ObjectsCall", known.call)  # a join's
    union = None
    for i, frame in enumerate(frames):
        columns = call.encodings[i].columns()
        rows = frame.select(*columns).mapInArrow(_row_encoder(call, known.tiling, i), _ROWS)
        rows = rows.withWatermark("ts", "0 seconds").drop("ts")
        union = rows if union is None else union.union(rows)
    if union is None:
        raise ValueError("no frames")
    for _ in range(operators - 1):
        union = union.groupBy("tile").transformWithStateInPandas(
            CountAndPass(), outputStructType=_ROWS.removesuffix(", ts timestamp"), outputMode="append", timeMode="none"
        )
    return union.groupBy("tile").transformWithStateInPandas(
        Count(),
        outputStructType="tile int, n long",
        outputMode="append",
        timeMode="eventTime" if operators == 1 else "none",
    )


def _row_encoder(call: ObjectsCall, tiling: Tiling, stream: int) -> Any:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        waiting = list(batches)
        if not waiting:
            return
        objects, _ = encode(pa.Table.from_batches(waiting), call.encodings[stream])
        rows, tiles, _ = tiling.copies(objects)
        n, d = len(rows), objects.d
        if len(objects.first):
            width = d * 8 * int(objects.first[1] - objects.first[0])
            offsets = np.arange(n + 1, dtype=np.int32) * width
            payload = pa.Array.from_buffers(
                pa.binary(), n, [None, pa.py_buffer(offsets), pa.py_buffer(objects.take(rows).samples)]
            )
        else:
            payload = pa.repeat(pa.scalar(b""), n)
        keys = objects.key.data.reshape(-1, 8).copy()
        keys[:, 0] ^= 0x80
        spread = objects.spread[rows, 0] if objects.spread.shape[1] else np.zeros(n)
        micros = pa.array(objects.time[rows])
        columns = [
            pa.array(tiles, pa.int32()),
            pa.array(np.full(n, stream, np.int32)),
            micros,
            pa.array(keys.view(">i8").reshape(-1).astype(np.int64)[rows]),
            pa.array(objects.centre[rows, 0]),
            pa.array(objects.centre[rows, 1]),
            pa.array(spread),
            payload,
            micros.cast(pa.timestamp("us", "UTC")),
        ]
        names = ["tile", "stream", "t", "id", "x", "y", "spread", "payload", "ts"]
        yield from pa.table(columns, names=names).to_batches(max_chunksize=20_000)

    return task


class Count(StatefulProcessor):
    """Counts the rows of each key, in state."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "n long")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame] | Iterator[Row],
        timerValues: Any,  # noqa: ARG002, N803 - Spark's name
    ) -> Iterator[pd.DataFrame]:
        before = (self._count.get() or (0,))[0]
        n = sum(len(frame) for frame in rows)
        self._count.update((before + n,))
        yield pd.DataFrame({"tile": [int(key[0])], "n": [n]})

    def close(self) -> None:
        """Nothing to close."""


class CountAndPass(Count):
    """Counts the rows of each key, and passes them on as they are."""

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,  # noqa: ARG002
        rows: Iterator[pd.DataFrame] | Iterator[Row],
        timerValues: Any,  # noqa: ARG002, N803 - Spark's name
    ) -> Iterator[pd.DataFrame]:
        n = (self._count.get() or (0,))[0]
        for frame in rows:
            n += len(frame)
            if isinstance(frame, pd.DataFrame):
                yield frame
        self._count.update((n,))


def counted(frame: DataFrame, value: str, time: str, tiles: int) -> DataFrame:
    """Rows by value, into a stateful operator that only counts them."""
    bucket = F.pmod(F.hash(value), F.lit(tiles)).cast("int").alias("tile")
    rows = frame.withWatermark(time, "0 seconds").select(bucket, "*")
    return rows.groupBy("tile").transformWithStateInPandas(
        Count(), outputStructType="tile int, n long", outputMode="append", timeMode="eventTime"
    )
