"""The data of Lian & Chen 2009 (USJ): centres with samples around them, and streams of them as tables.

A real value is a centre; its object has samples in a ball around it, whose radius is uniform (rU) or Gaussian (rG) in
[r_min, r_max]. Attributes are scaled to [0, 1]. Where a setting is lost in the paper's text ours stands beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import appulse as ap
from examples.data_folder import data_at

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from appulse.kernels.arrays import Floats

    Matrix = NDArray[np.float64]

TRACK = "gps_commute_castanet/track.parquet"
PEOPLE = "geolife/users_000_010_october_2008.parquet"
LAB = "intel_lab/temperature_52_sensors_30s_2days.parquet"
NAMES = ("x", "y", "z", "u", "v")


@dataclass(frozen=True)
class Stream:
    """Objects in order of arrival: samples dimension by dimension (n, d, l), all of the same weight."""

    samples: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def d(self) -> int:
        return int(self.samples.shape[1])

    @property
    def l(self) -> int:  # noqa: E743 - the paper's name
        return int(self.samples.shape[2])

    def table(self, per_tick: int = 1) -> pa.Table:
        """As rows: ``id``, ``ts`` (the tick, in seconds) and ``samples``."""
        n, d, m = self.samples.shape
        values = np.ascontiguousarray(self.samples.transpose(0, 2, 1)).ravel()
        points = pa.ListArray.from_arrays(pa.array(np.arange(n * m + 1) * d, pa.int32()), pa.array(values))
        objects = pa.ListArray.from_arrays(pa.array(np.arange(n + 1) * m, pa.int32()), points)
        return pa.table({"id": np.arange(n), "ts": np.arange(n) // per_tick, "samples": objects})

    @staticmethod
    def described() -> ap.Stream:
        """How the join is told of such rows."""
        return ap.Stream(None, key="id", time="ts", value=ap.Samples("samples"))


def radii(rng: np.random.Generator, n: int, least: float, most: float, *, gaussian: bool) -> NDArray[np.float64]:
    """Radii of objects: uniform, or Gaussian with mean (r_min + r_max) / 2 and variance (r_min + r_max) / 5.

    That variance, as printed, is wider than the range by far; what lies outside is clipped to it.
    """
    if not gaussian:
        return rng.uniform(least, most, n)
    return np.clip(rng.normal((least + most) / 2, np.sqrt((least + most) / 5), n), least, most)


def around(rng: np.random.Generator, centres: Matrix, radius: Floats, samples: int) -> Stream:
    """Objects with samples uniform in the balls around the centres."""
    n, d = centres.shape
    points = rng.standard_normal((n, d, samples))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    points *= rng.random((n, 1, samples)) ** (1.0 / d)
    return Stream(centres[:, :, None] + radius[:, None, None] * points)


def uniform(rng: np.random.Generator, n: int, d: int) -> Matrix:
    """Centres uniform in the unit cube: no order in time, no clusters."""
    return rng.random((n, d))


def gps(rng: np.random.Generator, n: int, d: int) -> tuple[Matrix, Matrix]:
    """Fixes of two moving things, (latitude, longitude, altitude) and what follows from them; generated without data.

    The commuter's fixes, and those of the people of GeoLife, each thinned to spread over the whole, so that a window
    sees more than one street. More than three dimensions add the speed along two of them.
    """
    if data_at(TRACK).exists() and data_at(PEOPLE).exists():
        own = pq.read_table(data_at(TRACK))
        people = pq.read_table(data_at(PEOPLE))
        people = people.filter(pc.equal(people["user"], "000"))
        tracks = [
            np.column_stack([own[name].to_numpy() for name in ("lat", "lon", "ele")]),
            np.column_stack([people[name].to_numpy() for name in ("latitude", "longitude", "altitude_ft")]),
        ]
    else:
        tracks = [walk(rng, 17_000), walk(rng, 17_000)]
    return _both([_thinned(_with_speed(track), n, d) for track in tracks])


def sensors(rng: np.random.Generator, n: int, d: int) -> tuple[Matrix, Matrix]:
    """Temperatures of d sensors and of d others, sensors as dimensions; generated without data."""
    if data_at(LAB).exists():
        table = pq.read_table(data_at(LAB))
        readings = np.column_stack([table[f"c{k + 1:02}"].to_numpy() for k in range(2 * d)])
    else:
        day = np.sin(np.arange(5760) / 2880 * 2 * np.pi)[:, None]
        readings = 20.0 + 4.0 * day + np.cumsum(rng.normal(0.0, 0.05, (5760, 2 * d)), axis=0)
    return _both([_thinned(part, n, d) for part in (readings[:, 0::2], readings[:, 1::2])])


def walk(rng: np.random.Generator, n: int) -> Matrix:
    """Ways between a dozen places, a hundred fixes each, to and fro: any stretch of it comes by most of them."""
    stops = rng.random((12, 3))[rng.integers(12, size=n // 100 + 2)]
    way = np.column_stack([np.interp(np.arange(n) / 100, np.arange(len(stops)), stops[:, k]) for k in range(3)])
    return way + rng.normal(0.0, 0.005, (n, 3))


def _with_speed(track: Matrix) -> Matrix:
    speed = np.gradient(track[:, :2], axis=0)
    return np.column_stack([track, np.clip(speed, *np.quantile(speed, [0.01, 0.99], axis=0))])


def _thinned(points: Matrix, n: int, d: int) -> Matrix:
    """``n`` points in their order, in d dimensions, each between its neighbours where there are fewer."""
    at = np.linspace(0, len(points) - 1, n)
    return np.column_stack([np.interp(at, np.arange(len(points)), points[:, k]) for k in range(d)])


def _both(parts: list[Matrix]) -> tuple[Matrix, Matrix]:
    """Each attribute scaled to [0, 1], between its 1 and 99 % quantiles, stream by stream."""
    scaled = []
    for points in parts:
        low, high = np.quantile(points, [0.01, 0.99], axis=0)
        scaled.append(np.clip((points - low) / np.where(high > low, high - low, 1.0), 0.0, 1.0))
    return scaled[0], scaled[1]


Sides = tuple[Stream, Stream]


def objects(
    rng: np.random.Generator, centres: tuple[Matrix, Matrix], least: float, most: float, samples: int, kinds: str = "UU"
) -> Sides:
    """Objects around the centres of both streams; of each stream a letter, U or G, tells how radii are drawn."""
    left, right = (
        around(rng, at, radii(rng, len(at), least, most, gaussian=kind == "G"), samples)
        for at, kind in zip(centres, kinds, strict=True)
    )
    return left, right


def fitted(
    rng: np.random.Generator,
    sides: Sides,
    share: float,
    alpha: float,
    pairs: int = 30_000,
    within: int | None = None,
) -> float:
    """The epsilon at which ``share`` of all pairs of a sample are answers: exact for those, no search.

    A pair is an answer from the epsilon on that holds a share alpha of its pairs of samples. Where order in time
    matters pairs are drawn ``within`` so many arrivals of each other.
    """
    left, right = sides
    rows = np.column_stack([rng.integers(0, len(side), pairs) for side in sides])
    if within is not None:
        rows[:, 1] = np.clip(rows[:, 0] + rng.integers(1 - within, within, pairs), 0, len(right) - 1)
    centres = [stream.samples.mean(axis=2) for stream in sides]
    apart = np.linalg.norm(centres[0][rows[:, 0]] - centres[1][rows[:, 1]], axis=1)
    # Pairs of far centres are no answers before near ones are; thirty times as many as are needed are looked into.
    near = rows[np.argsort(apart)[: max(200, int(30 * share * pairs))]]
    least = np.empty(len(near))
    need = int(np.ceil(alpha * left.l * right.l - 1e-6)) - 1
    for i, (a, b) in enumerate(near.tolist()):
        gaps = left.samples[a][:, :, None] - right.samples[b][:, None, :]
        least[i] = np.sqrt(np.partition(np.einsum("kst,kst->st", gaps, gaps).ravel(), need)[need])
    return float(np.sort(least)[int(share * pairs)])
