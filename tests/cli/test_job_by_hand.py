"""A job in process: its call by hand answers as the call over whole frames does."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import appulse as ap
from appulse.connect.files import Form
from appulse.connect.files import read_files as files_of
from appulse.errors import JobError
from appulse.jobs import load
from appulse.jobs.by_hand import by_hand, read_files
from appulse.jobs.resident_io import sources_of

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """\
[sources.{name}]
format = "parquet"
path = "{name}.parquet"
key = "id"
time = "time"
value = {{ model = "Gaussian", columns = ["x", "y"], sigma = 0.5 }}
{more}
"""
SINK = '[sink]\nformat = "parquet"\npath = "out"\n'
MOTION = 'motion = { kind = "Straight", max_gap = "10 seconds" }'


def rows(seed: int, n: int = 60) -> pa.Table:
    chance = np.random.default_rng(seed)
    x, y = chance.uniform(0, 10, (2, n))
    return pa.table({"id": np.arange(n) % 7, "time": np.arange(n) / 2.0, "x": x, "y": y})


def job(folder: Path, operator: str, *names: str, more: str = "") -> Any:
    for i, name in enumerate(names):
        pq.write_table(rows(i), folder / f"{name}.parquet")
    text = "".join(SOURCE.format(name=name, more=more) for name in names)
    (folder / "job.toml").write_text(text + operator + SINK)
    return load(folder / "job.toml")


JOBS = {
    "similarity_join": ('[similarity_join]\nepsilon = 1.0\nprobability = 0.5\nwindow = "5 seconds"\n', 2, ""),
    "self_join": ('[self_join]\nepsilon = 1.0\nprobability = 0.5\nwindow = { count = 20 }\ndifferent = "id"\n', 1, ""),
    "window_aggregate": ('[window_aggregate]\nwindow = "5 seconds"\naggregates = { x = "mean" }\n', 1, ""),
    "match_queries": ('[match_queries]\nprobability = 0.5\nconditions = { east = "x > 5" }\n', 1, ""),
    "fence_events": ("[fence_events.regions]\nbox = 'POLYGON((2 2, 8 2, 8 8, 2 8, 2 2))'\n", 1, ""),
    "encounters": ("[encounters]\nepsilon = 1.0\nprobability = 0.5\n", 1, MOTION),
    "nearest": ('[nearest]\nepsilon = 3.0\nwindow = "5 seconds"\n', 2, ""),
    "outliers": ('[outliers]\nepsilon = 1.0\nfewer_than = 2\nprobability = 0.5\nwindow = "5 seconds"\n', 1, ""),
    "assign": ('[assign]\nepsilon = 3.0\nprobability = 0.1\nwindow = { tumbling = "5 seconds" }\n', 2, ""),
}


@pytest.mark.parametrize("operator", JOBS)
def test_by_hand_a_job_answers_as_its_call(tmp_path: Path, operator: str) -> None:
    text, count, more = JOBS[operator]
    checked = job(tmp_path, text, *["near", "far"][:count], more=more)
    call = by_hand(checked)
    frames = {name: read_files(checked, source, name) for name, source in checked.table.data.items()}
    answers = pa.concat_tables(
        [call.push(**{name.removeprefix("sources."): table for name, table in frames.items()}), call.drain()]
    )
    streams: Any = [source.stream(frames[f"sources.{name}"], name) for name, source in checked.table.sources.items()]
    settings: Any = getattr(checked.table, operator)
    wanted: Any
    if operator in ("similarity_join", "self_join"):
        more_of: dict[str, Any] = {"different": "id"} if operator == "self_join" else {}
        wanted = getattr(ap, operator)(
            *streams, epsilon=1.0, probability=0.5, window=settings.window.build(), **more_of
        )
    elif operator == "window_aggregate":
        wanted = ap.window_aggregate(streams[0], settings.aggregates, **settings.settings())
    elif operator == "match_queries":
        wanted = ap.match_queries(*streams, queries=settings.queries(checked.place), probability=0.5)
    elif operator == "fence_events":
        wanted = ap.fence_events(streams[0], settings.fences(checked.place), **settings.settings())
    else:
        wanted = getattr(ap, operator)(*streams, **settings.settings())
    assert len(wanted) > 0
    assert sorted(map(str, answers.to_pylist())) == sorted(map(str, wanted.to_pylist()))
    assert call.state().keys() == {"state_rows", "state_bytes"}


def test_files_that_are_not_there_are_an_error(tmp_path: Path) -> None:
    checked = job(tmp_path, JOBS["self_join"][0], "near")
    (tmp_path / "near.parquet").unlink()
    with pytest.raises(JobError, match=r"sources.near.path: there are no files at .*near.parquet on this machine"):
        read_files(checked, checked.table.sources["near"], "sources.near")


CSV = """\
[sources.near]
format = "csv"
path = "near.csv"
{more}
key = "id"
time = "time"
value = {{ model = "Exact", columns = ["x", "y"] }}
[self_join]
epsilon = 1.0
probability = 0.5
window = "5 seconds"
"""
NAMES, SCHEMA = "options = { header = true }", 'schema = "id STRING, time DOUBLE, x DOUBLE, y DOUBLE"'


def csv_job(folder: Path, more: str, *, header: bool) -> Any:
    (folder / "near.csv").write_text("id,time,x,y\n" * header + "NA,0,1,1\n,1,1,1\nb,2,,1\n")
    (folder / "job.toml").write_text(CSV.format(more=more) + SINK)
    return load(folder / "job.toml")


@pytest.mark.parametrize(("more", "header"), [(NAMES, True), (f"{NAMES}\n{SCHEMA}", True), (SCHEMA, False)])
def test_csv_is_read_as_spark_reads_it(tmp_path: Path, spark: Any, more: str, *, header: bool) -> None:
    """Names are those of the schema, or of a first line that has them; an empty cell is null."""
    checked = csv_job(tmp_path, more, header=header)
    options = {"header": header, "inferSchema": True}
    schema = "id STRING, time DOUBLE, x DOUBLE, y DOUBLE" if more.endswith(SCHEMA) else None
    wanted = spark.read.csv(str(tmp_path / "near.csv"), schema, **options).toArrow().to_pylist()
    assert [row["id"] for row in wanted] == ["NA", None, "b"]
    assert read_files(checked, checked.table.sources["near"], "sources.near").to_pylist() == wanted
    (taken,) = sources_of(checked)[0].take(10)
    assert taken.rows.to_pylist() == wanted


def test_csv_has_columns_of_any_type_of_spark(tmp_path: Path) -> None:
    wide = 'schema = "id STRING NOT NULL, time DOUBLE, x DECIMAL(10, 2), y DOUBLE"'
    (taken,) = sources_of(csv_job(tmp_path, wide, header=False))[0].take(10)
    assert taken.rows["x"].to_pylist() == [Decimal(1), Decimal(1), None]
    with pytest.raises(JobError, match=r"sources.near.schema: columns cannot be read .* 'decimall'"):
        csv_job(tmp_path, wide.replace("DECIMAL", "DECIMALL"), header=False)
    with pytest.raises(JobError, match=r"job.toml: sources.near.schema: columns cannot be read .* 'variant'"):
        sources_of(csv_job(tmp_path, wide.replace("DECIMAL(10, 2)", "VARIANT"), header=False))  # Spark reads it


def test_csv_without_names_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"near.csv have no names .* give options = \{ header = true \}"):
        sources_of(csv_job(tmp_path, "", header=True))


@pytest.mark.parametrize("zone", ["", "Z"])
def test_times_of_texts_without_a_zone_are_utc(tmp_path: Path, zone: str) -> None:
    """As Spark reads them."""
    file = tmp_path / "rows.csv"
    file.write_text(f"id,t\na,2026-01-01 00:00:05{zone}\n")
    schema = pa.schema([("id", pa.string()), ("t", pa.timestamp("us", "UTC"))])
    rows = files_of([str(file)], Form("csv", header=True), schema, "a job").table
    assert rows is not None
    assert rows["t"].to_pylist() == [datetime(2026, 1, 1, 0, 0, 5, tzinfo=UTC)]


def test_what_is_held_is_counted() -> None:
    join = ap.SimilarityJoin(
        ap.Stream(None, key="id", time="time", value=ap.Exact("x")), epsilon=1.0, probability=1.0, window=5
    )
    assert join.state() == {"state_rows": 0, "state_bytes": 0}
    join.push(rows(0))
    held = join.state()
    assert held["state_rows"] == 11
    assert held["state_bytes"] > 0
