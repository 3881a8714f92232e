"""Where a region will be, by three ways, against standing still: why `appulse.phenomena` predicts nothing.

Centroids of regions of PM2.5 in Beijing and of temperatures of cities, one to six hours on. The third way knows how
much the other two are worth: by least squares over the first half of the time, shrunk to standing still by that; it is
judged by the second half, as all are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

import appulse as ap
from benchmarks.harness import say
from examples.data_folder import data_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

HOUR, LAST = 3600.0, 8  # points of a track
WAYS = ("carried on by the velocity", "mean of the last 8", "both, as the past says")


def fields(days: int) -> Iterator[tuple[str, pd.DataFrame, pd.DataFrame, float, float]]:
    """Readings, where their sensors are, how wide bins are, and how far neighbours (metres) are apart."""
    ground = pd.read_parquet(data_at("beijing_36_pm25/pm25_ground.parquet"))
    places = pd.read_parquet(data_at("beijing_36_pm25/pm25_latlng.parquet"))
    places = places.rename(columns={"sensor_id": "sensor", "latitude": "lat", "longitude": "lon"})
    yield "beijing_36_pm25", _long(ground, days), places[["sensor", "lat", "lon"]], 50.0, 20_000.0
    folder = data_at("weather_hourly_36_cities")
    cities = pd.read_parquet(folder / "city_attributes.parquet")
    cities = cities.rename(columns={"City": "sensor", "Latitude": "lat", "Longitude": "lon"})
    warm = pd.read_parquet(folder / "temperature.parquet")
    yield "weather_hourly_36_cities", _long(warm, days), cities[["sensor", "lat", "lon"]], 3.0, 800_000.0


def _long(wide: pd.DataFrame, days: int) -> pd.DataFrame:
    first = wide.columns[0]
    found = wide.melt(id_vars=[first], var_name="sensor", value_name="value").dropna().rename(columns={first: "time"})
    found["time"] = pd.to_datetime(found["time"])
    early: pd.DataFrame = found[found["time"] < found["time"].min() + pd.Timedelta(days=days)]
    return early.sort_values(["time", "sensor"])


def cases(regions: pd.DataFrame) -> tuple[Matrix, Matrix, Matrix]:
    """When something was predicted; what the two simple ways say, (n, 2, 2); and what came, (n, 2): kilometres off."""
    when, said, came = [], [], []
    for _, own in regions.groupby("phenomenon"):
        at = np.array([list(point) for point in own["centroid"]])
        at = at * np.array([np.cos(np.radians(at[:, 1].mean())), 1.0]) * 111.2
        time = own["time"].to_numpy().astype("datetime64[s]").astype(float)
        for i in range(1, len(time)):
            past, places = time[max(0, i - LAST + 1) : i + 1], at[max(0, i - LAST + 1) : i + 1]
            off = past - past.mean()
            speed = off @ places / (off @ off)
            for hours in range(1, 7):
                if time[-1] < time[i] + hours * HOUR:
                    break
                there = at[np.searchsorted(time, time[i] + hours * HOUR, side="right") - 1]
                when.append(time[i])
                said.append([speed * hours * HOUR, places.mean(axis=0) - at[i]])
                came.append(there - at[i])
    return np.array(when), np.array(said), np.array(came)


def predicted(*, quick: bool) -> dict[str, float]:
    """The mean error of the best of three ways over that of standing still, on the data set where it is greatest."""
    worst = dict.fromkeys(WAYS, 0.0)
    for name, readings, places, width, reach in fields(60 if quick else 300):
        regions = ap.phenomena(
            ap.Stream(readings, key="sensor", time="time", value="value"),
            resolution=width,
            strength=1,
            span="2 hours",
            min_sensors=3,
            locations=places,
            place=ap.Position("lat", "lon"),
            reach=reach,
            emit="regions",
        ).to_pandas()
        when, said, came = cases(regions)
        late = when > np.median(when)
        learned = said[~late].transpose(0, 2, 1).reshape(-1, 2)
        weights = np.linalg.lstsq(learned, came[~late].reshape(-1), rcond=None)[0]
        ways = (said[late, 0], said[late, 1], np.einsum("nwc,w->nc", said[late], weights))
        still = float(np.hypot(*came[late].T).mean())
        for way, moves in zip(WAYS, ways, strict=True):
            of_still = float(np.hypot(*(came[late] - moves).T).mean()) / still
            worst[way] = max(worst[way], of_still)
            say(f"{name}: {way} {of_still:.3f} of standing still, {still:.1f} km, {late.sum():,} predictions")
    return {"best_prediction_of_still": min(worst.values())}
