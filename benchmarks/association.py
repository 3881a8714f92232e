"""The nearest row, one partner each, and rows without a partner, against what else finds them.

    python -m benchmarks.association --quick --json

Figures that begin with ``vs_`` are another's time over ours, for the same rows:

* ``vs_kdtree_nn``: SciPy's ``cKDTree``, k = 1, of 100,000 rows for 100,000, one thread each; from arrays to places,
  ours from tables to a table. ``vs_pykdtree`` beside it.
* ``vs_sedona_knn``: Sedona's ``ST_KNN`` on Spark, from Parquet to a sum; ``vs_nearest_by``: Spark's ``nearestByJoin``,
  of 10,000 rows for 10,000.
* ``vs_astropy_match``: astropy's ``match_to_catalog_sky`` and ``search_around_sky`` within an arc second, of stars of
  Hipparcos in Gaia, or of as many generated ones; the lesser of the two figures. Ours uses all cores.
* ``assign_10k``: SciPy's dense ``linear_sum_assignment`` over the gated matrix, of 10,000 tracks and as many detections
  in one scan, which is given to it, over our time, from tables to a table.
* ``cosine_vs_blas``: our time for the pairs of 10,000 and 10,000 vectors of 768 numbers that point the same way, over
  that of a blocked product of all pairs; ``cosine_vs_blas_near`` where the vectors lie near 40 axes; ``faiss_flat``,
  the time of faiss' flat index over ours.
* ``anti_of_inner``: our time with ``how="left_anti"`` over that of the inner join.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.optimize import linear_sum_assignment
from scipy.spatial import cKDTree

import appulse as ap
from benchmarks.aside import aside
from benchmarks.harness import arguments, least, report, say, scratch
from benchmarks.vectors import cosine
from examples.data_folder import data_at

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

_N = 100_000
Figures = dict[str, float | None]


def points(chance: np.random.Generator, n: int) -> pa.Table:
    """Rows uniform on a square."""
    return pa.table({"k": np.arange(n), "t": np.zeros(n), "x": chance.random(n), "y": chance.random(n)})


def plain(frame: Any, **settings: Any) -> Any:
    """A stream of exact rows."""
    return ap.Stream(frame, key="k", time="t", value=ap.Exact("x", "y"), **settings)


def nearest_of_points(folder: Path) -> Figures:
    """Trees in process."""
    chance = np.random.default_rng(0)
    left, right = points(chance, _N), points(chance, _N)
    ours_of, theirs_of = (np.column_stack([rows["x"].to_numpy(), rows["y"].to_numpy()]) for rows in (left, right))

    def ours() -> Any:
        return ap.nearest(plain(left), plain(right), epsilon=None, window=1, options=ap.Options(threads=1))

    ours_took, tree_took = least(ours, lambda: cKDTree(theirs_of).query(ours_of, k=1))
    found = ours().sort_by("left_key")["right_key"].to_numpy()
    if not np.array_equal(found, cKDTree(theirs_of).query(ours_of, k=1)[1]):
        raise RuntimeError("cKDTree finds other rows")
    for name, rows in (("left", left), ("right", right)):
        pq.write_table(rows, folder / f"{name}.parquet")
    other = aside("pykdtree_nn", folder / "left.parquet", folder / "right.parquet")
    if other is not None and other["places"] != int(found.sum()):
        raise RuntimeError("pykdtree finds other rows")
    say(f"nearest: ours {ours_took:.3f} s, cKDTree {tree_took:.3f} s, pykdtree {other and other['seconds']} s")
    return {
        "vs_kdtree_nn": tree_took / ours_took,
        "vs_pykdtree": None if other is None else other["seconds"] / ours_took,
    }


def nearest_on_spark(folder: Path) -> Figures:
    """Sedona, and Spark's own join."""
    from pyspark.sql import functions as F  # noqa: N812 - the usual name of this module

    cores = len(os.sched_getaffinity(0))
    spark: SparkSession = ap.session()
    frames = [spark.read.parquet(str(folder / f"{name}.parquet")) for name in ("left", "right")]

    def total(left: Any, right: Any, limit: float | None) -> int:
        found = ap.nearest(plain(left), plain(right), epsilon=limit, window=1)
        return int(found.agg(F.sum("right_key")).collect()[0][0])

    ours = [total(frames[0], frames[1], None)]
    took = _best(lambda: ours.append(total(frames[0], frames[1], None)))
    other = aside("sedona_knn", folder / "left.parquet", folder / "right.parquet", cores)
    if other is not None and other["total"] != ours[0]:
        raise RuntimeError("Sedona finds other rows")
    say(f"Spark: ours {took:.2f} s, Sedona {other and other['seconds']} s")
    figures: Figures = {"vs_sedona_knn": None if other is None else other["seconds"] / took}
    few = [frame.limit(10_000).cache() for frame in frames]
    counts = [frame.count() for frame in few]
    took = _best(lambda: total(few[0], few[1], None))
    if not hasattr(few[0], "nearestByJoin"):
        say("this Spark has no nearestByJoin")
        return figures | {"vs_nearest_by": None}
    left, right = (few[i].select(*(F.col(c).alias(f"{c}{i}") for c in ("k", "x", "y"))) for i in (0, 1))
    rank = (F.col("x0") - F.col("x1")) * (F.col("x0") - F.col("x1")) + (F.col("y0") - F.col("y1")) * (
        F.col("y0") - F.col("y1")
    )
    begun = time.perf_counter()
    theirs = left.nearestByJoin(right, rank, 1, "exact", "distance").agg(F.sum("k1")).collect()[0][0]
    spent = time.perf_counter() - begun
    if theirs != total(few[0], few[1], None):
        raise RuntimeError("nearestByJoin finds other rows")
    say(f"{counts[0]} rows: ours {took:.2f} s, nearestByJoin {spent:.2f} s")
    return figures | {"vs_nearest_by": spent / took}


