"""A page of cold air that comes over a continent: where it grows colder, from day to day, and where warmer.

    python examples/cold_front.py [--begin 2016-12-06] [--days 14] [--out FILE]

Hourly temperatures of 30 cities of North America, December 2016 (the Historical Hourly Weather data), or, where that
file is not there, a generated twin: a front that goes from north-west to south-east at 50 km/h. A day is colder than
the one before or not, whatever the hour: so each reading is the mean of 24 hours, and slopes of 12 hours say where it
grows colder. A phenomenon is such a slope, in steps of half a kelvin an hour, of at least 3 cities, neighbours being at
most 900 km apart, in each of 3 hours.
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
DATA = "weather_hourly_36_cities"  # of the data
PLACE = ap.Position("latitude", "longitude")
KILOMETRES = 111.2  # of a degree
STEP = 0.5 / 3600  # kelvin a second: half a kelvin an hour


def main() -> None:
    """Find the phenomena and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=data_at(DATA))
    parser.add_argument("--begin", type=pd.Timestamp, default=pd.Timestamp("2016-12-06"))
    parser.add_argument("--days", type=int, default=14)
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "weather" / "front.html")
    asked = parser.parse_args()
    if asked.data.exists():
        wide, cities, source = *read(asked.data), "30 cities of North America"
    else:
        print(f"There is no {asked.data}, so this is a generated twin.")
        wide, cities, source = *twin(asked.begin), "a generated twin of 30 cities"
    end = asked.begin + pd.Timedelta(days=asked.days)
    readings = daily(wide[wide["time"].between(asked.begin, end, inclusive="left")])
    found = fronts(readings, cities)
    page = phenomena_page(
        found,
        readings,
        cities,
        title="Cold air over a continent",
        note=f"Temperatures, each the mean of 24 hours, {source}. A phenomenon: at least 3 cities, each at most 900 km "
        "from the next, whose means of 24 hours fell, or rose, alike over 12 hours, in steps of half a kelvin an hour.",
        labels=names(found),
        place=PLACE,
        value_unit="°C",
    )
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(page, encoding="utf-8")
    print(f"{len(readings):,} readings, {found.num_rows:,} events. The page: {asked.out}")


def read(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Temperatures in degrees Celsius, a column a city, and where cities are."""
    places = pd.read_parquet(folder / "city_attributes.parquet").query("Country != 'Israel'")
    wide = pd.read_parquet(folder / "temperature.parquet").rename(columns={"datetime": "time"})
    wide[places["City"]] -= 273.15
    known = {"City": "city", "Latitude": "latitude", "Longitude": "longitude"}
    cities = places[list(known)].rename(columns=known)
    return wide[["time", *places["City"]]], cities.reset_index(drop=True)


def twin(begin: pd.Timestamp, days: int = 6, seed: int = 1) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Days of 5 degrees up and down, and after two of them a front: 24 degrees colder within 12 hours."""
    chance = np.random.default_rng(seed)
    grid = np.stack(np.meshgrid(np.arange(6) - 2.5, np.arange(5) - 2.0), axis=-1).reshape(-1, 2)
    at = grid * [700.0, 500.0] + chance.uniform(-80.0, 80.0, grid.shape)
    names_ = [f"C{number:02d}" for number in range(len(at))]
    hours = np.arange(24 * days)[:, None]
    behind = 50.0 * (hours - 48) - (at[:, 0] - at[:, 1]) / np.sqrt(2.0) - 1500.0
    values = 10.0 + 5.0 * np.sin(hours * np.pi / 12) - 24.0 * np.clip(behind / 600.0, 0.0, 1.0)
    wide = pd.DataFrame(values + chance.normal(0.0, 0.1, values.shape), columns=names_)
    wide.insert(0, "time", begin + pd.to_timedelta(hours[:, 0], unit="h"))
    latitude = 39.0 + at[:, 1] / KILOMETRES
    longitude = -96.0 + at[:, 0] / KILOMETRES / np.cos(np.radians(latitude))
    return wide, pd.DataFrame({"city": names_, "latitude": latitude, "longitude": longitude})


def daily(wide: pd.DataFrame) -> pd.DataFrame:
    """Means of the 24 hours up to each, city by city."""
    means = wide.set_index("time").rolling(24).mean().dropna().reset_index()
    return means.melt("time", var_name="city", value_name="temperature").dropna().sort_values(["time", "city"])


def fronts(readings: pd.DataFrame, cities: pd.DataFrame) -> Any:
    """Regions in which it grows colder, or warmer, alike."""
    return ap.phenomena(
        ap.Stream(readings, key="city", time="time", value="temperature"),
        similar="slope",
        over="12 hours",
        resolution=STEP,
        strength=3,
        span="2 hours",
        min_sensors=3,
        locations=cities,
        place=PLACE,
        reach=900_000.0,
    )


def names(found: Any) -> dict[float, str]:
    """What a slope's bin is called: kelvin an hour."""
    lower = sorted(set(found["value"].to_pylist()))
    return {value: f"{3600 * value:+.1f} to {3600 * (value + STEP):+.1f} K/h" for value in lower}


if __name__ == "__main__":
    main()
