"""Job files that name brokers, databases and Delta tables: what they mean, and what is wrong with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from appulse import jobs
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
