"""Real data against brute force by NumPy and scipy: cabs near each other, people who met, a lab like the day before.

Each test on real data has a small generated twin that always runs.
"""

from __future__ import annotations

import os
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from scipy.stats import ncx2

import appulse as ap
from tests.helpers.streaming import drained, read_stream

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

CABS = "sf_cabspotting/five_cabs.parquet"
PEOPLE = "geolife/users_000_010_october_2008.parquet"
LAB = "intel_lab/temperature_52_sensors_30s_2days.parquet"
METRES_PER_DEGREE = 111_194.93

Pairs = dict[tuple[int, int], float]


def _projected(table: pa.Table, who: str, time: str) -> pa.Table:
    """Numbered fixes in time order, in metres around their middle."""
    latitude, longitude = (table[c].to_numpy() for c in ("latitude", "longitude"))
    middle = np.median(latitude), np.median(longitude)
    fixes = pa.table(
        {
            "who": table[who],
            "time": table[time],
            "x": (longitude - middle[1]) * METRES_PER_DEGREE * np.cos(np.radians(middle[0])),
            "y": (latitude - middle[0]) * METRES_PER_DEGREE,
        }
    )
    fixes = fixes.take(pc.sort_indices(fixes, [("time", "ascending"), ("who", "ascending")]))
    return fixes.append_column("fix", pa.array(np.arange(len(fixes))))


def _cabs(file: Path) -> pa.Table:
    return _projected(pq.read_table(file), "cab", "time")


def _people(file: Path) -> pa.Table:
    table = pq.read_table(file)
    table = table.filter(pc.less(table["user"], "010"))
    return _projected(table, "user", "datetime")


def _walkers(who: int, minutes: int, step: float, every: int) -> pa.Table:
    """Walks around one place, with a fix every few seconds, whole seconds as real ones."""
    random = np.random.default_rng(7)
    parts = []
    for i in range(who):
        n = minutes * 60 // every
        time = np.sort(random.integers(0, minutes * 60, n)) + 1_211_000_000
        steps = random.normal(0, step, (n, 2)) / METRES_PER_DEGREE
        track = np.array([37.76, -122.42]) + np.cumsum(steps, axis=0)
        track -= 0.001 * (track - track[0])
        columns = {"latitude": track[:, 0], "longitude": track[:, 1]}
        parts.append(pa.table({"cab": [f"cab {i}"] * n, "time": time} | columns))
    return _projected(pa.concat_tables(parts), "cab", "time")


def _micros(fixes: pa.Table) -> NDArray[np.int64]:
    time = fixes["time"].combine_chunks()
    whole = time.view(pa.int64()) if pa.types.is_timestamp(time.type) else pc.multiply(time, 1_000_000)
    found: NDArray[np.int64] = whole.to_numpy()
    return found


def _brute(fixes: pa.Table, epsilon: float, sigma: float, alpha: float, window: float) -> Pairs:
    """Pairs of fixes of different owners, the earlier number first: everything in reach of each fix, by NumPy."""
    micros, x, y = _micros(fixes), fixes["x"].to_numpy(), fixes["y"].to_numpy()
    who = pc.index_in(fixes["who"], pc.unique(fixes["who"])).to_numpy()
    last = np.searchsorted(micros, micros + round(window * 1e6), side="right")
    pairs: Pairs = {}
    for begin in range(0, len(fixes), 20_000):
        rows = np.arange(begin, min(begin + 20_000, len(fixes)))
        counts = last[rows] - rows - 1
        left = np.repeat(rows, counts)
        right = left + 1 + np.arange(len(left)) - np.repeat(np.cumsum(counts) - counts, counts)
        d2 = (x[left] - x[right]) ** 2 + (y[left] - y[right]) ** 2
        near = (who[left] != who[right]) & (d2 <= (epsilon + 20 * sigma) ** 2)
        left, right, d2 = left[near], right[near], d2[near]
        probability = ncx2.cdf(epsilon**2 / (2 * sigma**2), 2, d2 / (2 * sigma**2))
        found = probability >= alpha - 1e-9
        pairs |= {
            (int(i), int(j)): float(p) for i, j, p in zip(left[found], right[found], probability[found], strict=True)
        }
    return pairs


