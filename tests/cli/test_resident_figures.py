"""The figures of jobs in process: those that a job on Spark has, by the same names."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from appulse.cli.following import Tail
from appulse.cli.top import figures
from appulse.jobs import load
from appulse.jobs.resident import Resident, Summary
from tests.cli.test_cli import call

if TYPE_CHECKING:
    from pathlib import Path

JOB = """\
engine = "{engine}"
checkpoint = "state"
[sources.near]
format = "parquet"
path = "near"
schema = "id BIGINT, time TIMESTAMP, x DOUBLE, y DOUBLE"
key = "id"
time = "time"
lateness = "2 seconds"
value = {{ model = "Gaussian", columns = ["x", "y"], sigma = 0.5 }}
{more}
{call}
[sink]
format = "parquet"
path = "out"
[rejects]
format = "json"
path = "bad"
"""
MOTION = 'motion = { kind = "Straight", max_gap = "10 seconds" }'
CALLS = {
    "self_join": '[self_join]\nepsilon = 40.0\nprobability = 0.5\nwindow = "5 seconds"\n',
    "window_aggregate": '[window_aggregate]\nwindow = { tumbling = "5 seconds" }\naggregates = { x = "mean" }\n',
    "encounters": "[encounters]\nepsilon = 40.0\nprobability = 0.5\n",
}
BEHIND = 100


def make(folder: Path, name: str, engine: str = "local") -> Any:
    """A job over rows that end 100 seconds before now, and some that come late."""
    (folder / "near").mkdir(parents=True)
    more = MOTION if name == "encounters" else ""
    (folder / "job.toml").write_text(JOB.format(engine=engine, more=more, call=CALLS[name]), encoding="utf-8")
    return load(folder / "job.toml")


def put(job: Any, number: int, seconds: list[float]) -> None:
    newest = int(time.time()) - BEHIND
    n = len(seconds)
    columns = {
        "id": [i % 3 for i in range(n)],
        "time": pa.array([round((newest + at) * 1e6) for at in seconds], pa.timestamp("us", "UTC")),
        "x": [float(i % 5) for i in range(n)],
        "y": [0.0] * n,
    }
    pq.write_table(pa.table(columns), job.file.parent / "near" / f"{number}.parquet")


def lines(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def ran(job: Any) -> list[dict[str, Any]]:
    """The lines of two runs: rows in order, then rows that are late but two."""
    put(job, 0, [i - 30.0 for i in range(30)])
    done = [call("run", job.file, "--once", "--json")]
    put(job, 1, [-60.0, -61.0, -62.0, -0.5, 0.0])
    done.append(call("run", job.file, "--once", "--json"))
    assert [one.exit_code for one in done] == [0, 0], done[-1].output
    return [line for one in done for line in lines(one.stdout)]


@pytest.mark.parametrize("name", CALLS)
def test_a_job_in_process_has_its_lag_and_its_late_rows(tmp_path: Path, name: str) -> None:
    job = make(tmp_path / "job", name)
    found = ran(job)
    assert [line["metrics"]["late"] for line in found] == [0, 3]
    assert [line["metrics"]["rejected"] for line in found] == [0, 3]
    for line, newest in zip(found, (-1.0, 0.0), strict=True):
        assert BEHIND - newest <= line["lag_seconds"] < BEHIND - newest + 30
        assert datetime.fromisoformat(line["event_time"]).tzinfo == UTC
    if name != "window_aggregate":
        assert found[0]["metrics"]["candidates"] > 0
    known = figures(Tail(tmp_path / "job" / "state.progress.jsonl").look())
    assert (known["late"], known["event_time"]) == (3, found[1]["event_time"])
    assert known["lag_seconds"] == found[1]["lag_seconds"]
    assert "behind" in call("top", job.file, "--once").output


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("name", ["self_join", "window_aggregate"])
def test_both_engines_have_the_same_figures(tmp_path: Path, name: str) -> None:
    known = {engine: ran(make(tmp_path / engine, name, engine)) for engine in ("local", "spark")}
    sums = {
        engine: {key: sum(int(line["metrics"].get(key) or 0) for line in found) for key in ("late", "rejected")}
        for engine, found in known.items()
    }
    assert sums["local"] == sums["spark"] == {"late": 3, "rejected": 3}
    for found in known.values():
        times = [line["event_time"] for line in found if line["input_rows"]]
        assert [len(one) for one in times] == [len("2026-01-01T00:00:00.000Z")] * 2
        lags = [line["lag_seconds"] for line in found if line["input_rows"]]
        assert all(BEHIND - 1 < lag < BEHIND + 60 for lag in lags)


def test_figures_of_a_restart_are_those_of_new_rows(tmp_path: Path) -> None:
    """What is done again with the log was counted in its time."""
    job = make(tmp_path / "job", "self_join")
    put(job, 0, [i - 30.0 for i in range(30)])
    seen: list[Summary] = []
    Resident(job, on_write=seen.append).run(once=True)
    put(job, 1, [0.0])
    Resident(job, on_write=seen.append).run(once=True)
    assert [summary.rows for summary in seen] == [30, 1]
    assert seen[1].figures["candidates"] < 10 < seen[0].figures["candidates"]


@pytest.mark.parametrize(
    ("times", "unit", "wanted"),
    [
        (pa.array([1.5, float("nan"), 4.25]), "s", "1970-01-01T00:00:04.250Z"),
        (pa.array([20_000, 20_001], pa.date32()), "s", "2024-10-05T00:00:00.000Z"),
        (pa.array([1_750_000_000_123_456_789], pa.timestamp("ns", "UTC")), "s", "2025-06-15T15:06:40.123Z"),
        (pa.array([1 << 58]), "us", None),
    ],
)
def test_times_of_any_type_have_a_newest(tmp_path: Path, times: pa.Array, unit: str, wanted: str | None) -> None:
    job = make(tmp_path / "job", "window_aggregate")
    text = job.file.read_text().replace('time = "time"', f'time = "time"\nunit = "{unit}"')
    job.file.write_text("\n".join(line for line in text.splitlines() if not line.startswith("schema")))
    n = len(times)
    rows = pa.table({"id": [1] * n, "time": times, "x": [0.0] * n, "y": [0.0] * n})
    pq.write_table(rows, tmp_path / "job" / "near" / "0.parquet")
    seen: list[Summary] = []
    Resident(load(job.file), on_write=seen.append).run(once=True)
    assert [summary.newest for summary in seen] == [wanted]
    assert (seen[0].lag is None) == (wanted is None or wanted < "1971")


def test_rows_from_the_future_are_no_newest_event(tmp_path: Path) -> None:
    job = make(tmp_path / "job", "self_join")
    put(job, 0, [90_000.0])
    seen: list[Summary] = []
    Resident(job, on_write=seen.append).run(once=True)
    put(job, 1, [0.0, 90_000.0])
    Resident(job, on_write=seen.append).run(once=True)
    assert [summary.rejected for summary in seen] == [1, 1]
    assert seen[0].lag is None
    assert seen[1].lag is not None
    assert seen[1].lag > 0


def test_pairs_that_left_are_counted(tmp_path: Path) -> None:
    job = make(tmp_path / "job", "self_join")
    job.file.write_text(job.file.read_text().replace("[self_join]", '[self_join]\nemit = "changes"'))
    put(job, 0, [i - 30.0 for i in range(30)])
    seen: list[Summary] = []
    Resident(load(job.file), on_write=seen.append).run(once=True)
    assert 0 < seen[0].figures["left"] < seen[0].answers
