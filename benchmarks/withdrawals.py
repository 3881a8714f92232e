"""Rows that are withdrawn: what they cost, and that whatever comes in which order ends with the rows that stand."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import appulse as ap
from benchmarks.harness import say

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_GROUPS, _ROWS, _BATCHES = 10_000, 8, 5
_WINDOW = 1000.0  # longer than any stream here: what stands at the end is all there is


def _changes(rows: dict[str, NDArray[Any]], op: str) -> pa.Table:
    return pa.table({**rows, "op": pa.array([op] * len(next(iter(rows.values()))), pa.string())})


def cost(n: int) -> dict[str, float | None]:
    """A tenth of the rows withdrawn, over none."""
    chance = np.random.default_rng(1)
    size = 5000
    keys, times = np.arange(n), np.sort(chance.random(n) * n / 100.0)
    x, y = chance.random(n), chance.random(n)
    gone = [chance.choice(size, size // 10, replace=False) for _ in range(n // size)]

    def took(*, withdrawn: bool) -> float:
        given = ap.Stream(
            None, key="k", time="t", value=ap.Gaussian("x", "y", sigma=0.001), change="op" if withdrawn else None
        )
        join = ap.SimilarityJoin(given, epsilon=0.01, probability=0.5, window=n / 100.0 / 5.0)
        pushes = []
        for i, begin in enumerate(range(0, n, size)):
            own = slice(begin, begin + size)
            rows = pa.table({"k": keys[own], "t": times[own], "x": x[own], "y": y[own]})
            if withdrawn:
                rows = rows.append_column("op", pa.array(["add"] * len(rows)))
                if i:
                    back = rows_at(gone[i - 1] + begin - size)
                    rows = pa.concat_tables([rows, back])
            pushes.append(rows)
        begun = time.perf_counter()
        for rows in pushes:
            join.push(rows)
        join.drain()
        return time.perf_counter() - begun

    def rows_at(at: NDArray[np.int64]) -> pa.Table:
        return _changes({"k": keys[at], "t": times[at], "x": x[at], "y": y[at]}, "remove")

    for some in (True, False):
        took(withdrawn=some)  # compiled, and in memory
    turns = [(took(withdrawn=True), took(withdrawn=False)) for _ in range(5)]
    best = [min(spent) for spent in zip(*turns, strict=True)]
    say(f"{n:,} rows: {best[0]:.2f} s with a tenth withdrawn, {best[1]:.2f} s without")
    return {"withdrawals_of_none": best[0] / best[1]}


def recomputed(n: int) -> dict[str, float | None]:
    """Batches of 200 corrections of a window, over DuckDB joining the window again after each."""
    import duckdb

    chance = np.random.default_rng(2)
    epsilon = 1.0 / np.sqrt(n)
    rows: dict[str, NDArray[Any]] = {"k": np.arange(n), "t": np.arange(n) * 1e-3}
    rows |= {"x": chance.random(n), "y": chance.random(n)}
    given = ap.Stream(None, key="k", time="t", value=ap.Exact("x", "y"), change="op", lateness=_WINDOW)
    join = ap.SimilarityJoin(given, epsilon=epsilon, probability=1.0, window=_WINDOW, emit="changes")
    stands = len(join.push(_changes(rows, "add")))
    database = duckdb.connect()
    database.execute("SET threads = 1")
    ours = theirs = 0.0
    for turn in range(6):
        at = chance.choice(n, 200, replace=False)
        before = {name: column[at] for name, column in rows.items()}
        rows["x"][at] = chance.random(200)
        after = {name: column[at] for name, column in rows.items()}
        push = pa.concat_tables([_changes(before, "remove"), _changes(after, "add")])
        begun = time.perf_counter()
        found = join.push(push)
        spent = time.perf_counter() - begun
        stands += int(np.asarray(found["change"]).sum())
        held = pa.table(rows)
        begun = time.perf_counter()
        other = database.sql(_SQL.format(e=epsilon)).fetchall()[0] if len(held) else None
        again = time.perf_counter() - begun
        if other is None or other[0] != stands:
            raise RuntimeError(f"DuckDB finds {other} pairs, and ours add up to {stands}")
        if turn:  # the first one warms both
            ours, theirs = ours + spent, theirs + again
    say(f"corrections of a window of {n:,} rows: ours {ours / 5:.4f} s a batch, DuckDB {theirs / 5:.4f} s")
    return {"vs_recompute": theirs / ours}


# By cells of the size of epsilon, each with itself and its neighbours.
_SQL = """
WITH cells AS (SELECT *, floor(x / {e})::INT AS i, floor(y / {e})::INT AS j FROM held),
near AS (SELECT c.*, i + di AS ni, j + dj AS nj FROM cells c, range(-1, 2) a(di), range(-1, 2) b(dj))
SELECT count(*) FROM near l JOIN cells r ON l.ni = r.i AND l.nj = r.j
WHERE l.k < r.k AND (l.x - r.x) ** 2 + (l.y - r.y) ** 2 <= {e} ** 2
"""


def converges(folder: Path) -> dict[str, float | None]:
    """Random interleavings of additions and withdrawals, a group each, in process and on Spark: the rows that stand."""
    chance = np.random.default_rng(3)
    n = _GROUPS * _ROWS
    rows: dict[str, NDArray[Any]] = {"g": np.repeat(np.arange(_GROUPS), _ROWS), "k": np.tile(np.arange(_ROWS), _GROUPS)}
    rows |= {"t": chance.random(n) * 100.0, "x": chance.integers(0, 4, n).astype(float)}
    came, gone = chance.integers(0, _BATCHES, n), chance.integers(0, _BATCHES, n)
    withdrawn = chance.random(n) < 0.4
    batches = []
    for batch in range(_BATCHES):
        added = {name: column[came == batch] for name, column in rows.items()}
        removed = {name: column[withdrawn & (gone == batch)] for name, column in rows.items()}
        batches.append(pa.concat_tables([_changes(added, "add"), _changes(removed, "remove")]))
    stand = pa.table({name: column[~withdrawn] for name, column in rows.items()})
    expected = _standing(ap.self_join(_grouped(stand), **_ASKED))
    join = ap.SimilarityJoin(_grouped(None, change="op"), **_ASKED, emit="changes")
    here = _standing(pa.concat_tables([join.push(batch) for batch in batches]))
    there = _standing(_on_spark(batches, folder))
    right = [_agreeing(expected, found) for found in (here, there)]
    say(f"{_GROUPS:,} interleavings: {right[0]:,} converge in process, {right[1]:,} on Spark over {_BATCHES} starts")
    return {"converges": min(right) / _GROUPS}


_ASKED: dict[str, Any] = {"epsilon": 0.5, "probability": 0.5, "window": _WINDOW}
Pairs = dict[int, Counter[tuple[int, int]]]


def _grouped(frame: Any, **settings: Any) -> Any:
    return ap.Stream(frame, key="k", time="t", value="x", partition_by="g", carry="g", lateness=_WINDOW, **settings)


def _on_spark(batches: list[pa.Table], folder: Path) -> pa.Table:
    """A start of the query for each batch."""
    spark = ap.session()
    (folder / "in").mkdir()
    for i, batch in enumerate(batches):
        pq.write_table(batch, folder / "in" / f"{i}.parquet")
        read = spark.readStream.schema(spark.read.parquet(str(folder / "in")).schema).parquet(str(folder / "in"))
        found = ap.self_join(_grouped(read, change="op"), **_ASKED, emit="changes", options=ap.Options(partitions=2))
        sink = ("parquet", {"path": str(folder / "out")})
        ap.start(found, sink, checkpoint=str(folder / "log"), trigger={"availableNow": True}).awaitTermination()
    return spark.read.parquet(str(folder / "out")).toArrow()


def _standing(table: pa.Table) -> Pairs:
    """The pairs of each group that stand."""
    found: Pairs = {}
    signs = table["change"].to_pylist() if "change" in table.column_names else [1] * len(table)
    columns = (table[name].to_pylist() for name in ("left_g", "left_key", "right_key"))
    for sign, group, left, right in zip(signs, *columns, strict=True):
        found.setdefault(group, Counter())[left, right] += sign
    return {group: Counter({pair: n for pair, n in pairs.items() if n}) for group, pairs in found.items()}


def _agreeing(expected: Pairs, found: Pairs) -> int:
    """How many groups have the same pairs."""
    none: Counter[tuple[int, int]] = Counter()
    return sum(expected.get(group, none) == found.get(group, none) for group in range(_GROUPS))
