"""Jobs that are killed: what starts each, what may be killed, and how its rows are read."""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow.dataset as ds
import pyspark

import appulse as ap
from appulse import jobs
from benchmarks import kafka_job
from benchmarks.fault_job import KINDS, result, write_input
from benchmarks.fault_job import start as start_it
from benchmarks.harness import say
from benchmarks.servers import (
    CONNECTOR,
    DELTA,
    DELTA_SETTINGS,
    ICEBERG,
    POSTGRES_DRIVER,
    Broker,
    Postgres,
    Server,
    Unavailable,
    jars,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from random import Random

    from pyspark.sql import SparkSession

_ROOT = Path(__file__).resolve().parent.parent
_PATIENCE = 240.0  # seconds without progress after which a job counts as stuck
_CLOSED = "was closed by a drain"
Rows = Counter[tuple[Any, ...]]


class Job:
    """One life of a job: a driver and its JVM in a process group of their own."""

    def __init__(self, folder: Path, command: Sequence[str]) -> None:
        folder.mkdir(exist_ok=True)
        self.name = f"{folder.parent.name}/{folder.name}"
        self._folder = folder
        self._log = folder / "log"
        paths = os.pathsep.join([str(_ROOT / "src"), str(_ROOT)])
        fast = "-XX:TieredStopAtLevel=1"  # lives this short are not worth compiling for
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *command],
                env=os.environ | {"PYTHONPATH": paths, "JDK_JAVA_OPTIONS": fast},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._born = self.commits
        atexit.register(self.kill)  # in a group of its own it would outlive us

    @staticmethod
    def of_files(source: Path, folder: Path, kind: str, **options: Any) -> Job:
        """A job of `benchmarks.fault_job`."""
        return Job(folder, ["benchmarks.fault_job", str(source), str(folder), kind, json.dumps(options)])

    @property
    def commits(self) -> int:
        """The last micro-batch that was committed, over all lives."""
        return max((int(p.name) for p in self._folder.glob("checkpoint/commits/[0-9]*")), default=-1)

    @property
    def ran(self) -> bool:
        """Whether this life has committed a micro-batch."""
        return self.commits > self._born

    @property
    def writes(self) -> bool:
        """Whether a sink has rows that are not in place yet."""
        return any(self._folder.glob("*/_appulse_staging/*/*"))

    def until(self, condition: Callable[[], object]) -> bool:
        """Wait for a condition; False if the job ended before."""
        last, since = self.commits, time.monotonic()
        while not condition():
            if self._process.poll() is not None:
                return False
            if self.commits > last:
                last, since = self.commits, time.monotonic()
            elif time.monotonic() - since > _PATIENCE:
                self.kill()
                raise RuntimeError(f"the job stands still after micro-batch {last}: {self.last_words()}")
            time.sleep(0.01)
        return True

    def pause(self, seconds: float) -> bool:
        """Let it run on for some time; False if it ended before."""
        end = time.monotonic() + seconds
        return self.until(lambda: time.monotonic() > end)

    def finished(self) -> bool:
        """Whether the job, which has ended, has done all its work; False if it failed."""
        return self._process.wait() == 0 or _CLOSED in self.last_words()

    def last_words(self) -> str:
        """The end of what it printed."""
        return self._log.read_text(errors="replace")[-3000:]

    def failed_tasks(self) -> int:
        """How many tasks failed in this life."""
        return self._log.read_text(errors="replace").count("ERROR Executor: Exception in task")

    def kill(self) -> None:
        """`kill -9` of driver and JVM; the Python workers are left to themselves."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def workers(self) -> tuple[list[psutil.Process], list[psutil.Process]]:
        """The daemons that fork Python workers, and the workers."""
        ours = {process.pid: process for process in self._descendants() if _is_python_worker(process)}
        workers = [process for process in ours.values() if _parent(process) in ours]
        return [process for process in ours.values() if process not in workers], workers

    def _descendants(self) -> list[psutil.Process]:
        try:
            return list(psutil.Process(self._process.pid).children(recursive=True))
        except psutil.NoSuchProcess:
            return []


def _is_python_worker(process: psutil.Process) -> bool:
    try:
        return list(process.cmdline()[1:3]) == ["-m", "appulse.engines.spark.daemon"]
    except psutil.Error:
        return False


def _parent(process: psutil.Process) -> int:
    try:
        return int(process.ppid())
    except psutil.Error:
        return 0


def kill_driver(job: Job, random: Random) -> bool:
    """At a moment of the start, of the run, or of a sink at work; False if the job ended before."""
    moment = random.choice(("start", "run", "run", "sink"))
    if moment == "start":
        reached = job.pause(random.uniform(0.0, 10.0))
    elif moment == "run":
        reached = job.until(lambda: job.ran) and job.pause(random.uniform(0.0, 3.0))
    else:
        reached = job.until(lambda: job.ran and job.writes) and job.pause(random.uniform(0.0, 0.2))
    if reached:
        say(f"{job.name}: kill driver and JVM: {moment}, micro-batch {job.commits + 1}")
        job.kill()
    return reached


def kill_workers(job: Job, random: Random) -> bool:
    """One, all, or all with their daemon, at a moment of the run; False if the job ended before."""
    before = job.commits
    if not (job.until(lambda: job.commits > before) and job.pause(random.uniform(0.0, 2.0))):
        return False
    if not job.until(lambda: job.workers()[1]):
        return False
    daemons, workers = job.workers()
    which = random.choice(("one", "all", "daemon"))
    killed = {"one": [random.choice(workers)], "all": workers, "daemon": daemons + workers}[which]
    for process in killed:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    say(f"{job.name}: kill workers: {which}, micro-batch {job.commits + 1}")
    return True


def session() -> SparkSession:
    """The session of this process, which knows Kafka and PostgreSQL where their jars can be had."""
    found: list[Path] = []
    for packages in (CONNECTOR, POSTGRES_DRIVER):
        with suppress(Unavailable):
            found += jars(packages)
    settings = {"spark.jars": ",".join(map(str, found))} if found else {}
    spark: SparkSession = ap.session(2, **settings)
    return spark


Act = Callable[[Job], bool]


def run_to_end(live: Callable[[], Job], kills: list[str], acts: Mapping[str, Act]) -> int:
    """Run the job to its end; make, and take from ``kills``, as many kills as there is time for, and count them.

    ``live`` starts it, or starts it again. ``acts`` make the kills; that of a "driver" ends the job.
    """
    made = failed = 0
    job = live()
    while True:
        hurt = False
        while kills and acts[kills[0]](job):
            made += 1
            hurt = True
            if kills.pop(0) == "driver":
                failed += job.failed_tasks()
                job, hurt = live(), False
        job.until(lambda: False)
        failed += job.failed_tasks()
        if job.finished():
            say(f"{job.name}: {job.commits + 1} micro-batches, {made} kills, {failed} tasks failed")
            return made
        if not hurt:
            raise RuntimeError(f"the job failed: {job.last_words()}")
        say(f"resumed after: {job.last_words().splitlines()[-1]}")
        job = live()


def rows_of(folder: Path) -> Rows:
    """Answers and rejects of a run into Parquet, each with how often it is there."""
    found = _counted("answers", _parquet(folder / "answers"))
    return found + rejects_of(folder)


def rejects_of(folder: Path) -> Rows:
    """Its rejects."""
    # How late a row was depends on the cut into micro-batches, and a kill may move that.
    return _counted("rejects", _parquet(folder / "rejects"), without=("detail",))


def _parquet(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ds.dataset(folder, format="parquet").to_table().to_pylist()
    return rows


def _counted(name: str, rows: Iterable[dict[str, Any]], without: tuple[str, ...] = ()) -> Rows:
    return Counter((name, *_plain({n: v for n, v in row.items() if n not in without})) for row in rows)


def _plain(row: dict[str, Any]) -> Iterator[Any]:
    return (_value(row[column]) for column in sorted(row) if row[column] is not None)


def _value(value: Any) -> Any:
    """A value as it compares; also within lists and structs."""
    if isinstance(value, dict):
        return str({name: _value(value[name]) for name in sorted(value)})
    if isinstance(value, list):
        return str([_value(one) for one in value])
    if isinstance(value, datetime):
        value = value.replace(tzinfo=None)  # Parquet of some settings of Spark has a zone, of others none
    return round(value, 6) if isinstance(value, float) else value if isinstance(value, str | int) else str(value)


@dataclass
class Trial:
    """A kind of job with its sink: how it is started below a folder, and what it has written there.

    ``victims`` are servers that may be killed, too. ``undisturbed`` runs it to its end where that takes no process of
    its own.
    """

    kind: str
    sink: str
    folder: Path
    start: Callable[[Path], Job]
    found: Callable[[Path], Rows]
    victims: list[Server] = field(default_factory=list)
    owned: list[Server] = field(default_factory=list)
    undisturbed: Callable[[Path], object] | None = None

    def end(self) -> None:
        """End the servers that are this trial's."""
        for server in self.owned:
            server.kill()


