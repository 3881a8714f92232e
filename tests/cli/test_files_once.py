"""Folders of files that grow: a file is read once by its name, on both engines, also where a job has moved."""

from __future__ import annotations

import json
import os
import shutil
import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import appulse as ap
from appulse import jobs
from appulse.cli import app
from appulse.connect import checkpoint
from appulse.jobs import on_spark
from appulse.jobs.resident import Resident, Step

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

JOB = """\
engine = "{engine}"
checkpoint = "state"
[sources.vans]
format = "parquet"
path = "in"
{more}
schema = "id BIGINT, at DOUBLE, x DOUBLE, y DOUBLE"
key = "id"
time = "at"
lateness = "1 hour"
value = {{ model = "Exact", columns = ["x", "y"] }}
{call}
[sink]
format = "json"
path = "out"
[rejects]
format = "json"
path = "bad"
"""
MATCHING = '[match_queries]\nconditions = { all = "x > 0" }'
DAY = 86_400
ENGINES = ["local", pytest.param("spark", marks=pytest.mark.spark)]


def make(folder: Path, engine: str = "local", more: str = "", call: str = MATCHING) -> Path:
    (folder / "in").mkdir(parents=True, exist_ok=True)
    (folder / "job.toml").write_text(JOB.format(engine=engine, more=more, call=call))
    return folder


def put(folder: Path, number: int, age: float = 0.0) -> Path:
    """A file of one row, so many days old."""
    file = folder / "in" / f"{number}.parquet"
    row = {"id": [number], "at": [1e9 + number], "x": [1.0], "y": [1.0]}
    pq.write_table(pa.table(row), file.with_name(f".{file.name}"))
    os.utime(file.with_name(f".{file.name}"), (time.time() - age * DAY,) * 2)
    file.with_name(f".{file.name}").rename(file)
    return file


def keys(folder: Path) -> list[int]:
    """Of the answers."""
    lines = [line for file in (folder / "out").glob("*.json") for line in file.read_text().splitlines()]
    return sorted(json.loads(line)["key"] for line in lines)


