"""What a user has today for the sensor join: a self-join in DuckDB by micro-batches, a chain of joins on Spark."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.harness import read_stream, timed, write_stream
from benchmarks.mjoin import Factorised
from benchmarks.query_rivals import library
from benchmarks.sensor_fields import SECOND, WINDOW

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame, SparkSession

    from benchmarks.sensor_fields import Readings

    Ints = NDArray[np.int64]

_JOIN = """
WITH met AS (
    SELECT p.number AS probe, s.sensor, list(s.time ORDER BY s.time DESC) AS times
    FROM batch p JOIN stored s
      ON p.bin = s.bin AND s.sensor <> p.sensor AND s.time >= p.time - s.length
     AND (s.time < p.time OR (s.time = p.time AND s.sensor < p.sensor))
    GROUP BY p.number, s.sensor
)
SELECT probe, list({'sensor': sensor, 'times': times} ORDER BY times[1] DESC, sensor DESC) AS matches
FROM met GROUP BY probe ORDER BY probe
"""


class DuckDB:
    """A table of what the windows hold; each micro-batch goes in, is joined with it, and what expired goes out."""

    def __init__(self, streams: int, window: int | Sequence[int] | Ints, threads: int = 1) -> None:
        self._length = np.broadcast_to(np.asarray(window, np.int64), streams)
        self._connection = library("duckdb").connect(config={"threads": threads})
        self._connection.execute("CREATE TABLE stored (time BIGINT, sensor BIGINT, bin BIGINT, length BIGINT)")

    def answer(self, time: Ints, sensor: Ints, bins: Ints) -> pa.Table:
        """The answers of a micro-batch: probe, matches (list of sensor and times), as ours come out."""
        columns = {"time": time, "sensor": sensor, "bin": bins, "length": self._length[sensor]}
        batch = pa.table(columns | {"number": np.arange(len(time))})
        self._connection.register("batch", batch)
        self._connection.execute("INSERT INTO stored SELECT time, sensor, bin, length FROM batch")
        found: pa.Table = self._connection.sql(_JOIN).to_arrow_table()
        if len(time):
            self._connection.execute("DELETE FROM stored WHERE time < ? - length", [int(time[-1])])
        return found

    def push(self, time: Ints, sensor: Ints, bins: Ints) -> Factorised:
        """As the other contestants."""
        found = self.answer(time, sensor, bins)
        matches = found["matches"].combine_chunks()
        groups = matches.flatten()
        times = groups.field("times")
        return Factorised(
            _ints(found["probe"].combine_chunks()),
            _offsets(matches),
            _ints(groups.field("sensor")),
            _offsets(times),
            _ints(times.flatten()),
        )


def _ints(array: Any) -> Ints:
    whole: Ints = array.to_numpy(zero_copy_only=False).astype(np.int64)
    return whole


def _offsets(lists: Any) -> Ints:
    """Offsets from 0."""
    if len(lists) == 0:
        return np.zeros(1, np.int64)
    offsets = _ints(lists.offsets)
    offsets -= offsets[0]
    return offsets


def spark_chain(streams: Sequence[DataFrame], probing: int, seconds: float, lateness: str | None = None) -> DataFrame:
    """All matches of one stream's readings, as a user of Spark writes it: a left outer join for every other stream.

    Frames have ``time`` (a timestamp) and ``value``; the answer has ``time_0, time_1, ...``, NULL where a stream has no
    match, a row for each combination. To probe from all of m streams takes m such chains, m * (m - 1) joins with state.
    ``lateness`` makes them streaming: each frame gets it as its watermark.
    """
    from pyspark.sql import functions

    def named(i: int) -> DataFrame:
        frame = streams[i].select(functions.col("time").alias(f"time_{i}"), functions.col("value").alias(f"value_{i}"))
        return frame if lateness is None else frame.withWatermark(f"time_{i}", lateness)

    probe = functions.col(f"time_{probing}")

    def joined(left: DataFrame, i: int) -> DataFrame:
        time = functions.col(f"time_{i}")
        # A stream of a smaller number stands before this one where both read at one time.
        earlier: Column = time <= probe if i < probing else time < probe
        recent: Column = time >= probe - functions.expr(f"INTERVAL {seconds} SECONDS")
        same: Column = functions.col(f"value_{i}") == functions.col(f"value_{probing}")
        both = left.join(named(i), same & earlier & recent, "left_outer").drop(f"value_{i}")
        # Computed anew it is no event time any more: Spark's next join takes one event time a side.
        return both.withColumn(f"time_{i}", functions.timestamp_micros(functions.unix_micros(time)))

    return reduce(joined, (i for i in range(len(streams)) if i != probing), named(probing))


def run_spark_chain(
    spark: SparkSession, field: Readings, probing: int, folder: Path, batches: int = 2
) -> tuple[float, set[tuple[int, int, int]]]:
    """Seconds of one stream's chain over a field of few sensors, and the pairs it found: time, sensor, its time.

    Rows without a match in some stream come once the watermark has passed; so those of the last seconds do not come.
    """
    streams = []
    for sensor in range(field.sensors):
        own = field.sensor == sensor
        time = pa.array(field.time[own]).cast(pa.timestamp("us", "UTC"))
        table = pa.table({"time": time, "value": field.value[own]})
        streams.append(read_stream(spark, write_stream(folder / str(sensor), table, batches)))
    run = timed(spark_chain(streams, probing, WINDOW / SECOND, "0 seconds"), folder)
    micros = [f"unix_micros(time_{sensor}) AS t{sensor}" for sensor in range(field.sensors)]
    found = spark.read.parquet(str(run.out)).selectExpr(*micros).toArrow().to_pylist()
    others = [sensor for sensor in range(field.sensors) if sensor != probing]
    return run.seconds, {
        (row[f"t{probing}"], sensor, row[f"t{sensor}"])
        for row in found
        for sensor in others
        if row[f"t{sensor}"] is not None
    }
