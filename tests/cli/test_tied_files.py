"""Files of one date: in process they come in the order of their names, on Spark in any order, with a warning."""

from __future__ import annotations

import json
import os
import warnings
from typing import TYPE_CHECKING

import pytest

import appulse as ap
from appulse import jobs
from appulse.jobs.on_spark import warn_of_ties
from appulse.jobs.resident import Resident

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

DAY = 86_400
JOB = """\
engine = "{engine}"
checkpoint = "state"
[sources.r]
format = "json"
path = "in{pattern}"
schema = "id STRING, t DOUBLE, x DOUBLE"
{most}
key = "id"
time = "t"
value = "x"
lateness = "1 hour"
ahead = inf
[self_join]
epsilon = 1.0
probability = 1.0
window = "1 minute"
[sink]
format = "json"
path = "out"
[rejects]
format = "json"
path = "bad"
"""


def make(folder: Path, engine: str, dates: list[float], most: int | None = 1, pattern: str = "") -> jobs.Job:
    """A job over a file of ten rows a day, written from the last to the first, with their dates."""
    (folder / "in").mkdir()
    for day, date in reversed([*enumerate(dates)]):
        rows = [{"id": f"r{i % 3}", "t": 1e6 + DAY * day + i, "x": 0.0} for i in range(10)]
        file = folder / "in" / f"day{day}.json"
        file.write_text("\n".join(map(json.dumps, rows)))
        os.utime(file, (date, date))
    asked = "" if most is None else f"max_files_per_trigger = {most}"
    (folder / "job.toml").write_text(JOB.format(engine=engine, most=asked, pattern=pattern))
    return jobs.load(folder / "job.toml")


def written(folder: Path) -> int:
    return sum(len(file.read_text().splitlines()) for file in folder.glob("*.json"))


def test_in_process_files_of_one_date_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    Resident(make(tmp_path, "local", [1.7e9] * 6)).run(drain=True)
    assert (written(tmp_path / "out"), written(tmp_path / "bad")) == (270, 0)


@pytest.mark.spark
def test_spark_warns_of_files_of_one_date_at_the_first_start(spark: SparkSession, tmp_path: Path) -> None:
    job = make(tmp_path, "spark", [1.7e9] * 4)
    with pytest.warns(ap.TiedFiles, match=r"4 files of source 'r' have the date of another file of .*in\. Spark"):
        jobs.run(job, spark, once=True).awaitTermination()
    with warnings.catch_warnings():
        warnings.simplefilter("error", ap.TiedFiles)
        jobs.run(job, spark, once=True).awaitTermination()


@pytest.mark.parametrize(
    ("dates", "most", "pattern", "tied"),
    [
        ([1.0, 1.0, 2.0, 2.0, 2.0], 2, "", 3),
        ([1.0, 1.0, 2.0, 2.0], 2, "/day*.json", 0),
        ([1.0, 2.0, 2.0, 3.0], 2, "/day*.json", 2),
        ([1.0, 1.0004, 2.0], 1, "", 2),
        ([1.0, 2.0, 3.0], 1, "", 0),
        ([1.0] * 5, 5, "", 0),
        ([1.0] * 5, None, "", 0),
        ([], 1, "", 0),
    ],
)
def test_ties_count_where_they_are_cut(
    tmp_path: Path, dates: list[float], most: int | None, pattern: str, tied: int
) -> None:
    job = make(tmp_path, "spark", dates, most, pattern)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_ties(job)
    assert [str(one.message).split()[0] for one in caught] == ([str(tied)] if tied else [])
