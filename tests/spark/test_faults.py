"""What breaks: state that is not what was written, checkpoints of other jobs, disks that are full, processes killed."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import traceback
from contextlib import contextmanager
from functools import partial
from random import Random
from threading import Thread
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import appulse as ap
from appulse.engines.join.call import JoinCall, JoinSettings, resolve
from appulse.engines.spark.failures import stoppable
from appulse.engines.spark.files import Folder
from appulse.engines.spark.join.call import join_routing, join_stages
from appulse.engines.spark.pipeline import blocks_of_task
from appulse.engines.spark.state import Cache, Cached, TileState
from appulse.engines.spark.tiles import TilePlan, hashed_plan
from appulse.engines.spark.tiling import Tiling
from appulse.errors import BadInput, CheckpointError, SessionError, StateError, StorageError
from benchmarks.fault_job import result, start, write_input
from benchmarks.fault_trials import Job, rows_of
from tests.helpers.fake_spark import FakeHandle, FakeSpark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

REMEDY = "Restore the checkpoint from a copy, or start with a new one"


# State that is not what was written.


def played_call(shift: float = 0.0) -> tuple[JoinCall, TilePlan, pa.Table]:
    n = 30
    table = pa.table({"id": range(n), "ts": range(n), "x": [i % 3 + shift for i in range(n)]})
    call = resolve(
        [ap.Stream(None, key="id", time="ts", value=ap.Exact("x"), name="a")],
        [table.schema],
        JoinSettings(
            epsilon=0.5,
            probability=0.5,
            window=ap.TimeWindow(100),
        ),
    )
    return call, hashed_plan(call.plan, 1, None), table


def play(batches: int = 3, shift: float = 0.0) -> FakeSpark:
    """A few micro-batches in one tile."""
    call, plan, table = played_call(shift)
    spark = FakeSpark(call, plan, Random(0), workers=1)
    spark.random.random = lambda: 1.0  # type: ignore[method-assign]  # nothing is forgotten, nothing fails
    for i in range(batches):
        spark.batch({"a": table.slice(10 * i, 10)})
    return spark


@pytest.fixture
def played() -> FakeSpark:
    return play()


def log_of(spark: FakeSpark) -> dict[Any, tuple[bytes]]:
    log: dict[Any, tuple[bytes]] = spark.stores["join", spark.tiling.keys[0]]["log"]
    return log


def load(spark: FakeSpark, cache: Cache | None = None) -> Cached:
    handle: Any = FakeHandle(spark.stores["join", spark.tiling.keys[0]])
    (stage,) = spark.stages
    return stage._load(spark.tiling.keys[0], TileState(handle, "join", cache or Cache(1 << 30)))[0]


def test_any_bit_that_flips_in_the_state_is_told(played: FakeSpark) -> None:
    log = log_of(played)
    assert len(load(played).operator) == 30
    for key, (delta,) in list(log.items()):
        for at in range(len(delta)):
            log[key] = (delta[:at] + bytes([delta[at] ^ 1 << at % 8]) + delta[at + 1 :],)
            with pytest.raises(StateError, match=REMEDY):
                load(played)
        log[key] = (delta,)
    assert len(load(played).operator) == 30


def test_state_cut_short_anywhere_is_told(played: FakeSpark) -> None:
    log = log_of(played)
    for key, (delta,) in list(log.items()):
        for length in range(len(delta)):
            log[key] = (delta[:length],)
            with pytest.raises(StateError, match=REMEDY):
                load(played)
        log[key] = (delta,)


def test_foreign_state_is_told(played: FakeSpark) -> None:
    """Of another program, of another run, of another version; or none."""
    log = log_of(played)
    other = log_of(play(shift=0.1))
    for key, (delta,) in list(log.items()):
        of_another_version = log[key[0] % 3 + 1, 0]
        for foreign in ((b"\x89PNG\r\n\x1a\n" * 20,), other[key], of_another_version):
            log[key] = foreign
            with pytest.raises(StateError, match=REMEDY):
                load(played)
        del log[key]
        with pytest.raises(StateError, match=REMEDY):
            load(played)
        log[key] = (delta,)


def test_a_worker_that_is_behind_reads_no_foreign_state(played: FakeSpark) -> None:
    """What it missed is checked against what it has."""
    (cache,) = play(batches=1).caches
    log_of(played)[3, 0] = log_of(play(shift=0.1))[3, 0]
    with pytest.raises(StateError, match=REMEDY):
        load(played, cache)


def test_an_attempt_leaves_the_same_state_in_whatever_order_its_blocks_come() -> None:
    """After a crash Spark may join the snapshot of one attempt with the change logs of another."""
    call, plan, table = played_call()
    tiling = Tiling.of(plan, call.plan)
    parts = [table.slice(at, 10).to_batches() for at in (0, 10, 20)]
    routing = join_routing(call, tiling)
    blobs = [blob for part in parts for out in blocks_of_task(part, call, routing, 0) for blob in out[1].to_pylist()]
    assert len(blobs) == 3
    stores: list[dict[str, Any]] = [{}, {}]
    for store, order in zip(stores, (blobs, blobs[::-1]), strict=True):
        handle: Any = FakeHandle(store)
        state = TileState(handle, "join", Cache(1 << 20))
        join_stages(call, tiling)[0].run(tiling.keys[0], order, None, state, lambda _at: None)
    assert stores[0] == stores[1]


# Checkpoints of other jobs.


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("faults") / "in"
    write_input(folder, 4, 30, seed=1)
    return folder


@pytest.fixture(scope="module")
def joined(spark: SparkSession, source: Path) -> DataFrame:
    return result(spark, source, "time")


@pytest.fixture(scope="module")
def run(joined: DataFrame, source: Path) -> Path:
    """A job that has taken in all there is, its checkpoint open."""
    folder = source.parent / "run"
    start(joined, folder, trigger={"availableNow": True}).awaitTermination()
    return folder


@pytest.fixture
def again(run: Path, tmp_path: Path) -> Path:
    """A copy of it, to be spoiled; under an id of its own, as a worker may still hold what the first one came to."""
    again = shutil.copytree(run, tmp_path / "again")
    (again / "checkpoint" / "metadata").write_text(json.dumps({"id": str(uuid4())}))
    return again


def test_a_changed_job_against_an_old_checkpoint(spark: SparkSession, source: Path, run: Path) -> None:
    """Users are told what differs, in the words of the call."""
    with pytest.raises(CheckpointError) as told:
        start(result(spark, source, "time", epsilon=0.5), run)
    first, *lines, last = str(told.value).splitlines()
    assert first.endswith("belongs to another job:")
    assert lines == ["  epsilon: the checkpoint has 0.4, the job asks for 0.5"]
    assert last == "Restore the job, or start with a new checkpoint."


def test_partitions_change_between_batches_only(joined: DataFrame, again: Path) -> None:
    commits = again / "checkpoint" / "commits"
    max((file for file in commits.iterdir() if file.name.isdecimal()), key=lambda file: int(file.name)).unlink()
    with pytest.raises(CheckpointError, match=r"has not ended, and Spark moves .* between batches only\. Start the"):
        start(joined, again, partitions=3)


def test_a_spark_that_spreads_no_states(joined: DataFrame, again: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before 4.2."""
    monkeypatch.setattr("appulse.engines.spark.repartition._manager", lambda _spark: None)
    with pytest.raises(CheckpointError, match=r"in 2 partitions, and Spark \S+ cannot spread them over 3; 4\.2 can"):
        start(joined, again, partitions=3)


