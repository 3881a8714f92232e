"""Checkpoints of jobs in process: whatever crashes, the rows that are written are those of a run that never did."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import appulse as ap
from appulse import jobs
from appulse.connect.recorded import Recorded
from appulse.engines import frozen
from appulse.engines import saving as states
from appulse.jobs import saver as saving
from appulse.jobs.resident import Resident
from appulse.operators.output import Output
from tests.cli.test_resident import SINKS, rows, written

SOURCE = """\
[sources.{name}]
format = "replay"
path = "{name}.parquet"
speed = "max"
key = "id"
time = "time"
lateness = "2 seconds"
value = {value}
{more}
"""
NORMAL = '{ model = "Gaussian", columns = ["x", "y"], sigma = 0.5 }'
HOLES = '{ model = "Incomplete", columns = ["x", "y"] }'
#: Rows of the log are their state.
BY_ROWS = (
    "join",
    "left join",
    "changes",
    "nearest",
    "outliers",
    "imputer",
    "queries",
)  # rows of the log are their state
MOTION = 'motion = { kind = "Straight", max_gap = "10 seconds" }'
SMALL: Any = {"epsilon": 1, "probability": 0.5, "window": ap.CountWindow(3)}
TIME = '"3 seconds"'
FILLED = '[imputer]\nkind = "NearestImputer"\nk = 3\nrepository = { format = "parquet", path = "history.parquet" }\n'
LAZILY = """\
[imputer]
kind = "DependencyImputer"
repository = { format = "parquet", path = "history.parquet" }
[[imputer.dependency]]
determinants = { y = 1.0 }
dependent = "x"
tolerance = 1.0
"""
REGIONS = """\
[phenomena]
within = 1.5
strength = 2
span = "8 seconds"
min_sensors = 2
reach = 3.0
locations = { format = "parquet", path = "places.parquet" }
"""
JOIN = '[similarity_join]\nepsilon = 2.0\nprobability = 0.5\nwindow = "3 seconds"\n'
FEW = '[outliers]\nepsilon = 3.0\nfewer_than = 2\nprobability = 0.5\nwindow = "3 seconds"\n'
OPERATORS = {
    "join": (JOIN, 2, ""),
    "left join": (JOIN + 'how = "left"\n', 2, ""),
    "changes": (JOIN + 'emit = "changes"\n', 2, ""),
    "nearest": ('[nearest]\nepsilon = 3.0\nwindow = "3 seconds"\n', 2, ""),
    "aggregate": ('[window_aggregate]\nwindow = "5 seconds"\naggregates = { x = "mean" }\n', 1, ""),
    "assign": ('[assign]\nepsilon = 3.0\nprobability = 0.1\nwindow = { tumbling = "5 seconds" }\n', 2, ""),
    "queries": ('[match_queries]\nprobability = 0.5\nconditions = { east = "x > 5" }\n', 1, ""),
    "fences": ("[fence_events.regions]\nbox = 'POLYGON((2 2, 8 2, 8 8, 2 8, 2 2))'\n", 1, ""),
    "outliers": (FEW, 1, ""),
    "windows": (
        '[match_queries]\nprobability = 0.5\nconditions = { up = "near.x <= far.x WITHIN 1 SECONDS" }\n',
        2,
        "",
    ),
    "encounters": ("[encounters]\nepsilon = 1.0\nprobability = 0.5\n", 1, MOTION),
    "count windows": (JOIN.replace(TIME, "{ count = 5 }"), 2, ""),
    "left join of count windows": (JOIN.replace(TIME, "{ count = 5 }") + 'how = "left"\n', 2, ""),
    "nearest under count windows": ("[nearest]\nepsilon = 3.0\nwindow = { count = 5 }\n", 2, ""),
    "nearest with withdrawals": ('[nearest]\nepsilon = 3.0\nwindow = "3 seconds"\n', 2, 'change = "op"'),
    "outliers with withdrawals": (FEW, 1, 'change = "op"'),
    "uncertain windows": (
        JOIN.replace(TIME, "{ uncertain_count = 4, confidence = 0.9 }"),
        2,
        'existence = "p"',
    ),
    "changes of delta windows": (
        JOIN.replace(TIME, '{ delta = "x", bound = 4.0 }') + 'emit = "changes"\n',
        2,
        "",
    ),
    "imputer": (JOIN + FILLED, 2, ""),
    "imputer under count windows": (JOIN.replace(TIME, "{ count = 5 }") + FILLED, 2, ""),
    "lazy imputer": (JOIN + LAZILY, 2, ""),
    "lazy imputer under count windows": (JOIN.replace(TIME, "{ count = 5 }") + LAZILY, 2, ""),
    "withdrawals": (JOIN, 2, 'change = "op"'),
    "withdrawals under count windows": (JOIN.replace(TIME, "{ count = 5 }"), 2, 'change = "op"'),
    "sensors": ('[sensor_join]\nwithin = 1.0\nwindow = "5 seconds"\n', 1, ""),
    "sensors by slope": (
        '[sensor_join]\nwithin = 0.4\nwindow = "9 seconds"\nsimilar = "slope"\nover = "8 seconds"\n',
        1,
        "",
    ),
    "phenomena": (REGIONS, 1, ""),
    "phenomena in bins": (REGIONS.replace("within = 1.5", "resolution = 3.0"), 1, ""),
}


class CrashError(Exception):
    """The process is gone."""


def corrected(table: pa.Table, *, holes: bool, withdrawals: bool) -> pa.Table:
    """The rows out of order, with how likely they exist; some have holes, or are withdrawn a little later."""
    i = np.arange(len(table))
    if holes:
        x = np.where(i % 11 == 7, np.nan, table["x"].to_numpy())
        table = table.set_column(table.column_names.index("x"), "x", pa.array(x))
    table = table.append_column("p", pa.array(0.3 + i % 3 * 0.3))
    later = i // 2 * 2 - i % 2 * 1.5
    again = table.filter(pa.array(i % 5 == 1)) if withdrawals else table.slice(0, 0)
    op = pa.array(["add"] * len(table) + ["remove"] * len(again))
    both = pa.concat_tables([table, again]).append_column("op", op)
    return both.take(pa.array(np.argsort(np.concatenate([later, later[i % 5 == 1][: len(again)] + 3]), kind="stable")))


def make(folder: Path, operator: str) -> Any:
    text, count, more = OPERATORS[operator]
    folder.mkdir(exist_ok=True)
    names = ["near", "far"][:count]
    for i, name in enumerate(names):
        shuffled = corrected(rows(i), holes="imputer" in operator, withdrawals="withdrawals" in operator)
        pq.write_table(shuffled, folder / f"{name}.parquet")
    known = rows(9)["y"]
    pq.write_table(pa.table({"x": known, "y": known}), folder / "history.parquet")
    places = pa.table({"id": list(range(7)), "east": [2.0 * i for i in range(7)], "north": [0.0, 1.0] * 3 + [0.0]})
    pq.write_table(places, folder / "places.parquet")
    value = '"x"' if operator.startswith(("sensors", "phenomena")) else HOLES if "imputer" in operator else NORMAL
    head = 'engine = "local"\ncheckpoint = "state"\n'
    (folder / "job.toml").write_text(
        head + "".join(SOURCE.format(name=name, more=more, value=value) for name in names) + text + SINKS,
        encoding="utf-8",
    )
    return jobs.load(folder / "job.toml")


def step(job: Any, *, drain: bool = False) -> None:
    resident = Resident(job, commit_every=0.0)
    for source in resident.sources:
        assert isinstance(source, Recorded)
        source._rows = 7
    resident.run(once=not drain, drain=drain)


def run(job: Any) -> None:
    step(job, drain=True)


def rejects(folder: Path) -> list[str]:
    return sorted(line for file in folder.glob("*.json") for line in file.read_text().splitlines())


@pytest.fixture
def small_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is held is saved with each write."""
    monkeypatch.setattr(saving, "_LEAST_LOG", 0)
    monkeypatch.setattr(saving, "_TIMES", 0)


