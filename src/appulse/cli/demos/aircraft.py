"""Aircraft below the least separation, and how sure one can be of it: 5 nautical miles and 1,000 feet.

Aircraft fly one level of 1,000 feet apart and report altitudes in steps of 25, so a plain alarm rings for pairs that
keep their distance. With the error of altitudes in the model an alarm has a probability, and a threshold says how sure
it has to be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

import appulse as ap
from appulse.cli.demos.sky import draw
from appulse.model.motion import Straight
from appulse.model.stream import Stream
from appulse.model.uncertainty import Position

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MILE, FOOT = 1852.0, 0.3048
NEAR = {"horizontal": 5.0 * MILE, "vertical": 1000.0 * FOOT - 1.0}  # below 1,000 feet: reports are multiples of 25
POSITION = 50.0  # metres, the standard deviation of a position along each axis
ALTIMETER = 15.0  # metres; three of these are what rules for airspace with 1,000 feet between levels put up with
LEAST = 0.05  # of the search: alarms that are likely false are drawn, too
THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999)


def report(rows: pd.DataFrame, picture: Path, say: Callable[[str], None]) -> None:
    """Count alarms by threshold, say the most probable ones, and draw both."""
    plain, found = alarms(rows, sigma=None, probability=1.0), alarms(rows, sigma=ALTIMETER, probability=LEAST)
    counts = {least: pairs(found[found["probability"] >= least]) for least in THRESHOLDS}
    say(f"Reports taken at their word: alarms for {pairs(plain)} pairs of aircraft.")
    for least, count in counts.items():
        say(f"  with probability {least:5} or more: {count:4} pairs")
    worst = found.nlargest(5, "probability")[["left_key", "right_key", "closest_time", "probability"]]
    say("The most probable:")
    say(worst.to_string(index=False, float_format=lambda number: f"{number:.3f}"))
    about = (
        f"Pairs of {rows['aircraft'].nunique():,} aircraft within 5 nautical miles, the radius of a ring,\n"
        f"and 1,000 feet by their reports, which have errors: {POSITION:.0f} m in position,\n"
        f"{ALTIMETER:.0f} m in altitude. Are they really that close?"
    )
    draw(rows, plain, found, NEAR["horizontal"], about, picture)
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
    found: pd.DataFrame = ap.encounters(stream, epsilon=NEAR, probability=probability, gap="1 minute").to_pandas()
    return found


def pairs(found: pd.DataFrame) -> int:
    """How many pairs of aircraft there are among encounters."""
    return len(found[["left_key", "right_key"]].drop_duplicates())
