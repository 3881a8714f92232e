"""Sedona: the nearest row of another table by ``ST_KNN``, from Parquet to a count.

    python sedona_knn.py left.parquet right.parquet cores

The rows have ``k``, ``x`` and ``y``. Prints the seconds of the best of three runs after a first one, and the sum of the
right keys.
"""

from __future__ import annotations

import json
import sys
import time

from pyspark.sql import SparkSession
from sedona.spark import SedonaContext

JAR = "org.apache.sedona:sedona-spark-shaded-4.0_2.13:1.8.0"


def main(left: str, right: str, cores: str) -> None:
    """Join, and say how long it took."""
    builder = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.jars.packages", JAR)
        .config("spark.driver.memory", "8g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", cores)
    )
    spark = SedonaContext.create(builder.getOrCreate())
    for name, path in (("l", left), ("r", right)):
        spark.read.parquet(path).selectExpr("k", "ST_Point(x, y) AS p").createOrReplaceTempView(name)
    query = "SELECT sum(r.k) AS total, count(*) AS n FROM l JOIN r ON ST_KNN(l.p, r.p, 1, false)"
    seconds, row = [], spark.sql(query).collect()[0]
    for _ in range(3):
        begun = time.perf_counter()
        row = spark.sql(query).collect()[0]
        seconds.append(time.perf_counter() - begun)
    print(json.dumps({"seconds": min(seconds), "total": row["total"], "rows": row["n"]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
