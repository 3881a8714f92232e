"""Files that were merged: the same rows, whatever broke off, and a job that goes on beside them."""

from __future__ import annotations

import json
import shutil
from itertools import count
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import appulse as ap
from appulse.cli import app
from appulse.connect import compacting
from appulse.connect.compacting import Compacted, compact
from appulse.connect.sinks import FolderSink
from appulse.engines.spark.file_sink import FileSink
from appulse.model import durable

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

_ALL = 10**9


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Path:
    """Six batches of a query, two files each."""
    for number in range(6):
        write(spark, tmp_path / "pairs", number)
    return tmp_path / "pairs"


def batch(spark: SparkSession, number: int) -> DataFrame:
    columns = ("id", "timestamp_seconds(id) AS t", "array(id / 7, null) AS a", "CAST(id AS STRING) AS s")
    return spark.range(number * 10, number * 10 + 10, numPartitions=2).selectExpr(*columns)


def write(spark: SparkSession, folder: Path, number: int, sink: FileSink | None = None) -> None:
    rows = batch(spark, number)
    (sink or FileSink("parquet", {}, str(folder), "q")).write(rows, number, lambda: True, rows.count)


def ids(folder: Path, name: str = "id") -> list[int]:
    found = ds.dataset([str(folder / file) for file in files(folder)], format="parquet")
    return sorted(found.to_table(columns=[name])[name].to_pylist())


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.parquet"))


def test_rows_are_the_same_and_the_job_goes_on(spark: SparkSession, folder: Path) -> None:
    before = spark.read.parquet(str(folder))
    rows, schema = sorted(before.collect()), before.schema
    assert compact(folder, _ALL) == Compacted(10, 1, 50)
    assert files(folder)[0] == "batch-q-0000000004-compacted-0000000000.parquet"
    assert len(files(folder)) == 3  # those of the latest batch are left alone
    after = spark.read.parquet(str(folder))
    assert (sorted(after.collect()), after.schema) == (rows, schema)
    write(spark, folder, 5)  # again, after a crash
    write(spark, folder, 6)
    assert ids(folder) == list(range(70))
    ran = CliRunner().invoke(app, ["compact", str(folder), "--json"])
    assert json.loads(ran.stdout) == {"files": 3, "into": 1, "rows": 60, "unknown": 0, "waiting": 0}
    assert ids(folder) == list(range(70))


def test_compacting_beside_a_running_query(spark: SparkSession, tmp_path: Path) -> None:
    """Again and again while batches are written: no row is lost or doubled, and none is missing in between."""
    source, out = tmp_path / "rows", tmp_path / "pairs"
    source.mkdir()
    for i in range(8):
        pq.write_table(pa.table({"id": [i], "t": [float(i)], "x": [0.0]}), source / f"{i}.parquet")
    rows = spark.readStream.schema("id long, t double, x double").option("maxFilesPerTrigger", 1).parquet(str(source))
    queries = pd.DataFrame({"query": ["near"], "condition": ["x < 1"]})
    found = ap.match_queries(ap.Stream(rows, key="id", time="t", value=ap.Exact("x")), queries)
    query = ap.start(
        found, ("parquet", {"path": str(out)}), checkpoint=str(tmp_path / "checkpoint"), trigger={"availableNow": True}
    )
    merged, seen = 0, list[int]()
    while query.isActive:
        if out.is_dir() and files(out):
            merged += compact(out, _ALL).into
            before, seen = seen, ids(out, "key")
            assert seen == sorted(set(seen) | set(before))
    query.awaitTermination()
    compact(out, _ALL)
    assert merged > 0
    assert ids(out, "key") == list(range(8))


def test_files_that_are_large_enough_are_left(folder: Path) -> None:
    assert compact(folder, 1) == Compacted(0, 0, 0)
    size = max(path.stat().st_size for path in folder.glob("*.parquet"))
    assert compact(folder, size + 1).into > 2
    assert ids(folder) == list(range(60))


def put(folder: Path, number: int, rows: int, part: int = 0) -> None:
    """A file of a batch, of whole numbers that differ in all batches and parts."""
    first = (number * 100 + part) * 100_000
    name = f"batch-q-{number:010d}-part-{part:05d}.parquet"
    pq.write_table(pa.table({"id": range(first, first + rows)}), folder / name, compression="none")


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """Batches of a query without Spark: two of one file each, and between them one of 16 files."""
    (tmp_path / "_appulse_staging").mkdir()
    (tmp_path / "_appulse_staging" / "batch-q-0000000003.files").touch()
    for number, parts in enumerate((1, 16, 1)):
        for part in range(parts):
            put(tmp_path, number, 1_000, part)
    return tmp_path


