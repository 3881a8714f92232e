"""A job that is served beside Spark: a replay with a speed, the same answers as in process, and a page of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from appulse import jobs
from appulse.cli.progress import batch_of
from appulse.jobs.live import Board
from appulse.jobs.resident import Resident
from appulse.jobs.watching import Watcher

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

JOB = """\
engine = "{engine}"
{checkpoint}
[sources.walkers]
format = "replay"
path = "walkers.parquet"
speed = {speed}
key = "walker.id"
time = "time`s"
value = {{ model = "Gaussian", columns = ["at.x", "y"], sigma = 0.5 }}
motion = {{ kind = "Straight", max_gap = "10 seconds" }}
[encounters]
epsilon = 1.0
probability = 0.5
[sink]
format = "parquet"
path = "out"
"""


def job_in(folder: Path, engine: str, speed: Any, checkpoint: str = "") -> jobs.Job:
    folder.mkdir()
    chance = np.random.default_rng(4)
    x, y = chance.uniform(0, 10, (2, 90))
    x[7] = np.nan
    rows = pa.table({"walker.id": np.arange(90) % 9, "time`s": np.arange(90) / 3.0, "at.x": x, "y": y})
    pq.write_table(rows, folder / "walkers.parquet")
    (folder / "job.toml").write_text(JOB.format(engine=engine, speed=speed, checkpoint=checkpoint))
    return jobs.load(folder / "job.toml")


def written(folder: Path) -> list[str]:
    found = ds.dataset([str(file) for file in folder.glob("*.parquet")], format="parquet").to_table()
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in found.to_pylist())


def test_a_replay_is_stopped_and_ends_as_in_process_and_a_page_shows_it(tmp_path: Path, spark: SparkSession) -> None:
    local = job_in(tmp_path / "local", "local", '"max"')
    Resident(local).run(drain=True)
    wanted = written(tmp_path / "local" / "out")
    assert len(wanted) > 10
    job = job_in(tmp_path / "spark", "spark", 10, 'checkpoint = "checkpoint"')
    board = Board([job], "walkers")
    watcher = Watcher(board, 0, job)
    query: Any = jobs.run(job, spark, watcher=watcher)
    for _ in range(600):
        if board._events[0] and board._things[0]:
            break
        query.awaitTermination(0.1)
    query.processAllAvailable()
    for progress in query.recentProgress:
        if (batch := batch_of(progress)) is not None:
            watcher.measured(batch.rows, batch.metrics)
    query.stop()
    hello, shown = board._first()
    assert hello["jobs"][0]["clock"][2] == 10
    assert {str(thing[1]) for thing in shown["things"]} <= {str(i) for i in range(9)}
    assert shown["things"]
    assert shown["events"]
    assert shown["totals"]["answers"] >= len(shown["events"]) > 0
    assert sum(shown["histogram"]) == shown["totals"]["answers"]
    jobs.run(job, spark, drain=True).awaitTermination()
    assert written(tmp_path / "spark" / "out") == wanted
