"""Who waits while a job's first rows have machine code compiled learns why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numba import njit
from typer.testing import CliRunner

from appulse.cli import app
from appulse.engines.compiling import when_compiling
from appulse.jobs.resident import Resident

if TYPE_CHECKING:
    from pathlib import Path

JOB = """\
engine = "local"
[sources.ships]
format = "replay"
path = "ships.parquet"
speed = "max"
key = "ship"
time = "at"
value = { model = "Exact", columns = ["x"] }
[self_join]
epsilon = 1.0
probability = 1.0
window = "5 seconds"
[sink]
format = "parquet"
path = "out"
"""


def fresh() -> Any:
    return njit(lambda x: x + 1)


def test_it_is_said_once_and_only_then() -> None:
    said: list[str] = []
    kernel, other = fresh(), fresh()
    kernel(1)
    with when_compiling(lambda: said.append("!")):
        kernel(2)
        assert not said
        other(1)
        other(1.0)
        assert said == ["!"]
    fresh()(1)
    assert said == ["!"]


@pytest.mark.parametrize("compiles", [True, False])
def test_a_job_says_that_its_first_rows_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiles: bool) -> None:
    pq.write_table(pa.table({"ship": ["a", "b"], "at": [1.0, 2.0], "x": [0.0, 0.5]}), tmp_path / "ships.parquet")
    (tmp_path / "job.toml").write_text(JOB)

    def run(_: Resident, *__: object, **___: object) -> None:
        if compiles:
            fresh()(1)

    monkeypatch.setattr(Resident, "run", run)
    done = CliRunner().invoke(app, ["serve", str(tmp_path / "job.toml"), "--once", "--no-page"])
    assert done.exit_code == 0, done.output
    assert ("The first rows wait for machine code" in done.output) is compiles
