"""What this machine and this Python environment offer, learnt without importing anything heavy."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from appulse.errors import SessionError

__all__ = [
    "EXTRA",
    "OLDEST_SPARK",
    "available_cores",
    "available_memory",
    "foreign_spark_home",
    "installed",
    "need_spark",
    "release",
]

EXTRA = "pip install 'appulse[spark]'"
"""What installs all that Spark needs."""

OLDEST_SPARK = "4.0"
"""The first Spark with `transformWithStateInPandas`."""

_MODULES = {"pyspark": "pyspark", "pandas": "pandas", "protobuf": "google.protobuf"}


def available_cores() -> int:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available_memory() -> int:
    """Bytes of memory this process may use: the machine's, or its container's where that is less."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limits.append(int(Path(file).read_text()))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return min(limits)


def installed(package: str) -> str | None:
    """The installed version of a package, or ``None``."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def need_spark() -> None:
    """Raise `SessionError` unless all that the engine on Spark imports is installed, and new enough."""
    missing = [package for package, module in _MODULES.items() if not _importable(module)]
    if missing:
        raise SessionError(
            f"Spark needs {' and '.join(missing)}, not installed here. Install the extra: {EXTRA}."
            ' A job with engine = "local" needs none.'
        )
    found = installed("pyspark")
    if found is not None and release(found) < release(OLDEST_SPARK):
        raise SessionError(
            f"PySpark {found} is installed, and appulse runs on Spark {OLDEST_SPARK} or later. Upgrade it: {EXTRA}"
        )


def release(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: (4, 3, 0) of 4.3.0.dev1."""
    numbers: list[int] = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def _importable(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package around it
        return False


def foreign_spark_home() -> str | None:
    """What is wrong with ``SPARK_HOME``, if it makes PySpark start another Spark than its own."""
    home = os.environ.get("SPARK_HOME")
    ours = installed("pyspark")
    if not home or ours is None:
        return None
    jars = Path(home, "jars")
    theirs = sorted(jar.stem.rpartition("-")[2] for jar in jars.glob("spark-core_*.jar"))
    if theirs == [ours]:
        return None
    holds = f"Spark {', '.join(theirs)}" if theirs else "no Spark"
    return f"SPARK_HOME={home} holds {holds}, and the installed PySpark is {ours}. Unset SPARK_HOME."
