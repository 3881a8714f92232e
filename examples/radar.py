"""Which echo is which ship: AIS tracks and a radar with errors, misses and false echoes, scan by scan.

    python examples/radar.py [--ais FILE] [--picture FILE]

The ships off Portsmouth report by AIS every few seconds to minutes; between reports their place is what speed and
course say, with an error that grows. A radar is generated from where they were: it misses one ship in ten, is off by
25 metres, and reports a hundred echoes a scan that are nothing. Which echo belongs to which ship is known, so that
ways to tell can be counted. Where the file is not there, generated ships are taken.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from data_folder import data_at
from scipy.optimize import linear_sum_assignment

import appulse as ap
from appulse.lab.style import QUIET, style, titled

if TYPE_CHECKING:
    from numpy.typing import NDArray

OUT = Path(__file__).resolve().parent.parent / "out" / "radar" / "scan.png"
EVERY, OLDEST = 10.0, 180.0  # seconds between scans, and the oldest report that is a track
AIS, RADAR = 3.0, 25.0  # metres of error
MOORED, DRIFT, UNDER_WAY = 0.06, 0.35, 0.3  # metres of error for a second of age, and from what speed on (m/s)
SEEN, FALSE = 0.9, 100  # share of ships that a scan sees, and false echoes in each
NEAR, LEAST = 300.0, 0.05
KNOT, DEGREE = 1852.0 / 3600.0, 111_320.0


def main() -> None:
    """Generate scans, and count right pairs by four ways to find them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ais", type=Path, default=data_at("solent_ais/solent.parquet"))
    parser.add_argument("--picture", type=Path, default=OUT)
    asked = parser.parse_args()
    real = asked.ais.exists()
    reports = read(asked.ais) if real else twin()
    tracks, echoes = scans(reports, np.random.default_rng(0))
    both = len(set(zip(tracks["ship"], tracks["scan"], strict=True)) & set(_own(echoes)))
    print(
        f"{reports['ship'].nunique()} ships" + ("" if real else ", generated") + f", {tracks['scan'].nunique()} scans:"
    )
    print(f"{len(tracks):,} tracks, {len(echoes):,} echoes, {both:,} tracks with an echo of their own")

    left = ap.Stream(tracks, key="ship", time="scan", value=ap.Position("lat", "lon", sigma="sigma"), name="tracks")
    right = ap.Stream(echoes, key="echo", time="scan", value=ap.Position("lat", "lon", sigma=RADAR), name="echoes")
    near = ap.nearest(left, right, epsilon=NEAR, window=0).to_pandas()
    join = ap.similarity_join(left, right, epsilon=2.0 * RADAR, probability=0.5, window=0).to_pandas()
    one = ap.assign(left, right, epsilon=NEAR, probability=LEAST, window="tick").to_pandas()
    ship = echoes.set_index("echo")["ship"]
    ways = {
        "the nearest echo": near,
        "all within 50 m with probability 0.5": join,
        "global nearest neighbour": neighbours(tracks, echoes),
        "one to one by likelihood": one,
        "the same, where it is sure": one[one["margin"] >= np.log(10.0)],
    }
    for what, found in ways.items():
        right_ones = int((ship[found["right_key"]].to_numpy() == found["left_key"].to_numpy()).sum())
        shares = f"{right_ones / both:6.1%} of them found, {right_ones / len(found):6.1%}"
        print(f"  {what:38} {shares} of {len(found):,} right")
    draw(tracks, echoes, one, asked.picture)
    print(f"The picture: {asked.picture}")


def _own(echoes: pd.DataFrame) -> Any:
    return zip(echoes["ship"], echoes["scan"], strict=True)


def read(file: Path) -> pd.DataFrame:
    """Reports: ``ship, at`` (seconds), ``lat, lon, speed`` (metres a second) and ``course`` (degrees)."""
    raw = pd.read_parquet(file).drop_duplicates(["MMSI", "Time"])
    raw = raw[raw["Longitude_degrees"].between(-2.0, 0.0)]
    at = (raw["Time"] - raw["Time"].min()).dt.total_seconds()
    rows = pd.DataFrame(
        {"ship": raw["MMSI"], "at": at, "lat": raw["Latitude_degrees"], "lon": raw["Longitude_degrees"]}
    )
    moving = raw["COG_degrees"] < 360.0
    return rows.assign(speed=(raw["SOG_knots"] * KNOT).where(moving, 0.0), course=raw["COG_degrees"])


def twin(ships: int = 80, seed: int = 0) -> pd.DataFrame:
    """Generated ships, half of them moored in rows, that report at odd times for half an hour."""
    chance, parts = np.random.default_rng(seed), []
    for ship in range(ships):
        at = np.cumsum(chance.exponential(20.0, 200))
        at = at[at < 1800.0]
        moored = ship % 2 == 0
        speed, course = (0.0, 0.0) if moored else (chance.uniform(2.0, 10.0), chance.uniform(0.0, 360.0))
        lat = 50.80 + 0.0003 * (ship % 40) if moored else chance.uniform(50.70, 50.80)
        lon = -1.11 if moored else chance.uniform(-1.3, -1.0)
        north, east = speed * at * np.cos(np.radians(course)), speed * at * np.sin(np.radians(course))
        place = {"lat": lat + north / DEGREE, "lon": lon + east / (DEGREE * np.cos(np.radians(50.75)))}
        parts.append(pd.DataFrame({"ship": ship, "at": at, **place, "speed": speed, "course": course}))
    return pd.concat(parts, ignore_index=True)


