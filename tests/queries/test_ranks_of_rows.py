"""Queries over two streams: rows are put in order where they are of one time, and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import appulse as ap
from appulse.engines.multi_queries import rows as multi_rows

if TYPE_CHECKING:
    import pytest


def test_only_rows_of_one_time_are_ranked(monkeypatch: pytest.MonkeyPatch) -> None:
    ranked, rank = [], multi_rows._ranked

    def counted(values: Any) -> Any:
        ranked.append(len(values))
        return rank(values)

    monkeypatch.setattr(multi_rows, "_ranked", counted)
    streams = [ap.Stream(None, key="id", time="t", value=ap.Exact("x"), name=name) for name in ("left", "right")]
    call = ap.QueryMatch(*streams)
    call.change(pa.table({"query": ["same"], "condition": ["left.x = right.x WITHIN 1000 SECONDS"]}))
    rows = pa.table({"id": np.arange(300), "t": np.arange(300.0), "x": np.arange(300.0)})
    twice = pa.table({"id": [2, 1], "t": [400.0, 400.0], "x": [7.0, 7.0]})
    call.push(left=rows, right=rows)
    assert not ranked
    found = call.push(left=twice, right=rows.slice(0, 0)).to_pylist() + call.drain().to_pylist()
    assert sorted((row["left_key"], row["right_key"]) for row in found if row["left_time"] == 400.0) == [(1, 7), (2, 7)]
    assert set(ranked) == {2}
