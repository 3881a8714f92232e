"""Job files that name brokers, databases and Delta tables: what they mean, and what is wrong with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from appulse import jobs
from appulse.cli import app
from appulse.errors import JobError

if TYPE_CHECKING:
    from pathlib import Path

JOB = """
[sources.near]
format = "kafka"
servers = "host:9092"
topics = "near"
schema = "id STRING, at DOUBLE, x DOUBLE"
max_messages_per_trigger = 500
options = { "kafka.sasl.jaas.config" = { env = "APPULSE_TEST_JAAS" } }
key = "id"
time = "at"
value = "x"

[self_join]
epsilon = 1.0
probability = 0.5
window = "1 minute"

[sink]
format = "jdbc"
url = "jdbc:postgresql://host/base"
table = "pairs"
options = { user = "me", password = { env = "APPULSE_TEST_PASSWORD" } }

[rejects]
format = "kafka"
servers = "host:9092"
topic = "bad"
"""

COLUMNS = 'schema = "id STRING, at DOUBLE, x DOUBLE"\n'
TOPIC = f"""
[sources.near]
format = "kafka"
servers = "host:9092"
topics = "near"
{COLUMNS}"""
MQTT = f"""
[sources.near]
format = "mqtt"
host = "host"
topics = "near"
spool = "spool"
{COLUMNS}"""
MEANING = """
key = "id"
time = "at"
value = "x"

[self_join]
epsilon = 1.0
probability = 0.5
window = "1 minute"
"""
SINK = """
[sink]
format = "kafka"
servers = "host:9092"
topic = "pairs"
key = "left_key"

[rejects]
format = "kafka"
servers = "host:9092"
topic = "bad"
key = "detail"

[[alerts]]
format = "kafka"
servers = "host:9092"
topic = "alerts"
key = "right_key"
"""
FILES = """
[sink]
format = "parquet"
path = "pairs"
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    file = tmp_path / "job.toml"
    file.write_text(JOB)
    return file


@pytest.mark.parametrize("read", ['servers = "host:9092"', 'servers = "OTHER:9092, HOST:9092"'])
def test_a_job_that_would_read_what_it_writes_is_refused(job: Path, read: str) -> None:
    alert = '\n[[alerts]]\nformat = "kafka"\nservers = "host:9092"\ntopic = "{}"\n'
    text = JOB.replace('servers = "host:9092"\ntopics', f"{read}\ntopics")
    assert read in text
    job.write_text(text.replace('topic = "bad"', 'topic = "near"') + alert.format("near"))
    said = "the query reads the topic 'near', and would read what it writes. Give a topic of its own."
    assert [str(one) for one in jobs.validate(job)][:2] == [f"rejects.topic: {said}", f"alerts.0.topic: {said}"]
    with pytest.raises(JobError, match="reads the topic 'near'"):
        jobs.load(job)
    job.write_text(text + alert.format("bad"))
    (only,) = jobs.validate(job)
    assert str(only).startswith("alerts.0.topic: 'bad' is the topic of rejects.topic, too.")
    job.write_text(text + alert.format("near").replace("host", "elsewhere"))
    assert jobs.validate(job) == []


