"""Folders of this machine: what is done without Hadoop leaves the files that Hadoop would."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyarrow import fs

from appulse.engines.spark.files import Folder, _Disk, _Hadoop, _Store
from appulse.errors import StorageError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_a_disk_is_as_hadoop_has_it(spark: SparkSession, tmp_path: Path) -> None:
    """Every step, with checksums beside files, over files that are there and that are not."""
    for name in ("disk", "hadoop"):
        spark.range(3).coalesce(1).write.csv(str(tmp_path / name / "staged"))
        (tmp_path / name / "noise").write_bytes(b"\xff\xfe{}\x80")
    disk, hadoop = _Disk(tmp_path / "disk"), _Hadoop(spark, str(tmp_path / "hadoop"))
    assert hadoop.usual
    seen: list[list[Any]] = []
    for folder, root in ((disk, tmp_path / "disk"), (hadoop, tmp_path / "hadoop")):
        (part,) = (name for name in folder.names("staged") if name.startswith("part"))
        steps: list[Any] = [
            folder.names("nowhere"),
            folder.read("nowhere"),
            folder.read("noise"),
            folder.read("noise/below"),
            folder.names("noise/below"),
            folder.make("a/b"),
            folder.make("a/b"),
            folder.touch("marks/7"),
            folder.write("notes/one", "première\nligne"),
            folder.write("notes/one", "again\r\n"),
            folder.read("notes/one"),
            folder.move(f"staged/{part}", "part"),
            folder.move("notes/one", "notes/two"),
            folder.remove("staged"),
            folder.remove("nowhere"),
            folder.remove("marks/7"),
            sorted(folder.names("")),
            folder.names("marks"),
            folder.read("part"),
        ]
        seen.append([*steps, sorted(str(path.relative_to(root)) for path in root.rglob("*"))])
        folder.remove("part")
        seen[-1].append(sorted(str(path.relative_to(root)) for path in root.rglob("*")))
    assert seen[0] == seen[1]


def test_a_file_in_the_way_is_reported(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    with pytest.raises(NotADirectoryError, match="Not a directory"):
        _Disk(tmp_path).write("taken/file", "text")


def test_a_store_has_what_a_disk_has(tmp_path: Path) -> None:
    """As object stores, it makes no folders; here they are there."""
    for name in ("disk", "store"):
        for folder in ("notes", "marks", "a"):
            (tmp_path / name / folder).mkdir(parents=True)
    store = _Store(fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), "store/")
    assert _steps(store) == _steps(_Disk(tmp_path / "disk"))


def _steps(folder: _Disk | _Store) -> list[Any]:
    folder.make("a/b")
    folder.touch("marks/7")
    folder.write("notes/one.gz", "première")
    folder.write("notes/one.gz", "again\r\n")
    seen: list[Any] = [folder.names("nowhere"), folder.read("nowhere"), folder.read("notes/one.gz")]
    folder.move("notes/one.gz", "notes/two")
    for name in ("nowhere", "a", "marks/7"):
        folder.remove(name)
    return [*seen, folder.names("notes"), folder.names("marks"), sorted(folder.names(""))]


def test_connect_reaches_disks_and_stores(tmp_path: Path) -> None:
    connect: Any = object()  # a session without a JVM
    for path in (str(tmp_path), f"file:{tmp_path}", f"file://{tmp_path}"):
        folder = Folder(connect, path)
        folder.write("note", "text")
        assert folder.local == str(tmp_path)
        assert (tmp_path / "note").read_text() == "text"
    folder = Folder(connect, "s3a://bucket/checkpoint?region=eu-west-1")
    assert folder.local is None
    assert folder.arrow is not None
    assert folder.arrow[1] == "bucket/checkpoint"
    with pytest.raises(StorageError, match="a client of Spark Connect does not reach"):
        Folder(connect, "hdfs://host/checkpoint")
