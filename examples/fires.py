"""Aircraft that fight fires close to each other: found between their reports, which come at times of their own.

    python examples/fires.py [--tracks FILE] [--picture FILE]

A week of fire-fighting aircraft over California (OpenSky Network, September 2020), or, where that file is not there, a
generated twin. Close is within 0.25 nautical miles and 200 feet. Joining readings as they are compares places up to 10
seconds old; `encounters` compares where both are at one instant. Aircraft that follow each other are further apart than
their readings say, others pass each other between readings and no pair of these shows it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from data_folder import data_at

import appulse as ap
from appulse.lab.style import INK, PALETTE, QUIET, style, titled

OUT = Path(__file__).resolve().parent.parent / "out" / "fires" / "closest.png"
MILE, FOOT = 1852.0, 0.3048
NEAR = {"horizontal": 0.25 * MILE, "vertical": 200.0 * FOOT}
APART = "10 seconds"  # of two readings that are joined as they are
GPS, ALTIMETER = 50.0, 8.0  # metres: stamps are whole seconds, altitudes steps of 25 feet
LEAST = 0.25


def main() -> None:
    """Pairs by readings as they are and by motion, and a picture of both distances."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tracks", type=Path, default=data_at("swiss_day_adsb/calfire.parquet"))
    parser.add_argument("--picture", type=Path, default=OUT)
    asked = parser.parse_args()
    real = asked.tracks.exists()
    rows = read(asked.tracks) if real else twin()
    source = str(asked.tracks) if real else "a generated twin"
    print(f"{len(rows):,} reports of {rows['aircraft'].nunique()} aircraft from {source}")
    pairs = compared(rows)
    known = pairs["as they are"].notna()
    found = pairs["probability"] >= LEAST
    print(f"readings within {APART} as they are: {known.sum()} pairs")
    print(
        f"by motion, probability {LEAST} or more: {found.sum()} pairs, {(known & found).sum()} of those {known.sum()}"
    )
    sure = pairs["probability"] >= 0.5
    print(f"by motion, probability 0.5 or more: {sure.sum()} pairs, {(known & sure).sum()} of those {known.sum()}")
    print(pairs.sort_values("by motion").round(2).to_string())
    draw(pairs, asked.picture)
    print(f"The picture: {asked.picture}")


def read(file: Path) -> pd.DataFrame:
    """Reports: ``aircraft, at, lat, lon, up``, in metres."""
    known = {"icao24": "aircraft", "timestamp": "at", "latitude": "lat", "longitude": "lon", "altitude": "up"}
    rows = pd.read_parquet(file, columns=list(known)).rename(columns=known)
    return rows.assign(up=rows["up"] * FOOT)


def twin(seed: int = 2) -> pd.DataFrame:
    """Aircraft that circle over one fire, in pairs that follow each other."""
    chance, parts = np.random.default_rng(seed), []
    for plane in range(24):
        at = np.cumsum(chance.uniform(5.0, 50.0, 150))
        turn = 0.02 * at + (plane // 2) + (0.04 if plane % 2 else 0.0)
        radius = 0.03 + 0.002 * (plane // 2)
        columns = {
            "aircraft": f"tanker {plane}",
            "at": pd.Timestamp("2020-09-08", tz="UTC") + pd.to_timedelta(np.round(at), unit="s"),
            "lat": 38.6 + radius * np.cos(turn),
            "lon": -122.8 + 1.25 * radius * np.sin(turn),
            "up": 900.0 + 12.0 * (plane % 3) + chance.normal(0.0, 5.0, len(at)),
        }
        parts.append(pd.DataFrame(columns))
    return pd.concat(parts, ignore_index=True)


def compared(rows: pd.DataFrame) -> pd.DataFrame:
    """Pairs of aircraft: their distance in readings as they are, by motion, and how sure it is that they came close."""
    exact = ap.Stream(rows, key="aircraft", time="at", value=ap.Position("lat", "lon", altitude="up"))
    readings = ap.self_join(exact, epsilon=NEAR, probability=1.0, window=APART).to_pandas()
    moving = ap.Stream(
        rows,
        key="aircraft",
        time="at",
        value=ap.Position("lat", "lon", sigma=GPS, altitude="up", altitude_sigma=ALTIMETER),
        motion=ap.Straight(max_gap="5 minutes"),
    )
    met = ap.encounters(moving, epsilon=NEAR, probability=LEAST, gap="1 minute").to_pandas()
    columns = [
        _by_pair(readings, "distance").min().rename("as they are"),
        _by_pair(met, "closest_distance").min().rename("by motion"),
        _by_pair(met, "probability").max().rename("probability"),
    ]
    return pd.concat(columns, axis=1)


def _by_pair(found: pd.DataFrame, column: str) -> pd.core.groupby.SeriesGroupBy:
    low = np.minimum(found["left_key"].astype(str), found["right_key"].astype(str))
    high = np.maximum(found["left_key"].astype(str), found["right_key"].astype(str))
    other = low != high
    return found[other].groupby([low[other].rename("one"), high[other].rename("other")])[column]


def draw(pairs: pd.DataFrame, file: Path) -> None:
    """A line a pair: its distance by readings as they are, and by motion."""
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=(11, 6))
        known, found = pairs["as they are"].notna(), pairs["probability"].notna()
        titled(
            figure,
            f"{known.sum()} pairs by readings as they are; by motion {(known & found).sum()} of them, and "
            f"{(~known & found).sum()} more",
            f"Fire-fighting aircraft within 0.25 NM and 200 ft; readings up to {APART} apart, or where both are at one "
            "instant.",
        )
        axes = figure.add_axes((0.22, 0.1, 0.74, 0.72))
        table = pairs.assign(most=pairs[["as they are", "by motion"]].max(axis=1)).sort_values("most")
        for row, (names, pair) in enumerate(table.iterrows()):
            axes.plot([pair["as they are"], pair["by motion"]], [row, row], color="#c5cad3", zorder=1)
            axes.text(-12, row, " and ".join(names), ha="right", va="center", fontsize=8)
            if pd.notna(pair["probability"]):
                axes.text(
                    pair["by motion"] + 12, row, f"{pair['probability']:.2f}", ha="center", fontsize=8, color=QUIET
                )
        axes.scatter(table["as they are"], range(len(table)), color=PALETTE[1], label="readings as they are", zorder=2)
        axes.scatter(
            table["by motion"], range(len(table)), color=PALETTE[0], label="by motion, with probability", zorder=2
        )
        axes.axvline(NEAR["horizontal"], color=INK, linestyle=":", linewidth=0.8)
        axes.text(NEAR["horizontal"], len(table) - 0.4, " 0.25 NM", fontsize=8)
        axes.set_yticks([])
        axes.set_xlim(0, None)
        axes.set_xlabel("closest, metres in space")
        axes.legend(loc="lower right", fontsize=9)
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file)


if __name__ == "__main__":
    main()
