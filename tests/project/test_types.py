"""What a type checker knows of answers: a Spark frame gives a Spark DataFrame, all else a table."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# PyArrow ships no types of its own; with some, a table is one.
ARROW = """\
from typing import Any
class Table: ...
def __getattr__(name: str) -> Any: ...
"""
# What answers do not have in their types: to look through it took most of the time.
SETTINGS = """\
[mypy]
strict = True
[mypy-numba.*,llvmlite.*,matplotlib.*,hypothesis.*,rich.*,markdown_it.*,pydantic.*,numpy.*,typer.*,pytest.*,_pytest.*]
follow_imports = skip
follow_imports_for_stubs = True
"""
PROGRAM = """\
import pandas as pd
import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame
from typing_extensions import reveal_type

import appulse as ap


def calls(spark: DataFrame, arrow: pa.Table, pandas: pd.DataFrame, polars: pl.DataFrame) -> None:
    s = ap.Stream(spark, key="k", time="t", value="v")
    a = ap.Stream(arrow, key="k", time="t", value="v")
    p = ap.Stream(pandas, key="k", time="t", value="v")
    l = ap.Stream(polars, key="k", time="t", value="v")
    reveal_type(ap.similarity_join(s, s, epsilon=1, probability=1, window=1))  # DataFrame
    reveal_type(ap.similarity_join(a, p, l, epsilon=1, probability=1, window=1))  # Table
    reveal_type(ap.self_join(s, epsilon=1, probability=1, window=1))  # DataFrame
    reveal_type(ap.self_join(p, epsilon=1, probability=1, window=1))  # Table
    reveal_type(ap.match_queries(s, pandas))  # DataFrame
    reveal_type(ap.match_queries(l, p, pandas))  # Table
    reveal_type(ap.match_queries(p, queries=pandas))  # Table
    reveal_type(ap.ask(s, pandas))  # DataFrame
    reveal_type(ap.sensor_join(s, window=1))  # DataFrame
    reveal_type(ap.sensor_join(l, window=1))  # Table
    reveal_type(ap.phenomena(s, strength=1, span=1))  # DataFrame
    reveal_type(ap.phenomena(a, strength=1, span=1))  # Table
    reveal_type(ap.window_aggregate(ap.filter(s, "v > 1"), {"v": "sum"}, window=1))  # DataFrame
    reveal_type(ap.window_aggregate(ap.impute(p, ap.ZeroFill()), {"v": "sum"}, window=1))  # Table
    reveal_type(ap.rejects(ap.sensor_join(s, window=1)))  # DataFrame
    reveal_type(ap.rejects(ap.sensor_join(p, window=1)))  # Table
    reveal_type(ap.explain(ap.sensor_join(s, window=1)))  # Explanation
    reveal_type(ap.SimilarityJoin(ap.Stream(None, "k", "t", "v"), epsilon=1, probability=1, window=1).push())  # Table
    reveal_type(ap.WindowAggregate(ap.Stream(None, "k", "t", "v"), {"v": "sum"}, window=1).drain())  # Table
    reveal_type(ap.QueryMatch(ap.Stream(None, "k", "t", "v")).rejects())  # Table
"""


def test_answers_have_the_type_of_what_was_given(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    pytest.importorskip("pyspark")
    (tmp_path / "pyarrow").mkdir()
    (tmp_path / "pyarrow" / "__init__.pyi").write_text(ARROW)
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "mypy.ini").write_text(SETTINGS)
    options = ["--follow-imports=silent", "--no-error-summary", f"--cache-dir={tmp_path / 'cache'}"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "program.py"],
        cwd=tmp_path,
        env=os.environ | {"MYPYPATH": f"{tmp_path}:{ROOT / 'src'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    known = {int(line): name for line, name in re.findall(r'py:(\d+): note: Revealed type is ".*?(\w+)"', done.stdout)}
    lines = PROGRAM.splitlines()
    expected = {i: line.rpartition("# ")[2] for i, line in enumerate(lines, 1) if "reveal_type(" in line}
    assert known == expected, done.stdout + done.stderr
    assert "error:" not in done.stdout, done.stdout
