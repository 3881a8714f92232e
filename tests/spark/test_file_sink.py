"""Batches in folders: each once, whatever broke off before, at a cost that does not grow with the files there are."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

import appulse as ap
from appulse.engines.spark.file_sink import FileSink
from appulse.engines.spark.files import Folder
from appulse.errors import BadArgument, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

STEPS = ("names", "read", "write", "move", "remove")


class Broken(Exception):
    """A crash."""


def sink(folder: Path, query: str = "q") -> FileSink:
    return FileSink("parquet", {}, str(folder), query)


def write(to: FileSink, frame: DataFrame, number: int) -> None:
    to.write(frame, number, lambda: True, frame.count)


def numbers(spark: SparkSession, folder: Path) -> list[int]:
    return sorted(row.id for row in spark.read.schema("id long").parquet(str(folder)).collect())


def test_only_the_first_batch_lists_the_folder(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []
    names = Folder.names

    def spied(self: Folder, folder: str = "") -> list[str]:
        listed.append(folder)
        return names(self, folder)

    monkeypatch.setattr(Folder, "names", spied)
    own = sink(tmp_path)
    for number in range(4):
        write(own, spark.range(number, number + 1), number)
    assert listed.count("") == 1
    write(sink(tmp_path), spark.range(4, 5), 4)  # a restart
    assert listed.count("") == 1
    assert numbers(spark, tmp_path) == [0, 1, 2, 3, 4]
    assert len([path for path in (tmp_path / "_appulse_staging").iterdir() if path.suffix == ".files"]) == 1


def test_a_crash_anywhere_is_made_up_for(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt breaks off before each of its steps in turn; the next one has other rows, and they alone stay."""
    real: dict[str, Callable[..., Any]] = {name: getattr(Folder, name) for name in STEPS}
    two = spark.range(2).repartition(2)
    for last in count():
        folder = tmp_path / str(last)
        write(sink(folder), spark.range(100, 103), 0)
        left = last

        def step(name: str) -> Callable[..., Any]:
            def run(*given: Any) -> Any:
                nonlocal left
                left -= 1
                if left < 0:
                    raise Broken
                return real[name](*given)

            return run

        with monkeypatch.context() as patch:
            for name in STEPS:
                patch.setattr(Folder, name, step(name))
            try:
                write(sink(folder), two, 1)
                broke = False
            except Broken:
                broke = True
        write(sink(folder), spark.range(7, 9), 1)
        write(sink(folder), spark.range(9, 10), 2)
        assert numbers(spark, folder) == [7, 8, 9, 100, 101, 102], last
        if not broke:
            break
    assert last >= 8


def test_a_restored_checkpoint_replaces_what_came_after(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(4):
        write(sink(tmp_path), spark.range(number, number + 1), number)
        write(sink(tmp_path, "other"), spark.range(50, 51), number)
    again = sink(tmp_path)
    write(again, spark.range(11, 12), 1)
    write(again, spark.range(12, 13), 2)
    assert numbers(spark, tmp_path) == [0, 11, 12, 50, 50, 50, 50]


def test_files_of_a_version_without_manifests(spark: SparkSession, tmp_path: Path) -> None:
    write(sink(tmp_path), spark.range(1), 0)
    spark.range(5, 6).coalesce(1).write.parquet(str(tmp_path / "_aside"))
    (part,) = (tmp_path / "_aside").glob("part-*")
    part.rename(tmp_path / f"batch-q-{1:010d}-{part.name}")
    for manifest in (tmp_path / "_appulse_staging").glob("*.files"):
        manifest.unlink()
    write(sink(tmp_path), spark.range(6, 7), 1)
    assert numbers(spark, tmp_path) == [0, 6]


def test_a_batch_that_is_not_wanted_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    write(sink(tmp_path), spark.range(3), 0)
    own = sink(tmp_path)
    own.write(spark.range(0), 0, lambda: False, lambda: 0)
    own.write(spark.range(0), 1, lambda: False, lambda: 0)
    write(own, spark.range(3, 4), 2)
    assert numbers(spark, tmp_path) == [3]


@pytest.mark.parametrize("kind", ["parquet", "orc", "json", "csv"])
def test_rows_that_the_driver_does_not_see_are_missed(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """As on a cluster whose executors write to disks of their own."""
    folder = tmp_path / "out"
    own = FileSink(kind, {"compression": "gzip"} if kind == "json" else {}, str(folder), "q")
    own.write(spark.range(40).repartition(4), 0, lambda: True, lambda: 40)

    def gone() -> bool:
        staged = [path for path in folder.glob("_appulse_staging/batch-*/part-*") if path.is_file()]
        for path in staged if kind == "csv" else staged[:1]:
            path.unlink()
        return True

    with pytest.raises(StorageError, match=r"of the 40 rows of batch 1.*driver and executors share"):
        own.write(spark.range(40).repartition(4), 1, gone, lambda: 40)
    assert not list(folder.glob("batch-q-0000000001-*"))


def test_queries_in_one_folder_keep_each_others_files(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(2):
        for i, query in enumerate(("one", "other")):  # each by a new attempt
            write(sink(tmp_path, query), spark.range(10 * i + number, 10 * i + number + 1), number)
    assert numbers(spark, tmp_path) == [0, 1, 10, 11]


def test_a_start_wants_folders_apart(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.readStream.schema("id long, t long, x double").parquet(str(tmp_path))
    found = ap.self_join(ap.Stream(rows, key="id", time="t", value="x"), epsilon=1, probability=0.5, window=10)
    out, elsewhere = f"{tmp_path}/out", f"{tmp_path}/cp"
    for sinks, checkpoint, problem in (
        ([("parquet", {"path": out}), ("json", {"path": f"file://{out}/"})], elsewhere, "rejects: .* is the folder of"),
        ([("delta", {"path": out}), ("json", {"path": f"{out}/bad"})], elsewhere, "rejects: .* lies in .* of sink"),
        ([("parquet", {"path": out})], out, "sink: .* is the folder of checkpoint"),
        ([lambda *_: None, ("json", {"path": out})], f"{out}/cp", "rejects: .* contains .* of checkpoint"),
    ):
        with pytest.raises(BadArgument, match=problem):
            ap.start(found, *sinks, checkpoint=checkpoint)
    assert list(tmp_path.iterdir()) == []
