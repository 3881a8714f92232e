"""faiss: the pairs of vectors with at least a product, by a flat index, on one thread.

    python faiss_range.py left.npy right.npy 0.13

Prints the seconds of the best of three runs after a first one, and how many pairs there are.
"""

from __future__ import annotations

import json
import sys
import time

import faiss
import numpy as np


def main(left: str, right: str, least_product: str) -> None:
    """Fill the index and ask."""
    faiss.omp_set_num_threads(1)
    ours, theirs = np.load(left), np.load(right)
    seconds = []
    pairs = 0
    for _ in range(4):
        begun = time.perf_counter()
        index = faiss.IndexFlatIP(theirs.shape[1])
        index.add(theirs)
        limits, _, _ = index.range_search(ours, float(least_product))
        seconds.append(time.perf_counter() - begun)
        pairs = int(limits[-1])
    print(json.dumps({"seconds": min(seconds[1:]), "pairs": pairs}))


if __name__ == "__main__":
    main(*sys.argv[1:])
