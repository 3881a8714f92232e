"""The parent of Spark's Python workers, with appulse loaded: a worker is then forked in milliseconds.

Spark's own daemon forks bare workers, and each imports Numba, pandas and pyarrow and loads its kernels again: seconds
of processor time a worker, several workers a core, at every start of a session. `session` names this module in
``spark.python.daemon.module``.

Kernels are loaded here where `appulse.engines.warm` has compiled them. Elsewhere that would take minutes, in which
Spark gets no worker; there each worker compiles what its job needs, and keeps it on disk.

Spark puts archives of the sources of PySpark and Py4J in front of all that its processes import from, and Python
compiles such sources in each process. They are left out where the same versions lie beside appulse, compiled.
"""

from __future__ import annotations

import gc
import os
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
#: What workers import for their first tasks, loaded before they are forked.
NEEDED = ("appulse.engines.spark.join.call", "appulse.engines.spark.processor", "pyspark.worker")


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


def main() -> None:
    """Load what workers need, and fork them as Spark asks."""
    leave_out_sources(_PACKAGES)
    with ending_with_parent():
        for name in NEEDED:
            import_module(name)
        from pyspark.daemon import manager

        from appulse.engines.warm import is_compiled, warm

        if is_compiled():
            warm()
    # Spark collects garbage after each task of a worker. Over all that is loaded here that would take longer than many
    # a task, and copy the parent's memory into the worker.
    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