def _found(*results: pa.Table) -> Pairs:
    """The pairs of results, each once, the earlier number first."""
    pairs: Pairs = {}
    for result in results:
        sides = [result[f"{side}_key"].to_numpy() for side in ("left", "right")]
        low, high = np.minimum(*sides).tolist(), np.maximum(*sides).tolist()
        found = dict(zip(zip(low, high, strict=True), result["probability"].to_pylist(), strict=True))
        assert len(found) == len(result)
        assert not set(found) & set(pairs)
        pairs |= found
    return pairs


def _assert_equal(found: Pairs, expected: Pairs) -> None:
    assert set(found) == set(expected)
    assert max((abs(found[pair] - p) for pair, p in expected.items()), default=0.0) < 1e-9


def _stream(fixes: Any, sigma: float, **settings: Any) -> ap.Stream:
    return ap.Stream(fixes, key="fix", time="time", value=ap.Gaussian("x", "y", sigma=sigma), **settings)


def _check_near(fixes: pa.Table, least: int) -> None:
    """Owners within 200 m in 2 minutes with probability .8, GPS error 15 m: four ways of asking."""
    question: dict[str, Any] = {"epsilon": 200.0, "probability": 0.8, "window": ap.TimeWindow("2 minutes")}
    expected = _brute(fixes, 200.0, 15.0, 0.8, 120.0)
    assert len(expected) >= least
    # One stream, the owner has to differ.
    stream = _stream(fixes, 15.0)
    _assert_equal(_found(ap.self_join(stream, different="who", **question)), expected)
    # A stream per owner.
    owners = pc.unique(fixes["who"]).to_pylist()
    tables = {owner: fixes.filter(pc.equal(fixes["who"], owner)) for owner in owners}
    result = ap.similarity_join(*(_stream(t, 15.0, name=owner) for owner, t in tables.items()), **question)
    _assert_equal(_found(result), expected)
    assert len(ap.rejects(result)) == 0
    # Pushed in batches, rows up to ten minutes late; out of the window is out of the state.
    streams = [_stream(None, 15.0, name=owner, lateness="10 minutes") for owner in owners]
    join = ap.SimilarityJoin(*streams, **question)
    random = np.random.default_rng(1)
    micros = _micros(fixes)
    arrivals = pa.array(micros + random.integers(0, 600_000_000, len(fixes)))
    cuts = np.linspace(micros[0], micros[-1] + 600_000_001, 40).astype(np.int64)
    parts = []
    for a, b in pairwise(cuts):
        batch = fixes.filter(pc.and_(pc.greater_equal(arrivals, a), pc.less(arrivals, b)))
        batch = batch.take(pa.array(random.permutation(len(batch))))
        frames = {owner: batch.filter(pc.equal(batch["who"], owner)) for owner in owners}
        parts.append(join.push(**frames))
    _assert_equal(_found(*parts), expected)
    assert len(join.rejects()) == 0
    assert join._engine is not None
    assert len(join._engine.operator) < len(fixes) / 2


def _check_met(fixes: pa.Table, least: int) -> None:
    """People within 50 m in 30 seconds with probability .9, GPS error 5 m, on every index."""
    question: dict[str, Any] = {"epsilon": 50.0, "probability": 0.9, "window": ap.TimeWindow(30)}
    expected = _brute(fixes, 50.0, 5.0, 0.9, 30.0)
    assert len(expected) >= least
    stream = _stream(fixes, 5.0)
    for index in ("auto", "grid"):
        result = ap.self_join(stream, different="who", **question, options=ap.Options(index=index))
        _assert_equal(_found(result), expected)
    # Without bounds too, over the busiest stretch.
    busy = fixes.slice(min(pair[0] for pair in expected), 20_000)
    some = {pair: p for pair, p in expected.items() if pair[1] < busy["fix"][-1].as_py()}
    options = ap.Options(bounds=frozenset())
    found = _found(ap.self_join(_stream(busy, 5.0), different="who", **question, options=options))
    assert {pair: found[pair] for pair in some} == pytest.approx(some, abs=1e-9)


def test_cabs_within_200_metres(data: Callable[[str], Path]) -> None:
    """Five cabs of San Francisco over 24 days."""
    _check_near(_cabs(data(CABS)), 1000)


def test_generated_cabs_within_200_metres() -> None:
    """Five walkers around one place."""
    _check_near(_walkers(5, 120, 25.0, 30), 1000)


def test_people_who_met(data: Callable[[str], Path]) -> None:
    """Ten people of Beijing in the autumn of 2008, with a fix every few seconds."""
    _check_met(_people(data(PEOPLE)), 1000)


def test_generated_people_who_met() -> None:
    """Four walkers with a fix every three seconds."""
    _check_met(_walkers(4, 60, 4.0, 3), 1000)


