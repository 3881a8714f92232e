"""What appulse needs of a Spark session: read from its settings, of whichever kind it is.

Nothing here needs the JVM or `SparkContext`, which the client of Spark Connect does not have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyspark
from pyspark.errors import PySparkException

from appulse.engines.spark.installation import release
from appulse.errors import SessionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
MASTER = "spark.master"
POLICY = "spark.sql.streaming.multipleWatermarkPolicy"
ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
REUSE = "spark.python.worker.reuse"
TIME_TYPE = "spark.sql.parquet.outputTimestampType"
MICROS = "TIMESTAMP_MICROS"
CHECKPOINTS = "spark.sql.streaming.checkpointFileManagerClass"

# On a local disk Spark's default manager starts some fifty processes a micro-batch (readlink) and deletes a file before
# it renames another over it; this one starts none, and its rename is the system's, which is atomic. Measured: a
# stateful micro-batch of 1,000 rows in 360-500 ms instead of 620-650.
#
# That manager leaves a file of the same name as it is. A batch that runs again (its sink failed) would so keep the
# state files of the attempt before; in Spark's second format every attempt's files have names of their own.
_STREAMING = "org.apache.spark.sql.execution.streaming"
_PACKAGE = f"{_STREAMING}.checkpointing" if release(pyspark.__version__) >= (4, 1) else _STREAMING
LOCAL_CHECKPOINTS = f"{_PACKAGE}.FileSystemBasedCheckpointFileManager"

PARTITIONS = "spark.sql.shuffle.partitions"
STATE_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"

ROWS_PER_BATCH = 20_000
_USUAL_PARTITIONS = "200"  # where nobody has set another number


def check_session(spark: SparkSession) -> list[str]:
    """What would help a session run appulse faster, one sentence each.

    Raises ``SessionError`` naming the setting where the session lacks what appulse cannot do without.
    """
    provider = get_setting(spark, PROVIDER)
    if "RocksDB" not in provider:
        raise SessionError(
            f"{PROVIDER} is {provider!r}, and stateful Python operators need RocksDB. "
            f"Set it to {ROCKSDB!r} before the query starts, or use appulse.session()."
        )
    if (policy := get_setting(spark, POLICY)) != "min":
        raise SessionError(f"{POLICY} is {policy!r}: rows of a merely slower stream would be late. Set it to 'min'.")
    if get_setting(spark, CHECKPOINTS) == LOCAL_CHECKPOINTS and get_setting(spark, STATE_FORMAT) != "2":
        raise SessionError(
            f"{CHECKPOINTS} is {LOCAL_CHECKPOINTS}, which does not replace files: a batch that runs again would keep "
            f"the state of the attempt before. Set {STATE_FORMAT} to 2, or take Spark's own manager."
        )
    advice: list[str] = []
    if get_setting(spark, CHANGELOG) != "true":
        advice.append(f"{CHANGELOG} is off: each micro-batch uploads whole state files. Set it to true.")
    if get_setting(spark, PARTITIONS) == _USUAL_PARTITIONS:  # a platform may have "auto"
        advice.append(
            f"{PARTITIONS} is {_USUAL_PARTITIONS}: each micro-batch has as many tasks, each with a state of its own. "
            "Set it to the number of cores before the first start; a checkpoint keeps it."
        )
    if 0 < int(get_setting(spark, ARROW_ROWS)) < ROWS_PER_BATCH:
        advice.append(f"{ARROW_ROWS} is small: batches of {ROWS_PER_BATCH} rows cost less per row.")
    if get_setting(spark, REUSE, "true") != "true":
        advice.append(f"{REUSE} is off: each task starts a Python and reads its state anew. Set it to true.")
    master = get_setting(spark, MASTER)
    if master.startswith("local"):
        if "," not in master:
            advice.append(f"spark.master is {master!r}, which never retries a failed task. Use 'local[N,4]'.")
        if get_setting(spark, CHECKPOINTS) == "unset":
            advice.append(
                f"{CHECKPOINTS} is unset: checkpoints on a local disk are faster with {LOCAL_CHECKPOINTS}, "
                f"which is safe only together with {STATE_FORMAT}=2."
            )
    return advice


def on_connect(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect, which has no JVM at hand."""
    return not hasattr(spark, "_jsc")


def get_setting(spark: SparkSession, name: str, default: str = "unset") -> str:
    """The value of a setting; ``default`` where it is neither set nor known to have a default."""
    try:
        return spark.conf.get(name) or ""
    except PySparkException:
        return default
