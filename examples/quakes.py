"""One quake, many agencies: origins of an earthquake matched by their error ellipses.

    python examples/quakes.py [--origins FILE] [--picture FILE]

Each agency locates a quake on its own, with an ellipse that holds the epicentre with 90 %. Origins of one event lie up
to hundreds of kilometres apart where networks were sparse, so no fixed distance fits all: an ellipse says how far to
look, and where. The bulletin of the ISC over Yunnan and Sichuan tells which origins are of one event; where that file
is not there, a generated twin is taken.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from data_folder import data_at
from pyproj import Geod

import appulse as ap
from appulse.lab.style import QUIET, style, titled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

OUT = Path(__file__).resolve().parent.parent / "out" / "quakes" / "origins.png"
NINETY = float(np.sqrt(-2.0 * np.log(0.1)))  # semi-axes of an ellipse that holds 90 %, over those at one deviation
MODEL, UNKNOWN = 10_000.0, 30_000.0  # metres: what the model of the Earth adds, and an origin without an ellipse
KILOMETRES = 111.0  # of a degree of latitude
NEAR, FAR, APART = 100_000.0, 300_000.0, 60.0  # metres and seconds
WAVES, LATE = 6_000.0, 5.0  # metres a second, and seconds of error
FIXED = ((50_000.0, 10.0), (100_000.0, 30.0), (100_000.0, 60.0), (150_000.0, 60.0))
LEAST = (0.9, 0.5, 0.1, 0.01)
SHARES = (0.5, 0.9)


def main() -> None:
    """Match origins by fixed windows and by ellipses, and draw one quake."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--origins", type=Path, default=data_at("quakes/isc_origins.parquet"))
    parser.add_argument("--picture", type=Path, default=OUT)
    asked = parser.parse_args()
    real = asked.origins.exists()
    rows = read(asked.origins) if real else twin()
    counts = rows.groupby("event").size()
    true = int((counts * (counts - 1) // 2).sum())
    print(f"{len(rows):,} origins of {len(counts)} quakes from {asked.origins if real else 'a generated twin'}")
    print(f"{true:,} pairs of origins are of one quake")
    for metres, seconds in FIXED:
        found = matched(rows, ap.Position("lat", "lon"), metres, seconds, 0.5)
        said(f"within {metres / 1000:.0f} km and {seconds:.0f} s", found, true)
    ellipses = ap.Position("lat", "lon", ellipse=("major", "minor", "azimuth"))
    for least in LEAST:
        found = matched(rows, ellipses, NEAR, APART, least)
        said(f"by ellipses, {NEAR / 1000:.0f} km and {APART:.0f} s with probability {least:g}", found, true)
    draw(rows, found, asked.picture)
    levels = {name: held(rows, beside) for name, beside in (("with 10 km beside", 0.0), ("as given", -MODEL))}
    for name, level in levels.items():
        inside = ", ".join(f"{np.mean(level <= share):.0%} within {share:.0%}" for share in SHARES)
        print(f"  ellipses {name}: the other origin of the quake lies {inside}")
    diagram = asked.picture.with_name("ellipses.png")
    draw_held(levels, diagram)
    between_agencies(rows)
    print(f"The pictures: {asked.picture}, {diagram}")


def held(rows: pd.DataFrame, beside: float) -> NDArray[np.float64]:
    """For each pair of origins of one quake, the level of the ellipse of their difference on whose edge it lies.

    ``beside`` is a deviation to add to both ellipses; a negative one is taken out.
    """
    pairs = rows.merge(rows, on="event", suffixes=("", "_other"))
    pairs = pairs[pairs["row"] < pairs["row_other"]]
    names = ("lat", "lon", "major", "minor", "azimuth")
    one, other = (pairs[[f"{name}{end}" for name in names]].to_numpy() for end in ("", "_other"))
    azimuth, _, metres = Geod(ellps="WGS84").inv(one[:, 1], one[:, 0], other[:, 1], other[:, 0])
    gap = metres[:, None] * np.column_stack([np.sin(np.radians(azimuth)), np.cos(np.radians(azimuth))])
    spread = np.zeros((len(gap), 2, 2))
    for side in (one, other):
        angle = np.radians(side[:, 4])
        axes = np.array([[np.sin(angle), np.cos(angle)], [np.cos(angle), -np.sin(angle)]]).transpose(2, 1, 0)
        square = np.maximum(side[:, 2:4] ** 2 + np.sign(beside) * beside**2, 1e6)
        spread += axes @ (square[:, :, None] * axes.transpose(0, 2, 1))
    return 1.0 - np.exp(-0.5 * np.einsum("ni,ni->n", gap, np.linalg.solve(spread, gap[:, :, None])[:, :, 0]))


def between_agencies(rows: pd.DataFrame) -> None:
    """Match the two catalogues with most origins: within fixed windows, the nearest, and one to one."""
    one, other = (rows[rows["author"] == name] for name in rows["author"].value_counts().index[:2])
    true = len(one.merge(other, on="event"))
    names = f"{one['author'].iloc[0]} ({len(one)} origins) and {other['author'].iloc[0]} ({len(other)})"
    print(f"{names} have {true} pairs of one quake")
    event = rows["event"].to_numpy()
    for how, found in agreed(one, other).items():
        said(how, found.assign(same=event[found["left_key"]] == event[found["right_key"]]), true)


def agreed(one: pd.DataFrame, other: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Pairs of two catalogues by each way."""
    exact, shape = ap.Position("lat", "lon"), ("major", "minor", "azimuth")
    ellipses = ap.Position("lat", "lon", ellipse=shape)
    # In an hour there may be aftershocks: a second apart counts as far as waves run in it, in place of a height.
    timed = ap.Position("lat", "lon", ellipse=shape, altitude="run", altitude_sigma=LATE * WAVES)
    one, other = (
        frame.assign(run=(frame["at"].dt.minute * 60.0 + frame["at"].dt.second) * WAVES) for frame in (one, other)
    )

    def streams(value: ap.Position) -> list[ap.Stream]:
        return [ap.Stream(frame, key="row", time="at", value=value) for frame in (one, other)]

    ways = {
        f"within {metres / 1000:.0f} km and {seconds:.0f} s": ap.similarity_join(
            *streams(exact), epsilon=metres, probability=1.0, window=seconds
        )
        for metres, seconds in FIXED
    }
    ways |= {
        f"the nearest, within {FAR / 1000:.0f} km and {APART:.0f} s": ap.nearest(
            *streams(exact), epsilon=FAR, window=APART
        ),
        "the likeliest to be within 100 km": ap.nearest(
            *streams(ellipses), epsilon=NEAR, window=APART, by="probability", probability=LEAST[-1]
        ),
        f"one to one by likelihood, within {FAR / 1000:.0f} km": ap.assign(
            *streams(timed), epsilon=FAR, probability=LEAST[-1], window=ap.TumblingWindow("1 hour")
        ),
    }
    return {how: found.to_pandas() for how, found in ways.items()}


def read(file: Path) -> pd.DataFrame:
    """Origins: ``row, event, at, lat, lon``, and an ellipse at one standard deviation in metres and degrees."""
    raw = pd.read_parquet(file)
    major, minor = (raw[name].fillna(0.0).to_numpy() * 1000.0 / NINETY for name in ("smaj", "smin"))
    known = (major > 0.0) & (minor > 0.0)
    rows = raw.rename(columns={"event_id": "event", "time": "at", "latitude": "lat", "longitude": "lon"})
    rows = rows[["event", "author", "at", "lat", "lon"]].assign(row=np.arange(len(raw)))
    return rows.assign(
        major=np.where(known, np.hypot(major, MODEL), UNKNOWN).clip(max=1e5),
        minor=np.where(known, np.hypot(minor, MODEL), UNKNOWN).clip(max=1e5),
        azimuth=np.where(known, raw["azimuth"].fillna(0.0), 0.0),
    )


def twin(events: int = 300, seed: int = 0) -> pd.DataFrame:
    """Generated quakes, each located by one to six agencies with ellipses of 5 to 60 km."""
    chance = np.random.default_rng(seed)
    count = chance.integers(1, 7, events)
    event = np.repeat(np.arange(events), count)
    n = len(event)
    lat, lon = chance.uniform(23.0, 33.0, events)[event], chance.uniform(98.0, 106.0, events)[event]
    major = chance.uniform(5_000.0, 60_000.0, n)
    minor, azimuth = major * chance.uniform(0.2, 0.9, n), chance.uniform(0.0, 180.0, n)
    along, across = major * chance.normal(size=n), minor * chance.normal(size=n)
    sine, cosine = np.sin(np.radians(azimuth)), np.cos(np.radians(azimuth))
    east, north = along * sine + across * cosine, along * cosine - across * sine
    at = pd.Timestamp("1990-01-01", tz="UTC") + pd.to_timedelta(
        (event * 6.0 + 0.5) * 3600.0 + chance.normal(0.0, 3.0, n), "s"
    )
    return pd.DataFrame(
        {
            "row": np.arange(n),
            "event": event,
            "author": np.concatenate([np.arange(origins) for origins in count]).astype(str),
            "at": at,
            "lat": lat + north / 111_000.0,
            "lon": lon + east / (111_000.0 * np.cos(np.radians(lat))),
            "major": major,
            "minor": minor,
            "azimuth": azimuth,
        }
    )


def matched(rows: pd.DataFrame, value: ap.Position, metres: float, seconds: float, least: float) -> pd.DataFrame:
    """Pairs of origins, and whether they are of one quake."""
    stream = ap.Stream(rows, key="row", time="at", value=value)
    found = ap.self_join(stream, epsilon=metres, probability=least, window=seconds).to_pandas()
    event = rows["event"].to_numpy()
    return found.assign(same=event[found["left_key"]] == event[found["right_key"]])


def said(how: str, found: pd.DataFrame, true: int) -> None:
    """A line about the pairs found."""
    print(f"  {how:62} {found['same'].sum() / true:6.1%} found, {found['same'].mean():6.1%} of {len(found):,} right")


def draw(rows: pd.DataFrame, found: pd.DataFrame, file: Path) -> None:
    """The quake whose matched ellipses lie farthest apart, with those of all its origins."""
    from matplotlib.figure import Figure

    elliptic = (rows["major"] > 1.5 * rows["minor"]).to_numpy()
    both = elliptic[found["left_key"]] & elliptic[found["right_key"]]
    widest = found[found["same"] & both].nlargest(1, "distance")
    own = rows[rows["event"] == rows["event"].iloc[int(widest["left_key"].iloc[0])]]
    pairs = found[found["left_key"].isin(own["row"]) & found["right_key"].isin(own["row"])]
    place = rows.set_index("row")[["lon", "lat"]]
    scale = KILOMETRES * float(np.cos(np.radians(own["lat"].mean())))
    with style():
        figure = Figure(figsize=(8.0, 5.5))
        what = f"Ellipses at one standard deviation; lines join origins that match with {LEAST[-1]:g} or more."
        titled(figure, f"One quake, {len(own)} agencies: {len(pairs)} pairs matched", what)
        axes = figure.add_axes((0.1, 0.08, 0.86, 0.78))
        for left, right in zip(pairs["left_key"], pairs["right_key"], strict=True):
            axes.plot(*place.loc[[left, right]].to_numpy().T, color="#0072B2", lw=0.8, alpha=0.6)
        for row in own.itertuples():
            _ellipse(axes, row, scale)
        axes.set_aspect(KILOMETRES / scale)
        axes.set_xlabel("longitude")
        axes.set_ylabel("latitude")
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file)


def draw_held(levels: Mapping[str, NDArray[np.float64]], file: Path) -> None:
    """How often the ellipse of a level holds the difference of two origins of one quake."""
    from matplotlib.figure import Figure

    said = np.linspace(0.0, 1.0, 101)
    with style():
        figure = Figure(figsize=(6.5, 6.0))
        titled(figure, "Do error ellipses hold what they say?", "Pairs of origins of one quake; on the line they do.")
        axes = figure.add_axes((0.12, 0.1, 0.83, 0.74))
        axes.plot((0, 1), (0, 1), color=QUIET, lw=1.0)
        for (name, level), color in zip(levels.items(), ("#0072B2", "#D55E00"), strict=True):
            axes.plot(said, [np.mean(level <= share) for share in said], color=color, lw=1.6, label=name)
        axes.set_xlabel("level of the ellipse")
        axes.set_ylabel("share of pairs inside")
        axes.legend(loc="upper left", frameon=False)
        figure.savefig(file)


def _ellipse(axes: Axes, row: Any, scale: float) -> None:
    turn, angle = np.linspace(0.0, 2.0 * np.pi, 100), np.radians(row.azimuth)
    along, across = row.major * np.cos(turn) / 1000.0, row.minor * np.sin(turn) / 1000.0
    east, north = along * np.sin(angle) + across * np.cos(angle), along * np.cos(angle) - across * np.sin(angle)
    axes.plot(row.lon + east / scale, row.lat + north / KILOMETRES, color=QUIET, lw=1.0)
    axes.plot(row.lon, row.lat, "o", color="#D55E00", ms=4)


if __name__ == "__main__":
    main()
