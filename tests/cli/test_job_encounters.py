"""`[encounters]` in job files: what is right is the call, what is wrong is reported in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pytest

import appulse as ap
from appulse import jobs
from tests.cli.test_job_association import problems

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

JOB = """\
[sources.ships]
format = "parquet"
path = "ships.parquet"
key = "ship"
time = "at"
value = { model = "Gaussian", columns = ["x", "y"], sigma = 5.0 }
motion = { kind = "Straight", max_gap = "5 minutes", max_speed = 30.0 }

[encounters]
epsilon = 100.0
probability = 0.5
gap = "1 minute"

[sink]
format = "parquet"
path = "met"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [
        (ship, 60.0 * i, 20.0 * 60.0 * i * way + start, side)
        for ship, way, start, side in (("a", 1, 0.0, 0.0), ("b", -1, 12_000.0, 50.0))
        for i in range(10)
    ]
    pd.DataFrame(rows, columns=["ship", "at", "x", "y"]).to_parquet(tmp_path / "ships.parquet")
    return tmp_path


def test_a_job_is_the_call(folder: Path, spark: SparkSession) -> None:
    groups = JOB.replace("epsilon = 100.0", "epsilon = { x = 100.0, y = 60.0 }")
    assert problems(folder, JOB) == problems(folder, groups) == []
    found = jobs.build(jobs.load(folder / "job.toml"), spark, streaming=False).toArrow()
    frame = pd.read_parquet(folder / "ships.parquet")
    value, motion = ap.Gaussian("x", "y", sigma=5.0), ap.Straight("5 minutes", max_speed=30.0)
    stream = ap.Stream(frame, key="ship", time="at", value=value, motion=motion)
    expected = ap.encounters(stream, epsilon={"x": 100.0, "y": 60.0}, probability=0.5, gap="1 minute")
    assert found.to_pylist() == expected.to_pylist()
    assert [(row["left_key"], row["right_key"]) for row in found.to_pylist()] == [("a", "b")]


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ('motion = { kind = "Straight", max_gap = "5 minutes", max_speed = 30.0 }', "", "give sources.ships.motion"),
        ('"5 minutes"', "0", "sources.ships.motion"),
        ('kind = "Straight"', 'kind = "Strait"', "sources.ships.motion"),
        ("max_gap", "gap", "sources.ships.motion"),
        (
            'kind = "Straight", max_gap = "5 minutes", max_speed = 30.0',
            'kind = "Velocity", columns = ["vx", "vy"], horizon = 5',
            "no column 'vx'",
        ),
        ("probability = 0.5", "probability = 0", "encounters.probability"),
        ('gap = "1 minute"', 'gap = "1 mintue"', "encounters.gap"),
        ("[encounters]", "[imputer]\nkind = 'ZeroFill'\n[encounters]", "[imputer] fills the sources of a join"),
    ],
)
def test_what_is_wrong_is_reported_in_its_place(folder: Path, old: str, new: str, wanted: str) -> None:
    assert old in JOB
    found = problems(folder, JOB.replace(old, new))
    assert any(wanted in problem for problem in found)


def test_positions_meet_in_cylinders(folder: Path, spark: SparkSession) -> None:
    rows = [
        (name, 60.0 * i, 47.0, 8.0 + start + way * 0.1 * i, altitude)
        for name, way, start, altitude in (("a", 1, 0.0, 10_000.0), ("b", -1, 0.5, 10_200.0))
        for i in range(6)
    ]
    pd.DataFrame(rows, columns=["ship", "at", "lat", "lon", "up"]).to_parquet(folder / "ships.parquet")
    value = (
        'value = { model = "Position", lat = "lat", lon = "lon", altitude = "up", altitude_sigma = 20.0, sigma = 30.0 }'
    )
    text = JOB.replace('value = { model = "Gaussian", columns = ["x", "y"], sigma = 5.0 }', value)
    text = text.replace("max_speed = 30.0", "max_speed = 300.0")
    near = "epsilon = { horizontal = 5000.0, vertical = 250.0 }"
    text = text.replace("epsilon = 100.0", near)
    assert problems(folder, text) == []
    (row,) = jobs.build(jobs.load(folder / "job.toml"), spark, streaming=False).toArrow().to_pylist()
    assert (row["left_key"], row["right_key"]) == ("a", "b")
    assert row["closest_distance"] == pytest.approx(200.0, abs=0.1)
    (problem,) = problems(folder, text.replace("vertical = 250.0", 'vertical = "high"'))
    assert "encounters.epsilon.vertical" in problem
