"""Ships that pass close to each other: overtaking, crossing or head-on, where, and how close.

    python examples/ships.py [--tracks FILE] [--picture FILE]

Reports of ships off Portsmouth (AIS, 84 minutes of 2016), or, where that file is not there, a generated twin. Ships
report when they like, so two of them are compared by what they do between reports. Most ships are moored beside each
other: an encounter counts if both are under way when they are closest.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from data_folder import data_at

import appulse as ap
from appulse.lab.style import QUIET, style, titled
from appulse.report.encounters_page import encounters_page

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OUT = Path(__file__).resolve().parent.parent / "out" / "ships" / "encounters.png"
NEAR, LEAST = 500.0, 0.9  # metres, and how sure it has to be
GPS = 10.0  # metres, the standard deviation of a position along each axis
FASTEST = 30.0  # m/s: a report that would need more is not joined to the one before it
UNDER_WAY = 1.0  # knots
KINDS = {"head-on": "#D55E00", "crossing": "#0072B2", "overtaking": "#009E73"}


def main() -> None:
    """Find encounters, classify them, and draw them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tracks", type=Path, default=data_at("solent_ais/solent.parquet"))
    parser.add_argument("--picture", type=Path, default=OUT)
    asked = parser.parse_args()
    real = asked.tracks.exists()
    rows = read(asked.tracks) if real else twin()
    print(
        f"{len(rows):,} reports of {rows['ship'].nunique()} ships from {asked.tracks if real else 'a generated twin'}"
    )
    met = encounters(rows)
    moving = classified(met, rows)
    both = len(met[["left_key", "right_key"]].drop_duplicates())
    print(f"{both} pairs within {NEAR:.0f} m; in {len(moving)} encounters both were under way:")
    for kind, some in moving.groupby("kind"):
        print(f"  {kind:10} {len(some):3}, closest {some['closest_distance'].min():.0f} m")
    nearest = moving.nsmallest(5, "closest_distance")
    columns = ["left_key", "right_key", "kind", "closest_time", "closest_distance", "seconds_within", "probability"]
    print(nearest[columns].round(2).to_string(index=False))
    draw(rows, moving, asked.picture)
    asked.picture.with_suffix(".html").write_text(
        encounters_page(moving, rows.assign(sigma=GPS), key="ship", title="Ships under way off Portsmouth"), "utf-8"
    )
    print(f"The picture: {asked.picture}, and the map that plays, beside it: {asked.picture.stem}.html")


def read(file: Path) -> pd.DataFrame:
    """Reports: ``ship, at, lat, lon, course, knots``; those said twice once."""
    known = {"MMSI": "ship", "Time": "at", "Latitude_degrees": "lat", "Longitude_degrees": "lon"}
    known |= {"COG_degrees": "course", "SOG_knots": "knots"}
    rows = pd.read_parquet(file, columns=list(known)).rename(columns=known)
    return rows.drop_duplicates(["ship", "at"], ignore_index=True)


def twin(seed: int = 0) -> pd.DataFrame:
    """Ships on straight courses through a strait, half of them moored."""
    chance, parts = np.random.default_rng(seed), []
    for ship in range(60):
        at = np.cumsum(chance.uniform(4.0, 30.0, 250))
        knots = 0.1 if ship % 2 else chance.uniform(4.0, 18.0)
        course = chance.choice([80.0, 260.0]) + chance.normal(0.0, 15.0)
        along = knots * 0.5144 * (at - at.mean())
        lat = 50.77 + chance.normal(0.0, 0.01) + np.cos(np.radians(course)) * along / 111_000.0
        lon = -1.1 + chance.normal(0.0, 0.03) + np.sin(np.radians(course)) * along / 70_400.0
        when = pd.Timestamp("2016-01-12 13:00", tz="UTC") + pd.to_timedelta(np.round(at, 3), unit="s")
        columns = {"ship": ship, "at": when, "lat": lat, "lon": lon, "course": course % 360.0, "knots": knots}
        parts.append(pd.DataFrame(columns))
    return pd.concat(parts, ignore_index=True)


def encounters(rows: pd.DataFrame) -> pd.DataFrame:
    """Who came near whom, between reports at most five minutes apart."""
    stream = ap.Stream(
        rows,
        key="ship",
        time="at",
        value=ap.Position("lat", "lon", sigma=GPS),
        motion=ap.Straight(max_gap="5 minutes", max_speed=FASTEST),
    )
    return ap.encounters(stream, epsilon=NEAR, probability=LEAST, gap="1 minute").to_pandas()


def classified(met: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Encounters of ships under way, with where each was, and of which kind by the angle between their courses."""
    met = met.assign(closest_time=met["closest_time"].astype(rows["at"].dtype)).sort_values("closest_time")
    sorted_rows = rows.sort_values("at")
    for side in ("left", "right"):
        near = sorted_rows.rename(columns={name: f"{side}_{name}" for name in ("lat", "lon", "course", "knots")})
        met = pd.merge_asof(
            met,
            near,
            left_on="closest_time",
            right_on="at",
            left_by=f"{side}_key",
            right_by="ship",
            direction="nearest",
        ).drop(columns=["at", "ship"])
    met = met[(met["left_knots"] > UNDER_WAY) & (met["right_knots"] > UNDER_WAY)]
    angle = (met["left_course"] - met["right_course"] + 180.0).mod(360.0).sub(180.0).abs()
    kinds = np.select([angle > 157.5, angle < 67.5], ["head-on", "overtaking"], "crossing")
    return met.assign(kind=kinds)


def draw(rows: pd.DataFrame, moving: pd.DataFrame, file: Path) -> None:
    """Tracks in grey, encounters by kind, and how close they were."""
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=(13, 6.5))
        count = moving["kind"].value_counts()
        counts = ", ".join(f"{count.get(kind, 0)} {kind}" for kind in KINDS)
        what = f"Both under way, within {NEAR:.0f} m with probability ≥ {LEAST}, by their motion between reports."
        titled(figure, f"{len(moving)} encounters of ships: {counts}", what)
        _map(figure.add_axes((0.06, 0.1, 0.55, 0.74)), rows, moving)
        axes = figure.add_axes((0.68, 0.1, 0.3, 0.74))
        parts = [moving.loc[moving["kind"] == kind, "closest_distance"] for kind in KINDS]
        axes.hist(parts, bins=np.arange(0.0, NEAR + 1.0, 50.0), stacked=True, color=list(KINDS.values()))
        axes.set_xlabel("closest approach, metres")
        axes.set_ylabel("encounters")
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file)


def _map(axes: Axes, rows: pd.DataFrame, moving: pd.DataFrame) -> None:
    for _, track in rows.sort_values("at").groupby("ship"):
        far = (track["lat"].diff().abs() > 0.05) | (track["lon"].diff().abs() > 0.05)
        axes.plot(track["lon"].mask(far), track["lat"], color=QUIET, linewidth=0.5, alpha=0.6)
    for kind, colour in KINDS.items():
        some = moving[moving["kind"] == kind]
        axes.scatter(some["left_lon"], some["left_lat"], s=26, color=colour, label=kind, zorder=3)
    where = moving[["left_lon", "left_lat"]]
    low, high = where.quantile(0.02) - 0.02, where.quantile(0.98) + 0.02
    axes.set_xlim(low["left_lon"], high["left_lon"])
    axes.set_ylim(low["left_lat"], high["left_lat"])
    axes.set_aspect(1.0 / np.cos(np.radians(50.8)))
    axes.set_xlabel("longitude")
    axes.set_ylabel("latitude")
    axes.legend(loc="lower left", fontsize=9)


if __name__ == "__main__":
    main()
