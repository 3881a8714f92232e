"""Joins of positions on the Earth: against the same pairs on a plane, and against what else finds them.

    python -m benchmarks.earth --quick --json

Figures that begin with ``plane_`` are our time on the Earth over our time on a plane, of the same rows projected at
their middle; ``position_of_planar`` is the greatest of those on WGS 84 (to be at most 1.3), and ``spark_of_planar`` the
planar time over that on the Earth in Spark batch, one core. Those that begin with ``vs_`` are another's time over ours,
of pairs all over the Earth; every distance is compared. The others are handed arrays, and hand back arrays: our time is
that of the whole call, from a table to a table with keys and times. PostGIS has its rows and their index beforehand,
and writes pairs to a table that it does not log.

``covariance_cost`` is the time of a join over full covariances over that with one deviation a row, in the plane, and
``ellipse_cost`` the same on the Earth; ``cylinder_cost`` that of a cylinder over that without altitudes. The rows are
the same, and each is the worst of several densities.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyproj
from pyarrow import csv
from scipy.spatial import cKDTree
from sklearn.neighbors import BallTree

import appulse as ap
from appulse.model.positions import EARTHS, centred
from benchmarks.harness import arguments, least, report, say, scratch
from benchmarks.servers import Postgres, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

_MIDDLE = (50.0, 10.0)
_RADIUS = 6_371_008.8
_GEOD = pyproj.Geod(ellps="WGS84")

Found = tuple["NDArray[np.float64]", int]


def region(n: int, side: float, seed: int = 0) -> pa.Table:
    """Rows in a square of ``side`` metres, in degrees and projected, over a quarter of a day."""
    chance = np.random.default_rng(seed)
    x, y = chance.uniform(-side / 2.0, side / 2.0, (2, n))
    plane = pyproj.Proj(proj="aeqd", lat_0=_MIDDLE[0], lon_0=_MIDDLE[1], ellps="WGS84")
    lon, lat = plane(x, y, inverse=True)
    seconds = np.sort(chance.uniform(0.0, 21_600.0, n))
    return pa.table(
        {"id": np.arange(n), "t": seconds, "x": x, "y": y, "lat": lat, "lon": lon, "s": chance.uniform(5.0, 50.0, n)}
    )


def globe(n: int, seed: int = 1) -> pa.Table:
    """Rows all over the Earth, at one time."""
    chance = np.random.default_rng(seed)
    lat = np.degrees(np.arcsin(chance.uniform(-1.0, 1.0, n)))
    return pa.table({"id": np.arange(n), "t": np.zeros(n), "lat": lat, "lon": chance.uniform(-180.0, 180.0, n)})


def joined(frame: Any, value: Any, epsilon: float, window: float) -> Any:
    """The pairs of a table with itself."""
    stream = ap.Stream(frame, key="id", time="t", value=value)
    return ap.self_join(stream, epsilon=epsilon, probability=0.5, window=window)


def against_a_plane(n: int) -> dict[str, float]:
    """Few answers and many, exact and with circles of error."""
    table, figures = region(n, 200_000.0), {}
    models = {
        "exact": (ap.Position("lat", "lon"), ap.Exact("x", "y")),
        "sphere": (ap.Position("lat", "lon", earth="sphere"), ap.Exact("x", "y")),
        "sigma": (ap.Position("lat", "lon", sigma="s"), ap.Gaussian("x", "y", sigma="s")),
    }
    for name, (place, point) in models.items():
        for size, epsilon, window in (("few", 300.0, 900.0), ("some", 500.0, 3600.0), ("many", 2000.0, 3600.0)):
            earth, plane = least(*(partial(joined, table, value, epsilon, window) for value in (place, point)))
            figures[f"plane_{name}_{size}"] = earth / plane
            say(f"{name}, {size}: {earth:.3f} s on the Earth, {plane:.3f} s on a plane")
    wgs84 = [ratio for name, ratio in figures.items() if "sphere" not in name]
    return figures | {"position_of_planar": max(wgs84)}


def by_error(n: int) -> dict[str, float]:
    """Errors of any covariance over one deviation a row, and a cylinder over a disc."""
    chance, table = np.random.default_rng(7), region(n, 200_000.0)
    angle, minor = chance.uniform(0.0, 180.0, n), table["s"].to_numpy() * chance.uniform(0.2, 1.0, n)
    sine, cosine = np.sin(np.radians(angle)), np.cos(np.radians(angle))
    along, across = table["s"].to_numpy() ** 2, minor**2
    columns = {
        "minor": minor,
        "angle": angle,
        "xx": along * sine**2 + across * cosine**2,
        "xy": (along - across) * sine * cosine,
        "yy": along * cosine**2 + across * sine**2,
        "up": chance.uniform(0.0, 100.0, n),
    }
    for name, column in columns.items():
        table = table.append_column(name, pa.array(column))
    circle, high = ap.Position("lat", "lon", sigma="s"), {"horizontal": 0.0, "vertical": 300.0}
    against: dict[str, tuple[Any, Any, Any]] = {
        "covariance_cost": (_planar(), ap.Gaussian("x", "y", covariance=("xx", "xy", "yy")), None),
        "ellipse_cost": (circle, ap.Position("lat", "lon", ellipse=("s", "minor", "angle")), None),
        "cylinder_cost": (circle, ap.Position("lat", "lon", sigma="s", altitude="up", altitude_sigma=10), high),
    }
    figures = dict.fromkeys(against, 0.0)
    for epsilon, window in ((300.0, 900.0), (500.0, 3600.0), (2000.0, 3600.0)):
        for name, (plain, full, thresholds) in against.items():
            within = epsilon if thresholds is None else thresholds | {"horizontal": epsilon}
            one, other = least(
                partial(joined, table, plain, epsilon, window), partial(joined, table, full, within, window)
            )
            figures[name] = max(figures[name], other / one)
            say(f"{name}, epsilon {epsilon:g}: {other:.3f} s over {one:.3f} s")
    return figures


def on_spark(n: int, folder: Path) -> dict[str, float]:
    """The same in Spark batch."""
    spark = ap.session(1)
    pq.write_table(region(n, 200_000.0), folder / "rows.parquet")
    frame = spark.read.parquet(str(folder / "rows.parquet"))

    def run(value: Any) -> None:
        joined(frame, value, 500.0, 3600.0).write.format("noop").mode("overwrite").save()

    earth, plane = least(*(partial(run, v) for v in (ap.Position("lat", "lon", sigma="s"), _planar())))
    spark.stop()
    return {"spark_of_planar": plane / earth}


def _planar() -> Any:
    return ap.Gaussian("x", "y", sigma="s")


def by_tree(table: pa.Table, epsilon: float) -> Found:
    """WGS 84: a k-d tree over Earth-centred coordinates, then the geodesic of what it finds."""
    lat, lon = (table[name].to_numpy() for name in ("lat", "lon"))
    pairs = cKDTree(centred(lat, lon, EARTHS["wgs84"])).query_pairs(epsilon, output_type="ndarray")
    left, right = pairs.T
    metres = _GEOD.inv(lon[left], lat[left], lon[right], lat[right])[2]
    metres = metres[metres <= epsilon]
    return metres, len(metres)


def by_sphere(table: pa.Table, epsilon: float) -> Found:
    """The sphere: a k-d tree over unit vectors."""
    lat, lon = (table[name].to_numpy() for name in ("lat", "lon"))
    at = centred(lat, lon, EARTHS["sphere"])
    pairs = cKDTree(at).query_pairs(2.0 * _RADIUS * np.sin(epsilon / _RADIUS / 2.0), output_type="ndarray")
    chord = np.linalg.norm(at[pairs[:, 0]] - at[pairs[:, 1]], axis=1)
    return 2.0 * _RADIUS * np.arcsin(chord / _RADIUS / 2.0), len(pairs)


def by_haversine(table: pa.Table, epsilon: float) -> Found:
    """The sphere: scikit-learn's ball tree by the haversine."""
    at = np.radians(np.column_stack([table["lat"].to_numpy(), table["lon"].to_numpy()]))
    rows, angles = BallTree(at, metric="haversine").query_radius(at, epsilon / _RADIUS, return_distance=True)
    left = np.repeat(np.arange(len(at)), list(map(len, rows)))
    once = np.concatenate(rows) > left
    return np.concatenate(angles)[once] * _RADIUS, int(once.sum())


