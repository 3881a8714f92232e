"""Frames as pandas leaves them, and what is said of values that cannot be used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import appulse as ap
from appulse.cli import app

if TYPE_CHECKING:
    from pathlib import Path


def _left(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame whose rows were sorted and filtered, so that it has an index."""
    more = pd.concat([frame, frame.tail(1)])
    return more.iloc[::-1].iloc[1:]


def _filtered_frames_are_frames(asked: Any, frame: pd.DataFrame) -> None:
    assert asked(_left(frame)).num_rows == asked(frame).num_rows > 0


def test_an_index_without_a_name_is_no_column(tmp_path: Path) -> None:
    rows = pd.DataFrame({"k": [1, 2, 3, 4], "t": [0, 1, 2, 3], "x": [0.0, 0.1, 5.0, 5.1], "y": 0.0, "v": 1})
    stream = ap.Stream(rows, key="k", time="t", value=ap.Exact("x", "y"))
    fences = pd.DataFrame({"query": ["a", "b"], "region": ["POINT (0 0)", "POINT (5 0)"], "radius": [1.0, 1.0]})
    _filtered_frames_are_frames(lambda frame: ap.fence_events(stream, frame), fences)
    _filtered_frames_are_frames(lambda frame: ap.match_queries(stream, frame), fences)
    readings = ap.Stream(rows, key="k", time="t", value="v")
    asked: dict[str, Any] = {"resolution": 1, "strength": 1, "span": 5, "reach": 1.0}
    places = rows[["k", "x", "y"]]
    _filtered_frames_are_frames(lambda frame: ap.phenomena(readings, locations=frame, **asked), places)
    known = pd.DataFrame({"v": np.arange(300.0), "w": np.random.default_rng(0).normal(size=300)})
    assert ap.discover_dependencies(_left(known)) == ap.discover_dependencies(known)
    _left(known).to_parquet(tmp_path / "left.parquet")
    done = CliRunner().invoke(app, ["discover", str(tmp_path / "left.parquet")])
    assert done.exit_code == 0
    assert "__index" not in done.output
    assert (
        "__index_level_0__"
        not in ap.impute(
            ap.Stream(_left(rows), key="k", time="t", value=ap.Incomplete("x")), ap.LastValueImputer()
        ).frame.column_names
    )


def test_a_column_without_a_name_is_named_by_its_number(tmp_path: Path) -> None:
    pd.DataFrame({"v": [1.0, 2.0], "w": [1.0, 2.0]}).to_csv(tmp_path / "rows.csv")
    done = CliRunner().invoke(app, ["discover", str(tmp_path / "rows.csv")])
    assert done.exit_code == 2
    assert "Column 1 of" in done.output.replace("\n", " ")


def _details(stream: ap.Stream[Any]) -> dict[int, str]:
    found = ap.rejects(ap.self_join(stream, epsilon=1, probability=0.1, window=1)).to_pylist()
    return {int(row["key"]): row["detail"] for row in found}


def test_what_is_null_is_said_to_be() -> None:
    rows = pa.table({"k": [1, 2], "t": [0, 0], "x": [0.0, 0.0], "s": [None, float("nan")], "p": [None, 2.0]})
    value = ap.Gaussian("x", sigma="s")
    assert _details(ap.Stream(rows, key="k", time="t", value=value)) == {1: "s is null", 2: "s is nan"}
    exists = ap.Stream(rows, key="k", time="t", value="x", existence="p")
    assert _details(exists) == {1: "column 'p' is null", 2: "column 'p' is 2.0"}


def test_samples_are_counted_by_their_own_row() -> None:
    samples = [[[0.0, 0.0], [1.0, 1.0]], [[1.0]], [[1.0, 2.0]], [[0.0, 0.0], [1.0, 1.0]]]
    weights = [None, [1.0], [1.0], [4.0, 4.0]]
    rows = pa.table({"k": [0, 1, 2, 3], "t": [0] * 4, "s": samples, "w": weights})
    assert _details(ap.Stream(rows, key="k", time="t", value=ap.Samples("s", weights="w"))) == {
        0: "0 weights for 2 samples",
        1: "samples have [1] coordinates, the call has 2 dimensions",
        3: "weights sum to 8.0",
    }


def test_errors_name_the_frame_that_is_none() -> None:
    stream = ap.Stream(pa.table({"k": [1], "t": [0], "x": [0.0]}), key="k", time="t", value="x")
    with pytest.raises(ap.BadArgument, match=r"^The frame of queries is a builtins\.list"):
        ap.match_queries(stream, ["x > 5"])


@pytest.mark.parametrize(
    "minute", [np.timedelta64(60, "s"), np.timedelta64(60_000_000_000, "ns"), pd.Timedelta("1min")]
)
def test_durations_of_numpy_and_pandas(minute: Any) -> None:
    rows = pa.table({"k": [1, 2, 3], "t": [0, 60, 121], "x": [0.0, 0.0, 0.0]})
    stream = ap.Stream(rows, key="k", time="t", value="x", lateness=minute)
    assert ap.self_join(stream, epsilon=1, probability=1, window=minute).num_rows == 1
