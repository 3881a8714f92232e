"""Points in polygons by SedonaDB, DuckDB spatial and GeoPandas, on one thread.

    python polygon_matches.py ENGINE zones.parquet points.parquet runs

Zones have ``zone`` and ``region``, WKB; points ``fix``, ``x`` and ``y``. All is in memory beforehand. Prints the median
seconds of so many runs after a first one, or of those begun in the first ten seconds, the number of matches, and a sum
over them that depends on which zone and fix are together.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Callable

    Found = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]

_ENOUGH = 10.0  # seconds

QUERY = "SELECT zone, fix FROM zones JOIN points ON ST_Intersects(zones.area, points.at)"


def by_sedonadb(zones: str, points: str) -> Callable[[], Found]:
    """SedonaDB, from tables in memory."""
    import sedonadb

    database = sedonadb.connect()
    database.sql("SET datafusion.execution.target_partitions = 1").execute()
    for path, name, columns in (
        (zones, "zones", "zone, ST_GeomFromWKB(region) AS area"),
        (points, "points", "fix, ST_Point(x, y) AS at"),
    ):
        database.read_parquet(path).to_view("given", overwrite=True)
        database.sql(f"SELECT {columns} FROM given").to_memtable().to_view(name, overwrite=True)  # noqa: S608

    def run() -> Found:
        found = pa.table(database.sql(QUERY))
        return found["zone"].to_numpy(), found["fix"].to_numpy()

    return run


def by_duckdb(zones: str, points: str) -> Callable[[], Found]:
    """DuckDB, from its tables."""
    import duckdb
    import duckdb_extension_spatial

    (extension,) = Path(duckdb_extension_spatial.__file__).parent.glob("extensions/*/spatial.duckdb_extension")
    database = duckdb.connect()
    database.execute(f"LOAD '{extension}'; SET threads = 1")
    database.execute(
        f"CREATE TABLE zones AS SELECT zone, ST_GeomFromWKB(region) AS area FROM read_parquet('{zones}')"  # noqa: S608
    )
    database.execute(f"CREATE TABLE points AS SELECT fix, ST_Point(x, y) AS at FROM read_parquet('{points}')")  # noqa: S608

    def run() -> Found:
        found = database.sql(QUERY).to_arrow_table()
        return found["zone"].to_numpy(), found["fix"].to_numpy()

    return run


def by_geopandas(zones: str, points: str) -> Callable[[], Found]:
    """GeoPandas: the polygons joined with a tree of the points, which is the faster way round."""
    import geopandas

    given, at = pq.read_table(zones), pq.read_table(points)
    areas = geopandas.GeoDataFrame(
        {"zone": given["zone"].to_numpy()}, geometry=geopandas.GeoSeries.from_wkb(given["region"].to_pylist())
    )
    fix, x, y = (at[name].to_numpy() for name in ("fix", "x", "y"))

    def run() -> Found:
        places = geopandas.GeoDataFrame({"fix": fix}, geometry=geopandas.points_from_xy(x, y))
        found = geopandas.sjoin(areas, places, predicate="intersects")
        return found["zone"].to_numpy(), found["fix"].to_numpy()

    return run


def main(engine: str, zones: str, points: str, runs: str) -> None:
    """Match, and say how long it took."""
    engines = {"sedonadb": by_sedonadb, "duckdb": by_duckdb, "geopandas": by_geopandas}
    run = engines[engine](zones, points)
    spent: list[float] = []
    zone, fix = run()
    while len(spent) < int(runs) and sum(spent) < _ENOUGH:
        begin = time.perf_counter()
        zone, fix = run()
        spent.append(time.perf_counter() - begin)
    with np.errstate(over="ignore"):
        total = (zone.astype(np.uint64) * np.uint64(2654435761) ^ fix.astype(np.uint64) * np.uint64(40503)).sum()
    print(json.dumps({"seconds": statistics.median(spent), "matches": len(zone), "total": int(total)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
