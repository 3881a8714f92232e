"""Who waits while the first rows have machine code compiled learns why, once in a process."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """\
import sys
from pathlib import Path
import pyarrow as pa
import pyarrow.parquet as pq
from numba import njit
import appulse as ap
from appulse.cli import app

def compile():
    njit(lambda x: x + 1)(1)

rows = pa.table({"id": [1, 2], "t": [0, 1], "x": [0.0, 0.5]})
asked = {"epsilon": 1.0, "probability": 1.0, "window": 5}
pq.write_table(rows, "rows.parquet")
Path("job.toml").write_text('''
engine = "local"
[sources.rows]
format = "replay"
path = "rows.parquet"
speed = "max"
key = "id"
time = "t"
value = { model = "Exact", columns = ["x"] }
[self_join]
epsilon = 1.0
probability = 1.0
window = "5 seconds"
[sink]
format = "parquet"
path = "out"
''')
compile()
print("the call", file=sys.stderr)
CALL
compile()
compile()
"""
WHOLE = 'ap.self_join(ap.Stream(rows, key="id", time="t", value="x"), **asked)'
BY_HAND = 'ap.SimilarityJoin(ap.Stream(None, key="id", time="t", value="x"), **asked).push(rows)'
JOB = 'app(["serve", "job.toml", "--once", "--no-page"], standalone_mode=False)'


@pytest.mark.parametrize("call", [WHOLE, BY_HAND, JOB])
def test_it_is_said_once_and_only_from_a_call_on(tmp_path: Path, call: str) -> None:
    program = [sys.executable, "-c", PROGRAM.replace("CALL", call)]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=300)
    before, _, after = done.stderr.partition("the call\n")
    assert (before, after.count("The first rows wait for machine code")) == ("", 1)
