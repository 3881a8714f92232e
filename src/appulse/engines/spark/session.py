"""Spark sessions: make one that suits appulse, or say what a user's own lacks.

Settings are set on the sessions made here and never changed on anybody else's.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from appulse.engines.spark.gateway import JAVA_OPTIONS, environment, start_jvm
from appulse.engines.spark.installation import available_cores, available_memory, foreign_spark_home
from appulse.engines.spark.java import LATER_C2
from appulse.engines.spark.local_files import use_local_files
from appulse.engines.spark.settings import (
    ARROW_ROWS,
    CHANGELOG,
    CHECKPOINTS,
    LOCAL_CHECKPOINTS,
    MASTER,
    MICROS,
    PARTITIONS,
    PROVIDER,
    REUSE,
    ROCKSDB,
    ROWS_PER_BATCH,
    STATE_FORMAT,
    TIME_TYPE,
    check_session,
    get_setting,
)
from appulse.errors import BadArgument, SessionError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["check_session", "is_running", "session"]

Setting = str | int | float | bool

_PYTHON = "spark.pyspark.python"
_GIB = 2**30


def session(cores: int | None = None, **settings: Setting) -> SparkSession:
    """A Spark session with what appulse needs, on this machine or on a cluster; see `appulse.session`."""
    asked = _asked(cores, settings)
    local = asked.get(MASTER, _master(1)).startswith("local")
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
    if local:
        use_local_files(made.sparkContext)
    elif PARTITIONS not in asked:  # Spark's default of 200 is 200 states to keep
        made.conf.set(PARTITIONS, _cluster_cores(made, asked))
    return made


def is_running() -> bool:
    """Whether this process has a Spark session already, in whichever thread."""
    return SparkContext._active_spark_context is not None  # noqa: SLF001 - PySpark knows it only per thread


def _asked(cores: int | None, settings: Mapping[str, Setting]) -> dict[str, str]:
    if cores is not None and (type(cores) is not int or cores < 1):
        raise BadArgument(f"cores must be a whole number of at least 1, not {cores!r}")
    for name in settings:
        if not name.startswith("spark."):
            raise BadArgument(
                f"{name!r} is not a Spark setting; settings go by their full names: "
                "session(**{'spark.driver.memory': '8g'})"
            )
    asked = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings.items()}
    if cores is not None:
        if not asked.get(MASTER, "local").startswith("local"):
            raise BadArgument(
                f"cores={cores} is for a session on this machine, and {MASTER} is {asked[MASTER]!r}. Give the "
                "cluster's own settings: spark.cores.max, or spark.executor.instances and spark.executor.cores."
            )
        asked = {MASTER: _master(cores), PARTITIONS: str(cores)} | asked
    return asked


def _running(asked: Mapping[str, str]) -> SparkSession:
    spark = SparkSession.builder.getOrCreate()
    for name, value in asked.items():
        if (is_set := get_setting(spark, name)) != value:
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
        # What Spark remembers for its pages, plans and all: by default of the last 1,000, which a job reaches in hours.
        "spark.ui.retainedJobs": "200",
        "spark.ui.retainedStages": "200",
        "spark.sql.ui.retainedExecutions": "50",
        ARROW_ROWS: str(ROWS_PER_BATCH),
        CHANGELOG: "true",
        PROVIDER: ROCKSDB,
        REUSE: "true",
        TIME_TYPE: MICROS,
    }


def _local_defaults(cores: int) -> dict[str, str]:
    """What suits a session on this machine alone, which nothing from outside has to reach."""
    memory = min(max(available_memory() // 4, _GIB), 8 * _GIB)  # the rest is for Python workers and RocksDB
    return {
        MASTER: _master(cores),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": f"{memory // 2**20}m",
        "spark.pyspark.python": sys.executable,
        CHECKPOINTS: LOCAL_CHECKPOINTS,
        STATE_FORMAT: "2",
        PARTITIONS: str(cores),
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
