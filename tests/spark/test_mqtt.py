"""Messages of a real broker, Mosquitto: none lost, none twice, whichever side is killed; offsets that replay."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import appulse as ap
from appulse.engines.spool import Message, Spool
from appulse.errors import BadArgument, StateError, StorageError
from benchmarks.mqtt import MOSQUITTO, Publisher, broker

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

needs_broker = pytest.mark.skipif(MOSQUITTO is None, reason="needs Mosquitto (Debian: apt install mosquitto)")


def message(i: int) -> Message:
    return Message("a/b", f"message {i}".encode() * (i % 5), 1_000_000 * i, i % 60_000)


# --- the spool


def test_a_spool_gives_back_what_was_appended_across_segments_and_starts(tmp_path: Path) -> None:
    spool = Spool(tmp_path, segment_bytes=500)
    for first in range(0, 100, 7):
        spool.append([message(i) for i in range(first, min(first + 7, 100))])
    assert (spool.begin, spool.end) == (0, 100)
    assert [(one.offset, one.message) for one in spool.read(3, 97)] == [(i, message(i)) for i in range(3, 97)]
    spool.forget(40)
    begin = spool.begin
    assert 0 < begin <= 40
    with pytest.raises(StateError, match="has messages"):
        spool.read(0, 10)
    spool.close()
    again = Spool(tmp_path, segment_bytes=500)
    assert (again.begin, again.end) == (begin, 100)
    assert [one.offset for one in again.read(begin, 100)] == list(range(begin, 100))
    again.forget(100)
    assert (again.begin, again.end, again.nbytes) == (100, 100, 0) or again.begin > begin
    again.close()


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_what_a_crash_left_of_a_record_is_cut_off(tmp_path: Path, cut: int) -> None:
    spool = Spool(tmp_path)
    spool.append([message(i) for i in range(1, 5)])
    spool.close()
    file = tmp_path / f"{0:020}.seg"
    data = file.read_bytes()
    file.write_bytes(data[:-cut] if cut % 2 else data + os.urandom(cut))
    again = Spool(tmp_path)
    kept = again.end
    assert kept <= 4
    assert [one.message for one in again.read(0, kept)] == [message(i) for i in range(1, kept + 1)]
    again.append([message(9)])
    assert again.read(kept, kept + 1)[0].message == message(9)
    again.close()


def test_a_segment_that_is_damaged_in_the_middle_is_an_error(tmp_path: Path) -> None:
    spool = Spool(tmp_path, segment_bytes=100)
    for i in range(1, 20):
        spool.append([message(i)])
    spool.close()
    first = min(tmp_path.glob("*.seg"))
    first.write_bytes(first.read_bytes()[:-1] + b"!")
    with pytest.raises(StateError, match="damaged"):
        Spool(tmp_path)


def test_a_spool_has_one_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appulse.engines.spool._LOCK_WAIT", 0.1)
    spool = Spool(tmp_path)
    with pytest.raises(StorageError, match="in use by another process"):
        Spool(tmp_path)
    spool.close()
    Spool(tmp_path).close()


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path)
    spool.append([message(1)])

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(StorageError, match="No space left"):
            spool.append([message(2)])
    spool.append([message(3)])
    assert [one.message for one in spool.read(0, 2)] == [message(1), message(3)]
    spool.close()


# --- the broker


def rows(first: int, count: int) -> list[dict[str, Any]]:
    return [{"id": f"v{i % 7}", "at": float(i), "x": i * 0.5} for i in range(first, first + count)]


def times(table: pa.Table) -> list[float]:
    return [json.loads(value)["at"] for value in table["value"].to_pylist()]


def collected(reader: Any, start: int, count: int, seconds: float = 15.0) -> pa.Table:
    until, parts, at = time.monotonic() + seconds, [], start
    while at < start + count and time.monotonic() < until:
        for end, table in reader.batches(at, wait=0.2):
            parts.append(table)
            at = end
    return pa.concat_tables(parts)


@needs_broker
def test_batches_have_offsets_that_replay_and_a_limit(tmp_path: Path) -> None:
    with broker(tmp_path / "broker") as server:
        reader = ap.MqttReader("127.0.0.1", "vans/+", spool=tmp_path / "spool", port=server.port)
        reader.backlog()
        publisher = Publisher(server.port)
        publisher.send(rows(0, 50))
        publisher.settle()
        table = collected(reader, 0, 50)
        assert table["offset"].to_pylist() == list(range(50))
        assert times(table) == [float(i) for i in range(50)]
        assert set(table["topic"].to_pylist()) == {"vans/1"}
        assert reader.read(10, 20).equals(table.slice(10, 10))
        sizes = [(end, len(part)) for end, part in reader.batches(5, most=20, wait=0)]
        assert sizes == [(25, 20), (45, 20), (50, 5)]
        reader.close()
        publisher.send(rows(50, 10))  # nobody reads: the broker keeps them
        publisher.settle()
        publisher.close()
        reader = ap.MqttReader("127.0.0.1", "vans/+", spool=tmp_path / "spool", port=server.port)
        assert times(collected(reader, 50, 10)) == [float(i) for i in range(50, 60)]
        assert reader.read(10, 20).equals(table.slice(10, 10))
        reader.settle(60)
        reader.close()


READER = """
import sys, time
import appulse as ap
reader = ap.MqttReader("127.0.0.1", "vans/+", spool=sys.argv[2], port=int(sys.argv[1]), distinct="payload")
print("ready", flush=True)
time.sleep(60)
"""


@needs_broker
def test_nothing_is_lost_or_doubled_where_reader_and_broker_are_killed(tmp_path: Path) -> None:
    spool = tmp_path / "spool"

    def child() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", READER, str(server.port), str(spool)]
        started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert started.stdout is not None
        with started.stdout as said:
            assert said.readline() == "ready\n"
        return started

    with broker(tmp_path / "broker") as server:
        reading = child()
        time.sleep(0.5)
        publisher = Publisher(server.port)
        for turn in range(2):
            for part in range(10):
                publisher.send(rows(600 * turn + 60 * part, 60))
                time.sleep(0.02)
                if part == 4 and turn == 0:
                    reading.kill()
                    reading.wait()
                    reading = child()
                if part == 4 and turn == 1:
                    server.stop()
                    server.start()
        publisher.settle()
        publisher.close()
        reading.kill()
        reading.wait()
        reader = ap.MqttReader("127.0.0.1", "vans/+", spool=spool, port=server.port, distinct="payload")
        reader.backlog()
        found = times(reader.read(0, reader.end))
        reader.close()
    assert sorted(set(found)) == [float(i) for i in range(1200)]
    assert len(found) == 1200


@needs_broker
def test_a_spool_that_is_full_leaves_messages_with_the_broker(tmp_path: Path) -> None:
    with broker(tmp_path / "broker") as server:
        reader = ap.MqttReader("127.0.0.1", "vans/+", spool=tmp_path / "s", port=server.port, most_bytes=3_000)
        reader.backlog()
        publisher = Publisher(server.port)
        publisher.send(rows(0, 200))
        publisher.settle()
        time.sleep(0.5)
        first = reader.end
        assert 0 < first < 200
        at, count = 0, 0
        until = time.monotonic() + 15
        while count < 200 and time.monotonic() < until:
            for end, table in reader.batches(at, wait=0.1):
                at, count = end, count + len(table)
            reader.settle(at)
        assert count == 200
        publisher.close()
        reader.close()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"topics": []}, "topics"),
        ({"distinct": "sometimes"}, "distinct"),
        ({"port": 0}, "port"),
        ({"host": ""}, "host"),
        ({"password_env": "NO_SUCH_NAME", "username": "me"}, "NO_SUCH_NAME of the environment"),
    ],
)
def test_what_is_no_reader_is_an_error(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"host": "127.0.0.1", "topics": "x", "port": 1, "spool": tmp_path / "spool"} | more
    with pytest.raises(BadArgument, match=said):
        ap.MqttReader(given.pop("host"), given.pop("topics"), **given)


JOB = """\
checkpoint = "checkpoint"

