"""Sedona on Spark: points in polygons by ``ST_Intersects``, from Parquet to a sum.

    python sedona_polygons.py zones.parquet points.parquet cores

Zones have ``zone`` and ``region``, WKB; points ``fix``, ``x`` and ``y``. Prints the seconds of the best of two runs
after a first one, or of those begun in the first ten seconds, the number of matches, and a sum over them that depends
on which zone and fix are together.
"""

from __future__ import annotations

import json
import sys
import time

from pyspark.sql import SparkSession
from sedona.spark import SedonaContext

JAR = "org.apache.sedona:sedona-spark-shaded-4.0_2.13:1.8.0"
ENOUGH = 10.0  # seconds
QUERY = """
    SELECT count(*) AS n, sum((zone * 2654435761 + fix * 40503) % 1000003) AS total
    FROM zones JOIN points ON ST_Intersects(zones.area, points.at)
"""


def main(zones: str, points: str, cores: str) -> None:
    """Match, and say how long it took."""
    builder = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.jars.packages", JAR)
        .config("spark.driver.memory", "8g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", cores)
    )
    spark = SedonaContext.create(builder.getOrCreate())
    for name, path, columns in (
        ("zones", zones, ("zone", "ST_GeomFromWKB(region) AS area")),
        ("points", points, ("fix", "ST_Point(x, y) AS at")),
    ):
        spark.read.parquet(path).selectExpr(*columns).createOrReplaceTempView(name)
    seconds: list[float] = []
    row = spark.sql(QUERY).collect()[0]
    while len(seconds) < 2 and sum(seconds) < ENOUGH:
        begun = time.perf_counter()
        row = spark.sql(QUERY).collect()[0]
        seconds.append(time.perf_counter() - begun)
    print(json.dumps({"seconds": min(seconds), "matches": row["n"], "total": row["total"]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
