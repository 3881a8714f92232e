"""Aircraft through the sectors of an airspace, between two reports: which crossings a sparse feed misses.

    python examples/sectors.py [--tracks FILE] [--every SECONDS]

A day of aircraft above Switzerland (OpenSky Network, 2018), or, where that file is not there, the generated twin of
`appulse demo aircraft`. The sectors are made up: cells around 150 places, as real borders are not in the data. Reports
are 10 seconds apart. Of every twelfth of them, `fence_events` reports the sectors entered, and with `crossing=` those
passed between two reports; the whole track says which of these were passed indeed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import shapely
from aircraft import read
from data_folder import data_at

import appulse as ap
from appulse.cli.demos.aircraft import twin

ERROR = 50.0  # metres, the standard deviation east and north
LEAST = 0.9


def main() -> None:
    """Count sectors entered and crossed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tracks", type=Path, default=data_at("swiss_day_adsb/swiss_day.parquet"))
    parser.add_argument("--every", type=float, default=120.0)
    asked = parser.parse_args()
    rows = read(asked.tracks) if asked.tracks.exists() else twin()
    rows = rows.dropna(subset=["lat", "lon"]).drop_duplicates(["aircraft", "at"])
    zones = sectors(rows)
    passed = pairs(visits(rows, zones))
    sparse = thinned(rows, asked.every)
    found = visits(sparse, zones, crossing=LEAST)
    entered, crossed = pairs(found[found["event"] == "enter"]), pairs(found[found["event"] == "cross"])
    print(f"{len(rows):,} reports of {rows['aircraft'].nunique()} aircraft, {len(zones)} sectors")
    print(f"entered by all reports: {len(passed):,} pairs of aircraft and sector")
    print(f"by {len(sparse):,} reports {asked.every:.0f} s apart: {len(entered & passed):,} of them")
    more = crossed - entered
    print(f"crossed between two of these: {len(more):,} more, of which {len(more & passed):,} by all reports as well")


def sectors(rows: pd.DataFrame, n: int = 150) -> pd.DataFrame:
    """Cells around places, inside of which are all reports."""
    chance = np.random.default_rng(4)
    west, south, east, north = rows["lon"].min(), rows["lat"].min(), rows["lon"].max(), rows["lat"].max()
    places = shapely.multipoints(chance.uniform([west, south], [east, north], (n, 2)))
    around = shapely.box(west, south, east, north)
    cells = shapely.intersection(shapely.get_parts(shapely.voronoi_polygons(places, extend_to=around)), around)
    return pd.DataFrame({"query": [f"S{i:03}" for i in range(n)], "region": cells})


def thinned(rows: pd.DataFrame, seconds: float) -> pd.DataFrame:
    """Of each aircraft the first report in every so many seconds."""
    step = rows["at"].dt.floor(f"{seconds:.0f}s")
    return rows.sort_values("at").groupby([rows["aircraft"], step]).head(1)


def visits(rows: pd.DataFrame, zones: pd.DataFrame, crossing: float | None = None) -> pd.DataFrame:
    """Entries into sectors, and passages between two reports at most five minutes apart."""
    motion = None if crossing is None else ap.Straight(max_gap="5 minutes")
    value = ap.Position("lat", "lon", sigma=ERROR)
    reports = ap.Stream(rows, key="aircraft", time="at", value=value, motion=motion)
    found = ap.fence_events(reports, zones, enter=0.5, leave=0.1, crossing=crossing).to_pandas()
    return found[found["event"] != "exit"]


def pairs(events: pd.DataFrame) -> set[tuple[str, str]]:
    """The aircraft and sectors of some events."""
    return set(zip(events["key"], events["query"], strict=True))


if __name__ == "__main__":
    main()
