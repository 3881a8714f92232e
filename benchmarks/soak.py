"""Jobs over time: a soak with bursts, a sink of many files, a worker that has nothing yet, old checkpoints."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median, quantiles
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

import appulse as ap
from appulse.engines.packing import pack, settings_of
from appulse.engines.spark.file_sink import FileSink
from benchmarks.fault_job import write_input
from benchmarks.harness import say, uniform_points
from benchmarks.servers import HOST, Cluster, Unavailable, wait_until
from tests.fixtures import checkpoints

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

Figures = dict[str, float | None]
_FILES = 100_000
_BATCHES = 15
_EVERY = 0.5  # seconds between files that are fed
_LOAD, _BURST = 0.8, 3.0  # of the capacity; of the load
_SIDE, _EPSILON = 100.0, 1.0
_ROOT = Path(__file__).resolve().parent.parent


def batch_cost_with_many_files(folder: Path) -> Figures:
    """The time of a batch into a folder with 100,000 files over that into an empty one, both in turns."""
    spark = ap.session(2)
    frame = spark.range(2000, numPartitions=2).selectExpr("id AS left_key", "id / 7 AS probability").persist()
    places = {"empty": folder / "empty", "full": folder / "full"}
    for place in places.values():
        place.mkdir()
    sinks = {name: FileSink("parquet", {}, str(place), "beef") for name, place in places.items()}
    for sink in sinks.values():  # the first batch of a query looks for what was left behind
        sink.write(frame, 0, lambda: True, lambda: 2000)
    for i in range(_FILES):
        (places["full"] / f"batch-feed-{i:010d}-part-00000.parquet").touch()
    seconds: dict[str, list[float]] = {name: [] for name in places}
    for number in range(1, _BATCHES):
        for name, sink in sinks.items():
            begun = time.perf_counter()
            sink.write(frame, number, lambda: True, lambda: 2000)
            seconds[name].append(time.perf_counter() - begun)
    frame.unpersist()
    cost = {name: median(several) for name, several in seconds.items()}
    say(f"a batch into an empty folder {cost['empty']:.3f} s, beside {_FILES:,} files {cost['full']:.3f} s")
    return {"batch_cost_with_100k_files": cost["full"] / cost["empty"]}


def upgrade(folder: Path) -> Figures:
    """Whether the checkpoints that every older format left go on exactly."""
    spark = ap.session(2)
    resumed = True
    for archive in sorted((_ROOT / "tests" / "fixtures").glob("checkpoints-[3-9].tar.gz")):
        place = folder / archive.name.partition(".")[0]
        checkpoints.unpacked(archive, place)
        for job in ("counted", "sensors", "queries"):
            before = json.loads((place / job / "answers.json").read_text())
            after = checkpoints.run(spark, job, place / job, 1, drain=True)
            whole, without = checkpoints.unbroken(job), "probability"
            # Probabilities that older versions took from points are exact now: those before are not compared.
            goes_on = _rounded(after) <= _rounded(whole)
            goes_on = goes_on and _rounded([*before, *after], without) == _rounded(whole, without)
            say(f"{archive.name}, {job}: {len(before)} answers before, {len(after)} after, {goes_on}")
            resumed = resumed and goes_on
    return {"upgrade_resumes": float(resumed)}


def _rounded(rows: list[str], without: str = "") -> Counter[str]:
    found: Counter[str] = Counter()
    for row in map(json.loads, rows):
        plain = {n: round(value, 9) if isinstance(value, float) else value for n, value in row.items()}
        found[json.dumps({n: v for n, v in plain.items() if n != without}, sort_keys=True)] += 1
    return found


def first_batch_of_fresh_worker(folder: Path) -> Figures:
    """From the start of an executor, on a worker that has nothing of ours, to the first commit of a join."""
    archive = folder / "appulse.tar.gz"
    say(f"an archive of {pack(archive) / 2**20:.0f} MiB")
    write_input(folder / "in", 1, 100, seed=5)  # what comes after the first is not asked for
    try:
        with Cluster(folder / "cluster", workers=1) as cluster:
            run_on(cluster, archive, folder / "in", folder / "job", "count", first_batch=True)
    except Unavailable as reason:
        say(f"no cluster: {reason}")
        return {"first_batch_fresh_worker_s": None}
    started = min(place.stat().st_ctime for place in (folder / "cluster" / "worker0").glob("born-*"))
    return {"first_batch_fresh_worker_s": (folder / "job" / "checkpoint" / "commits" / "0").stat().st_mtime - started}


def run_on(
    cluster: Cluster, archive: Path, source: Path, folder: Path, kind: str, *, first_batch: bool = False
) -> None:
    """A job of `benchmarks.fault_job` on a cluster, whose workers have appulse from an archive alone.

    To its end, or until its first micro-batch is committed.
    """
    settings = settings_of(archive) | {
        "spark.master": cluster.master,
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.executor.memory": "700m",
    }
    command = [sys.executable, "-m", "benchmarks.fault_job", str(source), str(folder), kind]
    command.append(json.dumps({"settings": settings}))
    log, committed = folder.with_suffix(".log"), folder / "checkpoint" / "commits" / "0"
    done = Event()
    watching = Thread(target=_note_births, args=(cluster, done))
    watching.start()
    with log.open("w") as out:
        run = subprocess.Popen(command, cwd=_ROOT, stdout=out, stderr=out, start_new_session=True)
    try:
        while run.poll() is None and not (first_batch and committed.exists()):
            time.sleep(0.1)
    finally:
        done.set()
        watching.join()
        if stopped := run.poll() is None:
            os.killpg(run.pid, signal.SIGTERM)  # driver and executors remove their copies of the archive
            run.wait()
            with suppress(TimeoutError):
                wait_until(lambda: not any(any(worker.folder.glob("work/app-*")) for worker in cluster.workers))
            with suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
    if run.returncode and not stopped:
        raise RuntimeError(f"the job failed on the cluster: {log.read_text(errors='replace')[-3000:]}")


def _note_births(cluster: Cluster, done: Event) -> None:
    """Leave a file for each executor that a worker starts: its own folder goes with the application."""
    seen: set[str] = set()
    while not done.wait(0.05):
        for worker in cluster.workers:
            for place in (worker.folder / "work").glob("app-*/*"):
                name = f"{place.parent.name}-{place.name}"
                if name not in seen:
                    seen.add(name)
                    (worker.folder / f"born-{name}").touch()


@dataclass
class _Watch:
    """What a soaking job has taken in, and what it holds, sample by sample."""

    fed: int = 0
    done: int = 0
    lags: list[tuple[float, int]] = field(default_factory=list)
    held: list[tuple[float, float]] = field(default_factory=list)  # bytes of workers, and of the heap


def soak(folder: Path, seconds: float) -> Figures:
    """A self-join fed at a share of its capacity, with bursts; whether lag returns, and how memory grows."""
    spark = ap.session(2)
    rate = _LOAD * _capacity(spark, folder / "capacity")
    watch = _Watch()
    place = folder / "soak"
    (place / "in").mkdir(parents=True)
    with ap.listen(spark, on_batch=lambda figures: _took(watch, figures)):
        query = _started(spark, place)
        begun = time.monotonic()
        number = 0
        while (now := time.monotonic() - begun) < seconds:
            # At the beginning of every quarter: 5 % of the time.
            burst = (now % (seconds / 4)) < seconds / 80
            rows = int(rate * _EVERY * (_BURST if burst else 1.0))
            _feed(place / "in", number, rows, watch)
            number += 1
            watch.lags.append((now, watch.fed - watch.done))
            if number % 10 == 0:
                watch.held.append(_memory(spark))
            time.sleep(max(0.0, begun + number * _EVERY - time.monotonic()))
        left = watch.fed - watch.done
        query.stop()
    recovered = left <= 5 * rate  # what is in flight: rows of five seconds
    held = [[sample[i] for sample in watch.held] for i in range(2)]
    growth, by_means = ([_growth(samples, of) for samples in held] for of in (_lower_quartile, mean))
    say(
        f"{rate:,.0f} rows/s, {watch.fed:,} fed, {left:,} left, most {max(lag for _, lag in watch.lags):,}; "
        f"workers grew by {growth[0]:.3f}, the heap by {growth[1]:.3f}; by means {by_means[0]:.3f}, {by_means[1]:.3f}"
    )
    return {"soak_lag_recovered": float(recovered), "soak_rss_growth": max(growth)}


def _growth(samples: list[float], of: Callable[[list[float]], float]) -> float:
    """The second half over the first; the first tenth, in which code is compiled and caches fill, left out."""
    samples = samples[len(samples) // 10 :]
    half = len(samples) // 2
    return of(samples[half:]) / of(samples[:half])


def _lower_quartile(samples: list[float]) -> float:
    """What stays: other samples hold buffers of files that are being written, by chance more of one half."""
    return quantiles(samples, n=4)[0]


def _took(watch: _Watch, figures: dict[str, Any]) -> None:
    watch.done += int(figures["input_rows"])


def _started(spark: SparkSession, place: Path) -> Any:
    rows = spark.readStream.schema("id long, ts timestamp, x double, y double").parquet(str(place / "in"))
    sinks = [("parquet", {"path": str(place / name)}) for name in ("answers", "rejects")]
    return ap.start(_joined(rows), *sinks, checkpoint=str(place / "checkpoint"))


def _joined(rows: DataFrame) -> DataFrame:
    stream = ap.Stream(rows, key="id", time="ts", value=ap.Gaussian("x", "y", sigma=0.1), lateness="2 seconds")
    joined: DataFrame = ap.self_join(stream, epsilon=_EPSILON, probability=0.5, window=ap.TimeWindow(5))
    return joined


def _feed(folder: Path, number: int, rows: int, watch: _Watch) -> None:
    table = uniform_points(np.random.default_rng(number), rows, rows / _EVERY, _SIDE, watch.fed)
    now = int(time.time() * 1e6)
    stamps = pa.array(np.linspace(now - _EVERY * 1e6, now, rows).astype(np.int64)).cast(pa.timestamp("us", "UTC"))
    table = table.set_column(1, "ts", stamps)
    pq.write_table(table, folder / f".{number}")
    os.rename(folder / f".{number}", folder / f"{number:06}.parquet")  # noqa: PTH104 - as one step
    watch.fed += rows


def _capacity(spark: SparkSession, place: Path) -> float:
    """Rows a second of the same job at full speed, its start not counted."""
    (place / "in").mkdir(parents=True)
    watch = _Watch()
    for number in range(40):
        _feed(place / "in", number, 2000, watch)
    took: list[tuple[float, int]] = []
    with ap.listen(spark, on_batch=lambda figures: took.append((figures["batch_seconds"], figures["input_rows"]))):
        rows = spark.readStream.schema("id long, ts timestamp, x double, y double")
        frame = rows.option("maxFilesPerTrigger", 4).parquet(str(place / "in"))
        sinks = [("parquet", {"path": str(place / name)}) for name in ("answers", "rejects")]
        start: Any = ap.start(
            _joined(frame), *sinks, checkpoint=str(place / "checkpoint"), trigger={"availableNow": True}
        )
        start.awaitTermination()
    warm = [(seconds, rows) for seconds, rows in took[2:] if rows]
    return sum(rows for _, rows in warm) / sum(seconds for seconds, _ in warm)


def _memory(spark: SparkSession) -> tuple[float, float]:
    """Bytes of the Python workers, and of the heap after a collection."""
    gc.collect()
    jvm: Any = spark._jvm  # noqa: SLF001
    jvm.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    heap = float(runtime.totalMemory() - runtime.freeMemory())
    workers = 0
    for process in psutil.Process().children(recursive=True):
        try:
            if "appulse.engines.spark.daemon" in process.cmdline():
                workers += process.memory_info().rss
        except psutil.Error:
            continue
    return float(workers), heap