[sources.vans]
format = "mqtt"
host = "127.0.0.1"
port = {port}
topics = ["vans/+"]
schema = "id STRING, at DOUBLE, x DOUBLE"
spool = "spool"
max_messages_per_trigger = 60
key = "id"
time = "at"
value = "x"

[match_queries.conditions]
far = "x > 20"

[sink]
format = "parquet"
path = "out"

[rejects]
format = "json"
path = "rejects"
"""


@needs_broker
@pytest.mark.spark
def test_a_job_reads_a_broker_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    from appulse import jobs

    with broker(tmp_path / "broker") as server:
        file = tmp_path / "job.toml"
        file.write_text(JOB.format(port=server.port))
        job = jobs.load(file)
        reader = ap.MqttReader("127.0.0.1", "vans/+", spool=tmp_path / "spool", port=server.port)
        reader.backlog()  # the session begins
        reader.close()
        publisher = Publisher(server.port)
        for first, count in ((0, 100), (100, 50)):
            publisher.send(rows(first, count))
            publisher.settle()
            query = jobs.run(job, spark, once=True)
            query.awaitTermination()
            most = max(int(one["numInputRows"]) for one in query.recentProgress)
            assert most <= 60
        publisher.close()
    found = ds.dataset(tmp_path / "out").to_table()
    assert sorted(found["time"].to_pylist()) == [float(i) for i in range(41, 150)]
    assert np.unique(found["time"].to_numpy()).size == len(found)


@needs_broker
def test_a_job_in_process_reads_a_broker(tmp_path: Path) -> None:
    from appulse import jobs
    from appulse.jobs.resident import Resident

    with broker(tmp_path / "broker") as server:
        file = tmp_path / "job.toml"
        file.write_text(JOB.format(port=server.port))
        job = jobs.load(file)
        reader = ap.MqttReader("127.0.0.1", "vans/+", spool=tmp_path / "spool", port=server.port)
        reader.backlog()
        reader.close()
        publisher = Publisher(server.port)
        publisher.send([*rows(0, 100), {"id": "v", "at": "soon", "x": 1.0}])
        publisher.settle()
        publisher.close()
        Resident(job).run(once=True)
    found = ds.dataset(tmp_path / "out").to_table()
    assert sorted(found["time"].to_pylist()) == [float(i) for i in range(41, 100)]
    (bad,) = ds.dataset(tmp_path / "rejects", format="json").to_table().to_pylist()
    assert bad["reason"] == "cannot be decoded"