def run(folder: Path, request: pytest.FixtureRequest) -> list[int]:
    """The keys that are answered once the job has run over what is there."""
    job = jobs.load(folder / "job.toml")
    if job.table.engine == "local":
        Resident(job).run(once=True)
    else:
        spark: SparkSession = request.getfixturevalue("spark")
        jobs.run(job, spark, once=True).awaitTermination()
    return keys(folder)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_file_is_read_once_by_its_name_whatever_its_time(
    tmp_path: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    folder = make(tmp_path / "job", engine)
    put(folder, 1, 30)
    put(folder, 2)
    assert run(folder, request) == [1, 2]
    put(folder, 3, 400)
    assert run(folder, request) == [1, 2, 3]
    os.utime(folder / "in" / "1.parquet")
    os.utime(folder / "in" / "2.parquet", (1e9, 1e9))
    put(folder, 3, -1)  # another in its place
    put(folder, 4, 8)
    assert run(folder, request) == [1, 2, 3, 4]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_job_waits_for_its_first_file_where_it_knows_the_columns(
    tmp_path: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    folder = make(tmp_path / "job", engine)
    if engine == "spark":
        request.getfixturevalue("spark")
    command = ["run", str(folder / "job.toml"), "--once"]
    for _ in range(2):
        done = CliRunner().invoke(app, command)
        assert (done.exit_code, "0 rows" in done.output) == (0, True), done.output
        assert keys(folder) == []
    put(folder, 1)
    assert CliRunner().invoke(app, command).exit_code == 0
    assert keys(folder) == [1]
    missing = f"sources.vans.path: there are no files at {folder / 'in'}."
    other = make(tmp_path / "other", engine)
    (other / "in").rmdir()
    said = CliRunner().invoke(app, ["run", str(other / "job.toml"), "--once"])
    assert (said.exit_code, said.output.count("In a folder that is there the job would wait for them.")) == (2, 1)
    (folder / "in" / "1.parquet").unlink()
    (folder / "job.toml").write_text((folder / "job.toml").read_text().replace("schema =", "# schema ="))
    said = CliRunner().invoke(app, command)
    assert (said.exit_code, missing in said.output) == (2, True)
    assert 'With a schema of sources.vans (schema = "id string, at double, ...") the job would start' in said.output


def test_a_stream_without_a_file_has_the_columns_of_its_schema(tmp_path: Path) -> None:
    """In process a call that is by hand wants to have seen each stream: rows without a partner are answers then."""
    folder = make(tmp_path / "job", call='[nearest]\nhow = "left"\nk = 1\nepsilon = 1\nwindow = 10')
    text = (folder / "job.toml").read_text()
    source = text[text.index("[sources.vans]") : text.index("[nearest]")]
    cars = source.replace("vans", "cars").replace('path = "in"', 'path = "more"')
    (folder / "job.toml").write_text(text.replace(source, source + cars))
    (folder / "more").mkdir()
    put(folder, 1)
    job = jobs.load(folder / "job.toml")
    Resident(job).run(once=True)
    Resident(job).run(drain=True)
    (line,) = [line for file in (folder / "out").glob("*.json") for line in file.read_text().splitlines()]
    assert json.loads(line)["left_key"] == 1


@pytest.mark.spark
def test_options_name_the_age_of_files_and_a_checkpoint_goes_on_with_another(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder = make(tmp_path / "job", "spark", 'options = { maxFileAge = "7d" }')
    put(folder, 1)
    assert run(folder, request) == [1]
    put(folder, 2, 30)
    assert run(folder, request) == [1]
    make(folder, "spark")
    assert run(folder, request) == [1, 2]
    make(folder, "spark", 'options = { MaxFileAge = "7d" }')
    put(folder, 3)
    assert run(folder, request) == [1, 2, 3]


@pytest.mark.spark
@pytest.mark.parametrize("pattern", ["", "/*.parquet", "/{1,2}.parquet"])
@pytest.mark.parametrize("how", ["moved", "another path"])
def test_spark_says_what_to_do_where_files_have_moved(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, how: str, pattern: str
) -> None:
    folder = make(tmp_path / "a job", "spark")
    (folder / "job.toml").write_text((folder / "job.toml").read_text().replace('"in"', f'"in{pattern}"'))
    put(folder, 1)
    run(folder, request)
    put(folder, 2)
    assert run(folder, request) == [1, 2]
    if how == "moved":
        shutil.move(folder, tmp_path / "there")
        folder = tmp_path / "there"
    else:
        (folder / "in").rename(folder / "other")
        (folder / "job.toml").write_text((folder / "job.toml").read_text().replace('path = "in', 'path = "other'))
    with pytest.raises(ap.CheckpointError, match=r"has read /.*/in/2.parquet, which is not .* new folders for what"):
        run(folder, request)
    if not pattern:  # Spark notices that itself, also of what no job file names
        monkeypatch.setattr(on_spark, "check_files", lambda *_: None)
        with pytest.raises(ap.CheckpointError, match=r"has read file:/.*, which is not in the folder .*"):
            run(folder, request)


def test_files_come_by_their_times_and_then_names(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    folder = make(tmp_path / "job", more="max_files_per_trigger = 1")
    for number, age in ((5, 1.0), (1, 2.0), (4, 400.0), (3, 400.0), (2, 0.5)):
        os.utime(put(folder, number), (1.7e9 - age, 1.7e9 - age))
    steps: list[Step] = []
    Resident(jobs.load(folder / "job.toml"), on_step=steps.append).run(once=True)
    assert [step.rows["vans"]["id"].to_pylist() for step in steps] == [[3], [4], [1], [5], [2]]
    assert run(folder, request) == [1, 2, 3, 4, 5]


def test_a_folder_that_is_empty_for_a_moment_makes_nothing_new(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name is forgotten only when its file has been gone for seven days."""
    folder = make(tmp_path / "job")
    put(folder, 1, 400)
    put(folder, 2)
    run(folder, request)
    (folder / "in").rename(folder / "unmounted")
    assert run(folder, request) == [1, 2]
    (folder / "in").mkdir()
    put(folder, 3)
    assert run(folder, request) == [1, 2, 3]  # now the checkpoint has it that two files have gone
    for file in (folder / "unmounted").iterdir():
        file.rename(folder / "in" / file.name)
    put(folder, 4)
    assert run(folder, request) == [1, 2, 3, 4]
    (folder / "in" / "1.parquet").unlink()
    (folder / "in" / "2.parquet").unlink()
    put(folder, 5)
    assert run(folder, request) == [1, 2, 3, 4, 5]
    put(folder, 1)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 8 * DAY)
    put(folder, 6)
    assert run(folder, request) == [1, 2, 3, 4, 5, 6]
    put(folder, 2)  # this one was away for long enough
    assert run(folder, request) == [1, 2, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("path", ["in", "in/*.parquet", "in/1.parquet"])
def test_a_job_goes_on_where_it_has_moved(tmp_path: Path, request: pytest.FixtureRequest, path: str) -> None:
    folder = make(tmp_path / "job")
    (folder / "job.toml").write_text((folder / "job.toml").read_text().replace('"in"', f'"{path}"'))
    put(folder, 1)
    assert run(folder, request) == [1]
    shutil.move(folder, tmp_path / "there")
    assert run(tmp_path / "there", request) == [1]
    put(tmp_path / "there", 2)
    assert run(tmp_path / "there", request) == ([1] if path == "in/1.parquet" else [1, 2])


def test_another_path_is_refused_with_both_and_a_link_goes_on(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    folder = make(tmp_path / "job")
    text = (folder / "job.toml").read_text()
    put(folder, 1)
    run(folder, request)
    (folder / "job.toml").write_text(text.replace('"in"', f'"{folder}/in"'))  # the same place
    put(folder, 2)
    assert run(folder, request) == [1, 2]
    (folder / "in").rename(tmp_path / "other")
    (folder / "job.toml").write_text(text.replace('"in"', '"../other"'))
    with pytest.raises(ap.CheckpointError, match=rf"'vans' at {folder}/in, .* names \.\./other \({tmp_path}/other\)"):
        run(folder, request)
    (folder / "in").symlink_to(tmp_path / "other")
    (folder / "job.toml").write_text(text.replace('"in"', f'"{folder}/in"'))
    put(folder, 3)
    assert run(folder, request) == [1, 2, 3]


def as_before(folder: Path, files: list[Path]) -> None:
    """The checkpoint as versions wrote it that kept whole paths, and those of the last seven days alone."""
    shutil.rmtree(folder / "state" / "names")
    (record,) = (folder / "state" / "log").iterdir()
    given = checkpoint._read(record)
    assert given is not None
    given.head["offsets"] = {"vans": {str(file): file.stat().st_mtime_ns for file in files}}
    record.write_bytes(checkpoint._packed(given))


def test_checkpoints_with_whole_paths_go_on(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    folder = make(tmp_path / "job")
    put(folder, 1, 30)
    files = [put(folder, number) for number in (2, 3)]
    assert run(folder, request) == [1, 2, 3]
    as_before(folder, files)
    shutil.copytree(folder, tmp_path / "there")
    put(folder, 4)
    assert run(folder, request) == [1, 2, 3, 4]
    put(folder, 5, 30)
    assert run(folder, request) == [1, 2, 3, 4, 5]
    with pytest.raises(ap.CheckpointError, match=rf"at {folder}/in, .* names in \({tmp_path}/there/in\)"):
        run(tmp_path / "there", request)


def test_files_without_rows_do_not_end_a_run(tmp_path: Path) -> None:
    folder = make(tmp_path / "job", more="max_files_per_trigger = 1")
    text = (folder / "job.toml").read_text().replace('format = "parquet"', 'format = "json"').replace("schema", "#")
    (folder / "job.toml").write_text(text)
    for number, line in enumerate(("", "", '{"id": 1, "at": 1.0, "x": 1.0, "y": 1.0}\n')):
        (folder / "in" / f"{number}.json").write_text(line)
        os.utime(folder / "in" / f"{number}.json", (1.7e9 + number, 1.7e9 + number))
    Resident(jobs.load(folder / "job.toml")).run(once=True)
    assert keys(folder) == [1]
