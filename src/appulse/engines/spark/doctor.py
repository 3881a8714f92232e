"""Look at what appulse runs on, and say what is wrong and what to do about it.

Everything but a deep examination is done without importing Spark or anything else that is heavy.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.util import cache_from_source, find_spec
from pathlib import Path
from typing import Literal

from appulse.engines.spark.installation import (
    EXTRA,
    OLDEST_SPARK,
    available_cores,
    available_memory,
    foreign_spark_home,
    installed,
    need_spark,
    release,
)
from appulse.engines.spark.java import cache_folder, find_java
from appulse.errors import SessionError

__all__ = ["Finding", "examine"]

State = Literal["ok", "advice", "wrong"]

_GIB = 2**30

# The least version of each package, and the first that is too new, as in pyproject.toml.
_PACKAGES = {
    "pyarrow": ("18", None),
    "numpy": ("2", None),
    "numba": ("0.61", None),
}
_OF_SPARK = {
    "pyspark": (OLDEST_SPARK, "4.4"),
    "pandas": ("2.2", "3"),
    "protobuf": ("6.33.5", None),
}


@dataclass(frozen=True)
class Finding:
    """One thing looked at: what was found, and the remedy unless all is well."""

    name: str
    state: State
    found: str
    remedy: str = ""


def examine(*, deep: bool = False) -> list[Finding]:
    """Look at everything a job needs; ``deep`` also starts a session and runs a stateful query on it.

    Where Spark is not installed, that is all there is to say of it.
    """
    findings = [
        _python(),
        _platform(),
        _cores(),
        _memory(),
        *(_package(name, least, below) for name, (least, below) in _PACKAGES.items()),
        _folder("temporary folder", Path(tempfile.gettempdir()), "TMPDIR"),
        _folder("cache folder", cache_folder(), "XDG_CACHE_HOME"),
        *_spark(),
    ]
    if deep:
        findings.append(_stateful_query())
    return findings


def _python() -> Finding:
    return Finding("Python", "ok", f"{platform.python_version()} ({sys.executable})")


def _platform() -> Finding:
    found = f"{platform.system()} {platform.release()} {platform.machine()}"
    if os.name != "posix":
        return Finding("platform", "advice", found, "appulse is tested on Linux and macOS. On Windows prefer WSL.")
    return Finding("platform", "ok", found)


def _cores() -> Finding:
    cores = available_cores()
    if cores < 2:
        return Finding("cores", "advice", str(cores), "A stream and its state want a core each: give the process two.")
    return Finding("cores", "ok", str(cores))


def _memory() -> Finding:
    memory = available_memory()
    found = f"{memory / _GIB:.1f} GiB"
    if memory < 3 * _GIB:
        return Finding("memory", "advice", found, "Spark and its workers want 4 GiB, or windows must be small.")
    return Finding("memory", "ok", found)


def _spark() -> list[Finding]:
    if installed("pyspark") is None:
        return [Finding("Spark", "advice", "not installed", f"Calls and jobs on Spark need it, others not: {EXTRA}")]
    packages = [_package(name, least, below) for name, (least, below) in _OF_SPARK.items()]
    return [*packages, _java(), _spark_home(), _worker_python(), _bytecode()]


def _package(name: str, least: str, below: str | None) -> Finding:
    version = installed(name)
    wanted = f"{name}>={least}" + (f",<{below}" if below else "")
    remedy = f'pip install "{wanted}"'
    if version is None:
        return Finding(name, "wrong", "not installed", remedy)
    if release(version) < release(least) or (below and release(version) >= release(below)):
        return Finding(name, "wrong", version, remedy)
    return Finding(name, "ok", version)


def _java() -> Finding:
    try:
        java = find_java()
    except SessionError as problem:
        return Finding("Java", "wrong", "none that runs Spark", str(problem))
    if java.passed_over:
        return Finding("Java", "advice", str(java), f"Passed over: {'; '.join(java.passed_over)}.")
    return Finding("Java", "ok", str(java))


def _folder(name: str, folder: Path, variable: str) -> Finding:
    remedy = f"Make it writable, or set {variable} to a folder that is, with room to spare."
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free
    except OSError as problem:
        return Finding(name, "wrong", f"{folder} cannot be written ({problem.strerror})", remedy)
    found = f"{folder}, {free / _GIB:.1f} GiB free"
    return Finding(name, "ok", found) if free > _GIB else Finding(name, "advice", found, remedy)


def _spark_home() -> Finding:
    home = os.environ.get("SPARK_HOME", "not set")
    if mismatch := foreign_spark_home():
        return Finding("SPARK_HOME", "wrong", home, mismatch)
    return Finding("SPARK_HOME", "ok", home)


def _worker_python() -> Finding:
    variable = "PYSPARK_PYTHON"
    python = os.environ.get(variable)
    if python is None:
        return Finding(variable, "ok", "not set")
    resolved = shutil.which(python)
    if resolved is not None and Path(resolved).absolute() == Path(sys.executable).absolute():
        return Finding(variable, "ok", python)
    remedy = f"Sessions of appulse use {sys.executable}; for your own, set {variable} to it or leave it unset."
    return Finding(variable, "advice", f"{python}, not the Python that runs this", remedy)


def _bytecode() -> Finding:
    """Images for containers often keep Python from writing it, and `uv` installs none."""
    name = "bytecode"
    spec = find_spec("pyspark")
    if not sys.dont_write_bytecode or spec is None or spec.origin is None:
        return Finding(name, "ok", "written on first use")
    if Path(cache_from_source(spec.origin)).exists():
        return Finding(name, "ok", "installed")
    return Finding(
        name,
        "advice",
        "none of PySpark, and PYTHONDONTWRITEBYTECODE is set",
        "Every Python process that Spark starts compiles PySpark again. Install with `uv pip install "
        "--compile-bytecode`, or run `python -m compileall` on the folder of packages.",
    )


def _stateful_query() -> Finding:
    name = "stateful query"
    try:
        need_spark()
        from appulse.engines.spark.probe import run_probe
        from appulse.engines.spark.session import is_running, session

        own = not is_running()
        begin = time.perf_counter()
        spark = session()
        started = time.perf_counter()
        run_probe(spark)
        ended = time.perf_counter()
        if own:
            spark.stop()
    except Exception as problem:  # noqa: BLE001 - whatever it is, it is what the doctor was asked for
        said = str(problem).strip().splitlines() or [type(problem).__name__]
        return Finding(name, "wrong", said[0], "Mend what is wrong above first; then the lines on stderr say more.")
    return Finding(name, "ok", f"session in {started - begin:.1f} s, query in {ended - started:.1f} s")