def test_brokers_and_tables_become_what_spark_takes(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert jobs.validate(job) == []
    checked = jobs.load(job)
    assert checked.missing() == []
    with pytest.raises(JobError, match="takes APPULSE_TEST_PASSWORD from the environment, which has none"):
        _ = checked.sink
    monkeypatch.setenv("APPULSE_TEST_PASSWORD", "hush")
    monkeypatch.setenv("APPULSE_TEST_JAAS", "module")
    address = {"url": "jdbc:postgresql://host/base", "dbtable": "pairs"}
    assert checked.sink == ("jdbc", {"user": "me", "password": "hush", **address})
    assert checked.rejects == ("kafka", {"kafka.bootstrap.servers": "host:9092", "topic": "bad"})
    assert checked.answers == "table pairs"
    (source,) = checked.table.sources.values()
    assert source.reading() == {  # type: ignore[union-attr]
        "startingOffsets": "earliest",
        "kafka.sasl.jaas.config": "module",
        "kafka.bootstrap.servers": "host:9092",
        "subscribe": "near",
        "maxOffsetsPerTrigger": 500,
    }


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('topics = "near"\n', "", "sources.near.topics: is missing, and has no default."),
        ('topics = "near"', 'topics = "near"\ntopic = "x"', "sources.near.topic: unknown key. Did you mean 'topics'?"),
        ('topics = "near"', 'topics = "near"\npath = "x"', "sources.near.path: unknown key."),
        ('schema = "id STRING, at DOUBLE, x DOUBLE"\n', "", "sources.near.schema: is missing, and has no default."),
        (
            'topics = "near"',
            'topics = "near"\nposition = "x"',
            "sources.near.position: unknown key. The model of a value is in its table: value = {",
        ),
        ('format = "kafka"', 'format = "kafak"', "sources.near.format: is 'kafak' (text). Did you mean 'kafka'?"),
        ('format = "jdbc"', 'format = "jbdc"', "sink.format: is 'jbdc' (text). Did you mean 'jdbc'?"),
        ('table = "pairs"', 'dbtable = "pairs"', "sink.table: is missing, and has no default."),
        ('{ env = "APPULSE_TEST_PASSWORD" }', '"hush"', "sink.options: password is a secret, which no job file holds."),
        ('{ env = "APPULSE_TEST_PASSWORD" }', "{ file = 'x' }", "sink.options: password is {'file': 'x'}, wanted text"),
        ('topic = "bad"', 'topic = ""', "rejects.topic: is '' (text), wanted text that is not empty."),
    ],
)
def test_what_is_wrong_is_told_at_its_place(job: Path, old: str, new: str, told: str) -> None:
    job.write_text(JOB.replace(old, new, 1))
    assert any(str(problem).startswith(told) for problem in jobs.validate(job)), jobs.validate(job)


def test_an_iceberg_table_is_named_by_its_catalog(job: Path) -> None:
    rest = JOB.replace('format = "jdbc"\nurl = "jdbc:postgresql://host/base"\n', 'format = "iceberg"\n')
    job.write_text(rest)
    assert jobs.validate(job) == []
    job.write_text(rest.replace('table = "pairs"', 'path = "pairs"'))
    assert "sink.table: is missing, and has no default." in map(str, jobs.validate(job))


@pytest.mark.parametrize(
    ("source", "sink"), [(TOPIC, SINK), (MQTT, SINK), (MQTT.replace("[sources", 'engine = "local"\n[sources'), FILES)]
)
@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("", "", []),
        (
            "x DOUBLE",
            "x DOUBEL",
            ["sources.near.schema: columns cannot be read at position 31: 'doubel' is not a type"],
        ),
        ("x DOUBLE", "x STRING", ["Column 'x' of stream 'near' is string, not a number."]),
        ("x DOUBLE", "x TIME(6)", []),  # Spark knows it
        ("x DOUBLE", "x DOUBLE, m MAP<STRING, INT>", []),
        ('time = "at"', 'time = "att"', ["Stream 'near' has no column 'att'. Did you mean 'at'?"]),
        (
            'time = "at"\nvalue = "x"',
            'time = "att"\nvalue = "xx"\ncarry = "colour"',
            [f"Stream 'near' has no column '{name}'." for name in ("xx", "att", "colour")],
        ),
        (
            'key = "left_key"',
            'key = "left_kee"',
            ["sink.key: is 'left_kee', which is not a column of its rows. Did you"],
        ),
        ('key = "detail"', 'key = "left_key"', ["rejects.key: is 'left_key', which is not a column of its rows."]),
        ('key = "right_key"', 'key = "x"', ["alerts.0.key: is 'x', which is not a column of its rows."]),
    ],
)
def test_a_call_is_checked_against_the_schema_of_messages(
    tmp_path: Path, source: str, sink: str, old: str, new: str, expected: list[str]
) -> None:
    text = f"{source}{MEANING}{sink}"
    expected = expected if old in text else []  # the sink in process has no key
    file = tmp_path / "job.toml"
    file.write_text(text.replace(old, new))
    found = [str(problem) for problem in jobs.validate(file)]
    if new == "x TIME(6)" and "mqtt" in source:  # which Spark does not decode
        assert "'time' is not a type" in found.pop()
    if new.endswith("MAP<STRING, INT>") and "mqtt" in source:
        assert "sources.near.schema: The schema of messages has a column that is not read from JSON" in found.pop()
    assert len(found) == len(expected), found
    assert all(any(one.startswith(start) for one in found) for start in expected), found


