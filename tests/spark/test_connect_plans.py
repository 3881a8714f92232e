"""Spark Connect: a call plans without a question to the server, and knows the calls before it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import appulse as ap
from tests.spark.test_connect import ASKED, ROOT, rows

if TYPE_CHECKING:
    from pathlib import Path


def averages(pairs: pa.Table) -> pa.Table:
    given = ap.Stream(pairs, key="left_key", time="left_time", value="distance")
    return ap.window_aggregate(given, {"distance": ["mean"]}, window=ap.TumblingWindow(4))


def by_row(table: pa.Table) -> dict[str, list[float]]:
    """What is rounded in each row, by what is not."""
    numbers = [field.name for field in table.schema if pa.types.is_floating(field.type)]
    return {
        str({name: value for name, value in row.items() if name not in numbers}): [row[name] for name in numbers]
        for row in table.to_pylist()
    }


def same(found: dict[str, list[float]], expected: dict[str, list[float]]) -> bool:
    known = {row: pytest.approx(expected.get(row), rel=1e-9, abs=1e-12, nan_ok=True) for row in found}
    return found == known


@pytest.mark.long
def test_calls_ask_the_server_for_nothing(tmp_path: Path) -> None:
    """In a process of its own, as PySpark is either a classic one or a client."""
    pytest.importorskip("grpc", reason="grpcio is not installed: pip install 'pyspark[connect]'")
    from benchmarks.servers import ConnectServer

    (tmp_path / "in").mkdir()
    pq.write_table(rows(), tmp_path / "in" / "rows.parquet")
    with ConnectServer(tmp_path / "server") as server:
        command = [sys.executable, "-m", "tests.spark.connect_plans", server.remote, str(tmp_path)]
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    stream = ap.Stream(rows(), key="id", time="ts", value=ap.Gaussian("x", "y", sigma=0.1))
    joined = ap.self_join(stream, **ASKED)
    expected = {
        "joined": joined,
        "changes": ap.self_join(stream, emit="changes", **ASKED),
        "batch": averages(joined),
    }
    for name, answers in expected.items():
        found = pq.read_table(tmp_path / f"{name}.parquet")
        assert found.num_rows == answers.num_rows > 5, name
        assert same(by_row(found), by_row(answers)), name
    known = pq.read_table(tmp_path / "streamed", coerce_int96_timestamp_unit="us").cast(expected["batch"].schema)
    streamed, whole = by_row(known), by_row(expected["batch"])
    assert len(streamed) > 3
    assert same(streamed, whole)  # the last ticks wait for rows to come
    said = json.loads((tmp_path / "said.json").read_text(encoding="utf-8"))
    assert said == {"window": ap.explain(joined).steps["window"], "refused": [7]}
