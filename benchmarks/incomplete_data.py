"""Data sets of incomplete joins: two streams, a repository of complete rows, and holes made in the streams.

Attributes are normalised to [0, 1] by the repository's ranges. Rows of both streams come one a second each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa

import appulse as ap
from examples.data_folder import data_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class DataSet:
    """Complete rows of two streams, in order of time, and of a repository; (n, d) each, in [0, 1] mostly.

    ``gaps`` are the streams with holes as they really came, where that is known.
    """

    name: str
    left: Matrix
    right: Matrix
    repository: Matrix
    gaps: tuple[Matrix, Matrix] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"a{k}" for k in range(self.left.shape[1]))

    @property
    def complete(self) -> pa.Table:
        """The repository as a table."""
        return pa.table(dict(zip(self.names, self.repository.T, strict=True)))

    def near(self, share: float, seed: int = 0) -> float:
        """The epsilon within which that share of pairs lies."""
        chance = np.random.default_rng(seed)
        a = self.left[chance.integers(0, len(self.left), 20_000)]
        b = self.right[chance.integers(0, len(self.right), 20_000)]
        return float(np.quantile(np.sqrt(((a - b) ** 2).sum(axis=1)), share))

    def streams(self, left: Matrix, right: Matrix) -> tuple[ap.Stream, ap.Stream]:
        """The streams with these values, NaN where they have holes."""
        return self._stream(left), self._stream(right)

    def _stream(self, rows: Matrix) -> ap.Stream:
        order = np.arange(len(rows))
        columns = {name: pa.array(rows[:, k], from_pandas=True) for k, name in enumerate(self.names)}
        table = pa.table({"id": order, "at": order, **columns})
        return ap.Stream(table, key="id", time="at", value=ap.Incomplete(*self.names))


def holes(rows: Matrix, share: float, m: int, seed: int, *, burst: int = 1) -> Matrix:
    """Rows of which a share lacks ``m`` attributes each, never all; in runs of ``burst`` rows that lack the same."""
    chance = np.random.default_rng(seed)
    n, d = rows.shape
    runs = -(-n // burst)
    lost = (chance.random((runs, d)).argsort(axis=1) < min(m, d - 1)) & (chance.random(runs) < share)[:, None]
    return np.where(np.repeat(lost, burst, axis=0)[:n], np.nan, rows)


def _normalised(name: str, left: Matrix, right: Matrix, repository: Matrix) -> DataSet:
    low, high = repository.min(axis=0), repository.max(axis=0)
    spread = np.maximum(high - low, 1e-12)
    return DataSet(name, *((part - low) / spread for part in (left, right, repository)))


def uniform(n: int, d: int, repository: int, seed: int = 0) -> DataSet:
    """Independent attributes: nothing tells anything."""
    rows = np.random.default_rng(seed).random((2 * n + repository, d))
    return DataSet("uniform", rows[:n], rows[n : 2 * n], rows[2 * n :])


def correlated(n: int, d: int, repository: int, seed: int = 0) -> DataSet:
    """Attributes near the diagonal (Boerzsoenyi et al. 2001)."""
    chance = np.random.default_rng(seed)
    base = chance.normal(0.5, 0.17, (2 * n + repository, 1))
    rows = np.clip(base + chance.normal(0.0, 0.05, (len(base), d)), 0.0, 1.0)
    return DataSet("correlated", rows[:n], rows[n : 2 * n], rows[2 * n :])


def anticorrelated(n: int, d: int, repository: int, seed: int = 0) -> DataSet:
    """Attributes near the plane on which they sum to d / 2."""
    chance = np.random.default_rng(seed)
    rows = chance.random((2 * n + repository, d))
    rows += (0.5 + chance.normal(0.0, 0.05, (len(rows), 1))) - rows.mean(axis=1, keepdims=True)
    rows = np.clip(rows, 0.0, 1.0)
    return DataSet("anticorrelated", rows[:n], rows[n : 2 * n], rows[2 * n :])


def intel(n: int, repository: int) -> DataSet:
    """Temperatures of sensors 1 to 4 of the Intel lab against those of 5 to 8; the first day is the repository."""
    frame = pd.read_parquet(data_at("intel_lab/temperature_52_sensors_30s_2days.parquet"))
    rows = frame[[f"c{k:02}" for k in range(1, 9)]].to_numpy(float)
    past = rows[:2880]
    known = np.vstack([past[:, :4], past[:, 4:]])[:repository]
    return _normalised("intel", rows[2880 : 2880 + n, :4], rows[2880 : 2880 + n, 4:], known)


def weather(n: int, repository: int) -> DataSet:
    """Temperature, humidity, pressure, wind of Portland against Seattle; other years and a city: the repository."""
    folder = data_at("weather_hourly_36_cities")
    kinds = ("temperature_degC", "humidity", "pressure", "wind_speed")
    frames = [pd.read_parquet(folder / f"five_years_8_cities_{kind}.parquet") for kind in kinds]

    def of(city: str) -> Matrix:
        rows: Matrix = np.column_stack([frame[city].to_numpy(float) for frame in frames])
        return np.asarray(rows[~np.isnan(rows).any(axis=1)], np.float64)

    portland, seattle = of("Portland"), of("Seattle")
    known = np.vstack([portland[:-n], seattle[:-n], of("San Francisco")])
    return _normalised("weather", portland[-n:], seattle[-n:], known[:: max(1, len(known) // repository)][:repository])


def stocks(n: int, repository: int) -> DataSet:
    """Open, high, low and close of stocks A to L against those of the others; earlier days are the repository."""
    frame = pd.read_parquet(data_at("sp500_5yr/all_stocks_5yr.parquet")).dropna()
    frame = frame.sort_values(["date", "Name"])
    values = frame[["open", "high", "low", "close"]].to_numpy(float)
    early = (frame["Name"] < "M").to_numpy()
    left, right = values[early][-n:], values[~early][-n:]
    known = values[: len(values) // 2]
    return _normalised("sp500", left, right, known[:: max(1, len(known) // repository)][:repository])


def air(n: int, repository: int) -> DataSet:
    """Temperature, humidity and two gas sensors of an Italian street, the even hours against the odd ones."""
    frame = pd.read_parquet(data_at("uci_air_quality/AirQualityUCI.parquet"))
    rows = frame[["T", "RH", "PT08.S1(CO)", "PT08.S5(O3)"]].to_numpy(float)
    rows = rows[(rows > -200).all(axis=1)]
    known = rows[: -2 * n] if len(rows) > 3 * n else rows[: len(rows) // 2]
    last = rows[len(known) :]
    return _normalised("air", last[::2][:n], last[1::2][:n], known[:repository])


def _with_gaps(name: str, rows: tuple[Matrix, Matrix], lost: tuple[Matrix, Matrix], repository: Matrix) -> DataSet:
    """Rows of which it is known what they lacked; those that lacked everything are left out, on both sides."""
    some = ~(lost[0].all(axis=1) | lost[1].all(axis=1))
    made = _normalised(name, rows[0][some], rows[1][some], repository)
    left, right = (np.where(own[some], np.nan, part) for own, part in zip(lost, (made.left, made.right), strict=True))
    return replace(made, gaps=(left, right))


def beijing_stations(n: int, repository: int) -> DataSet:
    """PM2.5 at four stations of Beijing against four others, without what was hidden by those who published them.

    The hours at which all eight were measured; those before the last n, in what was not hidden, are the repository.
    """
    folder = data_at("beijing_36_pm25")
    truth, seen = (
        pd.read_parquet(folder / f"pm25_{kind}.parquet").drop(columns="datetime").to_numpy(float)[:, :8]
        for kind in ("ground", "missing")
    )
    kept = ~np.isnan(truth).any(axis=1)
    truth, seen = truth[kept], seen[kept]
    lost = np.isnan(seen)
    past = np.vstack([seen[:-n, :4], seen[:-n, 4:]])
    past = past[~np.isnan(past).any(axis=1)]
    last = slice(-n, None)
    return _with_gaps(
        "beijing_36",
        (truth[last, :4], truth[last, 4:]),
        (lost[last, :4], lost[last, 4:]),
        past[:: max(1, len(past) // repository)][:repository],
    )


def beijing_air(n: int, repository: int) -> DataSet:
    """PM2.5, NO2, CO and O3 at Dongsi against Tiantan; gaps are those of other stations in other hours.

    What these two really lack nobody knows: so they get the real gaps of four others each, a year apart.
    """
    frame = pd.read_parquet(data_at("beijing_multisite_air/prsa_2013_2017.parquet"))
    kinds = ["PM2.5", "NO2", "CO", "O3"]
    of = {name: part[kinds].to_numpy(float) for name, part in frame.groupby("station")}
    stations = [name for name in of if name not in ("Dongsi", "Tiantan")]
    kept = np.flatnonzero(~(np.isnan(of["Dongsi"]) | np.isnan(of["Tiantan"])).any(axis=1))
    past, last = kept[:-n], kept[-n:]
    lost = [
        np.any([np.isnan(of[name][last - 8760]) for name in some], axis=0) for some in (stations[:4], stations[4:8])
    ]
    known = np.vstack([of["Dongsi"][past], of["Tiantan"][past]])
    return _with_gaps(
        "beijing_air",
        (of["Dongsi"][last], of["Tiantan"][last]),
        (lost[0], lost[1]),
        known[:: max(1, len(known) // repository)][:repository],
    )


def all_of(n: int, repository: int) -> dict[str, Callable[[], DataSet]]:
    """Every data set there is on this machine."""
    made: dict[str, Callable[[], DataSet]] = {
        "uniform": lambda: uniform(n, 3, repository),
        "correlated": lambda: correlated(n, 3, repository),
        "anticorrelated": lambda: anticorrelated(n, 3, repository),
    }
    if data_at().is_dir():
        made |= {
            "intel": lambda: intel(n, repository),
            "weather": lambda: weather(n, repository),
            "sp500": lambda: stocks(n, repository),
            "air": lambda: air(n, repository),
            # Real gaps are few, and come in runs.
            "beijing_36": lambda: beijing_stations(max(n, 4000), repository),
            "beijing_air": lambda: beijing_air(max(n, 8000), repository),
        }
    return made
