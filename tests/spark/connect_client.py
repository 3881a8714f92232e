"""What `test_connect.py` runs as clients of Spark Connect.

python -m tests.spark.connect_client STEP sc://127.0.0.1:15002 FOLDER
"""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import appulse as ap

ASKED: dict[str, Any] = {"epsilon": 0.3, "probability": 0.5, "window": ap.TimeWindow(4)}


def stream(frame: Any, **settings: Any) -> ap.Stream[Any]:
    """The rows, as Gaussians."""
    return ap.Stream(frame, key="id", time="ts", value=ap.Gaussian("x", "y", sigma=0.1), **settings)


def joined(spark: Any, source: Path) -> Any:
    """The join of the files that come to a folder."""
    coming = spark.readStream.schema(spark.read.parquet(str(source)).schema).option("maxFilesPerTrigger", 1)
    return ap.self_join(stream(coming.parquet(str(source)), lateness="2 seconds"), **ASKED)


def answers(spark: Any, folder: Path) -> None:
    """Write ``batch``, ``refused`` and ``streamed`` below the folder."""
    frame = spark.read.parquet(f"{folder}/in")
    found: Any = ap.self_join(stream(frame), **ASKED)
    found.write.parquet(f"{folder}/batch")
    ap.rejects(found).write.parquet(f"{folder}/refused")
    coming = spark.readStream.schema(frame.schema).parquet(f"{folder}/in")
    with pytest.raises(ap.BadArgument, match="give lateness="):
        ap.self_join(stream(coming.withWatermark("ts", "1 second")), **ASKED)
    writer = joined(spark, folder / "in").writeStream.option("checkpointLocation", f"{folder}/checkpoint")
    query = writer.trigger(availableNow=True).format("parquet").option("path", f"{folder}/streamed").start()
    query.awaitTermination()


def starts(spark: Any, folder: Path) -> None:
    """Start a query into ``started``, with rejects and metrics, and be killed."""
    query = _start(joined(spark, folder / "in"), folder)
    ap.listen(spark, lambda metrics: os.write(1, f"rejected {metrics['rejected']}\n".encode()))
    query.awaitTermination()


def goes_on(spark: Any, folder: Path) -> None:
    """End the query of a client that was killed, and go on from its checkpoint to the end of the stream."""
    result = joined(spark, folder / "in")
    with pytest.raises(ap.CheckpointError, match=r"in use by process .* of Spark Connect") as refused:
        _start(result, folder)
    session = re.search(r"for session (\S+) of Spark Connect", str(refused.value))
    assert session is not None
    left = SparkSession.builder.remote(f"{sys.argv[2]}/;session_id={session[1]}").create()
    for query in left.streams.active:
        query.stop()
    left.stop()
    more: pa.Table = pq.read_table(folder / "more.parquet")
    pq.write_table(more, folder / "in" / "more.parquet")
    with ap.listen(spark, lambda metrics: seen.append(metrics["answers"])):
        seen: list[int] = []
        _start(result, folder, drain=True).awaitTermination()
        time.sleep(2)  # the last word comes on its own
    assert sum(seen) > 0
    with pytest.raises(ap.CheckpointError, match="was closed by a drain"):
        _start(result, folder)


def refused(spark: Any, folder: Path) -> None:
    """Be refused a checkpoint that the server does not see, a table that needs the JVM, and too large a state."""
    result = joined(spark, folder / "in")
    sink = ("parquet", {"path": f"{folder}/nothing"})
    os.chdir(folder)  # the server is elsewhere
    with pytest.raises(ap.StorageError, match="is not one folder for this client, the server"):
        ap.start(result, sink, checkpoint="own")
    table = ("jdbc", {"url": "jdbc:postgresql://host/base", "dbtable": "pairs"})
    with pytest.raises(ap.SessionError, match="which Spark Connect does not have"):
        ap.start(result, table, checkpoint=f"{folder}/table")
    with pytest.raises(ap.StateLimit):
        ap.start(result, sink, checkpoint=f"{folder}/limited", max_state=50).awaitTermination()


def tables(spark: Any, folder: Path) -> None:
    """Write a Delta table, and go on after more rows came."""
    for how in ({"trigger": {"availableNow": True}}, {"drain": True}):
        sinks = [("delta", {"path": f"{folder}/{name}"}) for name in ("pairs", "refused")]
        ap.start(joined(spark, folder / "in"), *sinks, checkpoint=f"{folder}/checkpoint", **how).awaitTermination()
        more: pa.Table = pq.read_table(folder / "more.parquet")
        pq.write_table(more, folder / "in" / "more.parquet")
    spark.sql(f"CREATE TABLE delta.`{folder}/other` (a INT) USING delta")
    other = ("delta", {"path": f"{folder}/other"})
    with pytest.raises(ap.BadArgument, match=r"(?s)other columns than its rows have.*-- a: integer.*-- left_key: long"):
        ap.start(joined(spark, folder / "in"), other, checkpoint=f"{folder}/others").awaitTermination()
    for name in ("pairs", "refused"):
        spark.read.format("delta").load(f"{folder}/{name}").coalesce(1).write.parquet(f"{folder}/{name}-read")


def _start(result: Any, folder: Path, **how: Any) -> Any:
    sinks = ("parquet", {"path": f"{folder}/started"}), ("json", {"path": f"{folder}/rejects"})
    return ap.start(result, *sinks, checkpoint=f"{folder}/started-checkpoint", **how)


STEPS = {step.__name__: step for step in (answers, starts, goes_on, refused, tables)}


def main() -> None:
    """Do a step in a session of its own."""
    step, remote, folder = sys.argv[1:]
    spark: Any = SparkSession.builder.remote(remote).getOrCreate()
    STEPS[step](spark, Path(folder))
    spark.stop()


if __name__ == "__main__":
    main()