def scans(reports: pd.DataFrame, chance: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Tracks at each scan, from the last report before it, and the echoes of a radar, with the ship behind each."""
    times = np.arange(300.0, min(2100.0, reports["at"].max()), EVERY)
    tracks, echoes = [], []
    for ship, rows in reports.sort_values("at").groupby("ship"):
        at, lat, lon = (rows[name].to_numpy() for name in ("at", "lat", "lon"))
        inside = times[(times >= at[0]) & (times <= at[-1])]
        last = np.searchsorted(at, inside, side="right") - 1
        age = inside - at[last]
        known = age <= OLDEST
        inside, last, age = inside[known], last[known], age[known]
        run, course = rows["speed"].to_numpy()[last] * age, np.radians(rows["course"].to_numpy()[last])
        drift = np.where(rows["speed"].to_numpy()[last] < UNDER_WAY, MOORED, DRIFT)
        wide = DEGREE * np.cos(np.radians(lat[last]))
        place = {"lat": lat[last] + run * np.cos(course) / DEGREE, "lon": lon[last] + run * np.sin(course) / wide}
        tracks.append(pd.DataFrame({"ship": ship, "scan": inside, **place, "sigma": np.hypot(AIS, drift * age)}))
        seen = chance.random(len(inside)) < SEEN
        true = {"lat": np.interp(inside[seen], at, lat), "lon": np.interp(inside[seen], at, lon)}
        echoes.append(pd.DataFrame({"ship": ship, "scan": inside[seen], **true}))
    ghosts = len(times) * FALSE
    low, high = reports[["lat", "lon"]].quantile(0.02), reports[["lat", "lon"]].quantile(0.98)
    spread = {name: chance.uniform(low[name], high[name], ghosts) for name in ("lat", "lon")}
    echoes.append(pd.DataFrame({"ship": -1, "scan": np.repeat(times, FALSE), **spread}))
    found = pd.concat(echoes, ignore_index=True).sample(frac=1.0, random_state=0, ignore_index=True)
    real = (found["ship"] >= 0).to_numpy()
    off = chance.normal(0.0, RADAR, (len(found), 2)) * real[:, None]
    found["lat"] += off[:, 0] / DEGREE
    found["lon"] += off[:, 1] / (DEGREE * np.cos(np.radians(found["lat"])))
    return pd.concat(tracks, ignore_index=True), found.assign(echo=np.arange(len(found)))


def neighbours(tracks: pd.DataFrame, echoes: pd.DataFrame) -> pd.DataFrame:
    """The least sum of distances in each scan, of pairs within the gate: what a tracker in Python does."""
    parts = []
    for scan, rows in tracks.groupby("scan"):
        there = echoes[echoes["scan"] == scan]
        apart = _metres(rows, there)
        ours, theirs = linear_sum_assignment(np.minimum(apart, NEAR))
        good = apart[ours, theirs] < NEAR
        keys = rows["ship"].to_numpy()[ours[good]], there["echo"].to_numpy()[theirs[good]]
        parts.append(pd.DataFrame({"left_key": keys[0], "right_key": keys[1]}))
    return pd.concat(parts, ignore_index=True)


def _metres(rows: pd.DataFrame, there: pd.DataFrame) -> NDArray[np.float64]:
    """How far apart all rows are, on a plane."""
    scale = np.cos(np.radians(rows["lat"].mean()))
    north = np.subtract.outer(rows["lat"].to_numpy(), there["lat"].to_numpy()) * DEGREE
    east = np.subtract.outer(rows["lon"].to_numpy(), there["lon"].to_numpy()) * DEGREE * scale
    apart: NDArray[np.float64] = np.hypot(north, east)
    return apart


def draw(tracks: pd.DataFrame, echoes: pd.DataFrame, one: pd.DataFrame, file: Path) -> None:
    """The harbour in one scan: tracks, echoes, and which belongs to which."""
    from matplotlib.figure import Figure

    scan = tracks["scan"].median()
    rows, there = (frame[frame["scan"] == scan] for frame in (tracks, echoes))
    middle = rows[["lat", "lon"]].median()
    place = rows.set_index("ship")[["lon", "lat"]], there.set_index("echo")[["lon", "lat"]]
    with style():
        figure = Figure(figsize=(8.0, 6.0))
        titled(figure, "Which echo is which ship", "Circles: ships by AIS; dots: echoes; lines: one partner each.")
        axes = figure.add_axes((0.14, 0.09, 0.82, 0.77))
        for pair in one[one["left_time"] == scan].itertuples():
            ends = np.array([place[0].loc[pair.left_key], place[1].loc[pair.right_key]])
            axes.plot(*ends.T, color="#0072B2", lw=1.2)
        axes.scatter(there["lon"], there["lat"], s=8, color="#D55E00", lw=0, zorder=3)
        axes.scatter(rows["lon"], rows["lat"], s=45, facecolors="none", edgecolors=QUIET, zorder=4)
        axes.set_xlim(middle["lon"] - 0.02, middle["lon"] + 0.02)
        axes.set_ylim(middle["lat"] - 0.009, middle["lat"] + 0.009)
        axes.set_xlabel("longitude")
        axes.set_ylabel("latitude")
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file)


if __name__ == "__main__":
    main()
