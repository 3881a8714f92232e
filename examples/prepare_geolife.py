"""Turn the GPS tracks of ten GeoLife users into one stream: a Parquet file per day.

    python examples/prepare_geolife.py [--tracks FILE] [--out FOLDER]

Users 000 to 009 carried a logger in Beijing in the autumn of 2008. Where that file is not there, a generated twin
serves: ten people who walk between a few places of a campus.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from data_folder import data_at
from tracks import stretches, write_stream

ROOT = Path(__file__).resolve().parent.parent
TRACKS = "geolife/users_000_010_october_2008.parquet"  # of the data
CITY = (39.98, 116.33)
USERS = [f"{number:03d}" for number in range(10)]


def main() -> None:
    """Write the stream and say where it is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tracks", type=Path, default=data_at(TRACKS))
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "geolife" / "input")
    asked = parser.parse_args()
    if asked.tracks.exists():
        fixes, source = read(asked.tracks), str(asked.tracks)
    else:
        fixes, source = twin(), f"a generated twin, as there is no {asked.tracks}"
    fixes = fixes.sort_values(["time", "user"], ignore_index=True)
    fixes.insert(0, "fix", fixes.index)
    write_stream(fixes, asked.out, stretches(fixes["time"], every="1D"))
    print(f"{len(fixes):,} positions of {fixes['user'].nunique()} users from {source} are in {asked.out}")


def read(file: Path) -> pd.DataFrame:
    """The positions of users 000 to 009."""
    fixes = pd.read_parquet(file, columns=["user", "datetime", "latitude", "longitude"])
    fixes = fixes[fixes["user"].isin(USERS)].rename(columns={"datetime": "time"})
    return fixes.assign(time=fixes["time"].dt.tz_localize("UTC"))


def twin(days: int = 10, seed: int = 1) -> pd.DataFrame:
    """People who log an hour a day, every five seconds, on walks between a few places."""
    chance = np.random.default_rng(seed)
    places = np.array(CITY) + chance.normal(0, 0.004, (6, 2))
    tracks = []
    for user in USERS:
        for day in range(days):
            begin = pd.Timestamp("2008-10-23", tz="UTC") + pd.Timedelta(days=day, hours=float(chance.integers(1, 4)))
            stops = places[chance.integers(len(places), size=7)]
            steps = np.linspace(0, 6, 720)
            where = np.stack([np.interp(steps, range(7), stops[:, i]) for i in range(2)], axis=1)
            where += chance.normal(0, 5e-5, where.shape)
            time = begin + pd.to_timedelta(np.arange(720) * 5, unit="s")
            tracks.append(pd.DataFrame({"user": user, "time": time, "latitude": where[:, 0], "longitude": where[:, 1]}))
    return pd.concat(tracks, ignore_index=True)


if __name__ == "__main__":
    main()
