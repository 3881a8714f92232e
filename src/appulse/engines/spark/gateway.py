"""Start the JVM of a session: with the right Java and Python, and without its chatter on our stderr."""

from __future__ import annotations

import atexit
import os
import re
import sys
import sysconfig
import threading
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from appulse.engines.spark.java import cache_folder, find_java
from appulse.errors import SessionError
from appulse.model.meaning import digest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from py4j.java_gateway import JavaGateway
    from pyspark import SparkConf

    from appulse.engines.spark.java import Java

__all__ = ["JAVA_OPTIONS", "SILENT", "Archives", "environment", "kept_folder", "start_jvm"]

JAVA_OPTIONS = "spark.driver.extraJavaOptions"

#: What the JVM reports of classes that it cannot archive, and of an archive that does not fit, helps nobody.
SILENT = ("-Xlog:cds*=off", "-Xlog:class+path=off")

_WITHOUT_ARCHIVE = ("local", "spark://")  # masters to which the driver sends no archive of PySpark's sources
_PATIENCE = 5.0  # seconds: a Java that failed has said all it had to say, unless a child of it lives on

# What Spark's state workers print at each start of a query and the JVM at its own, whatever the log level.
_CHATTER = re.compile(
    r"\s*$|(Starting )?Streaming TransformWithState\w+ Python worker|WARNING: Using incubator modules"
)


@dataclass(frozen=True)
class Archives:
    """Where classes are that the JVM need not load one by one: Java's own, and on top of them Spark's."""

    java: Path
    spark: Path

    @classmethod
    def of(cls, java: Java) -> Archives:
        """Those of a Java, for the PySpark that is installed; they go with its environment, if it has one."""
        folder = kept_folder(
            "classes", str(java.home), java.version, pyspark.__version__, pyspark.__file__, str(spark_home())
        )
        return cls(folder / "java.jsa", folder / "spark.jsa")

    @property
    def option(self) -> str:
        """The options of a JVM that takes them; empty where `appulse.engines.spark.class_archive` has not run."""
        if not (self.java.exists() and self.spark.exists()):
            return ""
        return " ".join([f'"-XX:SharedArchiveFile={self.java}:{self.spark}"', *SILENT])


def spark_home() -> Path | None:
    """A home of the installed Spark without its archive of PySpark's sources; None where it would not do.

    Spark puts that archive in front of all that its Python processes import from, and Python compiles sources in an
    archive again in each process, one for each stateful stage of a query that starts. From a home without the archive
    they import the installed PySpark, which is compiled already.
    """
    installed = Path(pyspark.__file__).parent
    if os.environ.get("SPARK_HOME") or installed.parent != Path(sysconfig.get_path("purelib")):
        return None
    home = kept_folder("spark", str(installed))
    try:
        home.mkdir(parents=True, exist_ok=True)
        for name in ("bin", "conf", "jars", "sbin"):
            with suppress(FileExistsError):
                (home / name).symlink_to(installed / name)
    except OSError:
        return None
    return home


def kept_folder(kind: str, *of: str) -> Path:
    """A folder of what can be made again; it goes with the environment of Python, if there is one."""
    place = cache_folder() if sys.prefix == sys.base_prefix else Path(sys.prefix) / "cache"
    return place / f"{kind}-{digest(of)}"


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Set environment variables for the length of a block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def start_jvm(conf: SparkConf) -> JavaGateway:
    """Start a JVM for ``conf`` and hand its stderr on to ours, line by line, less the chatter.

    Lines go through ``sys.stderr``, so that a progress line can be drawn again below them.
    """
    java = find_java()
    options = conf.get(JAVA_OPTIONS, "") or ""
    if "-XX:SharedArchiveFile" not in options:
        conf.set(JAVA_OPTIONS, f"{Archives.of(java).option} {options}".strip())
    home = spark_home() if (conf.get("spark.master") or "").startswith(_WITHOUT_ARCHIVE) else None
    last_words: deque[str] = deque(maxlen=5)
    read, write = os.pipe()
    listener = threading.Thread(target=_listen, args=(read, last_words), name="appulse-jvm-stderr", daemon=True)
    listener.start()
    try:
        with environment(JAVA_HOME=str(java.home), **({} if home is None else {"SPARK_HOME": str(home)})):
            return launch_gateway(conf, {"stderr": write})
    except PySparkRuntimeError as problem:
        failure = problem
    finally:
        os.close(write)
    listener.join(_PATIENCE)
    raise SessionError(
        f"{java} started no Spark session; its last words: {' | '.join(last_words) or 'none'} "
        "`appulse doctor` checks the installation."
    ) from failure


def _listen(read: int, last_words: deque[str]) -> None:
    leaving = threading.Event()
    atexit.register(leaving.set)  # a daemon thread must not hold stderr while the interpreter goes down
    with os.fdopen(read, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if leaving.is_set() or _CHATTER.match(line):
                continue
            last_words.append(line.rstrip())
            sys.stderr.write(line)
            sys.stderr.flush()