def _best(call: Any) -> float:
    took = []
    for _ in range(3):
        begun = time.perf_counter()
        call()
        took.append(time.perf_counter() - begun)
    return min(took)


def stars(folder: Path) -> Figures:
    """Two catalogues of the sky."""
    files = [data_at(f"sky/{name}.parquet") for name in ("hipparcos", "gaia")]
    if all(file.exists() for file in files):
        raw = pq.read_table(files[0], columns=["ra_rad", "de_rad"])
        left = np.degrees(np.column_stack([raw["ra_rad"].to_numpy(), raw["de_rad"].to_numpy()]))
        there = pq.read_table(files[1], columns=["ra", "dec"])
        right = np.column_stack([there["ra"].to_numpy(), there["dec"].to_numpy()])
    else:
        say("no catalogues: generated ones")
        chance = np.random.default_rng(0)
        right = np.column_stack(
            [chance.uniform(0.0, 360.0, 480_000), np.degrees(np.arcsin(chance.uniform(-1.0, 1.0, 480_000)))]
        )
        left = right[:118_000] + chance.normal(0.0, 0.5 / 3600.0, (118_000, 2))
        left[:, 1] = left[:, 1].clip(-90.0, 90.0)
    tables = [
        pa.table({"k": np.arange(len(rows)), "t": np.zeros(len(rows)), "ra": rows[:, 0], "dec": rows[:, 1]})
        for rows in (left, right)
    ]
    for name, rows in zip(("hip", "gaia"), tables, strict=True):
        pq.write_table(rows, folder / f"{name}.parquet")
    value = ap.Position("dec", "ra", earth="sky")
    both = [ap.Stream(rows, key="k", time="t", value=value) for rows in tables]

    def near() -> Any:
        return ap.nearest(both[0], both[1], epsilon=None, window=1)

    def pairs() -> Any:
        return ap.similarity_join(both[0], both[1], epsilon=1.0, probability=1.0, window=1)

    near_took, pairs_took = least(near, pairs)
    other = aside("astropy_match", folder / "hip.parquet", folder / "gaia.parquet", 1.0)
    if other is None:
        return {"vs_astropy_match": None}
    places, count = int(near()["right_key"].to_numpy().sum()), len(pairs())
    if (other["places"], other["pairs"]) != (places, count):
        raise RuntimeError(f"astropy finds {other}, and not {places} and {count}")
    say(
        f"stars: nearest {near_took:.3f} s, astropy {other['match']:.3f}; pairs {pairs_took:.3f}, {other['around']:.3f}"
    )
    return {"vs_astropy_match": min(other["match"] / near_took, other["around"] / pairs_took)}


