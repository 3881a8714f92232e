"""A real broker: a job file that reads topics, writes a topic and refuses what cannot be decoded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import appulse as ap
from benchmarks.kafka_job import ALARMS, BAD, TOPICS, job_file, values
from benchmarks.servers import CONNECTOR, Broker, Unavailable, jars

if TYPE_CHECKING:
    from pathlib import Path


ALERT = """
[[alerts]]
format = "kafka"
servers = "{servers}"
topic = "{topic}"
key = "right_key"
attempts = 1
dead_letter = "lost.jsonl"
only = {{ left_key = ["vans7", "vans70", "vans270"] }}
"""

#: A query that would read what it writes; then the job, in the same session.
LOOP_AND_JOB = """
import sys
import appulse as ap
from benchmarks.kafka_job import SETTINGS, main, session
from tests.conftest import FEW_ROWS

SETTINGS.update({name: value for name, value in FEW_ROWS.items() if "Java" not in name})
spark, folder = session(), sys.argv[1]
topics = {"kafka.bootstrap.servers": "nowhere:9092"}
frame = spark.readStream.format("kafka").options(**topics, subscribe="vans,cabs").load()
rows = frame.selectExpr("CAST(offset AS STRING) AS id", "timestamp AS at", "1D AS x")
pairs = ap.self_join(ap.Stream(rows, key="id", time="at", value="x"), epsilon=1.0, probability=1.0, window=10)
noop, loop = ("noop", {}), ("kafka", topics | {"topic": "cabs"})
for outputs in ({"sink": loop}, {"sink": noop, "rejects": loop}, {"sink": noop, "alerts": [loop]}):
    try:
        ap.start(pairs, checkpoint=f"{folder}/loop", **outputs)
    except ap.BadArgument as error:
        print(error)
main()
"""


def expected() -> set[tuple[str, str]]:
    """The pairs of a run in process, over what can be decoded."""
    streams = []
    for topic in TOPICS:
        rows = [json.loads(value) for value in values(topic) if value.endswith(b"}") and b"soon" not in value]
        value = ap.Gaussian("x", "y", sigma=0.2)
        streams.append(ap.Stream(pa.Table.from_pylist(rows), key="id", time="at", value=value, name=topic))
    pairs = ap.similarity_join(*streams, epsilon=0.5, probability=0.5, window=ap.TimeWindow(10))
    return set(zip(pairs["left_key"].to_pylist(), pairs["right_key"].to_pylist(), strict=True))


def test_a_job_from_topics_to_a_topic(tmp_path: Path) -> None:
    """Every pair once, keyed as asked, with an id of its own; every bad message with its place and payload.

    A query that would read what it writes is refused.
    """
    try:
        jars(CONNECTOR)
        broker = Broker(tmp_path / "broker")
    except Unavailable as reason:
        pytest.skip(str(reason))
    file = job_file(tmp_path, broker.servers, "kafka", most=700)
    alert = ALERT.format(servers=broker.servers, topic=ALARMS)
    file.write_text(file.read_text() + alert + alert.replace(ALARMS, "a topic that cannot be"))
    with broker:
        run = [sys.executable, "-c", LOOP_AND_JOB, str(tmp_path), broker.servers, "write", "run", "read", "alarms"]
        fast = os.environ | {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}
        done = subprocess.run(run, env=fast, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    said = "the query reads the topic 'cabs', and would read what it writes. Give a topic of its own."
    assert done.stdout.splitlines() == [f"{name}: {said}" for name in ("sink", "rejects", "alerts[0]")]
    assert not (tmp_path / "loop").exists()
    messages = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    pairs = [(value["left_key"], value["right_key"]) for _, value in messages]
    assert len(pairs) > 100
    assert len(pairs) == len(set(pairs))
    assert {frozenset(pair) for pair in pairs} == {frozenset(pair) for pair in expected()}
    assert all(key == value["left_key"] for key, value in messages)
    assert len({value["message_id"] for _, value in messages}) == len(messages)
    chosen = {pair for pair in pairs if pair[0] in ("vans7", "vans70", "vans270")}
    alarms = [json.loads(line) for line in (tmp_path / "alarms.jsonl").read_text().splitlines()]
    assert {(value["left_key"], value["right_key"]) for _, value in alarms} == chosen
    assert len(alarms) == len(chosen) == len({value["message_id"] for _, value in alarms}) > 0
    assert all(key == value["right_key"] for key, value in alarms)
    # What the broker refuses is kept, under the same ids.
    lost = [json.loads(line) for line in (tmp_path / "lost.jsonl").read_text().splitlines()]
    assert {one["message_id"] for one in lost} == {value["message_id"] for _, value in alarms}
    bad = ds.dataset(tmp_path / "rejects", format="parquet").to_table().to_pylist()
    assert len(bad) == BAD * len(TOPICS)
    assert {row["reason"] for row in bad} == {"cannot be decoded"}
    told = [json.loads(row["values"]) for row in bad]
    places = {(row["topic"], row["partition"], row["offset"]) for row in told}
    assert len(places) == len(bad)
    assert {row["payload"] for row in told} == {"/w==", "no json", '{"id": "x", "at": "soon"}'}
