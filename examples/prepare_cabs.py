"""Turn the tracks of five San Francisco cabs into streams: a folder per cab, a Parquet file per six hours.

    python examples/prepare_cabs.py [--tracks FILE] [--out FOLDER]

The tracks are those of Cabspotting (24 days of 2008), or, where that file is not there, a generated twin: five cabs
that drive between a few busy places.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from data_folder import data_at
from tracks import stretches, write_stream

ROOT = Path(__file__).resolve().parent.parent
TRACKS = "sf_cabspotting/five_cabs.parquet"  # of the data
CITY = (37.76, -122.42)
CABS = ("abboip", "aiwalb", "akgicjud", "ugthfu", "uvreoipy")
PLACES = {  # where the twin's cabs wait for fares: latitude, longitude
    "garage": (37.7515, -122.3945),
    "hotels near Union Square": (37.7865, -122.4125),
    "Financial District": (37.7930, -122.3990),
    "Fisherman's Wharf": (37.8080, -122.4160),
    "airport": (37.6155, -122.3890),
}


def main() -> None:
    """Write the streams and say where they are."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tracks", type=Path, default=data_at(TRACKS))
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "cabs" / "input")
    asked = parser.parse_args()
    if asked.tracks.exists():
        fixes, source = read(asked.tracks), str(asked.tracks)
    else:
        fixes, source = twin(), f"a generated twin, as there is no {asked.tracks}"
    quarters = stretches(fixes["time"], every="6h")
    for cab, track in fixes.groupby("cab"):
        write_stream(track, asked.out / str(cab), quarters)
    print(f"{len(fixes):,} positions of {fixes['cab'].nunique()} cabs from {source} are in {asked.out}")


def read(file: Path) -> pd.DataFrame:
    """The positions of Cabspotting in time order, numbered."""
    fixes = pd.read_parquet(file, columns=["cab", "time", "latitude", "longitude"])
    fixes["time"] = pd.to_datetime(fixes["time"], unit="s", utc=True)
    fixes = fixes.sort_values(["time", "cab"], ignore_index=True)
    fixes.insert(0, "fix", fixes.index)
    return fixes


def twin(days: int = 24, seed: int = 1) -> pd.DataFrame:
    """Cabs that wait at a busy place, drive to another at some 8 m/s, and tell where they are once a minute."""
    chance = np.random.default_rng(seed)
    places = np.array(list(PLACES.values()))
    start, tracks = pd.Timestamp("2008-05-17 10:00", tz="UTC"), []
    for cab in CABS:
        minute, at, legs = 0, places[0], []
        while minute < days * 1440:
            waits = 1 + int(chance.exponential(12))
            to = places[chance.integers(len(places))] + chance.normal(0, 0.001, 2)
            drive = 2 + int(np.hypot(*(to - at)) * 111_000 / 8 / 60)
            legs += [np.repeat(at[None], waits, 0), np.linspace(at, to, drive)]
            minute, at = minute + waits + drive, to
        where = np.concatenate(legs)[: days * 1440] + chance.normal(0, 1e-4, (days * 1440, 2))
        seconds = np.arange(len(where)) * 60 + chance.integers(0, 60)
        time = start + pd.to_timedelta(seconds, unit="s")
        tracks.append(pd.DataFrame({"cab": cab, "time": time, "latitude": where[:, 0], "longitude": where[:, 1]}))
    fixes = pd.concat(tracks).sort_values(["time", "cab"], ignore_index=True)
    fixes.insert(0, "fix", fixes.index)
    return fixes


if __name__ == "__main__":
    main()