def against_others(n: int) -> dict[str, float]:
    """All over the Earth, with about ten partners a row."""
    table, figures = globe(n), {}
    epsilon = 2.0 * _RADIUS * float(np.sqrt(10.0 / n))
    contestants: dict[str, dict[str, Callable[[pa.Table, float], Found]]] = {
        "wgs84": {"ckdtree_geod": by_tree},
        "sphere": {"ckdtree_sphere": by_sphere, "haversine_balltree": by_haversine},
    }
    for earth, others in contestants.items():
        value = ap.Position("lat", "lon", earth=earth)
        for name, other in others.items():
            ours, theirs = least(partial(joined, table, value, epsilon, 1.0), partial(other, table, epsilon))
            metres, count = other(table, epsilon)
            check(name, metres, joined(table, value, epsilon, 1.0))
            figures[f"vs_{name}"] = theirs / ours
            say(f"{name} on {earth}: {count:,} pairs, {theirs:.3f} s, ours {ours:.3f} s")
    return figures


def check(name: str, metres: NDArray[np.float64], found: Any) -> None:
    """End the run where another's pairs are others than ours."""
    if len(found) != len(metres) or not np.allclose(np.sort(metres), np.sort(found["distance"]), rtol=1e-9, atol=1e-4):
        raise SystemExit(f"{name}: {len(metres)} pairs, ours {len(found)}, or other distances")


