"""The library traffic: closest points of approach of all flights, within a lateral distance.

python traffic_cpa.py hour.parquet epsilon
"""

from __future__ import annotations

import json
import sys
import time

import pandas as pd
from traffic.core import Traffic


def main() -> None:
    """Print the time and the pairs."""
    rows, metres = pd.read_parquet(sys.argv[1]), float(sys.argv[2])
    flights = Traffic(
        pd.DataFrame(
            {
                "timestamp": pd.to_datetime(rows["t"], unit="us", utc=True),
                "icao24": rows["key"].astype(str),
                "callsign": rows["key"].astype(str),
                "flight_id": rows["key"].astype(str),
                "latitude": rows["lat"],
                "longitude": rows["lon"],
                "altitude": rows["z"] / 0.3048,
            }
        )
    )
    begin = time.perf_counter()
    found = flights.closest_point_of_approach(
        lateral_separation=metres, vertical_separation=1e9, max_workers=2, round_t="h"
    )
    seconds = time.perf_counter() - begin
    near = found.data[found.data["lateral"] * 1852 <= metres]
    pairs = {tuple(sorted((int(a), int(b)))) for a, b in zip(near["icao24_x"], near["icao24_y"], strict=True)}
    print(json.dumps({"seconds": seconds, "pairs": sorted(pairs)}))


if __name__ == "__main__":
    main()
