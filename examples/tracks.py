"""What the examples share: the way between positions, and tables to streams of files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pyproj

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

EARTH = pyproj.Geod(ellps="WGS84")


def ways(begin: pd.DataFrame, end: pd.DataFrame) -> NDArray[np.float64]:
    """The way from each row's ``latitude, longitude`` to that of the other's: metres east and north, a row each."""
    ends = (frame[name].to_numpy() for frame in (begin, end) for name in ("longitude", "latitude"))
    azimuth, _, metres = EARTH.inv(*ends)
    angle = np.radians(azimuth)
    return np.column_stack([metres * np.sin(angle), metres * np.cos(angle)])


def write_stream(rows: pd.DataFrame, folder: Path, stretches: pd.DatetimeIndex, by: str = "time") -> None:
    """A Parquet file per stretch of time, dated so that Spark takes them in that order; rows are in order ``by`` time.

    Spark reads the files of a stream by date of change, and files written one after the other may share one. A
    stretch without rows gets a file too: streams read so many files at a time then keep step.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.parquet"):
        old.unlink()
    table = pa.Table.from_pandas(rows, preserve_index=False)
    firsts = [*rows[by].searchsorted(stretches), len(rows)]
    for begin, first, end in zip(stretches, firsts[:-1], firsts[1:], strict=True):
        file = folder / f"{begin:%Y-%m-%dT%H}.parquet"
        pq.write_table(table.slice(first, end - first), file, coerce_timestamps="us")  # Spark reads no nanoseconds
        date = begin.timestamp()
        os.utime(file, (date, date))


def stretches(times: pd.Series, every: str) -> pd.DatetimeIndex:
    """The stretches of time that cover all of some times, by their beginnings."""
    return pd.date_range(times.min().floor(every), times.max(), freq=every)
