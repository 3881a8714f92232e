"""The commute that leaves its usual route: stretches of a trip that no other trip comes near.

    python examples/commute.py [--track FILE] [--picture FILE]

A GPS track of one person around Castanet-Tolosan, France, with a point every 2.4 m. Where that file is not there, a
generated twin. A trip goes from the start until it is back there. `ap.outliers` compares the points of each trip with
those of all others: a point is off the route if with 90 % none of them is within 30 m. The clock of the track is made
up, so only the places count: a point's time is its number.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from data_folder import data_at

import appulse as ap
from appulse.lab.style import INK, QUIET, style, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OUT = Path(__file__).resolve().parent.parent / "out" / "commute"
STEP, HOME = 2.4, 100.0  # metres between points; how near the start a trip begins and ends
PLACE = ap.Position("lat", "lon", sigma=5.0)
NEAR, SURE, LEAST = 30.0, 0.9, 50.0  # metres, a probability, metres
NORTH = 111_200.0  # metres a degree
COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def main() -> None:
    """Find the stretches that one trip has for itself, and draw them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--track", type=Path, default=data_at("gps_commute_castanet/track.parquet"))
    parser.add_argument("--picture", type=Path, default=OUT / "off_route.png")
    asked = parser.parse_args()
    real = asked.track.exists()
    points = trips(pd.read_parquet(asked.track, columns=["lat", "lon"]) if real else twin())
    print(
        f"{points['trip'].nunique()} trips, {len(points):,} points from {asked.track if real else 'a generated twin'}"
    )
    off = stretches(points, off_route(points))
    for one in off.itertuples():
        print(f"Trip {one.trip} is off the usual route for {one.metres:,.0f} m")
    draw(points, off, asked.picture)
    print(f"The picture: {asked.picture}")


def twin(seed: int = 0) -> pd.DataFrame:
    """Eight rounds of one way with errors of 4 m; the sixth goes around a block."""
    chance, parts = np.random.default_rng(seed), []
    corners = np.array([(0, 0), (600, 0), (600, 500), (900, 500), (900, 900), (0, 900), (0, 0)], float)
    block = np.array([(900, 500), (1200, 500), (1200, 800), (900, 800)], float)
    for trip in range(8):
        way = np.concatenate([corners[:4], block[1:], corners[4:]]) if trip == 5 else corners
        length = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(way, axis=0).T))])
        at = np.arange(0.0, length[-1], STEP)
        parts.append(np.column_stack([np.interp(at, length, way[:, i]) for i in (0, 1)]))
    x, y = (np.concatenate(parts) + chance.normal(0.0, 4.0, (sum(map(len, parts)), 2))).T
    return pd.DataFrame({"lat": 43.5 + y / NORTH, "lon": 1.5 + x / (NORTH * np.cos(np.radians(43.5)))})


def trips(track: pd.DataFrame) -> pd.DataFrame:
    """The points away from the start, ``point, trip, lat, lon, x, y``; x and y are metres east and north of it."""
    first = track.iloc[0]
    x = (track["lon"] - first["lon"]) * NORTH * np.cos(np.radians(first["lat"]))
    y = (track["lat"] - first["lat"]) * NORTH
    away = np.hypot(x, y) > HOME
    trip = (away & ~away.shift(fill_value=False)).cumsum()
    points = pd.DataFrame({"point": np.arange(len(track)), "trip": trip, "lat": track["lat"], "lon": track["lon"]})
    points = points.assign(x=x, y=y)[away]
    points = points[points.groupby("trip")["point"].transform("size") * STEP > 4 * HOME].reset_index(drop=True)
    return points.assign(trip=pd.factorize(points["trip"])[0] + 1)


def off_route(points: pd.DataFrame) -> pd.Series:
    """Whether no other trip comes near each point."""
    alone = []
    for _, own in points.groupby("trip"):
        others = points[points["trip"] != own["trip"].iloc[0]]
        a, b = (ap.Stream(part, key="point", time="point", value=PLACE) for part in (own, others))
        asked = {"fewer_than": 1, "probability": SURE, "window": float(points["point"].max())}
        alone += ap.outliers(a, b, epsilon=NEAR, **asked)["key"].to_pylist()
    return points["point"].isin(alone)


def stretches(points: pd.DataFrame, alone: pd.Series) -> pd.DataFrame:
    """Stretches of at least 50 m, ``trip, first, last, metres``, the longest first."""
    near = points["point"].diff().eq(1) & points["trip"].diff().eq(0) & alone & alone.shift(fill_value=False)
    runs = points[alone].groupby((~near).cumsum()[alone])
    found = runs.agg(trip=("trip", "first"), first=("point", "first"), last=("point", "last"))
    found["metres"] = STEP * (found["last"] - found["first"])
    return found[found["metres"] >= LEAST].sort_values("metres", ascending=False).reset_index(drop=True)


def draw(points: pd.DataFrame, off: pd.DataFrame, file: Path) -> None:
    """The track, with the stretches that one trip has for itself; and how long they are, by trip."""
    from matplotlib.figure import Figure

    total = off.groupby("trip")["metres"].sum().sort_values(ascending=False)
    colours = dict(zip(total.index, COLOURS, strict=False))
    with style():
        figure = Figure(figsize=(11, 6.2))
        titled(
            figure,
            f"Trip {total.index[0]} is off the usual route for {total.iloc[0]:,.0f} m",
            f"Coloured: with 90 % no other trip is within {NEAR:.0f} m. All trips are grey.",
        )
        axes = figure.add_axes((0.02, 0.03, 0.62, 0.83))
        _map(axes, points, off, colours)
        axes = figure.add_axes((0.73, 0.12, 0.24, 0.7))
        trips = sorted(points["trip"].unique())
        lengths = [float(total.get(trip, 0.0)) for trip in trips]
        axes.barh([str(trip) for trip in trips], lengths, color=[colours.get(trip, QUIET) for trip in trips])
        axes.invert_yaxis()
        axes.set_xlabel("metres off the usual route")
        axes.set_ylabel("trip")
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file)


def _map(axes: Axes, points: pd.DataFrame, off: pd.DataFrame, colours: dict[int, str]) -> None:
    axes.scatter(points["x"], points["y"], s=1.5, color="#c3c8d1", rasterized=True)
    for one in off.itertuples():
        own = points[points["point"].between(one.first, one.last)]
        axes.plot(own["x"], own["y"], color=colours.get(one.trip, QUIET), linewidth=2.5, zorder=3)
    axes.scatter([0], [0], s=60, marker="*", color=INK, zorder=4)
    axes.annotate("start", (0, 0), (6, 6), textcoords="offset points", fontsize=9)
    left, low = points["x"].min(), points["y"].min()
    axes.plot([left, left + 200], [low - 60, low - 60], color=INK, linewidth=1.5)
    axes.text(left + 100, low - 50, "200 m", ha="center", va="bottom", fontsize=9)
    axes.set_aspect("equal")
    axes.set_axis_off()


if __name__ == "__main__":
    main()
