"""Aircraft below the least separation, and how sure one can be of it: 5 nautical miles and 1,000 feet.

    python examples/aircraft.py [--tracks FILE] [--picture FILE]

A day of aircraft above Switzerland (OpenSky Network, 2018), or, where that file is not there, the generated twin of
`appulse demo aircraft`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd
from data_folder import data_at

from appulse.cli.demos.aircraft import FOOT, report, twin

OUT = Path(__file__).resolve().parent.parent / "out" / "aircraft" / "alarms.png"


def main() -> None:
    """Count alarms by threshold, say the most probable ones, and draw both."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tracks", type=Path, default=data_at("swiss_day_adsb/swiss_day.parquet"))
    parser.add_argument("--picture", type=Path, default=OUT)
    asked = parser.parse_args()
    real = asked.tracks.exists()
    rows = read(asked.tracks) if real else twin()
    source = str(asked.tracks) if real else f"a generated twin, as there is no {asked.tracks}"
    print(f"{len(rows):,} reports of {rows['aircraft'].nunique()} aircraft from {source}")
    report(rows, asked.picture, print)


def read(file: Path) -> pd.DataFrame:
    """Reports: ``aircraft, at, lat, lon, up``, in metres."""
    known = {"icao24": "aircraft", "timestamp": "at", "latitude": "lat", "longitude": "lon", "altitude": "up"}
    rows = pd.read_parquet(file, columns=list(known)).rename(columns=known)
    return rows.assign(up=rows["up"] * FOOT)


if __name__ == "__main__":
    main()