def test_a_closed_checkpoint(joined: DataFrame, again: Path) -> None:
    start(joined, again, drain=True).awaitTermination()
    with pytest.raises(CheckpointError, match=r"was closed by a drain: its streams have ended. Start with a new one"):
        start(joined, again, drain=True)


@pytest.mark.parametrize("damage", ["empty", "cut", "noise", "list", "bare"])
def test_a_damaged_description(joined: DataFrame, again: Path, damage: str) -> None:
    path = again / "checkpoint" / "appulse.json"
    text = path.read_bytes()
    damaged = {"empty": b"", "cut": text[:-9], "noise": b"\xff\x00" * 40, "list": b"[1]", "bare": b'{"format": 3}'}
    path.write_bytes(damaged[damage])
    with pytest.raises(CheckpointError, match=r"appulse.json is damaged. Restore the checkpoint"):
        start(joined, again)


def test_a_description_of_another_format(joined: DataFrame, again: Path) -> None:
    path = again / "checkpoint" / "appulse.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99}))
    with pytest.raises(CheckpointError, match=r"was written by appulse 0.1.0 \(format 99\). .* reads formats up to 4"):
        start(joined, again)


def test_a_checkpoint_of_another_program(joined: DataFrame, again: Path) -> None:
    (again / "checkpoint" / "appulse.json").unlink()
    with pytest.raises(CheckpointError, match=r"a query that ap.start did not start. Give a new folder"):
        start(joined, again)