def assignment() -> Figures:
    """A scan of tracks and detections, a tenth of which have no partner."""
    chance, n, sigma, side = np.random.default_rng(0), 10_000, 3.0, 1000.0
    place = chance.random((n, 2)) * side
    seen = place + chance.normal(0.0, sigma, (n, 2))
    lost = chance.random(n) < 0.1
    seen[lost] = chance.random((int(lost.sum()), 2)) * side
    left, right = (
        pa.table({"k": np.arange(n), "t": np.zeros(n), "x": rows[:, 0], "y": rows[:, 1]}) for rows in (place, seen)
    )
    value = ap.Gaussian("x", "y", sigma=sigma / np.sqrt(2.0))
    both = [ap.Stream(rows, key="k", time="t", value=value) for rows in (left, right)]
    asked: dict[str, Any] = {"epsilon": 4.0 * sigma, "probability": 0.5}
    density, options = n / side**2, ap.Options(max_component=20_000)

    def ours() -> Any:
        return ap.assign(both[0], both[1], **asked, window="tick", density=density, options=options)

    took = least(ours)[0]
    found = ours()
    gated = ap.similarity_join(both[0], both[1], **asked, window=1, likelihood=True, density=density)
    matrix = np.zeros((n, n))
    gains = np.maximum(gated["log_likelihood_ratio"].to_numpy(), 0.0)
    matrix[gated["left_key"].to_numpy(), gated["right_key"].to_numpy()] = gains
    begun = time.perf_counter()
    at = linear_sum_assignment(matrix, maximize=True)
    spent = time.perf_counter() - begun
    total, theirs = found["log_likelihood_ratio"].to_numpy().sum(), matrix[at].sum()
    if abs(total - theirs) > 1e-6 * theirs:
        raise RuntimeError(f"the dense solver finds {theirs}, and not {total}")
    say(f"assign: {len(gated):,} pairs, ours {took:.3f} s, dense solver {spent:.3f} s")
    return {"assign_10k": spent / took}


def without_partner() -> Figures:
    """Two streams, most of whose rows have a partner, and those that have none."""
    chance, n = np.random.default_rng(0), 200_000
    rows = []
    for _ in range(2):
        table = points(chance, n)
        rows.append(table.set_column(1, "t", pa.array(np.sort(chance.uniform(0.0, 2_000.0, n)))))

    def join(how: str) -> Any:
        return ap.similarity_join(plain(rows[0]), plain(rows[1]), epsilon=0.01, probability=1.0, window=20, how=how)

    inner, anti = least(lambda: join("inner"), lambda: join("left_anti"))
    met = set(join("inner")["left_key"].to_pylist())
    if set(join("left_anti")["left_key"].to_pylist()) != set(range(n)) - met:
        raise RuntimeError("rows without a partner are others than those that the inner join leaves out")
    return {"anti_of_inner": anti / inner}


def main() -> None:
    """All parts, or those named by ``--only``."""
    asked = arguments((__doc__ or "").splitlines()[0])
    figures: Figures = {}
    parts = ("process", "spark", "stars", "assign", "vectors", "anti") if asked.only is None else asked.only.split(",")
    with scratch() as folder:
        if "process" in parts or "spark" in parts:
            figures |= nearest_of_points(folder)
        if "spark" in parts:
            figures |= nearest_on_spark(folder)
        if "stars" in parts:
            figures |= stars(folder)
        if "vectors" in parts:
            figures |= cosine(folder)
    if "assign" in parts:
        figures |= assignment()
    if "anti" in parts:
        figures |= without_partner()
    report(figures, as_json=asked.json)


if __name__ == "__main__":
    main()