def kill_server(job: Job, server: Server, random: Random) -> bool:
    """`kill -9` of a broker or a database after a commit, which is back some seconds later; False if the job ended."""
    before = job.commits
    if not (job.until(lambda: job.commits > before) and job.pause(random.uniform(0.0, 1.0))):
        return False
    say(f"{job.name}: kill {type(server).__name__}: micro-batch {job.commits + 1}")
    server.kill()
    job.pause(random.uniform(0.5, 3.0))
    server.start()
    return True


def faults(trial: Trial, many: int, random: Random) -> Counter[str]:
    """Kills made, rows lost and doubled, over as many disturbed runs as the kills need."""
    begun = time.perf_counter()
    place = trial.folder / "undisturbed"
    if trial.undisturbed is None:
        run_to_end(partial(trial.start, place), [], {})
    else:
        trial.undisturbed(place)
    expected = trial.found(place)
    reasons = Counter(row[0] for row in expected.elements())
    say(f"{trial.kind} into {trial.sink}: {dict(reasons)} rows in {time.perf_counter() - begun:.0f} s")
    ways = ["driver", "worker", *(["server"] if trial.victims else [])]
    kills = [ways[i % len(ways)] for i in range(many)]
    random.shuffle(kills)
    acts: dict[str, Act] = {
        "driver": lambda job: kill_driver(job, random),
        "worker": lambda job: kill_workers(job, random),
        "server": lambda job: kill_server(job, random.choice(trial.victims), random),
    }
    figures: Counter[str] = Counter(kills=0, lost=0, doubled=0)
    while kills:
        disturbed = trial.folder / f"disturbed{figures['kills']}"
        figures["kills"] += run_to_end(partial(trial.start, disturbed), kills, acts)
        found = trial.found(disturbed)
        figures["lost"] += (expected - found).total()
        figures["doubled"] += (found - expected).total()
        say(f"{trial.kind} into {trial.sink}: {dict(figures)}")
    return figures


