"""SedonaDB: pairs of points within a distance and a time, from Parquet to a table of keys.

    python sedonadb_pairs.py left.parquet right.parquet epsilon window threads runs

The rows have ``k``, ``t``, ``x`` and ``y``. Prints the median seconds of processor time, and of the wall, of so many
runs after a first one, the number of pairs, and a sum over them that depends on which keys are together.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

import numpy as np
import pyarrow as pa
import sedonadb

QUERY = """
SELECT l.k AS l, r.k AS r FROM l JOIN r
ON ST_DWithin(ST_Point(l.x, l.y), ST_Point(r.x, r.y), {epsilon}) AND abs(l.t - r.t) <= {window}
"""


def main(left: str, right: str, epsilon: str, window: str, threads: str, runs: str) -> None:
    """Join, and say how long it took."""
    database = sedonadb.connect()
    database.sql(f"SET datafusion.execution.target_partitions = {threads}").execute()
    for name, path in (("l", left), ("r", right)):
        database.read_parquet(path).to_view(name, overwrite=True)
    query = QUERY.format(epsilon=epsilon, window=window)
    spent: list[tuple[float, float]] = []
    found = pa.table(database.sql(query))
    for _ in range(int(runs)):
        wall, own = time.perf_counter(), time.process_time()
        found = pa.table(database.sql(query))
        spent.append((time.process_time() - own, time.perf_counter() - wall))
    own, wall = (statistics.median(each) for each in zip(*spent, strict=True))
    ours, theirs = (found[name].to_numpy().astype(np.uint64) for name in ("l", "r"))
    with np.errstate(over="ignore"):
        total = int((ours * np.uint64(2654435761) ^ theirs * np.uint64(40503)).sum(dtype=np.uint64))
    print(json.dumps({"seconds": own, "wall": wall, "pairs": len(found), "total": total}))


if __name__ == "__main__":
    main(*sys.argv[1:])
