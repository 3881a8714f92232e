"""probabilities="bounds": the same pairs, the truth inside, on every engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

import appulse as ap
from tests.helpers import hands, strategies

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAIR = ("left_stream", "left_key", "left_time", "right_stream", "right_key", "right_time", "distance")


def _sorted(result: pa.Table) -> list[dict[str, Any]]:
    return sorted(result.to_pylist(), key=lambda row: [str(row[name]) for name in PAIR] + [row["probability"]])


def _check(bounded: pa.Table, exact: pa.Table, threshold: float) -> None:
    assert [name for name in bounded.schema.names if name != "probability_upper"] == exact.schema.names
    found, wanted = _sorted(bounded), _sorted(exact)
    assert [[row[name] for name in PAIR] for row in found] == [[row[name] for name in PAIR] for row in wanted]
    for row in found:
        assert threshold - 2e-9 <= row["probability"] <= row["probability_upper"] <= 1.0 + 1e-12
    # Rows of one key and one time may stand in any order among themselves.
    same = {tuple(str(row[name]) for name in PAIR) for row in wanted}
    if len(same) == len(wanted):
        for row, true in zip(found, wanted, strict=True):
            assert row["probability"] - 1e-12 <= true["probability"] <= row["probability_upper"] + 1e-12


@settings(max_examples=50)
@given(strategies.cases(bad=False, most=6, windows=("time", "uncertain")))
def test_pairs_are_the_same_and_the_truth_lies_inside(case: strategies.Case) -> None:
    call = ap.self_join if case.self_join else ap.similarity_join
    exact, bounded = (call(*case.framed(), **case.settings, probabilities=p) for p in ("exact", "bounds"))
    _check(bounded, exact, case.probability)


def _clouds(seed: int, n: int, d: int, weighted: bool) -> tuple[pa.Table, pa.Table]:
    rng = np.random.default_rng(seed)
    tables = []
    for _ in range(2):
        radius = rng.random((n, 1, 1)) * 0.4
        samples = rng.random((n, 1, d)) + radius * rng.uniform(-1, 1, (n, 50, d))
        weights = rng.dirichlet(np.ones(50), n) * rng.uniform(0.6, 1.0, (n, 1))
        columns = {"w": weights.tolist()} if weighted else {}
        tables.append(pa.table({"id": np.arange(n), "ts": np.arange(n) / 10, "s": samples.tolist()} | columns))
    return tables[0], tables[1]


def _streams(tables: tuple[Any, Any], weighted: bool) -> list[ap.Stream]:
    model = ap.Samples("s", weights="w" if weighted else None, names=("x", "y"))
    return [ap.Stream(table, key="id", time="ts", value=model) for table in tables]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("alpha", [0.1, 0.5])
@pytest.mark.parametrize("d", [2, 3])
def test_many_samples_end_early(d: int, alpha: float, weighted: bool) -> None:
    tables = _clouds(d, 120, d, weighted)
    model = ap.Samples("s", weights="w" if weighted else None)
    streams = [ap.Stream(table, key="id", time="ts", value=model) for table in tables]
    question: dict[str, Any] = {"epsilon": 0.3, "probability": alpha, "window": ap.TimeWindow(3)}
    exact = ap.similarity_join(*streams, **question)
    bounded = ap.similarity_join(*streams, **question, probabilities="bounds")
    assert len(exact) > 30
    _check(bounded, exact, alpha)
    open_pairs = bounded["probability_upper"].to_numpy() - bounded["probability"].to_numpy()
    assert (open_pairs > 0.01).mean() > 0.3, "nearly all pairs were summed to the end"
    for bounds in ("sample", "square", "accept"):
        options = ap.Options(bounds=frozenset({bounds}))
        _check(ap.similarity_join(*streams, **question, probabilities="bounds", options=options), exact, alpha)


def test_changes_and_the_standing_answer_have_both_columns() -> None:
    left, right = _clouds(1, 60, 2, weighted=False)
    a, b = _streams((None, None), weighted=False)
    join = hands.similarity_join(
        left=a, right=b, epsilon=0.3, probability=0.3, window=ap.TimeWindow(1), emit="changes", probabilities="bounds"
    )
    told = pa.concat_tables([join.push(left=left, right=right), join.drain()])
    assert "probability_upper" in told.schema.names
    by_change: dict[int, set[Any]] = {1: set(), -1: set()}
    for row in told.to_pylist():
        by_change[row["change"]].add((row["left_key"], row["right_key"], row["probability"], row["probability_upper"]))
    assert by_change[-1]
    assert by_change[-1] <= by_change[1]
    assert "probability_upper" in join.current().schema.names


def test_what_cannot_be_bounded_says_so() -> None:
    streams = _streams(_clouds(1, 3, 2, weighted=False), weighted=False)
    question: dict[str, Any] = {"epsilon": 0.3, "probability": 0.3, "window": ap.TimeWindow(1)}
    with pytest.raises(ap.BadArgument, match="weights sum to the exact probability"):
        ap.similarity_join(*streams, **question, values=True, probabilities="bounds")
    with pytest.raises(ap.BadArgument, match=r"probabilities='bound'.*bounds"):
        ap.similarity_join(*streams, **question, probabilities="bound")


def test_spark_has_the_same_columns_and_pairs(spark: SparkSession) -> None:
    tables = _clouds(4, 60, 2, weighted=False)
    question: dict[str, Any] = {"epsilon": 0.3, "probability": 0.3, "window": ap.CountWindow(30)}
    exact = ap.similarity_join(*_streams(tables, weighted=False), **question)
    schema = "id long, ts double, s array<array<double>>"
    frames = [spark.createDataFrame(table.to_pylist(), schema) for table in tables]
    there = ap.similarity_join(*_streams((frames[0], frames[1]), weighted=False), **question, probabilities="bounds")
    _check(there.toArrow(), exact, 0.3)
