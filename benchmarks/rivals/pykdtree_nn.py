"""pykdtree: the nearest row, on one thread.

    OMP_NUM_THREADS=1 python pykdtree_nn.py left.parquet right.parquet

The rows have ``x`` and ``y``. Prints the seconds of the best of five runs after a first one, and the sum of the places.
"""

from __future__ import annotations

import json
import os
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import pyarrow.parquet as pq
from pykdtree.kdtree import KDTree


def main(left: str, right: str) -> None:
    """Build and ask."""
    ours, theirs = (
        np.column_stack([pq.read_table(path)[name].to_numpy() for name in ("x", "y")]) for path in (left, right)
    )
    seconds = []
    for _ in range(6):
        begun = time.perf_counter()
        _, places = KDTree(theirs).query(ours, k=1)
        seconds.append(time.perf_counter() - begun)
    print(json.dumps({"seconds": min(seconds[1:]), "places": int(places.astype(np.int64).sum())}))


if __name__ == "__main__":
    main(*sys.argv[1:])
