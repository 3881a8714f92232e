"""Margins, metrics and groups of dimensions on Spark: answers and rejects as in process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

import appulse as ap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHANCE = np.random.default_rng(7)
ROWS = pd.DataFrame(
    {"id": range(300), "at": 0.0, "grow": CHANCE.exponential(0.5, 300)}
    | {name: CHANCE.uniform(0.0, 20.0, 300) for name in "xyz"}
)
ROWS.loc[:1, "grow"] = [-1.0, np.nan]


@pytest.mark.parametrize(
    ("margin", "asked"),
    [("grow", {"epsilon": 0.5, "metric": "chebyshev"}), (0.0, {"epsilon": {("x", "y"): 2.0, "z": 1.0}})],
    ids=["margins", "groups"],
)
def test_batch_on_spark_answers_as_in_process(spark: SparkSession, margin: Any, asked: dict[str, Any]) -> None:
    def found(frame: Any) -> tuple[Any, Any]:
        value = ap.Gaussian("x", "y", "z", sigma=0.2)
        stream: ap.Stream[Any] = ap.Stream(frame, key="id", time="at", value=value, margin=margin)
        result = ap.self_join(
            stream, probability=0.5, window=1, scale={"x": 2.0}, options=ap.Options(partitions=2), **asked
        )
        tables = [one if hasattr(one, "to_pylist") else one.toArrow() for one in (result, ap.rejects(result))]
        pairs = [(r["left_key"], r["right_key"], round(r["probability"], 8)) for r in tables[0].to_pylist()]
        return sorted(pairs), sorted((r["key"], r["reason"]) for r in tables[1].to_pylist())

    pairs, rejects = found(ROWS)
    assert len(pairs) > 50
    assert rejects == ([(0, "negative margin"), (1, "non-finite value")] if margin else [])
    assert found(spark.createDataFrame(ROWS)) == (pairs, rejects)


def test_margins_reach_into_the_corners_of_a_square(spark: SparkSession) -> None:
    """Of 3.9 and 3.9 apart, within 1 and a margin of 3; the tiles of both rows have to meet, too."""
    value = ap.Exact("x", "y")
    left, right = (
        spark.createDataFrame([(0, 0.0, x, x) for x in places], "id long, at double, x double, y double")
        for places in ([0.0, 50.0], [3.9, 54.1])
    )
    found: Any = ap.similarity_join(
        ap.Stream(left, key="id", time="at", value=value),
        ap.Stream(right, key="id", time="at", value=value, margin=3.0),
        epsilon=1.0,
        metric="chebyshev",
        probability=1,
        window=1,
        options=ap.Options(partitions=2),
    )
    assert [round(row.distance, 9) for row in found.collect()] == [3.9]
