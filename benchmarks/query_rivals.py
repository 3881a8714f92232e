"""Libraries that find the boxes a point lies in, behind the one call of the contestants: ``match(points)``.

Boxes are closed at the next double inside open ends, so that libraries that know closed ranges alone answer exactly.
What a library cannot index, attributes beyond its number of dimensions, is tested exactly after it, compiled. Missing
ends are put beyond the rows, which have to lie within `LIMIT`. Times are those of one core: Polars takes its number of
threads from POLARS_MAX_THREADS before it is first imported.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd
import pyarrow as pa

from appulse.kernels.jit import kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from benchmarks.ibs import Numbers, Pairs
    from benchmarks.query_sets import BoxQueries, Matrix

LIMIT = 1e9
_CHUNK = 1000  # rows at a time, where candidates are many times the answers


class Rival(Protocol):
    """What all of them are."""

    def match(self, points: Matrix) -> Pairs:
        """The matching pairs of row and query."""
        ...


def library(name: str) -> Any:
    """A rival's module, or an error that says how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError as problem:
        msg = f"This rival needs the package {name}, which is not installed: pip install {name}"
        raise ImportError(msg) from problem


class STRtree:
    """shapely: a packed R-tree over two attributes, asked in bulk."""

    def __init__(self, queries: BoxQueries) -> None:
        self._shapely = library("shapely")
        self._low, self._high = _limited(queries)
        low, high = self._low, self._high
        self.tree = self._shapely.STRtree(self._shapely.box(low[:, 0], low[:, 1], high[:, 0], high[:, 1]))

    def match(self, points: Matrix) -> Pairs:
        if points.shape[1] == 2:
            return self._candidates(points)
        return _by_chunks(points, lambda chunk: _inside(*self._candidates(chunk), chunk, self._low, self._high, 2))

    def _candidates(self, points: Matrix) -> Pairs:
        # A box is its own envelope: without a predicate the answer is exact.
        row, query = self.tree.query(self._shapely.points(points[:, 0], points[:, 1]))
        return row.astype(np.int32), query.astype(np.int32)


