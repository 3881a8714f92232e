"""Replay: every row once, in order of time, when it is due by its own time."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import appulse as ap
from appulse.api.replaying import Pace, Recording

if TYPE_CHECKING:
    from pathlib import Path

ROWS = pa.table({"k": ["a", "b", "a", "c"], "t": [2.0, 0.5, 0.5, 1.0], "x": [1, 2, 3, 4]})


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("ending", ["parquet", "csv", "json", "jsonl", "arrow", "feather"])
def test_files_come_in_order_of_time(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"rows.{ending}"
    if ending == "parquet":
        pq.write_table(ROWS, file)
    elif ending == "csv":
        pa.csv.write_csv(ROWS, file)
    elif ending in ("arrow", "feather"):
        pa.feather.write_feather(ROWS, file)
    else:
        file.write_text("\n".join(str(row).replace("'", '"') for row in ROWS.to_pylist()), encoding="utf-8")
    for path in (file, str(file), tmp_path):
        found = pa.Table.from_batches(list(ap.replay(path, time="t", speed="max")))
        assert found["x"].to_pylist() == [2, 3, 4, 1]
    later = ap.replay(file, time="t", speed="max", rows=2, skip=1)
    assert [row["x"] for batch in later for row in batch.to_pylist()] == [3, 4, 1]


times = st.one_of(st.none(), st.floats(0, 20), st.just(float("nan")))


@settings(max_examples=60, deadline=None)
@given(st.lists(times, max_size=12), st.sampled_from([0.5, 1.0, 60.0]), st.integers(1, 4))
def test_each_row_comes_once_when_it_is_due(given: list[float | None], speed: float, most: int) -> None:
    """Against a walk over the rows one by one; rows without a time come with the one before."""
    table = pa.table({"t": pa.array(given, pa.float64()), "i": np.arange(len(given))})
    recording, clock = Recording.of(table, "t", "s"), Clock()
    pace = Pace(speed, clock.sleep, clock)
    came: list[tuple[int, float]] = []
    at = 0
    if len(recording):
        pace.begin(int(recording.due[0]))
    while at < len(recording):
        pace.wait_for(int(recording.due[at]))
        part = recording.until(at, max(pace.now(), int(recording.due[at])), most)
        assert 1 <= len(part) <= most
        at += len(part)
        came += [(i, clock.now - 100.0) for i in part["i"].to_pylist()]
    due, last = [], None
    for value in given:
        last = last if value is None or math.isnan(value) else value
        due.append(last)
    first = next((value for value in due if value is not None), 0.0)
    filled = [first if value is None else value for value in due]
    order = sorted(range(len(given)), key=lambda i: round(filled[i] * 1e6))  # times go by microseconds
    assert [i for i, _ in came] == order
    least = min(filled, default=0.0)
    for i, moment in came:
        assert moment >= (filled[i] - least) / speed - 1e-5
        assert moment <= (filled[i] - least) / speed + 0.011 * len(given) + 1e-5


def test_the_clock_of_the_rows_is_kept_also_where_batches_are_taken_slowly() -> None:
    table = pa.table({"t": np.arange(0.0, 0.6, 0.01)})
    begun, batches = time.monotonic(), []
    for batch in ap.replay(table, time="t", speed=1.0):
        batches.append(len(batch))
        time.sleep(0.05)
    assert time.monotonic() - begun >= 0.59
    assert sum(batches) == 60
    assert len(batches) < 20  # those that came due meanwhile are in one


def test_what_cannot_be_replayed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("t\n1\n", encoding="utf-8")
    (tmp_path / "notes.txt").write_text("x", encoding="utf-8")

    def refused(frame: Any, **more: Any) -> str:
        with pytest.raises(ap.BadArgument) as error:
            ap.replay(frame, **{"time": "t", **more})
        return str(error.value)

    assert "Known: .parquet" in refused(tmp_path / "notes.txt")
    assert "files of one kind" in refused(tmp_path)
    assert "has no files" in refused(tmp_path / "b.csv")
    assert "no column 'when'" in refused(tmp_path / "a.csv", time="when")
    assert "Give a path" in refused(7)
    assert "speed" in refused(ROWS, speed=0)


def test_files_of_a_recording_have_the_types_of_the_first(tmp_path: Path) -> None:
    times = pa.array([1_000_000], pa.timestamp("us"))
    pq.write_table(pa.table({"at": times, "x": [1.5]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"at": times, "x": pa.array([2], pa.int32())}), tmp_path / "b.parquet")
    found = pa.Table.from_batches([*ap.replay(tmp_path, time="at", speed="max")])
    assert found["x"].to_pylist() == [1.5, 2.0]
    pq.write_table(pa.table({"at": [1_700_000_000], "x": [1.5]}), tmp_path / "c.parquet")
    with pytest.raises(ap.BadArgument, match=r"c.parquet cannot be read: its column at is int64"):
        ap.replay(tmp_path, time="at")
    pq.write_table(pa.table({"at": times, "X": [1.5]}), tmp_path / "c.parquet")
    with pytest.raises(ap.BadArgument, match=r"c.parquet cannot be read: its column X is x in the schema"):
        list(ap.replay(tmp_path, time="at"))
