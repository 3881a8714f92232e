"""A jam as a phenomenon: ships that stand in the Suez Canal, where that appears, and how it grows.

    python examples/suez.py [--tracks FILE] [--picture FILE] [--page FILE]

Positions of ships around the canal, 20 to 24 March 2021 (AIS, every 12 minutes or so); on 23 March at 05:40 UTC the
Ever Given ran aground. Where that file is not there, a generated twin. A cell of 0.02 degrees reads "standing" in each
hour in which a ship in it has moved less than 1 km in 3 hours. A phenomenon is at least two such cells, each at most
4.5 km from the next, in 2 hours of 3. Ships also stand at the anchorages before the canal on any day: what is new is
a phenomenon in the canal.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from data_folder import data_at
from tracks import ways

import appulse as ap
from appulse.lab.style import INK, QUIET, style, titled
from appulse.report.field_page import phenomena_page

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OUT = Path(__file__).resolve().parent.parent / "out" / "suez"
CELL, STILL, HOURS = 0.02, 1000.0, 3  # degrees, metres, hours
PLACE, REACH = ap.Position("lat", "lon"), 4500.0  # metres between neighbouring cells
CANAL = (29.97, 30.70)  # degrees north: between the anchorages
SOUTH, SPEED = 29.775, 0.108  # where ships of the twin begin, and degrees an hour
AGROUND = pd.Timestamp("2021-03-23 05:40", tz="UTC")


def main() -> None:
    """Find where ships stand, and draw what is new."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tracks", type=Path, default=data_at("suez_ever_given/positions.parquet"))
    parser.add_argument("--picture", type=Path, default=OUT / "jam.png")
    parser.add_argument("--page", type=Path, default=OUT / "jam.html")
    asked = parser.parse_args()
    real = asked.tracks.exists()
    rows = read(asked.tracks) if real else twin()
    print(
        f"{len(rows):,} positions of {rows['ship'].nunique()} ships from {asked.tracks if real else 'a generated twin'}"
    )
    standing = still(rows)
    readings, cells = cells_of(standing)
    events = jams(readings, cells)
    regions = sizes(events, readings)
    for number, first in new(events).items():
        own = regions[regions["phenomenon"] == number]
        print(
            f"A jam in the canal: phenomenon {number} appears at {first:%d %B %H:%M} with {own['ships'].iloc[0]} ships "
            f"in {own['cells'].iloc[0]} cells, and has up to {own['ships'].max()} in {own['cells'].max()}"
        )
    draw(rows, standing, regions, new(events), asked.picture)
    asked.page.parent.mkdir(parents=True, exist_ok=True)
    title = "Where ships stand around the Suez Canal"
    page = phenomena_page(events, readings.drop(columns="ships"), cells, place=PLACE, title=title)
    asked.page.write_text(page, encoding="utf-8")
    print(f"The picture: {asked.picture}\nThe page: {asked.page}")


def read(file: Path) -> pd.DataFrame:
    """Positions: ``ship, at, lat, lon``; of two in one minute the first."""
    known = {"ID": "ship", "ais_pos_timestamp": "at", "latitude": "lat", "longitude": "lon"}
    rows = pd.read_parquet(file, columns=list(known)).rename(columns=known).drop_duplicates(["ship", "at"])
    return rows[["ship", "at", "lat", "lon"]][rows["lat"].between(29.55, 31.8)].reset_index(drop=True)


def twin(seed: int = 0) -> pd.DataFrame:
    """Ships that go north through the canal, until one stands still and those behind it do."""
    chance, parts = np.random.default_rng(seed), []
    begin = pd.Timestamp("2021-03-22", tz="UTC")
    for ship in range(90):
        at = np.sort(chance.uniform(0.0, 60.0, 300))  # hours
        start = chance.uniform(-10.0, 55.0)
        lat = SOUTH + SPEED * np.clip(at - start, 0.0, None)
        stop = 30.2 - 0.0135 * (ship % 12)
        late = at > 29.7
        lat = np.where(late, np.minimum(lat, max(stop, SOUTH + SPEED * max(0.0, 29.7 - start))), lat)
        lon = 32.55 + 0.0005 * ship % 0.03 + chance.normal(0.0, 0.0001, len(at))
        times = begin + pd.to_timedelta(np.round(at * 60), "min")
        parts.append(pd.DataFrame({"ship": ship, "at": times, "lat": lat, "lon": lon}))
    rows = pd.concat(parts).drop_duplicates(["ship", "at"])
    return rows[rows["lat"] < 31.8].reset_index(drop=True)


def still(rows: pd.DataFrame) -> pd.DataFrame:
    """Ships by hour, where they have moved less than a kilometre in three: ``ship, at, lat, lon``."""
    parts = []
    for ship, track in rows.sort_values("at").groupby("ship"):
        hourly = track.set_index("at")[["lat", "lon"]].resample("1h").median().interpolate(limit=3)
        over = hourly.rolling(HOURS + 1, min_periods=3)
        corners = [
            corner.rename(columns={"lat": "latitude", "lon": "longitude"}) for corner in (over.min(), over.max())
        ]
        moved = np.hypot(*ways(*corners).T)
        parts.append(hourly[moved < STILL].assign(ship=ship).reset_index())
    return pd.concat(parts, ignore_index=True).dropna()