def trials(folder: Path, kinds: Sequence[str] | None, files: int) -> list[Trial]:
    """Every kind of job, or these, over so many files; those whose servers cannot be had are reported and left out."""
    source = folder / "in"
    write_input(source, files, 100, seed=5)
    found = []
    for kind in KINDS:
        if kinds is None or kind in kinds:
            try:
                found.append(_of_files(folder / kind, source, kind))
            except Unavailable as reason:
                say(f"{kind}: left out, {reason}")
    for table, of_table in (("delta", _of_delta), ("iceberg", _of_iceberg)):
        if kinds is None or table in kinds:
            try:
                found.append(of_table(folder / table, source))
            except Unavailable as reason:
                say(f"{table}: left out, {reason}")
    for sink in ("parquet", "kafka"):
        if kinds is None or f"topics-{sink}" in kinds:
            try:
                found.append(_of_topics(folder / f"topics-{sink}", sink))
            except Unavailable as reason:
                say(f"topics into {sink}: left out, {reason}")
    return found


#: Kinds of job that write elsewhere than into Parquet.
_SINKS = {"changes": "jdbc", "sensors": "json", "aggregate": "jdbc"}


def _of_files(folder: Path, source: Path, kind: str) -> Trial:
    folder.mkdir()
    sink = _SINKS.get(kind, "parquet")
    if sink == "jdbc":
        return _of_database(folder, source, kind)

    def settings(place: Path) -> dict[str, Any]:
        return {"sink": ("json", {"path": str(place / "answers")})} if sink == "json" else {}

    def undisturbed(place: Path) -> None:
        """In the session of this process, which has started and compiled most of it."""
        answers = result(session(), source, kind)
        start_it(answers, place, **settings(place), drain=True).awaitTermination()

    def start(place: Path) -> Job:
        return Job.of_files(source, place, kind, **settings(place))

    def found(place: Path) -> Rows:
        return _json_rows(place) + rejects_of(place) if sink == "json" else rows_of(place)

    return Trial(kind, sink, folder, start, found, undisturbed=undisturbed)


def _json_rows(folder: Path) -> Rows:
    lines = [line for file in (folder / "answers").glob("batch-*") for line in file.read_text().splitlines()]
    return _counted("answers", map(json.loads, lines))