# --- a count window, on Spark: motes of a lab as dimensions -----------------------------------------------------

EPOCH = 30  # seconds


def _lab(file: Path, epochs: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The nights of two days of the Intel lab, by eight motes that dropped no reading."""
    motes = pq.read_table(file, columns=[f"c{i:02}" for i in (1, 7, 13, 20, 27, 34, 41, 48)]).to_pandas().to_numpy()
    return motes[:epochs], motes[2880 : 2880 + epochs]


def _rooms(epochs: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Two nights of five rooms that cool down, one night a little later than the other."""
    random = np.random.default_rng(3)
    hours = np.arange(epochs) * EPOCH / 3600
    warm = random.uniform(17, 20, 5)
    first, second = (
        warm - 2.0 * (hours - late)[:, None] + random.normal(0, 0.03, (epochs, 5)).cumsum(axis=0) / 4
        for late in (0.0, 0.5)
    )
    return first, second


def _night(temperatures: NDArray[np.float64], first: int) -> pa.Table:
    epochs, motes = temperatures.shape
    columns = {f"mote {i}": temperatures[:, i] for i in range(motes)}
    return pa.table({"row": np.arange(epochs) + first, "time": np.arange(epochs) * EPOCH + EPOCH} | columns)


def _save_as_it_comes(night: pa.Table, folder: Path, files: int) -> None:
    """Rows up to two minutes late, in files that Spark takes one by one."""
    folder.mkdir(parents=True)
    late = np.random.default_rng(4).integers(0, 120, len(night))
    night = night.take(pa.array(np.argsort(night["time"].to_numpy() + late, kind="stable")))
    for i, rows in enumerate(np.array_split(np.arange(len(night)), files)):
        file = folder / f"{i}.parquet"
        pq.write_table(night.take(pa.array(rows)), file)
        os.utime(file, (1_700_000_000 + i, 1_700_000_000 + i))


def _check_nights(
    spark: SparkSession, folder: Path, nights: tuple[NDArray[np.float64], NDArray[np.float64]], window: int, least: int
) -> None:
    """Epochs of two nights alike over all motes, both among the newest so many: in process, drained on Spark, by hand.

    One object per stream and tick, as in the USJ paper, motes as dimensions, known to a tenth of a degree.
    """
    epsilon, sigma, alpha = 0.9, 0.1, 0.5
    tables = [_night(night, first) for night, first in zip(nights, (0, len(nights[0])), strict=True)]
    model = ap.Gaussian(*tables[0].column_names[2:], sigma=sigma)
    question: dict[str, Any] = {"epsilon": epsilon, "probability": alpha, "window": ap.CountWindow(window)}

    n, d = nights[0].shape
    squares = ((nights[0][:, None] - nights[1][None]) ** 2).sum(axis=2)
    epoch = np.arange(n)
    both = (np.abs(epoch[:, None] - epoch) < window) & (squares <= (epsilon + 20 * sigma) ** 2)
    left, right = np.nonzero(both)
    probability = ncx2.cdf(epsilon**2 / (2 * sigma**2), d, squares[both] / (2 * sigma**2))
    expected = {
        (int(i), int(j) + n): float(p) for i, j, p in zip(left, right, probability, strict=True) if p >= alpha - 1e-9
    }
    assert least <= len(expected) < n * n / 5

    streams = [ap.Stream(table, key="row", time="time", value=model) for table in tables]
    _assert_equal(_found(ap.similarity_join(*streams, **question)), expected)

    frames = []
    for name, table in zip("ab", tables, strict=True):
        _save_as_it_comes(table, folder / name, files=3)
        frames.append(read_stream(spark, folder / name))
    streams = [ap.Stream(f, key="row", time="time", value=model, lateness="2 minutes") for f in frames]
    answers, rejects = drained(ap.similarity_join(*streams, **question), folder / "out")
    _assert_equal(_found(answers), expected)
    assert len(rejects) == 0


def test_nights_of_a_lab_alike(data: Callable[[str], Path], spark: SparkSession, tmp_path: Path) -> None:
    """The Intel lab on two days, in count windows of a thousand."""
    _check_nights(spark, tmp_path, _lab(data(LAB), 1300), 1000, 1000)


def test_generated_nights_alike(spark: SparkSession, tmp_path: Path) -> None:
    """Five rooms for three hours, in count windows of a hundred."""
    _check_nights(spark, tmp_path, _rooms(360), 100, 300)
