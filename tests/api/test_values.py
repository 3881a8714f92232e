"""Answers with the samples behind them, and what operators put out as streams again."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import appulse as ap
from tests.helpers import naive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

EPSILON = 1.0
Row = tuple[list[float], list[float]]  # samples on a line, and their weights


def rows(most: int) -> st.SearchStrategy[list[Row]]:
    """A few rows of up to three samples, that exist with less than certainty."""
    values = st.lists(st.sampled_from((0.0, 0.5, 1.0, 2.0, 3.5)), min_size=1, max_size=3, unique=True)
    shares = st.sampled_from((0.05, 0.1, 0.2, 0.3))
    row = values.flatmap(lambda v: st.tuples(st.just(v), st.lists(shares, min_size=len(v), max_size=len(v))))
    return st.lists(row, min_size=1, max_size=most)


def table(rows: Sequence[Row]) -> pa.Table:
    n = len(rows)
    return pa.table(
        {
            "id": list(range(n)),
            "ts": [float(i) for i in range(n)],
            "s": pa.array([values for values, _ in rows], pa.list_(pa.float64())),
            "w": pa.array([weights for _, weights in rows], pa.list_(pa.float64())),
        }
    )


def stream(frame: Any) -> ap.Stream:
    return ap.Stream(frame, key="id", time="ts", value=ap.Samples("s", weights="w", names=("v",)))


def joined(left: Any, right: Any, **settings: Any) -> Any:
    question: dict[str, Any] = {"epsilon": EPSILON, "probability": 0.01, "window": ap.TimeWindow(100)} | settings
    return ap.similarity_join(stream(left), stream(right), values=True, **question)


@given(rows(4), rows(4), st.sampled_from((ap.TimeWindow(2), ap.UncertainCountWindow(1, 0.9))))
def test_pairs_are_the_close_samples(left: list[Row], right: list[Row], window: Any) -> None:
    """Each with the product of its weights, times what the windows make of the pair; they sum to its probability."""
    result = joined(table(left), table(right), window=window)
    usual = ap.similarity_join(
        stream(table(left)), stream(table(right)), epsilon=EPSILON, probability=0.01, window=window
    )
    naive.assert_same_answers(result.drop_columns(["pairs"]), naive.answers_of(usual))
    for answer in result.to_pylist():
        (xs, ps), (ys, qs) = left[answer["left_key"]], right[answer["right_key"]]
        close = {
            (x, y): p * q for x, p in zip(xs, ps, strict=True) for y, q in zip(ys, qs, strict=True) if abs(x - y) <= 1
        }
        factor = answer["probability"] / sum(close.values())
        found = {(pair["left"][0], pair["right"][0]): pair["weight"] for pair in answer["pairs"]}
        assert list(found) == list(close)  # in the order of the samples, whichever row came first
        assert found == pytest.approx({points: weight * factor for points, weight in close.items()})
        assert sum(found.values()) == pytest.approx(answer["probability"], abs=1e-12)


@pytest.mark.parametrize(
    "model",
    [
        ap.Gaussian("x", "y", sigma="s"),
        ap.Gaussian("x", "y", sigma=["s", "s2"]),
        ap.Ball("x", "y", radius="s"),
        ap.Exact("x", "y"),
    ],
)
def test_a_value_without_spread_is_one_point(model: Any) -> None:
    """It is listed once; beside it in the frame others keep their points."""
    columns = {"id": [1, 2], "ts": [0, 0], "x": [0.0, 0.0], "y": [0.25, 0.25], "s": [0.0, 0.01], "s2": [0.0, 0.0]}
    pair = [ap.Stream(pa.table(columns), key="id", time="ts", value=model) for _ in range(2)]
    found = ap.similarity_join(*pair, epsilon=1, probability=0.5, window=ap.TimeWindow(1), values=True).to_pylist()
    points = 1 if isinstance(model, ap.Exact) else 64
    listed = {(row["left_key"], row["right_key"]): len(row["pairs"]) for row in found}
    assert listed == {(1, 1): 1, (1, 2): points, (2, 1): points, (2, 2): points**2}
    assert found[0]["pairs"] == [{"left": [0.0, 0.25], "right": [0.0, 0.25], "weight": 1.0}]
    assert [row["probability"] for row in found] == pytest.approx([1.0] * 4)


@given(rows(1), rows(1))
def test_filter_and_sum_over_a_pair_are_those_of_possible_worlds(left: list[Row], right: list[Row]) -> None:
    """A pair's values are filtered, then summed: as if every world had been gone through."""
    result = joined(table(left), table(right))
    pairs = ap.Stream(result, key="left_key", time="right_time", value=ap.Samples("pairs", names=("l", "r")))
    found = ap.window_aggregate(
        ap.filter(pairs, "l + r > 1"), {"l": ["sum", "count"], "r": "sum"}, window=ap.TimeWindow(0)
    ).to_pylist()
    total = dict.fromkeys(("l_sum", "r_sum", "l_count"), Fraction(0))
    (xs, ps), (ys, qs) = left[0], right[0]
    for (x, p), (y, q) in product(zip(xs, ps, strict=True), zip(ys, qs, strict=True)):
        if abs(x - y) <= EPSILON and x + y > 1:
            chance = Fraction(p) * Fraction(q)
            total["l_sum"] += chance * Fraction(x)
            total["r_sum"] += chance * Fraction(y)
            total["l_count"] += chance
    if not found:
        assert total["l_count"] == 0 or len(result) == 0
        return
    for name, value in total.items():
        assert found[0][name] == pytest.approx(float(value), abs=1e-12)


