"""Declarative Pipelines: what `deploy/pipeline` makes is what a call in process answers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import appulse as ap
from appulse.engines.spark.java import find_java
from benchmarks.servers import ConnectServer
from tests.conftest import FEW_ROWS

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parents[2]
_LIMIT = 300.0  # seconds


def fixes(seed: int = 3, n: int = 300) -> pa.Table:
    rng = np.random.default_rng(seed)
    times = pa.array(np.arange(n) * 100_000).cast(pa.timestamp("us", "UTC"))
    x = rng.random(n) * 5_000
    x[7] = np.nan
    return pa.table({"van": np.arange(n), "at": times, "x": x, "y": rng.random(n) * 5_000})


def run_pipeline(folder: Path) -> None:
    """``spark-pipelines run`` in a folder with a specification; its tables are below ``tables``."""
    command = shutil.which("spark-pipelines", path=str(Path(sys.executable).parent))
    if command is None:
        pytest.skip("this PySpark has no spark-pipelines: it came with 4.1")
    variables = os.environ | {
        "JAVA_HOME": str(find_java().home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1",
    }
    with ConnectServer(folder / "server", {**FEW_ROWS, "spark.sql.warehouse.dir": folder / "tables"}) as server:
        run = subprocess.run(
            [command, "--remote", server.remote, "run", "--spec", str(folder / "spark-pipeline.yml")],
            cwd=folder,
            env=variables,
            capture_output=True,
            text=True,
            timeout=_LIMIT,
            check=False,
        )
    assert run.returncode == 0, (run.stdout + run.stderr)[-5000:]


def pairs(table: pa.Table) -> Mapping[tuple[int, int], float]:
    columns = [table[name].to_pylist() for name in ("left_key", "right_key", "probability")]
    return {(left, right): probability for left, right, probability in zip(*columns, strict=True)}


def test_a_pipeline_answers_as_in_process(tmp_path: Path) -> None:
    for package in ("grpc", "grpc_status", "yaml", "zstandard"):
        pytest.importorskip(package, reason=f"{package} is not installed: pip install 'pyspark[pipelines]'")
    folder = tmp_path / "pipeline"
    shutil.copytree(ROOT / "deploy" / "pipeline", folder)
    spec = folder / "spark-pipeline.yml"
    spec.write_text(spec.read_text(encoding="utf-8").replace("file:///tmp/meetings", folder.as_uri()), encoding="utf-8")
    (folder / "incoming").mkdir()
    pq.write_table(fixes(), folder / "incoming" / "fixes.parquet")
    run_pipeline(folder)

    stream = ap.Stream(fixes(), key="van", time="at", value=ap.Gaussian("x", "y", sigma=100.0))
    expected = ap.self_join(stream, epsilon=300.0, probability=0.5, window="4 seconds")
    assert expected.num_rows > 30
    for name in ("all_meetings", "new_meetings"):
        found = ds.dataset(folder / "tables" / name, format="parquet").to_table()
        assert found.num_rows == expected.num_rows, name
        assert pairs(found) == pytest.approx(pairs(expected)), name
    refused = ds.dataset(folder / "tables" / "refused_fixes", format="parquet").to_table()
    assert refused.select(["key", "reason"]).to_pylist() == ap.rejects(expected).select(["key", "reason"]).to_pylist()
