"""Recordings that Spark reads as files: each row once and in order, however often their writer is stopped."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from appulse import jobs
from appulse.errors import JobError, StorageError
from appulse.jobs.feeding import Feeder
from appulse.model.defects import UNDECODED, shown_values

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """\
[sources.{name}]
format = "replay"
path = "{path}"
speed = {speed}
{more}
"""
PLACE = 'key = "id"\ntime = "time"\nvalue = { model = "Gaussian", columns = ["x", "y"], sigma = 0.5 }'
SHIPS = 'decode = "ais"\nkey = "mmsi"\ntime = "time"\nvalue = { model = "Position", lat = "lat", lon = "lon" }'
JOIN = """\
[{join}]
epsilon = 2.0
probability = 0.5
window = "5 seconds"
[sink]
format = "parquet"
path = "out"
"""


def rows(seed: int, n: int = 40) -> pa.Table:
    chance = np.random.default_rng(seed)
    time = np.sort(chance.integers(0, 20, n)) * 0.5
    return pa.table({"id": np.arange(n), "time": time, "x": chance.uniform(0, 10, n), "y": chance.uniform(0, 10, n)})


def job_of(folder: Path, speed: Any) -> jobs.Job:
    text = 'checkpoint = "checkpoint"\n'
    for i, name in enumerate(("near", "far")):
        pq.write_table(rows(i), folder / f"{name}.parquet")
        text += SOURCE.format(name=name, path=f"{name}.parquet", speed=speed, more=PLACE)
    (folder / "job.toml").write_text(text + JOIN.format(join="similarity_join"))
    return jobs.load(folder / "job.toml")


def feeder_of(job: jobs.Job) -> Feeder:
    return Feeder(job, dict(job.table.sources), str(job.checkpoint))  # type: ignore[arg-type]


def fed(feeder: Feeder, name: str) -> pa.Table:
    files = sorted(feeder.folders[name].glob("[0-9]*.parquet"))
    return pa.concat_tables([pq.read_table(file) for file in files])


@pytest.mark.parametrize("seed", range(6))
def test_rows_come_once_and_in_order_whenever_it_is_stopped(tmp_path: Path, seed: int) -> None:
    chance = np.random.default_rng(seed)
    job = job_of(tmp_path, 1.0)
    known = -1
    while known < 80:  # each round is a run that is stopped
        feeder = feeder_of(job)
        clock = [0.0]
        feeder._recorded.pace._watch = partial(clock.__getitem__, 0)
        feeder._recorded.begin({})
        for _ in range(chance.integers(1, 4)):
            clock[0] += float(chance.uniform(0.0, 2.0))
            feeder._write()
        lost = max(feeder.folders["far"].glob("[0-9]*.parquet"))
        if chance.random() < 0.5 and lost.stem != "0" * 12:  # died before its last file had its name
            lost.rename(lost.with_name(f".{lost.name}"))
        known = sum(len(fed(feeder, name)) for name in ("near", "far"))
    for i, name in enumerate(("near", "far")):
        assert fed(feeder, name).drop([UNDECODED]).equals(rows(i))


def test_rows_come_when_they_are_due(tmp_path: Path) -> None:
    feeder = feeder_of(job_of(tmp_path, 10))  # 10 seconds in one
    failed: list[Exception] = []
    begun = time.monotonic()
    feeder.start(failed.append)
    while len(fed(feeder, "near")) < 40:
        assert time.monotonic() < begun + 60
        time.sleep(0.02)
    assert time.monotonic() - begun > 0.8
    feeder.close()
    assert not failed


def test_lines_that_are_none_are_in_a_column_of_their_own(tmp_path: Path) -> None:
    pytest.importorskip("pyais")
    good = r"\c:1452604327*5A\!AIVDM,1,1,,B,177KQJ5000G?tO`K>RA1wUbN0TKH,0*5C"
    (tmp_path / "lines.nmea").write_text(f"{good}\n!AIVDM,1,1,,B,nonsense,0*00\n")
    source = SOURCE.format(name="ships", path="lines.nmea", speed='"max"', more=SHIPS)
    (tmp_path / "job.toml").write_text('checkpoint = "checkpoint"\n' + source + JOIN.format(join="self_join"))
    feeder = feeder_of(jobs.load(tmp_path / "job.toml"))
    feeder.all()
    feeder_of(jobs.load(tmp_path / "job.toml")).all()  # nothing is written twice
    found = fed(feeder, "ships").to_pylist()
    assert [row["mmsi"] for row in found] == [477553000, None]
    assert found[0][UNDECODED] is None
    assert found[1][UNDECODED]["payload"].startswith("!AIVDM,1,1,,B,nonsense")
    assert found[1][UNDECODED]["detail"]
    assert shown_values(fed(feeder, "ships"), ["mmsi"], pa.array([1])) == [
        "!AIVDM,1,1,,B,nonsense,0*00"
    ]  # as in process


def test_what_fails_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(tmp_path, 1.0)
    with pytest.raises(JobError, match="is not on this machine"):
        Feeder(job, dict(job.table.sources), "s3://bucket/checkpoint")  # type: ignore[arg-type]
    feeder = feeder_of(job)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq, "write_table", full)
    failed: list[Exception] = []
    feeder.start(failed.append)
    while not failed:
        time.sleep(0.01)
    feeder.close()
    assert isinstance(failed[0], StorageError)
    assert "No space left" in str(failed[0])
