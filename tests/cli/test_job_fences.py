"""`[fence_events]` in job files: what is right is the call, what is wrong is reported in its place."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from typer.testing import CliRunner

import appulse as ap
from appulse import jobs
from appulse.cli import app
from appulse.jobs.fences import read_fences
from tests.cli.test_job_association import problems

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

JOB = """\
[sources.vans]
format = "parquet"
path = "vans.parquet"
key = "van"
time = "at"
value = { model = "Gaussian", columns = ["x", "y"], sigma = 5.0 }

[fence_events]
regions = { depot = "POLYGON ((0 0, 100 0, 100 100, 0 100, 0 0))" }
enter = 0.9
leave = 0.1
dwell = "2 minutes"

[sink]
format = "parquet"
path = "events"
"""
DEPOT = "POLYGON ((0 0, 100 0, 100 100, 0 100, 0 0))"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [("a", 60.0 * i, 50.0 + 60.0 * abs(i - 5), 50.0) for i in range(12)]
    pd.DataFrame(rows, columns=["van", "at", "x", "y"]).to_parquet(tmp_path / "vans.parquet")
    return tmp_path


def test_a_job_is_the_call(folder: Path, spark: SparkSession) -> None:
    assert problems(folder, JOB) == []
    found = jobs.build(jobs.load(folder / "job.toml"), spark, streaming=False).toArrow()
    frame = pd.read_parquet(folder / "vans.parquet")
    stream = ap.Stream(frame, key="van", time="at", value=ap.Gaussian("x", "y", sigma=5.0))
    fences = pa.table({"query": ["depot"], "region": [DEPOT]})
    expected = ap.fence_events(stream, fences, enter=0.9, leave=0.1, dwell="2 minutes")
    assert found.to_pylist() == expected.to_pylist()
    assert [row["event"] for row in found.to_pylist()] == ["enter", "exit"]


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("enter = 0.9", "enter = 1.9", "fence_events.enter"),
        ("leave = 0.1", "leave = 0.95", "would leave as it enters"),
        ('"2 minutes"', '"2 mintues"', "fence_events.dwell"),
        ('regions = { depot = "POLYGON', 'path = "zones.geojson"\nregions = { depot = "POLYGON', "Give one of"),
        ("0 100, 0 0))", "0 100))", "fence 'depot'"),
        (JOB[JOB.index("regions") : JOB.index("enter")], 'path = "zones.shp"\n', "ends in '.shp'"),
        ("[fence_events]", "[imputer]\nkind = 'ZeroFill'\n[fence_events]", "[fence_events] is none"),
    ],
)
def test_what_is_wrong_is_reported_in_its_place(folder: Path, old: str, new: str, wanted: str) -> None:
    assert old in JOB
    found = problems(folder, JOB.replace(old, new))
    assert any(wanted in problem for problem in found), found


def test_fences_come_from_files(folder: Path) -> None:
    shape, disc = shapely.from_wkt(DEPOT), shapely.Point(230, 50)
    features = [
        {"type": "Feature", "properties": {"name": "depot"}, "geometry": json.loads(shapely.to_geojson(shape))},
        {
            "type": "Feature",
            "properties": {"name": "gate", "radius": 30},
            "geometry": json.loads(shapely.to_geojson(disc)),
        },
    ]
    (folder / "zones.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    names, radii = ["depot", "gate"], [None, 30.0]
    pq.write_table(
        pa.table({"name": names, "geometry": [shape.wkb, disc.wkb], "radius": radii}), folder / "zones.parquet"
    )
    pd.DataFrame({"name": names, "region": [shape.wkt, disc.wkt], "radius": radii}).to_csv(folder / "zones.csv")
    frame = pd.read_parquet(folder / "vans.parquet")
    stream = ap.Stream(frame, key="van", time="at", value=ap.Gaussian("x", "y", sigma=5.0))
    found = [
        ap.fence_events(stream, read_fences(folder / f"zones.{kind}", "name")).to_pylist()
        for kind in ("geojson", "parquet", "csv")
    ]
    assert found[0] == found[1] == found[2]
    assert {row["query"] for row in found[0]} == {"depot", "gate"}
    with pytest.raises(ap.BadArgument, match="no column 'nmae'"):
        read_fences(folder / "zones.parquet", "nmae")
    with pytest.raises(ap.BadArgument, match=r"has the property 'nmae'\. Did you mean 'name'"):
        read_fences(folder / "zones.geojson", "nmae")
    unnamed = [{**features[0], "properties": {"name": None}, **own} for own in ({}, {"id": "a7"}, {"id": None})]
    (folder / "unnamed.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": unnamed}))
    assert read_fences(folder / "unnamed.geojson", "name")["query"].to_pylist() == ["1", "a7", "3"]
    (folder / "wrong.geojson").write_text('{"type": "Point"}')
    with pytest.raises(ap.AppulseError, match="FeatureCollection"):
        read_fences(folder / "wrong.geojson")


def test_the_command_counts_fences_and_says_why_there_are_rejects(folder: Path) -> None:
    rows = pd.DataFrame([(None, 0.0), ("a", None), ("b", 1.0), (None, 2.0)], columns=["van", "at"])
    rows.assign(x=50.0, y=50.0).to_parquet(folder / "vans.parquet")
    (folder / "job.toml").write_text('engine = "local"\n' + JOB, encoding="utf-8")
    why = "3 rejects (2 null key, 1 null time)"
    output = CliRunner().invoke(app, ["explain", str(folder / "job.toml")]).stdout
    assert "\nfences: 1 given\n" in output
    assert why in output
    output = CliRunner().invoke(app, ["run", "--drain", str(folder / "job.toml")]).stdout
    assert f"4 rows, 1 answers, {why}. Answers: " in output
    assert "add a table [rejects] to the job" in output


def test_a_fence_of_a_file_that_is_none_is_a_reject(folder: Path) -> None:
    """One bad zone of many stops no job; a job of none that is good is refused."""
    good = {
        "type": "Feature",
        "properties": {"name": "depot"},
        "geometry": shapely.geometry.mapping(shapely.from_wkt(DEPOT)),
    }
    bad = {"type": "Feature", "properties": {"name": "old"}, "geometry": None}
    tiny = shapely.geometry.mapping(shapely.box(0, 0, 1e-9, 1e-9))
    never = {"type": "Feature", "properties": {"name": "tiny"}, "geometry": tiny}
    text = JOB.replace(f'regions = {{ depot = "{DEPOT}" }}', 'path = "zones.geojson"\nquery = "name"')
    for zones, wanted in (([good, bad, never], 0), ([bad], 1), ([never], 0)):
        (folder / "zones.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": zones}))
        assert len(problems(folder, text)) == wanted
    ring = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1]]]}
    nothing = [{"type": "Feature", "properties": {"name": "open"}, "geometry": ring}, {"properties": {"name": "none"}}]
    (folder / "zones.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": [good, *nothing]}))
    assert not problems(folder, text)
    stream = ap.Stream(pd.read_parquet(folder / "vans.parquet"), key="van", time="at", value=ap.Exact("x", "y"))
    rejected = ap.rejects(ap.fence_events(stream, read_fences(folder / "zones.geojson", "name"))).to_pylist()
    assert [row["reason"] for row in rejected] == ["bad region"] * 2
    assert "closed linestring" in rejected[0]["detail"]
    (folder / "zones.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": [good, bad]}))
    (problem,) = problems(folder, text.replace("enter = 0.9", 'enter = 0.9\non_reject = "fail"'))
    assert problem.startswith("fence_events.path: fence 'old'")


def test_a_job_waits_for_its_fences(folder: Path) -> None:
    regions = JOB[JOB.index("regions") : JOB.index("enter")]
    assert problems(folder, JOB.replace(regions, 'path = "zones.geojson"\n')) == []
    (problem,) = jobs.load(folder / "job.toml").missing()
    assert problem.where == "fence_events.path"
