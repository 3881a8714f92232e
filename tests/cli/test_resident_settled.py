"""What a job in process has written, it does not write again: its files may have been moved out of the sink by then."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from appulse import jobs
from appulse.connect.sinks import FolderSink
from appulse.jobs.resident import Resident

if TYPE_CHECKING:
    from pathlib import Path

JOB = """\
engine = "local"
checkpoint = "state"
[sources.near]
format = "parquet"
path = "near"
key = "id"
time = "time"
lateness = "1 second"
value = { model = "Exact", columns = ["x", "y"] }
CALL
[sink]
format = "json"
path = "out"
[rejects]
format = "json"
path = "bad"
"""
CALLS = {
    "queries": '[match_queries.conditions]\nall = "x >= 0"\n',
    "join": '[self_join]\nepsilon = 50.0\nprobability = 1.0\nwindow = "1 minute"\n',
    "count windows": "[self_join]\nepsilon = 50.0\nprobability = 1.0\nwindow = { count = 9 }\n",
}


def make(folder: Path, call: str) -> Any:
    (folder / "near").mkdir(parents=True)
    (folder / "job.toml").write_text(JOB.replace("CALL", CALLS[call]), encoding="utf-8")
    return jobs.load(folder / "job.toml")


def put(job: Any, number: int) -> None:
    """A file of three rows, and one that is a reject."""
    columns = {"id": [4 * number + i for i in range(4)], "time": [float(10 * number + i) for i in range(4)]}
    values = {"x": [1.0, 2.0, 3.0, None], "y": [0.0] * 4}
    pq.write_table(pa.table(columns | values), job.file.parent / "near" / f"{number}.parquet")


def run(job: Any) -> None:
    Resident(job, commit_every=0.0).run(once=True)


def take_away(folder: Path) -> list[str]:
    """The rows of a sink, whose files are moved out of it."""
    files = sorted(folder.glob("*.json"))
    found = [line for file in files for line in file.read_text().splitlines()]
    for file in files:
        file.unlink()
    return found


@pytest.mark.parametrize("call", CALLS)
def test_files_that_were_moved_out_of_a_sink_do_not_come_again(tmp_path: Path, call: str) -> None:
    whole, job = make(tmp_path / "whole", call), make(tmp_path / "job", call)
    out, bad = [], []
    for number in range(3):
        put(whole, number)
        run(whole)
        put(job, number)
        for _ in range(3):
            run(job)
            out += take_away(tmp_path / "job" / "out")
            bad += take_away(tmp_path / "job" / "bad")
    assert sorted(out) == sorted(take_away(tmp_path / "whole" / "out"))
    assert sorted(bad) == sorted(take_away(tmp_path / "whole" / "bad"))
    assert len(out) > 5
    assert [json.loads(line)["key"] for line in bad] == [3, 7, 11]


@pytest.mark.parametrize(
    ("old", "new"), [('path = "out"', 'path = "other"'), ('"json"\npath = "out"', '"csv"\npath = "out"')]
)
def test_another_sink_gets_what_comes_after_a_clean_end(tmp_path: Path, old: str, new: str) -> None:
    job = make(tmp_path / "job", "queries")
    put(job, 0)
    run(job)
    first = {file.name for file in (tmp_path / "job" / "out").iterdir()}
    job.file.write_text(job.file.read_text().replace(old, new))
    job = jobs.load(job.file)
    put(job, 1)
    run(job)
    files = [file for name in ("out", "other") for file in (tmp_path / "job" / name).glob("batch-*")]
    later = [file for file in files if file.name not in first]
    assert len(files) == 2
    assert [len(file.read_text().splitlines()) for file in later] == [3]


@pytest.mark.parametrize("damaged", [False, True])
def test_what_a_crash_kept_from_a_sink_is_written_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, damaged: bool
) -> None:
    """Also where the file that says what is written cannot be read."""
    job = make(tmp_path / "job", "queries")
    put(job, 0)
    run(job)
    put(job, 1)

    def breaks(*_: Any) -> None:
        raise OSError("gone")

    with monkeypatch.context() as patch:
        patch.setattr(FolderSink, "write", breaks)
        with pytest.raises(OSError, match="gone"):
            run(job)
    if damaged:
        (tmp_path / "job" / "state" / "written").write_bytes(b"1")
    run(job)
    assert len(take_away(tmp_path / "job" / "out")) == 6
    run(job)
    assert take_away(tmp_path / "job" / "out") == []
