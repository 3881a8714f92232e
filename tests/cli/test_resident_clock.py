"""Jobs in process whose machine's clock is moved: what was judged before a restart is judged as it was."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from appulse import jobs
from appulse.connect.checkpoint import CheckpointFolder
from appulse.connect.sinks import FolderSink
from appulse.jobs import saver as saving
from appulse.jobs.resident import Resident
from tests.cli.test_resident import SINKS, written
from tests.cli.test_resident_checkpoint import rejects

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_750_000_000_000_000
HOUR = 3_600_000_000
SOURCE = """\
engine = "local"
checkpoint = "state"
[sources.near]
format = "parquet"
path = "near"
key = "id"
time = "time"
lateness = "10 seconds"
max_files_per_trigger = 1
value = { model = "Exact", columns = ["x", "y"] }
"""
OPERATORS = {
    "join": '[self_join]\nepsilon = 5.0\nprobability = 1.0\nwindow = "1 minute"\n',
    "count windows": "[self_join]\nepsilon = 5.0\nprobability = 1.0\nwindow = { count = 9 }\n",
    "aggregate": '[window_aggregate]\nwindow = "5 seconds"\naggregates = { x = "mean" }\n',
    "changes": '[self_join]\nepsilon = 5.0\nprobability = 1.0\nwindow = "3 seconds"\nemit = "changes"\n',
}
#: How far the clock is off at a restart, in microseconds.
MOVED = [300_000_000, 2 * 24 * HOUR, -365 * 24 * HOUR]


def make(folder: Path, operator: str) -> Any:
    (folder / "near").mkdir(parents=True)
    (folder / "job.toml").write_text(SOURCE + OPERATORS[operator] + SINKS, encoding="utf-8")
    return jobs.load(folder / "job.toml")


def put(job: Any, number: int) -> None:
    """A file of rows of now, and one that is an hour and a minute ahead of them."""
    seconds = [8 * number + i for i in range(8)] + ([3660 + 8 * number] if number == 1 else [])
    columns = {
        "id": list(range(len(seconds))),
        "time": pa.array([NOW + at * 1_000_000 for at in seconds], pa.timestamp("us", "UTC")),
        "x": [float(at % 5) for at in seconds],
        "y": [0.0] * len(seconds),
    }
    pq.write_table(pa.table(columns), job.file.parent / "near" / f"{number}.parquet")


class Clock:
    """The wall clock of this machine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.moved = 0
        monkeypatch.setattr(time, "time_ns", lambda: (NOW + self.moved) * 1000)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def run(job: Any) -> None:
    Resident(job, commit_every=0.0).run(once=True)


class MovedAtTheStart(Resident):
    """A job whose machine sets its clock right once it has begun."""

    clock: Clock

    def _loop(self, *given: Any, **more: Any) -> None:
        self.clock.moved = 0
        super()._loop(*given, **more)


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("moved", MOVED)
@pytest.mark.parametrize("broken", [False, True], ids=["stopped", "broken off"])
@pytest.mark.parametrize("saved", [False, True], ids=["log", "states"])
def test_a_clock_that_is_moved_changes_nothing_that_was_judged(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    clock: Clock,
    operator: str,
    moved: int,
    broken: bool,
    saved: bool,
) -> None:
    if saved:
        monkeypatch.setattr(saving, "_LEAST_LOG", 0)
        monkeypatch.setattr(saving, "_TIMES", 0)
    whole, job = make(tmp_path / "whole", operator), make(tmp_path / "job", operator)
    for number in range(4):
        put(whole, number)
    run(whole)
    put(job, 0)
    put(job, 1)
    with monkeypatch.context() as patch:
        if broken:
            write = FolderSink.write

            def breaks(sink: FolderSink, number: int, rows: pa.Table) -> None:
                if number == 1:
                    raise OSError("gone")
                write(sink, number, rows)

            patch.setattr(FolderSink, "write", breaks)
            with pytest.raises(OSError, match="gone"):
                run(job)
        else:
            run(job)
    for number in (2, 3):
        put(job, number)
        again = MovedAtTheStart(job, commit_every=0.0)
        again.clock, clock.moved = clock, moved
        again.run(once=True)
    wanted, bad = written(tmp_path / "whole" / "out"), rejects(tmp_path / "whole" / "bad")
    assert written(tmp_path / "job" / "out") == wanted
    assert rejects(tmp_path / "job" / "bad") == bad
    assert len(wanted) > 5
    assert len(bad) == 1


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("operator", ["join", "aggregate"])
def test_records_without_a_clock_are_judged_by_the_one_of_now(tmp_path: Path, operator: str) -> None:
    """As versions wrote them that kept none."""
    job = make(tmp_path / "job", operator)
    put(job, 0)
    put(job, 1)
    run(job)
    folder = CheckpointFolder(str(tmp_path / "job" / "state"))
    folder.about({})
    _, log = folder.read()
    for record in log:
        assert record.head.pop("walls") == [NOW]
        folder.append(record)
    folder.close()
    put(job, 2)
    run(job)
    assert len(rejects(tmp_path / "job" / "bad")) == 1
