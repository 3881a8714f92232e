"""What `test_delta.py` runs: corrections by Delta's change data feed, joined into a Delta table.

python -m tests.spark.delta_job FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd

import appulse as ap
from benchmarks.servers import DELTA, DELTA_SETTINGS, jars
from tests.conftest import FEW_ROWS

ASKED: dict[str, Any] = {"epsilon": 1.0, "probability": 0.5, "window": "1 hour"}
VALUE = ap.Gaussian("x", "y", sigma=0.2)


def main() -> None:
    """Two runs of one job; the table is corrected before each, and what it holds at last is written beside it."""
    folder = Path(sys.argv[1])
    fixes, sights, pairs = (str(folder / name) for name in ("fixes", "sights", "pairs"))
    settings: dict[str, Any] = {
        **DELTA_SETTINGS,
        **FEW_ROWS,
        "spark.jars": ",".join(map(str, jars(DELTA))),
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    spark = ap.session(2, **settings)
    spark.conf.set("spark.databricks.delta.properties.defaults.enableChangeDataFeed", "true")

    def append(path: str, start: int) -> None:
        rows = pd.DataFrame({"id": range(start, start + 20)})
        rows["at"] = pd.Timestamp("2026-01-01", tz="UTC") + pd.to_timedelta(rows["id"], unit="s")
        rows["x"], rows["y"] = rows["id"] * 0.5, 0.0
        spark.createDataFrame(rows).coalesce(1).write.format("delta").mode("append").save(path)

    def run(**settings: Any) -> None:
        feed = spark.readStream.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
        fixed = ap.Stream(feed.load(fixes), key="id", time="at", value=VALUE, change="_change_type", lateness="1 hour")
        seen = spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(sights)
        others = ap.Stream(seen, key="id", time="at", value=VALUE, lateness="1 hour")
        found = ap.similarity_join(fixed, others, **ASKED, emit="changes")
        sinks = ("delta", {"path": pairs, "partitionBy": "left_stream"}), ("delta", {"table": "rejects"})
        ap.start(found, *sinks, checkpoint=str(folder / "checkpoint"), **settings).awaitTermination()

    append(fixes, 0)
    append(sights, 0)
    spark.sql(f"UPDATE delta.`{fixes}` SET x = x + 3 WHERE id % 4 = 0")  # noqa: S608
    run(trigger={"availableNow": True})
    append(sights, 20)
    append(fixes, 20)
    spark.sql(f"DELETE FROM delta.`{fixes}` WHERE id % 5 = 1")  # noqa: S608
    spark.sql(f"UPDATE delta.`{fixes}` SET y = y + 0.5 WHERE id % 4 = 0")  # noqa: S608
    run(drain=True)
    # A batch that a crash had Spark write again finds its transaction in the log.
    versions = [json.loads(row) for row in spark.read.text(f"{pairs}/_delta_log/*.json").toPandas()["value"]]
    transactions = [(one["txn"]["appId"], one["txn"]["version"]) for one in versions if "txn" in one]
    (folder / "transactions.json").write_text(json.dumps(transactions))
    for name in ("fixes", "sights", "pairs"):
        spark.read.format("delta").load(str(folder / name)).toPandas().to_parquet(folder / f"{name}.parquet")
    spark.table("rejects").toPandas().to_parquet(folder / "rejects.parquet")


if __name__ == "__main__":
    main()
