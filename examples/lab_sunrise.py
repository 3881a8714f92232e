"""A page of a laboratory that warms up: the sunny side first, then the rest.

    python examples/lab_sunrise.py [--begin 5] [--hours 12] [--out FILE]

Temperatures of 52 motes in the Intel Research lab in Berkeley, two days of 2004, every 30 seconds as the copy has them,
of which each tenth is taken; or, where that file is not there, a generated twin: a lab that is 42 m long, which the sun
warms from its south-eastern corner on. A phenomenon is a region of at least 3 motes, neighbours being at most 6 m
apart, whose readings of 15 minutes hang together: each at most 0.4 degrees from the next, and steady, that is three of
a mote's own that near to each other. The copy does not say when it begins; by its warmth, at about midnight.
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
DATA = "intel_lab"  # of the data
MIDNIGHT = pd.Timestamp("2004-02-28")  # the first day of the study; that of the copy is not known
MOTES = [mote for mote in range(1, 55) if mote not in (5, 15)]  # in the order of the columns


def main() -> None:
    """Find the phenomena and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=data_at(DATA))
    parser.add_argument("--begin", type=float, default=4.0, help="hours after midnight")
    parser.add_argument("--hours", type=float, default=14.0)
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "lab" / "sunrise.html")
    asked = parser.parse_args()
    if asked.data.exists():
        readings, places, source = *read(asked.data), "52 motes of the Intel Research lab, Berkeley"
    else:
        print(f"There is no {asked.data}, so this is a generated twin.")
        readings, places, source = *twin(), "a generated twin of 52 motes"
    begin = MIDNIGHT + pd.Timedelta(hours=asked.begin)
    end = begin + pd.Timedelta(hours=asked.hours)
    readings = readings[readings["time"].between(begin, end, inclusive="left")]
    found = regions(readings, places)
    page = phenomena_page(
        found,
        readings,
        places,
        title="A laboratory warms up: the sunny side first",
        note=f"Temperatures every 5 minutes, {source}. A phenomenon: at least 3 motes, each at most 6 m from the next, "
        "whose readings of a quarter of an hour hang together, each at most 0.4 °C from the next. Its value is their "
        "mean when its motes last changed.",
        unit="m",
        value_unit="°C",
    )
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(page, encoding="utf-8")
    print(f"{len(readings):,} readings, {found.num_rows:,} events. The page: {asked.out}")


def read(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Readings in order of time, and places in metres."""
    wide = pd.read_parquet(folder / "temperature_52_sensors_30s_2days.parquet").drop(columns="row").iloc[::10]
    places = pd.read_parquet(folder / "mote_locs.parquet").astype({"moteid": "int64"}).set_index("moteid").loc[MOTES]
    east = -places["x_location"].to_numpy(float)  # from the upper right corner to the left
    north = -places["y_location"].to_numpy(float)
    return _long(wide.to_numpy()), pd.DataFrame({"mote": MOTES, "x": east - east.min(), "y": north - north.min()})


def _long(values: Any) -> pd.DataFrame:
    wide = pd.DataFrame(values, columns=pd.Index(MOTES))
    wide.insert(0, "time", MIDNIGHT + pd.to_timedelta(5 * np.arange(len(values)), unit="min"))
    readings = wide.melt("time", var_name="mote", value_name="temperature").astype({"mote": "int64"})
    readings = readings[readings["temperature"] > 5.0]  # below stand readings that were dropped, and smeared
    return readings.sort_values(["time", "mote"], ignore_index=True)


def twin(hours: int = 24, seed: int = 1) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A lab of 42 by 32 m at 17 degrees, which from 7 o'clock on warms up by 7 from one corner, at 20 m an hour."""
    chance = np.random.default_rng(seed)
    cells = np.stack(np.meshgrid(np.arange(9), np.arange(6)), axis=-1).reshape(-1, 2)[: len(MOTES)]
    at = cells * [5.0, 6.0] + chance.uniform(-0.5, 0.5, (len(MOTES), 2))
    hour = np.arange(12 * hours)[:, None] / 12
    reached = 7.0 + np.hypot(at[:, 0] - 40.0, at[:, 1]) / 20.0
    values = 17.0 + 7.0 * np.clip((hour - reached) / 0.5, 0.0, 1.0) + chance.normal(0.0, 0.03, (len(hour), len(at)))
    return _long(values), pd.DataFrame({"mote": MOTES, "x": at[:, 0], "y": at[:, 1]})


def regions(readings: pd.DataFrame, places: pd.DataFrame) -> Any:
    """Regions of the lab that are about as warm."""
    return ap.phenomena(
        ap.Stream(readings, key="mote", time="time", value="temperature"),
        within=0.4,
        strength=3,
        span="15 minutes",
        min_sensors=3,
        locations=places,
        reach=6.0,
    )


if __name__ == "__main__":
    main()
