"""A cluster of two workers that have nothing of ours: they run from an archive, and lose an executor on the way."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING

import psutil
import pytest

from appulse.engines.packing import pack
from benchmarks.fault_job import result, start, write_input
from benchmarks.fault_trials import rows_of
from benchmarks.servers import Cluster, wait_until
from benchmarks.soak import run_on

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

KINDS = ("count", "queries", "sensors")


def executors(cluster: Cluster) -> list[psutil.Process]:
    """The processes of executors on the workers of a cluster."""
    homes = {str(worker.folder) for worker in cluster.workers}
    found = []
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in command and _home(process) in homes:
            found.append(process)
    return found


def _home(process: psutil.Process) -> str:
    try:
        return str(process.environ().get("HOME", ""))
    except psutil.Error:
        return ""


@pytest.mark.long
def test_jobs_on_a_cluster_answer_as_here(spark: SparkSession, tmp_path: Path) -> None:
    write_input(tmp_path / "in", 6, 60, seed=4)
    archive = tmp_path / "appulse.tar.gz"
    pack(archive)
    lost: list[int] = []

    def lose_one(cluster: Cluster, folder: Path) -> None:
        wait_until(lambda: list(folder.glob("checkpoint/commits/[0-9]*")), patience=300)
        for process in executors(cluster)[:1]:
            process.kill()
            lost.append(process.pid)

    with Cluster(tmp_path / "cluster") as cluster:
        for kind in KINDS:
            killing = Thread(target=lose_one, args=(cluster, tmp_path / kind))
            if kind == "count":
                killing.start()
            run_on(cluster, archive, tmp_path / "in", tmp_path / kind, kind)
    assert len(lost) == 1
    for kind in KINDS:
        here = tmp_path / f"{kind}-here"
        start(result(spark, tmp_path / "in", kind), here, drain=True).awaitTermination()
        assert rows_of(tmp_path / kind) == rows_of(here)
        assert sum(rows_of(here).values()) > 50
