"""The parent of Spark's Python workers, with appulse loaded: a worker is then forked in milliseconds.

Spark's own daemon forks bare workers, and each imports Numba, pandas and pyarrow and loads its kernels again: seconds
of processor time a worker, several workers a core, at every start of a session. `session` names this module in
``spark.python.daemon.module``.
"""

from __future__ import annotations

from pyspark.daemon import manager

import appulse.engines.spark.join.call
import appulse.engines.spark.processor  # noqa: F401 - loaded for the workers to be
from appulse.engines.warm import warm

if __name__ == "__main__":
    warm()
    manager()
