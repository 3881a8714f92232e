"""Spark Connect: what its client can import, and the same results as in process."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import appulse as ap

ROOT = Path(__file__).resolve().parents[2]
CALLS = ("join.call", "join.nearest", "queries.call", "sensors.call", "encounters.call", "fences", "metrics")
LOADED = "import sys, importlib; [importlib.import_module('appulse.engines.spark.' + n) for n in sys.argv[1:]]; "
#: What pyspark-client, the package of clients alone, does not have.
MISSING = {"SparkContext", "SparkFiles", "Broadcast", "Accumulator"}
ASKED: dict[str, Any] = {"epsilon": 0.3, "probability": 0.5, "window": ap.TimeWindow(4)}


def test_calls_import_only_what_the_client_of_connect_has() -> None:
    code = f"{LOADED} print(*[m.__file__ for n, m in list(sys.modules.items()) if n.startswith('appulse')])"
    run = subprocess.run([sys.executable, "-c", code, *CALLS], capture_output=True, text=True, check=True)
    files = run.stdout.split()
    assert len(files) > 100
    for file in files:
        for node in ast.parse(Path(file).read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                assert not node.module.startswith(("py4j", "pyspark.java_gateway")), file
                assert node.module != "pyspark" or not MISSING & {name.name for name in node.names}, file


def rows() -> pa.Table:
    rng = np.random.default_rng(1)
    n = 300
    times = pa.array(np.arange(n) * 100_000).cast(pa.timestamp("us", "UTC"))
    x = rng.random(n) * 5
    x[7] = np.nan
    return pa.table({"id": np.arange(n), "ts": times, "x": x, "y": rng.random(n) * 5})


@pytest.mark.long
def test_connect_answers_as_in_process(tmp_path: Path) -> None:
    """In a process of its own, as PySpark is either a classic one or a client."""
    pytest.importorskip("grpc", reason="grpcio is not installed: pip install 'pyspark[connect]'")
    from benchmarks.servers import ConnectServer

    (tmp_path / "in").mkdir()
    pq.write_table(rows(), tmp_path / "in" / "rows.parquet")
    with ConnectServer(tmp_path / "server") as server:
        command = [sys.executable, "-m", "tests.spark.connect_client", server.remote, str(tmp_path)]
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    stream = ap.Stream(rows(), key="id", time="ts", value=ap.Gaussian("x", "y", sigma=0.1))
    expected = ap.self_join(stream, **ASKED)
    assert expected.num_rows > 50
    for name in ("batch", "streamed"):
        found = pq.read_table(tmp_path / name)
        assert pairs(found) == pytest.approx(pairs(expected)), name
    assert pq.read_table(tmp_path / "refused")["key"].to_pylist() == [7]


def pairs(table: pa.Table) -> dict[tuple[int, int], float]:
    columns = [table[name].to_pylist() for name in ("left_key", "right_key", "probability")]
    return {(left, right): probability for left, right, probability in zip(*columns, strict=True)}
