"""Delta: a table whose corrections come by its change data feed, joined into a table, over a restart."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pandas as pd
import pyspark
import pytest

import appulse as ap
from benchmarks.servers import DELTA, Unavailable, jars
from tests.spark.delta_job import ASKED, VALUE

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.spark
def test_corrections_of_a_table_reach_the_pairs(tmp_path: Path) -> None:
    """All changes so far add up to the pairs of the tables as they are now."""
    if not pyspark.__version__.startswith("4.2"):
        pytest.skip(f"Delta has no release for Spark {pyspark.__version__}")
    try:
        jars(DELTA)
    except Unavailable as reason:
        pytest.skip(str(reason))
    run = [sys.executable, "-m", "tests.spark.delta_job", str(tmp_path)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    fixes, sights, pairs, rejects = (
        pd.read_parquet(tmp_path / f"{name}.parquet") for name in ("fixes", "sights", "pairs", "rejects")
    )
    held = pairs.groupby(["left_key", "right_key"])["change"].sum()
    streams = [ap.Stream(rows, key="id", time="at", value=VALUE) for rows in (fixes, sights)]
    expected = ap.similarity_join(*streams, **ASKED).to_pandas()
    assert len(fixes) == 32
    assert set(held[held != 0].index) == set(zip(expected["left_key"], expected["right_key"], strict=True))
    assert set(held) == {0, 1}
    assert len(rejects) == 0
    assert [path.name for path in (tmp_path / "pairs").glob("left_stream=*")] == ["left_stream=left"]
    assert len(list((tmp_path / "warehouse" / "rejects").glob("*.parquet"))) > 0
    transactions = json.loads((tmp_path / "transactions.json").read_text())
    assert len(transactions) == len(set(map(tuple, transactions))) == 2
    assert len({one for one, _ in transactions}) == 1
