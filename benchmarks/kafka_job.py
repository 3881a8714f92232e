"""A job file over Kafka, and the messages that it reads: `benchmarks.faults` kills it, a test runs it.

python -m benchmarks.kafka_job FOLDER SERVERS write    two topics with messages, a few of which cannot be decoded
python -m benchmarks.kafka_job FOLDER SERVERS run      the job to its end; --kafka among SINKS writes answers there
python -m benchmarks.kafka_job FOLDER SERVERS read     the messages that the job has written, as JSON lines
python -m benchmarks.kafka_job FOLDER SERVERS alarms   the same of its alerts, where its file has some
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import appulse as ap
from appulse import jobs
from benchmarks.fault_job import SETTINGS
from benchmarks.servers import CONNECTOR, jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPICS = ("vans", "stops")
#: A topic of alerts.
ALARMS = "alarms"
#: Of each topic: messages that can be used, and others.
GOOD, BAD = 600, 12
_JOB = """
[defaults]
format = "kafka"
servers = "{servers}"
schema = "id STRING, at DOUBLE, x DOUBLE, y DOUBLE"
key = "id"
time = "at"
value = {{ model = "Gaussian", columns = ["x", "y"], sigma = 0.2 }}
lateness = "1 hour"
max_messages_per_trigger = {most}

[sources.vans]
topics = "vans"
[sources.stops]
topics = ["stops"]

[similarity_join]
epsilon = 0.5
probability = 0.5
window = "10 seconds"

[sink]
{sink}

[rejects]
format = "parquet"
path = "rejects"
"""
_SINKS = {
    "kafka": 'format = "kafka"\nservers = "{servers}"\ntopic = "{topic}"\nkey = "left_key"',
    "parquet": 'format = "parquet"\npath = "answers"',
}


def job_file(folder: Path, servers: str, sink: str, most: int = 200) -> Path:
    """The job in a folder, which its files are below, too."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "job.toml"
    text = _JOB.format(servers=servers, most=most, sink=_SINKS[sink].format(servers=servers, topic=topic_of(folder)))
    file.write_text('checkpoint = "checkpoint"\n' + text)
    return file


def topic_of(folder: Path) -> str:
    """The topic that the job of a folder writes."""
    return f"pairs-{folder.parent.name}-{folder.name}"


def session() -> SparkSession:
    """A session that knows Kafka."""
    spark: SparkSession = ap.session(2, **SETTINGS, **{"spark.jars": ",".join(map(str, jars(CONNECTOR)))})
    return spark


def values(topic: str, seed: int = 3) -> list[bytes]:
    """The messages of a topic, in order of time but for some; bad ones among them."""
    rng = np.random.default_rng([seed, TOPICS.index(topic)])
    at = np.sort(rng.uniform(0, 60, GOOD)) + rng.uniform(-2, 2, GOOD)
    places = rng.uniform(0, 8, (GOOD, 2))
    rows: list[dict[str, Any]] = [
        {"id": f"{topic}{i}", "at": at[i], "x": places[i, 0], "y": places[i, 1]} for i in range(GOOD)
    ]
    found = [json.dumps(row).encode() for row in rows]
    for i in range(BAD):
        found.insert(int(rng.integers(len(found))), (b"\xff", b"no json", b'{"id": "x", "at": "soon"}')[i % 3])
    return found


def write(spark: SparkSession, servers: str) -> None:
    """Write the messages of both topics."""
    for topic in TOPICS:
        rows = spark.createDataFrame(
            [(str(i).encode(), v) for i, v in enumerate(values(topic))], "key binary, value binary"
        )
        rows.write.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", topic).save()


def read(spark: SparkSession, servers: str, topic: str) -> list[tuple[str, dict[str, Any]]]:
    """Keys and values of all messages that the job has written."""
    frame = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic).load()
    rows = frame.selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value").collect()
    return [(row["key"], json.loads(row["value"])) for row in rows]


def main() -> None:
    """Do what is wanted."""
    folder, servers, *wanted = sys.argv[1:]
    spark = session()
    for what in wanted:
        if what == "write":
            write(spark, servers)
        elif what == "run":
            jobs.run(jobs.load(Path(folder) / "job.toml"), spark, drain=True).awaitTermination()
        else:
            topic, file = (ALARMS, "alarms.jsonl") if what == "alarms" else (topic_of(Path(folder)), "pairs.jsonl")
            lines = [json.dumps(message) for message in read(spark, servers, topic)]
            (Path(folder) / file).write_text("\n".join(lines))
    spark.stop()


if __name__ == "__main__":
    main()