def cells_of(standing: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Readings of cells, ``cell, at, state, ships``, and where the cells are."""
    place = np.floor(standing[["lat", "lon"]].to_numpy() / CELL).astype(int)
    named = standing.assign(cell=[f"{lat}/{lon}" for lat, lon in place])
    readings = named.groupby(["at", "cell"], as_index=False).agg(ships=("ship", "nunique"))
    names = readings["cell"].unique()
    at = np.array([[int(part) for part in name.split("/")] for name in names])
    cells = pd.DataFrame({"cell": names, "lat": CELL * (at[:, 0] + 0.5), "lon": CELL * (at[:, 1] + 0.5)})
    return readings.assign(state=1.0)[["cell", "at", "state", "ships"]], cells


def jams(readings: pd.DataFrame, cells: pd.DataFrame) -> Any:
    """The phenomena of cells in which ships stand."""
    stream = ap.Stream(readings[["cell", "at", "state"]], key="cell", time="at", value="state")
    near = {"locations": cells, "place": PLACE, "reach": REACH}
    return ap.phenomena(stream, strength=2, span="3 hours", min_sensors=2, **near)


def new(events: Any) -> dict[int, pd.Timestamp]:
    """Phenomena that appear in the canal once the ship is aground, and when."""
    table = events.to_pandas()
    first = table[(table["event"] == "appears") & (table["time"] >= AGROUND)]
    inside = [CANAL[0] < centre[1] < CANAL[1] for centre in first["centroid"]]
    return dict(zip(first[inside]["phenomenon"], first[inside]["time"], strict=True))


def sizes(events: Any, readings: pd.DataFrame) -> pd.DataFrame:
    """Of each phenomenon at each hour that it stands: how far north it is, its cells, and the ships in them."""
    ships = readings.set_index(["at", "cell"])["ships"]
    hours = pd.date_range(readings["at"].min(), readings["at"].max(), freq="1h")
    rows = []
    for number, own in events.to_pandas().sort_values("time").groupby("phenomenon"):
        for event, until in zip(own.itertuples(), [*own["time"].iloc[1:], hours[-1]], strict=True):
            if event.event != "disappears":
                for hour in hours[(hours >= event.time) & (hours < until)]:
                    count = sum(int(ships.get((hour, cell), 0)) for cell in event.sensors)
                    rows.append((number, hour, event.centroid[1], len(event.sensors), count))
    return pd.DataFrame(rows, columns=["phenomenon", "at", "north", "cells", "ships"])


def draw(rows: pd.DataFrame, standing: pd.DataFrame, regions: pd.DataFrame, jams_: dict[int, Any], file: Path) -> None:
    """Where ships stand before and after, and how the jam grows."""
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=(13, 6.5))
        zones = np.select(
            [regions["north"] < CANAL[0], regions["north"] <= CANAL[1]], ["south of it", "in the canal"], "north"
        )
        table = regions.groupby(["at", zones])["ships"].sum().unstack(fill_value=0)
        before, after = (table.loc[when.floor("1h")].sum() for when in (AGROUND, table.index[-1]))
        titled(
            figure,
            f"The jam grows from {before} to {after} ships in {(table.index[-1] - AGROUND) / pd.Timedelta('1h'):.0f} h",
            f"Ships that have moved less than 1 km in 3 hours, in phenomena; {len(jams_)} of them appear in the canal.",
        )
        for i, when in enumerate([AGROUND - pd.Timedelta("12h"), AGROUND + pd.Timedelta("10h"), rows["at"].max()]):
            axes = figure.add_axes((0.06 + 0.15 * i, 0.1, 0.13, 0.74))
            _map(axes, rows, standing, when.floor("1h"))
            if i:
                axes.set_yticklabels([])
            else:
                axes.yaxis.set_major_formatter("{x:.1f}° N")
        axes = figure.add_axes((0.57, 0.1, 0.4, 0.74))
        for (zone, counts), colour in zip(table.items(), ("#D55E00", "#0072B2", "#009E73"), strict=False):
            axes.step(counts.index, counts, where="post", color=colour, label=zone)
        axes.axvline(AGROUND, color=INK, linewidth=0.8, linestyle=":")
        axes.text(AGROUND, axes.get_ylim()[1], " aground", va="top", fontsize=9)
        axes.set_ylabel("ships in phenomena")
        axes.set_xlim(AGROUND - pd.Timedelta("2D"), table.index[-1])
        axes.legend(loc="upper left", fontsize=9)
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file)


def _map(axes: Axes, rows: pd.DataFrame, standing: pd.DataFrame, when: pd.Timestamp) -> None:
    axes.scatter(rows["lon"], rows["lat"], s=0.4, color="#d5d9e0", rasterized=True)
    some = standing[standing["at"] == when]
    inside = some["lat"].between(*CANAL)
    axes.scatter(some["lon"][~inside], some["lat"][~inside], s=12, color=QUIET)
    axes.scatter(some["lon"][inside], some["lat"][inside], s=14, color="#D55E00", zorder=3)
    axes.set_title(f"{when:%d %b %H:%M}: {int(inside.sum())} in it", fontsize=10)
    axes.set_xlim(32.14, 32.87)
    axes.set_ylim(29.73, 31.53)


if __name__ == "__main__":
    main()
