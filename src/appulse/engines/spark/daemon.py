"""The parent of Spark's Python workers, with appulse loaded: a worker is then forked in milliseconds.

Spark's own daemon forks bare workers, and each imports Numba, pandas and pyarrow and loads its kernels again: seconds
of processor time a worker, several workers a core, at every start of a session. `session` names this module in
``spark.python.daemon.module``.

The first workers load the kernels that their job needs, some thirty of a thousand: all of them take seconds, in which
Spark gets no worker. Where `appulse.engines.warm` has compiled them they are loaded here later, for workers to come:
Spark ends workers that had nothing to do for a minute. Elsewhere each worker compiles what it needs, and keeps it on
disk.

Spark puts archives of the sources of PySpark and Py4J in front of all that its processes import from, and Python
compiles such sources in each process. They are left out where the same versions lie beside appulse, compiled.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING
from zipimport import ZipImportError, zipimporter

if TYPE_CHECKING:
    from collections.abc import Iterator

_PACKAGES = Path(__file__).parents[3]
_LOOK_EVERY = 0.5  # seconds
_LATER, _BETWEEN = 60.0, 0.5  # seconds until the kernels are loaded, and between parts, in which workers are forked
# Of glibc's malloc.h, and bytes: at most so many stay, and what is larger comes from the system; that is the most.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT, _FROM_THE_HEAP = 1 << 28, 1 << 25
#: What workers import for their first tasks, loaded before they are forked.
NEEDED = ("appulse.engines.spark.join.call", "appulse.engines.spark.processor", "pyspark.worker", "scipy.special")


@contextmanager
def ending_with_parent() -> Iterator[None]:
    """End this process as soon as its parent does: Spark's own watch begins behind this block."""
    parent, done = os.getppid(), Event()

    def watch() -> None:
        while not done.wait(_LOOK_EVERY):
            if os.getppid() != parent:
                os._exit(1)

    watching = Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        done.set()
        watching.join()  # workers are forked from a process of one thread


def leave_out_sources(beside: Path) -> None:
    """Take archives of PySpark and Py4J from the path whose version is in the folder ``beside``, too."""
    for place in [place for place in sys.path if place.endswith(".zip")]:
        for package in ("pyspark", "py4j"):
            version = f"{package}/version.py"
            with suppress(OSError, ZipImportError):
                if zipimporter(place).get_data(version) == (beside / version).read_bytes():
                    sys.path.remove(place)
                    sys.path_importer_cache.pop(place, None)


def load_later(seconds: float = _LATER) -> None:
    """Load all kernels into this process after some seconds, bit by bit; workers that are forked then have them.

    By signals: threads do not go with a fork.
    """
    parent, parts = os.getpid(), _kernels()

    def load(*_: object) -> None:
        if os.getpid() == parent and next(parts, False):
            signal.setitimer(signal.ITIMER_REAL, _BETWEEN)

    signal.signal(signal.SIGALRM, load)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _kernels() -> Iterator[bool]:
    from appulse.engines.warm import in_parts, is_compiled

    if is_compiled():
        for _ in in_parts():
            yield True
        _keep()


def _keep() -> None:
    """Leave what is loaded by now to itself.

    Spark collects garbage after each task of a worker. Over all of this that would take longer than many a task, and
    copy the parent's memory into the worker.
    """
    gc.collect()
    gc.freeze()


def keep_memory() -> None:
    """Let this process and its workers keep what they free, where the C library has a setting for that.

    Arrays of some megabytes come and go with every micro-batch. Each would have new pages from the system, whose first
    touch costs more than what is done with them.
    """
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_TRIM_THRESHOLD, _KEPT)
        mallopt(_M_MMAP_THRESHOLD, _FROM_THE_HEAP)


def main() -> None:
    """Load what workers need, and fork them as Spark asks."""
    keep_memory()
    leave_out_sources(_PACKAGES)
    with ending_with_parent():
        for name in NEEDED:
            import_module(name)
        from numba.core.registry import cpu_target
        from pyspark.daemon import manager

        for context in (cpu_target.typing_context, cpu_target.target_context):  # as before Numba's first kernel
            context.refresh()
    _keep()
    load_later()
    manager()


if __name__ == "__main__":
    main()
