"""What the examples share: positions on a flat map, to draw them, and tables to streams of files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

EARTH = 6_371_000.0  # metres


def project(latitude: pd.Series, longitude: pd.Series, centre: tuple[float, float]) -> tuple[pd.Series, pd.Series]:
    """Metres east and north of a centre: good to a part in a thousand over a city."""
    x = EARTH * np.cos(np.radians(centre[0])) * np.radians(longitude - centre[1])
    y = EARTH * np.radians(latitude - centre[0])
    return x, y


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
