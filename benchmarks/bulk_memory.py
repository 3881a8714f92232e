"""Peak memory of a join by `ap.stream_batches`, in a process of its own: windows of rows from Parquet, to nowhere.

    python -m benchmarks.bulk_memory folder rows

Prints the peak of this process in bytes, and the number of pairs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import appulse as ap


def main(folder: str, window: str) -> None:
    """Join the two folders, and say how large the process has become."""
    left, right = (
        ap.Stream(None, key="k", time="t", value=ap.Exact("x", "y"), name=name) for name in ("left", "right")
    )
    join = ap.SimilarityJoin(left, right, epsilon=0.3, probability=1.0, window=float(window))
    reader = ap.stream_batches(join, left=Path(folder) / "left", right=Path(folder) / "right")
    pairs = sum(len(batch) for batch in reader)
    # Not `ru_maxrss`, which a process takes over from the one that started it.
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
    print(json.dumps({"peak": peak, "pairs": pairs}))


if __name__ == "__main__":
    main(*sys.argv[1:])
