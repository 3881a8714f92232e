"""Sinks and alerts that could not be written, found before a job runs, and secrets that no message shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from typer import Exit

from appulse import jobs
from appulse.cli.console import errors_reported
from appulse.errors import JobError
from tests.cli.test_broken_lines import write

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = 'schema = "id STRING, at DOUBLE, x DOUBLE, y DOUBLE, l ARRAY<DOUBLE>, s STRUCT<a: INT>"'
JDBC = 'format = "jdbc"\nurl = "{}"\ntable = "t"\n'


def job_with(folder: Path, sink: str, carry: str = "[]", more: str = "", **settings: str) -> Any:
    job = write(folder, "parquet", {}, f"{SCHEMA}\ncarry = {carry}", **settings)
    text = job.file.read_text(encoding="utf-8")
    text = text.replace('[sink]\nformat = "json"\npath = "out"\n', f"[sink]\n{sink}") + more
    job.file.write_text(text, encoding="utf-8")
    return job.file


@pytest.mark.parametrize(
    ("engine", "sink", "carry", "said"),
    [
        *[
            (engine, 'format = "csv"\npath = "out"\n', '["l"]', r"'csv', and the column 'l' of the answers is list<")
            for engine in ("local", "spark")
        ],
        (
            "spark",
            'format = "csv"\npath = "out"\n',
            '["s"]',
            "the column 's' .* for which CSV has no form. Write",
        ),
        ("spark", JDBC.format("jdbc:mysql://h/b"), '["l"]', r"sink.format: is 'jdbc', .* a database has no type"),
        ("spark", JDBC.format("jdbc:postgresql://h/b"), '["s"]', "the column 's' of the answers is struct<"),
        ("spark", JDBC.format("jdbc:postgresql://h/b"), '["l"]', None),
        ("spark", 'format = "csv"\npath = "out"\n', "[]", None),
        ("local", 'format = "parquet"\npath = "out"\n', '["l", "s"]', None),
        ("spark", 'format = "json"\npath = "out"\n', '["l", "s"]', None),
    ],
)
def test_lists_and_the_like_have_no_form_in_some_sinks(
    tmp_path: Path, engine: str, sink: str, carry: str, said: str | None
) -> None:
    file = job_with(tmp_path, sink, carry, engine=engine)
    if said is None:
        jobs.load(file)
        return
    with pytest.raises(JobError, match=said):
        jobs.load(file)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("htp://host/hook", r"alerts.0.url: A webhook's url begins with https:// \(or http://\) and names a host"),
        ("https://", "names a host"),
        ("https://host:port/", "url cannot be read: Port could not be cast"),
        ("https://me:hush@host/", "has a name or a password in it"),
        ("http://[::1", "url cannot be read: Invalid IPv6 URL"),
        ("http://localhost:80/hook", None),
    ],
)
def test_addresses_of_webhooks_are_checked(tmp_path: Path, url: str, said: str | None) -> None:
    more = f'[[alerts]]\nformat = "webhook"\nurl = "{url}"\n'
    file = job_with(tmp_path, 'format = "json"\npath = "out"\n', more=more)
    if said is None:
        jobs.load(file)
        return
    with pytest.raises(JobError, match=said) as failure:
        jobs.load(file)
    assert "hush" not in str(failure.value)


@pytest.mark.parametrize(
    ("sink", "said"),
    [
        ('format = "csv"\npath = "out"\noptions = { mode = "overwrite" }\n', "sink.options: has mode='overwrite'"),
        ('format = "delta"\npath = "out"\noptions = { Mode = "ignore" }\n', "has mode='ignore': the batches"),
        ('format = "json"\npath = "out"\noptions = { partitionBy = "x" }\n', "'partitionBy', which only 'delta'"),
        ('format = "iceberg"\ntable = "a.b"\noptions = { partitionBy = "x" }\n', "Make the table before"),
        ('format = "delta"\npath = "out"\noptions = { partitionBy = "x", mode = "append" }\n', None),
    ],
)
def test_batches_are_appended(tmp_path: Path, sink: str, said: str | None) -> None:
    file = job_with(tmp_path, sink, engine="spark")
    assert [said in str(one) for one in jobs.validate(file)] == ([] if said is None else [True])  # type: ignore[operator]


@pytest.mark.parametrize(
    "url",
    ["jdbc:postgresql://h/b?user=me&password=hush", "jdbc:mysql://me:hush@h/b", "jdbc:sqlserver://h;Password=hush"],
)
def test_an_address_with_a_password_is_refused_and_not_shown(tmp_path: Path, url: str) -> None:
    file = job_with(tmp_path, JDBC.format(url), engine="spark")
    (problem,) = jobs.validate(file)
    assert str(problem).startswith("sink.url: has a password, which no job file holds. Give it beside the url: options")
    assert "hush" not in str(problem)


STREAM = """[STREAM_FAILED] Query [id = a, runId = b] terminated with exception: [FOREACH_BATCH] An error occurred:
Traceback (most recent call last):
  File "sinks.py", line 1, in write
pyspark.errors.exceptions.captured.SparkException: Job aborted.
{}SQLSTATE: 39000
=== Streaming Query ===
Relation: java.lang.Exception: of the plan
"""


@pytest.mark.parametrize(
    ("trace", "said"),
    [
        (
            (
                "\tat a.B.c(B.scala:1)\nCaused by: org.apache.spark.SparkException: Task failed\n\tat a.B.c(B.scala)\n"
                "Caused by: org.postgresql.util.PSQLException: no table t at jdbc:postgresql://h/b?password=hush&x=1\n"
            ),
            "The cause: org.postgresql.util.PSQLException: no table t at jdbc:postgresql://h/b?password=...&x=1",
        ),
        (": java.lang.ClassNotFoundException: org.x.Driver\n", "The cause: java.lang.ClassNotFoundException: org.x"),
        ("ZeroDivisionError: division by zero\n", "The cause: ZeroDivisionError: division by zero"),
        ("", "The cause: pyspark.errors.exceptions.captured.SparkException: Job aborted."),
    ],
)
def test_a_failure_of_spark_is_reported_with_its_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], trace: str, said: str
) -> None:
    with pytest.raises(Exit), errors_reported(Console(width=500), tmp_path / "log"):
        raise RuntimeError(STREAM.format(trace))
    printed = capsys.readouterr().out
    assert said in printed
    assert "RuntimeError: [STREAM_FAILED] Query" in printed
    assert "hush" not in printed