def test_what_the_environment_lacks_is_a_problem_here(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = '{{ env = "{0}" }}'
    hook = f'\n[[alerts]]\nformat = "webhook"\nurl = {taken}\nheaders = {{{{ Authorization = {taken} }}}}\n'
    job.write_text(JOB + hook.format("APPULSE_TEST_HOOK"))
    for name in ("APPULSE_TEST_JAAS", "APPULSE_TEST_HOOK", "APPULSE_TEST_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    assert jobs.validate(job) == []
    places = {
        "sources.near.options.kafka.sasl.jaas.config": "APPULSE_TEST_JAAS",
        "sink.options.password": "APPULSE_TEST_PASSWORD",
        "alerts.0.url": "APPULSE_TEST_HOOK",
        "alerts.0.headers.Authorization": "APPULSE_TEST_HOOK",
    }
    said = {f"{where}: the environment has no {name}. Set it and start again." for where, name in places.items()}
    assert {str(problem) for problem in jobs.validate(job, here=True)} == said
    for name in places.values():
        monkeypatch.setenv(name, "x")
    assert jobs.validate(job, here=True) == []
    assert CliRunner().invoke(app, ["validate", str(job)]).exit_code == 0
    monkeypatch.delenv("APPULSE_TEST_JAAS")
    for command in ("validate", "run"):
        done = CliRunner().invoke(app, [command, str(job)])
        assert done.exit_code == 2
        assert "has no APPULSE_TEST_JAAS" in done.output


@pytest.mark.parametrize("name", ["url", "password", "options", "headers"])
def test_a_source_may_have_the_name_of_a_setting(job: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job.write_text(JOB.replace("sources.near", f"sources.{name}"))
    monkeypatch.setenv("APPULSE_TEST_JAAS", "x")
    monkeypatch.delenv("APPULSE_TEST_PASSWORD", raising=False)
    (problem,) = jobs.validate(job, here=True)
    assert problem.where == "sink.options.password"


def test_a_moving_join_is_checked_as_one(tmp_path: Path) -> None:
    file, motion = tmp_path / "job.toml", 'motion = { kind = "Straight", max_gap = "20 seconds" }\n'
    file.write_text(f"{TOPIC}{motion}{MEANING}{SINK}")
    assert jobs.validate(file) == []
    counted = MEANING.replace('"1 minute"', "{ count = 10 }")
    file.write_text(f"{TOPIC}{motion}{counted}{SINK}")
    (problem,) = jobs.validate(file)
    assert "is not built for streams with motion=" in str(problem)


def test_queries_take_matches_back_where_rows_are_withdrawn(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    meaning = MEANING[: MEANING.index("[self_join]")]
    asked = '[match_queries]\nemit = "changes"\nconditions = { low = "x < 1" }\n'
    file.write_text(f"{TOPIC}{meaning}{asked}{FILES}")
    (problem,) = jobs.validate(file)
    assert "emit='changes' is about rows that are withdrawn" in str(problem)
    known = TOPIC.replace("x DOUBLE", "x DOUBLE, op STRING")
    file.write_text(f'{known}change = "op"{meaning}{asked}{FILES}')
    assert jobs.validate(file) == []
