"""Say which stocks the job of stocks.toml found alike most often.

python examples/rank_stocks.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from appulse.errors import AppulseError
from appulse.lab.results import read_results

PAIRS = Path(__file__).resolve().parent.parent / "out" / "stocks" / "pairs"


def ranked(pairs: pd.DataFrame) -> pd.DataFrame:
    """Two stocks a row: how often they were alike, and how often on the same day."""
    sides = np.stack([pairs[f"{side}_key"].str.split(" ").str[0] for side in ("left", "right")], axis=1)
    first, second = np.sort(sides.astype(str), axis=1).T
    same = pairs["left_time"].to_numpy() == pairs["right_time"].to_numpy()
    found = pd.DataFrame({"first": first, "second": second, "alike": 1, "on the same day": same.astype(int)})
    return found.groupby(["first", "second"], as_index=False).sum()


def main() -> None:
    """Say the first twenty, of all pairs and of those of one day."""
    pairs = ranked(read_results(PAIRS))
    print(f"{pairs['alike'].sum():,} pairs of days of {len(pairs):,} pairs of stocks")
    for column in ("alike", "on the same day"):
        print(f"\nMost often {column}:\n{pairs.nlargest(20, column).to_string(index=False)}")


if __name__ == "__main__":
    try:
        main()
    except AppulseError as problem:
        sys.exit(str(problem))
