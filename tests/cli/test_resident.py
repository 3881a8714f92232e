"""Jobs that run in this process: the same answers as on Spark, from recordings and folders that grow."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import appulse as ap
from appulse import jobs
from appulse.cli import app, here
from appulse.connect import sinks
from appulse.jobs.by_hand import by_hand
from appulse.jobs.resident import Resident, Step, Summary

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

ROW = """\
key = "id"
time = "time"
value = {{ model = "Gaussian", columns = ["x", "y"], sigma = 0.5 }}
{more}
"""
REPLAYED = '[sources.{name}]\nformat = "replay"\npath = "{name}.parquet"\nspeed = "max"\n' + ROW
IN_FILES = '[sources.{name}]\nformat = "parquet"\npath = "{name}"\nmax_files_per_trigger = 1\n' + ROW
SINKS = '[sink]\nformat = "parquet"\npath = "out"\n[rejects]\nformat = "json"\npath = "bad"\n'
KAFKA_ALERT = '[[alerts]]\nformat = "kafka"\nservers = "a:9092"\ntopic = "t"\n'
OPERATORS = {
    "similarity_join": '[similarity_join]\nepsilon = 2.0\nprobability = 0.5\nwindow = "5 seconds"\n',
    "window_aggregate": '[window_aggregate]\nwindow = "5 seconds"\naggregates = { x = "mean" }\n',
    "match_queries": '[match_queries]\nprobability = 0.5\nconditions = { east = "x > 5" }\n',
    "fence_events": "[fence_events.regions]\nbox = 'POLYGON((2 2, 8 2, 8 8, 2 8, 2 2))'\n",
    "encounters": "[encounters]\nepsilon = 1.0\nprobability = 0.5\n",
}


def rows(seed: int, n: int = 60) -> pa.Table:
    chance = np.random.default_rng(seed)
    x, y = chance.uniform(0, 10, (2, n))
    x[7] = np.nan
    return pa.table({"id": np.arange(n) % 7, "time": np.arange(n) / 2.0, "x": x, "y": y})


def write_job(folder: Path, operator: str, source: str = REPLAYED, head: str = 'engine = "local"\n') -> Any:
    names = ["near", "far"] if operator == "similarity_join" else ["near"]
    more = 'motion = { kind = "Straight", max_gap = "10 seconds" }' if operator == "encounters" else ""
    for i, name in enumerate(names):
        if source is REPLAYED:
            pq.write_table(rows(i), folder / f"{name}.parquet")
        else:
            (folder / name).mkdir()
            for part in range(3):
                file = folder / name / f"{part}.parquet"
                pq.write_table(rows(i).slice(20 * part, 20), file)
                os.utime(file, (1_700_000_000 + part, 1_700_000_000 + part))
    text = head + "".join(source.format(name=name, more=more) for name in names) + OPERATORS[operator] + SINKS
    (folder / "job.toml").write_text(text, encoding="utf-8")
    return jobs.load(folder / "job.toml")


def written(folder: Path) -> list[str]:
    found = ds.dataset(sorted(folder.glob("*.parquet")), format="parquet").to_table()
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in found.to_pylist())


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("source", [REPLAYED, IN_FILES], ids=["replay", "files"])
def test_a_resident_job_answers_as_its_call(tmp_path: Path, operator: str, source: str) -> None:
    job = write_job(tmp_path, operator, source)
    resident = Resident(job)
    resident.run(drain=True)
    call = by_hand(job)
    tables = {name: rows(i) for i, name in enumerate(job.table.sources)}
    wanted = pa.concat_tables([call.push(**tables), call.drain()])
    found = written(tmp_path / "out")
    assert found == sorted(json.dumps(row, default=str, sort_keys=True) for row in wanted.to_pylist())
    assert len(found) > 10
    bad = [json.loads(line) for file in (tmp_path / "bad").glob("*.json") for line in file.read_text().splitlines()]
    assert [one["reason"] for one in bad] == ["non-finite value"] * len(tables)
    assert resident.totals["rows"] == 60 * len(tables)
    assert resident.totals["answers"] == len(found)


@pytest.mark.spark
def test_both_engines_give_the_same_rows(tmp_path: Path, spark: SparkSession) -> None:
    """One job file, of which the engine is all that changes."""
    found = {}
    for engine in ("local", "spark"):
        folder = tmp_path / engine
        folder.mkdir()
        head = f'engine = "{engine}"\ncheckpoint = "checkpoint"\n'
        job = write_job(folder, "similarity_join", IN_FILES, head if engine == "spark" else 'engine = "local"\n')
        if engine == "spark":
            jobs.run(job, spark, drain=True).awaitTermination()
        else:
            Resident(job).run(drain=True)
        found[engine] = written(folder / "out")
    assert found["local"] == found["spark"]
    assert len(found["local"]) > 10


def test_a_folder_is_followed_while_it_grows(tmp_path: Path) -> None:
    job = write_job(tmp_path, "match_queries", IN_FILES)
    steps: list[Step] = []
    stop = threading.Event()
    resident = Resident(job, on_step=steps.append)
    thread = threading.Thread(target=resident.run, args=(stop,))
    thread.start()
    try:
        _until(lambda: len(steps) == 3)
        more = rows(5)
        pq.write_table(more, tmp_path / "near" / ".hidden")
        (tmp_path / "near" / ".hidden").rename(tmp_path / "near" / "9.parquet")
        _until(lambda: len(steps) == 4)
    finally:
        stop.set()
        thread.join(60)
    assert [len(step.rows["near"]) for step in steps] == [20, 20, 20, 60]
    assert len(written(tmp_path / "out")) == sum(len(step.answers) for step in steps)


def test_once_leaves_open_what_a_drain_ends(tmp_path: Path) -> None:
    job = write_job(tmp_path, "window_aggregate")
    Resident(job).run(once=True)
    left = written(tmp_path / "out")
    for file in (tmp_path / "out").iterdir():
        file.unlink()
    Resident(job).run(drain=True)
    assert len(left) == len(written(tmp_path / "out")) - 1  # the last tick waits for a later row


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ('format = "parquet"\npath = "out"', 'format = "delta"\npath = "out"', "sink of format delta is not built in"),
        ('format = "parquet"\npath = "out"', 'format = "parquet"\npath = "s3://b/out"', "is not on this machine"),
        ('format = "replay"\npath = "near.parquet"\nspeed = "max"', 'format = "delta"\npath = "near"', "sources.near"),
        ('[sink]\nformat = "parquet"\npath = "out"', '[sink]\nformat = "iceberg"\ntable = "a.b"', "sink.format: "),
        ("[sink]", KAFKA_ALERT + "[sink]", "alerts.0.format: alerts to kafka"),
    ],
)
def test_what_only_spark_can_do_is_an_error_that_says_so(tmp_path: Path, old: str, new: str, wanted: str) -> None:
    write_job(tmp_path, "match_queries")
    text = (tmp_path / "job.toml").read_text()
    assert old in text
    (tmp_path / "job.toml").write_text(text.replace(old, new))
    with pytest.raises(ap.JobError, match=wanted) as error:
        jobs.load(tmp_path / "job.toml")
    assert "engine = 'spark'" in str(error.value)


def test_uris_of_this_machine_are_paths(tmp_path: Path) -> None:
    write_job(tmp_path, "match_queries", IN_FILES)
    text = (tmp_path / "job.toml").read_text()
    for place in ("near", "out", "bad"):
        assert f'path = "{place}"' in text
        text = text.replace(f'path = "{place}"', f'path = "file://{tmp_path}/{place}"')
    (tmp_path / "job.toml").write_text(text)
    Resident(jobs.load(tmp_path / "job.toml")).run(drain=True)
    assert len(written(tmp_path / "out"))


def test_a_checkpoint_elsewhere_is_refused(tmp_path: Path) -> None:
    job = write_job(tmp_path, "match_queries")
    with pytest.raises(ap.JobError, match="s3://bucket/kept is not on this machine"):
        Resident(job, checkpoint="s3://bucket/kept")


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ('speed = "max"', "speed = 0", "sources.near.speed"),
        ('speed = "max"', 'speed = "fast"', "'max'"),
        ('path = "near.parquet"', 'path = "near.txt"', "Known: .parquet"),
        ('engine = "local"', 'engine = "loca"', "engine"),
        ('speed = "max"', 'sped = "max"', "speed"),
    ],
)
def test_mistakes_are_reported_in_their_place(tmp_path: Path, old: str, new: str, wanted: str) -> None:
    write_job(tmp_path, "match_queries")
    text = (tmp_path / "job.toml").read_text()
    assert old in text
    (tmp_path / "job.toml").write_text(text.replace(old, new))
    with pytest.raises((ap.JobError, ap.BadArgument), match=wanted):
        Resident(jobs.load(tmp_path / "job.toml")).run(drain=True)


def test_commands_run_a_job_by_its_engine(tmp_path: Path) -> None:
    job = write_job(tmp_path, "match_queries")
    ran = CliRunner().invoke(app, ["run", str(job.file), "--drain"])
    assert (ran.exit_code, "60 rows" in ran.stdout) == (0, True)
    served = CliRunner().invoke(app, ["serve", str(job.file), "--drain", "--json"])
    assert served.exit_code == 0
    message = json.loads(served.stdout.splitlines()[0])
    assert (message["job"], message["input_rows"]) == ("job", 60)
    refused = CliRunner().invoke(app, ["run", str(job.file), "--master", "local[2]"])
    assert (refused.exit_code, "--master is for Spark" in refused.stdout) == (2, True)
    job.file.write_text(job.file.read_text().replace('engine = "local"', 'engine = "spark"'))
    refused = CliRunner().invoke(app, ["serve", str(job.file), str(job.file)])
    assert (refused.exit_code, "runs on Spark, and is served alone" in refused.stdout) == (2, True)


def test_replayed_streams_have_one_clock(tmp_path: Path) -> None:
    write_job(tmp_path, "similarity_join")
    text = (tmp_path / "job.toml").read_text().replace('speed = "max"', "speed = 2.0", 1)
    (tmp_path / "job.toml").write_text(text)
    with pytest.raises(ap.JobError, match="give them one speed"):
        Resident(jobs.load(tmp_path / "job.toml"))


def test_rows_at_hand_do_not_keep_a_job_from_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = write_job(tmp_path, "match_queries")
    begun, may_end = threading.Event(), threading.Event()

    def slow(*_: Any, **__: Any) -> None:
        begun.set()
        may_end.wait(60)

    monkeypatch.setattr(Resident, "run", slow)
    monkeypatch.setattr(here, "_PATIENCE", 0.2)

    def stop() -> None:
        begun.wait(60)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop).start()
    left = CliRunner().invoke(app, ["run", str(job.file)])
    may_end.set()
    assert (left.exit_code, "left for the next run" in left.stdout) == (143, True)


@pytest.mark.parametrize("kept", [True, False])
def test_a_stopped_job_says_how_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, kept: bool) -> None:
    """As on Spark."""
    head = 'engine = "local"\n' + ('checkpoint = "state"\n' if kept else "")
    job = write_job(tmp_path, "match_queries", IN_FILES, head)
    written_once = Resident._write

    def stops(*given: Any) -> None:
        written_once(*given)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Resident, "_write", stops)
    left = CliRunner().invoke(app, ["run", str(job.file)])
    assert left.exit_code == 130
    said = re.search(
        r"Stopped after [\d,]+ rows, [\d,]+ answers, [\d,]+ rejects(?: \(.+\))?, in [\d.]+ s\. (.*)", left.stdout
    )
    assert said is not None
    goes_on = f"To go on from there:  {shlex.join(['appulse', 'run', str(job.file)])}"
    assert said[1] == (goes_on if kept else here._ANEW)
    assert "Ended after" not in left.stdout


def test_a_warning_is_said_as_all_else_once_in_a_run(tmp_path: Path) -> None:
    job = write_job(tmp_path, "window_aggregate", IN_FILES, 'engine = "local"\ncheckpoint = "state"\n')
    for part, behind in enumerate((0, 1000, 1000)):
        late = rows(0)
        late = late.set_column(1, "time", pa.array(late["time"].to_numpy() - behind))
        pq.write_table(late, tmp_path / "near" / f"{part}.parquet")
        os.utime(tmp_path / "near" / f"{part}.parquet", (1_700_000_000 + part, 1_700_000_000 + part))
    with warnings.catch_warnings(record=True) as others:
        warnings.simplefilter("always")
        done = CliRunner().invoke(app, ["run", str(job.file), "--once"])
    assert done.exit_code == 0, done.output
    assert done.stdout.count("Warning: 59 of the last 59 rows came late and are rejects.") == 1
    assert "LateRows" not in done.output
    assert others == []
    assert "Warning" not in CliRunner().invoke(app, ["run", str(job.file), "--once"]).output  # of rows of the log


def _until(holds: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_write_is_reported_once_its_files_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The third one fails, as where a disk is full."""
    job = write_job(tmp_path, "match_queries", IN_FILES, 'engine = "local"\ncheckpoint = "state"\n')
    seen: list[tuple[int, int]] = []
    write = sinks.FolderSink.write

    def full(self: sinks.FolderSink, number: int, given: pa.Table) -> None:
        if number == 2:
            raise ap.StorageError("no space left")
        time.sleep(0.05)
        write(self, number, given)

    def noted(done: Summary) -> None:
        seen.append((done.number, len(list((tmp_path / "out").glob("*.parquet")))))

    monkeypatch.setattr(sinks.FolderSink, "write", full)
    with pytest.raises(ap.StorageError, match="no space left"):
        Resident(job, on_write=noted, commit_every=0.0).run(once=True)
    assert seen == [(0, 1), (1, 2)]
    monkeypatch.undo()
    Resident(job, on_write=noted).run(drain=True)
    whole = tmp_path / "whole"
    whole.mkdir()
    Resident(write_job(whole, "match_queries", IN_FILES)).run(drain=True)
    assert written(tmp_path / "out") == written(whole / "out")


@pytest.mark.parametrize("folder", ["out", "bad"])
@pytest.mark.parametrize("problem", ["a file", "a file above", "read-only"])
def test_a_sink_that_cannot_be_written_is_found_before_a_row_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, problem: str
) -> None:
    job = write_job(tmp_path, "match_queries", IN_FILES, 'engine = "local"\ncheckpoint = "state"\n')
    if problem == "read-only":
        (tmp_path / folder).mkdir()
        known = os.access
        monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path / folder and known(path, mode))
    elif problem == "a file":
        (tmp_path / folder).write_text("")
    else:
        (tmp_path / "above").write_text("")
        job.file.write_text(job.file.read_text().replace(f'"{folder}"', f'"above/{folder}"'))
        job = jobs.load(job.file)
    steps: list[Step] = []
    summaries: list[Summary] = []
    wanted = "may not write to" if problem == "read-only" else "is a file, not a folder"
    with pytest.raises(ap.StorageError, match=rf"The sink .*{folder} cannot be written: .*{wanted}"):
        Resident(job, on_step=steps.append, on_write=summaries.append).run(once=True)
    assert (steps, summaries) == ([], [])
    assert not list((tmp_path / "state" / "log").iterdir())