def in_postgis(table: pa.Table, epsilon: float, folder: Path) -> tuple[float, NDArray[np.float64]]:
    """Seconds of a server that has all in memory, and the distances of the pairs."""
    csv.write_csv(table.select(["id", "lon", "lat"]), folder / "rows.csv", csv.WriteOptions(include_header=False))
    with Postgres(folder / "server") as server:
        if not server.query("SELECT 1 FROM pg_available_extensions WHERE name = 'postgis'"):
            raise Unavailable("PostGIS is not installed")
        server.query("CREATE EXTENSION postgis")
        server.query("CREATE UNLOGGED TABLE rows (id bigint, lon float8, lat float8)")
        server.query(f"\\copy rows FROM '{folder / 'rows.csv'}' CSV")
        server.query("CREATE TABLE places AS SELECT id, ST_MakePoint(lon, lat)::geography AS at FROM rows")
        server.query("CREATE INDEX ON places USING gist (at)")
        server.query("VACUUM ANALYZE places")
        seconds = np.inf
        for _ in range(2):
            server.query("DROP TABLE IF EXISTS pairs")
            begin = time.perf_counter()
            server.query(
                "CREATE UNLOGGED TABLE pairs AS SELECT a.id, b.id AS other, ST_Distance(a.at, b.at) AS metres "  # noqa: S608
                f"FROM places a JOIN places b ON ST_DWithin(a.at, b.at, {epsilon!r}) AND a.id < b.id"
            )
            seconds = min(seconds, time.perf_counter() - begin)
        return seconds, np.array(server.query("SELECT metres FROM pairs"), float).reshape(-1)


def against_postgis(n: int, folder: Path) -> dict[str, float | None]:
    """Pairs of indexed geographies in a PostGIS server, all over the Earth, with about ten partners a row."""
    table = globe(n)
    epsilon = 2.0 * _RADIUS * float(np.sqrt(10.0 / n))
    try:
        theirs, metres = in_postgis(table, epsilon, folder)
    except Unavailable as reason:
        say(f"no PostGIS: {reason}")
        return {"vs_postgis": None}
    run = partial(joined, table, ap.Position("lat", "lon"), epsilon, 1.0)
    (ours,) = least(run)
    check("PostGIS", metres, run())
    say(f"PostGIS: {len(metres):,} pairs, {theirs:.3f} s, ours {ours:.3f} s")
    return {"vs_postgis": theirs / ours}


def main() -> None:
    """All figures."""
    asked = arguments(__doc__ or "")
    n = 100_000 if asked.quick else 400_000
    figures: dict[str, float | None] = {}
    with scratch() as folder:
        parts: dict[str, Callable[[], Any]] = {
            "plane": partial(against_a_plane, n),
            "errors": partial(by_error, n),
            "others": partial(against_others, n),
            "postgis": partial(against_postgis, n, folder),
            "spark": partial(on_spark, n, folder),
        }
        for name in asked.only.split(",") if asked.only else parts:
            figures |= parts[name]()
    report(figures, as_json=asked.json)


if __name__ == "__main__":
    main()
