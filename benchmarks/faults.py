"""Kills: driver and JVM with `kill -9`, Python workers with `kill -9`, the job resumed each time.

Figures: ``kills`` made; ``lost`` and ``doubled`` rows of answers and rejects, against an undisturbed run.

``--quick`` kills ten times each, without it forty times. ``--window`` names the window of the join, ``--seed`` picks
other moments.
"""

from __future__ import annotations

import argparse
import atexit
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow.dataset as ds

from benchmarks.fault_job import WINDOWS, write_input
from benchmarks.harness import report, say, scratch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

_ROOT = Path(__file__).resolve().parent.parent
_PATIENCE = 180.0  # seconds without progress after which a job counts as stuck
_CLOSED = "was closed by a drain"


class Job:
    """One life of the job: a driver and its JVM in a process group of their own."""

    def __init__(self, source: Path, folder: Path, window: str) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._log = folder / "log"
        paths = os.pathsep.join([str(_ROOT / "src"), str(_ROOT)])
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.fault_job", str(source), str(folder), window],
                env=os.environ | {"PYTHONPATH": paths},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._born = self.commits
        atexit.register(self.kill)  # in a group of its own it would outlive us

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
        say(f"kill driver and JVM: {moment}, micro-batch {job.commits + 1}")
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
    say(f"kill workers: {which}, micro-batch {job.commits + 1}")
    return True


def run_to_end(live: Callable[[], Job], kills: list[str], random: Random) -> int:
    """Run the job to its end; make, and take from ``kills``, as many kills as there is time for, and count them.

    ``live`` starts it, or starts it again.
    """
    made = failed = 0
    job = live()
    while True:
        hurt = False
        while kills and (kill_driver if kills[0] == "driver" else kill_workers)(job, random):
            made += 1
            hurt = True
            if kills.pop(0) == "driver":
                failed += job.failed_tasks()
                job, hurt = live(), False
        job.until(lambda: False)
        failed += job.failed_tasks()
        if job.finished():
            say(f"{job.commits + 1} micro-batches, {made} kills, {failed} tasks failed")
            return made
        if not hurt:
            raise RuntimeError(f"the job failed: {job.last_words()}")
        say(f"resumed after: {job.last_words().splitlines()[-1]}")
        job = live()


def rows_of(folder: Path) -> Counter[Any]:
    """Answers and rejects of a run, each with how often it is there."""
    rows: Counter[Any] = Counter()
    for name in ("answers", "rejects"):
        # How late a row was depends on the cut into micro-batches, and a kill may move that.
        rows.update((name, *row) for row in _rows(ds.dataset(folder / name, format="parquet").to_table(), "detail"))
    return rows


def _rows(table: pa.Table, without: str) -> Iterator[tuple[Any, ...]]:
    columns = [
        column.to_pylist() for name, column in zip(table.column_names, table.columns, strict=True) if name != without
    ]
    for row in zip(*columns, strict=True):
        yield tuple(round(value, 6) if isinstance(value, float) else value for value in row)


def faults(folder: Path, window: str, kills: list[str], files: int, random: Random) -> Counter[str]:
    """Kills made, rows lost and doubled, over as many disturbed runs as the kills need."""
    source = folder / "in"
    write_input(source, files, 100, seed=5)
    begun = time.perf_counter()
    run_to_end(partial(Job, source, folder / "undisturbed", window), [], random)
    expected = rows_of(folder / "undisturbed")
    reasons = Counter(row[4] for row in expected if row[0] == "rejects")
    say(f"{window}: {len(expected)} rows in {time.perf_counter() - begun:.0f} s, rejects {dict(reasons)}")
    figures: Counter[str] = Counter(kills=0, lost=0, doubled=0)
    while kills:
        disturbed = folder / f"disturbed{figures['kills']}"
        figures["kills"] += run_to_end(partial(Job, source, disturbed, window), kills, random)
        found = rows_of(disturbed)
        figures["lost"] += (expected - found).total()
        figures["doubled"] += (found - expected).total()
    return figures


def main() -> None:
    """Kill, resume, compare, report."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="20 kills")
    options.add_argument("--json", action="store_true", help="print the figures as one JSON object, last")
    options.add_argument("--window", choices=[*WINDOWS, "both"], default="both")
    options.add_argument("--seed", type=int, default=1)
    asked = options.parse_args()
    windows = [*WINDOWS] if asked.window == "both" else [asked.window]
    each = (10 if asked.quick else 40) // len(windows)
    random = Random(asked.seed)  # noqa: S311 - moments, not secrets
    figures: Counter[str] = Counter()
    for window in windows:
        kills = ["driver", "worker"] * each
        random.shuffle(kills)
        with scratch() as folder:
            figures.update(faults(folder, window, kills, 40 // len(windows), random))
    report({name: figures[name] for name in ("kills", "lost", "doubled")}, as_json=asked.json)


if __name__ == "__main__":
    main()
