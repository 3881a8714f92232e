"""``appulse plan``: a table or JSON, and an exit code of its own for a job that does not fit."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from appulse.cli import app
from appulse.errors import JobError, StateLimit
from appulse.jobs.limits import bytes_of
from tests.engines.test_alerts import hook

if TYPE_CHECKING:
    from pathlib import Path

JOB = """\
checkpoint = "checkpoint"

[sources.fixes]
format = "parquet"
path = "fixes"
key = "k"
time = "t"
value = "x"

[self_join]
epsilon = 0.5
probability = 1.0
window = "20 seconds"

[sink]
format = "parquet"
path = "out"
"""
TOPIC = """\
format = "kafka"
servers = "nowhere:9092"
topics = ["fixes"]
schema = "k LONG, t DOUBLE, x DOUBLE"
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "fixes").mkdir()
    for i in range(4):
        n = np.arange(1_000 * i, 1_000 * (i + 1))
        pq.write_table(pa.table({"k": n, "t": n / 10, "x": n % 40 * 1.0}), tmp_path / "fixes" / f"{i}.parquet")
    file = tmp_path / "job.toml"
    file.write_text(JOB)
    return file


def appulse(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_job_is_planned_from_its_own_files(job: Path) -> None:
    done = appulse("plan", job, "--json", "--engine", "process")
    assert done.exit_code == 0, done.output
    plan = json.loads(done.stdout)
    assert plan["call"] == "self_join"
    assert plan["state_rows"] == 201
    assert plan["answers_per_second"] == pytest.approx(50, rel=0.05)
    table = appulse("plan", job)
    assert table.exit_code == 0
    assert "rows held" in table.output
    assert "281" in table.output  # some rows are in several tiles


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--memory", "100 MB"], "of memory"),
        (["--rate", "1e6", "--cores", "1"], "there is 1"),
        (["--rate", "fixes=1e6", "--cores", "1"], "there is 1"),
    ],
)
def test_a_job_that_does_not_fit_has_an_exit_code_of_its_own(job: Path, options: list[str], said: str) -> None:
    done = appulse("plan", job, *options)
    assert done.exit_code == 3
    assert said in done.output


def test_a_job_that_exceeds_its_limits_is_not_started(job: Path) -> None:
    job.write_text(JOB + '[limits]\nmemory = "100 MB"\n')
    done = appulse("run", job, "--once")
    assert done.exit_code == 3
    assert "needs more than its [limits]" in done.output
    assert not (job.parent / "checkpoint").exists()


def test_topics_are_planned_from_a_sample(job: Path) -> None:
    job.write_text(JOB.replace('format = "parquet"\npath = "fixes"\n', TOPIC))
    done = appulse("plan", job)
    assert done.exit_code == 2
    assert "--sample fixes=FILE" in done.output.replace("\n", " ")
    done = appulse("plan", job, "--sample", f"fixes={job.parent / 'fixes'}", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["state_rows"] == 281


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ("state_rows = 40", "only the hard limit state_rows = 40 holds"),
        ('memory = "1 MB"\nrate = 50.0', "no limit holds without state_rows"),
    ],
)
@pytest.mark.parametrize("source", ["topic", "empty folder", "delta"])
def test_a_job_that_cannot_be_planned_starts_with_a_warning(job: Path, source: str, limits: str, said: str) -> None:
    from rich.console import Console

    from appulse.cli.fitting import must_fit
    from appulse.jobs import load

    (job.parent / "empty").mkdir()
    files = 'format = "parquet"\npath = "fixes"\n'
    instead = {
        "topic": TOPIC,
        "empty folder": files.replace("fixes", "empty"),
        "delta": files.replace("parquet", "delta"),
    }
    job.write_text(f"{JOB.replace(files, instead[source])}[limits]\n{limits}\n")
    with (console := Console(soft_wrap=True)).capture() as shown:
        must_fit(load(job), console)
    assert said in shown.get()
    assert f"appulse plan {job} --sample fixes=FILE" in shown.get()
    done = appulse("plan", job, "--sample", f"fixes={job.parent / 'fixes'}")
    assert done.exit_code == 3  # the same limits


