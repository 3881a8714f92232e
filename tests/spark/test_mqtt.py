"""Messages of a real broker, Mosquitto: none lost, none twice, whichever side is killed; offsets that replay."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import appulse as ap
from appulse import jobs
from appulse.connect.messages import Messages
from appulse.engines.spool import Message, Spool
from appulse.errors import BadArgument, StateError, StorageError
from appulse.jobs.resident import Resident
from benchmarks.mqtt import MOSQUITTO, Publisher, broker
from tests.helpers.payloads import BAD, GOOD

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


class NoBroker:
    def __init__(self, _: Any, spool: Spool) -> None:
        self.spool = spool

    def wait(self, *_: float) -> int:
        return self.spool.end

    def close(self) -> None:
        """There is nothing to close."""


def test_offsets_of_spark_belong_to_one_spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    from appulse.engines.spark.mqtt import _Reader

    monkeypatch.setattr("appulse.engines.spark.mqtt.Receiver", NoBroker)

    spool = Spool(tmp_path)
    spool.append([message(i) for i in range(5)])
    own = spool.name
    spool.close()
    options = {"spool": str(tmp_path), "most_bytes": "10000", "host": "127.0.0.1", "topics": "x", "port": "1"}
    reader = _Reader({**options, "tls": "False", "distinct": "none"})
    try:
        assert reader.initialOffset() == {"offset": 0, "spool": own}
        early = {"offset": 5}  # as written before spools had names
        assert reader.latestOffset(early) == early
        assert reader.latestOffset({"offset": 2}) == {"offset": 5, "spool": own}
        assert len(reader.partitions({"offset": 2}, early)) == 1
        for other in ({"offset": 3, "spool": "other"}, {"offset": 9, "spool": own}, {"offset": 9}):
            for call in (reader.latestOffset, reader.commit, lambda end: reader.partitions({"offset": 0}, end)):
                with pytest.raises(StateError, match="another spool"):
                    call(other)
    finally:
        reader.stop()


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
        until = time.monotonic() + 60
        while not reader.end and time.monotonic() < until:
            time.sleep(0.1)
        time.sleep(0.5)
        first = reader.end
        assert 0 < first < 200
        at, count = 0, 0
        until = time.monotonic() + 60
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


def resident(place: Path, text: str = JOB, **given: Any) -> Resident:
    file = place / "job.toml"
    file.write_text(text.format(**given))
    return Resident(jobs.load(file))


def sent(port: int, first: int, count: int) -> None:
    publisher = Publisher(port)
    publisher.send(rows(first, count))
    publisher.settle()
    publisher.close()


def drop_spool(place: Path, port: int) -> None:
    """A new spool, whose session has begun."""
    shutil.rmtree(place / "spool")
    with ap.MqttReader("127.0.0.1", "vans/+", spool=place / "spool", port=port) as reader:
        reader.backlog()


def test_a_spool_keeps_its_name_and_others_have_another(tmp_path: Path) -> None:
    names = []
    for folder in ("a", "a", "b"):
        spool = Spool(tmp_path / folder)
        names.append(spool.name)
        spool.append([message(1)])
        spool.check(1)
        spool.check(1, names[0]) if folder == "a" else None
        with pytest.raises(StateError, match=r"messages 0 to [123], not those from 4 on .* another spool"):
            spool.check(4)
        spool.close()
    assert names[0] == names[1] != names[2]
    with pytest.raises(StateError, match="another spool"):
        spool.check(1, names[0])


@needs_broker
@pytest.mark.parametrize("grown", [0, 80, 150])
def test_a_job_in_process_knows_another_spool(tmp_path: Path, grown: int) -> None:
    with broker(tmp_path / "broker") as server:
        resident(tmp_path, port=server.port).run(once=True)
        sent(server.port, 0, 100)
        resident(tmp_path, port=server.port).run(once=True)
        drop_spool(tmp_path, server.port)
        sent(server.port, 100, grown)
        with ap.MqttReader("127.0.0.1", "vans/+", spool=tmp_path / "spool", port=server.port) as reader:
            assert reader.backlog() == grown
            with pytest.raises(StateError, match="another spool"):
                list(reader.batches(200))
        with pytest.raises(StateError, match=f"messages 0 to {grown}, not those from 100 on .* another spool"):
            resident(tmp_path, port=server.port).run(once=True)


@needs_broker
def test_a_checkpoint_without_the_name_of_a_spool_goes_on(tmp_path: Path) -> None:
    with broker(tmp_path / "broker") as server:
        reader = ap.MqttReader("127.0.0.1", "vans/+", spool=tmp_path / "spool", port=server.port)
        reader.backlog()
        sent(server.port, 0, 5)
        source = Messages("vans", reader, pa.schema({"at": pa.float64()}), None)
        source.begin({"vans": 2}, once=True)
        (taken,) = source.take(0)
        assert taken.rows["at"].to_pylist() == [2.0, 3.0, 4.0]
        assert taken.offset == {"offset": 5, "spool": reader.spool_id}
        source.settle({"vans": 2})
        source.close()


@needs_broker
def test_a_job_in_process_lets_messages_go_that_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with broker(tmp_path / "broker") as server:
        job = resident(tmp_path, port=server.port)
        (source,) = job.sources
        asked: list[Any] = []
        monkeypatch.setattr(source, "settle", asked.append)
        stop = Event()
        thread = Thread(target=job.run, args=(stop,))
        thread.start()
        for first in range(0, 10_000, 100):
            time.sleep(0.4)
            sent(server.port, first, 100)
            if any(asked):
                break
        stop.set()
        thread.join()
    assert any(one["vans"]["offset"] > 0 for one in asked if one)


@needs_broker
def test_a_broker_that_is_away_is_an_error_and_a_drain_leaves_the_checkpoint_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with broker(tmp_path / "broker") as server:
        resident(tmp_path, port=server.port).run(once=True)
        sent(server.port, 0, 60)
        server.stop()
        with monkeypatch.context() as patch:
            patch.setattr("appulse.engines.mqtt.BACKLOG", 1.0)
            for drain in (False, True):
                with pytest.raises(StorageError, match=r"did not answer within 1 seconds: .*refused"):
                    resident(tmp_path, port=server.port).run(once=not drain, drain=drain)
        server.start()
        resident(tmp_path, port=server.port).run(drain=True)
    found = ds.dataset(tmp_path / "out").to_table()
    assert sorted(found["time"].to_pylist()) == [float(i) for i in range(41, 60)]


@needs_broker
def test_messages_that_keep_coming_hold_up_neither_a_start_nor_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with broker(tmp_path / "broker") as server:
        resident(tmp_path, port=server.port).run(once=True)
        publisher, over = Publisher(server.port), Event()

        def steady() -> None:
            at = 0
            while not over.wait(0.02):
                publisher.send(rows(100 + at, 1))
                at += 1

        thread = Thread(target=steady)
        thread.start()
        try:
            job, stop, seen = resident(tmp_path, port=server.port), Event(), Event()
            job.on_step = lambda _: seen.set()
            running = Thread(target=job.run, args=(stop,))
            running.start()
            assert seen.wait(60)
            stop.set()
            running.join()
            monkeypatch.setattr("appulse.engines.mqtt.BACKLOG", 1.0)
            ending = Thread(target=resident(tmp_path, port=server.port).run, kwargs={"drain": True}, daemon=True)
            ending.start()
            ending.join(60)
            assert not ending.is_alive()
            assert "still sends after 1 seconds" in caplog.text
        finally:
            over.set()
            thread.join()
            publisher.close()


@needs_broker
@pytest.mark.spark
def test_a_job_on_spark_knows_another_spool_and_a_broker_that_is_away(spark: SparkSession, tmp_path: Path) -> None:
    def run(port: int, *, drain: bool = False) -> None:
        file = tmp_path / "job.toml"
        file.write_text(JOB.format(port=port))
        jobs.run(jobs.load(file), spark, once=not drain, drain=drain).awaitTermination()

    with broker(tmp_path / "broker") as server:
        (tmp_path / "spool").mkdir()
        drop_spool(tmp_path, server.port)
        sent(server.port, 0, 100)
        run(server.port)
        server.stop()
        with pytest.raises(StorageError, match="did not answer within"):
            run(server.port, drain=True)
        server.start()
        kept = tmp_path / "kept"
        (tmp_path / "spool").rename(kept)
        for grown in (0, 150):
            (tmp_path / "spool").mkdir(exist_ok=True)
            drop_spool(tmp_path, server.port)
            sent(server.port, 100, grown)
            with pytest.raises(StateError, match=f"messages 0 to {grown}, not those from 100 on .* another spool"):
                run(server.port)
        shutil.rmtree(tmp_path / "spool")
        kept.rename(tmp_path / "spool")
        run(server.port, drain=True)


@needs_broker
@pytest.mark.spark
def test_both_engines_make_the_same_rows_and_rejects_of_messages(spark: SparkSession, tmp_path: Path) -> None:
    from paho.mqtt import publish

    text = JOB.replace("at DOUBLE", "at TIMESTAMP").replace("x > 20", "x > -100")
    useless = [b'{"id": "late"}', b'{"id": "n", "at": "2026-05-04T09:00:30Z", "x": NaN}']
    payloads = [*GOOD, *BAD, *useless]
    found: list[Any] = []
    with broker(tmp_path / "broker") as server:
        places = [tmp_path / "local", tmp_path / "spark"]
        for place in places:
            place.mkdir()
            with ap.MqttReader("127.0.0.1", "vans/+", spool=place / "spool", port=server.port) as reader:
                reader.backlog()
        sent: list[Any] = [{"topic": "vans/1", "payload": one, "qos": 1} for one in payloads]
        publish.multiple(sent, "127.0.0.1", server.port)
        summaries: list[Any] = []
        job = resident(places[0], text, port=server.port)
        job.on_write = summaries.append
        job.run(once=True)
        assert sum(one.rows for one in summaries) == job.totals["rows"] == len(payloads)
        file = places[1] / "job.toml"
        file.write_text(text.format(port=server.port))
        query = jobs.run(jobs.load(file), spark, once=True)
        query.awaitTermination()
        assert sum(int(one["numInputRows"]) for one in query.recentProgress) == len(payloads)
    for place in places:
        answers = ds.dataset(place / "out").to_table().to_pylist()
        rejects = [
            json.loads(line) for path in (place / "rejects").glob("*.json") for line in path.read_text().splitlines()
        ]
        assert len(answers) == len(GOOD)
        assert len(rejects) == len(BAD) + len(useless)
        found.append([sorted(map(str, answers)), sorted(str(sorted(row.items())) for row in rejects)])
    assert found[0] == found[1]
    values = [json.loads(row["values"]) for row in rejects if row["reason"] == "cannot be decoded"]
    assert {"topic", "partition", "offset", "payload", "base64"} <= set(values[0])