def broadcast_tree(
    spark: SparkSession, queries: BoxQueries
) -> Callable[[Iterator[pd.DataFrame]], Iterator[pd.DataFrame]]:
    """What is done on Spark today: for ``mapInPandas``, a tree of all boxes that each worker has, and asks in bulk."""
    tree = spark.sparkContext.broadcast(STRtree(queries).tree)

    def match(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        points = library("shapely").points
        for frame in frames:
            row, query = tree.value.query(points(frame["a"].to_numpy(), frame["b"].to_numpy()))
            yield pd.DataFrame({"key": frame["id"].to_numpy()[row], "query": query})

    return match


class RTree:
    """rtree (libspatialindex): loaded in bulk over all attributes, two at least, and asked in bulk."""

    def __init__(self, queries: BoxQueries) -> None:
        index = library("rtree").index
        low, high = _limited(queries)
        properties = index.Property(dimension=queries.attributes)
        self._index = index.Index((np.arange(len(low)), low, high), properties=properties)

    def match(self, points: Matrix) -> Pairs:
        query, count = self._index.intersection_v(points, points)
        row = np.repeat(np.arange(len(points), dtype=np.int32), count.astype(np.int64))
        return row, query.astype(np.int32)


class Intervals:
    """intervaltree: a tree in Python over the first attribute; the rest is tested after it."""

    def __init__(self, queries: BoxQueries) -> None:
        intervaltree = library("intervaltree")
        self._low, self._high = _limited(queries)
        # Its intervals are open above, and not empty.
        ends = zip(self._low[:, 0].tolist(), np.nextafter(self._high[:, 0], np.inf).tolist(), strict=True)
        found = (intervaltree.Interval(low, high, i) for i, (low, high) in enumerate(ends) if low < high)
        self._tree = intervaltree.IntervalTree(found)

    def match(self, points: Matrix) -> Pairs:
        return _by_chunks(points, lambda chunk: _inside(*self._candidates(chunk), chunk, self._low, self._high, 1))

    def _candidates(self, points: Matrix) -> Pairs:
        hits = [[interval.data for interval in self._tree.at(x)] for x in points[:, 0].tolist()]
        row = np.repeat(np.arange(len(points), dtype=np.int32), [len(each) for each in hits])
        return row, np.array([query for each in hits for query in each], np.int32)


class DuckDB:
    """DuckDB: one statement, a join by ranges of two registered Arrow tables, on one thread."""

    def __init__(self, queries: BoxQueries) -> None:
        self._connection = library("duckdb").connect()
        self._connection.execute("SET threads = 1")
        # Queries are loaded once, rows are scanned where they are.
        self._connection.register("given", _boxes(queries))
        self._connection.execute("CREATE TABLE queries AS SELECT * FROM given")
        # Not BETWEEN: in DuckDB 2.0 that is planned as a nested loop, a dozen times slower than this as an IEJoin.
        ranges = [f"x{a} >= low{a} AND x{a} <= high{a}" for a in range(queries.attributes)]
        self._statement = " ".join(["SELECT row, query FROM rows JOIN queries ON", " AND ".join(ranges)])

    def match(self, points: Matrix) -> Pairs:
        self._connection.register("rows", _rows(points))
        return _pairs(self._connection.sql(self._statement).to_arrow_table())


class Polars:
    """Polars: ``join_where`` over two frames."""

    def __init__(self, queries: BoxQueries) -> None:
        self._polars = library("polars")
        self._queries = self._polars.from_arrow(_boxes(queries)).lazy()

    def match(self, points: Matrix) -> Pairs:
        col = self._polars.col
        ranges = [
            part
            for a in range(points.shape[1])
            for part in (col(f"x{a}") >= col(f"low{a}"), col(f"x{a}") <= col(f"high{a}"))
        ]
        rows = self._polars.from_arrow(_rows(points)).lazy()
        return _pairs(rows.join_where(self._queries, *ranges).select("row", "query").collect().to_arrow())


def _limited(queries: BoxQueries) -> tuple[Matrix, Matrix]:
    """Closed boxes with all ends finite; one that is empty lies beyond the limit."""
    low, high = queries.closed()
    empty = (low > high).any(axis=1)
    low, high = np.clip(low, -LIMIT, LIMIT), np.clip(high, -LIMIT, LIMIT)
    low[empty], high[empty] = 2.0 * LIMIT, 2.0 * LIMIT
    return np.ascontiguousarray(low), np.ascontiguousarray(high)


def _by_chunks(points: Matrix, match: Callable[[Matrix], Pairs]) -> Pairs:
    """The matches, found a thousand rows at a time."""

    def parts() -> Iterator[Pairs]:
        for begin in range(0, len(points), _CHUNK):
            row, query = match(points[begin : begin + _CHUNK])
            yield row + np.int32(begin), query

    none = np.empty(0, np.int32)
    rows, queries = zip((none, none), *parts(), strict=True)
    return np.concatenate(rows), np.concatenate(queries)


@kernel
def _inside(
    row: Numbers, query: Numbers, points: Matrix, low: Matrix, high: Matrix, first: int
) -> tuple[Numbers, Numbers]:
    """The pairs whose box holds the row in the attributes from ``first`` on."""
    kept_row, kept_query = np.empty_like(row), np.empty_like(query)
    kept = 0
    for i in range(row.shape[0]):
        r, q = row[i], query[i]
        inside = True
        for a in range(first, points.shape[1]):
            inside &= low[q, a] <= points[r, a] <= high[q, a]
        kept_row[kept], kept_query[kept] = r, q
        kept += inside
    return kept_row[:kept], kept_query[:kept]


def _boxes(queries: BoxQueries) -> pa.Table:
    """Queries as a table: number, low and high ends by attribute."""
    low, high = queries.closed()
    columns: dict[str, Any] = {"query": np.arange(len(queries), dtype=np.int32)}
    for a in range(queries.attributes):
        columns[f"low{a}"], columns[f"high{a}"] = np.ascontiguousarray(low[:, a]), np.ascontiguousarray(high[:, a])
    return pa.table(columns)


def _rows(points: Matrix) -> pa.Table:
    """Rows as a table: number, and values by attribute."""
    columns: dict[str, Any] = {"row": np.arange(len(points), dtype=np.int32)}
    return pa.table(columns | {f"x{a}": np.ascontiguousarray(points[:, a]) for a in range(points.shape[1])})


def _pairs(table: pa.Table) -> Pairs:
    return table["row"].to_numpy(), table["query"].to_numpy()
