"""Aircraft below the least separation, and how sure one can be of it: 5 nautical miles and 1,000 feet.

Aircraft fly one level of 1,000 feet apart and report altitudes in steps of 25, so a plain alarm rings for pairs that
keep their distance. With the error of altitudes in the model an alarm has a probability, and a threshold says how sure
it has to be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from appulse import api
from appulse.lab.style import QUIET, style, titled
from appulse.model.motion import Straight
from appulse.model.stream import Stream
from appulse.model.uncertainty import Position

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matplotlib.axes import Axes

MILE, FOOT = 1852.0, 0.3048
NEAR = {"horizontal": 5.0 * MILE, "vertical": 1000.0 * FOOT - 1.0}  # below 1,000 feet: reports are multiples of 25
POSITION = 50.0  # metres, the standard deviation of a position along each axis
ALTIMETER = 15.0  # metres; three of these are what rules for airspace with 1,000 feet between levels put up with
THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999)


def report(rows: pd.DataFrame, picture: Path, say: Callable[[str], None]) -> None:
    """Count alarms by threshold, say the most probable ones, and draw both."""
    plain, found = alarms(rows, sigma=None, probability=1.0), alarms(rows, sigma=ALTIMETER, probability=THRESHOLDS[0])
    counts = {least: pairs(found[found["probability"] >= least]) for least in THRESHOLDS}
    say(f"Reports taken at their word: alarms for {pairs(plain)} pairs of aircraft.")
    for least, count in counts.items():
        say(f"  with probability {least:5} or more: {count:4} pairs")
    worst = found.nlargest(5, "probability")[["left_key", "right_key", "closest_time", "probability"]]
    say("The most probable:")
    say(worst.to_string(index=False, float_format=lambda number: f"{number:.3f}"))
    draw(rows, found, plain, counts, picture)
    say(f"The picture: {picture.resolve()}")


def twin(seed: int = 0) -> pd.DataFrame:
    """Aircraft on straight lines at whole levels, their altitudes read in steps of 25 feet."""
    chance, parts = np.random.default_rng(seed), []
    for number in range(500):
        n = int(chance.integers(60, 200))
        course, start = chance.uniform(0.0, 2.0 * np.pi), chance.uniform(0.0, 50_000.0)
        seconds = 10.0 * (np.arange(n) + round(start / 10.0))
        along = 230.0 * 10.0 * (np.arange(n) - n / 2.0)
        up = 1000.0 * chance.integers(31, 41) + 25.0 * np.round(chance.normal(0.0, 0.6, n))
        parts.append(
            pd.DataFrame(
                {
                    "aircraft": f"twin{number:03}",
                    "at": pd.Timestamp("2018-08-01 05:00", tz="UTC") + pd.to_timedelta(seconds, unit="s"),
                    "lat": chance.uniform(46.0, 47.6) + np.cos(course) * along / 111_000.0,
                    "lon": chance.uniform(6.5, 10.0) + np.sin(course) * along / 76_000.0,
                    "up": up * FOOT,
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def alarms(rows: pd.DataFrame, *, sigma: float | None, probability: float) -> pd.DataFrame:
    """Encounters within the least separation, between reports at most a minute apart."""
    errors: dict[str, Any] = {} if sigma is None else {"sigma": POSITION, "altitude_sigma": sigma}
    stream = Stream(
        rows,
        key="aircraft",
        time="at",
        value=Position("lat", "lon", altitude="up", **errors),
        motion=Straight(max_gap="1 minute"),
    )
    found: pd.DataFrame = api.encounters(stream, epsilon=NEAR, probability=probability, gap="1 minute").to_pandas()
    return found


def pairs(found: pd.DataFrame) -> int:
    """How many pairs of aircraft there are among encounters."""
    return len(found[["left_key", "right_key"]].drop_duplicates())


def draw(rows: pd.DataFrame, found: pd.DataFrame, plain: pd.DataFrame, counts: dict[float, int], file: Path) -> None:
    """Where alarms ring, and how many are left as one asks to be surer."""
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=(13, 6.5))
        sure = counts[0.99] or "none"
        titled(
            figure,
            f"Of {pairs(plain)} pairs of aircraft with an alarm, {sure} came too close with 99 % certainty",
            f"Within 5 NM and 1,000 ft. Errors: {POSITION:.0f} m in position, {ALTIMETER:.0f} m in altitude.",
        )
        _map(figure.add_axes((0.06, 0.1, 0.5, 0.74)), rows, plain, found)
        axes = figure.add_axes((0.64, 0.1, 0.34, 0.74))
        places = range(len(counts) + 1)
        axes.bar(places, [pairs(plain), *counts.values()], color=["#0072B2", *["#D55E00"] * len(counts)], width=0.7)
        for place, count in zip(places, [pairs(plain), *counts.values()], strict=True):
            axes.text(place, count + 2, str(count), ha="center", fontsize=9)
        axes.set_xticks(list(places), ["plain", *map(str, counts)], fontsize=8)
        axes.set_xlabel("how sure an alarm has to be")
        axes.set_ylabel("pairs of aircraft")
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file)


def _map(axes: Axes, rows: pd.DataFrame, plain: pd.DataFrame, found: pd.DataFrame) -> None:
    for _, track in rows.sort_values("at").groupby("aircraft"):
        gaps = track["at"].diff() > pd.Timedelta("1 minute")
        axes.plot(track["lon"].mask(gaps), track["lat"], color=QUIET, linewidth=0.3, alpha=0.25)
    for met, colour, size, name in ((plain, "#0072B2", 10, "plain alarm"), (found, "#D55E00", 26, "probability ≥ 0.9")):
        some = met if met is plain else met[met["probability"] >= 0.9]
        at = rows.merge(some, left_on="aircraft", right_on="left_key")
        at = at.assign(off=(at["at"] - at["closest_time"].dt.as_unit("us")).abs())
        at = at.sort_values("off").drop_duplicates(["left_key", "right_key", "closest_time"])
        axes.scatter(at["lon"], at["lat"], s=size, color=colour, label=name, zorder=3)
    axes.set_aspect(1.0 / np.cos(np.radians(46.8)))
    axes.set_xlabel("longitude")
    axes.set_ylabel("latitude")
    axes.legend(loc="upper left", fontsize=9)