def _of_database(folder: Path, source: Path, kind: str) -> Trial:
    driver = ",".join(map(str, jars(POSTGRES_DRIVER)))
    server = Postgres(folder / "postgres").start()

    def sink(place: Path) -> tuple[str, dict[str, str]]:
        return "jdbc", {"url": server.url, "dbtable": place.name, "driver": "org.postgresql.Driver"}

    def undisturbed(place: Path) -> None:
        start_it(result(session(), source, kind), place, sink(place), drain=True).awaitTermination()

    def start(place: Path) -> Job:
        return Job.of_files(source, place, kind, sink=sink(place), settings={"spark.jars": driver})

    def rows(place: Path) -> Rows:
        held = [json.loads(row[0]) for row in server.query(f"SELECT row_to_json(t) FROM {place.name} t")]  # noqa: S608
        return _counted("answers", held, without=("query_id", "batch_id")) + rejects_of(place)

    return Trial(kind, "jdbc", folder, start, rows, victims=[server], owned=[server], undisturbed=undisturbed)


def _of_delta(folder: Path, source: Path) -> Trial:
    if not pyspark.__version__.startswith("4.2"):
        raise Unavailable(f"Delta has no release for Spark {pyspark.__version__}: make test-spark VERSION=4.2")
    settings = DELTA_SETTINGS | {"spark.jars": ",".join(map(str, jars(DELTA)))}
    folder.mkdir()

    def start(place: Path) -> Job:
        return Job.of_files(source, place, "time", sink=("delta", {"path": str(place / "answers")}), settings=settings)

    return Trial("delta", "delta", folder, start, lambda place: delta_rows(place / "answers") + rejects_of(place))


def _of_iceberg(folder: Path, source: Path) -> Trial:
    if not pyspark.__version__.startswith("4.0"):
        raise Unavailable(f"no Iceberg was found for Spark {pyspark.__version__}: make test-spark VERSION=4.0")
    catalog = "spark.sql.catalog.lake"
    settings = {
        "spark.jars": ",".join(map(str, jars(ICEBERG))),
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "hadoop",
        f"{catalog}.warehouse": str(folder / "lake"),
    }
    folder.mkdir()

    def start(place: Path) -> Job:
        return Job.of_files(source, place, "time", sink=("iceberg", {"table": f"lake.{place.name}"}), settings=settings)

    def rows(place: Path) -> Rows:
        """By way of Spark, in a process of its own: which files count is in Avro."""
        out = place / "copied.jsonl"
        command = [sys.executable, "-m", "benchmarks.read_table", f"lake.{place.name}", str(out), json.dumps(settings)]
        subprocess.run(command, check=True, capture_output=True, cwd=_ROOT)
        return _counted("answers", map(json.loads, out.read_text().splitlines())) + rejects_of(place)

    return Trial("iceberg", "iceberg", folder, start, rows)


def delta_rows(table: Path) -> Rows:
    """The rows of a Delta table, by its log."""
    there: set[str] = set()
    for commit in sorted((table / "_delta_log").glob("*.json")):
        for action in map(json.loads, commit.read_text().splitlines()):
            there |= {action["add"]["path"]} if "add" in action else set()
            there -= {action["remove"]["path"]} if "remove" in action else set()
    files = [str(table / name) for name in sorted(there)]
    return _counted("answers", ds.dataset(files, format="parquet").to_table().to_pylist())


def _of_topics(folder: Path, sink: str) -> Trial:
    jars(CONNECTOR)
    broker = Broker(folder / "broker").start()
    kafka_job.write(session(), broker.servers)

    def undisturbed(place: Path) -> None:
        job = kafka_job.job_file(place, broker.servers, sink)
        jobs.run(jobs.load(job), session(), drain=True).awaitTermination()

    def start(place: Path) -> Job:
        kafka_job.job_file(place, broker.servers, sink)
        return Job(place, ["benchmarks.kafka_job", str(place), broker.servers, "run"])

    def rows(place: Path) -> Rows:
        if sink == "parquet":
            return rows_of(place)
        found = kafka_job.read(session(), broker.servers, kafka_job.topic_of(place))
        held = {value["message_id"]: value for _, value in found}
        say(f"{len(found) - len(held)} of {len(found)} messages came again")
        return _counted("answers", held.values(), without=("message_id", "batch_id")) + rejects_of(place)

    victims: list[Server] = [broker]
    return Trial(f"topics-{sink}", sink, folder, start, rows, victims=victims, owned=[broker], undisturbed=undisturbed)
