"""Start the JVM of a session: with the right Java and Python, and without its chatter on our stderr."""

from __future__ import annotations

import atexit
import os
import re
import sys
import threading
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from appulse.engines.spark.java import find_java
from appulse.errors import SessionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from py4j.java_gateway import JavaGateway
    from pyspark import SparkConf

__all__ = ["environment", "start_jvm"]

_PATIENCE = 5.0  # seconds: a Java that failed has said all it had to say, unless a child of it lives on

# What Spark's state workers print at each start of a query and the JVM at its own, whatever the log level.
_CHATTER = re.compile(
    r"\s*$|(Starting )?Streaming TransformWithState\w+ Python worker|WARNING: Using incubator modules"
)


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

    Lines go through ``sys.stderr``, so that whoever draws a progress line can put it back below them.
    """
    java = find_java()
    last_words: deque[str] = deque(maxlen=5)
    read, write = os.pipe()
    listener = threading.Thread(target=_listen, args=(read, last_words), name="appulse-jvm-stderr", daemon=True)
    listener.start()
    try:
        with environment(JAVA_HOME=str(java.home)):
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
