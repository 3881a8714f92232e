"""Alerts beside a sink: those answers that are asked for, with ids that another attempt at a batch gives, too."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import appulse as ap
from appulse import jobs
from appulse.errors import BadArgument, JobError, StateLimit
from tests.engines.test_alerts import hook
from tests.helpers.streaming import files, read_stream, read_written

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
QUERIES = pa.table({"query": ["a", "b"], "condition": ["x > 2", "x < 4"]})


def matched(spark: SparkSession, folder: Path) -> Any:
    table = pa.table({"k": list(range(6)), "t": [float(i) for i in range(6)], "x": [float(i) for i in range(6)]})
    stream = ap.Stream(read_stream(spark, files(folder / "in", table, 3)), key="k", time="t", value="x")
    return ap.match_queries(stream, QUERIES)


def started(spark: SparkSession, folder: Path, alerts: list[Any]) -> None:
    sink = "parquet", {"path": str(folder / "out")}
    query = ap.start(
        matched(spark, folder),
        sink,
        alerts=alerts,
        checkpoint=str(folder / "checkpoint"),
        trigger={"availableNow": True},
    )
    query.awaitTermination()


def test_an_attempt_after_a_crash_sends_the_same_ids(spark: SparkSession, tmp_path: Path) -> None:
    with hook(lambda *_: (200, {})) as server:
        alerts: list[Any] = [
            ("webhook", {"url": server.url, "only": {"query": "a"}}),
            ("kafka", {"topic": "events", "kafka.bootstrap.servers": "127.0.0.1:1", "attempts": 1, "only": {"k": [5]}}),
        ]
        with pytest.raises(BadArgument, match="names 'k', which is not a column of the answers"):
            started(spark, tmp_path, alerts)
        alerts[1][1]["only"] = {"key": [5]}
        started(spark, tmp_path, alerts)
        assert sorted(body["key"] for body in server.bodies.values()) == [3, 4, 5]
        assert all(name == server.bodies[name]["message_id"] for name in server.bodies)
        assert {body["batch_id"] for body in server.bodies.values()} == {1}
        (tmp_path / "checkpoint" / "commits" / "1").unlink()  # as if it had died before
        started(spark, tmp_path, alerts)
        assert list(server.taken.values()) == [2, 2, 2]
    # No broker is there, nor perhaps what speaks to one: given up, twice.
    letters = [json.loads(line) for line in (tmp_path / "checkpoint.dead.jsonl").read_text().splitlines()]
    assert {(one["event"]["query"], one["event"]["key"], one["attempts"]) for one in letters} == {("a", 5, 1)}
    assert len({one["message_id"] for one in letters}) == 1
    assert len(read_written(tmp_path / "out")) == 7


@pytest.mark.parametrize(
    ("alerts", "said"),
    [
        ([("smoke", {})], "kind 'smoke'"),
        ([("webhook", {"only": 3, "url": "http://x"})], "only=3"),
        (["webhook"], r"alerts=\['webhook'\]"),
        ([("webhook", {})], "url is missing"),
    ],
)
def test_what_is_no_alert_is_an_error(spark: SparkSession, tmp_path: Path, alerts: list[Any], said: str) -> None:
    with pytest.raises(BadArgument, match=said):
        started(spark, tmp_path, alerts)


JOB = """\
[sources.rows]
format = "parquet"
path = "in"
key = "k"
time = "t"
value = "x"

[match_queries.conditions]
a = "x > 2"

[sink]
format = "parquet"
path = "out"

[[alerts]]
format = "webhook"
url = { env = "HOOK_URL" }
headers = { Authorization = HEADER, X-Source = "appulse" }
only = { query = "a" }
give_up_after = "20 seconds"
dead_letter = "dead.jsonl"

[[alerts]]
format = "kafka"
servers = "broker:9092"
topic = "events"
"""


def test_alerts_of_a_job_file(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(JOB.replace("HEADER", '{ env = "HOOK_KEY" }'))
    (kind, options), (other, more) = jobs.load(file).alerts
    assert (kind, other) == ("webhook", "kafka")
    assert options == {
        "url": {"env": "HOOK_URL"},
        "headers": {"Authorization": {"env": "HOOK_KEY"}, "X-Source": "appulse"},
        "only": {"query": ["a"]},
        "give_up_after": 20.0,
        "dead_letter": str(tmp_path / "dead.jsonl"),
    }
    assert more == {"kafka.bootstrap.servers": "broker:9092", "topic": "events", "only": {}}
    file.write_text(JOB.replace("HEADER", '"Bearer abc"'))
    with pytest.raises(JobError, match=r"alerts.0.headers: Authorization is a secret"):
        jobs.load(file)
    file.write_text(JOB.replace("HEADER", '{ env = "K" }').replace("give_up_after", "giveup_after"))
    with pytest.raises(JobError, match=r"giveup_after.*Did you mean 'give_up_after'"):
        jobs.load(file)


def test_a_query_that_would_hold_too_many_rows_ends_before_it_writes(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table({"k": list(range(6)), "t": [float(i) for i in range(6)], "x": [0.0] * 6})
    rows = read_stream(spark, files(tmp_path / "in", table, 3))
    joined = ap.self_join(ap.Stream(rows, key="k", time="t", value="x"), epsilon=1, probability=1, window="1 minute")
    given: dict[str, Any] = {"checkpoint": str(tmp_path / "checkpoint"), "trigger": {"availableNow": True}}
    sink = "parquet", {"path": str(tmp_path / "out")}
    query = ap.start(joined, sink, max_state=5, **given)
    with pytest.raises(StateLimit, match="After batch 1 the query would hold 6 rows, and max_state is 5"):
        query.awaitTermination()
    assert len(read_written(tmp_path / "out")) == 3
    ap.start(joined, sink, max_state=6, **given).awaitTermination()
    assert len(read_written(tmp_path / "out")) == 15
