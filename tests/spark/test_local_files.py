"""Local files: as Spark writes them, permissions and all, without a process for each."""

from __future__ import annotations

import stat
import sys
from typing import TYPE_CHECKING, Any

import pytest

from appulse.engines.spark import local_files
from appulse.engines.spark.local_files import use_local_files

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture
def files(spark: SparkSession) -> Any:
    """Hadoop's object for local files in the session."""
    jvm: Any = spark._jvm
    return jvm.org.apache.hadoop.fs.FileSystem.getLocal(spark.sparkContext._jsc.hadoopConfiguration())


@pytest.fixture
def hadoop(spark: SparkSession) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.hadoop.fs


@pytest.mark.every_version
@pytest.mark.parametrize("mode", ["0000", "0640", "0777", "1755"])
def test_permissions_are_those_asked_for(files: Any, hadoop: Any, tmp_path: Path, mode: str) -> None:
    """The last one has the sticky bit, for which Hadoop's own way is left."""
    assert files.getClass().getName() == "appulse.LocalFiles"
    permission = hadoop.permission.FsPermission(mode)
    file, folder = tmp_path / "file", tmp_path / "folder"
    file.touch()
    folder.mkdir()
    for path in (file, folder):
        files.setPermission(hadoop.Path(str(path)), permission)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file, folder)] == 2 * [int(mode, 8)]


def test_new_files_have_the_permissions_of_hadoop(files: Any, hadoop: Any, tmp_path: Path) -> None:
    for name, system in {"ours": files, "spark": hadoop.RawLocalFileSystem()}.items():
        system.initialize(files.getUri(), files.getConf())
        system.create(hadoop.Path(str(tmp_path / name))).close()
    ours, others = ((tmp_path / name).stat().st_mode for name in ("ours", "spark"))
    assert ours == others


def test_a_file_is_not_renamed_over_another(files: Any, hadoop: Any, tmp_path: Path) -> None:
    """As Spark's own class has it, on which its checkpoints rely."""
    for name in "ab":
        (tmp_path / name).write_text(name)
    a, b = (hadoop.Path(str(tmp_path / name)) for name in "ab")
    assert not files.rename(a, b)
    assert (tmp_path / "b").read_text() == "b"


def test_a_file_that_is_not_there_is_an_error(files: Any, hadoop: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="NoSuchFileException"):
        files.setPermission(hadoop.Path(str(tmp_path / "none")), hadoop.permission.FsPermission("0644"))


def test_the_class_is_compiled_once(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    archive = local_files._compiled(spark._jvm)
    assert archive.is_relative_to(tmp_path)
    before = archive.stat()
    assert local_files._compiled(spark._jvm) == archive
    assert archive.stat().st_mtime_ns == before.st_mtime_ns
    assert list(archive.parent.iterdir()) == [archive]


def test_a_session_that_has_it_is_left_alone(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(local_files, "_compiled")
    use_local_files(spark.sparkContext)
