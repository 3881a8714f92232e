"""Archive Spark's classes for the JVM: loaded and verified once, then mapped by every session that follows.

Most of what a session's first query costs Java is the loading of some fifteen thousand classes. Class-data sharing
(JEP 310, JEP 350) does that once. The JVM ignores an archive that does not fit its version or its jars.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from appulse.engines.spark.gateway import JAVA_OPTIONS, SILENT, Archives
from appulse.engines.spark.java import find_java
from appulse.engines.spark.probe import run_probe
from appulse.engines.spark.session import session
from appulse.errors import SessionError

__all__ = ["archive_classes"]

_PATIENCE = 300.0  # seconds


def archive_classes() -> Path:
    """Run a small streaming query and archive the classes that it loads, unless that has been done.

    Raises `SessionError` where Java writes no archive, or does not take the one that it wrote: Java 21 refuses Spark's
    class path, which names a jar twice.
    """
    java = find_java()
    found = Archives.of(java)
    if found.option:
        return found.spark
    if ":" in str(found.java):
        raise SessionError(f"Java cannot read archives of classes from {found.java.parent}. Sessions start without.")
    found.spark.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=found.spark.parent) as scratch:
        made = Archives(found.java, Path(scratch) / "spark.jsa")
        _run([str(java.home / "bin" / "java"), "-Xshare:dump", f"-XX:SharedArchiveFile={made.java}", *SILENT])
        _run([sys.executable, "-m", __name__, str(made.java), str(made.spark)])
        if not made.spark.exists():
            raise SessionError(f"Java wrote no archive of classes to {made.spark}. Sessions start without.")
        try:
            _run([sys.executable, "-m", __name__, str(made.java), str(made.spark)])
        except SessionError:
            raise SessionError(f"{java} does not take an archive of Spark's classes. Sessions start without.") from None
        made.spark.rename(found.spark)
    return found.spark


def _run(program: list[str]) -> None:
    try:
        done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=_PATIENCE)
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise SessionError(f"{program[0]} wrote no archive of classes ({problem}). Sessions start without.") from None
    if done.returncode:
        said = [*done.stdout.splitlines(), *done.stderr.splitlines(), f"exit code {done.returncode}"]
        raise SessionError(f"{program[0]} wrote no archive of classes ({said[-2:][0]}). Sessions start without.")


def _use(archives: Archives) -> None:
    """Run a query in a session whose JVM writes the archive as it ends; with one that is there, only start it."""
    there = archives.option
    write = [f'"-XX:SharedArchiveFile={archives.java}"', f'"-XX:ArchiveClassesAtExit={archives.spark}"', *SILENT]
    spark = session(1, **{JAVA_OPTIONS: f"{there} -Xshare:on" if there else " ".join(write)})
    if not there:
        run_probe(spark)
    gateway: Any = SparkContext._gateway  # noqa: SLF001 - there is no public way to end a JVM
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_PATIENCE)


if __name__ == "__main__":
    _use(Archives(*map(Path, sys.argv[1:])))
