"""A checkpoint has one driver at a time."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import appulse as ap
from appulse.engines.spark.files import Folder
from appulse.engines.spark.lock import CheckpointLock
from appulse.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

HOLDER = """
import fcntl, sys, time
file = open(sys.argv[1], "a+")
fcntl.flock(file, fcntl.LOCK_EX)
file.write("process 1 on elsewhere\\n")
file.flush()
print("held", flush=True)
time.sleep(60)
"""


def _joined(spark: SparkSession) -> DataFrame:
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
    stream = ap.Stream(rows, key="value", time="timestamp", value=ap.Exact("value"))
    joined: DataFrame = ap.self_join(stream, epsilon=1, probability=0.5, window=1)
    return joined


def test_a_second_process_is_refused_until_the_first_has_gone(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder / "appulse.lock")], stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        result = _joined(spark)
        with pytest.raises(CheckpointError, match="in use by process 1 on elsewhere"):
            ap.start(result, ("noop", {}), checkpoint=str(folder))
        holder.kill()
    for end in ("stop", "awaitTermination"):
        trigger = {"availableNow": True} if end == "awaitTermination" else None
        query = ap.start(result, ("noop", {}), checkpoint=str(folder), trigger=trigger)
        assert (folder / "appulse.lock").exists()
        getattr(query, end)()
        assert not (folder / "appulse.lock").exists()


def test_a_second_query_of_the_session_is_refused_and_the_first_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    folder = str(tmp_path / "checkpoint")
    first = ap.start(_joined(spark), ("noop", {}), checkpoint=folder)
    with pytest.raises(CheckpointError, match=rf"in use by query {first.id} of this session\. .* Call stop\(\) on it"):
        ap.start(_joined(spark), ("noop", {}), checkpoint=folder)
    assert first.isActive
    assert (tmp_path / "checkpoint" / "appulse.lock").exists()
    first.stop()
    second = ap.start(_joined(spark), ("noop", {}), checkpoint=folder)
    assert second.isActive
    second.stop()


def test_a_lock_is_shared_within_a_process_and_goes_with_its_last_holder(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, str(tmp_path / "new"))
    first, second = CheckpointLock(folder), CheckpointLock(folder)
    first.release()
    first.release()
    held = subprocess.run([sys.executable, "-c", TRY, str(tmp_path / "new" / "appulse.lock")], check=False)
    assert held.returncode == 1
    second.release()
    free = subprocess.run([sys.executable, "-c", TRY, str(tmp_path / "new" / "appulse.lock")], check=False)
    assert free.returncode == 0


TRY = """
import fcntl, sys
try:
    fcntl.flock(open(sys.argv[1], "a+"), fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sys.exit(1)
"""


def test_a_query_that_ended_while_it_wrote_its_first_offsets_starts_again(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    result = _joined(spark)
    # To its end: tasks of a query that is stopped may go on to write state.
    ap.start(result, ("noop", {}), checkpoint=str(folder), trigger={"availableNow": True}).awaitTermination()
    for name in ("offsets", "commits", "state"):
        shutil.rmtree(folder / name)
    (folder / "offsets").mkdir()
    (folder / "offsets" / ".0.fa1d2c.tmp").write_text("v1\n")
    query = ap.start(result, ("noop", {}), checkpoint=str(folder), trigger={"availableNow": True})
    query.awaitTermination()
    assert sorted(path.name for path in (folder / "offsets").glob("[0-9]*")) == ["0"]
