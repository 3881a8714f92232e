"""Generated streams of tuples that may not exist: Dallachiesa et al. 2015, section 7.1, over the UCR sets."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.optimize import brentq
from scipy.stats import truncexpon, truncnorm

from examples.data_folder import data_at

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

#: One parquet file per set, z-normalised series as rows.
SETS = (
    "50words",
    "Adiac",
    "Beef",
    "CBF",
    "Coffee",
    "ECG200",
    "FISH",
    "FaceAll",
    "FaceFour",
    "Gun_Point",
    "Lighting2",
    "Lighting7",
    "OSULeaf",
    "OliveOil",
    "SwedishLeaf",
    "Trace",
    "synthetic_control",
)
DISTRIBUTIONS = ("uniform", "normal", "exponential")
_WIDTH = float(np.sqrt(3.0))  # half the width of a uniform distribution, in deviations


def existence(rng: np.random.Generator, n: int, sd: float, distribution: str = "uniform") -> Floats:
    """Existence probabilities with the deviation ``sd`` and the upper end 1; those not in (0, 1] are drawn again.

    The uniform ones lie on [1 - 2 sqrt(3) sd, 1]. The normal ones have their peak where the middle of those is, the
    exponential ones at 1; the deviation before rejection is chosen so that it is ``sd`` after it.
    """
    out = np.empty(0)
    scale = calibrated(sd, distribution)
    while len(out) < n:
        if distribution == "uniform":
            drawn = 1.0 - scale * rng.random(n)
        elif distribution == "normal":
            drawn = rng.normal(1.0 - _WIDTH * sd, scale, n)
        else:
            drawn = 1.0 - rng.exponential(scale, n)
        out = np.concatenate([out, drawn[(drawn > 0.0) & (drawn <= 1.0)]])
    return out[:n]


@cache
def calibrated(sd: float, distribution: str) -> float:
    """The parameter that gives existence probabilities the deviation ``sd`` once rejection is over."""
    if distribution == "uniform":
        return 2.0 * _WIDTH * sd
    middle = 1.0 - _WIDTH * sd

    def excess(scale: float) -> float:
        if distribution == "normal":
            return float(truncnorm.std(-middle / scale, (1.0 - middle) / scale, loc=middle, scale=scale)) - sd
        return float(truncexpon.std(1.0 / scale, scale=scale)) - sd

    return float(brentq(excess, 0.2 * sd, 100.0))


def errors(rng: np.random.Generator, shape: tuple[int, int], sd: float, distribution: str = "normal") -> Floats:
    """Errors of values with mean zero and the deviation ``sd``."""
    if distribution == "uniform":
        return rng.uniform(-_WIDTH * sd, _WIDTH * sd, shape)
    if distribution == "normal":
        return rng.normal(0.0, sd, shape)
    return rng.exponential(sd, shape) - sd


@cache
def series(name: str) -> Floats:
    """All series of a UCR set, as rows."""
    path = data_at(f"ucr/{name}.parquet")
    if not path.exists():
        sys.exit(f"{path} is not there; put the UCR sets, one parquet file each, into {path.parent}")
    table = pq.read_table(path)
    columns = [column for column in table.column_names if column[0] == "t" and column[1:].isdigit()]
    return np.stack([table[column].to_numpy() for column in columns], axis=1)


def values(rng: np.random.Generator, name: str, n: int) -> Floats:
    """Random subsequences of a set's series, at least a quarter of a series long, one after the other."""
    known = series(name)
    parts, have = [], 0
    while have < n:
        row = known[rng.integers(len(known))]
        length = int(rng.integers(len(row) // 4, len(row) + 1))
        begin = int(rng.integers(len(row) - length + 1))
        parts.append(row[begin : begin + length])
        have += length
    return np.concatenate(parts)[:n]


@dataclass(frozen=True)
class Tuples:
    """An uncertain stream: existence probabilities, and equally likely samples as rows."""

    exist: Floats
    samples: Floats

    def __len__(self) -> int:
        return len(self.exist)

    def table(self, stream: int) -> pa.Table:
        """As a table, one tuple a tick; two streams take turns."""
        n, k = self.samples.shape
        offsets = np.arange(n + 1, dtype=np.int32) * k
        return pa.table(
            {
                "id": np.arange(n, dtype=np.int64),
                "ts": 2 * np.arange(n, dtype=np.int64) + stream,
                "p": self.exist,
                "samples": pa.ListArray.from_arrays(pa.array(offsets), pa.array(self.samples.reshape(-1))),
            }
        )


def tuples(
    rng: np.random.Generator,
    name: str,
    n: int,
    *,
    samples: int = 10,
    exist_sd: float = 0.1,
    value_sd: float = 0.5,
    distribution: str = "uniform",
    error: str = "normal",
) -> Tuples:
    """An uncertain stream over a UCR set."""
    true = values(rng, name, n)[:, None]
    noise = errors(rng, (n, samples), value_sd, error)
    return Tuples(existence(rng, n, exist_sd, distribution), true + noise)


def epsilon_for(rng: np.random.Generator, u: Tuples, v: Tuples, share: float = 0.01, probability: float = 0.5) -> float:
    """The epsilon at which ``share`` of all pairs of tuples match with at least ``probability``, windows apart."""
    n = 20_000
    i, j = rng.integers(len(u), size=n), rng.integers(len(v), size=n)
    distances = np.abs(u.samples[i][:, :, None] - v.samples[j][:, None, :]).reshape(n, -1)
    distances.sort(axis=1)
    most = distances.shape[1]
    # So many close pairs of samples are needed for a match; more than there are where existence alone is too unlikely.
    needed = np.ceil(probability / (u.exist[i] * v.exist[j]) * most - 1e-9).astype(np.int64)
    reached = np.where(needed <= most, distances[np.arange(n), np.minimum(needed, most) - 1], np.inf)
    return float(np.sort(reached)[int(share * n)])