def test_a_batch_that_fills_several_files_loses_no_row(filled: Path) -> None:
    rows, size = ids(filled), max(path.stat().st_size for path in filled.glob("*.parquet"))
    put(filled, 1, 10, 98)  # less than a file asks for, beside what is merged already
    put(filled, 1, 10, 99)
    rows = ids(filled)
    for files_of_one in (3, 3, 5, 8, 100, 100):
        compact(filled, files_of_one * size - size // 2)
        assert ids(filled) == rows
    assert files(filled) == ["batch-q-0000000002-compacted-0000000000.parquet"]


def test_a_batch_that_fills_several_files_may_break_off(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, size = ids(filled), max(path.stat().st_size for path in filled.glob("*.parquet"))
    sync, unlink = durable.sync, type(filled).unlink

    def broken(own: Any, left: Any) -> Any:
        def act(*args: Any, **options: Any) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt
            own(*args, **options)

        return act

    for step in count():
        folder = filled / f"{step}"
        shutil.copytree(filled, folder, ignore=shutil.ignore_patterns("[0-9]*"))
        left = iter(range(step))
        with monkeypatch.context() as patch:
            for module in (compacting, durable):
                patch.setattr(module, "sync", broken(sync, left))
            patch.setattr(type(filled), "unlink", broken(unlink, left))
            try:
                compact(folder, 4 * size - size // 2)
                break
            except KeyboardInterrupt:
                assert sorted(set(ids(folder))) == rows  # none is lost at any time
        compact(folder, 1)  # finishes what broke off, and merges no more
        assert ids(folder) == rows
    assert ids(folder) == rows
    assert step > 40


def test_whatever_broke_off_is_finished(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    sync = durable.sync
    for step in count():
        left = iter(range(step))

        def breaks(path: Any, left: Any = left) -> None:
            if next(left, None) is None:
                raise Killed
            sync(path)

        for module in (compacting, durable):
            monkeypatch.setattr(module, "sync", breaks)
        try:
            compact(folder, _ALL)
        except Killed:
            assert sorted(set(ids(folder))) == list(range(60))  # none is lost at any time
        else:
            break
    assert step == 4  # written, noted, put in place, removed
    for module in (compacting, durable):
        monkeypatch.setattr(module, "sync", sync)
    compact(folder, _ALL)
    assert ids(folder) == list(range(60))
    assert [path.name for path in (folder / "_appulse_compact").iterdir()] == ["lock"]


def test_a_restored_checkpoint_within_merged_batches_is_refused(spark: SparkSession, folder: Path) -> None:
    compact(folder, _ALL)
    with pytest.raises(ap.StorageError, match="goes on from batch 2, and batch-q-0000000004-compacted-0000000000"):
        write(spark, folder, 2)
    assert ids(folder) == list(range(60))
    write(spark, folder, 0)
    assert ids(folder) == list(range(10))


def test_a_file_that_was_merged_twice_says_its_first_batch(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "_appulse_staging").mkdir()
    (tmp_path / "_appulse_staging" / "batch-q-0000000004.files").touch()
    for number, many in enumerate((1_000, 90_000, 1_000, 1_000)):
        put(tmp_path, number, many)
    rows, size = ids(tmp_path), max(path.stat().st_size for path in tmp_path.glob("*.parquet"))
    compact(tmp_path, size)  # those around the large one
    compact(tmp_path, _ALL)
    assert files(tmp_path) == ["batch-q-0000000003-compacted-0000000000-1.parquet"]
    with pytest.raises(ap.StorageError, match="goes on from batch 1, and batch-q-0000000003-compacted-0000000000-1"):
        write(spark, tmp_path, 1)
    assert ids(tmp_path) == rows


def test_what_cannot_be_merged_says_so(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ap.BadArgument, match="not a folder of this machine"):
        compact(tmp_path / "none", _ALL)
    with compacting._alone(folder / "_appulse_compact"), pytest.raises(ap.StorageError, match="Another process"):
        compact(folder, _ALL)
    next(folder.glob("batch-q-0000000001*")).write_bytes(b"no parquet")
    with pytest.raises(ap.StorageError, match="could not be compacted"):
        compact(folder, _ALL)


def test_files_of_a_job_in_process_are_merged_too(tmp_path: Path) -> None:
    def sink() -> FolderSink:
        return FolderSink("parquet", str(tmp_path), "0a1b2c3d")

    def there() -> list[int]:
        return sorted(ds.dataset(tmp_path, exclude_invalid_files=True).to_table()["id"].to_pylist())

    own = sink()
    for number in range(6):
        own.write(number, pa.table({"id": [number]}))
    FolderSink("parquet", str(tmp_path), "ffffffff").write(0, pa.table({"id": [6]}))
    pq.write_table(pa.table({"id": [7]}), tmp_path / "other.parquet")
    assert compact(tmp_path, _ALL) == Compacted(5, 1, 5, 1)
    assert there() == list(range(8))
    sink().write(5, pa.table({"id": [5]}))  # as after a crash
    sink().write(6, pa.table({"id": [8]}))
    assert compact(tmp_path, _ALL) == Compacted(2, 1, 6, 1)
    assert there() == list(range(9))
    with pytest.raises(ap.StorageError, match="goes on from write 5, and batch-0a1b2c3d-0000000005-compacted-0000"):
        sink().write(5, pa.table({"id": [5]}))


def test_files_of_nobody_are_said(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [7]}), tmp_path / "other.parquet")
    done = CliRunner().invoke(app, ["compact", str(tmp_path)])
    assert "1 Parquet files stay" in done.stdout
    asked = CliRunner().invoke(app, ["compact", str(tmp_path), "--json"])
    assert json.loads(asked.stdout) == {"files": 0, "into": 0, "rows": 0, "unknown": 1, "waiting": 0}


@pytest.mark.parametrize("command", ["compact", "report"])
def test_errors_beside_json_go_to_stderr(tmp_path: Path, command: str) -> None:
    done = CliRunner().invoke(app, [command, str(tmp_path / "none"), "--json"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "Error:" in done.stderr