@pytest.mark.usefixtures("small_log")
@pytest.mark.parametrize("operator", OPERATORS)
def test_a_crash_anywhere_changes_no_row(tmp_path: Path, operator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rename of a file fails once, before it or behind it: state, log, answers and rejects are such files."""
    whole = make(tmp_path / "whole", operator)
    run(whole)
    wanted, bad = written(tmp_path / "whole" / "out"), rejects(tmp_path / "whole" / "bad")
    job, replace = make(tmp_path / "broken", operator), Path.replace
    chance, left = np.random.default_rng(len(operator)), [0]

    def breaks(file: Path, to: Path) -> Path:
        left[0] -= 1
        if left[0] == 0 and chance.random() < 0.5:
            raise CrashError
        moved = replace(file, to)
        if left[0] == 0:
            raise CrashError
        return moved

    monkeypatch.setattr(Path, "replace", breaks)
    restored, restore = [0], states.restore

    def counted(engine: Any, blocks: Any) -> None:
        restored[0] += 1
        restore(engine, blocks)

    monkeypatch.setattr(states, "restore", counted)
    crashes = 0
    while crashes < 200:
        left[0] = int(chance.integers(2, 9))
        try:
            run(job)
            break
        except CrashError:
            crashes += 1
    monkeypatch.undo()
    assert crashes > 3
    assert restored[0] or operator in BY_ROWS
    assert written(tmp_path / "broken" / "out") == wanted
    assert rejects(tmp_path / "broken" / "bad") == bad
    assert len(wanted) > 5


@pytest.mark.usefixtures("small_log")
@pytest.mark.parametrize("operator", ["join", "encounters", "queries"])
def test_a_checkpoint_does_not_grow(tmp_path: Path, operator: str) -> None:
    run(make(tmp_path / "job", operator))
    log = list((tmp_path / "job" / "state" / "log").iterdir())
    assert len(log) < 8


def test_a_checkpoint_goes_on_where_it_ended_and_is_closed_by_a_drain(tmp_path: Path) -> None:
    job = make(tmp_path / "job", "encounters")
    Resident(job).run(once=True)
    before = len(written(tmp_path / "job" / "out"))
    Resident(job).run(drain=True)
    whole = make(tmp_path / "whole", "encounters")
    Resident(whole).run(drain=True)
    found = written(tmp_path / "job" / "out")
    assert before < len(found)
    assert found == written(tmp_path / "whole" / "out")
    with pytest.raises(ap.CheckpointError, match="was drained"):
        Resident(job).run(once=True)
    Resident(job).run(drain=True)  # a drain that was repeated has nothing to do
    assert written(tmp_path / "job" / "out") == found
    near = pq.read_table(tmp_path / "job" / "near.parquet")
    pq.write_table(pa.concat_tables([near, near]), tmp_path / "job" / "near.parquet")
    with pytest.raises(ap.CheckpointError, match="was drained: its streams have ended, and near has new rows"):
        Resident(job).run(drain=True)


def test_another_job_does_not_go_on(tmp_path: Path) -> None:
    job = make(tmp_path / "job", "encounters")
    Resident(job).run(once=True)
    Resident(job).run(once=True)
    text = job.file.read_text()
    job.file.write_text(text.replace("epsilon = 1.0", "epsilon = 2.0"))
    with pytest.raises(ap.CheckpointError, match=r"another job:\n.* has 1\.0, the job asks for 2\.0\nRestore the job"):
        Resident(jobs.load(job.file)).run(once=True)
    words = tmp_path / "job" / "state" / "call.json"
    broken = ["{", "[1]", words.read_text().replace("1.0", "NaN", 1)]
    for left in (*broken, None):  # the last as versions left it that kept no words
        words.unlink() if left is None else words.write_text(left)
        with pytest.raises(ap.CheckpointError, match=r"  meaning: the checkpoint has \w+, the job asks for \w+\n"):
            Resident(jobs.load(job.file)).run(once=True)
    job.file.write_text(text)
    Resident(jobs.load(job.file)).run(once=True)
    assert words.exists()
    (tmp_path / "spark" / "offsets").mkdir(parents=True)
    with pytest.raises(ap.CheckpointError, match="checkpoint of Spark"):
        Resident(job, checkpoint=str(tmp_path / "spark")).run(once=True)


@pytest.mark.usefixtures("small_log")
@pytest.mark.parametrize("operator", ["join", "encounters", "queries"])
def test_a_job_with_other_streams_or_filters_is_refused_in_words(tmp_path: Path, operator: str) -> None:
    job = make(tmp_path / "job", operator)
    Resident(job).run(once=True)
    text = job.file.read_text()
    name = next(iter(job.table.sources))
    job.file.write_text(text.replace(f"[sources.{name}]", "[sources.others]"))
    with pytest.raises(ap.CheckpointError, match=rf'streams: the checkpoint has \["{name}".*asks for \["others"'):
        Resident(jobs.load(job.file)).run(once=True)
    if operator == "queries":  # of which nothing is kept
        return
    job.file.write_text(text.replace('key = "id"', 'key = "id"\nwhere = "x > 0"', 1))
    with pytest.raises(ap.CheckpointError, match=r"where: the checkpoint has none, the job asks for "):
        Resident(jobs.load(job.file)).run(once=True)


@pytest.mark.usefixtures("small_log")
def test_a_frozen_state_is_read_by_its_own_version_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = make(tmp_path / "job", "count windows")
    with monkeypatch.context() as patch:
        patch.setattr(frozen, "_version", lambda: b"0.0.9")
        step(job)
    with pytest.raises(ap.CheckpointError, match=r"written by appulse 0\.0\.9"):
        Resident(job).run(once=True)


def _bucket() -> Any:
    call = ap.SimilarityJoin(*(ap.Stream(None, key="k", time="t", value="x", name=n) for n in "ab"), **SMALL)
    call.push(a=pa.table({"k": [1], "t": [0.0], "x": [0.0]}), b=pa.table({"k": [1], "t": [0.0], "x": [0.0]}))
    assert call.engine is not None
    return call.engine.bucket


def test_a_frozen_state_keeps_what_is_shared_and_how_arrays_lie() -> None:
    bucket = _bucket()
    array, ring = np.arange(6.0).reshape(2, 3), [1]
    ring.append(ring)  # type: ignore[arg-type]
    fixed = np.frombuffer(b"abc", np.uint8)
    held = {"a": array, "b": array, "turned": array.T, "fixed": fixed, "ring": ring, "big": 1 << 70, 3: (float("inf"),)}
    bucket.held = held | {"number": np.int64(4), "type": pa.list_(pa.int8()), "table": pa.table({"x": [1, None]})}
    frozen.thaw(bucket, frozen.freeze(bucket))
    found = bucket.held
    assert found["a"] is found["b"] is not array
    assert found["turned"].tolist() == array.T.tolist()
    assert found["turned"].flags.f_contiguous
    assert (found["a"].flags.writeable, found["fixed"].flags.writeable) == (True, False)
    assert found["ring"][1] is found["ring"]
    assert (found["big"], found[3], found["number"], type(found["number"])) == (1 << 70, (float("inf"),), 4, np.int64)
    assert (found["type"], found["table"]) == (pa.list_(pa.int8()), pa.table({"x": [1, None]}))


@pytest.mark.parametrize(
    "node",
    [
        ["function", "os", "system"],
        ["function", "appulse.engines.frozen", "_version"],
        ["function", "appulse.operators.output", "Lock"],
        ["object", "subprocess", "Popen", {}],
        ["object", "appulse.operators.output", "Lock", {}],
        ["object", "appulse.engines.frozen", "zlib", {}],
        ["method", [0], "__class__"],
        ["method", "text", "format"],
        ["nothing", 1],
        ["__init__", 1],
        ["list", [[7]]],
        ["array", "|O", [1], "C", [0, 8]],
        ["fixed", "<f8", [1 << 40], "C", [0, 8]],
    ],
)
def test_a_state_that_was_changed_runs_nothing(node: list[Any]) -> None:
    bucket = _bucket()
    version, _, blobs = frozen.freeze(bucket)
    nodes = json.dumps([[0], [["dict", [["bad", [1]]]], node]]).encode()
    with pytest.raises(ap.StateError, match="cannot be read"):
        frozen.thaw(bucket, [version, zlib.compress(nodes), blobs])
    assert not hasattr(bucket, "bad")


def test_what_has_no_place_in_a_state_is_refused() -> None:
    def nested() -> None: ...

    bucket, nested.__module__ = _bucket(), Output.__module__
    for strange, name in ((io.BytesIO(), r"io\.BytesIO"), (nested, r"builtins\.function")):
        bucket.strange = strange
        with pytest.raises(ap.StateError, match=f"{name} has no place in a checkpoint"):
            frozen.freeze(bucket)


def test_a_process_that_is_killed_goes_on(tmp_path: Path) -> None:
    """SIGKILL, at times that nobody chose."""
    run(make(tmp_path / "whole", "join"))
    job = make(tmp_path / "job", "join")
    job.file.write_text(job.file.read_text().replace('speed = "max"', "speed = 20"))
    command = [sys.executable, "-m", "appulse", "serve", "job.toml", "--no-page", "--drain"]
    for attempt in range(8):
        with subprocess.Popen(
            command, cwd=job.file.parent, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as process:
            seen = time.monotonic() + 120
            log = job.file.parent / "state" / "log"
            known = {file.name for file in log.iterdir()} if log.exists() else set()
            while process.poll() is None and time.monotonic() < seen:
                if attempt < 1 and log.exists() and {file.name for file in log.iterdir()} - known:
                    os.kill(process.pid, signal.SIGKILL)
                time.sleep(0.02)
            process.wait(60)
            if process.returncode == 0:
                break
    assert process.returncode == 0
    assert attempt > 0
    assert written(job.file.parent / "out") == written(tmp_path / "whole" / "out")
