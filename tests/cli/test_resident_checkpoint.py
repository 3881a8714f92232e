"""Checkpoints of jobs in process: whatever crashes, the rows that are written are those of a run that never did."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import appulse as ap
from appulse import jobs
from appulse.connect.recorded import Recorded
from appulse.jobs import saver as saving
from appulse.jobs.resident import Resident
from tests.cli.test_resident import SINKS, rows, written

SOURCE = """\
[sources.{name}]
format = "replay"
path = "{name}.parquet"
speed = "max"
key = "id"
time = "time"
lateness = "2 seconds"
value = {{ model = "Gaussian", columns = ["x", "y"], sigma = 0.5 }}
{more}
"""
MOTION = 'motion = { kind = "Straight", max_gap = "10 seconds" }'
JOIN = '[similarity_join]\nepsilon = 2.0\nprobability = 0.5\nwindow = "3 seconds"\n'
OPERATORS = {
    "join": (JOIN, 2, ""),
    "left join": (JOIN + 'how = "left"\n', 2, ""),
    "changes": (JOIN + 'emit = "changes"\n', 2, ""),
    "nearest": ('[nearest]\nepsilon = 3.0\nwindow = "3 seconds"\n', 2, ""),
    "aggregate": ('[window_aggregate]\nwindow = "5 seconds"\naggregates = { x = "mean" }\n', 1, ""),
    "assign": ('[assign]\nepsilon = 3.0\nprobability = 0.1\nwindow = { tumbling = "5 seconds" }\n', 2, ""),
    "queries": ('[match_queries]\nprobability = 0.5\nconditions = { east = "x > 5" }\n', 1, ""),
    "fences": ("[fence_events.regions]\nbox = 'POLYGON((2 2, 8 2, 8 8, 2 8, 2 2))'\n", 1, ""),
    "outliers": ('[outliers]\nepsilon = 3.0\nfewer_than = 2\nprobability = 0.5\nwindow = "3 seconds"\n', 1, ""),
    "windows": (
        '[match_queries]\nprobability = 0.5\nconditions = { up = "near.x <= far.x WITHIN 1 SECONDS" }\n',
        2,
        "",
    ),
    "encounters": ("[encounters]\nepsilon = 1.0\nprobability = 0.5\n", 1, MOTION),
}


class CrashError(Exception):
    """The process is gone."""


def make(folder: Path, operator: str) -> Any:
    text, count, more = OPERATORS[operator]
    folder.mkdir(exist_ok=True)
    names = ["near", "far"][:count]
    for i, name in enumerate(names):
        shuffled = rows(i).take(pa.array(np.argsort(np.arange(60) // 2 * 2 + np.arange(60) % 2 * -1.5)))
        pq.write_table(shuffled, folder / f"{name}.parquet")
    head = 'engine = "local"\ncheckpoint = "state"\n'
    (folder / "job.toml").write_text(
        head + "".join(SOURCE.format(name=name, more=more) for name in names) + text + SINKS, encoding="utf-8"
    )
    return jobs.load(folder / "job.toml")


def run(job: Any) -> None:
    resident = Resident(job, commit_every=0.0)
    for source in resident.sources:
        assert isinstance(source, Recorded)
        source._rows = 7
    resident.run(drain=True)


def rejects(folder: Path) -> list[str]:
    return sorted(line for file in folder.glob("*.json") for line in file.read_text().splitlines())


@pytest.fixture
def small_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is held is saved often."""
    monkeypatch.setattr(saving, "_LEAST_LOG", 3000)