@pytest.mark.every_version
@pytest.mark.parametrize("damage", ["flip", "foreign"])
def test_users_are_told_of_damaged_state(spark: SparkSession, again: Path, damage: str) -> None:
    """In one sentence, where they look: what the query raises, and its exception()."""
    write_input(again / "more", 4, 30, seed=2)
    more = result(spark, again / "more", "time")
    other = again / "other"
    if damage == "foreign":
        start(more, other, trigger={"availableNow": True}).awaitTermination()
    for part in (again / "checkpoint" / "state" / "0").glob("[0-9]"):
        logs = {int(path.name.partition("_")[0]): path for path in part.glob("*.changelog")}
        for path in part.glob("*.zip"):
            if int(path.name.partition("_")[0]) > 2:
                path.unlink()
        data = bytearray(logs[3].read_bytes())
        data[len(data) // 2] ^= 1
        if damage == "foreign":
            (foreign,) = (other / "checkpoint" / "state" / "0" / part.name).glob("3_*.changelog")
            data = bytearray(foreign.read_bytes())
        logs[3].write_bytes(data)
        for checksum in part.glob(f"*{logs[3].name}*.crc"):
            checksum.unlink()
    query = start(more, again, trigger={"availableNow": True})
    with pytest.raises(StateError, match=r"Restore the checkpoint from a copy, or start with a new one") as told:
        query.awaitTermination()
    assert "\n" not in str(told.value)
    assert isinstance(query.exception(), StateError)


def test_a_batch_that_is_stopped_is_said_to_be_in_few_words() -> None:
    """Spark looks for this in the text; with a long one its expression overflows the stack."""
    traces = "\n".join(f"\tat org.apache.spark.Some$.method(Some.scala:{i})" for i in range(300))
    for cause in ("java.lang.InterruptedException", "java.io.InterruptedIOException: java.lang.InterruptedException"):
        with pytest.raises(InterruptedError) as found, stoppable():
            raise RuntimeError(f"An error occurred while calling o614.save.\n: {cause}\n{traces}")
        text = "".join(traceback.format_exception(found.value))
        assert "py4j.protocol.Py4JJavaError: An error occurred while calling" in text
        assert text.rstrip().endswith(("java.lang.InterruptedException", "java.io.InterruptedIOException"))
        assert len(text) < 1500
    # Others are left as they are, even if something was interrupted on the way.
    with pytest.raises(RuntimeError, match="A task failed"), stoppable():
        raise RuntimeError("An error occurred while calling o1.save.\n: A task failed: java.lang.InterruptedException")


# Disks that are full.


@contextmanager
def little_space(spark: SparkSession, most: int) -> Iterator[None]:
    """The JVM can write no file of more than so many bytes, which needs fewer rights than filling a disk."""
    pid = int(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("what", ["checkpoint", "answers", "rejects"])
def test_a_path_that_cannot_be_written(joined: DataFrame, tmp_path: Path, what: str) -> None:
    (tmp_path / "file").touch()
    paths = {name: tmp_path / name for name in ("checkpoint", "answers", "rejects")} | {what: tmp_path / "file" / what}
    sinks = [("parquet", {"path": str(paths[name])}) for name in ("answers", "rejects")]
    with pytest.raises(StorageError, match=rf"Could not write the (sink|checkpoint) {paths[what]}: .* start again"):
        ap.start(joined, *sinks, checkpoint=str(paths["checkpoint"]), drain=True).awaitTermination()


@pytest.mark.every_version
def test_a_disk_that_fills_up(spark: SparkSession, joined: DataFrame, run: Path, tmp_path: Path) -> None:
    """Told in one sentence; with room again the job goes on from there, and nothing is lost or doubled."""
    with little_space(spark, 2000), pytest.raises(StorageError, match=r"File too large.* start again with the same"):
        start(joined, tmp_path, trigger={"availableNow": True}).awaitTermination()
    start(joined, tmp_path, trigger={"availableNow": True}).awaitTermination()
    assert rows_of(tmp_path) == rows_of(run)


def mount(*arguments: object) -> bool:
    return subprocess.run(["mount", *map(str, arguments)], check=False, capture_output=True).returncode == 0  # noqa: S607


def test_a_disk_that_is_full(joined: DataFrame, run: Path, tmp_path: Path) -> None:
    """A real one, where we may mount it: the sink's."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if not mount("-t", "tmpfs", "-o", "size=8k", "none", disk):
        pytest.skip("needs the right to mount")
    try:
        sinks = [("parquet", {"path": str(folder)}) for folder in (disk / "answers", tmp_path / "rejects")]
        settings: dict[str, Any] = {"checkpoint": str(tmp_path / "checkpoint"), "trigger": {"availableNow": True}}
        with pytest.raises(StorageError, match=rf"write the sink {disk}/answers: No space left on device. Make room"):
            ap.start(joined, *sinks, **settings).awaitTermination()
        assert mount("-o", "remount,size=8m", disk)
        ap.start(joined, *sinks, **settings).awaitTermination()
        shutil.copytree(disk / "answers", tmp_path / "answers")
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)  # noqa: S607
    assert rows_of(tmp_path) == rows_of(run)


def test_a_file_is_replaced_whole(spark: SparkSession, tmp_path: Path) -> None:
    """A kill at any moment finds the old one or the new one."""
    folder = Folder(spark, str(tmp_path))
    folder.write("file", "0" * 100)

    def write() -> None:
        for i in range(100):
            folder.write("file", str(i % 10) * 100)

    writer = Thread(target=write)
    writer.start()
    while writer.is_alive():
        text = (tmp_path / "file").read_text()
        assert len(text) == 100
        assert len(set(text)) == 1


# Processes killed.


def test_a_job_that_is_killed_goes_on_where_it_was(source: Path, run: Path, tmp_path: Path) -> None:
    """Its Python workers first, then driver and JVM in the midst of a batch; resumed, nothing is lost or doubled."""
    live = partial(Job.of_files, source, tmp_path / "job", "time")
    job = live()
    assert job.until(lambda: job.workers()[1] and (job.ran or job.writes))
    for worker in job.workers()[1]:
        worker.kill()
    assert job.until(lambda: job.commits >= 1 and job.writes)
    job.kill()
    job = live()
    job.until(lambda: False)
    assert job.finished(), job.last_words()
    assert rows_of(tmp_path / "job") == rows_of(run)


# What is outside of Spark.


TABLE = pa.table({"id": range(5), "ts": [float(i) for i in range(5)], "x": [0.0] * 5})
NOT_THERE = {"url": "jdbc:nosuch://host/base", "dbtable": "pairs"}


@pytest.mark.parametrize(
    ("bad", "sink", "error", "told"),
    [
        (b"no Parquet, and long enough", "parquet", BadInput, r"b\.parquet is not a Parquet file.*same name"),
        (TABLE.set_column(2, "x", pa.array(["a"] * 5)), "parquet", BadInput, r"BINARY in the column x.*expects double"),
        (None, ("jdbc", NOT_THERE), SessionError, r"no JDBC driver.*--packages"),
        (None, ("nosuch", {}), SessionError, "no data source 'nosuch'"),
        (None, ("kafka", {"topic": "t"}), SessionError, "no data source 'kafka'.*--packages"),
    ],
    ids=["no parquet", "type", "driver", "source", "kafka"],
)
def test_what_is_not_as_spark_expects_is_named_with_the_remedy(
    spark: SparkSession, tmp_path: Path, bad: bytes | pa.Table | None, sink: Any, error: type[Exception], told: str
) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(TABLE, tmp_path / "in" / "a.parquet")
    if isinstance(bad, bytes):
        (tmp_path / "in" / "b.parquet").write_bytes(bad)
    elif bad is not None:
        pq.write_table(bad, tmp_path / "in" / "b.parquet")
    rows = spark.readStream.schema("id long, ts double, x double").parquet(str(tmp_path / "in"))
    result = ap.match_queries(
        ap.Stream(rows, key="id", time="ts", value="x"), pa.table({"query": ["q"], "condition": ["x < 1"]})
    )
    sink = ("parquet", {"path": str(tmp_path / "out")}) if sink == "parquet" else sink
    query = ap.start(result, sink, checkpoint=str(tmp_path / "checkpoint"), trigger={"availableNow": True})
    with pytest.raises(error, match=told):
        query.awaitTermination()
