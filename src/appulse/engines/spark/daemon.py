"""The parent of Spark's Python workers, with appulse loaded: a worker is then forked in milliseconds.

Spark's own daemon forks bare workers, and each imports Numba, pandas and pyarrow and loads its kernels again: seconds
of processor time a worker, several workers a core, at every start of a session. `session` names this module in
``spark.python.daemon.module``.

Kernels are loaded here where `appulse.engines.warm` has compiled them. Elsewhere that would take minutes, in which
Spark gets no worker; there each worker compiles what its job needs, and keeps it on disk.
"""

from __future__ import annotations

import gc
import os
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

from pyspark.daemon import manager

import appulse.engines.spark.join.call
import appulse.engines.spark.processor  # noqa: F401 - loaded for the workers to be
from appulse.engines.warm import is_compiled, warm

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOOK_EVERY = 0.5  # seconds


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


if __name__ == "__main__":
    with ending_with_parent():
        if is_compiled():
            warm()
    # Spark collects garbage after each task of a worker. Over all that is loaded here that takes a tenth of a second,
    # and copies the parent's memory into the worker.
    gc.collect()
    gc.freeze()
    manager()