def test_a_self_join_has_the_earlier_row_left() -> None:
    """In its pairs, too."""
    frame = table([([0.0], [0.5]), ([0.25], [0.5])])
    result = ap.self_join(stream(frame), epsilon=1.0, probability=0.1, window=ap.TimeWindow(5), values=True)
    assert result["pairs"].to_pylist() == [[{"left": [0.0], "right": [0.25], "weight": 0.25}]]


def test_gaussians_are_answered_through_their_points() -> None:
    """Sixty-four each."""
    frame = pa.table({"id": [1], "ts": [0.0], "x": [0.0]})
    gaussian = ap.Stream(frame, key="id", time="ts", value=ap.Gaussian("x", sigma=1.0))
    other = ap.Stream(frame, key="id", time="ts", value=ap.Exact("x"))
    result = ap.similarity_join(gaussian, other, epsilon=9.0, probability=0.5, window=ap.TimeWindow(0), values=True)
    assert len(result["pairs"][0]) == 64
    assert result["probability"].to_pylist() == [pytest.approx(1.0)]


def test_distributions_are_samples() -> None:
    """A list of (value, probability) is a stream's value as it is."""
    frame = table([([1.0, 3.0], [0.4, 0.5])])
    totals = ap.window_aggregate(stream(frame), {"v": "sum"}, window=ap.TimeWindow(0), distribution=True)
    totals = totals.append_column("id", pa.array([7]))
    again = ap.Stream(totals, key="id", time="time", value=ap.Samples("v_sum_distribution", names=("total",)))
    found = ap.window_aggregate(again, {"total": ["mean", "max"]}, window=ap.TimeWindow(0)).to_pylist()
    assert found[0]["total_mean"] == pytest.approx(1.9)
    assert found[0]["total_mean_exists"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (pa.list_(pa.struct([("name", pa.string())])), "structs need numbers"),
        (pa.list_(pa.struct([("x", pa.float64()), ("weight", pa.float64())])), "Leave out weights="),
    ],
)
def test_structs_that_are_no_samples_are_refused(kind: pa.DataType, message: str) -> None:
    frame = pa.table({"id": [1], "ts": [0.0], "s": pa.array([[]], kind), "w": [[1.0]]})
    with pytest.raises(ap.BadArgument, match=message):
        ap.self_join(stream(frame), epsilon=1.0, probability=0.5, window=ap.TimeWindow(0))


def test_structs_with_lists_of_several_lengths_are_rejects() -> None:
    kind = pa.list_(pa.struct([("at", pa.list_(pa.float64())), ("weight", pa.float64())]))
    samples = [
        [{"at": [1.0, 2.0], "weight": 0.5}],
        [{"at": [1.0], "weight": 0.5}],
        [None],
        [{"at": None, "weight": 0.5}],
    ]
    frame = pa.table({"id": [1, 2, 3, 4], "ts": [0.0] * 4, "s": pa.array(samples, kind)})
    only = ap.Stream(frame, key="id", time="ts", value=ap.Samples("s", names=("x", "y")))
    result = ap.self_join(only, epsilon=1.0, probability=0.1, window=ap.TimeWindow(0))
    assert ap.rejects(result)["key"].to_pylist() == [2, 3, 4]


def test_spark_puts_out_the_same_pairs(spark: SparkSession) -> None:
    """As an array of structs, which is a stream again there, too."""
    left, right = table([([0.0, 2.0], [0.3, 0.4])] * 3), table([([0.5], [0.9]), ([2.5, 9.0], [0.2, 0.3])])
    window = ap.UncertainCountWindow(1, 0.9)
    here = joined(left, right, window=window)
    frames = [
        spark.createDataFrame(frame.to_pylist(), "id long, ts double, s array<double>, w array<double>")
        for frame in (left, right)
    ]
    there = joined(*frames, window=window)
    order = [("left_key", "ascending"), ("right_key", "ascending")]
    assert there.toArrow().cast(here.schema).sort_by(order).to_pylist() == here.sort_by(order).to_pylist()
    again = ap.Stream(there, key="left_key", time="right_time", value=ap.Samples("pairs", names=("l", "r")))
    found = ap.window_aggregate(again, {"l": "sum"}, window=ap.TimeWindow(0)).toArrow().to_pylist()
    usual = ap.Stream(here, key="left_key", time="right_time", value=ap.Samples("pairs", names=("l", "r")))
    expected = ap.window_aggregate(usual, {"l": "sum"}, window=ap.TimeWindow(0)).to_pylist()
    assert sorted(row["l_sum"] for row in found) == pytest.approx(sorted(row["l_sum"] for row in expected))
