"""Where much is missing, and what is unlike its neighbours: ``python -m benchmarks.imperfect --quick --json``.

Data sets of several attributes or stations, with a tenth and three tenths of their values missing: singly, in runs of
hours, and in gaps of months that are staggered over the attributes (not in two days of the Intel lab). Figures are of
the worst setting.
Settings of ``imputer="auto"`` were chosen with other seeds of the holes (0 to 99).
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

import appulse as ap
from appulse.imputation.repository import Repository
from appulse.imputation.scores import scored
from benchmarks.harness import arguments, least, report, say
from benchmarks.incomplete_data import DataSet
from benchmarks.incomplete_quality import Reliability, f_score, joined, pairs_of
from benchmarks.incomplete_rivals import close_pairs, ignoring
from benchmarks.predictions import predicted
from benchmarks.unlike import unlike
from examples.data_folder import data_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

WINDOW, NEAR, ALPHA = 200, 0.02, 0.5
LIKELY = 1e-6  # a probability that all pairs have which count
SHARES, KINDS = (0.1, 0.3), ("singly", "runs", "gaps")
SEEDS = (2023, 2024)  # of the holes in the left and in the right stream
LEAST_PAIRS = 500  # with a filled row, to judge calibration by


@dataclass(frozen=True)
class Field:
    """Two streams of complete rows in [0, 1] mostly, and where their attributes are, if they are stations."""

    name: str
    left: Matrix
    right: Matrix
    places: Matrix | None = None
    long: bool = True  # of a year and more, so that there are gaps of months


def fields(n: int) -> Iterator[Field]:
    """Every data set of several attributes or stations, ``n`` rows of each stream, evenly over all its time."""
    lab = pd.read_parquet(data_at("intel_lab/temperature_52_sensors_30s_2days.parquet"))
    rows = lab[[f"c{k:02}" for k in range(1, 9)]].to_numpy(float)
    motes = pd.read_parquet(data_at("intel_lab/mote_locs.parquet")).set_index("moteid")
    places = motes.loc[[1, 2, 3, 4, 6, 7, 8, 9]].to_numpy(float)
    yield replace(_field("intel", rows[:, :4], rows[:, 4:], n, places), long=False)
    folder = data_at("weather_hourly_36_cities")
    kinds = ("temperature_degC", "humidity", "pressure", "wind_speed")
    five = [pd.read_parquet(folder / f"five_years_8_cities_{kind}.parquet") for kind in kinds]
    cities = [np.column_stack([frame[c].to_numpy(float) for frame in five]) for c in ("Portland", "Seattle")]
    yield _field("weather", cities[0], cities[1], n)
    warm = pd.read_parquet(folder / "temperature.parquet")
    where = pd.read_parquet(folder / "city_attributes.parquet").set_index("City")
    names = ["Portland", "Seattle", "Denver", "Phoenix", "Las Vegas", "Los Angeles", "San Diego", "Albuquerque"]
    yield _field(
        "cities",
        warm[names[::2]].to_numpy(float),
        warm[names[1::2]].to_numpy(float),
        n,
        where.loc[names[::2] + names[1::2], ["Longitude", "Latitude"]].to_numpy(float),
    )
    street = pd.read_parquet(data_at("uci_air_quality/AirQualityUCI.parquet"))
    rows = street[["T", "RH", "PT08.S1(CO)", "PT08.S5(O3)"]].to_numpy(float)
    rows = np.where(rows > -200, rows, np.nan)
    yield _field("air", rows[:-1:2], rows[1::2], n)
    ground = pd.read_parquet(data_at("beijing_36_pm25/pm25_ground.parquet")).drop(columns="datetime").to_numpy(float)
    at = pd.read_parquet(data_at("beijing_36_pm25/pm25_latlng.parquet"))[["longitude", "latitude"]].to_numpy(float)
    yield _field("beijing_36", ground[:, :4], ground[:, 4:8], n, at[:8])
    frame = pd.read_parquet(data_at("beijing_multisite_air/prsa_2013_2017.parquet"))
    of = {name: part[["PM2.5", "NO2", "CO", "O3"]].to_numpy(float) for name, part in frame.groupby("station")}
    yield _field("beijing_air", of["Dongsi"], of["Tiantan"], n)
    prices = pd.read_parquet(data_at("sp500_5yr/all_stocks_5yr.parquet"))
    of = {name: prices[prices["Name"] == name].iloc[:, 1:5].to_numpy(float) for name in ("AAPL", "MSFT")}
    yield _field("sp500", of["AAPL"], of["MSFT"], n)


def _field(name: str, left: Matrix, right: Matrix, n: int, places: Matrix | None = None) -> Field:
    kept = ~(np.isnan(left) | np.isnan(right)).any(axis=1)
    left, right = left[kept], right[kept]
    step = max(1, len(left) // n)
    left, right = left[::step][:n], right[::step][:n]
    both = np.concatenate([left, right])
    low, high = both.min(axis=0), both.max(axis=0)
    return Field(name, (left - low) / (high - low), (right - low) / (high - low), places)


def lost(rows: Matrix, share: float, kind: str, seed: int) -> Matrix:
    """The rows without a share of their values, of which each keeps one."""
    chance, (n, d) = np.random.default_rng(seed), rows.shape
    gone = np.zeros((n, d), bool)
    for k in range(d):
        if kind == "singly":
            gone[:, k] = chance.random(n) < share
        elif kind == "runs":
            while gone[:, k].mean() < share:
                begin = int(chance.integers(0, n))
                gone[begin : begin + int(chance.integers(6, 49)), k] = True
        else:
            begin = int((k + 0.5 * chance.random()) * n / d)
            gone[(begin + np.arange(int(share * n))) % n, k] = True
    all_gone = np.flatnonzero(gone.all(axis=1))
    gone[all_gone, chance.integers(0, d, len(all_gone))] = False
    return np.where(gone, np.nan, rows)


# --- contestants: each fills a stream from its own rows -----------------------------------------------------------


class Filled:
    """An imputer that was carried out beforehand: one number for each hole."""

    def __init__(self, points: Matrix) -> None:
        self.points = points

    def bind(self, attributes: Any) -> Any:  # noqa: ARG002 - those of the points
        from appulse.imputation.simple import SimpleFill, as_points

        return SimpleFill(("beforehand",), {"kind": "Filled"}, lambda values, *_: as_points(values, self.points))


def others(rows: Matrix) -> dict[str, Any]:
    """Nine ways to fill a stream, by name."""
    names = [f"a{k}" for k in range(rows.shape[1])]
    frame = pd.DataFrame(rows, columns=names)
    line = frame.interpolate(limit_direction="both")
    around = pd.concat([frame, frame.shift(1), frame.shift(-1)], axis=1).to_numpy()
    whole = frame.dropna()
    found = {
        "linear": Filled(line.to_numpy()),
        "KNN": Filled(knn(rows)),
        "KNN in time": Filled(knn(around)[:, : rows.shape[1]]),
        "iterative": Filled(iterative(rows)),
        "mean": Filled(frame.fillna(frame.mean()).to_numpy()),
        "median": Filled(frame.fillna(frame.median()).to_numpy()),
        "last value": ap.LastValueImputer(),
        "neighbours": ap.SpeedImputer(),
    }
    if len(whole) >= 50:
        rules = ap.discover_dependencies(whole)
        found["dependencies"] = ap.DependencyImputer(whole, rules, joint=True)
    return found


def knn(rows: Matrix) -> Matrix:
    """That of scikit-learn, with its settings as they are."""
    return np.asarray(import_module("sklearn.impute").KNNImputer().fit_transform(rows), np.float64)


def iterative(rows: Matrix) -> Matrix:
    """That of scikit-learn."""
    import_module("sklearn.experimental.enable_iterative_imputer")
    made = import_module("sklearn.impute").IterativeImputer(max_iter=5)
    return np.asarray(made.fit_transform(rows), np.float64)


def best_threshold(probability: NDArray[np.float64]) -> float:
    """From which probability on pairs are to be answered for the best F-score, by the probabilities alone.

    Of the n likeliest of all pairs the sum of their probabilities is expected to be right, and the sum of all to be
    found.
    """
    order = np.sort(probability)[::-1]
    score = 2 * np.cumsum(order) / (np.arange(1, len(order) + 1) + order.sum())
    return float(order[np.argmax(score)]) if len(order) else ALPHA


def scores_of(table: pa.Table, truth: NDArray[np.int64]) -> tuple[float, float]:
    """F of all pairs from the threshold on that their own probabilities recommend, and of those from 0.5 on.

    Every contestant goes by the same two rules; one that fills in a single number has pairs of probability 1 alone.
    """
    probability = table["probability"].to_numpy()
    least = best_threshold(probability)
    at_best, at_half = (f_score(pairs_of(table.filter(probability >= p - 1e-9)), truth) for p in (least, ALPHA))
    return at_best, at_half


# --- the settings -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """What one setting showed."""

    of_best: float
    error: float | None
    gap: float
    gap_at_half: float
    of_knn: float


def setting(field: Field, share: float, kind: str) -> Found:
    """One data set with one sort of holes."""
    data = DataSet(field.name, field.left, field.right, field.left)
    names, d = data.names, field.left.shape[1]
    rows = [lost(part, share, kind, seed) for seed, part in zip(SEEDS, (field.left, field.right), strict=True)]
    at, nothing = 1_000_000 * np.arange(len(rows[0])), np.zeros(len(rows[0]), np.int64)
    chosen, picks, best, mine, took, took_knn = [], [], 0.0, 0.0, 0.0, 0.0
    for side, own in enumerate(rows):
        places = None if field.places is None else field.places[side * d : side * d + d]
        locations = None if places is None else dict(zip(names, places.tolist(), strict=True))
        beside = {"the other": (rows[1 - side], at)}

        made: list[tuple[ap.AutoImputer, Any]] = []

        def filled(own: Matrix = own, locations: Any = locations, beside: Any = beside, made: Any = made) -> None:
            auto = ap.AutoImputer(locations=locations)  # a new one each time: it keeps the rules it found
            made.append((auto, auto.chosen(names, own, at, nothing, beside)))
            made[-1][1].bind(names).fill(own, at, nothing)

        seconds = least(filled, partial(knn, own), rounds=2)
        took, took_knn = took + seconds[0], took_knn + seconds[1]
        auto, imputer = made[-1]
        chosen.append(imputer)
        picks.append(auto.best())
        truth = (field.left, field.right)[side]
        mine += scored(chosen[-1], names, truth, own, at, nothing).crps
        scores = {}
        repository = Repository.with_holes(dict(zip(names, own.T, strict=True)))
        for name, make in auto.candidates(names, repository, None, beside).items():
            with suppress(ap.BadArgument):  # also of those that "auto" did not try
                scores[name] = scored(make(), names, truth, own, at, nothing).crps
        best += min(score for score in scores.values() if np.isfinite(score))
        say("   " + ", ".join(f"{name} {score:.3f}" for name, score in sorted(scores.items(), key=lambda i: i[1])))
    epsilon = data.near(NEAR)
    truth_pairs = close_pairs(field.left, field.right, epsilon, WINDOW)
    streams = data.streams(*rows)
    pairs = joined(streams, epsilon, LIKELY, dict(zip(("left", "right"), chosen, strict=True)))
    ours, at_half = scores_of(pairs, truth_pairs)
    rivals = [others(own) for own in rows]
    alone = f_score(ignoring(rows[0], rows[1], epsilon, WINDOW), truth_pairs)
    rates = {"ignore": (alone, alone)}
    for name in rivals[0].keys() & rivals[1].keys():
        pair = {"left": rivals[0][name], "right": rivals[1][name]}
        rates[name] = scores_of(joined(streams, epsilon, LIKELY, pair), truth_pairs)
    reliable = Reliability.of(pairs, truth_pairs)
    top = max(rates, key=lambda name: rates[name][0])
    found = Found(
        mine / best,
        reliable.error if reliable.sums[2].sum() >= LEAST_PAIRS else None,
        ours - rates[top][0],
        at_half - max(half for _, half in rates.values()),
        took / took_knn,
    )
    say(
        f"{field.name} {share:.0%} {kind}: {' and '.join(picks)}; CRPS {mine / 2:.3f}, of best {found.of_best:.3f}; "
        f"ECE {reliable.error:.3f} of {reliable.sums[2].sum():,.0f} pairs; F {ours:.3f}, "
        f"{at_half:.3f} from 0.5 on, {top} {rates[top][0]:.3f}, linear {rates['linear'][0]:.3f}; "
        f"{took:.2f} s, KNN {took_knn:.2f} s"
    )
    return found


def missing(*, quick: bool) -> dict[str, float]:
    """Figures of imputation, each of the worst setting."""
    few = np.random.default_rng(0).random((200, 3))  # kernels compiled, and libraries in memory
    few[::5, 1] = few[::10, 2] = np.nan  # some rows with two holes: those have kernels of their own
    knn(few)
    at, nothing = np.arange(200), np.zeros(200, np.int64)
    made = ap.AutoImputer(locations={"a": (0, 0), "b": (0, 1), "c": (1, 0)}).chosen("abc", few, at, nothing)
    made.bind("abc").fill(few, at, nothing)
    found = [
        setting(field, share, kind)
        for field in fields(1000 if quick else 3000)
        for share in SHARES
        for kind in KINDS
        if field.long or kind != "gaps"
    ]
    return {
        "auto_of_best_gaps": max(one.of_best for one in found),
        "ece_max": max(one.error for one in found if one.error is not None),
        "f_gap_min": min(one.gap for one in found),
        "f_gap_min_at_half": min(one.gap_at_half for one in found),
        "auto_seconds_of_knn": max(one.of_knn for one in found),
    }


PARTS = {"missing": missing, "predicted": predicted, "unlike": unlike}


def main() -> None:
    """Run the parts, print the figures."""
    given = arguments("Where much is missing, and what is unlike its neighbours")
    figures: dict[str, float] = {}
    for part in given.only.split(",") if given.only else PARTS:
        begun = time.perf_counter()
        figures |= PARTS[part](quick=given.quick)
        say(f"{part}: {time.perf_counter() - begun:.0f} s")
    report(figures, as_json=given.json)


if __name__ == "__main__":
    main()
