"""Spark sessions: make one that suits appulse, or say what a user's own lacks.

Settings are set on the sessions made here and never changed on anybody else's.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from appulse.engines.spark.gateway import JAVA_OPTIONS, environment, start_jvm
from appulse.engines.spark.installation import available_cores, available_memory, foreign_spark_home, release
from appulse.engines.spark.java import LATER_C2
from appulse.errors import BadArgument, SessionError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["check_session", "is_running", "session"]

Setting = str | int | float | bool

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
_MASTER = "spark.master"
_PYTHON = "spark.pyspark.python"
_POLICY = "spark.sql.streaming.multipleWatermarkPolicy"
_PARTITIONS = "spark.sql.shuffle.partitions"
_ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_REUSE = "spark.python.worker.reuse"
_CHECKPOINTS = "spark.sql.streaming.checkpointFileManagerClass"

# On a local disk Spark's default manager starts some fifty processes a micro-batch (readlink) and deletes a file before
# it renames another over it; this one starts none, and its rename is the system's, which is atomic. Measured: a
# stateful micro-batch of 1,000 rows in 360-500 ms instead of 620-650.
#
# That manager leaves a file of the same name as it is. A batch that runs again (its sink failed) would so keep the
# state files of the attempt before; in Spark's second format every attempt's files have names of their own.
_STREAMING = "org.apache.spark.sql.execution.streaming"
_PACKAGE = f"{_STREAMING}.checkpointing" if release(pyspark.__version__) >= (4, 1) else _STREAMING
_LOCAL_CHECKPOINTS = f"{_PACKAGE}.FileSystemBasedCheckpointFileManager"

_STATE_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"

_ROWS_PER_BATCH = 20_000
_GIB = 2**30


def session(cores: int | None = None, **settings: Setting) -> SparkSession:
    """A Spark session with what appulse needs, on this machine or on a cluster; see `appulse.session`."""
    asked = _asked(cores, settings)
    local = asked.get(_MASTER, _master(1)).startswith("local")
    if os.environ.get("SPARK_REMOTE"):
        raise SessionError(
            "SPARK_REMOTE is set, and appulse.session() makes local sessions. Unset it, "
            "or use SparkSession.builder.getOrCreate() and give appulse frames of that session."
        )
    if is_running():
        return _running(asked)
    if mismatch := foreign_spark_home():
        raise SessionError(mismatch)

    conf = SparkConf(loadDefaults=False)
    defaults = _defaults() | (_local_defaults(cores or available_cores()) if local else {})
    for name, value in (defaults | asked).items():
        conf.set(name, value)
    conf.set(JAVA_OPTIONS, f"{_java_options()} {asked.get(JAVA_OPTIONS, '')}".strip())
    with environment(**_pythons(asked, local=local)):
        gateway = SparkContext._gateway or start_jvm(conf)  # noqa: SLF001 - a JVM outlives its sessions
        made = SparkSession(SparkContext(conf=conf, gateway=gateway))
    if not local and _PARTITIONS not in asked:  # Spark's default of 200 is 200 states to keep
        made.conf.set(_PARTITIONS, _cluster_cores(made, asked))
    return made


def is_running() -> bool:
    """Whether this process has a Spark session already, in whichever thread."""
    return SparkContext._active_spark_context is not None  # noqa: SLF001 - PySpark knows it only per thread


def check_session(spark: SparkSession) -> list[str]:
    """What would help a session run appulse faster, one sentence each.

    Raises ``SessionError`` naming the setting where the session lacks what appulse cannot do without.
    """
    provider = _get(spark, _PROVIDER)
    if "RocksDB" not in provider:
        raise SessionError(
            f"{_PROVIDER} is {provider!r}, and stateful Python operators need RocksDB. "
            f"Set it to {_ROCKSDB!r} before the query starts, or use appulse.session()."
        )
    if (policy := _get(spark, _POLICY)) != "min":
        raise SessionError(f"{_POLICY} is {policy!r}: rows of a merely slower stream would be late. Set it to 'min'.")
    if _get(spark, _CHECKPOINTS) == _LOCAL_CHECKPOINTS and _get(spark, _STATE_FORMAT) != "2":
        raise SessionError(
            f"{_CHECKPOINTS} is {_LOCAL_CHECKPOINTS}, which does not replace files: a batch that runs again would keep "
            f"the state of the attempt before. Set {_STATE_FORMAT} to 2, or take Spark's own manager."
        )
    advice: list[str] = []
    if _get(spark, _CHANGELOG) != "true":
        advice.append(f"{_CHANGELOG} is off: each micro-batch uploads whole state files. Set it to true.")
    if 0 < int(_get(spark, _ARROW_ROWS)) < _ROWS_PER_BATCH:
        advice.append(f"{_ARROW_ROWS} is small: batches of {_ROWS_PER_BATCH} rows cost less per row.")
    if _get(spark, _REUSE, "true") != "true":
        advice.append(f"{_REUSE} is off: each task starts a Python and reads its state anew. Set it to true.")
    master = _get(spark, _MASTER)
    if master.startswith("local"):
        if "," not in master:
            advice.append(f"spark.master is {master!r}, which never retries a failed task. Use 'local[N,4]'.")
        if _get(spark, _CHECKPOINTS) == "unset":
            advice.append(
                f"{_CHECKPOINTS} is unset: checkpoints on a local disk are faster with {_LOCAL_CHECKPOINTS}, "
                f"which is safe only together with {_STATE_FORMAT}=2."
            )
    return advice


def _asked(cores: int | None, settings: Mapping[str, Setting]) -> dict[str, str]:
    if cores is not None and (type(cores) is not int or cores < 1):
        raise BadArgument(f"cores must be a whole number of at least 1, not {cores!r}")
    for name in settings:
        if not name.startswith("spark."):
            raise BadArgument(
                f"{name!r} is no Spark setting; settings go by their full names: "
                "session(**{'spark.driver.memory': '8g'})"
            )
    asked = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings.items()}
    if cores is not None:
        if not asked.get(_MASTER, "local").startswith("local"):
            raise BadArgument(
                f"cores={cores} is for a session on this machine, and {_MASTER} is {asked[_MASTER]!r}. Give the "
                "cluster's own settings: spark.cores.max, or spark.executor.instances and spark.executor.cores."
            )
        asked = {_MASTER: _master(cores), _PARTITIONS: str(cores)} | asked
    return asked


def _running(asked: Mapping[str, str]) -> SparkSession:
    spark = SparkSession.builder.getOrCreate()
    for name, value in asked.items():
        if (is_set := _get(spark, name)) != value:
            raise SessionError(
                f"a Spark session already runs, with {name}={is_set} where {value} is asked for. "
                "Stop it with spark.stop() first, or call session() without that argument."
            )
    check_session(spark)
    return spark


def _defaults() -> dict[str, str]:
    """What suits any master."""
    return {
        "spark.app.name": "appulse",
        "spark.python.daemon.module": "appulse.engines.spark.daemon",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # On, stateless and stateful stages get workers of different environments, each from a daemon of its own.
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
        _ARROW_ROWS: str(_ROWS_PER_BATCH),
        _CHANGELOG: "true",
        _PROVIDER: _ROCKSDB,
        _REUSE: "true",
    }


def _local_defaults(cores: int) -> dict[str, str]:
    """What suits a session on this machine alone, which nothing from outside has to reach."""
    memory = min(max(available_memory() // 4, _GIB), 8 * _GIB)  # the rest is for Python workers and RocksDB
    return {
        _MASTER: _master(cores),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": f"{memory // 2**20}m",
        "spark.pyspark.python": sys.executable,
        _CHECKPOINTS: _LOCAL_CHECKPOINTS,
        _STATE_FORMAT: "2",
        _PARTITIONS: str(cores),
    }


def _pythons(asked: Mapping[str, str], *, local: bool) -> dict[str, str]:
    """The interpreters of driver and workers, as environment variables.

    On this machine workers must be this very Python, for any other may lack appulse. On a cluster they are what the
    setting or the environment of the user says.
    """
    own = {"PYSPARK_DRIVER_PYTHON": sys.executable}
    if local:
        return own | {"PYSPARK_PYTHON": sys.executable}
    return own | ({"PYSPARK_PYTHON": asked[_PYTHON]} if _PYTHON in asked else {})


def _cluster_cores(spark: SparkSession, asked: Mapping[str, str]) -> int:
    """The cores of a cluster: those that were asked for, else those that have registered by now."""
    if most := asked.get("spark.cores.max"):
        return int(most)
    if executors := asked.get("spark.executor.instances"):
        return int(executors) * int(asked.get("spark.executor.cores", "1"))
    return max(2, spark.sparkContext.defaultParallelism)


def _master(cores: int) -> str:
    return f"local[{cores},4]"  # a plain local[N] never retries a failed task


def _java_options() -> str:
    # Measured on 2 cores: with ParallelGC a session starts 0.4 s sooner than with the default collector and a large
    # micro-batch takes a seventh less.
    log = Path(__file__).with_name("log4j2.properties").as_uri()
    return f"-XX:+UseParallelGC {LATER_C2} -Dlog4j2.configurationFile={log}"


def _get(spark: SparkSession, name: str, default: str = "unset") -> str:
    try:
        return spark.conf.get(name) or ""
    except PySparkException:  # neither set nor known to have a default
        return default
