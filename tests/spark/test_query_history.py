"""The history of queries that are a stream: many changes as one, whoever stops in between."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T  # noqa: N812 - as in the engine

import appulse as ap
from appulse.engines.queries.call import LocalQueries, resolve_queries
from appulse.engines.spark.queries import call as engine
from appulse.engines.spark.queries.call import Changing
from appulse.engines.spark.queries.held import QueryDelta, batches_of
from appulse.engines.spark.tables import packed


class _Folder:
    """A folder in memory, of which nothing can be removed once it ``fails``."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.fails = False

    def names(self, under: str) -> list[str]:
        return [name.removeprefix(f"{under}/") for name in self.files if name.startswith(f"{under}/")]

    def read(self, name: str) -> str | None:
        return self.files.get(name)

    def write(self, name: str, text: str) -> None:
        self.files[name] = text

    def remove(self, name: str) -> None:
        if self.fails:
            raise RuntimeError("crash")
        del self.files[name]


ROWS = pa.table({"id": [1], "ts": [1.0], "x": [1.0]})
CHANGES: list[list[tuple[str, str, str | None]]] = [
    [("add", "a", "x > 0"), ("add", "b", "x > 0"), ("add", "c", "x > 0")],
    [("remove", "a", None), ("add", "b", "x >"), ("add", "c", "x < 0")],
    [("add", "d", "x > 0")],
]


def _call() -> Any:
    stream = ap.Stream(None, key="id", time="ts", value=ap.Exact("x"))
    schema = pa.schema([("query", pa.string()), ("condition", pa.string()), ("change", pa.string())])
    return resolve_queries(stream, ROWS, schema, probability=None, on_reject="collect")


def _table(rows: list[tuple[str, str, str | None]]) -> pa.Table:
    kinds, names, texts = zip(*rows, strict=True)
    return pa.table({"query": names, "condition": pa.array(texts, pa.string()), "change": kinds})


def _answers(known: list[tuple[int, QueryDelta]]) -> list[str]:
    queries = LocalQueries(_call())
    for _, held in known:
        queries.change(held.table)
    return sorted(queries.push(ROWS)["query"].to_pylist())


@pytest.mark.parametrize("fails", [False, True])
def test_what_was_removed_or_refused_stays_so(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the changes were made into one, and nobody was left to remove those they were made of."""
    monkeypatch.setattr(engine, "_MOST_CHANGES", 1)
    folder: Any = _Folder()
    none = T.StructType([])
    for number, rows in enumerate(CHANGES):
        usable = LocalQueries(_call()).change(_table(rows))
        folder.write(f"appulse-queries/{number:012d}", b64encode(packed(usable)).decode())
    folder.fails = fails
    spark = object()
    try:
        known = Changing(_call(), none, none, folder)._known(spark, 3)
        assert not fails
        assert len(known) == 1
    except RuntimeError:
        assert fails
    known = Changing(_call(), none, none, folder)._known(spark, 3)
    assert _answers(known) == ["b", "d"]
    assert sum(held.batches for _, held in known) == 3
    assert batches_of(known[0][1].table) == 3
