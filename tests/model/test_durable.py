"""Files that are there after a power cut: their names are on disk, too."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from appulse.connect.checkpoint import CheckpointFolder, Record
from appulse.connect.sinks import FolderSink
from appulse.model.durable import put_in_place

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads paths of open files from /proc")


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were synced."""
    found: list[str] = []
    known = os.fsync

    def noted(opened: int) -> None:
        found.append(str(Path(f"/proc/self/fd/{opened}").readlink()))
        known(opened)

    monkeypatch.setattr(os, "fsync", noted)
    return found


def test_a_file_is_put_in_place_of_another(tmp_path: Path, synced: list[str]) -> None:
    (tmp_path / "a").write_text("old")
    (tmp_path / "new").write_text("new")
    put_in_place(tmp_path / "new", tmp_path / "a")
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("a", "new")]
    assert synced == [str(tmp_path)]


def test_sinks_and_checkpoints_have_their_files_and_names_on_disk(tmp_path: Path, synced: list[str]) -> None:
    FolderSink("parquet", str(tmp_path / "out"), "run").write(0, pa.table({"x": [1]}))
    assert [path.rpartition("/")[2] for path in synced] == [".batch-run-0000000000.parquet", "out"]
    folder = CheckpointFolder(str(tmp_path / "checkpoint"))
    folder.about({"run": "run"})
    synced.clear()
    folder.append(Record(0, {}, []))
    folder.append(Record(1, {}, []))
    folder.close()
    names = [path.rpartition("/")[2] for path in synced]
    assert names == [".0000000000", "log", ".serve.json", "checkpoint", ".0000000001", "log"]