def test_the_hard_limit_of_a_job_over_messages_holds(job: Path) -> None:
    from appulse.jobs import load
    from appulse.jobs.resident import Resident

    files = 'format = "parquet"\npath = "fixes"\n'
    recorded = files.replace("fixes", "all.arrow").replace("parquet", "replay") + 'speed = "max"\n'
    rows = pa.concat_tables(pq.read_table(file) for file in sorted((job.parent / "fixes").iterdir()))
    with pa.OSFile(str(job.parent / "all.arrow"), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    job.write_text(f'engine = "local"\n{JOB.replace(files, recorded)}[limits]\nstate_rows = 150\n')
    with pytest.raises(StateLimit, match="state_rows = 150"):
        Resident(load(job)).run(once=True)
    done = appulse("run", job, "--once")
    assert done.exit_code == 1
    assert "Warning: " in done.output
    assert "has state_rows = 150" in done.output.replace("\n", " ")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--memory", "lots"], "wanted a size"),
        (["--rate", "quick"], "give rows a second"),
        (["--rate", "vans=3"], "rate= names 'vans'"),
        (["--rate", "-3"], "above 0"),
        (["--sample", "vans=x.parquet"], "not a source"),
        (["--sample", "fixes"], "NAME=FILE"),
        (["--engine", "flink"], "spark, or process|process, spark"),
    ],
)
def test_misuse_is_told(job: Path, options: list[str], said: str) -> None:
    done = appulse("plan", job, *options)
    assert done.exit_code == 2
    assert any(part in done.output.replace("\n", " ") for part in said.split("|"))


def test_rows_of_one_time_are_planned_by_a_rate(job: Path) -> None:
    for file in (job.parent / "fixes").iterdir():
        table = pq.read_table(file)
        pq.write_table(table.set_column(1, "t", pa.array([5.0] * len(table))), file)
    for command, limits in (("plan", ""), ("run", '[limits]\nmemory = "8 GB"\n')):
        job.write_text(JOB + limits)
        done = appulse(command, job)
        assert done.exit_code == 2
        assert "in a job file it is rate in [limits], at the command line --rate" in " ".join(done.output.split())
    done = appulse("plan", job, "--rate", "100", "--json", "--engine", "process")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["state_rows"] == pytest.approx(4_000)


def test_rows_without_a_time_are_not_planned_for(job: Path) -> None:
    pq.write_table(
        pa.table({"k": [0], "t": pa.array([None], pa.float64()), "x": [0.0]}), job.parent / "fixes" / "4.parquet"
    )
    assert json.loads(appulse("plan", job, "--json", "--engine", "process").stdout)["state_rows"] == 201


def test_sizes_are_read() -> None:
    sizes = {"8 GB": 8e9, "512 MiB": 512 * 2**20, "4g": 4e9, "100": 100, "1.5 kB": 1_500}
    assert {text: bytes_of(text) for text in sizes} == sizes


def test_a_job_in_process_that_holds_too_many_rows_ends(job: Path) -> None:
    from appulse.jobs import load
    from appulse.jobs.resident import Resident

    job.write_text(JOB.replace("checkpoint", "engine", 1).replace('"checkpoint"', '"local"', 1))
    text = job.read_text()
    job.write_text(text + "[limits]\nstate_rows = 150\n")
    assert appulse("plan", job).exit_code == 3
    with pytest.raises(StateLimit, match=r"rows, and \[limits\] has state_rows = 150"):
        Resident(load(job)).run(once=True)
    assert not list((job.parent / "out").glob("*.parquet"))


