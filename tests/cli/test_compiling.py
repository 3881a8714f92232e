"""Who waits while the first rows have machine code compiled learns why, once in a process."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """\
import sys
import pyarrow as pa
from numba import njit
import appulse as ap

def compile():
    njit(lambda x: x + 1)(1)

rows = pa.table({"id": [1, 2], "t": [0, 1], "x": [0.0, 0.5]})
asked = {"epsilon": 1.0, "probability": 1.0, "window": 5}
compile()
print("the call", file=sys.stderr)
CALL
compile()
compile()
"""
WHOLE = 'ap.self_join(ap.Stream(rows, key="id", time="t", value="x"), **asked)'
BY_HAND = 'ap.SimilarityJoin(ap.Stream(None, key="id", time="t", value="x"), **asked).push(rows)'


@pytest.mark.parametrize("call", [WHOLE, BY_HAND])
def test_it_is_said_once_and_only_from_a_call_on(call: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("CALL", call)], capture_output=True, text=True, check=True, timeout=300
    )
    before, _, after = done.stderr.partition("the call\n")
    assert (before, after.count("The first rows wait for machine code")) == ("", 1)
