"""Sensor joins and phenomena in job files: what is right runs as the calls do, what is wrong is told in its place."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import appulse as ap
from appulse import jobs
from appulse.cli import app
from tests.cli.test_job_association import problems

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SOURCE = """\
[sources.readings]
format = "parquet"
path = "readings"
key = "mote"
time = "at"
value = "warmth"

"""
FILES = f"""\
checkpoint = "checkpoint"

{SOURCE}[sink]
format = "parquet"
path = "answers"

[rejects]
format = "parquet"
path = "rejects"
"""
ROOMS = FILES.replace('value = "warmth"', 'value = "warmth"\npartition_by = ["room"]')
JOIN = """
[sensor_join]
within = 0.2
window = "20 seconds"
"""
PHENOMENA = """
[phenomena]
within = 0.3
strength = 2
span = "15 seconds"
min_sensors = 2
reach = 1.5
locations = { format = "parquet", path = "places.parquet" }
"""


def readings(n: int = 300) -> pa.Table:
    chance = np.random.default_rng(5)
    at = pa.array(np.arange(n) // 6 * 5_000_000 + 10**9, pa.timestamp("us", "UTC"))
    columns = {"mote": np.arange(n) % 6, "at": at, "warmth": chance.normal(20, 0.4, n).round(2), "n": np.arange(n)}
    table = pa.table(columns).append_column("room", pa.array(["ab"[i % 6 // 3] for i in range(n)]))
    return table.set_column(2, "warmth", pa.array(columns["warmth"], mask=np.arange(n) == 7))


PLACES = pa.table({"mote": range(6), "x": np.arange(6.0), "y": np.zeros(6)})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "readings").mkdir()
    pq.write_table(readings(), tmp_path / "readings" / "rows.parquet")
    pq.write_table(PLACES, tmp_path / "places.parquet")
    return tmp_path


def rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def test_a_sensor_join_and_phenomena_run_as_the_calls_do(folder: Path, spark: SparkSession) -> None:
    columns: dict[str, Any] = {"key": "mote", "time": "at", "value": "warmth"}
    stream = ap.Stream(readings(), **columns)
    joined = ap.sensor_join(replace(stream, carry=["n"]), within=0.2, window=ap.TimeWindow(20))
    place: dict[str, Any] = {"locations": PLACES, "reach": 1.5}
    found = ap.phenomena(replace(stream, partition_by="room"), within=0.3, strength=2, span=15, **place)
    assert len(joined) > 200
    assert len(found) > 20
    late = FILES.replace('value = "warmth"', 'value = "warmth"\nlateness = "1 minute"\ncarry = "n"')
    for text, expected in ((late + JOIN, joined), (ROOMS + PHENOMENA, found)):
        assert problems(folder, text) == []
        job = jobs.load(folder / "job.toml")
        assert job.missing() == []
        answers = jobs.build(job, spark, streaming=False)
        assert rows(answers.toArrow()) == rows(expected)
        assert rows(ap.rejects(answers).toArrow()) == rows(ap.rejects(expected))
    jobs.run(job, spark, drain=True).awaitTermination()
    written = spark.read.parquet(str(folder / "answers")).select(*found.column_names).toArrow()
    assert rows(written) == rows(found)


def test_conditions_silence_and_listed_neighbours_on_spark(spark: SparkSession) -> None:
    """Room a falls silent halfway, room b has few rows that satisfy the condition."""
    table = readings().filter(pc.or_(pc.equal(readings()["room"], "b"), pc.less(readings()["n"], 150)))
    columns: dict[str, Any] = {"key": "mote", "time": "at", "value": "warmth", "partition_by": "room"}
    stream = ap.filter(ap.Stream(table, **columns, idle_after=20), "room = 'a' OR n > 60")
    pairs = pa.table({"one": [0, 1, 3, 4], "other": [1, 2, 4, 5]})
    asked: dict[str, Any] = {"within": 0.3, "strength": 1, "span": 5, "neighbours": pairs}
    found = ap.phenomena(stream, **asked)
    result = ap.phenomena(replace(stream, frame=spark.createDataFrame(table)), **asked)
    assert len(found) > 20
    assert rows(result.toArrow()) == rows(found)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "within = 0.3",
            'within = 0.3\nneighbours = { format = "parquet", path = "places.parquet" }',
            "phenomena: neighbours= lists the pairs",
        ),
        ("within =", "withn =", "phenomena.withn: unknown key. Did you mean 'within'?"),
        ("strength = 2", "strength = 0", "phenomena.strength: is 0 (a number), wanted at least 1."),
        ("strength = 2\n", "", "phenomena.strength: is missing, and has no default."),
        ('span = "15 seconds"', 'span = "15 sceonds"', "phenomena.span: "),
        ("within = 0.3", 'within = "0.3"', "phenomena.within: is '0.3' (text), wanted a number."),
        ("within = 0.3", "within = -1", "phenomena.within: is -1 (a number), wanted at least 0."),
        ("within = 0.3", "within = 0.3\nresolution = 1", "phenomena: resolution= and within= are given both."),
        ("reach = 1.5\n", "", "phenomena: locations= and reach= go together"),
        ('path = "places.parquet"', 'pth = "places.parquet"', "phenomena.locations.path: is missing"),
        ('value = "warmth"', 'value = "warmht"', "phenomena: Stream 'readings' has no column 'warmht'. Did you me"),
        ('value = "warmth"', 'value = "room"', "phenomena: Column 'room' is string, not a number."),
        ("within = 0.3", 'within = 0.3\nsimilar = "sumary"', "phenomena.similar: is 'sumary'"),
        (
            "within = 0.3",
            'within = 0.3\nsimilar = "summary"',
            "phenomena: within= goes with values and slopes.",
        ),
        ("[phenomena]", "[sensor_join]", "sensor_join.strength: unknown key."),
        ("[phenomena]", "sample = 5\n[phenomena]", "rejects.sample: unknown key."),
        ("checkpoint =", "sample = 5\ncheckpoint =", "sample plans the tiles of a join, and [phenomena] have none"),
        ("[sources.readings]", "[source.readings]", "source: unknown key. Did you mean 'sources'?"),
        ("[sources.readings]\n", '[sources.readings]\nsensor = "mote"\n', "sources.readings.sensor: unknown key."),
        ('key = "mote"\n', "", "sources.readings.key: is missing, and has no default."),
        ('value = "warmth"', "value = 5", "sources.readings.value: is 5 (a number), wanted "),
        ('value = "warmth"', 'value = ""', "sources.readings.value: Exact(''): the name is empty"),
        (
            'value = "warmth"',
            'value = { model = "Gaussian", columns = ["warmth"], sigma = 1 }',
            "phenomena() compares single values as they are, and the value of its stream is Gaussian(",
        ),
        ('value = "warmth"', 'value = "warmth"\nexistence = "n"', "phenomena() has no use for Stream(existence='n'"),
        (SOURCE, SOURCE + SOURCE.replace("readings]", "others]"), "[phenomena] reads one source with all sensors"),
    ],
)
def test_what_is_wrong_is_told_in_its_place(folder: Path, old: str, new: str, told: str) -> None:
    text = FILES + PHENOMENA
    assert old in text
    assert any(told in one for one in problems(folder, text.replace(old, new, 1))), problems(folder, text)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('window = "20 seconds"\n', "", "sensor_join: a sensor join has a window"),
        ('window = "20 seconds"', 'window = "20 sceonds"', "sensor_join.window: "),
        ('window = "20 seconds"', "window = { count = 5 }", "sensor_join: window is one of time"),
        ('window = "20 seconds"', 'window_column = "nn"', "sensor_join: Stream 'readings' has no column 'nn'."),
        ('window = "20 seconds"', "window = { time = 20, per_stream = { x = 5 } }", "sensor_join: window= names sens"),
        ('value = "warmth"', 'value = "warmth"\ncarry = "time"', "sensor_join: carry= names 'time'"),
        ('value = "warmth"', 'value = "warmth"\ncarry = 5', "sources.readings.carry: is 5 (a number), wanted a list."),
        ("within = 0.2", 'similar = "slope"', "sensor_join: similar='slope' looks back over some time"),
        ("[sink]", "[self_join]\nepsilon = 1\nprobability = 1\nwindow = 5\n[sink]", "A job has one operator"),
        ("[sink]", '[imputer]\nkind = "ZeroFill"\n[sink]', "[imputer] fills the sources of a join"),
        ("[sensor_join]", "[self_join]", "self_join.within: unknown key."),
    ],
)
def test_what_is_wrong_with_a_join_is_told_in_its_place(folder: Path, old: str, new: str, told: str) -> None:
    text = FILES + JOIN
    assert old in text
    assert any(told in one for one in problems(folder, text.replace(old, new, 1))), problems(folder, text)


def test_windows_of_sensors_and_of_a_column(folder: Path) -> None:
    text = FILES + JOIN
    for window in ("window = { time = 20, per_stream = { 3 = 5 } }", 'window_column = "n"', "window = 20"):
        assert problems(folder, text.replace('window = "20 seconds"', window)) == []


def test_every_operator_needs_a_source(folder: Path) -> None:
    join = "\n[self_join]\nepsilon = 1.0\nprobability = 1.0\nwindow = 5\n"
    assert problems(folder, FILES + join) == []  # a column of numbers is a certain value
    for text, name in ((join, "self_join"), (PHENOMENA, "phenomena")):
        nothing = (FILES + text).replace(SOURCE, "")
        assert problems(folder, nothing) == [f"[{name}] has nothing to read: give [sources.NAME]."]


def test_files_that_are_not_there_yet_are_told_and_no_fault_of_the_job(folder: Path) -> None:
    (folder / "readings" / "rows.parquet").unlink()
    (folder / "places.parquet").unlink()
    assert problems(folder, FILES + PHENOMENA) == []
    job = jobs.load(folder / "job.toml")
    assert [problem.where for problem in job.missing()] == ["sources.readings.path", "phenomena.locations.path"]


def test_the_command_line_validates_them(folder: Path) -> None:
    assert problems(folder, FILES + PHENOMENA) == []
    done = CliRunner().invoke(app, ["validate", str(folder / "job.toml")])
    assert done.exit_code == 0, done.output
    assert "phenomena of readings into" in " ".join(done.output.split())