def test_a_job_in_process_posts_its_answers(job: Path) -> None:
    from appulse.jobs import load
    from appulse.jobs.resident import Resident

    with hook(lambda name, count: (500, {}) if count == 1 and name.endswith("-1") else (200, {})) as server:
        alert = f'[[alerts]]\nformat = "webhook"\nurl = "{server.url}"\nonly = {{ left_key = [5, 6] }}\n'
        job.write_text(JOB.replace("checkpoint", "engine", 1).replace('"checkpoint"', '"local"', 1) + alert)
        Resident(load(job)).run(drain=True)
        posted = [(body["left_key"], body["right_key"]) for body in server.bodies.values()]
        assert sorted(posted) == [(i, i + 40 * n) for i in (5, 6) for n in range(1, 6)]
        ids = set(server.taken)
        Resident(load(job)).run(drain=True)
        assert set(server.taken) == ids  # the same ones again
    job.write_text(job.read_text().replace("left_key", "lift_key"))
    with pytest.raises(JobError, match="only= names 'lift_key'"):  # before it runs
        load(job)


def test_a_job_that_serves_is_planned_in_process_and_not_started_beyond_its_limits(job: Path) -> None:
    job.write_text(JOB.replace("checkpoint", "engine", 1).replace('"checkpoint"', '"local"', 1))
    done = appulse("plan", job, "--json")
    assert json.loads(done.stdout)["engine"] == "process"
    job.write_text(job.read_text() + '[limits]\nmemory = "100 MB"\n')
    assert appulse("serve", job, "--once", "--no-page").exit_code == 3


def test_a_replay_is_planned_from_its_file(job: Path) -> None:
    file = job.parent / "all.parquet"
    pq.write_table(pq.read_table(job.parent / "fixes"), file)
    job.write_text(JOB.replace('format = "parquet"\npath = "fixes"', f'format = "replay"\npath = "{file}"\nspeed = 60'))
    done = appulse("plan", job, "--json", "--engine", "process")
    assert done.exit_code == 0, done.output
    needs = json.loads(done.stdout)
    assert needs["state_rows"] == 201
    assert needs["rate"] == pytest.approx(600, rel=0.01)


def _in_files(folder: Path, most: int, per_file: int, night: float) -> Path:
    """A job over files of an hour each, with a row of five things every ten seconds, and nights between them."""
    (folder / "fixes").mkdir()
    for i in range(24):
        n = np.arange(per_file)
        times = i * (3_600 + night) + n * 3_600 / per_file
        table = pa.table({"k": n % 5, "t": times, "x": n % 40 * 1.0})
        pq.write_table(table, folder / "fixes" / f"{i:02}.parquet")
        os.utime(folder / "fixes" / f"{i:02}.parquet", (1_700_000_000 + i, 1_700_000_000 + i))
    file = folder / "job.toml"
    file.write_text(JOB.replace('path = "fixes"\n', f'path = "fixes"\nmax_files_per_trigger = {most}\n'))
    return file


@pytest.mark.parametrize("night", [0.0, 36_000.0])
@pytest.mark.parametrize("most", [1, 4, 12])
def test_on_spark_the_rows_of_two_micro_batches_are_held(tmp_path: Path, most: int, night: float) -> None:
    per_file = 1_800
    plan = json.loads(appulse("plan", _in_files(tmp_path, most, per_file, night), "--json").stdout)
    held = 2 * most * per_file
    assert held <= plan["state_rows"] <= min(1.6 * held, 24 * per_file)  # some are in several tiles
    assert 30 < plan["state_bytes"] / plan["state_rows"] < 1_000


@pytest.mark.spark
@pytest.mark.parametrize("night", [0.0, 36_000.0])
def test_plans_for_spark_are_near_what_it_then_holds(tmp_path: Path, spark: Any, night: float) -> None:
    from appulse import jobs

    file = _in_files(tmp_path, 6, 300, night)
    plan = json.loads(appulse("plan", file, "--json").stdout)
    query = jobs.run(jobs.load(file), spark, once=True)
    query.awaitTermination()
    seen = [found for progress in query.recentProgress for found in progress["observedMetrics"].values()]
    for name, factor in (("state_rows", 1.5), ("state_bytes", 2.0)):  # of few rows most bytes are of arrays
        most = max(found.asDict()[name] or 0 for found in seen)
        assert most / factor <= plan[name] <= factor * most, (name, most, plan[name])
