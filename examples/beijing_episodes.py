"""A page of smog over Beijing: episodes appear, move over 36 stations and are blown away.

    python examples/beijing_episodes.py [--begin 2014-11-17] [--days 14] [--out FILE]

Hourly PM2.5 of 36 stations, with gaps as they are (the Urban Air project), or, where that file is not there, a
generated twin: two days of smog that a front from the north-west ends. A phenomenon is one of three classes of air,
held in 3 of 4 hours by at least 4 stations, neighbours being at most 30 km apart. The classes are those of China's
standard GB 3095-2012, though by the hour: below 75 µg/m³ is within the limit, 150 and more is heavy pollution
(HJ 633-2012).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from data_folder import data_at

import appulse as ap
from appulse.report.field_page import phenomena_page

ROOT = Path(__file__).resolve().parent.parent
DATA = "beijing_36_pm25"  # of the data
CENTRE = (39.93, 116.40)  # of the twin
KILOMETRES = 111.2  # of a degree
PLACE = ap.Position("latitude", "longitude")
CLASSES = {0.0: "clean", 75.0: "polluted", 150.0: "heavy smog"}  # by the lower end, µg/m³


def main() -> None:
    """Find the phenomena and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=data_at(DATA))
    parser.add_argument("--begin", type=pd.Timestamp, default=pd.Timestamp("2014-11-17"))
    parser.add_argument("--days", type=int, default=14)
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "beijing" / "episodes.html")
    asked = parser.parse_args()
    if asked.data.exists():
        readings, stations, source = *read(asked.data), "36 stations of the Urban Air project"
    else:
        print(f"There is no {asked.data}, so this is a generated twin.")
        readings, stations, source = *twin(asked.begin), "a generated twin of 36 stations"
    end = asked.begin + pd.Timedelta(days=asked.days)
    readings = readings[readings["time"].between(asked.begin, end, inclusive="left")]
    found = episodes(readings, stations)
    page = phenomena_page(
        found,
        readings[["station", "time", "PM2.5"]],
        stations,
        title="Smog over Beijing: where it appears, where it goes, how it ends",
        note=f"Hourly PM2.5, {source}. A phenomenon: a class of air (clean below 75 µg/m³, heavy smog from 150 on) "
        "that at least 4 stations, each at most 30 km from the next, held in 3 of 4 hours; so a region comes two hours "
        "after its air, and may outlast it by one.",
        labels=CLASSES,
        place=PLACE,
        value_unit="µg/m³",
    )
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(page, encoding="utf-8")
    print(f"{len(readings):,} readings, {found.num_rows:,} events. The page: {asked.out}")


def read(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Readings in order of time, and where stations are."""
    wide = pd.read_parquet(folder / "pm25_ground.parquet").rename(columns={"datetime": "time"})
    places = pd.read_parquet(folder / "pm25_latlng.parquet")
    return _long(wide), places.rename(columns={"sensor_id": "station"})[["station", "latitude", "longitude"]]


def _long(wide: pd.DataFrame) -> pd.DataFrame:
    readings = wide.melt("time", var_name="station", value_name="PM2.5").dropna()
    return readings.sort_values(["time", "station"], ignore_index=True)


def twin(begin: pd.Timestamp, days: int = 4, seed: int = 1) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Smog that comes from the south at 3 km/h, and after two days clean air from the north-west at 15 km/h."""
    chance = np.random.default_rng(seed)
    at = chance.uniform(-40.0, 40.0, (36, 2))
    names = [f"S{number:02d}" for number in range(len(at))]
    hours = np.arange(24 * days)[:, None]
    smog = np.clip((3.0 * hours - 40.0 - at[:, 1]) / 30.0, 0.0, 1.0)
    wind = np.clip((15.0 * (hours - 60) - 57.0 - (at[:, 0] - at[:, 1]) / np.sqrt(2.0)) / 20.0, 0.0, 1.0)
    pm = (30.0 + 220.0 * smog * (1.0 - wind)) * chance.lognormal(0.0, 0.1, smog.shape)
    wide = pd.DataFrame(pm.round(), columns=names)
    wide.insert(0, "time", begin + pd.to_timedelta(hours[:, 0], unit="h"))
    latitude = CENTRE[0] + at[:, 1] / KILOMETRES
    longitude = CENTRE[1] + at[:, 0] / KILOMETRES / np.cos(np.radians(latitude))
    return _long(wide), pd.DataFrame({"station": names, "latitude": latitude, "longitude": longitude})


def episodes(readings: pd.DataFrame, stations: pd.DataFrame) -> Any:
    """The phenomena of the classes of air."""
    ends = np.array(list(CLASSES))
    classes = ends[np.searchsorted(ends, readings["PM2.5"], side="right") - 1]
    return ap.phenomena(
        ap.Stream(readings.assign(air=classes), key="station", time="time", value="air"),
        strength=3,
        span="3 hours",
        min_sensors=4,
        locations=stations,
        place=PLACE,
        reach=30_000.0,
    )


if __name__ == "__main__":
    main()
