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

import appulse as ap
from appulse import jobs
from appulse.jobs.resident import Resident

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
ENGINES = [pytest.param("spark", marks=pytest.mark.spark)]


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
@pytest.mark.parametrize("how", ["moved", "another path"])
def test_spark_says_what_to_do_where_files_have_moved(tmp_path: Path, request: pytest.FixtureRequest, how: str) -> None:
    folder = make(tmp_path / "job", "spark")
    put(folder, 1)
    run(folder, request)
    if how == "moved":
        shutil.move(folder, tmp_path / "there")
        folder = tmp_path / "there"
    else:
        (folder / "in").rename(folder / "other")
        (folder / "job.toml").write_text((folder / "job.toml").read_text().replace('path = "in"', 'path = "other"'))
    with pytest.raises(ap.CheckpointError, match=r"has read file:\S*/in/1.parquet, which .* new folders for what"):
        run(folder, request)
