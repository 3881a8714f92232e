"""``appulse explain``, lists of demos, and what else the command line says as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from appulse.cli import CODES, EXAMPLES
from tests.cli.test_cli import call
from tests.cli.test_jobs import job, wrong

__all__ = ["job"]

MESSAGES = """
[defaults]
schema = "id STRING, at DOUBLE, x DOUBLE, y DOUBLE"
key = "id"
time = "at"
value = { model = "Gaussian", columns = ["x", "y"], sigma = 0.2 }
[sources.vans]
format = "kafka"
servers = "broker:9092"
topics = "vans"
message = "json"
[sources.stops]
format = "mqtt"
host = "broker"
topics = "stops"
spool = "spool"
[similarity_join]
epsilon = 0.5
probability = 0.5
window = "10 seconds"
[sink]
format = "parquet"
path = "out"
"""
ROOT = Path(__file__).resolve().parents[2]


def test_explain_says_how_a_job_is_carried_out(job: Path) -> None:
    result = call("explain", job)
    assert result.exit_code == 0, result.output
    assert "similarity_join into" in result.output
    assert "window: rows at most" in result.output
    found = json.loads(call("explain", job, "--json", "--rows", 5).stdout)
    assert (found["call"], found["rows"]) == ("similarity_join", {"near": 5, "far": 5})
    assert list(found["streams"]) == ["near", "far"]


def test_explain_of_what_cannot_run_is_told(job: Path) -> None:
    wrong(job, 'path = "near"', 'path = "nowhere"')
    result = call("explain", job)
    assert (result.exit_code, "there are no files" in result.output) == (2, True)


def test_explain_of_messages_goes_by_their_schema(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(MESSAGES)
    result = call("explain", tmp_path / "job.toml")
    assert result.exit_code == 0, result.output
    assert "rows looked at: 0 of vans, 0 of stops; 0 rejects" in result.output
    wrong(tmp_path / "job.toml", 'message = "json"', 'message = "avro"')
    result = call("explain", tmp_path / "job.toml")
    assert (result.exit_code, "are not known before it runs" in result.output) == (2, True)


def test_validate_and_demo_as_json(job: Path) -> None:
    assert json.loads(call("validate", job, "--json").stdout) == {
        "job": str(job),
        "problems": [],
        "missing": [],
        "warnings": [],
    }
    wrong(job, "epsilon =", "epsilom =")
    result = call("validate", job, "--json")
    assert (result.exit_code, "epsilom" in str(json.loads(result.stdout)["problems"])) == (2, True)
    assert [one["demo"] for one in json.loads(call("demo", "--json").stdout)] == ["weather", "aircraft"]
    assert "appulse demo aircraft" in call("demo").output


def test_match_and_discover_as_json(tmp_path: Path) -> None:
    (tmp_path / "rules.csv").write_text("query,condition\n1,x > 5\n")
    (tmp_path / "rows.csv").write_text("key,time,x,y\n" + "".join(f"{i},{i},{i},{2 * i}\n" for i in range(60)))
    result = call("match", tmp_path / "rules.csv", tmp_path / "rows.csv", "--json")
    assert {"query": 1, "key": 6}.items() <= json.loads(result.stdout.splitlines()[0]).items()
    rules = json.loads(call("discover", tmp_path / "rows.csv", "--columns", "x,y", "--json").stdout)
    assert {rule["dependent"] for rule in rules} == {"x", "y"}


def test_the_page_of_the_command_line_has_every_command_and_code() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    assert not [one.__name__ for one in EXAMPLES if f"`appulse {one.__name__}" not in page]
    assert not [code for code in CODES if f"| {code} |" not in page]


@pytest.mark.parametrize("command", [one.__name__ for one in EXAMPLES])
def test_help_has_examples_and_no_colours_in_a_pipe(command: str) -> None:
    shown = call(command, "--help").output
    assert "Examples:" in shown
    assert "\x1b[" not in shown
