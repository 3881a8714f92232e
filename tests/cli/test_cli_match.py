"""``appulse match``: queries from files over rows of files, and what it says about those it cannot use."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from typer.testing import CliRunner

import appulse as ap
from appulse.cli import app
from appulse.jobs.queries import conditions

if TYPE_CHECKING:
    from pathlib import Path

ROWS = pa.table(
    {
        "van": ["A", "B", "C", None],
        "time": pa.array([0, 60, 120, 180], pa.timestamp("s")),
        "x": [10.0, 950.0, None, 900.0],
        "load": [70, 20, 55, 10],
        "sure": [1.0, 0.5, 1.0, 1.0],
    }
)
QUERIES = pa.table({"query": [7, 8, 9], "condition": ["x > 900", "load > 50", "x > AND"]})


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    parquet.write_table(ROWS, tmp_path / "rows.parquet")
    csv.write_csv(ROWS, tmp_path / "rows.csv")
    parquet.write_table(QUERIES, tmp_path / "queries.parquet")
    csv.write_csv(QUERIES, tmp_path / "queries.csv")
    (tmp_path / "queries.sql").write_text("-- east\nx > 900\nload > 50\nx > AND\n")
    return tmp_path


def call(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["match", *map(str, arguments), "--key", "van"])


@pytest.mark.parametrize("rows", ["rows.csv", "rows.parquet"])
@pytest.mark.parametrize("queries", ["queries.csv", "queries.parquet"])
def test_answers_are_those_of_the_library(files: Path, queries: str, rows: str) -> None:
    told = call(queries, rows, "--out", "answers.parquet", "--rejects", "rejects.parquet")
    assert told.exit_code == 0, told.output
    expected = ap.match_queries(ap.Stream(ROWS, key="van", time="time", value=ap.Exact("load")), QUERIES)
    assert parquet.read_table(files / "answers.parquet").to_pylist() == expected.to_pylist()
    assert [(row["query"], row["key"]) for row in expected.to_pylist()] == [(8, "A"), (7, "B"), (8, "C")]
    refused = parquet.read_table(files / "rejects.parquet").to_pylist()
    assert [row["reason"] for row in refused] == ["bad condition", "null key"]
    assert "refused at position 5" in refused[0]["detail"]
    assert "query 9: bad condition: The condition 'x > AND' is refused at position 5" in told.stderr
    assert "row None: null key" in told.stderr
    assert "4 rows, 3 queries of which 2 matched, 3 answers, 2 rejects" in told.stderr
    assert told.stdout == ""


def test_answers_go_to_stdout_unless_told_otherwise(files: Path) -> None:
    told = call(files / "queries.sql", "rows.csv")
    assert told.exit_code == 0, told.output
    lines = told.stdout.splitlines()
    assert lines[0] == '"query","key","time","probability"'
    assert lines[1:] == [
        '"2","A",1970-01-01 00:00:00,1',
        '"east","B",1970-01-01 00:01:00,1',
        '"2","C",1970-01-01 00:02:00,1',
    ]


def test_more_answers_than_asked_for_are_an_error(files: Path) -> None:
    enough = call("queries.csv", "rows.csv", "--max-output", 3)
    assert enough.exit_code == 0, enough.output
    told = call("queries.csv", "rows.csv", "--max-output", 2, "--out", "answers.csv")
    assert told.exit_code == 1
    assert "The output has at least 3 rows, and max_output is 2" in told.stderr
    assert not (files / "answers.csv").exists()


def test_uncertain_rows(files: Path) -> None:
    told = call("queries.sql", "rows.parquet", "--value", "x", "--sigma", 40, "--existence", "sure")
    assert (told.exit_code, "probability= is missing" in told.stderr) == (2, True)
    options = ("--existence", "sure", "--probability", 0.3)
    told = call("queries.sql", "rows.parquet", "--value", "x", "--sigma", "40", *options, "--out", "some.csv")
    assert told.exit_code == 0, told.output
    found = csv.read_csv(files / "some.csv").to_pylist()
    assert [(row["query"], row["key"]) for row in found] == [("2", "A"), ("east", "B")]
    assert 0.4 < found[1]["probability"] < 0.5
    assert "row C: non-finite value" in told.stderr
    same = call("queries.sql", "rows.parquet", "--value", "x", "--sigma", "load", *options)
    assert same.exit_code == 0, same.output


def test_texts_may_look_like_numbers_and_queries_go(files: Path) -> None:
    (files / "queries.csv").write_text(
        "query,condition,change,select\n1,TRUE,add,\n2,load > 60,add,load\n1,TRUE,remove,\n3,,add,\n"
    )
    told = call("queries.csv", "rows.csv")
    assert told.exit_code == 0, told.output
    assert told.stdout.splitlines()[1:] == ['2,"A",1970-01-01 00:00:00,1,"{""load"": 70}"']
    assert "query 3: bad condition: the condition is null" in told.stderr


def test_many_rejects_are_not_all_told(files: Path) -> None:
    (files / "many.sql").write_text("x >\n" * 15)
    told = call("many.sql", "rows.csv")
    assert told.stderr.count("refused at position") == 10
    assert "... and 6 more. --rejects FILE writes all of them." in told.stderr
    told = call("many.sql", "rows.csv", "--rejects", "rejects.csv")
    assert "... and 6 more.\n" in told.stderr
    assert len(csv.read_csv(files / "rejects.csv")) == 16


def test_regions_of_geoparquet_have_its_edges_and_any_name(files: Path) -> None:
    """Great circles from 50 and 40 degrees north bend to the pole."""
    shape = "POLYGON ((0 50, 60 50, 60 40, 0 40, 0 50))"
    (files / "places.csv").write_text("van,time,lat,lon\nA,1,52,30\nB,2,41,30\n")
    asked = ("places.csv", "--query", "zone", "--position", "lat,lon", "--key", "van", "--json")
    for edges, inside in (("spherical", "A"), ("planar", "B")):
        geo = {"geo": json.dumps({"columns": {"geometry": {"edges": edges}}})}
        table = pa.table({"zone": ["north"], "geometry": [shape]}).replace_schema_metadata(geo)
        parquet.write_table(table, files / "zones.parquet")
        (line,) = call("zones.parquet", *asked).stdout.splitlines()
        assert json.loads(line)["key"] == inside
    assert "no column 'zon'. Did you mean 'zone'?" in call("zones.parquet", *asked, "--query", "zon").stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("queries.txt", "rows.csv"), "ends in '.txt'. Known: .csv, .parquet, .geojson, .json, .sql."),
        (("queries.csv", "queries.sql"), "ends in '.sql'. Known: .csv, .parquet."),
        (("queries.csv", "rows"), "ends in 'nothing'"),
        (("nowhere.sql", "rows.csv"), "nowhere.sql cannot be read"),
        (("queries.csv", "nowhere.csv"), "nowhere.csv cannot be read"),
        (("queries.csv", "broken.parquet"), "broken.parquet cannot be read"),
        (("queries.csv", "rows.csv", "--out", "answers.json"), "ends in '.json'"),
        (("queries.csv", "rows.csv", "--out", "nowhere/answers.csv"), "answers.csv cannot be written"),
        (("queries.csv", "rows.csv", "--sigma", "3"), "--sigma needs --value"),
        (("queries.csv", "rows.csv", "--time", "when"), "has no column 'when'"),
        (("twice.sql", "rows.csv"), "names two conditions 'a'"),
        (("rows.csv", "rows.csv"), "no column 'query'"),
    ],
)
def test_misuse_is_told(files: Path, arguments: tuple[str, ...], said: str) -> None:
    (files / "broken.parquet").write_text("none")
    (files / "twice.sql").write_text("-- a\nx > 1\n-- a\nx > 2\n")
    told = call(*arguments)
    assert told.exit_code == 2
    assert said in told.stderr
    assert "Traceback" not in told.output


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("-- only words", []),
        ("x > 1\n\n  y > 2  \n", [("1", "x > 1"), ("2", "y > 2")]),
        ("-- a page\n\n-- b\nx > 1\nx > 2 -- c\n", [("b", "x > 1"), ("2", "x > 2 -- c")]),
        ("-- b\n--c\nx = '-- ;'", [("c", "x = '-- ;'")]),
        (
            "x > 1\n AND y > 2; -- said of 1\n-- last\nz = ';'\n-- in it\nOR z = 'it''s;'; ;\n-- end\n",
            [("1", "x > 1\n AND y > 2"), ("last", "z = ';'\n-- in it\nOR z = 'it''s;'")],
        ),
        ("x > 1; x > 2", [("1", "x > 1"), ("2", "x > 2")]),
        ('"a;b" > 1\n`c;d` > /* ; */ 2 -- ;', [("1", '"a;b" > 1'), ("2", "`c;d` > /* ; */ 2 -- ;")]),
    ],
)
def test_conditions_of_a_sql_file(text: str, expected: list[tuple[str, str]]) -> None:
    assert list(conditions(text)) == expected


def test_rows_need_no_column_of_numbers(files: Path) -> None:
    """Texts alone, a gap in each number, and no row at all."""
    for text, found in (("van,time,x\nA,0,NaN\nB,1,2\n", ["B"]), ("van,time,x\n", [])):
        (files / "words.csv").write_text(text)
        (files / "named.csv").write_text("query,condition\nq,van = 'B'\n")
        done = call("named.csv", "words.csv", "--key", "van")
        assert done.exit_code == 0
        assert [line.split(",")[1].strip('"') for line in done.stdout.splitlines()[1:]] == found
