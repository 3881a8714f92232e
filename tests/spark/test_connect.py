"""Spark Connect: what its client can import, and the same results as in process."""

from __future__ import annotations

import ast
import json
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import types as T  # noqa: N812 - the usual name of this module

import appulse as ap
from appulse.engines.spark.alerting import alerts_of
from appulse.engines.spark.batch_writer import BatchWriter
from appulse.engines.spark.checkpoint import Checkpoint
from appulse.engines.spark.sinks import sink_of
from appulse.engines.spark.start import _SLOW, _begun

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from benchmarks.servers import ConnectServer

ROOT = Path(__file__).resolve().parents[2]
CALLS = ("join.call", "join.nearest", "queries.call", "sensors.call", "encounters.call", "fences", "metrics", "start")
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


def test_a_writer_travels_to_the_server() -> None:
    """With every sink and alert there is, and without a session."""
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    sinks = [
        ("parquet", {"path": "pairs"}),
        ("delta", {"path": "pairs"}),
        ("iceberg", {"table": "lake.pairs"}),
        ("kafka", {"topic": "pairs"}),
        ("noop", {}),
        lambda _frame, _number: None,
    ]
    hook = ("webhook", {"url": "https://host/hook"}), ("kafka", {"topic": "events"})
    for given in sinks:
        sink = sink_of(given, "sink", "beef", remote=True)
        alerts = alerts_of(hook, "beef", checkpoint="checkpoint", answers=T.StructType())
        writer = BatchWriter("checkpoint", "beef", sink, None, [], alerts, None, pa.int64(), None, [], None)
        found = pickle.loads(cloudpickle.dumps(writer))  # noqa: S301 - our own
        assert (found.path, found.answers.once, len(found.alerts)) == ("checkpoint", sink.once, 2)
    found.version = "0.0.1"
    with pytest.raises(ap.SessionError, match=r"this client appulse 0\.0\.1\. Install the same version on both"):
        found(SimpleNamespace(sparkSession=None), 0)


def test_a_process_that_is_slow_to_come_up_is_started_again() -> None:
    slow = PySparkException(f"SocketTimeoutException: {_SLOW}")
    writer = Mock()
    query = Mock()
    writer.start.side_effect = [slow, slow, query]
    assert _begun(writer) is query
    writer.start.side_effect = PySparkException("another problem")
    with pytest.raises(PySparkException, match="another problem"):
        _begun(writer)
    assert writer.start.call_count == 4


def test_a_checkpoint_that_another_process_sees_otherwise_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    for place in (Checkpoint(spark, str(tmp_path / "nowhere")), Checkpoint(spark, str(tmp_path / "other"))):
        with pytest.raises(ap.StorageError, match="is not one folder for this client"):
            place.check_seen_as("beef")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    pytest.importorskip("grpc", reason="grpcio is not installed: pip install 'pyspark[connect]'")
    from benchmarks.servers import ConnectServer

    with ConnectServer(tmp_path_factory.mktemp("server")) as running:
        yield running


def client(step: str, server: ConnectServer, folder: Path) -> subprocess.Popen[str]:
    """A step in a process of its own, as PySpark is either a classic one or a client."""
    command = [sys.executable, "-m", "tests.spark.connect_client", step, server.remote, str(folder)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def does(step: str, server: ConnectServer, folder: Path) -> None:
    _, log = (run := client(step, server, folder)).communicate(timeout=600)
    assert run.returncode == 0, log[-3000:]


@pytest.fixture
def expected() -> dict[tuple[int, int], float]:
    stream = ap.Stream(rows(), key="id", time="ts", value=ap.Gaussian("x", "y", sigma=0.1))
    found = pairs(ap.self_join(stream, **ASKED))
    assert len(found) > 50
    return found


@pytest.mark.long
def test_connect_answers_as_in_process(
    server: ConnectServer, tmp_path: Path, expected: dict[tuple[int, int], float]
) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(rows(), tmp_path / "in" / "rows.parquet")
    does("answers", server, tmp_path)
    for name in ("batch", "streamed"):
        assert pairs(pq.read_table(tmp_path / name)) == pytest.approx(expected), name
    assert pq.read_table(tmp_path / "refused")["key"].to_pylist() == [7]


@pytest.mark.long
def test_a_query_outlives_its_client_and_another_goes_on(
    server: ConnectServer, tmp_path: Path, expected: dict[tuple[int, int], float]
) -> None:
    (tmp_path / "in").mkdir()
    for i in range(2):
        pq.write_table(rows()[100 * i : 100 * (i + 1)], tmp_path / "in" / f"{i}.parquet")
    pq.write_table(rows()[200:], tmp_path / "more.parquet")
    with client("starts", server, tmp_path) as first:
        assert first.stdout is not None
        assert first.stderr is not None
        if first.stdout.readline() != "rejected 1\n":
            pytest.fail(first.stderr.read()[-3000:])
        first.kill()
    does("goes_on", server, tmp_path)
    found = pq.read_table(tmp_path / "started")
    assert str(found.schema.field("left_time").type) == "timestamp[us, tz=UTC]"
    assert len(found) == len(expected)
    assert pairs(found) == pytest.approx(expected)
    files = (tmp_path / "rejects").glob("batch-*.json")
    assert [json.loads(line)["key"] for file in files for line in file.read_text().splitlines()] == [7]


@pytest.mark.long
def test_start_refuses_what_connect_cannot_do(server: ConnectServer, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(rows(), tmp_path / "in" / "rows.parquet")
    does("refused", server, tmp_path)


@pytest.mark.long
def test_a_table_of_delta_has_each_pair_once(tmp_path: Path, expected: dict[tuple[int, int], float]) -> None:
    if not pyspark.__version__.startswith("4.2"):
        pytest.skip(f"Delta has no release for Spark {pyspark.__version__}")
    pytest.importorskip("grpc", reason="grpcio is not installed: pip install 'pyspark[connect]'")
    from benchmarks.servers import DELTA, DELTA_SETTINGS, ConnectServer, jars

    (tmp_path / "in").mkdir()
    pq.write_table(rows()[:200], tmp_path / "in" / "rows.parquet")
    pq.write_table(rows()[200:], tmp_path / "more.parquet")
    settings = DELTA_SETTINGS | {"spark.jars": ",".join(map(str, jars(DELTA)))}
    with ConnectServer(tmp_path / "server", settings) as running:
        does("tables", running, tmp_path)
    assert pairs(pq.read_table(tmp_path / "pairs-read")) == pytest.approx(expected)
    assert len(pq.read_table(tmp_path / "pairs-read")) == len(expected)
    assert pq.read_table(tmp_path / "refused-read")["key"].to_pylist() == [7]


def pairs(table: pa.Table) -> dict[tuple[int, int], float]:
    columns = [table[name].to_pylist() for name in ("left_key", "right_key", "probability")]
    return {(left, right): probability for left, right, probability in zip(*columns, strict=True)}
