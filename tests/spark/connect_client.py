"""What `test_connect.py` runs as a client of Spark Connect: a join of a frame and of a stream, into Parquet.

python -m tests.spark.connect_client sc://127.0.0.1:15002 FOLDER
"""

from __future__ import annotations

import sys
from typing import Any

import pytest
from pyspark.sql import SparkSession

import appulse as ap

ASKED: dict[str, Any] = {"epsilon": 0.3, "probability": 0.5, "window": ap.TimeWindow(4)}


def stream(frame: Any, **settings: Any) -> ap.Stream[Any]:
    """The rows, as Gaussians."""
    return ap.Stream(frame, key="id", time="ts", value=ap.Gaussian("x", "y", sigma=0.1), **settings)


def main() -> None:
    """Write ``batch``, ``refused`` and ``streamed`` below the folder."""
    remote, folder = sys.argv[1:]
    spark: Any = SparkSession.builder.remote(remote).getOrCreate()
    frame = spark.read.parquet(f"{folder}/in")
    joined: Any = ap.self_join(stream(frame), **ASKED)
    joined.write.parquet(f"{folder}/batch")
    ap.rejects(joined).write.parquet(f"{folder}/refused")
    coming = spark.readStream.schema(frame.schema).parquet(f"{folder}/in")
    with pytest.raises(ap.BadArgument, match="give lateness="):
        ap.self_join(stream(coming), **ASKED)
    joined = ap.self_join(stream(coming, lateness="2 seconds"), **ASKED)
    with pytest.raises(ap.SessionError, match=r"Use result\.writeStream"):
        ap.start(joined, ("parquet", {"path": f"{folder}/out"}), checkpoint=f"{folder}/refused-checkpoint")
    writer = joined.writeStream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    query = writer.format("parquet").option("path", f"{folder}/streamed").start()
    query.awaitTermination()


if __name__ == "__main__":
    main()
