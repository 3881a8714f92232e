"""Which readings of a sensor network are unlike those around them: two days in a lab, with planted faults.

    python examples/motes.py [--readings FILE] [--motes FILE]

52 motes in a lab measure the temperature. In forty hours one of them is off by 2 to 8 degrees. Readings are compared in
place and temperature together, a degree being as far as a few metres: those with too few partners are reported. The
other way is that of many pipelines: how far a reading is from the median of the motes nearby. Where the files are not
there, a generated lab is taken.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from data_folder import data_at

import appulse as ap

if TYPE_CHECKING:
    from numpy.typing import NDArray

MINUTES = 5  # between readings; the file has ten times as many
NOISE = 0.2  # degrees
NOT_THERE = (5, 15)  # motes without a column
FAULTS, LASTING = 40, 12  # planted, and readings that each lasts


def main() -> None:
    """Plant faults, and count those that are reported."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--readings", type=Path, default=data_at("intel_lab/temperature_52_sensors_30s_2days.parquet"))
    parser.add_argument("--motes", type=Path, default=data_at("intel_lab/mote_locs.parquet"))
    asked = parser.parse_args()
    real = asked.readings.exists() and asked.motes.exists()
    places, celsius = read(asked.readings, asked.motes) if real else twin()
    celsius, faulty = planted(celsius, np.random.default_rng(7))
    times, motes = celsius.shape
    readings = pd.DataFrame(
        {
            "mote": np.tile(np.arange(motes), times),
            "at": np.repeat(np.arange(times) * 60.0 * MINUTES, motes),
            "x": np.tile(places[:, 0], times),
            "y": np.tile(places[:, 1], times),
            "celsius": celsius.ravel(),
            "faulty": faulty.ravel(),
        }
    )
    lab = "a lab" if real else "a generated lab"
    print(f"{motes} motes of {lab}, {len(readings):,} readings, {faulty.sum():,} of them faulty")
    for metres, epsilon, probability in ((5, 10, 0.9), (3, 8, 0.5), (3, 8, 0.9), (3, 12, 0.9)):
        found = alone(readings, metres, epsilon, probability)
        what = f"no other within {epsilon} m, a degree as {metres} m, p >= {probability}"
        _say(what, found["faulty"].sum(), len(found), faulty)
    for degrees in (2.0, 3.0, 4.0):
        far = from_median(places, celsius, 8.0) > degrees
        _say(f"over {degrees:g} degrees from the median of those within 8 m", (far & faulty).sum(), far.sum(), faulty)


def alone(readings: pd.DataFrame, metres: float, epsilon: float, probability: float) -> pd.DataFrame:
    """Readings that are likely to have no other close to them."""
    scaled = readings.assign(warmth=readings["celsius"] * metres)
    value = ap.Gaussian("x", "y", "warmth", sigma=NOISE * metres)
    stream = ap.Stream(scaled, key="mote", time="at", value=value, carry=["celsius", "faulty"])
    return ap.outliers(stream, epsilon=epsilon, fewer_than=1, probability=probability, window=1).to_pandas()


def from_median(places: NDArray[np.float64], celsius: NDArray[np.float64], within: float) -> NDArray[np.float64]:
    """How far each reading is from the median of the other motes nearby."""
    apart = np.hypot(*(places[:, None] - places).transpose(2, 0, 1))
    far = np.zeros_like(celsius)
    for mote in range(len(places)):
        around = (apart[mote] <= within) & (np.arange(len(places)) != mote)
        if around.any():
            far[:, mote] = np.abs(celsius[:, mote] - np.median(celsius[:, around], axis=1))
    return far


def read(readings: Path, motes: Path) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The places of the motes in metres, and the temperatures by time and mote."""
    celsius = pd.read_parquet(readings).iloc[:: 2 * MINUTES].filter(regex="^c")
    where = pd.read_parquet(motes).set_index("moteid").drop(list(NOT_THERE))
    return where[["x_location", "y_location"]].to_numpy(), celsius.to_numpy()


def twin() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A lab of 5 x 10 motes, warmer towards the windows, and in the afternoon."""
    chance = np.random.default_rng(1)
    places = np.array([(4.0 * i, 3.0 * j) for i in range(10) for j in range(5)]) + chance.normal(0.0, 0.5, (50, 2))
    hours = np.arange(0, 48, MINUTES / 60.0)
    day = 20.0 + 3.0 * np.sin(hours / 24.0 * 2.0 * np.pi)[:, None] * (1.0 + places[:, 0] / 40.0)
    return places, day + chance.normal(0.0, NOISE, day.shape)


def planted(celsius: NDArray[np.float64], chance: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Readings of which some are off, and which these are."""
    celsius, faulty = celsius.copy(), np.zeros(celsius.shape, bool)
    for _ in range(FAULTS):
        mote, first = chance.integers(celsius.shape[1]), chance.integers(len(celsius) - LASTING)
        celsius[first : first + LASTING, mote] += chance.uniform(2.0, 8.0) * chance.choice([-1.0, 1.0])
        faulty[first : first + LASTING, mote] = True
    return celsius, faulty


def _say(what: str, right: Any, reported: Any, faulty: NDArray[np.bool_]) -> None:
    print(f"  {what:56} {right / faulty.sum():6.1%} of the faults, {right / reported:6.1%} of {reported:,} right")


if __name__ == "__main__":
    main()
