"""Readings unlike their neighbours, planted: the recipe of docs/unlike.md, a rolling z-score and a rolling median.

Faults are of one sensor: off by a step, or by spikes. Events are of a whole region, as large, and no faults. Sizes are
what a user would call a fault: 5 to 10 degrees where the sensor is good to half a degree, and PM2.5 off by a factor of
4 to 16. Settings of the recipe were chosen on seeds 7 and 8, which no figure is taken from.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
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
    Flags = NDArray[np.bool_]

QUERY = """
    own.sensor = usual.sensor
    AND abs(own.off - usual.off_median) > 4 * greatest(usual.off_p75 - usual.off_p25, own.around / 2, {least})
"""


SEEDS = (11, 12, 13, 14, 15)


@dataclass(frozen=True)
class Field:
    """Values (times, sensors) so many seconds apart, who is whose neighbour, and how near each two are (0 to 1).

    ``usual`` is the window of what is usual, ``least`` the least spread, ``size`` that of faults.
    """

    name: str
    values: Matrix
    near: dict[int, list[int]]
    nearness: Matrix
    step: float
    usual: str
    least: float
    size: float


def fields(*, quick: bool) -> Iterator[Field]:
    """Temperatures of the Intel lab, and PM2.5 (as logarithms) of twelve stations of Beijing."""
    lab = pd.read_parquet(data_at("intel_lab/temperature_52_sensors_30s_2days.parquet"))
    every = 8 if quick else 4
    values = lab[[f"c{k:02}" for k in range(1, 53)]].to_numpy(float)[::every]
    motes = pd.read_parquet(data_at("intel_lab/mote_locs.parquet")).set_index("moteid")
    at = motes.drop([5, 15]).to_numpy(float)
    apart = np.sqrt(((at[:, None] - at) ** 2).sum(axis=2))
    near = {s: [int(o) for o in np.argsort(apart[s], kind="stable")[1:6]] for s in range(len(at))}
    yield Field("intel_lab", values, near, np.exp(-((apart / 15.0) ** 2) / 2), 30.0 * every, "6 hours", 1.0, 5.0)
    air = pd.read_parquet(data_at("beijing_multisite_air/prsa_2013_2017.parquet"))
    wide = np.column_stack([part["PM2.5"].to_numpy(float) for _, part in air.groupby("station")])
    wide = np.log(wide[: 2000 if quick else 8000] + 20.0)  # errors of concentrations go with these
    n = wide.shape[1]
    around = {s: [o for o in range(n) if o != s] for s in range(n)}
    yield Field("beijing_multisite_air", wide, around, np.ones((n, n)), 3600.0, "6 days", 0.28, np.log(4.0))


def planted(field: Field, seed: int) -> tuple[Matrix, Flags]:
    """The values with faults and events, and which of them are faults: about one in a hundred."""
    chance, found, size = np.random.default_rng(seed), field.values.copy(), field.size
    n, sensors = found.shape
    faults = np.zeros(found.shape, bool)
    while faults.mean() < 0.01:
        s, begin = int(chance.integers(0, sensors)), int(chance.integers(0, n - 24))
        some = np.arange(begin, begin + int(chance.integers(4, 24)), int(chance.choice([1, 3])))
        found[some, s] += size * chance.uniform(1.0, 2.0) * chance.choice([-1.0, 1.0])
        faults[some, s] = True
    for _ in range(n // 100):
        s, begin, length = (int(chance.integers(0, most)) for most in (sensors, n - 24, 16))
        shape = np.sin(np.pi * (np.arange(length + 8) + 1) / (length + 9))
        found[begin : begin + length + 8] += size * chance.uniform(1.0, 2.0) * shape[:, None] * field.nearness[s]
    return found, faults & ~np.isnan(found)


def recipe(field: Field, values: Matrix) -> Flags:
    """Which readings are unlike their neighbours: by how much they are off the median of these, unlike as usual."""
    time, sensor = np.nonzero(~np.isnan(values))
    stamps = pd.Timestamp("2026-01-01") + pd.to_timedelta(time * field.step, unit="s")
    readings = pd.DataFrame({"sensor": sensor, "time": stamps, "value": values[time, sensor]})
    pairs = pd.DataFrame([(s, o) for s, own in field.near.items() for o in own], columns=["sensor", "neighbour"])
    around = pairs.merge(readings.rename(columns={"sensor": "neighbour"}), on="neighbour")
    stream = ap.Stream(around, key="neighbour", time="time", value=ap.Exact("value"), partition_by="sensor")
    typical = ap.window_aggregate(stream, {"value": ["median", "p25", "p75"]}, window=ap.TimeWindow(0)).to_pandas()
    off = readings.merge(typical, on=["sensor", "time"])
    off["off"], off["around"] = off["value"] - off["value_median"], off["value_p75"] - off["value_p25"]
    own = ap.Stream(off, key="sensor", time="time", value=ap.Exact("off"), name="own")
    history = ap.Stream(off, key="sensor", time="time", value=ap.Exact("off"), partition_by="sensor")
    usual = ap.window_aggregate(history, {"off": ["median", "p25", "p75"]}, window=field.usual)
    beside = ap.Stream(usual, key="sensor", time="time", value=ap.Exact("off_median"), name="usual")
    query = pd.DataFrame({"query": ["unlike"], "condition": [QUERY.format(least=field.least)]})
    found = ap.match_queries(own, beside, queries=query, window=ap.TimeWindow(0)).to_pandas()
    flags = np.zeros(values.shape, bool)
    at = ((found["left_time"] - pd.Timestamp("2026-01-01")).dt.total_seconds() / field.step).round().astype(int)
    flags[at.to_numpy(), found["left_key"].to_numpy()] = True
    return flags


def rolling(values: Matrix, window: int, *, robust: bool) -> Matrix:
    """How far readings are off what their own sensor read of late, in deviations."""
    frame = pd.DataFrame(values).rolling(window, min_periods=5)
    if robust:
        middle, spread = frame.median(), (frame.quantile(0.75) - frame.quantile(0.25)) / 1.349
    else:
        middle, spread = frame.mean(), frame.std()
    found: Matrix = np.nan_to_num(np.abs(values - middle.to_numpy()) / np.maximum(spread.to_numpy(), 1e-3))
    return found


def f_of(found: Flags, faults: Flags) -> float:
    """The harmonic mean of precision and recall."""
    return 2 * int((found & faults).sum()) / max(1, int(found.sum() + faults.sum()))


def unlike(*, quick: bool) -> dict[str, float]:
    """The least F of the recipe, and the best that the others reach at any threshold and window."""
    ours, theirs = [], []
    for field, seed in product(fields(quick=quick), SEEDS[:2] if quick else SEEDS):
        values, faults = planted(field, seed)
        own = f_of(recipe(field, values), faults)
        length = round(pd.Timedelta(field.usual).total_seconds() / field.step)
        others = {}
        for who, robust in (("rolling z-score", False), ("rolling median", True)):
            scores = [rolling(values, some, robust=robust) for some in (length // 8, length // 2, length)]
            others[who] = max(f_of(score > k, faults) for score in scores for k in (2, 3, 4, 5, 6, 8, 10, 15))
        told = ", ".join(f"{who} {of:.3f}" for who, of in others.items())
        say(f"{field.name}: ours {own:.3f}, {told}")
        ours.append(own)
        theirs.append(max(others.values()))
    return {"unlike_f": min(ours), "unlike_f_of_rolling": max(theirs)}