@pytest.mark.usefixtures("small_log")
@pytest.mark.parametrize("operator", OPERATORS)
def test_a_crash_anywhere_changes_no_row(tmp_path: Path, operator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rename of a file fails once, before it or behind it: state, log, answers and rejects are such files."""
    whole = make(tmp_path / "whole", operator)
    run(whole)
    wanted, bad = written(tmp_path / "whole" / "out"), rejects(tmp_path / "whole" / "bad")
    job, replace = make(tmp_path / "broken", operator), Path.replace
    chance, left = np.random.default_rng(len(operator)), [0]

    def breaks(file: Path, to: Path) -> Path:
        left[0] -= 1
        if left[0] == 0 and chance.random() < 0.5:
            raise CrashError
        moved = replace(file, to)
        if left[0] == 0:
            raise CrashError
        return moved

    monkeypatch.setattr(Path, "replace", breaks)
    crashes = 0
    while crashes < 200:
        left[0] = int(chance.integers(2, 9))
        try:
            run(job)
            break
        except CrashError:
            crashes += 1
    monkeypatch.undo()
    assert crashes > 3
    assert written(tmp_path / "broken" / "out") == wanted
    assert rejects(tmp_path / "broken" / "bad") == bad
    assert len(wanted) > 5


@pytest.mark.usefixtures("small_log")
@pytest.mark.parametrize("operator", ["join", "encounters", "queries"])
def test_a_checkpoint_does_not_grow(tmp_path: Path, operator: str) -> None:
    run(make(tmp_path / "job", operator))
    log = list((tmp_path / "job" / "state" / "log").iterdir())
    assert len(log) < 8


def test_a_checkpoint_goes_on_where_it_ended_and_is_closed_by_a_drain(tmp_path: Path) -> None:
    job = make(tmp_path / "job", "encounters")
    Resident(job).run(once=True)
    before = len(written(tmp_path / "job" / "out"))
    Resident(job).run(drain=True)
    whole = make(tmp_path / "whole", "encounters")
    Resident(whole).run(drain=True)
    found = written(tmp_path / "job" / "out")
    assert before < len(found)
    assert found == written(tmp_path / "whole" / "out")
    with pytest.raises(ap.CheckpointError, match="was drained"):
        Resident(job).run(once=True)


def test_another_job_does_not_go_on(tmp_path: Path) -> None:
    job = make(tmp_path / "job", "encounters")
    Resident(job).run(once=True)
    Resident(job).run(once=True)
    text = job.file.read_text()
    job.file.write_text(text.replace("epsilon = 1.0", "epsilon = 2.0"))
    with pytest.raises(ap.CheckpointError, match="differ"):
        Resident(jobs.load(job.file)).run(once=True)
    (tmp_path / "spark" / "offsets").mkdir(parents=True)
    with pytest.raises(ap.CheckpointError, match="checkpoint of Spark"):
        Resident(job, checkpoint=str(tmp_path / "spark")).run(once=True)


def test_what_cannot_be_saved_is_an_error(tmp_path: Path) -> None:
    job = make(tmp_path / "job", "join")
    job.file.write_text(job.file.read_text().replace('window = "3 seconds"', "window = { count = 5 }"))
    with pytest.raises(ap.NotBuilt, match="window goes by rows"):
        Resident(jobs.load(job.file)).run(once=True)


def test_a_process_that_is_killed_goes_on(tmp_path: Path) -> None:
    """SIGKILL, at times that nobody chose."""
    run(make(tmp_path / "whole", "join"))
    job = make(tmp_path / "job", "join")
    job.file.write_text(job.file.read_text().replace('speed = "max"', "speed = 20"))
    command = [sys.executable, "-m", "appulse.cli", "serve", "job.toml", "--no-page", "--drain"]
    for attempt in range(8):
        with subprocess.Popen(
            command, cwd=job.file.parent, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as process:
            seen = time.monotonic() + 30
            log = job.file.parent / "state" / "log"
            known = {file.name for file in log.iterdir()} if log.exists() else set()
            while process.poll() is None and time.monotonic() < seen:
                if attempt < 1 and log.exists() and {file.name for file in log.iterdir()} - known:
                    os.kill(process.pid, signal.SIGKILL)
                time.sleep(0.02)
            process.wait(5)
            if process.returncode == 0:
                break
    assert process.returncode == 0
    assert attempt > 0
    assert written(job.file.parent / "out") == written(tmp_path / "whole" / "out")
