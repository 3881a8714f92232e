"""Standing queries in job files: from the file, a file beside it, or a stream; what is wrong is told in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

import appulse as ap
from appulse import jobs

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

JOB = """\
checkpoint = "checkpoint"

[defaults]
format = "parquet"
key = "id"
time = "time"
value = { model = "Exact", columns = ["x"] }

[sources.near]
path = "near"

[sources.far]
path = "far"

[match_queries]
path = "rules.sql"
window = "10 seconds"

[match_queries.aggregate]
n = "count"
most = ["sum", "near.x"]

[sink]
format = "parquet"
path = "answers"

[rejects]
format = "json"
path = "rejects"
"""
RULES = """\
-- close
near.x - far.x BETWEEN -1 AND 1
-- in order; a window of its own
near.x < far.x WITHIN 2 SECONDS
"""


def _rows(seed: int) -> pd.DataFrame:
    chance = np.random.default_rng(seed)
    return pd.DataFrame({"id": np.arange(40), "time": np.arange(40, dtype=float), "x": chance.uniform(0, 9, 40)})


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job of two sources, with the rules beside it."""
    for seed, name in enumerate(("near", "far")):
        (tmp_path / name).mkdir()
        _rows(seed).to_parquet(tmp_path / name / "rows.parquet")
    (tmp_path / "rules.sql").write_text(RULES)
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    return path


def _told(job: Path, old: str, new: str) -> str:
    text = job.read_text()
    assert old in text
    job.write_text(text.replace(old, new))
    return " | ".join(map(str, jobs.validate(job)))


def test_a_job_of_queries_is_the_call_it_stands_for(job: Path, spark: SparkSession) -> None:
    """Over two streams by aggregates; and over one, by conditions in the file, as a stream."""
    assert jobs.validate(job) == []
    streams = [
        ap.Stream(_rows(i), key="id", time="time", value=ap.Exact("x"), name=name)
        for i, name in enumerate(("near", "far"))
    ]
    rules = pd.DataFrame(jobs.queries.conditions(RULES), columns=["query", "condition"])
    asked: dict[str, str | tuple[str, str]] = {"n": "count", "most": ("sum", "near.x")}
    expected = ap.match_queries(*streams, queries=rules, window=ap.TimeWindow(10), aggregate=asked).to_pandas()
    found = jobs.build(jobs.load(job), spark, streaming=False).toPandas()
    order = ["query", "time"]
    ours, theirs = (frame.sort_values(order, ignore_index=True) for frame in (found, expected))
    pd.testing.assert_frame_equal(ours, theirs)

    begin, end = JOB.index("[match_queries]"), JOB.index("[sink]")
    one = JOB[:begin] + "[match_queries.conditions]\nlow = 'x < 1'\nodd = 'x >'\n\n" + JOB[end:]
    job.write_text(one.replace('[sources.far]\npath = "far"\n', ""))
    checked = jobs.load(job) if not jobs.validate(job) else None
    assert checked is None
    job.write_text(job.read_text().replace("x >'", "x > 8'"))
    jobs.run(jobs.load(job), spark, drain=True, checkpoint=str(job.parent / "c")).awaitTermination()
    answers = spark.read.parquet(str(job.parent / "answers")).toPandas()
    x = _rows(0)["x"]
    assert answers["query"].value_counts().to_dict() == {"low": int((x < 1).sum()), "odd": int((x > 8).sum())}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('path = "rules.sql"\n', "", "has no queries. Give one of: conditions"),
        ('path = "rules.sql"', 'path = "rules.txt"', "ends in '.txt'. Known: .csv, .parquet, .geojson, .json, .sql"),
        ('window = "10 seconds"', "window = { delta = 'x', bound = 1.0 }", "window is one of time or count"),
        ('n = "count"', 'n = "cuont"', "aggregate.n"),
        ('"near.x"]', '"near.y"]', "names 'near.y', which is not a column of numbers. Did you mean 'near.x'?"),
        ('[sources.far]\npath = "far"\n', "", "are for queries over two sources or more"),
        ("checkpoint =", "sample = 5\ncheckpoint =", "sample plans the tiles of a join"),
    ],
)
def test_what_is_wrong_with_queries_is_told(job: Path, old: str, new: str, told: str) -> None:
    assert told in _told(job, old, new)


def test_conditions_that_cannot_be_used_are_told_with_their_names(job: Path) -> None:
    """And files that are not there, at the start."""
    (job.parent / "rules.sql").write_text(RULES + "-- odd\nnear.x > > 1 WITHIN 1 ROW\n-- none\nfar.y > 1\n")
    first, second = map(str, jobs.validate(job))
    assert first.startswith("match_queries.path: query 'odd': The condition 'near.x > > 1' is refused at position 10")
    assert "there is no column 'y'" in second
    (job.parent / "rules.sql").unlink()
    assert [str(problem).split(":")[0] for problem in jobs.load(job).missing()] == ["match_queries.path"]


def test_queries_may_be_files_that_are_a_stream(job: Path) -> None:
    """Their columns are known once there are some."""
    problems = _told(job, 'path = "rules.sql"', 'changes = { format = "parquet", path = "changes" }')
    assert problems == ""
    assert [str(problem).split(":")[0] for problem in jobs.load(job).missing()] == ["match_queries.changes.path"]
