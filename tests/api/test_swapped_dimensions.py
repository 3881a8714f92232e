"""Dimensions are compared by place: where two streams name one at different places, each call warns, once."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest

import appulse as ap

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

ROWS = pa.table({"id": [1, 2], "t": [0.0, 0.0], "u": [0.0, 1.0], "v": [50.0, 1.0]})
WITHIN: dict[str, Any] = {"epsilon": 1.0, "probability": 0.5}
PAIRS: dict[str, Any] = WITHIN | {"window": 1}
ANY: Any = ap  # calls whose streams and arguments are collected


def stream(frame: Any, value: Any, **more: Any) -> ap.Stream:
    return ap.Stream(frame, key="id", time="t", value=value, **more)


def two(frame: Any, *, swapped: bool = True, moving: bool = False) -> list[ap.Stream]:
    more = {"motion": ap.Straight(5)} if moving else {}
    orders = [("u", "v"), ("v", "u") if swapped else ("u", "v")]
    return [stream(frame, ap.Gaussian(*order, sigma=1.0), **more) for order in orders]


CALLS: dict[str, Callable[..., Any]] = {
    "similarity_join": lambda frame, **kind: ap.similarity_join(*two(frame, **kind), **PAIRS),
    "joined while they move": lambda frame, **kind: ap.similarity_join(*two(frame, moving=True, **kind), **PAIRS),
    "nearest": lambda frame, **kind: ANY.nearest(*two(frame, **kind), epsilon=1.0, window=1),
    "assign": lambda frame, **kind: ap.assign(*two(frame, **kind), **WITHIN, window="tick"),
    "outliers": lambda frame, **kind: ap.outliers(*two(frame, **kind), fewer_than=1, **PAIRS),
    "encounters": lambda frame, **kind: ap.encounters(*two(frame, moving=True, **kind), **WITHIN),
}
BY_HAND: dict[str, Callable[..., Any]] = {
    "SimilarityJoin": lambda **kind: ap.SimilarityJoin(*two(None, **kind), **PAIRS),
    "Nearest": lambda **kind: ANY.Nearest(*two(None, **kind), epsilon=1.0, window=1),
    "Assign": lambda **kind: ANY.Assign(*two(None, **kind), **WITHIN, window="tick"),
    "Outliers": lambda **kind: ANY.Outliers(*two(None, **kind), fewer_than=1, **PAIRS),
    "Encounters": lambda **kind: ap.Encounters(*two(None, moving=True, **kind), **WITHIN),
}


def warned(call: Callable[[], Any]) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [one for one in caught if one.category is ap.SwappedDimensions]


def one_of(call: Callable[[], Any]) -> str:
    (only,) = warned(call)
    assert Path(only.filename).name == Path(__file__).name
    return str(only.message)


@pytest.mark.parametrize("name", CALLS)
def test_a_call_warns_once_at_the_line_of_the_user(name: str) -> None:
    text = one_of(lambda: CALLS[name](ROWS))
    assert text.startswith("'u' is dimension 1 of stream 'left' and dimension 2 of 'right'.")
    assert warned(lambda: CALLS[name](ROWS, swapped=False)) == []


@pytest.mark.parametrize("name", BY_HAND)
def test_a_call_by_hand_warns_where_it_is_made_and_not_as_rows_come(name: str) -> None:
    def whole() -> None:
        call = BY_HAND[name]()
        for _ in range(2):
            call.push(left=ROWS.slice(0, 1))
        call.push(left=ROWS, right=ROWS)
        call.drain()

    assert "'u' is dimension 1" in one_of(whole)
    assert warned(lambda: BY_HAND[name](swapped=False)) == []


@pytest.mark.parametrize("name", CALLS)
def test_spark_warns_as_well(name: str, spark: SparkSession) -> None:
    frame = spark.createDataFrame(pd.DataFrame(ROWS.to_pydict()))
    assert "'u' is dimension 1" in one_of(lambda: CALLS[name](frame))
    assert warned(lambda: CALLS[name](frame, swapped=False)) == []


def test_what_is_swapped() -> None:
    """Names of samples, places of three streams, and positions; not other names, nor one stream with itself."""
    values: list[tuple[Any, ...]] = [
        (ap.Exact("u", "v"), ap.Exact("w", "u")),
        (ap.Exact("u", "v"), ap.Gaussian("v", "u", sigma=1.0), ap.Exact("a", "b")),
        (ap.Exact("a", "b"), ap.Exact("u", "v"), ap.Gaussian("v", "w", sigma=1.0)),
        (ap.Samples("s", names=("u", "v")), ap.Ball("v", "u", radius=1.0)),
        (ap.Position("u", "v"), ap.Position("v", "u")),
    ]
    rows = ROWS.append_column("s", pa.array([[[0.0, 1.0]], [[0.0, 1.0]]])).append_column("w", ROWS["u"])
    rows = rows.append_column("a", ROWS["u"]).append_column("b", ROWS["v"])
    for some in values:
        given = [stream(rows, value) for value in some]
        assert "Dimensions are compared by their place" in one_of(partial(ANY.similarity_join, *given, **PAIRS))
    text = one_of(lambda: ANY.similarity_join(*[stream(rows, value) for value in values[2]], **PAIRS))
    assert "'v' is dimension 2 of stream 'right' and dimension 1 of 's3'" in text
    for fine in ((ap.Exact("u", "v"), ap.Exact("a", "b")), (ap.Exact("u", "v"), ap.Gaussian("u", "v", sigma=1.0))):
        given = [stream(rows, value) for value in fine]
        assert warned(partial(ANY.similarity_join, *given, **PAIRS)) == []
    alone = stream(rows, ap.Exact("u", "v"))
    assert warned(lambda: ap.similarity_join(alone, alone, **PAIRS)) == []
    assert warned(lambda: ap.outliers(alone, fewer_than=1, **PAIRS)) == []


def test_a_pair_that_is_explained_is_compared_by_place_too() -> None:
    rows, given = ROWS.to_pylist(), two(None)
    assert "'u' is dimension 1" in one_of(
        lambda: ap.explain_pair(rows[0], rows[1], left=given[0], right=given[1], **WITHIN)
    )
