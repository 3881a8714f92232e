"""`[nearest]`, `[assign]` and `[outliers]` in job files: what is right is the call, else each problem has its place."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from typer.testing import CliRunner

import appulse as ap
from appulse import jobs
from appulse.cli import app
from appulse.jobs.sources import SourceTable

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

JOB = """\
[defaults]
format = "parquet"
key = "k"
time = "t"
value = { model = "Gaussian", columns = ["x"], sigma = 1.0 }

[sources.tracks]
path = "tracks.parquet"

[sources.echoes]
path = "echoes.parquet"

[sink]
format = "parquet"
path = "met"

"""
NEAREST = JOB + '[nearest]\nk = 2\nepsilon = 5.0\nwindow = "10 seconds"\nhow = "left"\n'
ASSIGN = JOB + '[assign]\nepsilon = 5.0\nprobability = 0.1\nwindow = "tick"\ndensity = 0.01\nhow = "full"\n'
OUTLIERS = JOB + '[outliers]\nepsilon = 5.0\nfewer_than = 2\nprobability = 0.5\nwindow = "10 seconds"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, x in (("tracks", [0.0, 2.0, 50.0]), ("echoes", [1.2, -1.5, 90.0])):
        pd.DataFrame({"k": [f"{name[0]}{i}" for i in range(3)], "t": [0.0] * 3, "x": x}).to_parquet(
            tmp_path / f"{name}.parquet"
        )
    return tmp_path


def problems(folder: Path, text: str) -> list[str]:
    (folder / "job.toml").write_text(text, encoding="utf-8")
    return [str(problem) for problem in jobs.validate(folder / "job.toml")]


def test_jobs_are_the_calls(folder: Path, spark: SparkSession) -> None:
    value = ap.Gaussian("x", sigma=1.0)
    tracks, echoes = (
        ap.Stream(pd.read_parquet(folder / f"{name}.parquet"), key="k", time="t", value=value, name=name)
        for name in ("tracks", "echoes")
    )
    near = ap.nearest(tracks, echoes, 2, epsilon=5.0, window="10 seconds", how="left")
    one = ap.assign(tracks, echoes, epsilon=5.0, probability=0.1, window="tick", density=0.01, how="full")
    few = ap.outliers(tracks, echoes, epsilon=5.0, fewer_than=2, probability=0.5, window="10 seconds")
    for text, expected in ((NEAREST, near), (ASSIGN, one), (OUTLIERS, few)):
        assert problems(folder, text) == []
        found = jobs.build(jobs.load(folder / "job.toml"), spark, streaming=False).toArrow()
        assert sorted(map(str, found.to_pylist())) == sorted(map(str, expected.to_pylist()))
        assert len(found) >= (1 if text == OUTLIERS else 4)


@pytest.mark.parametrize(
    ("text", "old", "new", "wanted"),
    [
        (NEAREST, "k = 2", "k = 0", "nearest.k"),
        (NEAREST, "[nearest]", "by = 'luck'\n[nearest]", "by"),
        (NEAREST, "epsilon = 5.0\n", "", "nearest.epsilon"),
        (NEAREST, '[sources.echoes]\npath = "echoes.parquet"\n', "", "is of two sources"),
        (NEAREST, "[nearest]", "[imputer]\nkind = 'ZeroFill'\n[nearest]", "[imputer] fills the sources of a join"),
        (NEAREST, 'window = "10 seconds"', "window = { uncertain_count = 5, confidence = 0.9 }", "probability="),
        (ASSIGN, '"tick"', '"10 seconds"', "blocks of time"),
        (ASSIGN, '"tick"', "{ tumbling = 5 }", "blocks of time"),
        (ASSIGN, "probability = 0.1", "probability = 0", "assign.probability"),
        (
            ASSIGN,
            'model = "Gaussian", columns = ["x"], sigma = 1.0',
            'model = "Exact", columns = ["x"]',
            "normal errors",
        ),
        (OUTLIERS, "fewer_than = 2", "fewer_than = 0", "outliers.fewer_than"),
        (OUTLIERS, "probability = 0.5", "probability = 0", "outliers.probability"),
        (OUTLIERS, "[sink]", '[sources.more]\npath = "tracks.parquet"\n[sink]', "one and a reference"),
        (ASSIGN, "[defaults]", "sample = 10\n[defaults]", "sample plans the tiles"),
    ],
)
def test_what_is_wrong_is_reported_in_its_place(folder: Path, text: str, old: str, new: str, wanted: str) -> None:
    assert old in text
    found = problems(folder, text.replace(old, new))
    assert any(wanted in problem for problem in found), found


@pytest.mark.parametrize("text", [NEAREST, ASSIGN, OUTLIERS])
def test_dimensions_in_another_order_are_no_problem_and_a_warning(folder: Path, text: str) -> None:
    said = "'x' is dimension 1 of stream 'tracks' and dimension 2 of 'echoes'"
    for name in ("tracks", "echoes"):
        rows = pd.read_parquet(folder / f"{name}.parquet")
        rows.assign(y=rows.x).to_parquet(folder / f"{name}.parquet")
    two = text.replace('"x"', '"x", "y"')
    other = '\nvalue = { model = "Gaussian", columns = ["y", "x"], sigma = 1.0 }\n'
    for swapped in (False, True):
        job = two.replace('\npath = "echoes.parquet"\n', '\npath = "echoes.parquet"' + other) if swapped else two
        assert problems(folder, job) == []
        plain, as_json = (
            CliRunner().invoke(app, ["validate", str(folder / "job.toml"), *more]) for more in ([], ["--json"])
        )
        assert (plain.exit_code, as_json.exit_code) == (0, 0)
        assert (f"warning: {said}" in plain.output) is swapped
        warnings = json.loads(as_json.stdout)["warnings"]
        assert [one.startswith(said) for one in warnings] == ([True] if swapped else [])


def test_rows_of_a_source_exist_in_bursts() -> None:
    given = {"format": "parquet", "path": "rows.parquet", "key": "k", "time": "t", "value": "x"}
    kinds = {"p": "p", "q": ap.Bursts("q", correlation=0.8), "r": "r"}
    for existence in ("p", {"column": "q", "correlation": 0.8}, {"column": "r"}):
        stream = SourceTable.model_validate(given | {"existence": existence}).stream(None, None)
        assert stream.existence == kinds[stream.existence_column or ""]
    wrong: list[object] = [5, {"column": "q", "correlation": 2.0}, {"correlation": 0.5}, {"column": "q", "runs": 1}]
    for bad in wrong:
        with pytest.raises(ValueError, match="existence"):
            SourceTable.model_validate(given | {"existence": bad})
